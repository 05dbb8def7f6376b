//! Versions: what was changed, by whom, and what of it was removed since.

use keepsake_core::actor::ActorKind;
use keepsake_core::{Actor, ContentHash, MemoryId, MemoryPath, StoreId, Timestamp, VersionId};
use serde::{Deserialize, Serialize};

use super::audit::Audited;
use super::store::StoreState;

/// What a version did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// The memory came to be, for the first time or again.
    Created,
    /// Its content or path changed.
    Modified,
    /// It was deleted.
    Deleted,
}

impl Operation {
    /// The protocol's name, as the index stores it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Modified => "modified",
            Self::Deleted => "deleted",
        }
    }

    /// Reads a stored name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Created, Self::Modified, Self::Deleted]
            .into_iter()
            .find(|operation| operation.name() == name)
    }
}

/// One change of a memory, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Its id.
    pub version_id: VersionId,
    /// Its place in the store's order.
    pub seq: i64,
    /// The version of the same memory before it.
    pub prev_seq: Option<i64>,
    /// The memory.
    pub memory_id: MemoryId,
    /// What was done.
    pub operation: Operation,
    /// Where the memory stood; `None`: redacted.
    pub path: Option<MemoryPath>,
    /// What it held; `None`: deleted or redacted.
    pub content: Option<StoredContent>,
    /// When.
    pub created_at: Timestamp,
    /// Who; `None`: a job or the operator.
    pub created_by: Option<Actor>,
    /// When its content was removed.
    pub redacted_at: Option<Timestamp>,
    /// Who removed it.
    pub redacted_by: Option<Actor>,
}

/// Where a version's content lies, and what it measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredContent {
    /// The version that brought it; names the blob.
    pub blob_id: VersionId,
    /// Bytes.
    pub size_bytes: u64,
    /// SHA-256 of the bytes.
    pub sha256: ContentHash,
}

/// A version looked for by its id, in a store that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundVersion {
    /// The store.
    pub store: StoreState,
    /// The version; `None`: there is none of this id in the store.
    pub version: Option<Version>,
}

/// What is asked of a store's versions, newest first in the store's order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VersionListing {
    /// Of this memory alone.
    pub memory_id: Option<MemoryId>,
    /// That did this alone.
    pub operation: Option<Operation>,
    /// By this actor alone: the kind's name and the id.
    pub actor: Option<(ActorKind, String)>,
    /// Made at or after this time.
    pub created_from: Option<Timestamp>,
    /// Made at or before this time.
    pub created_to: Option<Timestamp>,
    /// The place of the version before the first one wanted.
    pub before: Option<i64>,
    /// Versions, at most.
    pub limit: u32,
}

/// A part of a store's versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionPage {
    /// The store.
    pub store: StoreState,
    /// The versions.
    pub versions: Vec<Version>,
}

/// A version whose content is to be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redaction {
    /// The store.
    pub store_id: StoreId,
    /// The version.
    pub version_id: VersionId,
    /// When, and by whom.
    pub audited: Audited,
}

/// How a redaction went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedactionOutcome {
    /// The content is removed from the row.
    Redacted {
        /// The version as it was.
        before: Box<Version>,
        /// The blob that no row names any more; it is queued for deletion.
        condemned: Option<VersionId>,
    },
    /// It had been removed before; nothing changed.
    AlreadyRedacted,
    /// A live memory's current content is in the same blob.
    HoldsLiveContent {
        /// The memory.
        memory_id: MemoryId,
    },
    /// There is no such version in the store.
    NoVersion,
    /// There is no such store.
    NoStore,
}
