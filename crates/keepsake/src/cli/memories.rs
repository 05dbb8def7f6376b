//! Arguments of `keepsake memory`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use keepsake_core::VersionId;

use super::StoreArgs;
use super::stores::{Period, parse_period};

/// A path, as the agents see it.
const PATH_HELP: &str = "The path, as agents see it: /memories/notes.md, or notes.md";

#[derive(Debug, Subcommand)]
pub(crate) enum MemoryCommand {
    /// Lists a directory
    #[command(visible_alias = "list")]
    Ls(LsArgs),
    /// Prints memories
    Cat(CatArgs),
    /// Creates a memory or replaces its content, from a file or stdin
    Put(PutArgs),
    /// Opens a memory in the editor, and saves it unless somebody else changed it
    Edit(PathArgs),
    /// Moves or renames a memory or a directory
    Mv(MvArgs),
    /// Deletes memories; their history is kept for the retention
    Rm(RmArgs),
    /// Keeps a memory from expiring
    Pin(PinArgs),
    /// Sets the time at which a memory expires, even if it is used
    Expire(ExpireArgs),
    /// Searches content and paths, the best match first
    Search(SearchArgs),
    /// Lists the versions of a memory or of the whole store, newest first
    Log(LogArgs),
    /// Shows the differences between two versions
    Diff(DiffArgs),
    /// Writes an earlier version back as a new version, also of a deleted memory
    Restore(RestoreArgs),
    /// Removes the content and the path of a version, permanently
    Redact(RedactArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake memory ls
  keepsake memory ls -R projects
  keepsake memory ls -R -o jsonl | jq -r .path")]
pub(crate) struct LsArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The directory, as agents see it
    #[arg(value_name = "PATH", default_value = "/memories")]
    pub(crate) path: String,
    /// Shows everything below it, as a tree
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CatArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The paths, as agents see them
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PathArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[arg(value_name = "PATH", help = PATH_HELP)]
    pub(crate) path: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake memory put notes.md notes.md
  date | keepsake memory put log/today.md --create-only
  keepsake memory put offer.md offer.md --expires-in 30d")]
pub(crate) struct PutArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[arg(value_name = "PATH", help = PATH_HELP)]
    pub(crate) path: String,
    /// The file with the content; `-` or none: stdin
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Fails if the memory exists
    #[arg(long)]
    pub(crate) create_only: bool,
    /// Fails unless the current content has this SHA-256
    #[arg(long, value_name = "SHA256", conflicts_with = "create_only")]
    pub(crate) if_sha256: Option<String>,
    /// The memory expires after this time, even if it is used: 30d, 12h, or `never`
    #[arg(long, value_name = "TIME", value_parser = parse_period)]
    pub(crate) expires_in: Option<Period>,
}

#[derive(Debug, Args)]
pub(crate) struct MvArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The memory or directory, as agents see it
    #[arg(value_name = "FROM")]
    pub(crate) from: String,
    /// The new path
    #[arg(value_name = "TO")]
    pub(crate) to: String,
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The paths, as agents see them
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<String>,
    /// Also deletes directories, with everything below
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Does not ask for confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PinArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[arg(value_name = "PATH", help = PATH_HELP)]
    pub(crate) path: String,
    /// Lets the memory expire again
    #[arg(long)]
    pub(crate) off: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake memory expire offer.md --in 30d
  keepsake memory expire offer.md --at 2026-12-31T00:00:00Z
  keepsake memory expire offer.md --never")]
pub(crate) struct ExpireArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[arg(value_name = "PATH", help = PATH_HELP)]
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) when: ExpiryTime,
}

/// When a memory expires.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct ExpiryTime {
    /// After this time: 30d, 12h
    #[arg(long = "in", value_name = "TIME", value_parser = parse_period)]
    pub(crate) after: Option<Period>,
    /// At this time, in RFC 3339 format: 2026-12-31 or 2026-12-31T00:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<String>,
    /// Removes the time; the period of the store still applies
    #[arg(long)]
    pub(crate) never: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake memory search retry budget
  keepsake memory search '\"retry budget\" -draft' --path projects
  keepsake memory search deploy --all-stores")]
pub(crate) struct SearchArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Searches all memory stores that the API key may read, instead of one
    #[arg(long)]
    pub(crate) all_stores: bool,
    /// The words to find; \"a phrase\", -excluded, prefix*, path:directory/
    #[arg(value_name = "QUERY", required = true)]
    pub(crate) query: Vec<String>,
    /// Searches only this directory
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Option<String>,
    /// Number of hits, 1 to 50
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u8).range(1..=50))]
    pub(crate) limit: u8,
}

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The memory, as agents see it; without it, the whole store
    #[arg(value_name = "PATH")]
    pub(crate) path: Option<String>,
    /// The memory's id, also of a deleted one: mem_…
    #[arg(long, value_name = "ID", conflicts_with = "path")]
    pub(crate) memory: Option<String>,
    /// Number of versions
    #[arg(short = 'n', long, value_name = "N", default_value = "20")]
    pub(crate) limit: usize,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake memory diff notes.md                what the last change changed
  keepsake memory diff notes.md memver_…       what changed since that version
  keepsake memory diff notes.md memver_… memver_…")]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[arg(value_name = "PATH", help = PATH_HELP)]
    pub(crate) path: String,
    /// The older version: memver_… [default: the one before the newer]
    #[arg(value_name = "FROM")]
    pub(crate) from: Option<VersionId>,
    /// The newer version: memver_… [default: the current one]
    #[arg(value_name = "TO")]
    pub(crate) to: Option<VersionId>,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The version: memver_…
    #[arg(value_name = "VERSION")]
    pub(crate) version: VersionId,
}

#[derive(Debug, Args)]
pub(crate) struct RedactArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The version: memver_…
    #[arg(value_name = "VERSION")]
    pub(crate) version: VersionId,
    /// Does not ask for confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
}
