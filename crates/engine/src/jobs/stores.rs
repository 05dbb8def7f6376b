//! `purge-stores`: deletes the rows of deleted stores.

use async_trait::async_trait;
use keepsake_core::{StoreId, TenantId};
use serde_json::{Value, json};

use super::removal::{RemovalScope, Selection, Step, remove_all};
use super::{Job, JobPlan, Lease, MINUTE};
use crate::EngineError;
use crate::context::Context;
use crate::shared::Shared;

const STORES: u32 = 10;
/// Rows of one batch. A batch is one transaction, which may block other writers.
const BATCH_ROWS: u32 = 1000;

/// Purges deleted stores every minute, in batches. It needs no cursor: the next
/// run continues with the rows that remain.
#[derive(Debug, Clone, Copy)]
pub struct PurgeStores;

#[async_trait]
impl Job for PurgeStores {
    fn plan(&self) -> JobPlan {
        JobPlan { name: "purge-stores", schedule: "20 * * * * *", period: MINUTE, can_be_dry: false }
    }

    async fn run(&self, shared: &Shared, lease: &Lease<'_>) -> Result<Value, EngineError> {
        let mut stores = DeletedStores { context: &shared.context, stores: 0, rows: 0, blobs: 0 };
        let failed = remove_all(&mut stores, lease).await?;
        let DeletedStores { stores, rows, blobs, .. } = stores;
        Ok(json!({ "stores": stores, "rows": rows, "blobs": blobs, "failed": failed }))
    }
}

struct DeletedStores<'a> {
    context: &'a Context,
    stores: u64,
    rows: u64,
    blobs: u64,
}

impl Selection for DeletedStores<'_> {
    type Item = (TenantId, StoreId);

    fn place(&(tenant_id, store_id): &Self::Item) -> Option<RemovalScope> {
        Some((tenant_id, Some(store_id)))
    }

    async fn page(&mut self, left: u32) -> Result<Vec<Self::Item>, EngineError> {
        let deletions = &self.context.index.store_deletions;
        Ok(deletions.due(STORES.saturating_add(left)).await?)
    }

    async fn batch(&mut self, &mut (tenant_id, store_id): &mut Self::Item) -> Result<Step, EngineError> {
        let blobs_go_from = self.context.blobs_go_from(self.context.now());
        let deletions = &self.context.index.store_deletions;
        let batch = deletions.purge(tenant_id, store_id, blobs_go_from, BATCH_ROWS).await?;
        self.rows += batch.rows();
        self.blobs += batch.blobs;
        self.stores += u64::from(batch.is_done);
        Ok(if batch.is_done { Step::Done } else { Step::More })
    }
}
