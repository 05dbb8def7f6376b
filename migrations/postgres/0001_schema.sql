-- The tables, indexes, roles and row-level security of the metadata index.
--
-- Conventions:
--   * Times are microseconds since the Unix epoch.
--   * Ids are UUIDs. Their text form (`memstore_…`) is made by the code.
--   * Text is compared byte by byte (`COLLATE "C"`), as on SQLite.
--   * The path of a directory ends in `/`; the root directory is `/`.
--   * `tenant_id` is the first column of every key of a tenant's table, so that
--     the schema can be partitioned or distributed by tenant without change.
--   * There are no foreign keys to tenants and stores: each write would lock the
--     row that it refers to.
--   * `fillfactor` leaves room on each page, so that an update stays on its page
--     and changes no index.
--
-- Order of indexes: several indexes begin with tenant and store. A plan made
-- while a table was empty gives them equal costs, takes the index that was
-- created last, and stays cached. So the index that holds the whole key of the
-- most frequent lookup is created last, often the primary key.
--
-- migrations/sqlite has the same logical schema; a test compares the two.

---------------------------------------------------------------------------
-- Roles
---------------------------------------------------------------------------

-- The owner runs migrations. `keepsake_app` serves one tenant at a time.
-- `keepsake_jobs` may read and write every tenant. Connections take one of the
-- two with SET ROLE.
DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['keepsake_app', 'keepsake_jobs'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN NOBYPASSRLS', wanted);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL; -- a migration of another database of this cluster created it meanwhile
            END;
        END IF;
        -- From Postgres 16 on, the creator of a role is a member without the right to SET ROLE.
        IF NOT pg_has_role(current_user, wanted,
                CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END) THEN
            EXECUTE format('GRANT %I TO %I', wanted, current_user);
        END IF;
    END LOOP;
END
$$;

---------------------------------------------------------------------------
-- Global tables: they belong to no tenant
---------------------------------------------------------------------------

-- Finds the tenant and the API key of a secret.
CREATE TABLE credential (
    secret_sha256 bytea PRIMARY KEY,
    tenant_id uuid NOT NULL,
    api_key_id uuid NOT NULL
);
CREATE INDEX credential_tenant ON credential (tenant_id, api_key_id);

-- Keys of the server itself, encrypted with the master key.
CREATE TABLE server_secret (
    kid text COLLATE "C" PRIMARY KEY,
    purpose text COLLATE "C" NOT NULL,
    wrapped_key bytea NOT NULL,
    not_before bigint NOT NULL,
    retired_at bigint
);

-- The running processes. `access_flushed_through`: access times up to this time
-- are written.
CREATE TABLE replica (
    id uuid PRIMARY KEY,
    role text COLLATE "C" NOT NULL,
    heartbeat_at bigint NOT NULL,
    access_flushed_through bigint NOT NULL
);

-- The last batch of each log of counts that a replica wrote, in the transaction of the counts:
-- a batch whose commit was not answered is tried again, and counts once.
CREATE TABLE flushed_batch (
    replica uuid,
    log text COLLATE "C",
    batch uuid NOT NULL,
    flushed_at bigint NOT NULL,
    PRIMARY KEY (replica, log)
);

-- The codes of issuers with which people signed in to the console: each code works once.
CREATE TABLE redeemed_code (
    code_sha256 bytea PRIMARY KEY,
    redeemed_at bigint NOT NULL
);

-- One row per job: the lease of the replica that runs it, and where it continues.
CREATE TABLE job (
    name text COLLATE "C" PRIMARY KEY,
    owner uuid,
    lease_until bigint NOT NULL,
    fence bigint NOT NULL,
    cursor text COLLATE "C"
);

-- The runs of each job; the key makes a scheduled slot run once. `owner` is the
-- replica and `fence` the fence of its lease: a run without `ended_at` is still
-- running while the job's lease has this fence. A run started `by_hand` gets its
-- own slot. A dry run changes nothing.
CREATE TABLE job_run (
    name text COLLATE "C" NOT NULL,
    slot bigint NOT NULL,
    owner uuid,
    fence bigint,
    by_hand boolean NOT NULL DEFAULT false,
    is_dry_run boolean NOT NULL DEFAULT false,
    started_at bigint NOT NULL,
    ended_at bigint,
    counts jsonb,
    error text COLLATE "C",
    PRIMARY KEY (name, slot)
);
CREATE INDEX job_run_started ON job_run (name, started_at, slot);

-- What operators did. Append-only: no role may update or delete. `tenant_id`: the tenant
-- that the action concerned, also after its deletion. `changes`: the former and the new
-- value of each setting of a tenant that was changed, by its name.
CREATE TABLE operator_audit (
    id uuid PRIMARY KEY,
    at bigint NOT NULL,
    actor text COLLATE "C" NOT NULL,
    action text COLLATE "C" NOT NULL,
    tenant_id uuid,
    object_id uuid,
    changes jsonb
);
CREATE INDEX operator_audit_at ON operator_audit (at, id);

-- The time since which the tenants' audit is complete. The job that removes old
-- entries sets it in the same transaction.
CREATE TABLE audit_horizon (
    id bigint PRIMARY KEY,
    kept_from bigint NOT NULL
);

-- Deletions of tenants. These rows are kept for ever.
-- `row_counts` are the removed rows by table. `blob_cursor` is the key of the
-- last blob counted, so that a restart counts no blob twice. `versions_…` count
-- blobs by what happened to their older object versions in the bucket.
CREATE TABLE tenant_deletion (
    tenant_id uuid PRIMARY KEY,
    state text COLLATE "C" NOT NULL,
    requested_at bigint NOT NULL,
    settles_at bigint,
    ended_at bigint,
    row_counts jsonb NOT NULL,
    blob_count bigint NOT NULL,
    blob_bytes bigint NOT NULL,
    blob_cursor text COLLATE "C",
    versions_deleted bigint NOT NULL,
    versions_not_kept bigint NOT NULL,
    versions_kept bigint NOT NULL
);
CREATE INDEX tenant_deletion_open ON tenant_deletion (requested_at) WHERE ended_at IS NULL;

---------------------------------------------------------------------------
-- Tenants, their keys and their audit
---------------------------------------------------------------------------

-- `external_id` is the operator's own id of the tenant: the only unique key
-- that spans tenants. `search_mode` applies to stores that have none; null: hybrid.
-- After a change of the mode or the status, the job `embed-memories` resets
-- `store.embedded_by` of the stores after `unsettled_after`; null: of none.
CREATE TABLE tenant (
    tenant_id uuid PRIMARY KEY,
    external_id text COLLATE "C" UNIQUE,
    name text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    limits jsonb NOT NULL,
    store_count bigint NOT NULL,
    granted_bytes bigint NOT NULL,
    search_mode text COLLATE "C",
    unsettled_after uuid,
    created_at bigint NOT NULL
);
CREATE INDEX tenant_unsettled ON tenant (tenant_id) WHERE unsettled_after IS NOT NULL;

-- Counters that quotas are checked against. Every transaction locks this row
-- after all its other rows, so that two transactions cannot deadlock.
-- `sessions` and `session_bytes` count the sessions that are not deleted.
-- `audit_entries` counts the audit entries that the tenant's
-- credentials caused on `audit_day` (days since 1970). `reads_from`: `memory_read`
-- may lack reads of before this time.
CREATE TABLE tenant_counter (
    tenant_id uuid PRIMARY KEY,
    sessions bigint NOT NULL,
    session_bytes bigint NOT NULL,
    audit_day bigint NOT NULL,
    audit_entries bigint NOT NULL,
    reads_from bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

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

-- What happened in a tenant. `store_id` is the store concerned, where
-- `object_id` is not the store itself but, for example, a redacted version.
-- `changes`: see `operator_audit`. One index for each filter of the listing;
-- `audit_age` for removing old entries.
CREATE TABLE audit (
    tenant_id uuid NOT NULL,
    id uuid NOT NULL,
    at bigint NOT NULL,
    actor text COLLATE "C" NOT NULL,
    action text COLLATE "C" NOT NULL,
    object_id uuid,
    store_id uuid,
    changes jsonb,
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX audit_at ON audit (tenant_id, at, id);
CREATE INDEX audit_action ON audit (tenant_id, action, at, id);
CREATE INDEX audit_actor ON audit (tenant_id, actor, at, id);
CREATE INDEX audit_object ON audit (tenant_id, object_id, at, id);
CREATE INDEX audit_age ON audit (at);

-- Requests made with an idempotency key, and the object or version they made. `results`
-- says what became of each operation of a batch; it holds no content and no path.
CREATE TABLE idempotency (
    tenant_id uuid NOT NULL,
    scope_sha256 bytea NOT NULL,
    request_sha256 bytea NOT NULL,
    object_id uuid,
    store_id uuid,
    version_seq bigint,
    results text COLLATE "C",
    created_at bigint NOT NULL,
    PRIMARY KEY (tenant_id, scope_sha256)
);

-- Erasure requests. `selector` says what to erase and is cleared at the end;
-- `kind` and `store_id` stay. A worker holds the erasure until `lease_until`.
-- `counts` are what it removed, with the time of each step, in the form of the
-- receipt that the API shows. `error` is an error code, never a message.
CREATE TABLE erasure (
    tenant_id uuid NOT NULL,
    id uuid NOT NULL,
    kind text COLLATE "C",
    store_id uuid,
    selector jsonb,
    state text COLLATE "C" NOT NULL,
    cursor text COLLATE "C",
    counts jsonb,
    created_at bigint NOT NULL,
    started_at bigint,
    lease_until bigint,
    attempts bigint NOT NULL DEFAULT 0,
    error text COLLATE "C",
    ended_at bigint,
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX erasure_open ON erasure (created_at) WHERE ended_at IS NULL;
CREATE INDEX erasure_open_of_tenant ON erasure (tenant_id) WHERE ended_at IS NULL;

---------------------------------------------------------------------------
-- Stores, memories and versions
---------------------------------------------------------------------------

-- Every commit of a store locks this row, and no other commit waits for it.
-- `seq` is the `seq` of the store's newest version. No later version gets an
-- earlier time than `last_version_at`, unless that is more than a minute ahead. From the version
-- `rising_seq` on, none is earlier than the one before it. `purge_epoch` counts removals of history.
-- `idle_since`: every live memory was used at this time or later, so that expiry
-- skips the store until a memory can be due. `imported_seq` is the `seq` of the
-- last version that an import of a history wrote. The past of the store can be shown
-- after each version from `past_seq` on; retention has removed versions that were current before.
-- `reads_from`: since when it is recorded who was shown versions; null: it is not.
-- `search_mode`: null: that of the tenant. `embedded_by`: the model for which the job `embed-memories` has
-- nothing to do in the store; '' after a change. So of many commits, one changes the index.
CREATE TABLE store (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    name text COLLATE "C" NOT NULL,
    description text COLLATE "C" NOT NULL,
    metadata jsonb NOT NULL,
    policy text COLLATE "C" NOT NULL,
    expires_unused_after bigint,
    period_set_at bigint,
    idle_since bigint NOT NULL DEFAULT 0,
    seq bigint NOT NULL,
    last_version_at bigint NOT NULL,
    rising_seq bigint NOT NULL DEFAULT 0,
    purge_epoch bigint NOT NULL,
    memory_count bigint NOT NULL,
    live_bytes bigint NOT NULL,
    granted_bytes bigint NOT NULL,
    version_count bigint NOT NULL,
    version_bytes bigint NOT NULL,
    retention_seq bigint NOT NULL,
    imported_seq bigint NOT NULL DEFAULT 0,
    past_seq bigint NOT NULL DEFAULT 0,
    reads_from bigint DEFAULT 0,
    search_mode text COLLATE "C",
    embedded_by text COLLATE "C" NOT NULL DEFAULT '',
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    forked_from jsonb,
    archived_at bigint,
    deleted_at bigint
) WITH (fillfactor = 50);
CREATE INDEX store_created ON store (tenant_id, created_at, store_id);
CREATE INDEX store_deleted ON store (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX store_period ON store (tenant_id, store_id) WHERE expires_unused_after IS NOT NULL;
CREATE INDEX store_embedded ON store (embedded_by, tenant_id, store_id);
ALTER TABLE store ADD PRIMARY KEY (tenant_id, store_id);

-- The head of each memory. A deleted memory keeps its row and its id while
-- versions of it are kept. `expires_at` is the time at which it expires even if it
-- is used. `claimed_by`, `claimed_until`: a replica that lost a
-- race asks the others to let its next edit of this memory go first. This is a
-- hint; correctness does not depend on it.
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
    expires_at bigint,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    deleted_at bigint,
    claimed_by uuid,
    claimed_until bigint,
    PRIMARY KEY (tenant_id, store_id, memory_id)
) WITH (fillfactor = 80);
CREATE INDEX memory_expires ON memory (expires_at, tenant_id, store_id, memory_id)
    WHERE expires_at IS NOT NULL AND NOT pinned;
CREATE INDEX memory_parent ON memory (tenant_id, store_id, parent, name) WHERE deleted_at IS NULL;
CREATE UNIQUE INDEX memory_path ON memory (tenant_id, store_id, path) WHERE deleted_at IS NULL;

-- Every change of every memory. `blob_id` names the content; it equals
-- `version_id` unless the version keeps the content of an earlier one, as a
-- rename does.
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
    redacted_by_type text COLLATE "C",
    redacted_by text COLLATE "C",
    undoes uuid
);
CREATE UNIQUE INDEX version_id ON version (tenant_id, store_id, version_id);
CREATE INDEX version_memory ON version (tenant_id, store_id, memory_id, seq);
CREATE INDEX version_actor ON version (tenant_id, store_id, actor_id, seq);
CREATE INDEX version_op ON version (tenant_id, store_id, op, seq) WHERE op <> 'modified';
CREATE INDEX version_shared_blob ON version (tenant_id, store_id, blob_id) WHERE blob_id <> version_id;
ALTER TABLE version ADD PRIMARY KEY (tenant_id, store_id, seq);

-- Copies of stores that are under way, by the new store. `seq` is the point of the source, and
-- `after_path` the path of the last memory that was copied. `memories` is the number of memories of the point
-- when the copy began; NULL until they are counted. A worker holds the copy until `lease_until`.
CREATE TABLE store_fork (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    source_id uuid NOT NULL,
    seq bigint NOT NULL,
    actor_type text COLLATE "C",
    actor_id text COLLATE "C",
    created_at bigint NOT NULL,
    lease_until bigint NOT NULL,
    after_path text COLLATE "C",
    memories bigint,
    copied bigint NOT NULL,
    PRIMARY KEY (tenant_id, store_id)
);
CREATE INDEX store_fork_lease ON store_fork (lease_until);

-- Undos of many memories. `memory_undo_part` has the steps of one commit each, as JSON without
-- paths and contents; they are fixed when the undo is recorded, and replaced by what became of them.
-- `counts` are memories by what becomes of them. A worker holds the undo until `lease_until`.
-- `failing_since` is the time of the first failure of the server after the last commit.
CREATE TABLE memory_undo (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    undo_id uuid NOT NULL,
    actor_type text COLLATE "C",
    actor_id text COLLATE "C",
    created_at bigint NOT NULL,
    lease_until bigint NOT NULL,
    failing_since bigint,
    error text COLLATE "C",
    is_cancelled boolean NOT NULL,
    ended_at bigint,
    PRIMARY KEY (tenant_id, store_id, undo_id)
);
CREATE INDEX memory_undo_open ON memory_undo (lease_until) WHERE ended_at IS NULL;
CREATE INDEX memory_undo_ended ON memory_undo (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE memory_undo_part (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    undo_id uuid NOT NULL,
    part bigint NOT NULL,
    is_done boolean NOT NULL,
    counts jsonb NOT NULL,
    steps text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, store_id, undo_id, part)
);

-- `files` and `bytes` count everything below, hidden or not.
-- `visible_children` counts the direct children that a listing shows.
-- `changed_at` is the time of the last change below, and may be earlier within the
-- same minute; 0: nothing has changed.
-- `directory_children` orders by path, `directory_parent` by name. The orders
-- differ, because a path ends in `/`: `/a.b/` comes before `/a/`.
CREATE TABLE directory (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    path text COLLATE "C" NOT NULL,
    parent text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    files bigint NOT NULL,
    bytes bigint NOT NULL,
    visible_children bigint NOT NULL,
    changed_at bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 80);
CREATE INDEX directory_parent ON directory (tenant_id, store_id, parent, name);
CREATE INDEX directory_children ON directory (tenant_id, store_id, parent, path);
ALTER TABLE directory ADD PRIMARY KEY (tenant_id, store_id, path);

-- When each memory was last read, and when it was last used in any way. No index has these
-- times: each read would change it.
CREATE TABLE memory_access (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    memory_id uuid NOT NULL,
    last_read_at bigint NOT NULL,
    last_read_by_type text COLLATE "C",
    last_read_by text COLLATE "C",
    active_at bigint NOT NULL,
    PRIMARY KEY (tenant_id, store_id, memory_id)
) WITH (fillfactor = 80);

-- Who was shown which version, where, how often, and when for the first and the last
-- time; written late, together with the access times. `session_id` is the nil UUID
-- outside of a session. Rows are never without their version.
CREATE TABLE memory_read (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    memory_id uuid NOT NULL,
    version_id uuid NOT NULL,
    session_id uuid NOT NULL,
    actor_type text COLLATE "C" NOT NULL,
    actor_id text COLLATE "C" NOT NULL,
    surface text COLLATE "C" NOT NULL,
    first_read_at bigint NOT NULL,
    last_read_at bigint NOT NULL,
    read_count bigint NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX memory_read_session ON memory_read (tenant_id, session_id, first_read_at, version_id);
CREATE INDEX memory_read_age ON memory_read (tenant_id, last_read_at);
ALTER TABLE memory_read ADD PRIMARY KEY
    (tenant_id, store_id, memory_id, version_id, session_id, actor_type, actor_id, surface);

-- How often versions of a store were shown and written on a day (days since 1970, UTC), how many
-- changes were refused or came after another one, and how many more memories there were afterwards
-- (`growth`, which may be negative), by surface; written late, together with the access times. The rows
-- with the nil UUID as `store_id` count the whole tenant, also what it did in stores that are gone.
CREATE TABLE daily_use (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    day bigint NOT NULL,
    surface text COLLATE "C" NOT NULL,
    reads bigint NOT NULL,
    writes bigint NOT NULL,
    refusals bigint NOT NULL,
    conflicts bigint NOT NULL,
    growth bigint NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX daily_use_day ON daily_use (day);
ALTER TABLE daily_use ADD PRIMARY KEY (tenant_id, store_id, day, surface);

-- The search terms of each memory, written by the commit of its content. They
-- are the terms of the content `blob_id`; if the memory has another content by
-- now, they are outdated and made again. Rows have about 2 KB and are dense:
-- compressing them would take longer than the commit, and storing them out of
-- line would cost two more reads per row.
CREATE TABLE search_doc (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    memory_id uuid NOT NULL,
    blob_id uuid,
    analyser bigint NOT NULL,
    length bigint NOT NULL,
    terms bytea NOT NULL,
    PRIMARY KEY (tenant_id, store_id, memory_id)
) WITH (toast_tuple_target = 8160);
ALTER TABLE search_doc ALTER COLUMN terms SET STORAGE EXTERNAL;

-- The vectors of each memory for the search by meaning, by the model that made them: one row has
-- all chunks of the content and path of `version_id`. Written behind the commits; if the memory
-- has another version by now, they are outdated. `edit` is that of the store when they were
-- written. The vectors cannot be compressed, and many rows are small: like `search_doc`. The index has
-- what a store's usage needs, so that it does not read the vectors.
CREATE TABLE embedding (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    memory_id uuid NOT NULL,
    model text COLLATE "C" NOT NULL,
    version_id uuid NOT NULL,
    edit bigint NOT NULL,
    chunks bigint NOT NULL,
    vector_bytes bigint NOT NULL,
    vectors bytea NOT NULL
) WITH (toast_tuple_target = 8160);
ALTER TABLE embedding ALTER COLUMN vectors SET STORAGE EXTERNAL;
CREATE INDEX embedding_edit ON embedding (tenant_id, store_id, model, edit)
    INCLUDE (memory_id, version_id, chunks, vector_bytes);
ALTER TABLE embedding ADD PRIMARY KEY (tenant_id, store_id, memory_id, model);

-- Through which version a store is embedded by a model. `edit` grows with each write of vectors.
-- It begins with the time, so a store whose rows were removed gets a greater one when it is
-- embedded again. `is_complete`: all versions were embedded once, so that the vectors serve searches also
-- while those of a few later versions are missing. `claimed_by` embeds the store until `claimed_until`.
CREATE TABLE embedded_store (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    model text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    edit bigint NOT NULL,
    is_complete boolean NOT NULL DEFAULT false,
    claimed_by uuid,
    claimed_until bigint,
    PRIMARY KEY (tenant_id, store_id, model)
) WITH (fillfactor = 80);

-- Content that is in this database instead of an object store. The commit of a
-- version inserts its content; the transaction that queues its blob for deletion
-- deletes it.
CREATE TABLE content (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    blob_id uuid NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (tenant_id, store_id, blob_id)
);

-- The deletion queue of blobs. A blob in this table is condemned: a commit that
-- names it is refused, and a job removes it after `not_before`. A blob with an
-- `erasure_id` is removed by that erasure instead, at any time.
CREATE TABLE blob_deletion (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    blob_id uuid NOT NULL,
    erasure_id uuid,
    not_before bigint NOT NULL,
    attempts bigint NOT NULL,
    reason text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, store_id, blob_id)
);
CREATE INDEX blob_deletion_due ON blob_deletion (not_before);
CREATE INDEX blob_deletion_erasure ON blob_deletion (erasure_id) WHERE erasure_id IS NOT NULL;

---------------------------------------------------------------------------
-- Sessions
---------------------------------------------------------------------------

-- A session attaches stores for an agent. `agent` is the JSON text that the API
-- returns and is never parsed; `agent_id` and `agent_version` are copies of two
-- of its fields for listing, and `agent_name` is the beginning of its name, or
-- its id. `last_used_at` is written late, together with the
-- access times. `description_bytes` counts the bytes that the client supplied:
-- agent, title, metadata, vault ids and the instructions of the attachments.
CREATE TABLE session (
    tenant_id uuid NOT NULL,
    session_id uuid NOT NULL,
    agent text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    agent_name text COLLATE "C" NOT NULL,
    agent_version bigint NOT NULL,
    environment_id text COLLATE "C" NOT NULL,
    title text COLLATE "C",
    metadata jsonb NOT NULL,
    vault_ids jsonb NOT NULL,
    description_bytes bigint NOT NULL DEFAULT 0,
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
ALTER TABLE session ADD PRIMARY KEY (tenant_id, session_id);

-- The attached stores. `name` and `description` are copies of the store's at
-- the time of the attachment. `session_created_at` is a copy of the session's
-- time, so that one index lists the sessions of a store.
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
ALTER TABLE session_resource ADD PRIMARY KEY (tenant_id, session_id, resource_id);

-- The tool calls of a session. `store_id`, `path` and `new_path` are the store
-- and the paths that the call resolved to, so that an erasure finds calls that
-- name what it erases. They are null where a path could not be resolved, and
-- then `input` has no path either.
CREATE TABLE session_event (
    tenant_id uuid NOT NULL,
    session_id uuid NOT NULL,
    at bigint NOT NULL,
    event_id uuid NOT NULL,
    store_id uuid,
    path text COLLATE "C",
    new_path text COLLATE "C",
    name text COLLATE "C" NOT NULL,
    input text COLLATE "C" NOT NULL,
    is_error boolean NOT NULL
);
CREATE INDEX session_event_at ON session_event (at);
CREATE INDEX session_event_path ON session_event (tenant_id, store_id, path);
CREATE INDEX session_event_new_path ON session_event (tenant_id, store_id, new_path) WHERE new_path IS NOT NULL;
ALTER TABLE session_event ADD PRIMARY KEY (tenant_id, session_id, at, event_id);

---------------------------------------------------------------------------
-- Statistics for the planner
---------------------------------------------------------------------------

-- Every key begins with tenant and store. The planner multiplies the
-- selectivity of both, although a store belongs to one tenant. It would expect
-- one row per store and would read the whole store through any index. With
-- `n_distinct = 1` it expects no reduction from these two columns, and chooses
-- the index that holds the whole key.
DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['memory', 'version', 'directory', 'memory_access', 'memory_read', 'search_doc',
        'embedding', 'content', 'blob_deletion']
    LOOP
        EXECUTE format('ALTER TABLE %I ALTER COLUMN tenant_id SET (n_distinct = 1),
            ALTER COLUMN store_id SET (n_distinct = 1)', wanted);
    END LOOP;
    FOREACH wanted IN ARRAY ARRAY['session', 'session_resource', 'session_event'] LOOP
        EXECUTE format('ALTER TABLE %I ALTER COLUMN tenant_id SET (n_distinct = 1)', wanted);
    END LOOP;
END
$$;

---------------------------------------------------------------------------
-- Row-level security and grants
---------------------------------------------------------------------------

-- `keepsake_app` sees only the rows of the tenant in the setting
-- `keepsake.tenant`, which each transaction sets for itself. Without a tenant it
-- sees no rows. After such a transaction the setting of the connection is an
-- empty string, hence `nullif`. FORCE applies this to the owner too, unless the
-- owner is a superuser. Every table of tenants must be in this list; a test
-- fails otherwise.
DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['tenant', 'tenant_counter', 'api_key', 'audit', 'idempotency', 'erasure', 'store',
        'memory', 'version', 'store_fork', 'memory_undo', 'memory_undo_part', 'directory', 'memory_access', 'memory_read',
        'daily_use', 'search_doc', 'embedding', 'embedded_store', 'content', 'blob_deletion', 'session',
        'session_resource', 'session_event'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', wanted);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', wanted);
        EXECUTE format('CREATE POLICY tenant_only ON %I TO keepsake_app
            USING (tenant_id = nullif(current_setting(''keepsake.tenant'', true), '''')::uuid)', wanted);
        EXECUTE format('CREATE POLICY every_tenant ON %I TO keepsake_jobs USING (true)', wanted);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO keepsake_app, keepsake_jobs', wanted);
    END LOOP;
END
$$;

-- The audit is append-only. Only the jobs may delete: old entries, and those of
-- a deleted tenant.
REVOKE UPDATE, DELETE ON audit FROM keepsake_app;
REVOKE UPDATE ON audit FROM keepsake_jobs;

-- The app finds the tenant of any credential. It can add credentials of its tenant, and
-- change or remove none.
ALTER TABLE credential ENABLE ROW LEVEL SECURITY;
ALTER TABLE credential FORCE ROW LEVEL SECURITY;
CREATE POLICY every_credential ON credential FOR SELECT TO keepsake_app USING (true);
CREATE POLICY tenant_only ON credential FOR INSERT TO keepsake_app
    WITH CHECK (tenant_id = nullif(current_setting('keepsake.tenant', true), '')::uuid);
CREATE POLICY every_tenant ON credential TO keepsake_jobs USING (true);
GRANT SELECT, INSERT ON credential TO keepsake_app;

-- The app cannot read the server's keys.
GRANT SELECT, INSERT, UPDATE, DELETE ON credential, server_secret, replica, flushed_batch, redeemed_code, job, job_run
    TO keepsake_jobs;
GRANT SELECT, INSERT, UPDATE ON tenant_deletion, audit_horizon TO keepsake_jobs;
GRANT SELECT, INSERT ON operator_audit TO keepsake_jobs;
