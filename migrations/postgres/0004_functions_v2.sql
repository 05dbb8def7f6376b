-- The functions that the memory stores API needs. As before, none is changed
-- once released.

-- Every change of memories, as `commit_v1`: checks under the store's lock, then
-- writes.
--
-- The arrays `c_…` hold one element per change; `n_path` are the paths that
-- become taken, `n_ancestor` the paths above them that must not be files;
-- `d_…` say how each directory moves. `c_expect` is the version that was read:
-- of a memory that is `created` all the same, the one that deleted it, and the
-- memory comes back. Nothing is written unless the outcome is `committed`.
-- Separate statements after the lock see what committed before it was granted;
-- one statement would not. Rows are found one by one, each by its whole key, so
-- that the plan is the same for one change and for ten thousand, with
-- statistics and without.
CREATE FUNCTION commit_v2(
    p_tenant uuid, p_store uuid, p_now bigint, p_actor_type text, p_actor_id text, p_replica uuid,
    p_memory_limit bigint, p_byte_limit bigint,
    p_scope bytea, p_request bytea, p_replay_since bigint,
    p_guard_directory text, p_guard_files bigint, p_purge_epoch bigint,
    p_count_delta bigint, p_byte_delta bigint, p_directories_may_go boolean,
    c_op text[], c_memory uuid[], c_expect uuid[], c_version uuid[], c_path text[], c_parent text[], c_name text[],
    c_blob uuid[], c_size bigint[], c_sha256 bytea[], c_first_line text[], c_pinned boolean[],
    n_path text[], n_ancestor text[],
    d_path text[], d_parent text[], d_name text[], d_files bigint[], d_bytes bigint[], d_children bigint[]
)
RETURNS TABLE (
    outcome text, seq bigint, object_id uuid, path text, measured bigint, made_at bigint,
    expires_unused_after bigint, period_set_at bigint
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_store record;
    v_head record;
    v_request bytea;
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
           s.purge_epoch, s.expires_unused_after, s.period_set_at INTO v_store
      FROM store s
     WHERE s.tenant_id = p_tenant AND s.store_id = p_store AND s.deleted_at IS NULL
       FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        outcome := 'no_store';
        RETURN NEXT;
        RETURN;
    END IF;

    IF p_scope IS NOT NULL THEN
        SELECT i.version_seq, i.object_id, i.request_sha256 INTO seq, object_id, v_request FROM idempotency i
         WHERE i.tenant_id = p_tenant AND i.scope_sha256 = p_scope AND i.created_at > p_replay_since;
        IF FOUND THEN
            outcome := CASE WHEN v_request = p_request AND seq IS NOT NULL THEN 'replayed' ELSE 'key_reused' END;
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;
    IF v_store.archived_at IS NOT NULL AND NOT c_op <@ ARRAY['deleted'] THEN
        outcome := 'archived';
        RETURN NEXT;
        RETURN;
    END IF;

    -- Content of older versions is named as it was before this purge.
    IF p_purge_epoch <> v_store.purge_epoch THEN
        outcome := 'stale';
        RETURN NEXT;
        RETURN;
    END IF;
    -- Compare-and-set: every head is still the one that was read.
    FOR i IN 1 .. v_changes LOOP
        CONTINUE WHEN c_expect[i] IS NULL;
        -- By the primary key alone: the condition of the other indexes is not asked for.
        SELECT m.version_id, m.deleted_at INTO v_head FROM memory m
         WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = c_memory[i];
        IF NOT FOUND OR v_head.version_id <> c_expect[i]
           OR (v_head.deleted_at IS NOT NULL) <> (c_op[i] = 'created') THEN
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
        IF c_op[i] = 'created' AND c_expect[i] IS NULL THEN
            INSERT INTO memory (tenant_id, store_id, memory_id, path, parent, name, head_seq, version_id, blob_id,
                                size_bytes, sha256, first_line, pinned, created_at, updated_at)
            VALUES (p_tenant, p_store, c_memory[i], c_path[i], c_parent[i], c_name[i], v_store.seq + i,
                    c_version[i], c_blob[i], c_size[i], c_sha256[i], c_first_line[i],
                    coalesce(c_pinned[i], false), v_at, v_at);
        ELSE
            UPDATE memory m
               SET path = c_path[i], parent = c_parent[i], name = c_name[i], head_seq = v_store.seq + i,
                   version_id = c_version[i], blob_id = c_blob[i], size_bytes = c_size[i], sha256 = c_sha256[i],
                   first_line = CASE WHEN c_op[i] <> 'deleted' THEN coalesce(c_first_line[i], m.first_line) END,
                   pinned = coalesce(c_pinned[i], m.pinned), updated_at = v_at, deleted_at = CASE WHEN c_op[i] = 'deleted' THEN v_at END,
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
    made_at := v_at;
    expires_unused_after := v_store.expires_unused_after;
    period_set_at := v_store.period_set_at;
    RETURN NEXT;
END
$$;

-- A memory by its id. No row: no such store; no `memory_id`: no such memory.
-- `deleted_at` is null of a live one.
CREATE FUNCTION memory_v1(p_tenant uuid, p_store uuid, p_memory uuid)
RETURNS TABLE (
    archived_at bigint, purge_epoch bigint, expires_unused_after bigint, period_set_at bigint,
    path text, size_bytes bigint, memory_id uuid, version_id uuid, head_seq bigint, blob_id uuid, sha256 bytea,
    claimed_by uuid, claimed_until bigint, pinned boolean, created_at bigint, updated_at bigint,
    last_read_at bigint, active_at bigint, deleted_at bigint
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_setting text;
BEGIN
    v_setting := set_config('keepsake.tenant', p_tenant::text, true);
    RETURN QUERY
        SELECT s.archived_at, s.purge_epoch, s.expires_unused_after, s.period_set_at,
               m.path, m.size_bytes, m.memory_id, m.version_id, m.head_seq, m.blob_id, m.sha256,
               m.claimed_by, m.claimed_until, m.pinned, m.created_at, m.updated_at,
               a.last_read_at, a.active_at, m.deleted_at
          FROM store s
          LEFT JOIN memory m ON m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = p_memory
          LEFT JOIN memory_access a ON a.tenant_id = p_tenant AND a.store_id = p_store AND a.memory_id = p_memory
         WHERE s.tenant_id = p_tenant AND s.store_id = p_store AND s.deleted_at IS NULL;
END
$$;

-- A part of a store's memories in byte order of their paths. No row: no such
-- store; the first row carries the store's state alone, each other one is a
-- memory or, without a `memory_id`, a directory.
--
-- Lists what lies between p_from, exclusive, and p_end in p_directory: all of
-- it, or, where p_after_name is given, what is directly in it, memories by name
-- after that and directories by path after p_from. Each is one range of an
-- index that stops at the limit. Directories are asked for by a comparison of
-- rows, so that no other index has them in this order.
CREATE FUNCTION list_memories_v1(
    p_tenant uuid, p_store uuid, p_directory text, p_from text, p_end text, p_after_name text, p_limit bigint
)
RETURNS TABLE (
    archived_at bigint, purge_epoch bigint, expires_unused_after bigint, period_set_at bigint,
    path text, size_bytes bigint, memory_id uuid, version_id uuid, head_seq bigint, blob_id uuid, sha256 bytea,
    claimed_by uuid, claimed_until bigint, pinned boolean, created_at bigint, updated_at bigint,
    last_read_at bigint, active_at bigint
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
                   m.claimed_by, m.claimed_until, m.pinned, m.created_at, m.updated_at, a.last_read_at, a.active_at
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
               item.claimed_by, item.claimed_until, item.pinned, item.created_at, item.updated_at,
               a.last_read_at, a.active_at
          FROM (SELECT * FROM (
                    (SELECT m.path, m.size_bytes, m.memory_id, m.version_id, m.head_seq, m.blob_id, m.sha256,
                            m.claimed_by, m.claimed_until, m.pinned, m.created_at, m.updated_at
                       FROM memory m
                      WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.parent = p_directory
                            AND m.name > p_after_name AND m.deleted_at IS NULL
                      ORDER BY m.name LIMIT p_limit)
                    UNION ALL
                    (SELECT d.path, d.bytes, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
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

-- Sets a memory's pin, under the store's lock.
CREATE FUNCTION pin_v1(
    p_tenant uuid, p_store uuid, p_memory uuid, p_expect uuid, p_pinned boolean, p_now bigint,
    p_scope bytea, p_request bytea, p_replay_since bigint
)
RETURNS TABLE (outcome text, seq bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_store record;
    v_head record;
    v_request bytea;
    v_setting text;
BEGIN
    v_setting := set_config('keepsake.tenant', p_tenant::text, true);
    SELECT s.archived_at INTO v_store FROM store s
     WHERE s.tenant_id = p_tenant AND s.store_id = p_store AND s.deleted_at IS NULL
       FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        outcome := 'no_store';
        RETURN NEXT;
        RETURN;
    END IF;
    IF p_scope IS NOT NULL THEN
        SELECT i.version_seq, i.request_sha256 INTO seq, v_request FROM idempotency i
         WHERE i.tenant_id = p_tenant AND i.scope_sha256 = p_scope AND i.created_at > p_replay_since;
        IF FOUND THEN
            outcome := CASE WHEN v_request = p_request AND seq IS NOT NULL THEN 'replayed' ELSE 'key_reused' END;
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;
    IF v_store.archived_at IS NOT NULL THEN
        outcome := 'archived';
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT m.version_id, m.deleted_at, m.head_seq INTO v_head FROM memory m
     WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = p_memory;
    IF NOT FOUND OR v_head.version_id <> p_expect OR v_head.deleted_at IS NOT NULL THEN
        outcome := 'stale';
        RETURN NEXT;
        RETURN;
    END IF;
    UPDATE memory m SET pinned = p_pinned
     WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = p_memory;
    IF p_scope IS NOT NULL THEN
        INSERT INTO idempotency (tenant_id, scope_sha256, request_sha256, object_id, store_id, version_seq, created_at)
        VALUES (p_tenant, p_scope, p_request, p_memory, p_store, v_head.head_seq, p_now)
        ON CONFLICT (tenant_id, scope_sha256) DO UPDATE
           SET request_sha256 = excluded.request_sha256, object_id = excluded.object_id,
               store_id = excluded.store_id, version_seq = excluded.version_seq, created_at = excluded.created_at;
    END IF;
    outcome := 'done';
    RETURN NEXT;
END
$$;

-- A version by its place in the store's order, or else by its id. No row: no
-- such store; no `seq`: no such version. The id is asked for in the order of its
-- index: the primary key, which is made last, has not that order.
CREATE FUNCTION version_v1(p_tenant uuid, p_store uuid, p_seq bigint, p_version uuid)
RETURNS TABLE (
    archived_at bigint, purge_epoch bigint,
    seq bigint, version_id uuid, prev_seq bigint, memory_id uuid, op text, path text, blob_id uuid,
    size_bytes bigint, sha256 bytea, created_at bigint, actor_type text, actor_id text,
    redacted_at bigint, redacted_by_type text, redacted_by text
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_setting text;
BEGIN
    v_setting := set_config('keepsake.tenant', p_tenant::text, true);
    IF p_seq IS NOT NULL THEN
        RETURN QUERY
            SELECT s.archived_at, s.purge_epoch,
                   v.seq, v.version_id, v.prev_seq, v.memory_id, v.op, v.path, v.blob_id, v.size_bytes, v.sha256,
                   v.created_at, v.actor_type, v.actor_id, v.redacted_at, v.redacted_by_type, v.redacted_by
              FROM store s
              LEFT JOIN version v ON v.tenant_id = p_tenant AND v.store_id = p_store AND v.seq = p_seq
             WHERE s.tenant_id = p_tenant AND s.store_id = p_store AND s.deleted_at IS NULL;
        RETURN;
    END IF;
    RETURN QUERY
        SELECT s.archived_at, s.purge_epoch,
               v.seq, v.version_id, v.prev_seq, v.memory_id, v.op, v.path, v.blob_id, v.size_bytes, v.sha256,
               v.created_at, v.actor_type, v.actor_id, v.redacted_at, v.redacted_by_type, v.redacted_by
          FROM store s
          LEFT JOIN LATERAL (SELECT * FROM version v
                              WHERE v.tenant_id = p_tenant AND v.store_id = p_store
                                    AND v.version_id >= p_version AND v.version_id <= p_version
                              ORDER BY v.version_id LIMIT 1) v ON true
         WHERE s.tenant_id = p_tenant AND s.store_id = p_store AND s.deleted_at IS NULL;
END
$$;

-- The least `seq` from which on versions date from p_at or later, up to p_high.
-- `created_at` never decreases along `seq`, so that halving finds it.
CREATE FUNCTION version_seq_v1(p_tenant uuid, p_store uuid, p_at bigint, p_high bigint)
RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_low bigint := 0;
    v_high bigint := p_high;
    v_middle bigint;
    v_last bigint;
BEGIN
    WHILE v_high - v_low > 1 LOOP
        v_middle := (v_low + v_high) / 2;
        SELECT v.created_at INTO v_last FROM version v
         WHERE v.tenant_id = p_tenant AND v.store_id = p_store AND v.seq <= v_middle
         ORDER BY v.seq DESC LIMIT 1;
        IF v_last >= p_at THEN
            v_high := v_middle;
        ELSE
            v_low := v_middle;
        END IF;
    END LOOP;
    RETURN v_high;
END
$$;

-- A part of a store's versions, the last of its order first. No row: no such
-- store; the first row carries the store's state alone.
--
-- Goes by the index of the first filter given among memory, actor and
-- operation, else by the primary key; the others are conditions. Each query
-- compares rows, so that no other index has its order.
CREATE FUNCTION list_versions_v1(
    p_tenant uuid, p_store uuid, p_memory uuid, p_op text, p_actor_type text, p_actor_id text,
    p_from bigint, p_to bigint, p_before bigint, p_limit bigint
)
RETURNS TABLE (
    archived_at bigint, purge_epoch bigint,
    seq bigint, version_id uuid, prev_seq bigint, memory_id uuid, op text, path text, blob_id uuid,
    size_bytes bigint, sha256 bytea, created_at bigint, actor_type text, actor_id text,
    redacted_at bigint, redacted_by_type text, redacted_by text
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_setting text;
    v_low bigint := 0;
    v_high bigint;
BEGIN
    v_setting := set_config('keepsake.tenant', p_tenant::text, true);
    SELECT s.archived_at, s.purge_epoch, s.seq + 1 INTO archived_at, purge_epoch, v_high
      FROM store s
     WHERE s.tenant_id = p_tenant AND s.store_id = p_store AND s.deleted_at IS NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN NEXT;
    v_high := least(v_high, p_before);
    IF p_to < 9223372036854775807 THEN
        v_high := version_seq_v1(p_tenant, p_store, p_to + 1, v_high);
    END IF;
    IF p_from IS NOT NULL THEN
        v_low := version_seq_v1(p_tenant, p_store, p_from, v_high) - 1;
    END IF;

    IF p_memory IS NOT NULL THEN
        RETURN QUERY
            SELECT NULL::bigint, NULL::bigint,
                   v.seq, v.version_id, v.prev_seq, v.memory_id, v.op, v.path, v.blob_id, v.size_bytes, v.sha256,
                   v.created_at, v.actor_type, v.actor_id, v.redacted_at, v.redacted_by_type, v.redacted_by
              FROM version v
             WHERE v.tenant_id = p_tenant AND v.store_id = p_store
                   AND (v.memory_id, v.seq) < (p_memory, v_high) AND (v.memory_id, v.seq) > (p_memory, v_low)
                   AND (p_op IS NULL OR v.op = p_op)
                   AND (p_actor_id IS NULL OR v.actor_id = p_actor_id AND v.actor_type = p_actor_type)
             ORDER BY v.memory_id DESC, v.seq DESC LIMIT p_limit;
    ELSIF p_actor_id IS NOT NULL THEN
        RETURN QUERY
            SELECT NULL::bigint, NULL::bigint,
                   v.seq, v.version_id, v.prev_seq, v.memory_id, v.op, v.path, v.blob_id, v.size_bytes, v.sha256,
                   v.created_at, v.actor_type, v.actor_id, v.redacted_at, v.redacted_by_type, v.redacted_by
              FROM version v
             WHERE v.tenant_id = p_tenant AND v.store_id = p_store
                   AND (v.actor_id, v.seq) < (p_actor_id, v_high) AND (v.actor_id, v.seq) > (p_actor_id, v_low)
                   AND v.actor_type = p_actor_type AND (p_op IS NULL OR v.op = p_op)
             ORDER BY v.actor_id DESC, v.seq DESC LIMIT p_limit;
    ELSIF p_op <> 'modified' THEN
        RETURN QUERY
            SELECT NULL::bigint, NULL::bigint,
                   v.seq, v.version_id, v.prev_seq, v.memory_id, v.op, v.path, v.blob_id, v.size_bytes, v.sha256,
                   v.created_at, v.actor_type, v.actor_id, v.redacted_at, v.redacted_by_type, v.redacted_by
              FROM version v
             WHERE v.tenant_id = p_tenant AND v.store_id = p_store AND v.op <> 'modified'
                   AND (v.op, v.seq) < (p_op, v_high) AND (v.op, v.seq) > (p_op, v_low)
             ORDER BY v.op DESC, v.seq DESC LIMIT p_limit;
    ELSE
        RETURN QUERY
            SELECT NULL::bigint, NULL::bigint,
                   v.seq, v.version_id, v.prev_seq, v.memory_id, v.op, v.path, v.blob_id, v.size_bytes, v.sha256,
                   v.created_at, v.actor_type, v.actor_id, v.redacted_at, v.redacted_by_type, v.redacted_by
              FROM version v
             WHERE v.tenant_id = p_tenant AND v.store_id = p_store AND v.seq < v_high AND v.seq > v_low
                   AND (p_op IS NULL OR v.op = p_op)
             ORDER BY v.seq DESC LIMIT p_limit;
    END IF;
END
$$;
