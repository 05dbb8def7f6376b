//! Recounts of stores and tenants.

use std::collections::BTreeMap;

use keepsake_core::{DirPath, MemoryPath, StoreId, TenantId, Timestamp};
use serde::{Serialize, Serializer};

use crate::IndexError;
use crate::commit::{CommitPlan, DirectoryDelta, MAX_DIRECTORY_TIME_LAG};
use crate::database::{FromRow, Row, Tx, from_row};
use crate::directories::Directories;

const RECORDED: &str = "SELECT memory_count, live_bytes, version_count, version_bytes, granted_bytes, rising_seq \
    FROM store WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL";

const LIVE_MEMORIES: &str = "SELECT path, size_bytes, head_seq, updated_at FROM memory \
    WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL AND path > $3 ORDER BY path LIMIT $4 + 0";

/// The number of versions of a store, and the bytes of their blobs: blobs
/// introduced by the versions, and blobs whose own version is deleted or redacted
/// while others share them.
const VERSIONS_HELD: &str = "SELECT count(*), \
    CAST(coalesce(sum(CASE WHEN blob_id = version_id THEN size_bytes ELSE 0 END), 0) AS bigint) \
    + CAST((SELECT coalesce(sum(o.size_bytes), 0) FROM (SELECT max(h.size_bytes) AS size_bytes FROM version h \
        WHERE h.tenant_id = $1 AND h.store_id = $2 AND h.blob_id <> h.version_id AND NOT EXISTS ( \
            SELECT 1 FROM version b WHERE b.tenant_id = $1 AND b.store_id = $2 AND b.version_id = h.blob_id \
                AND b.blob_id = h.blob_id) \
        GROUP BY h.blob_id) o) AS bigint) \
    FROM version WHERE tenant_id = $1 AND store_id = $2";

/// Counts live memories whose head is not a version.
const LOST_HEADS: &str = "SELECT count(*) FROM memory m \
    WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.deleted_at IS NULL AND NOT EXISTS ( \
        SELECT 1 FROM version v WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.seq = m.head_seq \
            AND v.version_id = m.version_id AND v.blob_id = m.blob_id)";

const DIRECTORIES: &str = "SELECT path, files, bytes, visible_children, changed_at FROM directory \
    WHERE tenant_id = $1 AND store_id = $2";

/// Sets a store's counters; the grant is at least the bytes held.
const REPAIR_STORE: &str = "UPDATE store SET memory_count = $3, live_bytes = $4, version_count = $5, \
    version_bytes = $6, granted_bytes = CASE WHEN granted_bytes < $4 THEN $4 ELSE granted_bytes END \
    WHERE tenant_id = $1 AND store_id = $2";

/// Adds the bytes that a store held beyond its grant to the tenant's grants.
const GRANT_TENANT: &str = "UPDATE tenant SET granted_bytes = granted_bytes + $2 WHERE tenant_id = $1";

const REPAIR_DIRECTORY: &str = "INSERT INTO directory (tenant_id, store_id, path, parent, name, files, bytes, \
        visible_children, changed_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
    ON CONFLICT (tenant_id, store_id, path) DO UPDATE SET files = excluded.files, bytes = excluded.bytes, \
        visible_children = excluded.visible_children, changed_at = excluded.changed_at";

const DROP_DIRECTORY: &str = "DELETE FROM directory WHERE tenant_id = $1 AND store_id = $2 AND path = $3";

const TENANT_COUNT: &str = "SELECT t.store_count, t.granted_bytes, \
    (SELECT count(*) FROM store s WHERE s.tenant_id = $1 AND s.deleted_at IS NULL) AS stores, \
    CAST((SELECT coalesce(sum(s.granted_bytes), 0) FROM store s \
        WHERE s.tenant_id = $1 AND s.deleted_at IS NULL) AS bigint) AS grants \
    FROM tenant t WHERE t.tenant_id = $1 AND t.status <> 'deleting'";

const REPAIR_TENANT: &str = "UPDATE tenant SET store_count = $2, granted_bytes = $3 WHERE tenant_id = $1";

/// Live memories per page of a recount.
const MEMORIES_AT_ONCE: i64 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counter {
    /// The value in the row.
    pub recorded: i64,
    pub counted: i64,
}

impl Counter {
    pub const fn has_drifted(&self) -> bool {
        self.recorded != self.counted
    }

    const fn is_right(&self) -> bool {
        !self.has_drifted()
    }
}

/// Its JSON has only the wrong values.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct StoreCount {
    /// Live memories.
    #[serde(skip_serializing_if = "Counter::is_right")]
    pub memory_count: Counter,
    /// Bytes of the live memories.
    #[serde(skip_serializing_if = "Counter::is_right")]
    pub live_bytes: Counter,
    /// Retained versions.
    #[serde(skip_serializing_if = "Counter::is_right")]
    pub version_count: Counter,
    /// Bytes of the blobs that versions reference.
    #[serde(skip_serializing_if = "Counter::is_right")]
    pub version_bytes: Counter,
    /// Directories with a wrong, missing or superfluous row; as JSON, their number.
    #[serde(
        rename = "wrong_directories",
        skip_serializing_if = "Vec::is_empty",
        serialize_with = "number_of"
    )]
    pub directories: Vec<DirPath>,
    /// Live memories whose head is not a version of the store; a recount cannot repair
    /// these.
    #[serde(skip_serializing_if = "is_zero")]
    pub lost_heads: u64,
    /// Bytes that the store holds beyond its grant.
    #[serde(skip_serializing_if = "is_zero")]
    pub overdrawn_bytes: u64,
}

fn number_of<S: Serializer>(directories: &[DirPath], serializer: S) -> Result<S::Ok, S::Error> {
    directories.len().serialize(serializer)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "for serde")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl StoreCount {
    /// Whether there is a difference that a recount repairs.
    pub fn has_drifted(&self) -> bool {
        let counters = [self.memory_count, self.live_bytes, self.version_count, self.version_bytes];
        counters.iter().any(Counter::has_drifted) || !self.directories.is_empty() || self.overdrawn_bytes > 0
    }
}

/// Its JSON has only the wrong values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct TenantCount {
    /// Stores that are not deleted.
    #[serde(skip_serializing_if = "Counter::is_right")]
    pub store_count: Counter,
    /// The sum of their grants.
    #[serde(skip_serializing_if = "Counter::is_right")]
    pub granted_bytes: Counter,
}

impl TenantCount {
    pub const fn has_drifted(&self) -> bool {
        self.store_count.has_drifted() || self.granted_bytes.has_drifted()
    }
}

#[derive(Debug, Clone, Copy)]
struct RecordedCounters {
    memory_count: i64,
    live_bytes: i64,
    version_count: i64,
    version_bytes: i64,
    granted_bytes: i64,
    /// From this version on, none is earlier than the one before it.
    rising_seq: i64,
}

/// The counters of a store or of a tenant, and what they should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recount {
    Store(StoreCount),
    Tenant(TenantCount),
}

impl Recount {
    /// Whether there is a difference that a recount repairs.
    pub fn has_drifted(&self) -> bool {
        match self {
            Self::Store(count) => count.has_drifted(),
            Self::Tenant(count) => count.has_drifted(),
        }
    }

    /// Live memories whose head is not a version; a recount cannot repair these.
    pub const fn lost_heads(&self) -> u64 {
        match self {
            Self::Store(count) => count.lost_heads,
            Self::Tenant(_) => 0,
        }
    }
}

#[derive(Debug, Default)]
struct LiveMemories {
    counts: CommitPlan,
    /// The newest version below each directory: its sequence number and its time.
    newest: BTreeMap<DirPath, (i64, Timestamp)>,
}

/// Compares the counts of the live memories with the stored rows; `versions` are the number of
/// the versions and the bytes of the referenced blobs.
///
/// The time of a directory is wrong if it is too early for its newest memory. It may be later,
/// because a memory that was deleted or moved away changed the directory, too. Such a change may also
/// be the earlier one, if the clock was set back after the newest memory's version.
///
/// Also returns the correct rows of wrong directories.
fn compare(
    memories: &LiveMemories,
    recorded: RecordedCounters,
    versions: (i64, i64),
    lost_heads: u64,
    mut rows: BTreeMap<DirPath, DirectoryState>,
) -> (StoreCount, DirectoryCorrections) {
    let counter = |recorded, counted| Counter { recorded, counted };
    let LiveMemories { counts: memories, newest } = memories;
    let mut expected = Directories::of(&memories.directories, &BTreeMap::new()).moved;
    expected.entry(DirPath::root()).or_default();
    let mut wrong = BTreeMap::new();
    for (path, counts) in expected {
        let (newest_seq, newest_at) = newest.get(&path).copied().unwrap_or_default();
        let row = rows.remove(&path);
        let is_right = row.is_some_and(|row| {
            let is_early = newest_at >= row.changed_at.plus(MAX_DIRECTORY_TIME_LAG);
            row.counts == counts && !(is_early && newest_seq >= recorded.rising_seq)
        });
        if !is_right {
            let changed_at = row.map_or(newest_at, |row| row.changed_at.max(newest_at));
            wrong.insert(path, Some(DirectoryState { counts, changed_at }));
        }
    }
    wrong.extend(rows.into_keys().map(|path| (path, None)));
    let count = StoreCount {
        memory_count: counter(recorded.memory_count, memories.count_delta),
        live_bytes: counter(recorded.live_bytes, memories.byte_delta),
        version_count: counter(recorded.version_count, versions.0),
        version_bytes: counter(recorded.version_bytes, versions.1),
        directories: wrong.keys().cloned().collect(),
        lost_heads,
        overdrawn_bytes: u64::try_from(memories.byte_delta - recorded.granted_bytes).unwrap_or_default(),
    };
    (count, wrong)
}

/// The correct rows of a store's wrong directories; `None`: the row must be
/// deleted.
type DirectoryCorrections = BTreeMap<DirPath, Option<DirectoryState>>;

#[derive(Debug, Clone, Copy, Default)]
struct DirectoryState {
    counts: DirectoryDelta,
    /// The time of the last change below the directory.
    changed_at: Timestamp,
}

struct DirectoryRow {
    path: DirPath,
    state: DirectoryState,
}

from_row! {
    RecordedCounters { memory_count, live_bytes, version_count, version_bytes, granted_bytes, rising_seq }
    DirectoryDelta { files, size_bytes = "bytes", visible_children }
    DirectoryState { changed_at; counts }
    DirectoryRow { path; state }
}

impl FromRow for TenantCount {
    fn from_row(row: &Row) -> Result<Self, IndexError> {
        let counter = |recorded, counted| {
            Ok::<_, IndexError>(Counter { recorded: row.get(recorded)?, counted: row.get(counted)? })
        };
        Ok(Self {
            store_count: counter("store_count", "stores")?,
            granted_bytes: counter("granted_bytes", "grants")?,
        })
    }
}

pub(super) async fn recount_tenant(
    tx: &mut Tx,
    tenant_id: TenantId,
    repairs: bool,
) -> Result<Option<Recount>, IndexError> {
    let count: Option<TenantCount> = tx.query(TENANT_COUNT).bind(tenant_id).optional().await?;
    if let Some(count) = &count
        && repairs
        && count.has_drifted()
    {
        let counted = (count.store_count.counted, count.granted_bytes.counted);
        tx.query(REPAIR_TENANT).bind((tenant_id, counted)).execute().await?;
    }
    Ok(count.map(Recount::Tenant))
}

pub(super) async fn recount_store(
    tx: &mut Tx,
    tenant_id: TenantId,
    store_id: StoreId,
    repairs: bool,
) -> Result<Option<Recount>, IndexError> {
    let Some((count, wrong)) = count_store(tx, tenant_id, store_id).await? else {
        return Ok(None);
    };
    if repairs && count.has_drifted() {
        repair_store(tx, tenant_id, store_id, &count, wrong).await?;
    }
    Ok(Some(Recount::Store(count)))
}

/// Also returns the correct rows of wrong directories.
async fn count_store(
    tx: &mut Tx,
    tenant_id: TenantId,
    store_id: StoreId,
) -> Result<Option<(StoreCount, DirectoryCorrections)>, IndexError> {
    let (tenant, store) = (tenant_id.uuid(), store_id.uuid());
    let recorded = tx.query(RECORDED).bind((tenant, store)).optional().await?;
    let Some(recorded) = recorded else {
        return Ok(None);
    };
    let memories = count_memories(tx, tenant_id, store_id).await?;
    let versions = tx.query(VERSIONS_HELD).bind((tenant, store)).one().await?;
    let lost_heads = tx.query(LOST_HEADS).bind((tenant, store)).scalar().await?;
    let rows: Vec<DirectoryRow> = tx.query(DIRECTORIES).bind((tenant, store)).all().await?;
    let directories = rows.into_iter().map(|row| (row.path, row.state)).collect();
    Ok(Some(compare(&memories, recorded, versions, lost_heads, directories)))
}

async fn count_memories(
    tx: &mut Tx,
    tenant_id: TenantId,
    store_id: StoreId,
) -> Result<LiveMemories, IndexError> {
    let mut counted = LiveMemories::default();
    let mut after = String::new();
    loop {
        let query = tx.query(LIVE_MEMORIES).bind((tenant_id, store_id, &after));
        let memories: Vec<(MemoryPath, u64, i64, Timestamp)> = query.bind(MEMORIES_AT_ONCE).all().await?;
        let Some((last, ..)) = memories.last() else {
            return Ok(counted);
        };
        last.as_str().clone_into(&mut after);
        for (path, size_bytes, seq, updated_at) in memories {
            counted.counts.arrive(&path, size_bytes);
            for directory in path.ancestors() {
                let newest = counted.newest.entry(directory).or_default();
                *newest = (*newest).max((seq, updated_at));
            }
        }
    }
}

/// Writes the counts of a store, under the locks of tenant and store.
async fn repair_store(
    tx: &mut Tx,
    tenant_id: TenantId,
    store_id: StoreId,
    count: &StoreCount,
    wrong: DirectoryCorrections,
) -> Result<(), IndexError> {
    let (tenant, store) = (tenant_id.uuid(), store_id.uuid());
    let counters = [count.memory_count, count.live_bytes, count.version_count, count.version_bytes];
    let query = tx.query(REPAIR_STORE).bind((tenant, store));
    counters.iter().fold(query, |query, counter| query.bind(counter.counted)).execute().await?;
    if count.overdrawn_bytes > 0 {
        let query = tx.query(GRANT_TENANT).bind((tenant, count.overdrawn_bytes));
        query.execute().await?;
    }
    for (path, state) in wrong {
        let Some(DirectoryState { counts, changed_at }) = state else {
            let query = tx.query(DROP_DIRECTORY).bind((tenant, store, path.as_str()));
            query.execute().await?;
            continue;
        };
        let parent = path.parent().unwrap_or_else(DirPath::root);
        let query =
            tx.query(REPAIR_DIRECTORY).bind((tenant, store, path.as_str(), parent.as_str(), path.name()));
        let query = query.bind((counts.files, counts.size_bytes, counts.visible_children, changed_at));
        query.execute().await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_store_has_its_root() {
        let recorded = RecordedCounters {
            memory_count: 0,
            live_bytes: 0,
            version_count: 0,
            version_bytes: 0,
            granted_bytes: 0,
            rising_seq: 0,
        };
        let rows = BTreeMap::from([(DirPath::root(), DirectoryState::default())]);
        let (count, wrong) = compare(&LiveMemories::default(), recorded, (0, 0), 0, rows);
        assert!(!count.has_drifted() && wrong.is_empty());
        let (count, _) = compare(&LiveMemories::default(), recorded, (0, 0), 0, BTreeMap::new());
        assert!(count.has_drifted(), "no store is without its root");
    }
}
