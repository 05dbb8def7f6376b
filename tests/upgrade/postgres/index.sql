DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'keepsake_app') THEN CREATE ROLE keepsake_app NOLOGIN; END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'keepsake_jobs') THEN CREATE ROLE keepsake_jobs NOLOGIN; END IF;
END
$$;
SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

CREATE FUNCTION public.authenticate_v1(p_secret_sha256 bytea) RETURNS TABLE(tenant_id uuid, api_key_id uuid, scopes jsonb, store_ids jsonb, expires_at bigint, revoked_at bigint, tenant_status text, limits jsonb)
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.claim_edit_v1(p_tenant uuid, p_store uuid, p_memory uuid, p_replica uuid, p_now bigint, p_until bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.commit_v1(p_tenant uuid, p_store uuid, p_now bigint, p_actor_type text, p_actor_id text, p_replica uuid, p_memory_limit bigint, p_byte_limit bigint, p_scope bytea, p_request bytea, p_replay_since bigint, p_guard_directory text, p_guard_files bigint, p_count_delta bigint, p_byte_delta bigint, p_directories_may_go boolean, c_op text[], c_memory uuid[], c_expect uuid[], c_version uuid[], c_path text[], c_parent text[], c_name text[], c_blob uuid[], c_size bigint[], c_sha256 bytea[], c_first_line text[], n_path text[], n_ancestor text[], d_path text[], d_parent text[], d_name text[], d_files bigint[], d_bytes bigint[], d_children bigint[]) RETURNS TABLE(outcome text, seq bigint, object_id uuid, path text, measured bigint)
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.commit_v2(p_tenant uuid, p_store uuid, p_now bigint, p_actor_type text, p_actor_id text, p_replica uuid, p_memory_limit bigint, p_byte_limit bigint, p_scope bytea, p_request bytea, p_replay_since bigint, p_guard_directory text, p_guard_files bigint, p_purge_epoch bigint, p_count_delta bigint, p_byte_delta bigint, p_directories_may_go boolean, c_op text[], c_memory uuid[], c_expect uuid[], c_version uuid[], c_path text[], c_parent text[], c_name text[], c_blob uuid[], c_size bigint[], c_sha256 bytea[], c_first_line text[], c_pinned boolean[], n_path text[], n_ancestor text[], d_path text[], d_parent text[], d_name text[], d_files bigint[], d_bytes bigint[], d_children bigint[]) RETURNS TABLE(outcome text, seq bigint, object_id uuid, path text, measured bigint, made_at bigint, expires_unused_after bigint, period_set_at bigint)
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.head_v1(p_tenant uuid, p_store uuid, p_path text, p_directory text, p_max_entries bigint) RETURNS TABLE(kind integer, path text, size_bytes bigint, archived_at bigint, purge_epoch bigint, memory_id uuid, version_id uuid, head_seq bigint, blob_id uuid, sha256 bytea, claimed_by uuid, claimed_until bigint, files bigint, total_entries bigint)
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.keepsake_schema_version() RETURNS bigint
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public'
    AS $$
    SELECT max(version) FROM public._sqlx_migrations WHERE success
$$;

CREATE FUNCTION public.list_memories_v1(p_tenant uuid, p_store uuid, p_directory text, p_from text, p_end text, p_after_name text, p_limit bigint) RETURNS TABLE(archived_at bigint, purge_epoch bigint, expires_unused_after bigint, period_set_at bigint, path text, size_bytes bigint, memory_id uuid, version_id uuid, head_seq bigint, blob_id uuid, sha256 bytea, claimed_by uuid, claimed_until bigint, pinned boolean, created_at bigint, updated_at bigint, last_read_at bigint, active_at bigint)
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.list_versions_v1(p_tenant uuid, p_store uuid, p_memory uuid, p_op text, p_actor_type text, p_actor_id text, p_from bigint, p_to bigint, p_before bigint, p_limit bigint) RETURNS TABLE(archived_at bigint, purge_epoch bigint, seq bigint, version_id uuid, prev_seq bigint, memory_id uuid, op text, path text, blob_id uuid, size_bytes bigint, sha256 bytea, created_at bigint, actor_type text, actor_id text, redacted_at bigint, redacted_by_type text, redacted_by text)
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.memory_v1(p_tenant uuid, p_store uuid, p_memory uuid) RETURNS TABLE(archived_at bigint, purge_epoch bigint, expires_unused_after bigint, period_set_at bigint, path text, size_bytes bigint, memory_id uuid, version_id uuid, head_seq bigint, blob_id uuid, sha256 bytea, claimed_by uuid, claimed_until bigint, pinned boolean, created_at bigint, updated_at bigint, last_read_at bigint, active_at bigint, deleted_at bigint)
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.pin_v1(p_tenant uuid, p_store uuid, p_memory uuid, p_expect uuid, p_pinned boolean, p_now bigint, p_scope bytea, p_request bytea, p_replay_since bigint) RETURNS TABLE(outcome text, seq bigint)
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.version_seq_v1(p_tenant uuid, p_store uuid, p_at bigint, p_high bigint) RETURNS bigint
    LANGUAGE plpgsql STABLE
    AS $$
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

CREATE FUNCTION public.version_v1(p_tenant uuid, p_store uuid, p_seq bigint, p_version uuid) RETURNS TABLE(archived_at bigint, purge_epoch bigint, seq bigint, version_id uuid, prev_seq bigint, memory_id uuid, op text, path text, blob_id uuid, size_bytes bigint, sha256 bytea, created_at bigint, actor_type text, actor_id text, redacted_at bigint, redacted_by_type text, redacted_by text)
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.visible_children_v1(p_tenant uuid, p_store uuid, p_directory text, p_limit bigint) RETURNS TABLE(kind integer, path text, name text, size_bytes bigint)
    LANGUAGE sql STABLE
    AS $$
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

SET default_tablespace = '';

SET default_table_access_method = heap;

CREATE TABLE public._sqlx_migrations (
    version bigint NOT NULL,
    description text NOT NULL,
    installed_on timestamp with time zone DEFAULT now() NOT NULL,
    success boolean NOT NULL,
    checksum bytea NOT NULL,
    execution_time bigint NOT NULL
);

CREATE TABLE public.api_key (
    tenant_id uuid NOT NULL,
    api_key_id uuid NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    scopes jsonb NOT NULL,
    store_ids jsonb,
    created_at bigint NOT NULL,
    expires_at bigint,
    last_used_at bigint,
    revoked_at bigint
);

ALTER TABLE ONLY public.api_key FORCE ROW LEVEL SECURITY;

CREATE TABLE public.audit (
    tenant_id uuid NOT NULL,
    id uuid NOT NULL,
    at bigint NOT NULL,
    actor text NOT NULL COLLATE pg_catalog."C",
    action text NOT NULL COLLATE pg_catalog."C",
    object_id uuid
);

ALTER TABLE ONLY public.audit FORCE ROW LEVEL SECURITY;

CREATE TABLE public.blob_deletion (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    blob_id uuid NOT NULL,
    not_before bigint NOT NULL,
    attempts bigint NOT NULL,
    reason text NOT NULL COLLATE pg_catalog."C"
);
ALTER TABLE ONLY public.blob_deletion ALTER COLUMN tenant_id SET (n_distinct=1);
ALTER TABLE ONLY public.blob_deletion ALTER COLUMN store_id SET (n_distinct=1);

ALTER TABLE ONLY public.blob_deletion FORCE ROW LEVEL SECURITY;

CREATE TABLE public.change_feed (
    seq bigint NOT NULL,
    at bigint NOT NULL,
    kind text NOT NULL COLLATE pg_catalog."C",
    tenant_id uuid NOT NULL,
    object_id uuid
);

ALTER TABLE public.change_feed ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.change_feed_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.credential (
    secret_sha256 bytea NOT NULL,
    tenant_id uuid NOT NULL,
    api_key_id uuid NOT NULL
);

CREATE TABLE public.directory (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    path text NOT NULL COLLATE pg_catalog."C",
    parent text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    files bigint NOT NULL,
    bytes bigint NOT NULL,
    visible_children bigint NOT NULL
)
WITH (fillfactor='80');
ALTER TABLE ONLY public.directory ALTER COLUMN tenant_id SET (n_distinct=1);
ALTER TABLE ONLY public.directory ALTER COLUMN store_id SET (n_distinct=1);

ALTER TABLE ONLY public.directory FORCE ROW LEVEL SECURITY;

CREATE TABLE public.erasure (
    tenant_id uuid NOT NULL,
    id uuid NOT NULL,
    selector jsonb,
    state text NOT NULL COLLATE pg_catalog."C",
    cursor text COLLATE pg_catalog."C",
    counts jsonb,
    created_at bigint NOT NULL,
    ended_at bigint
);

ALTER TABLE ONLY public.erasure FORCE ROW LEVEL SECURITY;

CREATE TABLE public.idempotency (
    tenant_id uuid NOT NULL,
    scope_sha256 bytea NOT NULL,
    request_sha256 bytea NOT NULL,
    object_id uuid,
    store_id uuid,
    version_seq bigint,
    created_at bigint NOT NULL
);

ALTER TABLE ONLY public.idempotency FORCE ROW LEVEL SECURITY;

CREATE TABLE public.job (
    name text NOT NULL COLLATE pg_catalog."C",
    owner uuid,
    lease_until bigint NOT NULL,
    fence bigint NOT NULL,
    cursor text COLLATE pg_catalog."C"
);

CREATE TABLE public.job_run (
    name text NOT NULL COLLATE pg_catalog."C",
    slot bigint NOT NULL,
    started_at bigint NOT NULL,
    ended_at bigint,
    counts jsonb,
    error text COLLATE pg_catalog."C"
);

CREATE TABLE public.memory (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    memory_id uuid NOT NULL,
    path text NOT NULL COLLATE pg_catalog."C",
    parent text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    head_seq bigint NOT NULL,
    version_id uuid NOT NULL,
    blob_id uuid,
    size_bytes bigint,
    sha256 bytea,
    first_line text COLLATE pg_catalog."C",
    pinned boolean NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    deleted_at bigint,
    claimed_by uuid,
    claimed_until bigint
)
WITH (fillfactor='80');
ALTER TABLE ONLY public.memory ALTER COLUMN tenant_id SET (n_distinct=1);
ALTER TABLE ONLY public.memory ALTER COLUMN store_id SET (n_distinct=1);

ALTER TABLE ONLY public.memory FORCE ROW LEVEL SECURITY;

CREATE TABLE public.memory_access (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    memory_id uuid NOT NULL,
    last_read_at bigint NOT NULL,
    last_read_by text COLLATE pg_catalog."C",
    active_at bigint NOT NULL
)
WITH (fillfactor='80');
ALTER TABLE ONLY public.memory_access ALTER COLUMN tenant_id SET (n_distinct=1);
ALTER TABLE ONLY public.memory_access ALTER COLUMN store_id SET (n_distinct=1);

ALTER TABLE ONLY public.memory_access FORCE ROW LEVEL SECURITY;

CREATE TABLE public.operator_audit (
    id uuid NOT NULL,
    at bigint NOT NULL,
    actor text NOT NULL COLLATE pg_catalog."C",
    action text NOT NULL COLLATE pg_catalog."C",
    object_id uuid
);

CREATE TABLE public.replica (
    id uuid NOT NULL,
    role text NOT NULL COLLATE pg_catalog."C",
    heartbeat_at bigint NOT NULL,
    access_flushed_through bigint NOT NULL
);

CREATE TABLE public.search_doc (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    memory_id uuid NOT NULL,
    analyser bigint NOT NULL,
    length bigint NOT NULL,
    terms bytea NOT NULL
);
ALTER TABLE ONLY public.search_doc ALTER COLUMN tenant_id SET (n_distinct=1);
ALTER TABLE ONLY public.search_doc ALTER COLUMN store_id SET (n_distinct=1);

ALTER TABLE ONLY public.search_doc FORCE ROW LEVEL SECURITY;

CREATE TABLE public.server_secret (
    kid text NOT NULL COLLATE pg_catalog."C",
    purpose text NOT NULL COLLATE pg_catalog."C",
    wrapped_key bytea NOT NULL,
    not_before bigint NOT NULL,
    retired_at bigint
);

CREATE TABLE public.store (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    description text NOT NULL COLLATE pg_catalog."C",
    metadata jsonb NOT NULL,
    policy text NOT NULL COLLATE pg_catalog."C",
    expires_unused_after bigint,
    period_set_at bigint,
    seq bigint NOT NULL,
    last_version_at bigint NOT NULL,
    purge_epoch bigint NOT NULL,
    memory_count bigint NOT NULL,
    live_bytes bigint NOT NULL,
    granted_bytes bigint NOT NULL,
    version_count bigint NOT NULL,
    version_bytes bigint NOT NULL,
    retention_seq bigint NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    archived_at bigint,
    deleted_at bigint
)
WITH (fillfactor='50');

ALTER TABLE ONLY public.store FORCE ROW LEVEL SECURITY;

CREATE TABLE public.tenant (
    tenant_id uuid NOT NULL,
    external_id text COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    status text NOT NULL COLLATE pg_catalog."C",
    limits jsonb NOT NULL,
    store_count bigint NOT NULL,
    granted_bytes bigint NOT NULL,
    created_at bigint NOT NULL
);

ALTER TABLE ONLY public.tenant FORCE ROW LEVEL SECURITY;

CREATE TABLE public.version (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    seq bigint NOT NULL,
    version_id uuid NOT NULL,
    memory_id uuid NOT NULL,
    prev_seq bigint,
    op text NOT NULL COLLATE pg_catalog."C",
    path text COLLATE pg_catalog."C",
    blob_id uuid,
    size_bytes bigint,
    sha256 bytea,
    created_at bigint NOT NULL,
    actor_type text COLLATE pg_catalog."C",
    actor_id text COLLATE pg_catalog."C",
    redacted_at bigint,
    redacted_by text COLLATE pg_catalog."C",
    redacted_by_type text COLLATE pg_catalog."C"
);
ALTER TABLE ONLY public.version ALTER COLUMN tenant_id SET (n_distinct=1);
ALTER TABLE ONLY public.version ALTER COLUMN store_id SET (n_distinct=1);

ALTER TABLE ONLY public.version FORCE ROW LEVEL SECURITY;

INSERT INTO public._sqlx_migrations VALUES (1, 'tables', '2026-11-21 18:25:51.147568+00', true, '\x772fed1b753dabcbc654de35204c0bc270b281bf4fc7fa0fdfcebed8570672b121a6d66e7e7d5ef6880245780d04b430', 724131984);
INSERT INTO public._sqlx_migrations VALUES (2, 'functions v1', '2026-11-21 18:25:51.903565+00', true, '\x180d7ce13d9dd1c837691a665958c88781ded8272cec40b555de935c83eb97910a060bce011a94fb052b4effe261f29f', 283655728);
INSERT INTO public._sqlx_migrations VALUES (3, 'lists', '2026-11-21 18:25:52.203578+00', true, '\x13435ecf69a82749b8c3999531d9ae647ebe60dd24bce1fba2c7ba645a6e7fd621a932f7e6fa1b1777f8cfefead524fa', 99632097);
INSERT INTO public._sqlx_migrations VALUES (4, 'functions v2', '2026-11-21 18:25:52.315567+00', true, '\x865c1b32e752ad9c7484eb3a9ef9b0c689d96482297b794c5dc6a4ab37f75ea3e9c56d612e8849b568b9b11c562d1469', 83827021);

INSERT INTO public.api_key VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-91c7-7cc6-a9f8-fa9efeea610b', 'k', '["memory:read", "memory:write", "stores:admin"]', NULL, 1795285553607730, NULL, NULL, NULL);

INSERT INTO public.change_feed OVERRIDING SYSTEM VALUE VALUES (1, 1795285552851744, 'tenant', '01a1ff5b-8ed3-786e-8efb-050af9cb23b9', NULL);
INSERT INTO public.change_feed OVERRIDING SYSTEM VALUE VALUES (2, 1795285553607730, 'api_key', '01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-91c7-7cc6-a9f8-fa9efeea610b');
INSERT INTO public.change_feed OVERRIDING SYSTEM VALUE VALUES (3, 1795285553772634, 'store', '01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-926c-74ca-b32e-27b596e1c7ec');
INSERT INTO public.change_feed OVERRIDING SYSTEM VALUE VALUES (4, 1795285561763792, 'store', '01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-b1a3-7607-89f1-9f352e7c18e4');
INSERT INTO public.change_feed OVERRIDING SYSTEM VALUE VALUES (5, 1795285562115750, 'store', '01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-b1a3-7607-89f1-9f352e7c18e4');
INSERT INTO public.change_feed OVERRIDING SYSTEM VALUE VALUES (6, 1795285562171716, 'store', '01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-b33b-7796-8072-d01d21bfac71');
INSERT INTO public.change_feed OVERRIDING SYSTEM VALUE VALUES (7, 1795285562679713, 'store', '01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-b33b-7796-8072-d01d21bfac71');

INSERT INTO public.credential VALUES ('\xd7335718e5f69d545428c38ecb116383bc482fa1c8ad20db0035b65239360a07', '01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-91c7-7cc6-a9f8-fa9efeea610b');

INSERT INTO public.directory VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-926c-74ca-b32e-27b596e1c7ec', '/notes/', '/', 'notes', 2, 29, 2);
INSERT INTO public.directory VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-926c-74ca-b32e-27b596e1c7ec', '/', '/', '', 4, 45, 3);
INSERT INTO public.directory VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-b1a3-7607-89f1-9f352e7c18e4', '/', '/', '', 1, 14, 1);
INSERT INTO public.directory VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-b33b-7796-8072-d01d21bfac71', '/', '/', '', 1, 18, 1);

INSERT INTO public.idempotency VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '\xce997c9b1ad66f579a21e255c03e9f2d7b361e0c9857d37fd5133b2ed96625d9', '\x54aead42403013230a165446fd36115233d601ac7cb4381e3ee682b818723864', '01a1ff5b-b107-75d1-8c1e-dba8b9986590', '01a1ff5b-926c-74ca-b32e-27b596e1c7ec', 10, 1795285561679645);

INSERT INTO public.job VALUES ('drain-deletions', NULL, 1795285620359717, 1, NULL);

INSERT INTO public.job_run VALUES ('drain-deletions', 1795285560000000, 1795285560359717, 1795285560599647, '{"failed": 0, "removed": 0}', NULL);

INSERT INTO public.memory VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-926c-74ca-b32e-27b596e1c7ec', '01a1ff5b-a98d-7bc7-9ed7-54a63c07909d', '/notes/today.md', '/notes/', 'today.md', 3, '01a1ff5b-acb3-748f-a942-accb4c1c39fb', '01a1ff5b-acb3-748f-a942-accb4c1c39fb', 20, '\xb64099781582bfd8e9097b0fa057b794d7ff8d16d9a11d8c23d88341925ec346', '# Today', false, 1795285560043627, 1795285560567611, NULL, NULL, NULL);
INSERT INTO public.memory VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-926c-74ca-b32e-27b596e1c7ec', '01a1ff5b-ad47-7207-a5bd-deed6bddd2c8', '/notes/kept.md', '/notes/', 'kept.md', 5, '01a1ff5b-add3-7b14-b892-82f66e278ce9', '01a1ff5b-ad47-7c44-a87c-15fb3602aea9', 9, '\x081af0d24c3dfc715ea2dd6346506fca583e609566bc1a9b5410d99591813830', 'it moves', false, 1795285560675626, 1795285560787638, NULL, NULL, NULL);
INSERT INTO public.memory VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-926c-74ca-b32e-27b596e1c7ec', '01a1ff5b-adeb-7b82-b98c-a0146681b5a3', '/gone.md', '/', 'gone.md', 7, '01a1ff5b-ae5b-7be1-a2d1-b6df0e3766d4', NULL, NULL, NULL, NULL, false, 1795285560843682, 1795285560923640, 1795285560923640, NULL, NULL);
INSERT INTO public.memory VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-926c-74ca-b32e-27b596e1c7ec', '01a1ff5b-aeaf-7f9b-b529-29aaa3a71d28', '/secret.md', '/', 'secret.md', 9, '01a1ff5b-aed4-7020-8c36-c7882e3a3a71', '01a1ff5b-aed4-7020-8c36-c7882e3a3a71', 12, '\xe78e242b9562832378094b9975a8e2bb04602d7325e6933febf9ba320f3eb28a', 'what is left', true, 1795285561015608, 1795285561063615, NULL, NULL, NULL);
INSERT INTO public.memory VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-926c-74ca-b32e-27b596e1c7ec', '01a1ff5b-b107-75d1-8c1e-dba8b9986590', '/once.md', '/', 'once.md', 10, '01a1ff5b-b107-716f-85a2-bd5cfab33731', '01a1ff5b-b107-716f-85a2-bd5cfab33731', 4, '\x200651a8b2d5912f692db89468a7d47d86a3ed6844f48f1b15f2be1d9c9a7e5e', 'once', false, 1795285561679645, 1795285561679645, NULL, NULL, NULL);
INSERT INTO public.memory VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-b1a3-7607-89f1-9f352e7c18e4', '01a1ff5b-b26f-766c-b869-7a639a3fbc7f', '/a.md', '/', 'a.md', 1, '01a1ff5b-b26f-7878-8cfc-7b69f44ff42d', '01a1ff5b-b26f-7878-8cfc-7b69f44ff42d', 14, '\xb26b0b9fdda637ed908198242405d9a1e6c67c568e4faa33746362f4d1d3cbcb', 'in the archive', false, 1795285562091745, 1795285562091745, NULL, NULL, NULL);
INSERT INTO public.memory VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-b33b-7796-8072-d01d21bfac71', '01a1ff5b-b3c1-76fe-97e4-4771c8377cdb', '/a.md', '/', 'a.md', 1, '01a1ff5b-b3c1-76cc-ad91-a0eee74c1879', '01a1ff5b-b3c1-76cc-ad91-a0eee74c1879', 18, '\x0a014bc68e620ba169f9955e5545d3963defa9200bf1e0b0bcf38e947d2aaedb', 'in a deleted store', false, 1795285562531807, 1795285562531807, NULL, NULL, NULL);

INSERT INTO public.memory_access VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-926c-74ca-b32e-27b596e1c7ec', '01a1ff5b-a98d-7bc7-9ed7-54a63c07909d', 1795285562847656, 'apikey_01M7ZNQ4E7FK3AKY7TKVZEMR8B', 1795285562847656);
INSERT INTO public.memory_access VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-926c-74ca-b32e-27b596e1c7ec', '01a1ff5b-ad47-7207-a5bd-deed6bddd2c8', 1795285562883793, 'apikey_01M7ZNQ4E7FK3AKY7TKVZEMR8B', 1795285562883793);

INSERT INTO public.replica VALUES ('01a1ff5b-92b0-72e9-9e04-651339863d67', 'all', 1795285563739646, 1795285563643817);

INSERT INTO public.store VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-926c-74ca-b32e-27b596e1c7ec', 'notes', '', '{}', 'off', NULL, NULL, 10, 1795285561679645, 1, 4, 45, 1048590, 10, 76, 0, 1795285553772634, 1795285553772634, NULL, NULL);
INSERT INTO public.store VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-b1a3-7607-89f1-9f352e7c18e4', 'archived', '', '{"team": "red"}', 'off', NULL, NULL, 1, 1795285562091745, 0, 1, 14, 1048590, 1, 14, 0, 1795285561763792, 1795285562115750, 1795285562115750, NULL);
INSERT INTO public.store VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-b33b-7796-8072-d01d21bfac71', 'deleted', '', '{}', 'off', NULL, NULL, 1, 1795285562531807, 1, 1, 18, 0, 1, 18, 0, 1795285562171716, 1795285562171716, NULL, 1795285562679713);

INSERT INTO public.tenant VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', NULL, 'previous', 'active', '{}', 2, 2097180, 1795285552851744);

INSERT INTO public.version VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-926c-74ca-b32e-27b596e1c7ec', 1, '01a1ff5b-a98d-7707-ac85-6384ddeb7dd2', '01a1ff5b-a98d-7bc7-9ed7-54a63c07909d', NULL, 'created', '/notes/today.md', '01a1ff5b-a98d-7707-ac85-6384ddeb7dd2', 14, '\xb6285c57e8797db5d4c51c80d6f11938afda9b11c6a003549709189e9b4b92a2', 1795285560043627, 'api_actor', 'apikey_01M7ZNQ4E7FK3AKY7TKVZEMR8B', NULL, NULL, NULL);
INSERT INTO public.version VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-926c-74ca-b32e-27b596e1c7ec', 2, '01a1ff5b-ab3f-7b38-aeea-c1572476536f', '01a1ff5b-a98d-7bc7-9ed7-54a63c07909d', 1, 'modified', '/notes/today.md', '01a1ff5b-ab3f-7b38-aeea-c1572476536f', 12, '\xbc85caa9b61bcf3a54ccfc800e2b0eda6c11fa5df4e0481c896d31cda2462eb2', 1795285560139613, 'api_actor', 'apikey_01M7ZNQ4E7FK3AKY7TKVZEMR8B', NULL, NULL, NULL);
INSERT INTO public.version VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-926c-74ca-b32e-27b596e1c7ec', 3, '01a1ff5b-acb3-748f-a942-accb4c1c39fb', '01a1ff5b-a98d-7bc7-9ed7-54a63c07909d', 2, 'modified', '/notes/today.md', '01a1ff5b-acb3-748f-a942-accb4c1c39fb', 20, '\xb64099781582bfd8e9097b0fa057b794d7ff8d16d9a11d8c23d88341925ec346', 1795285560567611, 'api_actor', 'apikey_01M7ZNQ4E7FK3AKY7TKVZEMR8B', NULL, NULL, NULL);
INSERT INTO public.version VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-926c-74ca-b32e-27b596e1c7ec', 4, '01a1ff5b-ad47-7c44-a87c-15fb3602aea9', '01a1ff5b-ad47-7207-a5bd-deed6bddd2c8', NULL, 'created', '/moved.md', '01a1ff5b-ad47-7c44-a87c-15fb3602aea9', 9, '\x081af0d24c3dfc715ea2dd6346506fca583e609566bc1a9b5410d99591813830', 1795285560675626, 'api_actor', 'apikey_01M7ZNQ4E7FK3AKY7TKVZEMR8B', NULL, NULL, NULL);
INSERT INTO public.version VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-926c-74ca-b32e-27b596e1c7ec', 5, '01a1ff5b-add3-7b14-b892-82f66e278ce9', '01a1ff5b-ad47-7207-a5bd-deed6bddd2c8', 4, 'modified', '/notes/kept.md', '01a1ff5b-ad47-7c44-a87c-15fb3602aea9', 9, '\x081af0d24c3dfc715ea2dd6346506fca583e609566bc1a9b5410d99591813830', 1795285560787638, 'api_actor', 'apikey_01M7ZNQ4E7FK3AKY7TKVZEMR8B', NULL, NULL, NULL);
INSERT INTO public.version VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-926c-74ca-b32e-27b596e1c7ec', 6, '01a1ff5b-adeb-711f-a016-f5d69f310a30', '01a1ff5b-adeb-7b82-b98c-a0146681b5a3', NULL, 'created', '/gone.md', '01a1ff5b-adeb-711f-a016-f5d69f310a30', 5, '\x4b9f2c32577beb1ebc8ab2a1e226faaa9176a81cd4eedbaa22f8a0db919972b5', 1795285560843682, 'api_actor', 'apikey_01M7ZNQ4E7FK3AKY7TKVZEMR8B', NULL, NULL, NULL);
INSERT INTO public.version VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-926c-74ca-b32e-27b596e1c7ec', 7, '01a1ff5b-ae5b-7be1-a2d1-b6df0e3766d4', '01a1ff5b-adeb-7b82-b98c-a0146681b5a3', 6, 'deleted', '/gone.md', NULL, NULL, NULL, 1795285560923640, 'api_actor', 'apikey_01M7ZNQ4E7FK3AKY7TKVZEMR8B', NULL, NULL, NULL);
INSERT INTO public.version VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-926c-74ca-b32e-27b596e1c7ec', 9, '01a1ff5b-aed4-7020-8c36-c7882e3a3a71', '01a1ff5b-aeaf-7f9b-b529-29aaa3a71d28', 8, 'modified', '/secret.md', '01a1ff5b-aed4-7020-8c36-c7882e3a3a71', 12, '\xe78e242b9562832378094b9975a8e2bb04602d7325e6933febf9ba320f3eb28a', 1795285561063615, 'api_actor', 'apikey_01M7ZNQ4E7FK3AKY7TKVZEMR8B', NULL, NULL, NULL);
INSERT INTO public.version VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-926c-74ca-b32e-27b596e1c7ec', 8, '01a1ff5b-aeaf-7ae3-bd1e-aa217f82b692', '01a1ff5b-aeaf-7f9b-b529-29aaa3a71d28', NULL, 'created', NULL, NULL, NULL, NULL, 1795285561015608, 'api_actor', 'apikey_01M7ZNQ4E7FK3AKY7TKVZEMR8B', 1795285561143629, 'apikey_01M7ZNQ4E7FK3AKY7TKVZEMR8B', 'api_actor');
INSERT INTO public.version VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-926c-74ca-b32e-27b596e1c7ec', 10, '01a1ff5b-b107-716f-85a2-bd5cfab33731', '01a1ff5b-b107-75d1-8c1e-dba8b9986590', NULL, 'created', '/once.md', '01a1ff5b-b107-716f-85a2-bd5cfab33731', 4, '\x200651a8b2d5912f692db89468a7d47d86a3ed6844f48f1b15f2be1d9c9a7e5e', 1795285561679645, 'api_actor', 'apikey_01M7ZNQ4E7FK3AKY7TKVZEMR8B', NULL, NULL, NULL);
INSERT INTO public.version VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-b1a3-7607-89f1-9f352e7c18e4', 1, '01a1ff5b-b26f-7878-8cfc-7b69f44ff42d', '01a1ff5b-b26f-766c-b869-7a639a3fbc7f', NULL, 'created', '/a.md', '01a1ff5b-b26f-7878-8cfc-7b69f44ff42d', 14, '\xb26b0b9fdda637ed908198242405d9a1e6c67c568e4faa33746362f4d1d3cbcb', 1795285562091745, 'api_actor', 'apikey_01M7ZNQ4E7FK3AKY7TKVZEMR8B', NULL, NULL, NULL);
INSERT INTO public.version VALUES ('01a1ff5b-8ed3-786e-8efb-050af9cb23b9', '01a1ff5b-b33b-7796-8072-d01d21bfac71', 1, '01a1ff5b-b3c1-76cc-ad91-a0eee74c1879', '01a1ff5b-b3c1-76fe-97e4-4771c8377cdb', NULL, 'created', '/a.md', '01a1ff5b-b3c1-76cc-ad91-a0eee74c1879', 18, '\x0a014bc68e620ba169f9955e5545d3963defa9200bf1e0b0bcf38e947d2aaedb', 1795285562531807, 'api_actor', 'apikey_01M7ZNQ4E7FK3AKY7TKVZEMR8B', NULL, NULL, NULL);

SELECT pg_catalog.setval('public.change_feed_seq_seq', 7, true);

ALTER TABLE ONLY public._sqlx_migrations
    ADD CONSTRAINT _sqlx_migrations_pkey PRIMARY KEY (version);

ALTER TABLE ONLY public.api_key
    ADD CONSTRAINT api_key_pkey PRIMARY KEY (tenant_id, api_key_id);

ALTER TABLE ONLY public.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (tenant_id, id);

ALTER TABLE ONLY public.blob_deletion
    ADD CONSTRAINT blob_deletion_pkey PRIMARY KEY (tenant_id, store_id, blob_id);

ALTER TABLE ONLY public.change_feed
    ADD CONSTRAINT change_feed_pkey PRIMARY KEY (seq);

ALTER TABLE ONLY public.credential
    ADD CONSTRAINT credential_pkey PRIMARY KEY (secret_sha256);

ALTER TABLE ONLY public.directory
    ADD CONSTRAINT directory_pkey PRIMARY KEY (tenant_id, store_id, path);

ALTER TABLE ONLY public.erasure
    ADD CONSTRAINT erasure_pkey PRIMARY KEY (tenant_id, id);

ALTER TABLE ONLY public.idempotency
    ADD CONSTRAINT idempotency_pkey PRIMARY KEY (tenant_id, scope_sha256);

ALTER TABLE ONLY public.job
    ADD CONSTRAINT job_pkey PRIMARY KEY (name);

ALTER TABLE ONLY public.job_run
    ADD CONSTRAINT job_run_pkey PRIMARY KEY (name, slot);

ALTER TABLE ONLY public.memory_access
    ADD CONSTRAINT memory_access_pkey PRIMARY KEY (tenant_id, store_id, memory_id);

ALTER TABLE ONLY public.memory
    ADD CONSTRAINT memory_pkey PRIMARY KEY (tenant_id, store_id, memory_id);

ALTER TABLE ONLY public.operator_audit
    ADD CONSTRAINT operator_audit_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.replica
    ADD CONSTRAINT replica_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.search_doc
    ADD CONSTRAINT search_doc_pkey PRIMARY KEY (tenant_id, store_id, memory_id);

ALTER TABLE ONLY public.server_secret
    ADD CONSTRAINT server_secret_pkey PRIMARY KEY (kid);

ALTER TABLE ONLY public.store
    ADD CONSTRAINT store_pkey PRIMARY KEY (tenant_id, store_id);

ALTER TABLE ONLY public.tenant
    ADD CONSTRAINT tenant_external_id_key UNIQUE (external_id);

ALTER TABLE ONLY public.tenant
    ADD CONSTRAINT tenant_pkey PRIMARY KEY (tenant_id);

ALTER TABLE ONLY public.version
    ADD CONSTRAINT version_pkey PRIMARY KEY (tenant_id, store_id, seq);

CREATE INDEX blob_deletion_due ON public.blob_deletion USING btree (not_before);

CREATE INDEX directory_children ON public.directory USING btree (tenant_id, store_id, parent, path);

CREATE INDEX directory_parent ON public.directory USING btree (tenant_id, store_id, parent, name);

CREATE INDEX memory_access_active ON public.memory_access USING btree (tenant_id, store_id, active_at);

CREATE INDEX memory_parent ON public.memory USING btree (tenant_id, store_id, parent, name) WHERE (deleted_at IS NULL);

CREATE UNIQUE INDEX memory_path ON public.memory USING btree (tenant_id, store_id, path) WHERE (deleted_at IS NULL);

CREATE INDEX store_created ON public.store USING btree (tenant_id, created_at, store_id);

CREATE INDEX store_deleted ON public.store USING btree (deleted_at) WHERE (deleted_at IS NOT NULL);

CREATE INDEX version_actor ON public.version USING btree (tenant_id, store_id, actor_id, seq);

CREATE UNIQUE INDEX version_id ON public.version USING btree (tenant_id, store_id, version_id);

CREATE INDEX version_memory ON public.version USING btree (tenant_id, store_id, memory_id, seq);

CREATE INDEX version_op ON public.version USING btree (tenant_id, store_id, op, seq) WHERE (op <> 'modified'::text);

CREATE INDEX version_shared_blob ON public.version USING btree (tenant_id, store_id, blob_id) WHERE (blob_id <> version_id);

ALTER TABLE public.api_key ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.audit ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.blob_deletion ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.directory ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.erasure ENABLE ROW LEVEL SECURITY;

CREATE POLICY every_tenant ON public.api_key TO keepsake_jobs USING (true);

CREATE POLICY every_tenant ON public.audit TO keepsake_jobs USING (true);

CREATE POLICY every_tenant ON public.blob_deletion TO keepsake_jobs USING (true);

CREATE POLICY every_tenant ON public.directory TO keepsake_jobs USING (true);

CREATE POLICY every_tenant ON public.erasure TO keepsake_jobs USING (true);

CREATE POLICY every_tenant ON public.idempotency TO keepsake_jobs USING (true);

CREATE POLICY every_tenant ON public.memory TO keepsake_jobs USING (true);

CREATE POLICY every_tenant ON public.memory_access TO keepsake_jobs USING (true);

CREATE POLICY every_tenant ON public.search_doc TO keepsake_jobs USING (true);

CREATE POLICY every_tenant ON public.store TO keepsake_jobs USING (true);

CREATE POLICY every_tenant ON public.tenant TO keepsake_jobs USING (true);

CREATE POLICY every_tenant ON public.version TO keepsake_jobs USING (true);

ALTER TABLE public.idempotency ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.memory ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.memory_access ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.search_doc ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.store ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.tenant ENABLE ROW LEVEL SECURITY;

CREATE POLICY tenant_only ON public.api_key TO keepsake_app USING ((tenant_id = (NULLIF(current_setting('keepsake.tenant'::text, true), ''::text))::uuid));

CREATE POLICY tenant_only ON public.audit TO keepsake_app USING ((tenant_id = (NULLIF(current_setting('keepsake.tenant'::text, true), ''::text))::uuid));

CREATE POLICY tenant_only ON public.blob_deletion TO keepsake_app USING ((tenant_id = (NULLIF(current_setting('keepsake.tenant'::text, true), ''::text))::uuid));

CREATE POLICY tenant_only ON public.directory TO keepsake_app USING ((tenant_id = (NULLIF(current_setting('keepsake.tenant'::text, true), ''::text))::uuid));

CREATE POLICY tenant_only ON public.erasure TO keepsake_app USING ((tenant_id = (NULLIF(current_setting('keepsake.tenant'::text, true), ''::text))::uuid));

CREATE POLICY tenant_only ON public.idempotency TO keepsake_app USING ((tenant_id = (NULLIF(current_setting('keepsake.tenant'::text, true), ''::text))::uuid));

CREATE POLICY tenant_only ON public.memory TO keepsake_app USING ((tenant_id = (NULLIF(current_setting('keepsake.tenant'::text, true), ''::text))::uuid));

CREATE POLICY tenant_only ON public.memory_access TO keepsake_app USING ((tenant_id = (NULLIF(current_setting('keepsake.tenant'::text, true), ''::text))::uuid));

CREATE POLICY tenant_only ON public.search_doc TO keepsake_app USING ((tenant_id = (NULLIF(current_setting('keepsake.tenant'::text, true), ''::text))::uuid));

CREATE POLICY tenant_only ON public.store TO keepsake_app USING ((tenant_id = (NULLIF(current_setting('keepsake.tenant'::text, true), ''::text))::uuid));

CREATE POLICY tenant_only ON public.tenant TO keepsake_app USING ((tenant_id = (NULLIF(current_setting('keepsake.tenant'::text, true), ''::text))::uuid));

CREATE POLICY tenant_only ON public.version TO keepsake_app USING ((tenant_id = (NULLIF(current_setting('keepsake.tenant'::text, true), ''::text))::uuid));

ALTER TABLE public.version ENABLE ROW LEVEL SECURITY;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.api_key TO keepsake_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.api_key TO keepsake_jobs;

GRANT SELECT,INSERT ON TABLE public.audit TO keepsake_app;
GRANT SELECT,INSERT,DELETE ON TABLE public.audit TO keepsake_jobs;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.blob_deletion TO keepsake_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.blob_deletion TO keepsake_jobs;

GRANT SELECT,INSERT ON TABLE public.change_feed TO keepsake_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.change_feed TO keepsake_jobs;

GRANT SELECT ON TABLE public.credential TO keepsake_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.credential TO keepsake_jobs;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.directory TO keepsake_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.directory TO keepsake_jobs;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.erasure TO keepsake_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.erasure TO keepsake_jobs;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.idempotency TO keepsake_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.idempotency TO keepsake_jobs;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.job TO keepsake_jobs;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.job_run TO keepsake_jobs;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.memory TO keepsake_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.memory TO keepsake_jobs;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.memory_access TO keepsake_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.memory_access TO keepsake_jobs;

GRANT SELECT,INSERT ON TABLE public.operator_audit TO keepsake_jobs;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.replica TO keepsake_jobs;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.search_doc TO keepsake_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.search_doc TO keepsake_jobs;

GRANT SELECT ON TABLE public.server_secret TO keepsake_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.server_secret TO keepsake_jobs;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.store TO keepsake_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.store TO keepsake_jobs;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.tenant TO keepsake_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.tenant TO keepsake_jobs;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.version TO keepsake_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.version TO keepsake_jobs;
