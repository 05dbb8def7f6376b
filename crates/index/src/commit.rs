//! A commit: what is to change, and what follows from it.
//!
//! Both databases write the same [`CommitPlan`], so that the arithmetic of
//! counters and directories stands in one place.

use std::collections::BTreeMap;

use keepsake_core::path::is_visible;
use keepsake_core::{
    Actor, ContentHash, DirPath, MemoryId, MemoryPath, SensitiveDataPolicy, StoreId, Timestamp, VersionId,
};
use uuid::Uuid;

use crate::model::{Expiry, Head, Operation};
use crate::search::SearchRow;

/// Changes of one store that are made together or not at all.
#[derive(Debug, Clone)]
pub struct Commit {
    /// The store.
    pub store_id: StoreId,
    /// When; a version never dates from before the one it follows.
    pub now: Timestamp,
    /// Who; `None` for a job or the operator.
    pub actor: Option<Actor>,
    /// The replica that commits; its claims on the memories end.
    pub replica: Uuid,
    /// Live memories the store may hold.
    pub memory_limit: u64,
    /// Bytes of live memories the store may hold.
    pub byte_limit: u64,
    /// Makes the call idempotent.
    pub idempotency: Option<Idempotency>,
    /// Holds a whole directory to what was read of it.
    pub guard: Option<Guard>,
    /// Refuses the commit when history was removed since this epoch was read:
    /// for changes that name content of a version other than a head.
    pub purge_epoch: Option<i64>,
    /// Refuses the commit when the store has another policy: for content in
    /// which something sensitive was found, and which was judged under this one.
    pub policy: Option<SensitiveDataPolicy>,
    /// The changes; at most one per memory.
    pub changes: Vec<Change>,
}

/// An idempotent call's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Idempotency {
    /// Hash of what the key is scoped to, key included.
    pub scope_sha256: [u8; 32],
    /// Hash of the request.
    pub request_sha256: [u8; 32],
    /// Calls made before this are forgotten.
    pub since: Timestamp,
}

/// What an idempotent call made or changed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallMade {
    /// The object.
    pub(crate) object_id: Uuid,
    /// The store it is in, or is.
    pub(crate) store_id: Option<StoreId>,
    /// The version it left.
    pub(crate) version_seq: Option<i64>,
}

impl CallMade {
    /// A store.
    pub(crate) const fn store(store_id: StoreId) -> Self {
        Self {
            object_id: store_id.uuid(),
            store_id: Some(store_id),
            version_seq: None,
        }
    }

    /// What is in no store.
    pub(crate) const fn object(object_id: Uuid) -> Self {
        Self {
            object_id,
            store_id: None,
            version_seq: None,
        }
    }
}

/// Refuses the commit unless a directory still holds as many files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    /// The directory.
    pub directory: DirPath,
    /// Files below it when it was read.
    pub files: u64,
}

/// One memory's change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The memory.
    pub memory_id: MemoryId,
    /// The id of the version that the change makes.
    pub version_id: VersionId,
    /// The head that was read; `None`: the memory is new, or comes back.
    pub before: Option<Head>,
    /// The version that deleted the memory, which comes back now.
    pub revives: Option<VersionId>,
    /// What the memory becomes; `None`: it is deleted.
    pub after: Option<HeadChange>,
}

impl Change {
    /// The protocol's name of the change, as the version keeps it.
    ///
    /// A memory that comes back is `created` again.
    pub const fn operation(&self) -> Operation {
        match (&self.before, &self.after) {
            (None, _) => Operation::Created,
            (Some(_), Some(_)) => Operation::Modified,
            (Some(_), None) => Operation::Deleted,
        }
    }

    /// The memory's version before the change; `None`: the memory is new.
    pub fn expected_version(&self) -> Option<VersionId> {
        let before = self.before.as_ref().map(|before| before.version_id);
        before.or(self.revives)
    }

    /// Where the memory stands after the change, or stood when it was deleted.
    pub fn path(&self) -> Option<&MemoryPath> {
        let after = self.after.as_ref().map(|after| &after.path);
        after.or_else(|| self.before.as_ref().map(|before| &before.path))
    }
}

/// What a memory becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadChange {
    /// Where it stands then.
    pub path: MemoryPath,
    /// The blob that holds the content: the change's own version, or, when the
    /// content stays, the blob it had.
    pub blob_id: VersionId,
    /// Bytes of the content.
    pub size_bytes: u64,
    /// SHA-256 of the content.
    pub sha256: ContentHash,
    /// The content's first line; `None` when the content stays.
    pub first_line: Option<String>,
    /// Whether it never expires from now on; `None`: as before.
    pub is_pinned: Option<bool>,
    /// The content's search terms; `None` when the content stays.
    pub search: Option<SearchRow>,
}

/// How a commit ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitOutcome {
    /// Everything is written.
    Committed {
        /// The place of the last version in the store's order.
        seq: i64,
        /// The store's purge epoch, under which caches may keep the content.
        purge_epoch: i64,
        /// When its versions date from.
        at: Timestamp,
        /// When memories of the store expire.
        expiry: Expiry,
    },
    /// The same call was made before; nothing was written now.
    Replayed {
        /// The last version the first call made.
        seq: i64,
    },
    /// The call's name was used for another request; nothing was written.
    KeyReused,
    /// Nothing was written.
    Refused(Refusal),
}

/// Why a commit was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// No such store.
    NoStore,
    /// The store takes no new content.
    Archived,
    /// A head, a directory or the store's policy is not what was read.
    Stale,
    /// Another memory stands at the path.
    PathTaken {
        /// The path.
        path: String,
        /// The memory there.
        memory_id: MemoryId,
    },
    /// The path is a directory.
    PathIsDirectory {
        /// The directory, ending in `/`.
        path: String,
    },
    /// A path above it is a file.
    ParentIsFile {
        /// The file.
        path: String,
        /// The memory there.
        memory_id: MemoryId,
    },
    /// The store would hold too many memories.
    TooManyMemories {
        /// How many it would hold.
        count: u64,
    },
    /// The store would hold too many bytes.
    StoreFull {
        /// How many it would hold.
        size_bytes: u64,
    },
    /// The store must be granted more of its tenant's bytes first.
    NeedsGrant {
        /// How many it would hold.
        size_bytes: u64,
    },
    /// A blob named is queued for deletion.
    BlobCondemned,
}

/// How a directory moves by a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirectoryDelta {
    /// Files below it.
    pub files: i64,
    /// Bytes of the files below it.
    pub size_bytes: i64,
    /// Files directly in it that a listing shows.
    pub visible_children: i64,
}

/// What follows from a commit's changes.
#[derive(Debug, Default)]
pub struct CommitPlan {
    /// Live memories more or fewer.
    pub count_delta: i64,
    /// Bytes of live memories more or fewer.
    pub byte_delta: i64,
    /// Whether a directory may have lost its last file.
    pub directories_may_go: bool,
    /// Paths that become taken.
    pub taken_paths: Vec<String>,
    /// Paths above those that must not be files.
    pub ancestor_files: Vec<String>,
    /// Directories that move; empty deltas are left out.
    pub directories: BTreeMap<DirPath, DirectoryDelta>,
}

impl CommitPlan {
    /// Works out what follows from `changes`.
    pub fn of(changes: &[Change]) -> Self {
        let mut plan = Self::default();
        let mut ancestors = std::collections::BTreeSet::new();
        for change in changes {
            if let Some(before) = &change.before {
                plan.shift(&before.path, -1, -signed(before.size_bytes));
            }
            if let Some(after) = &change.after {
                plan.shift(&after.path, 1, signed(after.size_bytes));
            }
            let moved_from = change.before.as_ref().map(|before| &before.path);
            let moved_to = change.after.as_ref().map(|after| &after.path);
            if moved_from == moved_to {
                continue;
            }
            if let Some(path) = moved_to {
                plan.taken_paths.push(path.as_str().to_owned());
                ancestors.extend(path.ancestor_files().map(str::to_owned));
            }
            plan.directories_may_go |= moved_from.is_some();
        }
        plan.ancestor_files = ancestors.into_iter().collect();
        plan.directories
            .retain(|_, delta| *delta != DirectoryDelta::default());
        plan
    }

    /// Works out what follows when memories go, of these paths and sizes.
    pub(crate) fn leaving(memories: &[(MemoryPath, u64)]) -> Self {
        let mut plan = Self::default();
        for (path, size_bytes) in memories {
            plan.shift(path, -1, -signed(*size_bytes));
        }
        plan.directories_may_go = !memories.is_empty();
        plan
    }

    /// Adds what follows when a memory is there.
    pub(crate) fn arrive(&mut self, path: &MemoryPath, size_bytes: u64) {
        self.shift(path, 1, signed(size_bytes));
    }

    fn shift(&mut self, path: &MemoryPath, files: i64, size_bytes: i64) {
        self.count_delta += files;
        self.byte_delta += size_bytes;
        for directory in path.ancestors() {
            let delta = self.directories.entry(directory).or_default();
            delta.files += files;
            delta.size_bytes += size_bytes;
        }
        if is_visible(path.name()) {
            self.directories
                .entry(path.parent())
                .or_default()
                .visible_children += files;
        }
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
