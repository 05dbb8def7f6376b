//! The one removal path: everything that deletes versions, memories and stores for
//! good.
//!
//! A removal is a selection: one version ([`Redactions`]), the versions whose retention
//! has ended ([`Retention`]), a deleted store ([`StoreDeletions`]), a deleted tenant
//! ([`TenantDeletions`]), or the selection of an erasure ([`Erasures`]). Each batch is
//! one transaction with the steps of [`Removal`]:
//!
//! 1. lock the store, so that no commit runs at the same time;
//! 2. select rows;
//! 3. delete them; a redaction clears the version's row instead;
//! 4. queue for deletion the blobs that no version references any longer;
//! 5. update the store's counters and its purge epoch, so that caches drop the store;
//! 6. record the request of a tenant or the operator in the audit.
//!
//! A deleted store has no readers, so its rows go table by table, and nothing is
//! counted. The blobs of a deleted tenant are not queued: the job lists them.

mod erasures;
mod queue;
mod reads;
mod redactions;
mod retention;
mod stores;
mod tenants;

use std::collections::BTreeMap;

use keepsake_core::{
    Actor, DirPath, ErasureId, MemoryId, MemoryPath, StoreId, TenantId, Timestamp, VersionId,
};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, SqlSafeStr};

use crate::IndexError;
use crate::commit::{CommitPlan, directory_of};
use crate::database::{Ids, Query, RowLock, Tx, from_row};
use crate::directories::Directories;
use crate::model::{AuditedAction, DeletionReason, Operation, Version};
use crate::numbers::{signed, unsigned};

pub use erasures::{
    Backups, ErasedBlobs, ErasedCounts, Erasure, ErasureListing, ErasureState, ErasureStep, Erasures,
    MAX_OPEN_ERASURES, NewErasure, RowsErased, Selector, SelectorKind, StepName,
};
pub use queue::BlobDeletions;
pub use reads::{ReadRetention, RecordingTenant};
pub use redactions::Redactions;
pub(crate) use redactions::redact_imported;
pub use retention::{History, OutdatedPart, Retention, VersionBatch, VersionBatchResult};
pub use stores::StoreDeletions;
pub use tenants::TenantDeletions;

/// Postgres plans each statement of the transaction for its parameters and the current
/// tables, and finds rows by an index also where one store has most of a table. A
/// generic plan would scan a whole table, and removals are rare enough to be planned
/// each time.
pub(crate) const PLAN_BY_KEYS: &str = "SELECT set_config('plan_cache_mode', 'force_custom_plan', true), \
    set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true), \
    set_config('enable_mergejoin', 'off', true)";

const TENANT: &str = "SELECT tenant_id FROM tenant WHERE tenant_id = $1";

const STORE: &str = "SELECT seq, granted_bytes, deleted_at IS NOT NULL AS is_deleted FROM store \
    WHERE tenant_id = $1 AND store_id = $2";

/// Hides a store from every reader.
const DELETE_STORE: &str = "UPDATE store SET deleted_at = $3, granted_bytes = 0, \
    purge_epoch = purge_epoch + 1 WHERE tenant_id = $1 AND store_id = $2";

const REDACT: &str = "UPDATE version SET path = NULL, blob_id = NULL, size_bytes = NULL, sha256 = NULL, \
    redacted_at = $4, redacted_by_type = $5, redacted_by = $6 WHERE tenant_id = $1 AND store_id = $2 AND seq = $3";

/// Clears the path of a memory that a version deleted.
const CLEAR_PATH: &str = "UPDATE memory SET path = '', parent = '', name = '' \
    WHERE tenant_id = $1 AND store_id = $2 AND memory_id = $3 AND head_seq = $4 AND deleted_at IS NOT NULL";

const DELETE_VERSIONS: &str = "DELETE FROM version WHERE tenant_id = $1 AND store_id = $2 AND seq IN_NUMBERS($3) \
    RETURNING blob_id, size_bytes";

const DELETE_VERSIONS_OF: &str = "DELETE FROM version WHERE tenant_id = $1 AND store_id = $2 AND seq IN ( \
        SELECT v.seq FROM version v WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.memory_id IN_IDS($3) LIMIT $4 + 0) \
    RETURNING blob_id, size_bytes";

/// Whether a blob of the table `ids` is unreferenced: neither the version that introduced
/// the blob names it, nor one that shares it.
///
/// `OFFSET 0` makes Postgres look up each blob; joined with the history, a plan for an
/// empty table would read it all. The second condition is a range of one value: with an
/// equality, SQLite does not recognise the condition of the partial index.
const IS_UNREFERENCED: &str = "NOT EXISTS (SELECT 1 FROM version v WHERE v.tenant_id = $1 AND v.store_id = $2 \
        AND v.version_id = ids.id AND v.blob_id = v.version_id LIMIT 1 OFFSET 0) \
    AND NOT EXISTS (SELECT 1 FROM version v WHERE v.tenant_id = $1 AND v.store_id = $2 \
        AND v.blob_id BETWEEN ids.id AND ids.id AND v.blob_id <> v.version_id LIMIT 1 OFFSET 0)";

const DELETE_MEMORIES: &str = "DELETE FROM memory WHERE tenant_id = $1 AND store_id = $2 AND memory_id IN_IDS($3) \
    RETURNING path, size_bytes, deleted_at IS NULL AS is_live";

const DELETE_ACCESS_TIMES: &str =
    "DELETE FROM memory_access WHERE tenant_id = $1 AND store_id = $2 AND memory_id IN_IDS($3)";

const DELETE_SEARCH_DOCUMENTS: &str =
    "DELETE FROM search_doc WHERE tenant_id = $1 AND store_id = $2 AND memory_id IN_IDS($3)";

const DELETE_EMBEDDINGS: &str =
    "DELETE FROM embedding WHERE tenant_id = $1 AND store_id = $2 AND memory_id IN_IDS($3)";

/// Deletes vectors that were made of these versions.
const DELETE_EMBEDDINGS_OF_VERSIONS: &str = "DELETE FROM embedding WHERE tenant_id = $1 AND store_id = $2 \
    AND (memory_id, model) IN (SELECT e.memory_id, e.model FROM version v CROSS JOIN embedding e \
        WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.seq IN_NUMBERS($3) \
            AND e.tenant_id = $1 AND e.store_id = $2 AND e.memory_id = v.memory_id AND e.version_id = v.version_id)";

/// Deletes the content of queued blobs that is in this database.
const DELETE_CONTENTS: &str =
    "DELETE FROM content WHERE tenant_id = $1 AND store_id = $2 AND blob_id IN_IDS($3)";

const DIRECTORIES: &str =
    "SELECT path, files FROM directory WHERE tenant_id = $1 AND store_id = $2 AND path IN_TEXTS($3)";

const MOVE_DIRECTORIES: [&str; 2] = [
    "UPDATE directory d SET files = d.files + n.files, bytes = d.bytes + n.bytes, \
        visible_children = d.visible_children + n.children \
    FROM jsonb_to_recordset($3::jsonb) AS n(path text, files bigint, bytes bigint, children bigint) \
    WHERE d.tenant_id = $1 AND d.store_id = $2 AND d.path = n.path",
    "UPDATE directory SET files = files + (n.value ->> 'files'), bytes = bytes + (n.value ->> 'bytes'), \
        visible_children = visible_children + (n.value ->> 'children') FROM json_each($3) n \
    WHERE directory.tenant_id = $1 AND directory.store_id = $2 AND directory.path = n.value ->> 'path'",
];

const DELETE_DIRECTORIES: &str =
    "DELETE FROM directory WHERE tenant_id = $1 AND store_id = $2 AND path IN_TEXTS($3)";

const COUNT: &str = "UPDATE store SET purge_epoch = purge_epoch + 1, memory_count = memory_count - $3, \
    live_bytes = live_bytes - $4, version_count = version_count - $5, version_bytes = version_bytes - $6 \
    WHERE tenant_id = $1 AND store_id = $2";

/// A table, the rest of its key after the tenant, and the order of an index.
type Table = (&'static str, &'static str, &'static str);

/// The tables with rows of stores, with the order of an index within a store. Copies,
/// undos and vectors come first, so that none is left of content that is gone; then the
/// versions, which are the last references to the blobs.
const STORE_TABLES: [Table; 14] = [
    ("store_fork", "store_id", "store_id"),
    ("memory_undo_part", "store_id, undo_id, part", "undo_id, part"),
    ("memory_undo", "store_id, undo_id", "undo_id"),
    ("embedding", "store_id, memory_id, model", "memory_id"),
    ("embedded_store", "store_id, model", "model"),
    ("version", "store_id, seq", "seq"),
    ("memory", "store_id, memory_id", "memory_id"),
    ("memory_access", "store_id, memory_id", "memory_id"),
    (
        "memory_read",
        "store_id, memory_id, version_id, session_id, actor_type, actor_id, surface",
        "memory_id",
    ),
    ("daily_use", "store_id, day, surface", "day"),
    ("search_doc", "store_id, memory_id", "memory_id"),
    ("directory", "store_id, path", "path"),
    ("session_resource", "session_id, resource_id", "session_created_at, session_id"),
    ("session_event", "session_id, at, event_id", "path"),
];

/// The removal of a part of one store, in the caller's transaction.
#[derive(Debug)]
struct Removal<'t> {
    tx: &'t mut Tx,
    tenant_id: TenantId,
    store_id: StoreId,
}

#[derive(Debug, Clone, Copy)]
struct StoreRow {
    seq: i64,
    granted_bytes: i64,
    is_deleted: bool,
}

#[derive(Debug)]
enum VersionSelection<'a> {
    /// One version's content; its row stays.
    Content {
        version: &'a Version,
        audited: &'a AuditedAction,
    },
    At(&'a [i64]),
    /// Versions of these memories, at most `limit`.
    Of {
        memories: &'a [MemoryId],
        limit: i64,
    },
}

#[derive(Debug, Clone, Copy)]
struct Queue {
    reason: DeletionReason,
    /// The earliest time of the deletion.
    not_before: Timestamp,
    /// The erasure that deletes the blobs, instead of the drain.
    erasure_id: Option<ErasureId>,
}

impl Queue {
    const fn drained(reason: DeletionReason, not_before: Timestamp) -> Self {
        Self { reason, not_before, erasure_id: None }
    }
}

#[derive(Debug)]
struct RemovedVersions {
    /// The number of deleted rows.
    versions: u64,
    /// The blobs that were queued, because no row references them any longer.
    blobs: Vec<VersionId>,
    /// Bytes of these blobs.
    bytes: u64,
}

#[derive(Debug)]
struct RemovedMemories {
    memories: u64,
    access_times: u64,
    search_documents: u64,
    /// The number of removed memories that were live, and their bytes.
    live: [i64; 2],
}

/// A batch of the purge of a store or a tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PurgedBatch {
    /// Deleted rows by table; `store` is a store's own row.
    by_table: BTreeMap<&'static str, u64>,
    /// Blobs queued for deletion.
    pub blobs: u64,
    /// Bytes of content that the deleted versions introduced.
    bytes: u64,
    /// Whether nothing is left: of a tenant, only its own row.
    pub is_done: bool,
}

impl PurgedBatch {
    fn of(&self, table: &str) -> u64 {
        self.by_table.get(table).copied().unwrap_or_default()
    }

    /// Deleted rows of all tables.
    pub fn rows(&self) -> u64 {
        self.by_table.values().sum()
    }
}

from_row! {
    StoreRow { seq, granted_bytes, is_deleted }
}

impl<'t> Removal<'t> {
    const fn of(tx: &'t mut Tx, tenant_id: TenantId, store_id: StoreId) -> Self {
        Self { tx, tenant_id, store_id }
    }

    /// A statement about the store, with `$1` and `$2` bound.
    fn query(&mut self, sql: impl SqlSafeStr) -> Query<'_> {
        let (tenant_id, store_id) = (self.tenant_id, self.store_id);
        self.tx.query(sql).bind((tenant_id, store_id))
    }

    /// Like [`Self::query`], with lists; see [`Tx::query_with_lists`].
    fn query_with_lists(&mut self, sql: &str) -> Query<'_> {
        let (tenant_id, store_id) = (self.tenant_id, self.store_id);
        self.tx.query_with_lists(sql).bind((tenant_id, store_id))
    }

    /// Takes the lock of the store's commits. With [`RowLock::Update`] the flush of
    /// access times waits too, as it must when memories are deleted.
    async fn lock(&mut self, lock: RowLock) -> Result<Option<StoreRow>, IndexError> {
        let query = self.tx.query_locking(STORE, lock).bind(self.tenant_id);
        query.bind(self.store_id).optional().await
    }

    /// Locks a store that is not deleted; `None`: there is none.
    async fn lock_live(&mut self, lock: RowLock) -> Result<Option<StoreRow>, IndexError> {
        Ok(self.lock(lock).await?.filter(|store| !store.is_deleted))
    }

    /// Removes versions with their vectors, queues the blobs that become unreferenced, and
    /// updates the counters.
    async fn remove_versions(
        &mut self,
        selected: VersionSelection<'_>,
        queue: Queue,
    ) -> Result<RemovedVersions, IndexError> {
        let (versions, contents) = match selected {
            VersionSelection::Content { version, audited } => {
                self.delete_embeddings_at(&[version.seq]).await?;
                self.redact(version, audited).await?;
                let removed = version.content.map(|content| (content.blob_id, signed(content.size_bytes)));
                (0, vec![removed.unzip()])
            }
            VersionSelection::At(places) => {
                self.delete_embeddings_at(places).await?;
                let query = self.query_with_lists(DELETE_VERSIONS);
                let rows = query.bind(json!(places).to_string()).all().await?;
                (rows.len() as u64, rows)
            }
            // The memories are deleted, and their vectors with them.
            VersionSelection::Of { memories, limit } => {
                let query = self.query_with_lists(DELETE_VERSIONS_OF);
                let rows = query.bind((Ids(Some(memories)), limit)).all().await?;
                (rows.len() as u64, rows)
            }
        };
        let sizes: BTreeMap<_, i64> =
            contents.into_iter().filter_map(|(blob_id, size_bytes)| Some((blob_id?, size_bytes?))).collect();
        let blobs = self.queue_unreferenced(sizes.keys().copied().collect(), queue).await?;
        let bytes = blobs.iter().filter_map(|blob_id| sizes.get(blob_id)).sum();
        self.count([0, 0, signed(versions), bytes]).await?;
        Ok(RemovedVersions { versions, blobs, bytes: unsigned(bytes) })
    }

    async fn delete_embeddings_at(&mut self, places: &[i64]) -> Result<(), IndexError> {
        let query = self.query_with_lists(DELETE_EMBEDDINGS_OF_VERSIONS);
        query.bind(json!(places).to_string()).execute().await?;
        Ok(())
    }

    /// Removes a version's content from its row, and the path of a deleted memory.
    async fn redact(&mut self, version: &Version, audited: &AuditedAction) -> Result<(), IndexError> {
        let query = self.query(REDACT).bind((version.seq, audited.at));
        let query = query.bind(audited.by.actor().map(Actor::kind));
        query.bind(audited.by.actor().map(Actor::id)).execute().await?;
        if version.operation == Operation::Deleted {
            let query = self.query(CLEAR_PATH).bind((version.memory_id, version.seq));
            query.execute().await?;
        }
        Ok(())
    }

    /// Queues the unreferenced blobs among `blobs`, deletes their content in this database, and
    /// returns them. A blob that is already queued is returned too.
    async fn queue_unreferenced(
        &mut self,
        blobs: Vec<VersionId>,
        queue: Queue,
    ) -> Result<Vec<VersionId>, IndexError> {
        if blobs.is_empty() {
            return Ok(blobs);
        }
        let text = queue_unreferenced();
        let values = (Ids(Some(&blobs)), queue.not_before, queue.reason.name(), queue.erasure_id);
        let queued: Vec<VersionId> = self.query_with_lists(&text).bind(values).scalars().await?;
        self.delete_contents(&queued).await?;
        Ok(queued)
    }

    /// Deletes the content of queued blobs that is in this database.
    async fn delete_contents(&mut self, queued: &[VersionId]) -> Result<(), IndexError> {
        if !queued.is_empty() {
            self.query_with_lists(DELETE_CONTENTS).bind(Ids(Some(queued))).execute().await?;
        }
        Ok(())
    }

    /// Deletes memories with their access times, search documents and vectors, and takes the
    /// live ones out of their directories. The caller counts them.
    async fn delete_memories(&mut self, memories: &[MemoryId]) -> Result<RemovedMemories, IndexError> {
        let query = self.query_with_lists(DELETE_MEMORIES);
        let rows: Vec<(String, Option<u64>, bool)> = query.bind(Ids(Some(memories))).all().await?;
        let mut counts = [0; 3];
        let texts = [DELETE_ACCESS_TIMES, DELETE_SEARCH_DOCUMENTS, DELETE_EMBEDDINGS];
        for (count, text) in counts.iter_mut().zip(texts) {
            *count = self.query_with_lists(text).bind(Ids(Some(memories))).execute().await?;
        }
        let [access_times, search_documents, _] = counts;
        let deleted = rows.len() as u64;
        let live = rows.into_iter().filter(|(.., is_live)| *is_live);
        let live = live.map(|(path, bytes, _)| (MemoryPath::from_trusted(path), bytes.unwrap_or_default()));
        let plan = CommitPlan::leaving(&live.collect::<Vec<_>>());
        if !plan.directories.is_empty() {
            self.move_directories(&plan).await?;
        }
        Ok(RemovedMemories {
            memories: deleted,
            access_times,
            search_documents,
            live: [-plan.count_delta, -plan.byte_delta],
        })
    }

    async fn move_directories(&mut self, plan: &CommitPlan) -> Result<(), IndexError> {
        let paths: Value = plan.directories.keys().map(DirPath::as_str).collect();
        let query = self.query_with_lists(DIRECTORIES).bind(paths.to_string());
        let existing: Vec<(String, i64)> = query.all().await?;
        let directories = Directories::of(&plan.directories, &existing.into_iter().collect());
        let moved = directories.moved.iter().map(|(path, delta)| directory_of(path, delta));
        let moved = moved.collect::<Value>().to_string();
        let text = self.tx.choose(MOVE_DIRECTORIES);
        self.query(text).bind(moved).execute().await?;
        let emptied: Value = directories.emptied.iter().map(DirPath::as_str).collect();
        let query = self.query_with_lists(DELETE_DIRECTORIES);
        query.bind(emptied.to_string()).execute().await?;
        Ok(())
    }

    /// Subtracts memories, their bytes, versions and their bytes from the store's
    /// counters, and changes its purge epoch.
    async fn count(&mut self, removed: [i64; 4]) -> Result<(), IndexError> {
        let query = removed.into_iter().fold(self.query(COUNT), Query::bind);
        query.execute().await?;
        Ok(())
    }
}

/// Queues the unreferenced blobs of a list. A blob that is queued already keeps its entry. But an
/// erasure makes any entry its own, and every removal does so with the tombstone of an orphan.
pub(crate) fn queue_unreferenced() -> String {
    format!(
        "INSERT INTO blob_deletion AS d (tenant_id, store_id, blob_id, not_before, attempts, reason, erasure_id) \
         SELECT $1, $2, ids.id, $4, 0, $5, $6 FROM_IDS($3) WHERE {IS_UNREFERENCED} \
         ON CONFLICT (tenant_id, store_id, blob_id) DO UPDATE SET \
             reason = CASE WHEN excluded.erasure_id IS NULL AND d.reason <> 'gone' THEN d.reason ELSE excluded.reason END, \
             not_before = CASE WHEN excluded.erasure_id IS NULL AND d.reason <> 'gone' THEN d.not_before ELSE excluded.not_before END, \
             erasure_id = coalesce(excluded.erasure_id, d.erasure_id) RETURNING blob_id"
    )
}

/// Makes Postgres plan the statements of a removal; see [`PLAN_BY_KEYS`].
pub(crate) async fn begin_removal(tx: &mut Tx) -> Result<(), IndexError> {
    tx.execute_on_postgres(PLAN_BY_KEYS, ()).await?;
    tx.note_removal();
    Ok(())
}

/// Maximum rows of vectors in one transaction: each may have some hundred KiB.
const MAX_EMBEDDINGS: i64 = 200;

/// Deletes at most `limit` rows of a store or of the whole tenant from tables. Nothing is left
/// if there were fewer rows than that.
async fn delete_batch(
    tx: &mut Tx,
    tenant_id: TenantId,
    store_id: Option<StoreId>,
    tables: &[Table],
    limit: i64,
) -> Result<PurgedBatch, IndexError> {
    let (mut by_table, mut left) = (BTreeMap::new(), limit);
    for &(table, key, order) in tables {
        if left <= 0 {
            break;
        }
        let most = if table == "embedding" { left.min(MAX_EMBEDDINGS) } else { left };
        let text = AssertSqlSafe(delete_first(table, key, order, store_id.is_some()));
        let query = tx.query(text).bind((tenant_id, most));
        let query = match store_id {
            Some(store_id) => query.bind(store_id),
            None => query,
        };
        let rows = query.execute().await?;
        if rows > 0 {
            by_table.insert(table, rows);
        }
        left = if signed(rows) == most { 0 } else { left - signed(rows) };
    }
    Ok(PurgedBatch { by_table, is_done: left > 0, ..PurgedBatch::default() })
}

fn delete_first(table: &str, key: &str, order: &str, is_of_store: bool) -> String {
    let of_store = if is_of_store { "AND store_id = $3 " } else { "" };
    format!(
        "DELETE FROM {table} WHERE tenant_id = $1 AND ({key}) IN ( \
         SELECT {key} FROM {table} WHERE tenant_id = $1 {of_store}ORDER BY {order} LIMIT $2 + 0)"
    )
}

#[cfg(test)]
mod tests {
    use super::reads::{DELETE_OF_MEMORIES, DELETE_OF_VERSIONS, DELETE_OLD, SURPLUS};
    use super::redactions::{BLOB_IS_LIVE, version_with};
    use super::retention::{DELETIONS, HISTORIES, PAST, SUPERSEDED_BY};
    use super::stores::{DUE, QUEUE_BLOBS};
    use super::{CLEAR_PATH, DELETE_EMBEDDINGS_OF_VERSIONS, REDACT, STORE_TABLES, delete_first};
    use crate::sqlite::plans::{assert_searches, reads_whole_store, steps_of};

    #[tokio::test]
    async fn removals_find_rows_by_whole_keys_or_read_ranges_in_the_order_of_an_index() {
        let of_memory = "r USING PRIMARY KEY (tenant_id=? AND store_id=? AND memory_id=?)";
        let of_version = "r USING PRIMARY KEY (tenant_id=? AND store_id=? AND memory_id=? AND version_id=?)";
        let deletions = "version_op (tenant_id=? AND store_id=? AND op=? AND seq>?)";
        let by_memory = "version_memory (tenant_id=? AND store_id=? AND memory_id=? AND seq>?)";
        for (statement, search) in [
            (DELETE_OF_MEMORIES, of_memory),
            (DELETE_OF_VERSIONS, of_version),
            (DELETE_OLD, "memory_read_age (tenant_id=? AND last_read_at<?)"),
            (SURPLUS, "memory_read_age (tenant_id=?)"),
            (HISTORIES[1], deletions),
            (DELETIONS[1], deletions),
            (PAST[1], "PRIMARY KEY (tenant_id=? AND store_id=? AND seq>?)"),
            (SUPERSEDED_BY[1], by_memory),
            (&version_with("version_id"), "SEARCH "),
            (BLOB_IS_LIVE, "SEARCH "),
            (REDACT, "SEARCH "),
            (CLEAR_PATH, "SEARCH "),
            (DELETE_EMBEDDINGS_OF_VERSIONS, "SEARCH "),
        ] {
            assert_searches(statement, &[search]).await;
        }
        let steps = steps_of(PAST[1]).await;
        assert_eq!(steps.iter().filter(|step| step.contains(by_memory)).count(), 2, "{steps:#?}");
    }

    #[tokio::test]
    async fn purge_takes_the_first_rows_of_an_index() {
        let mut statements = vec![QUEUE_BLOBS.to_owned()];
        // A store has at most one fork.
        let tables = STORE_TABLES.into_iter().filter(|(table, ..)| *table != "store_fork");
        statements.extend(tables.map(|(table, key, order)| delete_first(table, key, order, true)));
        for statement in statements {
            let steps = steps_of(&statement).await;
            let first_rows = steps.iter().filter(|step| reads_whole_store(step));
            assert_eq!(first_rows.count(), 1, "{steps:#?}");
            let is_sorted = |step: &String| step.contains("TEMP B-TREE FOR ORDER BY");
            assert!(!steps.iter().any(is_sorted), "{steps:#?}");
        }
        let steps = steps_of(DUE).await;
        assert!(steps[0].contains("store_deleted"), "{steps:#?}");
    }
}
