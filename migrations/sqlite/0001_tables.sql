-- The tables of the metadata index, for SQLite.
--
-- The same logical schema as the Postgres migration of this number (there the
-- columns are explained). UUIDs and hashes are BLOBs, JSON is TEXT, booleans
-- are 0 and 1. SQLite has no roles: one process owns the file.

-- Global tables: the only ones without a tenant.

CREATE TABLE credential (
    secret_sha256 BLOB NOT NULL PRIMARY KEY,
    tenant_id BLOB NOT NULL,
    api_key_id BLOB NOT NULL
) STRICT, WITHOUT ROWID;

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

CREATE TABLE change_feed (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    tenant_id BLOB NOT NULL,
    object_id BLOB
) STRICT;

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
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    counts TEXT,
    error TEXT,
    PRIMARY KEY (name, slot)
) STRICT, WITHOUT ROWID;

CREATE TABLE operator_audit (
    id BLOB NOT NULL PRIMARY KEY,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    object_id BLOB
) STRICT, WITHOUT ROWID;

-- Per tenant.

CREATE TABLE tenant (
    tenant_id BLOB NOT NULL PRIMARY KEY,
    external_id TEXT UNIQUE,
    name TEXT NOT NULL,
    status TEXT NOT NULL,
    limits TEXT NOT NULL,
    store_count INTEGER NOT NULL,
    granted_bytes INTEGER NOT NULL,
    created_at INTEGER NOT NULL
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
    PRIMARY KEY (tenant_id, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE idempotency (
    tenant_id BLOB NOT NULL,
    scope_sha256 BLOB NOT NULL,
    request_sha256 BLOB NOT NULL,
    object_id BLOB,
    store_id BLOB,
    version_seq INTEGER,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, scope_sha256)
) STRICT, WITHOUT ROWID;

CREATE TABLE erasure (
    tenant_id BLOB NOT NULL,
    id BLOB NOT NULL,
    selector TEXT,
    state TEXT NOT NULL,
    cursor TEXT,
    counts TEXT,
    created_at INTEGER NOT NULL,
    ended_at INTEGER,
    PRIMARY KEY (tenant_id, id)
) STRICT, WITHOUT ROWID;

-- Per store. The store row is the one row that every commit of the store
-- locks; `seq` is the order of its versions.

CREATE TABLE store (
    tenant_id BLOB NOT NULL,
    store_id BLOB NOT NULL,
    name TEXT NOT NULL,
    description TEXT NOT NULL,
    metadata TEXT NOT NULL,
    policy TEXT NOT NULL,
    expires_unused_after INTEGER,
    period_set_at INTEGER,
    seq INTEGER NOT NULL,
    last_version_at INTEGER NOT NULL,
    purge_epoch INTEGER NOT NULL,
    memory_count INTEGER NOT NULL,
    live_bytes INTEGER NOT NULL,
    granted_bytes INTEGER NOT NULL,
    version_count INTEGER NOT NULL,
    version_bytes INTEGER NOT NULL,
    retention_seq INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    archived_at INTEGER,
    deleted_at INTEGER,
    PRIMARY KEY (tenant_id, store_id)
) STRICT, WITHOUT ROWID;

-- Heads. A deleted memory keeps its row (and id) while versions of it are kept.
-- `claimed_by`, `claimed_until`: a replica that lost a race asks the others to
-- let its next edit of this memory go first; a hint, correctness never rests on it.
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
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    deleted_at INTEGER,
    claimed_by BLOB,
    claimed_until INTEGER,
    PRIMARY KEY (tenant_id, store_id, memory_id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX memory_path ON memory (tenant_id, store_id, path) WHERE deleted_at IS NULL;
-- Has all that a listing shows, so that listing a large directory reads no heads;
-- SQLite counts the column of the condition among what is read.
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
    redacted_by TEXT,
    PRIMARY KEY (tenant_id, store_id, seq)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX version_id ON version (tenant_id, store_id, version_id);
CREATE INDEX version_memory ON version (tenant_id, store_id, memory_id, seq);
CREATE INDEX version_actor ON version (tenant_id, store_id, actor_id, seq);
CREATE INDEX version_op ON version (tenant_id, store_id, op, seq) WHERE op <> 'modified';
CREATE INDEX version_shared_blob ON version (tenant_id, store_id, blob_id) WHERE blob_id <> version_id;

-- `files` and `bytes` count everything below, hidden or not;
-- `visible_children` counts the direct children that a listing shows.
CREATE TABLE directory (
    tenant_id BLOB NOT NULL,
    store_id BLOB NOT NULL,
    path TEXT NOT NULL,
    parent TEXT NOT NULL,
    name TEXT NOT NULL,
    files INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    visible_children INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, store_id, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX directory_parent ON directory (tenant_id, store_id, parent, name);

CREATE TABLE memory_access (
    tenant_id BLOB NOT NULL,
    store_id BLOB NOT NULL,
    memory_id BLOB NOT NULL,
    last_read_at INTEGER NOT NULL,
    last_read_by TEXT,
    active_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, store_id, memory_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX memory_access_active ON memory_access (tenant_id, store_id, active_at);

CREATE TABLE search_doc (
    tenant_id BLOB NOT NULL,
    store_id BLOB NOT NULL,
    memory_id BLOB NOT NULL,
    analyser INTEGER NOT NULL,
    length INTEGER NOT NULL,
    terms BLOB NOT NULL,
    PRIMARY KEY (tenant_id, store_id, memory_id)
) STRICT, WITHOUT ROWID;

-- A blob in this table is condemned: a commit that names it is refused, the
-- drain removes it once `not_before` has come.
CREATE TABLE blob_deletion (
    tenant_id BLOB NOT NULL,
    store_id BLOB NOT NULL,
    blob_id BLOB NOT NULL,
    not_before INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (tenant_id, store_id, blob_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX blob_deletion_due ON blob_deletion (not_before);
