-- What expiry needs.

-- No live memory of the store has had its last sign of life before this; so that
-- a store is looked through only once one of its memories may be past its time.
-- Signs of life only move on, so it stays true whatever the period becomes.
ALTER TABLE store ADD COLUMN idle_since bigint NOT NULL DEFAULT 0;

-- The stores with a period of their own, in the order in which they are looked at.
-- As before, the index that a look-up has the whole key of is made last.
CREATE INDEX store_period ON store (tenant_id, store_id) WHERE expires_unused_after IS NOT NULL;
ALTER TABLE store DROP CONSTRAINT store_pkey, ADD CONSTRAINT store_pkey PRIMARY KEY (tenant_id, store_id);

-- The kind of actor that `last_read_by` is the id of.
ALTER TABLE memory_access ADD COLUMN last_read_by_type text COLLATE "C";
