//! The scheduler of this process: it triggers the periodic tasks and the jobs, and
//! restarts after steps of the machine's clock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keepsake_core::Timestamp;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tokio_cron_scheduler::{Job as CronJob, JobScheduler, JobSchedulerError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::Engine;
use crate::jobs::{RunRequest, fleet_jobs};

/// Every replica writes its access times every 30 seconds.
const FLUSH_SCHEDULE: &str = "*/30 * * * * *";

/// Every replica counts the live gateways every ten seconds; a worker also reads
/// the stored totals.
const COUNT_SCHEDULE: &str = "5/10 * * * * *";

/// The interval at which the machine's clock is compared with the monotonic clock.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// A greater difference within an interval is a step of the machine's clock.
const STEP: Duration = Duration::from_secs(2);
/// After such a step of the clock a job may take memories for expired that are not.
const LARGE_STEP: Duration = Duration::from_mins(1);
/// How long jobs rest after a large step: the step may be taken back.
const REST_AFTER_LARGE_STEP: Duration = Duration::from_mins(5);

pub struct Runner {
    supervisor: JoinHandle<()>,
    runs: TaskTracker,
    stopping: CancellationToken,
}

impl Runner {
    /// Sends the first heartbeat and starts the schedule: the periodic tasks of
    /// every replica, and the fleet's jobs if `is_worker`. Every replica also embeds
    /// the memories that it writes.
    pub async fn start(engine: &Engine, is_worker: bool) -> Result<Self, JobSchedulerError> {
        engine.replica.announce().await;
        // So that the first search after a start uses meaning.
        engine.embeddings.look_for_model().await;
        let stopping = CancellationToken::new();
        let schedule = Schedule {
            engine: engine.clone(),
            is_worker,
            runs: TaskTracker::new(),
            clock: Arc::new(Mutex::new(WatchedClock::new(Clocks::now(engine), &stopping))),
            stopping,
        };
        for job in fleet_jobs().iter().filter(|_| is_worker) {
            engine.metrics().job_scheduled(job.plan().name);
        }
        let scheduler = schedule.start().await?;
        let (embeddings, stops) = (engine.embeddings.clone(), schedule.stopping.clone());
        schedule.runs.spawn(async move { embeddings.run(stops).await });
        let (runs, stopping) = (schedule.runs.clone(), schedule.stopping.clone());
        let supervisor = tokio::spawn(async move { schedule.supervise(scheduler).await });
        Ok(Self { supervisor, runs, stopping })
    }

    /// Waits at most `deadline` for running jobs. A job stops after its current batch.
    pub async fn stop(self, deadline: Duration) {
        self.stopping.cancel();
        self.runs.close();
        let end = async {
            if let Err(error) = self.supervisor.await {
                tracing::warn!(error = %error, "job.scheduler did not shut down");
            }
            self.runs.wait().await;
        };
        if tokio::time::timeout(deadline, end).await.is_err() {
            tracing::warn!("job.run was still under way at the deadline; another replica takes it up");
        }
    }
}

struct Schedule {
    engine: Engine,
    is_worker: bool,
    runs: TaskTracker,
    stopping: CancellationToken,
    clock: Arc<Mutex<WatchedClock>>,
}

impl Schedule {
    async fn start(&self) -> Result<JobScheduler, JobSchedulerError> {
        let scheduler = JobScheduler::new().await?;
        for job in fleet_jobs().into_iter().filter(|_| self.is_worker) {
            let (engine, runs) = (self.engine.clone(), self.runs.clone());
            let (schedule, clock) = (job.plan().schedule, Arc::clone(&self.clock));
            let tick = move |_, _| {
                // If the machine's clock was set ahead, the scheduler triggers all jobs.
                let Some(stopping) = look_at(&clock, Clocks::now(&engine)).jobs else {
                    return;
                };
                if engine.replica.is_fenced_off() {
                    return;
                }
                let (engine, job) = (engine.clone(), Arc::clone(&job));
                runs.spawn(async move {
                    let name = job.plan().name;
                    if let Err(error) = engine.jobs.run(job, RunRequest::SCHEDULED, &stopping).await {
                        tracing::warn!(job.name = name, error = %error, "job.claim failed");
                    }
                });
            };
            scheduler.add(CronJob::new(schedule, tick)?).await?;
        }
        let (engine, runs, is_worker) = (self.engine.clone(), self.runs.clone(), self.is_worker);
        let clock = Arc::clone(&self.clock);
        let count = move |_, _| {
            // This check also notices a clock that is set, and set back before the next job.
            look_at(&clock, Clocks::now(&engine));
            let engine = engine.clone();
            runs.spawn(async move {
                engine.replica.count_gateways().await;
                if is_worker {
                    engine.jobs.report_totals().await;
                }
            });
        };
        scheduler.add(CronJob::new(COUNT_SCHEDULE, count)?).await?;
        let (engine, runs, clock) = (self.engine.clone(), self.runs.clone(), Arc::clone(&self.clock));
        let flush = move |_, _| {
            look_at(&clock, Clocks::now(&engine));
            let engine = engine.clone();
            runs.spawn(async move {
                if let Err(error) = engine.replica.flush().await {
                    tracing::warn!(error = %error, "engine.flush_access failed; tried again at the next tick");
                }
            });
        };
        scheduler.add(CronJob::new(FLUSH_SCHEDULE, flush)?).await?;
        scheduler.start().await?;
        Ok(scheduler)
    }

    /// Restarts the schedule after each step of the machine's clock, until the process
    /// stops.
    ///
    /// The scheduler waits for times of the machine's clock: if the clock was ahead for a
    /// moment, the next trigger may be a year away.
    async fn supervise(&self, scheduler: JobScheduler) {
        let mut scheduler = Some(scheduler);
        let mut last = look_at(&self.clock, Clocks::now(&self.engine));
        let mut checks = tokio::time::interval(CLOCK_CHECK_INTERVAL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = self.stopping.cancelled() => break,
                _ = checks.tick() => {}
            }
            let seen = look_at(&self.clock, Clocks::now(&self.engine));
            let was_set = seen.steps != last.steps;
            last = seen;
            if was_set {
                tracing::warn!(
                    jobs_rest = last.jobs.is_none(),
                    "job.scheduler starts again: the machine's clock was set"
                );
            } else if scheduler.is_some() {
                continue;
            }
            shut_down(scheduler.take()).await;
            match self.start().await {
                Ok(started) => scheduler = Some(started),
                Err(error) => tracing::error!(error = %error, "job.scheduler did not start; tried again"),
            }
        }
        shut_down(scheduler).await;
    }
}

async fn shut_down(scheduler: Option<JobScheduler>) {
    if let Some(mut scheduler) = scheduler
        && let Err(error) = scheduler.shutdown().await
    {
        tracing::warn!(error = %error, "job.scheduler did not shut down");
    }
}

struct WatchedClock {
    seen: Clocks,
    /// How often the clock was set.
    steps: u64,
    /// Jobs rest until this time.
    rests_until: Option<Instant>,
    stopping: CancellationToken,
    /// Ends the jobs that begin before the next large step.
    jobs: CancellationToken,
}

struct ClockCheck {
    steps: u64,
    /// Ends the jobs that begin now; `None`: no job may begin.
    jobs: Option<CancellationToken>,
}

fn look_at(clock: &Mutex<WatchedClock>, now: Clocks) -> ClockCheck {
    let mut clock = clock.lock();
    clock.look(now)
}

impl WatchedClock {
    fn new(seen: Clocks, stopping: &CancellationToken) -> Self {
        Self { seen, steps: 0, rests_until: None, jobs: stopping.child_token(), stopping: stopping.clone() }
    }

    fn look(&mut self, now: Clocks) -> ClockCheck {
        let step = now.step_since(&self.seen);
        if step > STEP {
            self.steps += 1;
        }
        if step > LARGE_STEP {
            self.rests_until = Some(now.steady + REST_AFTER_LARGE_STEP);
            self.jobs.cancel();
            self.jobs = self.stopping.child_token();
        }
        let rests = self.rests_until.is_some_and(|until| now.steady < until);
        self.seen = now;
        ClockCheck { steps: self.steps, jobs: (!rests).then(|| self.jobs.clone()) }
    }
}

/// The machine's clock and the monotonic clock at one moment.
#[derive(Debug, Clone, Copy)]
struct Clocks {
    machine: Timestamp,
    steady: Instant,
}

impl Clocks {
    fn now(engine: &Engine) -> Self {
        Self { machine: engine.now(), steady: Instant::now() }
    }

    /// How far the machine's clock was set, in either direction.
    fn step_since(&self, before: &Self) -> Duration {
        let machine = self.machine.as_micros().saturating_sub(before.machine.as_micros());
        let steady = (self.steady - before.steady).as_micros();
        let steady = i64::try_from(steady).unwrap_or(i64::MAX);
        Duration::from_micros(machine.abs_diff(steady))
    }
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runner").field("runs", &self.runs.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_rest_after_a_large_step() {
        let begin = Instant::now();
        let at = |machine: i64, steady| Clocks {
            machine: Timestamp::from_micros(machine * 1_000_000),
            steady: begin + Duration::from_secs(steady),
        };
        let mut clock = WatchedClock::new(at(1_000, 0), &CancellationToken::new());
        let before = clock.look(at(1_000, 0)).jobs.unwrap();
        for (machine, steady, steps, may_run_jobs) in [
            (1_001, 1, 0, true),
            (1_011, 2, 1, true),
            (90_000, 3, 2, false),
            (90_001, 4, 2, false),
            (1_014, 5, 3, false),
            (1_313, 304, 3, false),
            (1_314, 305, 3, true),
        ] {
            let seen = clock.look(at(machine, steady));
            assert_eq!((seen.steps, seen.jobs.is_some()), (steps, may_run_jobs), "{machine}");
            // One that has begun ends before its next batch.
            assert_eq!(before.is_cancelled(), steps > 1, "{machine}");
        }
    }
}
