//! The temporary folder of an import, which only its owner can read.
//!
//! A process holds a lock as long as it uses its folder. The next import removes the
//! folders that killed processes left.

use std::fs::{File, Permissions, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use keepsake_config::Failure;
use tempfile::TempDir;

use crate::data_dir::unusable;
use crate::open_folder::{Access, FolderEntry, OpenFolder};

const PREFIX: &str = "keepsake-import-";
/// The file in the folder that its process locks.
const LOCK: &str = "lock";
/// The name of the lock file until it is locked.
const UNLOCKED: &str = "lock.new";
/// The subfolder that the import uses.
const CONTENT: &str = "content";

/// A temporary folder, removed when it is dropped.
#[derive(Debug)]
pub(super) struct TemporaryFolder {
    folder: TempDir,
    _lock: File,
}

impl TemporaryFolder {
    /// Makes a folder, after it removed those of killed processes.
    pub(super) fn new() -> Result<Self, Failure> {
        let parent = std::env::temp_dir();
        // Another user's folders, for example, cannot be removed.
        let _ = remove_abandoned(&parent);
        Self::new_in(&parent).map_err(unusable(&parent))
    }

    fn new_in(parent: &Path) -> io::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix(PREFIX)
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(parent)?;
        let opened = OpenFolder::open(folder.path())?;
        // The file is renamed after it is locked: a lock file without a lock is that of a
        // dead process.
        let unlocked = opened.entry(UNLOCKED)?;
        let lock = unlocked.create_new(Access::OwnerOnly)?;
        lock.try_lock()?;
        unlocked.rename(&opened.entry(LOCK)?)?;
        opened.entry(CONTENT)?.make_directory(Access::OwnerOnly)?;
        Ok(Self { folder, _lock: lock })
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join(CONTENT)
    }
}

/// Removes the folders whose process is dead.
fn remove_abandoned(parent: &Path) -> io::Result<()> {
    let parent = OpenFolder::open(parent)?;
    for name in parent.names()? {
        if name.as_bytes().starts_with(PREFIX.as_bytes()) {
            let _ = remove_if_abandoned(&parent.entry(&name)?);
        }
    }
    Ok(())
}

fn remove_if_abandoned(entry: &FolderEntry) -> io::Result<()> {
    let lock = entry.open_folder()?.entry(LOCK)?.open()?;
    match lock.try_lock() {
        Ok(()) => entry.remove_all(),
        Err(TryLockError::WouldBlock) => Ok(()),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
