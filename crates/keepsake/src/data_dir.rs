//! Local data folders and their lock.

use std::ffi::OsString;
use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use keepsake_config::{Failure, cli::Result};
use rustix::process::geteuid;

use crate::cli::shell_word;
use crate::open_folder::if_there;
use crate::output::notice;

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// Locks a SQLite index against other processes until it is dropped.
///
/// The operating system releases the lock when the process ends. The lock file
/// stays and has no meaning without the lock.
#[derive(Debug)]
pub(crate) struct FolderLock {
    _file: File,
}

impl FolderLock {
    pub(crate) fn file_of(database: &Path) -> PathBuf {
        with_suffix(database, ".lock")
    }

    pub(crate) fn take(database: &Path) -> Result<Self> {
        // The resolved path, so that all links to the file share one lock.
        let database = database.canonicalize().unwrap_or_else(|_| database.to_owned());
        let (folder, path) = (folder_of(&database), Self::file_of(&database));
        let file = open_private(&path)
            .map_err(not_opened(format_args!("the lock {} cannot be opened", path.display()), &path))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(Failure::new(format!(
                "another process is using the folder {}: end it first, or choose another folder; commands with \
                 the option --server can ask the running server, and `keepsake mcp` with --context or --url is a \
                 bridge to it",
                folder.display()
            ))),
            Err(TryLockError::Error(error)) => {
                Err(Failure::new(format!("the lock {} cannot be taken: {error}", path.display())))
            }
        }
    }
}

/// Creates a data folder that only its owner can access.
///
/// The mode of an existing folder is changed only if it is empty.
pub(crate) fn prepare(folder: &Path) -> Result<()> {
    make_private_folder(folder)?;
    let is_empty = folder.read_dir().map_err(unusable(folder))?.next().is_none();
    if is_empty {
        std::fs::set_permissions(folder, Permissions::from_mode(FOLDER_MODE)).map_err(unusable(folder))?;
    }
    Ok(())
}

/// For `map_err`: makes the failure for a folder that cannot be used. If a file has the path of the
/// folder or of a parent, the failure names that file.
pub(crate) fn unusable(folder: &Path) -> impl FnOnce(io::Error) -> Failure {
    move |error| {
        let shown = folder.display();
        let is_file = |path: &&Path| path.metadata().is_ok_and(|found| !found.is_dir());
        match folder.ancestors().find(is_file) {
            Some(file) => Failure::usage(format!(
                "the folder {shown} cannot be used: {} is a file; name another folder, or move the file away",
                file.display()
            )),
            None => not_opened(format_args!("the folder {shown} cannot be used"), folder)(error),
        }
    }
}

/// For `map_err`: makes the failure of a path, and says so if it belongs to another user.
fn not_opened(what: impl fmt::Display, path: &Path) -> impl FnOnce(io::Error) -> Failure {
    move |error| {
        let owner = other_owner(path, &error, geteuid().as_raw());
        Failure::new(format!("{what}: {error}{owner}"))
    }
}

/// The owner of a path that a user may not use, and the command that helps. Empty if the reason is another one.
fn other_owner(path: &Path, error: &io::Error, user: u32) -> String {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return String::new();
    }
    // Nothing is known below a folder that the user may not enter.
    let known = path.ancestors().find_map(|path| Some((path, path.symlink_metadata().ok()?)));
    let Some((known, found)) = known.filter(|(_, found)| found.uid() != user) else {
        return String::new();
    };
    let owner = if found.uid() == 0 { "root".to_owned() } else { format!("the user {}", found.uid()) };
    let whose = format!("; {} belongs to {owner}", known.display());
    let is_new = path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    if is_new {
        return format!("{whose}, so nothing can be created there");
    }
    let folder = if found.is_dir() { known } else { folder_of(known) };
    whose + &advice_to_take(folder, found.uid(), user)
}

/// The command that gives a folder to a user, if `sudo keepsake` may have made it.
fn advice_to_take(folder: &Path, owner: u32, user: u32) -> String {
    if owner != 0 || !may_be_made_by_keepsake(folder) {
        return String::new();
    }
    let folder = folder.display().to_string();
    format!(
        ": if `sudo keepsake` created it, `sudo chown -R {user} {}` gives it to this user",
        shell_word(&folder)
    )
}

/// Whether a folder is private, as `keepsake` makes them, and not directly below `/`: so the command never names
/// `/tmp`, `/etc` or the home of root.
fn may_be_made_by_keepsake(folder: &Path) -> bool {
    const OF_OTHERS: u32 = 0o077;
    let is_private = folder.metadata().is_ok_and(|found| found.mode() & OF_OTHERS == 0);
    let is_deep = std::path::absolute(folder).is_ok_and(|path| path.components().count() > 2);
    is_private && is_deep
}

/// Creates a folder, and its parents, that only its owner can access.
///
/// Existing ones are not changed.
pub(crate) fn make_private_folder(folder: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder);
    made.map_err(unusable(folder))
}

/// Creates a file, and its folder, that only their owner can access.
///
/// Existing ones are not changed. SQLite creates its other files with the mode
/// of the database file.
pub(crate) fn make_private_file(path: &Path) -> Result<()> {
    make_private_folder(folder_of(path))?;
    open_private(path)
        .map(drop)
        .map_err(not_opened(format_args!("{} cannot be written", path.display()), path))
}

/// The folder of a file, also of a file without one in its path.
pub(crate) fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Opens a file to write to; a new one is private, and belongs to the owner of its folder.
fn open_private(path: &Path) -> io::Result<File> {
    match OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Creates nothing: a link of the folder's owner may lead anywhere.
            OpenOptions::new().append(true).open(path)
        }
        made => made.and_then(|file| give_away(&file, path, folder_of(path)).map(|()| file)),
    }
}

/// Gives a file that root has just made for `path` to the owner and the group of the file that it will
/// replace, or else of its folder.
///
/// `sudo keepsake …` would otherwise leave files that the server of the folder's owner cannot open.
pub(crate) fn give_to_owner_of(path: &Path, file: &File) -> io::Result<()> {
    let is_file = path.symlink_metadata().is_ok_and(|found| found.is_file());
    give_away(file, path, if is_file { path } else { folder_of(path) })
}

/// Gives an open file that root has just made to the owner and the group of `like`.
///
/// Not a path: the other user may put a link to any file in its place.
fn give_away(file: &File, path: &Path, like: &Path) -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let (new, owner) = (file.metadata()?, like.metadata()?);
    if (new.uid(), new.gid()) == (owner.uid(), owner.gid()) {
        return Ok(());
    }
    match fchown(file, Some(owner.uid()), Some(owner.gid())) {
        // The root of a container may lack the capability.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            notice(&format!("{} belongs to root, and {} to another user", path.display(), like.display()));
            Ok(())
        }
        given => given,
    }
}

/// Replaces a file atomically; only its owner can read it.
///
/// After a crash the file has the old content or the new one.
pub(crate) fn write_private_file(path: &Path, text: &str) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    // A file that remained after a crash may have another mode.
    if_there(std::fs::remove_file(&temporary))?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&temporary)?;
    give_to_owner_of(path, &file)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    File::open(folder_of(path))?.sync_all()
}

/// A time in a name; names have the order of their times.
pub(crate) fn name_of_time(time: Timestamp) -> String {
    time.strftime("%Y%m%dT%H%M%SZ").to_string()
}

pub(crate) fn with_suffix(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The folder of the program in one of the XDG specification, which ignores relative paths.
pub(crate) fn folder_of_user(
    variable: impl Fn(&str) -> Option<OsString>,
    xdg: &str,
    in_home: &str,
) -> Option<PathBuf> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
    let folder = absolute(xdg).or_else(|| absolute("HOME").map(|home| home.join(in_home)));
    folder.map(|folder| folder.join("keepsake"))
}

pub(crate) fn default_folder() -> Result<PathBuf> {
    folder_of_user(|name| std::env::var_os(name), "XDG_DATA_HOME", ".local/share")
        .ok_or_else(|| Failure::new("neither XDG_DATA_HOME nor HOME is set: name a folder with --data-dir"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;

    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    /// Root gives the folder to another user.
    fn given_away(folder: &Path) -> u32 {
        let own = folder.metadata().unwrap().uid();
        let owner = if geteuid().is_root() { 12_345 } else { own };
        chown(folder, Some(owner), None).unwrap();
        owner
    }

    #[test]
    fn second_lock_of_a_folder_is_refused_until_the_first_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("index.db");
        let owner = given_away(folder.path());
        make_private_file(&database).unwrap();
        let alias = folder.path().join("alias.db");
        std::os::unix::fs::symlink(&database, &alias).unwrap();
        let first = FolderLock::take(&database).unwrap();
        for name in [&database, &alias] {
            FolderLock::take(name).unwrap_err();
        }
        drop(first);
        FolderLock::take(&database).unwrap();
        for file in [database.as_path(), &FolderLock::file_of(&database)] {
            assert_eq!(file.metadata().unwrap().uid(), owner);
        }
    }

    #[test]
    fn error_says_whose_a_folder_is_and_how_to_take_it() {
        let folder = tempfile::tempdir().unwrap();
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let owner = folder.path().metadata().unwrap().uid();
        let said = |path: &Path, user| other_owner(path, &denied, user);
        let advice = |owner| advice_to_take(folder.path(), owner, 12_345);
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        assert_eq!(advice(0), "", "it may be a folder of the system");
        std::fs::set_permissions(folder.path(), Permissions::from_mode(FOLDER_MODE)).unwrap();
        let command = format!("`sudo chown -R 12345 {}`", folder.path().display());
        assert!(advice(0).contains(&command), "{}", advice(0));
        assert_eq!(advice(1), "", "what another user made, `sudo keepsake` did not");
        let to_another = said(folder.path(), owner + 1);
        assert!(to_another.contains(" belongs to "), "{to_another}");
        assert!(to_another.ends_with(&advice_to_take(folder.path(), owner, owner + 1)), "{to_another}");
        assert!(!said(&folder.path().join("new"), owner + 1).contains("chown"));
        assert_eq!(said(folder.path(), owner), "");
    }

    #[test]
    fn only_new_and_empty_folders_get_private_modes() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("a/b");
        let mode_after_prepare = || {
            prepare(&folder).unwrap();
            mode(&folder)
        };
        assert_eq!(mode_after_prepare(), 0o700);
        std::fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        assert_eq!(mode_after_prepare(), 0o700);
        std::fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        std::fs::write(folder.join("something"), "").unwrap();
        assert_eq!(mode_after_prepare(), 0o755);
    }

    #[test]
    fn private_file_is_not_recreated_and_replaced_atomically() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("a/b/index.db");
        make_private_file(&path).unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        std::fs::write(&path, "kept").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        make_private_file(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "kept");
        assert_eq!(mode(&path), 0o640);
        make_private_file(base.path()).unwrap_err();
        let path = base.path().join("secret.json");
        std::fs::write(base.path().join("secret.tmp"), "left by a crash").unwrap();
        let owner = given_away(base.path());
        write_private_file(&path, "one").unwrap();
        write_private_file(&path, "two").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two");
        assert_eq!((mode(&path), path.metadata().unwrap().uid()), (0o600, owner));
        assert_eq!(base.path().read_dir().unwrap().count(), 2);
    }
}
