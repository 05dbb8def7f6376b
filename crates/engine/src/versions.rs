//! The history of a store: reading versions, and restoring one.

use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt};
use keepsake_core::actor::ActorKind;
use keepsake_core::{BlobKey, MemoryId, StoreId, Timestamp, VersionId};
use keepsake_index::{
    FoundVersion, Idempotency, MemoryTarget, Operation, Scope, StoreState, Version, VersionListing,
};

use crate::cursor::Query;
use crate::memories::{Past, Precondition, Seen, ShownMemory, Try, View, Writer, content_differs};
use crate::protocol::{CAS_ATTEMPTS, Committed, Proposed, WriteRefusal};
use crate::{Engine, EngineError, Page, PageRequest, Principal};

/// Contents fetched concurrently for one listing.
const FETCHES_AT_ONCE: usize = 10;

/// A version as returned to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownVersion {
    /// The store.
    pub store_id: StoreId,
    /// The version.
    pub version: Version,
    /// Its content, if requested and still stored.
    pub content: Option<Arc<str>>,
}

/// Filters of a version listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VersionQuery {
    /// Only versions of this memory.
    pub memory_id: Option<MemoryId>,
    /// Only versions with this operation.
    pub operation: Option<Operation>,
    /// Only versions by these actors; a version has one actor, so two different
    /// actors find nothing.
    pub actors: Vec<(ActorKind, String)>,
    /// Created at or after this time.
    pub created_from: Option<Timestamp>,
    /// Created at or before this time.
    pub created_to: Option<Timestamp>,
    /// The page to return.
    pub page: PageRequest,
}

impl VersionQuery {
    fn identity(&self, principal: &Principal, store_id: StoreId) -> Query {
        let time = |time: Option<Timestamp>| time.map_or(String::new(), |time| time.as_micros().to_string());
        let actors: Vec<_> = self
            .actors
            .iter()
            .map(|(kind, id)| format!("{} {id}", kind.name()))
            .collect();
        Query::of(&[
            b"versions",
            principal.tenant_id.uuid().as_bytes(),
            store_id.uuid().as_bytes(),
            self.memory_id
                .map(|id| id.to_string())
                .unwrap_or_default()
                .as_bytes(),
            self.operation.map_or("", Operation::name).as_bytes(),
            actors.join("\n").as_bytes(),
            time(self.created_from).as_bytes(),
            time(self.created_to).as_bytes(),
        ])
    }
}

impl Engine {
    /// Reads a version.
    ///
    /// # Errors
    /// [`EngineError::PermissionDenied`], [`EngineError::StoreNotFound`],
    /// [`EngineError::VersionNotFound`], and failures of index and blob store.
    #[tracing::instrument(name = "engine.version", level = "debug", skip_all)]
    pub async fn version(
        &self,
        principal: &Principal,
        store_id: StoreId,
        version_id: VersionId,
        view: View,
    ) -> Result<ShownVersion, EngineError> {
        principal.require(Scope::MemoryRead)?;
        principal.require_store(store_id)?;
        principal.require_no_session()?;
        let (store, version) = self.find_version(principal, store_id, version_id).await?;
        self.show_version(principal, store_id, store, version, view).await
    }

    /// Lists versions, newest first.
    ///
    /// # Errors
    /// [`EngineError::PermissionDenied`], [`EngineError::StoreNotFound`],
    /// [`EngineError::Invalid`], and failures of index and blob store.
    #[tracing::instrument(name = "engine.versions", level = "debug", skip_all)]
    pub async fn versions(
        &self,
        principal: &Principal,
        store_id: StoreId,
        query: &VersionQuery,
        view: View,
    ) -> Result<Page<ShownVersion>, EngineError> {
        principal.require(Scope::MemoryRead)?;
        principal.require_store(store_id)?;
        principal.require_no_session()?;
        let limit = query.page.limit(view == View::Full)?;
        let identity = query.identity(principal, store_id);
        let before = match &query.page.page {
            Some(page) => {
                let position = self.unseal(identity, page).await?;
                let seq = <[u8; 8]>::try_from(position)
                    .map_err(|_| EngineError::Internal("a cursor of no version"))?;
                Some(i64::from_be_bytes(seq))
            }
            None => None,
        };
        let mut actors = query.actors.clone();
        actors.dedup();
        let is_contradiction = actors.len() > 1;
        let listing = VersionListing {
            memory_id: query.memory_id,
            operation: query.operation,
            actor: actors.pop(),
            created_from: query.created_from,
            created_to: query.created_to,
            before,
            // One more item shows whether there is another page.
            limit: limit + 1,
        };
        let found = self
            .0
            .index
            .versions
            .list(principal.tenant_id, store_id, &listing)
            .await?;
        let mut found = found.ok_or(EngineError::StoreNotFound)?;
        if is_contradiction {
            found.versions.clear();
        }
        let has_more = found.versions.len() > limit as usize;
        found.versions.truncate(limit as usize);
        let next = match found.versions.last() {
            Some(last) if has_more => Some(self.seal(identity, &last.seq.to_be_bytes()).await?),
            _ => None,
        };
        let store = found.store;
        let items = stream::iter(found.versions)
            .map(|version| self.show_version(principal, store_id, store, version, view))
            .buffered(FETCHES_AT_ONCE)
            .try_collect()
            .await?;
        Ok(Page { items, next })
    }

    /// Restores a version's content and path as a new version of its memory. A
    /// deleted memory is restored with its old id.
    ///
    /// # Errors
    /// [`EngineError::Conflict`] for a version without content,
    /// [`EngineError::VersionNotFound`], and those of
    /// [`Engine::update_memory`].
    #[tracing::instrument(name = "engine.restore_version", level = "debug", skip_all)]
    pub async fn restore_version(
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
        let (engine, owner) = (self.clone(), Arc::clone(principal));
        self.run_to_end(async move {
            let writer = Writer::new(&engine, &owner, store_id, restoration.idempotency.as_ref());
            let _turn = writer.turn_of_call().await;
            let outcome = restore(&writer, version_id, restoration.precondition).await;
            writer.conclude(outcome, restoration.view).await
        })
        .await
    }

    pub(crate) async fn find_version(
        &self,
        principal: &Principal,
        store_id: StoreId,
        version_id: VersionId,
    ) -> Result<(StoreState, Version), EngineError> {
        let tenant_id = principal.tenant_id;
        let versions = &self.0.index.versions;
        let found = versions.find(tenant_id, store_id, version_id).await?;
        let FoundVersion { store, version } = found.ok_or(EngineError::StoreNotFound)?;
        Ok((store, version.ok_or(EngineError::VersionNotFound)?))
    }

    async fn show_version(
        &self,
        principal: &Principal,
        store_id: StoreId,
        store: StoreState,
        mut version: Version,
        view: View,
    ) -> Result<ShownVersion, EngineError> {
        let mut content = None;
        if view == View::Full {
            content = self.text_of(principal, store_id, store, &version).await?;
            if content.is_none() && version.content.is_some() {
                // Redacted since the look-up.
                version = self
                    .find_version(principal, store_id, version.version_id)
                    .await?
                    .1;
            }
        }
        Ok(ShownVersion {
            store_id,
            version,
            content,
        })
    }

    /// The content of a version; `None`: it has none, or it was removed.
    async fn text_of(
        &self,
        principal: &Principal,
        store_id: StoreId,
        store: StoreState,
        version: &Version,
    ) -> Result<Option<Arc<str>>, EngineError> {
        let Some(content) = version.content else {
            return Ok(None);
        };
        let key = BlobKey {
            tenant_id: principal.tenant_id,
            store_id,
            blob_id: content.blob_id,
        };
        let text = self.content_at(key, store.purge_epoch, content.into()).await?;
        if text.is_some() {
            return Ok(text);
        }
        let (_, again) = self.find_version(principal, store_id, version.version_id).await?;
        if again.content.is_none() {
            return Ok(None);
        }
        tracing::error!(
            tenant.id = %principal.tenant_id, store.id = %store_id, memory.id = %version.memory_id,
            "blob.missing: the index names a blob that the object store does not have"
        );
        Err(EngineError::Damaged("its blob is missing"))
    }
}

/// The options of a restoration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restoration {
    /// The condition for the restoration.
    pub precondition: Option<Precondition>,
    /// Whether the answer contains the content.
    pub view: View,
    /// Makes the call idempotent.
    pub idempotency: Option<Idempotency>,
}

async fn restore(
    writer: &Writer<'_>,
    version_id: VersionId,
    precondition: Option<Precondition>,
) -> Result<Try, EngineError> {
    if let Some(seq) = writer.made_before().await? {
        return Ok(Try::Replayed(seq));
    }
    for _ in 0..CAS_ATTEMPTS {
        match restore_once(writer, version_id, precondition).await? {
            Try::Again => {}
            done => return Ok(done),
        }
    }
    Err(EngineError::Contended)
}

async fn restore_once(
    writer: &Writer<'_>,
    version_id: VersionId,
    precondition: Option<Precondition>,
) -> Result<Try, EngineError> {
    let (engine, principal, store_id) = (writer.engine, writer.principal, writer.store_id);
    let (store, version) = engine.find_version(principal, store_id, version_id).await?;
    if store.is_archived {
        return Err(EngineError::StoreArchived);
    }
    if version.redacted_at.is_some() {
        return Err(EngineError::Conflict(
            "the version was redacted: there is nothing to restore",
        ));
    }
    let (Some(path), Some(content)) = (version.path.clone(), version.content) else {
        return Err(EngineError::Conflict(
            "the version records a deletion: restore one from before it",
        ));
    };
    let limit_bytes = principal.limits.bytes_per_memory;
    if content.size_bytes > limit_bytes {
        let size_bytes = content.size_bytes;
        return Err(EngineError::Invalid {
            field: "content",
            rule: format!(
                "of the version is {size_bytes} bytes, over the limit of {limit_bytes} bytes per memory"
            ),
        });
    }
    let _turn = writer.turn(path.as_str()).await;
    let found = engine.find_memory(principal, store_id, version.memory_id).await?;
    let seen = Seen::of(&found);
    let (live, revives, past) = match found.target {
        MemoryTarget::Missing => return Err(EngineError::MemoryNotFound),
        MemoryTarget::Live(memory) => {
            let past = Past::of(&memory);
            (Some(memory), None, past)
        }
        MemoryTarget::Deleted {
            version_id,
            created_at,
            is_pinned,
            last_read_at,
            active_at,
        } => {
            let past = Past {
                created_at: Some(created_at),
                is_pinned,
                last_read_at,
                active_at,
            };
            (None, Some(version_id), past)
        }
    };
    if let Some(memory) = &live
        && memory.head.path == path
        && memory.head.sha256 == content.sha256
    {
        return writer.pin(seen, memory.clone(), None).await;
    }
    if let Some(Precondition::ContentSha256(expected)) = precondition {
        match &live {
            Some(memory) if memory.head.sha256 == expected => {}
            Some(memory) => return Err(content_differs(&memory.head)),
            None => {
                return Err(EngineError::PreconditionFailed {
                    why: "the precondition does not hold: the memory is deleted and has no content",
                    memory_id: Some(version.memory_id),
                    current_sha256: None,
                });
            }
        }
    }
    let Some(text) = engine.text_of(principal, store_id, store, &version).await? else {
        return Ok(Try::Again);
    };
    // The whole content counts as new.
    let policy = engine
        .judge_as_sent(principal, store_id, async || Ok(None), &text)
        .await?;
    let change = Proposed::Restore {
        memory_id: version.memory_id,
        before: live.as_ref().map(|memory| memory.head.clone()),
        revives,
        path,
        content,
        text,
    };
    let outcome = writer.commit(change, Some(store.purge_epoch), policy).await?;
    if let (Some(Precondition::NotExists), Some(memory)) = (precondition, live)
        && let Committed::Refused(WriteRefusal::PathTaken { .. }) = outcome
    {
        return writer.pin(seen, memory, None).await;
    }
    writer.settle(outcome, past).await
}
