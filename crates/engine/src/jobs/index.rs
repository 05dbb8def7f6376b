//! `index-memories`: adds search terms to memories without terms of their
//! content. Such memories were written before search existed, by a replica of
//! an earlier release, or with an older analyser.
//!
//! Until this job or a search of the store has indexed such a memory, only its
//! path is searchable. The job does not use the content cache, which is kept
//! for what clients read.

use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, StreamExt};
use keepsake_core::{BlobKey, MemoryId, StoreId, TenantId, VersionId};
use keepsake_index::{MemoryPlace, SearchRow, Unindexed};
use keepsake_search::ANALYSER;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Job, Lease};
use crate::content::Recorded;
use crate::{Engine, EngineError};

/// Memories checked in one batch.
const BATCH: u32 = 500;
/// Contents read concurrently.
const READS_AT_ONCE: usize = 8;

/// Indexes older memories daily in the order of their ids, in batches. A run
/// resumes from the cursor of an interrupted one.
#[derive(Debug, Clone, Copy)]
pub struct IndexMemories;

/// The counts of a run, or of a dry run.
#[derive(Debug, Default)]
struct Counts {
    looked_at: u64,
    found: u64,
    indexed: u64,
    failed: u64,
}

#[async_trait]
impl Job for IndexMemories {
    fn name(&self) -> &'static str {
        "index-memories"
    }

    fn schedule(&self) -> &'static str {
        "30 9/10 * * * *"
    }

    fn period(&self) -> Duration {
        Duration::from_hours(24)
    }

    fn can_be_dry(&self) -> bool {
        true
    }

    async fn run(&self, engine: &Engine, lease: &Lease<'_>) -> Result<Value, EngineError> {
        let mut counts = Counts::default();
        let mut after = lease.cursor().await?.as_deref().and_then(place_of);
        loop {
            let index = &engine.0.index;
            let page = index.search.unindexed(after, ANALYSER, BATCH).await?;
            counts.looked_at += page.looked_at;
            counts.found += page.unindexed.len() as u64;
            if !lease.dry_run() {
                index_page(engine, page.unindexed, &mut counts).await?;
            }
            after = page.last;
            let is_last = page.looked_at < u64::from(BATCH);
            let cursor = after.filter(|_| !is_last).map(text_of);
            if !lease.renew(cursor.as_deref()).await? || is_last {
                return Ok(report(&counts, lease.dry_run()));
            }
        }
    }
}

fn report(counts: &Counts, is_dry_run: bool) -> Value {
    let Counts {
        looked_at,
        found,
        indexed,
        failed,
    } = counts;
    if is_dry_run {
        json!({"looked_at": looked_at, "would_index": found})
    } else {
        json!({"looked_at": looked_at, "indexed": indexed, "failed": failed})
    }
}

/// Indexes memories of one store that a search found without terms. Returns how
/// many now have terms.
pub(crate) async fn index_found(engine: &Engine, unindexed: Vec<Unindexed>) -> Result<u64, EngineError> {
    let mut counts = Counts::default();
    index_page(engine, unindexed, &mut counts).await?;
    Ok(counts.indexed)
}

/// Indexes memories that are sorted by store.
async fn index_page(
    engine: &Engine,
    unindexed: Vec<Unindexed>,
    counts: &mut Counts,
) -> Result<(), EngineError> {
    for of_store in unindexed.chunk_by(|a, b| store_of(a) == store_of(b)) {
        let Some((tenant_id, store_id)) = of_store.first().map(store_of) else {
            continue;
        };
        let rows: Vec<Option<(MemoryId, VersionId, SearchRow)>> = stream::iter(of_store.to_vec())
            .map(|memory| try_row_of(engine, memory))
            .buffered(READS_AT_ONCE)
            .collect()
            .await;
        let rows: Vec<_> = rows.into_iter().flatten().collect();
        counts.failed += (of_store.len() - rows.len()) as u64;
        counts.indexed += engine.0.index.search.put(tenant_id, store_id, &rows).await?;
    }
    Ok(())
}

fn store_of(memory: &Unindexed) -> (TenantId, StoreId) {
    (memory.place.0, memory.place.1)
}

/// The search row of a memory; `None`: its blob does not exist or could not be
/// read. One such memory must not stop the others from being indexed.
async fn try_row_of(engine: &Engine, memory: Unindexed) -> Option<(MemoryId, VersionId, SearchRow)> {
    let (tenant_id, store_id, memory_id) = memory.place;
    match row_of(engine, &memory).await {
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

/// The search terms of a memory's content; `None`: its blob does not exist.
async fn row_of(engine: &Engine, memory: &Unindexed) -> Result<Option<SearchRow>, EngineError> {
    let (tenant_id, store_id, memory_id) = memory.place;
    let key = BlobKey {
        tenant_id,
        store_id,
        blob_id: memory.blob_id,
    };
    let Some(size_bytes) = engine.0.contents.recorded_size(&key, memory_id).await? else {
        return Ok(None);
    };
    let recorded = Recorded {
        size_bytes,
        sha256: memory.sha256,
    };
    match engine.0.contents.fetch(&key, recorded).await? {
        Some(text) => engine.search_row(text).await.map(Some),
        None => Ok(None),
    }
}

/// Formats a place for the cursor.
fn text_of((tenant_id, store_id, memory_id): MemoryPlace) -> String {
    [tenant_id.uuid(), store_id.uuid(), memory_id.uuid()]
        .map(|id| id.simple().to_string())
        .join("/")
}

/// Parses the place in a cursor; `None` if invalid: then all is checked.
fn place_of(cursor: &str) -> Option<MemoryPlace> {
    let mut ids = cursor.split('/').map(Uuid::try_parse);
    let mut next = || ids.next()?.ok();
    Some((
        TenantId::from_uuid(next()?),
        StoreId::from_uuid(next()?),
        MemoryId::from_uuid(next()?),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_back_from_the_cursor() {
        let id = |number| Uuid::from_u128(number);
        let place = (
            TenantId::from_uuid(id(1)),
            StoreId::from_uuid(id(2)),
            MemoryId::from_uuid(id(3)),
        );
        assert_eq!(place_of(&text_of(place)), Some(place));
        assert_eq!(place_of("nonsense"), None);
    }
}
