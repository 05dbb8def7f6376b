//! `keepsake sync DIR`: keeps a folder and a memory store equal, in both directions.
//!
//! # One pass
//!
//! A pass lists both sides, compares them with the state of the last synchronisation
//! ([`plan`]) and carries out the steps ([`pass`]). The plan is pure. Each step checks
//! that it finds what the plan saw: writes to the store have preconditions, writes to
//! the folder swap files and look at what they swapped out ([`folder`]). A step whose
//! check fails is left to the next pass.
//!
//! # No edit is lost
//!
//! - Content leaves the folder only if the store has it, or had it in its history.
//! - Where both sides changed, both contents stay, and both sides get both.
//! - What the store erased or redacted leaves the folder, and is not uploaded again.
//! - A deletion is carried over only where the other side is as it was.
//! - A side that lost most of its files does not empty the other one.
//! - The state is saved after the steps that it describes. A pass that is killed is
//!   repeated: steps that were done are found done.

mod folder;
mod gone;
mod lineage;
mod pass;
mod plan;
mod report;
mod scope;
mod state;
mod store;
mod watch;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use keepsake_config::{Failure, cli::Result};

use crate::cli::StoreArgs;
use crate::data_dir::{FolderLock, make_private_folder, unusable};
use crate::output::Printer;
use crate::people::open_store;
use crate::signals::{self, or_end};
use crate::store_api::StoreApi;

use folder::Folder;
use gone::GoneFiles;
use pass::Sync;
use report::Report;
use state::State;
use store::Store;

/// The folder with the state of the synchronisation.
const PRIVATE_FOLDER: &str = ".keepsake";

#[derive(Debug)]
enum Stop {
    /// One side lost its files; nothing was deleted.
    Emptied(Failure),
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Stop> for Failure {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Emptied(failure) | Stop::Failed(failure) => failure,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake sync ~/memory
  keepsake sync /mnt/memory --watch
  keepsake sync ~/memory --dry-run

Ends with 4 if both sides changed a file. The store's content stays at the path;
the folder's is kept beside it, as notes.conflict-20260102T030405Z.md, in both.
.keepsakeignore in the folder lists what is not synchronised, in the syntax of .gitignore.")]
pub(crate) struct SyncArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// The folder; created if it is missing
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Goes on after the first synchronisation, and carries over every change
    #[arg(short, long)]
    watch: bool,
    /// Shows what would be done, and does nothing
    #[arg(short = 'n', long, conflicts_with = "watch")]
    dry_run: bool,
    /// Carries deletions over even if most files or memories are gone
    #[arg(long)]
    allow_emptying: bool,
}

/// Synchronises a folder once, or until a signal. A failure of class `Conflict` means
/// that conflicts were kept.
pub(crate) async fn run(args: SyncArgs) -> Result<()> {
    let ending = signals::shutdown_token()?;
    let setup = async {
        let store = open_store(&args.store).await?.for_backup();
        open(&args, store).await
    };
    let (mut sync, _lock) = or_end(&ending, setup).await?;
    let done = if args.watch {
        watch::run(&mut sync, &ending).await
    } else {
        or_end(&ending, async { sync.run().await.map_err(Failure::from) }).await
    };
    sync.save()?;
    done?;
    let (conflicts, would) = (sync.report.conflicts(), if args.dry_run { "would be" } else { "were" });
    match conflicts {
        0 if sync.report.has_refused() => Err(Failure::new("some files were refused")),
        0 => Ok(()),
        _ => Err(Failure::conflict(format!(
            "files that both sides changed: {conflicts}; both contents {would} kept"
        ))),
    }
}

async fn open(args: &SyncArgs, store: StoreApi) -> Result<(Sync, Option<FolderLock>)> {
    let root = if args.dry_run {
        args.folder.clone()
    } else {
        std::fs::create_dir_all(&args.folder).map_err(unusable(&args.folder))?;
        args.folder.canonicalize().map_err(unusable(&args.folder))?
    };
    let private = root.join(PRIVATE_FOLDER);
    let state_file = private.join("state.json");
    let lock = if args.dry_run {
        None
    } else {
        make_private_folder(&private)?;
        refuse_links(&private, &state_file)?;
        Some(FolderLock::take(&state_file)?)
    };
    let printer = Printer::new(args.store.connection.output.output);
    let state = State::read(state_file, store.client.url(), &store.id)?;
    let mut report = Report::new(printer, &root, &store.id, args.dry_run);
    for (path, reason) in state.ignored() {
        report.skip(path, reason);
    }
    let store = Store::new(store);
    let folder = Folder::open(root, store.bytes_per_memory().await?, args.dry_run)?;
    let sync = Sync {
        store,
        folder,
        state,
        report,
        allows_emptying: args.allow_emptying,
        gone: args.watch.then(GoneFiles::default),
        written: BTreeSet::new(),
    };
    Ok((sync, lock))
}

/// The last synchronisation of a folder.
pub(crate) struct FolderState {
    pub(crate) files: usize,
    /// Entries of the state that are malformed.
    pub(crate) ignored: usize,
    pub(crate) synced_at: Option<jiff::Timestamp>,
}

/// The state of a folder that is kept equal to a store; `None`: it never was. Fails if the state cannot
/// be read, or is that of another store.
pub(crate) fn state_of(folder: &Path, store: &StoreApi) -> Result<Option<FolderState>> {
    let private = folder.join(PRIVATE_FOLDER);
    let state_file = private.join("state.json");
    refuse_links(&private, &state_file)?;
    let Ok(metadata) = state_file.metadata() else {
        return Ok(None);
    };
    let synced_at = metadata.modified().ok().and_then(|at| jiff::Timestamp::try_from(at).ok());
    let state = State::read(state_file, store.client.url(), &store.id)?;
    Ok(Some(FolderState { files: state.count(), ignored: state.ignored().len(), synced_at }))
}

/// Refuses links in place of the private folder and its files, which are named by their
/// path: a folder from another user must not make this program write outside it.
fn refuse_links(private: &Path, state_file: &Path) -> Result<()> {
    let lock_file = FolderLock::file_of(state_file);
    for path in [private, state_file, &lock_file] {
        if path.is_symlink() {
            return Err(Failure::new(format!(
                "{} is a symbolic link: remove it, and the next run makes it anew",
                path.display()
            )));
        }
    }
    Ok(())
}
