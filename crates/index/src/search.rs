//! Search terms of memories: written by commits, read by replicas for searches, and
//! added to older memories by a job.
//!
//! The index does not interpret the terms; it stores them with their content.

use std::sync::Arc;

use async_trait::async_trait;
use keepsake_core::{ContentHash, MemoryId, MemoryPath, StoreId, TenantId, Timestamp, VersionId};

use crate::IndexError;

/// The search terms of one content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchRow {
    /// The version of the analyser that made them; higher is newer.
    pub analyser: u32,
    /// The length of the content, as that analyser counts it.
    pub length: u32,
    /// The terms, encoded by that analyser.
    pub terms: Vec<u8>,
}

/// The position up to which a store's history was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchPlace {
    /// The sequence number of the last version.
    pub seq: i64,
    /// The purge epoch at that time.
    pub purge_epoch: i64,
    /// The version with that sequence number; `None`: retention removed it. A restored
    /// database has another version there, or none.
    pub version_id: Option<VersionId>,
}

impl SearchPlace {
    /// Its order among the positions of one history.
    pub const fn order(&self) -> (i64, i64) {
        (self.purge_epoch, self.seq)
    }
}

/// The state of a replica's search index, to request later changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchSince {
    /// The position up to which it is current; `None`: it is empty.
    pub place: Option<SearchPlace>,
    /// The version of the analyser whose terms the replica can read.
    pub analyser: u32,
    /// Memories that had no terms at the last read, and are read again.
    pub unindexed: Vec<MemoryId>,
    /// Whether the reply may contain all memories. If it is `false` and a complete
    /// reply is needed, the reply says only that.
    pub may_be_whole: bool,
}

/// The changes of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchChanges {
    /// The position of the changes. Content may be read under its purge epoch.
    pub place: SearchPlace,
    /// Whether these are all memories of the store, so that others must be dropped: the
    /// request had no position, history was removed since, or the database was restored
    /// since.
    pub is_whole: bool,
    /// The changed memories, unordered.
    pub memories: Vec<SearchChange>,
}

/// The change of one memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchChange {
    /// The memory.
    pub memory_id: MemoryId,
    /// The memory's current state; `None`: it no longer exists.
    pub head: Option<SearchHead>,
}

/// The state of a memory that search needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchHead {
    /// Its path.
    pub path: MemoryPath,
    /// The blob that holds its content.
    pub blob_id: VersionId,
    /// SHA-256 of its content.
    pub sha256: ContentHash,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// The terms of this content; `None`: it has none, or only those of another
    /// analyser.
    pub terms: Option<Arc<[u8]>>,
}

/// A memory's position in the order in which the job reads memories.
pub type MemoryPlace = (TenantId, StoreId, MemoryId);

/// A page of memories, read by the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnindexedPage {
    /// The number of memories read.
    pub looked_at: u64,
    /// The last of these memories; `None`: none is left.
    pub last: Option<MemoryPlace>,
    /// Memories whose content has no terms, or terms of an older analyser.
    pub unindexed: Vec<Unindexed>,
}

/// A memory whose content needs analysis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unindexed {
    /// Its position.
    pub place: MemoryPlace,
    /// The blob that holds its content.
    pub blob_id: VersionId,
    /// SHA-256 of its content.
    pub sha256: ContentHash,
    /// The store's purge epoch, under which the content may be read.
    pub purge_epoch: i64,
}

/// The reads of a search.
#[async_trait]
pub trait SearchIndex: Send + Sync {
    /// Returns the changes of a store since a position, in one query, or the whole
    /// store, in one more; `None`: the store does not exist.
    ///
    /// The cost grows with the size of the result. The result may include changes after
    /// the returned position and purge epoch; a later call returns those again.
    async fn search_changes(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        since: &SearchSince,
    ) -> Result<Option<SearchChanges>, IndexError>;
}

/// Adds search terms to memories whose commit did not write them.
#[async_trait]
pub trait SearchUpkeepIndex: Send + Sync {
    /// Reads the next `limit` live memories of all tenants after a position.
    async fn unindexed_memories(
        &self,
        after: Option<MemoryPlace>,
        analyser: u32,
        limit: u32,
    ) -> Result<UnindexedPage, IndexError>;

    /// Writes the terms of memories of one store, under its lock; returns the number of
    /// memories written.
    ///
    /// Skips a memory if its content has changed, or if it already has terms by the
    /// same or a newer analyser.
    async fn put_search_rows(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        rows: &[(MemoryId, VersionId, SearchRow)],
    ) -> Result<u64, IndexError>;
}
