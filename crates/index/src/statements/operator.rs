//! Statements of the operator's side that both databases understand.

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

/// Moves the time from which the audit is complete.
pub(crate) const MOVE_AUDIT_HORIZON: &str = "INSERT INTO audit_horizon AS h (id, kept_from) VALUES (1, $1) \
    ON CONFLICT (id) DO UPDATE SET kept_from = excluded.kept_from WHERE excluded.kept_from > h.kept_from";

/// Old entries of the tenants' audits.
pub(crate) const COUNT_OLD_AUDIT: &str = "SELECT count(*) FROM audit WHERE at < $1";

/// Removes a batch of them.
pub(crate) const PRUNE_AUDIT: &str = "DELETE FROM audit WHERE (tenant_id, id) IN ( \
    SELECT tenant_id, id FROM audit WHERE at < $1 ORDER BY at LIMIT $2)";
