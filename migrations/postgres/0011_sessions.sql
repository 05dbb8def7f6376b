-- Sessions: stores attached for an agent, and what it did with them.
--
-- No foreign key leads to a tenant or a store. `agent` is the JSON text that is
-- answered, never looked into; `agent_id` and `agent_version` are copies of two of
-- its fields, by which sessions are listed. `last_used_at` is written late, with
-- the access times.
CREATE TABLE session (
    tenant_id uuid NOT NULL,
    session_id uuid NOT NULL,
    agent text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    agent_version bigint NOT NULL,
    environment_id text COLLATE "C" NOT NULL,
    title text COLLATE "C",
    metadata jsonb NOT NULL,
    vault_ids jsonb NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    archived_at bigint,
    deleted_at bigint,
    last_used_at bigint
) WITH (fillfactor = 80);
CREATE INDEX session_created ON session (tenant_id, created_at, session_id);
CREATE INDEX session_agent ON session (tenant_id, agent_id, created_at, session_id);
CREATE INDEX session_archived ON session (archived_at) WHERE archived_at IS NOT NULL;
CREATE INDEX session_deleted ON session (deleted_at) WHERE deleted_at IS NOT NULL;

-- The attachments. `name` and `description` are the store's at the time of the
-- attachment; `session_created_at` is the session's, so that the sessions of a
-- store are listed from one index.
CREATE TABLE session_resource (
    tenant_id uuid NOT NULL,
    session_id uuid NOT NULL,
    resource_id uuid NOT NULL,
    position bigint NOT NULL,
    store_id uuid NOT NULL,
    session_created_at bigint NOT NULL,
    slug text COLLATE "C" NOT NULL,
    access text COLLATE "C" NOT NULL,
    instructions text COLLATE "C",
    name text COLLATE "C" NOT NULL,
    description text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL
);
CREATE UNIQUE INDEX session_resource_store ON session_resource (tenant_id, session_id, store_id);
CREATE INDEX session_resource_of_store ON session_resource (tenant_id, store_id, session_created_at, session_id);

-- The calls of tools. `store_id` is where the paths led, `path` and `new_path`
-- what they were there, so that an erasure finds what names what is to go; a call
-- whose paths led nowhere has none of them, in `input` neither.
CREATE TABLE session_event (
    tenant_id uuid NOT NULL,
    session_id uuid NOT NULL,
    at bigint NOT NULL,
    event_id uuid NOT NULL,
    store_id uuid,
    path text COLLATE "C",
    new_path text COLLATE "C",
    name text COLLATE "C" NOT NULL,
    input text COLLATE "C" NOT NULL
);
CREATE INDEX session_event_at ON session_event (at);
CREATE INDEX session_event_path ON session_event (tenant_id, store_id, path);
CREATE INDEX session_event_new_path ON session_event (tenant_id, store_id, new_path) WHERE new_path IS NOT NULL;

-- The index that a look-up has the whole key of is made last, and each table is
-- taken for one tenant's, as in the first migration.
ALTER TABLE session ADD PRIMARY KEY (tenant_id, session_id);
ALTER TABLE session_resource ADD PRIMARY KEY (tenant_id, session_id, resource_id);
ALTER TABLE session_event ADD PRIMARY KEY (tenant_id, session_id, at, event_id);
ALTER TABLE session ALTER COLUMN tenant_id SET (n_distinct = 1);
ALTER TABLE session_resource ALTER COLUMN tenant_id SET (n_distinct = 1);
ALTER TABLE session_event ALTER COLUMN tenant_id SET (n_distinct = 1);

DO $$
DECLARE
    guarded text;
BEGIN
    FOREACH guarded IN ARRAY ARRAY['session', 'session_resource', 'session_event'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', guarded);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', guarded);
        EXECUTE format('CREATE POLICY tenant_only ON %I TO keepsake_app
            USING (tenant_id = nullif(current_setting(''keepsake.tenant'', true), '''')::uuid)', guarded);
        EXECUTE format('CREATE POLICY every_tenant ON %I TO keepsake_jobs USING (true)', guarded);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO keepsake_app, keepsake_jobs', guarded);
    END LOOP;
END
$$;
