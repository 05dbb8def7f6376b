//! Search terms of memories: what a commit writes of a content, what a replica
//! reads of a store to search it, and what the job writes of older memories.
//!
//! The index does not look into the terms: it keeps them beside the content
//! that they are of.

use std::sync::Arc;

use async_trait::async_trait;
use keepsake_core::{ContentHash, MemoryId, MemoryPath, StoreId, TenantId, Timestamp, VersionId};

use crate::IndexError;

/// The search terms of one content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchRow {
    /// The analyser that made them: higher is newer.
    pub analyser: u32,
    /// How long the content is, as that analyser counts.
    pub length: u32,
    /// The terms, as that analyser writes them.
    pub terms: Vec<u8>,
}

/// How far a store's history was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchPlace {
    /// The place of the last version.
    pub seq: i64,
    /// The purge epoch of then.
    pub purge_epoch: i64,
    /// The version at that place; `None`: retention removed it. A restored database
    /// has another version there, or none.
    pub version_id: Option<VersionId>,
}

impl SearchPlace {
    /// Its rank among the places of one history.
    pub const fn order(&self) -> (i64, i64) {
        (self.purge_epoch, self.seq)
    }
}

/// What a replica knows of a store, and asks for the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchSince {
    /// How far it knows it; `None`: not at all.
    pub place: Option<SearchPlace>,
    /// The analyser whose terms it can read.
    pub analyser: u32,
    /// Memories that had no terms when they were read; looked at again.
    pub unindexed: Vec<MemoryId>,
    /// Whether all memories may be told. Where they would have to be, and may
    /// not, that alone is told.
    pub may_be_whole: bool,
}

/// What changed in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchChanges {
    /// How far the changes go. Content may be read under its purge epoch.
    pub place: SearchPlace,
    /// Whether these are all memories of the store, and others are gone: where
    /// nothing was known of it, where history was removed since, and where the
    /// database was restored since.
    pub is_whole: bool,
    /// What became of the memories, in no order.
    pub memories: Vec<SearchChange>,
}

/// What became of one memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchChange {
    /// The memory.
    pub memory_id: MemoryId,
    /// What it is now; `None`: it is not there any more.
    pub head: Option<SearchHead>,
}

/// A memory as search finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchHead {
    /// Where it is.
    pub path: MemoryPath,
    /// The blob that holds its content.
    pub blob_id: VersionId,
    /// SHA-256 of its content.
    pub sha256: ContentHash,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// The terms of this content; `None`: it has none, or none that the
    /// analyser asked for made.
    pub terms: Option<Arc<[u8]>>,
}

/// A memory in the order in which the job looks at them.
pub type MemoryPlace = (TenantId, StoreId, MemoryId);

/// Memories that were looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnindexedPage {
    /// How many were looked at.
    pub looked_at: u64,
    /// The last of them; `None`: there is none left.
    pub last: Option<MemoryPlace>,
    /// Those whose content has no terms, or terms of an older analyser.
    pub unindexed: Vec<Unindexed>,
}

/// A memory whose content is to be analysed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unindexed {
    /// Where it is.
    pub place: MemoryPlace,
    /// The blob that holds its content.
    pub blob_id: VersionId,
    /// SHA-256 of its content.
    pub sha256: ContentHash,
    /// The store's purge epoch, under which the content may be read.
    pub purge_epoch: i64,
}

/// What search reads of a store.
#[async_trait]
pub trait SearchIndex: Send + Sync {
    /// Tells what changed in a store since a place, in one query, or all of the
    /// store, in one more; `None`: no such store.
    ///
    /// Costs as much as there is to tell. What is told may be newer than the
    /// place and the purge epoch told with it, and is told once more later.
    async fn search_changes(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        since: &SearchSince,
    ) -> Result<Option<SearchChanges>, IndexError>;
}

/// How memories get search terms that their commit did not write.
#[async_trait]
pub trait SearchUpkeepIndex: Send + Sync {
    /// Looks at the next `limit` live memories of any tenant after a place.
    async fn unindexed_memories(
        &self,
        after: Option<MemoryPlace>,
        analyser: u32,
        limit: u32,
    ) -> Result<UnindexedPage, IndexError>;

    /// Writes the terms of memories of one store, under its lock; answers of
    /// how many.
    ///
    /// Those whose content is another by now, and those that have terms of it
    /// by an analyser that is no older, are left as they are.
    async fn put_search_rows(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        rows: &[(MemoryId, VersionId, SearchRow)],
    ) -> Result<u64, IndexError>;
}
