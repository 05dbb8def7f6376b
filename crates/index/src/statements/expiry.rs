//! Statements of expiry that both databases understand.

/// How far replicas have written their reads: those heard of since `$1`, and
/// of them those heard of since `$2`.
pub(crate) const ACCESS_FLUSH: &str = "SELECT min(access_flushed_through), \
    min(CASE WHEN heartbeat_at > $2 THEN access_flushed_through END) FROM replica WHERE heartbeat_at > $1";

/// Stores with a period of their own that are due, after one.
pub(crate) const IDLE_BY_STORE: &str = "SELECT s.tenant_id, s.store_id, s.expires_unused_after, s.period_set_at, \
    t.limits, s.idle_since FROM store s JOIN tenant t ON t.tenant_id = s.tenant_id \
    WHERE s.expires_unused_after IS NOT NULL AND s.deleted_at IS NULL AND t.status <> 'deleting' \
    AND s.idle_since + s.expires_unused_after * 1000000 <= $3 AND (s.tenant_id, s.store_id) > ($1, $2) \
    ORDER BY s.tenant_id, s.store_id LIMIT $4";

/// Stores without one, of tenants that have a period, after one.
pub(crate) const IDLE_BY_TENANT: &str = "SELECT s.tenant_id, s.store_id, s.expires_unused_after, s.period_set_at, \
    t.limits, s.idle_since FROM tenant t JOIN store s ON s.tenant_id = t.tenant_id \
    WHERE (t.limits ->> 'expires_unused_after') IS NOT NULL AND t.tenant_id >= $1 AND t.status <> 'deleting' \
    AND s.expires_unused_after IS NULL AND s.deleted_at IS NULL AND s.idle_since <= $3 \
    AND (s.tenant_id, s.store_id) > ($1, $2) ORDER BY s.tenant_id, s.store_id LIMIT $4";

/// Live memories of a store after one. The access is asked for one by one, so
/// that no plan begins with all that were ever read.
pub(crate) const LIVES: &str = "SELECT m.memory_id, m.pinned, m.updated_at, \
    (SELECT a.active_at FROM memory_access a WHERE a.tenant_id = $1 AND a.store_id = $2 \
        AND a.memory_id = m.memory_id) \
    FROM memory m WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id > $3 AND m.deleted_at IS NULL \
    ORDER BY m.memory_id LIMIT $4";

/// The period of a store that is there, and what its tenant may hold.
pub(crate) const PERIOD: &str = "SELECT s.expires_unused_after, s.period_set_at, t.limits \
    FROM store s JOIN tenant t ON t.tenant_id = s.tenant_id \
    WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL";

/// The last use of a session that is not archived and that has a store.
pub(crate) const LAST_SESSION_USE: &str = "SELECT max(CASE WHEN s.last_used_at > s.created_at THEN s.last_used_at \
        ELSE s.created_at END) \
    FROM session_resource r CROSS JOIN session s WHERE r.tenant_id = $1 AND r.store_id = $2 \
    AND s.tenant_id = $1 AND s.session_id = r.session_id AND s.archived_at IS NULL AND s.deleted_at IS NULL";

/// Moves the time before which no live memory had its last sign of life.
pub(crate) const SET_IDLE_SINCE: &str =
    "UPDATE store SET idle_since = $3 WHERE tenant_id = $1 AND store_id = $2 AND idle_since < $3";

/// Takes versions and their bytes off a store's counters, and notes up to where
/// deletions were seen to; caches drop what they hold where a version went.
pub(crate) const COUNT_OUTDATED: &str = "UPDATE store SET version_count = version_count - $3, \
    version_bytes = version_bytes - $4, purge_epoch = purge_epoch + CASE WHEN $3 > 0 THEN 1 ELSE 0 END, \
    retention_seq = coalesce($5, retention_seq) WHERE tenant_id = $1 AND store_id = $2";
