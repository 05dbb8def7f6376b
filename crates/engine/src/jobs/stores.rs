//! `purge-stores`: deletes the rows of deleted stores.

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use keepsake_core::{StoreId, TenantId};
use serde_json::{Value, json};

use super::{Job, Lease};
use crate::{Engine, EngineError};

/// Stores read per query.
const STORES: u32 = 10;
/// Rows of one batch: one transaction, which may block other writers.
const BATCH_ROWS: u32 = 1000;

/// Purges deleted stores every minute, in batches. It needs no cursor: the next
/// run continues with the rows that remain.
#[derive(Debug, Clone, Copy)]
pub struct PurgeStores;

#[async_trait]
impl Job for PurgeStores {
    fn name(&self) -> &'static str {
        "purge-stores"
    }

    fn schedule(&self) -> &'static str {
        "20 * * * * *"
    }

    fn period(&self) -> Duration {
        Duration::from_mins(1)
    }

    async fn run(&self, engine: &Engine, lease: &Lease<'_>) -> Result<Value, EngineError> {
        let index = &engine.0.index;
        let mut purged = Purged::default();
        loop {
            let deleted = index
                .store_deletions
                .due(STORES.saturating_add(purged.failed_count()))
                .await?;
            let before = purged.tried();
            for (tenant_id, store_id) in deleted {
                if purged.failed.contains(&store_id) {
                    continue;
                }
                match purge(engine, lease, tenant_id, store_id, &mut purged).await {
                    Ok(true) => {}
                    Ok(false) => return Ok(purged.counts()),
                    Err(error) => {
                        purged.failed.insert(store_id);
                        tracing::warn!(
                            tenant.id = %tenant_id, store.id = %store_id, error = %error,
                            "job.purge_stores: a store could not be purged; the next run tries again"
                        );
                    }
                }
            }
            if purged.tried() == before {
                return Ok(purged.counts());
            }
        }
    }
}

/// The counts of a run.
#[derive(Debug, Default)]
struct Purged {
    stores: u64,
    rows: u64,
    blobs: u64,
    /// Stores that failed; a run skips them, so that the others are purged.
    failed: HashSet<StoreId>,
}

impl Purged {
    fn failed_count(&self) -> u32 {
        u32::try_from(self.failed.len()).unwrap_or(u32::MAX)
    }

    /// Number of stores that the run purged or failed to purge.
    fn tried(&self) -> u64 {
        self.stores + u64::from(self.failed_count())
    }

    fn counts(&self) -> Value {
        json!({ "stores": self.stores, "rows": self.rows, "blobs": self.blobs, "failed": self.failed.len() })
    }
}

/// Purges one store completely; `false`: the run must stop.
async fn purge(
    engine: &Engine,
    lease: &Lease<'_>,
    tenant_id: TenantId,
    store_id: StoreId,
    purged: &mut Purged,
) -> Result<bool, EngineError> {
    loop {
        let index = &engine.0.index;
        let batch = index
            .store_deletions
            .purge(
                tenant_id,
                store_id,
                engine.blobs_go_from(engine.now()),
                BATCH_ROWS,
            )
            .await?;
        purged.rows += batch.rows;
        purged.blobs += batch.blobs;
        purged.stores += u64::from(batch.is_done);
        if !lease.renew(None).await? {
            return Ok(false);
        }
        if batch.is_done {
            return Ok(true);
        }
    }
}
