//! Search over the memories of stores.
//!
//! The index of a store is kept in memory after its first search (`cache`).
//! Before each search, one query brings it up to the store's `seq`. So on every
//! replica a memory is found once its write has returned, and is not found once
//! its deletion has returned. Analysis and ranking are in [`keepsake_search`]
//! and identical on both databases.
//!
//! A search by meaning (`meaning`) also compares the vector of the query with those of the
//! memories, which a worker writes behind the commits ([`crate::embedding`]).
//!
//! A hit with its snippet counts as a read of the memory.

mod answer;
mod cache;
mod indexer;
mod lru;
mod meaning;
mod outcome;
mod paths;
mod position;
mod store;

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Weak};

use futures::stream::{self, StreamExt, TryStreamExt};
use keepsake_core::schemas::MemorySearchHitType;
use keepsake_core::{BlobKey, DirPath, MeaningReason, MemoryPath, ObjectKind, Refused, StoreId, TenantId};
use keepsake_index::{Scope, SearchedVersion};
use keepsake_search::{Embedding, Marker, QueryTooLong, RankedMemory, Snippet};

use crate::compute::off_the_runtime;
use crate::content::ContentLoss;
use crate::cursor::Query as Identity;
use crate::fair::FairSlot;
use crate::request_fields::parse_prefix;
use crate::shared::service;
use crate::{EngineError, PageRequest, Principal};

pub use answer::{SearchExplanation, SearchHit, SearchMeaning, SearchPage};
use cache::Cache;
pub(crate) use indexer::add_terms;
use meaning::{MeaningUse, VectorsPlace};
pub(crate) use outcome::{ChangedMemory, StoreOutcome};
pub use paths::FoundPaths;
use position::{HitPosition, PageEnd, Scoring};
use store::SearchedStore;

const DEFAULT_LIMIT: u64 = 10;
const MAX_LIMIT: u64 = 50;

/// Number of stores searched, and of contents fetched, concurrently in one search.
const STORES_AT_ONCE: usize = 4;
const FETCHES_AT_ONCE: usize = 10;

/// How often a store is loaded for one outcome.
const MAX_LOADS: u32 = 3;

/// Maximum number of stores of one search, since each store is one query.
const MAX_STORES: usize = 100;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchQuery {
    /// The query, as `docs/search.md` describes it.
    pub query: String,
    /// Begins and ends with `/`; the whole store if unset.
    pub path_prefix: Option<String>,
    /// Whether hits have the parts of their scores.
    pub explain: bool,
    /// 1 to 50 hits, 10 if unset.
    pub page: PageRequest,
}

/// A hit of one store, before its content is read.
#[derive(Debug)]
struct Candidate {
    store_id: StoreId,
    ranked: RankedMemory,
    version: SearchedVersion,
    purge_epoch: i64,
    marker: Arc<Marker>,
}

impl Candidate {
    fn after(&self) -> HitPosition {
        HitPosition { score: self.ranked.score, store_id: self.store_id, path: self.ranked.path.clone() }
    }

    /// The passage that counted most for the hit.
    fn snippet(&self, content: &str) -> Snippet {
        match self.ranked.chunk {
            Some((offset, len)) if self.ranked.meaning > self.ranked.lexical => {
                self.marker.passage(content, offset, len)
            }
            _ => self.marker.snippet(content),
        }
    }

    /// The hit with the passage that it shows.
    fn hit(self, snippet: Snippet, is_explained: bool) -> SearchHit {
        let RankedMemory { memory, path, score, lexical, meaning, .. } = self.ranked;
        SearchHit {
            r#type: MemorySearchHitType,
            store_id: self.store_id,
            memory_id: memory,
            path,
            score,
            line: snippet.line,
            snippet: snippet.text,
            content_sha256: self.version.sha256,
            updated_at: self.version.updated_at,
            explanation: is_explained.then_some(SearchExplanation { lexical, meaning }),
        }
    }
}

/// The hits of a page with the passages that they show, and the position that the next page starts after.
struct FoundPage {
    found: Vec<(Candidate, Snippet)>,
    pending: u64,
    /// Whether no store was searched by meaning, since the vectors do not fit in memory.
    is_too_large: bool,
    after: Option<HitPosition>,
}

#[derive(Debug, Clone)]
struct ParsedSearch {
    query: keepsake_search::Query,
    /// How words and meaning count together; `None`: words only.
    fusion: Option<SearchFusion>,
    directory: Option<DirPath>,
    limit: usize,
    after: Option<HitPosition>,
}

/// How words and meaning count together in one search.
#[derive(Debug, Clone)]
struct SearchFusion {
    /// The meaning of the query.
    query: Arc<Embedding>,
    weight: f64,
}

impl SearchQuery {
    fn directory(&self) -> Result<Option<DirPath>, EngineError> {
        self.path_prefix.as_deref().map(parse_prefix).transpose()
    }

    fn limit(&self) -> Result<usize, EngineError> {
        let limit = self.page.limit.unwrap_or(DEFAULT_LIMIT);
        if !(1..=MAX_LIMIT).contains(&limit) {
            return Err(EngineError::invalid("limit", format!("must be 1 to {MAX_LIMIT}, but is {limit}")));
        }
        Ok(usize::try_from(limit).unwrap_or(usize::MAX))
    }

    fn parse(&self) -> Result<keepsake_search::Query, EngineError> {
        keepsake_search::Query::parse(&self.query).map_err(too_long)
    }

    /// The identity of the query for cursors. A search of all stores is one query,
    /// whatever stores exist.
    fn identity(&self, principal: &Principal, selected: &SelectedStores) -> Identity {
        let store_ids: &[StoreId] = if selected.is_all { &[] } else { &selected.store_ids };
        let uuids: Vec<_> = store_ids.iter().map(|store_id| store_id.uuid()).collect();
        let mut parts: Vec<&[u8]> = vec![b"search"];
        let tenant = principal.tenant_id.uuid();
        parts.push(tenant.as_bytes());
        parts.push(self.query.as_bytes());
        let directory = self.path_prefix.as_deref().map(keepsake_core::nfc).unwrap_or_default();
        parts.push(directory.as_bytes());
        parts.push(if selected.is_all { b"all" } else { b"" });
        parts.extend(uuids.iter().map(|uuid| uuid.as_bytes().as_slice()));
        Identity::of(&parts)
    }
}

struct SelectedStores {
    store_ids: Vec<StoreId>,
    /// Whether these are all stores of the credential.
    is_all: bool,
    /// Whether a store that is deleted meanwhile is left out.
    omits_deleted: bool,
}

impl SelectedStores {
    /// Stores that the caller named; a single store must exist.
    fn named(store_ids: &[StoreId]) -> Self {
        Self { store_ids: store_ids.to_vec(), is_all: false, omits_deleted: store_ids.len() > 1 }
    }
}

/// The hits of one store, and a guard that builds the store's postings when dropped.
#[derive(Default)]
struct StoreHits {
    found: Vec<Candidate>,
    /// Memories of a store with meaning that were searched by words only.
    pending: u64,
    /// Whether the store was searched by meaning, whose vectors must fit in memory; `None`: this was not
    /// asked for.
    is_meant: Option<bool>,
    to_make: Option<PostingsBuild>,
}

/// Builds the postings of a store when dropped: after a search, whether the search
/// succeeded or not.
struct PostingsBuild {
    cache: Arc<Cache>,
    tenant_id: TenantId,
    store_id: StoreId,
    /// Weak, so that an evicted store is not kept in memory until the search ends.
    store: Weak<SearchedStore>,
}

impl Drop for PostingsBuild {
    fn drop(&mut self) {
        // Without a runtime the process is ending and no search follows.
        if tokio::runtime::Handle::try_current().is_ok()
            && let Some(store) = self.store.upgrade()
        {
            self.cache.make_postings(self.tenant_id, self.store_id, &store);
        }
    }
}

service!(pub Search(shared) { cache: Arc<Cache> = Cache::new(shared) });

impl Search {
    /// Searches stores of a tenant; returns the best hits of all stores.
    ///
    /// Each store has its own statistics. Hits with equal scores are ordered by the ids
    /// of their stores, then by path. Of several stores, a deleted store is omitted. A
    /// hit counts as a read of its memory. A hit whose blob no longer exists was changed
    /// meanwhile and is omitted, and so is a hit with damaged content. So a page may have
    /// fewer hits than requested.
    #[tracing::instrument(name = "engine.search", level = "debug", skip_all, fields(gen_ai.memory.store.id = store_ids.first().filter(|_| store_ids.len() == 1).map(tracing::field::display)))]
    pub async fn find(
        &self,
        principal: &Principal,
        store_ids: &[StoreId],
        query: &SearchQuery,
    ) -> Result<SearchPage, EngineError> {
        principal.require(Scope::MemoryRead)?;
        for store_id in store_ids {
            principal.require_store(*store_id)?;
        }
        self.find_in(principal, SelectedStores::named(store_ids), query).await
    }

    /// The cursor of the page after a hit of [`Self::find`], for a page that ends at this
    /// hit.
    pub(crate) async fn page_after(
        &self,
        principal: &Principal,
        store_ids: &[StoreId],
        query: &SearchQuery,
        scoring: Scoring,
        hit: &SearchHit,
    ) -> Result<String, EngineError> {
        let selected = SelectedStores::named(store_ids);
        let hit = HitPosition { score: hit.score, store_id: hit.store_id, path: hit.path.clone() };
        let identity = query.identity(principal, &selected);
        self.context.cursors.seal(identity, &PageEnd { hit, scoring }).await
    }

    /// Searches the chosen stores, or all stores that the credential may read if none are
    /// chosen; archived stores are included. More than 100 stores are refused.
    ///
    /// Like [`Self::find`], with one query that finds the stores. A store without a
    /// memory below the prefix is not loaded.
    #[tracing::instrument(name = "engine.search_all", level = "debug", skip_all)]
    pub async fn find_everywhere(
        &self,
        principal: &Principal,
        chosen: &[StoreId],
        query: &SearchQuery,
    ) -> Result<SearchPage, EngineError> {
        principal.require(Scope::MemoryRead)?;
        let chosen: BTreeSet<_> = chosen.iter().copied().collect();
        for store_id in &chosen {
            principal.require_store(*store_id)?;
        }
        let too_many = || {
            EngineError::invalid(
                "memory_store_ids",
                format!("must name the stores to search: one search reads at most {MAX_STORES}"),
            )
        };
        if chosen.len() > MAX_STORES {
            return Err(too_many());
        }
        let is_all = chosen.is_empty();
        let chosen: Vec<_> = chosen.into_iter().collect();
        let only = if is_all { principal.store_ids() } else { Some(chosen.as_slice()) };
        let directory = query.directory()?.unwrap_or_else(DirPath::root);
        let (stores, tenant_id) = (&self.context.index.stores, principal.tenant_id);
        // One more store shows that there are too many.
        let found = stores.with_files(tenant_id, only, &directory, MAX_STORES + 1).await?;
        if found.len() > MAX_STORES {
            return Err(too_many());
        }
        if !is_all && found.len() < chosen.len() {
            return Err(EngineError::NotFound(ObjectKind::Store));
        }
        let with_files = found.into_iter().filter(|(_, has_files)| *has_files);
        let store_ids = with_files.map(|(store_id, _)| store_id).collect();
        let selected = SelectedStores { store_ids, is_all, omits_deleted: is_all };
        self.find_in(principal, selected, query).await
    }

    async fn find_in(
        &self,
        principal: &Principal,
        selected: SelectedStores,
        query: &SearchQuery,
    ) -> Result<SearchPage, EngineError> {
        let limit = query.limit()?;
        let identity = query.identity(principal, &selected);
        let cursors = &self.context.cursors;
        let (parsed, directory) = (query.parse()?, query.directory()?);
        let end: Option<PageEnd> = cursors.after(identity, &query.page).await?;
        let (tenant_id, before) = (principal.tenant_id, end.as_ref().map(|end| end.scoring));
        let mut meaning =
            MeaningUse::decide(&self.shared, &self.cache, tenant_id, &selected.store_ids, &parsed, before)
                .await?;
        let mut updated = meaning.updated.take();
        let scoring = meaning.scoring;
        let mut asked = ParsedSearch {
            query: parsed,
            fusion: meaning.fusion(),
            directory,
            // One more hit shows whether there is another page.
            limit: limit + 1,
            after: end.map(|end| end.hit),
        };
        let page = loop {
            let page =
                self.search_page(principal, &selected, &meaning, &asked, updated.take().as_ref()).await?;
            match page.after {
                // All hits of this page were omitted: search for later ones.
                Some(after) if page.found.is_empty() => asked.after = Some(after),
                _ => break page,
            }
        };
        let reason = meaning.reason.or_else(|| page.is_too_large.then_some(MeaningReason::TooLarge));
        self.context.metrics.searched(reason);
        let next = match page.after {
            Some(hit) => Some(cursors.seal(identity, &PageEnd { hit, scoring }).await?),
            None => None,
        };
        let items = page
            .found
            .into_iter()
            .map(|(candidate, snippet)| candidate.hit(snippet, query.explain))
            .collect();
        let pending = page.pending + meaning.stores.pending;
        let meaning = SearchMeaning { used: reason.is_none(), pending, reason };
        Ok(SearchPage { items, next, meaning, scoring })
    }

    async fn search_page(
        &self,
        principal: &Principal,
        selected: &SelectedStores,
        meaning: &MeaningUse,
        asked: &ParsedSearch,
        updated: Option<&Arc<SearchedStore>>,
    ) -> Result<FoundPage, EngineError> {
        let asked = &Arc::new(asked.clone());
        let limit = asked.limit - 1;
        let searched: Vec<StoreHits> = stream::iter(selected.store_ids.iter().copied())
            .map(|store_id| async move {
                let vectors = meaning.stores.of(store_id);
                let (updated, asked) = (updated.cloned(), Arc::clone(asked));
                match self.search_store(principal, store_id, vectors, updated, asked).await {
                    Err(EngineError::NotFound(ObjectKind::Store)) if selected.omits_deleted => {
                        Ok(StoreHits::default())
                    }
                    searched => searched,
                }
            })
            .buffered(STORES_AT_ONCE)
            .try_collect()
            .await?;
        // Postings are built after this function, whether it succeeds or not.
        // Building them earlier would compete for a core with reading the
        // contents.
        let meant = || searched.iter().filter_map(|one| one.is_meant);
        let is_too_large = meant().next().is_some() && !meant().any(|is_meant| is_meant);
        let (mut found, mut pending, mut to_make) = (Vec::new(), 0, Vec::new());
        for one in searched {
            found.extend(one.found);
            pending += one.pending;
            to_make.extend(one.to_make);
        }
        found.sort_by(|a, b| a.after().order(&b.after()));
        let has_more = found.len() > limit;
        found.truncate(limit);
        let after = found.last().filter(|_| has_more).map(Candidate::after);
        let found = self.show_hits(principal, found).await?;
        drop(to_make);
        Ok(FoundPage { found, pending, is_too_large, after })
    }

    async fn search_store(
        &self,
        principal: &Principal,
        store_id: StoreId,
        vectors: Option<VectorsPlace>,
        updated: Option<Arc<SearchedStore>>,
        asked: Arc<ParsedSearch>,
    ) -> Result<StoreHits, EngineError> {
        let (tenant_id, is_hybrid) = (principal.tenant_id, vectors.is_some());
        let (store, load) = match updated {
            Some(store) => (store, None),
            None => self.cache.searched_store(tenant_id, store_id, vectors.as_ref()).await?,
        };
        if load.is_none() {
            store.wait_for_postings().await;
        }
        let slot = self.slot(tenant_id, load).await?;
        let (found, has_postings) = {
            let store = Arc::clone(&store);
            off_the_runtime(move || {
                let found = store.search(store_id, &asked, is_hybrid);
                let has_postings = store.has_postings();
                drop(slot);
                (found, has_postings)
            })
            .await?
        };
        let to_make = (!has_postings).then(|| PostingsBuild {
            cache: Arc::clone(&self.cache),
            tenant_id,
            store_id,
            store: Arc::downgrade(&store),
        });
        Ok(StoreHits { to_make, ..found? })
    }

    /// A slot for work on a store. It is held until the work ends, even if the client disconnects. A search that
    /// loaded the store keeps using the slot of the load: a load that waited for one of its tenant's search slots
    /// would block the loads of other tenants.
    async fn slot(&self, tenant_id: TenantId, load: Option<FairSlot>) -> Result<FairSlot, EngineError> {
        match load {
            Some(load) => Ok(load),
            None => self.context.computations.slots.take(tenant_id).await,
        }
    }

    /// Calls `work`, off the runtime, with the memories of a store as they are after changes that are not
    /// committed. The outcome can name the blobs of the memories at `paths`. An index that another search drops
    /// meanwhile, because the database was restored, is loaded again.
    pub(crate) async fn with_outcome<T: Send + 'static>(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        changes: Arc<[ChangedMemory]>,
        paths: HashSet<MemoryPath>,
        work: impl FnOnce(StoreOutcome) -> T + Send + 'static,
    ) -> Result<T, EngineError> {
        let mut wanted = (changes, paths, work);
        for _ in 0..MAX_LOADS {
            let (changes, paths, work) = wanted;
            let worked =
                self.with_store(tenant_id, store_id, move |store| match store.outcome(&changes, &paths) {
                    Some(outcome) => Ok(work(outcome)),
                    None => Err((changes, paths, work)),
                });
            match worked.await? {
                Ok(done) => return Ok(done),
                Err(again) => wanted = again,
            }
        }
        Err(Refused::Contended.into())
    }

    /// Calls `work`, off the runtime, with the index of a store's words.
    async fn with_store<T: Send + 'static>(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        work: impl FnOnce(&SearchedStore) -> T + Send + 'static,
    ) -> Result<T, EngineError> {
        let (store, load) = self.cache.searched_store(tenant_id, store_id, None).await?;
        let slot = self.slot(tenant_id, load).await?;
        off_the_runtime(move || {
            let done = work(&store);
            drop(slot);
            done
        })
        .await
    }

    /// Reads the contents of hits and builds the hits that still exist.
    async fn show_hits(
        &self,
        principal: &Principal,
        found: Vec<Candidate>,
    ) -> Result<Vec<(Candidate, Snippet)>, EngineError> {
        let read: Vec<(Candidate, Result<Arc<str>, ContentLoss>)> = stream::iter(found)
            .map(|candidate| async move {
                let key = BlobKey {
                    tenant_id: principal.tenant_id,
                    store_id: candidate.store_id,
                    blob_id: candidate.version.blob_id,
                };
                let memory = (candidate.ranked.memory, &candidate.ranked.path);
                let content = self
                    .contents
                    .searched(key, candidate.purge_epoch, memory, candidate.version.sha256)
                    .await;
                match content {
                    Ok(content) => Ok(content.map(|content| (candidate, Ok(content)))),
                    // The loss is already logged; the hit names it.
                    Err(error) => ContentLoss::of(error).map(|loss| Some((candidate, Err(loss)))),
                }
            })
            .buffered(FETCHES_AT_ONCE)
            .try_filter_map(|read| std::future::ready(Ok(read)))
            .try_collect()
            .await?;
        // Snippets analyse up to 50 contents, which uses a core as a search
        // does.
        let show_all = move || {
            let show = |(candidate, content): (Candidate, Result<Arc<str>, ContentLoss>)| {
                let is_read = content.is_ok();
                let snippet = match content {
                    Ok(content) => candidate.snippet(&content),
                    Err(loss) => Snippet { line: 1, text: lost_snippet(loss).to_owned() },
                };
                (candidate, snippet, is_read)
            };
            read.into_iter().map(show).collect::<Vec<_>>()
        };
        let shown = self.context.computations.run(principal.tenant_id, show_all).await?;
        let read_of = |candidate: &Candidate| {
            (candidate.store_id, candidate.ranked.memory, candidate.version.version_id)
        };
        let were_read = shown.iter().filter(|(.., is_read)| *is_read);
        let were_read: Vec<_> = were_read.map(|(candidate, ..)| read_of(candidate)).collect();
        self.access.note_hits(principal, &were_read);
        Ok(shown.into_iter().map(|(candidate, snippet, _)| (candidate, snippet)).collect())
    }
}

fn too_long(rule: QueryTooLong) -> EngineError {
    EngineError::invalid("query", rule.to_string())
}

/// The snippet of a hit whose content is lost.
const fn lost_snippet(loss: ContentLoss) -> &'static str {
    match loss {
        ContentLoss::Missing => {
            "(content_missing: the content of this memory is missing in the content store)"
        }
        ContentLoss::Damaged => "(the stored content of this memory is damaged)",
    }
}
