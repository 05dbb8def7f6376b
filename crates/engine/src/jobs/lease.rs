//! The options of a run, and its lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keepsake_core::Timestamp;
use keepsake_index::RunFence;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::EngineError;
use crate::shared::Shared;

/// How long a lease is valid without renewal.
pub(super) const LEASE: Duration = Duration::from_mins(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunRequest {
    /// Whether the run only reports its changes without making them.
    pub(super) dry_run: bool,
    slot: Slot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    /// The slot of the schedule that contains the current time; the slot is run once.
    Scheduled,
    /// A separate slot that starts now.
    Manual,
}

impl RunRequest {
    pub const SCHEDULED: Self = Self { dry_run: false, slot: Slot::Scheduled };

    /// A run that an operator requests, independent of the schedule.
    pub const fn manual(dry_run: bool) -> Self {
        Self { dry_run, slot: Slot::Manual }
    }

    pub(super) fn slot(self, now: Timestamp, period: Duration) -> Timestamp {
        match self.slot {
            Slot::Scheduled => slot_of(now, period),
            // A manual slot must not equal a slot of the schedule.
            Slot::Manual if slot_of(now, period) == now => now.plus(Duration::from_micros(1)),
            Slot::Manual => now,
        }
    }

    /// Whether the run ignores the cursor of an interrupted run.
    fn starts_anew(self) -> bool {
        self.dry_run || self.slot == Slot::Manual
    }
}

#[derive(Debug)]
pub struct Lease<'a> {
    pub(super) shared: &'a Shared,
    pub(super) job: &'static str,
    pub(super) fence: i64,
    pub(super) request: RunRequest,
    pub(super) stopping: &'a CancellationToken,
    /// Set when the run is stopped before its end.
    pub(super) is_cut: Arc<AtomicBool>,
}

impl Lease<'_> {
    /// A dry run must only report its changes without making them.
    pub const fn dry_run(&self) -> bool {
        self.request.dry_run
    }

    /// Whether an operator requested the run.
    pub fn is_manual(&self) -> bool {
        self.request.slot == Slot::Manual
    }

    /// The fence for the run's writes to the index.
    pub(crate) const fn fence(&self) -> RunFence {
        RunFence { job: self.job, fence: self.fence }
    }

    /// The cursor of an interrupted earlier run, where this run resumes.
    pub async fn cursor(&self) -> Result<Option<String>, EngineError> {
        if self.request.starts_anew() {
            return Ok(None);
        }
        Ok(self.shared.context.index.job_runs.cursor(self.job).await?)
    }

    /// The place that [`Self::renew_at`] saved in an interrupted earlier run; `None`, also for
    /// an invalid cursor: this run starts from the beginning.
    pub(super) async fn resumed_at<P: DeserializeOwned>(&self) -> Result<Option<P>, EngineError> {
        Ok(self.cursor().await?.and_then(|cursor| serde_json::from_str(&cursor).ok()))
    }

    /// Like [`Self::renew`], with the place at which a later run resumes this one.
    pub(super) async fn renew_at<P: Serialize + Sync>(&self, place: Option<&P>) -> Result<bool, EngineError> {
        let cursor = place.and_then(|place| serde_json::to_string(place).ok());
        self.renew(cursor.as_deref()).await
    }

    /// Extends the lease between two batches and saves the job's cursor. A dry run does
    /// not change the saved cursor.
    ///
    /// `false`: the lease was lost or the process is shutting down, and the run must
    /// stop.
    pub async fn renew(&self, cursor: Option<&str>) -> Result<bool, EngineError> {
        if self.stopping.is_cancelled() {
            self.is_cut.store(true, Ordering::Relaxed);
            return Ok(false);
        }
        let index = &self.shared.context.index;
        let until = self.shared.context.now().plus(LEASE);
        if self.request.dry_run {
            let kept = index.job_runs.cursor(self.job).await?;
            return Ok(index.job_runs.renew(self.job, self.fence, until, kept.as_deref()).await?);
        }
        Ok(index.job_runs.renew(self.job, self.fence, until, cursor).await?)
    }
}

pub(super) fn slot_of(now: Timestamp, period: Duration) -> Timestamp {
    let period = i64::try_from(period.as_micros()).unwrap_or(i64::MAX).max(1);
    Timestamp::from_micros(now.as_micros() - now.as_micros().rem_euclid(period))
}
