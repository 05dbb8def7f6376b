//! Erasures: requests, remaining work, and receipts.
//!
//! An erasure is a row that a worker advances step by step. Each step is one
//! transaction under the row's lock, so a worker may be killed between steps, and
//! two workers on one erasure take turns. The row's cursor determines the next
//! step; it contains only ids and sequence numbers. The selector, which may contain
//! a path, is cleared with the last row that it selects.

mod queries;
mod steps;

use keepsake_core::{BlobKey, DirPath, ErasureId, ObjectVersions, StoreId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::model::{Audited, VersionCounts};

pub use queries::Erasures;

/// Maximum number of open erasures of a tenant. Each one causes background work,
/// which no rate limit bounds.
pub const MAX_OPEN_ERASURES: u64 = 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selector {
    /// A store with all of its data.
    Store(StoreId),
    /// Every memory of a store that was ever below a directory.
    PathPrefix {
        store_id: StoreId,
        /// The directory, ending in `/`.
        below: String,
    },
    /// Every store whose metadata has all these pairs.
    StoreMetadata(Map<String, Value>),
}

impl Selector {
    /// The protocol's name of the selector's kind, as the index stores it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Store(_) => "memory_store",
            Self::PathPrefix { .. } => "path_prefix",
            Self::StoreMetadata(_) => "store_metadata",
        }
    }

    /// The selected store; `None` if stores are selected by metadata.
    pub const fn store_id(&self) -> Option<StoreId> {
        match self {
            Self::Store(store_id) | Self::PathPrefix { store_id, .. } => Some(*store_id),
            Self::StoreMetadata(_) => None,
        }
    }

    fn below(&self) -> Option<DirPath> {
        match self {
            Self::PathPrefix { below, .. } => Some(DirPath::from_trusted(below.clone())),
            Self::Store(_) | Self::StoreMetadata(_) => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewErasure {
    pub erasure_id: ErasureId,
    pub selector: Selector,
    pub audited: Audited,
}

keepsake_core::named_enum! {
    /// The state of an erasure.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ErasureState {
        /// No worker has started it.
        Pending = "pending",
        /// A worker has started it.
        Running = "running",
        /// Everything selected is deleted.
        Done = "done",
    }
}

/// Blobs that an erasure has deleted from the object store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErasedBlobs {
    /// Blobs from the queue; each counts once, even if two workers report it.
    pub keys: Vec<BlobKey>,
    /// The number of other blobs, which no row referenced.
    pub orphans: u64,
    pub object_versions: ObjectVersions,
}

/// The counts of deleted data, without any content or path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Receipt {
    /// The searched or deleted stores.
    pub memory_store_ids: Vec<StoreId>,
    /// Stores that were deleted.
    pub memory_stores: u64,
    /// Memories, including deleted ones.
    pub memories: u64,
    pub versions: u64,
    /// Bytes of content.
    pub bytes: u64,
    pub search_documents: u64,
    pub access_times: u64,
    /// Attachments of the stores to sessions.
    pub session_resources: u64,
    /// Session events.
    pub session_events: u64,
    pub idempotency_records: u64,
    /// Blobs, including unreferenced ones.
    pub blobs: u64,
    #[serde(flatten)]
    pub object_versions: VersionCounts,
    /// The steps, in chronological order.
    pub steps: Vec<ErasureStep>,
}

impl Receipt {
    pub const fn has_rows(&self) -> bool {
        self.memory_stores
            + self.memories
            + self.versions
            + self.search_documents
            + self.access_times
            + self.session_resources
            + self.session_events
            + self.idempotency_records
            > 0
    }

    /// Records that a step begins, and that the previous step has ended.
    fn begin(&mut self, name: &str, now: Timestamp) {
        self.end(now);
        self.steps.push(ErasureStep { name: name.to_owned(), started_at: now.as_micros(), ended_at: None });
    }

    fn end(&mut self, now: Timestamp) {
        if let Some(last) = self.steps.last_mut() {
            last.ended_at.get_or_insert(now.as_micros());
        }
    }
}

/// A step of an erasure, with its times in microseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErasureStep {
    /// `rows`, `idempotency_records`, `blobs` or `traces`.
    pub name: String,
    pub started_at: i64,
    pub ended_at: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Erasure {
    pub erasure_id: ErasureId,
    /// See [`Selector::kind`].
    pub kind: String,
    /// The selected store; `None` if stores are selected by metadata.
    pub store_id: Option<StoreId>,
    pub state: ErasureState,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub failed_attempts: u64,
    /// The last failure, in one word.
    pub error: Option<String>,
    pub receipt: Receipt,
}

/// A page of a tenant's erasures, newest first, with filters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErasureListing {
    /// Only erasures of these stores.
    pub only: Option<Vec<StoreId>>,
    /// The last erasure of the previous page.
    pub after: Option<ErasureId>,
    pub limit: u32,
}

/// The progress of an erasure after one step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowsErased {
    /// Whether all rows are deleted; the blobs are queued.
    pub is_done: bool,
    /// The stores that were deleted as a whole, once all rows are deleted.
    pub whole_stores: Vec<StoreId>,
    /// The other affected stores, once all rows are deleted.
    pub part_stores: Vec<StoreId>,
}
