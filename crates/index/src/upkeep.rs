//! Upkeep: compares blobs with rows, recounts counters, and deletes expired rows.

use std::collections::BTreeMap;

use async_trait::async_trait;
use keepsake_core::{BlobKey, ContentHash, DirPath, MemoryPath, StoreId, TenantId, Timestamp, VersionId};

use crate::IndexError;
use crate::commit::{CommitPlan, DirectoryDelta};
use crate::directories::Directories;

/// Access to the rows of every tenant, for the jobs and `keepsake verify`.
#[async_trait]
pub trait UpkeepIndex: Send + Sync {
    /// The first `limit` rows that reference a blob with a key after `after`, ordered
    /// by key.
    ///
    /// Versions that reference the same blob with the same size and hash give one row.
    /// Versions of deleted stores are included until they are purged.
    async fn named_blobs(&self, after: Option<&BlobKey>, limit: u32) -> Result<Vec<NamedBlob>, IndexError>;

    /// Whether a version of a store that is not deleted references a blob.
    async fn blob_is_named(&self, key: &BlobKey) -> Result<bool, IndexError>;

    /// The next stores after a given one that are not deleted, by tenant and id.
    async fn stores_after(
        &self,
        after: Option<(TenantId, StoreId)>,
        limit: u32,
    ) -> Result<Vec<(TenantId, StoreId)>, IndexError>;

    /// Counts a store's data and compares the result with its counters; `None`: the
    /// store does not exist or is deleted.
    ///
    /// Without `mends`, it reads one snapshot of the store and takes no lock. With
    /// `mends`, it counts under the locks of tenant and store and writes the result; it
    /// returns the difference from before the write.
    async fn recount_store(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        mends: bool,
    ) -> Result<Option<StoreCount>, IndexError>;

    /// The next tenants after a given one, by id, without those being deleted.
    async fn tenants_after(&self, after: Option<TenantId>, limit: u32) -> Result<Vec<TenantId>, IndexError>;

    /// Counts a tenant's stores and their grants, in the same way as
    /// [`Self::recount_store`].
    async fn recount_tenant(
        &self,
        tenant_id: TenantId,
        mends: bool,
    ) -> Result<Option<TenantCount>, IndexError>;

    /// Removes records of calls made before a time, among the next `limit` after a
    /// given one; with `is_dry` it only counts them.
    async fn prune_calls(
        &self,
        after: Option<&CallKey>,
        before: Timestamp,
        limit: u32,
        is_dry: bool,
    ) -> Result<PrunedCalls, IndexError>;

    /// Removes at most `limit` rows from before a time; with `is_dry` it counts all
    /// such rows. Returns the number.
    async fn prune(
        &self,
        what: Prunable,
        before: Timestamp,
        limit: u32,
        is_dry: bool,
    ) -> Result<u64, IndexError>;
}

/// A blob reference in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedBlob {
    /// Its key.
    pub key: BlobKey,
    /// The expected size.
    pub size_bytes: u64,
    /// The expected hash; `None`: the row's hash is invalid.
    pub sha256: Option<ContentHash>,
    /// Whether readers may still need it: its store is not deleted.
    pub is_live: bool,
}

/// The key of a call record.
pub type CallKey = (TenantId, [u8; 32]);

/// The result of one batch of call records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrunedCalls {
    /// Records that were removed, or would be.
    pub rows: u64,
    /// The last record that was read; `None`: there are no further records.
    pub last: Option<CallKey>,
}

/// Rows that expire after some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prunable {
    /// Job runs, by start time.
    JobRuns,
    /// Entries of the change feed.
    ChangeFeed,
    /// Replicas, by last heartbeat.
    Replicas,
    /// Session events, by time.
    SessionEvents,
    /// Events of ended sessions, which were archived before the time or deleted.
    EventsOfEndedSessions,
    /// Entries of the tenants' audit logs, by time; the operator's audit log is kept
    /// forever.
    Audit,
    /// Attachments of ended sessions.
    ResourcesOfEndedSessions,
    /// Ended sessions without remaining events or attachments.
    EndedSessions,
}

/// A counter's stored value and its true value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counter {
    /// The value in the row.
    pub recorded: i64,
    /// The counted value.
    pub counted: i64,
}

impl Counter {
    /// Whether the two values differ.
    pub const fn has_drifted(&self) -> bool {
        self.recorded != self.counted
    }
}

/// The recount of a store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreCount {
    /// Live memories.
    pub memory_count: Counter,
    /// Bytes of the live memories.
    pub live_bytes: Counter,
    /// Retained versions.
    pub version_count: Counter,
    /// Bytes of the blobs that versions reference.
    pub version_bytes: Counter,
    /// Directories with a wrong, missing or superfluous row.
    pub directories: Vec<DirPath>,
    /// Live memories whose head is not a version of the store; a recount cannot repair
    /// these.
    pub lost_heads: u64,
    /// Bytes that the store holds beyond its grant.
    pub overdrawn_bytes: u64,
}

impl StoreCount {
    /// Whether there is a difference that a recount repairs.
    pub fn has_drifted(&self) -> bool {
        let counters = [
            self.memory_count,
            self.live_bytes,
            self.version_count,
            self.version_bytes,
        ];
        counters.iter().any(Counter::has_drifted) || !self.directories.is_empty() || self.overdrawn_bytes > 0
    }
}

/// The recount of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TenantCount {
    /// Stores that are not deleted.
    pub store_count: Counter,
    /// The sum of their grants.
    pub granted_bytes: Counter,
}

impl TenantCount {
    /// Whether a stored value is wrong.
    pub const fn has_drifted(&self) -> bool {
        self.store_count.has_drifted() || self.granted_bytes.has_drifted()
    }
}

/// A store's row, as a recount reads it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recorded {
    pub(crate) memory_count: i64,
    pub(crate) live_bytes: i64,
    pub(crate) version_count: i64,
    pub(crate) version_bytes: i64,
    pub(crate) granted_bytes: i64,
}

/// A recount in progress: memories are read in pages, then the rest.
#[derive(Debug, Default)]
pub(crate) struct Recount {
    memories: CommitPlan,
}

impl Recount {
    /// Counts a live memory.
    pub(crate) fn add(&mut self, path: &MemoryPath, size_bytes: u64) {
        self.memories.arrive(path, size_bytes);
    }

    /// The correct row of every directory.
    fn directories(&self) -> BTreeMap<DirPath, DirectoryDelta> {
        let mut directories = Directories::of(&self.memories.directories, &BTreeMap::new()).moved;
        directories.entry(DirPath::root()).or_default();
        directories
    }

    /// Compares the counts with the stored rows; `versions` are their number and the
    /// bytes of the referenced blobs.
    ///
    /// Also returns the correct rows of wrong directories.
    pub(crate) fn compare(
        self,
        recorded: Recorded,
        versions: (i64, i64),
        lost_heads: u64,
        mut rows: BTreeMap<DirPath, DirectoryDelta>,
    ) -> (StoreCount, Wrong) {
        let counter = |recorded, counted| Counter { recorded, counted };
        let mut wrong = BTreeMap::new();
        for (path, expected) in self.directories() {
            if rows.remove(&path) != Some(expected) {
                wrong.insert(path, Some(expected));
            }
        }
        wrong.extend(rows.into_keys().map(|path| (path, None)));
        let count = StoreCount {
            memory_count: counter(recorded.memory_count, self.memories.count_delta),
            live_bytes: counter(recorded.live_bytes, self.memories.byte_delta),
            version_count: counter(recorded.version_count, versions.0),
            version_bytes: counter(recorded.version_bytes, versions.1),
            directories: wrong.keys().cloned().collect(),
            lost_heads,
            overdrawn_bytes: u64::try_from(self.memories.byte_delta - recorded.granted_bytes)
                .unwrap_or_default(),
        };
        (count, wrong)
    }
}

/// Live memories per page of a recount.
pub(crate) const MEMORIES_AT_ONCE: i64 = 1000;

/// The correct rows of a store's wrong directories; `None`: the row must be
/// deleted.
pub(crate) type Wrong = BTreeMap<DirPath, Option<DirectoryDelta>>;

/// A key before every other key.
pub(crate) const FIRST_KEY: BlobKey = BlobKey {
    tenant_id: TenantId::from_uuid(uuid::Uuid::nil()),
    store_id: StoreId::from_uuid(uuid::Uuid::nil()),
    blob_id: VersionId::from_uuid(uuid::Uuid::nil()),
};

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> MemoryPath {
        MemoryPath::parse(text).unwrap()
    }

    fn directory(files: i64, size_bytes: i64, visible_children: i64) -> DirectoryDelta {
        DirectoryDelta {
            files,
            size_bytes,
            visible_children,
        }
    }

    #[test]
    fn directories_are_counted_from_the_memories_in_them() {
        let mut recount = Recount::default();
        for (at, size_bytes) in [("/a/b/c.md", 3), ("/a/.hidden", 5), ("/d.md", 7)] {
            recount.add(&path(at), size_bytes);
        }
        let directories = recount.directories();
        let shown: Vec<_> = directories
            .iter()
            .map(|(path, counts)| (path.as_str(), *counts))
            .collect();
        assert_eq!(
            shown,
            [
                ("/", directory(3, 15, 2)),
                ("/a/", directory(2, 8, 1)),
                ("/a/b/", directory(1, 3, 1)),
            ]
        );
    }

    #[test]
    fn rows_that_are_wrong_missing_or_too_many_are_told() {
        let mut recount = Recount::default();
        recount.add(&path("/a/b.md"), 3);
        let recorded = Recorded {
            memory_count: 2,
            live_bytes: 3,
            version_count: 1,
            version_bytes: 3,
            granted_bytes: 2,
        };
        let dir = |text: &str| path(&format!("{text}x")).parent();
        let rows = BTreeMap::from([
            (DirPath::root(), directory(1, 4, 1)),
            (dir("/old/"), directory(1, 1, 1)),
        ]);
        let (count, wrong) = recount.compare(recorded, (1, 3), 0, rows);
        assert!(count.memory_count.has_drifted() && !count.live_bytes.has_drifted());
        assert_eq!(count.overdrawn_bytes, 1);
        assert!(count.has_drifted());
        let shown: Vec<_> = wrong
            .iter()
            .map(|(path, counts)| (path.as_str(), *counts))
            .collect();
        assert_eq!(
            shown,
            [
                ("/", Some(directory(1, 3, 1))),
                ("/a/", Some(directory(1, 3, 1))),
                ("/old/", None),
            ]
        );
    }

    #[test]
    fn store_of_nothing_has_its_root() {
        let recorded = Recorded {
            memory_count: 0,
            live_bytes: 0,
            version_count: 0,
            version_bytes: 0,
            granted_bytes: 0,
        };
        let rows = BTreeMap::from([(DirPath::root(), DirectoryDelta::default())]);
        let (count, wrong) = Recount::default().compare(recorded, (0, 0), 0, rows);
        assert!(!count.has_drifted() && wrong.is_empty());
        let (count, _) = Recount::default().compare(recorded, (0, 0), 0, BTreeMap::new());
        assert!(count.has_drifted(), "no store is without its root");
    }
}
