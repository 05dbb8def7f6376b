//! Memories: their state, and lists of them.

use keepsake_core::{
    ApiKeyId, ContentHash, DirPath, ErasureId, MemoryId, MemoryPath, SessionId, StoreId, Timestamp, VersionId,
};
use uuid::Uuid;

use super::store::{Expiry, StoreState};
use crate::commit::Idempotency;
use crate::removal::FORGOTTEN;

/// A live memory's current state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The memory.
    pub memory_id: MemoryId,
    /// Its path.
    pub path: MemoryPath,
    /// Its current version.
    pub version_id: VersionId,
    /// That version's sequence number in the store.
    pub seq: i64,
    /// The version that introduced the content; names the blob.
    pub blob_id: VersionId,
    /// Bytes of the content.
    pub size_bytes: u64,
    /// SHA-256 of the content.
    pub sha256: ContentHash,
    /// The claim of a replica that wants to edit the memory next.
    pub claim: Option<Claim>,
}

/// A replica's claim: other replicas let its edit of the memory go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The claiming replica.
    pub replica: Uuid,
    /// When the claim expires.
    pub until: Timestamp,
}

/// The result of a lookup by path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// The store.
    pub store: StoreState,
    /// The target of the path.
    pub target: Target,
}

/// The target of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Nothing.
    Missing,
    /// A memory.
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
    pub entries: Vec<Entry>,
}

/// One line of a directory's listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The API path; the path of a directory ends in `/`.
    pub path: String,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Bytes of the file, or of all files below the directory.
    pub size_bytes: u64,
}

/// The record of an earlier idempotent call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    /// Hash of the request; reusing the key with another request is an error.
    pub request_sha256: [u8; 32],
    /// The last version it created, or the head it left unchanged.
    pub seq: Option<i64>,
    /// The memory or store that it created or changed first.
    pub object_id: Option<Uuid>,
}

impl Replayed {
    /// The store that the same call created or changed; `None`: the key belongs to
    /// another request.
    pub(crate) fn same_store(&self, call: &Idempotency) -> Option<StoreId> {
        let is_same = self.request_sha256 == call.request_sha256 && self.seq.is_none();
        self.object_id.filter(|_| is_same).map(StoreId::from_uuid)
    }

    /// The API key that the same call created; `None`: the key belongs to another
    /// request.
    pub(crate) fn same_key(&self, call: &Idempotency) -> Option<ApiKeyId> {
        let is_same = self.request_sha256 == call.request_sha256 && self.seq.is_none();
        self.object_id.filter(|_| is_same).map(ApiKeyId::from_uuid)
    }

    /// The session that the same call created or changed; `None`: the key belongs to
    /// another request.
    pub(crate) fn same_session(&self, call: &Idempotency) -> Option<SessionId> {
        let is_same = self.request_sha256 == call.request_sha256 && self.seq.is_none();
        self.object_id.filter(|_| is_same).map(SessionId::from_uuid)
    }

    /// The erasure that the same call created; `None`: the key belongs to another
    /// request. After the erasure has removed its selection, the record no longer has
    /// the request's hash, and matches any request.
    pub(crate) fn same_erasure(&self, call: &Idempotency) -> Option<ErasureId> {
        let is_same = self.request_sha256 == call.request_sha256 || self.request_sha256 == FORGOTTEN;
        let is_same = is_same && self.seq.is_none();
        self.object_id.filter(|_| is_same).map(ErasureId::from_uuid)
    }
}

/// A live memory with everything that the API shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// Its current state.
    pub head: Head,
    /// Whether it never expires.
    pub is_pinned: bool,
    /// When it was created.
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
    /// The store.
    pub store: StoreState,
    /// The expiry of its memories.
    pub expiry: Expiry,
    /// The target of the id.
    pub target: MemoryTarget,
}

/// The target of a memory's id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryTarget {
    /// The store has no such memory.
    Missing,
    /// A live memory.
    Live(Memory),
    /// A deleted memory with retained versions.
    Deleted {
        /// The version that deleted the memory.
        version_id: VersionId,
        /// When the memory was created.
        created_at: Timestamp,
        /// Whether the memory was pinned.
        is_pinned: bool,
        /// When it was last read, as far as reads are flushed.
        last_read_at: Option<Timestamp>,
        /// The latest sign of life recorded with a read.
        active_at: Option<Timestamp>,
    },
}

/// The depth of a listing.
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
pub struct MemoryListing {
    /// The directory.
    pub below: DirPath,
    /// The depth.
    pub depth: Depth,
    /// The path of the last item of the previous page; a directory's path ends in `/`.
    pub after: Option<String>,
    /// Maximum number of items.
    pub limit: u32,
}

/// A page of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPage {
    /// The store.
    pub store: StoreState,
    /// The expiry of its memories.
    pub expiry: Expiry,
    /// The items.
    pub items: Vec<MemoryItem>,
}

/// One item of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryItem {
    /// A memory.
    Memory {
        /// The memory's state.
        memory: Box<Memory>,
        /// The first line, cut for listings.
        first_line: String,
    },
    /// A directory with memories somewhere below it.
    Prefix(DirPath),
}

/// A change of a memory's pin; creates no version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// The store.
    pub store_id: StoreId,
    /// The memory.
    pub memory_id: MemoryId,
    /// The head that the caller read.
    pub expected: VersionId,
    /// Whether the memory is pinned from now on; `None`: keeps the value at the time of
    /// the commit, even if it differs from the value that the caller read.
    pub is_pinned: Option<bool>,
    /// Makes the call idempotent.
    pub idempotency: Option<Idempotency>,
    /// The time of the change.
    pub now: Timestamp,
}

/// The outcome of a change of a pin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PinOutcome {
    /// The pin is set or unchanged.
    Done {
        /// Whether the memory never expires.
        is_pinned: bool,
    },
    /// The same call was made earlier.
    Replayed {
        /// The version that the call created or left unchanged.
        seq: i64,
    },
    /// The idempotency key was reused with another request.
    KeyReused,
    /// The head has changed since the caller read it.
    Stale,
    /// The store is archived.
    Archived,
    /// The store does not exist.
    NoStore,
}
