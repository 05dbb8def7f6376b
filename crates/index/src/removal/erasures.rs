//! Erasures: requests, remaining work, and receipts.
//!
//! An erasure is a row that a worker advances step by step. Each step is one
//! transaction under the row's lock, so a worker may be killed between steps, and
//! two workers on one erasure take turns. The row's cursor determines the next
//! step; it contains only ids and sequence numbers. The selector, which may contain
//! a path, is cleared with the last row that it selects.

mod queries;
mod steps;

use keepsake_core::schemas::{self, ErasureType};
use keepsake_core::{BlobKey, DirPath, ErasureId, ObjectVersions, StoreId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::model::{AuditedAction, VersionCounts};

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

keepsake_core::named_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum SelectorKind {
        Store = "memory_store",
        PathPrefix = "path_prefix",
        StoreMetadata = "store_metadata",
    }
}

impl Selector {
    const fn kind(&self) -> SelectorKind {
        match self {
            Self::Store(_) => SelectorKind::Store,
            Self::PathPrefix { .. } => SelectorKind::PathPrefix,
            Self::StoreMetadata(_) => SelectorKind::StoreMetadata,
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
    pub audited: AuditedAction,
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

keepsake_core::named_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum StepName {
        Rows = "rows",
        IdempotencyRecords = "idempotency_records",
        Blobs = "blobs",
    }
}

keepsake_core::named_enum! {
    /// The state of the backups.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Backups {
        Outside = "outside",
    }
}

keepsake_core::shown_by_name! {
    SelectorKind as "ErasureSelects" => "How the erased data was selected; the selection itself is not kept.";
    ErasureState as "ErasureState" => "How far an erasure is.";
    StepName as "ErasureStepName" =>
        "The data that a step removed: rows of memories and versions, records of idempotent calls, blobs.";
    Backups as "ErasureBackups" => "Backups of the database and the object store are not erased.";
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

/// Counts of the data erased so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ErasureRemoved)]
pub struct ErasedCounts {
    /// Stores that were erased as a whole.
    pub memory_stores: u64,
    /// Memories, including deleted ones.
    pub memories: u64,
    #[serde(rename = "memory_versions")]
    pub versions: u64,
    /// Bytes of content.
    #[serde(rename = "content_bytes")]
    pub bytes: u64,
    pub search_documents: u64,
    /// Records of when and by whom memories were last read.
    pub access_times: u64,
    /// Records of who was shown versions.
    pub memory_readers: u64,
    /// Attachments of the stores to sessions.
    pub session_resources: u64,
    /// Session events that refer to erased data.
    pub session_events: u64,
    pub idempotency_records: u64,
    /// Blobs; their absence from the content storage is verified.
    pub blobs: u64,
}

impl ErasedCounts {
    pub const fn has_rows(&self) -> bool {
        self.memory_stores
            + self.memories
            + self.versions
            + self.search_documents
            + self.access_times
            + self.memory_readers
            + self.session_resources
            + self.session_events
            + self.idempotency_records
            > 0
    }
}

/// What a row keeps as JSON of its erasure, without any content or path.
#[derive(Debug, Default, Serialize, Deserialize)]
struct ErasureReceipt {
    memory_store_ids: Vec<StoreId>,
    removed: ErasedCounts,
    object_versions: VersionCounts,
    steps: Vec<ErasureStep>,
}

impl ErasureReceipt {
    /// Records that a step begins, and that the previous step has ended.
    fn begin(&mut self, name: StepName, now: Timestamp) {
        self.end(now);
        self.steps.push(ErasureStep { name, started_at: now, ended_at: None });
    }

    fn end(&mut self, now: Timestamp) {
        if let Some(last) = self.steps.last_mut() {
            last.ended_at.get_or_insert(now);
        }
    }
}

/// A step and its completion time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErasureStep {
    pub name: StepName,
    pub started_at: Timestamp,
    #[schema(required)]
    pub ended_at: Option<Timestamp>,
}

/// An erasure; when it is done, this is the receipt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Erasure {
    #[serde(rename = "id")]
    pub erasure_id: ErasureId,
    #[schema(inline)]
    pub r#type: ErasureType,
    pub state: ErasureState,
    pub selected_by: SelectorKind,
    /// The selected store; `None` if stores are selected by metadata.
    #[serde(skip)]
    pub store_id: Option<StoreId>,
    /// The stores of the erasure.
    pub memory_store_ids: Vec<StoreId>,
    pub created_at: Timestamp,
    #[schema(required)]
    pub started_at: Option<Timestamp>,
    /// When the last of the data was erased.
    #[schema(required)]
    pub ended_at: Option<Timestamp>,
    /// Number of interrupted attempts; the server retries every minute.
    pub failed_attempts: u64,
    #[schema(value_type = Option<schemas::ErasureError>, required)]
    pub error: Option<String>,
    pub removed: ErasedCounts,
    pub object_versions: VersionCounts,
    /// The completed steps, in order.
    pub steps: Vec<ErasureStep>,
    pub backups: Backups,
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
    /// The live memories that this step deleted in a store that stays.
    pub live_memories: Option<(StoreId, i64)>,
}
