//! Commits: a set of changes, and their effect on counters and directories.
//!
//! Both databases write the same [`CommitPlan`], so the arithmetic exists only once.

mod document;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keepsake_core::path::is_visible;
use keepsake_core::{
    Actor, Content, DirPath, MemoryId, MemoryPath, Refused, SensitiveDataPolicy, StoreId, Timestamp,
    VersionId,
};
use serde::Deserialize;
use uuid::Uuid;

use crate::model::{
    Expiry, ExpiryChange, Head, Idempotency, MemoryTarget, Operation, SearchRow, StoredContent,
};
use crate::numbers::signed;

pub(crate) use document::directory_of;

/// If a version's time is further ahead of the clock than this, the clock was ahead when
/// the version was written, and has been set back since.
pub const CLOCK_AHEAD_AT_MOST: Duration = Duration::from_mins(1);

/// How much earlier than the last change below it the stored time of a directory may be.
pub(crate) const MAX_DIRECTORY_TIME_LAG: Duration = Duration::from_mins(1);

/// Changes of one store that are applied atomically.
#[derive(Debug, Clone)]
pub struct Commit {
    pub store_id: StoreId,
    /// The commit time. The new versions are not earlier than the store's last version,
    /// unless that one is further ahead than [`CLOCK_AHEAD_AT_MOST`].
    pub now: Timestamp,
    /// `None` for a job or the operator.
    pub actor: Option<Actor>,
    /// The committing replica; the commit ends its claims on the memories.
    pub replica: Uuid,
    /// Maximum number of live memories in the store.
    pub memory_limit: u64,
    /// Maximum bytes of live memories in the store.
    pub byte_limit: u64,
    pub idempotency: Option<Idempotency>,
    pub guard: Option<Guard>,
    /// Refuses the commit if history was removed since this epoch was read. Needed for
    /// changes that refer to the content of a version other than a head.
    pub purge_epoch: Option<i64>,
    /// Refuses the commit if the store has another last version now. Needed for a change whose outcome was
    /// tested.
    pub seq: Option<i64>,
    /// Needed for a change that another memory allowed.
    pub path_guard: Option<PathGuard>,
    /// Refuses the commit if the store now has another policy. Needed for content with
    /// sensitive data, which was checked under this policy.
    pub policy: Option<SensitiveDataPolicy>,
    /// At most one per memory.
    pub changes: Vec<CommitChange>,
    /// Whether the index stores the new contents; if not, an object store has them.
    pub has_content_in_index: bool,
    /// None of these memories is in `changes`.
    pub kept: Vec<KeptMemory>,
    /// The result of each operation of a batch, for the record of an idempotent call.
    pub results: Option<String>,
    /// Whether the changes may take paths that other changes of the commit leave, as when two
    /// memories swap their paths. No two changes may take the same path, or one below the other.
    pub reuses_paths: bool,
}

/// Refuses the commit unless a directory still has the same number of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    pub directory: DirPath,
    /// Files below the directory when the caller read it.
    pub files: u64,
}

/// Refuses the commit unless the memory at a path still has the version that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathGuard {
    pub path: MemoryPath,
    /// `None`: there was no memory.
    pub version_id: Option<VersionId>,
}

/// A memory that gets no version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptMemory {
    pub memory_id: MemoryId,
    /// The head that the caller read. The commit is refused if it has changed.
    pub expected: VersionId,
    /// `None` keeps the value at the time of the commit, even if it differs from the value that
    /// the caller read.
    pub expiry: ExpiryChange,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitChange {
    pub memory_id: MemoryId,
    /// The version that the change creates.
    pub version_id: VersionId,
    pub wanted: ProposedChange,
    /// The search terms of the content that the change brings.
    pub search: Option<SearchRow>,
}

/// A change of one memory; a commit adds ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProposedChange {
    pub from: Origin,
    /// The path after the change; `None`: the change deletes the memory.
    pub path: Option<MemoryPath>,
    pub content: NewContent,
    pub expiry: ExpiryChange,
    /// The oldest version that the change takes back.
    pub undoes: Option<VersionId>,
}

/// The content after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewContent {
    /// As before; the content of a deleted memory goes.
    Kept,
    /// Within the limit per memory; its blob gets the id of the change's own version. The client
    /// relies on it being stored as sent, unless an edit made it.
    New(Content),
    /// The content of an earlier version.
    Restored(StoredContent, Arc<str>),
}

/// The memory before a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    New,
    /// A live memory, as the caller read it.
    Live(Head),
    /// A deleted memory, and the version that deleted it.
    Deleted(MemoryId, VersionId),
}

impl Origin {
    /// The live memory.
    pub const fn head(&self) -> Option<&Head> {
        match self {
            Self::Live(head) => Some(head),
            Self::New | Self::Deleted(..) => None,
        }
    }
}

impl From<MemoryTarget> for Origin {
    fn from(target: MemoryTarget) -> Self {
        match target {
            MemoryTarget::Missing => Self::New,
            MemoryTarget::Live(memory) => Self::Live(memory.head),
            MemoryTarget::Deleted { memory_id, version_id, .. } => Self::Deleted(memory_id, version_id),
        }
    }
}

impl NewContent {
    /// `None`: the change brings no content.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::New(content) => Some(content.as_str()),
            Self::Restored(_, text) => Some(text),
            Self::Kept => None,
        }
    }
}

impl ProposedChange {
    /// Stores a file with this path and content.
    pub fn store(from: Origin, path: MemoryPath, content: NewContent) -> Self {
        Self { from, path: Some(path), content, expiry: ExpiryChange::default(), undoes: None }
    }

    pub fn rename(before: Head, path: MemoryPath) -> Self {
        Self::store(Origin::Live(before), path, NewContent::Kept)
    }

    pub fn delete(before: Head) -> Self {
        let (path, content, expiry) = (None, NewContent::Kept, ExpiryChange::default());
        Self { from: Origin::Live(before), path, content, expiry, undoes: None }
    }

    /// The live memory before the change.
    pub const fn head(&self) -> Option<&Head> {
        self.from.head()
    }

    /// The memory, if its path and content stay unchanged.
    pub fn same(&self) -> Option<&Head> {
        let NewContent::New(content) = &self.content else {
            return None;
        };
        let is_same =
            |head: &&Head| self.path.as_ref() == Some(&head.path) && content.hash() == head.content.sha256;
        self.head().filter(is_same)
    }

    /// Whether the change brings the content of an earlier version.
    pub const fn restores(&self) -> bool {
        matches!(self.content, NewContent::Restored(..))
    }
}

impl KeptMemory {
    pub const fn of(head: &Head, expiry: ExpiryChange) -> Self {
        Self { memory_id: head.memory_id, expected: head.version_id, expiry }
    }
}

impl Commit {
    /// A commit of changes without an author, limits and conditions.
    pub fn of(store_id: StoreId, now: Timestamp, replica: Uuid, changes: Vec<CommitChange>) -> Self {
        Self {
            store_id,
            now,
            actor: None,
            replica,
            memory_limit: u64::MAX,
            byte_limit: u64::MAX,
            idempotency: None,
            guard: None,
            purge_epoch: None,
            seq: None,
            path_guard: None,
            policy: None,
            changes,
            has_content_in_index: true,
            kept: Vec::new(),
            results: None,
            reuses_paths: false,
        }
    }

    /// Whether the commit does more than delete memories.
    pub(crate) fn adds(&self) -> bool {
        !self.kept.is_empty() || self.changes.iter().any(|change| change.wanted.path.is_some())
    }

    /// Bytes of new contents and search terms.
    pub(crate) fn bytes(&self) -> usize {
        self.parts().map(<[u8]>::len).sum()
    }

    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.changes.iter().flat_map(move |change| self.parts_of(change)).flatten()
    }

    /// A new content that the index stores, and the search terms.
    fn parts_of<'a>(&self, change: &'a CommitChange) -> [Option<&'a [u8]>; 2] {
        let content = change.new_content().filter(|_| self.has_content_in_index);
        let terms = change.search.as_ref().map(|row| row.terms.as_slice());
        [content.map(|content| content.as_str().as_bytes()), terms]
    }
}

impl CommitChange {
    /// The operation that the version stores; `Created` also for a restored memory.
    pub const fn operation(&self) -> Operation {
        match (&self.wanted.from, &self.wanted.path) {
            (Origin::New | Origin::Deleted(..), _) => Operation::Created,
            (Origin::Live(_), Some(_)) => Operation::Modified,
            (Origin::Live(_), None) => Operation::Deleted,
        }
    }

    /// The memory's version before the change; `None`: the memory is new.
    pub const fn expected_version(&self) -> Option<VersionId> {
        match &self.wanted.from {
            Origin::New => None,
            Origin::Live(head) => Some(head.version_id),
            Origin::Deleted(_, version_id) => Some(*version_id),
        }
    }

    /// The path and the content after the change; `None`: the memory is deleted.
    pub fn after(&self) -> Option<(&MemoryPath, StoredContent)> {
        let content = match &self.wanted.content {
            NewContent::New(new) => {
                let (size_bytes, sha256) = (new.size_bytes(), new.hash());
                Some(StoredContent { blob_id: self.version_id, size_bytes, sha256 })
            }
            NewContent::Restored(stored, _) => Some(*stored),
            NewContent::Kept => self.wanted.head().map(|head| head.content),
        };
        self.wanted.path.as_ref().zip(content)
    }

    /// The memory after the change, which has the sequence number `seq`; `None`: it is
    /// deleted.
    pub fn head(&self, seq: i64) -> Option<Head> {
        let (path, content) = self.after()?;
        let (memory_id, version_id) = (self.memory_id, self.version_id);
        Some(Head { memory_id, path: path.clone(), version_id, seq, content, claim: None })
    }

    /// The memory's path after the change; for a deletion, its last path.
    pub fn path(&self) -> Option<&MemoryPath> {
        self.wanted.path.as_ref().or_else(|| self.wanted.head().map(|before| &before.path))
    }

    /// The content that the change brings.
    pub const fn new_content(&self) -> Option<&Content> {
        match &self.wanted.content {
            NewContent::New(content) => Some(content),
            NewContent::Restored(..) | NewContent::Kept => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum CommitOutcome {
    Committed {
        /// The sequence number of the last version.
        seq: i64,
        /// The store's purge epoch, for cache entries of the content.
        purge_epoch: i64,
        /// The time of the new versions.
        #[serde(deserialize_with = "crate::numbers::micros")]
        at: Timestamp,
        /// The expiry of the store's memories.
        expiry: Expiry,
    },
    /// The same call was made earlier; nothing was written now.
    Replayed {
        /// The last version that the earlier call created.
        seq: i64,
    },
    /// No such store.
    NoStore,
    /// Nothing was written: a head, a directory, the memory of the path guard or the store's policy
    /// has changed since it was read.
    Stale,
    /// Nothing was written: the store first needs a larger grant of its tenant's bytes.
    NeedsGrant {
        /// Bytes that the store would hold.
        size_bytes: u64,
    },
    /// Nothing was written: a referenced blob is queued for deletion.
    BlobCondemned,
    #[serde(untagged)]
    Refused(Refused),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DirectoryDelta {
    /// Files at any depth below the directory.
    pub files: i64,
    /// Bytes of these files.
    pub size_bytes: i64,
    /// Files directly in the directory that a listing shows.
    pub visible_children: i64,
}

/// The effects of a commit's changes on counters and directories.
#[derive(Debug, Default)]
pub(crate) struct CommitPlan {
    /// Change of the number of live memories.
    pub count_delta: i64,
    /// Change of the bytes of live memories.
    pub byte_delta: i64,
    /// Bytes of contents that the new versions bring.
    pub version_bytes: i64,
    /// Whether a directory may have lost its last file.
    pub directories_may_go: bool,
    /// Paths that the commit occupies.
    pub taken_paths: Vec<String>,
    /// Parents of `taken_paths`, none of which may be a file.
    pub ancestor_files: Vec<String>,
    /// Memories that leave a path which another change takes.
    pub makes_room: Vec<MemoryId>,
    /// Directories whose path a change takes, and the files that leave each of them, which must be
    /// all its files.
    pub replaced_directories: Vec<(DirPath, u64)>,
    /// Changes of directories, without directories whose counts stay the same.
    pub directories: BTreeMap<DirPath, DirectoryDelta>,
    /// Directories with a change below them, whose counts stay the same.
    pub touched_directories: Vec<DirPath>,
}

impl CommitPlan {
    pub(crate) fn of(commit: &Commit) -> Self {
        let mut plan = Self::of_changes(&commit.changes);
        if commit.reuses_paths {
            plan.reuse_paths(&commit.changes);
        }
        plan
    }

    fn of_changes(changes: &[CommitChange]) -> Self {
        let mut plan = Self::default();
        let mut ancestors = std::collections::BTreeSet::new();
        for change in changes {
            if let Some(before) = change.wanted.head() {
                plan.shift(&before.path, -1, -signed(before.content.size_bytes));
            }
            if let Some((path, content)) = change.after() {
                plan.shift(path, 1, signed(content.size_bytes));
                if content.blob_id == change.version_id {
                    plan.version_bytes += signed(content.size_bytes);
                }
            }
            let moved_from = change.wanted.head().map(|before| &before.path);
            let moved_to = change.wanted.path.as_ref();
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
        let touched = &mut plan.touched_directories;
        plan.directories.retain(|path, delta| {
            let is_moved = *delta != DirectoryDelta::default();
            if !is_moved {
                touched.push(path.clone());
            }
            is_moved
        });
        plan
    }

    /// Leaves out paths that the commit itself leaves: these need not be free before. The commit
    /// compares the heads with the heads that were read, so each memory is at the path that it leaves.
    fn reuse_paths(&mut self, changes: &[CommitChange]) {
        let left: BTreeMap<&str, MemoryId> = changes
            .iter()
            .filter_map(|change| {
                let before = change.wanted.head()?;
                let stays = change.wanted.path.as_ref() == Some(&before.path);
                (!stays).then_some((before.path.as_str(), before.memory_id))
            })
            .collect();
        let (mut makes_room, mut replaced) = (Vec::new(), Vec::new());
        self.taken_paths.retain(|path| {
            if let Some(memory_id) = left.get(path.as_str()) {
                makes_room.push(*memory_id);
                return false;
            }
            let directory = DirPath::from_trusted(format!("{path}/"));
            let below = left.range(directory.as_str()..);
            let files = below.take_while(|(path, _)| path.starts_with(directory.as_str())).count();
            if files > 0 {
                replaced.push((directory, files as u64));
            }
            files == 0
        });
        self.ancestor_files.retain(|file| !left.contains_key(file.as_str()));
        (self.makes_room, self.replaced_directories) = (makes_room, replaced);
    }

    /// Computes the effects of removing memories with these paths and sizes.
    pub(crate) fn leaving(memories: &[(MemoryPath, u64)]) -> Self {
        let mut plan = Self::default();
        for (path, size_bytes) in memories {
            plan.shift(path, -1, -signed(*size_bytes));
        }
        plan.directories_may_go = !memories.is_empty();
        plan
    }

    /// Adds the effects of one new memory.
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
            self.directories.entry(path.parent()).or_default().visible_children += files;
        }
    }
}
