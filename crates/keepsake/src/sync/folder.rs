//! The folder's side: lists files and changes them without losing an edit.

mod files;

use std::collections::{BTreeMap, HashMap};
use std::fs::{DirEntry, Metadata, ReadDir};
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use keepsake_config::cli::Result;
use keepsake_core::{Content, ContentHash, MemoryPath, nfc};
use tokio::task::yield_now;

pub(super) use files::time;

use super::PRIVATE_FOLDER;
use super::plan::{LocalFiles, Side};
use super::scope::{IGNORE_FILE, Scope};
use super::state::{Hint, State};
use crate::data_dir::unusable;
use crate::open_folder::{OpenFolder, read_in_folder};

/// The largest file that is read if the store's limit is unknown.
const DEFAULT_LIMIT_BYTES: u64 = 16 << 20;

#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
    /// For changes; `None` in a run that changes nothing.
    opened: Option<OpenFolder>,
    /// The limit of the store for one memory.
    limit_bytes: u64,
    /// Whether the file system takes `a` and `A` for one name.
    pub(super) ignores_case: bool,
    /// Why removed contents stay in the private folder for some time; `None` if they do
    /// not.
    keeps_removed: Option<&'static str>,
    /// Paths on the disk of files whose name is not in NFC, relative to the folder.
    places: HashMap<String, PathBuf>,
}

#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) files: LocalFiles,
    /// Hints of files that a later change certainly changes.
    pub(super) hints: HashMap<MemoryPath, Hint>,
    /// Paths that are not synchronised, with the reason.
    pub(super) skipped: Vec<(String, String)>,
    /// Whether a file was written while it was read.
    pub(super) is_unsettled: bool,
    /// As in [`Folder`], but not relative to it.
    places: HashMap<String, PathBuf>,
}

impl Folder {
    /// A folder that is only read may be missing.
    pub(super) fn open(root: PathBuf, limit_bytes: Option<u64>, is_read_only: bool) -> Result<Self> {
        let mut folder = Self {
            root,
            opened: None,
            limit_bytes: limit_bytes.unwrap_or(DEFAULT_LIMIT_BYTES),
            ignores_case: false,
            keeps_removed: None,
            places: HashMap::new(),
        };
        if !is_read_only {
            folder.opened = Some(OpenFolder::open(&folder.root).map_err(unusable(&folder.root))?);
            folder.ignores_case = folder.recover().map_err(unusable(&folder.root))?;
        }
        Ok(folder)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Lists the folder. Files that are unchanged since `state` are not read. The caller
    /// may cancel the listing between two entries.
    pub(super) async fn list(&mut self, state: &State, scope: &Scope) -> Result<Listing> {
        let mut walk = Walk {
            state,
            scope,
            limit_bytes: self.limit_bytes,
            now: Timestamp::now(),
            found: Listing::default(),
            directories: Vec::new(),
        };
        match self.root.read_dir() {
            Ok(entries) => walk.run(entries).await,
            Err(error) if error.kind() == io::ErrorKind::NotFound && state.count() == 0 => {}
            Err(error) => return Err(unusable(&self.root)(error)),
        }
        let places = std::mem::take(&mut walk.found.places).into_iter();
        let relative = |(path, place): (String, PathBuf)| {
            let place = place.strip_prefix(&self.root).ok()?;
            Some((path, place.to_owned()))
        };
        self.places = places.filter_map(relative).collect();
        Ok(walk.found)
    }
}

struct Walk<'a> {
    state: &'a State,
    scope: &'a Scope,
    limit_bytes: u64,
    now: Timestamp,
    found: Listing,
    /// The directories that are still to be read, and their places.
    directories: Vec<(String, PathBuf)>,
}

impl Walk<'_> {
    async fn run(&mut self, root: ReadDir) {
        self.directory(root, "").await;
        while let Some((path, place)) = self.directories.pop() {
            match place.read_dir() {
                Ok(entries) => self.directory(entries, &path).await,
                Err(error) => self.unreadable(&path, &error),
            }
        }
    }

    async fn directory(&mut self, entries: ReadDir, directory: &str) {
        let mut names: BTreeMap<String, Vec<DirEntry>> = BTreeMap::new();
        for entry in entries {
            yield_now().await;
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return self.block(directory, &format!("cannot be read: {error}")),
            };
            if let Some(name) = entry.file_name().to_str() {
                names.entry(nfc(name).into_owned()).or_default().push(entry);
            } else {
                let shown = format!("{directory}/{}", entry.file_name().to_string_lossy());
                self.skip(shown, "the name is not UTF-8");
            }
        }
        for (name, entries) in names {
            yield_now().await;
            let is_ours = directory.is_empty() && (name == PRIVATE_FOLDER || name == IGNORE_FILE);
            if is_ours {
                continue;
            }
            let path = format!("{directory}/{name}");
            match entries.as_slice() {
                [entry] => self.entry(path, &name, entry),
                _ => self.block(&path, "several files have this name in Unicode's NFC"),
            }
        }
    }

    fn entry(&mut self, path: String, name: &str, entry: &DirEntry) {
        let metadata = match entry.metadata() {
            Ok(metadata) => metadata,
            Err(error) => return self.unreadable(&path, &error),
        };
        if let Some(reason) = self.scope.excludes_entry(&path, metadata.is_dir()) {
            return self.skip(path, reason);
        }
        let place = entry.path();
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        if entry.file_name() != name || self.found.places.contains_key(parent) {
            self.found.places.insert(path.clone(), place.clone());
        }
        let memory_path = match MemoryPath::parse(&path) {
            Ok(memory_path) => memory_path,
            Err(error) => return self.skip(path, &format!("the path {error}")),
        };
        if metadata.is_symlink() {
            self.block(&path, "a symbolic link");
        } else if metadata.is_dir() {
            self.directories.push((path, place));
        } else if metadata.is_file() {
            self.file(memory_path, &place, &metadata);
        } else {
            self.block(&path, "neither a file nor a directory");
        }
    }

    fn file(&mut self, path: MemoryPath, place: &Path, metadata: &Metadata) {
        let hint = Hint::of(metadata);
        if let Some(hash) = self.state.hash_of_unchanged(&path, &hint) {
            return self.insert(path, hash, hint);
        }
        if metadata.len() > self.limit_bytes {
            let (size, limit) = (metadata.len(), self.limit_bytes);
            let reason = format!("is {size} bytes, over the store's limit of {limit} bytes per memory");
            return self.block(path.as_str(), &reason);
        }
        let bytes = match read_in_folder(place, self.limit_bytes) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => {
                let limit = self.limit_bytes;
                let reason = format!(
                    "has more bytes than it says, over the store's limit of {limit} bytes per memory"
                );
                return self.block(path.as_str(), &reason);
            }
            Err(error) => return self.unreadable(path.as_str(), &error),
        };
        match place.symlink_metadata() {
            Ok(after) if Hint::of(&after) == hint => {}
            _ => {
                self.found.is_unsettled = true;
                self.found.files.insert(path, Side::Blocked);
                return;
            }
        }
        let Ok(text) = String::from_utf8(bytes) else {
            return self.block(path.as_str(), "is not UTF-8 text");
        };
        match Content::new(text, self.limit_bytes) {
            Ok(content) => self.insert(path, content.hash(), hint),
            Err(error) => self.block(path.as_str(), &error.to_string()),
        }
    }

    fn insert(&mut self, path: MemoryPath, hash: ContentHash, hint: Hint) {
        if hint.is_settled(self.now) {
            self.found.hints.insert(path.clone(), hint);
        }
        self.found.files.insert(path, Side::Present(hash));
    }

    /// Reports a path that exists and cannot be read; a path that vanished meanwhile is
    /// absent.
    fn unreadable(&mut self, path: &str, error: &io::Error) {
        if error.kind() != io::ErrorKind::NotFound {
            self.block(path, &format!("cannot be read: {error}"));
        }
    }

    /// Keeps everything at and below a path as it is on both sides.
    fn block(&mut self, path: &str, reason: &str) {
        self.skip(path.to_owned(), reason);
        if let Ok(path) = MemoryPath::parse(path) {
            self.found.files.insert(path, Side::Blocked);
        }
    }

    fn skip(&mut self, path: String, reason: &str) {
        self.found.skipped.push((path, reason.to_owned()));
    }
}

#[cfg(test)]
mod tests;
