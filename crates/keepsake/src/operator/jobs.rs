//! `keepsake job …`

use std::time::Duration;

use keepsake_config::Failure;
use reqwest::Method;
use serde_json::{Value, json};

use super::target::{OperatorApi, call};
use super::tenants::{list, page_of};
use super::{output, print, print_json};
use crate::cli::{JobCommand, ListJobsArgs, RunJobArgs};

/// The columns of a list of runs.
const COLUMNS: [&str; 7] = [
    "started_at",
    "ended_at",
    "status",
    "asked_for_by",
    "dry_run",
    "counts",
    "error",
];
/// The interval at which the state of a run is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Runs a `job` command.
///
/// # Errors
/// [`Failure`] of the request.
pub(crate) async fn run(command: JobCommand) -> Result<(), Failure> {
    match command {
        JobCommand::List(args) => list_jobs(args).await,
        JobCommand::Run(args) => run_job(args).await,
        JobCommand::History(args) => {
            let path = page_of(&path_of(&args.job, "runs"), &args.page, &[]);
            list(args.target, "the runs cannot be listed", &path, &COLUMNS).await
        }
    }
}

async fn list_jobs(args: ListJobsArgs) -> Result<(), Failure> {
    let json = args.target.json;
    let found = call(
        args.target,
        "the jobs cannot be listed",
        Method::GET,
        "/jobs",
        None,
    )
    .await?;
    if json {
        return print_json(&found);
    }
    let jobs = found["data"].as_array().into_iter().flatten();
    let shown = jobs.map(|job| {
        let last = &job["last_run"];
        json!({
            "name": job["name"],
            "schedule": job["schedule"],
            "status": last["status"],
            "started_at": last["started_at"],
            "counts": last["counts"],
            "error": last["error"],
        })
    });
    let shown = json!({ "data": shown.collect::<Vec<_>>() });
    let columns = ["name", "schedule", "status", "started_at", "counts", "error"];
    print(&output::rows(&shown, &columns))
}

async fn run_job(args: RunJobArgs) -> Result<(), Failure> {
    let json = args.target.json;
    let target = OperatorApi::open(args.target).await?;
    let ended = begin_and_wait(&target, &args.job, args.dry_run).await;
    target.close().await;
    let ended = ended.map_err(Failure::of(format_args!("{} did not run", args.job)))?;
    if json {
        print_json(&ended)?;
    } else {
        print(&output::fields(&ended))?;
    }
    match ended["status"].as_str() {
        Some("done") => Ok(()),
        status => Err(Failure::new(format!(
            "the run of {} {}",
            args.job,
            if status == Some("failed") {
                "failed"
            } else {
                "was interrupted"
            }
        ))),
    }
}

/// Requests a run and polls until it has ended. With direct access to the
/// database, the job runs in this process.
async fn begin_and_wait(target: &OperatorApi, job: &str, dry_run: bool) -> Result<Value, Failure> {
    let body = json!({ "dry_run": dry_run });
    let begun = target
        .call(Method::POST, &path_of(job, "run"), Some(&body))
        .await?;
    let runs = format!("{}?limit=100", path_of(job, "runs"));
    loop {
        let found = target.call(Method::GET, &runs, None).await?;
        let mut found = found["data"].as_array().into_iter().flatten();
        let Some(run) = found.find(|run| run["id"] == begun["id"]) else {
            return Err(Failure::new("its record is not among the last runs"));
        };
        if run["status"] != "running" {
            return Ok(run.clone());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// A path below a job; its name is user input and is escaped.
fn path_of(job: &str, what: &str) -> String {
    let encode = |byte: u8| {
        if byte.is_ascii_alphanumeric() || byte == b'-' {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    let job: String = job.bytes().map(encode).collect();
    format!("/jobs/{job}/{what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_job_is_one_segment() {
        assert_eq!(path_of("sweep-blobs", "run"), "/jobs/sweep-blobs/run");
        assert_eq!(path_of("../tenants?", "run"), "/jobs/%2E%2E%2Ftenants%3F/run");
    }
}
