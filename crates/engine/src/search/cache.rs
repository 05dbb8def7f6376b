//! The search indexes in memory of this replica, bounded by bytes together.
//!
//! An index knows how far it goes (`seq`) and under which purge epoch. Each
//! search asks for what changed since, and applies it, before it looks. What two
//! searches learn at the same time is applied in the order of the store, so that
//! an index never goes back.

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

/// Memories without terms that are asked about again at each search, at most.
const UNINDEXED_AT_ONCE: usize = 256;
/// Memories up to which all postings are made at once.
const FEW_MEMORIES: usize = 64;
/// Bytes of rows up to which the postings of a store are waited for while they
/// are made: those of some thousand memories, for about a tenth of a second. A
/// search that read the rows meanwhile would take a core from it.
const SOON_MADE_BYTES: usize = 8 << 20;
/// How long they are waited for at most.
const SOON_MADE: Duration = Duration::from_millis(150);
/// Bytes that a memory takes here beside its postings.
const HEAD_BYTES: usize = 160;

type Key = (TenantId, StoreId);

/// The indexes of stores that were searched, the longest unused leave first.
pub(crate) struct Cache {
    /// What one store may take: one that takes most of the room is not kept.
    max_store_bytes: usize,
    stores: DividedLru<Arc<SearchedStore>>,
    /// Postings are made for one store at a time: it takes a core for a while.
    builds: FairSlots,
    /// Stores are read whole two at a time, one of each tenant: each may take what
    /// it weighs.
    loads: FairSlots,
    /// The same of stores that are given terms.
    indexings: Arc<Semaphore>,
    /// As many searches are under way as there are cores: more would take the
    /// threads that contents are read by, and none would be answered earlier. One
    /// tenant has half of them, its loads of stores included.
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

    /// Bytes that are kept.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.stores.size_bytes()
    }

    /// An index of which nothing was loaded.
    fn unloaded(&self) -> Arc<SearchedStore> {
        Arc::new(SearchedStore {
            max_postings_bytes: self.max_store_bytes,
            ..SearchedStore::default()
        })
    }

    /// Weighs a store's index, which has grown or shrunk. One that takes most
    /// of the room is not kept: all others would leave for it.
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
    /// Held by the one that loads the store, which others wait for.
    loading: Mutex<()>,
    is_building: AtomicBool,
    /// Whether its postings are being made and are worth waiting for, and where
    /// it is told that they are.
    is_soon_made: AtomicBool,
    made: Notify,
    /// What all its postings may take, and whether they would take more: then
    /// each search reads the rows for its own words.
    max_postings_bytes: usize,
    is_large: AtomicBool,
    /// What it weighs, and whether it was loaded: known without the lock, which
    /// a search holds for as long as it takes.
    bytes: AtomicUsize,
    is_loaded: AtomicBool,
    /// Whether there are memories without terms, and whether that is seen to;
    /// where it was in vain, it is left to the job.
    has_unindexed: AtomicBool,
    is_indexing: AtomicBool,
}

#[derive(Default)]
struct State {
    /// `None`: nothing was loaded.
    place: Option<SearchPlace>,
    postings: Postings,
    heads: HashMap<MemoryId, Known>,
    /// Memories whose content has no terms yet.
    unindexed: BTreeSet<MemoryId>,
}

/// What is known of a memory beside its terms.
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

    /// What is known of the store. Never waits on the runtime's thread for
    /// what holds the lock.
    async fn since(self: &Arc<Self>, may_be_whole: bool) -> Result<SearchSince, EngineError> {
        if let Ok(state) = self.state.try_read() {
            return Ok(state.since(may_be_whole));
        }
        let store = Arc::clone(self);
        off_the_runtime(move || store.read().since(may_be_whole)).await
    }

    /// Whether the store is seen to be at `place`, or past it.
    fn is_at(&self, place: SearchPlace) -> bool {
        let state = self.state.try_read();
        state.is_ok_and(|state| {
            let known = state.place;
            known.is_some_and(|known| known.order() >= place.order())
        })
    }

    /// Drops the index if it is still the one at `place`: the next search loads the
    /// store.
    fn forget(&self, place: SearchPlace) {
        let mut state = self.write();
        if state.place == Some(place) {
            *state = State::default();
            self.note(&mut state);
        }
    }

    /// Whether the postings of all memories are made, or never will be.
    pub(super) fn has_postings(&self) -> bool {
        self.is_large.load(Ordering::Relaxed) || self.read().postings.has_all()
    }

    /// Waits for the postings of a store that is not large, where they are being
    /// made.
    pub(super) async fn wait_for_postings(&self) {
        let made = self.made.notified();
        // Read anew meanwhile, it may be so small that it has them already.
        let has_all = || self.state.try_read().is_ok_and(|state| state.postings.has_all());
        if self.is_soon_made.load(Ordering::Acquire) && !has_all() {
            // Without them the rows are read, as for a store that is larger.
            let _ = tokio::time::timeout(SOON_MADE, made).await;
        }
    }

    /// Makes them.
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

    /// Notes what others ask without the lock. Postings that have outgrown what
    /// a store may take go, so that its rows can stay.
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

    /// Applies what a query that asked for the changes after `asked` told; answers
    /// whether anything is another now.
    fn apply(&self, asked: Option<SearchPlace>, changes: SearchChanges) -> bool {
        let place = changes.place;
        if changes.is_whole {
            let whole = State::whole(changes, self.max_postings_bytes);
            let mut state = self.write();
            // Another may have loaded it meanwhile.
            let is_newer = state.place.is_none_or(|known| known.order() < place.order());
            if is_newer {
                *state = whole;
                self.is_large.store(false, Ordering::Relaxed);
                self.note(&mut state);
            }
            return is_newer;
        }
        let mut state = self.write();
        // Changes that were already applied are ignored, and so are those of another
        // epoch. An index that is behind the query's place was loaded after the query
        // began: the changes leave a gap to it.
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
    /// [`EngineError::Invalid`] where the query asks for too much of the store.
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

    /// The memories that are to be given terms, a page of them.
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

    /// Whether a memory has no terms still, and is known to have none: it is
    /// told of at each search, which must not wear the postings out.
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
    /// The index of a store, brought up to now by one query; where the store is
    /// read whole after it, with what lets others be.
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
        // Loaded meanwhile, it is asked again: that may have begun before this did.
        if store.is_loaded.load(Ordering::Relaxed) && self.catch_up(key, &store, false).await? {
            drop(turn);
            return Ok((store, None));
        }
        let load = cache.loads.take_within(tenant_id, &cache.searches).await?;
        self.catch_up(key, &store, true).await?;
        drop(turn);
        Ok((store, Some(load)))
    }

    /// Applies what changed since; `false`: that would be the whole store, which
    /// it may not be.
    async fn catch_up(
        &self,
        key: Key,
        store: &Arc<SearchedStore>,
        may_be_whole: bool,
    ) -> Result<bool, EngineError> {
        let (tenant_id, store_id) = key;
        let since = store.since(may_be_whole).await?;
        let changes = self.0.index.search_changes(tenant_id, store_id, &since).await?;
        let Some(changes) = changes else {
            self.0.searched.stores.remove(key);
            return Err(EngineError::StoreNotFound);
        };
        if let Some(known) = since.place
            && changes.is_whole
            && changes.place.purge_epoch <= known.purge_epoch
        {
            // Not history that was removed: the database was restored.
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

    /// Begins to give terms to memories that have none, as a replica of an
    /// earlier release leaves them until the job comes.
    fn index_meanwhile(&self, key: Key, store: &Arc<SearchedStore>) {
        // Where others are at it, a later search does it, or the job.
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

    /// Begins to make all postings of a store that was searched without.
    pub(super) fn make_postings(&self, tenant_id: TenantId, store_id: StoreId, store: &Arc<SearchedStore>) {
        if store.is_building.swap(true, Ordering::Relaxed) {
            return;
        }
        let engine = self.clone();
        // Nobody else may need it any more when its turn comes.
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
        store.wait_for_postings().await; // nobody makes them
        store.is_soon_made.store(true, Ordering::Release);
        let mut waiting = std::pin::pin!(store.wait_for_postings());
        assert!(poll!(waiting.as_mut()).is_pending());
        store.is_soon_made.store(false, Ordering::Release);
        store.made.notify_waiters();
        assert!(poll!(waiting).is_ready());
        store.wait_for_postings().await; // they are made
    }
}
