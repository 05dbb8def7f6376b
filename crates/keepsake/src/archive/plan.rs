//! The plan of an import, made before anything is written.

use std::collections::{HashMap, HashSet};

use keepsake_client::Client;
use keepsake_config::Failure;
use keepsake_core::{ContentHash, MemoryPath};
use serde::Deserialize;

use super::report::{Class, Outcome, Report};
use crate::cli::OnConflict;
use crate::people::failure_of;

/// A memory that a source has.
#[derive(Debug, Clone)]
pub(super) struct Item {
    /// The path in the destination.
    pub(super) path: MemoryPath,
    pub(super) sha256: ContentHash,
    pub(super) size_bytes: u64,
    pub(super) is_pinned: bool,
    pub(super) origin: Origin,
}

/// The place of the content.
#[derive(Debug, Clone)]
pub(super) enum Origin {
    /// A file, relative to the source.
    File(String),
    /// A memory of another store, by its id.
    Memory(String),
}

/// A write of the import.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) item: Item,
    /// The memory that is replaced, if it still has this content; `None`: created.
    pub(super) replaces: Option<Existing>,
}

/// A memory of the destination.
#[derive(Debug, Clone)]
pub(super) struct Existing {
    pub(super) id: String,
    pub(super) sha256: String,
}

#[derive(Deserialize)]
pub(super) struct Listed {
    pub(super) id: String,
    pub(super) path: String,
    pub(super) content_sha256: String,
}

/// The live memories of the destination.
#[derive(Debug, Default)]
pub(super) struct Destination {
    memories: HashMap<String, Existing>,
    directories: HashSet<String>,
}

impl Destination {
    /// Lists the destination.
    ///
    /// # Errors
    /// [`Failure`] of the request.
    pub(super) async fn read(client: &Client, path: &[&str]) -> Result<Self, Failure> {
        let mut destination = Self::default();
        let mut pages = client.pages(path, &[]);
        while let Some(listed) = pages
            .next::<Listed>()
            .await
            .map_err(failure_of("the memory store cannot be listed"))?
        {
            let path = MemoryPath::from_trusted(listed.path);
            for directory in path.ancestor_files() {
                if !destination.directories.contains(directory) {
                    destination.directories.insert(directory.to_owned());
                }
            }
            let existing = Existing {
                id: listed.id,
                sha256: listed.content_sha256,
            };
            destination.memories.insert(path.as_str().to_owned(), existing);
        }
        Ok(destination)
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

/// Plans a step for each item to write, and reports the other items.
pub(super) fn decide(
    items: Vec<Item>,
    destination: &Destination,
    on_conflict: OnConflict,
    report: &mut Report,
) -> Vec<Step> {
    let mut steps = Vec::new();
    for item in items {
        let path = item.path.as_str();
        match destination.memories.get(path) {
            Some(existing) if existing.sha256 == item.sha256.to_string() => {
                report.add(path, Outcome::Unchanged);
            }
            Some(existing) => match on_conflict {
                OnConflict::Skip => report.add(path, Outcome::Skipped),
                OnConflict::Fail => {
                    report.add(path, Outcome::refused(Class::Conflict, "has other content"));
                }
                OnConflict::Replace => steps.push(Step {
                    replaces: Some(existing.clone()),
                    item,
                }),
            },
            None => match destination.obstacle(&item.path) {
                Some(reason) => report.add(path, Outcome::refused(Class::Conflict, reason)),
                None => steps.push(Step { item, replaces: None }),
            },
        }
    }
    steps
}
