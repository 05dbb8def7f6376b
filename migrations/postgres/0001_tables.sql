-- The tables of the metadata index.
--
-- Times are microseconds since the Unix epoch. Ids are UUIDs whose text form
-- (`memstore_…`) lives in the code. Directory paths end in `/`; the root is `/`.
-- `tenant_id` leads every key of a tenant's table, so that the schema can be
-- partitioned or distributed by tenant without change, and no foreign key
-- points from a table that every write touches to a tenant or a store.
-- The SQLite migration of the same number describes the same logical schema.

-- Roles: the owner runs migrations, `keepsake_app` serves one tenant at a time,
-- `keepsake_jobs` may cross tenants. Sessions take theirs with SET ROLE.
DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['keepsake_app', 'keepsake_jobs'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN NOBYPASSRLS', wanted);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL; -- another database of the cluster made it a moment ago
            END;
        END IF;
        -- From 16 on, who makes a role is a member of it that may not SET ROLE.
        IF NOT pg_has_role(current_user, wanted,
                CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END) THEN
            EXECUTE format('GRANT %I TO %I', wanted, current_user);
        END IF;
    END LOOP;
END
$$;

-- Global tables: the only ones without a tenant.

CREATE TABLE credential (
    secret_sha256 bytea PRIMARY KEY,
    tenant_id uuid NOT NULL,
    api_key_id uuid NOT NULL
);

CREATE TABLE server_secret (
    kid text COLLATE "C" PRIMARY KEY,
    purpose text COLLATE "C" NOT NULL,
    wrapped_key bytea NOT NULL,
    not_before bigint NOT NULL,
    retired_at bigint
);

CREATE TABLE replica (
    id uuid PRIMARY KEY,
    role text COLLATE "C" NOT NULL,
    heartbeat_at bigint NOT NULL,
    access_flushed_through bigint NOT NULL
);

CREATE TABLE change_feed (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    tenant_id uuid NOT NULL,
    object_id uuid
);

CREATE TABLE job (
    name text COLLATE "C" PRIMARY KEY,
    owner uuid,
    lease_until bigint NOT NULL,
    fence bigint NOT NULL,
    cursor text COLLATE "C"
);

CREATE TABLE job_run (
    name text COLLATE "C" NOT NULL,
    slot bigint NOT NULL,
    started_at bigint NOT NULL,
    ended_at bigint,
    counts jsonb,
    error text COLLATE "C",
    PRIMARY KEY (name, slot)
);

CREATE TABLE operator_audit (
    id uuid PRIMARY KEY,
    at bigint NOT NULL,
    actor text COLLATE "C" NOT NULL,
    action text COLLATE "C" NOT NULL,
    object_id uuid
);

-- Per tenant.

CREATE TABLE tenant (
    tenant_id uuid PRIMARY KEY,
    external_id text COLLATE "C" UNIQUE,
    name text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    limits jsonb NOT NULL,
    store_count bigint NOT NULL,
    granted_bytes bigint NOT NULL,
    created_at bigint NOT NULL
);

CREATE TABLE api_key (
    tenant_id uuid NOT NULL,
    api_key_id uuid NOT NULL,
    name text COLLATE "C" NOT NULL,
    scopes jsonb NOT NULL,
    store_ids jsonb,
    created_at bigint NOT NULL,
    expires_at bigint,
    last_used_at bigint,
    revoked_at bigint,
    PRIMARY KEY (tenant_id, api_key_id)
);

CREATE TABLE audit (
    tenant_id uuid NOT NULL,
    id uuid NOT NULL,
    at bigint NOT NULL,
    actor text COLLATE "C" NOT NULL,
    action text COLLATE "C" NOT NULL,
    object_id uuid,
    PRIMARY KEY (tenant_id, id)
);

CREATE TABLE idempotency (
    tenant_id uuid NOT NULL,
    scope_sha256 bytea NOT NULL,
    request_sha256 bytea NOT NULL,
    object_id uuid,
    store_id uuid,
    version_seq bigint,
    created_at bigint NOT NULL,
    PRIMARY KEY (tenant_id, scope_sha256)
);

CREATE TABLE erasure (
    tenant_id uuid NOT NULL,
    id uuid NOT NULL,
    selector jsonb,
    state text COLLATE "C" NOT NULL,
    cursor text COLLATE "C",
    counts jsonb,
    created_at bigint NOT NULL,
    ended_at bigint,
    PRIMARY KEY (tenant_id, id)
);

-- Per store. The store row is the one row that every commit of the store
-- locks; `seq` is the order of its versions.
--
-- Several indexes begin with tenant and store. A plan that was made while a table
-- was empty takes them for equal, keeps the one made last, and is kept itself: so
-- the index that a look-up has the whole key of is made after the others.

CREATE TABLE store (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    name text COLLATE "C" NOT NULL,
    description text COLLATE "C" NOT NULL,
    metadata jsonb NOT NULL,
    policy text COLLATE "C" NOT NULL,
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
    deleted_at bigint,
    PRIMARY KEY (tenant_id, store_id)
) WITH (fillfactor = 50);

-- Heads. A deleted memory keeps its row (and id) while versions of it are kept.
-- `claimed_by`, `claimed_until`: a replica that lost a race asks the others to
-- let its next edit of this memory go first; a hint, correctness never rests on it.
CREATE TABLE memory (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    memory_id uuid NOT NULL,
    path text COLLATE "C" NOT NULL,
    parent text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    head_seq bigint NOT NULL,
    version_id uuid NOT NULL,
    blob_id uuid,
    size_bytes bigint,
    sha256 bytea,
    first_line text COLLATE "C",
    pinned boolean NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    deleted_at bigint,
    claimed_by uuid,
    claimed_until bigint,
    PRIMARY KEY (tenant_id, store_id, memory_id)
) WITH (fillfactor = 80);
CREATE INDEX memory_parent ON memory (tenant_id, store_id, parent, name) WHERE deleted_at IS NULL;
CREATE UNIQUE INDEX memory_path ON memory (tenant_id, store_id, path) WHERE deleted_at IS NULL;

CREATE TABLE version (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    seq bigint NOT NULL,
    version_id uuid NOT NULL,
    memory_id uuid NOT NULL,
    prev_seq bigint,
    op text COLLATE "C" NOT NULL,
    path text COLLATE "C",
    blob_id uuid,
    size_bytes bigint,
    sha256 bytea,
    created_at bigint NOT NULL,
    actor_type text COLLATE "C",
    actor_id text COLLATE "C",
    redacted_at bigint,
    redacted_by text COLLATE "C"
);
CREATE UNIQUE INDEX version_id ON version (tenant_id, store_id, version_id);
CREATE INDEX version_memory ON version (tenant_id, store_id, memory_id, seq);
CREATE INDEX version_actor ON version (tenant_id, store_id, actor_id, seq);
CREATE INDEX version_op ON version (tenant_id, store_id, op, seq) WHERE op <> 'modified';
CREATE INDEX version_shared_blob ON version (tenant_id, store_id, blob_id) WHERE blob_id <> version_id;
ALTER TABLE version ADD PRIMARY KEY (tenant_id, store_id, seq);

-- `files` and `bytes` count everything below, hidden or not;
-- `visible_children` counts the direct children that a listing shows.
CREATE TABLE directory (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    path text COLLATE "C" NOT NULL,
    parent text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    files bigint NOT NULL,
    bytes bigint NOT NULL,
    visible_children bigint NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX directory_parent ON directory (tenant_id, store_id, parent, name);
ALTER TABLE directory ADD PRIMARY KEY (tenant_id, store_id, path);

CREATE TABLE memory_access (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    memory_id uuid NOT NULL,
    last_read_at bigint NOT NULL,
    last_read_by text COLLATE "C",
    active_at bigint NOT NULL,
    PRIMARY KEY (tenant_id, store_id, memory_id)
) WITH (fillfactor = 80);
CREATE INDEX memory_access_active ON memory_access (tenant_id, store_id, active_at);

CREATE TABLE search_doc (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    memory_id uuid NOT NULL,
    analyser bigint NOT NULL,
    length bigint NOT NULL,
    terms bytea NOT NULL,
    PRIMARY KEY (tenant_id, store_id, memory_id)
);

-- A blob in this table is condemned: a commit that names it is refused, the
-- drain removes it once `not_before` has come.
CREATE TABLE blob_deletion (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    blob_id uuid NOT NULL,
    not_before bigint NOT NULL,
    attempts bigint NOT NULL,
    reason text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, store_id, blob_id)
);
CREATE INDEX blob_deletion_due ON blob_deletion (not_before);

-- Every key begins with tenant and store, and the planner multiplies what each
-- narrows though the one follows from the other: it would take a store for one
-- row, and read all of it by whichever index comes first. Told that there is one
-- tenant with one store, it looks for the index that has the whole key.
DO $$
DECLARE
    keyed text;
BEGIN
    FOREACH keyed IN ARRAY ARRAY['memory', 'version', 'directory', 'memory_access', 'search_doc', 'blob_deletion']
    LOOP
        EXECUTE format('ALTER TABLE %I ALTER COLUMN tenant_id SET (n_distinct = 1),
            ALTER COLUMN store_id SET (n_distinct = 1)', keyed);
    END LOOP;
END
$$;

-- Row-level security: what `keepsake_app` sees is the tenant set for its
-- transaction, and nothing where none is set. An empty setting is what a
-- session has after a transaction that set one.
DO $$
DECLARE
    guarded text;
BEGIN
    FOREACH guarded IN ARRAY ARRAY['tenant', 'api_key', 'audit', 'idempotency', 'erasure', 'store', 'memory',
        'version', 'directory', 'memory_access', 'search_doc', 'blob_deletion'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', guarded);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', guarded);
        EXECUTE format('CREATE POLICY tenant_only ON %I TO keepsake_app
            USING (tenant_id = nullif(current_setting(''keepsake.tenant'', true), '''')::uuid)', guarded);
        EXECUTE format('CREATE POLICY every_tenant ON %I TO keepsake_jobs USING (true)', guarded);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO keepsake_app, keepsake_jobs', guarded);
    END LOOP;
    -- The audit is append-only, for the jobs too but for a tenant's deletion.
    REVOKE UPDATE, DELETE ON audit FROM keepsake_app;
    REVOKE UPDATE ON audit FROM keepsake_jobs;
END
$$;

GRANT SELECT ON credential, server_secret, change_feed TO keepsake_app;
GRANT INSERT ON change_feed TO keepsake_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON credential, server_secret, replica, change_feed, job, job_run
    TO keepsake_jobs;
GRANT SELECT, INSERT ON operator_audit TO keepsake_jobs;
