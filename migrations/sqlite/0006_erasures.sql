-- What erasures need, for SQLite; see the Postgres migration of this number.

ALTER TABLE erasure ADD COLUMN kind TEXT;
ALTER TABLE erasure ADD COLUMN store_id BLOB;
ALTER TABLE erasure ADD COLUMN started_at INTEGER;
ALTER TABLE erasure ADD COLUMN lease_until INTEGER;
ALTER TABLE erasure ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE erasure ADD COLUMN error TEXT;
CREATE INDEX erasure_open ON erasure (created_at) WHERE ended_at IS NULL;
CREATE INDEX erasure_open_of_tenant ON erasure (tenant_id) WHERE ended_at IS NULL;

ALTER TABLE blob_deletion ADD COLUMN erasure_id BLOB;
CREATE INDEX blob_deletion_erasure ON blob_deletion (erasure_id) WHERE erasure_id IS NOT NULL;
