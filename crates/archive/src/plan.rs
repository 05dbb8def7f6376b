//! The plan of an import, made before anything is written.

use std::collections::{HashMap, HashSet};

use keepsake_core::{ContentHash, MemoryPath, Timestamp};

use crate::report::{Class, Outcome, Report};

/// Operations of a batch; the server takes 500.
const MAX_BATCH_OPERATIONS: usize = 200;
/// Bytes of a batch's contents. The server takes 8 MiB of JSON, where text is longer.
pub const MAX_BATCH_BYTES: u64 = 4 << 20;

/// The report's note on an unchanged memory whose pin or expiry time differs.
const KEPT_EXPIRY: &str =
    "its pin or expiry time was not imported: the memory is there already and is not replaced";

keepsake_core::named_enum! {
    /// The action if a memory has other content.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum OnConflict {
        /// Nothing at all is imported.
        Fail = "fail",
        /// The memory is kept.
        Skip = "skip",
        /// The memory gets the imported content as a new version.
        Replace = "replace",
    }
}

#[derive(Debug, Clone)]
pub struct SourceMemory {
    /// The path in the destination.
    pub path: MemoryPath,
    pub sha256: ContentHash,
    pub size_bytes: u64,
    pub is_pinned: bool,
    /// The memory's own expiry time.
    pub expires_at: Option<Timestamp>,
    pub origin: ContentOrigin,
}

impl SourceMemory {
    /// Removes an expiry time that no write can set at `now`; returns the reason.
    pub fn remove_unsettable_expiry(&mut self, now: Timestamp) -> Option<&'static str> {
        let expires_at = self.expires_at?;
        let why = if self.is_pinned {
            "its expiry time was not imported: the memory is pinned"
        } else if expires_at <= now {
            "its expiry time was not imported: it has passed"
        } else {
            return None;
        };
        self.expires_at = None;
        Some(why)
    }
}

#[derive(Debug, Clone)]
pub enum ContentOrigin {
    /// A file, relative to the source.
    File(String),
    /// A memory of another store, by its id.
    Memory(String),
}

#[derive(Debug)]
pub struct ImportStep {
    pub item: SourceMemory,
    /// The memory to replace, if it still has this content; `None` if the step creates
    /// one.
    pub replaces: Option<DestinationMemory>,
    /// What the written memory lacks of the source.
    pub lacks: Option<&'static str>,
}

impl ImportStep {
    fn new(mut item: SourceMemory, replaces: Option<DestinationMemory>, now: Timestamp) -> Self {
        let lacks = item.remove_unsettable_expiry(now);
        Self { item, replaces, lacks }
    }

    /// Whether the step changes the pin or expiry time of a memory with the same content.
    /// A pinned memory stays pinned, and takes no expiry time.
    fn changes_expiry_of(&self, existing: &DestinationMemory) -> bool {
        let is_other_time = self.item.expires_at.is_some() && self.item.expires_at != existing.expires_at;
        !existing.is_pinned && (is_other_time || self.item.is_pinned)
    }
}

#[derive(Debug, Clone)]
pub struct DestinationMemory {
    pub id: String,
    pub sha256: String,
    pub is_pinned: bool,
    /// The memory's own expiry time.
    pub expires_at: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub struct Destination {
    memories: HashMap<String, DestinationMemory>,
    directories: HashSet<String>,
}

impl Destination {
    pub fn add(&mut self, path: &MemoryPath, existing: DestinationMemory) {
        for directory in path.ancestor_files() {
            if !self.directories.contains(directory) {
                self.directories.insert(directory.to_owned());
            }
        }
        self.memories.insert(path.as_str().to_owned(), existing);
    }

    /// Why no memory can be created at a path.
    fn obstacle(&self, path: &MemoryPath) -> Option<String> {
        if self.directories.contains(path.as_str()) {
            return Some("is a directory in the memory store".to_owned());
        }
        let mut ancestors = path.ancestor_files();
        let file = ancestors.find(|ancestor| self.memories.contains_key(*ancestor))?;
        Some(format!("/memories{file} is a memory, not a directory"))
    }
}

/// Plans a step for each item to write at `now`, and reports the other items.
pub fn decide(
    items: Vec<SourceMemory>,
    destination: &Destination,
    on_conflict: OnConflict,
    now: Timestamp,
    report: &mut Report,
) -> Vec<ImportStep> {
    let mut steps = Vec::new();
    for item in items {
        let path = item.path.as_str();
        match destination.memories.get(path) {
            Some(existing) if existing.sha256 == item.sha256.to_string() => {
                let step = ImportStep::new(item, Some(existing.clone()), now);
                let path = step.item.path.as_str();
                match (step.changes_expiry_of(existing), on_conflict) {
                    (false, _) => report.add(path, Outcome::Unchanged),
                    (true, OnConflict::Replace) => steps.push(step),
                    (true, OnConflict::Fail | OnConflict::Skip) => {
                        report.add_with(path, Outcome::Unchanged, Some(KEPT_EXPIRY));
                    }
                }
            }
            Some(existing) => match on_conflict {
                OnConflict::Skip => report.add(path, Outcome::Skipped),
                OnConflict::Fail => {
                    report.add(path, Outcome::refused(Class::Conflict, "has other content"));
                }
                OnConflict::Replace => steps.push(ImportStep::new(item, Some(existing.clone()), now)),
            },
            None => match destination.obstacle(&item.path) {
                Some(reason) => report.add(path, Outcome::refused(Class::Conflict, reason)),
                None => steps.push(ImportStep::new(item, None, now)),
            },
        }
    }
    steps
}

pub fn batches(steps: &[ImportStep]) -> impl Iterator<Item = &[ImportStep]> {
    let mut bytes = steps.first().map_or(0, |step| step.item.size_bytes);
    let mut count = 0;
    let starts_batch = move |_: &ImportStep, next: &ImportStep| {
        count += 1;
        bytes += next.item.size_bytes;
        let is_full = is_full_batch(count, bytes);
        if is_full {
            (count, bytes) = (0, next.item.size_bytes);
        }
        !is_full
    };
    steps.chunk_by(starts_batch)
}

pub const fn is_full_batch(count: usize, bytes: u64) -> bool {
    count >= MAX_BATCH_OPERATIONS || bytes > MAX_BATCH_BYTES
}
