//! The past of a store: its memories as they were at a point of its history.
//!
//! A point is the sequence number of a version: the state after that version. A memory
//! whose last version is at or before the point is as it was then. Of another one, the
//! last version at or before the point shows what it was.
//!
//! The points before `past_seq` of a store cannot be shown, because retention has
//! removed versions that were current then.

use std::collections::BTreeMap;

use keepsake_core::{DirPath, MemoryId, MemoryPath, StoreId, TenantId, Timestamp};
use uuid::Uuid;

use crate::IndexError;
use crate::database::{Database, FromRow, Role, Row, Tx, from_row, with_lists};
use crate::listing::end_of;
use crate::model::{
    Depth, Moment, Operation, PastItem, PastListing, PastMemory, PastPage, PastPlace, Point, StoreState,
};
use crate::versions::first_since;

/// If at most this many versions follow a point, the changed memories are found by these
/// versions, and else by the store's table of memories.
const MAX_LOG: i64 = 1_000;

const STORE: &str = "SELECT archived_at IS NOT NULL AS is_archived, purge_epoch, seq, past_seq, last_version_at \
    FROM store WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL";

/// When the first version at or after a sequence number was created.
const CREATED_SINCE: &str = "SELECT created_at FROM version WHERE tenant_id = $1 AND store_id = $2 AND seq >= $3 \
    ORDER BY seq LIMIT 1";

/// The lowest sequence number, up to `$4`, of the versions created at `$3` or later; on
/// Postgres.
const FIRST_SINCE: &str = "SELECT first_version_since($1, $2, $3, $4)";

/// The sequence number of the last version of the memory `c` at or before `{until}`.
///
/// For SQLite, it names the index. On Postgres, the comparison of rows makes sure that no
/// other index provides the order.
const LAST_VERSION: [&str; 2] = [
    "(SELECT p.seq FROM version p WHERE p.tenant_id = $1 AND p.store_id = $2 \
        AND (p.memory_id, p.seq) <= (c.memory_id, {until}) AND p.memory_id >= c.memory_id \
        ORDER BY p.memory_id DESC, p.seq DESC LIMIT 1)",
    "(SELECT p.seq FROM version p INDEXED BY version_memory WHERE p.tenant_id = $1 AND p.store_id = $2 \
        AND p.memory_id = c.memory_id AND p.seq <= {until} ORDER BY p.seq DESC LIMIT 1)",
];

/// The memories with versions after the point `$3`, by these versions.
const CHANGED_BY_LOG: &str = "(SELECT m.memory_id, m.created_at, m.head_seq FROM (SELECT DISTINCT l.memory_id FROM ( \
        SELECT memory_id FROM version WHERE tenant_id = $1 AND store_id = $2 AND seq > $3 \
        ORDER BY seq LIMIT 1000) l) r \
    EACH[memory m: m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = r.memory_id])";

/// The same, by the heads of all memories.
const CHANGED_BY_HEADS: &str = "(SELECT m.memory_id, m.created_at, m.head_seq FROM memory m \
    WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.head_seq > $3)";

/// The same, of the memories after the id `$5` and up to `$6`.
const CHANGED_IN_BATCH: &str = "(SELECT m.memory_id, m.created_at, m.head_seq FROM memory m \
    WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id > $5 AND m.memory_id <= $6 AND m.head_seq > $3)";

/// The last of the next memories by id; no row if there are fewer.
const BATCH_END: &str = "SELECT memory_id FROM memory WHERE tenant_id = $1 AND store_id = $2 AND memory_id > $3 \
    ORDER BY memory_id LIMIT 1 OFFSET $4";

const WITH_ID: &str = "(SELECT m.memory_id, m.created_at, m.head_seq FROM memory m \
    WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = $4)";

/// The memories that have not changed since the point `$3`, with paths from `$4` to before
/// `$5`, at most `$6`.
const UNCHANGED: &str = "SELECT m.memory_id, m.version_id, m.head_seq AS seq, m.path, m.blob_id, m.size_bytes, m.sha256, \
        m.created_at, m.updated_at, CAST(NULL AS bigint) AS redacted_at \
    FROM memory m WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.path >= $4 AND m.path < $5 \
    AND m.deleted_at IS NULL AND m.head_seq <= $3 ORDER BY m.path LIMIT $6 + 0";

/// Of the changed memories, those that were at paths from `$4` to before `$5` at the point
/// `$3`, at most `$6`.
const AT_PATHS: &str = "AND v.path >= $4 AND v.path < $5 ORDER BY v.path LIMIT $6 + 0";

/// Of the changed memories after the id `$4`, those whose version at the point `$3` is
/// redacted, at most `$5`.
const REDACTED: &str = "AND v.path IS NULL AND c.memory_id > $4 ORDER BY c.memory_id LIMIT $5 + 0";

/// The columns of a [`PastMemory`], of its version `v` and the memory `c`.
const COLUMNS: &str = "v.memory_id, v.version_id, v.seq, v.path, v.blob_id, v.size_bytes, v.sha256, c.created_at, \
    v.created_at AS updated_at, v.redacted_at";

/// The most statements for one page. A page of direct children takes one for each directory.
const MAX_STATEMENTS: u32 = 20;

/// An id before every other one.
const FIRST_ID: MemoryId = MemoryId::from_uuid(Uuid::nil());
/// An id after every other one.
const LAST_ID: MemoryId = MemoryId::from_uuid(Uuid::max());

#[derive(Debug, Clone)]
pub struct Past(pub(crate) Database);

/// Why a point of a store cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum PointError {
    #[error("there is no such store")]
    NoStore,
    /// Versions that were current at the point were removed.
    #[error("the history before {oldest_seq} is not kept")]
    Removed {
        /// The oldest point that can be shown.
        oldest_seq: i64,
        /// A time that leads to this point.
        oldest_at: Timestamp,
    },
    /// The store has no such version yet.
    #[error("the newest version is {newest_seq}")]
    NotYet { newest_seq: i64 },
    #[error(transparent)]
    Index(#[from] IndexError),
}

struct StoreRow {
    seq: i64,
    past_seq: i64,
    last_version_at: Timestamp,
    store: StoreState,
}

/// A memory at one of two points.
struct StateRow {
    /// Whether it is the second point.
    is_after: bool,
    is_deleted: bool,
    memory: PastMemory,
}

from_row! {
    StoreRow { seq, past_seq, last_version_at; store }
    PastMemory {
        memory_id, version_id, seq, path, created_at, updated_at, redacted_at; content if "blob_id"
    }
}

impl FromRow for StateRow {
    fn from_row(row: &Row) -> Result<Self, IndexError> {
        Ok(Self {
            is_after: row.get::<i64>("side")? == 1,
            is_deleted: row.get::<Operation>("op")? == Operation::Deleted,
            memory: row.read()?,
        })
    }
}

impl Past {
    /// The statements as they are sent to Postgres, for tests: of unchanged memories, changed ones by the log and by
    /// their heads, redacted ones, one memory, differences by the log and in batches, and the number of a batch.
    pub fn statements_on_postgres() -> [String; 8] {
        let last = LAST_VERSION[0];
        let texts = [
            UNCHANGED.to_owned(),
            states(last, CHANGED_BY_LOG, AT_PATHS),
            states(last, CHANGED_BY_HEADS, AT_PATHS),
            states(last, CHANGED_BY_LOG, REDACTED),
            states(last, WITH_ID, ""),
            changes(last, CHANGED_BY_LOG),
            changes(last, CHANGED_IN_BATCH),
            number_at(last),
        ];
        texts.map(|text| with_lists(&text, true))
    }

    /// The point of a moment.
    pub async fn point(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        moment: Moment,
    ) -> Result<Point, PointError> {
        let mut tx = self.0.read("past_point", Role::Tenant(tenant_id)).await?;
        let point = point_of(&mut tx, (tenant_id, store_id), moment).await?;
        tx.commit().await?;
        Ok(point)
    }

    /// Lists the memories that existed at a moment in byte order of their paths; with the
    /// whole store, those whose version is redacted come last, by id.
    ///
    /// An unchanged memory costs as much as in a list of the present. Each changed one
    /// costs one look-up of a version, for every page. A page may be shorter than its
    /// limit although others follow.
    pub async fn list(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        moment: Moment,
        listing: &PastListing,
    ) -> Result<PastPage, PointError> {
        let store = (tenant_id, store_id);
        let mut tx = self.0.read("past_list", Role::Tenant(tenant_id)).await?;
        let point = point_of(&mut tx, store, moment).await?;
        let mut page: PastPage = PastPage { point, items: Vec::new(), next: None };
        let mut place = listing.after.clone();
        let limit = listing.limit as usize;
        for _ in 0..MAX_STATEMENTS {
            let missing = limit.saturating_sub(page.items.len());
            let wanted = u32::try_from(missing).unwrap_or(u32::MAX).saturating_add(1);
            let rows = match &place {
                Some(PastPlace::Redacted(after)) => redacted(&mut tx, store, point, *after, wanted).await?,
                Some(PastPlace::Path(after)) => {
                    let paths = PathRange::after(&listing.below, after);
                    at_paths(&mut tx, store, point, &paths, wanted).await?
                }
                None => at_paths(&mut tx, store, point, &PathRange::of(&listing.below), wanted).await?,
            };
            let is_end = rows.len() <= missing;
            for memory in rows {
                let item = item_of(memory, &listing.below, listing.depth);
                if page.items.last() == Some(&item) {
                    // Another memory below the same directory.
                    continue;
                }
                if page.items.len() == limit {
                    page.next = place;
                    return finish(tx, page).await;
                }
                place = Some(item.place());
                page.items.push(item);
            }
            if is_end {
                let lists_redacted = listing.below.as_str() == "/" && point.seq < point.newest_seq;
                if matches!(place, Some(PastPlace::Redacted(_))) || !lists_redacted {
                    return finish(tx, page).await;
                }
                place = Some(PastPlace::Redacted(FIRST_ID));
            }
        }
        page.next = place;
        finish(tx, page).await
    }

    /// Counts those of the next `limit` memories after the id `after` that existed at a moment, with those whose
    /// version is redacted. The second value is the id after which the next batch begins; `None`: this is the
    /// last batch.
    pub async fn count(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        moment: Moment,
        after: Option<MemoryId>,
        limit: u32,
    ) -> Result<(u64, Option<MemoryId>), PointError> {
        let store = (tenant_id, store_id);
        let mut tx = self.0.read("past_count", Role::Tenant(tenant_id)).await?;
        let point = point_of(&mut tx, store, moment).await?;
        let after = after.unwrap_or(FIRST_ID);
        let next = batch_end(&mut tx, store, after, limit).await?;
        let text = number_at(tx.choose(LAST_VERSION));
        let query = tx.query_with_lists(&text).bind((store, point.seq));
        let count = query.bind((after, next.unwrap_or(LAST_ID))).scalar().await?;
        tx.commit().await?;
        Ok((count, next))
    }

    /// Finds a memory as it was at a moment, by its id; `None`: it did not exist then.
    pub async fn find(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        moment: Moment,
        memory_id: MemoryId,
    ) -> Result<(Point, Option<PastMemory>), PointError> {
        let store = (tenant_id, store_id);
        let mut tx = self.0.read("past_memory", Role::Tenant(tenant_id)).await?;
        let point = point_of(&mut tx, store, moment).await?;
        let text = states(tx.choose(LAST_VERSION), WITH_ID, "");
        let query = tx.query_with_lists(&text).bind(store).bind((point.seq, memory_id));
        let found = query.optional().await?;
        tx.commit().await?;
        Ok((point, found))
    }

    /// Finds the memory that was at a path at a moment.
    pub async fn find_at(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        moment: Moment,
        path: &MemoryPath,
    ) -> Result<(Point, Option<PastMemory>), PointError> {
        let store = (tenant_id, store_id);
        let mut tx = self.0.read("past_memory_at", Role::Tenant(tenant_id)).await?;
        let point = point_of(&mut tx, store, moment).await?;
        let paths = PathRange::only(path);
        let mut found = unchanged(&mut tx, store, point, &paths, 1).await?;
        if found.is_empty() {
            found = changed(&mut tx, store, point, &paths, 1).await?;
        }
        tx.commit().await?;
        Ok((point, found.pop()))
    }

    /// The memories with versions after the point `from` and up to `to`, by id, as they were at
    /// both points; `None`: the memory did not exist. Without `from`, all memories with versions up to `to`.
    ///
    /// Reads up to `limit` memories after the id `after`, and returns those of them that
    /// changed, with the point `to`; `next` is the id after which the next batch begins. If only
    /// a few versions follow `from`, the first batch is the last one.
    pub async fn changes(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        (from, to): (Option<i64>, Moment),
        after: Option<MemoryId>,
        limit: u32,
    ) -> Result<PastPage<[Option<PastMemory>; 2], MemoryId>, PointError> {
        let store = (tenant_id, store_id);
        let mut tx = self.0.read("past_changes", Role::Tenant(tenant_id)).await?;
        let to = point_of(&mut tx, store, to).await?;
        let from = match from {
            Some(from) => point_of(&mut tx, store, Moment::Seq(from)).await?.seq,
            None => 0,
        };
        let after = after.unwrap_or(FIRST_ID);
        // All changed memories are one batch, if there are few.
        let is_short = to.newest_seq - from <= MAX_LOG;
        let next = if is_short { None } else { batch_end(&mut tx, store, after, limit).await? };
        let text = if is_short { CHANGED_BY_LOG } else { CHANGED_IN_BATCH };
        let text = changes(tx.choose(LAST_VERSION), text);
        let query = tx.query_with_lists(&text).bind(store).bind((from, to.seq));
        let query = if is_short { query } else { query.bind((after, next.unwrap_or(LAST_ID))) };
        let rows: Vec<StateRow> = query.all().await?;
        tx.commit().await?;
        let mut changed: BTreeMap<MemoryId, [Option<PastMemory>; 2]> = BTreeMap::new();
        for StateRow { is_after, memory, .. } in rows.into_iter().filter(|row| !row.is_deleted) {
            let sides = changed.entry(memory.memory_id).or_default();
            sides[usize::from(is_after)] = Some(memory);
        }
        let seq = |memory: &Option<PastMemory>| memory.as_ref().map(|memory| memory.seq);
        let changed = changed.into_values().filter(|[before, after]| seq(before) != seq(after));
        Ok(PastPage { point: to, items: changed.collect(), next })
    }
}

async fn finish(tx: Tx, page: PastPage) -> Result<PastPage, PointError> {
    tx.commit().await?;
    Ok(page)
}

/// Paths from the first to before the second one, in byte order.
struct PathRange {
    from: String,
    end: String,
}

impl PathRange {
    fn of(below: &DirPath) -> Self {
        Self { from: below.as_str().to_owned(), end: end_of(below) }
    }

    /// Only paths after that of an item; after a directory, only paths outside of it.
    fn after(below: &DirPath, place: &str) -> Self {
        let whole = Self::of(below);
        let from = place.strip_suffix('/').map_or_else(|| next_of(place), |path| format!("{path}0"));
        Self { from: from.max(whole.from), end: whole.end }
    }

    fn only(path: &MemoryPath) -> Self {
        Self { from: path.as_str().to_owned(), end: next_of(path.as_str()) }
    }
}

/// The next text in byte order among those without NUL, which no path has.
fn next_of(text: &str) -> String {
    format!("{text}\u{1}")
}

async fn point_of(tx: &mut Tx, store: (TenantId, StoreId), moment: Moment) -> Result<Point, PointError> {
    let found: Option<StoreRow> = tx.query(STORE).bind(store).optional().await?;
    let row = found.ok_or(PointError::NoStore)?;
    let seq = match moment {
        Moment::Seq(seq) if seq > row.seq => return Err(PointError::NotYet { newest_seq: row.seq }),
        Moment::Seq(seq) => seq,
        Moment::Oldest => row.past_seq,
        Moment::Newest => row.seq,
        Moment::Time(at) => {
            let after = Timestamp::from_micros(at.as_micros().saturating_add(1));
            let end = row.seq + 1;
            let first: i64 = if tx.choose([true, false]) {
                tx.query(FIRST_SINCE).bind((store, after, end)).scalar().await?
            } else {
                first_since(tx, store, after, end).await?
            };
            first - 1
        }
    };
    if seq < row.past_seq {
        let query = tx.query(CREATED_SINCE).bind((store, row.past_seq));
        let oldest_at = query.optional_scalar().await?.unwrap_or(row.last_version_at);
        return Err(PointError::Removed { oldest_seq: row.past_seq, oldest_at });
    }
    Ok(Point { store: row.store, seq, newest_seq: row.seq })
}

/// The last of the next `limit` memories by id; `None`: there are fewer.
async fn batch_end(
    tx: &mut Tx,
    store: (TenantId, StoreId),
    after: MemoryId,
    limit: u32,
) -> Result<Option<MemoryId>, IndexError> {
    let query = tx.query(BATCH_END).bind((store, after));
    query.bind(i64::from(limit.max(1)) - 1).optional_scalar().await
}

/// The memories that were at paths of a range, in the order of the paths.
async fn at_paths(
    tx: &mut Tx,
    store: (TenantId, StoreId),
    point: Point,
    paths: &PathRange,
    limit: u32,
) -> Result<Vec<PastMemory>, IndexError> {
    let mut memories = unchanged(tx, store, point, paths, limit).await?;
    memories.extend(changed(tx, store, point, paths, limit).await?);
    memories.sort_by(|one, other| one.path.cmp(&other.path));
    memories.truncate(limit as usize);
    Ok(memories)
}

async fn unchanged(
    tx: &mut Tx,
    store: (TenantId, StoreId),
    point: Point,
    paths: &PathRange,
    limit: u32,
) -> Result<Vec<PastMemory>, IndexError> {
    let query = tx.query(UNCHANGED).bind((store, point.seq));
    query.bind((paths.from.as_str(), paths.end.as_str(), limit)).all().await
}

async fn changed(
    tx: &mut Tx,
    store: (TenantId, StoreId),
    point: Point,
    paths: &PathRange,
    limit: u32,
) -> Result<Vec<PastMemory>, IndexError> {
    if point.seq == point.newest_seq {
        return Ok(Vec::new());
    }
    let text = states(tx.choose(LAST_VERSION), changed_since(point), AT_PATHS);
    let query = tx.query_with_lists(&text).bind((store, point.seq));
    query.bind((paths.from.as_str(), paths.end.as_str(), limit)).all().await
}

/// The memories whose version at the point is redacted, so that nobody knows their path.
async fn redacted(
    tx: &mut Tx,
    store: (TenantId, StoreId),
    point: Point,
    after: MemoryId,
    limit: u32,
) -> Result<Vec<PastMemory>, IndexError> {
    if point.seq == point.newest_seq {
        return Ok(Vec::new());
    }
    let text = states(tx.choose(LAST_VERSION), changed_since(point), REDACTED);
    tx.query_with_lists(&text).bind((store, point.seq)).bind((after, limit)).all().await
}

/// The table of the memories that changed since a point.
const fn changed_since(point: Point) -> &'static str {
    if point.newest_seq - point.seq <= MAX_LOG { CHANGED_BY_LOG } else { CHANGED_BY_HEADS }
}

/// Selects the memories of a table as they were at the point `$3`, except those that were
/// deleted then.
fn states(last_version: &str, memories: &str, rest: &str) -> String {
    let last = last_version.replace("{until}", "$3");
    format!(
        "SELECT {COLUMNS} FROM {memories} c \
        EACH[version v: v.tenant_id = $1 AND v.store_id = $2 \
            AND v.seq = {last}] \
        WHERE v.op <> 'deleted' {rest}"
    )
}

/// Counts the memories that existed at the point `$3`, of those after the id `$4` and up to `$5`.
fn number_at(last_version: &str) -> String {
    let last = last_version.replace("{until}", "$3");
    format!(
        "SELECT count(*) FROM memory c \
        WHERE c.tenant_id = $1 AND c.store_id = $2 AND c.memory_id > $4 AND c.memory_id <= $5 \
        AND CASE WHEN c.head_seq <= $3 THEN c.deleted_at IS NULL \
            ELSE (SELECT v.op FROM version v WHERE v.tenant_id = $1 AND v.store_id = $2 \
                AND v.seq = {last}) <> 'deleted' END"
    )
}

/// Selects the memories of a table as they were at the points `$3` and `$4`: `side` is 0 for the
/// first point, and 1 for the second one.
fn changes(last_version: &str, memories: &str) -> String {
    let sides = ["$3", "$4"].into_iter().enumerate().map(|(side, until)| {
        let last = last_version.replace("{until}", until);
        format!(
            "SELECT {COLUMNS}, v.op, CAST({side} AS bigint) AS side FROM {memories} c \
            EACH[version v: v.tenant_id = $1 AND v.store_id = $2 AND v.seq = {last}]"
        )
    });
    sides.collect::<Vec<_>>().join(" UNION ALL ")
}

fn item_of(memory: PastMemory, below: &DirPath, depth: Depth) -> PastItem {
    let rest = memory.path.as_ref().and_then(|path| path.as_str().strip_prefix(below.as_str()));
    match rest.and_then(|rest| rest.split_once('/')) {
        Some((name, _)) if depth == Depth::Children => {
            PastItem::Prefix(DirPath::from_trusted(format!("{}{name}/", below.as_str())))
        }
        _ => PastItem::Memory(memory),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::plans::assert_steps;

    #[tokio::test]
    async fn changed_memories_are_found_with_one_probe_of_an_index_each() {
        let last = LAST_VERSION[1];
        let probe = "version_memory (tenant_id=? AND store_id=? AND memory_id=? AND seq<?)";
        let after = "PRIMARY KEY (tenant_id=? AND store_id=? AND seq>?)";
        let version = "PRIMARY KEY (tenant_id=? AND store_id=? AND seq=?)";
        let memory = "PRIMARY KEY (tenant_id=? AND store_id=? AND memory_id=?)";
        let batch = "PRIMARY KEY (tenant_id=? AND store_id=? AND memory_id>? AND memory_id<?)";
        for (statement, wanted) in [
            (UNCHANGED.to_owned(), &["memory_path (tenant_id=? AND store_id=? AND path>? AND path<?)"][..]),
            (states(last, CHANGED_BY_LOG, AT_PATHS), &[probe, after, version, memory]),
            (states(last, CHANGED_BY_HEADS, AT_PATHS), &[probe, version]),
            (states(last, WITH_ID, ""), &[probe, version, memory]),
            (changes(last, CHANGED_BY_LOG), &[probe, after, version, memory]),
            (changes(last, CHANGED_IN_BATCH), &[probe, version, batch]),
            (number_at(last), &[probe, version, batch]),
        ] {
            assert_steps(&statement, wanted).await;
        }
    }
}
