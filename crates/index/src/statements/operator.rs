//! Statements of the operator's side that both databases understand.

use crate::model::AuditListing;

/// A new tenant, unless its id or its external id is taken.
pub(crate) const INSERT_TENANT: &str = "INSERT INTO tenant (tenant_id, external_id, name, status, limits, store_count, granted_bytes, \
    created_at) VALUES ($1, $2, $3, $4, $5, 0, 0, $6) ON CONFLICT DO NOTHING";

/// A tenant. In this order its row is read everywhere.
pub(crate) const TENANT: &str =
    "SELECT tenant_id, external_id, name, status, limits, created_at FROM tenant WHERE tenant_id = $1";

/// Tenants before one, the newest id first.
pub(crate) const TENANTS: &str = "SELECT tenant_id, external_id, name, status, limits, created_at FROM tenant \
    WHERE tenant_id < $1 ORDER BY tenant_id DESC LIMIT $2";

/// The tenant of an external id, if it is before one.
pub(crate) const TENANTS_CALLED: &str = "SELECT tenant_id, external_id, name, status, limits, created_at FROM tenant \
    WHERE tenant_id < $1 AND external_id = $3 ORDER BY tenant_id DESC LIMIT $2";

/// All of a tenant that may be changed.
pub(crate) const UPDATE_TENANT: &str =
    "UPDATE tenant SET external_id = $2, name = $3, status = $4, limits = $5 WHERE tenant_id = $1";

/// What a tenant holds.
pub(crate) const USAGE: &str = "SELECT t.store_count, t.granted_bytes, CAST(coalesce(sum(s.memory_count), 0) AS bigint), \
    CAST(coalesce(sum(s.live_bytes), 0) AS bigint), CAST(coalesce(sum(s.version_count), 0) AS bigint), \
    CAST(coalesce(sum(s.version_bytes), 0) AS bigint), \
    (SELECT count(*) FROM api_key k WHERE k.tenant_id = $1 AND k.revoked_at IS NULL), \
    coalesce((SELECT c.sessions FROM tenant_counter c WHERE c.tenant_id = $1), 0), \
    coalesce((SELECT c.session_bytes FROM tenant_counter c WHERE c.tenant_id = $1), 0) \
    FROM tenant t LEFT JOIN store s ON s.tenant_id = $1 AND s.deleted_at IS NULL \
    WHERE t.tenant_id = $1 GROUP BY t.tenant_id, t.store_count, t.granted_bytes";

/// A new key.
pub(crate) const INSERT_KEY: &str = "INSERT INTO api_key (tenant_id, api_key_id, name, scopes, store_ids, created_at, expires_at) \
    VALUES ($1, $2, $3, $4, $5, $6, $7)";

/// A key. In this order its row is read everywhere.
pub(crate) const KEY: &str = "SELECT api_key_id, name, scopes, store_ids, created_at, expires_at, last_used_at, revoked_at \
    FROM api_key WHERE tenant_id = $1 AND api_key_id = $2";

/// Keys of a tenant before one, the newest id first.
pub(crate) const KEYS: &str = "SELECT api_key_id, name, scopes, store_ids, created_at, expires_at, last_used_at, revoked_at \
    FROM api_key WHERE tenant_id = $1 AND api_key_id < $2 ORDER BY api_key_id DESC LIMIT $3";

/// Whether a key may make another one: it is good, and its tenant served.
pub(crate) const IS_GOOD_MAKER: &str = "SELECT count(*) > 0 FROM api_key k JOIN tenant t ON t.tenant_id = k.tenant_id \
    WHERE k.tenant_id = $1 AND k.api_key_id = $2 AND k.revoked_at IS NULL \
        AND (k.expires_at IS NULL OR k.expires_at > $3) AND t.status = 'active'";

/// Number of keys that are not revoked, or were revoked after a time.
pub(crate) const COUNT_KEYS: &str = "SELECT count(*) FROM api_key \
    WHERE tenant_id = $1 AND (revoked_at IS NULL OR revoked_at > $2)";

/// Makes a key good for nothing.
pub(crate) const REVOKE_KEY: &str = "UPDATE api_key SET revoked_at = $3 \
    WHERE tenant_id = $1 AND api_key_id = $2";

/// What concerns a tenant.
pub(crate) const INSERT_AUDIT: &str = "INSERT INTO audit (tenant_id, id, at, actor, action, object_id, store_id) VALUES ($1, $2, $3, $4, $5, $6, $7)";

/// What the operator did.
pub(crate) const INSERT_OPERATOR_AUDIT: &str =
    "INSERT INTO operator_audit (id, at, actor, action, object_id) VALUES ($1, $2, $3, $4, $5)";

/// Counts an entry of a tenant's credential; answers how many there are of the
/// day. A day that is over is not counted again by a replica whose clock is slow.
pub(crate) const COUNT_AUDIT: &str = "INSERT INTO tenant_counter AS c (tenant_id, sessions, session_bytes, audit_day, \
        audit_entries) VALUES ($1, 0, 0, $2, 1) \
    ON CONFLICT (tenant_id) DO UPDATE SET \
        audit_entries = CASE WHEN excluded.audit_day > c.audit_day THEN 1 ELSE c.audit_entries + 1 END, \
        audit_day = CASE WHEN excluded.audit_day > c.audit_day THEN excluded.audit_day ELSE c.audit_day END \
    RETURNING audit_entries";

/// A tenant's audit before a place, newest first, by the index of what it is
/// filtered by.
pub(crate) fn list_audit(listing: &AuditListing) -> String {
    let action = if listing.action.is_some() {
        "action = $6"
    } else {
        "$6 IS NULL"
    };
    let actor = if listing.actor_id.is_some() {
        "actor IN ($7, $8)"
    } else {
        "$7 IS NULL AND $8 IS NULL"
    };
    let object = if listing.object_id.is_some() {
        "object_id = $9"
    } else {
        "$9 IS NULL"
    };
    format!(
        "SELECT id, at, actor, action, object_id, store_id FROM audit \
         WHERE tenant_id = $1 AND (at, id) < ($2, $3) AND at >= $4 AND at <= $5 AND {action} AND {actor} AND {object} \
         ORDER BY at DESC, id DESC LIMIT $10"
    )
}

/// The operator's audit before a place, newest first.
pub(crate) const OPERATOR_AUDIT: &str = "SELECT id, at, actor, action, object_id, NULL FROM operator_audit \
    WHERE (at, id) < ($1, $2) ORDER BY at DESC, id DESC LIMIT $3";

/// Moves the time from which the audit is complete.
pub(crate) const MOVE_AUDIT_HORIZON: &str = "INSERT INTO audit_horizon AS h (id, kept_from) VALUES (1, $1) \
    ON CONFLICT (id) DO UPDATE SET kept_from = excluded.kept_from WHERE excluded.kept_from > h.kept_from";

/// Old entries of the tenants' audits.
pub(crate) const COUNT_OLD_AUDIT: &str = "SELECT count(*) FROM audit WHERE at < $1";

/// Removes a batch of them.
pub(crate) const PRUNE_AUDIT: &str = "DELETE FROM audit WHERE (tenant_id, id) IN ( \
    SELECT tenant_id, id FROM audit WHERE at < $1 ORDER BY at LIMIT $2)";

/// A tenant's deletion. In this order its row is read everywhere.
pub(crate) const DELETION: &str = "SELECT tenant_id, state, requested_at, settles_at, ended_at, row_counts, blob_count, \
    blob_bytes, blob_cursor, versions_deleted, versions_not_kept, versions_kept FROM tenant_deletion WHERE tenant_id = $1";

/// Deletions with something to do, the oldest first.
pub(crate) const DUE_DELETIONS: &str = "SELECT tenant_id, state, requested_at, settles_at, ended_at, row_counts, blob_count, \
    blob_bytes, blob_cursor, versions_deleted, versions_not_kept, versions_kept FROM tenant_deletion \
    WHERE ended_at IS NULL AND coalesce(settles_at, 0) <= $1 ORDER BY requested_at LIMIT $2";

/// Begins a deletion.
pub(crate) const INSERT_DELETION: &str = "INSERT INTO tenant_deletion (tenant_id, state, requested_at, row_counts, blob_count, blob_bytes, \
    versions_deleted, versions_not_kept, versions_kept) VALUES ($1, 'removing', $2, '{}', 0, 0, 0, 0, 0)";

/// Keeps a tenant from being served.
pub(crate) const MARK_TENANT: &str = "UPDATE tenant SET status = 'deleting' WHERE tenant_id = $1";

/// Counts what a batch removed.
pub(crate) const COUNT_ROWS: &str = "UPDATE tenant_deletion SET row_counts = $2 WHERE tenant_id = $1";

/// Counts blobs that are about to be removed.
pub(crate) const COUNT_BLOBS: &str = "UPDATE tenant_deletion SET blob_count = blob_count + $3, \
    blob_bytes = blob_bytes + $4, blob_cursor = $2 WHERE tenant_id = $1 AND ended_at IS NULL";

/// Notes what became of older object versions.
pub(crate) const NOTE_VERSIONS: &str = "UPDATE tenant_deletion SET versions_deleted = $2, versions_not_kept = $3, \
    versions_kept = $4 WHERE tenant_id = $1 AND ended_at IS NULL";

/// Waits for what may come late; what comes is counted anew.
pub(crate) const SETTLE: &str = "UPDATE tenant_deletion SET state = 'settling', settles_at = $2, blob_cursor = NULL \
    WHERE tenant_id = $1 AND state = 'removing'";

/// Ends a deletion.
pub(crate) const FINISH: &str = "UPDATE tenant_deletion SET state = 'done', ended_at = $2, row_counts = $3 \
    WHERE tenant_id = $1 AND ended_at IS NULL";

/// Removes the tenant itself.
pub(crate) const DELETE_TENANT: &str = "DELETE FROM tenant WHERE tenant_id = $1";

/// Every table with rows of tenants but `tenant` itself and the report of its
/// deletion, with the rest of its key: the versions first, which name the blobs.
///
/// A test asks the databases for tables that are missing here.
pub(crate) const TENANT_TABLES: [(&str, &str); 17] = [
    ("version", "store_id, seq"),
    ("memory", "store_id, memory_id"),
    ("memory_access", "store_id, memory_id"),
    ("search_doc", "store_id, memory_id"),
    ("directory", "store_id, path"),
    ("blob_deletion", "store_id, blob_id"),
    ("session_event", "session_id, at, event_id"),
    ("session_resource", "session_id, resource_id"),
    ("session", "session_id"),
    ("store", "store_id"),
    ("idempotency", "scope_sha256"),
    ("erasure", "id"),
    ("credential", "api_key_id, secret_sha256"),
    ("api_key", "api_key_id"),
    ("change_feed", "seq"),
    ("audit", "id"),
    ("tenant_counter", "tenant_id"),
];

/// Removes a batch of a tenant's rows from a table.
pub(crate) fn purge_table(table: &str, key: &str) -> String {
    format!(
        "DELETE FROM {table} WHERE tenant_id = $1 AND ({key}) IN ( \
         SELECT {key} FROM {table} WHERE tenant_id = $1 ORDER BY {key} LIMIT $2)"
    )
}

/// Whether a tenant has a row in a table.
pub(crate) fn has_rows(table: &str) -> String {
    format!("SELECT EXISTS (SELECT 1 FROM {table} WHERE tenant_id = $1)")
}
