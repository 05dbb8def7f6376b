-- What the operator's API needs.

-- Deletions of tenants, for ever: `operator_audit` and these outlive the tenant.
-- `row_counts` are the rows removed, by table. `blob_cursor` is the key of the
-- last blob that was counted, so that one that outlived a kill is counted once.
-- `versions_…` are blobs by what became of their older object versions.
CREATE TABLE tenant_deletion (
    tenant_id uuid PRIMARY KEY,
    state text COLLATE "C" NOT NULL,
    requested_at bigint NOT NULL,
    settles_at bigint,
    ended_at bigint,
    row_counts jsonb NOT NULL,
    blob_count bigint NOT NULL,
    blob_bytes bigint NOT NULL,
    blob_cursor text COLLATE "C",
    versions_deleted bigint NOT NULL,
    versions_not_kept bigint NOT NULL,
    versions_kept bigint NOT NULL
);
CREATE INDEX tenant_deletion_open ON tenant_deletion (requested_at) WHERE ended_at IS NULL;
GRANT SELECT, INSERT, UPDATE ON tenant_deletion TO keepsake_jobs;

-- The audit, newest first.
CREATE INDEX audit_at ON audit (tenant_id, at, id);
CREATE INDEX operator_audit_at ON operator_audit (at, id);

-- By these a tenant's deletion finds its rows in tables that its id does not lead.
CREATE INDEX credential_tenant ON credential (tenant_id, api_key_id);
CREATE INDEX change_feed_tenant ON change_feed (tenant_id, seq);
