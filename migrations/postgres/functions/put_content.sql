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
-- written down once, in that function.
--
-- The first statement locks the store, checks its limits and counts the version.
-- The result is one value, because Postgres would buffer a set of rows.
CREATE FUNCTION put_content(
    p_tenant uuid, p_store uuid, p_now bigint, p_actor_type text, p_actor_id text, p_replica uuid,
    p_memory_limit bigint, p_byte_limit bigint, p_scope bytea, p_request bytea, p_policy text,
    p_memory uuid, p_expect uuid, p_prev_seq bigint, p_version uuid, p_path text, p_parent text, p_name text,
    p_size bigint, p_sha256 bytea, p_first_line text, p_pinned boolean, p_expires bigint,
    p_content bytea, p_analyser bigint, p_length bigint, p_terms bytea,
    p_files bigint, p_bytes bigint, p_children bigint, d_path text[]
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
    -- A version never gets an earlier time than the version before it.
    UPDATE store s
       SET seq = s.seq + 1, last_version_at = greatest(p_now, s.last_version_at),
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

-- Commits new content at several paths of one store, each as `put_content` does and
-- whatever becomes of the others, with one lock of the store and one flush. One
-- element of the arrays for each commit. `d_path` has the directories of all, and
-- `c_directories` how many of them each has.
--
-- Returns a row for each commit that was made.
CREATE FUNCTION put_contents(
    p_tenant uuid, p_store uuid, c_now bigint[], c_actor_type text[], c_actor_id text[], c_replica uuid[],
    c_memory_limit bigint[], c_byte_limit bigint[], c_scope bytea[], c_request bytea[], c_policy text[],
    c_memory uuid[], c_expect uuid[], c_prev_seq bigint[], c_version uuid[], c_path text[], c_parent text[],
    c_name text[], c_size bigint[], c_sha256 bytea[], c_first_line text[], c_pinned boolean[], c_expires bigint[],
    c_content bytea[], c_analyser bigint[], c_length bigint[], c_terms bytea[],
    c_files bigint[], c_bytes bigint[], c_children bigint[], c_directories integer[], d_path text[]
)
RETURNS TABLE (
    element bigint, seq bigint, measured bigint, made_at bigint, expires_unused_after bigint, period_set_at bigint
)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_durability text := current_setting('synchronous_commit');
    v_directories integer := 0;
    v_made bigint[];
    v_setting text;
    v_any boolean := false;
BEGIN
    FOR i IN 1 .. cardinality(c_version) LOOP
        v_made := put_content(
            p_tenant, p_store, c_now[i], c_actor_type[i], c_actor_id[i], c_replica[i],
            c_memory_limit[i], c_byte_limit[i], c_scope[i], c_request[i], c_policy[i],
            c_memory[i], c_expect[i], c_prev_seq[i], c_version[i], c_path[i], c_parent[i],
            c_name[i], c_size[i], c_sha256[i], c_first_line[i], c_pinned[i], c_expires[i],
            c_content[i], c_analyser[i], c_length[i], c_terms[i],
            c_files[i], c_bytes[i], c_children[i],
            d_path[v_directories + 1 : v_directories + c_directories[i]]
        );
        v_directories := v_directories + c_directories[i];
        CONTINUE WHEN v_made IS NULL;
        v_any := true;
        element := i - 1;
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
