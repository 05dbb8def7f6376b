//! Types that the jobs read and write.

use keepsake_core::schemas::{self, JobRunType};
use keepsake_core::{BlobKey, Timestamp};
use serde::{Serialize, Serializer};
use serde_json::Value;
use utoipa::ToSchema;

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

keepsake_core::named_enum! {
    /// The status of a run.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum RunStatus {
        /// It has not ended, and holds the lease.
        Running = "running",
        Done = "done",
        Failed = "failed",
        /// It has not ended, but its owner has lost the lease.
        Interrupted = "interrupted",
    }
}

keepsake_core::named_enum! {
    /// What started a run.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum RunReason {
        Schedule = "schedule",
        Operator = "operator",
    }
}

keepsake_core::shown_by_name! {
    RunStatus as "JobRunStatus" =>
        "The status of a run; the next scheduled run resumes one that is `interrupted`.";
    RunReason as "JobRunReason" => "What started the run.";
}

/// The record of a run.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct JobRun {
    /// The id, unique among the job's runs.
    #[serde(rename = "id", serialize_with = "micros")]
    #[schema(value_type = String)]
    pub slot: Timestamp,
    #[schema(inline)]
    pub r#type: JobRunType,
    #[schema(value_type = schemas::JobName)]
    pub job: String,
    pub status: RunStatus,
    #[serde(rename = "asked_for_by")]
    pub reason: RunReason,
    /// Whether the run was a dry run.
    #[serde(rename = "dry_run")]
    pub is_dry_run: bool,
    /// When it started or was last resumed.
    pub started_at: Timestamp,
    #[schema(required)]
    pub ended_at: Option<Timestamp>,
    /// The result of the run: numbers and ids, with names that depend on the
    /// job; null until the run ends.
    #[schema(value_type = Option<Object>, required)]
    pub counts: Option<Value>,
    /// The reason of the failure.
    #[schema(required)]
    pub error: Option<String>,
}

/// The runs of a job that began in one part of a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunTally {
    pub job: String,
    /// The number of the part, from 0.
    pub part: i64,
    pub runs: u64,
    pub failed: u64,
    /// Runs that have not ended.
    pub open: u64,
    /// The length of the longest run that has ended; 0: none has.
    pub longest_micros: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn micros<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&at.as_micros())
}
