//! Search for memories by words of their paths.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use keepsake_core::{ObjectKind, StoreId, TenantId};
use keepsake_index::Scope;
use keepsake_search::{FoundPath, PathWords};

use super::{STORES_AT_ONCE, Search, too_long};
use crate::{EngineError, Principal};

/// How long a search by paths waits for a store.
const PATIENCE: Duration = Duration::from_secs(1);

/// Memories of stores that were found by their paths.
#[derive(Debug, Default)]
pub struct FoundPaths {
    /// The best one is first.
    pub memories: Vec<(FoundPath, StoreId)>,
    /// Whether stores are missing that were not read in time.
    pub is_incomplete: bool,
}

impl Search {
    /// Returns the best `limit` memories of stores by their paths.
    ///
    /// Only memories are found whose paths have all words of `text`. Those with the words in the names of their
    /// files come first. A deleted store is omitted, and so is a store for which the text is too broad. A store
    /// that is not read within a second is missing; reading it goes on, so that a later search finds it.
    ///
    /// This takes the slots of a search, and loads the same indexes. It reads no content, so it does not count
    /// as a read of the memories.
    #[tracing::instrument(name = "engine.search_paths", level = "debug", skip_all)]
    pub async fn find_paths(
        &self,
        principal: &Principal,
        store_ids: &[StoreId],
        text: &str,
        limit: usize,
    ) -> Result<FoundPaths, EngineError> {
        principal.require(Scope::MemoryRead)?;
        for store_id in store_ids {
            principal.require_store(*store_id)?;
        }
        let words = &Arc::new(PathWords::parse(text).map_err(too_long)?);
        let tenant_id = principal.tenant_id;
        let of_stores: Vec<Option<Vec<_>>> = stream::iter(store_ids.iter().copied())
            .map(|store_id| async move {
                let paths = self.paths_in(tenant_id, store_id, Arc::clone(words), limit);
                if let Ok(found) = tokio::time::timeout(PATIENCE, paths).await {
                    return found.map(Some);
                }
                self.cache.load_meanwhile(tenant_id, store_id);
                Ok(None)
            })
            .buffered(STORES_AT_ONCE)
            .try_collect()
            .await?;
        let is_incomplete = of_stores.iter().any(Option::is_none);
        let mut memories: Vec<_> = of_stores.into_iter().flatten().flatten().collect();
        memories.sort_unstable();
        memories.truncate(limit);
        Ok(FoundPaths { memories, is_incomplete })
    }

    async fn paths_in(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        words: Arc<PathWords>,
        limit: usize,
    ) -> Result<Vec<(FoundPath, StoreId)>, EngineError> {
        let searched = self.with_store(tenant_id, store_id, move |store| store.paths_with(&words, limit));
        let found = match searched.await {
            Err(EngineError::NotFound(ObjectKind::Store)) => None,
            found => found?,
        };
        Ok(found.unwrap_or_default().into_iter().map(|found| (found, store_id)).collect())
    }
}
