//! The history of a store: reading and redacting versions.
//!
//! A redaction first clears the version's row, in a transaction that queues the
//! blob and increments the store's purge epoch, so that every cache drops its
//! entries. The blob is removed afterwards; if that fails, it stays queued.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use keepsake_core::actor::ActorKind;
use keepsake_core::{BlobKey, MemoryId, ObjectKind, StoreId, TenantId, Timestamp, VersionId};
use keepsake_index::{
    DeletionReason, DueDeletion, MemoryDeletion, Operation, RedactionOutcome, Scope, StoreState, Version,
    VersionListing,
};
use serde::Serialize;

use crate::content::ContentLoss;
use crate::cursor::Query;
use crate::memories::View;
use crate::request_fields::parse_path;
use crate::shared::service;
use crate::{EngineError, Page, PageRequest, Principal};

const FETCHES_AT_ONCE: usize = 10;

/// A version, or a memory as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownVersion<V = Version> {
    pub store_id: StoreId,
    pub version: V,
    /// The content, if requested and still stored.
    pub content: Option<Arc<str>>,
    /// Why the requested content is missing, although it was not removed.
    pub lost: Option<ContentLoss>,
}

impl ShownVersion {
    /// The error of the requested content that is missing.
    pub fn content_error(&self) -> Option<EngineError> {
        self.lost.map(|loss| loss.error(self.version.path.as_ref(), self.version.version_id))
    }
}

impl<V> ShownVersion<V> {
    /// What was shown or, if the content is lost, the version without it.
    pub(crate) fn or_lost(
        shown: Result<Self, EngineError>,
        store_id: StoreId,
        version: V,
    ) -> Result<Self, EngineError> {
        shown.or_else(|error| {
            Ok(Self { store_id, version, content: None, lost: Some(ContentLoss::of(error)?) })
        })
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct VersionQuery {
    pub memory_id: Option<MemoryId>,
    pub operation: Option<Operation>,
    /// A version has one actor, so two different actors find nothing.
    pub actors: Vec<(ActorKind, String)>,
    /// Whether imported versions that name these actors count, too.
    pub includes_imported: bool,
    /// Inclusive.
    pub created_from: Option<Timestamp>,
    /// Inclusive.
    pub created_to: Option<Timestamp>,
    #[serde(skip)]
    pub page: PageRequest,
}

/// Maximum number of versions of one look-up.
const MAX_LOOKED_UP: usize = 200;

/// Maximum number of reported versions with the same content.
const MAX_SAME_CONTENT: u32 = 1000;

service!(pub Versions);

impl Versions {
    #[tracing::instrument(name = "engine.version", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn get(
        &self,
        principal: &Principal,
        store_id: StoreId,
        version_id: VersionId,
        view: View,
    ) -> Result<ShownVersion, EngineError> {
        let (store, version) = self.find(principal, store_id, version_id).await?;
        self.show(principal, store_id, store, version, view).await
    }

    /// Reads a version with its content, or with the reason why the content is lost.
    #[tracing::instrument(name = "engine.inspect_version", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn inspect(
        &self,
        principal: &Principal,
        store_id: StoreId,
        version_id: VersionId,
    ) -> Result<ShownVersion, EngineError> {
        let (store, version) = self.find(principal, store_id, version_id).await?;
        self.show_or_lost(principal, store_id, store, version, View::Full).await
    }

    async fn find(
        &self,
        principal: &Principal,
        store_id: StoreId,
        version_id: VersionId,
    ) -> Result<(StoreState, Version), EngineError> {
        principal.require_outside_session(Scope::MemoryRead, store_id)?;
        self.context.find_version(principal.tenant_id, store_id, version_id).await
    }

    /// Looks up the first 200 of these versions of a store, without their content. Versions that do not exist are
    /// left out.
    #[tracing::instrument(name = "engine.versions_by_id", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn look_up(
        &self,
        principal: &Principal,
        store_id: StoreId,
        version_ids: &[VersionId],
    ) -> Result<Vec<ShownVersion>, EngineError> {
        principal.require_outside_session(Scope::MemoryRead, store_id)?;
        let version_ids = &version_ids[..version_ids.len().min(MAX_LOOKED_UP)];
        let versions = &self.context.index.versions;
        let found = versions.find_all(principal.tenant_id, store_id, version_ids).await?;
        let shown = |version| ShownVersion { store_id, version, content: None, lost: None };
        Ok(found.into_iter().map(shown).collect())
    }

    /// Newest first.
    #[tracing::instrument(name = "engine.versions", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn list(
        &self,
        principal: &Principal,
        store_id: StoreId,
        query: &VersionQuery,
        view: View,
    ) -> Result<Page<ShownVersion>, EngineError> {
        principal.require_outside_session(Scope::MemoryRead, store_id)?;
        let limit = query.page.limit(view == View::Full)?;
        let identity = Query::filtered("versions", principal.tenant_id, &(store_id, query))?;
        let cursors = &self.context.cursors;
        let before = cursors.after(identity, &query.page).await?;
        let mut actors = query.actors.clone();
        actors.dedup();
        let is_contradiction = actors.len() > 1;
        let listing = VersionListing {
            memory_id: query.memory_id,
            operation: query.operation,
            actor: actors.pop(),
            includes_imported: query.includes_imported,
            created_from: query.created_from,
            created_to: query.created_to,
            before,
            // One more item shows whether there is another page.
            limit: limit + 1,
        };
        let found = self.context.index.versions.list(principal.tenant_id, store_id, &listing).await?;
        let (store, mut versions) = found.ok_or(EngineError::NotFound(ObjectKind::Store))?;
        if is_contradiction {
            versions.clear();
        }
        let page = cursors.page(identity, versions, limit, |version| version.seq).await?;
        let items = stream::iter(page.items)
            .map(|version| self.show_or_lost(principal, store_id, store, version, view))
            .buffered(FETCHES_AT_ONCE)
            .try_collect()
            .await?;
        Ok(Page { items, next: page.next })
    }

    /// The versions before those of these versions of a store that moved their memories, by the ids
    /// of the later ones.
    #[tracing::instrument(name = "engine.versions_before_moves", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn before_moves(
        &self,
        principal: &Principal,
        store_id: StoreId,
        versions: &[ShownVersion],
    ) -> Result<HashMap<VersionId, Version>, EngineError> {
        principal.require_outside_session(Scope::MemoryRead, store_id)?;
        let versions: Vec<_> = versions.iter().map(|shown| &shown.version).collect();
        let mut known: HashMap<_, _> =
            versions.iter().map(|version| (version.seq, Version::clone(version))).collect();
        let modified = || versions.iter().filter(|version| version.operation == Operation::Modified);
        let before = modified().filter_map(|version| version.prev_seq);
        let unknown: Vec<_> = before.filter(|seq| !known.contains_key(seq)).collect();
        if !unknown.is_empty() {
            known.extend(self.context.index.undos.versions(principal.tenant_id, store_id, &unknown).await?);
        }
        let moved = modified().filter_map(|version| {
            let before = known.get(&version.prev_seq?)?;
            version.has_moved_from(before).then(|| (version.version_id, before.clone()))
        });
        Ok(moved.collect())
    }

    /// Lists the memories that were deleted and can be restored, the last deleted first. With a path, only memories
    /// that were deleted there.
    #[tracing::instrument(name = "engine.deletions", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn deletions(
        &self,
        principal: &Principal,
        store_id: StoreId,
        path: Option<&str>,
        page: &PageRequest,
    ) -> Result<Page<MemoryDeletion>, EngineError> {
        principal.require_outside_session(Scope::MemoryRead, store_id)?;
        let path = path.map(parse_path).transpose()?;
        let limit = page.limit(false)?;
        let identity = Query::filtered("deletions", principal.tenant_id, &(store_id, &path))?;
        let cursors = &self.context.cursors;
        let before = cursors.after(identity, page).await?;
        // Deletions of memories that cannot be restored are read, too.
        let _slot = self.pages.take(principal.tenant_id).await?;
        let versions = &self.context.index.versions;
        // One more item shows whether there is another page.
        let found =
            versions.deletions(principal.tenant_id, store_id, path.as_ref(), before, limit + 1).await?;
        let found = found.ok_or(EngineError::NotFound(ObjectKind::Store))?;
        let found = cursors.page(identity, found, limit, |deletion| deletion.seq).await?;
        let kept_for = Duration::from_secs(principal.limits.version_retention_secs);
        Ok(found.map(|deletion| MemoryDeletion {
            restorable_until: deletion.deleted_at.plus(kept_for),
            ..deletion
        }))
    }

    /// Lists the other versions of the store with the same content, newest
    /// first, at most 1,000. A redaction of this version does not remove them.
    #[tracing::instrument(name = "engine.same_content", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn same_content(
        &self,
        principal: &Principal,
        store_id: StoreId,
        version_id: VersionId,
    ) -> Result<Vec<VersionId>, EngineError> {
        principal.require_in(Scope::StoresAdmin, store_id)?;
        let tenant_id = principal.tenant_id;
        let (_, version) = self.context.find_version(tenant_id, store_id, version_id).await?;
        self.also_in(tenant_id, store_id, &version).await
    }

    async fn also_in(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        version: &Version,
    ) -> Result<Vec<VersionId>, EngineError> {
        let Some(content) = version.content else {
            return Ok(Vec::new());
        };
        // The query reads the store's whole history, so a tenant runs few of them at once.
        let _slot = self.pages.take(tenant_id).await?;
        let versions = &self.context.index.versions;
        let mut also_in =
            versions.with_content(tenant_id, store_id, content.sha256, MAX_SAME_CONTENT + 1).await?;
        also_in.retain(|other| *other != version.version_id);
        also_in.truncate(MAX_SAME_CONTENT as usize);
        Ok(also_in)
    }

    async fn show(
        &self,
        principal: &Principal,
        store_id: StoreId,
        store: StoreState,
        mut version: Version,
        view: View,
    ) -> Result<ShownVersion, EngineError> {
        let tenant_id = principal.tenant_id;
        let mut content = None;
        if view == View::Full {
            let contents = &self.contents;
            content = contents.of_version(tenant_id, store_id, store.purge_epoch, &version).await?;
            if content.is_none() && version.content.is_some() {
                // Redacted since the look-up.
                version = self.context.find_version(tenant_id, store_id, version.version_id).await?.1;
            }
            if content.is_some() {
                self.access.record_version(principal, store_id, version.version_id);
            }
        }
        Ok(ShownVersion { store_id, version, content, lost: None })
    }

    /// Like [`Self::show`], but a lost content is no error.
    async fn show_or_lost(
        &self,
        principal: &Principal,
        store_id: StoreId,
        store: StoreState,
        version: Version,
        view: View,
    ) -> Result<ShownVersion, EngineError> {
        let shown = self.show(principal, store_id, store, version.clone(), view).await;
        ShownVersion::or_lost(shown, store_id, version)
    }

    /// Removes a version's content, path, size and hash, and its blob. The content of a
    /// live memory cannot be redacted. After a failure of the index the content may have
    /// been removed.
    ///
    /// Returns the version after the redaction, and the versions of the store that still have
    /// the same content, newest first, at most 1,000; `None`: the version was redacted earlier,
    /// and its content is no longer known.
    ///
    /// Idempotent. The blob is removed at once if the object store is available,
    /// otherwise later. It is kept while other versions share it.
    #[tracing::instrument(name = "engine.redact_version", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn redact(
        &self,
        principal: &Arc<Principal>,
        store_id: StoreId,
        version_id: VersionId,
    ) -> Result<(ShownVersion, Option<Vec<VersionId>>), EngineError> {
        principal.require_in(Scope::StoresAdmin, store_id)?;
        let (versions, owner) = (self.clone(), Arc::clone(principal));
        let redaction = async move { versions.redact_now(&owner, store_id, version_id).await };
        self.context.run_to_end(redaction).await
    }

    async fn redact_now(
        &self,
        principal: &Principal,
        store_id: StoreId,
        version_id: VersionId,
    ) -> Result<(ShownVersion, Option<Vec<VersionId>>), EngineError> {
        let tenant_id = principal.tenant_id;
        // Queried before the redaction, which removes the hash. If this query
        // fails, the client can retry; after the redaction it could not be
        // answered.
        let (_, before) = self.context.find_version(tenant_id, store_id, version_id).await?;
        let also_in = self.also_in(tenant_id, store_id, &before).await?;
        let (redactions, audited) = (&self.context.index.redactions, self.context.audited_by(principal));
        let outcome = redactions.redact(tenant_id, store_id, version_id, &audited).await?;
        if let RedactionOutcome::Redacted { condemned: Some(blob_id) } = outcome {
            self.remove_condemned(BlobKey { tenant_id, store_id, blob_id }).await;
        }
        let also_in = (outcome != RedactionOutcome::AlreadyRedacted).then_some(also_in);
        let (_, version) = self.context.find_version(tenant_id, store_id, version_id).await?;
        Ok((ShownVersion { store_id, version, content: None, lost: None }, also_in))
    }

    /// On failure the blob stays in the queue.
    async fn remove_condemned(&self, key: BlobKey) {
        if let Err(error) = self.context.erase_blob(&key).await {
            tracing::warn!(blob.key = %key, error = %error, "blob.erase failed; the deletion queue tries again");
            return;
        }
        let done = DueDeletion { key, attempts: 0, reason: DeletionReason::Redacted };
        let queue = &self.context.index.blob_deletions;
        if let Err(error) = queue.finish(&[done], self.context.now(), None).await {
            tracing::warn!(blob.key = %key, error = %error, "index.deletions_done failed; the queue removes it again");
        }
    }
}
