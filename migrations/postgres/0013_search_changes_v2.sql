-- `search_changes_v1`, which can be asked not to tell a whole store: then the
-- first row alone says that it would have been. Many searches come at once upon
-- history that was removed, and one of them is to read the store anew.
--
-- Each memory's terms are looked up by their key: a join of tables that were empty
-- a minute ago would compare every memory with the terms of every other, and an
-- index of live memories alone would be gone through from end to end for each.
CREATE FUNCTION search_changes_v2(
    p_tenant uuid, p_store uuid, p_since bigint, p_purge_epoch bigint, p_analyser bigint, p_unindexed uuid[],
    p_may_be_whole boolean
)
RETURNS TABLE (
    seq bigint, purge_epoch bigint, is_whole boolean,
    memory_id uuid, path text, blob_id uuid, sha256 bytea, updated_at bigint, terms bytea
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_setting text;
BEGIN
    v_setting := set_config('keepsake.tenant', p_tenant::text, true);
    SELECT s.seq, s.purge_epoch, p_since IS NULL OR p_purge_epoch IS DISTINCT FROM s.purge_epoch
      INTO seq, purge_epoch, is_whole
      FROM store s
     WHERE s.tenant_id = p_tenant AND s.store_id = p_store AND s.deleted_at IS NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN NEXT;
    IF is_whole AND NOT p_may_be_whole THEN
        RETURN;
    ELSIF is_whole THEN
        RETURN QUERY
            SELECT NULL::bigint, NULL::bigint, NULL::boolean,
                   m.memory_id, m.path, m.blob_id, m.sha256, m.updated_at, d.terms
              FROM memory m
              LEFT JOIN LATERAL (SELECT d.terms FROM search_doc d
                                  WHERE d.tenant_id = p_tenant AND d.store_id = p_store
                                        AND d.memory_id = m.memory_id AND d.blob_id = m.blob_id
                                        AND d.analyser = p_analyser
                                  LIMIT 1) d ON true
             WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.deleted_at IS NULL;
    ELSIF seq > p_since OR cardinality(p_unindexed) > 0 THEN
        RETURN QUERY
            SELECT NULL::bigint, NULL::bigint, NULL::boolean,
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
