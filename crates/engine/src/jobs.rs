//! Scheduled jobs: who runs one, when, and what it leaves on record.
//!
//! tokio-cron-scheduler is the clock alone: it neither keeps runs from
//! overlapping nor waits for them. A run claims its slot and a lease in the
//! index, so that any number of replicas run each slot once; its fence grows
//! with every lease, so that an owner that lost its lease cannot end another's
//! run. A run whose owner died is taken up by the next one after its lease: jobs
//! of a long period look more often than that whether their slot was run.

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

/// How long a run may go without renewing its lease.
const LEASE: Duration = Duration::from_mins(1);

/// A job that one replica at a time runs for the whole fleet.
///
/// A body works in bounded batches, renews its lease between them, can be
/// taken up after a kill, and may be run twice.
#[async_trait]
pub trait Job: Send + Sync {
    /// Its name, as leases and records have it.
    fn name(&self) -> &'static str;

    /// When it runs: six cron fields, seconds first, in UTC.
    fn schedule(&self) -> &'static str;

    /// How far apart its slots are; a slot is run once.
    fn period(&self) -> Duration;

    /// Whether it can tell what it would do without doing it.
    fn can_be_dry(&self) -> bool {
        false
    }

    /// Does the work; answers what it did, for the record.
    async fn run(&self, engine: &Engine, lease: &Lease<'_>) -> Result<Value, EngineError>;
}

/// What is asked of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunRequest {
    /// Whether it only tells what it would do, and changes nothing.
    dry_run: bool,
    slot: Slot,
}

/// Which slot a run takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    /// The one of the schedule that now falls into, which is run once.
    Scheduled,
    /// One of its own, that begins now.
    Manual,
}

impl RunRequest {
    /// The run that the schedule asks for.
    pub const SCHEDULED: Self = Self {
        dry_run: false,
        slot: Slot::Scheduled,
    };

    /// A run that somebody asks for, whatever the schedule says.
    pub const fn manual(dry_run: bool) -> Self {
        Self {
            dry_run,
            slot: Slot::Manual,
        }
    }

    fn slot(self, now: Timestamp, period: Duration) -> Timestamp {
        match self.slot {
            Slot::Scheduled => slot_of(now, period),
            // Never one of the schedule's.
            Slot::Manual if slot_of(now, period) == now => now.plus(Duration::from_micros(1)),
            Slot::Manual => now,
        }
    }

    /// Whether it does all the work, whatever an earlier run left off at.
    fn starts_anew(self) -> bool {
        self.dry_run || self.slot == Slot::Manual
    }
}

/// The right to run a job, while it is renewed.
#[derive(Debug)]
pub struct Lease<'a> {
    engine: &'a Engine,
    job: &'static str,
    fence: i64,
    request: RunRequest,
    stopping: &'a CancellationToken,
    /// Set when the run is told to stop before its end.
    is_cut: Arc<AtomicBool>,
}

impl Lease<'_> {
    /// Whether the run is to tell what it would do, and change nothing.
    pub const fn dry_run(&self) -> bool {
        self.request.dry_run
    }

    /// Whether somebody asked for the run.
    pub fn is_manual(&self) -> bool {
        self.request.slot == Slot::Manual
    }

    /// What fences the run's writes to the index.
    pub(crate) const fn fence(&self) -> RunFence {
        RunFence {
            job: self.job,
            fence: self.fence,
        }
    }

    /// Where the job is to go on, as an earlier run kept it that was broken off.
    ///
    /// # Errors
    /// [`EngineError::Index`].
    pub async fn cursor(&self) -> Result<Option<String>, EngineError> {
        if self.request.starts_anew() {
            return Ok(None);
        }
        Ok(self.engine.0.index.job_runs.cursor(self.job).await?)
    }

    /// Extends the lease between two batches, and keeps the job's cursor; that
    /// of a dry run is not kept.
    ///
    /// Answers whether to go on: not when the lease was lost or the process
    /// is about to end.
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

/// How a job's slot was dealt with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunOutcome {
    /// Another replica runs it, or the slot was run already.
    NotOurs,
    /// It ran to its end; what it did.
    Ran(Value),
    /// It failed; why.
    Failed(String),
}

/// Runs a job for the slot that `request` asks for, if it is this replica's.
///
/// A slot of the schedule is run once; a run that was asked for waits for none,
/// but no two runs of a job overlap.
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

/// A run whose lease this replica has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claimed {
    pub(crate) slot: Timestamp,
    pub(crate) started_at: Timestamp,
    pub(crate) fence: i64,
}

/// Takes the lease of a run; `None`: another has it, or the slot was run.
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

/// Does what was claimed and records it.
///
/// A run that was told to stop is not ended: another replica takes it up.
pub(crate) async fn carry_out(
    engine: &Engine,
    job: Arc<dyn Job>,
    request: RunRequest,
    claimed: Claimed,
    stopping: &CancellationToken,
) -> Result<RunOutcome, EngineError> {
    let Claimed { slot, fence, .. } = claimed;
    let (name, is_cut) = (job.name(), Arc::new(AtomicBool::new(false)));
    // In a task of its own, so that a panic ends in a record and not in silence.
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
    // What a dry run counts was not done, and another has counted a lost one.
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

/// Tells the metrics of a run; what it counted is what the record has.
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

/// Writes access times on every replica, half-minutely.
const FLUSH_SCHEDULE: &str = "*/30 * * * * *";

/// Counts the live gateways on every replica, each ten seconds.
const COUNT_SCHEDULE: &str = "5/10 * * * * *";

/// The schedule of one process.
pub struct Runner {
    scheduler: JobScheduler,
    runs: TaskTracker,
    stopping: CancellationToken,
}

impl Runner {
    /// Tells that this replica lives, and starts the schedule: the fleet's jobs
    /// where `is_worker`, and what every replica does for itself.
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

    /// Ends the schedule and waits for the runs under way, which stop at their
    /// next batch, at most `deadline`.
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
