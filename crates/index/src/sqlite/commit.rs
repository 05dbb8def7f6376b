//! Commits on SQLite: a gate query reads all inputs, Rust code decides, and one call
//! writes.
//!
//! The writes are the trigger of a temporary view, so one statement makes them all or
//! none; each of several statements would be a message to SQLite's thread. Commits that
//! wait for the connection share a transaction, and so one flush of the disk.

use keepsake_core::{Actor, MemoryId, Quota, Refused, SensitiveDataPolicy, StoreId, TenantId, Timestamp};
use serde_json::{Value, json};
use sqlx::types::Json;
use sqlx::{AssertSqlSafe, Executor, SqliteConnection};

use crate::IndexError;
use crate::commit::{CLOCK_AHEAD_AT_MOST, Commit, CommitOutcome, CommitPlan, directory_of};
use crate::database::{CommitResult, Database, Role, TenantCommit, Tx, from_row};
use crate::directories::Directories;
use crate::model::Expiry;
use crate::numbers::unsigned;

/// The gate's result if the idempotency key was reused with another request.
const OTHER_REQUEST: i64 = -1;

/// The inputs of the decision, in one query. `$3` is the [`Commit::document`], which SQLite
/// parses once, into its binary form. In place of the earlier call's version, -1 means
/// that the idempotency key was reused with another request. `CROSS JOIN` makes SQLite keep
/// this order of the tables, with lookups by the commit's keys; the other order would read
/// the whole store.
const GATE: &str = "WITH doc(json) AS MATERIALIZED (SELECT jsonb($3)) \
    SELECT s.seq, s.last_version_at, s.memory_count, s.live_bytes, s.granted_bytes, \
    s.archived_at IS NOT NULL AS is_archived, \
    (SELECT coalesce(iif(i.request_sha256 = unhex(doc.json ->> 'request'), i.version_seq, NULL), -1) FROM idempotency i \
        WHERE i.tenant_id = $1 AND i.scope_sha256 = unhex(doc.json ->> 'scope') AND i.created_at > doc.json ->> 'since') \
        AS earlier_seq, \
    EXISTS (SELECT 1 FROM jsonb_each(doc.json, '$.changes') c LEFT JOIN memory m \
        ON m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = unhex(c.value ->> 'memory') \
        WHERE c.value ->> 'expect' IS NOT NULL \
        AND (m.version_id IS NOT unhex(c.value ->> 'expect') \
            OR (m.deleted_at IS NOT NULL) <> c.value ->> 'revives')) \
    OR EXISTS (SELECT 1 FROM jsonb_each(doc.json, '$.kept') k LEFT JOIN memory m \
        ON m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = unhex(k.value ->> 'memory') \
        WHERE m.version_id IS NOT unhex(k.value ->> 'expect') OR m.deleted_at IS NOT NULL) AS head_moved, \
    doc.json ->> 'guard_directory' IS NOT NULL AND NOT EXISTS (SELECT 1 FROM directory d \
        WHERE d.tenant_id = $1 AND d.store_id = $2 AND d.path = doc.json ->> 'guard_directory' \
        AND d.files = doc.json ->> 'guard_files') AS directory_moved, \
    doc.json ->> 'guard_path' IS NOT NULL AND (SELECT m.version_id FROM memory m \
        WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.path = doc.json ->> 'guard_path' AND m.deleted_at IS NULL) \
        IS NOT unhex(doc.json ->> 'guard_version') AS guard_moved, \
    (SELECT m.path FROM jsonb_each(doc.json, '$.taken') n CROSS JOIN memory m \
        ON m.tenant_id = $1 AND m.store_id = $2 AND m.path = n.value AND m.deleted_at IS NULL LIMIT 1) AS taken_path, \
    coalesce((SELECT d.path FROM jsonb_each(doc.json, '$.taken') n CROSS JOIN directory d \
        ON d.tenant_id = $1 AND d.store_id = $2 AND d.path = n.value || '/' LIMIT 1), \
    (SELECT d.path FROM jsonb_each(doc.json, '$.replaced') n CROSS JOIN directory d \
        ON d.tenant_id = $1 AND d.store_id = $2 AND d.path = n.value ->> 'path' \
        WHERE d.files <> n.value ->> 'files' LIMIT 1)) AS directory_path, \
    (SELECT m.path FROM jsonb_each(doc.json, '$.ancestors') n CROSS JOIN memory m \
        ON m.tenant_id = $1 AND m.store_id = $2 AND m.path = n.value AND m.deleted_at IS NULL LIMIT 1) AS parent_file, \
    EXISTS (SELECT 1 FROM jsonb_each(doc.json, '$.changes') c CROSS JOIN blob_deletion b \
        ON b.tenant_id = $1 AND b.store_id = $2 AND b.blob_id = unhex(c.value ->> 'blob')) AS is_condemned, \
    (SELECT json_group_array(json_array(d.path, d.files)) FROM jsonb_each(doc.json, '$.directories') n \
        CROSS JOIN directory d ON d.tenant_id = $1 AND d.store_id = $2 AND d.path = n.value ->> 'path') AS directories, \
    s.purge_epoch, s.expires_unused_after, s.period_set_at, s.policy, \
    (SELECT data_version FROM pragma_data_version) AS data_version \
    FROM doc CROSS JOIN store s WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL";

/// Makes a commit: the trigger of the view executes [`WRITES`].
const MAKE: &str = "INSERT INTO one_commit VALUES ($1, $2, jsonb($3), $4, $5, $6, $7, $8, $9, $10, $11, $12)";

/// The number of parameters of [`MAKE`].
const PARAMETERS: usize = 12;

/// All writes of a commit. `$3` is the [`Commit::document`] in SQLite's binary form, which is
/// not parsed again for each statement, and `$4` the [`Commit::contents`]. `$5` and
/// `$6` are the sequence numbers of the last version before and after the commit, `$7` its
/// time, `$8` and `$9` the changed and the emptied directories. `$10` to `$12` are the
/// actor's type and id and the replica. They are also in the document, but SQLite would parse
/// the document for each row to read them there.
///
/// Heads that are deleted or changed come before new ones, so that a path they leave is
/// free. First of all, memories that leave a path which another one takes go out of the index of
/// paths, which holds no two of a path at any time. A memory that stays at its path has its own statement: SQLite writes the entry of
/// an index again if a statement sets one of its columns, even to the same value. SQLite takes empty bytes for NULL. Where a condition on `memory` depends on the
/// change, SQLite must start from the changes, not from the store. Directories with the same counts
/// as before get a time once a minute.
const WRITES: &str = "INSERT INTO version (tenant_id, store_id, seq, version_id, memory_id, prev_seq, op, path, blob_id, size_bytes, \
        sha256, created_at, actor_type, actor_id, undoes) \
    SELECT $1, $2, $5 + c.key + 1, unhex(c.value ->> 'version'), unhex(c.value ->> 'memory'), m.head_seq, \
        c.value ->> 'op', c.value ->> 'path', unhex(c.value ->> 'blob'), c.value ->> 'size', \
        unhex(c.value ->> 'sha256'), $7, $10, $11, unhex(c.value ->> 'undoes') \
    FROM jsonb_each($3, '$.changes') c LEFT JOIN memory m \
        ON m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = unhex(c.value ->> 'memory'); \
    UPDATE memory SET deleted_at = $7 FROM jsonb_each($3, '$.makes_room') c \
        WHERE memory.tenant_id = iif(c.key IS NULL, NULL, $1) AND memory.store_id = $2 \
        AND memory.memory_id = unhex(c.value); \
    UPDATE memory SET path = c.value ->> 'path', parent = c.value ->> 'parent', name = c.value ->> 'name', \
        head_seq = $5 + c.key + 1, version_id = unhex(c.value ->> 'version'), blob_id = unhex(c.value ->> 'blob'), \
        size_bytes = c.value ->> 'size', sha256 = unhex(c.value ->> 'sha256'), \
        first_line = CASE WHEN c.value ->> 'op' <> 'deleted' THEN coalesce(c.value ->> 'first_line', first_line) END, \
        pinned = coalesce(c.value ->> 'pinned', pinned), \
        expires_at = CASE WHEN c.value ->> 'op' <> 'deleted' \
            THEN nullif(coalesce(c.value ->> 'expires', expires_at), 0) END, \
        updated_at = $7, deleted_at = CASE WHEN c.value ->> 'op' = 'deleted' THEN $7 END, \
        claimed_by = nullif(claimed_by, $12) \
    FROM jsonb_each($3, '$.changes') c WHERE c.value ->> 'expect' IS NOT NULL AND NOT c.value ->> 'stays' \
        AND memory.tenant_id = iif(c.key IS NULL, NULL, $1) AND memory.store_id = $2 \
        AND memory.memory_id = unhex(c.value ->> 'memory'); \
    UPDATE memory SET head_seq = $5 + c.key + 1, version_id = unhex(c.value ->> 'version'), \
        blob_id = unhex(c.value ->> 'blob'), size_bytes = c.value ->> 'size', sha256 = unhex(c.value ->> 'sha256'), \
        first_line = coalesce(c.value ->> 'first_line', first_line), pinned = coalesce(c.value ->> 'pinned', pinned), \
        expires_at = nullif(coalesce(c.value ->> 'expires', expires_at), 0), updated_at = $7, \
        claimed_by = nullif(claimed_by, $12) \
    FROM jsonb_each($3, '$.changes') c WHERE c.value ->> 'stays' \
        AND memory.tenant_id = iif(c.key IS NULL, NULL, $1) AND memory.store_id = $2 \
        AND memory.memory_id = unhex(c.value ->> 'memory'); \
    INSERT INTO memory (tenant_id, store_id, memory_id, path, parent, name, head_seq, version_id, blob_id, \
        size_bytes, sha256, first_line, pinned, expires_at, created_at, updated_at) \
    SELECT $1, $2, unhex(c.value ->> 'memory'), c.value ->> 'path', c.value ->> 'parent', c.value ->> 'name', \
        $5 + c.key + 1, unhex(c.value ->> 'version'), unhex(c.value ->> 'blob'), c.value ->> 'size', \
        unhex(c.value ->> 'sha256'), c.value ->> 'first_line', coalesce(c.value ->> 'pinned', 0), \
        nullif(c.value ->> 'expires', 0), $7, $7 \
    FROM jsonb_each($3, '$.changes') c WHERE c.value ->> 'expect' IS NULL; \
    UPDATE memory SET pinned = coalesce(k.value ->> 'pinned', pinned), \
        expires_at = nullif(coalesce(k.value ->> 'expires', expires_at), 0) \
    FROM jsonb_each($3, '$.kept') k WHERE (k.value ->> 'pinned' IS NOT NULL OR k.value ->> 'expires' IS NOT NULL) \
        AND memory.tenant_id = iif(k.key IS NULL, NULL, $1) AND memory.store_id = $2 \
        AND memory.memory_id = unhex(k.value ->> 'memory'); \
    INSERT INTO search_doc (tenant_id, store_id, memory_id, blob_id, analyser, length, terms) \
    SELECT $1, $2, unhex(c.value ->> 'memory'), unhex(c.value ->> 'blob'), c.value ->> 'analyser', \
        c.value ->> 'length', coalesce(substr($4, c.value ->> 'terms_from', c.value ->> 'terms_for'), x'') \
    FROM jsonb_each($3, '$.changes') c WHERE c.value ->> 'terms_from' IS NOT NULL \
    ON CONFLICT (tenant_id, store_id, memory_id) DO UPDATE SET blob_id = excluded.blob_id, \
        analyser = excluded.analyser, length = excluded.length, terms = excluded.terms; \
    DELETE FROM search_doc WHERE tenant_id = $1 AND store_id = $2 AND memory_id IN (SELECT unhex(c.value ->> 'memory') \
        FROM jsonb_each($3, '$.changes') c WHERE c.value ->> 'op' = 'deleted'); \
    DELETE FROM embedding WHERE tenant_id = $1 AND store_id = $2 AND memory_id IN (SELECT unhex(c.value ->> 'memory') \
        FROM jsonb_each($3, '$.changes') c WHERE c.value ->> 'op' = 'deleted'); \
    INSERT INTO directory (tenant_id, store_id, path, parent, name, files, bytes, visible_children, changed_at) \
    SELECT $1, $2, d.value ->> 'path', d.value ->> 'parent', d.value ->> 'name', d.value ->> 'files', \
        d.value ->> 'bytes', d.value ->> 'children', $7 \
    FROM json_each($8) d WHERE true \
    ON CONFLICT (tenant_id, store_id, path) DO UPDATE SET files = files + excluded.files, \
        bytes = bytes + excluded.bytes, visible_children = visible_children + excluded.visible_children, \
        changed_at = excluded.changed_at; \
    UPDATE directory SET changed_at = $7 WHERE tenant_id = $1 AND store_id = $2 \
        AND path IN (SELECT value FROM jsonb_each($3, '$.touched')) AND changed_at NOT BETWEEN $7 - $7 % 60000000 AND $7; \
    DELETE FROM directory WHERE tenant_id = $1 AND store_id = $2 AND path IN (SELECT value FROM json_each($9)); \
    UPDATE store SET seq = $6, embedded_by = '', last_version_at = iif($6 > $5, $7, last_version_at), \
        rising_seq = iif($6 > $5 AND $7 < last_version_at, $5 + 1, rising_seq), \
        memory_count = memory_count + ($3 ->> 'count_delta'), live_bytes = live_bytes + ($3 ->> 'byte_delta'), \
        version_count = version_count + $6 - $5, version_bytes = version_bytes + ($3 ->> 'version_bytes') \
        WHERE tenant_id = $1 AND store_id = $2; \
    INSERT INTO idempotency (tenant_id, scope_sha256, request_sha256, object_id, store_id, version_seq, results, \
        created_at) \
    SELECT $1, unhex($3 ->> 'scope'), unhex($3 ->> 'request'), unhex($3 ->> '$.changes[0].memory'), $2, $6, \
        $3 ->> 'results', $3 ->> 'now' WHERE $3 ->> 'scope' IS NOT NULL \
    ON CONFLICT (tenant_id, scope_sha256) DO UPDATE SET request_sha256 = excluded.request_sha256, \
        object_id = excluded.object_id, store_id = excluded.store_id, version_seq = excluded.version_seq, \
        results = excluded.results, created_at = excluded.created_at; \
    INSERT INTO content (tenant_id, store_id, blob_id, bytes) \
    SELECT $1, $2, unhex(c.value ->> 'blob'), coalesce(substr($4, c.value ->> 'content_from', c.value ->> 'content_for'), x'') \
    FROM jsonb_each($3, '$.changes') c WHERE c.value ->> 'content_from' IS NOT NULL";

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
    guard_moved: bool,
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
        directory_moved, guard_moved, taken_path, directory_path, parent_file, is_condemned, directories, purge_epoch, policy,
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

pub(crate) async fn commit_all(database: &Database, commits: &[TenantCommit]) -> Vec<CommitResult> {
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
async fn run_all(
    mut tx: Tx,
    commits: &[TenantCommit],
    outcomes: &mut Vec<CommitResult>,
) -> Result<(), IndexError> {
    if let Some(writer) = tx.sqlite_writer() {
        writer.changes_only_commits();
    }
    let ends_with_it = commits.len() == 1;
    for (tenant_id, commit) in commits {
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
        outcomes.push(outcome.map(Some));
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
    let plan = CommitPlan::of(commit);
    let json = commit.document(&plan).to_string();
    let query = tx.query(GATE).bind((tenant_id, commit.store_id, json.as_str()));
    let gate: Option<GateRow> = query.optional().await?;
    if let (Some(writer), Some(gate)) = (tx.sqlite_writer(), &gate) {
        writer.saw_data_version(gate.data_version);
    }
    let Some(gate) = gate else {
        return Ok(CommitOutcome::NoStore);
    };
    match gate.earlier_seq {
        Some(OTHER_REQUEST) => return Ok(CommitOutcome::Refused(Refused::KeyReused)),
        Some(seq) => return Ok(CommitOutcome::Replayed { seq }),
        None => {}
    }
    if let Some(outcome) = decide(tx, tenant_id, commit, &plan, &gate).await? {
        return Ok(outcome);
    }

    let existing = gate.directories.0.into_iter().collect();
    let directories = Directories::of(&plan.directories, &existing);
    let at = time_of_version(commit.now, gate.last_version_at);
    if let Some(writer) = tx.sqlite_writer() {
        let changes = writer.changes();
        changes.add(tenant_id, commit, gate.seq, gate.purge_epoch);
    }
    let seq = gate.seq + i64::try_from(commit.changes.len()).unwrap_or(i64::MAX);
    let write = tx
        .query(MAKE)
        .bind((tenant_id, commit.store_id, json, commit.contents()))
        .bind((gate.seq, seq, at))
        .bind((moved_rows(&directories), emptied_paths(&directories)))
        .bind((commit.actor.as_ref().map(Actor::kind), commit.actor.as_ref().map(Actor::id), commit.replica));
    if ends_with_it {
        write.execute_last().await?;
    } else {
        write.execute().await?;
    }
    Ok(CommitOutcome::Committed { seq, purge_epoch: gate.purge_epoch, at, expiry: gate.expiry })
}

/// Decides from the gate's result whether a commit is refused.
async fn decide(
    tx: &mut Tx,
    tenant_id: TenantId,
    commit: &Commit,
    plan: &CommitPlan,
    gate: &GateRow,
) -> Result<Option<CommitOutcome>, IndexError> {
    let refused = |why| Ok(Some(CommitOutcome::Refused(why)));
    if gate.is_archived && commit.adds() {
        return refused(Refused::Archived);
    }
    let history_was_removed = commit.purge_epoch.is_some_and(|read| read != gate.purge_epoch);
    let policy_was_changed = commit.policy.is_some_and(|read| read != gate.policy);
    let is_later = commit.seq.is_some_and(|read| read != gate.seq);
    let is_other = gate.head_moved || gate.directory_moved || gate.guard_moved;
    if history_was_removed || policy_was_changed || is_later || is_other {
        return Ok(Some(CommitOutcome::Stale));
    }
    if let Some(path) = gate.taken_path.clone() {
        let memory_id = Some(memory_at(tx, tenant_id, commit.store_id, &path).await?);
        return refused(Refused::PathTaken { path, memory_id });
    }
    if let Some(path) = gate.directory_path.clone() {
        return refused(Refused::PathIsDirectory { path, memory_id: None });
    }
    if let Some(path) = gate.parent_file.clone() {
        let memory_id = Some(memory_at(tx, tenant_id, commit.store_id, &path).await?);
        return refused(Refused::ParentIsFile { path, memory_id });
    }
    let count = unsigned(gate.memory_count + plan.count_delta);
    if plan.count_delta > 0 && count > commit.memory_limit {
        return refused(Refused::over(Quota::MemoriesPerStore, count, commit.memory_limit));
    }
    let size_bytes = unsigned(gate.live_bytes + plan.byte_delta);
    if plan.byte_delta > 0 && size_bytes > commit.byte_limit {
        return refused(Refused::over(Quota::BytesPerStore, size_bytes, commit.byte_limit));
    }
    if plan.byte_delta > 0 && size_bytes > unsigned(gate.granted_bytes) {
        return Ok(Some(CommitOutcome::NeedsGrant { size_bytes }));
    }
    Ok(gate.is_condemned.then_some(CommitOutcome::BlobCondemned))
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

/// Changed directories, in the form that the statements read.
pub(super) fn moved_rows(directories: &Directories) -> String {
    let rows = directories.moved.iter();
    rows.map(|(directory, delta)| directory_of(directory, delta)).collect::<Value>().to_string()
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
                let scans_changes = step.contains("VIRTUAL TABLE")
                    || ["SCAN CONSTANT ROW", "SCAN doc"].contains(&step.as_str());
                assert!(scans_changes || !step.starts_with("SCAN"), "{step}\n{statement}");
                searches += u32::from(step.starts_with("SEARCH"));
            }
        }
        assert!(searches >= 10, "only {searches} searches were found");
    }
}
