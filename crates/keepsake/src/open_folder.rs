//! A folder that neither a name nor a symbolic link leads out of.
//!
//! The names below it come from servers and archives. Each directory above a file is
//! opened below the one before it, without following a symbolic link. So a link that is
//! made between a check and a write leads nowhere either. In contrast to Linux's
//! `openat2`, this needs nothing that other systems and sandboxes lack.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, Stat, fchmod, fsync, mkdirat, openat, renameat,
    renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// As any program would make them.
    ByUmask,
    OwnerOnly,
}

impl Access {
    /// The modes of new files and directories, before the umask.
    const fn modes(self) -> (Mode, Mode) {
        let (file, directory) = match self {
            Self::OwnerOnly => (0o600, 0o700),
            Self::ByUmask => (0o666, 0o777),
        };
        (Mode::from_raw_mode(file), Mode::from_raw_mode(directory))
    }
}

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

#[derive(Debug)]
pub(crate) struct OpenFolder(OwnedFd);

/// A name in an open directory. There may be nothing of this name.
#[derive(Debug)]
pub(crate) struct FolderEntry {
    directory: OwnedFd,
    name: OsString,
}

impl OpenFolder {
    /// Opens a folder that the user named, which may be a symbolic link.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(openat(CWD, path, DIRECTORY, Mode::empty())?))
    }

    /// The entry of a relative path, whose directories exist. Refuses a path that leads
    /// out of the folder, and a directory that is a symbolic link.
    pub(crate) fn entry(&self, path: impl AsRef<Path>) -> io::Result<FolderEntry> {
        self.walk(path.as_ref(), open_directory)
    }

    /// As [`OpenFolder::entry`]; missing directories are made.
    pub(crate) fn make_entry(&self, path: impl AsRef<Path>, access: Access) -> io::Result<FolderEntry> {
        self.walk(path.as_ref(), |directory, name| {
            if let Some(opened) = if_there(open_directory(directory, name))? {
                return Ok(opened);
            }
            make_directory(directory, name, access)?;
            open_directory(directory, name)
        })
    }

    fn walk(
        &self,
        path: &Path,
        open: impl Fn(BorrowedFd<'_>, &OsStr) -> io::Result<OwnedFd>,
    ) -> io::Result<FolderEntry> {
        let outside = || io::Error::other("the path leads out of the folder");
        let names = path.components().map(|component| match component {
            Component::Normal(name) => Some(name),
            Component::CurDir | Component::ParentDir | Component::RootDir | Component::Prefix(_) => None,
        });
        let names: Vec<_> = names.collect::<Option<_>>().ok_or_else(outside)?;
        let (name, above) = names.split_last().ok_or_else(outside)?;
        let mut directory = self.0.try_clone()?;
        for name in above {
            directory = open(directory.as_fd(), name)?;
        }
        Ok(FolderEntry { directory, name: (*name).to_owned() })
    }

    pub(crate) fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }
}

impl FolderEntry {
    /// The attributes of the entry; a symbolic link is not followed.
    pub(crate) fn stat(&self) -> io::Result<Stat> {
        Ok(statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    pub(crate) fn is_file(&self) -> io::Result<bool> {
        Ok(file_type(&self.stat()?) == FileType::RegularFile)
    }

    pub(crate) fn is_directory(&self) -> io::Result<bool> {
        Ok(file_type(&self.stat()?) == FileType::Directory)
    }

    /// Opens a file for reading; refuses everything but a regular file.
    pub(crate) fn open(&self) -> io::Result<File> {
        open_regular(self.directory.as_fd(), &self.name, OFlags::NOFOLLOW)
    }

    /// Reads a regular file; `None` if it has more than `max_bytes`.
    pub(crate) fn read(&self, max_bytes: u64) -> io::Result<Option<Vec<u8>>> {
        read_at_most(self.open()?, max_bytes)
    }

    pub(crate) fn create_new(&self, access: Access) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(&self.directory, &self.name, flags, access.modes().0)?;
        Ok(File::from(file))
    }

    pub(crate) fn set_mode_of(&self, other: &Stat) -> io::Result<()> {
        Ok(fchmod(self.open()?, Mode::from_raw_mode(other.st_mode))?)
    }

    /// Makes a directory, unless it exists.
    pub(crate) fn make_directory(&self, access: Access) -> io::Result<()> {
        make_directory(self.directory.as_fd(), &self.name, access)
    }

    /// Opens a directory; refuses a symbolic link.
    pub(crate) fn open_folder(&self) -> io::Result<OpenFolder> {
        open_directory(self.directory.as_fd(), &self.name).map(OpenFolder)
    }

    /// Renames the entry; replaces a file or a symbolic link at `to`.
    pub(crate) fn rename(&self, to: &Self) -> io::Result<()> {
        Ok(renameat(&self.directory, &self.name, &to.directory, &to.name)?)
    }

    /// As [`FolderEntry::rename`], with flags that not every file system has.
    pub(crate) fn rename_with(&self, to: &Self, flags: RenameFlags) -> Result<(), Errno> {
        renameat_with(&self.directory, &self.name, &to.directory, &to.name, flags)
    }

    /// Removes a file or a symbolic link.
    pub(crate) fn remove_file(&self) -> io::Result<()> {
        Ok(unlinkat(&self.directory, &self.name, AtFlags::empty())?)
    }

    pub(crate) fn remove_file_if_exists(&self) -> io::Result<()> {
        if_there(self.remove_file()).map(drop)
    }

    /// Removes an empty directory.
    pub(crate) fn remove_directory(&self) -> io::Result<()> {
        Ok(unlinkat(&self.directory, &self.name, AtFlags::REMOVEDIR)?)
    }

    /// Removes a directory with the directories below it; fails if one of them has a
    /// file.
    pub(crate) fn remove_directories(&self) -> io::Result<()> {
        self.remove_tree(false)
    }

    /// Removes a directory with everything in it.
    pub(crate) fn remove_all(&self) -> io::Result<()> {
        self.remove_tree(true)
    }

    fn remove_tree(&self, with_files: bool) -> io::Result<()> {
        let folder = self.open_folder()?;
        for name in folder.names()? {
            let below = folder.entry(&name)?;
            if below.is_directory()? {
                below.remove_tree(with_files)?;
            } else if with_files {
                below.remove_file()?;
            }
        }
        self.remove_directory()
    }

    /// Makes the names in the entry's directory durable.
    pub(crate) fn sync_directory(&self) -> io::Result<()> {
        Ok(fsync(&self.directory)?)
    }
}

/// `None` where nothing has the name.
pub(crate) fn if_there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// Reads a regular file in a folder of the user; `None` if it has more than `max_bytes`.
/// The stated size is not believed: some files are endless and state a size of zero.
pub(crate) fn read_in_folder(path: &Path, max_bytes: u64) -> io::Result<Option<Vec<u8>>> {
    read_at_most(open_regular(CWD, path.as_os_str(), OFlags::NOFOLLOW)?, max_bytes)
}

/// As [`read_in_folder`], for a file that the user named, which may be a symbolic link.
pub(crate) fn read_named(path: &Path, max_bytes: u64) -> io::Result<Option<Vec<u8>>> {
    read_at_most(open_regular(CWD, path.as_os_str(), OFlags::empty())?, max_bytes)
}

fn open_regular(directory: BorrowedFd<'_>, name: &OsStr, more: OFlags) -> io::Result<File> {
    // A pipe would keep the call until somebody writes to it.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | more;
    let file = match openat(directory, name, flags, Mode::empty()) {
        Err(Errno::LOOP) => return Err(io::Error::other("is a symbolic link")),
        file => File::from(file?),
    };
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("is not a regular file")) }
}

/// Reads at most `max_bytes`; `None` if there are more.
pub(crate) fn read_at_most(from: impl Read, max_bytes: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let read = from.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(u64::try_from(read).is_ok_and(|read| read <= max_bytes).then_some(bytes))
}

fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn open_directory(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    let opened = openat(parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty());
    // Which of the two errors a symbolic link causes depends on the operating system.
    if matches!(opened, Err(Errno::NOTDIR | Errno::LOOP)) {
        let found = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if file_type(&found) == FileType::Symlink {
            let text = format!("the directory {} is a symbolic link", name.display());
            return Err(io::Error::other(text));
        }
    }
    Ok(opened?)
}

fn make_directory(parent: BorrowedFd<'_>, name: &OsStr, access: Access) -> io::Result<()> {
    match mkdirat(parent, name, access.modes().1) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    struct Disk {
        base: tempfile::TempDir,
        folder: OpenFolder,
    }

    impl Disk {
        /// A folder beside a file, with a link to the folder above both.
        fn new() -> Self {
            let base = tempfile::tempdir().unwrap();
            let root = base.path().join("root");
            fs::create_dir(&root).unwrap();
            fs::write(base.path().join("victim"), "victim").unwrap();
            symlink(base.path(), root.join("link")).unwrap();
            symlink(base.path().join("victim"), root.join("file")).unwrap();
            let folder = OpenFolder::open(&root).unwrap();
            Self { base, folder }
        }

        /// The names beside the folder, and the content of the file there.
        fn outside(&self) -> (usize, String) {
            let beside = self.base.path().read_dir().unwrap().count();
            (beside, fs::read_to_string(self.base.path().join("victim")).unwrap())
        }
    }

    #[test]
    fn no_path_and_no_link_leads_out_of_the_folder() {
        let disk = Disk::new();
        for path in
            ["../x", "a/../../x", "/x", "..", ".", "", "a/..", "./x", "link/x", "link/d/x", "link/victim"]
        {
            let refused = disk.folder.make_entry(path, Access::ByUmask).unwrap_err();
            let is_link = path.starts_with("link");
            let told = if is_link { "is a symbolic link" } else { "out of the folder" };
            assert!(refused.to_string().contains(told), "{path}: {refused}");
            assert!(is_link || disk.folder.entry(path).is_err(), "{path}");
        }
        let linked = disk.folder.entry("file").unwrap();
        assert_eq!(linked.open().unwrap_err().to_string(), "is a symbolic link");
        assert_eq!(linked.create_new(Access::ByUmask).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        // A rename replaces the link.
        let written = disk.folder.entry("new").unwrap();
        drop(written.create_new(Access::ByUmask).unwrap());
        written.rename(&linked).unwrap();
        assert!(linked.is_file().unwrap());
        assert_eq!(disk.outside(), (2, "victim".to_owned()));
    }

    #[test]
    fn removal_does_not_follow_links() {
        let disk = Disk::new();
        let inside = disk.base.path().join("root/d");
        fs::create_dir_all(inside.join("e")).unwrap();
        fs::write(inside.join("e/f"), "").unwrap();
        symlink(disk.base.path(), inside.join("link")).unwrap();
        let directory = disk.folder.entry("d").unwrap();
        directory.remove_directories().unwrap_err();
        directory.remove_all().unwrap();
        assert!(!inside.exists());
        assert_eq!(disk.outside(), (2, "victim".to_owned()));
    }
}
