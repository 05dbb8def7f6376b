//! Statements of upkeep that both databases share.

/// Selects rows that reference blobs after a key: rows that introduced a blob, by
/// the index of version ids, and rows that share one, by the index of shared blobs.
pub(crate) const NAMED_BLOBS: &str = "SELECT v.tenant_id, v.store_id, v.blob_id, v.size_bytes, v.sha256, s.store_id IS NOT NULL \
    FROM (SELECT * FROM (SELECT tenant_id, store_id, version_id AS blob_id, size_bytes, sha256 FROM version \
            WHERE (tenant_id, store_id, version_id) > ($1, $2, $3) AND blob_id = version_id \
            ORDER BY tenant_id, store_id, version_id LIMIT $4) own \
        UNION SELECT * FROM (SELECT tenant_id, store_id, blob_id, size_bytes, sha256 FROM version \
            WHERE (tenant_id, store_id, blob_id) > ($1, $2, $3) AND blob_id <> version_id \
            ORDER BY tenant_id, store_id, blob_id LIMIT $4) shared) v \
    LEFT JOIN store s ON s.tenant_id = v.tenant_id AND s.store_id = v.store_id AND s.deleted_at IS NULL \
    ORDER BY v.tenant_id, v.store_id, v.blob_id LIMIT $4";

/// Whether a version of a store that is not deleted references a blob.
pub(crate) const BLOB_IS_NAMED_LIVE: &str = "SELECT EXISTS (SELECT 1 FROM store \
        WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL) \
    AND (EXISTS (SELECT 1 FROM version WHERE tenant_id = $1 AND store_id = $2 AND version_id = $3 AND blob_id = $3) \
        OR EXISTS (SELECT 1 FROM version \
            WHERE tenant_id = $1 AND store_id = $2 AND blob_id BETWEEN $3 AND $3 AND blob_id <> version_id))";

/// Selects stores after a given one.
pub(crate) const STORES_AFTER: &str = "SELECT tenant_id, store_id FROM store \
    WHERE (tenant_id, store_id) > ($1, $2) AND deleted_at IS NULL ORDER BY tenant_id, store_id LIMIT $3";

/// Selects tenants after a given one.
pub(crate) const TENANTS_AFTER: &str =
    "SELECT tenant_id FROM tenant WHERE tenant_id > $1 AND status <> 'deleting' ORDER BY tenant_id LIMIT $2";

/// The counters in a store's row.
pub(crate) const RECORDED: &str = "SELECT memory_count, live_bytes, version_count, version_bytes, granted_bytes \
    FROM store WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL";

/// Selects live memories of a store after a path.
pub(crate) const LIVE_MEMORIES: &str = "SELECT path, size_bytes FROM memory \
    WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL AND path > $3 ORDER BY path LIMIT $4";

/// The number of versions of a store, and the bytes of their blobs: blobs
/// introduced by the versions, and blobs whose own version is deleted or redacted
/// while others share them.
pub(crate) const VERSIONS_HELD: &str = "SELECT count(*), \
    CAST(coalesce(sum(CASE WHEN blob_id = version_id THEN size_bytes ELSE 0 END), 0) AS bigint) \
    + CAST((SELECT coalesce(sum(o.size_bytes), 0) FROM (SELECT max(h.size_bytes) AS size_bytes FROM version h \
        WHERE h.tenant_id = $1 AND h.store_id = $2 AND h.blob_id <> h.version_id AND NOT EXISTS ( \
            SELECT 1 FROM version b WHERE b.tenant_id = $1 AND b.store_id = $2 AND b.version_id = h.blob_id \
                AND b.blob_id = h.blob_id) \
        GROUP BY h.blob_id) o) AS bigint) \
    FROM version WHERE tenant_id = $1 AND store_id = $2";

/// Counts live memories whose head is not a version.
pub(crate) const LOST_HEADS: &str = "SELECT count(*) FROM memory m \
    WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.deleted_at IS NULL AND NOT EXISTS ( \
        SELECT 1 FROM version v WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.seq = m.head_seq \
            AND v.version_id = m.version_id AND v.blob_id = m.blob_id)";

/// Selects the directories of a store.
pub(crate) const DIRECTORIES: &str = "SELECT path, files, bytes, visible_children FROM directory \
    WHERE tenant_id = $1 AND store_id = $2";

/// Sets a store's counters; the grant is at least the bytes held.
pub(crate) const MEND_STORE: &str = "UPDATE store SET memory_count = $3, live_bytes = $4, version_count = $5, \
    version_bytes = $6, granted_bytes = CASE WHEN granted_bytes < $4 THEN $4 ELSE granted_bytes END \
    WHERE tenant_id = $1 AND store_id = $2";

/// Adds the bytes that a store held beyond its grant to the tenant's grants.
pub(crate) const GRANT_TENANT: &str =
    "UPDATE tenant SET granted_bytes = granted_bytes + $2 WHERE tenant_id = $1";

/// Inserts or updates a directory's row.
pub(crate) const MEND_DIRECTORY: &str = "INSERT INTO directory (tenant_id, store_id, path, parent, name, files, bytes, visible_children) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (tenant_id, store_id, path) DO UPDATE \
    SET files = excluded.files, bytes = excluded.bytes, visible_children = excluded.visible_children";

/// Deletes a directory's row.
pub(crate) const DROP_DIRECTORY: &str =
    "DELETE FROM directory WHERE tenant_id = $1 AND store_id = $2 AND path = $3";

/// A tenant's counters, and the totals of its stores.
pub(crate) const TENANT_COUNT: &str = "SELECT t.store_count, t.granted_bytes, \
    (SELECT count(*) FROM store s WHERE s.tenant_id = $1 AND s.deleted_at IS NULL), \
    CAST((SELECT coalesce(sum(s.granted_bytes), 0) FROM store s WHERE s.tenant_id = $1 AND s.deleted_at IS NULL) AS bigint) \
    FROM tenant t WHERE t.tenant_id = $1 AND t.status <> 'deleting'";

/// Sets a tenant's counters.
pub(crate) const MEND_TENANT: &str =
    "UPDATE tenant SET store_count = $2, granted_bytes = $3 WHERE tenant_id = $1";

/// The last one of the next call records; no row if there are fewer.
pub(crate) const CALLS_UP_TO: &str = "SELECT tenant_id, scope_sha256 FROM idempotency \
    WHERE (tenant_id, scope_sha256) > ($1, $2) ORDER BY tenant_id, scope_sha256 LIMIT 1 OFFSET $3";

/// Counts old call records in a range of keys.
pub(crate) const COUNT_CALLS: &str = "SELECT count(*) FROM idempotency \
    WHERE (tenant_id, scope_sha256) > ($1, $2) AND (tenant_id, scope_sha256) <= ($3, $4) AND created_at < $5";

/// Deletes the records that [`COUNT_CALLS`] counts.
pub(crate) const PRUNE_CALLS: &str = "DELETE FROM idempotency \
    WHERE (tenant_id, scope_sha256) > ($1, $2) AND (tenant_id, scope_sha256) <= ($3, $4) AND created_at < $5";

/// Counts old job runs.
pub(crate) const COUNT_RUNS: &str = "SELECT count(*) FROM job_run WHERE started_at < $1";

/// Deletes a batch of these runs.
pub(crate) const PRUNE_RUNS: &str = "DELETE FROM job_run WHERE (name, slot) IN ( \
    SELECT name, slot FROM job_run WHERE started_at < $1 LIMIT $2)";

/// Counts old entries of the change feed.
pub(crate) const COUNT_CHANGES: &str = "SELECT count(*) FROM change_feed WHERE at < $1";

/// Deletes a batch of these entries.
pub(crate) const PRUNE_CHANGES: &str = "DELETE FROM change_feed WHERE seq IN ( \
    SELECT seq FROM change_feed WHERE at < $1 ORDER BY seq LIMIT $2)";

/// Counts replicas without a recent heartbeat.
pub(crate) const COUNT_REPLICAS: &str = "SELECT count(*) FROM replica WHERE heartbeat_at < $1";

/// Deletes a batch of these replicas.
pub(crate) const PRUNE_REPLICAS: &str =
    "DELETE FROM replica WHERE id IN (SELECT id FROM replica WHERE heartbeat_at < $1 LIMIT $2)";
