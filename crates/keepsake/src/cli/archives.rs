//! Arguments of `keepsake export` and `keepsake import`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::StoreArgs;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake export notes.tar.zst
  keepsake export backup/notes --versions --store notes

The archive is complete when it has its name. Until then it is the folder TARGET.partial; after
an export that was stopped, the same command begins again.")]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The archive to write: a new folder, or a file that ends in .tar.zst
    #[arg(value_name = "TARGET")]
    pub(crate) target: PathBuf,
    /// Includes the history: all versions with their content
    #[arg(long)]
    pub(crate) versions: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake import notes.tar.zst --dry-run
  keepsake import notes.tar.zst --versions --store restored
  keepsake import ~/vault --prefix vault --on-conflict skip
  KEEPSAKE_FROM_API_KEY=… keepsake import --from-url https://other.example.com --from-store notes

An import that was stopped is continued by the same command: what is there is not written again.")]
pub(crate) struct ImportArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// An archive, or a folder of text files
    #[arg(value_name = "SOURCE", required_unless_present = "from_url")]
    pub(crate) source: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) from: FromArgs,
    /// Imports into this directory, as agents see it
    #[arg(long, value_name = "PATH", default_value = "/memories")]
    pub(crate) prefix: String,
    /// Imports the history as well, into an empty memory store
    #[arg(long, conflicts_with_all = ["prefix", "on_conflict"])]
    pub(crate) versions: bool,
    /// The action if a memory has other content
    #[arg(long, value_name = "ACTION", value_enum, default_value = "fail")]
    pub(crate) on_conflict: OnConflict,
    /// Shows what would be done and changes nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

impl From<OnConflict> for keepsake_archive::plan::OnConflict {
    fn from(action: OnConflict) -> Self {
        match action {
            OnConflict::Skip => Self::Skip,
            OnConflict::Replace => Self::Replace,
            OnConflict::Fail => Self::Fail,
        }
    }
}

/// Another store as the source of an import.
#[derive(Debug, Args)]
#[command(next_help_heading = "From another store")]
#[expect(clippy::struct_field_names, reason = "the names of the arguments")]
pub(crate) struct FromArgs {
    /// The URL of the other server
    #[arg(long, value_name = "URL", conflicts_with = "source", requires_all = ["from_api_key", "from_store"])]
    pub(crate) from_url: Option<String>,
    /// An API key of the other server; prefer the variable, other users can see arguments
    #[arg(long, value_name = "KEY", env = "KEEPSAKE_FROM_API_KEY", hide_env_values = true)]
    pub(crate) from_api_key: Option<String>,
    /// The memory store on the other server: its id or its name
    #[arg(long, value_name = "STORE", requires = "from_url")]
    pub(crate) from_store: Option<String>,
}

/// The action of an import if a memory has other content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnConflict {
    /// The memory is kept
    Skip,
    /// The memory gets the imported content as a new version
    Replace,
    /// Nothing at all is imported
    Fail,
}
