-- The functions of the request path: one round trip for a read, one for a
-- commit. Each sets the tenant for its transaction, so row-level security
-- holds inside it. A function is never changed once released: a new version
-- gets a new name and the old one stays until no supported binary calls it.

-- What stands at a path of a store, as rows of one shape:
--   kind 0  nothing is there            kind 3  a file below the directory
--   kind 1  a memory                    kind 4  a directory below it
--   kind 2  a directory
-- No row: no such store. The first row carries the store's state. The rows of
-- kinds 3 and 4 come in display order, two levels deep, hidden ones left out,
-- at most p_max_entries; `total_entries` of row 2 says how many there are.
CREATE FUNCTION head_v1(p_tenant uuid, p_store uuid, p_path text, p_directory text, p_max_entries bigint)
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
    -- What is asked for most is a memory that is there: one query, one row.
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
    SELECT total_entries + coalesce(sum(d.visible_children), 0) INTO total_entries
      FROM directory d
     WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.parent = p_directory
           AND left(d.name, 1) <> '.' AND d.name <> 'node_modules' AND d.path <> '/';
    RETURN NEXT;

    files := NULL;
    total_entries := NULL;
    FOR child IN SELECT * FROM visible_children_v1(p_tenant, p_store, p_directory, remaining) LOOP
        EXIT WHEN remaining <= 0;
        kind := child.kind;
        path := child.path;
        size_bytes := child.size_bytes;
        RETURN NEXT;
        remaining := remaining - 1;
        IF child.kind = 4 AND remaining > 0 THEN
            FOR grandchild IN SELECT * FROM visible_children_v1(p_tenant, p_store, child.path, remaining) LOOP
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

-- The visible children of one directory by name, files and directories merged
-- from two index ranges that each stop at the limit.
CREATE FUNCTION visible_children_v1(p_tenant uuid, p_store uuid, p_directory text, p_limit bigint)
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

-- Every change of memories: checks under the store's lock, then writes.
--
-- The arrays `c_…` hold one element per change; `n_path` are the paths that
-- become taken, `n_ancestor` the paths above them that must not be files;
-- `d_…` say how each directory moves. Nothing is written unless the outcome
-- is `committed`. Separate statements after the lock see what committed
-- before it was granted; one statement would not. Rows are found one by one,
-- each by its whole key, so that the plan is the same for one change and for
-- ten thousand, with statistics and without.
CREATE FUNCTION commit_v1(
    p_tenant uuid, p_store uuid, p_now bigint, p_actor_type text, p_actor_id text, p_replica uuid,
    p_memory_limit bigint, p_byte_limit bigint,
    p_scope bytea, p_request bytea, p_replay_since bigint,
    p_guard_directory text, p_guard_files bigint,
    p_count_delta bigint, p_byte_delta bigint, p_directories_may_go boolean,
    c_op text[], c_memory uuid[], c_expect uuid[], c_version uuid[], c_path text[], c_parent text[], c_name text[],
    c_blob uuid[], c_size bigint[], c_sha256 bytea[], c_first_line text[],
    n_path text[], n_ancestor text[],
    d_path text[], d_parent text[], d_name text[], d_files bigint[], d_bytes bigint[], d_children bigint[]
)
RETURNS TABLE (outcome text, seq bigint, object_id uuid, path text, measured bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_store record;
    v_head record;
    v_at bigint;
    v_new_bytes bigint := 0;
    v_changes integer := cardinality(c_op);
    v_path text;
    v_child record;
    v_setting text;
BEGIN
    -- An assignment, here as in the others: it runs without a query of its own.
    v_setting := set_config('keepsake.tenant', p_tenant::text, true);
    SELECT s.seq, s.last_version_at, s.memory_count, s.live_bytes, s.granted_bytes, s.archived_at,
           s.purge_epoch INTO v_store
      FROM store s
     WHERE s.tenant_id = p_tenant AND s.store_id = p_store AND s.deleted_at IS NULL
       FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        outcome := 'no_store';
        RETURN NEXT;
        RETURN;
    END IF;

    IF p_scope IS NOT NULL THEN
        SELECT i.version_seq, i.object_id INTO seq, object_id FROM idempotency i
         WHERE i.tenant_id = p_tenant AND i.scope_sha256 = p_scope AND i.created_at > p_replay_since;
        IF FOUND THEN
            outcome := 'replayed';
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;
    IF v_store.archived_at IS NOT NULL AND NOT c_op <@ ARRAY['deleted'] THEN
        outcome := 'archived';
        RETURN NEXT;
        RETURN;
    END IF;

    -- Compare-and-set: every head is still the one that was read.
    FOR i IN 1 .. v_changes LOOP
        CONTINUE WHEN c_expect[i] IS NULL;
        -- By the primary key alone: the condition of the other indexes is not asked for.
        SELECT m.version_id, m.deleted_at INTO v_head FROM memory m
         WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = c_memory[i];
        IF NOT FOUND OR v_head.version_id <> c_expect[i] OR v_head.deleted_at IS NOT NULL THEN
            outcome := 'stale';
            RETURN NEXT;
            RETURN;
        END IF;
    END LOOP;
    IF p_guard_directory IS NOT NULL AND NOT EXISTS (
        SELECT FROM directory d
         WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = p_guard_directory
               AND d.files = p_guard_files
    ) THEN
        outcome := 'stale';
        RETURN NEXT;
        RETURN;
    END IF;

    FOREACH v_path IN ARRAY n_path LOOP
        SELECT 'taken', m.memory_id, m.path INTO outcome, object_id, path FROM memory m
         WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.path = v_path AND m.deleted_at IS NULL;
        IF FOUND THEN
            RETURN NEXT;
            RETURN;
        END IF;
    END LOOP;
    FOREACH v_path IN ARRAY n_path LOOP
        SELECT 'directory', NULL, d.path INTO outcome, object_id, path FROM directory d
         WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = v_path || '/';
        IF FOUND THEN
            RETURN NEXT;
            RETURN;
        END IF;
    END LOOP;
    FOREACH v_path IN ARRAY n_ancestor LOOP
        SELECT 'parent_is_file', m.memory_id, m.path INTO outcome, object_id, path FROM memory m
         WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.path = v_path AND m.deleted_at IS NULL;
        IF FOUND THEN
            RETURN NEXT;
            RETURN;
        END IF;
    END LOOP;

    IF p_count_delta > 0 AND v_store.memory_count + p_count_delta > p_memory_limit THEN
        outcome := 'too_many';
        measured := v_store.memory_count + p_count_delta;
        RETURN NEXT;
        RETURN;
    END IF;
    IF p_byte_delta > 0 AND v_store.live_bytes + p_byte_delta > p_byte_limit THEN
        outcome := 'store_full';
        measured := v_store.live_bytes + p_byte_delta;
        RETURN NEXT;
        RETURN;
    END IF;
    IF p_byte_delta > 0 AND v_store.live_bytes + p_byte_delta > v_store.granted_bytes THEN
        outcome := 'needs_grant';
        measured := v_store.live_bytes + p_byte_delta;
        RETURN NEXT;
        RETURN;
    END IF;
    FOR i IN 1 .. v_changes LOOP
        IF EXISTS (
            SELECT FROM blob_deletion b
             WHERE b.tenant_id = p_tenant AND b.store_id = p_store AND b.blob_id = c_blob[i]
        ) THEN
            outcome := 'condemned';
            RETURN NEXT;
            RETURN;
        END IF;
    END LOOP;

    -- Nothing is refused from here on. Time never runs backwards along `seq`.
    v_at := greatest(p_now, v_store.last_version_at);
    FOR i IN 1 .. v_changes LOOP
        INSERT INTO version (tenant_id, store_id, seq, version_id, memory_id, prev_seq, op, path, blob_id,
                             size_bytes, sha256, created_at, actor_type, actor_id)
        VALUES (p_tenant, p_store, v_store.seq + i, c_version[i], c_memory[i],
                (SELECT m.head_seq FROM memory m
                  WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = c_memory[i]),
                c_op[i], c_path[i], c_blob[i], c_size[i], c_sha256[i], v_at, p_actor_type, p_actor_id);
        IF c_op[i] = 'created' THEN
            INSERT INTO memory (tenant_id, store_id, memory_id, path, parent, name, head_seq, version_id, blob_id,
                                size_bytes, sha256, first_line, pinned, created_at, updated_at)
            VALUES (p_tenant, p_store, c_memory[i], c_path[i], c_parent[i], c_name[i], v_store.seq + i,
                    c_version[i], c_blob[i], c_size[i], c_sha256[i], c_first_line[i], false, v_at, v_at);
        ELSE
            UPDATE memory m
               SET path = c_path[i], parent = c_parent[i], name = c_name[i], head_seq = v_store.seq + i,
                   version_id = c_version[i], blob_id = c_blob[i], size_bytes = c_size[i], sha256 = c_sha256[i],
                   first_line = CASE WHEN c_blob[i] = c_version[i] OR c_op[i] = 'deleted' THEN c_first_line[i]
                                     ELSE m.first_line END,
                   updated_at = v_at, deleted_at = CASE WHEN c_op[i] = 'deleted' THEN v_at END,
                   claimed_by = nullif(m.claimed_by, p_replica)
             WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = c_memory[i];
        END IF;
        IF c_blob[i] = c_version[i] THEN
            v_new_bytes := v_new_bytes + c_size[i];
        END IF;
    END LOOP;

    -- In path order, so that a directory above is there before those below it.
    FOR i IN 1 .. cardinality(d_path) LOOP
        UPDATE directory d
           SET files = d.files + d_files[i], bytes = d.bytes + d_bytes[i],
               visible_children = d.visible_children + d_children[i]
         WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = d_path[i];
        IF NOT FOUND THEN
            INSERT INTO directory (tenant_id, store_id, path, parent, name, files, bytes, visible_children)
            VALUES (p_tenant, p_store, d_path[i], d_parent[i], d_name[i], d_files[i], d_bytes[i], d_children[i]);
            IF left(d_name[i], 1) <> '.' AND d_name[i] <> 'node_modules' THEN
                UPDATE directory d SET visible_children = d.visible_children + 1
                 WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = d_parent[i];
            END IF;
        END IF;
    END LOOP;
    IF p_directories_may_go THEN
        FOREACH v_path IN ARRAY d_path LOOP
            DELETE FROM directory d
             WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = v_path
                   AND d.files = 0 AND d.path <> '/'
            RETURNING d.parent, d.name INTO v_child;
            IF FOUND AND left(v_child.name, 1) <> '.' AND v_child.name <> 'node_modules' THEN
                UPDATE directory d SET visible_children = d.visible_children - 1
                 WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = v_child.parent;
            END IF;
        END LOOP;
    END IF;

    seq := v_store.seq + v_changes;
    UPDATE store s
       SET seq = v_store.seq + v_changes, last_version_at = v_at,
           memory_count = s.memory_count + p_count_delta, live_bytes = s.live_bytes + p_byte_delta,
           version_count = s.version_count + v_changes, version_bytes = s.version_bytes + v_new_bytes
     WHERE s.tenant_id = p_tenant AND s.store_id = p_store;
    object_id := c_memory[1];
    IF p_scope IS NOT NULL THEN
        INSERT INTO idempotency (tenant_id, scope_sha256, request_sha256, object_id, store_id, version_seq, created_at)
        VALUES (p_tenant, p_scope, p_request, c_memory[1], p_store, v_store.seq + v_changes, p_now)
        ON CONFLICT (tenant_id, scope_sha256) DO UPDATE
           SET request_sha256 = excluded.request_sha256, object_id = excluded.object_id,
               store_id = excluded.store_id, version_seq = excluded.version_seq, created_at = excluded.created_at;
    END IF;
    outcome := 'committed';
    measured := v_store.purge_epoch;
    RETURN NEXT;
END
$$;

-- Asks the other replicas to let this one's next edit of a memory go first.
CREATE FUNCTION claim_edit_v1(
    p_tenant uuid, p_store uuid, p_memory uuid, p_replica uuid, p_now bigint, p_until bigint
) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_setting text;
BEGIN
    v_setting := set_config('keepsake.tenant', p_tenant::text, true);
    UPDATE memory m SET claimed_by = p_replica, claimed_until = p_until
     WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = p_memory
           AND (m.claimed_by IS NULL OR m.claimed_by = p_replica OR m.claimed_until <= p_now);
    RETURN FOUND;
END
$$;

-- Who an API key belongs to, and what its tenant may hold. No row: unknown.
CREATE FUNCTION authenticate_v1(p_secret_sha256 bytea)
RETURNS TABLE (
    tenant_id uuid, api_key_id uuid, scopes jsonb, store_ids jsonb, expires_at bigint, revoked_at bigint,
    tenant_status text, limits jsonb
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_setting text;
BEGIN
    SELECT c.tenant_id, c.api_key_id INTO tenant_id, api_key_id FROM credential c
     WHERE c.secret_sha256 = p_secret_sha256;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    v_setting := set_config('keepsake.tenant', tenant_id::text, true);
    RETURN QUERY
        SELECT k.tenant_id, k.api_key_id, k.scopes, k.store_ids, k.expires_at, k.revoked_at, t.status, t.limits
          FROM api_key k JOIN tenant t ON t.tenant_id = k.tenant_id
         WHERE k.tenant_id = authenticate_v1.tenant_id AND k.api_key_id = authenticate_v1.api_key_id;
END
$$;

-- The newest migration applied; a binary starts only where it finds its own.
-- The owner's rights, since the migrations' table is not the app's to read.
CREATE FUNCTION keepsake_schema_version() RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public AS $$
    SELECT max(version) FROM public._sqlx_migrations WHERE success
$$;
