//! Operations on memories by id: reading and listing. Module `changes` changes
//! them, as module `decisions` decides.

mod answer;
mod changes;
mod decisions;
mod receipt;

use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt};
use keepsake_core::{DirPath, MemoryId, MemoryPath, StoreId, Timestamp};
use keepsake_index::{
    Depth, Expiry, Memory, MemoryItem, MemoryListing, MemoryPage, MemoryTarget, Scope, StoreState,
};

use crate::content::{MAX_READS, blob_missing};
use crate::cursor::Query;
use crate::{Engine, EngineError, Page, PageRequest, Principal};

pub use changes::{MemoryEdit, NewMemory, OnTaken, Precondition, Restoration};
pub use receipt::Receipt;

/// Contents fetched concurrently for one listing.
const FETCHES_AT_ONCE: usize = 10;
/// Maximum bytes of content of one page; a single memory may exceed it.
const PAGE_CONTENT_BYTES: u64 = 1 << 20;
/// Whether content is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// Without content.
    Basic,
    /// With content.
    Full,
}

/// A memory as returned to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownMemory {
    /// The store.
    pub store_id: StoreId,
    /// The memory.
    pub memory: Memory,
    /// Its content, if requested.
    pub content: Option<Arc<str>>,
    /// When it was last read.
    pub last_accessed_at: Option<Timestamp>,
    /// When it would expire without another read; `None`: never.
    pub expires_at: Option<Timestamp>,
    /// Which parts may be shown; `None`: all.
    pub receipt: Option<Receipt>,
}

/// One item of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShownItem {
    /// A memory.
    Memory(Box<ShownMemory>),
    /// A directory with memories somewhere below it.
    Prefix(DirPath),
}

/// Filters of a memory listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryQuery {
    /// Begins and ends with `/`; the whole store if unset.
    pub path_prefix: Option<String>,
    /// 0: all memories below the prefix; 1: direct children only.
    pub depth: Option<u64>,
    /// The page to return.
    pub page: PageRequest,
}

/// Parses a `path_prefix`: a directory path that begins and ends with `/`.
pub(crate) fn parse_prefix(prefix: &str) -> Result<DirPath, EngineError> {
    let invalid = |rule: String| EngineError::Invalid {
        field: "path_prefix",
        rule,
    };
    if prefix == "/" {
        return Ok(DirPath::root());
    }
    let Some(path) = prefix.strip_suffix('/') else {
        return Err(invalid("must end with `/`".to_owned()));
    };
    let path = MemoryPath::parse(path).map_err(|rule| invalid(rule.to_string()))?;
    Ok(path.as_dir())
}

impl MemoryQuery {
    fn below(&self) -> Result<DirPath, EngineError> {
        self.path_prefix
            .as_deref()
            .map_or(Ok(DirPath::root()), parse_prefix)
    }

    fn depth(&self) -> Result<Depth, EngineError> {
        match self.depth {
            None | Some(0) => Ok(Depth::All),
            Some(1) => Ok(Depth::Children),
            Some(depth) => Err(EngineError::Invalid {
                field: "depth",
                rule: format!("must be 0 or 1, but is {depth}"),
            }),
        }
    }
}

impl Engine {
    /// Reads a memory; with its content, this counts as access.
    ///
    /// # Errors
    /// [`EngineError::PermissionDenied`], [`EngineError::StoreNotFound`],
    /// [`EngineError::MemoryNotFound`], and failures of index and blob store.
    #[tracing::instrument(name = "engine.memory", level = "debug", skip_all)]
    pub async fn memory(
        &self,
        principal: &Principal,
        store_id: StoreId,
        memory_id: MemoryId,
        view: View,
    ) -> Result<ShownMemory, EngineError> {
        principal.require(Scope::MemoryRead)?;
        principal.require_store(store_id)?;
        let found = self
            .0
            .find_memory(principal.tenant_id, store_id, memory_id)
            .await?;
        let MemoryTarget::Live(memory) = found.target else {
            return Err(EngineError::MemoryNotFound);
        };
        let shown = self.show(principal, store_id, found.expiry, memory);
        match view {
            View::Basic => Ok(shown),
            View::Full => self
                .with_content(principal, found.store, shown)
                .await?
                .ok_or(EngineError::MemoryNotFound),
        }
    }

    /// Lists memories in byte order of their paths, with one query for each
    /// page.
    ///
    /// With content, this counts as access to each memory on the page.
    ///
    /// # Errors
    /// [`EngineError::PermissionDenied`], [`EngineError::StoreNotFound`],
    /// [`EngineError::Invalid`], and failures of index and blob store.
    #[tracing::instrument(name = "engine.memories", level = "debug", skip_all)]
    pub async fn memories(
        &self,
        principal: &Principal,
        store_id: StoreId,
        query: &MemoryQuery,
        view: View,
    ) -> Result<Page<ShownItem>, EngineError> {
        principal.require(Scope::MemoryRead)?;
        principal.require_store(store_id)?;
        let (below, depth) = (query.below()?, query.depth()?);
        let limit = query.page.limit(view == View::Full)?;
        let identity = Query::of(&[
            b"memories",
            principal.tenant_id.uuid().as_bytes(),
            store_id.uuid().as_bytes(),
            below.as_str().as_bytes(),
            &[u8::from(depth == Depth::Children)],
        ]);
        let after = match &query.page.page {
            Some(page) => {
                let position = self.unseal(identity, page).await?;
                Some(String::from_utf8(position).map_err(|_| EngineError::Internal("a cursor of no path"))?)
            }
            None => None,
        };
        let mut listing = MemoryListing {
            below,
            depth,
            after,
            // One more item shows whether there is another page.
            limit: limit + 1,
        };
        let tenant_id = principal.tenant_id;
        let _slot = match view {
            View::Full => Some(self.0.large_pages.take(tenant_id).await?),
            View::Basic => None,
        };
        loop {
            let found = self.0.index.memories.list(tenant_id, store_id, &listing).await?;
            let mut found = found.ok_or(EngineError::StoreNotFound)?;
            let mut fitting = (limit as usize).min(found.items.len());
            if view == View::Full {
                fitting = fitting.min(fitting_contents(&found.items));
            }
            let has_more = found.items.len() > fitting;
            found.items.truncate(fitting);
            let last = found.items.last().filter(|_| has_more);
            let last = last.map(|item| path_of(item).to_owned());
            let items = self.show_items(principal, store_id, found, view).await?;
            let Some(last) = last else {
                return Ok(Page { items, next: None });
            };
            if !items.is_empty() {
                let next = Some(self.seal(identity, last.as_bytes()).await?);
                return Ok(Page { items, next });
            }
            // All memories of the page were deleted while their contents were
            // fetched.
            listing.after = Some(last);
        }
    }

    /// Shows the items of a page that still exist.
    async fn show_items(
        &self,
        principal: &Principal,
        store_id: StoreId,
        page: MemoryPage,
        view: View,
    ) -> Result<Vec<ShownItem>, EngineError> {
        stream::iter(page.items)
            .map(|item| self.show_item(principal, store_id, page.store, page.expiry, item, view))
            .buffered(FETCHES_AT_ONCE)
            .try_filter_map(|shown| std::future::ready(Ok(shown)))
            .try_collect()
            .await
    }

    /// Converts a memory without its content.
    pub(crate) fn show(
        &self,
        principal: &Principal,
        store_id: StoreId,
        expiry: Expiry,
        memory: Memory,
    ) -> ShownMemory {
        let key = (principal.tenant_id, store_id, memory.head.memory_id);
        let last_accessed_at = memory.last_read_at.max(self.0.access.noted(&key));
        let limits = &principal.limits;
        let expiry = expiry.or_tenants(limits.unused_period_secs(), limits.period_set_at);
        ShownMemory {
            store_id,
            expires_at: expires_at(expiry, &memory, last_accessed_at),
            last_accessed_at,
            memory,
            content: None,
            receipt: None,
        }
    }

    async fn show_item(
        &self,
        principal: &Principal,
        store_id: StoreId,
        store: StoreState,
        expiry: Expiry,
        item: MemoryItem,
        view: View,
    ) -> Result<Option<ShownItem>, EngineError> {
        let memory = match item {
            MemoryItem::Prefix(path) => return Ok(Some(ShownItem::Prefix(path))),
            MemoryItem::Memory { memory, .. } => *memory,
        };
        let path = memory.head.path.clone();
        let shown = self.show(principal, store_id, expiry, memory);
        let shown = match view {
            View::Basic => Some(shown),
            View::Full => self.with_content(principal, store, shown).await?,
        };
        // A memory that was moved meanwhile belongs elsewhere in the order.
        let shown = shown.filter(|shown| shown.memory.head.path == path);
        Ok(shown.map(|shown| ShownItem::Memory(Box::new(shown))))
    }

    /// Adds the content and notes the access; `None`: the memory was deleted.
    ///
    /// A missing blob means that an edit and a removal of history ran
    /// concurrently, so the memory is read again. If its row still names that
    /// blob, the blob is lost.
    pub(crate) async fn with_content(
        &self,
        principal: &Principal,
        mut store: StoreState,
        mut shown: ShownMemory,
    ) -> Result<Option<ShownMemory>, EngineError> {
        let (tenant_id, store_id) = (principal.tenant_id, shown.store_id);
        let memory_id = shown.memory.head.memory_id;
        for _ in 0..MAX_READS {
            let contents = &self.0.contents;
            let content = contents
                .of_head(tenant_id, store_id, store.purge_epoch, &shown.memory.head)
                .await?;
            if content.is_some() {
                self.note_read(principal, store_id, memory_id);
                return Ok(Some(ShownMemory { content, ..shown }));
            }
            let found = self.0.find_memory(tenant_id, store_id, memory_id).await?;
            let MemoryTarget::Live(memory) = found.target else {
                return Ok(None);
            };
            if memory.head.blob_id == shown.memory.head.blob_id {
                return Err(blob_missing(tenant_id, store_id, memory_id));
            }
            store = found.store;
            shown = self.show(principal, store_id, found.expiry, memory);
        }
        Err(EngineError::Damaged("its blob went missing again and again"))
    }
}

/// How many items have contents that fit on one page; at least one.
fn fitting_contents(items: &[MemoryItem]) -> usize {
    let mut bytes = 0;
    let fitting = items.iter().take_while(|item| {
        bytes += match item {
            MemoryItem::Memory { memory, .. } => memory.head.size_bytes,
            MemoryItem::Prefix(_) => 0,
        };
        bytes <= PAGE_CONTENT_BYTES
    });
    fitting.count().max(1)
}

/// The position of an item in a listing.
pub(crate) fn path_of(item: &MemoryItem) -> &str {
    match item {
        MemoryItem::Memory { memory, .. } => memory.head.path.as_str(),
        MemoryItem::Prefix(path) => path.as_str(),
    }
}

/// When a memory would expire without another read. Its period starts at its
/// latest use or change.
fn expires_at(expiry: Expiry, memory: &Memory, last_read_at: Option<Timestamp>) -> Option<Timestamp> {
    let alive_at = last_read_at.max(memory.active_at).max(Some(memory.updated_at))?;
    expiry.ends_at(alive_at).filter(|_| !memory.is_pinned)
}

#[cfg(test)]
mod tests {
    use keepsake_core::{ContentHash, VersionId};
    use keepsake_index::Head;
    use uuid::Uuid;

    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_micros(secs * 1_000_000)
    }

    fn memory(updated_at: i64) -> Memory {
        Memory {
            head: Head {
                memory_id: MemoryId::from_uuid(Uuid::nil()),
                path: MemoryPath::parse("/a").unwrap(),
                version_id: VersionId::from_uuid(Uuid::nil()),
                seq: 1,
                blob_id: VersionId::from_uuid(Uuid::nil()),
                size_bytes: 0,
                sha256: ContentHash::of(b""),
                claim: None,
            },
            is_pinned: false,
            created_at: at(0),
            updated_at: at(updated_at),
            last_read_at: None,
            active_at: None,
        }
    }

    #[test]
    fn life_runs_from_the_latest_sign_of_it() {
        let expiry = Expiry {
            unused_after_secs: Some(1_000_000),
            set_at: None,
        };
        assert_eq!(expires_at(expiry, &memory(5), None), Some(at(1_000_005)));
        assert_eq!(expires_at(expiry, &memory(5), Some(at(9))), Some(at(1_000_009)));
        let active = Memory {
            active_at: Some(at(20)),
            ..memory(5)
        };
        assert_eq!(expires_at(expiry, &active, Some(at(9))), Some(at(1_000_020)));
    }

    #[test]
    fn pinned_memory_and_store_without_period_never_expire() {
        let expiry = Expiry {
            unused_after_secs: Some(1),
            set_at: None,
        };
        let pinned = Memory {
            is_pinned: true,
            ..memory(5)
        };
        assert_eq!(expires_at(expiry, &pinned, None), None);
        assert_eq!(expires_at(Expiry::default(), &memory(5), None), None);
    }

    #[test]
    fn new_period_waits_a_day() {
        let expiry = Expiry {
            unused_after_secs: Some(60),
            set_at: Some(at(1000)),
        };
        assert_eq!(expires_at(expiry, &memory(5), None), Some(at(1000 + 86_400)));
        assert_eq!(expires_at(expiry, &memory(100_000), None), Some(at(100_060)));
    }
}
