//! Versions: changes of memories, their authors, and redactions.

use keepsake_core::actor::ActorKind;
use keepsake_core::{Actor, ContentHash, MemoryId, MemoryPath, StoreId, Timestamp, VersionId};
use serde::{Deserialize, Serialize};

use super::audit::Audited;
use super::store::StoreState;

keepsake_core::named_enum! {
    /// The operation that created a version.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
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

/// One recorded change of a memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Its id.
    pub version_id: VersionId,
    /// Its sequence number in the store.
    pub seq: i64,
    /// The sequence number of the memory's previous version.
    pub prev_seq: Option<i64>,
    /// The memory.
    pub memory_id: MemoryId,
    /// The operation.
    pub operation: Operation,
    /// The memory's path; `None`: redacted.
    pub path: Option<MemoryPath>,
    /// The memory's content; `None`: deleted or redacted.
    pub content: Option<StoredContent>,
    /// When it was created.
    pub created_at: Timestamp,
    /// The author; `None`: a job or the operator.
    pub created_by: Option<Actor>,
    /// When it was redacted.
    pub redacted_at: Option<Timestamp>,
    /// The author of the redaction.
    pub redacted_by: Option<Actor>,
}

/// The location, size and hash of a version's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredContent {
    /// The version that introduced the content; names the blob.
    pub blob_id: VersionId,
    /// Size in bytes.
    pub size_bytes: u64,
    /// SHA-256 of the bytes.
    pub sha256: ContentHash,
}

/// A lookup of a version by id, in an existing store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundVersion {
    /// The store.
    pub store: StoreState,
    /// The version; `None`: the store has no version with this id.
    pub version: Option<Version>,
}

/// A page of a store's versions, newest first in the store's order, with filters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VersionListing {
    /// Only versions of this memory.
    pub memory_id: Option<MemoryId>,
    /// Only versions with this operation.
    pub operation: Option<Operation>,
    /// Only versions by this actor, given by the name of its kind and its id.
    pub actor: Option<(ActorKind, String)>,
    /// Whether an imported history that names this actor counts, too.
    pub includes_imported: bool,
    /// Created at or after this time.
    pub created_from: Option<Timestamp>,
    /// Created at or before this time.
    pub created_to: Option<Timestamp>,
    /// The sequence number of the last version of the previous page.
    pub before: Option<i64>,
    /// Maximum number of versions.
    pub limit: u32,
}

/// A page of a store's versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionPage {
    /// The store.
    pub store: StoreState,
    /// The versions.
    pub versions: Vec<Version>,
}

/// A redaction of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redaction {
    /// The store.
    pub store_id: StoreId,
    /// The version.
    pub version_id: VersionId,
    /// The time and the actor.
    pub audited: Audited,
}

/// The outcome of a redaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedactionOutcome {
    /// The content was removed from the row.
    Redacted {
        /// The blob, queued for deletion because no row references it any longer.
        condemned: Option<VersionId>,
    },
    /// The version was already redacted; nothing changed.
    AlreadyRedacted,
    /// The blob is also the current content of a live memory.
    HoldsLiveContent {
        /// The memory.
        memory_id: MemoryId,
    },
    /// The store has no such version.
    NoVersion,
    /// The store does not exist.
    NoStore,
}
