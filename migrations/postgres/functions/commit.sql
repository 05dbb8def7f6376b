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

-- Makes a commit: locks the store, checks, then writes. Nothing is written unless the
-- outcome is `committed`. The file `crates/index/src/commit/document.rs` describes the
-- document `p_commit`. `p_bytes` are its contents and search terms, one after the other.
--
-- With `p_skips_locked`, the outcome is `locked` if another transaction has the lock of
-- the store, or there is no such store.
--
-- The checks are separate statements after the lock, so that they see commits
-- made before the lock was granted; a single statement would not. Rows
-- are found one at a time, each by its whole key, so that the plan is the same for
-- one change and for ten thousand, with and without statistics.
CREATE FUNCTION commit_changes(p_tenant uuid, p_store uuid, p_commit jsonb, p_bytes bytea, p_skips_locked boolean)
RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_changes jsonb := p_commit -> 'changes';
    v_kept jsonb := p_commit -> 'kept';
    v_directories jsonb := p_commit -> 'directories';
    v_now bigint := p_commit ->> 'now';
    v_scope bytea := decode(p_commit ->> 'scope', 'hex');
    v_request bytea := decode(p_commit ->> 'request', 'hex');
    v_since bigint := p_commit ->> 'since';
    v_count_delta bigint := p_commit ->> 'count_delta';
    v_byte_delta bigint := p_commit ->> 'byte_delta';
    v_seq bigint;
    v_at bigint;
    v_store record;
    v_head record;
    v_change record;
    v_path text;
    v_outcome jsonb;
    v_setting text;
BEGIN
    -- An assignment calls set_config without running a query; the other functions
    -- do the same.
    v_setting := set_config('keepsake.tenant', p_tenant::text, true);
    IF p_skips_locked THEN
        PERFORM FROM store s WHERE s.tenant_id = p_tenant AND s.store_id = p_store FOR NO KEY UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN '{"outcome": "locked"}';
        END IF;
    END IF;
    SELECT s.seq, s.last_version_at, s.memory_count, s.live_bytes, s.granted_bytes, s.archived_at,
           s.purge_epoch, s.policy, s.expires_unused_after, s.period_set_at INTO v_store
      FROM store s
     WHERE s.tenant_id = p_tenant AND s.store_id = p_store AND s.deleted_at IS NULL
       FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN '{"outcome": "no_store"}';
    END IF;

    IF v_scope IS NOT NULL THEN
        v_outcome := earlier_call(p_tenant, v_scope, v_request, v_since);
        IF v_outcome IS NOT NULL THEN
            RETURN v_outcome;
        END IF;
    END IF;
    IF v_store.archived_at IS NOT NULL AND (p_commit ->> 'adds')::boolean THEN
        RETURN '{"outcome": "archived"}';
    END IF;

    -- History was removed since the read, so content of older versions may be gone;
    -- or the policy changed, and the new content was checked against the old policy.
    IF (p_commit ->> 'purge_epoch')::bigint <> v_store.purge_epoch OR p_commit ->> 'policy' <> v_store.policy THEN
        RETURN '{"outcome": "stale"}';
    END IF;
    -- Compare-and-set: no head has changed since it was read.
    FOR v_change IN SELECT * FROM jsonb_to_recordset(v_changes || v_kept)
            AS c(memory uuid, expect uuid, revives boolean, blob uuid) LOOP
        IF v_change.expect IS NOT NULL THEN
            -- Without `deleted_at IS NULL`, so that only the primary key fits.
            SELECT m.version_id, m.deleted_at INTO v_head FROM memory m
             WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = v_change.memory;
            IF NOT FOUND OR v_head.version_id <> v_change.expect
               OR (v_head.deleted_at IS NOT NULL) <> v_change.revives THEN
                RETURN '{"outcome": "stale"}';
            END IF;
        END IF;
        v_outcome := coalesce(v_outcome, (
            SELECT '{"outcome": "blob_condemned"}'::jsonb FROM blob_deletion b
             WHERE b.tenant_id = p_tenant AND b.store_id = p_store AND b.blob_id = v_change.blob
        ));
    END LOOP;
    IF p_commit ->> 'guard_directory' IS NOT NULL THEN
        v_path := p_commit ->> 'guard_directory';
        PERFORM FROM directory d
         WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = v_path
               AND d.files = (p_commit ->> 'guard_files')::bigint;
        IF NOT FOUND THEN
            RETURN '{"outcome": "stale"}';
        END IF;
    END IF;

    FOR v_path IN SELECT jsonb_array_elements_text(p_commit -> 'taken') LOOP
        SELECT m.memory_id, m.path INTO v_head FROM memory m
         WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.path = v_path AND m.deleted_at IS NULL;
        IF FOUND THEN
            RETURN jsonb_build_object('outcome', 'path_taken', 'path', v_head.path, 'memory_id', v_head.memory_id);
        END IF;
    END LOOP;
    FOR v_path IN SELECT jsonb_array_elements_text(p_commit -> 'taken') || '/' LOOP
        PERFORM FROM directory d
         WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = v_path;
        IF FOUND THEN
            RETURN jsonb_build_object('outcome', 'path_is_directory', 'path', v_path);
        END IF;
    END LOOP;
    -- All files of a directory whose path is taken must leave it.
    IF p_commit ->> 'replaced' IS NOT NULL THEN
        FOR v_change IN SELECT * FROM jsonb_to_recordset(p_commit -> 'replaced') AS d(path text, files bigint) LOOP
            PERFORM FROM directory d
             WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = v_change.path
                   AND d.files <> v_change.files;
            IF FOUND THEN
                RETURN jsonb_build_object('outcome', 'path_is_directory', 'path', v_change.path);
            END IF;
        END LOOP;
    END IF;
    FOR v_path IN SELECT jsonb_array_elements_text(p_commit -> 'ancestors') LOOP
        SELECT m.memory_id, m.path INTO v_head FROM memory m
         WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.path = v_path AND m.deleted_at IS NULL;
        IF FOUND THEN
            RETURN jsonb_build_object('outcome', 'parent_is_file', 'path', v_head.path, 'memory_id', v_head.memory_id);
        END IF;
    END LOOP;

    IF v_count_delta > 0 AND v_store.memory_count + v_count_delta > (p_commit ->> 'memory_limit')::bigint THEN
        RETURN jsonb_build_object('outcome', 'over_limit', 'limit', 'memories_per_store',
                                  'wanted', v_store.memory_count + v_count_delta,
                                  'maximum', p_commit -> 'memory_limit');
    END IF;
    IF v_byte_delta > 0 AND v_store.live_bytes + v_byte_delta > (p_commit ->> 'byte_limit')::bigint THEN
        RETURN jsonb_build_object('outcome', 'over_limit', 'limit', 'bytes_per_store',
                                  'wanted', v_store.live_bytes + v_byte_delta,
                                  'maximum', p_commit -> 'byte_limit');
    END IF;
    IF v_byte_delta > 0 AND v_store.live_bytes + v_byte_delta > v_store.granted_bytes THEN
        RETURN jsonb_build_object('outcome', 'needs_grant', 'size_bytes', v_store.live_bytes + v_byte_delta);
    END IF;
    IF v_outcome IS NOT NULL THEN
        RETURN v_outcome;
    END IF;

    v_at := time_of_version(v_now, v_store.last_version_at);
    v_seq := v_store.seq + jsonb_array_length(v_changes);
    IF v_scope IS NOT NULL THEN
        -- The first write: a commit of another store may have recorded the key meanwhile.
        INSERT INTO idempotency AS i (tenant_id, scope_sha256, request_sha256, object_id, store_id, version_seq,
                                      results, created_at)
        VALUES (p_tenant, v_scope, v_request, (v_changes #>> '{0,memory}')::uuid, p_store, v_seq,
                p_commit ->> 'results', v_now)
        ON CONFLICT (tenant_id, scope_sha256) DO UPDATE
           SET request_sha256 = excluded.request_sha256, object_id = excluded.object_id,
               store_id = excluded.store_id, version_seq = excluded.version_seq, results = excluded.results,
               created_at = excluded.created_at
         WHERE i.created_at <= v_since;
        IF NOT FOUND THEN
            RETURN earlier_call(p_tenant, v_scope, v_request, v_since);
        END IF;
    END IF;

    FOR v_change IN SELECT * FROM jsonb_to_recordset(v_kept) AS k(memory uuid, pinned boolean, expires bigint) LOOP
        CONTINUE WHEN v_change.pinned IS NULL AND v_change.expires IS NULL;
        UPDATE memory m
           SET pinned = coalesce(v_change.pinned, m.pinned),
               expires_at = nullif(coalesce(v_change.expires, m.expires_at), 0)
         WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = v_change.memory;
    END LOOP;
    -- The index of paths holds no two memories of a path at any time. So memories that leave a
    -- path which another one takes go out of the index first; the update below puts them back.
    IF p_commit ->> 'makes_room' IS NOT NULL THEN
        FOR v_path IN SELECT jsonb_array_elements_text(p_commit -> 'makes_room') LOOP
            UPDATE memory m SET deleted_at = v_at
             WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = v_path::uuid;
        END LOOP;
    END IF;
    v_seq := v_store.seq;
    FOR v_change IN SELECT * FROM jsonb_to_recordset(v_changes) AS c(
            op text, undoes uuid, memory uuid, expect uuid, prev bigint, version uuid, path text, parent text, name text, blob uuid,
            size bigint, sha256 text, first_line text, pinned boolean, expires bigint, content_from integer,
            content_for integer, analyser bigint, length bigint, terms_from integer, terms_for integer) LOOP
        v_seq := v_seq + 1;
        INSERT INTO version (tenant_id, store_id, seq, version_id, memory_id, prev_seq, op, path, blob_id,
                             size_bytes, sha256, created_at, actor_type, actor_id, undoes)
        VALUES (p_tenant, p_store, v_seq, v_change.version, v_change.memory,
                coalesce(v_change.prev, (
                    SELECT m.head_seq FROM memory m
                     WHERE m.tenant_id = p_tenant AND m.store_id = p_store AND m.memory_id = v_change.memory
                )),
                v_change.op, v_change.path, v_change.blob, v_change.size, decode(v_change.sha256, 'hex'), v_at,
                p_commit ->> 'actor_type', p_commit ->> 'actor_id', v_change.undoes);
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
                   claimed_by = nullif(m.claimed_by, (p_commit ->> 'replica')::uuid)
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
        END IF;
    END LOOP;

    -- In path order, so that a parent exists before its children.
    FOR v_change IN SELECT * FROM jsonb_to_recordset(v_directories)
            AS d(path text, parent text, name text, files bigint, bytes bigint, children bigint) LOOP
        UPDATE directory d
           SET files = d.files + v_change.files, bytes = d.bytes + v_change.bytes,
               visible_children = d.visible_children + v_change.children
         WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = v_change.path;
        IF NOT FOUND THEN
            INSERT INTO directory (tenant_id, store_id, path, parent, name, files, bytes, visible_children)
            VALUES (p_tenant, p_store, v_change.path, v_change.parent, v_change.name, v_change.files, v_change.bytes,
                    v_change.children);
            IF left(v_change.name, 1) <> '.' AND v_change.name <> 'node_modules' THEN
                UPDATE directory d SET visible_children = d.visible_children + 1
                 WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = v_change.parent;
            END IF;
        END IF;
    END LOOP;
    IF (p_commit ->> 'directories_may_go')::boolean THEN
        FOR v_path IN SELECT jsonb_array_elements(v_directories) ->> 'path' LOOP
            DELETE FROM directory d
             WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = v_path
                   AND d.files = 0 AND d.path <> '/'
            RETURNING d.parent, d.name INTO v_change;
            IF FOUND AND left(v_change.name, 1) <> '.' AND v_change.name <> 'node_modules' THEN
                UPDATE directory d SET visible_children = d.visible_children - 1
                 WHERE d.tenant_id = p_tenant AND d.store_id = p_store AND d.path = v_change.parent;
            END IF;
        END LOOP;
    END IF;

    UPDATE store s
       SET seq = v_seq,
           last_version_at = CASE WHEN v_seq > v_store.seq THEN v_at ELSE s.last_version_at END,
           memory_count = s.memory_count + v_count_delta, live_bytes = s.live_bytes + v_byte_delta,
           version_count = s.version_count + v_seq - v_store.seq,
           version_bytes = s.version_bytes + (p_commit ->> 'version_bytes')::bigint
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
