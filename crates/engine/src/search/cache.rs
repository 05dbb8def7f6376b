//! The search indexes cached in this replica, with one limit on their bytes.
//!
//! Each search first queries the changes since its index was complete, and
//! applies them.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use keepsake_core::{ObjectKind, StoreId, TenantId};
use keepsake_telemetry::Cache as Looked;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tracing::Instrument;

use super::indexer::add_terms;
use super::lru::DividedLru;
use super::meaning::VectorsPlace;
use super::store::SearchedStore;
use crate::EngineError;
use crate::compute::off_the_runtime;
use crate::fair::{FairSlot, FairSlots};
use crate::shared::Shared;
use crate::work::keep_held;

/// Size of a store, in bytes of rows, up to which a search waits for the store's postings
/// that are being built. This is a few thousand memories and about a tenth of a second. A
/// search that read the rows instead would take a core from the build.
const SOON_MADE_BYTES: usize = 8 << 20;
/// Edits of vectors above which a store is loaded again: they may be as large as a store.
const FEW_EDITS: i64 = 64;
/// Reads of vectors in one search; the second follows a load that dropped the first ones.
const VECTOR_READS: u32 = 2;
/// How long the load of a store is awaited that no search waits for.
const LOAD_TIMEOUT: Duration = Duration::from_mins(2);
type Key = (TenantId, StoreId);

/// The indexes of recently searched stores; evicts the least recently used.
pub(super) struct Cache {
    shared: Arc<Shared>,
    /// Maximum bytes of one store; a store that fills most of the cache is not
    /// kept.
    max_store_bytes: usize,
    stores: DividedLru<Arc<SearchedStore>>,
    /// Postings are built for one store at a time, since building uses a core.
    builds: FairSlots,
    /// Two whole stores are loaded at a time, one of each tenant, since each
    /// load may take as much memory as the store.
    loads: FairSlots,
    /// The tenants for which a store is loaded that no search waits for.
    meanwhile: Mutex<HashSet<TenantId>>,
    /// Limits how many stores get missing terms at a time.
    indexings: Arc<Semaphore>,
}

impl Cache {
    /// Registers the size of the cache as a metric for as long as the cache exists.
    pub(super) fn new(shared: &Arc<Shared>) -> Arc<Self> {
        let max_bytes = shared.search_cache_bytes;
        let cache = Arc::new(Self {
            shared: Arc::clone(shared),
            max_store_bytes: usize::try_from(max_bytes / 2).unwrap_or(usize::MAX),
            stores: DividedLru::new(max_bytes),
            builds: FairSlots::new(1, 1),
            loads: FairSlots::new(2, 1),
            meanwhile: Mutex::default(),
            indexings: Arc::new(Semaphore::new(2)),
        });
        let of_cache = Arc::downgrade(&cache);
        let size = move || Some(of_cache.upgrade()?.stores.size_bytes());
        shared.context.metrics.watch_cache_size(Looked::Search, size);
        cache
    }

    /// Updates the weight of a store's index. An index that fills most of the
    /// cache is removed, since it would evict all others.
    fn weigh(&self, key: Key, store: &Arc<SearchedStore>) {
        let bytes = store.bytes.load(Ordering::Relaxed);
        if bytes > self.max_store_bytes {
            self.stores.remove(key);
            return;
        }
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.stores.insert(key, Arc::clone(store), bytes);
    }

    /// The index of a store, updated by one query, and one more if there are new vectors of
    /// `wanted`; `None`: it must be loaded. Waits for no slot.
    pub(super) async fn loaded_store(
        self: &Arc<Self>,
        tenant_id: TenantId,
        store_id: StoreId,
        wanted: Option<&VectorsPlace>,
    ) -> Result<Option<Arc<SearchedStore>>, EngineError> {
        let key = (tenant_id, store_id);
        let store = self.known_or_unloaded(key);
        if !store.is_loaded.load(Ordering::Relaxed) {
            return Ok(None);
        }
        self.shared.context.metrics.cache_looked_up(Looked::Search, true);
        let is_current = self.update(key, &store, wanted, false).await?;
        Ok(is_current.then_some(store))
    }

    /// Whether the last search of a store was by meaning; `false` also if its index is not in memory.
    pub(super) fn was_meant(&self, tenant_id: TenantId, store_id: StoreId) -> bool {
        self.known_or_unloaded((tenant_id, store_id)).was_meant.load(Ordering::Relaxed)
    }

    fn known_or_unloaded(&self, key: Key) -> Arc<SearchedStore> {
        self.stores.get_or_insert(key, || Arc::new(SearchedStore::unloaded(self.max_store_bytes)))
    }

    /// As [`Self::loaded_store`], but loads the index if it must. After a full load, the result also has the slot
    /// of the load.
    pub(super) async fn searched_store(
        self: &Arc<Self>,
        tenant_id: TenantId,
        store_id: StoreId,
        wanted: Option<&VectorsPlace>,
    ) -> Result<(Arc<SearchedStore>, Option<FairSlot>), EngineError> {
        if let Some(store) = self.loaded_store(tenant_id, store_id, wanted).await? {
            return Ok((store, None));
        }
        let key = (tenant_id, store_id);
        let store = self.known_or_unloaded(key);
        if !store.is_loaded.load(Ordering::Relaxed) {
            self.shared.context.metrics.cache_looked_up(Looked::Search, false);
        }
        let turn = Arc::clone(&store.loading).lock_owned().await;
        // If another search loaded the index meanwhile, it is still updated: that load may have begun before
        // this search did.
        let is_loaded = store.is_loaded.load(Ordering::Relaxed);
        if is_loaded && self.update(key, &store, wanted, false).await? {
            drop(turn);
            return Ok((store, None));
        }
        // A load counts as a computation of its tenant.
        let computations = &self.shared.context.computations.slots;
        let slot = self.loads.take_within(tenant_id, computations).await?;
        let load = Arc::clone(self).load(key, Arc::clone(&store), wanted.cloned());
        let load = async move {
            let loaded = load.await;
            drop(turn);
            loaded.map(|()| slot)
        };
        // It goes on if the search ends, and keeps its slot: what it has begun to apply cannot be stopped.
        let load = tokio::spawn(keep_held(load).in_current_span()).await;
        let slot = load.map_err(|_| EngineError::Internal("the load of a store panicked"))??;
        Ok((store, Some(slot)))
    }

    /// Loads a whole store, with its wanted vectors.
    async fn load(
        self: Arc<Self>,
        key: Key,
        store: Arc<SearchedStore>,
        wanted: Option<VectorsPlace>,
    ) -> Result<(), EngineError> {
        self.catch_up(key, &store, true).await?;
        // A store that is not kept would read its vectors for each search.
        if wanted.is_some() && store.bytes.load(Ordering::Relaxed) <= self.max_store_bytes {
            self.update(key, &store, wanted.as_ref(), true).await?;
        }
        Ok(())
    }

    /// Applies the changes of memories and of the wanted vectors since the last search;
    /// `false`: they may be as large as a whole store, which `may_be_whole` does not allow.
    ///
    /// Vectors are read before the memories, so that a vector of another version than a
    /// memory's current one is old.
    async fn update(
        self: &Arc<Self>,
        key: Key,
        store: &Arc<SearchedStore>,
        wanted: Option<&VectorsPlace>,
        may_be_whole: bool,
    ) -> Result<bool, EngineError> {
        let Some(wanted) = wanted else {
            return self.catch_up(key, store, may_be_whole).await;
        };
        for _ in 0..VECTOR_READS {
            let Some(known) = store.vectors_edit(wanted).await? else {
                let is_current = self.catch_up(key, store, may_be_whole).await?;
                // Without the memories that are gone, the vectors may fit.
                if is_current && store.vectors_edit(wanted).await?.is_some() {
                    continue;
                }
                return Ok(is_current);
            };
            let may_be_all = wanted.edit.saturating_sub(known) > FEW_EDITS;
            if may_be_all && !may_be_whole {
                return Ok(false);
            }
            if may_be_all && known == 0 && !self.has_room_for(key, store, wanted).await? {
                return self.catch_up(key, store, may_be_whole).await;
            }
            // Another edit than the known one: also an earlier one, as in a restored database.
            let changes = if wanted.edit == known {
                None
            } else {
                let embeddings = &self.shared.context.index.embeddings;
                match embeddings.changes(key.0, key.1, &wanted.model, known).await {
                    Ok(changes) => changes,
                    Err(error) => {
                        tracing::warn!(
                            store.id = %key.1, error = %error,
                            "engine.search goes without new vectors of a store"
                        );
                        return self.catch_up(key, store, may_be_whole).await;
                    }
                }
            };
            if !self.catch_up(key, store, may_be_whole).await? {
                return Ok(false);
            }
            let is_current = match changes {
                None => store.vectors_edit(wanted).await?.is_none_or(|known| known >= wanted.edit),
                Some(changes) => {
                    let (applied, model) = (Arc::clone(store), Arc::clone(&wanted.model));
                    let is_current =
                        off_the_runtime(move || applied.apply_vectors(&model, known, changes)).await?;
                    self.weigh(key, store);
                    is_current
                }
            };
            if is_current {
                break;
            }
        }
        Ok(true)
    }

    /// Whether all vectors of a store will fit in memory, which is asked before they are read.
    async fn has_room_for(
        &self,
        key: Key,
        store: &Arc<SearchedStore>,
        wanted: &VectorsPlace,
    ) -> Result<bool, EngineError> {
        let has_room = {
            let (store, wanted) = (Arc::clone(store), wanted.clone());
            off_the_runtime(move || store.has_room_for(&wanted)).await?
        };
        self.weigh(key, store);
        Ok(has_room)
    }

    /// Applies the changes since the last query; `false`: the changes would be the whole
    /// store, which `may_be_whole` does not allow.
    async fn catch_up(
        self: &Arc<Self>,
        key: Key,
        store: &Arc<SearchedStore>,
        may_be_whole: bool,
    ) -> Result<bool, EngineError> {
        let (tenant_id, store_id) = key;
        let since = store.since(may_be_whole).await?;
        let changes = self.shared.context.index.search.changes(tenant_id, store_id, &since).await?;
        let Some(changes) = changes else {
            self.stores.remove(key);
            return Err(EngineError::NotFound(ObjectKind::Store));
        };
        if let Some(known) = since.place
            && changes.is_whole
            && changes.place.purge_epoch <= known.purge_epoch
        {
            // The index answers with the whole store only after a removal of history, which
            // increments the purge epoch, or after the database was restored. The epoch is
            // not higher, so the database was restored, and the cached index is of no use.
            let store = Arc::clone(store);
            off_the_runtime(move || store.forget(known)).await?;
        }
        if changes.is_whole && !may_be_whole {
            return Ok(false);
        }
        if changes.memories.is_empty() && !changes.is_whole && store.is_at(changes.place) {
            return Ok(true);
        }
        let is_changed = {
            let store = Arc::clone(store);
            off_the_runtime(move || store.apply(since.place, changes)).await?
        };
        if is_changed {
            self.weigh(key, store);
        }
        if store.has_unindexed.load(Ordering::Relaxed) {
            self.index_meanwhile(key, store);
        }
        Ok(true)
    }

    /// Starts to add terms to memories without them. A replica of an earlier
    /// release leaves such memories until the job runs.
    fn index_meanwhile(self: &Arc<Self>, key: Key, store: &Arc<SearchedStore>) {
        // If all permits are taken, a later search or the job adds the terms.
        let Ok(permit) = Arc::clone(&self.indexings).try_acquire_owned() else {
            return;
        };
        if store.is_indexing.swap(true, Ordering::Relaxed) {
            return;
        }
        let (shared, store) = (Arc::clone(&self.shared), Arc::clone(store));
        tokio::spawn(async move {
            let _permit = permit;
            let page = {
                let store = Arc::clone(&store);
                off_the_runtime(move || store.unindexed(key)).await
            };
            let outcome = match page {
                Ok(page) => add_terms(&shared, page).await,
                Err(error) => Err(error),
            };
            match outcome {
                Ok(counts) if counts.indexed == 0 => {}
                Ok(_) => store.is_indexing.store(false, Ordering::Relaxed),
                Err(error) => tracing::warn!(
                    store.id = %key.1, error = %error,
                    "engine.search: memories without search terms are left to the job"
                ),
            }
        });
    }

    /// Starts to load a store that a search did not wait for, one of each tenant at a time.
    pub(super) fn load_meanwhile(self: &Arc<Self>, tenant_id: TenantId, store_id: StoreId) {
        if !self.meanwhile.lock().insert(tenant_id) {
            return;
        }
        let cache = Arc::clone(self);
        tokio::spawn(async move {
            let load = cache.searched_store(tenant_id, store_id, None);
            if !matches!(tokio::time::timeout(LOAD_TIMEOUT, load).await, Ok(Ok(_))) {
                tracing::debug!(store.id = %store_id, "engine.search did not load a store that nothing waits for");
            }
            cache.meanwhile.lock().remove(&tenant_id);
        });
    }

    /// Starts to build all postings of a store that was searched without them.
    pub(super) fn make_postings(
        self: &Arc<Self>,
        tenant_id: TenantId,
        store_id: StoreId,
        store: &Arc<SearchedStore>,
    ) {
        if store.is_building.swap(true, Ordering::Relaxed) {
            return;
        }
        let cache = Arc::clone(self);
        // The store may be evicted before the slot is free.
        let store = Arc::downgrade(store);
        tokio::spawn(async move {
            let slot = cache.builds.take(tenant_id).await;
            let Some(store) = store.upgrade() else {
                return;
            };
            let is_small = store.bytes.load(Ordering::Relaxed) <= SOON_MADE_BYTES;
            store.is_soon_made.store(is_small, Ordering::Release);
            let built = {
                let store = Arc::clone(&store);
                off_the_runtime(move || store.build()).await
            };
            store.is_soon_made.store(false, Ordering::Release);
            store.made.notify_waiters();
            drop(slot);
            if built.is_ok() {
                cache.weigh((tenant_id, store_id), &store);
            }
            store.is_building.store(false, Ordering::Relaxed);
        });
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("stores", &self.stores.len())
            .field("bytes", &self.stores.size_bytes())
            .finish_non_exhaustive()
    }
}
