//! The deletion of a tenant and its report.

use std::collections::BTreeMap;

use keepsake_core::{BlobKey, ObjectVersions, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

keepsake_core::named_enum! {
    /// The state of a tenant's deletion.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum DeletionState {
        /// Rows and blobs are being removed.
        Removing = "removing",
        /// Rows and blobs are removed; requests that started earlier may still write some.
        Settling = "settling",
        /// Everything is removed, and no earlier request can still be running.
        Done = "done",
    }
}

/// The report of a tenant's deletion, which outlives the tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantDeletion {
    pub tenant_id: TenantId,
    pub state: DeletionState,
    pub requested_at: Timestamp,
    /// The time after which no earlier request can still be running.
    pub settles_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    /// Rows removed, by table.
    pub rows: BTreeMap<String, u64>,
    /// Blobs removed.
    pub blobs: u64,
    /// Bytes of the blobs removed.
    pub blob_bytes: u64,
    /// The last blob included in the counts.
    pub blob_cursor: Option<BlobKey>,
    pub object_versions: VersionCounts,
}

/// What became of older object versions, counted in blobs. Those of a tenant include
/// blobs that were deleted before the tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VersionCounts {
    /// Every version is deleted.
    #[serde(rename = "versions_deleted")]
    pub deleted: u64,
    /// The object store does not keep versions.
    #[serde(rename = "versions_not_kept")]
    pub not_versioned: u64,
    /// Older versions may still exist according to the last check; at least one if they
    /// could not be counted.
    #[serde(rename = "versions_kept")]
    pub kept: u64,
}

impl VersionCounts {
    pub fn count(&mut self, versions: ObjectVersions, blobs: u64) {
        match versions {
            ObjectVersions::Deleted => self.deleted += blobs,
            ObjectVersions::NotVersioned => self.not_versioned += blobs,
            ObjectVersions::Kept => self.kept = (self.kept + blobs).max(1),
        }
    }
}
