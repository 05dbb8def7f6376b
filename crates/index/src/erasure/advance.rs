//! The next step of an erasure, the same on both databases.
//!
//! Rows are deleted store by store. For a whole store, the purge of deleted stores
//! removes batch after batch. For a directory, the step reads the history in order,
//! up to the last version at the time of the request. It first deletes the found
//! memories with their related rows, so that reads no longer find them; then the
//! session events that contain their paths; then their versions. After the stores,
//! it deletes the records of idempotent calls, because their hashes could confirm a
//! guess.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use keepsake_core::{DirPath, ErasureId, MemoryId, MemoryPath, StoreId, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Receipt, RowsErased, Selector};
use crate::IndexError;
use crate::commit::CommitPlan;

/// Each memory has rows in several tables, so a batch takes fewer memories than
/// rows.
const ROWS_OF_A_MEMORY: usize = 4;

/// The cursor of an erasure. It has ids, sequence numbers and hashes, but never a
/// path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    phase: Phase,
    /// All affected stores.
    stores: Vec<StoreId>,
    /// The index of the current store.
    current: usize,
    /// Whether the current store is deleted as a whole.
    is_whole: bool,
    /// Stores that are deleted as a whole.
    whole: Vec<StoreId>,
    /// The last version that was read.
    seq: i64,
    /// The last version to read: the store's last version at the time of the request.
    through: i64,
    /// Memories whose versions are deleted next.
    pending: Vec<MemoryId>,
    /// The last call record that was read.
    calls_after: Vec<u8>,
    /// The key hash of the call that requested the erasure.
    call: Option<[u8; 32]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Phase {
    Rows,
    Calls,
    Blobs,
}

impl Progress {
    /// The cursor at the start.
    pub(crate) fn new(stores: Vec<StoreId>, is_whole: bool, through: i64, call: Option<&[u8; 32]>) -> Self {
        Self {
            phase: Phase::Rows,
            stores,
            current: 0,
            is_whole,
            whole: Vec::new(),
            seq: 0,
            through,
            pending: Vec::new(),
            calls_after: Vec::new(),
            call: call.copied(),
        }
    }

    /// The cursor at the start of an erasure of one store; a store that is already
    /// deleted is erased as a whole.
    pub(crate) fn of_store(
        selector: &Selector,
        store_id: StoreId,
        seq: i64,
        is_deleted: bool,
        call: Option<&[u8; 32]>,
    ) -> (Selector, Self) {
        let selector = if is_deleted {
            Selector::Store(store_id)
        } else {
            selector.clone()
        };
        let is_whole = selector.below().is_none();
        (selector, Self::new(vec![store_id], is_whole, seq, call))
    }

    /// The receipt before any deletion.
    pub(crate) fn receipt(&self) -> Receipt {
        Receipt {
            memory_store_ids: self.stores.clone(),
            ..Receipt::default()
        }
    }

    /// The cursor as the erasure's row stores it.
    pub(crate) fn to_text(&self) -> Result<String, IndexError> {
        serde_json::to_string(self).map_err(|_| IndexError::Corrupt {
            table: "erasure",
            what: "a cursor that is no JSON",
        })
    }

    /// Stores that keep the data outside of the directory.
    fn in_part(&self) -> Vec<StoreId> {
        let stores = self.stores.iter().copied();
        stores.filter(|store_id| !self.whole.contains(store_id)).collect()
    }

    fn pending(&self) -> Vec<Uuid> {
        self.pending.iter().map(|memory_id| memory_id.uuid()).collect()
    }

    pub(crate) fn is_done(&self) -> bool {
        self.phase == Phase::Blobs
    }
}

/// An erasure under its lock.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) erasure_id: ErasureId,
    /// The directory whose memories are deleted; `None`: cleared, or whole stores are
    /// deleted.
    pub(crate) below: Option<DirPath>,
    pub(crate) progress: Progress,
    pub(crate) receipt: Receipt,
}

impl Open {
    /// Reads a row.
    pub(crate) fn of(
        erasure_id: ErasureId,
        selector: Option<Selector>,
        cursor: Option<&str>,
        receipt: Option<Receipt>,
    ) -> Result<Self, IndexError> {
        let progress = cursor.and_then(|cursor| serde_json::from_str(cursor).ok());
        Ok(Self {
            erasure_id,
            below: selector.and_then(|selector| selector.below()),
            progress: progress.ok_or(IndexError::Corrupt {
                table: "erasure",
                what: "a cursor of no erasure",
            })?,
            receipt: receipt.unwrap_or_default(),
        })
    }

    /// Whether the selector is still needed.
    pub(crate) fn selects_more(&self) -> bool {
        self.progress.phase == Phase::Rows
    }

    pub(crate) fn rows_erased(&self) -> RowsErased {
        RowsErased {
            is_done: self.progress.is_done(),
            whole_stores: self.progress.whole.clone(),
            part_stores: self.progress.in_part(),
        }
    }
}

/// Rows that one batch of a store's purge deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Purged {
    pub(crate) versions: u64,
    pub(crate) memories: u64,
    pub(crate) access_times: u64,
    pub(crate) search_documents: u64,
    pub(crate) directories: u64,
    pub(crate) session_resources: u64,
    pub(crate) session_events: u64,
    /// The store's own row.
    pub(crate) stores: u64,
    /// Blobs queued.
    pub(crate) blobs: u64,
    /// Bytes of content that the versions introduced.
    pub(crate) bytes: u64,
    pub(crate) is_done: bool,
}

impl Purged {
    /// Adds the count of one table, in the purge's order.
    pub(crate) const fn count(&mut self, table: usize, rows: u64) {
        let counted = match table {
            0 => &mut self.versions,
            1 => &mut self.memories,
            2 => &mut self.access_times,
            3 => &mut self.search_documents,
            4 => &mut self.directories,
            5 => &mut self.session_resources,
            6 => &mut self.session_events,
            _ => &mut self.stores,
        };
        *counted += rows;
    }

    pub(crate) const fn rows(&self) -> u64 {
        self.versions
            + self.memories
            + self.access_times
            + self.search_documents
            + self.directories
            + self.session_resources
            + self.session_events
            + self.stores
    }
}

/// Memories whose rows were deleted.
#[derive(Debug, Default)]
pub(crate) struct TakenMemories {
    pub(crate) memories: u64,
    /// The paths and sizes of the live ones.
    pub(crate) live: Vec<(MemoryPath, u64)>,
    pub(crate) access_times: u64,
    pub(crate) search_documents: u64,
}

/// A version whose row was deleted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TakenVersion {
    pub(crate) blob_id: Option<Uuid>,
    pub(crate) size_bytes: Option<i64>,
}

/// An open transaction of a tenant, with the operations of a step.
#[async_trait]
pub(crate) trait Ground: Send {
    /// Marks a store as deleted, which hides it from every reader. Idempotent.
    async fn end_store(&mut self, store_id: StoreId, now: Timestamp) -> Result<(), IndexError>;

    /// Deletes a batch of a deleted store's rows; its blobs are queued for the erasure,
    /// not for the drain.
    async fn purge_store(&mut self, store_id: StoreId, limit: i64) -> Result<Purged, IndexError>;

    /// Assigns every queued blob of a store to the erasure.
    ///
    /// `with_orphans` includes orphans; allowed only for a deleted store. In a live
    /// store, a slow commit must still find them condemned.
    async fn claim_blobs(
        &mut self,
        store_id: StoreId,
        erasure_id: ErasureId,
        with_orphans: bool,
    ) -> Result<(), IndexError>;

    /// The versions of a store in a range of sequence numbers, in order: sequence
    /// number, memory, and whether the path was below the directory.
    async fn versions(
        &mut self,
        store_id: StoreId,
        places: (i64, i64),
        below: &DirPath,
        limit: i64,
    ) -> Result<Vec<(i64, Uuid, bool)>, IndexError>;

    /// Takes the lock of a store's commits, and returns whether the store is deleted;
    /// `None`: the store does not exist.
    async fn lock_store(&mut self, store_id: StoreId) -> Result<Option<bool>, IndexError>;

    /// Deletes memories and their related rows except versions.
    async fn take_memories(
        &mut self,
        store_id: StoreId,
        memories: &[Uuid],
    ) -> Result<TakenMemories, IndexError>;

    /// Applies a plan's changes of directories.
    async fn move_directories(&mut self, store_id: StoreId, plan: &CommitPlan) -> Result<(), IndexError>;

    /// Deletes session events that contain paths of the memories' versions, at most
    /// `limit`.
    async fn take_events_of(
        &mut self,
        store_id: StoreId,
        memories: &[Uuid],
        limit: i64,
    ) -> Result<u64, IndexError>;

    /// Deletes session events that contain a directory or a path below it, at most
    /// `limit`.
    async fn take_events_below(
        &mut self,
        store_id: StoreId,
        below: &DirPath,
        limit: i64,
    ) -> Result<u64, IndexError>;

    /// Deletes versions of memories, at most `limit`.
    async fn take_versions(
        &mut self,
        store_id: StoreId,
        memories: &[Uuid],
        limit: i64,
    ) -> Result<Vec<TakenVersion>, IndexError>;

    /// Queues the unreferenced ones of `blobs`, and returns them.
    async fn condemn(
        &mut self,
        store_id: StoreId,
        erasure_id: ErasureId,
        blobs: &[Uuid],
    ) -> Result<Vec<Uuid>, IndexError>;

    /// Subtracts memories, their bytes, versions and their bytes from the store's
    /// counters, and changes its purge epoch.
    async fn count(&mut self, store_id: StoreId, taken: [i64; 4]) -> Result<(), IndexError>;

    /// Deletes call records about deleted objects of these stores, among the tenant's
    /// next `limit` records; `None`: these were the last records.
    async fn take_calls(
        &mut self,
        stores: &[StoreId],
        after: &[u8],
        limit: i64,
    ) -> Result<(u64, Option<Vec<u8>>), IndexError>;

    /// Clears the request hash of a call record.
    async fn forget_request(&mut self, scope_sha256: &[u8]) -> Result<(), IndexError>;
}

/// Executes one step.
pub(crate) async fn advance(
    ground: &mut dyn Ground,
    open: &mut Open,
    now: Timestamp,
    limit: u32,
) -> Result<(), IndexError> {
    if open.receipt.steps.is_empty() {
        open.receipt.begin("rows", now);
    }
    match open.progress.phase {
        Phase::Rows => erase_of_stores(ground, open, now, limit).await,
        Phase::Calls => erase_calls(ground, open, now, limit).await,
        Phase::Blobs => Ok(()),
    }
}

async fn erase_of_stores(
    ground: &mut dyn Ground,
    open: &mut Open,
    now: Timestamp,
    limit: u32,
) -> Result<(), IndexError> {
    let progress = &mut open.progress;
    let Some(store_id) = progress.stores.get(progress.current).copied() else {
        progress.phase = Phase::Calls;
        // The selection is fully deleted.
        open.below = None;
        open.receipt.begin("idempotency_records", now);
        return Ok(());
    };
    let is_at_its_end = match open.below.clone().filter(|_| !progress.is_whole) {
        Some(below) => erase_below(ground, open, store_id, &below, limit).await?,
        None => erase_whole(ground, open, store_id, now, limit).await?,
    };
    if is_at_its_end {
        open.progress.current += 1;
    }
    Ok(())
}

/// Deletes the next rows of a whole store; returns whether the store is gone.
async fn erase_whole(
    ground: &mut dyn Ground,
    open: &mut Open,
    store_id: StoreId,
    now: Timestamp,
    limit: u32,
) -> Result<bool, IndexError> {
    ground.end_store(store_id, now).await?;
    let purged = ground.purge_store(store_id, i64::from(limit.max(1))).await?;
    let receipt = &mut open.receipt;
    receipt.versions += purged.versions;
    receipt.memories += purged.memories;
    receipt.access_times += purged.access_times;
    receipt.search_documents += purged.search_documents;
    receipt.session_resources += purged.session_resources;
    receipt.session_events += purged.session_events;
    receipt.memory_stores += purged.stores;
    receipt.bytes += purged.bytes;
    if purged.is_done {
        ground.claim_blobs(store_id, open.erasure_id, true).await?;
        open.progress.whole.push(store_id);
    }
    Ok(purged.is_done)
}

/// Deletes the next memories or versions below the directory; returns whether the
/// store is finished.
async fn erase_below(
    ground: &mut dyn Ground,
    open: &mut Open,
    store_id: StoreId,
    below: &DirPath,
    limit: u32,
) -> Result<bool, IndexError> {
    if open.progress.pending.is_empty() {
        // Needs no store lock: versions up to the last one do not change.
        let found = find(ground, &mut open.progress, store_id, below, limit).await?;
        if found.is_empty() {
            let is_through = open.progress.seq >= open.progress.through;
            if !is_through || !take_events_below(ground, open, store_id, below, limit).await? {
                return Ok(false);
            }
            // Blobs that retention or a redaction queued earlier: no row has their
            // paths any longer.
            ground.claim_blobs(store_id, open.erasure_id, false).await?;
            return Ok(true);
        }
        open.progress.pending = found.into_iter().map(MemoryId::from_uuid).collect();
        return take_memories(ground, open, store_id).await.map(|()| false);
    }
    take_versions(ground, open, store_id, limit).await?;
    Ok(false)
}

/// The memories below the directory in the next part of the store's history.
async fn find(
    ground: &mut dyn Ground,
    progress: &mut Progress,
    store_id: StoreId,
    below: &DirPath,
    limit: u32,
) -> Result<Vec<Uuid>, IndexError> {
    let at_most = (limit as usize / ROWS_OF_A_MEMORY).max(1);
    let places = (progress.seq, progress.through);
    let versions = ground
        .versions(store_id, places, below, i64::from(limit.max(1)))
        .await?;
    let is_last = versions.len() < limit.max(1) as usize;
    let mut found = BTreeSet::new();
    for (seq, memory_id, stood_below) in versions {
        if stood_below && !found.contains(&memory_id) {
            if found.len() == at_most {
                return Ok(found.into_iter().collect());
            }
            found.insert(memory_id);
        }
        progress.seq = seq;
    }
    if is_last {
        progress.seq = progress.through;
    }
    Ok(found.into_iter().collect())
}

async fn take_memories(
    ground: &mut dyn Ground,
    open: &mut Open,
    store_id: StoreId,
) -> Result<(), IndexError> {
    if ground.lock_store(store_id).await? != Some(false) {
        // The store was deleted in the meantime, so it is erased as a whole.
        open.progress.is_whole = true;
        open.progress.pending.clear();
        return Ok(());
    }
    let taken = ground.take_memories(store_id, &open.progress.pending()).await?;
    let plan = CommitPlan::leaving(&taken.live);
    ground.move_directories(store_id, &plan).await?;
    ground
        .count(store_id, [-plan.count_delta, -plan.byte_delta, 0, 0])
        .await?;
    open.receipt.memories += taken.memories;
    open.receipt.access_times += taken.access_times;
    open.receipt.search_documents += taken.search_documents;
    Ok(())
}

/// Deletes events that contain paths below the directory; returns whether these
/// were the last.
async fn take_events_below(
    ground: &mut dyn Ground,
    open: &mut Open,
    store_id: StoreId,
    below: &DirPath,
    limit: u32,
) -> Result<bool, IndexError> {
    let limit = limit.max(1);
    let taken = ground
        .take_events_below(store_id, below, i64::from(limit))
        .await?;
    open.receipt.session_events += taken;
    Ok(taken < u64::from(limit))
}

async fn take_versions(
    ground: &mut dyn Ground,
    open: &mut Open,
    store_id: StoreId,
    limit: u32,
) -> Result<(), IndexError> {
    if ground.lock_store(store_id).await? != Some(false) {
        open.progress.is_whole = true;
        open.progress.pending.clear();
        return Ok(());
    }
    let limit = i64::from(limit.max(1));
    // Events come first, because the versions are the only record of the memories'
    // other paths.
    let events = ground
        .take_events_of(store_id, &open.progress.pending(), limit)
        .await?;
    open.receipt.session_events += events;
    if i64::try_from(events).is_ok_and(|events| events >= limit) {
        return Ok(());
    }
    let taken = ground
        .take_versions(store_id, &open.progress.pending(), limit)
        .await?;
    let sizes: BTreeMap<_, _> = taken
        .iter()
        .filter_map(|version| Some((version.blob_id?, version.size_bytes?)))
        .collect();
    let blobs: Vec<_> = sizes.keys().copied().collect();
    let condemned = ground.condemn(store_id, open.erasure_id, &blobs).await?;
    let freed: i64 = condemned.iter().filter_map(|blob_id| sizes.get(blob_id)).sum();
    let count = i64::try_from(taken.len()).unwrap_or(i64::MAX);
    ground.count(store_id, [0, 0, count, freed]).await?;
    open.receipt.versions += taken.len() as u64;
    open.receipt.bytes += u64::try_from(freed).unwrap_or_default();
    if count < limit {
        open.progress.pending.clear();
    }
    Ok(())
}

async fn erase_calls(
    ground: &mut dyn Ground,
    open: &mut Open,
    now: Timestamp,
    limit: u32,
) -> Result<(), IndexError> {
    let progress = &mut open.progress;
    let (taken, next) = ground
        .take_calls(&progress.stores, &progress.calls_after, i64::from(limit.max(1)))
        .await?;
    open.receipt.idempotency_records += taken;
    if let Some(next) = next {
        progress.calls_after = next;
        return Ok(());
    }
    if let Some(call) = progress.call.take() {
        ground.forget_request(&call).await?;
    }
    progress.phase = Phase::Blobs;
    progress.calls_after.clear();
    open.receipt.begin("blobs", now);
    Ok(())
}
