//! Reads memories as they are shown to clients.

use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt};
use keepsake_core::{StoreId, Surface, Timestamp};
use keepsake_index::{Expiry, ListItem, Memory, MemoryItem, MemoryPage, MemoryTarget, StoreState};

use super::MemoryReceipt;
use crate::content::{ContentLoss, MAX_READS, missing};
use crate::shared::service;
use crate::{EngineError, Principal};

const FETCHES_AT_ONCE: usize = 10;

keepsake_core::named_enum! {
    /// Whether content is requested.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum View {
        #[default]
        Basic = "basic",
        Full = "full",
    }
}

keepsake_core::shown_by_name!(View as "View" => "`basic` omits content.";);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownMemory {
    pub store_id: StoreId,
    pub memory: Memory,
    /// The content, if requested.
    pub content: Option<Arc<str>>,
    /// Why the requested content is missing.
    pub lost: Option<ContentLoss>,
    pub last_accessed_at: Option<Timestamp>,
    /// When the memory would expire without another read; `None`: never.
    pub expires_at: Option<Timestamp>,
    /// Which parts may be shown; `None`: all.
    pub receipt: Option<MemoryReceipt>,
}

impl ShownMemory {
    /// The error of the requested content that is missing.
    pub fn content_error(&self) -> Option<EngineError> {
        let head = &self.memory.head;
        self.lost.map(|loss| loss.error(Some(&head.path), head.version_id))
    }
}

pub type ShownItem<M = ShownMemory> = ListItem<Box<M>>;

service!(pub(super) Reader);

impl Reader {
    /// Shows the items of a page that still exist.
    pub(super) async fn items(
        &self,
        principal: &Principal,
        store_id: StoreId,
        page: MemoryPage,
        view: View,
    ) -> Result<Vec<ShownItem>, EngineError> {
        stream::iter(page.items)
            .map(|item| self.item(principal, store_id, page.store, page.expiry, item, view))
            .buffered(FETCHES_AT_ONCE)
            .try_filter_map(|shown| std::future::ready(Ok(shown)))
            .try_collect()
            .await
    }

    /// The content is not read.
    pub(super) fn show(
        &self,
        principal: &Principal,
        store_id: StoreId,
        expiry: Expiry,
        memory: Memory,
    ) -> ShownMemory {
        let noted = self.access.noted(principal.tenant_id, store_id, memory.head.memory_id);
        let last_accessed_at = memory.last_read_at.max(noted.map(|(at, _)| at));
        let limits = &principal.limits;
        let expiry = expiry.or_tenants(limits.unused_period_secs(), limits.period_set_at);
        ShownMemory {
            store_id,
            expires_at: expires_at(expiry, &memory, last_accessed_at),
            last_accessed_at,
            memory,
            content: None,
            lost: None,
            receipt: None,
        }
    }

    /// Notes the use by a call that sent the memory's current content and wrote no
    /// version. A person in the console is no user, as when the person only looks.
    pub(super) fn note_use(&self, principal: &Principal, shown: &ShownMemory) {
        if principal.surface != Surface::Console {
            self.access.note_uses(principal, [(shown.store_id, shown.memory.head.memory_id)]);
        }
    }

    async fn item(
        &self,
        principal: &Principal,
        store_id: StoreId,
        store: StoreState,
        expiry: Expiry,
        item: MemoryItem,
        view: View,
    ) -> Result<Option<ShownItem>, EngineError> {
        match item {
            MemoryItem::Prefix(path) => Ok(Some(ShownItem::Prefix(path))),
            MemoryItem::Memory((memory, _)) => {
                self.memory(principal, store_id, store, expiry, *memory, view).await
            }
        }
    }

    /// Shows a memory in a list, unless the memory no longer exists at its path. A lost
    /// content does not hide the other memories.
    pub(super) async fn memory(
        &self,
        principal: &Principal,
        store_id: StoreId,
        store: StoreState,
        expiry: Expiry,
        memory: Memory,
        view: View,
    ) -> Result<Option<ShownItem>, EngineError> {
        let path = memory.head.path.clone();
        let shown = self.show(principal, store_id, expiry, memory);
        let shown = match view {
            View::Basic => Some(shown),
            View::Full => match self.with_content(principal, store, shown.clone()).await {
                Ok(shown) => shown,
                Err(error) => Some(ShownMemory { lost: Some(ContentLoss::of(error)?), ..shown }),
            },
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
    pub(super) async fn with_content(
        &self,
        principal: &Principal,
        mut store: StoreState,
        mut shown: ShownMemory,
    ) -> Result<Option<ShownMemory>, EngineError> {
        let (tenant_id, store_id) = (principal.tenant_id, shown.store_id);
        let memory_id = shown.memory.head.memory_id;
        for _ in 0..MAX_READS {
            let contents = &self.contents;
            let content =
                contents.of_head(tenant_id, store_id, store.purge_epoch, &shown.memory.head).await?;
            if content.is_some() {
                self.access.note_read(principal, store_id, &shown.memory.head);
                return Ok(Some(ShownMemory { content, ..shown }));
            }
            let found = self.context.find_memory(tenant_id, store_id, memory_id).await?;
            let MemoryTarget::Live(memory) = found.target else {
                return Ok(None);
            };
            if memory.head.content.blob_id == shown.memory.head.content.blob_id {
                return Err(missing(tenant_id, store_id, &memory.head));
            }
            store = found.store;
            shown = self.show(principal, store_id, found.expiry, memory);
        }
        Err(EngineError::Damaged("its blob went missing again and again"))
    }
}

/// When a memory would expire without another read. Its period starts at its
/// latest use or change; its expiry time may be earlier.
fn expires_at(expiry: Expiry, memory: &Memory, last_read_at: Option<Timestamp>) -> Option<Timestamp> {
    let alive_at = last_read_at.max(memory.active_at).max(Some(memory.updated_at))?;
    let earliest = expiry.earliest(alive_at, memory.expires_at);
    earliest.filter(|_| !memory.is_pinned)
}
