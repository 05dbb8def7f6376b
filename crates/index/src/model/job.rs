//! What the jobs read and write.

use keepsake_core::{Actor, BlobKey, MemoryId, StoreId, TenantId, Timestamp};

/// One memory's latest read, as the batch writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRow {
    /// The tenant.
    pub tenant_id: TenantId,
    /// The store.
    pub store_id: StoreId,
    /// The memory.
    pub memory_id: MemoryId,
    /// When it was last read.
    pub read_at: Timestamp,
    /// Who read it.
    pub read_by: Actor,
}

/// A blob that is to be removed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueDeletion {
    /// Its key.
    pub key: BlobKey,
    /// How often it was tried before.
    pub attempts: u32,
    /// Whether nobody may find it again: it was redacted.
    pub is_for_good: bool,
}
