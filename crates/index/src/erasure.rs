//! Erasures: what is asked for, what is left to do, and what the receipt says.
//!
//! An erasure is a row that a worker takes from step to step, each a
//! transaction under the row's lock: it may be killed between any two, and two
//! workers on one erasure take turns. What is to be done next is in the row's
//! cursor, as ids and places alone; the selector, which may hold a path, is
//! cleared with the last row that it selects.

mod advance;

use async_trait::async_trait;
use keepsake_core::{BlobKey, DirPath, ErasureId, StoreId, TenantId, Timestamp, VersionId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::IndexError;
use crate::commit::Idempotency;
use crate::model::Audited;

pub(crate) use advance::{Ground, Open, Progress, Purged, TakenMemories, TakenVersion, advance};

/// Erasures of a tenant that have not ended, at most: each is work in the
/// background, which no rate bounds.
pub const MOST_OPEN_ERASURES: u64 = 20;
/// The hash of a request that was forgotten: any is taken for the same.
pub(crate) const FORGOTTEN: [u8; 32] = [0; 32];

/// What is to be erased.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selector {
    /// A store with all that it holds.
    Store(StoreId),
    /// Every memory of a store that ever stood below a directory.
    PathPrefix {
        /// The store.
        store_id: StoreId,
        /// The directory, ending in `/`.
        below: String,
    },
    /// Every store whose metadata has all these pairs.
    StoreMetadata(Map<String, Value>),
}

impl Selector {
    /// The protocol's name of this way of selecting, as the index stores it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Store(_) => "memory_store",
            Self::PathPrefix { .. } => "path_prefix",
            Self::StoreMetadata(_) => "store_metadata",
        }
    }

    /// The one store that is asked for, where there is one.
    pub const fn store_id(&self) -> Option<StoreId> {
        match self {
            Self::Store(store_id) | Self::PathPrefix { store_id, .. } => Some(*store_id),
            Self::StoreMetadata(_) => None,
        }
    }

    pub(crate) fn below(&self) -> Option<DirPath> {
        match self {
            Self::PathPrefix { below, .. } => Some(DirPath::from_trusted(below.clone())),
            Self::Store(_) | Self::StoreMetadata(_) => None,
        }
    }
}

/// An erasure to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewErasure {
    /// Its id.
    pub erasure_id: ErasureId,
    /// What is to go.
    pub selector: Selector,
    /// Who asks for it, and when.
    pub audited: Audited,
}

/// How making an erasure went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErasureCreation {
    /// It is there, and waits for a worker.
    Created,
    /// The same call made this one before.
    Replayed {
        /// The erasure.
        erasure_id: ErasureId,
    },
    /// The call's name was used for another request.
    KeyReused,
    /// There is no such store.
    NoStore,
    /// The tenant has [`MOST_OPEN_ERASURES`] that have not ended.
    TooMany,
    /// There is no such tenant, or it is about to be gone.
    NoTenant,
}

/// How far an erasure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErasureState {
    /// No worker has begun.
    Pending,
    /// Begun, and not at its end.
    Running,
    /// All is gone.
    Done,
}

impl ErasureState {
    /// The name the index stores.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Done => "done",
        }
    }

    /// Reads a stored name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Pending, Self::Running, Self::Done]
            .into_iter()
            .find(|state| state.name() == name)
    }
}

/// What became of older versions of an object in a bucket that keeps them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectVersions {
    /// Every version is deleted.
    Deleted,
    /// The store keeps none.
    NotVersioned,
    /// They could not be deleted, or not be looked for.
    Kept,
}

/// Blobs that an erasure has removed from the object store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErasedBlobs {
    /// Queued ones; those that another worker told already count once.
    pub keys: Vec<BlobKey>,
    /// Others, that no row named.
    pub orphans: u64,
    /// What became of their older versions.
    pub object_versions: ObjectVersions,
}

/// What went, without a word of what it was.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Receipt {
    /// The stores that were looked through, or went.
    pub memory_store_ids: Vec<StoreId>,
    /// Stores that went themselves.
    pub memory_stores: u64,
    /// Memories, live and deleted ones.
    pub memories: u64,
    /// Versions.
    pub versions: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// Documents of the search.
    pub search_documents: u64,
    /// Times of access.
    pub access_times: u64,
    /// Attachments of the stores to sessions.
    pub session_resources: u64,
    /// Events of sessions.
    pub session_events: u64,
    /// What idempotent calls had recorded.
    pub idempotency_records: u64,
    /// Blobs, those included that no version named any more.
    pub blobs: u64,
    /// Blobs of which every object version is deleted.
    pub versions_deleted: u64,
    /// Blobs in a store that keeps no versions.
    pub versions_not_kept: u64,
    /// Blobs of which older versions may be there still; at least one where they
    /// could not be counted.
    pub versions_kept: u64,
    /// What was done when, in the order in which it was.
    pub steps: Vec<ErasureStep>,
}

impl Receipt {
    /// Whether any row went.
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

    /// Notes that a step begins, and that the one before has ended.
    pub(crate) fn begin(&mut self, name: &str, now: Timestamp) {
        self.end(now);
        self.steps.push(ErasureStep {
            name: name.to_owned(),
            started_at: now.as_micros(),
            ended_at: None,
        });
    }

    pub(crate) fn end(&mut self, now: Timestamp) {
        if let Some(last) = self.steps.last_mut() {
            last.ended_at.get_or_insert(now.as_micros());
        }
    }

    pub(crate) const fn count_blobs(&mut self, blobs: u64, object_versions: ObjectVersions) {
        self.blobs += blobs;
        let counted = match object_versions {
            ObjectVersions::Deleted => &mut self.versions_deleted,
            ObjectVersions::NotVersioned => &mut self.versions_not_kept,
            ObjectVersions::Kept => &mut self.versions_kept,
        };
        *counted += blobs;
        if matches!(object_versions, ObjectVersions::Kept) && self.versions_kept == 0 {
            self.versions_kept = 1;
        }
    }
}

/// A step of an erasure, and when it was done, in microseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErasureStep {
    /// `rows`, `idempotency_records`, `blobs` or `traces`.
    pub name: String,
    /// When it began.
    pub started_at: i64,
    /// When it ended.
    pub ended_at: Option<i64>,
}

/// An erasure, as its receipt tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Erasure {
    /// Its id.
    pub erasure_id: ErasureId,
    /// What was asked for: see [`Selector::kind`].
    pub kind: String,
    /// The one store that was asked for, where there is one.
    pub store_id: Option<StoreId>,
    /// How far it is.
    pub state: ErasureState,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When a worker began.
    pub started_at: Option<Timestamp>,
    /// When the last of it was gone.
    pub ended_at: Option<Timestamp>,
    /// How often it had to be broken off.
    pub failed_attempts: u64,
    /// What it was broken off for the last time, in one word.
    pub error: Option<String>,
    /// What went.
    pub receipt: Receipt,
}

/// What is asked of a tenant's erasures, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErasureListing {
    /// Of these stores alone.
    pub only: Option<Vec<StoreId>>,
    /// The erasure before the first one wanted.
    pub after: Option<ErasureId>,
    /// Erasures, at most.
    pub limit: u32,
}

/// How far one step has brought an erasure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowsErased {
    /// Whether no row is left; the blobs are queued.
    pub is_done: bool,
    /// The stores that went as a whole, once it is done.
    pub whole_stores: Vec<StoreId>,
    /// The other stores that it was about, once it is done.
    pub part_stores: Vec<StoreId>,
}

/// Removes what was stored, for good, and keeps the receipts.
#[async_trait]
pub trait ErasureIndex: Send + Sync {
    /// Records what is to be erased; in one transaction with its audit line.
    ///
    /// Which stores it is about is settled here. A store that is deleted and
    /// not purged yet is there.
    async fn create_erasure(
        &self,
        tenant_id: TenantId,
        erasure: &NewErasure,
        idempotency: Option<&Idempotency>,
    ) -> Result<ErasureCreation, IndexError>;

    /// Finds an erasure.
    async fn erasure(
        &self,
        tenant_id: TenantId,
        erasure_id: ErasureId,
    ) -> Result<Option<Erasure>, IndexError>;

    /// Lists erasures, newest first.
    async fn list_erasures(
        &self,
        tenant_id: TenantId,
        listing: &ErasureListing,
    ) -> Result<Vec<Erasure>, IndexError>;

    /// Erasures of any tenant that have not ended and that nobody works on,
    /// oldest first.
    async fn open_erasures(
        &self,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<(TenantId, ErasureId)>, IndexError>;

    /// Takes the next rows off, at most about `limit`, in one transaction.
    ///
    /// Each removal moves the store's purge epoch. The blobs that no row names
    /// any more are queued, out of the drain's reach. Idempotent once done; an
    /// erasure that has ended is done.
    async fn erase_rows(
        &self,
        tenant_id: TenantId,
        erasure_id: ErasureId,
        now: Timestamp,
        lease_until: Timestamp,
        limit: u32,
    ) -> Result<RowsErased, IndexError>;

    /// Blobs that an erasure has queued and not told removed yet.
    async fn queued_blobs(
        &self,
        tenant_id: TenantId,
        erasure_id: ErasureId,
        limit: u32,
    ) -> Result<Vec<BlobKey>, IndexError>;

    /// Takes blobs off the queue and counts them, once each.
    async fn blobs_erased(
        &self,
        tenant_id: TenantId,
        erasure_id: ErasureId,
        blobs: &ErasedBlobs,
        lease_until: Timestamp,
    ) -> Result<(), IndexError>;

    /// Those of a store's blobs that no version names and that are not queued for
    /// deletion: blobs that were removed and forgotten.
    async fn forgotten_blobs(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        blobs: &[VersionId],
    ) -> Result<Vec<VersionId>, IndexError>;

    /// Overwrites what the tables' file keeps of deleted rows, where it can.
    async fn overwrite_deleted(&self) -> Result<(), IndexError>;

    /// Empties the log beside the file, where there is one; `false`: not now,
    /// somebody reads.
    async fn empty_log(&self) -> Result<bool, IndexError>;

    /// Notes that an erasure had to be broken off; it is tried again at
    /// `retry_at`.
    async fn erasure_failed(
        &self,
        tenant_id: TenantId,
        erasure_id: ErasureId,
        error: &'static str,
        retry_at: Timestamp,
    ) -> Result<(), IndexError>;

    /// Ends an erasure of which no row and no blob is left, with its audit line.
    ///
    /// Answers `false`, changing nothing, where something is left or it had
    /// ended. Blobs that another erasure has queued in the same stores count as
    /// left: that erasure may have taken rows that this one selects too.
    async fn finish_erasure(
        &self,
        tenant_id: TenantId,
        erasure_id: ErasureId,
        audited: &Audited,
    ) -> Result<bool, IndexError>;
}
