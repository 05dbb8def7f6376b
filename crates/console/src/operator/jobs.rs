//! Scheduled jobs: when they ran, whether they failed, and manual runs.

use askama::Template;
use keepsake_core::words;
use keepsake_engine::JobState;
use keepsake_index::{Auditor, JobRun, RunReason, RunStatus};
use serde_json::Value;

use super::Operator;
use crate::frame::{Done, Frame};
use crate::page::{PageResult, Refusal, done, page};
use crate::path::{JobName, Path};
use crate::request::{Caller, Form, Pager};
use crate::text::markup::encoded;

const PER_PAGE: u64 = 50;

/// How long a run took; empty until it ends.
fn took(run: &JobRun) -> String {
    run.ended_at.map_or_else(String::new, |ended_at| {
        let millis = (ended_at.as_micros() - run.started_at.as_micros()).max(0) / 1_000;
        format!("{}.{:03} s", millis / 1_000, millis % 1_000)
    })
}

/// The counts and the error of a run. Counts of zero are left out.
fn result_of(run: &JobRun) -> String {
    let counts = run.counts.as_ref().map(described).unwrap_or_default();
    format!("{counts} {}", run.error.as_deref().unwrap_or_default())
}

fn described(counts: &Value) -> String {
    let Some(counts) = counts.as_object() else {
        return counts.to_string();
    };
    let counts = counts.iter().filter(|(_, value)| value.as_u64() != Some(0) && !value.is_null());
    let parts: Vec<_> = counts.map(|(name, value)| format!("{} {value}", name.replace('_', " "))).collect();
    if parts.is_empty() { "nothing to do".to_owned() } else { parts.join(", ") }
}

#[derive(Template)]
#[template(path = "operator/jobs.html")]
struct JobsPage {
    frame: Frame,
    jobs: Vec<JobState>,
    failed: usize,
}

/// `GET /console/jobs`
pub(super) async fn list(caller: Caller<Operator>) -> PageResult {
    let jobs = caller.engine.manual_jobs.list().await?;
    let last_runs = jobs.iter().filter_map(|job| job.last_run.as_ref());
    let failed = last_runs.filter(|run| run.status == RunStatus::Failed).count();
    page(&JobsPage { frame: caller.frame("Jobs"), jobs, failed })
}

#[derive(Template)]
#[template(path = "operator/job.html")]
struct JobPage {
    frame: Frame,
    job: JobState,
    runs: Vec<JobRun>,
    pager: Pager,
}

/// `GET /console/jobs/{job}`
pub(super) async fn show(caller: Caller<Operator>, Path(JobName(name)): Path<JobName>) -> PageResult {
    let jobs = &caller.engine.manual_jobs;
    let job = jobs.list().await?.into_iter().find(|job| job.name == name);
    let job = job.ok_or(Refusal::NotFound("the job was not found"))?;
    let found = jobs.runs(job.name, &caller.query.page(PER_PAGE)).await?;
    page(&JobPage {
        frame: caller.frame(job.name),
        job,
        runs: found.items,
        pager: caller.query.pager(found.next),
    })
}

/// `POST /console/jobs/{job}/run`
pub(super) async fn run(Path(JobName(name)): Path<JobName>, form: Form<Operator>) -> PageResult {
    let is_dry = form.fields.is_on("dry_run");
    form.engine.manual_jobs.run(&name, is_dry, Auditor::Operator).await?;
    done(&format!("/console/jobs/{}", encoded(&name)), Done::JobStarted)
}
