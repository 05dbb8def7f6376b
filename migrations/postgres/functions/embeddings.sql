-- Whether a store is searched by meaning, the last edit of its vectors by a model, and
-- the vectors that were written since `p_since`. The first row has only the former. No
-- row: the store does not exist.
--
-- An edit that the store has not reached belongs to a database that was restored since, or
-- to vectors that were removed: all vectors follow. Their order makes the planner take the
-- index of edits, also for a table that was empty when the plan was made.
CREATE FUNCTION embedding_changes(p_tenant uuid, p_store uuid, p_model text, p_since bigint)
RETURNS TABLE (
    is_hybrid boolean, edit bigint, memory_id uuid, version_id uuid, chunks bigint, vectors bytea
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_setting text;
    v_since bigint := p_since;
BEGIN
    v_setting := set_config('keepsake.tenant', p_tenant::text, true);
    SELECT coalesce(s.search_mode, t.search_mode, 'hybrid') = 'hybrid', coalesce(e.edit, 0)
      INTO is_hybrid, edit
      FROM store s
      JOIN tenant t ON t.tenant_id = s.tenant_id
      LEFT JOIN embedded_store e ON e.tenant_id = p_tenant AND e.store_id = p_store AND e.model = p_model
     WHERE s.tenant_id = p_tenant AND s.store_id = p_store AND s.deleted_at IS NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN NEXT;
    IF edit < p_since THEN
        v_since := 0;
    END IF;
    IF is_hybrid AND edit <> v_since THEN
        RETURN QUERY
            SELECT NULL::boolean, NULL::bigint, m.memory_id, m.version_id, m.chunks, m.vectors
              FROM embedding m
             WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.model = p_model AND m.edit > v_since
             ORDER BY m.edit;
    END IF;
END
$$;

-- Of each store that exists, whether it is searched by meaning, the last edit of its vectors
-- by a model, whether they are replacing those of another one, and its size. The stores are
-- looked up one by one, whatever statistics say.
CREATE FUNCTION embedding_states(p_tenant uuid, p_stores uuid[], p_model text)
RETURNS TABLE (
    store_id uuid, is_hybrid boolean, edit bigint, is_replacing boolean, memory_count bigint, live_bytes bigint
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_setting text;
BEGIN
    v_setting := set_config('keepsake.tenant', p_tenant::text, true);
    RETURN QUERY
        SELECT s.store_id, coalesce(s.search_mode, t.search_mode, 'hybrid') = 'hybrid', coalesce(e.edit, 0),
               NOT coalesce(e.is_complete, false) AND EXISTS (SELECT 1 FROM embedded_store o
                    WHERE o.tenant_id = p_tenant AND o.store_id = ids.id AND o.model <> p_model AND o.is_complete
                    OFFSET 0),
               s.memory_count, s.live_bytes
          FROM tenant t
         CROSS JOIN unnest(p_stores) ids(id)
         CROSS JOIN LATERAL (SELECT s.store_id, s.search_mode, s.memory_count, s.live_bytes FROM store s
                              WHERE s.tenant_id = p_tenant AND s.store_id = ids.id AND s.deleted_at IS NULL
                              OFFSET 0) s
          LEFT JOIN LATERAL (SELECT e.edit, e.is_complete FROM embedded_store e
                              WHERE e.tenant_id = p_tenant AND e.store_id = ids.id AND e.model = p_model
                              OFFSET 0) e ON true
         WHERE t.tenant_id = p_tenant;
END
$$;
