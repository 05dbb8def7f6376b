-- Keeps `sessions` and `session_bytes` of `tenant_counter`: the sessions that are
-- not deleted, and the bytes of their descriptions.
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
CREATE TRIGGER session_inserted AFTER INSERT ON session
    FOR EACH ROW EXECUTE FUNCTION count_session();
CREATE TRIGGER session_updated AFTER UPDATE OF deleted_at, description_bytes ON session
    FOR EACH ROW WHEN (OLD.deleted_at IS NULL
        AND (NEW.deleted_at IS NOT NULL OR NEW.description_bytes <> OLD.description_bytes))
    EXECUTE FUNCTION count_session();
CREATE TRIGGER session_removed AFTER DELETE ON session
    FOR EACH ROW WHEN (OLD.deleted_at IS NULL) EXECUTE FUNCTION count_session();
