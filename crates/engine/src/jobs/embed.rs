//! `embed-memories`: queues stores with memories that are not embedded, and removes
//! vectors that are not needed.
//!
//! A write queues its store in the replica that receives it. This job finds stores whose
//! replica ended before it embedded them, stores with memories from a time without a model,
//! and stores that are no longer searched by words only. It skips a store that did not change
//! since the job last found nothing to do in it.

use async_trait::async_trait;
use keepsake_core::{StoreId, TenantId};
use keepsake_index::{EmbeddingPlace, RemovalLimits};
use serde_json::{Value, json};

use super::{Job, JobPlan, Lease, MINUTE};
use crate::EngineError;
use crate::embedding::ready_model;
use crate::shared::Shared;

/// Stores of one query.
const STORES: u32 = 1_000;
/// Stores of a tenant with another mode that one transaction notes.
const UNSETTLED: u32 = 100;
/// Removed in one transaction. The vectors of a large memory take some hundred KiB.
const BATCH: RemovalLimits = RemovalLimits { rows: 500, bytes: 8 << 20 };

/// Runs every minute. A run resumes from the cursor of an interrupted one.
#[derive(Debug, Clone, Copy)]
pub struct EmbedMemories;

#[derive(Debug, Default)]
struct Counts {
    pending: u64,
    outdated: u64,
    queued: u64,
    removed: u64,
    failed: u64,
}

impl Counts {
    fn record(&self, is_dry_run: bool) -> Value {
        let Self { pending, outdated, queued, removed, failed } = self;
        if is_dry_run {
            json!({"would_queue": pending, "would_remove_from": outdated})
        } else {
            json!({"queued": queued, "removed": removed, "failed": failed})
        }
    }
}

#[async_trait]
impl Job for EmbedMemories {
    fn plan(&self) -> JobPlan {
        JobPlan { name: "embed-memories", schedule: "50 * * * * *", period: MINUTE, can_be_dry: true }
    }

    async fn run(&self, shared: &Shared, lease: &Lease<'_>) -> Result<Value, EngineError> {
        let model = ready_model(&shared.embedder).ok();
        let mut counts = Counts::default();
        let mut after: Option<EmbeddingPlace> = lease.resumed_at().await?;
        while !lease.dry_run() {
            match shared.context.index.embeddings.unsettle(UNSETTLED).await {
                Ok(true) if lease.renew_at(after.as_ref()).await? => {}
                Ok(true) => return Ok(counts.record(false)),
                Ok(false) => break,
                // Other tenants do not wait for one whose stores are locked.
                Err(error) => {
                    tracing::warn!("stores whose search mode changed are looked at by the next run: {error}");
                    break;
                }
            }
        }
        loop {
            let embeddings = &shared.context.index.embeddings;
            let page = embeddings.work(model.as_deref(), shared.context.now(), after, STORES).await?;
            counts.pending += page.pending.len() as u64;
            counts.outdated += page.outdated.len() as u64;
            if !lease.dry_run() {
                let queued = page.pending.iter().filter(|store| shared.context.embedding_queue.push(**store));
                counts.queued += queued.count() as u64;
                for store in page.outdated {
                    if !remove_outdated(shared, lease, store, model.as_deref(), &mut counts).await? {
                        return Ok(counts.record(false));
                    }
                }
                embeddings.settle(model.as_deref(), &page.idle).await?;
            }
            after = page.last;
            let is_last = page.looked_at < u64::from(STORES);
            if !lease.renew_at(after.as_ref().filter(|_| !is_last)).await? || is_last {
                return Ok(counts.record(lease.dry_run()));
            }
        }
    }
}

/// `false`: the run must stop. A store that fails is left to the next run.
async fn remove_outdated(
    shared: &Shared,
    lease: &Lease<'_>,
    (tenant_id, store_id): (TenantId, StoreId),
    model: Option<&str>,
    counts: &mut Counts,
) -> Result<bool, EngineError> {
    loop {
        let (embeddings, now) = (&shared.context.index.embeddings, shared.context.now());
        match embeddings.remove_outdated(tenant_id, store_id, model, now, BATCH).await {
            Ok(removed) => {
                counts.removed += removed.rows;
                if removed.is_done {
                    return Ok(true);
                }
            }
            Err(error) => {
                tracing::warn!(
                    tenant.id = %tenant_id, store.id = %store_id, error = %error,
                    "job.embed_memories: vectors were not removed; the next run tries again"
                );
                counts.failed += 1;
                return Ok(true);
            }
        }
        if !lease.renew(None).await? {
            return Ok(false);
        }
    }
}
