-- Functions that replace earlier versions of themselves.

-- Sets a memory's pin under the store's lock, or, where `p_pinned` is NULL, keeps
-- it and only records the call. `pinned` is what the memory has afterwards.
CREATE FUNCTION pin_v2(
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

-- What changed in a store since a place. The place names the version that was
-- there: a database that was restored has another one at that place, or does not
-- reach it, and then the store is to be read whole. The first row says how far the
-- changes go, and whether that is so; the whole store is read by a plain statement.
--
-- Each memory's terms are looked up by their key: a join of tables that were empty
-- a minute ago would compare every memory with the terms of every other.
CREATE FUNCTION search_changes_v3(
    p_tenant uuid, p_store uuid, p_since bigint, p_purge_epoch bigint, p_version uuid,
    p_analyser bigint, p_unindexed uuid[]
)
RETURNS TABLE (
    seq bigint, purge_epoch bigint, version_id uuid, is_whole boolean,
    memory_id uuid, path text, blob_id uuid, sha256 bytea, updated_at bigint, terms bytea
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_setting text;
BEGIN
    v_setting := set_config('keepsake.tenant', p_tenant::text, true);
    SELECT s.seq, s.purge_epoch,
           (SELECT v.version_id FROM version v
             WHERE v.tenant_id = p_tenant AND v.store_id = p_store AND v.seq = s.seq),
           p_since IS NULL OR p_purge_epoch IS DISTINCT FROM s.purge_epoch OR p_since > s.seq
               OR p_version IS DISTINCT FROM (
                   SELECT v.version_id FROM version v
                    WHERE v.tenant_id = p_tenant AND v.store_id = p_store AND v.seq = p_since)
      INTO seq, purge_epoch, version_id, is_whole
      FROM store s
     WHERE s.tenant_id = p_tenant AND s.store_id = p_store AND s.deleted_at IS NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN NEXT;
    IF is_whole THEN
        RETURN;
    ELSIF seq > p_since OR cardinality(p_unindexed) > 0 THEN
        RETURN QUERY
            SELECT NULL::bigint, NULL::bigint, NULL::uuid, NULL::boolean,
                   c.memory_id, CASE WHEN m.deleted_at IS NULL THEN m.path END,
                   m.blob_id, m.sha256, m.updated_at, d.terms
              FROM (SELECT v.memory_id FROM version v
                     WHERE v.tenant_id = p_tenant AND v.store_id = p_store AND v.seq > p_since
                    UNION SELECT unnest(p_unindexed)) c
              LEFT JOIN LATERAL (SELECT m.path, m.blob_id, m.sha256, m.updated_at, m.memory_id, m.deleted_at
                                   FROM memory m
                                  WHERE m.tenant_id = p_tenant AND m.store_id = p_store
                                        AND m.memory_id = c.memory_id
                                  LIMIT 1) m ON true
              LEFT JOIN LATERAL (SELECT d.terms FROM search_doc d
                                  WHERE d.tenant_id = p_tenant AND d.store_id = p_store
                                        AND d.memory_id = m.memory_id AND d.blob_id = m.blob_id
                                        AND d.analyser = p_analyser
                                  LIMIT 1) d ON true;
    END IF;
END
$$;
