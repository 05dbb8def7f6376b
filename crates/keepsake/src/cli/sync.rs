//! Arguments of `keepsake sync`.

use std::path::PathBuf;

use clap::Args;

use super::StoreArgs;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake sync ~/memory
  keepsake sync /mnt/memory --watch
  keepsake sync ~/memory --dry-run

Ends with 4 if both sides changed a file. The store's content stays at the path; the
folder's is kept beside it, as notes.conflict-20260102T030405Z.md, in both.
.keepsakeignore in the folder lists what is not synchronised, in the syntax of .gitignore.")]
pub(crate) struct SyncArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The folder; created if it is missing
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Goes on after the first synchronisation, and carries over every change
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// Shows what would be done, and does nothing
    #[arg(short = 'n', long, conflicts_with = "watch")]
    pub(crate) dry_run: bool,
    /// Carries deletions over even if most files or memories are gone
    #[arg(long)]
    pub(crate) allow_emptying: bool,
}
