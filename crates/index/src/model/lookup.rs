//! The parameters of look-ups of memories, which are also the keys of the cache on SQLite.

use keepsake_core::{DirPath, MemoryId, MemoryPath, StoreId, TenantId};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct StoreKey {
    pub(crate) tenant_id: TenantId,
    pub(crate) store_id: StoreId,
}

/// A path in a store; `None` is the root.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PathKey {
    pub(crate) store: StoreKey,
    pub(crate) path: Option<MemoryPath>,
}

#[derive(Debug)]
pub(crate) struct HeadLookup {
    pub(crate) place: PathKey,
    /// Maximum number of entries to read of a directory.
    pub(crate) max_entries: u64,
}

pub(crate) type MemoryLookup = (StoreKey, MemoryId);

impl PathKey {
    /// The path, as that of a directory.
    pub(crate) fn directory(&self) -> DirPath {
        self.path.as_ref().map_or_else(DirPath::root, MemoryPath::as_dir)
    }
}
