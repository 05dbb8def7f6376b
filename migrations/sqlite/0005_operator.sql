-- What the operator's API needs, for SQLite; see the Postgres migration of this
-- number.

CREATE TABLE tenant_deletion (
    tenant_id BLOB NOT NULL PRIMARY KEY,
    state TEXT NOT NULL,
    requested_at INTEGER NOT NULL,
    settles_at INTEGER,
    ended_at INTEGER,
    row_counts TEXT NOT NULL,
    blob_count INTEGER NOT NULL,
    blob_bytes INTEGER NOT NULL,
    blob_cursor TEXT,
    versions_deleted INTEGER NOT NULL,
    versions_not_kept INTEGER NOT NULL,
    versions_kept INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX tenant_deletion_open ON tenant_deletion (requested_at) WHERE ended_at IS NULL;

CREATE INDEX audit_at ON audit (tenant_id, at, id);
CREATE INDEX operator_audit_at ON operator_audit (at, id);
CREATE INDEX credential_tenant ON credential (tenant_id, api_key_id);
CREATE INDEX change_feed_tenant ON change_feed (tenant_id, seq);

-- The audit is append-only but for a tenant's deletion: Postgres says so with
-- its grants.
CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only');
END;
CREATE TRIGGER audit_goes_with_its_tenant BEFORE DELETE ON audit
WHEN NOT EXISTS (SELECT 1 FROM tenant_deletion d WHERE d.tenant_id = OLD.tenant_id AND d.ended_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only');
END;
CREATE TRIGGER operator_audit_is_never_changed BEFORE UPDATE ON operator_audit
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only');
END;
CREATE TRIGGER operator_audit_is_never_removed BEFORE DELETE ON operator_audit
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only');
END;
