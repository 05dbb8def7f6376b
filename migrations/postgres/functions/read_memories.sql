-- Memories by their ids, also of several tenants.
--
-- One row for each element, none if its store does not exist. `memory_id` NULL: the
-- memory does not exist. `deleted_at` is set for a deleted memory.
CREATE FUNCTION read_memories(p_tenant uuid[], p_store uuid[], p_memory uuid[])
RETURNS TABLE (
    element bigint, archived_at bigint, purge_epoch bigint, expires_unused_after bigint, period_set_at bigint,
    path text, size_bytes bigint, memory_id uuid, version_id uuid, head_seq bigint, blob_id uuid, sha256 bytea,
    claimed_by uuid, claimed_until bigint, pinned boolean, expires_at bigint, created_at bigint, updated_at bigint,
    last_read_at bigint, active_at bigint, deleted_at bigint
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_setting text;
    v_tenant uuid;
    v_store uuid;
    v_memory uuid;
BEGIN
    FOR i IN 1 .. cardinality(p_store) LOOP
        v_tenant := p_tenant[i];
        v_store := p_store[i];
        v_memory := p_memory[i];
        v_setting := set_config('keepsake.tenant', v_tenant::text, true);
        RETURN QUERY
            SELECT (i - 1)::bigint, s.archived_at, s.purge_epoch, s.expires_unused_after, s.period_set_at,
                   m.path, m.size_bytes, m.memory_id, m.version_id, m.head_seq, m.blob_id, m.sha256,
                   m.claimed_by, m.claimed_until, m.pinned, m.expires_at, m.created_at, m.updated_at,
                   a.last_read_at, a.active_at, m.deleted_at
              FROM store s
              LEFT JOIN memory m ON m.tenant_id = v_tenant AND m.store_id = v_store AND m.memory_id = v_memory
              LEFT JOIN memory_access a
                     ON a.tenant_id = v_tenant AND a.store_id = v_store AND a.memory_id = v_memory
             WHERE s.tenant_id = v_tenant AND s.store_id = v_store AND s.deleted_at IS NULL;
    END LOOP;
END
$$;
