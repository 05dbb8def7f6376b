//! Memories: what stands where, and lists of them.

use keepsake_core::{
    ApiKeyId, ContentHash, DirPath, ErasureId, MemoryId, MemoryPath, SessionId, StoreId, Timestamp, VersionId,
};
use uuid::Uuid;

use super::store::{Expiry, StoreState};
use crate::commit::Idempotency;
use crate::erasure::FORGOTTEN;

/// A live memory's current state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The memory.
    pub memory_id: MemoryId,
    /// Where it stands.
    pub path: MemoryPath,
    /// Its current version.
    pub version_id: VersionId,
    /// That version's place in the store's order.
    pub seq: i64,
    /// The version that brought the content; names the blob.
    pub blob_id: VersionId,
    /// Bytes of the content.
    pub size_bytes: u64,
    /// SHA-256 of the content.
    pub sha256: ContentHash,
    /// A replica that asked to edit it next.
    pub claim: Option<Claim>,
}

/// A replica's request to let its edit of a memory go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// Who asked.
    pub replica: Uuid,
    /// When the request ends by itself.
    pub until: Timestamp,
}

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// The store.
    pub store: StoreState,
    /// What is there.
    pub target: Target,
}

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Nothing.
    Missing,
    /// A memory.
    Memory(Head),
    /// A directory, implied by the memories below it; the root always exists.
    Directory(Directory),
}

/// A directory and the part of its listing that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// Files below it, at any depth, hidden ones too.
    pub files: u64,
    /// Bytes of those files.
    pub size_bytes: u64,
    /// Entries that a complete listing has.
    pub total_entries: u64,
    /// The first of them, in display order.
    pub entries: Vec<Entry>,
}

/// One line of a directory's listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The API path; a directory's ends in `/`.
    pub path: String,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Bytes of the file, or of all files below the directory.
    pub size_bytes: u64,
}

/// What an idempotent call recorded when it was first made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    /// Hash of the request; another one under the same name is a mistake.
    pub request_sha256: [u8; 32],
    /// The last version it made, or the head it left as it was.
    pub seq: Option<i64>,
    /// The memory or the store it made or changed first.
    pub object_id: Option<Uuid>,
}

impl Replayed {
    /// The store that the same call made or changed; `None`: it was another.
    pub(crate) fn same_store(&self, call: &Idempotency) -> Option<StoreId> {
        let is_same = self.request_sha256 == call.request_sha256 && self.seq.is_none();
        self.object_id.filter(|_| is_same).map(StoreId::from_uuid)
    }

    /// The key that the same call made; `None`: it was another.
    pub(crate) fn same_key(&self, call: &Idempotency) -> Option<ApiKeyId> {
        let is_same = self.request_sha256 == call.request_sha256 && self.seq.is_none();
        self.object_id.filter(|_| is_same).map(ApiKeyId::from_uuid)
    }

    /// The session that the same call made or changed; `None`: it was another.
    pub(crate) fn same_session(&self, call: &Idempotency) -> Option<SessionId> {
        let is_same = self.request_sha256 == call.request_sha256 && self.seq.is_none();
        self.object_id.filter(|_| is_same).map(SessionId::from_uuid)
    }

    /// The erasure that the same call made; `None`: it was another call. Once
    /// the erasure has removed what it selects, its request is forgotten.
    pub(crate) fn same_erasure(&self, call: &Idempotency) -> Option<ErasureId> {
        let is_same = self.request_sha256 == call.request_sha256 || self.request_sha256 == FORGOTTEN;
        let is_same = is_same && self.seq.is_none();
        self.object_id.filter(|_| is_same).map(ErasureId::from_uuid)
    }
}

/// A live memory with all that the API shows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// Its current state.
    pub head: Head,
    /// Whether it never expires.
    pub is_pinned: bool,
    /// When it was made.
    pub created_at: Timestamp,
    /// When its path, content or existence last changed.
    pub updated_at: Timestamp,
    /// When it was last read, as far as reads have been written.
    pub last_read_at: Option<Timestamp>,
    /// The latest sign of life that was written beside a read.
    pub active_at: Option<Timestamp>,
}

/// A memory looked for by its id, in a store that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundMemory {
    /// The store.
    pub store: StoreState,
    /// When its memories expire.
    pub expiry: Expiry,
    /// What the id names.
    pub target: MemoryTarget,
}

/// What a memory's id names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryTarget {
    /// Nothing of this store.
    Missing,
    /// A live memory.
    Live(Memory),
    /// A memory that was deleted, while versions of it are kept.
    Deleted {
        /// The version that deleted it.
        version_id: VersionId,
        /// When the memory was made.
        created_at: Timestamp,
        /// Whether it was never to expire.
        is_pinned: bool,
        /// When it was last read, as far as reads have been written.
        last_read_at: Option<Timestamp>,
        /// The latest sign of life that was written beside a read.
        active_at: Option<Timestamp>,
    },
}

/// How deep a listing goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Every memory below the directory.
    All,
    /// What is directly in the directory; what is deeper is told by its
    /// directory alone.
    Children,
}

/// What is asked of a store's memories, in byte order of their paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryListing {
    /// The directory.
    pub below: DirPath,
    /// How deep.
    pub depth: Depth,
    /// The path of the item before the first one wanted; a directory's ends
    /// in `/`.
    pub after: Option<String>,
    /// Items, at most.
    pub limit: u32,
}

/// A part of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPage {
    /// The store.
    pub store: StoreState,
    /// When its memories expire.
    pub expiry: Expiry,
    /// The items.
    pub items: Vec<MemoryItem>,
}

/// One item of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryItem {
    /// A memory.
    Memory {
        /// What there is of it.
        memory: Box<Memory>,
        /// What it begins with, cut to what listings show.
        first_line: String,
    },
    /// A directory with memories somewhere below it.
    Prefix(DirPath),
}

/// A memory's pin, set or left as it is; writes no version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// The store.
    pub store_id: StoreId,
    /// The memory.
    pub memory_id: MemoryId,
    /// The head that was read.
    pub expected: VersionId,
    /// Whether it never expires from now on; `None`: as it is when the call is
    /// recorded, whatever it was when the memory was read.
    pub is_pinned: Option<bool>,
    /// Makes the call idempotent.
    pub idempotency: Option<Idempotency>,
    /// When.
    pub now: Timestamp,
}

/// How setting a pin went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PinOutcome {
    /// It is set, or kept.
    Done {
        /// Whether the memory never expires.
        is_pinned: bool,
    },
    /// The same call was made before.
    Replayed {
        /// The version that call made or left.
        seq: i64,
    },
    /// The call's name was used for another request.
    KeyReused,
    /// The head is not the one that was read.
    Stale,
    /// The store takes no changes.
    Archived,
    /// There is no such store.
    NoStore,
}
