//! The next step of an erasure, the same on both databases.
//!
//! Rows go store by store. Of a store that goes as a whole, the purge of
//! deleted stores takes batch after batch. Of a directory, the history is read
//! in its order up to the place it had at the request; the memories found go
//! first, with all that is known of them besides, so that nobody finds them any
//! more, then the events of sessions that name where they stood, then their
//! versions. After the stores come the records of idempotent
//! calls, whose hashes would let a guess be confirmed.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use keepsake_core::{DirPath, ErasureId, MemoryId, MemoryPath, StoreId, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Receipt, RowsErased, Selector};
use crate::IndexError;
use crate::commit::CommitPlan;

/// Each memory has rows in several tables: a part of the rows of a batch.
const ROWS_OF_A_MEMORY: usize = 4;

/// Where an erasure is. Ids, places and hashes of names: never a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    phase: Phase,
    /// Every store it is about.
    stores: Vec<StoreId>,
    /// The one it is at.
    current: usize,
    /// Whether the store it is at goes as a whole.
    is_whole: bool,
    /// Stores that went as a whole.
    whole: Vec<StoreId>,
    /// Versions after this place are to be looked at,
    seq: i64,
    /// up to this one, the last one there was when it was asked for.
    through: i64,
    /// Memories whose versions are to go next.
    pending: Vec<MemoryId>,
    /// Records of calls after this one are to be looked at.
    calls_after: Vec<u8>,
    /// The name of the call that asked for it.
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
    /// The beginning.
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

    /// The beginning of one that is about a store: what is left of a deleted one
    /// goes as a whole.
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

    /// What is known of what goes before any of it went.
    pub(crate) fn receipt(&self) -> Receipt {
        Receipt {
            memory_store_ids: self.stores.clone(),
            ..Receipt::default()
        }
    }

    /// As the erasure's row holds it.
    pub(crate) fn to_text(&self) -> Result<String, IndexError> {
        serde_json::to_string(self).map_err(|_| IndexError::Corrupt {
            table: "erasure",
            what: "a cursor that is no JSON",
        })
    }

    /// Stores of which a directory goes, and the rest stays.
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
    /// The directory below which memories go; `None`: cleared, or whole stores go.
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

    /// Whether the selector is needed any longer.
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

/// Rows that one batch of a store's purge took.
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
    /// Bytes that the versions brought.
    pub(crate) bytes: u64,
    pub(crate) is_done: bool,
}

impl Purged {
    /// Counts what the statement of a table took, in the purge's order.
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

/// Memories whose rows were taken.
#[derive(Debug, Default)]
pub(crate) struct TakenMemories {
    pub(crate) memories: u64,
    /// Where the live ones stood, and their sizes.
    pub(crate) live: Vec<(MemoryPath, u64)>,
    pub(crate) access_times: u64,
    pub(crate) search_documents: u64,
}

/// A version whose row was taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TakenVersion {
    pub(crate) blob_id: Option<Uuid>,
    pub(crate) size_bytes: Option<i64>,
}

/// One open transaction of a tenant, and what a step does in it.
#[async_trait]
pub(crate) trait Ground: Send {
    /// Makes a store gone for every reader, if it is not.
    async fn end_store(&mut self, store_id: StoreId, now: Timestamp) -> Result<(), IndexError>;

    /// Takes a batch off a deleted store; its blobs are queued, never due.
    async fn purge_store(&mut self, store_id: StoreId, limit: i64) -> Result<Purged, IndexError>;

    /// Makes every queued blob of a store the erasure's.
    ///
    /// `with_orphans` includes orphans; only for a deleted store. In a live one a
    /// slow commit must still find them condemned.
    async fn claim_blobs(
        &mut self,
        store_id: StoreId,
        erasure_id: ErasureId,
        with_orphans: bool,
    ) -> Result<(), IndexError>;

    /// Versions of a store after a place up to another, in their order: place,
    /// memory, and whether it stood below the directory.
    async fn versions(
        &mut self,
        store_id: StoreId,
        places: (i64, i64),
        below: &DirPath,
        limit: i64,
    ) -> Result<Vec<(i64, Uuid, bool)>, IndexError>;

    /// Takes the lock of a store's commits; `None`: there is none, else
    /// whether it is deleted.
    async fn lock_store(&mut self, store_id: StoreId) -> Result<Option<bool>, IndexError>;

    /// Removes memories, and what is known of them beside their versions.
    async fn take_memories(
        &mut self,
        store_id: StoreId,
        memories: &[Uuid],
    ) -> Result<TakenMemories, IndexError>;

    /// Moves the directories that a plan says.
    async fn move_directories(&mut self, store_id: StoreId, plan: &CommitPlan) -> Result<(), IndexError>;

    /// Removes events of sessions that name where versions of memories stood, at
    /// most `limit`.
    async fn take_events_of(
        &mut self,
        store_id: StoreId,
        memories: &[Uuid],
        limit: i64,
    ) -> Result<u64, IndexError>;

    /// Removes events of sessions that name a directory, or what is below it, at
    /// most `limit`.
    async fn take_events_below(
        &mut self,
        store_id: StoreId,
        below: &DirPath,
        limit: i64,
    ) -> Result<u64, IndexError>;

    /// Removes versions of memories, at most `limit`.
    async fn take_versions(
        &mut self,
        store_id: StoreId,
        memories: &[Uuid],
        limit: i64,
    ) -> Result<Vec<TakenVersion>, IndexError>;

    /// Queues those of `blobs` that no version names any more, and answers them.
    async fn condemn(
        &mut self,
        store_id: StoreId,
        erasure_id: ErasureId,
        blobs: &[Uuid],
    ) -> Result<Vec<Uuid>, IndexError>;

    /// Takes memories, their bytes, versions and their bytes off the store's
    /// counters, and moves its purge epoch.
    async fn count(&mut self, store_id: StoreId, taken: [i64; 4]) -> Result<(), IndexError>;

    /// Removes records of calls about what is gone from these stores, among the
    /// next `limit` of the tenant; `None`: those were the last.
    async fn take_calls(
        &mut self,
        stores: &[StoreId],
        after: &[u8],
        limit: i64,
    ) -> Result<(u64, Option<Vec<u8>>), IndexError>;

    /// Forgets what the request of a call was.
    async fn forget_request(&mut self, scope_sha256: &[u8]) -> Result<(), IndexError>;
}

/// Takes one step.
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
        // Nothing is left that it selects.
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

/// Takes the next rows of a store that goes; answers whether it is gone.
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

/// Takes the next memories or versions; answers whether the store is through.
async fn erase_below(
    ground: &mut dyn Ground,
    open: &mut Open,
    store_id: StoreId,
    below: &DirPath,
    limit: u32,
) -> Result<bool, IndexError> {
    if open.progress.pending.is_empty() {
        // Without the store's lock: versions up to the last one are as they are.
        let found = find(ground, &mut open.progress, store_id, below, limit).await?;
        if found.is_empty() {
            let is_through = open.progress.seq >= open.progress.through;
            if !is_through || !take_events_below(ground, open, store_id, below, limit).await? {
                return Ok(false);
            }
            // Blobs that retention or a redaction queued before: no row says any
            // more which paths they had.
            ground.claim_blobs(store_id, open.erasure_id, false).await?;
            return Ok(true);
        }
        open.progress.pending = found.into_iter().map(MemoryId::from_uuid).collect();
        return take_memories(ground, open, store_id).await.map(|()| false);
    }
    take_versions(ground, open, store_id, limit).await?;
    Ok(false)
}

/// The memories that the next part of a store's history finds below.
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
        // Deleted meanwhile: then all of it goes.
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

/// Takes events that name what stood below; answers whether those were the last.
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
    // First: only the versions tell where else the memories stood.
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
