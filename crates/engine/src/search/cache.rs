//! The search indexes cached in this replica, with one limit on their bytes.
//!
//! An index records how far it is complete (`seq`) and its purge epoch. Each
//! search first queries the changes since then and applies them. The changes
//! from concurrent searches are applied in the order of the store, so that an
//! index never goes back to an older state.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use keepsake_core::{ContentHash, MemoryId, MemoryPath, StoreId, TenantId, Timestamp, VersionId};
use keepsake_index::{SearchChange, SearchChanges, SearchHead, SearchPlace, SearchSince, Unindexed};
use keepsake_search::{ANALYSER, Built, Postings};
use keepsake_telemetry::Cache as Looked;
use tokio::sync::{Mutex, Notify, Semaphore};

use super::lru::DividedLru;
use super::{After, Asked, Candidate, off_the_runtime};
use crate::fair::{FairSlot, FairSlots};
use crate::jobs::index_found;
use crate::{Engine, EngineError};

/// Maximum number of memories without terms that each search queries again.
const UNINDEXED_AT_ONCE: usize = 256;
/// Maximum number of memories for which postings are built while loading.
const FEW_MEMORIES: usize = 64;
/// Bytes of rows up to which a search waits for the postings of a store that
/// are being built. This is a few thousand memories and about a tenth of a
/// second. A search that read the rows instead would take a core from the
/// build.
const SOON_MADE_BYTES: usize = 8 << 20;
/// Longest wait for postings.
const SOON_MADE: Duration = Duration::from_millis(150);
/// Bytes of a memory in this cache besides its postings.
const HEAD_BYTES: usize = 160;

type Key = (TenantId, StoreId);

/// The indexes of recently searched stores; evicts the least recently used.
pub(crate) struct Cache {
    /// Maximum bytes of one store; a store that fills most of the cache is not
    /// kept.
    max_store_bytes: usize,
    stores: DividedLru<Arc<SearchedStore>>,
    /// Postings are built for one store at a time, since this uses a core.
    builds: FairSlots,
    /// Two whole stores are loaded at a time, one of each tenant, since each
    /// load may take as much memory as the store.
    loads: FairSlots,
    /// Limits how many stores get missing terms at a time.
    indexings: Arc<Semaphore>,
    /// As many searches run at a time as there are cores. More would occupy the
    /// threads that read contents, and no search would finish earlier. One
    /// tenant may use half of the slots, including its loads of stores.
    pub(super) searches: FairSlots,
}

impl Cache {
    pub(crate) fn new(max_bytes: u64) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, NonZero::get);
        Self {
            max_store_bytes: usize::try_from(max_bytes / 2).unwrap_or(usize::MAX),
            stores: DividedLru::new(max_bytes),
            builds: FairSlots::new(1, 1),
            loads: FairSlots::new(2, 1),
            indexings: Arc::new(Semaphore::new(2)),
            searches: FairSlots::new(cores, cores / 2),
        }
    }

    /// Total bytes of the cache entries.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.stores.size_bytes()
    }

    /// An index without any loaded data.
    fn unloaded(&self) -> Arc<SearchedStore> {
        Arc::new(SearchedStore {
            max_postings_bytes: self.max_store_bytes,
            ..SearchedStore::default()
        })
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
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("stores", &self.stores.len())
            .field("bytes", &self.stores.size_bytes())
            .finish_non_exhaustive()
    }
}

/// The index of one store.
#[derive(Default)]
pub(super) struct SearchedStore {
    state: RwLock<State>,
    /// Held while one search loads the store; other searches wait for it.
    loading: Mutex<()>,
    is_building: AtomicBool,
    /// Whether its postings are being built and worth waiting for, and the
    /// notification for their end.
    is_soon_made: AtomicBool,
    made: Notify,
    /// Maximum bytes of all its postings, and whether they exceed it. If so,
    /// each search reads the rows for its words.
    max_postings_bytes: usize,
    is_large: AtomicBool,
    /// Its bytes, and whether it is loaded. These are readable without the
    /// lock, which a search holds until it ends.
    bytes: AtomicUsize,
    is_loaded: AtomicBool,
    /// Whether there are memories without terms, and whether a task adds them.
    /// After an attempt without success the second flag stays set, and the job
    /// adds the terms.
    has_unindexed: AtomicBool,
    is_indexing: AtomicBool,
}

#[derive(Default)]
struct State {
    /// `None`: nothing is loaded.
    place: Option<SearchPlace>,
    postings: Postings,
    heads: HashMap<MemoryId, Known>,
    /// Memories without terms of their content.
    unindexed: BTreeSet<MemoryId>,
}

/// Data of a memory besides its terms.
struct Known {
    blob_id: VersionId,
    sha256: ContentHash,
    updated_at: Timestamp,
}

impl SearchedStore {
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The parameters of the query for changes. Waits for the lock on a
    /// blocking thread, never on the runtime's thread.
    async fn since(self: &Arc<Self>, may_be_whole: bool) -> Result<SearchSince, EngineError> {
        if let Ok(state) = self.state.try_read() {
            return Ok(state.since(may_be_whole));
        }
        let store = Arc::clone(self);
        off_the_runtime(move || store.read().since(may_be_whole)).await
    }

    /// Whether the store is known to be at `place` or past it.
    fn is_at(&self, place: SearchPlace) -> bool {
        let state = self.state.try_read();
        state.is_ok_and(|state| {
            let known = state.place;
            known.is_some_and(|known| known.order() >= place.order())
        })
    }

    /// Drops the index if it is still at `place`, so that the next search loads
    /// the store.
    fn forget(&self, place: SearchPlace) {
        let mut state = self.write();
        if state.place == Some(place) {
            *state = State::default();
            self.note(&mut state);
        }
    }

    /// Whether the postings of all memories are built, or never will be.
    pub(super) fn has_postings(&self) -> bool {
        self.is_large.load(Ordering::Relaxed) || self.read().postings.has_all()
    }

    /// Waits for the postings of a small store if they are being built.
    pub(super) async fn wait_for_postings(&self) {
        let made = self.made.notified();
        // A store reloaded meanwhile may be so small that it has them already.
        let has_all = || self.state.try_read().is_ok_and(|state| state.postings.has_all());
        if self.is_soon_made.load(Ordering::Acquire) && !has_all() {
            // After a timeout the search reads the rows, as for a large store.
            let _ = tokio::time::timeout(SOON_MADE, made).await;
        }
    }

    /// Builds the postings.
    fn build(&self) {
        let builder = self.read().postings.builder();
        let Some(builder) = builder else {
            return;
        };
        let Some(built) = builder.build() else {
            self.is_large.store(true, Ordering::Relaxed);
            return;
        };
        let mut state = self.write();
        state.adopt(built);
        self.note(&mut state);
    }

    /// Updates the values that are readable without the lock. Drops postings
    /// that exceed the limit of a store, so that its rows can stay.
    fn note(&self, state: &mut State) {
        if state.postings.has_all() && state.bytes() > self.max_postings_bytes {
            state.postings.drop_all();
            self.is_large.store(true, Ordering::Relaxed);
        }
        self.bytes.store(state.bytes(), Ordering::Relaxed);
        self.is_loaded.store(state.place.is_some(), Ordering::Relaxed);
        self.has_unindexed
            .store(!state.unindexed.is_empty(), Ordering::Relaxed);
    }

    /// Applies the result of a query for the changes after `asked`; returns
    /// whether the index changed.
    fn apply(&self, asked: Option<SearchPlace>, changes: SearchChanges) -> bool {
        let place = changes.place;
        if changes.is_whole {
            let whole = State::whole(changes, self.max_postings_bytes);
            let mut state = self.write();
            // Another search may have loaded it meanwhile.
            let is_newer = state.place.is_none_or(|known| known.order() < place.order());
            if is_newer {
                *state = whole;
                self.is_large.store(false, Ordering::Relaxed);
                self.note(&mut state);
            }
            return is_newer;
        }
        let mut state = self.write();
        // Changes that were already applied are ignored, and so are those of
        // another epoch. An index that is behind `asked` was reloaded after the
        // query began; applying the changes would leave a gap.
        let follows = state.place.is_some_and(|known| {
            known.purge_epoch == place.purge_epoch
                && known.seq <= place.seq
                && asked.is_some_and(|asked| asked.seq <= known.seq)
        });
        if follows {
            for change in changes.memories {
                state.apply(change);
            }
            state.place = Some(place);
            self.note(&mut state);
        }
        follows
    }

    /// The best hits, in the order of all hits of a search.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] when the query is too broad for the store.
    pub(super) fn search(&self, place: usize, asked: &Asked) -> Result<Vec<Candidate>, EngineError> {
        let state = self.read();
        let is_after = |score: f64, path: &MemoryPath| match &asked.after {
            None => true,
            Some(after) => {
                let here = After {
                    score,
                    place,
                    path: path.clone(),
                };
                after.order(&here).is_lt()
            }
        };
        let results = state
            .postings
            .search(&asked.query, asked.directory.as_ref(), asked.limit, is_after);
        if results.is_too_broad {
            return Err(EngineError::Invalid {
                field: "query",
                rule: "is too broad for this store: ask for fewer or rarer words".to_owned(),
            });
        }
        let marker = Arc::new(results.marker);
        let purge_epoch = state.place.map(|place| place.purge_epoch).unwrap_or_default();
        let candidates = results
            .found
            .into_iter()
            .filter_map(|found| {
                let known = state.heads.get(&found.memory)?;
                Some(Candidate {
                    place,
                    memory_id: found.memory,
                    path: found.path,
                    score: found.score,
                    blob_id: known.blob_id,
                    sha256: known.sha256,
                    updated_at: known.updated_at,
                    purge_epoch,
                    marker: Arc::clone(&marker),
                })
            })
            .collect();
        Ok(candidates)
    }
}

impl State {
    fn since(&self, may_be_whole: bool) -> SearchSince {
        SearchSince {
            may_be_whole,
            place: self.place,
            analyser: ANALYSER,
            unindexed: self.unindexed.iter().take(UNINDEXED_AT_ONCE).copied().collect(),
        }
    }

    /// The index of a store that was read whole.
    fn whole(changes: SearchChanges, max_postings_bytes: usize) -> Self {
        let mut state = Self {
            place: Some(changes.place),
            postings: Postings::within(max_postings_bytes),
            ..Self::default()
        };
        for change in changes.memories {
            state.apply(change);
        }
        if state.postings.len() <= FEW_MEMORIES
            && let Some(builder) = state.postings.builder()
            && let Some(built) = builder.build()
        {
            state.adopt(built);
        }
        state
    }

    /// A page of the memories without terms.
    fn unindexed(&self, (tenant_id, store_id): Key) -> Vec<Unindexed> {
        let purge_epoch = self.place.map_or(0, |place| place.purge_epoch);
        let ids = self.unindexed.iter().take(UNINDEXED_AT_ONCE);
        ids.filter_map(|memory_id| {
            let known = self.heads.get(memory_id)?;
            Some(Unindexed {
                place: (tenant_id, store_id, *memory_id),
                blob_id: known.blob_id,
                sha256: known.sha256,
                purge_epoch,
            })
        })
        .collect()
    }

    /// Whether a memory still has no terms and is known to have none. Each
    /// search receives it again, and replacing it each time would degrade the
    /// postings.
    fn is_known_unindexed(&self, memory_id: MemoryId, head: &SearchHead) -> bool {
        let known = self.heads.get(&memory_id);
        head.terms.is_none()
            && self.unindexed.contains(&memory_id)
            && known.is_some_and(|known| known.blob_id == head.blob_id && known.updated_at == head.updated_at)
            && self.postings.path_of(memory_id) == Some(&head.path)
    }

    fn apply(&mut self, SearchChange { memory_id, head }: SearchChange) {
        if head
            .as_ref()
            .is_some_and(|head| self.is_known_unindexed(memory_id, head))
        {
            return;
        }
        self.unindexed.remove(&memory_id);
        let Some(head) = head else {
            self.postings.remove(memory_id);
            self.heads.remove(&memory_id);
            return;
        };
        let SearchHead {
            path,
            blob_id,
            sha256,
            updated_at,
            terms,
        } = head;
        if terms.is_none() {
            self.unindexed.insert(memory_id);
        }
        if self.postings.set(memory_id, path, terms).is_err() {
            tell_damaged(memory_id);
        }
        self.heads.insert(
            memory_id,
            Known {
                blob_id,
                sha256,
                updated_at,
            },
        );
    }

    fn adopt(&mut self, built: Built) {
        built.damaged().iter().copied().for_each(tell_damaged);
        self.postings.adopt(built);
    }

    fn bytes(&self) -> usize {
        self.postings.size_bytes() + self.heads.len() * HEAD_BYTES
    }
}

fn tell_damaged(memory_id: MemoryId) {
    tracing::error!(
        memory.id = %memory_id,
        "engine.search: the search terms of a memory are damaged; not all of its content is found"
    );
}

impl Engine {
    /// Returns the index of a store, updated by one query. After a full load it
    /// also returns the slot of the load.
    pub(super) async fn searched_store(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
    ) -> Result<(Arc<SearchedStore>, Option<FairSlot>), EngineError> {
        let key = (tenant_id, store_id);
        let cache = &self.0.searched;
        let store = cache.stores.get_or_insert(key, || cache.unloaded());
        let is_loaded = store.is_loaded.load(Ordering::Relaxed);
        self.0.metrics.cache_looked_up(Looked::Search, is_loaded);
        if is_loaded && self.catch_up(key, &store, false).await? {
            return Ok((store, None));
        }
        let turn = store.loading.lock().await;
        // Queried again, since that load may have started before this search.
        if store.is_loaded.load(Ordering::Relaxed) && self.catch_up(key, &store, false).await? {
            drop(turn);
            return Ok((store, None));
        }
        let load = cache.loads.take_within(tenant_id, &cache.searches).await?;
        self.catch_up(key, &store, true).await?;
        drop(turn);
        Ok((store, Some(load)))
    }

    /// Applies the changes since the last query; `false`: that would be the
    /// whole store, which `may_be_whole` does not allow.
    async fn catch_up(
        &self,
        key: Key,
        store: &Arc<SearchedStore>,
        may_be_whole: bool,
    ) -> Result<bool, EngineError> {
        let (tenant_id, store_id) = key;
        let since = store.since(may_be_whole).await?;
        let changes = self.0.index.search.changes(tenant_id, store_id, &since).await?;
        let Some(changes) = changes else {
            self.0.searched.stores.remove(key);
            return Err(EngineError::StoreNotFound);
        };
        if let Some(known) = since.place
            && changes.is_whole
            && changes.place.purge_epoch <= known.purge_epoch
        {
            // The purge epoch is not newer: the database was restored.
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
            self.0.searched.weigh(key, store);
        }
        if store.has_unindexed.load(Ordering::Relaxed) {
            self.index_meanwhile(key, store);
        }
        Ok(true)
    }

    /// Starts to add terms to memories without them. A replica of an earlier
    /// release leaves such memories until the job runs.
    fn index_meanwhile(&self, key: Key, store: &Arc<SearchedStore>) {
        // If all permits are taken, a later search or the job does it.
        let Ok(permit) = Arc::clone(&self.0.searched.indexings).try_acquire_owned() else {
            return;
        };
        if store.is_indexing.swap(true, Ordering::Relaxed) {
            return;
        }
        let (engine, store) = (self.clone(), Arc::clone(store));
        tokio::spawn(async move {
            let _permit = permit;
            let page = {
                let store = Arc::clone(&store);
                off_the_runtime(move || store.read().unindexed(key)).await
            };
            let indexed = match page {
                Ok(page) => index_found(&engine, page).await,
                Err(error) => Err(error),
            };
            match indexed {
                Ok(0) => {}
                Ok(_) => store.is_indexing.store(false, Ordering::Relaxed),
                Err(error) => tracing::warn!(
                    store.id = %key.1, error = %error,
                    "engine.search: memories without search terms are left to the job"
                ),
            }
        });
    }

    /// Starts to build all postings of a store that was searched without them.
    pub(super) fn make_postings(&self, tenant_id: TenantId, store_id: StoreId, store: &Arc<SearchedStore>) {
        if store.is_building.swap(true, Ordering::Relaxed) {
            return;
        }
        let engine = self.clone();
        // The store may be evicted before the slot is free.
        let store = Arc::downgrade(store);
        tokio::spawn(async move {
            let slot = engine.0.searched.builds.take(tenant_id).await;
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
                engine.0.searched.weigh((tenant_id, store_id), &store);
            }
            store.is_building.store(false, Ordering::Relaxed);
        });
    }
}

#[cfg(test)]
mod tests {
    use futures::poll;

    use super::*;

    #[tokio::test]
    async fn postings_are_waited_for_while_they_are_made_and_worth_it() {
        let store = SearchedStore::default();
        store.wait_for_postings().await; // no build is running
        store.is_soon_made.store(true, Ordering::Release);
        let mut waiting = std::pin::pin!(store.wait_for_postings());
        assert!(poll!(waiting.as_mut()).is_pending());
        store.is_soon_made.store(false, Ordering::Release);
        store.made.notify_waiters();
        assert!(poll!(waiting).is_ready());
        store.wait_for_postings().await; // they are built
    }
}
