-- The time of a version after one of `p_last`: not an earlier one, unless that was given
-- by a clock that was more than a minute ahead.
CREATE FUNCTION time_of_version(p_now bigint, p_last bigint)
RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN p_last > p_now AND p_last <= p_now + 60000000 THEN p_last ELSE p_now END
$$;

-- Commits new content at one path: of a new memory, or of a memory that keeps its
-- path. This is the most frequent commit. It needs few statements and no arrays.
--
-- `p_expect` is the version of the memory that was read and `p_prev_seq` its
-- `seq`; both are NULL for a new memory. `d_path` are the directories above the
-- path whose counters change, the nearest first, each by `p_files` and `p_bytes`.
--
-- `p_expires` is a new expiry time, 0 for none, NULL if it stays.
-- `p_content` is NULL when the content is in an object store.
--
-- Returns the version's `seq`, the store's purge epoch, the version's time, and
-- the store's two columns about expiry. Returns NULL if the commit was not made:
-- then only `last_version_at` of the store may have changed, and the caller calls
-- `commit_changes`, which makes the commit or says why not. So every refusal is
-- written down once, in that function. With `p_skips_locked`, returns an empty array
-- and changes nothing if another transaction has the lock of the store, or there is
-- no such store.
--
-- The first statement locks the store, checks its limits and counts the version.
-- The result is one value, because Postgres would buffer a set of rows.
CREATE FUNCTION put_content(
    p_tenant uuid, p_store uuid, p_now bigint, p_actor_type text, p_actor_id text, p_replica uuid,
    p_memory_limit bigint, p_byte_limit bigint, p_scope bytea, p_request bytea, p_policy text,
    p_memory uuid, p_expect uuid, p_prev_seq bigint, p_version uuid, p_path text, p_parent text, p_name text,
    p_size bigint, p_sha256 bytea, p_first_line text, p_pinned boolean, p_expires bigint,
    p_content bytea, p_analyser bigint, p_length bigint, p_terms bytea,
    p_files bigint, p_bytes bigint, p_children bigint, d_path text[], p_skips_locked boolean
)
RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_store record;
    v_path text;
    v_setting text;
BEGIN
    v_setting := set_config('keepsake.tenant', p_tenant::text, true);
    IF p_skips_locked THEN
        PERFORM FROM store s WHERE s.tenant_id = p_tenant AND s.store_id = p_store FOR NO KEY UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN '{}';
        END IF;
    END IF;
    UPDATE store s
       SET seq = s.seq + 1, last_version_at = time_of_version(p_now, s.last_version_at),
           memory_count = s.memory_count + p_files, live_bytes = s.live_bytes + p_bytes,
           version_count = s.version_count + 1, version_bytes = s.version_bytes + p_size
     WHERE s.tenant_id = p_tenant AND s.store_id = p_store AND s.deleted_at IS NULL AND s.archived_at IS NULL
           AND (p_policy IS NULL OR s.policy = p_policy)
           AND (p_files = 0 OR s.memory_count < p_memory_limit)
           AND (p_bytes <= 0 OR s.live_bytes + p_bytes <= least(p_byte_limit, s.granted_bytes))
    RETURNING s.seq, s.last_version_at, s.purge_epoch, s.expires_unused_after, s.period_set_at INTO v_store;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;

    -- Separate statements see commits made before the lock was granted.
    <<attempt>>
    BEGIN
        IF p_expect IS NULL THEN
            PERFORM FROM memory m
             WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.path = p_path AND m.deleted_at IS NULL;
            EXIT attempt WHEN FOUND;
            -- A variable, because Postgres prefers another index for an expression.
            v_path := p_path || '/';
            PERFORM FROM directory d
             WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = v_path;
            EXIT attempt WHEN FOUND;
        END IF;
        PERFORM FROM blob_deletion b
         WHERE b.tenant_id = p_tenant AND b.store_id = p_store AND b.blob_id = p_version;
        EXIT attempt WHEN FOUND;
        IF p_scope IS NOT NULL THEN
            INSERT INTO idempotency (tenant_id, scope_sha256, request_sha256, object_id, store_id, version_seq, created_at)
            VALUES (p_tenant, p_scope, p_request, p_memory, p_store, v_store.seq, p_now)
            ON CONFLICT DO NOTHING;
            EXIT attempt WHEN NOT FOUND;
        END IF;

        IF p_expect IS NOT NULL THEN
            UPDATE memory m
               SET head_seq = v_store.seq, version_id = p_version, blob_id = p_version, size_bytes = p_size,
                   sha256 = p_sha256, first_line = p_first_line, pinned = coalesce(p_pinned, m.pinned),
                   expires_at = nullif(coalesce(p_expires, m.expires_at), 0), updated_at = v_store.last_version_at, claimed_by = nullif(m.claimed_by, p_replica)
             WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = p_memory
                   AND m.version_id = p_expect AND m.path = p_path AND m.deleted_at IS NULL;
            EXIT attempt WHEN NOT FOUND;
        END IF;
        FOREACH v_path IN ARRAY d_path LOOP
            UPDATE directory d
               SET files = d.files + p_files, bytes = d.bytes + p_bytes,
                   visible_children = d.visible_children + CASE WHEN v_path = p_parent THEN p_children ELSE 0 END
             WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = v_path;
            -- The parent directory does not exist yet. An ancestor may be a file:
            -- `commit_changes` checks that.
            EXIT attempt WHEN NOT FOUND AND p_expect IS NULL AND v_path = p_parent;
        END LOOP;
        INSERT INTO version (tenant_id, store_id, seq, version_id, memory_id, prev_seq, op, path, blob_id,
                             size_bytes, sha256, created_at, actor_type, actor_id)
        VALUES (p_tenant, p_store, v_store.seq, p_version, p_memory, p_prev_seq,
                CASE WHEN p_expect IS NULL THEN 'created' ELSE 'modified' END, p_path, p_version,
                p_size, p_sha256, v_store.last_version_at, p_actor_type, p_actor_id);
        IF p_expect IS NULL THEN
            INSERT INTO memory (tenant_id, store_id, memory_id, path, parent, name, head_seq, version_id, blob_id,
                                size_bytes, sha256, first_line, pinned, expires_at, created_at, updated_at)
            VALUES (p_tenant, p_store, p_memory, p_path, p_parent, p_name, v_store.seq, p_version, p_version,
                    p_size, p_sha256, p_first_line, coalesce(p_pinned, false), nullif(p_expires, 0),
                    v_store.last_version_at, v_store.last_version_at);
        END IF;
        IF p_content IS NOT NULL THEN
            INSERT INTO content (tenant_id, store_id, blob_id, bytes)
            VALUES (p_tenant, p_store, p_version, p_content);
        END IF;
        IF p_terms IS NOT NULL AND p_expect IS NULL THEN
            INSERT INTO search_doc (tenant_id, store_id, memory_id, blob_id, analyser, length, terms)
            VALUES (p_tenant, p_store, p_memory, p_version, p_analyser, p_length, p_terms);
        ELSIF p_terms IS NOT NULL THEN
            INSERT INTO search_doc (tenant_id, store_id, memory_id, blob_id, analyser, length, terms)
            VALUES (p_tenant, p_store, p_memory, p_version, p_analyser, p_length, p_terms)
            ON CONFLICT (tenant_id, store_id, memory_id) DO UPDATE
               SET blob_id = excluded.blob_id, analyser = excluded.analyser, length = excluded.length,
                   terms = excluded.terms;
        END IF;
        RETURN ARRAY[v_store.seq, v_store.purge_epoch, v_store.last_version_at,
                     v_store.expires_unused_after, v_store.period_set_at];
    END;

    -- Undo the first statement, except `last_version_at`. There is nothing to make
    -- durable, so the transaction does not wait for a flush. The setting lasts until
    -- the end of the transaction; `put_contents` takes it back.
    v_setting := set_config('synchronous_commit', 'off', true);
    UPDATE store s
       SET seq = s.seq - 1, memory_count = s.memory_count - p_files, live_bytes = s.live_bytes - p_bytes,
           version_count = s.version_count - 1, version_bytes = s.version_bytes - p_size
     WHERE s.tenant_id = p_tenant AND s.store_id = p_store;
    IF p_scope IS NOT NULL THEN
        DELETE FROM idempotency i
         WHERE i.tenant_id = p_tenant AND i.scope_sha256 = p_scope AND i.store_id = p_store
               AND i.object_id = p_memory AND i.version_seq = v_store.seq;
    END IF;
    RETURN NULL;
END
$$;

-- Commits new content at several paths, also of several stores and tenants, each as
-- `put_content` does and whatever becomes of the others, with one flush. One element of
-- the arrays for each commit. `d_path` has the directories of all, and `c_directories`
-- how many of them each has.
--
-- With `p_skips_locked`, it waits for no lock of a store. Two calls can then wait for
-- each other only with idempotency keys that both have, and the caller sorts by them.
--
-- Returns a row for each commit that was made (`committed`), and for each whose store
-- was locked (`locked`).
CREATE FUNCTION put_contents(
    p_skips_locked boolean, c_tenant uuid[], c_store uuid[], c_now bigint[], c_actor_type text[], c_actor_id text[],
    c_replica uuid[], c_memory_limit bigint[], c_byte_limit bigint[], c_scope bytea[], c_request bytea[],
    c_policy text[], c_memory uuid[], c_expect uuid[], c_prev_seq bigint[], c_version uuid[], c_path text[],
    c_parent text[], c_name text[], c_size bigint[], c_sha256 bytea[], c_first_line text[], c_pinned boolean[],
    c_expires bigint[], c_content bytea[], c_analyser bigint[], c_length bigint[], c_terms bytea[],
    c_files bigint[], c_bytes bigint[], c_children bigint[], c_directories integer[], d_path text[]
)
RETURNS TABLE (
    element bigint, outcome text, seq bigint, measured bigint, made_at bigint, expires_unused_after bigint,
    period_set_at bigint
)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_durability text := current_setting('synchronous_commit');
    v_directories integer := 0;
    v_is_same_store boolean;
    v_is_locked boolean := false;
    v_made bigint[];
    v_setting text;
    v_any boolean := false;
BEGIN
    FOR i IN 1 .. cardinality(c_version) LOOP
        v_is_same_store := i > 1 AND c_tenant[i] = c_tenant[i - 1] AND c_store[i] = c_store[i - 1];
        -- A store that was locked is not asked for again.
        IF NOT (v_is_same_store AND v_is_locked) THEN
            v_made := put_content(
                c_tenant[i], c_store[i], c_now[i], c_actor_type[i], c_actor_id[i], c_replica[i],
                c_memory_limit[i], c_byte_limit[i], c_scope[i], c_request[i], c_policy[i],
                c_memory[i], c_expect[i], c_prev_seq[i], c_version[i], c_path[i], c_parent[i],
                c_name[i], c_size[i], c_sha256[i], c_first_line[i], c_pinned[i], c_expires[i],
                c_content[i], c_analyser[i], c_length[i], c_terms[i],
                c_files[i], c_bytes[i], c_children[i],
                d_path[v_directories + 1 : v_directories + c_directories[i]],
                p_skips_locked AND NOT v_is_same_store
            );
            v_is_locked := coalesce(cardinality(v_made) = 0, false);
        END IF;
        v_directories := v_directories + c_directories[i];
        CONTINUE WHEN v_made IS NULL;
        v_any := v_any OR NOT v_is_locked;
        element := i - 1;
        outcome := CASE WHEN v_is_locked THEN 'locked' ELSE 'committed' END;
        seq := v_made[1];
        measured := v_made[2];
        made_at := v_made[3];
        expires_unused_after := v_made[4];
        period_set_at := v_made[5];
        RETURN NEXT;
    END LOOP;
    IF v_any THEN
        v_setting := set_config('synchronous_commit', v_durability, true);
    END IF;
END
$$;

-- Commits any number of changes of memories of one store: locks the store, checks,
-- then writes. Nothing is written unless the outcome is `committed`.
--
--   c_…         one element per change. `c_expect` is the version that was read.
--               A change that is `created` and has a `c_expect` restores a deleted
--               memory: `c_expect` is the version that deleted it. `c_terms` are
--               the search terms of new content, NULL where the content stays.
--               `c_expires` is a new expiry time, 0 for none, NULL where it stays.
--               A deletion always removes it.
--   k_…         memories that get no version: `k_expect` is the version that was read,
--               `k_pinned` the new pin, NULL where it stays, `k_expires` as `c_expires`
--   n_path      paths that a change takes; they must be free
--   n_ancestor  directories above those paths; they must not be files
--   d_…         how the counters of each directory change
--
-- The checks are separate statements after the lock, so that they see commits
-- made before the lock was granted; a single statement would not. Rows
-- are found one at a time, each by its whole key, so that the plan is the same for
-- one change and for ten thousand, with and without statistics.
CREATE FUNCTION commit_changes(
    p_tenant uuid, p_store uuid, p_now bigint, p_actor_type text, p_actor_id text, p_replica uuid,
    p_memory_limit bigint, p_byte_limit bigint,
    p_scope bytea, p_request bytea, p_replay_since bigint,
    p_guard_directory text, p_guard_files bigint, p_purge_epoch bigint, p_policy text,
    p_count_delta bigint, p_byte_delta bigint, p_directories_may_go boolean,
    c_op text[], c_memory uuid[], c_expect uuid[], c_version uuid[], c_path text[], c_parent text[], c_name text[],
    c_blob uuid[], c_size bigint[], c_sha256 bytea[], c_first_line text[], c_pinned boolean[],
    c_expires bigint[],
    c_content bytea[], c_analyser bigint[], c_length bigint[], c_terms bytea[],
    k_memory uuid[], k_expect uuid[], k_pinned boolean[], k_expires bigint[], p_results text,
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
    -- An assignment calls set_config without running a query; the other functions
    -- do the same.
    v_setting := set_config('keepsake.tenant', p_tenant::text, true);
    SELECT s.seq, s.last_version_at, s.memory_count, s.live_bytes, s.granted_bytes, s.archived_at,
           s.purge_epoch, s.policy, s.expires_unused_after, s.period_set_at INTO v_store
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
    IF v_store.archived_at IS NOT NULL AND (NOT c_op <@ ARRAY['deleted'] OR cardinality(k_memory) > 0) THEN
        outcome := 'archived';
        RETURN NEXT;
        RETURN;
    END IF;

    -- History was removed since the read, so content of older versions may be gone;
    -- or the policy changed, and the new content was checked against the old policy.
    IF p_purge_epoch <> v_store.purge_epoch OR p_policy <> v_store.policy THEN
        outcome := 'stale';
        RETURN NEXT;
        RETURN;
    END IF;
    -- Compare-and-set: no head has changed since it was read.
    FOR i IN 1 .. v_changes LOOP
        CONTINUE WHEN c_expect[i] IS NULL;
        -- Without `deleted_at IS NULL`, so that only the primary key fits.
        SELECT m.version_id, m.deleted_at INTO v_head FROM memory m
         WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = c_memory[i];
        IF NOT FOUND OR v_head.version_id <> c_expect[i]
           OR (v_head.deleted_at IS NOT NULL) <> (c_op[i] = 'created') THEN
            outcome := 'stale';
            RETURN NEXT;
            RETURN;
        END IF;
    END LOOP;
    FOR i IN 1 .. cardinality(k_memory) LOOP
        SELECT m.version_id, m.deleted_at INTO v_head FROM memory m
         WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = k_memory[i];
        IF NOT FOUND OR v_head.version_id <> k_expect[i] OR v_head.deleted_at IS NOT NULL THEN
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
        -- A variable, because Postgres prefers another index for an expression.
        v_path := v_path || '/';
        SELECT 'directory', NULL, d.path INTO outcome, object_id, path FROM directory d
         WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = v_path;
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

    -- All checks have passed.
    v_at := time_of_version(p_now, v_store.last_version_at);
    FOR i IN 1 .. cardinality(k_memory) LOOP
        CONTINUE WHEN k_pinned[i] IS NULL AND k_expires[i] IS NULL;
        UPDATE memory m
           SET pinned = coalesce(k_pinned[i], m.pinned),
               expires_at = nullif(coalesce(k_expires[i], m.expires_at), 0)
         WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = k_memory[i];
    END LOOP;
    FOR i IN 1 .. v_changes LOOP
        INSERT INTO version (tenant_id, store_id, seq, version_id, memory_id, prev_seq, op, path, blob_id,
                             size_bytes, sha256, created_at, actor_type, actor_id)
        VALUES (p_tenant, p_store, v_store.seq + i, c_version[i], c_memory[i],
                (SELECT m.head_seq FROM memory m
                  WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = c_memory[i]),
                c_op[i], c_path[i], c_blob[i], c_size[i], c_sha256[i], v_at, p_actor_type, p_actor_id);
        IF c_op[i] = 'created' AND c_expect[i] IS NULL THEN
            INSERT INTO memory (tenant_id, store_id, memory_id, path, parent, name, head_seq, version_id, blob_id,
                                size_bytes, sha256, first_line, pinned, expires_at, created_at, updated_at)
            VALUES (p_tenant, p_store, c_memory[i], c_path[i], c_parent[i], c_name[i], v_store.seq + i,
                    c_version[i], c_blob[i], c_size[i], c_sha256[i], c_first_line[i],
                    coalesce(c_pinned[i], false), nullif(c_expires[i], 0), v_at, v_at);
        ELSE
            UPDATE memory m
               SET path = c_path[i], parent = c_parent[i], name = c_name[i], head_seq = v_store.seq + i,
                   version_id = c_version[i], blob_id = c_blob[i], size_bytes = c_size[i], sha256 = c_sha256[i],
                   first_line = CASE WHEN c_op[i] <> 'deleted' THEN coalesce(c_first_line[i], m.first_line) END,
                   pinned = coalesce(c_pinned[i], m.pinned),
                   expires_at = CASE WHEN c_op[i] <> 'deleted' THEN nullif(coalesce(c_expires[i], m.expires_at), 0) END,
                   updated_at = v_at,
                   deleted_at = CASE WHEN c_op[i] = 'deleted' THEN v_at END,
                   claimed_by = nullif(m.claimed_by, p_replica)
             WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = c_memory[i];
        END IF;
        IF c_content[i] IS NOT NULL THEN
            INSERT INTO content (tenant_id, store_id, blob_id, bytes)
            VALUES (p_tenant, p_store, c_blob[i], c_content[i]);
        END IF;
        IF c_terms[i] IS NOT NULL THEN
            INSERT INTO search_doc (tenant_id, store_id, memory_id, blob_id, analyser, length, terms)
            VALUES (p_tenant, p_store, c_memory[i], c_blob[i], c_analyser[i], c_length[i], c_terms[i])
            ON CONFLICT (tenant_id, store_id, memory_id) DO UPDATE
               SET blob_id = excluded.blob_id, analyser = excluded.analyser, length = excluded.length,
                   terms = excluded.terms;
        ELSIF c_op[i] = 'deleted' THEN
            DELETE FROM search_doc d
             WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.memory_id = c_memory[i];
        END IF;
        IF c_blob[i] = c_version[i] THEN
            v_new_bytes := v_new_bytes + c_size[i];
        END IF;
    END LOOP;

    -- In path order, so that a parent exists before its children.
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
       SET seq = v_store.seq + v_changes,
           last_version_at = CASE WHEN v_changes > 0 THEN v_at ELSE s.last_version_at END,
           memory_count = s.memory_count + p_count_delta, live_bytes = s.live_bytes + p_byte_delta,
           version_count = s.version_count + v_changes, version_bytes = s.version_bytes + v_new_bytes
     WHERE s.tenant_id = p_tenant AND s.store_id = p_store;
    object_id := c_memory[1];
    IF p_scope IS NOT NULL THEN
        INSERT INTO idempotency (tenant_id, scope_sha256, request_sha256, object_id, store_id, version_seq, results,
                                 created_at)
        VALUES (p_tenant, p_scope, p_request, c_memory[1], p_store, v_store.seq + v_changes, p_results, p_now)
        ON CONFLICT (tenant_id, scope_sha256) DO UPDATE
           SET request_sha256 = excluded.request_sha256, object_id = excluded.object_id,
               store_id = excluded.store_id, version_seq = excluded.version_seq, results = excluded.results,
               created_at = excluded.created_at;
    END IF;
    outcome := 'committed';
    measured := v_store.purge_epoch;
    made_at := v_at;
    expires_unused_after := v_store.expires_unused_after;
    period_set_at := v_store.period_set_at;
    RETURN NEXT;
END
$$;
