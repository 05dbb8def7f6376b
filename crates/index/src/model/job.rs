//! What the jobs read and write.

use keepsake_core::{Actor, BlobKey, MemoryId, StoreId, TenantId, Timestamp};
use serde_json::Value;
use uuid::Uuid;

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
    /// Whether nobody may find it again: it was redacted, or nobody was ever told
    /// that it was stored.
    pub is_for_good: bool,
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
