//! Adds search terms to memories without terms of their content.
//!
//! It does not use the content cache, which is kept for contents that clients read.

use futures::stream::{self, StreamExt};
use keepsake_core::{BlobKey, MemoryId, StoreId, TenantId, VersionId};
use keepsake_index::{SearchRow, StoredContent, UnindexedMemory};

use crate::EngineError;
use crate::shared::Shared;
use crate::write::search_row;

const READS_AT_ONCE: usize = 8;

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct IndexerCounts {
    pub(crate) indexed: u64,
    pub(crate) failed: u64,
}

/// The memories must be sorted by store.
pub(crate) async fn add_terms(
    shared: &Shared,
    unindexed: Vec<UnindexedMemory>,
) -> Result<IndexerCounts, EngineError> {
    let mut counts = IndexerCounts::default();
    for of_store in unindexed.chunk_by(|a, b| store_of(a) == store_of(b)) {
        let Some((tenant_id, store_id)) = of_store.first().map(store_of) else {
            continue;
        };
        let rows: Vec<Option<(MemoryId, VersionId, SearchRow)>> = stream::iter(of_store.to_vec())
            .map(|memory| try_row_of(shared, memory))
            .buffered(READS_AT_ONCE)
            .collect()
            .await;
        let rows: Vec<_> = rows.into_iter().flatten().collect();
        counts.failed += (of_store.len() - rows.len()) as u64;
        let search = &shared.context.index.search;
        counts.indexed += search.put(tenant_id, store_id, &rows).await?;
    }
    Ok(counts)
}

/// The search row of a memory; `None`: its blob does not exist or could not be
/// read. One such memory must not stop the others from being indexed.
async fn try_row_of(shared: &Shared, memory: UnindexedMemory) -> Option<(MemoryId, VersionId, SearchRow)> {
    let (tenant_id, store_id, memory_id) = memory.place;
    match row_of(shared, &memory).await {
        Ok(row) => row.map(|row| (memory_id, memory.blob_id, row)),
        Err(error) => {
            tracing::warn!(
                tenant.id = %tenant_id, store.id = %store_id, memory.id = %memory_id, error = %error,
                "job.index_memories: a memory could not be indexed; the next run tries again"
            );
            None
        }
    }
}

/// `None`: the memory's blob does not exist.
async fn row_of(shared: &Shared, memory: &UnindexedMemory) -> Result<Option<SearchRow>, EngineError> {
    let (tenant_id, store_id, memory_id) = memory.place;
    let key = BlobKey { tenant_id, store_id, blob_id: memory.blob_id };
    let Some(size_bytes) = shared.contents.recorded_size(&key, memory_id).await? else {
        return Ok(None);
    };
    let recorded = StoredContent { blob_id: memory.blob_id, size_bytes, sha256: memory.sha256 };
    match shared.contents.fetch(&key, recorded).await? {
        Some(text) => search_row(text).await.map(Some),
        None => Ok(None),
    }
}

fn store_of(memory: &UnindexedMemory) -> (TenantId, StoreId) {
    (memory.place.0, memory.place.1)
}
