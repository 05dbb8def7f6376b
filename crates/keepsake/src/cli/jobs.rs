//! The operator's commands about jobs, and the verification.

use std::num::NonZeroU16;

use clap::{Args, Subcommand};
use keepsake_config::SourceArgs;

use super::{PageArgs, SideArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// Lists the scheduled jobs and how they last ran
    List(ListJobsArgs),
    /// Runs a job now and waits for its end
    Run(RunJobArgs),
    /// Lists a job's runs, the last first
    History(HistoryArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListJobsArgs {
    #[command(flatten)]
    pub(crate) side: SideArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RunJobArgs {
    #[command(flatten)]
    pub(crate) side: SideArgs,
    /// The job, as `keepsake job list` calls it
    #[arg(value_name = "JOB")]
    pub(crate) job: String,
    /// Only tells what it would do
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    #[command(flatten)]
    pub(crate) side: SideArgs,
    #[command(flatten)]
    pub(crate) page: PageArgs,
    /// The job, as `keepsake job list` calls it
    #[arg(value_name = "JOB")]
    pub(crate) job: String,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) sources: SourceArgs,
    /// Blobs read at the same time
    #[arg(long, value_name = "N", default_value = "16")]
    pub(crate) concurrency: NonZeroU16,
    /// Tells also where the memories concerned stand
    #[arg(long)]
    pub(crate) paths: bool,
    /// Prints a JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
