//! Arguments of `keepsake job` and `keepsake verify`.

use std::num::NonZeroU16;

use clap::{Args, Subcommand};
use keepsake_config::SourceArgs;

use super::{PageArgs, TargetArgs};

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
pub(crate) struct ListJobsArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

#[derive(Debug, Args)]
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
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) sources: SourceArgs,
    /// Number of blobs read at a time
    #[arg(long, value_name = "N", default_value = "16")]
    pub(crate) concurrency: NonZeroU16,
    /// Also prints the paths of the memories concerned
    #[arg(long)]
    pub(crate) paths: bool,
    /// Prints a JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
