//! Search over the memories of stores.
//!
//! The index of a store is kept in memory after its first search ([`cache`]).
//! Before each search, one query brings it up to the store's `seq`. So on every
//! replica a memory is found once its write has returned, and is not found once
//! its deletion has returned. Analysis and ranking are in [`keepsake_search`]
//! and identical on both databases.
//!
//! A hit with its snippet counts as a read of the memory.

mod cache;
mod lru;
mod rows;
pub(crate) use rows::search_rows;

use std::cmp::Ordering;
use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt};
use keepsake_core::{
    BlobKey, ContentHash, DirPath, MemoryId, MemoryPath, StoreId, TenantId, Timestamp, VersionId,
};
use keepsake_index::Scope;
use keepsake_search::{Marker, Snippet};

use crate::cursor::Query as Identity;
use crate::memories::parse_prefix;
use crate::{Engine, EngineError, Page, PageRequest, Principal};

pub(crate) use cache::Cache;

/// Number of hits of a page: the default and the maximum.
const DEFAULT_LIMIT: u64 = 10;
const MAX_LIMIT: u64 = 50;

/// Concurrency of one search: stores searched, and contents fetched.
const STORES_AT_ONCE: usize = 4;
const FETCHES_AT_ONCE: usize = 10;

/// A search request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchQuery {
    /// The query, as `docs/search.md` describes it.
    pub query: String,
    /// Begins and ends with `/`; the whole store if unset.
    pub path_prefix: Option<String>,
    /// The page: 1 to 50 hits, 10 if unset.
    pub page: PageRequest,
}

/// A search hit.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchHit {
    /// The store.
    pub store_id: StoreId,
    /// The memory.
    pub memory_id: MemoryId,
    /// The path of the memory.
    pub path: MemoryPath,
    /// Higher is better; comparable within one search.
    pub score: f64,
    /// The line where the snippet begins, counted from 1.
    pub line: usize,
    /// A passage with the matches between `⟦` and `⟧`.
    pub snippet: String,
    /// When the memory was last changed.
    pub updated_at: Timestamp,
    /// SHA-256 of the content that the snippet is from.
    pub content_sha256: ContentHash,
}

/// A hit of one store, before its content is read.
#[derive(Debug)]
struct Candidate {
    /// The store's position in the list of searched stores.
    place: usize,
    memory_id: MemoryId,
    path: MemoryPath,
    score: f64,
    blob_id: VersionId,
    sha256: ContentHash,
    updated_at: Timestamp,
    purge_epoch: i64,
    marker: Arc<Marker>,
}

impl Candidate {
    fn after(&self) -> After {
        After {
            score: self.score,
            place: self.place,
            path: self.path.clone(),
        }
    }
}

/// The position of a hit in the result: ordered by score, best first, then by
/// the order of the stores, then by path.
#[derive(Debug, Clone, PartialEq)]
struct After {
    score: f64,
    place: usize,
    path: MemoryPath,
}

impl After {
    fn order(&self, other: &Self) -> Ordering {
        (other.score.total_cmp(&self.score))
            .then(self.place.cmp(&other.place))
            .then_with(|| self.path.cmp(&other.path))
    }

    fn to_bytes(&self) -> Vec<u8> {
        let place = u32::try_from(self.place).unwrap_or(u32::MAX);
        let mut bytes = self.score.to_bits().to_be_bytes().to_vec();
        bytes.extend_from_slice(&place.to_be_bytes());
        bytes.extend_from_slice(self.path.as_str().as_bytes());
        bytes
    }

    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let (score, rest) = bytes.split_first_chunk()?;
        let (place, path) = rest.split_first_chunk()?;
        Some(Self {
            score: f64::from_bits(u64::from_be_bytes(*score)),
            place: usize::try_from(u32::from_be_bytes(*place)).ok()?,
            path: MemoryPath::from_trusted(std::str::from_utf8(path).ok()?.to_owned()),
        })
    }
}

/// A search of one store.
#[derive(Debug, Clone)]
struct Asked {
    query: keepsake_search::Query,
    directory: Option<DirPath>,
    limit: usize,
    after: Option<After>,
}

impl SearchQuery {
    fn limit(&self) -> Result<usize, EngineError> {
        let limit = self.page.limit.unwrap_or(DEFAULT_LIMIT);
        if !(1..=MAX_LIMIT).contains(&limit) {
            return Err(EngineError::Invalid {
                field: "limit",
                rule: format!("must be 1 to {MAX_LIMIT}, but is {limit}"),
            });
        }
        Ok(usize::try_from(limit).unwrap_or(usize::MAX))
    }

    fn parse(&self) -> Result<keepsake_search::Query, EngineError> {
        keepsake_search::Query::parse(&self.query).map_err(|rule| EngineError::Invalid {
            field: "query",
            rule: rule.to_string(),
        })
    }

    fn identity(&self, principal: &Principal, store_ids: &[StoreId]) -> Identity {
        let uuids: Vec<_> = store_ids.iter().map(|store_id| store_id.uuid()).collect();
        let mut parts: Vec<&[u8]> = vec![b"search"];
        let tenant = principal.tenant_id.uuid();
        parts.push(tenant.as_bytes());
        parts.push(self.query.as_bytes());
        parts.push(self.path_prefix.as_deref().unwrap_or_default().as_bytes());
        parts.extend(uuids.iter().map(|uuid| uuid.as_bytes().as_slice()));
        Identity::of(&parts)
    }
}

/// The hits of one store, and a guard that builds its postings when dropped.
struct Searched {
    found: Vec<Candidate>,
    to_make: Option<ToMake>,
}

/// Builds the postings of a store when dropped: after a search, whether it
/// succeeded or not.
struct ToMake {
    engine: Engine,
    tenant_id: TenantId,
    store_id: StoreId,
    store: Arc<cache::SearchedStore>,
}

impl Drop for ToMake {
    fn drop(&mut self) {
        // Without a runtime the process is ending and no search follows.
        if tokio::runtime::Handle::try_current().is_ok() {
            self.engine
                .make_postings(self.tenant_id, self.store_id, &self.store);
        }
    }
}

impl Engine {
    /// Searches stores of a tenant; returns the best hits of all stores.
    ///
    /// Each store has its own statistics. Hits with equal scores are ordered by
    /// `store_ids`, then by path. A hit counts as a read of its memory. A hit
    /// whose blob no longer exists was changed meanwhile and is omitted, and so
    /// is one with damaged content. So a page may have fewer hits than
    /// requested.
    ///
    /// # Errors
    /// [`EngineError::PermissionDenied`], [`EngineError::StoreNotFound`],
    /// [`EngineError::Invalid`], and failures of index and blob store.
    #[tracing::instrument(name = "engine.search", level = "debug", skip_all)]
    pub async fn search(
        &self,
        principal: &Principal,
        store_ids: &[StoreId],
        query: &SearchQuery,
    ) -> Result<Page<SearchHit>, EngineError> {
        principal.require(Scope::MemoryRead)?;
        for store_id in store_ids {
            principal.require_store(*store_id)?;
        }
        let limit = query.limit()?;
        let identity = query.identity(principal, store_ids);
        let mut asked = Asked {
            query: query.parse()?,
            directory: query.path_prefix.as_deref().map(parse_prefix).transpose()?,
            // One more hit shows whether there is another page.
            limit: limit + 1,
            after: self.place_after(identity, &query.page).await?,
        };
        loop {
            let (items, after) = self.search_page(principal, store_ids, &asked).await?;
            match after {
                // All hits of this page were omitted: search for later ones.
                Some(after) if items.is_empty() => asked.after = Some(after),
                Some(after) => {
                    let next = Some(self.seal(identity, &after.to_bytes()).await?);
                    return Ok(Page { items, next });
                }
                None => return Ok(Page { items, next: None }),
            }
        }
    }

    /// The hits of a page, and the position that the next page starts after.
    async fn search_page(
        &self,
        principal: &Principal,
        store_ids: &[StoreId],
        asked: &Asked,
    ) -> Result<(Vec<SearchHit>, Option<After>), EngineError> {
        let asked = Arc::new(asked.clone());
        let limit = asked.limit - 1;
        let searched: Vec<Searched> = stream::iter(store_ids.iter().copied().enumerate())
            .map(|(place, store_id)| self.search_store(principal, place, store_id, Arc::clone(&asked)))
            .buffered(STORES_AT_ONCE)
            .try_collect()
            .await?;
        // Postings are built after this function, whether it succeeds or not.
        // Building them earlier would compete for a core with reading the
        // contents.
        let (mut found, mut to_make) = (Vec::new(), Vec::new());
        for one in searched {
            found.extend(one.found);
            to_make.extend(one.to_make);
        }
        found.sort_by(|a, b| a.after().order(&b.after()));
        let has_more = found.len() > limit;
        found.truncate(limit);
        let after = found.last().filter(|_| has_more).map(Candidate::after);
        let items = self.show_hits(principal, store_ids, found).await?;
        drop(to_make);
        Ok((items, after))
    }

    async fn place_after(
        &self,
        identity: Identity,
        page: &PageRequest,
    ) -> Result<Option<After>, EngineError> {
        let Some(page) = &page.page else {
            return Ok(None);
        };
        let position = self.unseal(identity, page).await?;
        let after = After::of_bytes(&position).ok_or(EngineError::Internal("a cursor of no hit"))?;
        Ok(Some(after))
    }

    /// Finds the best hits of one store.
    async fn search_store(
        &self,
        principal: &Principal,
        place: usize,
        store_id: StoreId,
        asked: Arc<Asked>,
    ) -> Result<Searched, EngineError> {
        let tenant_id = principal.tenant_id;
        let (store, load) = self.searched_store(tenant_id, store_id).await?;
        // Held until the work ends, even if the client disconnects. A search
        // that loaded the store keeps using the slot of the load: a load that
        // waited for one of its tenant's search slots would block the loads of
        // other tenants.
        let slot = if let Some(load) = load {
            load
        } else {
            store.wait_for_postings().await;
            self.0.searched.searches.take(tenant_id).await?
        };
        let (found, has_postings) = {
            let store = Arc::clone(&store);
            off_the_runtime(move || {
                let found = store.search(place, &asked);
                let has_postings = store.has_postings();
                drop(slot);
                (found, has_postings)
            })
            .await?
        };
        let to_make = (!has_postings).then(|| ToMake {
            engine: self.clone(),
            tenant_id,
            store_id,
            store,
        });
        Ok(Searched {
            found: found?,
            to_make,
        })
    }

    /// Reads the contents of hits and builds the hits that still exist.
    async fn show_hits(
        &self,
        principal: &Principal,
        store_ids: &[StoreId],
        found: Vec<Candidate>,
    ) -> Result<Vec<SearchHit>, EngineError> {
        let read: Vec<(Candidate, Arc<str>)> = stream::iter(found)
            .map(|candidate| async move {
                let key = BlobKey {
                    tenant_id: principal.tenant_id,
                    store_id: store_ids[candidate.place],
                    blob_id: candidate.blob_id,
                };
                let content = self.0.contents.searched(
                    key,
                    candidate.purge_epoch,
                    candidate.memory_id,
                    candidate.sha256,
                );
                match content.await {
                    Ok(content) => Ok(content.map(|content| (candidate, content))),
                    // The damage is already logged; the other hits are
                    // returned.
                    Err(EngineError::Damaged(_)) => Ok(None),
                    Err(error) => Err(error),
                }
            })
            .buffered(FETCHES_AT_ONCE)
            .try_filter_map(|read| std::future::ready(Ok(read)))
            .try_collect()
            .await?;
        // Snippets analyse up to 50 contents, which uses a core as a search
        // does.
        let slot = self.0.searched.searches.take(principal.tenant_id).await?;
        let shown = off_the_runtime(move || {
            let show = |(candidate, content): (Candidate, Arc<str>)| {
                let snippet = candidate.marker.snippet(&content);
                (candidate, snippet)
            };
            let shown = read.into_iter().map(show).collect::<Vec<_>>();
            drop(slot);
            shown
        })
        .await?;
        let ids_of = |candidate: &Candidate| (store_ids[candidate.place], candidate.memory_id);
        self.note_reads(principal, shown.iter().map(|(candidate, _)| ids_of(candidate)));
        let mut hits = Vec::with_capacity(shown.len());
        for (candidate, Snippet { line, text }) in shown {
            hits.push(SearchHit {
                store_id: store_ids[candidate.place],
                memory_id: candidate.memory_id,
                path: candidate.path,
                score: candidate.score,
                line,
                snippet: text,
                updated_at: candidate.updated_at,
                content_sha256: candidate.sha256,
            });
        }
        Ok(hits)
    }
}

/// Runs work of more than some tenths of a millisecond on a blocking thread.
async fn off_the_runtime<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, EngineError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| EngineError::Internal("a search panicked"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(score: f64, place: usize, path: &str) -> After {
        After {
            score,
            place,
            path: MemoryPath::parse(path).unwrap(),
        }
    }

    #[test]
    fn places_come_back_from_their_bytes() {
        for place in [after(0.0, 0, "/a"), after(12.345_678_9, 7, "/é/b")] {
            assert_eq!(After::of_bytes(&place.to_bytes()), Some(place));
        }
        assert_eq!(After::of_bytes(b"short"), None);
    }

    #[test]
    fn order_is_score_then_store_then_path() {
        let mut places = [
            after(1.0, 1, "/a"),
            after(2.0, 1, "/z"),
            after(1.0, 0, "/b"),
            after(1.0, 0, "/a"),
        ];
        places.sort_by(After::order);
        let order = places.map(|place| (place.place, place.path.as_str().to_owned()));
        assert_eq!(
            order,
            [(1, "/z"), (0, "/a"), (0, "/b"), (1, "/a")].map(|(place, path)| (place, path.to_owned()))
        );
    }
}
