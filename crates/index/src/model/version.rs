//! Versions: changes of memories, their authors, and redactions.

use keepsake_core::actor::{ActorKind, VersionActor};
use keepsake_core::schemas::{MemoryChangeType, MemoryDeletionType};
use keepsake_core::{Actor, ContentHash, MemoryId, MemoryPath, StoreId, Timestamp, VersionId};
use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

keepsake_core::named_enum! {
    /// The operation that created a version.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Operation {
        /// The memory was created, or restored after its deletion.
        Created = "created",
        /// Its content or path changed.
        Modified = "modified",
        /// It was deleted.
        Deleted = "deleted",
    }
}

impl Operation {
    /// How many more memories the store has after the change.
    pub const fn growth(self) -> i64 {
        match self {
            Self::Created => 1,
            Self::Modified => 0,
            Self::Deleted => -1,
        }
    }
}

keepsake_core::shown_by_name!(Operation as "Operation" => "The change that a version records.";);

/// A change of a memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = MemoryChange)]
pub struct Version {
    #[schema(inline)]
    pub r#type: MemoryChangeType,
    /// Its place among the changes of the store.
    pub seq: i64,
    pub operation: Operation,
    pub memory_id: MemoryId,
    #[serde(rename = "memory_version_id")]
    pub version_id: VersionId,
    /// The memory's path since this change; null if redacted.
    #[schema(required)]
    pub path: Option<MemoryPath>,
    /// Null for a deletion or if redacted.
    #[serde(rename = "content_sha256")]
    #[schema(value_type = Option<ContentHash>, required)]
    pub content: Option<StoredContent>,
    /// Null for a job or the operator.
    #[schema(value_type = Option<VersionActor>, required)]
    pub created_by: Option<Actor>,
    pub created_at: Timestamp,
    /// The sequence number of the memory's previous version.
    #[serde(skip)]
    pub prev_seq: Option<i64>,
    #[serde(skip)]
    pub redacted_at: Option<Timestamp>,
    #[serde(skip)]
    pub redacted_by: Option<Actor>,
    /// The oldest version that this one takes back, if it undoes changes.
    #[serde(skip)]
    pub undoes: Option<VersionId>,
}

impl Version {
    /// Whether the memory had another path in its version before. A redaction removes a path.
    pub fn has_moved_from(&self, before: &Self) -> bool {
        self.path.is_some() && before.path.is_some() && self.path != before.path
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredContent {
    /// The version that introduced the content; names the blob.
    pub blob_id: VersionId,
    pub size_bytes: u64,
    pub sha256: ContentHash,
}

/// Callers see the hash.
impl Serialize for StoredContent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.sha256.serialize(serializer)
    }
}

/// A page of a store's versions, newest first in the store's order, with filters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VersionListing {
    pub memory_id: Option<MemoryId>,
    pub operation: Option<Operation>,
    /// Only versions by this actor, given by the name of its kind and its id.
    pub actor: Option<(ActorKind, String)>,
    /// Whether to include versions whose imported history names this actor.
    pub includes_imported: bool,
    /// Created at or after this time.
    pub created_from: Option<Timestamp>,
    /// Created at or before this time.
    pub created_to: Option<Timestamp>,
    /// The sequence number of the last version of the previous page.
    pub before: Option<i64>,
    pub limit: u32,
}

/// A memory that was deleted and can be restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct MemoryDeletion {
    #[schema(inline)]
    pub r#type: MemoryDeletionType,
    pub memory_store_id: StoreId,
    pub memory_id: MemoryId,
    /// The path that the memory had.
    #[schema(required)]
    pub path: Option<MemoryPath>,
    /// The version that recorded the deletion.
    pub deletion_version_id: VersionId,
    /// The version before; restore it to bring the memory back.
    pub memory_version_id: VersionId,
    /// The size of the content that the memory had.
    #[schema(required)]
    pub content_size_bytes: Option<u64>,
    /// The hash of the content that the memory had.
    #[schema(required)]
    pub content_sha256: Option<ContentHash>,
    pub deleted_at: Timestamp,
    /// Null for a job or the operator.
    #[schema(value_type = Option<VersionActor>, required)]
    pub deleted_by: Option<Actor>,
    /// From then on, a job removes the memory with its versions.
    // The index answers the time of the deletion, and the engine adds the tenant's period.
    pub restorable_until: Timestamp,
    /// The place of the deletion among the changes of the store.
    #[serde(skip)]
    pub seq: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedactionOutcome {
    /// The content was removed from the row.
    Redacted {
        /// The blob, queued for deletion because no row references it any longer.
        condemned: Option<VersionId>,
    },
    /// The version was already redacted; nothing changed.
    AlreadyRedacted,
}
