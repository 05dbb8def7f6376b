-- What is at a path of a store.
--
-- Every row has the same columns. `kind` says what the row is:
--   0  nothing is at the path       3  a file below the directory
--   1  the memory at the path       4  a directory below the directory
--   2  the directory at the path
-- No row: the store does not exist. The first row (kind 0, 1 or 2) also has the
-- state of the store. After a row of kind 2 follow rows of kinds 3 and 4: two
-- levels in display order, without hidden entries, at most p_max_entries. The
-- `total_entries` of the row of kind 2 is their number without that limit.
CREATE FUNCTION read_head(p_tenant uuid, p_store uuid, p_path text, p_directory text, p_max_entries bigint)
RETURNS TABLE (
    kind integer, path text, size_bytes bigint, archived_at bigint, purge_epoch bigint,
    memory_id uuid, version_id uuid, head_seq bigint, blob_id uuid, sha256 bytea,
    claimed_by uuid, claimed_until bigint, files bigint, total_entries bigint
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    child record;
    grandchild record;
    remaining bigint := p_max_entries;
    v_setting text;
BEGIN
    v_setting := set_config('keepsake.tenant', p_tenant::text, true);
    -- The most frequent case, a memory that exists, is one query with one row.
    RETURN QUERY
        SELECT 1, m.path, m.size_bytes, s.archived_at, s.purge_epoch, m.memory_id, m.version_id, m.head_seq,
               m.blob_id, m.sha256, m.claimed_by, m.claimed_until, NULL::bigint, NULL::bigint
          FROM memory m
          JOIN store s ON s.tenant_id = p_tenant AND s.store_id = p_store AND s.deleted_at IS NULL
         WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.path = p_path AND m.deleted_at IS NULL;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT 0, s.archived_at, s.purge_epoch INTO kind, archived_at, purge_epoch
      FROM store s
     WHERE s.tenant_id = p_tenant AND s.store_id = p_store AND s.deleted_at IS NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;

    SELECT d.path, d.bytes, d.files, d.visible_children INTO path, size_bytes, files, total_entries
      FROM directory d
     WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = p_directory;
    IF NOT FOUND THEN
        RETURN NEXT;
        RETURN;
    END IF;
    kind := 2;
    IF p_max_entries = 0 THEN
        RETURN NEXT;
        RETURN;
    END IF;
    -- The order makes Postgres read the directory, and not the whole store.
    SELECT total_entries + coalesce(sum(d.visible_children), 0) INTO total_entries
      FROM (SELECT d.visible_children FROM directory d
             WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.parent = p_directory
                   AND left(d.name, 1) <> '.' AND d.name <> 'node_modules' AND d.path <> '/'
             ORDER BY d.name) d;
    RETURN NEXT;

    files := NULL;
    total_entries := NULL;
    FOR child IN SELECT * FROM visible_children(p_tenant, p_store, p_directory, remaining) LOOP
        EXIT WHEN remaining <= 0;
        kind := child.kind;
        path := child.path;
        size_bytes := child.size_bytes;
        RETURN NEXT;
        remaining := remaining - 1;
        IF child.kind = 4 AND remaining > 0 THEN
            FOR grandchild IN SELECT * FROM visible_children(p_tenant, p_store, child.path, remaining) LOOP
                kind := grandchild.kind;
                path := grandchild.path;
                size_bytes := grandchild.size_bytes;
                RETURN NEXT;
                remaining := remaining - 1;
            END LOOP;
        END IF;
    END LOOP;
END
$$;

-- The visible children of one directory, by name. Merges a range of an index of
-- files and one of directories; each range stops at the limit.
CREATE FUNCTION visible_children(p_tenant uuid, p_store uuid, p_directory text, p_limit bigint)
RETURNS TABLE (kind integer, path text, name text, size_bytes bigint)
LANGUAGE sql STABLE AS $$
    SELECT * FROM (
        (SELECT 3 AS kind, m.path, m.name, m.size_bytes FROM memory m
          WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.parent = p_directory
                AND m.deleted_at IS NULL AND left(m.name, 1) <> '.' AND m.name <> 'node_modules'
          ORDER BY m.name LIMIT p_limit)
        UNION ALL
        (SELECT 4 AS kind, d.path, d.name, d.bytes FROM directory d
          WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.parent = p_directory
                AND left(d.name, 1) <> '.' AND d.name <> 'node_modules' AND d.path <> '/'
          ORDER BY d.name LIMIT p_limit)
    ) children ORDER BY children.name LIMIT p_limit
$$;
