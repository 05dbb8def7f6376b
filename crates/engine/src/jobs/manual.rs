//! Scheduled jobs: their runs, and manual runs.

use std::sync::Arc;
use std::time::Duration;

use keepsake_core::schemas::{self, JobRunType, JobType};
use keepsake_core::{ObjectKind, Timestamp};
use keepsake_index::{Auditor, JobRun, RunReason, RunStatus, RunTally};
use serde::Serialize;
use utoipa::ToSchema;

use super::{Job, Jobs, RunRequest, fleet_jobs, next_run_at};
use crate::cursor::Query;
use crate::shared::service;
use crate::{EngineError, Page, PageRequest};

/// A job. One replica at a time runs it for all.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = Job)]
pub struct JobState {
    #[schema(value_type = schemas::JobName)]
    pub name: &'static str,
    #[schema(inline)]
    pub r#type: JobType,
    /// When workers check whether the job is due: six cron fields, seconds
    /// first, in UTC.
    pub schedule: &'static str,
    /// The interval between runs.
    pub period_seconds: u64,
    /// When a worker runs the job next, if one is running.
    pub next_run_at: Timestamp,
    /// Whether the job supports dry runs.
    pub can_be_dry: bool,
    /// The most recently started run; null if there was none.
    #[schema(required)]
    pub last_run: Option<JobRun>,
}

/// The number of recent runs in which the last scheduled run is searched.
const RECENT_RUNS: u32 = 20;

service!(pub ManualJobs(shared) { jobs: Jobs = Jobs::new(shared) });

impl ManualJobs {
    /// Lists every job that one replica at a time runs for all replicas.
    pub async fn list(&self) -> Result<Vec<JobState>, EngineError> {
        let (context, mut jobs) = (&self.context, Vec::new());
        for job in fleet_jobs() {
            let (job_runs, now, plan) = (&context.index.job_runs, context.now(), job.plan());
            let runs = job_runs.list(plan.name, None, now, RECENT_RUNS).await?;
            jobs.push(JobState {
                name: plan.name,
                r#type: JobType,
                schedule: plan.schedule,
                period_seconds: plan.period.as_secs(),
                next_run_at: next_run_at(&*job, now, &runs),
                can_be_dry: plan.can_be_dry,
                last_run: runs.into_iter().next(),
            });
        }
        Ok(jobs)
    }

    /// How the runs of all jobs since a time went, in parts of the time.
    pub async fn tally(&self, since: Timestamp, part: Duration) -> Result<Vec<RunTally>, EngineError> {
        let names: Vec<_> = fleet_jobs().iter().map(|job| job.plan().name).collect();
        Ok(self.context.index.job_runs.tally(&names, since, part).await?)
    }

    /// Most recently started first.
    pub async fn runs(&self, name: &str, request: &PageRequest) -> Result<Page<JobRun>, EngineError> {
        let job = job_called(name)?;
        let limit = request.limit(false)?;
        let identity = Query::of(&[b"job_runs", name.as_bytes()]);
        let context = &self.context;
        let before = context.cursors.after(identity, request).await?;
        let job_runs = &context.index.job_runs;
        let runs = job_runs.list(job.plan().name, before, context.now(), limit + 1).await?;
        context.cursors.page(identity, runs, limit, |run| (run.started_at, run.slot)).await
    }

    /// Starts a manual run of a job in this process and returns the run's record.
    ///
    /// The run does all the work and ignores the cursor of an interrupted run. It does
    /// not use up a slot of the schedule. A dry run changes nothing. While the job runs,
    /// another run is refused as a conflict.
    pub async fn run(&self, name: &str, is_dry_run: bool, by: Auditor) -> Result<JobRun, EngineError> {
        let job = job_called(name)?;
        if is_dry_run && !job.plan().can_be_dry {
            return Err(EngineError::invalid(
                "dry_run",
                format!("must not be true: {name} cannot tell what it would do without doing it"),
            ));
        }
        let this = self.clone();
        self.context.run_to_end(async move { this.begin(job, is_dry_run, by).await }).await
    }

    /// Claims a manual run, audits it, and runs it in the background.
    async fn begin(&self, job: Arc<dyn Job>, is_dry_run: bool, by: Auditor) -> Result<JobRun, EngineError> {
        let (context, request, name) = (&self.context, RunRequest::manual(is_dry_run), job.plan().name);
        let audited = context.audited(by);
        let Some(claimed) = self.jobs.claim(&*job, request).await? else {
            return Err(EngineError::Conflict("the job is running already: wait for the end of that run"));
        };
        let job_runs = &context.index.job_runs;
        if let Err(error) = job_runs.note_manual(name, claimed.slot, is_dry_run, &audited).await {
            job_runs.release(name, claimed.fence).await?;
            return Err(error.into());
        }
        let this = self.clone();
        context.writes.spawn(async move {
            if let Err(error) = this.jobs.carry_out(job, request, claimed, &this.stopping).await {
                tracing::error!(job.name = name, error = %error, "job.run could not be recorded");
            }
        });
        Ok(JobRun {
            slot: claimed.slot,
            r#type: JobRunType,
            job: name.to_owned(),
            status: RunStatus::Running,
            reason: RunReason::Operator,
            is_dry_run,
            started_at: claimed.started_at,
            ended_at: None,
            counts: None,
            error: None,
        })
    }
}

fn job_called(name: &str) -> Result<Arc<dyn Job>, EngineError> {
    let mut jobs = fleet_jobs().into_iter();
    jobs.find(|job| job.plan().name == name).ok_or(EngineError::NotFound(ObjectKind::Job))
}
