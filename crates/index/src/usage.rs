//! Usage: how a store's memories are used, as far as it is written.

use keepsake_core::{Actor, MemoryId, MemoryPath, StoreId, TenantId, Timestamp};
use uuid::Uuid;

use crate::IndexError;
use crate::database::{Database, Role};
use crate::model::Expiry;
use crate::numbers::unsigned;

/// What a store's row says of its use.
const STORE_USAGE: &str = "SELECT s.expires_unused_after, s.period_set_at, s.version_count, s.version_bytes, \
    (SELECT count(*) FROM memory m WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.deleted_at IS NULL \
        AND NOT EXISTS (SELECT 1 FROM memory_access a WHERE a.tenant_id = $1 AND a.store_id = $2 \
            AND a.memory_id = m.memory_id)) AS never_read_count \
    FROM store s WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL";

/// The memories of a store that were never read, oldest first.
const NEVER_READ: &str = "SELECT u.memory_id, u.path, u.size_bytes, u.created_at, u.updated_at, \
    CAST(NULL AS bigint) AS last_read_at, CAST(NULL AS text) AS last_read_by_type, \
    CAST(NULL AS text) AS last_read_by, CAST(NULL AS bigint) AS active_at, v.actor_type, v.actor_id, u.pinned \
    FROM (SELECT m.memory_id, m.path, m.size_bytes, m.created_at, m.updated_at, m.head_seq, m.pinned FROM memory m \
        WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.deleted_at IS NULL \
        AND NOT EXISTS (SELECT 1 FROM memory_access a WHERE a.tenant_id = $1 AND a.store_id = $2 \
            AND a.memory_id = m.memory_id) \
        ORDER BY m.created_at, m.memory_id LIMIT $3) u \
    LEFT JOIN version v ON v.tenant_id = $1 AND v.store_id = $2 AND v.seq = u.head_seq \
    ORDER BY u.created_at, u.memory_id";

/// The unpinned memories of a store that were used longest ago.
const IDLE_MEMORIES: &str = "SELECT u.memory_id, u.path, u.size_bytes, u.created_at, u.updated_at, \
    u.last_read_at, u.last_read_by_type, u.last_read_by, u.active_at, v.actor_type, v.actor_id, u.pinned \
    FROM (SELECT m.memory_id, m.path, m.size_bytes, m.created_at, m.updated_at, m.head_seq, m.pinned, a.last_read_at, \
            a.last_read_by_type, a.last_read_by, a.active_at, \
            CASE WHEN a.active_at > m.updated_at THEN a.active_at ELSE m.updated_at END AS alive_at \
        FROM memory m LEFT JOIN memory_access a \
            ON a.tenant_id = $1 AND a.store_id = $2 AND a.memory_id = m.memory_id \
        WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.deleted_at IS NULL AND NOT m.pinned \
        ORDER BY alive_at, m.memory_id LIMIT $3) u \
    LEFT JOIN version v ON v.tenant_id = $1 AND v.store_id = $2 AND v.seq = u.head_seq \
    ORDER BY u.alive_at, u.memory_id";

/// How the memories of a store are used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreUsage {
    /// When they expire by the store's own period.
    pub expiry: Expiry,
    /// Versions kept, those of live memories included.
    pub versions: u64,
    /// Bytes of all content kept, that of live memories included.
    pub version_bytes: u64,
    /// Live memories that were never read.
    pub never_read_count: u64,
    /// Of them those that were made first.
    pub never_read: Vec<UsedMemory>,
    /// The unpinned memories whose last sign of life is longest ago, the oldest
    /// first.
    pub idle: Vec<UsedMemory>,
}

/// A live memory, and who used it last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedMemory {
    /// The memory.
    pub memory_id: MemoryId,
    /// Where it stands.
    pub path: MemoryPath,
    /// Bytes of its content.
    pub size_bytes: u64,
    /// Whether it never expires.
    pub is_pinned: bool,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last written.
    pub updated_at: Timestamp,
    /// Who wrote it last; `None`: nobody that has a name.
    pub written_by: Option<Actor>,
    /// When it was last read.
    pub last_read_at: Option<Timestamp>,
    /// Who read it last.
    pub read_by: Option<Actor>,
    /// The latest sign of life that was written beside a read.
    pub active_at: Option<Timestamp>,
}

/// How stores are used.
#[derive(Debug, Clone)]
pub struct Usage {
    database: Database,
}

#[derive(sqlx::FromRow)]
struct StoreRow {
    expires_unused_after: Option<i64>,
    period_set_at: Option<i64>,
    version_count: i64,
    version_bytes: i64,
    never_read_count: i64,
}

#[derive(sqlx::FromRow)]
struct MemoryRow {
    memory_id: Uuid,
    path: String,
    size_bytes: i64,
    created_at: i64,
    updated_at: i64,
    last_read_at: Option<i64>,
    last_read_by_type: Option<String>,
    last_read_by: Option<String>,
    active_at: Option<i64>,
    actor_type: Option<String>,
    actor_id: Option<String>,
    pinned: bool,
}

impl Usage {
    pub(crate) const fn new(database: Database) -> Self {
        Self { database }
    }

    /// How a store's memories are used, with at most `limit` of each kind; `None`: no
    /// such store.
    ///
    /// Reads every live memory of the store, so it is for rare calls.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn of_store(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        limit: u32,
    ) -> Result<Option<StoreUsage>, IndexError> {
        let mut tx = self.database.read("store_usage", Role::Tenant(tenant_id)).await?;
        let query = tx.query(STORE_USAGE).bind(tenant_id.uuid()).bind(store_id.uuid());
        let store: Option<StoreRow> = query.optional().await?;
        let mut lists = [Vec::new(), Vec::new()];
        if store.is_some() {
            for (list, text) in lists.iter_mut().zip([NEVER_READ, IDLE_MEMORIES]) {
                let query = tx.query(text).bind(tenant_id.uuid()).bind(store_id.uuid());
                let rows: Vec<MemoryRow> = query.bind(i64::from(limit)).all().await?;
                *list = rows.into_iter().map(UsedMemory::from).collect();
            }
        }
        tx.commit().await?;
        let [never_read, idle] = lists;
        Ok(store.map(|row| StoreUsage {
            expiry: Expiry {
                unused_after_secs: row.expires_unused_after.map(unsigned),
                set_at: row.period_set_at.map(Timestamp::from_micros),
            },
            versions: unsigned(row.version_count),
            version_bytes: unsigned(row.version_bytes),
            never_read_count: unsigned(row.never_read_count),
            never_read,
            idle,
        }))
    }
}

impl From<MemoryRow> for UsedMemory {
    fn from(row: MemoryRow) -> Self {
        let actor = |kind: Option<String>, id: Option<String>| Actor::from_stored(&kind?, &id?);
        Self {
            memory_id: MemoryId::from_uuid(row.memory_id),
            path: MemoryPath::from_trusted(row.path),
            size_bytes: unsigned(row.size_bytes),
            is_pinned: row.pinned,
            created_at: Timestamp::from_micros(row.created_at),
            updated_at: Timestamp::from_micros(row.updated_at),
            written_by: actor(row.actor_type, row.actor_id),
            last_read_at: row.last_read_at.map(Timestamp::from_micros),
            read_by: actor(row.last_read_by_type, row.last_read_by),
            active_at: row.active_at.map(Timestamp::from_micros),
        }
    }
}
