//! Scheduled jobs: when they ran, whether they failed, and manual runs.

use askama::Template;
use axum::extract::{Path, State};
use keepsake_core::{Timestamp, words};
use keepsake_engine::{Engine, JobState};
use keepsake_index::{Auditor, JobRun, RunReason, RunStatus};
use serde_json::Value;

use super::{Operator, OperatorForm};
use crate::frame::{Done, Frame, Tab};
use crate::page::{PageResult, Refusal, done, page};
use crate::request::{Pager, Query};
use crate::text::markup::{Markup, encoded, time};

const PER_PAGE: u64 = 50;

struct Run {
    status: &'static str,
    began: Markup,
    took: String,
    is_dry: bool,
    by_hand: bool,
    counts: String,
    error: String,
}

impl Run {
    fn of(run: &JobRun, now: Timestamp) -> Self {
        Self {
            status: run.status.name(),
            began: time(run.started_at, now),
            took: run.ended_at.map_or_else(String::new, |ended_at| {
                let millis = (ended_at.as_micros() - run.started_at.as_micros()).max(0) / 1_000;
                format!("{}.{:03} s", millis / 1_000, millis % 1_000)
            }),
            is_dry: run.is_dry_run,
            by_hand: run.reason == RunReason::Operator,
            counts: run.counts.as_ref().map(described).unwrap_or_default(),
            error: run.error.clone().unwrap_or_default(),
        }
    }
}

/// Counts of zero are left out.
fn described(counts: &Value) -> String {
    let Some(counts) = counts.as_object() else {
        return counts.to_string();
    };
    let counts = counts.iter().filter(|(_, value)| value.as_u64() != Some(0) && !value.is_null());
    let parts: Vec<_> = counts.map(|(name, value)| format!("{} {value}", name.replace('_', " "))).collect();
    if parts.is_empty() { "nothing to do".to_owned() } else { parts.join(", ") }
}

struct Row {
    name: &'static str,
    href: String,
    schedule: String,
    next: Markup,
    last: Option<Run>,
    can_be_dry: bool,
}

impl Row {
    fn of(job: &JobState, now: Timestamp) -> Self {
        Self {
            name: job.name,
            href: format!("/console/jobs/{}", job.name),
            schedule: words::schedule(job.schedule, job.period_seconds),
            next: time(job.next_run_at, now),
            last: job.last_run.as_ref().map(|run| Run::of(run, now)),
            can_be_dry: job.can_be_dry,
        }
    }
}

#[derive(Template)]
#[template(path = "operator/jobs.html")]
struct JobsPage {
    frame: Frame,
    rows: Vec<Row>,
    failed: usize,
}

/// `GET /console/jobs`
pub(super) async fn list(State(engine): State<Engine>, operator: Operator) -> PageResult {
    let (jobs, now) = (engine.manual_jobs.list().await?, engine.now());
    let rows: Vec<_> = jobs.iter().map(|job| Row::of(job, now)).collect();
    let has_failed = |row: &&Row| row.last.as_ref().is_some_and(|run| run.status == RunStatus::Failed.name());
    page(&JobsPage {
        frame: operator.frame("Jobs", Tab::Jobs),
        failed: rows.iter().filter(has_failed).count(),
        rows,
    })
}

#[derive(Template)]
#[template(path = "operator/job.html")]
struct JobPage {
    frame: Frame,
    row: Row,
    runs: Vec<Run>,
    pager: Pager,
}

/// `GET /console/jobs/{job}`
pub(super) async fn show(
    State(engine): State<Engine>,
    operator: Operator,
    Path(name): Path<String>,
    Query(fields): Query,
) -> PageResult {
    let jobs = engine.manual_jobs.list().await?;
    let job = jobs.iter().find(|job| job.name == name);
    let job = job.ok_or(Refusal::NotFound("the job was not found"))?;
    let found = engine.manual_jobs.runs(job.name, &fields.page(PER_PAGE)).await?;
    let now = engine.now();
    page(&JobPage {
        frame: operator.frame(job.name, Tab::Jobs),
        row: Row::of(job, now),
        runs: found.items.iter().map(|run| Run::of(run, now)).collect(),
        pager: fields.pager(found.next),
    })
}

/// `POST /console/jobs/{job}/run`
pub(super) async fn run(
    State(engine): State<Engine>,
    Path(name): Path<String>,
    OperatorForm(fields): OperatorForm,
) -> PageResult {
    let is_dry = fields.is_on("dry_run");
    engine.manual_jobs.run(&name, is_dry, Auditor::Operator).await?;
    done(&format!("/console/jobs/{}", encoded(&name)), Done::JobStarted)
}
