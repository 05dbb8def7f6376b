-- What lists and redaction need, for SQLite; see the Postgres migration of this
-- number.

ALTER TABLE version ADD COLUMN redacted_by_type TEXT;

CREATE INDEX store_created ON store (tenant_id, created_at, store_id);
CREATE INDEX store_deleted ON store (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX directory_children ON directory (tenant_id, store_id, parent, path);
