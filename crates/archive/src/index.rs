//! The index of an archive while it is written.

use std::collections::{BTreeMap, HashMap, HashSet};

use keepsake_core::{ContentHash, MemoryPath};

use crate::format::{Counts, Entry};
use crate::placement::Placement;

#[derive(Debug, Default)]
pub struct Index {
    /// By path.
    entries: BTreeMap<String, Entry>,
    /// The path of each memory among the entries, by id: a memory that is moved during an
    /// export is listed twice.
    paths: HashMap<String, String>,
    /// Ids of memories whose path another memory got during the export.
    displaced: HashSet<String>,
    placement: Placement,
}

impl Index {
    pub fn file_of(&mut self, path: &MemoryPath, hash: ContentHash) -> String {
        self.placement.file_of(path, hash)
    }

    /// Adds a memory, or replaces its entry.
    pub fn record(&mut self, entry: Entry) {
        self.remove(&entry.id);
        self.paths.insert(entry.id.clone(), entry.path.clone());
        if let Some(displaced) = self.entries.insert(entry.path.clone(), entry) {
            self.paths.remove(&displaced.id);
            self.displaced.insert(displaced.id);
        }
    }

    pub fn remove(&mut self, id: &str) {
        self.displaced.remove(id);
        if let Some(path) = self.paths.remove(id) {
            self.entries.remove(&path);
        }
    }

    /// Whether a memory is missing because another one was recorded at its path later.
    pub fn has_displaced(&self) -> bool {
        !self.displaced.is_empty()
    }

    /// The memories by path in byte order.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    pub fn counts(&self, versions: u64) -> Counts {
        Counts {
            memories: self.entries.len() as u64,
            content_bytes: self.entries().map(|entry| entry.size_bytes).sum(),
            versions,
        }
    }

    /// The hashes of all contents.
    pub fn contents(&self) -> HashSet<String> {
        self.entries().map(|entry| entry.content_sha256.clone()).collect()
    }

    /// The files of all contents, each with its modification time in seconds.
    pub fn files(&self) -> BTreeMap<String, u64> {
        self.entries().map(|entry| (entry.content_file(), entry.modified_at())).collect()
    }
}
