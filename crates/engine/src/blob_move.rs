//! Moves content between the index and an object store.

mod fence;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use keepsake_blobs::{BlobError, BlobStore};
use keepsake_core::{BlobKey, ContentHash, TenantId};
use keepsake_index::{DeletionReason, DueDeletion, Index, IndexError, NamedBlob};
use serde::Serialize;
use serde_json::json;

use crate::jobs::ORPHAN_CONDEMNED_FOR;
use crate::{Clock, EngineError, IndexBlobs, Problem};

pub use fence::MoveFence;

const BATCH: u32 = 500;

/// Moves content from one place to another.
///
/// The move first copies every content that a version names and compares each copy with
/// the hash in the index; then it removes the originals. It may be stopped at any time
/// and run again: existing copies are only compared.
///
/// An object that no version names may belong to a write that is not committed yet. The
/// move condemns the object before it removes it, as the sweep does, so that such a
/// commit is refused and the write repeated.
#[derive(Debug)]
pub struct BlobMove {
    index: Index,
    from: Arc<dyn BlobStore>,
    to: Arc<dyn BlobStore>,
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MoveReport {
    pub copied: u64,
    pub copied_bytes: u64,
    /// Contents that the target had already.
    pub present: u64,
    /// Until the removal of originals begins, all of them are kept.
    #[serde(skip)]
    pub has_begun_removal: bool,
    /// Originals that were removed, and leftovers of deleted content in both places.
    pub removed: u64,
    /// Objects that belong to no tenant of this index; they are kept.
    pub foreign: u64,
    /// Contents that are missing or damaged. Then nothing was removed.
    pub problems: Vec<Problem>,
}

/// Why a move was not finished. [`MoveReport`] says how far the move came.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// A server or a worker was running at the start; nothing was copied.
    #[error("a server was running within the last 90 seconds")]
    Served,
    #[error("another `keepsake blobs move` is running, or was killed within the last two minutes")]
    AlreadyMoving,
    #[error("a server started meanwhile")]
    ServerStarted,
    /// Content was found among the originals that was not there when all content was
    /// copied.
    #[error("content was written to the old place meanwhile")]
    ContentWritten,
    #[error(transparent)]
    Failed(#[from] EngineError),
}

impl From<IndexError> for MoveError {
    fn from(error: IndexError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<BlobError> for MoveError {
    fn from(error: BlobError) -> Self {
        Self::Failed(error.into())
    }
}

enum CopyOutcome {
    Now(u64),
    Before,
    /// The versions that named the content were removed meanwhile.
    Unneeded,
    Problem(Problem),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MoveSide {
    Originals,
    Copies,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ObjectUse {
    Named,
    /// No version that can be read names the object, and none can from now on.
    Unneeded,
    /// The object's tenant is unknown; the object may belong to another installation.
    Foreign,
}

impl BlobMove {
    /// `None` is the index.
    pub fn new(
        index: Index,
        from: Option<Arc<dyn BlobStore>>,
        to: Option<Arc<dyn BlobStore>>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let in_index: Arc<dyn BlobStore> = Arc::new(IndexBlobs::new(index.clone()));
        Self { from: from.unwrap_or_else(|| Arc::clone(&in_index)), to: to.unwrap_or(in_index), index, clock }
    }

    /// Copies the contents that the target lacks, `at_once` concurrently, and calls
    /// `progress` with the counts so far. Servers may run.
    pub async fn copy(
        &self,
        at_once: usize,
        moved: &mut MoveReport,
        mut progress: impl FnMut(&MoveReport) + Send,
    ) -> Result<(), MoveError> {
        self.copy_behind(None, at_once, moved, &mut progress).await
    }

    /// Copies the contents that the target lacks, as [`Self::copy`] does. If no content
    /// is missing or damaged, it then removes the originals with their object versions,
    /// and the leftovers of deleted content in both places.
    ///
    /// No server may run: none can start meanwhile, and the move stops if one does.
    pub async fn run(
        &self,
        at_once: usize,
        moved: &mut MoveReport,
        mut progress: impl FnMut(&MoveReport) + Send,
    ) -> Result<(), MoveError> {
        let fence = MoveFence::put_up(self.index.clone(), Arc::clone(&self.clock)).await?;
        let run = self.run_behind(&fence, at_once, moved, &mut progress).await;
        let counts = json!({ "copied": moved.copied, "present": moved.present, "removed": moved.removed });
        fence.take_down(&counts, run.as_ref().err()).await;
        run
    }

    async fn run_behind(
        &self,
        fence: &MoveFence,
        at_once: usize,
        moved: &mut MoveReport,
        progress: &mut (impl FnMut(&MoveReport) + Send),
    ) -> Result<(), MoveError> {
        self.copy_behind(Some(fence), at_once, moved, progress).await?;
        if !moved.problems.is_empty() {
            return Ok(());
        }
        for side in [MoveSide::Originals, MoveSide::Copies] {
            self.remove(fence, side, moved, progress).await?;
        }
        // A server that ran unnoticed would leave content in the old place, where no
        // server looks for it.
        self.require_no_originals().await?;
        fence.hold().await
    }

    async fn copy_behind(
        &self,
        fence: Option<&MoveFence>,
        at_once: usize,
        moved: &mut MoveReport,
        progress: &mut (impl FnMut(&MoveReport) + Send),
    ) -> Result<(), MoveError> {
        let mut after = None;
        loop {
            if let Some(fence) = fence {
                fence.hold().await?;
            }
            let rows = self.index.upkeep.named_blobs(after.as_ref(), BATCH).await?;
            let Some(last) = rows.last() else {
                return Ok(());
            };
            after = Some(last.key);
            let first_of_key = rows.chunk_by(|one, other| one.key == other.key);
            let first_of_key = first_of_key.filter_map(|rows| rows.first());
            let wanted: Vec<_> = first_of_key.filter(|row| row.is_live).copied().collect();
            let mut copies = stream::iter(wanted)
                .map(|row| async move { self.copy_one(&row).await })
                .buffer_unordered(at_once);
            while let Some(copied) = copies.try_next().await? {
                if let Some(fence) = fence {
                    fence.hold_in_time().await?;
                }
                match copied {
                    CopyOutcome::Now(bytes) => {
                        moved.copied += 1;
                        moved.copied_bytes += bytes;
                    }
                    CopyOutcome::Before => moved.present += 1,
                    CopyOutcome::Unneeded => {}
                    CopyOutcome::Problem(problem) => moved.problems.push(problem),
                }
                progress(moved);
            }
        }
    }

    async fn copy_one(&self, row: &NamedBlob) -> Result<CopyOutcome, EngineError> {
        let key = row.key;
        if matches!(read(&*self.to, row).await?, ReadOutcome::AsRecorded(_)) {
            return Ok(CopyOutcome::Before);
        }
        let bytes = match read(&*self.from, row).await? {
            ReadOutcome::AsRecorded(bytes) => bytes,
            other => return self.not_copied(row, &other).await,
        };
        // `put` may keep an object that exists, so a damaged copy is deleted first.
        self.to.delete(&key).await?;
        self.to.put(&key, bytes).await?;
        match read(&*self.to, row).await? {
            ReadOutcome::AsRecorded(_) => Ok(CopyOutcome::Now(row.size_bytes)),
            other => self.not_copied(row, &other).await,
        }
    }

    async fn not_copied(&self, row: &NamedBlob, read: &ReadOutcome) -> Result<CopyOutcome, EngineError> {
        let key = row.key;
        if !self.index.upkeep.blob_is_named(&key).await? {
            return Ok(CopyOutcome::Unneeded);
        }
        Ok(CopyOutcome::Problem(match *read {
            ReadOutcome::Damaged { found_bytes } => {
                Problem::DamagedBlob { key, expected_bytes: row.size_bytes, found_bytes }
            }
            ReadOutcome::Missing | ReadOutcome::AsRecorded(_) => Problem::MissingBlob { key },
        }))
    }

    /// Removes objects of one side, a page at a time: on both sides leftovers of deleted content,
    /// and all originals that have a copy. An original that is needed and has no copy is an error.
    async fn remove(
        &self,
        fence: &MoveFence,
        side: MoveSide,
        moved: &mut MoveReport,
        progress: &mut (impl FnMut(&MoveReport) + Send),
    ) -> Result<(), MoveError> {
        let store = self.store_at(side);
        let mut tenants = KnownTenants::new(&self.index);
        let mut after = None;
        loop {
            let listed = store.list(None, after.as_ref(), BATCH as usize).await?;
            let Some(last) = listed.last() else {
                return Ok(());
            };
            after = Some(last.key);
            let (mut removable, mut condemned) = (Vec::new(), Vec::new());
            for key in listed.into_iter().map(|blob| blob.key) {
                fence.hold_in_time().await?;
                match self.use_of(&key, &mut tenants).await? {
                    ObjectUse::Named if side == MoveSide::Copies => {}
                    ObjectUse::Named if !self.to.contains(&key).await? => {
                        return Err(MoveError::ContentWritten);
                    }
                    ObjectUse::Named => removable.push(key),
                    ObjectUse::Unneeded => {
                        removable.push(key);
                        condemned.push(DueDeletion { key, attempts: 0, reason: DeletionReason::Orphan });
                    }
                    ObjectUse::Foreign => moved.foreign += 1,
                }
            }
            fence.hold().await?;
            for key in &removable {
                fence.hold_in_time().await?;
                moved.has_begun_removal = true;
                store.erase(key).await?;
                moved.removed += 1;
                progress(moved);
            }
            let condemned_until = self.clock.now().plus(ORPHAN_CONDEMNED_FOR);
            let queue = &self.index.blob_deletions;
            queue.finish(&condemned, condemned_until, None).await?;
        }
    }

    fn store_at(&self, side: MoveSide) -> &dyn BlobStore {
        match side {
            MoveSide::Originals => &*self.from,
            MoveSide::Copies => &*self.to,
        }
    }

    /// Decides whether an object is needed. An object that no version names is condemned:
    /// a write that would commit it later is refused.
    async fn use_of(&self, key: &BlobKey, tenants: &mut KnownTenants<'_>) -> Result<ObjectUse, MoveError> {
        let upkeep = &self.index.upkeep;
        if upkeep.blob_is_named(key).await? {
            return Ok(ObjectUse::Named);
        }
        if !tenants.contains(key.tenant_id).await? {
            return Ok(ObjectUse::Foreign);
        }
        let queue = &self.index.blob_deletions;
        let is_condemned = queue.condemn_orphan(key, self.clock.now()).await?;
        // An object is not condemned if a version names it. If that version was committed
        // since the first check, the object is needed. If it belongs to a deleted store,
        // no caller can read it, and no new version can name the object.
        Ok(if !is_condemned && upkeep.blob_is_named(key).await? {
            ObjectUse::Named
        } else {
            ObjectUse::Unneeded
        })
    }

    /// Checks that no object of this index is left among the originals.
    async fn require_no_originals(&self) -> Result<(), MoveError> {
        let mut tenants = KnownTenants::new(&self.index);
        let mut after = None;
        loop {
            let listed = self.from.list(None, after.as_ref(), BATCH as usize).await?;
            let Some(last) = listed.last() else {
                return Ok(());
            };
            after = Some(last.key);
            for blob in listed {
                if tenants.contains(blob.key.tenant_id).await? {
                    return Err(MoveError::ContentWritten);
                }
            }
        }
    }
}

/// A cache of which tenants the index has.
struct KnownTenants<'a> {
    index: &'a Index,
    known: HashMap<TenantId, bool>,
}

impl<'a> KnownTenants<'a> {
    fn new(index: &'a Index) -> Self {
        let known = HashMap::new();
        Self { index, known }
    }

    async fn contains(&mut self, tenant_id: TenantId) -> Result<bool, IndexError> {
        if let Some(is_there) = self.known.get(&tenant_id) {
            return Ok(*is_there);
        }
        let is_there = self.index.tenants.find(tenant_id).await?.is_some();
        self.known.insert(tenant_id, is_there);
        Ok(is_there)
    }
}

enum ReadOutcome {
    AsRecorded(Bytes),
    Damaged { found_bytes: u64 },
    Missing,
}

/// Reads a content and compares it with its row.
async fn read(store: &dyn BlobStore, row: &NamedBlob) -> Result<ReadOutcome, EngineError> {
    match store.get(&row.key, row.size_bytes).await {
        Ok(Some(bytes)) if row.sha256 == Some(ContentHash::of(&bytes)) => Ok(ReadOutcome::AsRecorded(bytes)),
        Ok(Some(bytes)) => Ok(ReadOutcome::Damaged { found_bytes: bytes.len() as u64 }),
        Ok(None) => Ok(ReadOutcome::Missing),
        Err(BlobError::TooLarge { found_bytes, .. }) => Ok(ReadOutcome::Damaged { found_bytes }),
        Err(error) => Err(error.into()),
    }
}
