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
RETURNS json
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (
        SELECT CASE WHEN i.request_sha256 = p_request AND i.version_seq IS NOT NULL
                    THEN json_build_object('outcome', 'replayed', 'seq', i.version_seq)
                    ELSE '{"outcome": "key_reused"}' END
          FROM idempotency i
         WHERE i.tenant_id = p_tenant AND i.scope_sha256 = p_scope AND i.created_at > p_since
    );
END
$$;

-- The document of a commit, which `crates/index/src/commit/document.rs` describes.
-- `crates/index/src/postgres/row.rs` has the same fields in the same order. An empty list is null.
CREATE TYPE commit_change AS (
    op text, memory uuid, expect uuid, revives boolean, undoes uuid, version uuid, path text, parent text,
    name text, blob uuid, size bigint, sha256 bytea, first_line text, pinned boolean, expires bigint,
    content_from integer, content_for integer, analyser bigint, length bigint, terms_from integer, terms_for integer
);
CREATE TYPE directory_change AS (path text, parent text, name text, files bigint, bytes bigint, children bigint);
CREATE TYPE commit_document AS (
    now bigint, actor_type text, actor_id text, replica uuid, memory_limit bigint, byte_limit bigint, scope bytea,
    request bytea, since bigint, results text, guard_directory text, guard_files bigint, guard_path text,
    guard_version uuid, purge_epoch bigint, policy text, seq bigint,
    adds boolean, count_delta bigint, byte_delta bigint, version_bytes bigint, directories_may_go boolean, taken text[],
    ancestors text[], makes_room uuid[], replaced directory_change[], directories directory_change[],
    touched text[], changes commit_change[], kept commit_change[]
);

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
-- Each statement costs more than what it reads, so checks of one change share one. Postgres
-- prepares each expression again in each transaction, and makes a type for each `record`, so
-- variables are scalars and have no initial values.
CREATE FUNCTION commit_changes(p_tenant uuid, p_store uuid, p_commit commit_document, p_bytes bytea, p_skips_locked boolean)
RETURNS json
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_change commit_change;
    v_kept commit_change;
    v_directory directory_change;
    -- Of the store, before the commit.
    v_last_seq bigint;
    v_last_at bigint;
    v_rising_seq bigint;
    v_memory_count bigint;
    v_live_bytes bigint;
    v_granted_bytes bigint;
    v_archived_at bigint;
    v_deleted_at bigint;
    v_purge_epoch bigint;
    v_policy text;
    v_unused_after bigint;
    v_period_set_at bigint;
    v_seq bigint;
    v_at bigint;
    v_head uuid;
    v_head_seq bigint;
    v_head_updated_at bigint;
    v_head_deleted_at bigint;
    v_head_seqs bigint[];
    -- Of the changed memories, the first and the earliest of the last changes before the commit.
    v_first_seq bigint;
    v_first_updated_at bigint;
    v_minute bigint;
    v_blob_is_condemned boolean;
    v_is_condemned boolean;
    v_memory uuid;
    v_path text;
    v_child text;
    v_parent text;
    v_name text;
    v_is_directory boolean;
    v_has_parent boolean;
    v_taken_directory text;
    v_has_new_parent boolean;
    v_outcome json;
    v_setting text;
BEGIN
    -- An assignment calls set_config without running a query; the other functions
    -- do the same.
    v_setting := set_config('keepsake.tenant', p_tenant::text, true);
    IF p_skips_locked THEN
        SELECT s.seq, s.seq, s.last_version_at, s.rising_seq, s.memory_count, s.live_bytes, s.granted_bytes, s.archived_at, s.deleted_at,
               s.purge_epoch, s.policy, s.expires_unused_after, s.period_set_at
          INTO v_seq, v_last_seq, v_last_at, v_rising_seq, v_memory_count, v_live_bytes, v_granted_bytes, v_archived_at, v_deleted_at,
               v_purge_epoch, v_policy, v_unused_after, v_period_set_at
          FROM store s
         WHERE s.tenant_id = p_tenant AND s.store_id = p_store
           FOR NO KEY UPDATE SKIP LOCKED;
    ELSE
        SELECT s.seq, s.seq, s.last_version_at, s.rising_seq, s.memory_count, s.live_bytes, s.granted_bytes, s.archived_at, s.deleted_at,
               s.purge_epoch, s.policy, s.expires_unused_after, s.period_set_at
          INTO v_seq, v_last_seq, v_last_at, v_rising_seq, v_memory_count, v_live_bytes, v_granted_bytes, v_archived_at, v_deleted_at,
               v_purge_epoch, v_policy, v_unused_after, v_period_set_at
          FROM store s
         WHERE s.tenant_id = p_tenant AND s.store_id = p_store
           FOR NO KEY UPDATE;
    END IF;
    IF NOT FOUND OR v_deleted_at IS NOT NULL THEN
        RETURN CASE WHEN p_skips_locked AND v_seq IS NULL THEN '{"outcome": "locked"}' ELSE '{"outcome": "no_store"}' END;
    END IF;

    IF p_commit.scope IS NOT NULL THEN
        v_outcome := earlier_call(p_tenant, p_commit.scope, p_commit.request, p_commit.since);
        IF v_outcome IS NOT NULL THEN
            RETURN v_outcome;
        END IF;
    END IF;
    IF v_archived_at IS NOT NULL AND p_commit.adds THEN
        RETURN '{"outcome": "archived"}';
    END IF;

    -- History was removed since the read, so content of older versions may be gone;
    -- or the policy changed, and the new content was checked against the old policy; or the
    -- outcome was tested on another state of the store.
    IF p_commit.purge_epoch <> v_purge_epoch OR p_commit.policy <> v_policy
       OR p_commit.seq <> v_seq THEN
        RETURN '{"outcome": "stale"}';
    END IF;
    -- Compare-and-set: no head has changed since it was read.
    FOREACH v_change IN ARRAY coalesce(p_commit.changes, '{}') LOOP
        IF v_change.expect IS NULL THEN
            PERFORM FROM blob_deletion b
             WHERE b.tenant_id = p_tenant AND b.store_id = p_store AND b.blob_id = v_change.blob;
            v_is_condemned := v_is_condemned OR FOUND;
            v_head_seqs := v_head_seqs || NULL::bigint;
            CONTINUE;
        END IF;
        -- Without `deleted_at IS NULL`, so that only the primary key fits.
        SELECT m.head_seq, m.version_id, m.updated_at, m.deleted_at, EXISTS (
                   SELECT FROM blob_deletion b
                    WHERE b.tenant_id = p_tenant AND b.store_id = p_store AND b.blob_id = v_change.blob
               ) INTO v_head_seq, v_head, v_head_updated_at, v_head_deleted_at, v_blob_is_condemned
          FROM memory m
         WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = v_change.memory;
        IF NOT FOUND OR v_head <> v_change.expect
           OR (v_head_deleted_at IS NOT NULL) <> v_change.revives THEN
            RETURN '{"outcome": "stale"}';
        END IF;
        v_is_condemned := v_is_condemned OR v_blob_is_condemned;
        v_head_seqs := v_head_seqs || v_head_seq;
        v_first_seq := least(v_first_seq, v_head_seq);
        v_first_updated_at := least(v_first_updated_at, v_head_updated_at);
    END LOOP;
    IF p_commit.kept IS NOT NULL THEN
        FOREACH v_kept IN ARRAY p_commit.kept LOOP
            SELECT m.version_id, m.deleted_at INTO v_head, v_head_deleted_at FROM memory m
             WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = v_kept.memory;
            IF NOT FOUND OR v_head <> v_kept.expect OR v_head_deleted_at IS NOT NULL THEN
                RETURN '{"outcome": "stale"}';
            END IF;
        END LOOP;
    END IF;
    IF p_commit.guard_directory IS NOT NULL THEN
        PERFORM FROM directory d
         WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = p_commit.guard_directory
               AND d.files = p_commit.guard_files;
        IF NOT FOUND THEN
            RETURN '{"outcome": "stale"}';
        END IF;
    END IF;
    IF p_commit.guard_path IS NOT NULL THEN
        v_path := p_commit.guard_path;
        SELECT m.version_id INTO v_head FROM memory m
         WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.path = v_path AND m.deleted_at IS NULL;
        IF v_head IS DISTINCT FROM p_commit.guard_version THEN
            RETURN '{"outcome": "stale"}';
        END IF;
    END IF;

    IF p_commit.taken IS NOT NULL THEN
        FOREACH v_path IN ARRAY p_commit.taken LOOP
            -- Variables, because Postgres prefers another index for an expression.
            v_child := v_path || '/';
            v_parent := left(v_path, 1 - strpos(reverse(v_path), '/'));
            SELECT (SELECT m.memory_id FROM memory m
                     WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.path = v_path AND m.deleted_at IS NULL),
                   EXISTS (SELECT FROM directory d
                            WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = v_child),
                   EXISTS (SELECT FROM directory d
                            WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = v_parent)
              INTO v_memory, v_is_directory, v_has_parent;
            IF v_memory IS NOT NULL THEN
                RETURN json_build_object('outcome', 'path_taken', 'path', v_path, 'memory_id', v_memory);
            END IF;
            IF v_is_directory THEN
                v_taken_directory := coalesce(v_taken_directory, v_child);
            END IF;
            v_has_new_parent := v_has_new_parent OR NOT v_has_parent;
        END LOOP;
        IF v_taken_directory IS NOT NULL THEN
            RETURN json_build_object('outcome', 'path_is_directory', 'path', v_taken_directory);
        END IF;
    END IF;
    -- All files of a directory whose path is taken must leave it.
    IF p_commit.replaced IS NOT NULL THEN
        FOREACH v_directory IN ARRAY p_commit.replaced LOOP
            PERFORM FROM directory d
             WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = v_directory.path
                   AND d.files <> v_directory.files;
            IF FOUND THEN
                RETURN json_build_object('outcome', 'path_is_directory', 'path', v_directory.path);
            END IF;
        END LOOP;
    END IF;
    -- A directory that exists has no file in the place of a parent.
    IF v_has_new_parent AND p_commit.ancestors IS NOT NULL THEN
        FOREACH v_path IN ARRAY p_commit.ancestors LOOP
            SELECT m.memory_id INTO v_memory FROM memory m
             WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.path = v_path AND m.deleted_at IS NULL;
            IF FOUND THEN
                RETURN json_build_object('outcome', 'parent_is_file', 'path', v_path, 'memory_id', v_memory);
            END IF;
        END LOOP;
    END IF;

    IF p_commit.count_delta > 0 AND v_memory_count + p_commit.count_delta > p_commit.memory_limit
       OR p_commit.byte_delta > 0
          AND v_live_bytes + p_commit.byte_delta > least(p_commit.byte_limit, v_granted_bytes) THEN
        IF p_commit.count_delta > 0 AND v_memory_count + p_commit.count_delta > p_commit.memory_limit THEN
            RETURN json_build_object('outcome', 'over_limit', 'limit', 'memories_per_store',
                                      'wanted', v_memory_count + p_commit.count_delta,
                                      'maximum', p_commit.memory_limit);
        END IF;
        IF p_commit.byte_delta > 0 AND v_live_bytes + p_commit.byte_delta > p_commit.byte_limit THEN
            RETURN json_build_object('outcome', 'over_limit', 'limit', 'bytes_per_store',
                                      'wanted', v_live_bytes + p_commit.byte_delta,
                                      'maximum', p_commit.byte_limit);
        END IF;
        IF p_commit.byte_delta > 0 AND v_live_bytes + p_commit.byte_delta > v_granted_bytes THEN
            RETURN json_build_object('outcome', 'needs_grant', 'size_bytes', v_live_bytes + p_commit.byte_delta);
        END IF;
    END IF;
    IF v_is_condemned THEN
        RETURN '{"outcome": "blob_condemned"}';
    END IF;

    v_at := time_of_version(p_commit.now, v_last_at);
    IF v_at < v_last_at AND p_commit.changes IS NOT NULL THEN
        v_rising_seq := v_last_seq + 1;
    END IF;
    IF p_commit.scope IS NOT NULL THEN
        -- The first write: a commit of another store may have recorded the key meanwhile.
        INSERT INTO idempotency AS i (tenant_id, scope_sha256, request_sha256, object_id, store_id, version_seq,
                                      results, created_at)
        VALUES (p_tenant, p_commit.scope, p_commit.request, p_commit.changes[1].memory, p_store,
                v_seq + coalesce(cardinality(p_commit.changes), 0),
                p_commit.results, p_commit.now)
        ON CONFLICT (tenant_id, scope_sha256) DO UPDATE
           SET request_sha256 = excluded.request_sha256, object_id = excluded.object_id,
               store_id = excluded.store_id, version_seq = excluded.version_seq, results = excluded.results,
               created_at = excluded.created_at
         WHERE i.created_at <= p_commit.since;
        IF NOT FOUND THEN
            RETURN earlier_call(p_tenant, p_commit.scope, p_commit.request, p_commit.since);
        END IF;
    END IF;

    IF p_commit.kept IS NOT NULL THEN
        FOREACH v_kept IN ARRAY p_commit.kept LOOP
            CONTINUE WHEN v_kept.pinned IS NULL AND v_kept.expires IS NULL;
            UPDATE memory m
               SET pinned = coalesce(v_kept.pinned, m.pinned),
                   expires_at = nullif(coalesce(v_kept.expires, m.expires_at), 0)
             WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = v_kept.memory;
        END LOOP;
    END IF;
    -- The index of paths holds no two memories of a path at any time. So memories that leave a
    -- path which another one takes go out of the index first; the update below puts them back.
    IF p_commit.makes_room IS NOT NULL THEN
        FOREACH v_memory IN ARRAY p_commit.makes_room LOOP
            UPDATE memory m SET deleted_at = v_at
             WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = v_memory;
        END LOOP;
    END IF;
    FOREACH v_change IN ARRAY coalesce(p_commit.changes, '{}') LOOP
        v_seq := v_seq + 1;
        INSERT INTO version (tenant_id, store_id, seq, version_id, memory_id, prev_seq, op, path, blob_id,
                             size_bytes, sha256, created_at, actor_type, actor_id, undoes)
        VALUES (p_tenant, p_store, v_seq, v_change.version, v_change.memory,
                v_head_seqs[v_seq - v_last_seq], v_change.op, v_change.path, v_change.blob, v_change.size, v_change.sha256,
                v_at, p_commit.actor_type, p_commit.actor_id, v_change.undoes);
        IF v_change.expect IS NULL THEN
            INSERT INTO memory (tenant_id, store_id, memory_id, path, parent, name, head_seq, version_id, blob_id,
                                size_bytes, sha256, first_line, pinned, expires_at, created_at, updated_at)
            VALUES (p_tenant, p_store, v_change.memory, v_change.path, v_change.parent, v_change.name, v_seq,
                    v_change.version, v_change.blob, v_change.size, v_change.sha256,
                    v_change.first_line, coalesce(v_change.pinned, false), nullif(v_change.expires, 0), v_at, v_at);
        ELSE
            UPDATE memory m
               SET path = v_change.path, parent = v_change.parent, name = v_change.name, head_seq = v_seq,
                   version_id = v_change.version, blob_id = v_change.blob, size_bytes = v_change.size,
                   sha256 = v_change.sha256,
                   first_line = CASE WHEN v_change.op <> 'deleted' THEN coalesce(v_change.first_line, m.first_line) END,
                   pinned = coalesce(v_change.pinned, m.pinned),
                   expires_at = CASE WHEN v_change.op <> 'deleted'
                                THEN nullif(coalesce(v_change.expires, m.expires_at), 0) END,
                   updated_at = v_at,
                   deleted_at = CASE WHEN v_change.op = 'deleted' THEN v_at END,
                   claimed_by = nullif(m.claimed_by, p_commit.replica)
             WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = v_change.memory;
        END IF;
        IF v_change.content_from IS NOT NULL THEN
            INSERT INTO content (tenant_id, store_id, blob_id, bytes)
            VALUES (p_tenant, p_store, v_change.blob,
                    substring(p_bytes FROM v_change.content_from FOR v_change.content_for));
        END IF;
        IF v_change.terms_from IS NOT NULL AND v_change.expect IS NULL THEN
            INSERT INTO search_doc (tenant_id, store_id, memory_id, blob_id, analyser, length, terms)
            VALUES (p_tenant, p_store, v_change.memory, v_change.blob, v_change.analyser, v_change.length,
                    substring(p_bytes FROM v_change.terms_from FOR v_change.terms_for));
        ELSIF v_change.terms_from IS NOT NULL THEN
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
    IF p_commit.directories IS NOT NULL THEN
        FOREACH v_directory IN ARRAY p_commit.directories LOOP
            UPDATE directory d
               SET files = d.files + v_directory.files, bytes = d.bytes + v_directory.bytes,
                   visible_children = d.visible_children + v_directory.children, changed_at = v_at
             WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = v_directory.path;
            IF NOT FOUND THEN
                INSERT INTO directory (tenant_id, store_id, path, parent, name, files, bytes, visible_children,
                                       changed_at)
                VALUES (p_tenant, p_store, v_directory.path, v_directory.parent, v_directory.name, v_directory.files,
                        v_directory.bytes, v_directory.children, v_at);
                IF left(v_directory.name, 1) <> '.' AND v_directory.name <> 'node_modules' THEN
                    UPDATE directory d SET visible_children = d.visible_children + 1
                     WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = v_directory.parent;
                END IF;
            END IF;
        END LOOP;
        IF p_commit.directories_may_go THEN
            FOREACH v_directory IN ARRAY p_commit.directories LOOP
                DELETE FROM directory d
                 WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = v_directory.path
                       AND d.files = 0 AND d.path <> '/'
                RETURNING d.parent, d.name INTO v_parent, v_name;
                IF FOUND AND left(v_name, 1) <> '.' AND v_name <> 'node_modules' THEN
                    UPDATE directory d SET visible_children = d.visible_children - 1
                     WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = v_parent;
                END IF;
            END LOOP;
        END IF;
    END IF;
    -- Directories with the same counts as before get a time once a minute. If each memory has
    -- changed in this minute before, that change has done it, and no directory is read, unless
    -- a change from an earlier minute came in between.
    IF p_commit.touched IS NOT NULL THEN
        v_minute := v_at - v_at % 60000000;
        IF v_first_updated_at NOT BETWEEN v_minute AND v_at OR v_first_seq < v_rising_seq THEN
            FOREACH v_path IN ARRAY p_commit.touched LOOP
                UPDATE directory d SET changed_at = v_at
                 WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = v_path
                       AND d.changed_at NOT BETWEEN v_minute AND v_at;
            END LOOP;
        END IF;
    END IF;

    UPDATE store s
       SET seq = v_seq, embedded_by = '',
           last_version_at = CASE WHEN v_seq > s.seq THEN v_at ELSE s.last_version_at END, rising_seq = v_rising_seq,
           memory_count = s.memory_count + p_commit.count_delta, live_bytes = s.live_bytes + p_commit.byte_delta,
           version_count = s.version_count + v_seq - s.seq,
           version_bytes = s.version_bytes + p_commit.version_bytes
     WHERE s.tenant_id = p_tenant AND s.store_id = p_store;
    RETURN json_build_object(
        'outcome', 'committed', 'seq', v_seq, 'purge_epoch', v_purge_epoch, 'at', v_at,
        'expiry', json_build_object('unused_after_secs', v_unused_after, 'set_at', v_period_set_at)
    );
END
$$;

-- Makes commits, also of several stores and tenants, each whatever becomes of the others,
-- with one flush; returns the outcome of each. Commits of one store are adjacent.
--
-- With `p_skips_locked`, it waits for no lock of a store. Two calls can then wait for
-- each other only with idempotency keys that both have, and the caller sorts by them.
CREATE FUNCTION commit_batch(
    p_skips_locked boolean, p_tenants uuid[], p_stores uuid[], p_commits commit_document[], p_bytes bytea[]
)
RETURNS json
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_is_same_store boolean := false;
    v_outcome json;
    v_outcomes json[];
    v_is_made boolean := false;
    v_setting text;
BEGIN
    FOR i IN 1 .. cardinality(p_commits) LOOP
        IF i > 1 THEN
            v_is_same_store := p_tenants[i] = p_tenants[i - 1] AND p_stores[i] = p_stores[i - 1];
        END IF;
        -- A store that was locked is not asked for again.
        IF NOT v_is_same_store OR v_outcome ->> 'outcome' <> 'locked' THEN
            v_outcome := commit_changes(
                p_tenants[i], p_stores[i], p_commits[i], p_bytes[i], p_skips_locked AND NOT v_is_same_store
            );
        END IF;
        v_outcomes := v_outcomes || v_outcome;
        v_is_made := v_is_made OR v_outcome ->> 'outcome' = 'committed';
    END LOOP;
    -- Without a change there is nothing to make durable, so the transaction does not wait
    -- for a flush.
    IF NOT v_is_made THEN
        v_setting := set_config('synchronous_commit', 'off', true);
    END IF;
    RETURN array_to_json(v_outcomes);
END
$$;
