//! The reads that decisions are based on.

use std::sync::Arc;

use keepsake_core::{DirPath, MemoryId, MemoryPath, ObjectKind, VersionId};
use keepsake_index::{FoundMemories, FoundMemory, Head, Lookup, StoreState, Target, Version};

use super::Write;
use crate::EngineError;
use crate::content::ContentLoss;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Reads<'a> {
    /// The commit checks whether the path is free.
    Nothing,
    Head,
    Content,
    /// The head of the file, or of every file below the directory.
    Tree,
    /// Like `Tree`, with the obstacles to a move to this path.
    Move(&'a MemoryPath),
}

/// The object at a path, as far as it was read.
#[derive(Debug)]
pub(crate) struct PathRead {
    /// `None`: the store was not read.
    pub(crate) store: Option<StoreState>,
    /// `Missing` also if the path was not read.
    pub(crate) target: Target,
    /// The content of a file, if it was read.
    pub(crate) text: Option<Arc<str>>,
    /// The heads of the files below a directory, if they were read.
    pub(crate) heads: Vec<Head>,
    /// The obstacle to a move there.
    pub(crate) obstacle: Option<Obstacle>,
    /// The maximum size of a new content.
    pub(crate) limit_bytes: u64,
}

/// An obstacle to a move.
#[derive(Debug)]
pub(crate) enum Obstacle {
    /// The destination exists.
    Destination,
    /// A parent of the destination is this memory.
    File(MemoryPath),
}

/// A version, its content while it is kept, and its memory.
#[derive(Debug)]
pub(crate) struct VersionRead {
    pub(crate) store: StoreState,
    pub(crate) version: Version,
    pub(crate) text: Option<Arc<str>>,
    pub(crate) found: FoundMemory,
}

impl From<VersionRead> for Option<FoundMemory> {
    fn from(read: VersionRead) -> Self {
        Some(read.found)
    }
}

impl Write<'_> {
    /// `None` is the root.
    pub(crate) async fn path(
        &self,
        path: Option<&MemoryPath>,
        reads: Reads<'_>,
    ) -> Result<PathRead, EngineError> {
        match reads {
            Reads::Nothing => Ok(self.nothing()),
            Reads::Content => {
                let (tenant_id, contents) = (self.principal.tenant_id, &self.writer.contents);
                let (found, text) = contents.at_path(tenant_id, self.store_id, path, 0).await?;
                let Lookup { store, target } = found;
                Ok(PathRead { store: Some(store), target, text, ..self.nothing() })
            }
            Reads::Head => self.tree(path, false).await,
            Reads::Tree => self.tree(path, true).await,
            Reads::Move(to) => {
                if self.look_up(Some(to)).await?.target != Target::Missing {
                    let obstacle = Some(Obstacle::Destination);
                    return Ok(PathRead { obstacle, ..self.nothing() });
                }
                let mut read = self.tree(path, true).await?;
                if read.target == Target::Missing {
                    // The commit checks this too, but a call that fails earlier must
                    // report the destination before the source.
                    read.obstacle = self.file_above(to).await?.map(Obstacle::File);
                }
                Ok(read)
            }
        }
    }

    const fn nothing(&self) -> PathRead {
        PathRead {
            store: None,
            target: Target::Missing,
            text: None,
            heads: Vec::new(),
            obstacle: None,
            limit_bytes: self.principal.limits.bytes_per_memory,
        }
    }

    async fn tree(&self, path: Option<&MemoryPath>, with_heads: bool) -> Result<PathRead, EngineError> {
        let Lookup { store, target } = self.look_up(path).await?;
        let mut heads = Vec::new();
        if with_heads && matches!(target, Target::Directory(_)) {
            let below = path.map_or_else(DirPath::root, MemoryPath::as_dir);
            let (index, tenant_id) = (&self.context().index, self.principal.tenant_id);
            heads = index.memories.heads_below(tenant_id, self.store_id, &below).await?;
        }
        Ok(PathRead { store: Some(store), target, heads, ..self.nothing() })
    }

    async fn file_above(&self, path: &MemoryPath) -> Result<Option<MemoryPath>, EngineError> {
        for ancestor in path.ancestor_files() {
            let file = MemoryPath::from_trusted(ancestor.to_owned());
            if let Target::Memory(_) = self.look_up(Some(&file)).await?.target {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }

    /// `None` is the root.
    pub(crate) async fn look_up(&self, path: Option<&MemoryPath>) -> Result<Lookup, EngineError> {
        let tenant_id = self.principal.tenant_id;
        self.context().look_up(tenant_id, self.store_id, path).await
    }

    pub(crate) async fn memory(&self, memory_id: MemoryId) -> Result<FoundMemory, EngineError> {
        let tenant_id = self.principal.tenant_id;
        self.context().find_memory(tenant_id, self.store_id, memory_id).await
    }

    pub(crate) async fn memories(
        &self,
        ids: &[MemoryId],
        paths: &[&str],
    ) -> Result<FoundMemories, EngineError> {
        let (index, tenant_id) = (&self.context().index, self.principal.tenant_id);
        let found = index.memories.find_all(tenant_id, self.store_id, ids, paths).await?;
        found.ok_or(EngineError::NotFound(ObjectKind::Store))
    }

    /// The content of a memory that a change replaces; `None`: the content is lost, which
    /// must not keep a new content from being stored.
    pub(super) async fn stored(
        &self,
        store: StoreState,
        head: &Head,
    ) -> Result<Option<Arc<str>>, EngineError> {
        let (tenant_id, contents) = (self.principal.tenant_id, &self.writer.contents);
        ContentLoss::or_none(contents.of_head(tenant_id, self.store_id, store.purge_epoch, head).await)
    }

    /// Whether the content of a memory is not lost; `true` if the store was not read.
    pub(super) async fn is_stored(
        &self,
        store: Option<StoreState>,
        head: &Head,
    ) -> Result<bool, EngineError> {
        match store {
            Some(store) => Ok(self.stored(store, head).await?.is_some()),
            None => Ok(true),
        }
    }

    /// The content of a version; `None`: it was removed.
    pub(crate) async fn text_of(
        &self,
        store: StoreState,
        version: &Version,
    ) -> Result<Option<Arc<str>>, EngineError> {
        let (tenant_id, contents) = (self.principal.tenant_id, &self.writer.contents);
        contents.of_version(tenant_id, self.store_id, store.purge_epoch, version).await
    }

    pub(crate) async fn version(&self, version_id: VersionId) -> Result<VersionRead, EngineError> {
        let (context, contents) = (self.context(), &self.writer.contents);
        let (tenant_id, store_id) = (self.principal.tenant_id, self.store_id);
        let (store, version) = context.find_version(tenant_id, store_id, version_id).await?;
        let found = context.find_memory(tenant_id, store_id, version.memory_id).await?;
        let text = contents.of_version(tenant_id, store_id, store.purge_epoch, &version).await?;
        Ok(VersionRead { store, version, text, found })
    }
}
