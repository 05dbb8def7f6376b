-- Sessions, for SQLite; see the Postgres migration of this number.

CREATE TABLE session (
    tenant_id BLOB NOT NULL,
    session_id BLOB NOT NULL,
    agent TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    agent_version INTEGER NOT NULL,
    environment_id TEXT NOT NULL,
    title TEXT,
    metadata TEXT NOT NULL,
    vault_ids TEXT NOT NULL,
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
    PRIMARY KEY (tenant_id, session_id, at, event_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX session_event_at ON session_event (at);
CREATE INDEX session_event_path ON session_event (tenant_id, store_id, path);
CREATE INDEX session_event_new_path ON session_event (tenant_id, store_id, new_path) WHERE new_path IS NOT NULL;
