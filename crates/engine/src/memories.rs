//! Memories by id: read, listed, created, changed, deleted and restored. Module
//! `decisions` decides what a change does.

mod answer;
mod batch;
mod decisions;
mod import;
mod reader;
mod receipt;
mod requests;

use std::sync::Arc;

use keepsake_core::{ContentHash, MemoryId, MemoryPath, ObjectKind, StoreId, VersionId};
use keepsake_index::{
    Depth, DirectorySummary, FoundMemory, Idempotency, MemoryItem, MemoryListing, MemoryTarget, Scope, Target,
};

use crate::cursor::Query;
use crate::request_fields::parse_path;
use crate::shared::service;
use crate::store_tests::StoreTests;
use crate::write::Change;
use crate::{EngineError, Page, Principal};

use answer::Answer;
use decisions::{Creation, Update, VersionRestoration};
use reader::Reader;
use receipt::{SentFields, conceal_refusal, conceal_write};
use requests::{parse_content, parse_expiry, parse_update, require_write};

pub use batch::{BatchStatus, MAX_OPERATIONS, MemoryBatch, MemoryOperation, OperationResult};
pub use import::{HistoryPart, ImportedRedaction, ImportedVersion, MAX_VERSIONS};
pub use keepsake_core::{CreatePrecondition, Precondition};
pub use reader::{ShownItem, ShownMemory, View};
pub use receipt::MemoryReceipt;
pub use requests::{MemoryEdit, MemoryQuery, NewMemory, Restoration};

/// Maximum bytes of content of one page; a single memory may exceed it.
const PAGE_CONTENT_BYTES: u64 = 1 << 20;

service!(pub Memories(shared, tests: &StoreTests) {
    reader: Reader = Reader::new(shared),
    tests: StoreTests = tests.clone(),
});

impl Memories {
    /// With the content, this counts as access.
    #[tracing::instrument(name = "engine.memory", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn get(
        &self,
        principal: &Principal,
        store_id: StoreId,
        memory_id: MemoryId,
        view: View,
    ) -> Result<ShownMemory, EngineError> {
        principal.require_in(Scope::MemoryRead, store_id)?;
        let found = self.context.find_memory(principal.tenant_id, store_id, memory_id).await?;
        let MemoryTarget::Live(memory) = found.target else {
            return Err(EngineError::NotFound(ObjectKind::Memory));
        };
        let shown = self.reader.show(principal, store_id, found.expiry, memory);
        match view {
            View::Basic => Ok(shown),
            View::Full => self
                .reader
                .with_content(principal, found.store, shown)
                .await?
                .ok_or(EngineError::NotFound(ObjectKind::Memory)),
        }
    }

    /// Lists memories in byte order of their paths, with one query for each
    /// page.
    ///
    /// With content, this counts as access to each memory on the page.
    #[tracing::instrument(name = "engine.memories", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn list(
        &self,
        principal: &Principal,
        store_id: StoreId,
        query: &MemoryQuery,
        view: View,
    ) -> Result<Page<ShownItem>, EngineError> {
        principal.require_in(Scope::MemoryRead, store_id)?;
        if let Some(path) = query.path()? {
            let items = self.at_path(principal, store_id, &path, view).await?;
            return Ok(Page { items: items.into_iter().collect(), next: None });
        }
        let (below, depth) = (query.below()?, query.depth()?);
        let limit = query.page.limit(view == View::Full)?;
        let identity = Query::of(&[
            b"memories",
            principal.tenant_id.uuid().as_bytes(),
            store_id.uuid().as_bytes(),
            below.as_str().as_bytes(),
            &[u8::from(depth == Depth::Children)],
        ]);
        let cursors = &self.context.cursors;
        let after = cursors.after(identity, &query.page).await?;
        let mut listing = MemoryListing {
            below,
            depth,
            after,
            // One more item shows whether there is another page.
            limit: limit + 1,
        };
        let tenant_id = principal.tenant_id;
        let _slot = match view {
            View::Full => Some(self.pages.take(tenant_id).await?),
            View::Basic => None,
        };
        loop {
            let found = self.context.index.memories.list(tenant_id, store_id, &listing).await?;
            let mut found = found.ok_or(EngineError::NotFound(ObjectKind::Store))?;
            let mut fitting = (limit as usize).min(found.items.len());
            if view == View::Full {
                fitting = fitting.min(fitting_contents(found.items.iter().map(content_bytes)));
            }
            let has_more = found.items.len() > fitting;
            found.items.truncate(fitting);
            let last = found.items.last().filter(|_| has_more);
            let last = last.map(|item| item.path().to_owned());
            let items = self.reader.items(principal, store_id, found, view).await?;
            let Some(last) = last else {
                return Ok(Page { items, next: None });
            };
            if !items.is_empty() {
                let next = Some(self.context.cursors.seal(identity, &last).await?);
                return Ok(Page { items, next });
            }
            // All memories of the page were deleted while their contents were
            // fetched.
            listing.after = Some(last);
        }
    }

    /// What is below directories, in one query; paths at which no directory is are left out.
    pub async fn directories(
        &self,
        principal: &Principal,
        store_id: StoreId,
        paths: &[&str],
    ) -> Result<Vec<DirectorySummary>, EngineError> {
        principal.require_in(Scope::MemoryRead, store_id)?;
        Ok(self.context.index.memories.directories(principal.tenant_id, store_id, paths).await?)
    }

    /// The text with a mark in place of each secret in the lines that `before` does not have;
    /// `None`: there are none, or marks cannot replace them.
    pub fn marked(&self, before: Option<&str>, text: &str) -> Option<String> {
        self.context.scanner.redact_change(before, text).map(|redacted| redacted.text)
    }

    async fn at_path(
        &self,
        principal: &Principal,
        store_id: StoreId,
        path: &MemoryPath,
        view: View,
    ) -> Result<Option<ShownItem>, EngineError> {
        let tenant_id = principal.tenant_id;
        let lookup = self.context.look_up(tenant_id, store_id, Some(path)).await?;
        let Target::Memory(head) = lookup.target else {
            return Ok(None);
        };
        let found = self.context.find_memory(tenant_id, store_id, head.memory_id).await?;
        let MemoryTarget::Live(memory) = found.target else {
            return Ok(None);
        };
        self.reader.memory(principal, store_id, found.store, found.expiry, memory, view).await
    }

    /// Creates a memory, or replaces the content of the memory at the path. After a
    /// failure of the index the memory may have been created.
    #[tracing::instrument(name = "engine.create_memory", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn create(
        &self,
        principal: &Arc<Principal>,
        store_id: StoreId,
        new: NewMemory,
    ) -> Result<ShownMemory, EngineError> {
        require_write(principal, store_id, new.view)?;
        let creation = Creation {
            on_taken: new.on_taken(),
            expiry: parse_expiry(new.pinned, new.expires_at.as_deref())?,
            path: parse_path(&new.path)?,
            content: parse_content(principal, new.content)?,
            expected: None,
            now: self.context.now(),
        };
        let sent = SentFields::by_creation(&creation);
        let outcome = self.write(principal, store_id, creation, new.idempotency, new.view);
        conceal_write(principal, outcome.await, &sent, self.context.now())
    }

    /// Changes a memory's content, path, pin or expiry time, in at most one version. An
    /// update without any difference writes no version. After a failure of the index the
    /// memory may have been changed.
    #[tracing::instrument(name = "engine.update_memory", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn update(
        &self,
        principal: &Arc<Principal>,
        store_id: StoreId,
        memory_id: MemoryId,
        edit: MemoryEdit,
    ) -> Result<ShownMemory, EngineError> {
        require_write(principal, store_id, edit.view)?;
        let (view, idempotency) = (edit.view, edit.idempotency);
        let expiry = parse_expiry(edit.pinned, edit.expires_at.as_deref())?;
        let (path, now) = (edit.path.as_deref(), self.context.now());
        let update = parse_update(principal, memory_id, edit.content, path, expiry, edit.precondition, now)?;
        let sent = SentFields::by_update(&update);
        let outcome = self.write(principal, store_id, update, idempotency, view);
        conceal_write(principal, outcome.await, &sent, self.context.now())
    }

    /// Deletes a memory; its versions are kept. With `expected`, the memory's content
    /// must have this hash. After a failure of the index the memory may have been
    /// deleted.
    #[tracing::instrument(name = "engine.delete_memory", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn delete(
        &self,
        principal: &Arc<Principal>,
        store_id: StoreId,
        memory_id: MemoryId,
        expected: Option<ContentHash>,
    ) -> Result<(), EngineError> {
        principal.require_writable(store_id)?;
        let deletion = Update::deletion(memory_id, expected);
        let (memories, owner) = (self.clone(), Arc::clone(principal));
        let outcome = self.context.run_to_end(async move {
            let write = memories.writer.write(&owner, store_id, None);
            write.run_once(&deletion).await.map(drop)
        });
        let refusal = |error| conceal_refusal(principal, error, None);
        outcome.await.map_err(refusal)
    }

    /// Restores a version's content and path as a new version of its memory. A deleted
    /// memory is restored with its old id. A version without content cannot be restored.
    /// After a failure of the index the version may have been restored.
    #[tracing::instrument(name = "engine.restore_version", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn restore(
        &self,
        principal: &Arc<Principal>,
        store_id: StoreId,
        version_id: VersionId,
        restoration: Restoration,
    ) -> Result<ShownMemory, EngineError> {
        principal.require_writable(store_id)?;
        // The answer shows path, hash and size of the version's content.
        principal.require(Scope::MemoryRead)?;
        principal.require_no_session()?;
        let (idempotency, view) = (restoration.idempotency, restoration.view);
        let restored = VersionRestoration {
            version_id,
            precondition: restoration.precondition,
            limit_bytes: principal.limits.bytes_per_memory,
        };
        self.write(principal, store_id, restored, idempotency, view).await
    }

    async fn write<C>(
        &self,
        principal: &Arc<Principal>,
        store_id: StoreId,
        change: C,
        idempotency: Option<Idempotency>,
        view: View,
    ) -> Result<ShownMemory, EngineError>
    where
        C: Change<Error = EngineError> + Send + 'static,
        C::Read: Into<Option<FoundMemory>>,
    {
        let (memories, owner) = (self.clone(), Arc::clone(principal));
        self.context
            .run_to_end(async move {
                let write = memories.writer.write(&owner, store_id, idempotency);
                let (outcome, read) = write.run_once(&change).await?;
                let answer = Answer { reader: &memories.reader, principal: &owner, store_id, view };
                answer.to(outcome, read.and_then(Into::into)).await
            })
            .await
    }
}

/// The number of contents with these sizes that fit on one page; at least one.
pub(crate) fn fitting_contents(sizes: impl Iterator<Item = u64>) -> usize {
    let mut bytes = 0;
    let fitting = sizes.take_while(|size_bytes| {
        bytes += size_bytes;
        bytes <= PAGE_CONTENT_BYTES
    });
    fitting.count().max(1)
}

/// The size of an item's content.
fn content_bytes(item: &MemoryItem) -> u64 {
    match item {
        MemoryItem::Memory((memory, _)) => memory.head.content.size_bytes,
        MemoryItem::Prefix(_) => 0,
    }
}
