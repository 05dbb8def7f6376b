-- What lists and redaction need.

-- The kind of actor that `redacted_by` is the id of.
ALTER TABLE version ADD COLUMN redacted_by_type text COLLATE "C";

-- Stores of a tenant, newest first, and those that wait for their purge.
CREATE INDEX store_created ON store (tenant_id, created_at, store_id);
CREATE INDEX store_deleted ON store (deleted_at) WHERE deleted_at IS NOT NULL;

-- Directories directly in one, in the order of their paths: that of their names
-- is another one, since a path ends in `/` (`/a.b/` comes before `/a/`).
CREATE INDEX directory_children ON directory (tenant_id, store_id, parent, path);

-- The index that a look-up has the whole key of is made last, as in the first
-- migration.
ALTER TABLE store DROP CONSTRAINT store_pkey, ADD CONSTRAINT store_pkey PRIMARY KEY (tenant_id, store_id);
ALTER TABLE directory DROP CONSTRAINT directory_pkey, ADD CONSTRAINT directory_pkey PRIMARY KEY (tenant_id, store_id, path);
ALTER TABLE memory_access DROP CONSTRAINT memory_access_pkey, ADD CONSTRAINT memory_access_pkey PRIMARY KEY (tenant_id, store_id, memory_id);
