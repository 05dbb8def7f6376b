//! The search index of one store.
//!
//! It records how far it is complete (`seq`) and its purge epoch. The changes
//! from concurrent searches are applied in the order of the store, so that an
//! index never goes back to an older state.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use keepsake_core::{MemoryId, MemoryPath, StoreId, TenantId};
use keepsake_index::{
    EmbeddingChanges, SearchChange, SearchChanges, SearchHead, SearchPlace, SearchSince, SearchedVersion,
    UnindexedMemory,
};
use keepsake_search::{ANALYSER, BuiltPostings, FoundPath, Fusion, PathWords, Postings, Vectors};
use parking_lot::RwLock;
use tokio::sync::{Mutex, Notify};
use uuid::Uuid;

use super::meaning::VectorsPlace;
use super::outcome::{ChangedMemory, StoreOutcome};
use super::{Candidate, ParsedSearch, StoreHits};
use crate::EngineError;
use crate::compute::off_the_runtime;

/// Maximum number of memories without terms that each search queries again.
const UNINDEXED_AT_ONCE: usize = 256;
/// Maximum number of memories for which postings are built while loading.
const FEW_MEMORIES: usize = 64;
const SOON_MADE: Duration = Duration::from_millis(150);
/// Bytes of a memory in this cache besides its postings.
const HEAD_BYTES: usize = 176;
/// By which part the rows of a store must shrink until vectors that did not fit are read again.
const SHRUNK_BY: usize = 8;

#[derive(Default)]
pub(super) struct SearchedStore {
    state: RwLock<State>,
    /// Held while one search loads the store; other searches wait for it.
    pub(super) loading: Arc<Mutex<()>>,
    pub(super) is_building: AtomicBool,
    /// Whether the postings are being built and worth waiting for, and the notification
    /// for the end of the build.
    pub(super) is_soon_made: AtomicBool,
    pub(super) made: Notify,
    /// Maximum bytes of the index, and whether it exceeds them with the postings. If so, each
    /// search reads the rows for its words.
    max_postings_bytes: usize,
    is_large: AtomicBool,
    /// The bytes of the index, and whether it is loaded. These are readable without the
    /// lock, which a search holds until it ends.
    pub(super) bytes: AtomicUsize,
    pub(super) is_loaded: AtomicBool,
    /// Whether the last search was by meaning.
    pub(super) was_meant: AtomicBool,
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
    heads: HashMap<MemoryId, SearchedVersion>,
    /// Memories without terms of their content.
    unindexed: BTreeSet<MemoryId>,
    vectors: KnownVectors,
    /// The bytes without postings and vectors, counted after each change.
    row_bytes: usize,
}

/// The vectors of the current versions of memories, by one model.
#[derive(Default)]
struct KnownVectors {
    model: Option<Arc<str>>,
    /// The last edit that was applied; 0: none.
    edit: i64,
    of_memories: Vectors,
    /// The bytes of the rows beside which they did not fit in memory, so that the store is searched by
    /// words only.
    too_large_beside: Option<usize>,
}

impl KnownVectors {
    /// The last edit of a model's vectors that was applied.
    fn edit_of(&self, model: &Arc<str>) -> i64 {
        if self.model.as_ref() == Some(model) { self.edit } else { 0 }
    }
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

    /// The last edit of the wanted vectors that was applied; `None`: the vectors do not fit in
    /// memory.
    pub(super) async fn vectors_edit(
        self: &Arc<Self>,
        wanted: &VectorsPlace,
    ) -> Result<Option<i64>, EngineError> {
        let max_bytes = self.max_postings_bytes;
        if let Some(state) = self.state.try_read() {
            return Ok(state.vectors_edit(wanted, max_bytes));
        }
        let (store, wanted) = (Arc::clone(self), wanted.clone());
        off_the_runtime(move || store.state.read().vectors_edit(&wanted, max_bytes)).await
    }

    /// Applies vectors that were written after the edit `asked`, and read before the last
    /// changes of memories; returns whether the index now has them, or later ones.
    ///
    /// A vector of another version than the memory's current one is dropped: a later edit
    /// has the vector of that.
    pub(super) fn apply_vectors(&self, model: &Arc<str>, asked: i64, changes: EmbeddingChanges) -> bool {
        let mut state = self.state.write();
        if state.vectors.too_large_beside.is_some() {
            return true;
        }
        let known = state.vectors.edit_of(model);
        if changes.is_whole {
            if known != 0 && known != asked {
                // Another search applied vectors meanwhile.
                return known >= changes.edit;
            }
            state.vectors = KnownVectors { model: Some(Arc::clone(model)), ..KnownVectors::default() };
        } else if known < asked {
            return false;
        }
        if known >= changes.edit && !changes.is_whole {
            return true;
        }
        state.vectors.edit = changes.edit;
        for row in changes.rows {
            let is_current =
                state.heads.get(&row.memory_id).is_some_and(|head| head.version_id == row.version_id);
            if is_current && state.vectors.of_memories.set(row.memory_id, &row.vectors).is_err() {
                log_damaged_vectors(row.memory_id);
            }
        }
        self.keep_within_limit(&mut state);
        true
    }

    /// Whether the wanted vectors will fit in memory, with the rows of the store. If not, the store is
    /// searched by words only.
    pub(super) fn has_room_for(&self, wanted: &VectorsPlace) -> bool {
        let mut state = self.state.write();
        if state.vectors_edit(wanted, self.max_postings_bytes).is_none() {
            return false;
        }
        if state.vectors.model.as_ref() != Some(&wanted.model) {
            // A query has no meaning in terms of another model.
            state.vectors = KnownVectors::default();
        }
        self.keep_within_limit_with(&mut state, wanted.bytes);
        state.vectors.too_large_beside.is_none()
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
            self.keep_within_limit(&mut state);
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
        self.keep_within_limit(&mut state);
    }

    /// Drops the vectors if they and the rows exceed the limit of a store, and the postings if
    /// all together exceed it. Then updates the values that are readable without the lock.
    fn keep_within_limit(&self, state: &mut State) {
        self.keep_within_limit_with(state, 0);
    }

    /// As [`Self::keep_within_limit`], but counts at least `vector_bytes` for the vectors, which
    /// will be loaded.
    fn keep_within_limit_with(&self, state: &mut State, vector_bytes: usize) {
        state.count_rows();
        let KnownVectors { of_memories, too_large_beside, .. } = &state.vectors;
        let has_vectors = !of_memories.is_empty() || (vector_bytes > 0 && too_large_beside.is_none());
        let mut expected = vector_bytes;
        let without_postings = state.bytes_with(expected) - state.postings.postings_bytes();
        if has_vectors && without_postings > self.max_postings_bytes {
            expected = 0;
            let too_large_beside = Some(state.row_bytes);
            state.vectors = KnownVectors { too_large_beside, ..KnownVectors::default() };
            tracing::warn!(
                "engine.search: the vectors of a store do not fit in half of `cache.search_bytes`, so it is \
                 searched by words only"
            );
        }
        if state.postings.has_all() && state.bytes_with(expected) > self.max_postings_bytes {
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
                self.keep_within_limit(&mut state);
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
            self.keep_within_limit(&mut state);
        }
        follows
    }

    /// A page of the memories without terms.
    pub(super) fn unindexed(&self, place: (TenantId, StoreId)) -> Vec<UnindexedMemory> {
        self.state.read().unindexed(place)
    }

    /// The memories after changes that are not committed; `None`: the index was dropped after its load.
    pub(super) fn outcome(
        &self,
        changes: &[ChangedMemory],
        paths: &HashSet<MemoryPath>,
    ) -> Option<StoreOutcome> {
        let state = self.state.read();
        let place = state.place?;
        let mut rows = state.postings.copied_rows();
        let ids = changes.iter().filter_map(|change| change.memory_id);
        let at_paths =
            rows.memories().filter(|(_, path)| paths.contains(path)).map(|(memory_id, _)| memory_id);
        let blob_of = |memory_id| {
            let known = state.heads.get(&memory_id)?;
            Some((memory_id, (known.blob_id, known.sha256)))
        };
        let blobs: HashMap<_, _> = ids.chain(at_paths).filter_map(blob_of).collect();
        drop(state);
        for (change, number) in changes.iter().zip(0..) {
            // No stored memory has such a small id.
            let new_id = || MemoryId::from_uuid(Uuid::from_u128(number));
            let memory_id = change.memory_id.unwrap_or_else(new_id);
            match change.after.as_ref().filter(|path| !path.is_setting()) {
                None => rows.remove(memory_id),
                Some(path) => {
                    let terms = change.terms.clone().or_else(|| rows.row_of(memory_id));
                    // Damage is reported when the index of the store is built.
                    let _ = rows.set(memory_id, path.clone(), terms);
                }
            }
        }
        Some(StoreOutcome { place, rows, blobs })
    }

    /// The best memories whose paths have the words; `None`: there are too many words for the store.
    pub(super) fn paths_with(&self, words: &PathWords, limit: usize) -> Option<Vec<FoundPath>> {
        self.state.read().postings.paths_with(words, limit)
    }

    /// The best hits, in the order of all hits of a search. A query that is too broad for
    /// the store is refused. Vectors count if the store is searched by meaning.
    pub(super) fn search(
        &self,
        store_id: StoreId,
        asked: &ParsedSearch,
        is_hybrid: bool,
    ) -> Result<StoreHits, EngineError> {
        self.was_meant.store(is_hybrid, Ordering::Relaxed);
        let state = self.state.read();
        let is_after = |score: f64, path: &MemoryPath| match &asked.after {
            None => true,
            Some(after) => after.order_to(score, store_id, path).is_lt(),
        };
        let vectors = &state.vectors.of_memories;
        let fusion = asked.fusion.as_ref().map(|fusion| Fusion {
            vectors: is_hybrid.then(|| (vectors, &*fusion.query)),
            weight: fusion.weight,
        });
        let directory = asked.directory.as_ref();
        let results = state.postings.search_with(&asked.query, directory, fusion, asked.limit, is_after);
        if results.is_too_broad {
            return Err(too_broad());
        }
        let marker = Arc::new(results.marker);
        let purge_epoch = state.place.map(|place| place.purge_epoch).unwrap_or_default();
        let candidates = results
            .found
            .into_iter()
            .filter_map(|ranked| {
                let version = *state.heads.get(&ranked.memory)?;
                Some(Candidate { store_id, ranked, version, purge_epoch, marker: Arc::clone(&marker) })
            })
            .collect();
        // Vectors are not even read if the rows are too large.
        let are_too_large =
            state.vectors.too_large_beside.is_some() || state.bytes() > self.max_postings_bytes;
        let is_meant = is_hybrid.then_some(!are_too_large);
        let pending =
            if is_meant == Some(true) { state.heads.len().saturating_sub(vectors.len()) } else { 0 };
        Ok(StoreHits { found: candidates, pending: pending as u64, is_meant, to_make: None })
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
        let ids = self.unindexed.iter().take(UNINDEXED_AT_ONCE);
        ids.filter_map(|memory_id| {
            let known = self.heads.get(memory_id)?;
            Some(UnindexedMemory {
                place: (tenant_id, store_id, *memory_id),
                blob_id: known.blob_id,
                sha256: known.sha256,
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
                known.version_id == head.version.version_id && known.updated_at == head.version.updated_at
            })
            && self.postings.path_of(memory_id) == Some(&head.path)
    }

    /// Whether the known vectors of a memory are those of its new version: it may be moved, and the
    /// directories are no part of the embedded text.
    fn has_text_of(&self, memory_id: MemoryId, head: &SearchHead) -> bool {
        let known = self.heads.get(&memory_id).zip(self.postings.path_of(memory_id));
        known.is_some_and(|(known, path)| {
            known.version_id == head.version.version_id
                || (known.blob_id == head.version.blob_id && path.name() == head.path.name())
        })
    }

    fn apply(&mut self, SearchChange { memory_id, head }: SearchChange) {
        // Settings of the store are not searched.
        let head = head.filter(|head| !head.path.is_setting());
        if head.as_ref().is_some_and(|head| self.is_known_unindexed(memory_id, head)) {
            return;
        }
        self.unindexed.remove(&memory_id);
        if !head.as_ref().is_some_and(|head| self.has_text_of(memory_id, head)) {
            self.vectors.of_memories.remove(memory_id);
        }
        let Some(head) = head else {
            self.postings.remove(memory_id);
            self.heads.remove(&memory_id);
            return;
        };
        let SearchHead { path, version, terms } = head;
        if terms.is_none() {
            self.unindexed.insert(memory_id);
        }
        if self.postings.set(memory_id, path, terms).is_err() {
            log_damaged(memory_id);
        }
        self.heads.insert(memory_id, version);
    }

    fn adopt(&mut self, built: BuiltPostings) {
        built.damaged().iter().copied().for_each(log_damaged);
        self.postings.adopt(built);
    }

    /// The last edit of the wanted vectors that was applied; `None`: the vectors do not fit in memory. They
    /// may fit again once the store has shrunk.
    fn vectors_edit(&self, wanted: &VectorsPlace, max_bytes: usize) -> Option<i64> {
        let may_fit = |beside: usize| {
            self.row_bytes <= beside - beside / SHRUNK_BY
                && self.row_bytes.saturating_add(wanted.bytes) <= max_bytes
        };
        let vectors = &self.vectors;
        vectors.too_large_beside.is_none_or(may_fit).then(|| vectors.edit_of(&wanted.model))
    }

    /// Looks at every memory, so searches use the result.
    fn count_rows(&mut self) {
        let rows = self.postings.size_bytes() - self.postings.postings_bytes();
        self.row_bytes = rows + self.heads.len() * HEAD_BYTES;
    }

    fn bytes(&self) -> usize {
        self.bytes_with(0)
    }

    /// The bytes if the vectors have at least so many.
    fn bytes_with(&self, vector_bytes: usize) -> usize {
        let rows = self.row_bytes + self.postings.postings_bytes();
        rows.saturating_add(self.vectors.of_memories.size_bytes().max(vector_bytes))
    }
}

fn too_broad() -> EngineError {
    EngineError::invalid("query", "is too broad for this store: ask for fewer or rarer words")
}

fn log_damaged(memory_id: MemoryId) {
    tracing::error!(
        memory.id = %memory_id,
        "engine.search: the search terms of a memory are damaged; not all of its content is found"
    );
}

fn log_damaged_vectors(memory_id: MemoryId) {
    tracing::error!(
        memory.id = %memory_id,
        "engine.search: the vectors of a memory are damaged; it is found by its words only"
    );
}

#[cfg(test)]
mod tests {
    use keepsake_core::{ContentHash, Timestamp, VersionId};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn vectors_that_do_not_fit_leave_the_postings_as_they_are_and_fit_after_deletions() {
        let store = SearchedStore::unloaded(64 << 20);
        let version_id = VersionId::from_uuid(Uuid::nil());
        let change = |number: u128, is_live: bool| {
            let head = SearchHead {
                path: MemoryPath::parse(&format!("/{number}.md")).unwrap(),
                version: SearchedVersion {
                    version_id,
                    blob_id: version_id,
                    sha256: ContentHash::of(b"a"),
                    updated_at: Timestamp::from_micros(1),
                },
                terms: None,
            };
            let memory_id = MemoryId::from_uuid(Uuid::from_u128(number));
            SearchChange { memory_id, head: is_live.then_some(head) }
        };
        let place = |seq| SearchPlace { seq, purge_epoch: 0, version_id: None };
        let apply = |seq, is_whole: bool, memories| {
            let asked = (!is_whole).then(|| place(seq - 1));
            assert!(store.apply(asked, SearchChanges { place: place(seq), is_whole, memories }));
        };
        apply(1, true, (0..9).map(|number| change(number, true)).collect());
        let wanted = |bytes| VectorsPlace { model: "model".into(), edit: 1, bytes };
        let has_all = || store.state.read().postings.has_all();
        assert!(has_all() && !store.has_room_for(&wanted(128 << 20)));
        assert!(has_all() && !store.has_room_for(&wanted(1 << 20)));
        apply(2, false, (1..9).map(|number| change(number, false)).collect());
        assert!(!store.has_room_for(&wanted(128 << 20)) && store.has_room_for(&wanted(1 << 20)));
    }

    /// A gate would admit any change by an outcome without memories.
    #[test]
    fn dropped_index_has_no_outcome() {
        let store = SearchedStore::unloaded(64 << 20);
        let place = SearchPlace { seq: 1, purge_epoch: 0, version_id: None };
        assert!(store.apply(None, SearchChanges { place, is_whole: true, memories: Vec::new() }));
        assert!(store.outcome(&[], &HashSet::new()).is_some());
        store.forget(place);
        assert!(store.outcome(&[], &HashSet::new()).is_none());
    }
}
