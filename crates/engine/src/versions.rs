//! The history of a store: reading versions.

use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt};
use keepsake_core::actor::ActorKind;
use keepsake_core::{MemoryId, StoreId, Timestamp, VersionId};
use keepsake_index::{Operation, Scope, StoreState, Version, VersionListing};

use crate::cursor::Query;
use crate::memories::View;
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
        let (store, version) = self
            .0
            .find_version(principal.tenant_id, store_id, version_id)
            .await?;
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

    async fn show_version(
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
            let contents = &self.0.contents;
            content = contents
                .of_version(tenant_id, store_id, store.purge_epoch, &version)
                .await?;
            if content.is_none() && version.content.is_some() {
                // Redacted since the look-up.
                version = self
                    .0
                    .find_version(tenant_id, store_id, version.version_id)
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
}
