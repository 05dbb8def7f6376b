-- Sets the pin of a memory under the store's lock. With `p_pinned` NULL the pin
-- stays, and only the idempotency key is recorded. `pinned` is the pin afterwards.
CREATE FUNCTION set_pin(
    p_tenant uuid, p_store uuid, p_memory uuid, p_expect uuid, p_pinned boolean, p_now bigint,
    p_scope bytea, p_request bytea, p_replay_since bigint
)
RETURNS TABLE (outcome text, seq bigint, pinned boolean)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_store record;
    v_head record;
    v_request bytea;
    v_setting text;
BEGIN
    v_setting := set_config('keepsake.tenant', p_tenant::text, true);
    SELECT s.archived_at INTO v_store FROM store s
     WHERE s.tenant_id = p_tenant AND s.store_id = p_store AND s.deleted_at IS NULL
       FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        outcome := 'no_store';
        RETURN NEXT;
        RETURN;
    END IF;
    IF p_scope IS NOT NULL THEN
        SELECT i.version_seq, i.request_sha256 INTO seq, v_request FROM idempotency i
         WHERE i.tenant_id = p_tenant AND i.scope_sha256 = p_scope AND i.created_at > p_replay_since;
        IF FOUND THEN
            outcome := CASE WHEN v_request = p_request AND seq IS NOT NULL THEN 'replayed' ELSE 'key_reused' END;
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;
    IF v_store.archived_at IS NOT NULL THEN
        outcome := 'archived';
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT m.version_id, m.deleted_at, m.head_seq INTO v_head FROM memory m
     WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = p_memory;
    IF NOT FOUND OR v_head.version_id <> p_expect OR v_head.deleted_at IS NOT NULL THEN
        outcome := 'stale';
        RETURN NEXT;
        RETURN;
    END IF;
    UPDATE memory m SET pinned = coalesce(p_pinned, m.pinned)
     WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = p_memory
 RETURNING m.pinned INTO pinned;
    IF p_scope IS NOT NULL THEN
        INSERT INTO idempotency (tenant_id, scope_sha256, request_sha256, object_id, store_id, version_seq, created_at)
        VALUES (p_tenant, p_scope, p_request, p_memory, p_store, v_head.head_seq, p_now)
        ON CONFLICT (tenant_id, scope_sha256) DO UPDATE
           SET request_sha256 = excluded.request_sha256, object_id = excluded.object_id,
               store_id = excluded.store_id, version_seq = excluded.version_seq, created_at = excluded.created_at;
    END IF;
    outcome := 'done';
    RETURN NEXT;
END
$$;
