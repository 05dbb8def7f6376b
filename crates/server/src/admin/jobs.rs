//! `/admin/v1/jobs`

use axum::extract::State;
use axum::http::StatusCode;
use keepsake_engine::{Engine, JobState};
use keepsake_index::JobRun;
use serde::Deserialize;
use utoipa::ToSchema;

use super::OperatorCaller;
use super::body::{AdminBody, OptionalAdminBody};
use crate::answer::{Answer, Json};
use crate::error::ApiError;
use crate::path::{JobName, Path};
use crate::query::QueryParams;
use crate::routes::list::{List, ListPage};

/// The body of a request to run a job.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunJob {
    /// Whether the job only reports what it would do.
    #[serde(default)]
    dry_run: bool,
}

/// List jobs
///
/// Each job with its most recently started run. Tasks that every replica runs
/// for itself, such as recording read times, are not included.
#[utoipa::path(
    get,
    path = "/jobs",
    operation_id = "jobs.list",
    responses((status = 200, description = "All jobs.", body = List<JobState>)),
)]
pub(super) async fn list(State(engine): State<Engine>, _: QueryParams<()>) -> Answer<List<JobState>> {
    Ok(Json(List::complete(engine.manual_jobs.list().await?)))
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
) -> Answer<List<JobRun>> {
    Ok(Json(engine.manual_jobs.runs(&job, &params.into()).await?.into()))
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
    OperatorCaller(engine, by): OperatorCaller,
    Path(JobName(job)): Path<JobName>,
    AdminBody(body): OptionalAdminBody<RunJob>,
) -> Result<(StatusCode, Json<JobRun>), ApiError> {
    let begun = engine.manual_jobs.run(&job, body.dry_run, by).await?;
    Ok((StatusCode::ACCEPTED, Json(begun)))
}
