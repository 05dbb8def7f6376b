//! Arguments of `keepsake job` and `keepsake verify`.

use std::num::NonZeroU16;

use clap::{Args, Subcommand};
use keepsake_config::SourceArgs;

use super::{OutputArgs, PageArgs, TargetArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// Lists the scheduled jobs and their last runs
    List(ListJobsArgs),
    /// Runs a job now and waits for its end
    Run(RunJobArgs),
    /// Lists a job's runs, newest first
    History(HistoryArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake job list --config keepsake.toml
  keepsake job list --server http://127.0.0.1:8081 -o json")]
pub(crate) struct ListJobsArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake job run sweep-blobs --dry-run --server http://127.0.0.1:8081
  keepsake job run reconcile-usage --config keepsake.toml")]
pub(crate) struct RunJobArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// The job's name in `keepsake job list`
    #[arg(value_name = "JOB")]
    pub(crate) job: String,
    /// Only reports what it would do
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake job history sweep-blobs --limit 5 --config keepsake.toml")]
pub(crate) struct HistoryArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) page: PageArgs,
    /// The job's name in `keepsake job list`
    #[arg(value_name = "JOB")]
    pub(crate) job: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake verify --config keepsake.toml
  keepsake verify --data-dir ~/.local/share/keepsake --paths -o json")]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) sources: SourceArgs,
    /// Number of blobs read at a time
    #[arg(long, value_name = "N", default_value = "16")]
    pub(crate) concurrency: NonZeroU16,
    /// Also prints the paths of the memories concerned
    #[arg(long)]
    pub(crate) paths: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
