//! `keepsake job …`

use std::time::Duration;

use clap::{Args, Subcommand};
use keepsake_client::Method;
use keepsake_config::{Failure, cli::Result};
use serde_json::{Value, json};

use super::target::{OperatorApi, call, with_api};
use crate::cli::{PageArgs, TargetArgs};
use crate::output::{Column, Flag, Outcome, Printer, Schedule, Text, Time, items_of};

const JOBS: [Column; 5] = [
    ("JOB", "/name", Text),
    ("SCHEDULE", "", Schedule),
    ("LAST RUN", "/last_run/started_at", Time),
    ("STATUS", "/last_run/status", Text),
    ("RESULT", "/last_run", Outcome),
];
const RUNS: [Column; 6] = [
    ("STARTED", "/started_at", Time),
    ("ENDED", "/ended_at", Time),
    ("STATUS", "/status", Text),
    ("ASKED FOR BY", "/asked_for_by", Text),
    ("DRY RUN", "/dry_run", Flag),
    ("RESULT", "", Outcome),
];
const RUN_FIELDS: [Column; 7] = [
    ("job", "/job", Text),
    ("status", "/status", Text),
    ("asked for by", "/asked_for_by", Text),
    ("dry run", "/dry_run", Flag),
    ("started", "/started_at", Time),
    ("ended", "/ended_at", Time),
    ("result", "", Outcome),
];
const POLL_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// Lists the scheduled jobs and their last runs
    #[command(after_help = "Examples:
  keepsake job list --config keepsake.toml
  keepsake job list --server http://127.0.0.1:8081 -o json")]
    List(TargetArgs),
    /// Runs a job now and waits for its end
    Run(RunJobArgs),
    /// Lists a job's runs, newest first
    History(HistoryArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake job run sweep-blobs --dry-run --server http://127.0.0.1:8081
  keepsake job run reconcile-usage --config keepsake.toml")]
pub(crate) struct RunJobArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// The job's name in `keepsake job list`
    #[arg(value_name = "JOB")]
    job: String,
    /// Only reports what it would do
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake job history sweep-blobs --limit 5 --config keepsake.toml")]
pub(crate) struct HistoryArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    page: PageArgs,
    /// The job's name in `keepsake job list`
    #[arg(value_name = "JOB")]
    job: String,
}

pub(crate) async fn run(command: JobCommand) -> Result<()> {
    match command {
        JobCommand::List(args) => {
            let failed = "the jobs cannot be listed";
            let (printer, jobs) = call(args, failed, Method::GET, &["jobs"], &[], None).await?;
            printer.page(&jobs, &JOBS, "there is no job")
        }
        JobCommand::Run(args) => run_job(args).await,
        JobCommand::History(args) => {
            let printer = Printer::new(args.target.output.output);
            let work = async |api: &OperatorApi| {
                require_job(api, &args.job).await?;
                api.page(&["jobs", &args.job, "runs"], &[], &args.page).await
            };
            let runs = with_api(args.target, "the runs cannot be listed", work).await?;
            printer.page(&runs, &RUNS, "the job has not run yet")
        }
    }
}

/// Fails if there is no job with this name.
async fn require_job(api: &OperatorApi, name: &str) -> Result<()> {
    let jobs = api.call(Method::GET, &["jobs"], &[], None).await?;
    if items_of(&jobs, "data").iter().any(|job| job["name"] == name) {
        return Ok(());
    }
    Err(Failure::not_found(format!("no job has the name `{name}`; `keepsake job list` shows all")))
}

async fn run_job(args: RunJobArgs) -> Result<()> {
    let format = args.target.output.output;
    let work = async |api: &OperatorApi| begin_and_wait(api, &args.job, args.dry_run).await;
    let ended = with_api(args.target, &format!("{} did not run", args.job), work).await?;
    // The printer shows times relative to its creation, so it is created after the run.
    Printer::new(format).object(&ended, &RUN_FIELDS)?;
    match ended["status"].as_str() {
        Some("done") => Ok(()),
        status => Err(Failure::new(format!(
            "the run of {} {}",
            args.job,
            if status == Some("failed") { "failed" } else { "was interrupted" }
        ))),
    }
}

/// Requests a run and polls until it has ended. With direct access to the
/// database, the job runs in this process.
async fn begin_and_wait(api: &OperatorApi, job: &str, dry_run: bool) -> Result<Value> {
    require_job(api, job).await?;
    let body = json!({ "dry_run": dry_run });
    let begun = api.call(Method::POST, &["jobs", job, "run"], &[], Some(&body)).await?;
    loop {
        let query = [("limit", Some("100"))];
        let found = api.call(Method::GET, &["jobs", job, "runs"], &query, None).await?;
        let Some(run) = items_of(&found, "data").iter().find(|run| run["id"] == begun["id"]) else {
            return Err(Failure::new("its record is not among the last runs"));
        };
        if run["status"] != "running" {
            return Ok(run.clone());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
