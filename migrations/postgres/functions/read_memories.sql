-- Memories by their ids, also of several tenants.
--
-- One row for each element, none if its store does not exist. `memory_id` NULL: the
-- memory does not exist. `deleted_at` is set for a deleted memory.
CREATE FUNCTION read_memories(p_tenant uuid[], p_store uuid[], p_memory uuid[])
RETURNS TABLE (
    element bigint, archived_at bigint, purge_epoch bigint, expires_unused_after bigint, period_set_at bigint,
    path text, size_bytes bigint, memory_id uuid, version_id uuid, head_seq bigint, blob_id uuid, sha256 bytea,
    claimed_by uuid, claimed_until bigint, pinned boolean, expires_at bigint, created_at bigint, updated_at bigint,
    deleted_at bigint, first_line text, last_read_at bigint, active_at bigint
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
                   m.deleted_at, m.first_line, a.last_read_at, a.active_at
              FROM store s
              LEFT JOIN memory m ON m.tenant_id = v_tenant AND m.store_id = v_store AND m.memory_id = v_memory
              LEFT JOIN memory_access a
                     ON a.tenant_id = v_tenant AND a.store_id = v_store AND a.memory_id = v_memory
             WHERE s.tenant_id = v_tenant AND s.store_id = v_store AND s.deleted_at IS NULL;
    END LOOP;
END
$$;

-- One page of the memories of a store, in byte order of their paths.
--
-- No row: the store does not exist. The first row has only the state of the store.
-- Each other row is a memory or, without a `memory_id`, a directory.
--
-- With `p_after_name` NULL: all memories of p_directory between p_from, exclusive,
-- and p_end. Otherwise: the direct children of p_directory, memories with a name
-- after p_after_name and directories with a path after p_from. Each query is one
-- range of an index that stops at the limit. The condition on directories compares
-- rows, `(parent, path)`, so that only the index with this order fits.
CREATE FUNCTION list_memories(
    p_tenant uuid, p_store uuid, p_directory text, p_from text, p_end text, p_after_name text, p_limit bigint
)
RETURNS TABLE (
    archived_at bigint, purge_epoch bigint, expires_unused_after bigint, period_set_at bigint,
    path text, size_bytes bigint, memory_id uuid, version_id uuid, head_seq bigint, blob_id uuid, sha256 bytea,
    claimed_by uuid, claimed_until bigint, pinned boolean, expires_at bigint, created_at bigint, updated_at bigint,
    deleted_at bigint, first_line text, last_read_at bigint, active_at bigint
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_setting text;
BEGIN
    v_setting := set_config('keepsake.tenant', p_tenant::text, true);
    SELECT s.archived_at, s.purge_epoch, s.expires_unused_after, s.period_set_at
      INTO archived_at, purge_epoch, expires_unused_after, period_set_at
      FROM store s
     WHERE s.tenant_id = p_tenant AND s.store_id = p_store AND s.deleted_at IS NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN NEXT;
    IF p_after_name IS NULL THEN
        RETURN QUERY
            SELECT NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
                   m.path, m.size_bytes, m.memory_id, m.version_id, m.head_seq, m.blob_id, m.sha256,
                   m.claimed_by, m.claimed_until, m.pinned, m.expires_at, m.created_at, m.updated_at,
                   m.deleted_at, m.first_line, a.last_read_at, a.active_at
              FROM (SELECT * FROM memory m
                     WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.path > p_from AND m.path < p_end
                           AND m.deleted_at IS NULL
                     ORDER BY m.path LIMIT p_limit) m
              LEFT JOIN LATERAL (SELECT a.last_read_at, a.active_at FROM memory_access a
                                  WHERE a.tenant_id = p_tenant AND a.store_id = p_store AND a.memory_id = m.memory_id
                                  LIMIT 1) a ON true
             ORDER BY m.path;
        RETURN;
    END IF;
    RETURN QUERY
        SELECT NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
               item.path, item.size_bytes, item.memory_id, item.version_id, item.head_seq, item.blob_id, item.sha256,
               item.claimed_by, item.claimed_until, item.pinned, item.expires_at, item.created_at, item.updated_at,
               NULL::bigint, item.first_line, a.last_read_at, a.active_at
          FROM (SELECT * FROM (
                    (SELECT m.path, m.size_bytes, m.memory_id, m.version_id, m.head_seq, m.blob_id, m.sha256,
                            m.claimed_by, m.claimed_until, m.pinned, m.expires_at, m.created_at, m.updated_at, m.first_line
                       FROM memory m
                      WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.parent = p_directory
                            AND m.name > p_after_name AND m.deleted_at IS NULL
                      ORDER BY m.name LIMIT p_limit)
                    UNION ALL
                    (SELECT d.path, d.bytes, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                            NULL
                       FROM directory d
                      WHERE d.tenant_id = p_tenant AND d.store_id = p_store
                            AND (d.parent, d.path) > (p_directory, p_from) AND d.parent <= p_directory
                            AND d.path <> '/'
                      ORDER BY d.parent, d.path LIMIT p_limit)
                ) merged ORDER BY merged.path LIMIT p_limit) item
          LEFT JOIN LATERAL (SELECT a.last_read_at, a.active_at FROM memory_access a
                              WHERE a.tenant_id = p_tenant AND a.store_id = p_store AND a.memory_id = item.memory_id
                              LIMIT 1) a ON true
         ORDER BY item.path;
END
$$;
