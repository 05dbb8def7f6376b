//! Scheduled jobs: their runs, and manual runs.

use std::sync::Arc;
use std::time::Duration;

use keepsake_core::Timestamp;
use keepsake_index::{Audited, JobRun, RunPlace};

use super::Operator;
use crate::cursor::Query;
use crate::jobs::{Job, RunRequest, carry_out, claim, fleet_jobs};
use crate::{Engine, EngineError, Page, PageRequest};

/// A job, and its last run.
#[derive(Debug, Clone, PartialEq)]
pub struct JobState {
    /// Its name.
    pub name: &'static str,
    /// When a worker checks whether the job is due: six cron fields in UTC.
    pub schedule: &'static str,
    /// How often it runs.
    pub period: Duration,
    /// Whether it supports dry runs.
    pub can_be_dry: bool,
    /// The most recently started run.
    pub last_run: Option<JobRun>,
}

impl Operator<'_> {
    /// Lists every job that one replica at a time runs for all replicas.
    ///
    /// # Errors
    /// [`EngineError::Index`].
    pub async fn jobs(&self) -> Result<Vec<JobState>, EngineError> {
        let mut jobs = Vec::new();
        for job in fleet_jobs() {
            let now = self.engine.now();
            let runs = self
                .engine
                .0
                .index
                .job_runs
                .list(job.name(), None, now, 1)
                .await?;
            jobs.push(JobState {
                name: job.name(),
                schedule: job.schedule(),
                period: job.period(),
                can_be_dry: job.can_be_dry(),
                last_run: runs.into_iter().next(),
            });
        }
        Ok(jobs)
    }

    /// Lists a job's runs, most recently started first.
    ///
    /// # Errors
    /// [`EngineError::JobNotFound`], [`EngineError::Invalid`],
    /// [`EngineError::Index`].
    pub async fn job_runs(&self, name: &str, request: &PageRequest) -> Result<Page<JobRun>, EngineError> {
        let job = job_called(name)?;
        let limit = request.limit(false)?;
        let identity = Query::of(&[b"job_runs", name.as_bytes()]);
        let before = match &request.page {
            Some(page) => Some(place_of(&self.engine.unseal(identity, page).await?)?),
            None => None,
        };
        let index = &self.engine.0.index;
        let runs = index
            .job_runs
            .list(job.name(), before, self.engine.now(), limit + 1)
            .await?;
        self.engine.page_of(identity, runs, limit, position).await
    }

    /// Starts a manual run of a job in this process and returns its record.
    ///
    /// The run does all the work and ignores the cursor of an interrupted run.
    /// It does not use up a slot of the schedule. A dry run changes nothing.
    ///
    /// # Errors
    /// [`EngineError::JobNotFound`], [`EngineError::Invalid`] for a dry run of
    /// a job that does not support it, [`EngineError::Conflict`] while the job
    /// runs, [`EngineError::Index`].
    pub async fn run_job(&self, name: &str, dry_run: bool) -> Result<JobRun, EngineError> {
        let job = job_called(name)?;
        if dry_run && !job.can_be_dry() {
            return Err(EngineError::Invalid {
                field: "dry_run",
                rule: format!("must not be true: {name} cannot tell what it would do without doing it"),
            });
        }
        self.change(|engine, audited| async move { begin_run(&engine, job, dry_run, &audited).await })
            .await
    }
}

/// Claims a manual run, audits it, and runs it in the background.
async fn begin_run(
    engine: &Engine,
    job: Arc<dyn Job>,
    is_dry_run: bool,
    audited: &Audited,
) -> Result<JobRun, EngineError> {
    let (request, name) = (RunRequest::manual(is_dry_run), job.name());
    let Some(claimed) = claim(engine, &*job, request).await? else {
        return Err(EngineError::Conflict(
            "the job is running already: wait for the end of that run",
        ));
    };
    let index = &engine.0.index;
    let noted = index
        .job_runs
        .note_manual(name, claimed.slot, is_dry_run, audited);
    if let Err(error) = noted.await {
        index.job_runs.release(name, claimed.fence).await?;
        return Err(error.into());
    }
    let runner = engine.clone();
    engine.0.writes.spawn(async move {
        let stopping = runner.0.stopping.clone();
        if let Err(error) = carry_out(&runner, job, request, claimed, &stopping).await {
            tracing::error!(job.name = name, error = %error, "job.run could not be recorded");
        }
    });
    Ok(JobRun {
        slot: claimed.slot,
        started_at: claimed.started_at,
        ended_at: None,
        is_running: true,
        by_hand: true,
        is_dry_run,
        owner: Some(engine.0.replica),
        counts: None,
        error: None,
    })
}

fn job_called(name: &str) -> Result<Arc<dyn Job>, EngineError> {
    let mut jobs = fleet_jobs().into_iter();
    jobs.find(|job| job.name() == name)
        .ok_or(EngineError::JobNotFound)
}

/// The position of a run in the listing, as a cursor contains it.
fn position(run: &JobRun) -> Vec<u8> {
    let parts = [run.started_at, run.slot].map(|time| time.as_micros().to_be_bytes());
    parts.concat()
}

fn place_of(position: &[u8]) -> Result<RunPlace, EngineError> {
    let parts = position.split_at_checked(8).and_then(|(at, slot)| {
        let time = |bytes: &[u8]| Some(Timestamp::from_micros(i64::from_be_bytes(bytes.try_into().ok()?)));
        Some((time(at)?, time(slot)?))
    });
    parts.ok_or(EngineError::Internal("a cursor of no run"))
}
