//! What changed in a store, in the order of the commits.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use keepsake_core::{StoreId, TenantId};
use keepsake_index::{ChangePage, Scope, Version};
use moka::future::Cache;

use crate::context::Context;
use crate::watch::{State, Watch, Watched};
use crate::{EngineError, PageRequest, Principal};

/// How long readers that follow a store share a page.
const SHARED_FOR: Duration = Duration::from_secs(2);
/// Maximum number of shared pages.
const SHARED_PAGES: u64 = 256;
/// Changes of a page for readers that follow a store: a slow reader holds one.
const FOLLOWED: u32 = 50;

/// A store that is watched, and the head that the query finds: the sequence number
/// of its newest change, and the number of removals of its history.
type Place = (TenantId, StoreId);
type Head = (i64, i64);

/// Changes of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreChanges {
    /// The store.
    pub store_id: StoreId,
    /// The changes, oldest first.
    pub changes: Arc<[Version]>,
    /// The place after them.
    pub next_after: i64,
    /// Whether there were further changes.
    pub has_more: bool,
    /// Whether changes before `next_after` are missing because they were removed.
    /// Then the reader must list the whole store.
    pub is_history_removed: bool,
}

impl StoreChanges {
    fn none(store_id: StoreId, after: i64) -> Self {
        Self {
            store_id,
            changes: Arc::default(),
            next_after: after,
            has_more: false,
            is_history_removed: false,
        }
    }
}

/// A store that a reader follows.
#[derive(Debug)]
pub struct FollowedStore {
    store_id: StoreId,
    watched: Watched<Head>,
}

impl FollowedStore {
    /// Waits until the store has changed since the last call.
    pub async fn changed(&mut self) {
        self.watched.changed().await;
    }
}

/// Reads and follows the changes of stores; cheap to clone.
#[derive(Debug, Clone)]
pub struct Changes {
    context: Arc<Context>,
    watch: Arc<Watch<Place, Head>>,
    /// A change that wakes many readers is read once. The key contains the head that they
    /// saw, so a page is never older than that head.
    pages: Cache<(Place, State<Head>, i64), Arc<ChangePage>>,
}

impl Changes {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        let index = context.index.clone();
        let watch = Watch::new(move |stores: Vec<Place>| {
            let index = index.clone();
            async move {
                let heads = index.changes.store_heads(&stores).await?;
                let by_store = heads
                    .iter()
                    .map(|head| ((head.tenant_id, head.store_id), (head.seq, head.purge_epoch)));
                Ok(by_store.collect::<HashMap<_, _>>())
            }
        });
        Self {
            context,
            watch: Arc::new(watch),
            pages: Cache::builder()
                .max_capacity(SHARED_PAGES)
                .time_to_live(SHARED_FOR)
                .build(),
        }
    }

    /// Lists the changes after a place, oldest first; from the first one: 0.
    ///
    /// # Errors
    /// [`EngineError::PermissionDenied`], [`EngineError::StoreNotFound`],
    /// [`EngineError::Invalid`], [`EngineError::Index`].
    #[tracing::instrument(name = "engine.changes", level = "debug", skip_all)]
    pub async fn list(
        &self,
        principal: &Principal,
        store_id: StoreId,
        after: i64,
        limit: Option<u64>,
    ) -> Result<StoreChanges, EngineError> {
        allow(principal, store_id)?;
        let page = PageRequest { limit, page: None };
        let limit = page.session_limit()?;
        let page = self.read((principal.tenant_id, store_id), after, limit).await?;
        Ok(shown(store_id, after, limit, &page))
    }

    /// Begins to follow a store.
    ///
    /// # Errors
    /// [`EngineError::PermissionDenied`], [`EngineError::StoreNotFound`] for a
    /// credential that is bound to other stores, [`EngineError::TooManyStreams`].
    pub fn follow(&self, principal: &Principal, store_id: StoreId) -> Result<FollowedStore, EngineError> {
        allow(principal, store_id)?;
        let tenant_id = principal.tenant_id;
        let watched = self.watch.watch(tenant_id, (tenant_id, store_id))?;
        Ok(FollowedStore { store_id, watched })
    }

    /// The changes after a place, for a reader that follows the store. Readers at the
    /// same place share one read, and a reader at the end costs none.
    ///
    /// # Errors
    /// As of [`Self::list`].
    pub async fn next(
        &self,
        principal: &Principal,
        followed: &FollowedStore,
        after: i64,
    ) -> Result<StoreChanges, EngineError> {
        let store_id = followed.store_id;
        allow(principal, store_id)?;
        let state = followed.watched.state();
        if let State::Found(Some((seq, _))) = state
            && seq == after
        {
            return Ok(StoreChanges::none(store_id, after));
        }
        let place = (principal.tenant_id, store_id);
        let read = async { self.read(place, after, FOLLOWED).await.map(Arc::new) };
        let page = self.pages.try_get_with((place, state, after), read).await;
        let page = page.map_err(EngineError::Shared)?;
        Ok(shown(store_id, after, FOLLOWED, &page))
    }

    /// The place after the newest change of a store.
    ///
    /// # Errors
    /// As of [`Self::list`].
    pub async fn newest(&self, principal: &Principal, store_id: StoreId) -> Result<i64, EngineError> {
        allow(principal, store_id)?;
        let page = self.read((principal.tenant_id, store_id), i64::MAX, 1).await?;
        Ok(page.seq)
    }

    async fn read(
        &self,
        (tenant_id, store_id): Place,
        after: i64,
        limit: u32,
    ) -> Result<ChangePage, EngineError> {
        let changes = &self.context.index.changes;
        let page = changes.after(tenant_id, store_id, after, limit).await?;
        page.ok_or(EngineError::StoreNotFound)
    }
}

/// A session's token is refused: changes name the actors of the whole store.
fn allow(principal: &Principal, store_id: StoreId) -> Result<(), EngineError> {
    principal.require(Scope::MemoryRead)?;
    principal.require_store(store_id)?;
    principal.require_no_session()
}

fn shown(store_id: StoreId, after: i64, limit: u32, page: &ChangePage) -> StoreChanges {
    let is_full = page.versions.len() == limit as usize;
    let last = page.versions.last().map(|version| version.seq);
    // A store that was restored from a backup may end before the place.
    let next_after = last.filter(|_| is_full).unwrap_or(page.seq);
    let expected = usize::try_from(next_after - after).ok();
    StoreChanges {
        store_id,
        changes: Arc::clone(&page.versions),
        next_after,
        has_more: next_after < page.seq,
        is_history_removed: expected != Some(page.versions.len()),
    }
}
