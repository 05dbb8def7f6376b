//! What the jobs read and write.

use keepsake_core::{Actor, BlobKey, MemoryId, StoreId, TenantId, Timestamp};
use serde_json::Value;
use uuid::Uuid;

use crate::IndexError;

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
    /// Why it is queued.
    pub reason: DeletionReason,
}

/// Why a blob is queued for deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeletionReason {
    /// Its version was redacted.
    Redacted,
    /// The last version that named it was kept for long enough.
    Expired,
    /// Its store was deleted.
    StoreDeleted,
    /// An erasure removes it.
    Erased,
    /// No row names it; the sweep condemned it.
    Orphan,
    /// An orphan that was removed and stays condemned for a while: the tombstone
    /// refuses a slow commit that still names it.
    Gone,
}

impl DeletionReason {
    const ALL: [Self; 6] = [
        Self::Redacted,
        Self::Expired,
        Self::StoreDeleted,
        Self::Erased,
        Self::Orphan,
        Self::Gone,
    ];

    /// The name the index stores.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Redacted => "redacted",
            Self::Expired => "expired",
            Self::StoreDeleted => "store deleted",
            Self::Erased => "erased",
            Self::Orphan => "orphan",
            Self::Gone => "gone",
        }
    }

    /// Reads a stored name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }

    pub(crate) fn of_row(name: &str) -> Result<Self, IndexError> {
        Self::parse(name).ok_or(IndexError::Corrupt {
            table: "blob_deletion",
            what: "unknown reason",
        })
    }

    /// Whether older object versions go too: of redacted and erased content, and of
    /// an orphan whose tombstone has ended.
    pub const fn is_for_good(self) -> bool {
        match self {
            Self::Redacted | Self::Erased | Self::Gone => true,
            Self::Expired | Self::StoreDeleted | Self::Orphan => false,
        }
    }
}

/// The lease under which a run writes: once another run has the job, nothing is
/// written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunFence {
    /// The job.
    pub job: &'static str,
    /// The fence that the lease was given.
    pub fence: i64,
}

/// A place in the order of a job's runs: when one began, and its slot.
pub type RunPlace = (Timestamp, Timestamp);

/// The record of a run of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRun {
    /// What names it among the job's runs.
    pub slot: Timestamp,
    /// When it began, or was taken up last.
    pub started_at: Timestamp,
    /// When it ended; `None`: it goes on, or was broken off.
    pub ended_at: Option<Timestamp>,
    /// Whether it goes on: it has not ended, and the lease is still its own.
    pub is_running: bool,
    /// Whether somebody asked for it, outside of the schedule.
    pub by_hand: bool,
    /// Whether it only told what it would do.
    pub is_dry_run: bool,
    /// The replica that ran it last; unknown of runs of earlier versions.
    pub owner: Option<Uuid>,
    /// What it did.
    pub counts: Option<Value>,
    /// Why it failed.
    pub error: Option<String>,
}
