//! Statements that are identical in both databases.
//!
//! Conditions on a shared blob use a range of one value (`BETWEEN $3 AND $3`). With
//! an equality, SQLite replaces the column by the parameter everywhere, and then no
//! longer recognises the condition of the partial index.

pub(crate) mod operator;
pub(crate) mod retention;
pub(crate) mod sessions;

/// Selects the record of a call by its key, if it was made after a time.
pub(crate) const EARLIER_CALL: &str = "SELECT version_seq, object_id, request_sha256 FROM idempotency \
    WHERE tenant_id = $1 AND scope_sha256 = $2 AND created_at > $3";

/// Records a call; replaces an expired record with the same key.
pub(crate) const RECORD_CALL: &str = "INSERT INTO idempotency (tenant_id, scope_sha256, request_sha256, object_id, store_id, version_seq, created_at) \
    VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (tenant_id, scope_sha256) DO UPDATE \
    SET request_sha256 = excluded.request_sha256, object_id = excluded.object_id, store_id = excluded.store_id, \
    version_seq = excluded.version_seq, created_at = excluded.created_at";

/// Selects a version by id. All readers of version rows use this order of columns.
pub(crate) const VERSION: &str = "SELECT seq, version_id, prev_seq, memory_id, op, path, blob_id, size_bytes, sha256, \
    created_at, actor_type, actor_id, redacted_at, redacted_by_type, redacted_by FROM version \
    WHERE tenant_id = $1 AND store_id = $2 AND version_id = $3";

/// Selects a live memory with its content in a blob: its head is the version that
/// introduced the blob, or one that shares it. The memory is a subquery per
/// version, so that no plan starts with all live memories.
pub(crate) const BLOB_IS_LIVE: &str = "SELECT v.memory_id FROM version v \
    WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.version_id = $3 AND v.blob_id = $3 AND v.version_id = ( \
        SELECT CASE WHEN m.deleted_at IS NULL THEN m.version_id END FROM memory m \
        WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = v.memory_id) \
    UNION ALL SELECT v.memory_id FROM version v \
    WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.blob_id BETWEEN $3 AND $3 AND v.blob_id <> v.version_id AND v.version_id = ( \
        SELECT CASE WHEN m.deleted_at IS NULL THEN m.version_id END FROM memory m \
        WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = v.memory_id) \
    LIMIT 1";

/// Whether a version references a blob: the version that introduced it, or one that
/// shares it. A head references a blob only if its version does.
pub(crate) const BLOB_IS_NAMED: &str = "SELECT EXISTS (SELECT 1 FROM version \
        WHERE tenant_id = $1 AND store_id = $2 AND version_id = $3 AND blob_id = $3) \
    OR EXISTS (SELECT 1 FROM version \
        WHERE tenant_id = $1 AND store_id = $2 AND blob_id BETWEEN $3 AND $3 AND blob_id <> version_id)";

/// Removes the content of a version's row, and records the requester.
pub(crate) const REDACT: &str = "UPDATE version SET path = NULL, blob_id = NULL, size_bytes = NULL, sha256 = NULL, \
    redacted_at = $4, redacted_by_type = $5, redacted_by = $6 WHERE tenant_id = $1 AND store_id = $2 AND seq = $3";

/// Removes the path of a memory that a version deleted.
pub(crate) const FORGET_PATH: &str = "UPDATE memory SET path = '', parent = '', name = '' \
    WHERE tenant_id = $1 AND store_id = $2 AND memory_id = $3 AND version_id = $4 AND deleted_at IS NOT NULL";

/// Queues an unreferenced blob.
pub(crate) const QUEUE_REDACTED: &str = "INSERT INTO blob_deletion (tenant_id, store_id, blob_id, not_before, attempts, reason) \
    VALUES ($1, $2, $3, $4, 0, 'redacted') ON CONFLICT (tenant_id, store_id, blob_id) DO NOTHING";

/// Counts a removal of history, and changes the purge epoch so that caches drop the
/// store.
pub(crate) const COUNT_PURGE: &str = "UPDATE store SET purge_epoch = purge_epoch + 1, \
    version_bytes = version_bytes - $3 WHERE tenant_id = $1 AND store_id = $2";

/// Returns a store's place and bytes to its tenant.
pub(crate) const FREE_TENANT: &str = "UPDATE tenant SET store_count = store_count - 1, \
    granted_bytes = granted_bytes - $2 WHERE tenant_id = $1";

/// Marks a store as deleted, which hides it from every reader.
pub(crate) const DELETE_STORE: &str = "UPDATE store SET deleted_at = $3, granted_bytes = 0, \
    purge_epoch = purge_epoch + 1 WHERE tenant_id = $1 AND store_id = $2";

/// Selects deleted stores of every tenant, oldest first.
///
/// A tenant deletion or an erasure counts the rows that it deletes, so it must
/// delete them itself. Stores of a tenant with a deletion or an open erasure are
/// therefore left out.
pub(crate) const DELETED_STORES: &str = "SELECT tenant_id, store_id FROM store s WHERE s.deleted_at IS NOT NULL \
    AND NOT EXISTS (SELECT 1 FROM tenant_deletion d WHERE d.tenant_id = s.tenant_id) \
    AND NOT EXISTS (SELECT 1 FROM erasure e WHERE e.tenant_id = s.tenant_id AND e.ended_at IS NULL) \
    ORDER BY s.deleted_at LIMIT $1";

/// Queues the blobs of the versions that [`PURGE`] deletes next.
pub(crate) const QUEUE_PURGED: &str = "INSERT INTO blob_deletion (tenant_id, store_id, blob_id, not_before, attempts, reason) \
    SELECT DISTINCT $1, $2, v.blob_id, $4, 0, 'store deleted' FROM (SELECT blob_id FROM version \
        WHERE tenant_id = $1 AND store_id = $2 ORDER BY seq LIMIT $3) v \
    WHERE v.blob_id IS NOT NULL ON CONFLICT (tenant_id, store_id, blob_id) DO NOTHING";

/// The bytes introduced by the versions that [`PURGE`] deletes next.
pub(crate) const BYTES_PURGED: &str = "SELECT CAST(coalesce(sum(CASE WHEN v.blob_id = v.version_id THEN v.size_bytes \
    ELSE 0 END), 0) AS BIGINT) FROM (SELECT version_id, blob_id, size_bytes FROM version \
        WHERE tenant_id = $1 AND store_id = $2 ORDER BY seq LIMIT $3) v";

/// Deletes a batch of a deleted store's rows from each of its tables. The versions
/// come first; they are the last references to the blobs.
pub(crate) const PURGE: [&str; 7] = [
    "DELETE FROM version WHERE tenant_id = $1 AND store_id = $2 AND seq IN (SELECT v.seq FROM version v \
        WHERE v.tenant_id = $1 AND v.store_id = $2 ORDER BY v.seq LIMIT $3)",
    "DELETE FROM memory WHERE tenant_id = $1 AND store_id = $2 AND memory_id IN (SELECT m.memory_id FROM memory m \
        WHERE m.tenant_id = $1 AND m.store_id = $2 ORDER BY m.memory_id LIMIT $3)",
    "DELETE FROM memory_access WHERE tenant_id = $1 AND store_id = $2 AND memory_id IN (SELECT a.memory_id \
        FROM memory_access a WHERE a.tenant_id = $1 AND a.store_id = $2 ORDER BY a.memory_id LIMIT $3)",
    "DELETE FROM search_doc WHERE tenant_id = $1 AND store_id = $2 AND memory_id IN (SELECT d.memory_id \
        FROM search_doc d WHERE d.tenant_id = $1 AND d.store_id = $2 ORDER BY d.memory_id LIMIT $3)",
    "DELETE FROM directory WHERE tenant_id = $1 AND store_id = $2 AND path IN (SELECT d.path FROM directory d \
        WHERE d.tenant_id = $1 AND d.store_id = $2 ORDER BY d.path LIMIT $3)",
    "DELETE FROM session_resource WHERE tenant_id = $1 AND (session_id, resource_id) IN ( \
        SELECT r.session_id, r.resource_id FROM session_resource r WHERE r.tenant_id = $1 AND r.store_id = $2 \
        ORDER BY r.session_created_at, r.session_id LIMIT $3)",
    "DELETE FROM session_event WHERE tenant_id = $1 AND store_id = $2 AND (session_id, at, event_id) IN ( \
        SELECT e.session_id, e.at, e.event_id FROM session_event e WHERE e.tenant_id = $1 AND e.store_id = $2 \
        ORDER BY e.path LIMIT $3)",
];

/// Deletes the row of a store without any other rows.
pub(crate) const PURGE_STORE: &str =
    "DELETE FROM store WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NOT NULL";

/// Selects an erasure. All readers of erasure rows use this order of columns.
pub(crate) const ERASURE: &str = "SELECT id, kind, store_id, state, counts, created_at, started_at, ended_at, \
    attempts, error FROM erasure WHERE tenant_id = $1 AND id = $2";

/// Counts the open erasures of a tenant.
pub(crate) const COUNT_OPEN_ERASURES: &str =
    "SELECT count(*) FROM erasure WHERE tenant_id = $1 AND ended_at IS NULL";

/// Inserts an erasure.
pub(crate) const INSERT_ERASURE: &str = "INSERT INTO erasure (tenant_id, id, selector, state, cursor, counts, created_at, kind, store_id) \
    VALUES ($1, $2, $3, 'pending', $4, $5, $6, $7, $8)";

/// The sequence number of a store's last version, and whether the store is deleted.
pub(crate) const STORE_TO_ERASE: &str =
    "SELECT seq, deleted_at IS NOT NULL FROM store WHERE tenant_id = $1 AND store_id = $2";

/// Selects open erasures that no worker holds, oldest first.
pub(crate) const OPEN_ERASURES: &str = "SELECT tenant_id, id FROM erasure WHERE ended_at IS NULL \
    AND (lease_until IS NULL OR lease_until <= $1) ORDER BY created_at LIMIT $2";

/// Updates the cursor of an erasure.
pub(crate) const MOVE_ERASURE: &str = "UPDATE erasure SET state = 'running', started_at = coalesce(started_at, $3), \
    lease_until = $4, selector = CASE WHEN $5 THEN selector END, cursor = $6, counts = $7 \
    WHERE tenant_id = $1 AND id = $2";

/// Updates the counts and the lease of an erasure.
pub(crate) const COUNT_ERASURE: &str =
    "UPDATE erasure SET lease_until = $3, counts = $4 WHERE tenant_id = $1 AND id = $2";

/// Records a failed attempt of an erasure.
pub(crate) const FAIL_ERASURE: &str = "UPDATE erasure SET attempts = attempts + 1, error = $3, lease_until = $4 \
    WHERE tenant_id = $1 AND id = $2 AND ended_at IS NULL";

/// Finishes an erasure.
pub(crate) const END_ERASURE: &str = "UPDATE erasure SET state = 'done', ended_at = $3, counts = $4, selector = NULL, \
    cursor = NULL, lease_until = NULL, error = NULL WHERE tenant_id = $1 AND id = $2";

/// Selects the blobs that an erasure has queued.
pub(crate) const QUEUED_BLOBS: &str = "SELECT store_id, blob_id FROM blob_deletion \
    WHERE erasure_id = $2 AND tenant_id = $1 LIMIT $3";

/// Assigns every queued blob of a store to an erasure; includes orphans and their
/// tombstones only with `$5`.
pub(crate) const CLAIM_BLOBS: &str = "UPDATE blob_deletion SET reason = 'erased', erasure_id = $3, not_before = $4 \
    WHERE tenant_id = $1 AND store_id = $2 AND erasure_id IS NULL AND ($5 OR reason NOT IN ('orphan', 'gone'))";

/// Selects a part of a store's history in order: sequence number, memory, and
/// whether the path was between two paths.
pub(crate) const HISTORY_BELOW: &str = "SELECT v.seq, v.memory_id, coalesce(v.path >= $6 AND v.path < $7, FALSE) \
    FROM (SELECT seq, memory_id, path FROM version \
        WHERE tenant_id = $1 AND store_id = $2 AND seq > $3 AND seq <= $4 ORDER BY seq LIMIT $5) v ORDER BY v.seq";

/// Subtracts memories, live bytes, versions and their bytes from a store's
/// counters, and changes the purge epoch so that caches drop the store.
pub(crate) const COUNT_ERASED: &str = "UPDATE store SET purge_epoch = purge_epoch + 1, memory_count = memory_count - $3, \
    live_bytes = live_bytes - $4, version_count = version_count - $5, version_bytes = version_bytes - $6 \
    WHERE tenant_id = $1 AND store_id = $2";

/// The last one of the next call records of a tenant; no row if there are fewer.
pub(crate) const CALLS_THROUGH: &str = "SELECT scope_sha256 FROM idempotency \
    WHERE tenant_id = $1 AND scope_sha256 > $2 ORDER BY scope_sha256 LIMIT 1 OFFSET $3";

/// Clears the request hash of a call record.
pub(crate) const FORGET_REQUEST: &str =
    "UPDATE idempotency SET request_sha256 = $3 WHERE tenant_id = $1 AND scope_sha256 = $2";
