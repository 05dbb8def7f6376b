//! Reading and writing below a folder without following symbolic links.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use keepsake_config::{Failure, cli::Result};

use crate::open_folder::{Access, OpenFolder, if_there, read_at_most};

/// A folder whose files are named by relative paths with `/`.
#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
    opened: OpenFolder,
    access: Access,
}

impl Folder {
    /// `access` is that of the files and directories that are written.
    pub(super) fn open(root: &Path, access: Access) -> Result<Self> {
        let opened = OpenFolder::open(root);
        Ok(Self {
            root: root.to_owned(),
            opened: opened.map_err(Failure::of(format_args!("{} cannot be opened", root.display())))?,
            access,
        })
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Creates a file and its directories; fails if there is anything of this name.
    pub(super) fn create(&self, name: &str) -> io::Result<File> {
        self.opened.make_entry(name, self.access)?.create_new(self.access)
    }

    /// Opens a file. The error is the reason: the file is missing or not a regular file.
    pub(super) fn open_file(&self, name: &str) -> Result<File, String> {
        let mut path = self.root.clone();
        let mut parts = name.split('/').peekable();
        while let Some(part) = parts.next() {
            path.push(part);
            let found = if_there(fs::symlink_metadata(&path));
            let found = found.map_err(|error| format!("cannot be read: {error}"))?;
            let found = found.ok_or("is missing")?;
            let is_expected = if parts.peek().is_some() { found.is_dir() } else { found.is_file() };
            if !is_expected {
                return Err(describe(&found).to_owned());
            }
        }
        let opened = self.opened.entry(name).and_then(|entry| entry.open());
        opened.map_err(|error| format!("cannot be read: {error}"))
    }

    /// Reads a file of at most this size. The error is the reason, without the file's
    /// name.
    pub(super) fn read(&self, name: &str, max_bytes: u64) -> Result<Vec<u8>, String> {
        let bytes = read_at_most(self.open_file(name)?, max_bytes);
        let bytes = bytes.map_err(|error| format!("cannot be read: {error}"))?;
        bytes.ok_or_else(|| format!("is larger than {max_bytes} bytes"))
    }

    /// All files below a directory, relative to the folder; a missing directory has none.
    /// Fails if an entry is neither a file nor a directory.
    pub(super) fn files_below(&self, directory: &str) -> Result<Vec<String>> {
        let (mut files, mut directories) = (Vec::new(), vec![directory.to_owned()]);
        while let Some(directory) = directories.pop() {
            let path = self.root.join(&directory);
            let failed = || Failure::of(format!("{} cannot be read", path.display()));
            let Some(found) = if_there(fs::symlink_metadata(&path)).map_err(failed())? else { continue };
            if !found.is_dir() {
                return Err(Failure::new(format!("{} {}", path.display(), describe(&found))));
            }
            for item in fs::read_dir(&path).map_err(failed())? {
                let item = item.map_err(failed())?;
                let name = format!("{directory}/{}", item.file_name().to_string_lossy());
                if item.file_type().map_err(failed())?.is_dir() {
                    directories.push(name);
                } else {
                    files.push(name);
                }
            }
        }
        Ok(files)
    }
}

/// Why something is not a regular file.
pub(super) fn describe(found: &fs::Metadata) -> &'static str {
    if found.is_symlink() {
        "is a symbolic link"
    } else if found.is_dir() {
        "is a directory"
    } else if found.is_file() {
        "is a file"
    } else {
        "is not a regular file"
    }
}
