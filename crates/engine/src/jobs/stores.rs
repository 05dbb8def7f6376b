//! `purge-stores`: takes the rows of deleted stores away.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{Job, Lease};
use crate::{Engine, EngineError};

/// Stores looked for at a time.
const STORES: u32 = 10;
/// Rows of one batch: one transaction, which others may have to wait for.
const BATCH_ROWS: u32 = 1000;

/// Purges deleted stores, each minute, in batches; where it ended, the next run
/// goes on, since what is left of a store says itself what is to be done.
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
        let (mut stores, mut rows, mut blobs) = (0_u64, 0_u64, 0_u64);
        'work: loop {
            let deleted = index.deleted_stores(STORES).await?;
            if deleted.is_empty() {
                break;
            }
            for (tenant_id, store_id) in deleted {
                loop {
                    let purged = index
                        .purge_store(tenant_id, store_id, engine.now(), BATCH_ROWS)
                        .await?;
                    rows += purged.rows;
                    blobs += purged.blobs;
                    stores += u64::from(purged.is_done);
                    if !lease.renew(None).await? {
                        break 'work;
                    }
                    if purged.is_done {
                        break;
                    }
                }
            }
        }
        Ok(json!({ "stores": stores, "rows": rows, "blobs": blobs }))
    }
}
