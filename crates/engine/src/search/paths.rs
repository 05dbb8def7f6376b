//! Search for memories by words of their paths.

use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt};
use keepsake_core::{ObjectKind, StoreId, TenantId};
use keepsake_index::Scope;
use keepsake_search::{FoundPath, PathWords};

use super::{STORES_AT_ONCE, Search, too_long};
use crate::{EngineError, Principal};

impl Search {
    /// The best `limit` of the memories of stores whose paths have all words of `text`. Those with the words in
    /// the names of their files come first. A deleted store is omitted.
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
    ) -> Result<Vec<(FoundPath, StoreId)>, EngineError> {
        principal.require(Scope::MemoryRead)?;
        for store_id in store_ids {
            principal.require_store(*store_id)?;
        }
        let words = &Arc::new(PathWords::parse(text).map_err(too_long)?);
        let found: Vec<Vec<_>> = stream::iter(store_ids.iter().copied())
            .map(|store_id| async move {
                self.paths_in(principal.tenant_id, store_id, Arc::clone(words), limit).await
            })
            .buffered(STORES_AT_ONCE)
            .try_collect()
            .await?;
        let mut found: Vec<_> = found.into_iter().flatten().collect();
        found.sort_unstable();
        found.truncate(limit);
        Ok(found)
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
            Err(EngineError::NotFound(ObjectKind::Store)) => return Ok(Vec::new()),
            found => found??,
        };
        Ok(found.into_iter().map(|found| (found, store_id)).collect())
    }
}
