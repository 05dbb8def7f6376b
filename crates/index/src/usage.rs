//! Usage: how a store's memories are used, as far as access times are flushed.

use keepsake_core::actor::VersionActor;
use keepsake_core::{Actor, MemoryId, MemoryPath, StoreId, TenantId, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

use crate::IndexError;
use crate::database::{Database, FromRow, Role, Row, from_row};
use crate::expiry::Life;
use crate::model::Expiry;

const STORE_USAGE: &str = "SELECT s.expires_unused_after, s.period_set_at, s.version_count, s.version_bytes, \
    (SELECT count(*) FROM memory m WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.deleted_at IS NULL \
        AND NOT EXISTS (SELECT 1 FROM memory_access a WHERE a.tenant_id = $1 AND a.store_id = $2 \
            AND a.memory_id = m.memory_id)) AS never_read_count, \
    v.embedded_memories, v.embedding_chunks, v.embedding_bytes \
    FROM store s CROSS JOIN (SELECT count(DISTINCT CASE WHEN e.chunks > 0 AND e.version_id = m.version_id \
            AND m.deleted_at IS NULL THEN e.memory_id END) AS embedded_memories, \
        CAST(coalesce(sum(e.chunks), 0) AS bigint) AS embedding_chunks, \
        CAST(coalesce(sum(e.vector_bytes), 0) AS bigint) AS embedding_bytes \
        FROM embedding e LEFT JOIN memory m ON m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = e.memory_id \
        WHERE e.tenant_id = $1 AND e.store_id = $2) v \
    WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL";

/// The memories of a store that were never read, oldest first.
const NEVER_READ: &str = "SELECT u.memory_id, u.path, u.size_bytes, u.updated_at, \
    CAST(NULL AS bigint) AS last_read_at, CAST(NULL AS text) AS last_read_by_type, \
    CAST(NULL AS text) AS last_read_by, CAST(NULL AS bigint) AS active_at, v.actor_type, v.actor_id, u.pinned, u.expires_at \
    FROM (SELECT m.memory_id, m.path, m.size_bytes, m.created_at, m.updated_at, m.head_seq, m.pinned, m.expires_at FROM memory m \
        WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.deleted_at IS NULL \
        AND NOT EXISTS (SELECT 1 FROM memory_access a WHERE a.tenant_id = $1 AND a.store_id = $2 \
            AND a.memory_id = m.memory_id) \
        ORDER BY m.created_at, m.memory_id LIMIT $3 + 0) u \
    LEFT JOIN version v ON v.tenant_id = $1 AND v.store_id = $2 AND v.seq = u.head_seq \
    ORDER BY u.created_at, u.memory_id";

/// The unpinned memories of a store that were used longest ago.
const IDLE_MEMORIES: &str = "SELECT u.memory_id, u.path, u.size_bytes, u.updated_at, \
    u.last_read_at, u.last_read_by_type, u.last_read_by, u.active_at, v.actor_type, v.actor_id, u.pinned, u.expires_at \
    FROM (SELECT m.memory_id, m.path, m.size_bytes, m.created_at, m.updated_at, m.head_seq, m.pinned, m.expires_at, a.last_read_at, \
            a.last_read_by_type, a.last_read_by, a.active_at, \
            CASE WHEN a.active_at > m.updated_at THEN a.active_at ELSE m.updated_at END AS alive_at \
        FROM memory m LEFT JOIN memory_access a \
            ON a.tenant_id = $1 AND a.store_id = $2 AND a.memory_id = m.memory_id \
        WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.deleted_at IS NULL AND NOT m.pinned \
        ORDER BY alive_at, m.memory_id LIMIT $3 + 0) u \
    LEFT JOIN version v ON v.tenant_id = $1 AND v.store_id = $2 AND v.seq = u.head_seq \
    ORDER BY u.alive_at, u.memory_id";

/// The unpinned memories of a store with an expiry time, the earliest first.
const TIMED: &str = "SELECT u.memory_id, u.path, u.size_bytes, u.updated_at, \
    u.last_read_at, u.last_read_by_type, u.last_read_by, u.active_at, v.actor_type, v.actor_id, u.pinned, u.expires_at \
    FROM (SELECT m.memory_id, m.path, m.size_bytes, m.created_at, m.updated_at, m.head_seq, m.pinned, m.expires_at, \
            a.last_read_at, a.last_read_by_type, a.last_read_by, a.active_at \
        FROM memory m LEFT JOIN memory_access a \
            ON a.tenant_id = $1 AND a.store_id = $2 AND a.memory_id = m.memory_id \
        WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.deleted_at IS NULL AND m.expires_at IS NOT NULL \
        AND NOT m.pinned ORDER BY m.expires_at, m.memory_id LIMIT $3 + 0) u \
    LEFT JOIN version v ON v.tenant_id = $1 AND v.store_id = $2 AND v.seq = u.head_seq \
    ORDER BY u.expires_at, u.memory_id";

/// The first live memories of a store, by path. The access time is a subquery per memory, so
/// that no plan starts with all access times.
pub(crate) const FIRST_MEMORIES: &str = "SELECT s.expires_unused_after, s.period_set_at, \
    u.memory_id, u.pinned, u.expires_at, u.updated_at, \
    (SELECT a.active_at FROM memory_access a WHERE a.tenant_id = $1 AND a.store_id = $2 \
        AND a.memory_id = u.memory_id) AS active_at \
    FROM store s CROSS JOIN (SELECT m.memory_id, m.pinned, m.expires_at, m.updated_at FROM memory m \
        WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.deleted_at IS NULL ORDER BY m.path LIMIT $3 + 0) u \
    WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreUsage {
    /// The store's own period after which unused memories expire.
    pub expiry: Expiry,
    /// Retained versions, including those of live memories.
    pub versions: u64,
    /// Bytes of all retained content, including that of live memories.
    pub version_bytes: u64,
    /// Live memories that were never read.
    pub never_read_count: u64,
    /// Memories whose current content has vectors for the search by meaning.
    pub embedded_memories: u64,
    pub embedding_chunks: u64,
    /// Bytes of all vectors, among others those of earlier contents.
    pub embedding_bytes: u64,
    /// The oldest memories that were never read.
    pub never_read: Vec<MemoryUse>,
    /// The unpinned memories that were unused for the longest time, the longest first.
    pub idle: Vec<MemoryUse>,
    /// The unpinned memories with an expiry time, the earliest first.
    pub timed: Vec<MemoryUse>,
}

/// A memory and its last use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct MemoryUse {
    pub memory_id: MemoryId,
    pub path: MemoryPath,
    /// Bytes of its content.
    #[serde(rename = "content_size_bytes")]
    pub size_bytes: u64,
    pub last_written_at: Timestamp,
    /// Null for a job or the operator.
    #[schema(value_type = Option<VersionActor>, required)]
    pub last_written_by: Option<Actor>,
    /// Null: never.
    #[schema(required)]
    pub last_accessed_at: Option<Timestamp>,
    /// Null if the memory was never read or the reader is unknown.
    #[schema(value_type = Option<VersionActor>, required)]
    pub last_accessed_by: Option<Actor>,
    /// When it would expire if it is not read again; null: never.
    // As it is read: when it expires even if it is used.
    #[schema(required)]
    pub expires_at: Option<Timestamp>,
    #[serde(skip)]
    pub is_pinned: bool,
    /// The latest sign of life recorded with a read.
    #[serde(skip)]
    pub active_at: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub struct Usage(pub(crate) Database);

from_row! {
    StoreUsage {
        versions = "version_count", version_bytes, never_read_count, embedded_memories, embedding_chunks,
        embedding_bytes; expiry .. never_read, idle, timed
    }
    MemoryUse {
        memory_id, path, size_bytes, last_written_at = "updated_at", last_accessed_at = "last_read_at",
        expires_at, is_pinned = "pinned", active_at;
        last_written_by by ["actor_type", "actor_id"],
        last_accessed_by by ["last_read_by_type", "last_read_by"]
    }
}

impl FromRow for (Life, Expiry) {
    fn from_row(row: &Row) -> Result<Self, IndexError> {
        Ok((row.read()?, row.read()?))
    }
}

impl Usage {
    /// How a store's memories are used, with at most `limit` of each kind; `None`: no
    /// such store.
    ///
    /// Reads every live memory of the store, so it is for rare calls.
    pub async fn of_store(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        limit: u32,
    ) -> Result<Option<StoreUsage>, IndexError> {
        let mut tx = self.0.read("store_usage", Role::Tenant(tenant_id)).await?;
        let query = tx.query(STORE_USAGE).bind((tenant_id, store_id));
        let mut usage: Option<StoreUsage> = query.optional().await?;
        if let Some(usage) = &mut usage {
            for (list, text) in [
                (&mut usage.never_read, NEVER_READ),
                (&mut usage.idle, IDLE_MEMORIES),
                (&mut usage.timed, TIMED),
            ] {
                *list = tx.query(text).bind((tenant_id, store_id, limit)).all().await?;
            }
        }
        tx.commit().await?;
        Ok(usage)
    }

    /// The first `limit` live memories of each of these stores, by path, with the expiry by the
    /// store's own period; none of a store that is deleted.
    pub async fn first_memories(
        &self,
        tenant_id: TenantId,
        store_ids: &[StoreId],
        limit: u32,
    ) -> Result<Vec<Vec<(Life, Expiry)>>, IndexError> {
        let mut tx = self.0.read("first_memories", Role::Tenant(tenant_id)).await?;
        let mut found = Vec::with_capacity(store_ids.len());
        for store_id in store_ids {
            found.push(tx.query(FIRST_MEMORIES).bind((tenant_id, *store_id, limit)).all().await?);
        }
        tx.commit().await?;
        Ok(found)
    }
}
