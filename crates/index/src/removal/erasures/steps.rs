//! The next step of an erasure.
//!
//! Rows are deleted store by store. For a whole store, the purge of deleted stores
//! removes batch after batch. For a directory, the step reads the history in order,
//! up to the last version at the time of the request. It first deletes the found
//! memories with their related rows, so that reads no longer find them; then the
//! session events that contain their paths; then their versions. After the stores,
//! it deletes the records of idempotent calls, because their hashes could confirm a
//! guess.

use std::collections::BTreeSet;

use keepsake_core::{DirPath, ErasureId, MemoryId, StoreId, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use super::super::{Queue, Removal, VersionSelection, stores};
use super::{ErasureReceipt, RowsErased, StepName};
use crate::IndexError;
use crate::database::{Ids, RowLock, Tx};
use crate::listing::end_of;
use crate::model::{DeletionReason, FORGOTTEN};
use crate::numbers::signed;

/// Assigns every queued blob of a store to an erasure; includes orphans and their
/// tombstones only with `$5`.
const CLAIM_BLOBS: &str = "UPDATE blob_deletion SET reason = 'erased', erasure_id = $3, not_before = $4 \
    WHERE tenant_id = $1 AND store_id = $2 AND erasure_id IS NULL AND ($5 OR reason NOT IN ('orphan', 'gone'))";

/// Selects a part of a store's history in order, and whether the path was between two
/// paths.
const HISTORY: &str = "SELECT v.seq, v.memory_id, coalesce(v.path >= $6 AND v.path < $7, FALSE) AS is_below \
    FROM (SELECT seq, memory_id, path FROM version \
        WHERE tenant_id = $1 AND store_id = $2 AND seq > $3 AND seq <= $4 ORDER BY seq LIMIT $5 + 0) v ORDER BY v.seq";

/// Deletes events that contain paths of the versions of some memories.
const DELETE_EVENTS_OF: &str = "DELETE FROM session_event WHERE tenant_id = $1 AND (session_id, at, event_id) IN ( \
    SELECT e.session_id, e.at, e.event_id FROM (SELECT DISTINCT v.path FROM version v \
        WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.memory_id IN_IDS($3) AND v.path IS NOT NULL) p \
    JOIN session_event e ON e.tenant_id = $1 AND e.store_id = $2 AND (e.path = p.path OR e.new_path = p.path) LIMIT $4 + 0)";

/// Deletes events that contain a directory or a path below it.
const DELETE_EVENTS_BELOW: &str = "DELETE FROM session_event WHERE tenant_id = $1 \
    AND (session_id, at, event_id) IN (SELECT e.session_id, e.at, e.event_id FROM session_event e \
        WHERE e.tenant_id = $1 AND e.store_id = $2 AND (e.path = $3 OR (e.path >= $4 AND e.path < $5) \
            OR e.new_path = $3 OR (e.new_path >= $4 AND e.new_path < $5)) LIMIT $6 + 0)";

/// The last one of the next call records of a tenant; no row if there are fewer.
const CALLS_THROUGH: &str = "SELECT scope_sha256 FROM idempotency \
    WHERE tenant_id = $1 AND scope_sha256 > $2 ORDER BY scope_sha256 LIMIT 1 OFFSET $3";

/// Deletes call records about deleted memories or stores.
const DELETE_CALLS: &str = "DELETE FROM idempotency AS i WHERE i.tenant_id = $1 AND i.scope_sha256 > $2 \
    AND ($3 IS NULL OR i.scope_sha256 <= $3) AND i.store_id IN_IDS($4) \
    AND CASE WHEN i.version_seq IS NULL \
        THEN NOT EXISTS (SELECT 1 FROM store s WHERE s.tenant_id = $1 AND s.store_id = i.store_id) \
        ELSE NOT EXISTS (SELECT 1 FROM memory m WHERE m.tenant_id = $1 AND m.store_id = i.store_id \
            AND m.memory_id = i.object_id) END";

/// Clears the request hash of a call record.
const FORGET_REQUEST: &str =
    "UPDATE idempotency SET request_sha256 = $3 WHERE tenant_id = $1 AND scope_sha256 = $2";

/// The earliest deletion time of an erasure's blobs, so that the drain skips them.
const NEVER: Timestamp = Timestamp::from_micros(i64::MAX);

/// Each memory has rows in several tables, so a batch takes fewer memories than
/// rows.
const ROWS_OF_A_MEMORY: usize = 4;

/// The cursor of an erasure. It has ids, sequence numbers and hashes, but never a
/// path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Progress {
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
    pub(super) fn new(stores: Vec<StoreId>, is_whole: bool, through: i64, call: Option<&[u8; 32]>) -> Self {
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

    pub(super) fn parse(cursor: Option<String>) -> Result<Self, IndexError> {
        let progress = cursor.and_then(|cursor| serde_json::from_str(&cursor).ok());
        progress.ok_or(IndexError::Corrupt { table: "erasure", what: "a cursor of no erasure" })
    }

    pub(super) fn to_text(&self) -> Result<String, IndexError> {
        serde_json::to_string(self)
            .map_err(|_| IndexError::Corrupt { table: "erasure", what: "a cursor that is no JSON" })
    }

    /// The receipt before any deletion.
    pub(super) fn receipt(&self) -> ErasureReceipt {
        ErasureReceipt { memory_store_ids: self.stores.clone(), ..ErasureReceipt::default() }
    }

    /// Whether the selector is still needed.
    pub(super) fn selects_more(&self) -> bool {
        self.phase == Phase::Rows
    }

    pub(super) fn is_done(&self) -> bool {
        self.phase == Phase::Blobs
    }

    pub(super) fn rows_erased(self) -> RowsErased {
        let is_in_part = |store_id: &StoreId| !self.whole.contains(store_id);
        RowsErased {
            is_done: self.is_done(),
            part_stores: self.stores.iter().copied().filter(is_in_part).collect(),
            whole_stores: self.whole,
            live_memories: None,
        }
    }
}

/// One step of an erasure under its lock.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) tenant_id: TenantId,
    pub(super) erasure_id: ErasureId,
    /// The directory whose memories are deleted; `None`: cleared, or whole stores are
    /// deleted.
    pub(super) below: Option<DirPath>,
    pub(super) progress: Progress,
    pub(super) receipt: ErasureReceipt,
    /// The live memories that the step deleted in a store that stays.
    pub(super) live_memories: Option<(StoreId, i64)>,
    pub(super) now: Timestamp,
    /// About how many rows to delete; at least one.
    pub(super) limit: u32,
}

impl Step {
    pub(super) async fn run(&mut self, tx: &mut Tx) -> Result<(), IndexError> {
        if self.receipt.steps.is_empty() {
            self.receipt.begin(StepName::Rows, self.now);
        }
        match self.progress.phase {
            Phase::Rows => self.erase_in_stores(tx).await,
            Phase::Calls => self.erase_calls(tx).await,
            Phase::Blobs => Ok(()),
        }
    }

    async fn erase_in_stores(&mut self, tx: &mut Tx) -> Result<(), IndexError> {
        let progress = &mut self.progress;
        let Some(store_id) = progress.stores.get(progress.current).copied() else {
            progress.phase = Phase::Calls;
            // The selection is fully deleted.
            self.below = None;
            self.receipt.begin(StepName::IdempotencyRecords, self.now);
            return Ok(());
        };
        let mut removal = Removal::of(tx, self.tenant_id, store_id);
        let is_at_its_end = match self.below.clone().filter(|_| !progress.is_whole) {
            Some(below) => self.erase_below(&mut removal, &below).await?,
            None => self.erase_whole(&mut removal).await?,
        };
        if is_at_its_end {
            self.progress.current += 1;
        }
        Ok(())
    }

    /// Deletes the next rows of a whole store; returns whether the store is gone.
    async fn erase_whole(&mut self, removal: &mut Removal<'_>) -> Result<bool, IndexError> {
        stores::end(removal, self.now).await?;
        let purged = stores::purge_batch(removal, NEVER, self.limit).await?;
        let removed = &mut self.receipt.removed;
        removed.versions += purged.of("version");
        removed.memories += purged.of("memory");
        removed.access_times += purged.of("memory_access");
        removed.memory_readers += purged.of("memory_read");
        removed.search_documents += purged.of("search_doc");
        removed.session_resources += purged.of("session_resource");
        removed.session_events += purged.of("session_event");
        removed.memory_stores += purged.of("store");
        removed.bytes += purged.bytes;
        if purged.is_done {
            self.claim_blobs(removal, true).await?;
            self.progress.whole.push(removal.store_id);
        }
        Ok(purged.is_done)
    }

    /// Deletes the next memories or versions below the directory; returns whether the
    /// store is finished.
    async fn erase_below(&mut self, removal: &mut Removal<'_>, below: &DirPath) -> Result<bool, IndexError> {
        if !self.progress.pending.is_empty() {
            self.remove_versions(removal).await?;
            return Ok(false);
        }
        // Needs no store lock: versions up to the last one do not change.
        self.progress.pending = self.find(removal, below).await?;
        if !self.progress.pending.is_empty() {
            self.delete_memories(removal).await?;
            return Ok(false);
        }
        let is_through = self.progress.seq >= self.progress.through;
        if !is_through || !self.delete_events_below(removal, below).await? {
            return Ok(false);
        }
        // Blobs that retention or a redaction queued earlier: no row has their paths
        // any longer.
        self.claim_blobs(removal, false).await?;
        Ok(true)
    }

    /// Assigns every queued blob of a store to the erasure.
    ///
    /// `with_orphans` includes orphans; allowed only for a deleted store. In a live
    /// store, a slow commit must still find them condemned.
    async fn claim_blobs(&self, removal: &mut Removal<'_>, with_orphans: bool) -> Result<(), IndexError> {
        let query = removal.query(CLAIM_BLOBS).bind((self.erasure_id, NEVER));
        query.bind(with_orphans).execute().await?;
        Ok(())
    }

    /// The memories below the directory in the next part of the store's history.
    async fn find(
        &mut self,
        removal: &mut Removal<'_>,
        below: &DirPath,
    ) -> Result<Vec<MemoryId>, IndexError> {
        let progress = &mut self.progress;
        let query = removal.query(HISTORY).bind((progress.seq, progress.through));
        let query = query.bind((self.limit, below.as_str(), end_of(below)));
        let rows: Vec<(i64, MemoryId, bool)> = query.all().await?;
        let at_most = (self.limit as usize / ROWS_OF_A_MEMORY).max(1);
        let is_last = rows.len() < self.limit as usize;
        let mut found = BTreeSet::new();
        for (seq, memory_id, is_below) in rows {
            if is_below && !found.contains(&memory_id) {
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

    /// Locks the store; `false`: it was deleted in the meantime, so it is erased as a
    /// whole.
    async fn lock(&mut self, removal: &mut Removal<'_>) -> Result<bool, IndexError> {
        let is_live = removal.lock_live(RowLock::Update).await?.is_some();
        if !is_live {
            self.progress.is_whole = true;
            self.progress.pending.clear();
        }
        Ok(is_live)
    }

    async fn delete_memories(&mut self, removal: &mut Removal<'_>) -> Result<(), IndexError> {
        if !self.lock(removal).await? {
            return Ok(());
        }
        let deleted = removal.delete_memories(&self.progress.pending).await?;
        let [memories, live_bytes] = deleted.live;
        removal.count([memories, live_bytes, 0, 0]).await?;
        self.live_memories = Some((removal.store_id, memories));
        self.receipt.removed.memories += deleted.memories;
        self.receipt.removed.access_times += deleted.access_times;
        self.receipt.removed.search_documents += deleted.search_documents;
        Ok(())
    }

    async fn remove_versions(&mut self, removal: &mut Removal<'_>) -> Result<(), IndexError> {
        if !self.lock(removal).await? {
            return Ok(());
        }
        let (memories, limit) = (self.progress.pending.clone(), i64::from(self.limit));
        // The memories are deleted, so no further records of their readers are written.
        let (readers, is_last) = removal.forget_readers_of(&memories).await?;
        self.receipt.removed.memory_readers += readers;
        if !is_last {
            return Ok(());
        }
        // Events come first, because the versions are the only record of the memories'
        // other paths.
        let query = removal.query_with_lists(DELETE_EVENTS_OF);
        let events = query.bind((Ids(Some(&memories)), limit)).execute().await?;
        self.receipt.removed.session_events += events;
        if signed(events) >= limit {
            return Ok(());
        }
        let selected = VersionSelection::Of { memories: &memories, limit };
        let queue =
            Queue { reason: DeletionReason::Erased, not_before: NEVER, erasure_id: Some(self.erasure_id) };
        let removed = removal.remove_versions(selected, queue).await?;
        self.receipt.removed.versions += removed.versions;
        self.receipt.removed.bytes += removed.bytes;
        if signed(removed.versions) < limit {
            self.progress.pending.clear();
        }
        Ok(())
    }

    /// Deletes events that contain paths below the directory; returns whether these
    /// were the last.
    async fn delete_events_below(
        &mut self,
        removal: &mut Removal<'_>,
        below: &DirPath,
    ) -> Result<bool, IndexError> {
        let deleted = removal
            .query(DELETE_EVENTS_BELOW)
            .bind(below.as_str().trim_end_matches('/'))
            .bind(below.as_str())
            .bind(end_of(below))
            .bind(self.limit)
            .execute()
            .await?;
        self.receipt.removed.session_events += deleted;
        Ok(deleted < u64::from(self.limit))
    }

    /// Deletes call records about deleted objects of the stores, among the tenant's
    /// next records.
    async fn erase_calls(&mut self, tx: &mut Tx) -> Result<(), IndexError> {
        let (tenant_id, progress) = (self.tenant_id, &mut self.progress);
        let query = tx.query(CALLS_THROUGH).bind((tenant_id, &progress.calls_after));
        let through: Option<Vec<u8>> = query.bind(i64::from(self.limit) - 1).optional_scalar().await?;
        let query = tx.query_with_lists(DELETE_CALLS).bind(tenant_id);
        let query = query.bind((&progress.calls_after, through.as_deref()));
        self.receipt.removed.idempotency_records += query.bind(Ids(Some(&progress.stores))).execute().await?;
        if let Some(through) = through {
            progress.calls_after = through;
            return Ok(());
        }
        if let Some(call) = progress.call.take() {
            let query = tx.query(FORGET_REQUEST).bind((tenant_id, call.as_slice()));
            query.bind(FORGOTTEN.as_slice()).execute().await?;
        }
        progress.phase = Phase::Blobs;
        progress.calls_after.clear();
        self.receipt.begin(StepName::Blobs, self.now);
        Ok(())
    }
}
