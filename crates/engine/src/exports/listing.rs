//! The memories of a store at one moment.

use std::collections::{BTreeMap, HashSet};

use keepsake_archive::format::{BLOBS, Entry, blob_file, memory_file};
use keepsake_archive::placement::Placement;
use keepsake_core::{
    ContentHash, DirPath, MemoryId, MemoryPath, ObjectKind, StoreId, TenantId, Timestamp, VersionId,
};
use keepsake_index::{
    ChangePage, Depth, Memory, MemoryItem, MemoryListing, MemoryTarget, Moment, PastMemory,
};

use super::left_out::Omissions;
use crate::context::Context;
use crate::past::refusal;
use crate::work::charge;
use crate::{EngineError, NamedMoment};

/// Memories or versions that are read or written at once.
pub(super) const PAGE: u32 = 500;
/// The listing of a store that keeps changing ends with an error after this many pages of changes.
const MAX_PAGES_OF_CHANGES: usize = 1_000;
/// Memory of a listed memory, besides its path.
const MEMORY_BYTES: usize = 384;

/// The part of a memory that the export needs. The export keeps it for every memory of the store
/// until the archive is complete, so it must be small.
#[derive(Debug)]
pub(super) struct ListedMemory {
    path: MemoryPath,
    pub(super) memory_id: MemoryId,
    pub(super) version_id: VersionId,
    pub(super) sha256: ContentHash,
    pub(super) size_bytes: u64,
    created_at: Timestamp,
    pub(super) updated_at: Timestamp,
    expires_at: Option<Timestamp>,
    is_pinned: bool,
    /// Whether its content is in `blobs/`, because its path cannot be a file.
    pub(super) is_blob: bool,
}

impl ListedMemory {
    fn bytes(&self) -> usize {
        MEMORY_BYTES + self.path.as_str().len()
    }

    pub(super) fn file(&self) -> String {
        if self.is_blob { blob_file(self.sha256) } else { memory_file(&self.path) }
    }

    pub(super) fn entry(&self) -> Entry {
        Entry {
            path: self.path.as_str().to_owned(),
            id: self.memory_id.to_string(),
            version_id: self.version_id.to_string(),
            content_sha256: self.sha256.to_string(),
            size_bytes: self.size_bytes,
            created_at: self.created_at.to_rfc3339(),
            updated_at: self.updated_at.to_rfc3339(),
            expires_at: self.expires_at.map(Timestamp::to_rfc3339),
            pinned: self.is_pinned,
            file: self.is_blob.then(|| blob_file(self.sha256)),
        }
    }
}

impl From<Memory> for ListedMemory {
    fn from(memory: Memory) -> Self {
        let head = memory.head;
        Self {
            path: head.path,
            memory_id: head.memory_id,
            version_id: head.version_id,
            sha256: head.content.sha256,
            size_bytes: head.content.size_bytes,
            created_at: memory.created_at,
            updated_at: memory.updated_at,
            expires_at: memory.expires_at,
            is_pinned: memory.is_pinned,
            is_blob: false,
        }
    }
}

/// Sorts memories by path, and decides where their contents are.
pub(super) fn placed(memories: BTreeMap<MemoryId, ListedMemory>) -> Vec<ListedMemory> {
    let mut memories: Vec<_> = memories.into_values().collect();
    memories.sort_unstable_by(|one, other| one.path.as_str().cmp(other.path.as_str()));
    let mut placement = Placement::default();
    for memory in &mut memories {
        memory.is_blob = placement.file_of(&memory.path, memory.sha256).starts_with(BLOBS);
    }
    memories
}

/// The memories of a store while they are listed, charged to the request.
pub(super) struct Listing<'a> {
    context: &'a Context,
    tenant_id: TenantId,
    store_id: StoreId,
    by_id: BTreeMap<MemoryId, ListedMemory>,
    bytes: usize,
    /// The most bytes so far. Nothing is released before the request ends, so a listing that
    /// begins again is charged only for what it needs beyond them.
    charged_bytes: usize,
}

impl<'a> Listing<'a> {
    pub(super) const fn new(context: &'a Context, tenant_id: TenantId, store_id: StoreId) -> Self {
        Self { context, tenant_id, store_id, by_id: BTreeMap::new(), bytes: 0, charged_bytes: 0 }
    }

    /// Reads the memories, and the state of the history at the same moment, which is an empty page of
    /// changes.
    ///
    /// A memory that is renamed meanwhile may be on no page of the memories. So the changes since the
    /// listing began are read until there are no further ones.
    pub(super) async fn read(
        mut self,
    ) -> Result<(BTreeMap<MemoryId, ListedMemory>, ChangePage), EngineError> {
        let newest = self.changes(i64::MAX).await?;
        let (mut seq, mut purge_epoch) = (newest.seq, newest.purge_epoch);
        self.list().await?;
        for _ in 0..MAX_PAGES_OF_CHANGES {
            let page = self.changes(seq).await?;
            if page.purge_epoch != purge_epoch {
                // Versions were removed, and changes since the listing began may be among them.
                (seq, purge_epoch) = (page.seq, page.purge_epoch);
                self.list().await?;
                continue;
            }
            let Some(last) = page.versions.last() else {
                return Ok((self.by_id, page));
            };
            seq = last.seq;
            let touched: HashSet<MemoryId> = page.versions.iter().map(|version| version.memory_id).collect();
            for memory_id in touched {
                match self.context.find_memory(self.tenant_id, self.store_id, memory_id).await?.target {
                    MemoryTarget::Live(memory) => self.insert(memory.into())?,
                    MemoryTarget::Deleted { .. } | MemoryTarget::Missing => self.remove(memory_id),
                }
            }
        }
        Err(EngineError::Conflict("the store changes faster than it can be read: try again later"))
    }

    /// Reads the memories as they were, and the state of the history, which is an empty page of
    /// changes. A memory whose version is redacted is left out. History does not record pins
    /// and expiry times, so these are left out, too.
    pub(super) async fn read_past(
        mut self,
        at: NamedMoment,
        left_out: &mut Omissions,
    ) -> Result<(BTreeMap<MemoryId, ListedMemory>, ChangePage), EngineError> {
        let (past, now) = (&self.context.index.past, self.context.now());
        let newest = self.changes(i64::MAX).await?;
        let moment = at.checked(now)?;
        let point = past.point(self.tenant_id, self.store_id, moment).await.map_err(refusal(at.field))?;
        let range = (None, Moment::Seq(point.seq));
        let mut next = None;
        loop {
            let batch = past.changes(self.tenant_id, self.store_id, range, next, PAGE).await;
            let batch = batch.map_err(refusal(at.field))?;
            for memory in batch.items.into_iter().filter_map(|[_, memory]| memory) {
                let PastMemory { memory_id, version_id, path, content, .. } = memory;
                let (Some(path), Some(stored)) = (path, content) else {
                    left_out.add(format!("{version_id} of {memory_id} is redacted"));
                    continue;
                };
                self.insert(ListedMemory {
                    path,
                    memory_id,
                    version_id,
                    sha256: stored.sha256,
                    size_bytes: stored.size_bytes,
                    created_at: memory.created_at,
                    updated_at: memory.updated_at,
                    expires_at: None,
                    is_pinned: false,
                    is_blob: false,
                })?;
            }
            next = batch.next;
            if next.is_none() {
                return Ok((self.by_id, newest));
            }
        }
    }

    async fn changes(&self, after: i64) -> Result<ChangePage, EngineError> {
        self.context.changes_after(self.tenant_id, self.store_id, after, PAGE).await
    }

    /// Drops the listed memories, and lists all memories of the store again.
    async fn list(&mut self) -> Result<(), EngineError> {
        self.by_id.clear();
        self.bytes = 0;
        let mut listing =
            MemoryListing { below: DirPath::root(), depth: Depth::All, after: None, limit: PAGE };
        loop {
            let page = self.context.index.memories.list(self.tenant_id, self.store_id, &listing).await?;
            let items = page.ok_or(EngineError::NotFound(ObjectKind::Store))?.items;
            listing.after = items.last().map(|item| item.path().to_owned());
            if listing.after.is_none() {
                return Ok(());
            }
            for item in items {
                if let MemoryItem::Memory((memory, _)) = item {
                    self.insert((*memory).into())?;
                }
            }
        }
    }

    /// Keeps what the archive needs of a memory.
    fn insert(&mut self, memory: ListedMemory) -> Result<(), EngineError> {
        self.remove(memory.memory_id);
        self.bytes += memory.bytes();
        if self.bytes > self.charged_bytes {
            charge(self.bytes - self.charged_bytes)?;
            self.charged_bytes = self.bytes;
        }
        self.by_id.insert(memory.memory_id, memory);
        Ok(())
    }

    fn remove(&mut self, memory_id: MemoryId) {
        if let Some(memory) = self.by_id.remove(&memory_id) {
            self.bytes -= memory.bytes();
        }
    }
}
