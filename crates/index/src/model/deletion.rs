//! The deletion of a tenant, and what it has removed.

use std::collections::BTreeMap;

use keepsake_core::{BlobKey, TenantId, Timestamp};

/// How far a tenant's deletion is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeletionState {
    /// Rows and blobs are being removed.
    Removing,
    /// All are gone; what was under way when it began may still come.
    Settling,
    /// Nothing is left, and nothing can come any more.
    Done,
}

impl DeletionState {
    /// The name the index stores.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Removing => "removing",
            Self::Settling => "settling",
            Self::Done => "done",
        }
    }

    /// Reads a stored name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Removing, Self::Settling, Self::Done]
            .into_iter()
            .find(|state| state.name() == name)
    }
}

/// A tenant's deletion: the report, which outlives the tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantDeletion {
    /// The tenant.
    pub tenant_id: TenantId,
    /// How far it is.
    pub state: DeletionState,
    /// When the operator asked for it.
    pub requested_at: Timestamp,
    /// From when on no request of before can be under way.
    pub settles_at: Option<Timestamp>,
    /// When it was done.
    pub ended_at: Option<Timestamp>,
    /// Rows removed, by table.
    pub rows: BTreeMap<String, u64>,
    /// Blobs removed.
    pub blobs: u64,
    /// Bytes of the blobs removed.
    pub blob_bytes: u64,
    /// The last blob that is counted in.
    pub blob_cursor: Option<BlobKey>,
    /// What became of older object versions.
    pub object_versions: VersionCounts,
}

/// What became of older object versions of the blobs of a tenant, in blobs; of
/// those too that were deleted before the tenant was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VersionCounts {
    /// Every version is deleted.
    pub deleted: u64,
    /// The store keeps none.
    pub not_versioned: u64,
    /// Older versions may be there still, as the last look found; at least one
    /// where they could not be counted.
    pub kept: u64,
}

/// What a batch of a tenant's purge did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantPurge {
    /// Rows removed.
    pub rows: u64,
    /// Whether no row of the tenant is left but its own.
    pub is_done: bool,
}
