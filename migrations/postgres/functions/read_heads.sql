-- What is at paths of stores, also of several tenants: `path` and `directory` of
-- each element are the same path, as that of a file and as that of a directory.
--
-- One row for each element, none if its store does not exist. A row has the state
-- of the store, and either a memory (`memory_id`) or a directory (`files`), or
-- neither when nothing is at the path. With a positive `max_entries` a directory has
-- a listing of at most so many entries, and `total_entries` counts those of all.
CREATE FUNCTION read_heads(
    p_tenant uuid[], p_store uuid[], p_path text[], p_directory text[], p_max_entries bigint[]
)
RETURNS TABLE (
    element bigint, path text, size_bytes bigint, archived_at bigint, purge_epoch bigint,
    memory_id uuid, version_id uuid, head_seq bigint, blob_id uuid, sha256 bytea,
    claimed_by uuid, claimed_until bigint, files bigint, total_entries bigint, entries json
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_setting text;
    v_tenant uuid;
    v_store uuid;
    v_path text;
    v_more_entries bigint;
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
                   m.blob_id, m.sha256, m.claimed_by, m.claimed_until, NULL::bigint, NULL::bigint, NULL::json
              FROM memory m
              JOIN store s ON s.tenant_id = v_tenant AND s.store_id = v_store AND s.deleted_at IS NULL
             WHERE m.tenant_id = v_tenant AND m.store_id = v_store AND m.path = v_path AND m.deleted_at IS NULL;
        CONTINUE WHEN FOUND;
        v_path := p_directory[i];
        -- The columns of a memory stay NULL.
        SELECT d.path, d.bytes, s.archived_at, s.purge_epoch, d.files, d.visible_children
          INTO path, size_bytes, archived_at, purge_epoch, files, total_entries
          FROM store s
          LEFT JOIN directory d ON d.tenant_id = v_tenant AND d.store_id = v_store AND d.path = v_path
         WHERE s.tenant_id = v_tenant AND s.store_id = v_store AND s.deleted_at IS NULL;
        CONTINUE WHEN NOT FOUND;
        element := i - 1;
        entries := NULL;
        IF files IS NOT NULL AND p_max_entries[i] > 0 THEN
            SELECT r.more_entries, r.entries INTO v_more_entries, entries
              FROM read_directory(v_tenant, v_store, v_path, p_max_entries[i]) r;
            total_entries := total_entries + v_more_entries;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;

-- The listing of a directory, two levels in display order, without hidden entries,
-- at most p_max_entries: an array of arrays of `visible_entries`. `more_entries` is
-- the number of entries that all its subdirectories add.
CREATE FUNCTION read_directory(
    p_tenant uuid, p_store uuid, p_directory text, p_max_entries bigint, OUT more_entries bigint, OUT entries json
)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
    v_child record;
    v_directories bigint;
    v_entries json;
    v_groups json[] := '{}';
    v_remaining bigint := p_max_entries;
BEGIN
    -- The order makes Postgres read the directory, and not the whole store.
    SELECT coalesce(sum(d.visible_children), 0), count(*) INTO more_entries, v_directories
      FROM (SELECT d.visible_children FROM directory d
             WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.parent = p_directory
                   AND left(d.name, 1) <> '.' AND d.name <> 'node_modules' AND d.path <> '/'
             ORDER BY d.name) d;
    IF v_directories = 0 THEN
        entries := json_build_array(visible_entries(p_tenant, p_store, p_directory, p_max_entries));
        RETURN;
    END IF;
    FOR v_child IN SELECT * FROM visible_children(p_tenant, p_store, p_directory, p_max_entries) LOOP
        EXIT WHEN v_remaining <= 0;
        v_entries := json_build_array(json_build_array(v_child.is_directory::integer, v_child.path, v_child.size_bytes));
        v_groups := array_append(v_groups, v_entries);
        v_remaining := v_remaining - 1;
        IF v_child.is_directory AND v_remaining > 0 THEN
            v_entries := visible_entries(p_tenant, p_store, v_child.path, v_remaining);
            v_groups := array_append(v_groups, v_entries);
            v_remaining := v_remaining - json_array_length(v_entries);
        END IF;
    END LOOP;
    entries := to_json(v_groups);
END
$$;

-- The visible children of one directory as one array, which is far cheaper than a row
-- for each. An entry is an array: whether it is a directory (1 or 0), its path, its
-- bytes. In plpgsql, because the plan of a function in SQL is not kept.
CREATE FUNCTION visible_entries(p_tenant uuid, p_store uuid, p_directory text, p_limit bigint) RETURNS json
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT coalesce(json_agg(json_build_array(c.is_directory::integer, c.path, c.size_bytes)), '[]')
          FROM visible_children(p_tenant, p_store, p_directory, p_limit) c
    );
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
