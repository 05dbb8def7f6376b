//! The scheduler of this process.

use std::sync::Arc;
use std::time::Duration;

use tokio_cron_scheduler::{Job as CronJob, JobScheduler, JobSchedulerError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{RunRequest, fleet_jobs};
use crate::Engine;

/// Every replica writes its access times every 30 seconds.
const FLUSH_SCHEDULE: &str = "*/30 * * * * *";

/// Every replica counts the live gateways every ten seconds; a worker also reads
/// the stored totals.
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
        engine.replica.announce().await;
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
                    if let Err(error) = engine.jobs.run(job, RunRequest::SCHEDULED, &stopping).await {
                        tracing::warn!(job.name = name, error = %error, "job.claim failed");
                    }
                });
            };
            scheduler.add(CronJob::new(schedule, tick)?).await?;
        }
        let (counting, counts) = (engine.clone(), runs.clone());
        let count = move |_, _| {
            let engine = counting.clone();
            counts.spawn(async move {
                engine.replica.recount().await;
                if is_worker {
                    engine.jobs.report_totals().await;
                }
            });
        };
        scheduler.add(CronJob::new(COUNT_SCHEDULE, count)?).await?;
        let (engine, flushes) = (engine.clone(), runs.clone());
        let flush = move |_, _| {
            let engine = engine.clone();
            flushes.spawn(async move {
                if let Err(error) = engine.replica.flush().await {
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
