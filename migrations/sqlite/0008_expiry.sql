-- What expiry needs, for SQLite; see the Postgres migration of this number.

ALTER TABLE store ADD COLUMN idle_since INTEGER NOT NULL DEFAULT 0;
CREATE INDEX store_period ON store (tenant_id, store_id) WHERE expires_unused_after IS NOT NULL;
ALTER TABLE memory_access ADD COLUMN last_read_by_type TEXT;
