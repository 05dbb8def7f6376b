//! `keepsake export` and `keepsake import`: archives of a memory store.
//!
//! `keepsake-archive` has the format and the plan of an import.
//!
//! Both commands are clients of the HTTP API. Neither trusts a path that it reads from
//! an archive or a server: paths are parsed, and [`folder`] follows no symbolic link.

mod export;
mod folder;
mod import;
pub(crate) mod packed;
pub(crate) mod past;
mod report;
mod room;
pub(crate) mod source;
pub(crate) mod upload;

use std::path::PathBuf;

use clap::Args;
use keepsake_archive::plan::OnConflict;

use crate::cli::{MomentArgs, StoreArgs, choice};
use crate::output::{Column, Text};

pub(crate) use export::run as export;
pub(crate) use import::run as import;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake export notes.tar.zst
  keepsake export backup/notes --versions --store notes
  keepsake export last-week.tar.zst --at 2026-11-20

The archive is complete when it has its name. Until then it is the folder
TARGET.partial; after an export that was stopped, the same command begins again.")]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// The archive to write: a new folder, or a file that ends in .tar.zst
    #[arg(value_name = "TARGET")]
    target: PathBuf,
    /// Includes the history: all versions with their content
    #[arg(long, conflicts_with_all = ["at", "at_seq"])]
    versions: bool,
    #[command(flatten)]
    moment: MomentArgs,
}

/// The columns of what became of each memory.
pub(crate) const RESULTS: [Column; 3] =
    [("RESULT", "/result", Text), ("PATH", "/path", Text), ("REASON", "/reason", Text)];

/// The choices of `--on-conflict`.
pub(crate) const ON_CONFLICT: &[(&str, &str)] = &[
    ("skip", "The memory is kept"),
    ("replace", "The memory gets the content of the source as a new version"),
    ("fail", "Nothing at all is written"),
];

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake import notes.tar.zst --dry-run
  keepsake import notes.tar.zst --versions --store restored
  keepsake import ~/vault --prefix vault --on-conflict skip
  keepsake import --from-url https://other.example.com --from-store notes

An import that was stopped is continued by the same command: what is there is not written again.")]
pub(crate) struct ImportArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// An archive, or a folder of text files
    #[arg(value_name = "SOURCE", required_unless_present = "from_url")]
    source: Option<PathBuf>,
    /// Imports into this directory, as agents see it
    #[arg(long, value_name = "PATH", default_value = "/memories")]
    prefix: String,
    /// Imports the history as well, into an empty memory store
    #[arg(long, conflicts_with_all = ["prefix", "on_conflict"])]
    versions: bool,
    /// The action if a memory has other content
    #[arg(long, value_name = "ACTION", value_parser = choice(OnConflict::parse, ON_CONFLICT), default_value = "fail")]
    on_conflict: OnConflict,
    /// Shows what would be done and changes nothing
    #[arg(long)]
    dry_run: bool,
    // Last: its heading would be that of what follows.
    #[command(flatten)]
    from: FromArgs,
}

/// Another store as the source of an import.
#[derive(Debug, Args)]
#[command(next_help_heading = "From another store")]
#[expect(clippy::struct_field_names, reason = "the names of the arguments")]
pub(crate) struct FromArgs {
    /// The URL of the other server
    #[arg(long, value_name = "URL", conflicts_with = "source", requires = "from_store")]
    from_url: Option<String>,
    /// An API key of the other server; prefer the variable, other users can see arguments
    #[arg(long, value_name = "KEY", env = "KEEPSAKE_FROM_API_KEY", hide_env_values = true)]
    from_api_key: Option<String>,
    /// The memory store on the other server: its id or its name
    #[arg(long, value_name = "STORE", requires = "from_url")]
    from_store: Option<String>,
}
