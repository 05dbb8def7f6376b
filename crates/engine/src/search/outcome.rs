//! The memories of a store after a change that is not committed, as search sees them.

use std::collections::HashMap;
use std::sync::Arc;

use keepsake_core::{ContentHash, MemoryId, MemoryPath, VersionId};
use keepsake_index::SearchPlace;
use keepsake_search::{Postings, Query, Results};

/// A memory that a change leaves otherwise than it found it.
#[derive(Debug, Clone)]
pub(crate) struct ChangedMemory {
    /// `None`: the memory is new, or deleted and restored.
    pub(crate) memory_id: Option<MemoryId>,
    pub(crate) before: Option<MemoryPath>,
    /// `None`: the change deletes the memory.
    pub(crate) after: Option<MemoryPath>,
    /// The search terms of the new content; `None`: the content stays as it is.
    pub(crate) terms: Option<Arc<[u8]>>,
    /// The new content; `None`: no test reads it.
    pub(crate) text: Option<Arc<str>>,
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
