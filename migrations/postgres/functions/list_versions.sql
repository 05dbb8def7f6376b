-- A version by its `seq` or, with p_seq NULL, by its id. No row: the store does
-- not exist. `version_row` NULL: the version does not exist.
--
-- The lookup by id is written as a range with ORDER BY, so that the planner uses
-- the index of ids: without statistics it would choose the primary key, which was
-- created last.
CREATE FUNCTION read_version(p_tenant uuid, p_store uuid, p_seq bigint, p_version uuid)
RETURNS TABLE (archived_at bigint, purge_epoch bigint, version_row version)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_setting text;
BEGIN
    v_setting := set_config('keepsake.tenant', p_tenant::text, true);
    IF p_seq IS NOT NULL THEN
        RETURN QUERY
            SELECT s.archived_at, s.purge_epoch, v FROM store s
              LEFT JOIN version v ON v.tenant_id = p_tenant AND v.store_id = p_store AND v.seq = p_seq
             WHERE s.tenant_id = p_tenant AND s.store_id = p_store AND s.deleted_at IS NULL;
        RETURN;
    END IF;
    RETURN QUERY
        SELECT s.archived_at, s.purge_epoch, with_id.v FROM store s
          LEFT JOIN LATERAL (SELECT v FROM version v
                              WHERE v.tenant_id = p_tenant AND v.store_id = p_store
                                    AND v.version_id >= p_version AND v.version_id <= p_version
                              ORDER BY v.version_id LIMIT 1) with_id ON true
         WHERE s.tenant_id = p_tenant AND s.store_id = p_store AND s.deleted_at IS NULL;
END
$$;

-- The smallest `seq`, at most p_high, from which on versions were made at p_at or
-- later. A binary search: times do not decrease along `seq`, but where a clock was ahead.
CREATE FUNCTION first_version_since(p_tenant uuid, p_store uuid, p_at bigint, p_high bigint)
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

-- One page of the versions of a store, newest first. No row: the store does not
-- exist. The first row has only the state of the store.
--
-- Uses the index of the first filter among memory, actor and operation, or else the
-- primary key. The other filters are conditions. Each query compares rows, so that
-- only the index with this order fits.
CREATE FUNCTION list_versions(
    p_tenant uuid, p_store uuid, p_memory uuid, p_op text, p_actor_type text, p_imported_type text,
    p_actor_id text, p_from bigint, p_to bigint, p_before bigint, p_limit bigint
)
RETURNS TABLE (archived_at bigint, purge_epoch bigint, version_row version)
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
        v_high := first_version_since(p_tenant, p_store, p_to + 1, v_high);
    END IF;
    IF p_from IS NOT NULL THEN
        v_low := first_version_since(p_tenant, p_store, p_from, v_high) - 1;
    END IF;

    IF p_memory IS NOT NULL THEN
        RETURN QUERY
            SELECT NULL::bigint, NULL::bigint, v FROM version v
             WHERE v.tenant_id = p_tenant AND v.store_id = p_store
                   AND (v.memory_id, v.seq) < (p_memory, v_high) AND (v.memory_id, v.seq) > (p_memory, v_low)
                   AND (p_op IS NULL OR v.op = p_op)
                   AND (p_actor_id IS NULL
                        OR v.actor_id = p_actor_id AND v.actor_type IN (p_actor_type, p_imported_type))
             ORDER BY v.memory_id DESC, v.seq DESC LIMIT p_limit;
    ELSIF p_actor_id IS NOT NULL THEN
        RETURN QUERY
            SELECT NULL::bigint, NULL::bigint, v FROM version v
             WHERE v.tenant_id = p_tenant AND v.store_id = p_store
                   AND (v.actor_id, v.seq) < (p_actor_id, v_high) AND (v.actor_id, v.seq) > (p_actor_id, v_low)
                   AND v.actor_type IN (p_actor_type, p_imported_type) AND (p_op IS NULL OR v.op = p_op)
             ORDER BY v.actor_id DESC, v.seq DESC LIMIT p_limit;
    ELSIF p_op <> 'modified' THEN
        RETURN QUERY
            SELECT NULL::bigint, NULL::bigint, v FROM version v
             WHERE v.tenant_id = p_tenant AND v.store_id = p_store AND v.op <> 'modified'
                   AND (v.op, v.seq) < (p_op, v_high) AND (v.op, v.seq) > (p_op, v_low)
             ORDER BY v.op DESC, v.seq DESC LIMIT p_limit;
    ELSE
        RETURN QUERY
            SELECT NULL::bigint, NULL::bigint, v FROM version v
             WHERE v.tenant_id = p_tenant AND v.store_id = p_store AND v.seq < v_high AND v.seq > v_low
                   AND (p_op IS NULL OR v.op = p_op)
             ORDER BY v.seq DESC LIMIT p_limit;
    END IF;
END
$$;
