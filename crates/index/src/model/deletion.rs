//! The deletion of a tenant and its report.

use std::collections::BTreeMap;

use keepsake_core::schemas::TenantDeletionType;
use keepsake_core::{BlobKey, ObjectVersions, TenantId, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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

keepsake_core::shown_by_name! {
    DeletionState as "TenantDeletionStatus" =>
        "The progress of a deletion: `settling` waits for data that may be written late.";
}

/// A tenant's deletion and its counts of removed data. It is kept after the
/// tenant is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct TenantDeletion {
    /// The tenant.
    #[serde(rename = "id")]
    pub tenant_id: TenantId,
    #[schema(inline)]
    pub r#type: TenantDeletionType,
    #[serde(rename = "status")]
    pub state: DeletionState,
    pub requested_at: Timestamp,
    // By then, every request that began before the deletion has ended.
    /// When the deletion checks again for data that was written late.
    #[schema(required)]
    pub settles_at: Option<Timestamp>,
    /// When the deletion was done. Only the data that `object_versions` reports
    /// as not deleted can be left.
    #[schema(required)]
    pub ended_at: Option<Timestamp>,
    /// Rows removed so far, by table.
    pub rows: BTreeMap<String, u64>,
    /// Blobs removed so far.
    pub blobs: u64,
    /// Bytes of the blobs removed so far.
    pub blob_bytes: u64,
    /// The last blob included in the counts.
    #[serde(skip)]
    pub blob_cursor: Option<BlobKey>,
    /// Includes blobs that were deleted before the tenant.
    pub object_versions: VersionCounts,
}

/// The state of the object versions of erased blobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ErasureObjectVersions)]
pub struct VersionCounts {
    /// Blobs with every object version deleted.
    pub deleted: u64,
    /// Blobs without older versions: content in the index, or in a bucket
    /// without versioning.
    pub not_versioned: u64,
    /// Blobs with object versions that may still exist because the bucket does
    /// not allow listing or deleting them. At least 1 if they could not be
    /// counted.
    #[serde(rename = "not_deleted")]
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
