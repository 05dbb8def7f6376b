//! The memories of a store after a change that is not committed, as search sees them.

use std::collections::HashMap;
use std::sync::Arc;

use keepsake_core::{ContentHash, MemoryId, MemoryPath, VersionId};
use keepsake_index::SearchPlace;
use keepsake_search::{Postings, Query, Results};

/// A memory that a change leaves otherwise than it found it.
#[derive(Debug, Clone)]
pub(crate) struct OutcomeChange {
    /// Any id that no memory has, if the memory is new.
    pub(crate) memory_id: MemoryId,
    /// The path, and the terms of a new content; `None`: the memory is deleted.
    pub(crate) after: Option<(MemoryPath, Option<Arc<[u8]>>)>,
}

pub(crate) struct StoreOutcome {
    /// The position of the store that the changes were applied to.
    pub(crate) place: SearchPlace,
    pub(super) rows: Postings,
    pub(super) blobs: HashMap<MemoryId, (VersionId, ContentHash)>,
}

impl StoreOutcome {
    /// The number of memories, without settings of the store.
    pub(crate) const fn count(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn search(&self, queries: &[Query], limit: usize) -> Vec<Results> {
        self.rows.search_each(queries, limit)
    }

    pub(crate) fn memories(&self) -> impl Iterator<Item = (MemoryId, &MemoryPath)> {
        self.rows.memories()
    }

    /// The blob and the hash of the content that a memory at one of the paths had before the changes.
    pub(crate) fn blob_of(&self, memory_id: MemoryId) -> Option<(VersionId, ContentHash)> {
        self.blobs.get(&memory_id).copied()
    }
}
