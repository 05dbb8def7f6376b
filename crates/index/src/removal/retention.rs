//! Retention: selects the versions whose retention has ended.
//!
//! A deleted memory is kept with all its versions for the retention period. The
//! current version of a live memory is always kept. Another version is removed when
//! it exceeds a limit on age or number and was superseded at least one retention
//! period ago.

use std::collections::{BTreeMap, BTreeSet};

use keepsake_core::limits::LimitOverrides;
use keepsake_core::{MemoryId, StoreId, TenantId, Timestamp};
use serde_json::json;

use super::{Queue, Removal, VersionSelection, begin_removal};
use crate::IndexError;
use crate::commit::CLOCK_AHEAD_AT_MOST;
use crate::database::{Database, Ids, Role, RowLock, from_row};
use crate::model::DeletionReason;
use crate::numbers::FIRST_STORE;

/// Selects stores with a history, after a given one, and each store's first
/// unprocessed deletion.
///
/// For SQLite, this statement and the next ones name the index of a subquery. On
/// Postgres, row comparisons make sure that no other index provides the order.
pub(super) const HISTORIES: [&str; 2] = [
    "SELECT s.tenant_id, s.store_id, t.limits, s.retention_seq, \
        (SELECT v.created_at FROM version v WHERE v.tenant_id = s.tenant_id AND v.store_id = s.store_id \
            AND (v.op, v.seq) > ('deleted', s.retention_seq) AND v.op <= 'deleted' AND v.op <> 'modified' \
            ORDER BY v.op, v.seq LIMIT 1) AS deleted_at \
    FROM store s JOIN tenant t ON t.tenant_id = s.tenant_id \
    WHERE s.deleted_at IS NULL AND t.status <> 'deleting' AND s.version_count > 0 \
    AND (s.tenant_id, s.store_id) > ($1, $2) ORDER BY s.tenant_id, s.store_id LIMIT $3 + 0",
    "SELECT s.tenant_id, s.store_id, t.limits, s.retention_seq, \
        (SELECT v.created_at FROM version v INDEXED BY version_op WHERE v.tenant_id = s.tenant_id \
            AND v.store_id = s.store_id AND v.op = 'deleted' AND v.op <> 'modified' AND v.seq > s.retention_seq \
            ORDER BY v.seq LIMIT 1) AS deleted_at \
    FROM store s JOIN tenant t ON t.tenant_id = s.tenant_id \
    WHERE s.deleted_at IS NULL AND t.status <> 'deleting' AND s.version_count > 0 \
    AND (s.tenant_id, s.store_id) > ($1, $2) ORDER BY s.tenant_id, s.store_id LIMIT $3 + 0",
];

/// Selects deletions of a store after a sequence number, and whether each is its
/// memory's last version.
pub(super) const DELETIONS: [&str; 2] = [
    "SELECT v.seq, v.memory_id, v.created_at, \
        coalesce((SELECT m.head_seq FROM memory m WHERE m.tenant_id = $1 AND m.store_id = $2 \
            AND m.memory_id = v.memory_id) = v.seq, FALSE) AS is_current \
    FROM version v WHERE v.tenant_id = $1 AND v.store_id = $2 AND (v.op, v.seq) > ('deleted', $3) \
    AND v.op <= 'deleted' AND v.op <> 'modified' ORDER BY v.op, v.seq LIMIT $4 + 0",
    "SELECT v.seq, v.memory_id, v.created_at, \
        coalesce((SELECT m.head_seq FROM memory m WHERE m.tenant_id = $1 AND m.store_id = $2 \
            AND m.memory_id = v.memory_id) = v.seq, FALSE) AS is_current \
    FROM version v INDEXED BY version_op WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.op = 'deleted' \
    AND v.op <> 'modified' AND v.seq > $3 ORDER BY v.seq LIMIT $4 + 0",
];

/// Selects versions of a store after a sequence number, up to the first one that was
/// created too late. Versions created after `$7` do not count as too late: their clock
/// was ahead.
///
/// The page is limited before the versions are compared, so that only one page of the
/// history is read. The next version of a memory is a subquery per row in the order of
/// its index; the memory is looked up by its primary key, which is not a partial index.
pub(super) const PAST: [&str; 2] = [
    "SELECT v.seq, v.created_at, \
        (SELECT n.created_at FROM version n WHERE n.tenant_id = $1 AND n.store_id = $2 \
            AND (n.memory_id, n.seq) > (v.memory_id, v.seq) AND n.memory_id <= v.memory_id \
            ORDER BY n.memory_id, n.seq LIMIT 1) AS superseded_at, \
        coalesce((SELECT m.deleted_at IS NULL AND m.head_seq <> v.seq FROM memory m \
            WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = v.memory_id), FALSE) AS is_of_live, \
        ($5 > 0 AND EXISTS (SELECT 1 FROM version n WHERE n.tenant_id = $1 AND n.store_id = $2 \
            AND (n.memory_id, n.seq) > (v.memory_id, v.seq) AND n.memory_id <= v.memory_id \
            ORDER BY n.memory_id, n.seq LIMIT 1 OFFSET $5 - 1)) AS is_beyond \
    FROM (SELECT seq, memory_id, created_at FROM version WHERE tenant_id = $1 AND store_id = $2 AND seq > $3 \
        ORDER BY seq LIMIT $6 + 0) v WHERE v.created_at <= $4 OR v.created_at > $7 ORDER BY v.seq",
    "SELECT v.seq, v.created_at, \
        (SELECT n.created_at FROM version n INDEXED BY version_memory WHERE n.tenant_id = $1 AND n.store_id = $2 \
            AND n.memory_id = v.memory_id AND n.seq > v.seq ORDER BY n.seq LIMIT 1) AS superseded_at, \
        coalesce((SELECT m.deleted_at IS NULL AND m.head_seq <> v.seq FROM memory m \
            WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = v.memory_id), FALSE) AS is_of_live, \
        ($5 > 0 AND EXISTS (SELECT 1 FROM version n INDEXED BY version_memory WHERE n.tenant_id = $1 \
            AND n.store_id = $2 AND n.memory_id = v.memory_id AND n.seq > v.seq \
            ORDER BY n.seq LIMIT 1 OFFSET $5 - 1)) AS is_beyond \
    FROM (SELECT seq, memory_id, created_at FROM version WHERE tenant_id = $1 AND store_id = $2 AND seq > $3 \
        ORDER BY seq LIMIT $6 + 0) v WHERE v.created_at <= $4 OR v.created_at > $7 ORDER BY v.seq",
];

/// Selects the versions of some memories, grouped by memory.
const VERSIONS_OF: &str = "SELECT v.seq, v.memory_id FROM version v \
    WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.memory_id IN_IDS($3) ORDER BY v.memory_id, v.seq LIMIT $4 + 0";

/// Records up to where deletions are processed.
const SET_RETENTION_SEQ: &str = "UPDATE store SET retention_seq = $3 WHERE tenant_id = $1 AND store_id = $2";

/// Selects the highest sequence number at which a memory's next version replaced one of some
/// versions. A memory's last version is a deletion, and counts with its own number.
pub(super) const SUPERSEDED_BY: [&str; 2] = [
    "SELECT max(coalesce((SELECT n.seq FROM version n WHERE n.tenant_id = $1 AND n.store_id = $2 \
            AND (n.memory_id, n.seq) > (v.memory_id, v.seq) AND n.memory_id <= v.memory_id \
            ORDER BY n.memory_id, n.seq LIMIT 1), v.seq)) \
    FROM version v WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.seq IN_NUMBERS($3)",
    "SELECT max(coalesce((SELECT n.seq FROM version n INDEXED BY version_memory WHERE n.tenant_id = $1 \
            AND n.store_id = $2 AND n.memory_id = v.memory_id AND n.seq > v.seq ORDER BY n.seq LIMIT 1), v.seq)) \
    FROM version v WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.seq IN_NUMBERS($3)",
];

/// Raises the oldest point that can be shown.
const RAISE_PAST_SEQ: &str =
    "UPDATE store SET past_seq = $3 WHERE tenant_id = $1 AND store_id = $2 AND past_seq < $3";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    pub tenant_id: TenantId,
    pub store_id: StoreId,
    /// The tenant's overrides of the configured limits.
    pub limits: LimitOverrides,
    /// The sequence number up to which deletions are processed.
    pub retention_seq: i64,
    /// The time of the first deletion after that sequence number.
    pub deleted_at: Option<Timestamp>,
}

/// The removable part of a store's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutdatedPart {
    /// Memories that were deleted by this time, with all their versions.
    Deleted { by: Timestamp },
    /// Versions of live memories that a newer version replaced at or before the time `by`, if
    /// `made_by` or `beyond` selects them.
    Superseded {
        by: Timestamp,
        /// Selects versions that were created at or before this time.
        made_by: Option<Timestamp>,
        /// Selects versions with at least this many newer versions.
        beyond: Option<u64>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionBatch {
    pub store_id: StoreId,
    pub outdated: OutdatedPart,
    /// The sequence number after which the batch starts.
    pub after: i64,
    pub now: Timestamp,
    /// The earliest removal time of blobs that become unreferenced.
    pub blobs_go_from: Timestamp,
    /// Approximate maximum number of rows to read.
    pub limit: u32,
    pub dry_run: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VersionBatchResult {
    pub versions: u64,
    /// Memories without any version left.
    pub memories: u64,
    /// Blobs queued for deletion.
    pub blobs: u64,
    /// The sequence number after which the next batch starts.
    pub next: i64,
    /// Whether this was the last batch.
    pub is_done: bool,
}

impl VersionBatch {
    /// The result of a batch that removed no version: the versions have more records of their
    /// readers than one transaction removes.
    fn again(&self) -> VersionBatchResult {
        VersionBatchResult { next: self.after, ..VersionBatchResult::default() }
    }
}

#[derive(Debug, Clone)]
pub struct Retention(pub(crate) Database);

struct DeletionRow {
    seq: i64,
    memory_id: MemoryId,
    created_at: Timestamp,
    /// Whether the deletion is the memory's last version.
    is_current: bool,
}

/// A version that may be superseded.
struct PastRow {
    seq: i64,
    created_at: Timestamp,
    /// When the memory's next version was created.
    superseded_at: Option<Timestamp>,
    /// Whether the memory is live, with another current version.
    is_of_live: bool,
    /// Whether the memory has at least `beyond` newer versions.
    is_beyond: bool,
}

from_row! {
    History { tenant_id, store_id, limits, retention_seq, deleted_at }
    DeletionRow { seq, memory_id, created_at, is_current }
    PastRow { seq, created_at, superseded_at, is_of_live, is_beyond }
}

impl Retention {
    /// The next stores with a history after a given one, by tenant and id.
    pub async fn histories(
        &self,
        after: Option<(TenantId, StoreId)>,
        limit: u32,
    ) -> Result<Vec<History>, IndexError> {
        let values = (after.unwrap_or(FIRST_STORE), limit);
        self.0.all("histories", Role::Job(None), self.0.choose(HISTORIES), values).await
    }

    /// Removes the next batch of versions, in one transaction under the store's lock,
    /// and queues the blobs that become unreferenced.
    ///
    /// Changes the store's purge epoch. Never removes the current version of a live
    /// memory. Idempotent.
    pub async fn remove(
        &self,
        tenant_id: TenantId,
        batch: &VersionBatch,
    ) -> Result<VersionBatchResult, IndexError> {
        let mut tx = self.0.write("take_outdated", Role::Tenant(tenant_id)).await?;
        begin_removal(&mut tx).await?;
        let mut removal = Removal::of(&mut tx, tenant_id, batch.store_id);
        if removal.lock_live(RowLock::Update).await?.is_none() {
            return Ok(VersionBatchResult { is_done: true, ..VersionBatchResult::default() });
        }
        let taken = match batch.outdated {
            OutdatedPart::Deleted { by } => remove_deleted(&mut removal, batch, by).await?,
            OutdatedPart::Superseded { by, made_by, beyond } => {
                remove_superseded(&mut removal, batch, by, made_by, beyond).await?
            }
        };
        tx.commit().await?;
        Ok(taken)
    }
}

async fn remove_deleted(
    removal: &mut Removal<'_>,
    batch: &VersionBatch,
    by: Timestamp,
) -> Result<VersionBatchResult, IndexError> {
    let limit = i64::from(batch.limit.max(1));
    let text = removal.tx.choose(DELETIONS);
    let mut deletions: Vec<DeletionRow> = removal.query(text).bind((batch.after, limit)).all().await?;
    let is_page = deletions.len() as u64 == u64::from(batch.limit.max(1));
    let found = deletions.len();
    // A deletion by a clock that was ahead counts as no later than the deletions after
    // it.
    let mut latest = Timestamp::from_micros(i64::MAX);
    for deletion in deletions.iter_mut().rev() {
        latest = latest.min(deletion.created_at);
        deletion.created_at = latest;
    }
    let due = deletions.partition_point(|deletion| deletion.created_at <= by);
    deletions.truncate(due);
    let is_last = !is_page || due < found;
    let current: BTreeMap<_, _> = deletions
        .iter()
        .filter(|deletion| deletion.is_current)
        .map(|deletion| (deletion.memory_id, deletion.seq))
        .collect();
    // A dry run changes nothing, so a next batch could not continue from this one; it
    // counts everything at once.
    let limit = if batch.dry_run { i64::MAX } else { limit };
    let memories: Vec<_> = current.keys().copied().collect();
    let query = removal.query_with_lists(VERSIONS_OF).bind((Ids(Some(&memories)), limit));
    let places: Vec<(i64, MemoryId)> = query.all().await?;
    let ended: BTreeSet<_> = places
        .iter()
        .filter(|(seq, memory_id)| current.get(memory_id) == Some(seq))
        .map(|(_, memory_id)| *memory_id)
        .collect();
    let first_left =
        current.iter().filter(|(memory_id, _)| !ended.contains(*memory_id)).map(|(_, seq)| *seq).min();
    let through = deletions.last().map_or(batch.after, |last| last.seq);
    let places: Vec<_> = places.into_iter().map(|(seq, _)| seq).collect();
    let Some(blobs) = remove_at(removal, batch, &places).await? else {
        return Ok(batch.again());
    };
    let (memories, next) = (ended.len() as u64, first_left.map_or(through, |left| left - 1));
    if !batch.dry_run {
        let ended: Vec<_> = ended.into_iter().collect();
        if !ended.is_empty() {
            removal.delete_memories(&ended).await?;
        }
        removal.query(SET_RETENTION_SEQ).bind(next).execute().await?;
    }
    let (versions, is_done) = (places.len() as u64, is_last && first_left.is_none());
    Ok(VersionBatchResult { versions, memories, blobs, next, is_done })
}

async fn remove_superseded(
    removal: &mut Removal<'_>,
    batch: &VersionBatch,
    by: Timestamp,
    made_by: Option<Timestamp>,
    beyond: Option<u64>,
) -> Result<VersionBatchResult, IndexError> {
    let limit = batch.limit.max(1);
    let text = removal.tx.choose(PAST);
    // A version that was replaced at or before this time was also created by then.
    let query = removal.query(text).bind((batch.after, by));
    let query = query.bind((beyond.unwrap_or_default(), limit));
    let past: Vec<PastRow> = query.bind(batch.now.plus(CLOCK_AHEAD_AT_MOST)).all().await?;
    let is_outdated = |version: &&PastRow| {
        let is_old = made_by.is_some_and(|made_by| version.created_at <= made_by);
        let is_superseded = version.superseded_at.is_some_and(|at| at <= by);
        version.is_of_live && is_superseded && (is_old || version.is_beyond)
    };
    let outdated = past.iter().filter(is_outdated);
    let places: Vec<_> = outdated.map(|version| version.seq).collect();
    let Some(blobs) = remove_at(removal, batch, &places).await? else {
        return Ok(batch.again());
    };
    Ok(VersionBatchResult {
        versions: places.len() as u64,
        memories: 0,
        blobs,
        next: past.last().map_or(batch.after, |last| last.seq),
        is_done: past.len() < limit as usize,
    })
}

/// Removes versions with the records of their readers, and the points at which they were
/// current from the past that can be shown; a dry run removes nothing. Returns the number of
/// blobs queued; `None`: no version was removed, see [`VersionBatch::again`].
async fn remove_at(
    removal: &mut Removal<'_>,
    batch: &VersionBatch,
    places: &[i64],
) -> Result<Option<u64>, IndexError> {
    if batch.dry_run {
        return Ok(Some(0));
    }
    if !removal.forget_readers_at(places).await? {
        return Ok(None);
    }
    if places.is_empty() {
        return Ok(Some(0));
    }
    let text = removal.tx.choose(SUPERSEDED_BY);
    let query = removal.query_with_lists(text).bind(json!(places).to_string());
    if let Some(past_seq) = query.scalar::<Option<i64>>().await? {
        removal.query(RAISE_PAST_SEQ).bind(past_seq).execute().await?;
    }
    let queue = Queue::drained(DeletionReason::Expired, batch.blobs_go_from);
    let removed = removal.remove_versions(VersionSelection::At(places), queue).await?;
    Ok(Some(removed.blobs.len() as u64))
}
