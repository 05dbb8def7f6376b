//! Scheduled jobs: which replica runs a job and when, and the records of runs.
//!
//! tokio-cron-scheduler only triggers runs. It neither prevents overlapping
//! runs nor waits for them. A run claims its slot and a lease in the index, so
//! that any number of replicas run each slot once. Each lease has a higher
//! fence than the one before, so that a replica that lost its lease cannot
//! finish another replica's run. When a replica dies, the next trigger after
//! its lease resumes the run. Jobs with a long period are therefore triggered
//! more often than once per period and check whether their slot has run.

mod drain;
mod erasures;
mod index;
mod prune;
mod reconcile;
mod stores;
mod sweep;
mod tenants;
mod unused;
mod versions;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use keepsake_core::Timestamp;
use keepsake_index::RunFence;
use keepsake_telemetry::JobRun;
use serde_json::Value;
use tokio_cron_scheduler::{Job as CronJob, JobScheduler, JobSchedulerError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::{Engine, EngineError};

pub use drain::DrainDeletions;
pub use erasures::Erase;
pub(crate) use erasures::{Queue as ErasureQueue, begin};
pub use index::IndexMemories;
pub(crate) use index::index_found;
pub use prune::Prune;
pub use reconcile::ReconcileUsage;
pub use stores::PurgeStores;
pub use sweep::SweepBlobs;
pub use tenants::DeleteTenants;
pub use unused::ExpireUnused;
pub use versions::ExpireVersions;

/// How long a lease is valid without renewal.
const LEASE: Duration = Duration::from_mins(1);

/// A job that one replica at a time runs for all replicas.
///
/// A run works in bounded batches and renews its lease between them. It can be
/// resumed after a kill, and it is idempotent.
#[async_trait]
pub trait Job: Send + Sync {
    /// The name of the job in leases and records.
    fn name(&self) -> &'static str;

    /// The trigger times: six cron fields, seconds first, in UTC.
    fn schedule(&self) -> &'static str;

    /// The length of a slot; each slot is run once.
    fn period(&self) -> Duration;

    /// Whether the job supports dry runs.
    fn can_be_dry(&self) -> bool {
        false
    }

    /// Does the work; returns counts for the record.
    async fn run(&self, engine: &Engine, lease: &Lease<'_>) -> Result<Value, EngineError>;
}

/// The options of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunRequest {
    /// Whether the run only reports its changes without making them.
    dry_run: bool,
    slot: Slot,
}

/// The slot of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    /// The slot of the schedule that contains the current time; it is run once.
    Scheduled,
    /// A separate slot that starts now.
    Manual,
}

impl RunRequest {
    /// A run by the schedule.
    pub const SCHEDULED: Self = Self {
        dry_run: false,
        slot: Slot::Scheduled,
    };

    /// A run that an operator requests, independent of the schedule.
    pub const fn manual(dry_run: bool) -> Self {
        Self {
            dry_run,
            slot: Slot::Manual,
        }
    }

    fn slot(self, now: Timestamp, period: Duration) -> Timestamp {
        match self.slot {
            Slot::Scheduled => slot_of(now, period),
            // Must not equal a slot of the schedule.
            Slot::Manual if slot_of(now, period) == now => now.plus(Duration::from_micros(1)),
            Slot::Manual => now,
        }
    }

    /// Whether the run ignores the cursor of an interrupted run.
    fn starts_anew(self) -> bool {
        self.dry_run || self.slot == Slot::Manual
    }
}

/// The lease of a run, valid while it is renewed.
#[derive(Debug)]
pub struct Lease<'a> {
    engine: &'a Engine,
    job: &'static str,
    fence: i64,
    request: RunRequest,
    stopping: &'a CancellationToken,
    /// Set when the run is stopped before its end.
    is_cut: Arc<AtomicBool>,
}

impl Lease<'_> {
    /// Whether the run must only report its changes without making them.
    pub const fn dry_run(&self) -> bool {
        self.request.dry_run
    }

    /// Whether an operator requested the run.
    pub fn is_manual(&self) -> bool {
        self.request.slot == Slot::Manual
    }

    /// The fence for the run's writes to the index.
    pub(crate) const fn fence(&self) -> RunFence {
        RunFence {
            job: self.job,
            fence: self.fence,
        }
    }

    /// The cursor of an interrupted earlier run, where this run resumes.
    ///
    /// # Errors
    /// [`EngineError::Index`].
    pub async fn cursor(&self) -> Result<Option<String>, EngineError> {
        if self.request.starts_anew() {
            return Ok(None);
        }
        Ok(self.engine.0.index.job_runs.cursor(self.job).await?)
    }

    /// Extends the lease between two batches and saves the job's cursor. A dry
    /// run does not change the saved cursor.
    ///
    /// Returns whether to continue: not when the lease was lost or the process
    /// is shutting down.
    ///
    /// # Errors
    /// [`EngineError::Index`].
    pub async fn renew(&self, cursor: Option<&str>) -> Result<bool, EngineError> {
        if self.stopping.is_cancelled() {
            self.is_cut.store(true, Ordering::Relaxed);
            return Ok(false);
        }
        let index = &self.engine.0.index;
        let until = self.engine.now().plus(LEASE);
        if self.request.dry_run {
            let kept = index.job_runs.cursor(self.job).await?;
            return Ok(index
                .job_runs
                .renew(self.job, self.fence, until, kept.as_deref())
                .await?);
        }
        Ok(index.job_runs.renew(self.job, self.fence, until, cursor).await?)
    }
}

/// The result of trying to run a job's slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunOutcome {
    /// Another replica runs it, or the slot was run already.
    NotOurs,
    /// It ran to its end; contains its counts.
    Ran(Value),
    /// It failed; contains the reason.
    Failed(String),
}

/// Runs a job for the slot of `request`, if this replica gets the lease.
///
/// A slot of the schedule is run once. A manual run needs no slot of the
/// schedule, but two runs of a job never overlap.
///
/// # Errors
/// [`EngineError::Index`] when the lease or the record could not be written.
pub async fn run_job(
    engine: &Engine,
    job: Arc<dyn Job>,
    request: RunRequest,
    stopping: &CancellationToken,
) -> Result<RunOutcome, EngineError> {
    match claim(engine, &*job, request).await? {
        Some(claimed) => carry_out(engine, job, request, claimed, stopping).await,
        None => Ok(RunOutcome::NotOurs),
    }
}

/// A run whose lease this replica holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claimed {
    pub(crate) slot: Timestamp,
    pub(crate) started_at: Timestamp,
    pub(crate) fence: i64,
}

/// Claims a run; `None`: another replica has the lease, or the slot was run.
pub(crate) async fn claim(
    engine: &Engine,
    job: &dyn Job,
    request: RunRequest,
) -> Result<Option<Claimed>, EngineError> {
    let now = engine.now();
    let slot = request.slot(now, job.period());
    let fence = engine
        .0
        .index
        .job_runs
        .claim(job.name(), slot, engine.0.replica, now, now.plus(LEASE))
        .await?;
    Ok(fence.map(|fence| Claimed {
        slot,
        started_at: now,
        fence,
    }))
}

/// Runs a claimed job and records the run.
///
/// A run that was stopped is not finished: another replica resumes it.
pub(crate) async fn carry_out(
    engine: &Engine,
    job: Arc<dyn Job>,
    request: RunRequest,
    claimed: Claimed,
    stopping: &CancellationToken,
) -> Result<RunOutcome, EngineError> {
    let Claimed { slot, fence, .. } = claimed;
    let (name, is_cut) = (job.name(), Arc::new(AtomicBool::new(false)));
    // In a separate task, so that a panic is recorded as a failed run.
    let body = {
        let (engine, stopping, is_cut) = (engine.clone(), stopping.clone(), Arc::clone(&is_cut));
        let run = async move {
            let lease = Lease {
                engine: &engine,
                job: job.name(),
                fence,
                request,
                stopping: &stopping,
                is_cut,
            };
            job.run(&engine, &lease).await
        };
        tokio::spawn(run.instrument(tracing::debug_span!("job.run", job.name = name)))
    };
    let began_at = Instant::now();
    let outcome = match body.await {
        Ok(Ok(counts)) => RunOutcome::Ran(counts),
        Ok(Err(error)) => RunOutcome::Failed(error.to_string()),
        Err(_) => RunOutcome::Failed("the job panicked".to_owned()),
    };
    if is_cut.load(Ordering::Relaxed) && matches!(outcome, RunOutcome::Ran(_)) {
        engine.0.index.job_runs.release(name, fence).await?;
        tracing::info!(job.name = name, "job.run was stopped; it is gone on with");
        return Ok(outcome);
    }
    let (counts, error) = match &outcome {
        RunOutcome::Ran(counts) => (counts.clone(), None),
        RunOutcome::Failed(error) => (Value::Null, Some(error.as_str())),
        RunOutcome::NotOurs => (Value::Null, None),
    };
    let is_recorded = engine
        .0
        .index
        .job_runs
        .finish(name, slot, fence, engine.now(), &counts, error)
        .await?;
    if !is_recorded {
        tracing::warn!(
            job.name = name,
            "job.run outlived its lease; its record is another's"
        );
    }
    // A dry run changed nothing, and the owner of a lost lease counts its own
    // run.
    if is_recorded && !request.dry_run {
        record_run(engine, name, &outcome, began_at.elapsed());
    }
    if let Some(error) = error {
        tracing::error!(job.name = name, error, "job.run failed");
    } else {
        tracing::debug!(job.name = name, counts = %counts, "job.run ended");
    }
    Ok(outcome)
}

/// Records a run in the metrics, with the counts of its record.
fn record_run(engine: &Engine, job: &'static str, outcome: &RunOutcome, took: Duration) {
    let items: Vec<(&str, u64)> = match outcome {
        RunOutcome::Ran(Value::Object(counts)) => counts
            .iter()
            .filter_map(|(item, count)| Some((item.as_str(), count.as_u64()?)))
            .collect(),
        RunOutcome::Ran(_) | RunOutcome::Failed(_) | RunOutcome::NotOurs => Vec::new(),
    };
    let ended_at = Duration::from_micros(u64::try_from(engine.now().as_micros()).unwrap_or(0));
    engine.0.metrics.job_ended(&JobRun {
        job,
        has_succeeded: matches!(outcome, RunOutcome::Ran(_)),
        took,
        ended_at_seconds: ended_at.as_secs_f64(),
        items: &items,
    });
}

fn slot_of(now: Timestamp, period: Duration) -> Timestamp {
    let period = i64::try_from(period.as_micros()).unwrap_or(i64::MAX).max(1);
    Timestamp::from_micros(now.as_micros() - now.as_micros().rem_euclid(period))
}

/// Every job of the worker role.
pub(crate) fn fleet_jobs() -> Vec<Arc<dyn Job>> {
    vec![
        Arc::new(DrainDeletions),
        Arc::new(PurgeStores),
        Arc::new(Erase),
        Arc::new(DeleteTenants),
        Arc::new(SweepBlobs::default()),
        Arc::new(ReconcileUsage::default()),
        Arc::new(Prune::default()),
        Arc::new(ExpireUnused),
        Arc::new(ExpireVersions),
        Arc::new(IndexMemories),
    ]
}

/// Every replica writes its access times every 30 seconds.
const FLUSH_SCHEDULE: &str = "*/30 * * * * *";

/// Every replica counts the live gateways every ten seconds.
const COUNT_SCHEDULE: &str = "5/10 * * * * *";

/// The scheduler of this process.
pub struct Runner {
    scheduler: JobScheduler,
    runs: TaskTracker,
    stopping: CancellationToken,
}

impl Runner {
    /// Sends the first heartbeat and starts the schedule: the periodic tasks of
    /// every replica, and the fleet's jobs if `is_worker`.
    ///
    /// # Errors
    /// [`JobSchedulerError`] when the schedule cannot be set up.
    pub async fn start(engine: &Engine, is_worker: bool) -> Result<Self, JobSchedulerError> {
        engine.announce().await;
        let scheduler = JobScheduler::new().await?;
        let (runs, stopping) = (TaskTracker::new(), CancellationToken::new());
        for job in fleet_jobs().into_iter().filter(|_| is_worker) {
            let (engine, runs, stopping) = (engine.clone(), runs.clone(), stopping.clone());
            engine.metrics().job_scheduled(job.name());
            let schedule = job.schedule();
            let tick = move |_, _| {
                let (engine, job, stopping) = (engine.clone(), Arc::clone(&job), stopping.clone());
                runs.spawn(async move {
                    let name = job.name();
                    if let Err(error) = run_job(&engine, job, RunRequest::SCHEDULED, &stopping).await {
                        tracing::warn!(job.name = name, error = %error, "job.claim failed");
                    }
                });
            };
            scheduler.add(CronJob::new(schedule, tick)?).await?;
        }
        let (counting, counts) = (engine.clone(), runs.clone());
        let count = move |_, _| {
            let engine = counting.clone();
            counts.spawn(async move { engine.recount().await });
        };
        scheduler.add(CronJob::new(COUNT_SCHEDULE, count)?).await?;
        let (engine, flushes) = (engine.clone(), runs.clone());
        let flush = move |_, _| {
            let engine = engine.clone();
            flushes.spawn(async move {
                if let Err(error) = engine.flush_access().await {
                    tracing::warn!(error = %error, "engine.flush_access failed; tried again at the next tick");
                }
            });
        };
        scheduler.add(CronJob::new(FLUSH_SCHEDULE, flush)?).await?;
        scheduler.start().await?;
        Ok(Self {
            scheduler,
            runs,
            stopping,
        })
    }

    /// Stops the schedule and waits for running jobs, at most `deadline`. A job
    /// stops after its current batch.
    pub async fn stop(mut self, deadline: Duration) {
        self.stopping.cancel();
        if let Err(error) = self.scheduler.shutdown().await {
            tracing::warn!(error = %error, "job.scheduler did not shut down");
        }
        self.runs.close();
        if tokio::time::timeout(deadline, self.runs.wait()).await.is_err() {
            tracing::warn!("job.run was still under way at the deadline; another replica takes it up");
        }
    }
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runner")
            .field("runs", &self.runs.len())
            .finish_non_exhaustive()
    }
}
