//! Statements of the audit log that both databases share.

/// Inserts an entry into the audit log of tenants.
pub(crate) const INSERT_AUDIT: &str = "INSERT INTO audit (tenant_id, id, at, actor, action, object_id, store_id) VALUES ($1, $2, $3, $4, $5, $6, $7)";

/// Inserts an entry into the operator's audit log.
pub(crate) const INSERT_OPERATOR_AUDIT: &str =
    "INSERT INTO operator_audit (id, at, actor, action, object_id) VALUES ($1, $2, $3, $4, $5)";

/// Counts an entry of a tenant's credential; returns the day's number of entries.
/// An entry with an earlier day, from a replica with a slow clock, counts towards
/// the latest day.
pub(crate) const COUNT_AUDIT: &str = "INSERT INTO tenant_counter AS c (tenant_id, sessions, session_bytes, audit_day, \
        audit_entries) VALUES ($1, 0, 0, $2, 1) \
    ON CONFLICT (tenant_id) DO UPDATE SET \
        audit_entries = CASE WHEN excluded.audit_day > c.audit_day THEN 1 ELSE c.audit_entries + 1 END, \
        audit_day = CASE WHEN excluded.audit_day > c.audit_day THEN excluded.audit_day ELSE c.audit_day END \
    RETURNING audit_entries";
