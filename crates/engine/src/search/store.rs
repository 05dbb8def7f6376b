//! The search index of one store.
//!
//! It records how far it is complete (`seq`) and its purge epoch. The changes
//! from concurrent searches are applied in the order of the store, so that an
//! index never goes back to an older state.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use keepsake_core::{ContentHash, MemoryId, MemoryPath, StoreId, TenantId, Timestamp, VersionId};
use keepsake_index::{SearchChange, SearchChanges, SearchHead, SearchPlace, SearchSince, UnindexedMemory};
use keepsake_search::{ANALYSER, BuiltPostings, Postings};
use parking_lot::RwLock;
use tokio::sync::{Mutex, Notify};

use super::outcome::{OutcomeChange, StoreOutcome};
use super::{Candidate, HitPosition, ParsedSearch};
use crate::EngineError;
use crate::compute::off_the_runtime;

/// Maximum number of memories without terms that each search queries again.
const UNINDEXED_AT_ONCE: usize = 256;
/// Maximum number of memories for which postings are built while loading.
const FEW_MEMORIES: usize = 64;
const SOON_MADE: Duration = Duration::from_millis(150);
/// Bytes of a memory in this cache besides its postings.
const HEAD_BYTES: usize = 176;

#[derive(Default)]
pub(super) struct SearchedStore {
    state: RwLock<State>,
    /// Held while one search loads the store; other searches wait for it.
    pub(super) loading: Mutex<()>,
    pub(super) is_building: AtomicBool,
    /// Whether the postings are being built and worth waiting for, and the notification
    /// for the end of the build.
    pub(super) is_soon_made: AtomicBool,
    pub(super) made: Notify,
    /// Maximum bytes of all postings, and whether the postings exceed it. If so, each
    /// search reads the rows for its words.
    max_postings_bytes: usize,
    is_large: AtomicBool,
    /// The bytes of the index, and whether it is loaded. These are readable without the
    /// lock, which a search holds until it ends.
    pub(super) bytes: AtomicUsize,
    pub(super) is_loaded: AtomicBool,
    /// Whether there are memories without terms, and whether a task adds the terms. After
    /// an attempt without success the second flag stays set, and the job adds the terms.
    pub(super) has_unindexed: AtomicBool,
    pub(super) is_indexing: AtomicBool,
}

#[derive(Default)]
struct State {
    /// `None`: nothing is loaded.
    place: Option<SearchPlace>,
    postings: Postings,
    heads: HashMap<MemoryId, KnownHead>,
    /// Memories without terms of their content.
    unindexed: BTreeSet<MemoryId>,
}

struct KnownHead {
    version_id: VersionId,
    blob_id: VersionId,
    sha256: ContentHash,
    updated_at: Timestamp,
}

impl SearchedStore {
    pub(super) fn unloaded(max_postings_bytes: usize) -> Self {
        Self { max_postings_bytes, ..Self::default() }
    }

    /// The parameters of the query for changes. Waits for the lock on a
    /// blocking thread, never on the runtime's thread.
    pub(super) async fn since(self: &Arc<Self>, may_be_whole: bool) -> Result<SearchSince, EngineError> {
        if let Some(state) = self.state.try_read() {
            return Ok(state.since(may_be_whole));
        }
        let store = Arc::clone(self);
        off_the_runtime(move || store.state.read().since(may_be_whole)).await
    }

    /// Whether the index is known to be at `place` or past it.
    pub(super) fn is_at(&self, place: SearchPlace) -> bool {
        let state = self.state.try_read();
        state.is_some_and(|state| {
            let known = state.place;
            known.is_some_and(|known| known.order() >= place.order())
        })
    }

    /// Drops the index if it is still at `place`, so that the next search loads
    /// the store.
    pub(super) fn forget(&self, place: SearchPlace) {
        let mut state = self.state.write();
        if state.place == Some(place) {
            *state = State::default();
            self.note(&mut state);
        }
    }

    /// Whether the postings of all memories are built, or never will be.
    pub(super) fn has_postings(&self) -> bool {
        self.is_large.load(Ordering::Relaxed) || self.state.read().postings.has_all()
    }

    /// Waits only for a small store whose postings are being built.
    pub(super) async fn wait_for_postings(&self) {
        let made = self.made.notified();
        // A store reloaded meanwhile may be so small that it has them already.
        let has_all = || self.state.try_read().is_some_and(|state| state.postings.has_all());
        if self.is_soon_made.load(Ordering::Acquire) && !has_all() {
            // After a timeout the search reads the rows, as for a large store.
            let _ = tokio::time::timeout(SOON_MADE, made).await;
        }
    }

    pub(super) fn build(&self) {
        let builder = self.state.read().postings.builder();
        let Some(builder) = builder else {
            return;
        };
        let Some(built) = builder.build() else {
            self.is_large.store(true, Ordering::Relaxed);
            return;
        };
        let mut state = self.state.write();
        state.adopt(built);
        self.note(&mut state);
    }

    /// Updates the values that are readable without the lock. Drops postings that exceed
    /// the limit of a store, so that the store's rows can stay.
    fn note(&self, state: &mut State) {
        if state.postings.has_all() && state.bytes() > self.max_postings_bytes {
            state.postings.drop_all();
            self.is_large.store(true, Ordering::Relaxed);
        }
        self.bytes.store(state.bytes(), Ordering::Relaxed);
        self.is_loaded.store(state.place.is_some(), Ordering::Relaxed);
        self.has_unindexed.store(!state.unindexed.is_empty(), Ordering::Relaxed);
    }

    /// Applies the result of a query for the changes after `asked`; returns
    /// whether the index changed.
    pub(super) fn apply(&self, asked: Option<SearchPlace>, changes: SearchChanges) -> bool {
        let place = changes.place;
        if changes.is_whole {
            let whole = State::whole(changes, self.max_postings_bytes);
            let mut state = self.state.write();
            // Another search may have loaded the store meanwhile.
            let is_newer = state.place.is_none_or(|known| known.order() < place.order());
            if is_newer {
                *state = whole;
                self.is_large.store(false, Ordering::Relaxed);
                self.note(&mut state);
            }
            return is_newer;
        }
        let mut state = self.state.write();
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

    /// A page of the memories without terms.
    pub(super) fn unindexed(&self, place: (TenantId, StoreId)) -> Vec<UnindexedMemory> {
        self.state.read().unindexed(place)
    }

    /// The memories after changes that are not committed.
    pub(super) fn outcome(&self, changes: Vec<OutcomeChange>, paths: &HashSet<MemoryPath>) -> StoreOutcome {
        let state = self.state.read();
        let (mut rows, place) = (state.postings.copied_rows(), state.place);
        let ids = changes.iter().map(|change| change.memory_id);
        let at_paths =
            rows.memories().filter(|(_, path)| paths.contains(path)).map(|(memory_id, _)| memory_id);
        let blob_of = |memory_id| {
            let known = state.heads.get(&memory_id)?;
            Some((memory_id, (known.blob_id, known.sha256)))
        };
        let blobs: HashMap<_, _> = ids.chain(at_paths).filter_map(blob_of).collect();
        drop(state);
        for OutcomeChange { memory_id, after } in changes {
            match after.filter(|(path, _)| !path.is_setting()) {
                None => rows.remove(memory_id),
                Some((path, terms)) => {
                    let terms = terms.or_else(|| rows.row_of(memory_id));
                    // Damage is reported when the index of the store is built.
                    let _ = rows.set(memory_id, path, terms);
                }
            }
        }
        StoreOutcome { place, rows, blobs }
    }

    /// The best hits, in the order of all hits of a search. A query that is too broad for
    /// the store is refused.
    pub(super) fn search(
        &self,
        store_id: StoreId,
        asked: &ParsedSearch,
    ) -> Result<Vec<Candidate>, EngineError> {
        let state = self.state.read();
        let is_after = |score: f64, path: &MemoryPath| match &asked.after {
            None => true,
            Some(after) => {
                let here = HitPosition { score, store_id, path: path.clone() };
                after.order(&here).is_lt()
            }
        };
        let results = state.postings.search(&asked.query, asked.directory.as_ref(), asked.limit, is_after);
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
                    store_id,
                    memory_id: found.memory,
                    path: found.path,
                    score: found.score,
                    version_id: known.version_id,
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

    fn unindexed(&self, (tenant_id, store_id): (TenantId, StoreId)) -> Vec<UnindexedMemory> {
        let purge_epoch = self.place.map_or(0, |place| place.purge_epoch);
        let ids = self.unindexed.iter().take(UNINDEXED_AT_ONCE);
        ids.filter_map(|memory_id| {
            let known = self.heads.get(memory_id)?;
            Some(UnindexedMemory {
                place: (tenant_id, store_id, *memory_id),
                blob_id: known.blob_id,
                sha256: known.sha256,
                purge_epoch,
            })
        })
        .collect()
    }

    /// Whether a memory still has no terms and is known to have none. Each search
    /// receives such a memory again, and replacing it each time would degrade the
    /// postings.
    fn is_known_unindexed(&self, memory_id: MemoryId, head: &SearchHead) -> bool {
        let known = self.heads.get(&memory_id);
        head.terms.is_none()
            && self.unindexed.contains(&memory_id)
            && known.is_some_and(|known| {
                known.version_id == head.version_id && known.updated_at == head.updated_at
            })
            && self.postings.path_of(memory_id) == Some(&head.path)
    }

    fn apply(&mut self, SearchChange { memory_id, head }: SearchChange) {
        // Settings of the store are not searched.
        let head = head.filter(|head| !head.path.is_setting());
        if head.as_ref().is_some_and(|head| self.is_known_unindexed(memory_id, head)) {
            return;
        }
        self.unindexed.remove(&memory_id);
        let Some(head) = head else {
            self.postings.remove(memory_id);
            self.heads.remove(&memory_id);
            return;
        };
        let SearchHead { path, version_id, blob_id, sha256, updated_at, terms } = head;
        if terms.is_none() {
            self.unindexed.insert(memory_id);
        }
        if self.postings.set(memory_id, path, terms).is_err() {
            log_damaged(memory_id);
        }
        self.heads.insert(memory_id, KnownHead { version_id, blob_id, sha256, updated_at });
    }

    fn adopt(&mut self, built: BuiltPostings) {
        built.damaged().iter().copied().for_each(log_damaged);
        self.postings.adopt(built);
    }

    fn bytes(&self) -> usize {
        self.postings.size_bytes() + self.heads.len() * HEAD_BYTES
    }
}

fn log_damaged(memory_id: MemoryId) {
    tracing::error!(
        memory.id = %memory_id,
        "engine.search: the search terms of a memory are damaged; not all of its content is found"
    );
}
