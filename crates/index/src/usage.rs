//! Usage: how a store's memories are used, as far as it is written.

use async_trait::async_trait;
use keepsake_core::{Actor, MemoryId, MemoryPath, StoreId, TenantId, Timestamp};

use crate::IndexError;
use crate::model::Expiry;

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

/// Looks at how a store is used.
#[async_trait]
pub trait UsageIndex: Send + Sync {
    /// How a store's memories are used, with at most `limit` of each kind;
    /// `None`: no such store.
    ///
    /// Reads every live memory of the store: for what is rare.
    async fn store_usage(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        limit: u32,
    ) -> Result<Option<StoreUsage>, IndexError>;
}
