-- What is at paths of stores, also of several tenants: `path` and `directory` of
-- each element are the same path, as that of a file and as that of a directory.
--
-- One row for each element, none if its store does not exist. A row has the state
-- of the store, and either a memory (`memory_id`) or a directory (`files`), or
-- neither when nothing is at the path.
CREATE FUNCTION read_heads(p_tenant uuid[], p_store uuid[], p_path text[], p_directory text[])
RETURNS TABLE (
    element bigint, path text, size_bytes bigint, archived_at bigint, purge_epoch bigint,
    memory_id uuid, version_id uuid, head_seq bigint, blob_id uuid, sha256 bytea,
    claimed_by uuid, claimed_until bigint, files bigint, total_entries bigint
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_setting text;
    v_tenant uuid;
    v_store uuid;
    v_path text;
BEGIN
    FOR i IN 1 .. cardinality(p_store) LOOP
        -- Variables, because Postgres prefers another index for an expression.
        v_tenant := p_tenant[i];
        v_store := p_store[i];
        v_path := p_path[i];
        v_setting := set_config('keepsake.tenant', v_tenant::text, true);
        -- The most frequent case, a memory that exists, is one query with one row.
        RETURN QUERY
            SELECT (i - 1)::bigint, m.path, m.size_bytes, s.archived_at, s.purge_epoch, m.memory_id, m.version_id, m.head_seq,
                   m.blob_id, m.sha256, m.claimed_by, m.claimed_until, NULL::bigint, NULL::bigint
              FROM memory m
              JOIN store s ON s.tenant_id = v_tenant AND s.store_id = v_store AND s.deleted_at IS NULL
             WHERE m.tenant_id = v_tenant AND m.store_id = v_store AND m.path = v_path AND m.deleted_at IS NULL;
        CONTINUE WHEN FOUND;
        v_path := p_directory[i];
        RETURN QUERY
            SELECT (i - 1)::bigint, d.path, d.bytes, s.archived_at, s.purge_epoch, NULL::uuid, NULL::uuid, NULL::bigint,
                   NULL::uuid, NULL::bytea, NULL::uuid, NULL::bigint, d.files, d.visible_children
              FROM store s
              LEFT JOIN directory d ON d.tenant_id = v_tenant AND d.store_id = v_store AND d.path = v_path
             WHERE s.tenant_id = v_tenant AND s.store_id = v_store AND s.deleted_at IS NULL;
    END LOOP;
END
$$;

-- A directory with its listing, two levels in display order, without hidden
-- entries, at most p_max_entries.
--
-- The first row is that of `read_heads`; no row: the store does not exist. If the
-- path is a directory, the `total_entries` of this row is the number of entries
-- without the limit, and the `entries` of all rows are the listing. An entry is an
-- array: whether it is a directory (1 or 0), its path, its bytes.
CREATE FUNCTION read_directory(p_tenant uuid, p_store uuid, p_path text, p_directory text, p_max_entries bigint)
RETURNS TABLE (
    path text, size_bytes bigint, archived_at bigint, purge_epoch bigint,
    memory_id uuid, version_id uuid, head_seq bigint, blob_id uuid, sha256 bytea,
    claimed_by uuid, claimed_until bigint, files bigint, total_entries bigint, entries json
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    child record;
    v_entries bigint;
    remaining bigint := p_max_entries;
BEGIN
    SELECT h.path, h.size_bytes, h.archived_at, h.purge_epoch, h.memory_id, h.version_id, h.head_seq,
           h.blob_id, h.sha256, h.claimed_by, h.claimed_until, h.files, h.total_entries
      INTO path, size_bytes, archived_at, purge_epoch, memory_id, version_id, head_seq,
           blob_id, sha256, claimed_by, claimed_until, files, total_entries
      FROM read_heads(ARRAY[p_tenant], ARRAY[p_store], ARRAY[p_path], ARRAY[p_directory]) h;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF files IS NULL THEN
        RETURN NEXT;
        RETURN;
    END IF;
    -- The order makes Postgres read the directory, and not the whole store.
    SELECT total_entries + coalesce(sum(d.visible_children), 0) INTO total_entries
      FROM (SELECT d.visible_children FROM directory d
             WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.parent = p_directory
                   AND left(d.name, 1) <> '.' AND d.name <> 'node_modules' AND d.path <> '/'
             ORDER BY d.name) d;
    -- One array is far cheaper than a row for each entry.
    SELECT json_agg(json_build_array(c.is_directory::integer, c.path, c.size_bytes) ORDER BY c.name COLLATE "C")
      INTO entries
      FROM visible_children(p_tenant, p_store, p_directory, p_max_entries) c
    HAVING NOT bool_or(c.is_directory);
    RETURN NEXT;
    IF entries IS NOT NULL THEN
        RETURN;
    END IF;

    FOR child IN SELECT * FROM visible_children(p_tenant, p_store, p_directory, remaining) LOOP
        EXIT WHEN remaining <= 0;
        entries := json_build_array(json_build_array(child.is_directory::integer, child.path, child.size_bytes));
        RETURN NEXT;
        remaining := remaining - 1;
        IF child.is_directory AND remaining > 0 THEN
            SELECT json_agg(json_build_array(c.is_directory::integer, c.path, c.size_bytes) ORDER BY c.name COLLATE "C"), count(*)
              INTO entries, v_entries
              FROM visible_children(p_tenant, p_store, child.path, remaining) c;
            RETURN NEXT;
            remaining := remaining - v_entries;
        END IF;
    END LOOP;
END
$$;

-- The visible children of one directory, by name. Merges a range of an index of
-- files and one of directories; each range stops at the limit.
CREATE FUNCTION visible_children(p_tenant uuid, p_store uuid, p_directory text, p_limit bigint)
RETURNS TABLE (is_directory boolean, path text, name text, size_bytes bigint)
LANGUAGE sql STABLE AS $$
    SELECT * FROM (
        (SELECT false AS is_directory, m.path, m.name, m.size_bytes FROM memory m
          WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.parent = p_directory
                AND m.deleted_at IS NULL AND left(m.name, 1) <> '.' AND m.name <> 'node_modules'
          ORDER BY m.name LIMIT p_limit)
        UNION ALL
        (SELECT true AS is_directory, d.path, d.name, d.bytes FROM directory d
          WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.parent = p_directory
                AND left(d.name, 1) <> '.' AND d.name <> 'node_modules' AND d.path <> '/'
          ORDER BY d.name LIMIT p_limit)
    ) children ORDER BY children.name LIMIT p_limit
$$;
