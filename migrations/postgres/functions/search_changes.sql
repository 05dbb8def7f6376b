-- The memories of a store that changed since `p_since`, with their search terms,
-- and the memories `p_unindexed`, which had no terms the last time.
--
-- `p_version` is the id of the version at `p_since`. A restored database has
-- another version there, or none. Then, or if history was removed, `is_whole` of
-- the first row is true, no rows follow, and the caller reads the whole store with
-- another statement. No row: the store does not exist. The first row says how
-- far the changes go; a later commit may be included, and is returned again by the
-- next call. `path` NULL: the memory was deleted. `terms` NULL: it has no terms yet.
--
-- The terms of each memory are looked up by their key. For tables that were empty
-- when the plan was made, a join would compare every memory with all terms.
CREATE FUNCTION search_changes(
    p_tenant uuid, p_store uuid, p_since bigint, p_purge_epoch bigint, p_version uuid,
    p_analyser bigint, p_unindexed uuid[]
)
RETURNS TABLE (
    seq bigint, purge_epoch bigint, version_id uuid, is_whole boolean,
    memory_id uuid, path text, head_id uuid, blob_id uuid, sha256 bytea, updated_at bigint, terms bytea
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
                   m.version_id, m.blob_id, m.sha256, m.updated_at, d.terms
              FROM (SELECT v.memory_id FROM version v
                     WHERE v.tenant_id = p_tenant AND v.store_id = p_store AND v.seq > p_since
                    UNION SELECT unnest(p_unindexed)) c
              LEFT JOIN LATERAL (SELECT m.path, m.version_id, m.blob_id, m.sha256, m.updated_at, m.memory_id,
                                        m.deleted_at
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
