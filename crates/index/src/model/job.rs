//! Types that the jobs read and write.

use keepsake_core::{BlobKey, Timestamp};
use serde_json::Value;
use uuid::Uuid;

/// The last use of an object, by its tenant and ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastUse<K, By = ()> {
    pub key: K,
    pub at: Timestamp,
    pub by: By,
}

/// A blob that is due for deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueDeletion {
    pub key: BlobKey,
    /// The number of earlier attempts.
    pub attempts: u32,
    pub reason: DeletionReason,
}

keepsake_core::named_enum! {
    /// The reason why a blob is queued for deletion.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum DeletionReason {
        /// Its version was redacted.
        Redacted = "redacted",
        /// The retention of the last version that referenced it has ended.
        Expired = "expired",
        /// Its store was deleted.
        StoreDeleted = "store deleted",
        /// An erasure deletes it.
        Erased = "erased",
        /// An orphan: no row references it, and the sweep condemned it.
        Orphan = "orphan",
        /// A tombstone: the orphan was deleted but stays condemned for a while, so that a
        /// slow commit that still references it is refused.
        Gone = "gone",
    }
}

impl DeletionReason {
    /// Whether older object versions are deleted, too: of redacted and erased content,
    /// and of an orphan whose tombstone has ended.
    pub const fn is_for_good(self) -> bool {
        match self {
            Self::Redacted | Self::Erased | Self::Gone => true,
            Self::Expired | Self::StoreDeleted | Self::Orphan => false,
        }
    }
}

/// The fence of a run's lease: writes are refused once another run holds the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunFence {
    pub job: &'static str,
    pub fence: i64,
}

/// A position in the order of a job's runs: start time and slot.
pub type RunPlace = (Timestamp, Timestamp);

#[derive(Debug, Clone, PartialEq)]
pub struct JobRun {
    /// The slot, which identifies the run among the job's runs.
    pub slot: Timestamp,
    /// When the run started or was last resumed.
    pub started_at: Timestamp,
    /// `None`: the run has not ended, or was interrupted.
    pub ended_at: Option<Timestamp>,
    /// Whether the run has not ended and still holds the lease.
    pub is_running: bool,
    /// Whether it was started by hand instead of by the schedule.
    pub by_hand: bool,
    pub is_dry_run: bool,
    /// The replica that last ran it; `None` for runs of earlier versions.
    pub owner: Option<Uuid>,
    pub counts: Option<Value>,
    pub error: Option<String>,
}
