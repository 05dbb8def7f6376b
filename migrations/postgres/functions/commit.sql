-- The time of a version after one of `p_last`: not an earlier one, unless that was given
-- by a clock that was more than a minute ahead.
CREATE FUNCTION time_of_version(p_now bigint, p_last bigint)
RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN p_last > p_now AND p_last <= p_now + 60000000 THEN p_last ELSE p_now END
$$;

-- The answer to a call that was made before under the same idempotency key; NULL: the
-- key is not recorded, or its record is not newer than `p_since`.
CREATE FUNCTION earlier_call(p_tenant uuid, p_scope bytea, p_request bytea, p_since bigint)
RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (
        SELECT CASE WHEN i.request_sha256 = p_request AND i.version_seq IS NOT NULL
                    THEN jsonb_build_object('outcome', 'replayed', 'seq', i.version_seq)
                    ELSE '{"outcome": "key_reused"}' END
          FROM idempotency i
         WHERE i.tenant_id = p_tenant AND i.scope_sha256 = p_scope AND i.created_at > p_since
    );
END
$$;

-- The parts of the document of a commit, which `crates/index/src/commit/document.rs` describes.
CREATE TYPE commit_document AS (
    now bigint, actor_type text, actor_id text, replica uuid, memory_limit bigint, byte_limit bigint, scope text,
    request text, since bigint, results text, guard_directory text, guard_files bigint, guard_path text,
    guard_version uuid, purge_epoch bigint, policy text, seq bigint,
    adds boolean, count_delta bigint, byte_delta bigint, version_bytes bigint, directories_may_go boolean, taken jsonb,
    ancestors jsonb, makes_room jsonb, replaced jsonb, directories jsonb, changes jsonb, kept jsonb
);
CREATE TYPE commit_change AS (
    op text, memory uuid, expect uuid, revives boolean, undoes uuid, version uuid, path text, parent text,
    name text, blob uuid, size bigint, sha256 text, first_line text, pinned boolean, expires bigint,
    content_from integer, content_for integer, analyser bigint, length bigint, terms_from integer, terms_for integer
);
CREATE TYPE directory_change AS (path text, parent text, name text, files bigint, bytes bigint, children bigint);

-- Makes a commit: locks the store, checks, then writes. Nothing is written unless the
-- outcome is `committed`. `p_bytes` are the contents and search terms of the document, one
-- after the other.
--
-- With `p_skips_locked`, the outcome is `locked` if another transaction has the lock of
-- the store, or there is no such store.
--
-- The checks are separate statements after the lock, so that they see commits
-- made before the lock was granted; a single statement would not. Rows
-- are found one at a time, each by its whole key, so that the plan is the same for
-- one change and for ten thousand, with and without statistics.
--
-- Each statement costs more than what it reads, so checks of one change share one, and arrays
-- are read by number: `FOR … IN SELECT` would be a statement, too.
CREATE FUNCTION commit_changes(p_tenant uuid, p_store uuid, p_commit jsonb, p_bytes bytea, p_skips_locked boolean)
RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_commit commit_document := jsonb_populate_record(NULL::commit_document, p_commit);
    v_change commit_change;
    v_kept commit_change;
    v_directory directory_change;
    v_changes integer := jsonb_array_length(v_commit.changes);
    v_scope bytea := decode(v_commit.scope, 'hex');
    v_seq bigint;
    v_at bigint;
    v_store record;
    v_found record;
    v_path text;
    v_child text;
    v_parent text;
    v_taken_directory text;
    v_has_new_parent boolean := false;
    v_outcome jsonb;
    v_is_condemned boolean := false;
    v_heads bigint[];
    v_setting text;
BEGIN
    -- An assignment calls set_config without running a query; the other functions
    -- do the same.
    v_setting := set_config('keepsake.tenant', p_tenant::text, true);
    IF p_skips_locked THEN
        SELECT s.seq, s.last_version_at, s.memory_count, s.live_bytes, s.granted_bytes, s.archived_at, s.deleted_at,
               s.purge_epoch, s.policy, s.expires_unused_after, s.period_set_at INTO v_store
          FROM store s
         WHERE s.tenant_id = p_tenant AND s.store_id = p_store
           FOR NO KEY UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN '{"outcome": "locked"}';
        END IF;
    ELSE
        SELECT s.seq, s.last_version_at, s.memory_count, s.live_bytes, s.granted_bytes, s.archived_at, s.deleted_at,
               s.purge_epoch, s.policy, s.expires_unused_after, s.period_set_at INTO v_store
          FROM store s
         WHERE s.tenant_id = p_tenant AND s.store_id = p_store
           FOR NO KEY UPDATE;
    END IF;
    IF v_store.seq IS NULL OR v_store.deleted_at IS NOT NULL THEN
        RETURN '{"outcome": "no_store"}';
    END IF;

    IF v_scope IS NOT NULL THEN
        v_outcome := earlier_call(p_tenant, v_scope, decode(v_commit.request, 'hex'), v_commit.since);
        IF v_outcome IS NOT NULL THEN
            RETURN v_outcome;
        END IF;
    END IF;
    IF v_store.archived_at IS NOT NULL AND v_commit.adds THEN
        RETURN '{"outcome": "archived"}';
    END IF;

    -- History was removed since the read, so content of older versions may be gone;
    -- or the policy changed, and the new content was checked against the old policy; or the
    -- outcome was tested on another state of the store.
    IF v_commit.purge_epoch <> v_store.purge_epoch OR v_commit.policy <> v_store.policy
       OR v_commit.seq <> v_store.seq THEN
        RETURN '{"outcome": "stale"}';
    END IF;
    -- Compare-and-set: no head has changed since it was read.
    FOR i IN 0 .. v_changes - 1 LOOP
        v_change := jsonb_populate_record(NULL::commit_change, v_commit.changes -> i);
        IF v_change.expect IS NULL THEN
            PERFORM FROM blob_deletion b
             WHERE b.tenant_id = p_tenant AND b.store_id = p_store AND b.blob_id = v_change.blob;
            v_is_condemned := v_is_condemned OR FOUND;
            CONTINUE;
        END IF;
        -- Without `deleted_at IS NULL`, so that only the primary key fits.
        SELECT m.head_seq, m.version_id, m.deleted_at, EXISTS (
                   SELECT FROM blob_deletion b
                    WHERE b.tenant_id = p_tenant AND b.store_id = p_store AND b.blob_id = v_change.blob
               ) AS is_condemned INTO v_found
          FROM memory m
         WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = v_change.memory;
        IF NOT FOUND OR v_found.version_id <> v_change.expect
           OR (v_found.deleted_at IS NOT NULL) <> v_change.revives THEN
            RETURN '{"outcome": "stale"}';
        END IF;
        v_is_condemned := v_is_condemned OR v_found.is_condemned;
        v_heads[i] := v_found.head_seq;
    END LOOP;
    FOR i IN 0 .. jsonb_array_length(v_commit.kept) - 1 LOOP
        v_kept := jsonb_populate_record(NULL::commit_change, v_commit.kept -> i);
        SELECT m.version_id, m.deleted_at INTO v_found FROM memory m
         WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = v_kept.memory;
        IF NOT FOUND OR v_found.version_id <> v_kept.expect OR v_found.deleted_at IS NOT NULL THEN
            RETURN '{"outcome": "stale"}';
        END IF;
    END LOOP;
    IF v_commit.guard_directory IS NOT NULL THEN
        PERFORM FROM directory d
         WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = v_commit.guard_directory
               AND d.files = v_commit.guard_files;
        IF NOT FOUND THEN
            RETURN '{"outcome": "stale"}';
        END IF;
    END IF;
    IF v_commit.guard_path IS NOT NULL THEN
        v_path := v_commit.guard_path;
        SELECT m.version_id INTO v_found FROM memory m
         WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.path = v_path AND m.deleted_at IS NULL;
        IF v_found.version_id IS DISTINCT FROM v_commit.guard_version THEN
            RETURN '{"outcome": "stale"}';
        END IF;
    END IF;

    FOR i IN 0 .. jsonb_array_length(v_commit.taken) - 1 LOOP
        v_path := v_commit.taken ->> i;
        -- Variables, because Postgres prefers another index for an expression.
        v_child := v_path || '/';
        v_parent := left(v_path, 1 - strpos(reverse(v_path), '/'));
        SELECT (SELECT m.memory_id FROM memory m
                 WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.path = v_path AND m.deleted_at IS NULL
               ) AS memory_id,
               EXISTS (SELECT FROM directory d
                        WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = v_child) AS is_directory,
               EXISTS (SELECT FROM directory d
                        WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = v_parent) AS has_parent
          INTO v_found;
        IF v_found.memory_id IS NOT NULL THEN
            RETURN jsonb_build_object('outcome', 'path_taken', 'path', v_path, 'memory_id', v_found.memory_id);
        END IF;
        IF v_found.is_directory THEN
            v_taken_directory := coalesce(v_taken_directory, v_child);
        END IF;
        v_has_new_parent := v_has_new_parent OR NOT v_found.has_parent;
    END LOOP;
    IF v_taken_directory IS NOT NULL THEN
        RETURN jsonb_build_object('outcome', 'path_is_directory', 'path', v_taken_directory);
    END IF;
    -- All files of a directory whose path is taken must leave it.
    FOR i IN 0 .. coalesce(jsonb_array_length(v_commit.replaced), 0) - 1 LOOP
        v_directory := jsonb_populate_record(NULL::directory_change, v_commit.replaced -> i);
        PERFORM FROM directory d
         WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = v_directory.path
               AND d.files <> v_directory.files;
        IF FOUND THEN
            RETURN jsonb_build_object('outcome', 'path_is_directory', 'path', v_directory.path);
        END IF;
    END LOOP;
    -- A directory that exists has no file in the place of a parent.
    IF v_has_new_parent THEN
        FOR i IN 0 .. jsonb_array_length(v_commit.ancestors) - 1 LOOP
            v_path := v_commit.ancestors ->> i;
            SELECT m.memory_id INTO v_found FROM memory m
             WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.path = v_path AND m.deleted_at IS NULL;
            IF FOUND THEN
                RETURN jsonb_build_object('outcome', 'parent_is_file', 'path', v_path, 'memory_id', v_found.memory_id);
            END IF;
        END LOOP;
    END IF;

    IF v_commit.count_delta > 0 AND v_store.memory_count + v_commit.count_delta > v_commit.memory_limit THEN
        RETURN jsonb_build_object('outcome', 'over_limit', 'limit', 'memories_per_store',
                                  'wanted', v_store.memory_count + v_commit.count_delta,
                                  'maximum', v_commit.memory_limit);
    END IF;
    IF v_commit.byte_delta > 0 AND v_store.live_bytes + v_commit.byte_delta > v_commit.byte_limit THEN
        RETURN jsonb_build_object('outcome', 'over_limit', 'limit', 'bytes_per_store',
                                  'wanted', v_store.live_bytes + v_commit.byte_delta,
                                  'maximum', v_commit.byte_limit);
    END IF;
    IF v_commit.byte_delta > 0 AND v_store.live_bytes + v_commit.byte_delta > v_store.granted_bytes THEN
        RETURN jsonb_build_object('outcome', 'needs_grant', 'size_bytes', v_store.live_bytes + v_commit.byte_delta);
    END IF;
    IF v_is_condemned THEN
        RETURN '{"outcome": "blob_condemned"}';
    END IF;

    v_at := time_of_version(v_commit.now, v_store.last_version_at);
    v_seq := v_store.seq + v_changes;
    IF v_scope IS NOT NULL THEN
        -- The first write: a commit of another store may have recorded the key meanwhile.
        INSERT INTO idempotency AS i (tenant_id, scope_sha256, request_sha256, object_id, store_id, version_seq,
                                      results, created_at)
        VALUES (p_tenant, v_scope, decode(v_commit.request, 'hex'), (v_commit.changes #>> '{0,memory}')::uuid, p_store, v_seq,
                v_commit.results, v_commit.now)
        ON CONFLICT (tenant_id, scope_sha256) DO UPDATE
           SET request_sha256 = excluded.request_sha256, object_id = excluded.object_id,
               store_id = excluded.store_id, version_seq = excluded.version_seq, results = excluded.results,
               created_at = excluded.created_at
         WHERE i.created_at <= v_commit.since;
        IF NOT FOUND THEN
            RETURN earlier_call(p_tenant, v_scope, decode(v_commit.request, 'hex'), v_commit.since);
        END IF;
    END IF;

    FOR i IN 0 .. jsonb_array_length(v_commit.kept) - 1 LOOP
        v_kept := jsonb_populate_record(NULL::commit_change, v_commit.kept -> i);
        CONTINUE WHEN v_kept.pinned IS NULL AND v_kept.expires IS NULL;
        UPDATE memory m
           SET pinned = coalesce(v_kept.pinned, m.pinned),
               expires_at = nullif(coalesce(v_kept.expires, m.expires_at), 0)
         WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = v_kept.memory;
    END LOOP;
    -- The index of paths holds no two memories of a path at any time. So memories that leave a
    -- path which another one takes go out of the index first; the update below puts them back.
    FOR i IN 0 .. coalesce(jsonb_array_length(v_commit.makes_room), 0) - 1 LOOP
        UPDATE memory m SET deleted_at = v_at
         WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = (v_commit.makes_room ->> i)::uuid;
    END LOOP;
    v_seq := v_store.seq;
    FOR i IN 0 .. v_changes - 1 LOOP
        -- The checks end with the last change.
        IF v_changes > 1 THEN
            v_change := jsonb_populate_record(NULL::commit_change, v_commit.changes -> i);
        END IF;
        v_seq := v_seq + 1;
        INSERT INTO version (tenant_id, store_id, seq, version_id, memory_id, prev_seq, op, path, blob_id,
                             size_bytes, sha256, created_at, actor_type, actor_id, undoes)
        VALUES (p_tenant, p_store, v_seq, v_change.version, v_change.memory,
                v_heads[i], v_change.op, v_change.path, v_change.blob, v_change.size, decode(v_change.sha256, 'hex'), v_at,
                v_commit.actor_type, v_commit.actor_id, v_change.undoes);
        IF v_change.expect IS NULL THEN
            INSERT INTO memory (tenant_id, store_id, memory_id, path, parent, name, head_seq, version_id, blob_id,
                                size_bytes, sha256, first_line, pinned, expires_at, created_at, updated_at)
            VALUES (p_tenant, p_store, v_change.memory, v_change.path, v_change.parent, v_change.name, v_seq,
                    v_change.version, v_change.blob, v_change.size, decode(v_change.sha256, 'hex'),
                    v_change.first_line, coalesce(v_change.pinned, false), nullif(v_change.expires, 0), v_at, v_at);
        ELSE
            UPDATE memory m
               SET path = v_change.path, parent = v_change.parent, name = v_change.name, head_seq = v_seq,
                   version_id = v_change.version, blob_id = v_change.blob, size_bytes = v_change.size,
                   sha256 = decode(v_change.sha256, 'hex'),
                   first_line = CASE WHEN v_change.op <> 'deleted' THEN coalesce(v_change.first_line, m.first_line) END,
                   pinned = coalesce(v_change.pinned, m.pinned),
                   expires_at = CASE WHEN v_change.op <> 'deleted'
                                THEN nullif(coalesce(v_change.expires, m.expires_at), 0) END,
                   updated_at = v_at,
                   deleted_at = CASE WHEN v_change.op = 'deleted' THEN v_at END,
                   claimed_by = nullif(m.claimed_by, v_commit.replica)
             WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = v_change.memory;
        END IF;
        IF v_change.content_from IS NOT NULL THEN
            INSERT INTO content (tenant_id, store_id, blob_id, bytes)
            VALUES (p_tenant, p_store, v_change.blob,
                    substring(p_bytes FROM v_change.content_from FOR v_change.content_for));
        END IF;
        IF v_change.terms_from IS NOT NULL THEN
            INSERT INTO search_doc (tenant_id, store_id, memory_id, blob_id, analyser, length, terms)
            VALUES (p_tenant, p_store, v_change.memory, v_change.blob, v_change.analyser, v_change.length,
                    substring(p_bytes FROM v_change.terms_from FOR v_change.terms_for))
            ON CONFLICT (tenant_id, store_id, memory_id) DO UPDATE
               SET blob_id = excluded.blob_id, analyser = excluded.analyser, length = excluded.length,
                   terms = excluded.terms;
        ELSIF v_change.op = 'deleted' THEN
            DELETE FROM search_doc d
             WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.memory_id = v_change.memory;
            DELETE FROM embedding e
             WHERE e.tenant_id = p_tenant AND e.store_id = p_store AND e.memory_id = v_change.memory;
        END IF;
    END LOOP;

    -- In path order, so that a parent exists before its children.
    FOR i IN 0 .. jsonb_array_length(v_commit.directories) - 1 LOOP
        v_directory := jsonb_populate_record(NULL::directory_change, v_commit.directories -> i);
        UPDATE directory d
           SET files = d.files + v_directory.files, bytes = d.bytes + v_directory.bytes,
               visible_children = d.visible_children + v_directory.children
         WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = v_directory.path;
        IF NOT FOUND THEN
            INSERT INTO directory (tenant_id, store_id, path, parent, name, files, bytes, visible_children)
            VALUES (p_tenant, p_store, v_directory.path, v_directory.parent, v_directory.name, v_directory.files, v_directory.bytes,
                    v_directory.children);
            IF left(v_directory.name, 1) <> '.' AND v_directory.name <> 'node_modules' THEN
                UPDATE directory d SET visible_children = d.visible_children + 1
                 WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = v_directory.parent;
            END IF;
        END IF;
    END LOOP;
    IF v_commit.directories_may_go THEN
        FOR i IN 0 .. jsonb_array_length(v_commit.directories) - 1 LOOP
            v_path := v_commit.directories -> i ->> 'path';
            DELETE FROM directory d
             WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = v_path
                   AND d.files = 0 AND d.path <> '/'
            RETURNING d.parent, d.name INTO v_found;
            IF FOUND AND left(v_found.name, 1) <> '.' AND v_found.name <> 'node_modules' THEN
                UPDATE directory d SET visible_children = d.visible_children - 1
                 WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = v_found.parent;
            END IF;
        END LOOP;
    END IF;

    UPDATE store s
       SET seq = v_seq, embedded_by = '',
           last_version_at = CASE WHEN v_seq > v_store.seq THEN v_at ELSE s.last_version_at END,
           memory_count = s.memory_count + v_commit.count_delta, live_bytes = s.live_bytes + v_commit.byte_delta,
           version_count = s.version_count + v_seq - v_store.seq,
           version_bytes = s.version_bytes + v_commit.version_bytes
     WHERE s.tenant_id = p_tenant AND s.store_id = p_store;
    RETURN jsonb_build_object(
        'outcome', 'committed', 'seq', v_seq, 'purge_epoch', v_store.purge_epoch, 'at', v_at,
        'expiry', jsonb_build_object('unused_after_secs', v_store.expires_unused_after, 'set_at', v_store.period_set_at)
    );
END
$$;

-- Makes commits, also of several stores and tenants, each whatever becomes of the others,
-- with one flush; returns the outcome of each. Commits of one store are adjacent.
--
-- With `p_skips_locked`, it waits for no lock of a store. Two calls can then wait for
-- each other only with idempotency keys that both have, and the caller sorts by them.
CREATE FUNCTION commit_batch(
    p_skips_locked boolean, p_tenants uuid[], p_stores uuid[], p_commits jsonb[], p_bytes bytea[]
)
RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_is_same_store boolean;
    v_outcome jsonb;
    v_outcomes jsonb := '[]';
    v_setting text;
BEGIN
    FOR i IN 1 .. cardinality(p_commits) LOOP
        v_is_same_store := i > 1 AND p_tenants[i] = p_tenants[i - 1] AND p_stores[i] = p_stores[i - 1];
        -- A store that was locked is not asked for again.
        IF NOT v_is_same_store OR v_outcome ->> 'outcome' <> 'locked' THEN
            v_outcome := commit_changes(
                p_tenants[i], p_stores[i], p_commits[i], p_bytes[i], p_skips_locked AND NOT v_is_same_store
            );
        END IF;
        v_outcomes := v_outcomes || v_outcome;
    END LOOP;
    -- Without a change there is nothing to make durable, so the transaction does not wait
    -- for a flush.
    IF NOT v_outcomes @? '$[*] ? (@.outcome == "committed")' THEN
        v_setting := set_config('synchronous_commit', 'off', true);
    END IF;
    RETURN v_outcomes;
END
$$;
