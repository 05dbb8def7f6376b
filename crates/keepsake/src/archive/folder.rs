//! Reading and writing below a folder without following symbolic links.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use keepsake_archive::format::{BLOBS, Hashing, MAX_CONTENT_BYTES, MEMORIES};
use keepsake_archive::verified::Files;
use keepsake_config::Failure;
use keepsake_core::ContentHash;

use crate::open_folder::{Access, OpenFolder};

/// The file that a content is written to before it gets its name.
const WRITING: &str = "writing";

/// A folder whose files are named by relative paths with `/`.
#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
    opened: OpenFolder,
    access: Access,
    /// Directories that exist.
    made: HashSet<String>,
}

impl Folder {
    /// `access` is that of the files that are written.
    pub(super) fn open(root: &Path, access: Access) -> Result<Self, Failure> {
        let opened = OpenFolder::open(root);
        Ok(Self {
            root: root.to_owned(),
            opened: opened.map_err(Failure::of(format_args!("{} cannot be opened", root.display())))?,
            access,
            made: HashSet::new(),
        })
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Writes a whole file, or replaces one.
    pub(super) fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        self.make_parents(name)?;
        self.replace(name, bytes)
            .map_err(Failure::of(format_args!("{} cannot be written", self.root.join(name).display())))
    }

    /// Uses `rename`, which replaces a symbolic link and follows none.
    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.create_unnamed()?;
        file.write_all(bytes)?;
        drop(file);
        let (written, named) = (self.opened.entry(WRITING)?, self.opened.entry(name)?);
        match written.rename(&named) {
            // An earlier run left a directory of this name.
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                named.remove_all()?;
                written.rename(&named)
            }
            renamed => renamed,
        }
    }

    /// Creates a file that [`Folder::name`] gives its name.
    pub(super) fn create_unnamed(&self) -> io::Result<File> {
        self.create(WRITING)
    }

    /// Creates a file, or replaces one.
    pub(super) fn create(&self, name: &str) -> io::Result<File> {
        let entry = self.opened.entry(name)?;
        entry.remove_file_if_exists()?;
        entry.create_new(self.access)
    }

    /// Makes a file that was created without a name durable, and gives it its name.
    pub(super) fn name(&self, file: &File, name: &str) -> io::Result<()> {
        file.sync_all()?;
        self.opened.entry(WRITING)?.rename(&self.opened.entry(name)?)
    }

    /// As [`Folder::name`], for a path of the user, which may be in another folder.
    pub(super) fn move_to(&self, file: &File, path: &Path) -> io::Result<()> {
        file.sync_all()?;
        fs::rename(self.root.join(WRITING), path)
    }

    pub(super) fn remove(&self, name: &str) -> Result<(), Failure> {
        let removed = self.opened.entry(name).and_then(|entry| entry.remove_file());
        removed.map_err(Failure::of(format_args!("{} cannot be removed", self.root.join(name).display())))
    }

    /// As [`Folder::name`], for a file of the folder; returns the hash of its content.
    pub(super) fn name_and_hash(&self, file: Hashing<BufWriter<File>>, name: &str) -> io::Result<String> {
        let (file, hash) = file.into_parts();
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        self.name(&file, name)?;
        Ok(hash)
    }

    /// Makes the directories of a file, and refuses one that is a symbolic link.
    fn make_parents(&mut self, name: &str) -> Result<(), Failure> {
        for (end, _) in name.match_indices('/') {
            let directory = &name[..end];
            if self.made.contains(directory) {
                continue;
            }
            self.make_directory(directory).map_err(Failure::of(format_args!(
                "{} cannot be made",
                self.root.join(directory).display()
            )))?;
            self.made.insert(directory.to_owned());
        }
        Ok(())
    }

    fn make_directory(&self, name: &str) -> io::Result<()> {
        let entry = self.opened.entry(name)?;
        if entry.is_file().is_ok_and(|is_file| is_file) {
            // An earlier run left a file of this name.
            entry.remove_file()?;
        }
        entry.make_directory(self.access)?;
        match entry.open_folder() {
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                Err(io::Error::other("there is something else of this name"))
            }
            opened => opened.map(drop),
        }
    }

    /// Opens a file. The error is the reason: the file is missing or not a regular file.
    pub(super) fn open_file(&self, name: &str) -> Result<File, String> {
        let mut path = self.root.clone();
        let mut parts = name.split('/').peekable();
        while let Some(part) = parts.next() {
            path.push(part);
            let found = match fs::symlink_metadata(&path) {
                Ok(found) => found,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Err("is missing".to_owned()),
                Err(error) => return Err(format!("cannot be read: {error}")),
            };
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
        let mut bytes = Vec::new();
        let file = self.open_file(name)?;
        file.take(max_bytes + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| format!("cannot be read: {error}"))?;
        if bytes.len() as u64 > max_bytes {
            return Err(format!("is larger than {max_bytes} bytes"));
        }
        Ok(bytes)
    }

    pub(super) fn has(&self, name: &str, hash: ContentHash) -> bool {
        let found = self.read(name, MAX_CONTENT_BYTES);
        found.is_ok_and(|bytes| ContentHash::of(&bytes) == hash)
    }

    /// All files below a directory, relative to the folder; a missing directory has none.
    /// Fails if an entry is neither a file nor a directory.
    pub(super) fn files_below(&self, directory: &str) -> Result<Vec<String>, Failure> {
        let (mut files, mut directories) = (Vec::new(), vec![directory.to_owned()]);
        while let Some(directory) = directories.pop() {
            let path = self.root.join(&directory);
            let failed = || Failure::of(format!("{} cannot be read", path.display()));
            let found = match fs::symlink_metadata(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                found => found.map_err(failed())?,
            };
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

impl Files for Folder {
    fn open(&self, name: &str) -> Result<Box<dyn Read + '_>, String> {
        Ok(Box::new(self.open_file(name)?))
    }

    fn content(&self, name: &str) -> Result<(ContentHash, u64), String> {
        let content = self.read(name, MAX_CONTENT_BYTES)?;
        Ok((ContentHash::of(&content), content.len() as u64))
    }

    fn contents(&self) -> Result<Vec<String>, String> {
        let mut files = Vec::new();
        for directory in [MEMORIES, BLOBS] {
            let below = self.files_below(directory);
            files.extend(below.map_err(|failure| failure.to_string())?);
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
