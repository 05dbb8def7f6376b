//! `index-memories`: adds search terms to memories without terms of their
//! content. Such memories were written before search existed, by a replica of
//! an earlier release, or with an older analyser.
//!
//! Until this job or a search of the store has indexed such a memory, only its
//! path is searchable.

use std::time::Duration;

use async_trait::async_trait;
use keepsake_core::{MemoryId, StoreId, TenantId};
use keepsake_index::MemoryPlace;
use keepsake_search::ANALYSER;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Job, JobServices, Lease};
use crate::EngineError;

const BATCH: u32 = 500;

/// Indexes older memories daily in the order of their ids, in batches. A run
/// resumes from the cursor of an interrupted one.
#[derive(Debug, Clone, Copy)]
pub struct IndexMemories;

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

    async fn run(&self, services: &JobServices, lease: &Lease<'_>) -> Result<Value, EngineError> {
        let mut counts = Counts::default();
        let mut after = lease.cursor().await?.as_deref().and_then(place_of);
        loop {
            let index = &services.context.index;
            let page = index.search.unindexed(after, ANALYSER, BATCH).await?;
            counts.looked_at += page.looked_at;
            counts.found += page.unindexed.len() as u64;
            if !lease.dry_run() {
                let of_page = services.indexer.index(page.unindexed).await?;
                counts.indexed += of_page.indexed;
                counts.failed += of_page.failed;
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
    let Counts { looked_at, found, indexed, failed } = counts;
    if is_dry_run {
        json!({"looked_at": looked_at, "would_index": found})
    } else {
        json!({"looked_at": looked_at, "indexed": indexed, "failed": failed})
    }
}

fn text_of((tenant_id, store_id, memory_id): MemoryPlace) -> String {
    [tenant_id.uuid(), store_id.uuid(), memory_id.uuid()].map(|id| id.simple().to_string()).join("/")
}

/// `None`: the cursor is invalid; then all memories are checked.
fn place_of(cursor: &str) -> Option<MemoryPlace> {
    let mut ids = cursor.split('/').map(Uuid::try_parse);
    let mut next = || ids.next()?.ok();
    Some((TenantId::from_uuid(next()?), StoreId::from_uuid(next()?), MemoryId::from_uuid(next()?)))
}
