//! The past of a store: memories as they were, and what changed since.

use keepsake_core::{MemoryId, MemoryPath, Timestamp, VersionId};

use super::memory::{ListItem, MemoryListing};
use super::store::StoreState;
use super::version::StoredContent;

/// A moment of a store's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// After the version with this sequence number; 0: before the first one.
    Seq(i64),
    /// After the last version that was created at or before this time.
    Time(Timestamp),
    /// The oldest point that can be shown.
    Oldest,
    /// After the newest version.
    Newest,
}

/// A point of a store's history that can be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    pub store: StoreState,
    /// The sequence number of the last version at or before the moment.
    pub seq: i64,
    /// The sequence number of the store's newest version.
    pub newest_seq: i64,
}

/// A memory as it was at a point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastMemory {
    pub memory_id: MemoryId,
    /// The version that was current.
    pub version_id: VersionId,
    pub seq: i64,
    /// `None`: the version is redacted.
    pub path: Option<MemoryPath>,
    /// `None`: the version is redacted.
    pub content: Option<StoredContent>,
    /// When the memory was created.
    pub created_at: Timestamp,
    /// When the version was created.
    pub updated_at: Timestamp,
    pub redacted_at: Option<Timestamp>,
}

pub type PastItem = ListItem<PastMemory>;

/// The place of an item in a list of the past.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PastPlace {
    /// The path of a memory or, with `/` at its end, of a directory.
    Path(String),
    /// A memory whose version is redacted; these come after all paths.
    Redacted(MemoryId),
}

impl PastItem {
    #[must_use]
    pub fn place(&self) -> PastPlace {
        match self {
            Self::Memory(memory) => match &memory.path {
                Some(path) => PastPlace::Path(path.as_str().to_owned()),
                None => PastPlace::Redacted(memory.memory_id),
            },
            Self::Prefix(path) => PastPlace::Path(path.as_str().to_owned()),
        }
    }
}

pub type PastListing = MemoryListing<PastPlace>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastPage<Item = PastItem, Place = PastPlace> {
    pub point: Point,
    pub items: Vec<Item>,
    /// The place after which the next page begins; `None`: this is the last page.
    pub next: Option<Place>,
}
