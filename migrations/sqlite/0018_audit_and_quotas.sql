-- The audit of what tenants do, and counters of what they may hold many of, for
-- SQLite; see the Postgres migration of this number.

ALTER TABLE audit ADD COLUMN store_id BLOB;
CREATE INDEX audit_action ON audit (tenant_id, action, at, id);
CREATE INDEX audit_actor ON audit (tenant_id, actor, at, id);
CREATE INDEX audit_object ON audit (tenant_id, object_id, at, id);
CREATE INDEX audit_age ON audit (at);

CREATE TABLE audit_horizon (
    id INTEGER NOT NULL PRIMARY KEY,
    kept_from INTEGER NOT NULL
) STRICT;

-- Only a tenant's deletion and the prune remove entries.
DROP TRIGGER audit_goes_with_its_tenant;
CREATE TRIGGER audit_goes_with_its_tenant_or_by_age BEFORE DELETE ON audit
WHEN NOT EXISTS (SELECT 1 FROM tenant_deletion d WHERE d.tenant_id = OLD.tenant_id AND d.ended_at IS NULL)
    AND NOT EXISTS (SELECT 1 FROM audit_horizon h WHERE OLD.at < h.kept_from)
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only');
END;

CREATE TABLE tenant_counter (
    tenant_id BLOB NOT NULL PRIMARY KEY,
    sessions INTEGER NOT NULL,
    session_bytes INTEGER NOT NULL,
    audit_day INTEGER NOT NULL,
    audit_entries INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

ALTER TABLE session ADD COLUMN description_bytes INTEGER NOT NULL DEFAULT 0;
UPDATE session SET description_bytes = length(CAST(agent AS BLOB));
INSERT INTO tenant_counter (tenant_id, sessions, session_bytes, audit_day, audit_entries)
    SELECT tenant_id, count(*), sum(description_bytes), 0, 0 FROM session
     WHERE deleted_at IS NULL GROUP BY tenant_id;

CREATE TRIGGER session_is_made AFTER INSERT ON session
BEGIN
    INSERT INTO tenant_counter (tenant_id, sessions, session_bytes, audit_day, audit_entries)
        VALUES (NEW.tenant_id, 1, NEW.description_bytes, 0, 0)
        ON CONFLICT (tenant_id) DO UPDATE SET sessions = tenant_counter.sessions + 1,
            session_bytes = tenant_counter.session_bytes + excluded.session_bytes;
END;
CREATE TRIGGER session_is_changed AFTER UPDATE OF deleted_at, description_bytes ON session
WHEN OLD.deleted_at IS NULL AND NEW.deleted_at IS NULL AND NEW.description_bytes <> OLD.description_bytes
BEGIN
    UPDATE tenant_counter SET session_bytes = session_bytes - OLD.description_bytes + NEW.description_bytes
     WHERE tenant_id = NEW.tenant_id;
END;
CREATE TRIGGER session_is_deleted AFTER UPDATE OF deleted_at ON session
WHEN OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL
BEGIN
    UPDATE tenant_counter SET sessions = sessions - 1, session_bytes = session_bytes - OLD.description_bytes
     WHERE tenant_id = OLD.tenant_id;
END;
CREATE TRIGGER session_is_removed AFTER DELETE ON session
WHEN OLD.deleted_at IS NULL
BEGIN
    UPDATE tenant_counter SET sessions = sessions - 1, session_bytes = session_bytes - OLD.description_bytes
     WHERE tenant_id = OLD.tenant_id;
END;
