//! What keeps the two stores true to each other: names of blobs, recounts of
//! counters, the end of rows that nothing needs any more.

use std::collections::BTreeMap;

use async_trait::async_trait;
use keepsake_core::{BlobKey, ContentHash, DirPath, MemoryPath, StoreId, TenantId, Timestamp, VersionId};

use crate::IndexError;
use crate::commit::{CommitPlan, DirectoryDelta};
use crate::directories::Directories;

/// What the jobs and `keepsake verify` ask of the rows of every tenant.
#[async_trait]
pub trait UpkeepIndex: Send + Sync {
    /// The first `limit` rows that name a blob whose key follows `after`, in
    /// the order of the keys.
    ///
    /// Versions that name the same blob with the same size and hash are one.
    /// Those of deleted stores are among them until they are purged.
    async fn named_blobs(&self, after: Option<&BlobKey>, limit: u32) -> Result<Vec<NamedBlob>, IndexError>;

    /// Whether a version of a store that is not deleted names a blob.
    async fn blob_is_named(&self, key: &BlobKey) -> Result<bool, IndexError>;

    /// The first stores after one that are not deleted, by tenant and id.
    async fn stores_after(
        &self,
        after: Option<(TenantId, StoreId)>,
        limit: u32,
    ) -> Result<Vec<(TenantId, StoreId)>, IndexError>;

    /// Counts what a store holds, beside what its counters say; `None`: there
    /// is no such store, or it is deleted.
    ///
    /// Without `mends` it reads one state of the store and waits for nobody.
    /// With it, it counts under the locks of tenant and store and writes what
    /// it counted; what it answers was so before.
    async fn recount_store(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        mends: bool,
    ) -> Result<Option<StoreCount>, IndexError>;

    /// The first tenants after one, by id, that are not to go.
    async fn tenants_after(&self, after: Option<TenantId>, limit: u32) -> Result<Vec<TenantId>, IndexError>;

    /// Counts a tenant's stores and what they were granted, as
    /// [`Self::recount_store`] does a store.
    async fn recount_tenant(
        &self,
        tenant_id: TenantId,
        mends: bool,
    ) -> Result<Option<TenantCount>, IndexError>;

    /// Removes records of calls made before a time, among the next `limit`
    /// after one; with `is_dry` it only counts them.
    async fn prune_calls(
        &self,
        after: Option<&CallKey>,
        before: Timestamp,
        limit: u32,
        is_dry: bool,
    ) -> Result<PrunedCalls, IndexError>;

    /// Removes at most `limit` rows from before a time; with `is_dry` it counts
    /// them all. Answers how many.
    async fn prune(
        &self,
        what: Prunable,
        before: Timestamp,
        limit: u32,
        is_dry: bool,
    ) -> Result<u64, IndexError>;
}

/// A blob as a row names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedBlob {
    /// Its key.
    pub key: BlobKey,
    /// Bytes it must have.
    pub size_bytes: u64,
    /// The hash it must have; `None`: the row has none that is one.
    pub sha256: Option<ContentHash>,
    /// Whether readers may still ask for it: its store is not deleted.
    pub is_live: bool,
}

/// The name of a recorded call.
pub type CallKey = (TenantId, [u8; 32]);

/// What a batch of records of calls came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrunedCalls {
    /// Records that went, or would.
    pub rows: u64,
    /// The last that was looked at; `None`: there are no more.
    pub last: Option<CallKey>,
}

/// Rows that are of no use after a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prunable {
    /// Runs of jobs, by when they began.
    JobRuns,
    /// Entries of the change feed.
    ChangeFeed,
    /// Replicas, by their last sign of life.
    Replicas,
    /// Events of sessions, by when they were.
    SessionEvents,
    /// Events of sessions that ended: archived before, or deleted.
    EventsOfEndedSessions,
    /// Entries of the tenants' audits, by when they were written; the
    /// operator's audit is kept for ever.
    Audit,
    /// Attachments of sessions that ended.
    ResourcesOfEndedSessions,
    /// Sessions that ended and that nothing belongs to any more.
    EndedSessions,
}

/// A counter's value, and what was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counter {
    /// What the row says.
    pub recorded: i64,
    /// What is there.
    pub counted: i64,
}

impl Counter {
    /// Whether the row is wrong.
    pub const fn has_drifted(&self) -> bool {
        self.recorded != self.counted
    }
}

/// What a store holds, beside what its rows say of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreCount {
    /// Live memories.
    pub memory_count: Counter,
    /// Their bytes.
    pub live_bytes: Counter,
    /// Versions kept.
    pub version_count: Counter,
    /// Bytes of the blobs that versions name.
    pub version_bytes: Counter,
    /// Directories whose rows are wrong, missing or too many.
    pub directories: Vec<DirPath>,
    /// Live memories whose head is no version of the store; none is mended.
    pub lost_heads: u64,
    /// Bytes that it holds beyond those that its tenant granted it.
    pub overdrawn_bytes: u64,
}

impl StoreCount {
    /// Whether something is wrong that a recount mends.
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

/// What a tenant has, beside what its row says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TenantCount {
    /// Stores that are not deleted.
    pub store_count: Counter,
    /// What they were granted together.
    pub granted_bytes: Counter,
}

impl TenantCount {
    /// Whether its row is wrong.
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

/// A recount under way: the memories come in pages, then the rest.
#[derive(Debug, Default)]
pub(crate) struct Recount {
    memories: CommitPlan,
}

impl Recount {
    /// Counts a live memory.
    pub(crate) fn add(&mut self, path: &MemoryPath, size_bytes: u64) {
        self.memories.arrive(path, size_bytes);
    }

    /// Every directory there must be.
    fn directories(&self) -> BTreeMap<DirPath, DirectoryDelta> {
        let mut directories = Directories::of(&self.memories.directories, &BTreeMap::new()).moved;
        directories.entry(DirPath::root()).or_default();
        directories
    }

    /// Compares with the rows there are: `versions` are their number and the
    /// bytes of the blobs they name.
    ///
    /// Answers also what the wrong directories must be.
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

/// Live memories that a recount reads at a time.
pub(crate) const MEMORIES_AT_ONCE: i64 = 1000;

/// What a store's wrong directories must be; `None`: gone.
pub(crate) type Wrong = BTreeMap<DirPath, Option<DirectoryDelta>>;

/// The place before the first key.
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
