-- The tables, indexes and triggers of the metadata index, for SQLite.
--
-- The same logical schema as migrations/postgres/0001_schema.sql, which explains
-- the tables and columns; a test compares the two. UUIDs and hashes are BLOBs,
-- JSON is TEXT, booleans are 0 and 1. SQLite has no roles: one process owns the
-- file. Triggers keep the audit append-only, as grants do on Postgres.

---------------------------------------------------------------------------
-- Global tables: they belong to no tenant
---------------------------------------------------------------------------

CREATE TABLE credential (
    secret_sha256 BLOB NOT NULL PRIMARY KEY,
    tenant_id BLOB NOT NULL,
    api_key_id BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX credential_tenant ON credential (tenant_id, api_key_id);

CREATE TABLE server_secret (
    kid TEXT NOT NULL PRIMARY KEY,
    purpose TEXT NOT NULL,
    wrapped_key BLOB NOT NULL,
    not_before INTEGER NOT NULL,
    retired_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE replica (
    id BLOB NOT NULL PRIMARY KEY,
    role TEXT NOT NULL,
    heartbeat_at INTEGER NOT NULL,
    access_flushed_through INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE flushed_batch (
    replica BLOB NOT NULL,
    log TEXT NOT NULL,
    batch BLOB NOT NULL,
    flushed_at INTEGER NOT NULL,
    PRIMARY KEY (replica, log)
) STRICT, WITHOUT ROWID;

CREATE TABLE redeemed_code (
    code_sha256 BLOB NOT NULL PRIMARY KEY,
    redeemed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE job (
    name TEXT NOT NULL PRIMARY KEY,
    owner BLOB,
    lease_until INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    cursor TEXT
) STRICT, WITHOUT ROWID;

CREATE TABLE job_run (
    name TEXT NOT NULL,
    slot INTEGER NOT NULL,
    owner BLOB,
    fence INTEGER,
    by_hand INTEGER NOT NULL DEFAULT 0,
    is_dry_run INTEGER NOT NULL DEFAULT 0,
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    counts TEXT,
    error TEXT,
    PRIMARY KEY (name, slot)
) STRICT, WITHOUT ROWID;
CREATE INDEX job_run_started ON job_run (name, started_at, slot);

CREATE TABLE operator_audit (
    id BLOB NOT NULL PRIMARY KEY,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    tenant_id BLOB,
    object_id BLOB,
    changes TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX operator_audit_at ON operator_audit (at, id);

CREATE TRIGGER operator_audit_refuses_update BEFORE UPDATE ON operator_audit
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only');
END;
CREATE TRIGGER operator_audit_refuses_delete BEFORE DELETE ON operator_audit
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only');
END;

CREATE TABLE audit_horizon (
    id INTEGER NOT NULL PRIMARY KEY,
    kept_from INTEGER NOT NULL
) STRICT;

CREATE TABLE tenant_deletion (
    tenant_id BLOB NOT NULL PRIMARY KEY,
    state TEXT NOT NULL,
    requested_at INTEGER NOT NULL,
    settles_at INTEGER,
    ended_at INTEGER,
    row_counts TEXT NOT NULL,
    blob_count INTEGER NOT NULL,
    blob_bytes INTEGER NOT NULL,
    blob_cursor TEXT,
    versions_deleted INTEGER NOT NULL,
    versions_not_kept INTEGER NOT NULL,
    versions_kept INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX tenant_deletion_open ON tenant_deletion (requested_at) WHERE ended_at IS NULL;

---------------------------------------------------------------------------
-- Tenants, their keys and their audit
---------------------------------------------------------------------------

CREATE TABLE tenant (
    tenant_id BLOB NOT NULL PRIMARY KEY,
    external_id TEXT UNIQUE,
    name TEXT NOT NULL,
    status TEXT NOT NULL,
    limits TEXT NOT NULL,
    store_count INTEGER NOT NULL,
    granted_bytes INTEGER NOT NULL,
    search_mode TEXT,
    unsettled_after BLOB,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX tenant_unsettled ON tenant (tenant_id) WHERE unsettled_after IS NOT NULL;

CREATE TABLE tenant_counter (
    tenant_id BLOB NOT NULL PRIMARY KEY,
    sessions INTEGER NOT NULL,
    session_bytes INTEGER NOT NULL,
    audit_day INTEGER NOT NULL,
    audit_entries INTEGER NOT NULL,
    reads_from INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE api_key (
    tenant_id BLOB NOT NULL,
    api_key_id BLOB NOT NULL,
    name TEXT NOT NULL,
    scopes TEXT NOT NULL,
    store_ids TEXT,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    last_used_at INTEGER,
    revoked_at INTEGER,
    PRIMARY KEY (tenant_id, api_key_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
    tenant_id BLOB NOT NULL,
    id BLOB NOT NULL,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    object_id BLOB,
    store_id BLOB,
    changes TEXT,
    PRIMARY KEY (tenant_id, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX audit_at ON audit (tenant_id, at, id);
CREATE INDEX audit_action ON audit (tenant_id, action, at, id);
CREATE INDEX audit_actor ON audit (tenant_id, actor, at, id);
CREATE INDEX audit_object ON audit (tenant_id, object_id, at, id);
CREATE INDEX audit_age ON audit (at);

-- Entries are removed only with their tenant, or when they are older than the
-- horizon.
CREATE TRIGGER audit_refuses_update BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only');
END;
CREATE TRIGGER audit_refuses_delete BEFORE DELETE ON audit
WHEN NOT EXISTS (SELECT 1 FROM tenant_deletion d WHERE d.tenant_id = OLD.tenant_id AND d.ended_at IS NULL)
    AND NOT EXISTS (SELECT 1 FROM audit_horizon h WHERE OLD.at < h.kept_from)
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only');
END;

CREATE TABLE idempotency (
    tenant_id BLOB NOT NULL,
    scope_sha256 BLOB NOT NULL,
    request_sha256 BLOB NOT NULL,
    object_id BLOB,
    store_id BLOB,
    version_seq INTEGER,
    results TEXT,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, scope_sha256)
) STRICT, WITHOUT ROWID;

-- `counts` has the form of the receipt that the API shows.
CREATE TABLE erasure (
    tenant_id BLOB NOT NULL,
    id BLOB NOT NULL,
    kind TEXT,
    store_id BLOB,
    selector TEXT,
    state TEXT NOT NULL,
    cursor TEXT,
    counts TEXT,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    lease_until INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0,
    error TEXT,
    ended_at INTEGER,
    PRIMARY KEY (tenant_id, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX erasure_open ON erasure (created_at) WHERE ended_at IS NULL;
CREATE INDEX erasure_open_of_tenant ON erasure (tenant_id) WHERE ended_at IS NULL;

---------------------------------------------------------------------------
-- Stores, memories and versions
---------------------------------------------------------------------------

CREATE TABLE store (
    tenant_id BLOB NOT NULL,
    store_id BLOB NOT NULL,
    name TEXT NOT NULL,
    description TEXT NOT NULL,
    metadata TEXT NOT NULL,
    policy TEXT NOT NULL,
    expires_unused_after INTEGER,
    period_set_at INTEGER,
    idle_since INTEGER NOT NULL DEFAULT 0,
    seq INTEGER NOT NULL,
    last_version_at INTEGER NOT NULL,
    rising_seq INTEGER NOT NULL DEFAULT 0,
    purge_epoch INTEGER NOT NULL,
    memory_count INTEGER NOT NULL,
    live_bytes INTEGER NOT NULL,
    granted_bytes INTEGER NOT NULL,
    version_count INTEGER NOT NULL,
    version_bytes INTEGER NOT NULL,
    retention_seq INTEGER NOT NULL,
    imported_seq INTEGER NOT NULL DEFAULT 0,
    past_seq INTEGER NOT NULL DEFAULT 0,
    reads_from INTEGER DEFAULT 0,
    search_mode TEXT,
    embedded_by TEXT NOT NULL DEFAULT '',
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    forked_from TEXT,
    archived_at INTEGER,
    deleted_at INTEGER,
    PRIMARY KEY (tenant_id, store_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX store_created ON store (tenant_id, created_at, store_id);
CREATE INDEX store_deleted ON store (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX store_period ON store (tenant_id, store_id) WHERE expires_unused_after IS NOT NULL;
CREATE INDEX store_embedded ON store (embedded_by, tenant_id, store_id);

CREATE TABLE memory (
    tenant_id BLOB NOT NULL,
    store_id BLOB NOT NULL,
    memory_id BLOB NOT NULL,
    path TEXT NOT NULL,
    parent TEXT NOT NULL,
    name TEXT NOT NULL,
    head_seq INTEGER NOT NULL,
    version_id BLOB NOT NULL,
    blob_id BLOB,
    size_bytes INTEGER,
    sha256 BLOB,
    first_line TEXT,
    pinned INTEGER NOT NULL,
    expires_at INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    deleted_at INTEGER,
    claimed_by BLOB,
    claimed_until INTEGER,
    PRIMARY KEY (tenant_id, store_id, memory_id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX memory_path ON memory (tenant_id, store_id, path) WHERE deleted_at IS NULL;
CREATE INDEX memory_expires ON memory (expires_at, tenant_id, store_id, memory_id)
    WHERE expires_at IS NOT NULL AND NOT pinned;
-- Contains every column that a listing needs, so that listing a large directory
-- reads no rows of the table. SQLite also needs the column of the condition.
CREATE INDEX memory_parent ON memory (tenant_id, store_id, parent, name, size_bytes, deleted_at)
    WHERE deleted_at IS NULL;

CREATE TABLE version (
    tenant_id BLOB NOT NULL,
    store_id BLOB NOT NULL,
    seq INTEGER NOT NULL,
    version_id BLOB NOT NULL,
    memory_id BLOB NOT NULL,
    prev_seq INTEGER,
    op TEXT NOT NULL,
    path TEXT,
    blob_id BLOB,
    size_bytes INTEGER,
    sha256 BLOB,
    created_at INTEGER NOT NULL,
    actor_type TEXT,
    actor_id TEXT,
    redacted_at INTEGER,
    redacted_by_type TEXT,
    redacted_by TEXT,
    undoes BLOB,
    PRIMARY KEY (tenant_id, store_id, seq)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX version_id ON version (tenant_id, store_id, version_id);
CREATE INDEX version_memory ON version (tenant_id, store_id, memory_id, seq);
CREATE INDEX version_actor ON version (tenant_id, store_id, actor_id, seq);
CREATE INDEX version_op ON version (tenant_id, store_id, op, seq) WHERE op <> 'modified';
CREATE INDEX version_shared_blob ON version (tenant_id, store_id, blob_id) WHERE blob_id <> version_id;

CREATE TABLE store_fork (
    tenant_id BLOB NOT NULL,
    store_id BLOB NOT NULL,
    source_id BLOB NOT NULL,
    seq INTEGER NOT NULL,
    actor_type TEXT,
    actor_id TEXT,
    created_at INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    after_path TEXT,
    memories INTEGER,
    copied INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, store_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX store_fork_lease ON store_fork (lease_until);

CREATE TABLE memory_undo (
    tenant_id BLOB NOT NULL,
    store_id BLOB NOT NULL,
    undo_id BLOB NOT NULL,
    actor_type TEXT,
    actor_id TEXT,
    created_at INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    failing_since INTEGER,
    error TEXT,
    is_cancelled INTEGER NOT NULL,
    ended_at INTEGER,
    PRIMARY KEY (tenant_id, store_id, undo_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX memory_undo_open ON memory_undo (lease_until) WHERE ended_at IS NULL;
CREATE INDEX memory_undo_ended ON memory_undo (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE memory_undo_part (
    tenant_id BLOB NOT NULL,
    store_id BLOB NOT NULL,
    undo_id BLOB NOT NULL,
    part INTEGER NOT NULL,
    is_done INTEGER NOT NULL,
    counts TEXT NOT NULL,
    steps TEXT NOT NULL,
    PRIMARY KEY (tenant_id, store_id, undo_id, part)
) STRICT;

CREATE TABLE directory (
    tenant_id BLOB NOT NULL,
    store_id BLOB NOT NULL,
    path TEXT NOT NULL,
    parent TEXT NOT NULL,
    name TEXT NOT NULL,
    files INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    visible_children INTEGER NOT NULL,
    changed_at INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, store_id, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX directory_parent ON directory (tenant_id, store_id, parent, name);
CREATE INDEX directory_children ON directory (tenant_id, store_id, parent, path);

CREATE TABLE memory_access (
    tenant_id BLOB NOT NULL,
    store_id BLOB NOT NULL,
    memory_id BLOB NOT NULL,
    last_read_at INTEGER NOT NULL,
    last_read_by_type TEXT,
    last_read_by TEXT,
    active_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, store_id, memory_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE memory_read (
    tenant_id BLOB NOT NULL,
    store_id BLOB NOT NULL,
    memory_id BLOB NOT NULL,
    version_id BLOB NOT NULL,
    session_id BLOB NOT NULL,
    actor_type TEXT NOT NULL,
    actor_id TEXT NOT NULL,
    surface TEXT NOT NULL,
    first_read_at INTEGER NOT NULL,
    last_read_at INTEGER NOT NULL,
    read_count INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, store_id, memory_id, version_id, session_id, actor_type, actor_id, surface)
) STRICT, WITHOUT ROWID;
CREATE INDEX memory_read_session ON memory_read (tenant_id, session_id, first_read_at, version_id);
CREATE INDEX memory_read_age ON memory_read (tenant_id, last_read_at);

CREATE TABLE daily_use (
    tenant_id BLOB NOT NULL,
    store_id BLOB NOT NULL,
    day INTEGER NOT NULL,
    surface TEXT NOT NULL,
    reads INTEGER NOT NULL,
    writes INTEGER NOT NULL,
    refusals INTEGER NOT NULL,
    conflicts INTEGER NOT NULL,
    growth INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, store_id, day, surface)
) STRICT, WITHOUT ROWID;
CREATE INDEX daily_use_day ON daily_use (day);

-- Terms, vectors and contents are in tables with rowids, where up to 4 KB of a row are on the page of
-- its key. Of a row without a rowid, SQLite moves what exceeds a kilobyte to a page of its own.
CREATE TABLE search_doc (
    tenant_id BLOB NOT NULL,
    store_id BLOB NOT NULL,
    memory_id BLOB NOT NULL,
    blob_id BLOB,
    analyser INTEGER NOT NULL,
    length INTEGER NOT NULL,
    terms BLOB NOT NULL,
    PRIMARY KEY (tenant_id, store_id, memory_id)
) STRICT;

CREATE TABLE embedding (
    tenant_id BLOB NOT NULL,
    store_id BLOB NOT NULL,
    memory_id BLOB NOT NULL,
    model TEXT NOT NULL,
    version_id BLOB NOT NULL,
    edit INTEGER NOT NULL,
    chunks INTEGER NOT NULL,
    vector_bytes INTEGER NOT NULL,
    vectors BLOB NOT NULL,
    PRIMARY KEY (tenant_id, store_id, memory_id, model)
) STRICT;
CREATE INDEX embedding_edit ON embedding (tenant_id, store_id, model, edit);

CREATE TABLE embedded_store (
    tenant_id BLOB NOT NULL,
    store_id BLOB NOT NULL,
    model TEXT NOT NULL,
    seq INTEGER NOT NULL,
    edit INTEGER NOT NULL,
    is_complete INTEGER NOT NULL DEFAULT 0,
    claimed_by BLOB,
    claimed_until INTEGER,
    PRIMARY KEY (tenant_id, store_id, model)
) STRICT, WITHOUT ROWID;

CREATE TABLE content (
    tenant_id BLOB NOT NULL,
    store_id BLOB NOT NULL,
    blob_id BLOB NOT NULL,
    bytes BLOB NOT NULL,
    PRIMARY KEY (tenant_id, store_id, blob_id)
) STRICT;

CREATE TABLE blob_deletion (
    tenant_id BLOB NOT NULL,
    store_id BLOB NOT NULL,
    blob_id BLOB NOT NULL,
    erasure_id BLOB,
    not_before INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (tenant_id, store_id, blob_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX blob_deletion_due ON blob_deletion (not_before);
CREATE INDEX blob_deletion_erasure ON blob_deletion (erasure_id) WHERE erasure_id IS NOT NULL;

---------------------------------------------------------------------------
-- Sessions
---------------------------------------------------------------------------

CREATE TABLE session (
    tenant_id BLOB NOT NULL,
    session_id BLOB NOT NULL,
    agent TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    agent_name TEXT NOT NULL,
    agent_version INTEGER NOT NULL,
    environment_id TEXT NOT NULL,
    title TEXT,
    metadata TEXT NOT NULL,
    vault_ids TEXT NOT NULL,
    description_bytes INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    archived_at INTEGER,
    deleted_at INTEGER,
    last_used_at INTEGER,
    PRIMARY KEY (tenant_id, session_id)
) STRICT;
CREATE INDEX session_created ON session (tenant_id, created_at, session_id);
CREATE INDEX session_agent ON session (tenant_id, agent_id, created_at, session_id);
CREATE INDEX session_archived ON session (archived_at) WHERE archived_at IS NOT NULL;
CREATE INDEX session_deleted ON session (deleted_at) WHERE deleted_at IS NOT NULL;

CREATE TABLE session_resource (
    tenant_id BLOB NOT NULL,
    session_id BLOB NOT NULL,
    resource_id BLOB NOT NULL,
    position INTEGER NOT NULL,
    store_id BLOB NOT NULL,
    session_created_at INTEGER NOT NULL,
    slug TEXT NOT NULL,
    access TEXT NOT NULL,
    instructions TEXT,
    name TEXT NOT NULL,
    description TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, session_id, resource_id)
) STRICT;
CREATE UNIQUE INDEX session_resource_store ON session_resource (tenant_id, session_id, store_id);
CREATE INDEX session_resource_of_store ON session_resource (tenant_id, store_id, session_created_at, session_id);

CREATE TABLE session_event (
    tenant_id BLOB NOT NULL,
    session_id BLOB NOT NULL,
    at INTEGER NOT NULL,
    event_id BLOB NOT NULL,
    store_id BLOB,
    path TEXT,
    new_path TEXT,
    name TEXT NOT NULL,
    input TEXT NOT NULL,
    is_error INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, session_id, at, event_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX session_event_at ON session_event (at);
CREATE INDEX session_event_path ON session_event (tenant_id, store_id, path);
CREATE INDEX session_event_new_path ON session_event (tenant_id, store_id, new_path) WHERE new_path IS NOT NULL;
