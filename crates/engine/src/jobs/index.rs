//! `index-memories`: adds search terms to memories without terms of their
//! content. Such memories were written before search existed, by a replica of
//! an earlier release, or with an older analyser.
//!
//! Until this job or a search of the store has indexed such a memory, only its
//! path is searchable.

use async_trait::async_trait;
use keepsake_search::ANALYSER;
use serde_json::{Value, json};

use super::{DAY, Job, JobPlan, Lease};
use crate::EngineError;
use crate::search::add_terms;
use crate::shared::Shared;

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
    fn plan(&self) -> JobPlan {
        JobPlan { name: "index-memories", schedule: "30 9/10 * * * *", period: DAY, can_be_dry: true }
    }

    async fn run(&self, shared: &Shared, lease: &Lease<'_>) -> Result<Value, EngineError> {
        let mut counts = Counts::default();
        let mut after = lease.resumed_at().await?;
        loop {
            let index = &shared.context.index;
            let page = index.search.unindexed(after, ANALYSER, BATCH).await?;
            counts.looked_at += page.looked_at;
            counts.found += page.unindexed.len() as u64;
            if !lease.dry_run() {
                let of_page = add_terms(shared, page.unindexed).await?;
                counts.indexed += of_page.indexed;
                counts.failed += of_page.failed;
            }
            after = page.last;
            let is_last = page.looked_at < u64::from(BATCH);
            if !lease.renew_at(after.filter(|_| !is_last).as_ref()).await? || is_last {
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
