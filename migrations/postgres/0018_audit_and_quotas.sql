-- The audit of what tenants do, and counters of what they may hold many of.

-- `store_id` is the store that an action concerns where its object is another
-- one: the store of a redacted version, or of an attachment.
ALTER TABLE audit ADD COLUMN store_id uuid;
-- One index for each filter of the listing, and one for the prune.
CREATE INDEX audit_action ON audit (tenant_id, action, at, id);
CREATE INDEX audit_actor ON audit (tenant_id, actor, at, id);
CREATE INDEX audit_object ON audit (tenant_id, object_id, at, id);
CREATE INDEX audit_age ON audit (at);

-- Since when the audit is complete: the prune moves it, in the transaction that
-- removes older entries. On SQLite a trigger refuses to remove newer ones.
CREATE TABLE audit_horizon (
    id bigint PRIMARY KEY,
    kept_from bigint NOT NULL
);
GRANT SELECT, INSERT, UPDATE ON audit_horizon TO keepsake_jobs;

-- Counters that quotas are checked against. A transaction locks this row after
-- every other row, so that two of them never wait for each other.
-- `sessions` and `session_bytes` count sessions that are not deleted; triggers
-- keep them. `audit_entries` counts what the tenant's credentials wrote to the
-- audit on `audit_day`, in days since 1970.
CREATE TABLE tenant_counter (
    tenant_id uuid PRIMARY KEY,
    sessions bigint NOT NULL,
    session_bytes bigint NOT NULL,
    audit_day bigint NOT NULL,
    audit_entries bigint NOT NULL
) WITH (fillfactor = 50);
ALTER TABLE tenant_counter ENABLE ROW LEVEL SECURITY;
ALTER TABLE tenant_counter FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_only ON tenant_counter TO keepsake_app
    USING (tenant_id = nullif(current_setting('keepsake.tenant', true), '')::uuid);
CREATE POLICY every_tenant ON tenant_counter TO keepsake_jobs USING (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON tenant_counter TO keepsake_app, keepsake_jobs;

-- Bytes of what clients describe a session with: agent, title, metadata, vault
-- ids and the instructions of its attachments.
ALTER TABLE session ADD COLUMN description_bytes bigint NOT NULL DEFAULT 0;

-- The owner of the tables is bound by row-level security too, unless it is a
-- superuser.
ALTER TABLE session NO FORCE ROW LEVEL SECURITY;
ALTER TABLE tenant_counter NO FORCE ROW LEVEL SECURITY;
UPDATE session SET description_bytes = octet_length(agent);
INSERT INTO tenant_counter (tenant_id, sessions, session_bytes, audit_day, audit_entries)
    SELECT tenant_id, count(*), sum(description_bytes), 0, 0 FROM session
     WHERE deleted_at IS NULL GROUP BY tenant_id;
ALTER TABLE session FORCE ROW LEVEL SECURITY;
ALTER TABLE tenant_counter FORCE ROW LEVEL SECURITY;

CREATE FUNCTION count_session() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO tenant_counter (tenant_id, sessions, session_bytes, audit_day, audit_entries)
            VALUES (NEW.tenant_id, 1, NEW.description_bytes, 0, 0)
            ON CONFLICT (tenant_id) DO UPDATE SET sessions = tenant_counter.sessions + 1,
                session_bytes = tenant_counter.session_bytes + excluded.session_bytes;
    ELSIF TG_OP = 'DELETE' OR NEW.deleted_at IS NOT NULL THEN
        UPDATE tenant_counter SET sessions = sessions - 1, session_bytes = session_bytes - OLD.description_bytes
         WHERE tenant_id = OLD.tenant_id;
    ELSE
        UPDATE tenant_counter SET session_bytes = session_bytes - OLD.description_bytes + NEW.description_bytes
         WHERE tenant_id = NEW.tenant_id;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER session_is_made AFTER INSERT ON session
    FOR EACH ROW EXECUTE FUNCTION count_session();
CREATE TRIGGER session_is_changed AFTER UPDATE OF deleted_at, description_bytes ON session
    FOR EACH ROW WHEN (OLD.deleted_at IS NULL
        AND (NEW.deleted_at IS NOT NULL OR NEW.description_bytes <> OLD.description_bytes))
    EXECUTE FUNCTION count_session();
CREATE TRIGGER session_is_removed AFTER DELETE ON session
    FOR EACH ROW WHEN (OLD.deleted_at IS NULL) EXECUTE FUNCTION count_session();
