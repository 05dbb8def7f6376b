//! Scheduled jobs: which replica runs a job and when, and the records of runs.
//!
//! tokio-cron-scheduler only triggers runs ([`Runner`](crate::Runner)). It neither prevents
//! overlapping runs nor waits for them. A run claims its slot and a lease in the
//! index, so that any number of replicas run each slot once. Each lease has a
//! higher fence than the one before, so that a replica that lost its lease cannot
//! finish another replica's run. When a replica dies, the next trigger after
//! its lease resumes the run. Jobs with a long period are therefore triggered
//! more often than once per period and check whether their slot has run.
//!
//! Jobs that remove data state what they select; module `removal` has their loop.

mod drain;
mod embed;
mod eraser;
mod erasures;
mod forks;
mod index;
mod lease;
mod manual;
mod prune;
mod reads;
mod reconcile;
mod removal;
mod schedule;
mod stores;
mod sweep;
mod tenants;
mod totals;
mod turns;
mod undos;
mod unused;
mod versions;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use keepsake_core::Timestamp;
use keepsake_telemetry::JobRun;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::EngineError;
use crate::shared::{Shared, service};

use lease::LEASE;

pub use drain::DrainDeletions;
pub(crate) use drain::ORPHAN_CONDEMNED_FOR;
pub use embed::EmbedMemories;
pub(crate) use eraser::begin_erasure;
pub use erasures::Erase;
pub use forks::ContinueForks;
pub use index::IndexMemories;
pub use lease::{Lease, RunRequest};
pub use manual::{JobState, ManualJobs};
pub use prune::Prune;
pub use reads::PruneReads;
pub use reconcile::ReconcileUsage;
use schedule::next_run_at;
pub use stores::PurgeStores;
pub use sweep::SweepBlobs;
pub use tenants::DeleteTenants;
pub use totals::CountTotals;
pub use undos::ContinueUndos;
pub use unused::ExpireUnused;
pub use versions::ExpireVersions;

const MINUTE: Duration = Duration::from_mins(1);
const DAY: Duration = Duration::from_hours(24);

/// The name of a job, and when it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobPlan {
    /// The name of the job in leases and records.
    pub name: &'static str,
    /// The trigger times, when a worker checks whether the job is due: six cron fields,
    /// seconds first, in UTC. They come more often than a long period, so that an
    /// interrupted run is soon resumed.
    pub schedule: &'static str,
    /// The length of a slot; each slot is run once.
    pub period: Duration,
    pub can_be_dry: bool,
}

/// A job that one replica at a time runs for all replicas.
///
/// A run works in bounded batches and renews its lease between them. It can be
/// resumed after a kill, and it is idempotent.
#[async_trait]
pub trait Job: Send + Sync {
    fn plan(&self) -> JobPlan;

    /// Returns counts for the record of the run.
    async fn run(&self, shared: &Shared, lease: &Lease<'_>) -> Result<Value, EngineError>;
}

/// Every job of the worker role.
pub(crate) fn fleet_jobs() -> Vec<Arc<dyn Job>> {
    vec![
        Arc::new(DrainDeletions),
        Arc::new(PurgeStores),
        Arc::new(Erase),
        Arc::new(ContinueUndos),
        Arc::new(ContinueForks),
        Arc::new(DeleteTenants),
        Arc::new(SweepBlobs::default()),
        Arc::new(ReconcileUsage),
        Arc::new(Prune::default()),
        Arc::new(PruneReads),
        Arc::new(ExpireUnused),
        Arc::new(ExpireVersions),
        Arc::new(IndexMemories),
        Arc::new(EmbedMemories),
        Arc::new(CountTotals),
    ]
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunOutcome {
    /// Another replica runs the slot, or the slot was run already.
    NotOurs,
    /// Contains the counts of the run.
    Ran(Value),
    /// Contains the reason.
    Failed(String),
}

/// A run whose lease this replica holds.
#[derive(Debug, Clone, Copy)]
struct ClaimedRun {
    slot: Timestamp,
    started_at: Timestamp,
    fence: i64,
}

service!(pub Jobs);

impl Jobs {
    /// Reports what all tenants store, as `count-totals` last counted it. Logs errors.
    pub async fn report_totals(&self) {
        if let Err(error) = totals::report(&self.context).await {
            tracing::warn!(error = %error, "job.report_totals failed; tried again at the next tick");
        }
    }

    /// Runs a job for the slot of `request`, if this replica gets the lease.
    ///
    /// A slot of the schedule is run once. A manual run needs no slot of the schedule,
    /// but two runs of a job never overlap. A failure of the job is an outcome; an error
    /// means that the lease or the record could not be written.
    pub async fn run(
        &self,
        job: Arc<dyn Job>,
        request: RunRequest,
        stopping: &CancellationToken,
    ) -> Result<RunOutcome, EngineError> {
        match self.claim(&*job, request).await? {
            Some(claimed) => self.carry_out(job, request, claimed, stopping).await,
            None => Ok(RunOutcome::NotOurs),
        }
    }

    /// `None`: another replica has the lease, or the slot was run.
    async fn claim(&self, job: &dyn Job, request: RunRequest) -> Result<Option<ClaimedRun>, EngineError> {
        let now = self.context.now();
        let slot = request.slot(now, job.plan().period);
        let context = &self.context;
        let fence = context
            .index
            .job_runs
            .claim(job.plan().name, slot, context.replica, now, now.plus(LEASE))
            .await?;
        Ok(fence.map(|fence| ClaimedRun { slot, started_at: now, fence }))
    }

    /// Runs a claimed job and records the run.
    ///
    /// A run that was stopped is not finished: another replica resumes it.
    async fn carry_out(
        &self,
        job: Arc<dyn Job>,
        request: RunRequest,
        claimed: ClaimedRun,
        stopping: &CancellationToken,
    ) -> Result<RunOutcome, EngineError> {
        let ClaimedRun { slot, fence, .. } = claimed;
        let (name, is_cut) = (job.plan().name, Arc::new(AtomicBool::new(false)));
        // In a separate task, so that a panic is recorded as a failed run.
        let body = {
            let (shared, stopping) = (Arc::clone(&self.shared), stopping.clone());
            let is_cut = Arc::clone(&is_cut);
            let run = async move {
                let lease = Lease {
                    shared: &shared,
                    job: job.plan().name,
                    fence,
                    request,
                    stopping: &stopping,
                    is_cut,
                };
                job.run(&shared, &lease).await
            };
            tokio::spawn(run.instrument(tracing::debug_span!("job.run", job.name = name)))
        };
        let job_runs = &self.context.index.job_runs;
        let began_at = Instant::now();
        let outcome = match body.await {
            Ok(Ok(counts)) => RunOutcome::Ran(counts),
            Ok(Err(error)) => RunOutcome::Failed(error.to_string()),
            Err(_) => RunOutcome::Failed("the job panicked".to_owned()),
        };
        if is_cut.load(Ordering::Relaxed) && matches!(outcome, RunOutcome::Ran(_)) {
            job_runs.release(name, fence).await?;
            tracing::info!(job.name = name, "job.run was stopped; it will be continued");
            return Ok(outcome);
        }
        let (counts, error) = match &outcome {
            RunOutcome::Ran(counts) => (counts.clone(), None),
            RunOutcome::Failed(error) => (Value::Null, Some(error.as_str())),
            RunOutcome::NotOurs => (Value::Null, None),
        };
        let ended_at = self.context.now();
        let is_recorded = job_runs.finish(name, slot, fence, ended_at, &counts, error).await?;
        if !is_recorded {
            tracing::warn!(job.name = name, "job.run outlived its lease; its record is another's");
        }
        // The metrics leave out a dry run, which changed nothing, and a run that lost its
        // lease: the replica that took the lease counts the run.
        if is_recorded && !request.dry_run {
            self.record(name, &outcome, began_at.elapsed());
        }
        if let Some(error) = error {
            tracing::error!(job.name = name, error, "job.run failed");
        } else {
            tracing::debug!(job.name = name, counts = %counts, "job.run ended");
        }
        Ok(outcome)
    }

    /// Records a run in the metrics, with the counts of its record.
    fn record(&self, job: &'static str, outcome: &RunOutcome, took: Duration) {
        let items: Vec<(&str, u64)> = match outcome {
            RunOutcome::Ran(Value::Object(counts)) => {
                counts.iter().filter_map(|(item, count)| Some((item.as_str(), count.as_u64()?))).collect()
            }
            RunOutcome::Ran(_) | RunOutcome::Failed(_) | RunOutcome::NotOurs => Vec::new(),
        };
        let ended_at = Duration::from_micros(u64::try_from(self.context.now().as_micros()).unwrap_or(0));
        self.context.metrics.job_ended(&JobRun {
            job,
            has_succeeded: matches!(outcome, RunOutcome::Ran(_)),
            took,
            ended_at_seconds: ended_at.as_secs_f64(),
            items: &items,
        });
    }
}
