//! Memories: their state, and lists of them.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::str::FromStr;

use keepsake_core::tool::DirectoryEntry;
use keepsake_core::{DirPath, MemoryId, MemoryPath, Timestamp, VersionId};
use uuid::Uuid;

use super::store::{Expiry, StoreState};
use super::version::StoredContent;

/// The request hash in the record of an erasure that has removed its selection; it matches
/// any request.
pub(crate) const FORGOTTEN: [u8; 32] = [0; 32];

/// A live memory's current state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    pub memory_id: MemoryId,
    pub path: MemoryPath,
    pub version_id: VersionId,
    /// The sequence number of `version_id` in the store.
    pub seq: i64,
    pub content: StoredContent,
    /// The claim of a replica that wants to edit the memory next.
    pub claim: Option<Claim>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchRow {
    /// The version of the analyser that made them; higher is newer.
    pub analyser: u32,
    /// The length of the content, as that analyser counts it.
    pub length: u32,
    /// The terms, encoded by that analyser.
    pub terms: Vec<u8>,
}

/// A replica's claim: other replicas let its edit of the memory go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    pub replica: Uuid,
    pub until: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    pub store: StoreState,
    pub target: Target,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Missing,
    Memory(Head),
    /// A directory, implied by the memories below it; the root always exists.
    Directory(Directory),
}

/// A directory and the requested part of its listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// Files below the directory at any depth, including hidden files.
    pub files: u64,
    /// Bytes of those files.
    pub size_bytes: u64,
    /// Number of entries in a complete listing.
    pub total_entries: u64,
    /// The first entries, in display order.
    pub entries: Vec<DirectoryEntry>,
}

/// What is below a directory at any depth, including hidden files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectorySummary {
    /// Ends in `/`.
    pub path: String,
    pub files: u64,
    /// Bytes of those files.
    pub size_bytes: u64,
    /// When something last changed there; may be earlier within the same minute. `None`: it is the
    /// root, and nothing has changed.
    pub changed_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundMemories {
    pub store: StoreState,
    pub expiry: Expiry,
    /// The memories that exist or existed, by their ids.
    pub memories: HashMap<MemoryId, FoundMemory>,
    /// The paths that are directories.
    pub directories: HashSet<DirPath>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Idempotency {
    /// Hash of the idempotency key and its scope.
    pub scope_sha256: [u8; 32],
    pub request_sha256: [u8; 32],
    /// Records of calls before this time are expired.
    pub since: Timestamp,
}

/// The record of an earlier idempotent call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlierCall {
    /// Hash of the request; reusing the key with another request is an error.
    pub(crate) request_sha256: [u8; 32],
    /// The last version that the call created, or the version that it left unchanged.
    pub seq: Option<i64>,
    /// The memory or store that the call created or changed first.
    pub object_id: Option<Uuid>,
    /// The result of each operation of a batch, or `KEPT`.
    pub results: Option<String>,
}

/// The `results` of a call that created no version, and whose `seq` is the existing one.
pub(crate) const KEPT: &str = "kept";

impl EarlierCall {
    /// Whether the call created no version.
    pub fn is_kept(&self) -> bool {
        self.results.as_deref() == Some(KEPT)
    }
}

/// A live memory with everything that the API shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    pub head: Head,
    /// Whether it never expires.
    pub is_pinned: bool,
    /// When it expires even if it is used, unless it is pinned.
    pub expires_at: Option<Timestamp>,
    pub created_at: Timestamp,
    /// When its path, content or existence last changed.
    pub updated_at: Timestamp,
    /// When it was last read, as far as reads are flushed.
    pub last_read_at: Option<Timestamp>,
    /// The latest sign of life recorded with a read.
    pub active_at: Option<Timestamp>,
}

/// A lookup of a memory by id, in an existing store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundMemory {
    pub store: StoreState,
    pub expiry: Expiry,
    pub target: MemoryTarget,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryTarget {
    Missing,
    Live(Memory),
    /// A deleted memory with retained versions.
    Deleted {
        memory_id: MemoryId,
        /// The version that deleted the memory.
        version_id: VersionId,
        /// When the memory was created.
        created_at: Timestamp,
        is_pinned: bool,
        /// When it was last read, as far as reads are flushed.
        last_read_at: Option<Timestamp>,
        /// The latest sign of life recorded with a read.
        active_at: Option<Timestamp>,
    },
}

impl MemoryTarget {
    pub const fn memory_id(&self) -> Option<MemoryId> {
        match self {
            Self::Missing => None,
            Self::Live(memory) => Some(memory.head.memory_id),
            Self::Deleted { memory_id, .. } => Some(*memory_id),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Every memory below the directory.
    All,
    /// Only the direct children of the directory; deeper memories are represented by
    /// their directory.
    Children,
}

/// A page of a store's memories, in byte order of their paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryListing<After = String> {
    pub below: DirPath,
    pub depth: Depth,
    /// The path or the place of the last item of the previous page; a directory's path ends in `/`.
    pub after: Option<After>,
    pub limit: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPage {
    pub store: StoreState,
    pub expiry: Expiry,
    pub items: Vec<MemoryItem>,
}

/// An item of a list of memories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListItem<M> {
    Memory(M),
    /// A directory with memories somewhere below it.
    Prefix(DirPath),
}

/// A memory with its first line, cut for listings.
pub type MemoryItem = ListItem<(Box<Memory>, String)>;

impl MemoryItem {
    /// The item's position in the listing.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Memory((memory, _)) => memory.head.path.as_str(),
            Self::Prefix(path) => path.as_str(),
        }
    }
}

/// A change of the time at which a memory expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExpiryChange {
    /// Whether the memory is pinned from now on; `None`: unchanged.
    pub is_pinned: Option<bool>,
    /// Its expiry time from now on; `None`: unchanged.
    pub expires_at: Option<ExpiresAt>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpiresAt {
    Never,
    /// It expires at this time, even if it is used.
    Time(Timestamp),
}

impl ExpiryChange {
    pub const fn pinned(is_pinned: bool) -> Self {
        Self { is_pinned: Some(is_pinned), expires_at: None }
    }

    /// Whether it changes nothing of this memory.
    pub fn is_applied_to(&self, memory: &Memory) -> bool {
        self.is_pinned.is_none_or(|pinned| pinned == memory.is_pinned)
            && self.expires_at.is_none_or(|at| at.time() == memory.expires_at)
    }

    #[must_use]
    pub fn applied_to(&self, memory: Memory) -> Memory {
        Memory {
            is_pinned: self.is_pinned.unwrap_or(memory.is_pinned),
            expires_at: self.expires_at.map_or(memory.expires_at, ExpiresAt::time),
            ..memory
        }
    }

    /// The parameter of the statements: 0 for no time, `None` for no change.
    pub(crate) fn stored_time(&self) -> Option<i64> {
        let stored = |at: ExpiresAt| at.time().map_or(0, Timestamp::as_micros);
        self.expires_at.map(stored)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a date or a time in RFC 3339 format, or `never`")]
pub struct ExpiresAtError;

impl FromStr for ExpiresAt {
    type Err = ExpiresAtError;

    fn from_str(text: &str) -> Result<Self, ExpiresAtError> {
        match text {
            "never" => Ok(Self::Never),
            text => Timestamp::parse(text).map(Self::Time).ok_or(ExpiresAtError),
        }
    }
}

impl fmt::Display for ExpiresAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.time().map_or_else(|| "never".to_owned(), Timestamp::to_rfc3339))
    }
}

impl ExpiresAt {
    pub const fn time(self) -> Option<Timestamp> {
        match self {
            Self::Never => None,
            Self::Time(at) => Some(at),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PinOutcome {
    /// The change was made, or changes nothing.
    Done { is_pinned: bool, expires_at: Option<Timestamp> },
    /// The same call was made earlier.
    Replayed {
        /// The version that the call created or left unchanged.
        seq: i64,
    },
    /// The head has changed since the caller read it.
    Stale,
}
