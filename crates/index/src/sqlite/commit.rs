//! Commits on SQLite: a gate query reads all inputs, Rust code decides, and one call
//! writes.
//!
//! The writes are the trigger of a temporary view, so one statement makes them all or
//! none; each of several statements would be a message to SQLite's thread. Commits that
//! wait for the connection share a transaction, and so one flush of the disk.

use keepsake_core::{Actor, DirPath, MemoryId, SensitiveDataPolicy, StoreId, TenantId, Timestamp};
use serde_json::{Value, json};
use sqlx::types::Json;
use sqlx::{AssertSqlSafe, Executor, SqliteConnection};
use uuid::Uuid;

use crate::IndexError;
use crate::commit::{
    Attempt, CLOCK_AHEAD_AT_MOST, Change, Commit, CommitOutcome, CommitPlan, Kept, Made, Refusal, StoreCommit,
};
use crate::database::{Database, Role, Tx, from_row};
use crate::directories::Directories;
use crate::model::Expiry;
use crate::numbers::{hex, unsigned};

/// The gate's result if the idempotency key was reused with another request.
const OTHER_REQUEST: i64 = -1;

/// The inputs of the decision, in one query. `$5` holds the changes, `$8` the paths
/// that the commit occupies, `$9` their parents, `$10` the changed directories. In
/// place of the earlier call's version, -1 means that the idempotency key was
/// reused with another request. `CROSS JOIN` makes SQLite keep this order of the
/// tables, with lookups by the commit's keys; the other order would read the whole
/// store.
const GATE: &str = "SELECT s.seq, s.last_version_at, s.memory_count, s.live_bytes, s.granted_bytes, \
    s.archived_at IS NOT NULL AS is_archived, \
    (SELECT coalesce(iif(i.request_sha256 = $11, i.version_seq, NULL), -1) FROM idempotency i \
        WHERE i.tenant_id = $1 AND i.scope_sha256 = $3 AND i.created_at > $4) AS earlier_seq, \
    EXISTS (SELECT 1 FROM json_each($5) c LEFT JOIN memory m \
        ON m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = unhex(c.value ->> 0) \
        WHERE c.value ->> 1 IS NOT NULL \
        AND (m.version_id IS NOT unhex(c.value ->> 1) \
            OR (m.deleted_at IS NOT NULL) <> (c.value ->> 4 = 'created'))) \
    OR EXISTS (SELECT 1 FROM json_each($12) k LEFT JOIN memory m \
        ON m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = unhex(k.value ->> 0) \
        WHERE m.version_id IS NOT unhex(k.value ->> 1) OR m.deleted_at IS NOT NULL) AS head_moved, \
    $6 IS NOT NULL AND NOT EXISTS (SELECT 1 FROM directory d \
        WHERE d.tenant_id = $1 AND d.store_id = $2 AND d.path = $6 AND d.files = $7) AS directory_moved, \
    (SELECT m.path FROM json_each($8) n CROSS JOIN memory m \
        ON m.tenant_id = $1 AND m.store_id = $2 AND m.path = n.value AND m.deleted_at IS NULL LIMIT 1) AS taken_path, \
    (SELECT d.path FROM json_each($8) n CROSS JOIN directory d \
        ON d.tenant_id = $1 AND d.store_id = $2 AND d.path = n.value || '/' LIMIT 1) AS directory_path, \
    (SELECT m.path FROM json_each($9) n CROSS JOIN memory m \
        ON m.tenant_id = $1 AND m.store_id = $2 AND m.path = n.value AND m.deleted_at IS NULL LIMIT 1) AS parent_file, \
    EXISTS (SELECT 1 FROM json_each($5) c CROSS JOIN blob_deletion b \
        ON b.tenant_id = $1 AND b.store_id = $2 AND b.blob_id = unhex(c.value ->> 2)) AS is_condemned, \
    (SELECT json_group_array(json_array(d.path, d.files)) FROM json_each($10) n CROSS JOIN directory d \
        ON d.tenant_id = $1 AND d.store_id = $2 AND d.path = n.value ->> 0) AS directories, \
    s.purge_epoch, s.expires_unused_after, s.period_set_at, s.policy, \
    (SELECT data_version FROM pragma_data_version) AS data_version \
    FROM store s WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL";

/// Makes a commit: the trigger of the view executes [`WRITES`].
const MAKE: &str = "INSERT INTO one_commit VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, \
    $16, $17, $18, $19, $20, $21, $22, $23, $24)";

/// The number of parameters of [`MAKE`].
const PARAMETERS: usize = 24;

/// All writes of a commit. Heads that are deleted or changed come before new ones,
/// so that a path they leave is free. Where a condition on `memory` depends on the
/// change, SQLite must start from the changes, not from the store.
const WRITES: &str = "INSERT INTO version (tenant_id, store_id, seq, version_id, memory_id, prev_seq, op, path, blob_id, size_bytes, \
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
        expires_at = CASE WHEN c.value ->> 4 <> 'deleted' THEN nullif(coalesce(c.value ->> 12, expires_at), 0) END, \
        updated_at = $4, deleted_at = CASE WHEN c.value ->> 4 = 'deleted' THEN $4 END, \
        claimed_by = nullif(claimed_by, $18) \
    FROM json_each($5) c WHERE (c.value ->> 4 <> 'created' OR c.value ->> 1 IS NOT NULL) \
        AND memory.tenant_id = iif(c.key IS NULL, NULL, $1) AND memory.store_id = $2 \
        AND memory.memory_id = unhex(c.value ->> 0); \
    INSERT INTO memory (tenant_id, store_id, memory_id, path, parent, name, head_seq, version_id, blob_id, \
        size_bytes, sha256, first_line, pinned, expires_at, created_at, updated_at) \
    SELECT $1, $2, unhex(c.value ->> 0), c.value ->> 5, c.value ->> 6, c.value ->> 7, $3 + c.key + 1, \
        unhex(c.value ->> 3), unhex(c.value ->> 2), c.value ->> 8, unhex(c.value ->> 9), c.value ->> 10, \
        coalesce(c.value ->> 11, 0), nullif(c.value ->> 12, 0), $4, $4 \
    FROM json_each($5) c WHERE c.value ->> 4 = 'created' AND c.value ->> 1 IS NULL; \
    UPDATE memory SET pinned = coalesce(k.value ->> 2, pinned), \
        expires_at = nullif(coalesce(k.value ->> 3, expires_at), 0) \
    FROM json_each($23) k WHERE (k.value ->> 2 IS NOT NULL OR k.value ->> 3 IS NOT NULL) \
        AND memory.tenant_id = iif(k.key IS NULL, NULL, $1) AND memory.store_id = $2 \
        AND memory.memory_id = unhex(k.value ->> 0); \
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
    UPDATE store SET seq = $10, last_version_at = iif($13 > 0, $4, last_version_at), memory_count = memory_count + $11, \
        live_bytes = live_bytes + $12, version_count = version_count + $13, version_bytes = version_bytes + $14 \
        WHERE tenant_id = $1 AND store_id = $2; \
    INSERT INTO idempotency (tenant_id, scope_sha256, request_sha256, object_id, store_id, version_seq, results, \
        created_at) \
    SELECT $1, $15, $16, unhex($5 ->> '$[0][0]'), $2, $10, $24, $17 WHERE $15 IS NOT NULL \
    ON CONFLICT (tenant_id, scope_sha256) DO UPDATE SET request_sha256 = excluded.request_sha256, \
        object_id = excluded.object_id, store_id = excluded.store_id, version_seq = excluded.version_seq, \
        results = excluded.results, created_at = excluded.created_at; \
    INSERT INTO content (tenant_id, store_id, blob_id, bytes) SELECT $1, $2, $20, $21 WHERE $21 IS NOT NULL; \
    INSERT INTO content (tenant_id, store_id, blob_id, bytes) \
    SELECT $1, $2, unhex(c.value ->> 0), unhex(c.value ->> 1) FROM json_each($22) c";

const MEMORY_AT: &str = "SELECT memory_id FROM memory WHERE tenant_id = $1 AND store_id = $2 AND path = $3 AND deleted_at IS NULL";

#[expect(clippy::struct_excessive_bools, reason = "the columns of a row")]
struct GateRow {
    seq: i64,
    last_version_at: Timestamp,
    memory_count: i64,
    live_bytes: i64,
    granted_bytes: i64,
    is_archived: bool,
    /// The version of the earlier call with the same idempotency key.
    earlier_seq: Option<i64>,
    head_moved: bool,
    directory_moved: bool,
    taken_path: Option<String>,
    directory_path: Option<String>,
    parent_file: Option<String>,
    is_condemned: bool,
    /// Existing rows of the changed directories: their paths and numbers of files.
    directories: Json<Vec<(String, i64)>>,
    purge_epoch: i64,
    expiry: Expiry,
    policy: SensitiveDataPolicy,
    /// SQLite's `data_version`, which changes when another connection has written to the
    /// file.
    data_version: i64,
}

from_row! {
    GateRow {
        seq, last_version_at, memory_count, live_bytes, granted_bytes, is_archived, earlier_seq, head_moved,
        directory_moved, taken_path, directory_path, parent_file, is_condemned, directories, purge_epoch, policy,
        data_version;
        expiry
    }
}

/// Creates the view of [`MAKE`] and its trigger on a new write connection.
pub(super) async fn create_view(connection: &mut SqliteConnection) -> Result<(), IndexError> {
    let column = |number| format!("NULL AS p{number}");
    let columns: Vec<_> = (1..=PARAMETERS).map(column).collect();
    let mut writes = WRITES.to_owned();
    // In descending order, because `$1` is also the beginning of `$10`.
    for number in (1..=PARAMETERS).rev() {
        writes = writes.replace(&format!("${number}"), &format!("NEW.p{number}"));
    }
    let create = format!(
        "CREATE TEMP VIEW one_commit AS SELECT {}; \
        CREATE TEMP TRIGGER one_commit_writes INSTEAD OF INSERT ON one_commit BEGIN {writes}; END",
        columns.join(", ")
    );
    connection.execute(AssertSqlSafe(create)).await?;
    Ok(())
}

pub(crate) async fn commit_all(database: &Database, commits: &[StoreCommit]) -> Vec<Made> {
    let mut outcomes = Vec::with_capacity(commits.len());
    let done = match database.write("commit_batch", Role::Shared(None)).await {
        Ok(tx) => run_all(tx, commits, &mut outcomes).await,
        Err(error) => Err(error),
    };
    if let Err(error) = &done {
        tracing::error!(error = %error, "index.sqlite.commit failed");
        return commits.iter().map(|_| Err(failure_of_batch(error))).collect();
    }
    outcomes
}

/// Executes commits in one transaction; after an error, none of them is known to be
/// committed.
async fn run_all(mut tx: Tx, commits: &[StoreCommit], outcomes: &mut Vec<Made>) -> Result<(), IndexError> {
    if let Some(writer) = tx.sqlite_writer() {
        writer.changes_only_commits();
    }
    let ends_with_it = commits.len() == 1;
    for StoreCommit { tenant_id, commit, .. } in commits {
        let outcome = make(&mut tx, *tenant_id, commit, ends_with_it).await;
        if let Err(error) = &outcome
            && (error.is_of_disk() || tx.is_to_begin())
        {
            // SQLite may have rolled back the whole transaction, and the next commit
            // would run without the previous ones. Or the transaction never began, and
            // each further commit would wait for the file as long as this one did.
            return outcome.map(drop);
        }
        if outcome.is_err()
            && let Some(writer) = tx.sqlite_writer()
        {
            // The failed commit may already be among the changes of the transaction.
            writer.changes_anything();
        }
        // A failed statement undoes its own changes, so the transaction goes on.
        outcomes.push(outcome.map(Attempt::Done));
    }
    tx.commit().await
}

/// The error for each commit of a failed transaction. After any error except one of the
/// disk, each of the commits may have been made.
fn failure_of_batch(error: &IndexError) -> IndexError {
    if error.is_of_disk() { error.copy() } else { IndexError::OutcomeUnknown(sqlx::Error::WorkerCrashed) }
}

pub(crate) async fn commit_changes(
    tx: &mut Tx,
    tenant_id: TenantId,
    commit: &Commit,
) -> Result<CommitOutcome, IndexError> {
    make(tx, tenant_id, commit, false).await
}

/// Executes a commit in the open transaction. With `ends_with_it`, also commits the
/// transaction.
async fn make(
    tx: &mut Tx,
    tenant_id: TenantId,
    commit: &Commit,
    ends_with_it: bool,
) -> Result<CommitOutcome, IndexError> {
    let plan = CommitPlan::of(&commit.changes);
    let changes: Value = commit.changes.iter().filter_map(change_row).collect();
    let changes = changes.to_string();
    let kept: Value = commit.kept.iter().map(kept_row).collect();
    let kept = kept.to_string();
    let directories = plan.directories.keys();
    let touched: Value = directories.map(|directory| json!([directory.as_str()])).collect();
    let idempotency = commit.idempotency.as_ref();
    let scope_sha256 = idempotency.map(|call| call.scope_sha256.as_slice());
    let request_sha256 = idempotency.map(|call| call.request_sha256.as_slice());
    let guard = commit.guard.as_ref();
    let gate: Option<GateRow> = tx
        .query(GATE)
        .bind(tenant_id)
        .bind(commit.store_id)
        .bind(scope_sha256)
        .bind(idempotency.map(|call| call.since))
        .bind(changes.as_str())
        .bind(guard.map(|guard| guard.directory.as_str()))
        .bind(guard.map(|guard| guard.files))
        .bind(json!(plan.taken_paths).to_string())
        .bind(json!(plan.ancestor_files).to_string())
        .bind(touched.to_string())
        .bind(request_sha256)
        .bind(kept.as_str())
        .optional()
        .await?;
    if let (Some(writer), Some(gate)) = (tx.sqlite_writer(), &gate) {
        writer.saw_data_version(gate.data_version);
    }
    let Some(gate) = gate else {
        return Ok(CommitOutcome::Refused(Refusal::NoStore));
    };
    match gate.earlier_seq {
        Some(OTHER_REQUEST) => return Ok(CommitOutcome::KeyReused),
        Some(seq) => return Ok(CommitOutcome::Replayed { seq }),
        None => {}
    }
    if let Some(refusal) = decide(tx, tenant_id, commit, &plan, &gate).await? {
        return Ok(CommitOutcome::Refused(refusal));
    }

    let existing = gate.directories.0.into_iter().collect();
    let directories = Directories::of(&plan.directories, &existing);
    let at = time_of_version(commit.now, gate.last_version_at);
    let mut contents = commit.changes.iter().filter_map(|change| {
        let after = change.after.as_ref()?;
        Some((after.blob_id.uuid(), after.content_bytes()?))
    });
    let first = contents.next();
    let others = content_rows(contents);
    if let Some(writer) = tx.sqlite_writer() {
        let changes = writer.changes();
        changes.add(tenant_id, commit, gate.seq, gate.purge_epoch);
    }
    let new_seq = gate.seq + i64::try_from(commit.changes.len()).unwrap_or(i64::MAX);
    let write = tx
        .query(MAKE)
        .bind(tenant_id)
        .bind(commit.store_id)
        .bind(gate.seq)
        .bind(at)
        .bind(changes)
        .bind(commit.actor.as_ref().map(Actor::kind))
        .bind(commit.actor.as_ref().map(Actor::id))
        .bind(moved_rows(&directories))
        .bind(emptied_paths(&directories))
        .bind(new_seq)
        .bind(plan.count_delta)
        .bind(plan.byte_delta)
        .bind(new_seq - gate.seq)
        .bind(new_version_bytes(&commit.changes))
        .bind(scope_sha256)
        .bind(request_sha256)
        .bind(commit.now)
        .bind(commit.replica)
        .bind(search_rows(&commit.changes))
        .bind(first.map(|(blob_id, _)| blob_id))
        .bind(first.map(|(_, bytes)| bytes))
        .bind(others)
        .bind(kept)
        .bind(commit.results.as_deref());
    if ends_with_it {
        write.execute_last().await?;
    } else {
        write.execute().await?;
    }
    Ok(CommitOutcome::Committed { seq: new_seq, purge_epoch: gate.purge_epoch, at, expiry: gate.expiry })
}

/// Decides from the gate's result whether a commit is refused.
async fn decide(
    tx: &mut Tx,
    tenant_id: TenantId,
    commit: &Commit,
    plan: &CommitPlan,
    gate: &GateRow,
) -> Result<Option<Refusal>, IndexError> {
    let adds = !commit.kept.is_empty() || commit.changes.iter().any(|change| change.after.is_some());
    if gate.is_archived && adds {
        return Ok(Some(Refusal::Archived));
    }
    let history_was_removed = commit.purge_epoch.is_some_and(|read| read != gate.purge_epoch);
    let policy_was_changed = commit.policy.is_some_and(|read| read != gate.policy);
    if history_was_removed || policy_was_changed || gate.head_moved || gate.directory_moved {
        return Ok(Some(Refusal::Stale));
    }
    if let Some(path) = gate.taken_path.clone() {
        let memory_id = memory_at(tx, tenant_id, commit.store_id, &path).await?;
        return Ok(Some(Refusal::PathTaken { path, memory_id }));
    }
    if let Some(path) = gate.directory_path.clone() {
        return Ok(Some(Refusal::PathIsDirectory { path }));
    }
    if let Some(path) = gate.parent_file.clone() {
        let memory_id = memory_at(tx, tenant_id, commit.store_id, &path).await?;
        return Ok(Some(Refusal::ParentIsFile { path, memory_id }));
    }
    let count = unsigned(gate.memory_count + plan.count_delta);
    if plan.count_delta > 0 && count > commit.memory_limit {
        return Ok(Some(Refusal::TooManyMemories { count }));
    }
    let size_bytes = unsigned(gate.live_bytes + plan.byte_delta);
    if plan.byte_delta > 0 && size_bytes > commit.byte_limit {
        return Ok(Some(Refusal::StoreFull { size_bytes }));
    }
    if plan.byte_delta > 0 && size_bytes > unsigned(gate.granted_bytes) {
        return Ok(Some(Refusal::NeedsGrant { size_bytes }));
    }
    Ok(gate.is_condemned.then_some(Refusal::BlobCondemned))
}

async fn memory_at(
    tx: &mut Tx,
    tenant_id: TenantId,
    store_id: StoreId,
    path: &str,
) -> Result<MemoryId, IndexError> {
    let query = tx.query(MEMORY_AT).bind((tenant_id, store_id, path));
    Ok(MemoryId::from_uuid(query.scalar().await?))
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
        after.and_then(|after| after.expiry.is_pinned).map(i64::from),
        after.and_then(|after| after.expiry.stored_time()),
    ]))
}

/// A memory without a new version, in the form that the statements read.
fn kept_row(kept: &Kept) -> Value {
    json!([
        hex(kept.memory_id.uuid()),
        hex(kept.expected.uuid()),
        kept.expiry.is_pinned.map(i64::from),
        kept.expiry.stored_time(),
    ])
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

/// Contents, in the form that the statements read; written as text at once, since a
/// batch may have many bytes.
fn content_rows<'a>(contents: impl Iterator<Item = (Uuid, &'a [u8])>) -> String {
    let mut rows = String::from("[");
    for (blob_id, bytes) in contents {
        rows.push_str(if rows.len() > 1 { ",[\"" } else { "[\"" });
        rows.push_str(&hex(blob_id));
        rows.push_str("\",\"");
        push_hex(&mut rows, bytes);
        rows.push_str("\"]");
    }
    rows.push(']');
    rows
}

fn hex_of(bytes: &[u8]) -> String {
    let mut text = String::new();
    push_hex(&mut text, bytes);
    text
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    text.reserve(2 * bytes.len());
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

fn new_version_bytes(changes: &[Change]) -> i64 {
    let brought = changes.iter().filter_map(|change| {
        let after = change.after.as_ref()?;
        (after.blob_id == change.version_id).then_some(after.size_bytes)
    });
    i64::try_from(brought.sum::<u64>()).unwrap_or(i64::MAX)
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

pub(super) fn emptied_paths(directories: &Directories) -> String {
    let paths = directories.emptied.iter().map(|directory| json!(directory.as_str()));
    paths.collect::<Value>().to_string()
}

/// The time of a version that follows one of time `last`: not before `last`, unless
/// `last` came from a clock that was ahead.
fn time_of_version(now: Timestamp, last: Timestamp) -> Timestamp {
    if last <= now.plus(CLOCK_AHEAD_AT_MOST) { now.max(last) } else { now }
}

#[cfg(test)]
mod tests {
    use super::{GATE, WRITES};
    use crate::sqlite::plans::{reads_whole_store, steps_of};

    /// Without statistics, SQLite assumes that a store has few rows, and prefers
    /// reading all of it to starting from the changes.
    #[tokio::test]
    async fn commit_finds_rows_by_their_whole_keys() {
        let mut searches = 0;
        for statement in WRITES.split("; ").chain([GATE]) {
            for step in steps_of(statement).await {
                let is_of_store = step.starts_with("SEARCH s ") || step.starts_with("SEARCH store ");
                assert!(is_of_store || !reads_whole_store(&step), "{step}\n{statement}");
                let scans_changes = step.contains("VIRTUAL TABLE") || step == "SCAN CONSTANT ROW";
                assert!(scans_changes || !step.starts_with("SCAN"), "{step}\n{statement}");
                searches += u32::from(step.starts_with("SEARCH"));
            }
        }
        assert!(searches >= 10, "only {searches} searches were found");
    }
}
