-- The content of a blob. `bytes` is NULL for a content of more than p_max_bytes.
-- No row: this database has no such content.
CREATE FUNCTION read_content(p_tenant uuid, p_store uuid, p_blob uuid, p_max_bytes bigint)
RETURNS TABLE (size_bytes bigint, bytes bytea)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_setting text;
BEGIN
    v_setting := set_config('keepsake.tenant', p_tenant::text, true);
    RETURN QUERY
        SELECT length(c.bytes)::bigint, CASE WHEN length(c.bytes) <= p_max_bytes THEN c.bytes END
          FROM content c
         WHERE c.tenant_id = p_tenant AND c.store_id = p_store AND c.blob_id = p_blob;
END
$$;
