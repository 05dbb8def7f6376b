//! Reading and writing below a folder without following symbolic links.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use keepsake_archive::format::{BLOBS, Hashing, MAX_CONTENT_BYTES, MEMORIES};
use keepsake_archive::verified::Files;
use keepsake_config::Failure;
use keepsake_core::ContentHash;

/// The file that a content is written to before it gets its name.
const WRITING: &str = "writing";

/// A folder whose files are named by relative paths with `/`.
///
/// The names must be free of `.` and `..`: a [`MemoryPath`](keepsake_core::MemoryPath)
/// is, and so are an archive's fixed names.
#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
    /// Directories that are known not to be symbolic links.
    checked: HashSet<PathBuf>,
}

impl Folder {
    pub(super) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            checked: HashSet::new(),
        }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Writes a whole file, in place of one that is there.
    pub(super) fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        let path = self.root.join(name);
        self.make_parents(name)?;
        self.replace(&path, bytes)
            .map_err(Failure::of(format_args!("{} cannot be written", path.display())))
    }

    /// A new name is taken by `rename`, which replaces a symbolic link and follows none.
    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.create_unnamed()?;
        file.write_all(bytes)?;
        drop(file);
        match fs::rename(self.root.join(WRITING), path) {
            // Left by an earlier run.
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                fs::remove_dir_all(path)?;
                fs::rename(self.root.join(WRITING), path)
            }
            renamed => renamed,
        }
    }

    /// Creates a file that [`Folder::name`] gives its name.
    pub(super) fn create_unnamed(&self) -> io::Result<File> {
        let path = self.root.join(WRITING);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        OpenOptions::new().write(true).create_new(true).open(path)
    }

    /// Makes a file that was created without a name durable, and gives it its name.
    pub(super) fn name(&self, file: &File, path: &Path) -> io::Result<()> {
        file.sync_all()?;
        fs::rename(self.root.join(WRITING), path)
    }

    /// As [`Folder::name`], for a file of the folder; returns the hash of its content.
    pub(super) fn name_and_hash(&self, file: Hashing<BufWriter<File>>, name: &str) -> io::Result<String> {
        let (file, hash) = file.into_parts();
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        self.name(&file, &self.root.join(name))?;
        Ok(hash)
    }

    /// Makes the directories of a file, and refuses one that is a symbolic link.
    fn make_parents(&mut self, name: &str) -> Result<(), Failure> {
        let mut directory = self.root.clone();
        let Some((parents, _)) = name.rsplit_once('/') else {
            return Ok(());
        };
        for part in parents.split('/') {
            directory.push(part);
            if self.checked.contains(&directory) {
                continue;
            }
            let failed = || Failure::of(format!("{} cannot be made", directory.display()));
            match fs::symlink_metadata(&directory) {
                Ok(found) if found.is_dir() => {}
                // Left by an earlier run.
                Ok(found) if found.is_file() => {
                    fs::remove_file(&directory).map_err(failed())?;
                    DirBuilder::new().create(&directory).map_err(failed())?;
                }
                Ok(found) => return Err(failed()(io::Error::other(describe(&found)))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    DirBuilder::new().create(&directory).map_err(failed())?;
                }
                Err(error) => return Err(failed()(error)),
            }
            self.checked.insert(directory.clone());
        }
        Ok(())
    }

    /// Opens a file; the reason if it is missing or not a regular file.
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
            let is_expected = if parts.peek().is_some() {
                found.is_dir()
            } else {
                found.is_file()
            };
            if !is_expected {
                return Err(describe(&found).to_owned());
            }
        }
        File::open(&path).map_err(|error| format!("cannot be read: {error}"))
    }

    /// Reads a file of at most this size; the reason if that is not possible.
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

    /// Whether a file has the content with this hash.
    pub(super) fn has(&self, name: &str, hash: ContentHash) -> bool {
        let found = self.read(name, MAX_CONTENT_BYTES);
        found.is_ok_and(|bytes| ContentHash::of(&bytes) == hash)
    }

    /// All files below a directory, relative to the folder; a missing one has none.
    ///
    /// # Errors
    /// [`Failure`] if a directory cannot be read, or something is neither a file nor a
    /// directory.
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

/// Why something is not a file that is read.
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
