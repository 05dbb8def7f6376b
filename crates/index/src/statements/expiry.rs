//! Statements of expiry that both databases understand.

/// The read times flushed by replicas: those with a heartbeat since `$1`, and of
/// these, those with a heartbeat since `$2`.
pub(crate) const ACCESS_FLUSH: &str = "SELECT min(access_flushed_through), \
    min(CASE WHEN heartbeat_at > $2 THEN access_flushed_through END) FROM replica WHERE heartbeat_at > $1";

/// Selects due stores with their own period, after a given one.
pub(crate) const IDLE_BY_STORE: &str = "SELECT s.tenant_id, s.store_id, s.expires_unused_after, s.period_set_at, \
    t.limits, s.idle_since FROM store s JOIN tenant t ON t.tenant_id = s.tenant_id \
    WHERE s.expires_unused_after IS NOT NULL AND s.deleted_at IS NULL AND t.status <> 'deleting' \
    AND s.idle_since + s.expires_unused_after * 1000000 <= $3 AND (s.tenant_id, s.store_id) > ($1, $2) \
    ORDER BY s.tenant_id, s.store_id LIMIT $4";

/// Selects due stores without a period, of tenants that have one, after a given
/// one.
pub(crate) const IDLE_BY_TENANT: &str = "SELECT s.tenant_id, s.store_id, s.expires_unused_after, s.period_set_at, \
    t.limits, s.idle_since FROM tenant t JOIN store s ON s.tenant_id = t.tenant_id \
    WHERE (t.limits ->> 'expires_unused_after') IS NOT NULL AND t.tenant_id >= $1 AND t.status <> 'deleting' \
    AND s.expires_unused_after IS NULL AND s.deleted_at IS NULL AND s.idle_since <= $3 \
    AND (s.tenant_id, s.store_id) > ($1, $2) ORDER BY s.tenant_id, s.store_id LIMIT $4";

/// Selects live memories of a store, after a given one. The access time is a
/// subquery per memory, so that no plan starts with all access times.
pub(crate) const LIVES: &str = "SELECT m.memory_id, m.pinned, m.updated_at, \
    (SELECT a.active_at FROM memory_access a WHERE a.tenant_id = $1 AND a.store_id = $2 \
        AND a.memory_id = m.memory_id) \
    FROM memory m WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id > $3 AND m.deleted_at IS NULL \
    ORDER BY m.memory_id LIMIT $4";

/// The period of an existing store, and its tenant's limits.
pub(crate) const PERIOD: &str = "SELECT s.expires_unused_after, s.period_set_at, t.limits \
    FROM store s JOIN tenant t ON t.tenant_id = s.tenant_id \
    WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL";

/// The last use of a session that has a store attached and is not archived.
pub(crate) const LAST_SESSION_USE: &str = "SELECT max(CASE WHEN s.last_used_at > s.created_at THEN s.last_used_at \
        ELSE s.created_at END) \
    FROM session_resource r CROSS JOIN session s WHERE r.tenant_id = $1 AND r.store_id = $2 \
    AND s.tenant_id = $1 AND s.session_id = r.session_id AND s.archived_at IS NULL AND s.deleted_at IS NULL";

/// Updates the lower bound of the last sign of life of a store's live memories.
pub(crate) const SET_IDLE_SINCE: &str =
    "UPDATE store SET idle_since = $3 WHERE tenant_id = $1 AND store_id = $2 AND idle_since < $3";

/// Subtracts versions and their bytes from a store's counters, and records up to
/// where deletions are processed. If a version was removed, changes the purge epoch
/// so that caches drop the store.
pub(crate) const COUNT_OUTDATED: &str = "UPDATE store SET version_count = version_count - $3, \
    version_bytes = version_bytes - $4, purge_epoch = purge_epoch + CASE WHEN $3 > 0 THEN 1 ELSE 0 END, \
    retention_seq = coalesce($5, retention_seq) WHERE tenant_id = $1 AND store_id = $2";
