-- What erasures need.
--
-- `kind` says what was asked for when the selector is cleared; `store_id` is the
-- one store asked for, where there is one. Who works on an erasure holds it until
-- `lease_until`. `error` is a word of the code, never a message.
ALTER TABLE erasure
    ADD COLUMN kind text COLLATE "C",
    ADD COLUMN store_id uuid,
    ADD COLUMN started_at bigint,
    ADD COLUMN lease_until bigint,
    ADD COLUMN attempts bigint NOT NULL DEFAULT 0,
    ADD COLUMN error text COLLATE "C";
CREATE INDEX erasure_open ON erasure (created_at) WHERE ended_at IS NULL;
CREATE INDEX erasure_open_of_tenant ON erasure (tenant_id) WHERE ended_at IS NULL;

-- A blob that an erasure removes: it is not the drain's, whatever its time.
ALTER TABLE blob_deletion ADD COLUMN erasure_id uuid;
CREATE INDEX blob_deletion_erasure ON blob_deletion (erasure_id) WHERE erasure_id IS NOT NULL;
