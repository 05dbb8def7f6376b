-- Distributes the schema over the nodes of Citus. It runs on the coordinator, after the
-- migrations, and may run any number of times: it leaves tables that are distributed as they are.
--
-- The tables with the policy `tenant_only` are distributed by tenant, in one colocation group,
-- so that everything of a tenant is on one node. The tables that are read together with them
-- are copied to every node, and the others stay on the coordinator. A function whose first
-- argument is `p_tenant` runs on the node of that tenant.

DO $$
DECLARE
    wanted record;
    v_table regclass;
    v_setting text;
BEGIN
    IF to_regclass('pg_catalog.pg_dist_node') IS NULL THEN
        RAISE EXCEPTION 'the database has no extension `citus`: create it on each node, and add the nodes to the coordinator';
    END IF;
    -- Many tables in one transaction.
    v_setting := set_config('citus.multi_shard_modify_mode', 'sequential', true);

    -- The nodes connect to one another as the role that a statement runs with.
    FOR wanted IN SELECT rolname FROM pg_roles WHERE rolname IN ('keepsake_app', 'keepsake_jobs') AND NOT rolcanlogin LOOP
        EXECUTE format('ALTER ROLE %I LOGIN', wanted.rolname);
    END LOOP;

    FOR wanted IN
        SELECT c.oid, c.relname FROM unnest(ARRAY['tenant', 'credential', 'tenant_deletion', 'audit_horizon', 'job']) n(name)
          JOIN pg_class c ON c.oid = to_regclass(format('public.%I', n.name))
         WHERE NOT EXISTS (SELECT FROM pg_dist_partition d WHERE d.logicalrelid = c.oid)
    LOOP
        PERFORM create_reference_table(wanted.oid::regclass);
    END LOOP;

    -- The rows are complete before a table is distributed: its parts have the policy, too.
    FOREACH v_table IN ARRAY ARRAY(
        SELECT c.oid::regclass FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid
         WHERE p.polname = 'tenant_only' AND c.relnamespace = 'public'::regnamespace AND NOT relation_is_a_known_shard(c.oid)
           AND NOT EXISTS (SELECT FROM pg_dist_partition d WHERE d.logicalrelid = c.oid)
         ORDER BY c.relname <> 'store', c.relname)
    LOOP
        PERFORM create_distributed_table(v_table, 'tenant_id',
            colocate_with => CASE WHEN v_table = 'store'::regclass THEN 'none' ELSE 'store' END);
    END LOOP;

    -- The rows that were copied to the nodes are still in files of the coordinator, where nothing
    -- reads or removes them.
    FOREACH v_table IN ARRAY ARRAY(
        SELECT c.oid::regclass FROM pg_dist_partition d JOIN pg_class c ON c.oid = d.logicalrelid
         WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND pg_relation_size(c.oid) > 0)
    LOOP
        PERFORM truncate_local_data_after_distributing_table(v_table);
    END LOOP;
END
$$;

-- The functions below have the name of a function that takes several tenants, with `_of`, and
-- call it for one tenant. The first one also tells that the schema is distributed.
CREATE OR REPLACE FUNCTION read_heads_of(
    p_tenant uuid, p_store uuid[], p_path text[], p_directory text[], p_max_entries bigint[]
)
RETURNS TABLE (
    element bigint, path text, size_bytes bigint, archived_at bigint, purge_epoch bigint,
    memory_id uuid, version_id uuid, head_seq bigint, blob_id uuid, sha256 bytea,
    claimed_by uuid, claimed_until bigint, files bigint, total_entries bigint, entries json
)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN QUERY SELECT * FROM read_heads(
        array_fill(p_tenant, ARRAY[cardinality(p_store)]), p_store, p_path, p_directory, p_max_entries
    );
END
$$;

CREATE OR REPLACE FUNCTION read_memories_of(p_tenant uuid, p_store uuid[], p_memory uuid[])
RETURNS TABLE (
    element bigint, archived_at bigint, purge_epoch bigint, expires_unused_after bigint, period_set_at bigint,
    path text, size_bytes bigint, memory_id uuid, version_id uuid, head_seq bigint, blob_id uuid, sha256 bytea,
    claimed_by uuid, claimed_until bigint, pinned boolean, expires_at bigint, created_at bigint, updated_at bigint,
    deleted_at bigint, first_line text, last_read_at bigint, active_at bigint
)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN QUERY SELECT * FROM read_memories(array_fill(p_tenant, ARRAY[cardinality(p_store)]), p_store, p_memory);
END
$$;

-- Citus passes no value of a composite type on.
CREATE OR REPLACE FUNCTION commit_batch_of(
    p_tenant uuid, p_skips_locked boolean, p_stores uuid[], p_commits text[], p_bytes bytea[]
)
RETURNS json
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN commit_batch(
        p_skips_locked, array_fill(p_tenant, ARRAY[cardinality(p_stores)]), p_stores,
        p_commits::commit_document[], p_bytes
    );
END
$$;

-- As `authenticate`, for the owner of a credential.
CREATE OR REPLACE FUNCTION authenticate_of(p_tenant uuid, p_api_key uuid)
RETURNS TABLE (
    tenant_id uuid, api_key_id uuid, scopes jsonb, store_ids jsonb, expires_at bigint, revoked_at bigint,
    tenant_status text, limits jsonb, tenant_name text, key_name text
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_setting text;
BEGIN
    v_setting := set_config('keepsake.tenant', p_tenant::text, true);
    RETURN QUERY
        SELECT k.tenant_id, k.api_key_id, k.scopes, k.store_ids, k.expires_at, k.revoked_at, t.status, t.limits,
               t.name, k.name
          FROM api_key k JOIN tenant t ON t.tenant_id = k.tenant_id
         WHERE k.tenant_id = p_tenant AND k.api_key_id = p_api_key;
END
$$;

DO $$
DECLARE
    wanted record;
BEGIN
    -- Citus plans the statements of plpgsql for the tenant of a call, and those of SQL not.
    FOR wanted IN
        SELECT p.oid, p.proname, p.prosrc FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
         WHERE p.pronamespace = 'public'::regnamespace AND l.lanname = 'sql' AND p.proargnames[1] = 'p_tenant' AND p.proretset
    LOOP
        EXECUTE format('CREATE OR REPLACE FUNCTION %I(%s) RETURNS %s LANGUAGE plpgsql STABLE AS %L', wanted.proname,
            pg_get_function_arguments(wanted.oid), pg_get_function_result(wanted.oid),
            format(E'#variable_conflict use_column\nBEGIN\nRETURN QUERY %s;\nEND', wanted.prosrc));
    END LOOP;
END
$$;

DO $$
DECLARE
    wanted record;
BEGIN
    FOR wanted IN
        SELECT p.oid, p.oid::regprocedure AS name, p.proargnames[1] = 'p_tenant' AND p.proargtypes[0] = 'uuid'::regtype AS is_of_tenant
          FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
         WHERE p.pronamespace = 'public'::regnamespace AND l.lanname IN ('sql', 'plpgsql')
           AND p.proname NOT IN ('authenticate', 'keepsake_schema_version')
           AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
    LOOP
        IF wanted.is_of_tenant THEN
            PERFORM create_distributed_function(wanted.oid::regprocedure, 'p_tenant', colocate_with => 'store');
        ELSE
            PERFORM create_distributed_function(wanted.oid::regprocedure);
        END IF;
    END LOOP;
    -- The sessions between the nodes: functions use indexes whatever statistics say, and a
    -- transaction sets its tenant on every node.
    FOR wanted IN
        SELECT * FROM (VALUES ('keepsake_app', 'enable_seqscan', 'off'), ('keepsake_app', 'enable_bitmapscan', 'off'),
            ('keepsake_app', 'enable_sort', 'off'), ('keepsake_app', 'jit', 'off'), ('keepsake_app', 'work_mem', '16MB'),
            ('keepsake_app', 'citus.propagate_set_commands', 'local'),
            ('keepsake_jobs', 'citus.propagate_set_commands', 'local')) s(role, setting, value)
    LOOP
        EXECUTE format('ALTER ROLE %I IN DATABASE %I SET %s = %L', wanted.role, current_database(), wanted.setting, wanted.value);
    END LOOP;
END
$$;
