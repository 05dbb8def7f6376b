//! `/admin/v1/jobs`

use axum::extract::State;
use axum::http::StatusCode;
use keepsake_core::Timestamp;
use keepsake_engine::{Engine, JobState};
use keepsake_index::JobRun as FoundRun;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::By;
use super::body::OptionalAdminBody;
use crate::answer::Json;
use crate::error::ApiError;
use crate::path::{JobName, Path};
use crate::query::QueryParams;
use crate::routes::list::{List, ListPage};
use crate::schemas::{self, JobRunType, JobType};

/// The body of a request to run a job.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunJob {
    /// Whether the job only reports what it would do.
    #[serde(default)]
    dry_run: bool,
}

/// A job. One replica at a time runs it for all.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Job {
    #[schema(value_type = schemas::JobName)]
    name: &'static str,
    #[schema(inline)]
    r#type: JobType,
    /// When workers check whether the job is due: six cron fields, seconds
    /// first, in UTC.
    schedule: &'static str,
    /// The interval between runs.
    period_seconds: u64,
    /// When a worker runs the job next, if one is running.
    #[schema(value_type = schemas::Time)]
    next_run_at: String,
    /// Whether the job supports dry runs.
    can_be_dry: bool,
    /// The most recently started run; null if there was none.
    #[schema(required)]
    last_run: Option<JobRun>,
}

impl From<JobState> for Job {
    fn from(job: JobState) -> Self {
        Self {
            name: job.plan.name,
            r#type: JobType,
            schedule: job.plan.schedule,
            period_seconds: job.plan.period.as_secs(),
            next_run_at: job.next_run_at.to_rfc3339(),
            can_be_dry: job.plan.can_be_dry,
            last_run: job.last_run.map(|run| JobRun::of(job.plan.name, run)),
        }
    }
}

/// The record of a run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobRun {
    /// The id, unique among the job's runs.
    id: String,
    #[schema(inline)]
    r#type: JobRunType,
    #[schema(value_type = schemas::JobName)]
    job: String,
    #[schema(value_type = schemas::JobRunStatus)]
    status: &'static str,
    #[schema(value_type = schemas::JobRunReason)]
    asked_for_by: &'static str,
    /// Whether the run was a dry run.
    dry_run: bool,
    /// When it started or was last resumed.
    #[schema(value_type = schemas::Time)]
    started_at: String,
    #[schema(value_type = Option<schemas::Time>, required)]
    ended_at: Option<String>,
    /// The result of the run: numbers and ids, with names that depend on the
    /// job; null until the run ends.
    #[schema(value_type = Option<Object>, required)]
    counts: Option<Value>,
    /// The reason of the failure.
    #[schema(required)]
    error: Option<String>,
}

impl JobRun {
    fn of(job: &str, run: FoundRun) -> Self {
        let status = match (run.ended_at, &run.error) {
            (Some(_), Some(_)) => "failed",
            (Some(_), None) => "done",
            (None, _) if run.is_running => "running",
            (None, _) => "interrupted",
        };
        Self {
            id: run.slot.as_micros().to_string(),
            r#type: JobRunType,
            job: job.to_owned(),
            status,
            asked_for_by: if run.by_hand { "operator" } else { "schedule" },
            dry_run: run.is_dry_run,
            started_at: run.started_at.to_rfc3339(),
            ended_at: run.ended_at.map(Timestamp::to_rfc3339),
            counts: run.counts,
            error: run.error,
        }
    }
}

/// List jobs
///
/// Each job with its most recently started run. Tasks that every replica runs
/// for itself, such as recording read times, are not included.
#[utoipa::path(
    get,
    path = "/jobs",
    operation_id = "jobs.list",
    responses((status = 200, description = "All jobs.", body = List<Job>)),
)]
pub(super) async fn list(
    State(engine): State<Engine>,
    _: QueryParams<()>,
) -> Result<Json<List<Job>>, ApiError> {
    let jobs = engine.manual_jobs.list().await?;
    Ok(Json(List::complete(jobs.into_iter().map(Job::from))))
}

/// List a job's runs
///
/// The most recently started run first. Runs are kept for 30 days.
#[utoipa::path(
    get,
    path = "/jobs/{job}/runs",
    operation_id = "jobs.runs",
    params(ListPage),
    responses((status = 200, description = "A page of runs.", body = List<JobRun>)),
)]
pub(super) async fn runs(
    State(engine): State<Engine>,
    Path(JobName(job)): Path<JobName>,
    QueryParams(params): QueryParams<ListPage>,
) -> Result<Json<List<JobRun>>, ApiError> {
    let runs = engine.manual_jobs.runs(&job, &params.into()).await?;
    Ok(Json(List::of(runs, |run| JobRun::of(&job, run))))
}

/// Run a job now
///
/// The process that receives the request runs the job, whatever its role, in
/// addition to the schedule. The response is immediate; the list of runs shows
/// the result. If the job is already running anywhere, the response is 409.
#[utoipa::path(
    post,
    path = "/jobs/{job}/run",
    operation_id = "jobs.run",
    request_body = Option<RunJob>,
    responses((status = 202, description = "The run has started.", body = JobRun)),
)]
pub(super) async fn run(
    State(engine): State<Engine>,
    By(by): By,
    Path(JobName(job)): Path<JobName>,
    OptionalAdminBody(body): OptionalAdminBody<RunJob>,
) -> Result<(StatusCode, Json<JobRun>), ApiError> {
    let begun = engine.manual_jobs.run(&job, body.dry_run, by).await?;
    Ok((StatusCode::ACCEPTED, Json(JobRun::of(&job, begun))))
}
