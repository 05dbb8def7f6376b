//! Commits: a gate query reads all inputs, Rust code decides, and one call writes.
//!
//! A commit takes two calls on the write connection: the gate's SELECT, and all
//! writes at once. Commits that wait for the connection at the same time share a
//! transaction, so that one flush of the disk serves them all.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use keepsake_core::{Actor, DirPath, MemoryId, MemoryPath, StoreId, TenantId, Timestamp};
use serde_json::{Value, json};
use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use uuid::Uuid;

use super::memories::expiry_of;
use super::{SqliteIndex, Writer};
use crate::commit::{Change, Commit, CommitOutcome, CommitPlan, Refusal};
use crate::directories::Directories;
use crate::model::{
    Directory, FoundMemory, Head, Lookup, MemoryListing, MemoryPage, Pin, PinOutcome, Replayed,
};
use crate::numbers::{hex, unsigned};
use crate::{IndexError, MemoryIndex};

/// Maximum number of commits in one transaction, which bounds the wait of each.
const BATCH: usize = 64;

/// The gate's result if the idempotency key was reused with another request.
const OTHER_REQUEST: i64 = -1;

/// Commits that wait for the write connection.
#[derive(Debug, Default)]
pub(super) struct Queue(Mutex<Vec<Waiting>>);

#[derive(Debug)]
struct Waiting {
    tenant_id: TenantId,
    commit: Commit,
    answer: oneshot::Sender<Result<CommitOutcome, IndexError>>,
}

impl Queue {
    fn push(&self, waiting: Waiting) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(waiting);
    }

    fn take(&self) -> Vec<Waiting> {
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let many = queue.len().min(BATCH);
        queue.drain(..many).collect()
    }
}

/// The inputs of the decision, in one query. `$5` holds the changes, `$8` the paths
/// that the commit occupies, `$9` their parents, `$10` the changed directories. In
/// place of the earlier call's version, -1 means that the idempotency key was
/// reused with another request. `CROSS JOIN` makes SQLite keep this order of the
/// tables, with lookups by the commit's keys; the other order would read the whole
/// store.
const GATE: &str = "SELECT s.seq, s.last_version_at, s.memory_count, s.live_bytes, s.granted_bytes, \
    s.archived_at IS NOT NULL, \
    (SELECT coalesce(iif(i.request_sha256 = $11, i.version_seq, NULL), -1) FROM idempotency i \
        WHERE i.tenant_id = $1 AND i.scope_sha256 = $3 AND i.created_at > $4), \
    EXISTS (SELECT 1 FROM json_each($5) c LEFT JOIN memory m \
        ON m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = unhex(c.value ->> 0) \
        WHERE c.value ->> 1 IS NOT NULL \
        AND (m.version_id IS NOT unhex(c.value ->> 1) \
            OR (m.deleted_at IS NOT NULL) <> (c.value ->> 4 = 'created'))), \
    $6 IS NOT NULL AND NOT EXISTS (SELECT 1 FROM directory d \
        WHERE d.tenant_id = $1 AND d.store_id = $2 AND d.path = $6 AND d.files = $7), \
    (SELECT m.path FROM json_each($8) n CROSS JOIN memory m \
        ON m.tenant_id = $1 AND m.store_id = $2 AND m.path = n.value AND m.deleted_at IS NULL LIMIT 1), \
    (SELECT d.path FROM json_each($8) n CROSS JOIN directory d \
        ON d.tenant_id = $1 AND d.store_id = $2 AND d.path = n.value || '/' LIMIT 1), \
    (SELECT m.path FROM json_each($9) n CROSS JOIN memory m \
        ON m.tenant_id = $1 AND m.store_id = $2 AND m.path = n.value AND m.deleted_at IS NULL LIMIT 1), \
    EXISTS (SELECT 1 FROM json_each($5) c CROSS JOIN blob_deletion b \
        ON b.tenant_id = $1 AND b.store_id = $2 AND b.blob_id = unhex(c.value ->> 2)), \
    (SELECT json_group_array(json_array(d.path, d.files)) FROM json_each($10) n CROSS JOIN directory d \
        ON d.tenant_id = $1 AND d.store_id = $2 AND d.path = n.value ->> 0), \
    s.purge_epoch, s.expires_unused_after, s.period_set_at, s.policy \
    FROM store s WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL";

/// All writes of a commit. Heads that are deleted or changed come before new ones,
/// so that a path they leave is free. Where a condition on `memory` depends on the
/// change, SQLite must start from the changes, not from the store.
const WRITE: &str = "SAVEPOINT one_commit; \
    INSERT INTO version (tenant_id, store_id, seq, version_id, memory_id, prev_seq, op, path, blob_id, size_bytes, \
        sha256, created_at, actor_type, actor_id) \
    SELECT $1, $2, $3 + c.key + 1, unhex(c.value ->> 3), unhex(c.value ->> 0), m.head_seq, c.value ->> 4, \
        c.value ->> 5, unhex(c.value ->> 2), c.value ->> 8, unhex(c.value ->> 9), $4, $6, $7 \
    FROM json_each($5) c LEFT JOIN memory m \
        ON m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = unhex(c.value ->> 0); \
    UPDATE memory SET path = c.value ->> 5, parent = c.value ->> 6, name = c.value ->> 7, \
        head_seq = $3 + c.key + 1, version_id = unhex(c.value ->> 3), blob_id = unhex(c.value ->> 2), \
        size_bytes = c.value ->> 8, sha256 = unhex(c.value ->> 9), \
        first_line = CASE WHEN c.value ->> 4 <> 'deleted' THEN coalesce(c.value ->> 10, first_line) END, \
        pinned = coalesce(c.value ->> 11, pinned), \
        updated_at = $4, deleted_at = CASE WHEN c.value ->> 4 = 'deleted' THEN $4 END, \
        claimed_by = nullif(claimed_by, $18) \
    FROM json_each($5) c WHERE (c.value ->> 4 <> 'created' OR c.value ->> 1 IS NOT NULL) \
        AND memory.tenant_id = iif(c.key IS NULL, NULL, $1) AND memory.store_id = $2 \
        AND memory.memory_id = unhex(c.value ->> 0); \
    INSERT INTO memory (tenant_id, store_id, memory_id, path, parent, name, head_seq, version_id, blob_id, \
        size_bytes, sha256, first_line, pinned, created_at, updated_at) \
    SELECT $1, $2, unhex(c.value ->> 0), c.value ->> 5, c.value ->> 6, c.value ->> 7, $3 + c.key + 1, \
        unhex(c.value ->> 3), unhex(c.value ->> 2), c.value ->> 8, unhex(c.value ->> 9), c.value ->> 10, \
        coalesce(c.value ->> 11, 0), $4, $4 \
    FROM json_each($5) c WHERE c.value ->> 4 = 'created' AND c.value ->> 1 IS NULL; \
    INSERT INTO search_doc (tenant_id, store_id, memory_id, blob_id, analyser, length, terms) \
    SELECT $1, $2, unhex(t.value ->> 0), unhex(t.value ->> 1), t.value ->> 2, t.value ->> 3, unhex(t.value ->> 4) \
    FROM json_each($19) t WHERE true \
    ON CONFLICT (tenant_id, store_id, memory_id) DO UPDATE SET blob_id = excluded.blob_id, \
        analyser = excluded.analyser, length = excluded.length, terms = excluded.terms; \
    DELETE FROM search_doc WHERE tenant_id = $1 AND store_id = $2 AND memory_id IN (SELECT unhex(c.value ->> 0) \
        FROM json_each($5) c WHERE c.value ->> 4 = 'deleted'); \
    INSERT INTO directory (tenant_id, store_id, path, parent, name, files, bytes, visible_children) \
    SELECT $1, $2, d.value ->> 0, d.value ->> 1, d.value ->> 2, d.value ->> 3, d.value ->> 4, d.value ->> 5 \
    FROM json_each($8) d WHERE true \
    ON CONFLICT (tenant_id, store_id, path) DO UPDATE SET files = files + excluded.files, \
        bytes = bytes + excluded.bytes, visible_children = visible_children + excluded.visible_children; \
    DELETE FROM directory WHERE tenant_id = $1 AND store_id = $2 AND path IN (SELECT value FROM json_each($9)); \
    UPDATE store SET seq = $10, last_version_at = $4, memory_count = memory_count + $11, \
        live_bytes = live_bytes + $12, version_count = version_count + $13, version_bytes = version_bytes + $14 \
        WHERE tenant_id = $1 AND store_id = $2; \
    INSERT INTO idempotency (tenant_id, scope_sha256, request_sha256, object_id, store_id, version_seq, created_at) \
    SELECT $1, $15, $16, unhex($5 ->> '$[0][0]'), $2, $10, $17 WHERE $15 IS NOT NULL \
    ON CONFLICT (tenant_id, scope_sha256) DO UPDATE SET request_sha256 = excluded.request_sha256, \
        object_id = excluded.object_id, store_id = excluded.store_id, version_seq = excluded.version_seq, \
        created_at = excluded.created_at; \
    RELEASE one_commit";

#[async_trait]
impl MemoryIndex for SqliteIndex {
    async fn head(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        path: Option<&MemoryPath>,
        max_entries: u64,
    ) -> Result<Option<Lookup>, IndexError> {
        self.read_head(tenant_id, store_id, path, max_entries).await
    }

    async fn root(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        max_entries: u64,
    ) -> Result<Option<Directory>, IndexError> {
        self.read_root(tenant_id, store_id, max_entries).await
    }

    async fn heads_below(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        directory: &DirPath,
    ) -> Result<Vec<Head>, IndexError> {
        self.read_heads_below(tenant_id, store_id, directory).await
    }

    async fn commit(&self, tenant_id: TenantId, commit: &Commit) -> Result<CommitOutcome, IndexError> {
        let (answer, mut outcome) = oneshot::channel();
        self.waiting.push(Waiting {
            tenant_id,
            commit: commit.clone(),
            answer,
        });
        let died = || IndexError::OutcomeUnknown(sqlx::Error::WorkerCrashed);
        let mut writer = tokio::select! {
            biased;
            outcome = &mut outcome => return outcome.map_err(|_| died())?,
            writer = self.writer.lock() => writer,
        };
        // A batch takes the oldest commits first, and these may be abandoned. Until
        // this commit has its result, any number of them may be ahead of it in the
        // queue.
        loop {
            match outcome.try_recv() {
                Ok(outcome) => return outcome,
                Err(TryRecvError::Closed) => return Err(died()),
                Err(TryRecvError::Empty) => run_batch(&mut writer, self.waiting.take()).await,
            }
        }
    }

    async fn claim_edit(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        memory_id: MemoryId,
        replica: Uuid,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<bool, IndexError> {
        let mut writer = self.writer.lock().await;
        let connection = writer.begin().await?;
        let claimed = sqlx::query(
            "UPDATE memory SET claimed_by = $4, claimed_until = $6 \
             WHERE tenant_id = $1 AND store_id = $2 AND memory_id = $3 \
             AND (claimed_by IS NULL OR claimed_by = $4 OR claimed_until <= $5)",
        )
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .bind(memory_id.uuid())
        .bind(replica)
        .bind(now.as_micros())
        .bind(until.as_micros())
        .execute(connection)
        .await?;
        writer.commit().await?;
        Ok(claimed.rows_affected() > 0)
    }

    async fn replayed(
        &self,
        tenant_id: TenantId,
        scope_sha256: &[u8; 32],
        since: Timestamp,
    ) -> Result<Option<Replayed>, IndexError> {
        self.read_replayed(tenant_id, scope_sha256, since).await
    }

    async fn memory(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        memory_id: MemoryId,
    ) -> Result<Option<FoundMemory>, IndexError> {
        self.read_memory(tenant_id, store_id, memory_id).await
    }

    async fn list_memories(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        listing: &MemoryListing,
    ) -> Result<Option<MemoryPage>, IndexError> {
        self.read_list(tenant_id, store_id, listing).await
    }

    async fn pin(&self, tenant_id: TenantId, pin: &Pin) -> Result<PinOutcome, IndexError> {
        self.set_pin(tenant_id, pin).await
    }
}

/// Executes commits in one transaction and sends each its result.
async fn run_batch(writer: &mut Writer, batch: Vec<Waiting>) {
    let mut outcomes = Vec::with_capacity(batch.len());
    let done = run_all(writer, &batch, &mut outcomes).await;
    if let Err(error) = &done {
        tracing::error!(error = %error, "index.sqlite.commit failed");
    }
    let mut outcomes = outcomes.into_iter();
    for waiting in batch {
        let outcome = match &done {
            Ok(()) => outcomes.next(),
            Err(error) => Some(Err(failure_of_batch(error))),
        };
        if let Some(outcome) = outcome {
            // The caller may have been cancelled; the commit is valid nevertheless.
            let _ = waiting.answer.send(outcome);
        }
    }
}

/// Executes commits in one transaction; after an error, none of them is known to be
/// committed.
async fn run_all(
    writer: &mut Writer,
    batch: &[Waiting],
    outcomes: &mut Vec<Result<CommitOutcome, IndexError>>,
) -> Result<(), IndexError> {
    let connection = writer.begin().await?;
    for waiting in batch {
        let outcome = run_one(connection, waiting.tenant_id, &waiting.commit).await;
        if let Err(error @ (IndexError::DiskFull(_) | IndexError::DiskFailed(_))) = outcome {
            // SQLite may have rolled back the whole transaction. The next commit would
            // then run in a transaction without the previous commits.
            return Err(error);
        }
        if outcome.is_err() {
            // Fails if the savepoint was not created; then there is nothing to undo.
            let _ = sqlx::query("ROLLBACK TO one_commit; RELEASE one_commit")
                .execute(&mut *connection)
                .await;
        }
        outcomes.push(outcome);
    }
    writer.commit().await
}

/// The error for each commit of a failed transaction.
fn failure_of_batch(error: &IndexError) -> IndexError {
    match error {
        IndexError::DiskFull(text) => IndexError::DiskFull(text.clone()),
        IndexError::DiskFailed(text) => IndexError::DiskFailed(text.clone()),
        IndexError::Unavailable(_)
        | IndexError::OutcomeUnknown(_)
        | IndexError::SchemaTooOld { .. }
        | IndexError::Migration(_)
        | IndexError::BadUrl(_)
        | IndexError::Corrupt { .. }
        | IndexError::Database(_) => IndexError::OutcomeUnknown(sqlx::Error::WorkerCrashed),
    }
}

/// Executes a commit in the open transaction.
pub(super) async fn run_one(
    connection: &mut SqliteConnection,
    tenant_id: TenantId,
    commit: &Commit,
) -> Result<CommitOutcome, IndexError> {
    let plan = CommitPlan::of(&commit.changes);
    let changes = commit
        .changes
        .iter()
        .filter_map(change_row)
        .collect::<Value>()
        .to_string();
    let touched: Value = plan
        .directories
        .keys()
        .map(|directory| json!([directory.as_str()]))
        .collect();
    let idempotency = commit.idempotency.as_ref();
    let row = sqlx::query(GATE)
        .bind(tenant_id.uuid())
        .bind(commit.store_id.uuid())
        .bind(idempotency.map(|call| call.scope_sha256.as_slice()))
        .bind(idempotency.map(|call| call.since.as_micros()))
        .bind(&changes)
        .bind(commit.guard.as_ref().map(|guard| guard.directory.as_str()))
        .bind(
            commit
                .guard
                .as_ref()
                .and_then(|guard| i64::try_from(guard.files).ok()),
        )
        .bind(json!(plan.taken_paths).to_string())
        .bind(json!(plan.ancestor_files).to_string())
        .bind(touched.to_string())
        .bind(idempotency.map(|call| call.request_sha256.as_slice()))
        .fetch_optional(&mut *connection)
        .await?;
    let Some(row) = row else {
        return Ok(CommitOutcome::Refused(Refusal::NoStore));
    };
    match row.try_get::<Option<i64>, _>(6)? {
        Some(OTHER_REQUEST) => return Ok(CommitOutcome::KeyReused),
        Some(seq) => return Ok(CommitOutcome::Replayed { seq }),
        None => {}
    }
    if let Some(refusal) = decide(connection, tenant_id, commit, &plan, &row).await? {
        return Ok(CommitOutcome::Refused(refusal));
    }

    let (seq, last_version_at): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    let existing = existing_directories(&row.try_get::<String, _>(13)?);
    let directories = Directories::of(&plan.directories, &existing);
    let at = commit.now.max(Timestamp::from_micros(last_version_at));
    let new_seq = seq + i64::try_from(commit.changes.len()).unwrap_or(i64::MAX);
    sqlx::query(WRITE)
        .bind(tenant_id.uuid())
        .bind(commit.store_id.uuid())
        .bind(seq)
        .bind(at.as_micros())
        .bind(&changes)
        .bind(commit.actor.as_ref().map(Actor::kind))
        .bind(commit.actor.as_ref().map(Actor::id))
        .bind(moved_rows(&directories))
        .bind(emptied_paths(&directories))
        .bind(new_seq)
        .bind(plan.count_delta)
        .bind(plan.byte_delta)
        .bind(new_seq - seq)
        .bind(new_version_bytes(&commit.changes))
        .bind(idempotency.map(|call| call.scope_sha256.as_slice()))
        .bind(idempotency.map(|call| call.request_sha256.as_slice()))
        .bind(commit.now.as_micros())
        .bind(commit.replica)
        .bind(search_rows(&commit.changes))
        .execute(&mut *connection)
        .await?;
    Ok(CommitOutcome::Committed {
        seq: new_seq,
        purge_epoch: row.try_get(14)?,
        at,
        expiry: expiry_of(&row, 15)?,
    })
}

/// Decides from the gate's result whether a commit is refused.
async fn decide(
    connection: &mut SqliteConnection,
    tenant_id: TenantId,
    commit: &Commit,
    plan: &CommitPlan,
    gate: &SqliteRow,
) -> Result<Option<Refusal>, IndexError> {
    let is_archived: bool = gate.try_get(5)?;
    if is_archived && commit.changes.iter().any(|change| change.after.is_some()) {
        return Ok(Some(Refusal::Archived));
    }
    let (head_moved, directory_moved): (bool, bool) = (gate.try_get(7)?, gate.try_get(8)?);
    let epoch: i64 = gate.try_get(14)?;
    let history_was_removed = commit.purge_epoch.is_some_and(|read| read != epoch);
    let policy: &str = gate.try_get(17)?;
    let policy_was_changed = commit.policy.is_some_and(|judged| judged.name() != policy);
    if history_was_removed || policy_was_changed || head_moved || directory_moved {
        return Ok(Some(Refusal::Stale));
    }
    if let Some(path) = gate.try_get::<Option<String>, _>(9)? {
        let memory_id = memory_at(connection, tenant_id, commit.store_id, &path).await?;
        return Ok(Some(Refusal::PathTaken { path, memory_id }));
    }
    if let Some(path) = gate.try_get::<Option<String>, _>(10)? {
        return Ok(Some(Refusal::PathIsDirectory { path }));
    }
    if let Some(path) = gate.try_get::<Option<String>, _>(11)? {
        let memory_id = memory_at(connection, tenant_id, commit.store_id, &path).await?;
        return Ok(Some(Refusal::ParentIsFile { path, memory_id }));
    }
    let count = unsigned(gate.try_get::<i64, _>(2)? + plan.count_delta);
    if plan.count_delta > 0 && count > commit.memory_limit {
        return Ok(Some(Refusal::TooManyMemories { count }));
    }
    let size_bytes = unsigned(gate.try_get::<i64, _>(3)? + plan.byte_delta);
    if plan.byte_delta > 0 && size_bytes > commit.byte_limit {
        return Ok(Some(Refusal::StoreFull { size_bytes }));
    }
    if plan.byte_delta > 0 && size_bytes > unsigned(gate.try_get(4)?) {
        return Ok(Some(Refusal::NeedsGrant { size_bytes }));
    }
    Ok(gate.try_get::<bool, _>(12)?.then_some(Refusal::BlobCondemned))
}

async fn memory_at(
    connection: &mut SqliteConnection,
    tenant_id: TenantId,
    store_id: StoreId,
    path: &str,
) -> Result<MemoryId, IndexError> {
    let memory_id = sqlx::query_scalar(
        "SELECT memory_id FROM memory WHERE tenant_id = $1 AND store_id = $2 AND path = $3 AND deleted_at IS NULL",
    )
    .bind(tenant_id.uuid())
    .bind(store_id.uuid())
    .bind(path)
    .fetch_one(connection)
    .await?;
    Ok(MemoryId::from_uuid(memory_id))
}

/// A change, in the form that the statements above read.
fn change_row(change: &Change) -> Option<Value> {
    let path = change.path()?;
    let after = change.after.as_ref();
    Some(json!([
        hex(change.memory_id.uuid()),
        change.expected_version().map(|version_id| hex(version_id.uuid())),
        after.map(|after| hex(after.blob_id.uuid())),
        hex(change.version_id.uuid()),
        change.operation().name(),
        path.as_str(),
        path.parent().as_str(),
        path.name(),
        after.map(|after| after.size_bytes),
        after.map(|after| after.sha256.to_string()),
        after.and_then(|after| after.first_line.as_deref()),
        after.and_then(|after| after.is_pinned).map(i64::from),
    ]))
}

/// The search terms of changes, separately: the cost of each column of a change
/// grows with the length of the change.
fn search_rows(changes: &[Change]) -> String {
    let rows = changes.iter().filter_map(|change| {
        let after = change.after.as_ref()?;
        let row = after.search.as_ref()?;
        Some(json!([
            hex(change.memory_id.uuid()),
            hex(after.blob_id.uuid()),
            row.analyser,
            row.length,
            hex_of(&row.terms),
        ]))
    });
    rows.collect::<Value>().to_string()
}

fn hex_of(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

fn new_version_bytes(changes: &[Change]) -> i64 {
    let brought = changes.iter().filter_map(|change| {
        let after = change.after.as_ref()?;
        (after.blob_id == change.version_id).then_some(after.size_bytes)
    });
    i64::try_from(brought.sum::<u64>()).unwrap_or(i64::MAX)
}

/// The existing directory rows in the gate's JSON: `[[path, files]…]`.
fn existing_directories(json: &str) -> BTreeMap<String, i64> {
    let rows: Vec<(String, i64)> = serde_json::from_str(json).unwrap_or_default();
    rows.into_iter().collect()
}

/// Changed directories, in the form that the statements read.
pub(super) fn moved_rows(directories: &Directories) -> String {
    let rows = directories.moved.iter().map(|(directory, delta)| {
        let parent = directory.parent().unwrap_or_else(DirPath::root);
        json!([
            directory.as_str(),
            parent.as_str(),
            directory.name(),
            delta.files,
            delta.size_bytes,
            delta.visible_children,
        ])
    });
    rows.collect::<Value>().to_string()
}

/// The paths of removed directories, as JSON.
pub(super) fn emptied_paths(directories: &Directories) -> String {
    let paths = directories
        .emptied
        .iter()
        .map(|directory| json!(directory.as_str()));
    paths.collect::<Value>().to_string()
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection, Row};

    use super::{GATE, SqliteConnection, WRITE};
    use crate::migrations;

    /// Without statistics, SQLite assumes that a store has few rows, and prefers
    /// reading all of it to starting from the changes.
    #[tokio::test]
    async fn commit_finds_rows_by_their_whole_keys() {
        let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        migrations::sqlite().run(&mut connection).await.unwrap();
        let statements = WRITE
            .split("; ")
            .filter(|statement| !statement.contains("one_commit"));
        let mut searches = 0;
        for statement in statements.chain([GATE]) {
            let plan = sqlx::query(sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}")));
            for step in plan.fetch_all(&mut connection).await.unwrap() {
                let step: String = step.get("detail");
                let is_search = step.starts_with("SEARCH");
                let reads_store = step.ends_with("(tenant_id=? AND store_id=?)");
                let is_of_store = step.starts_with("SEARCH s ") || step.starts_with("SEARCH store ");
                assert!(is_of_store || !reads_store, "{step}\n{statement}");
                let scans_changes = step.contains("VIRTUAL TABLE") || step == "SCAN CONSTANT ROW";
                assert!(scans_changes || !step.starts_with("SCAN"), "{step}\n{statement}");
                searches += u32::from(is_search);
            }
        }
        assert!(searches >= 10, "only {searches} searches were found");
    }
}
