//! `prune-reads`: removes old records of who was shown which version.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use keepsake_core::{TenantId, Timestamp};
use keepsake_index::RecordingTenant;
use serde_json::{Value, json};

use super::removal::{RemovalScope, Selection, Step, remove_all};
use super::{Job, JobPlan, Lease, MINUTE};
use crate::EngineError;
use crate::context::Context;
use crate::shared::Shared;

const TENANTS: u32 = 100;
/// Records of one batch. A batch is one transaction, which may block other writers. The oldest
/// records are all over the table, so each of them changes several pages.
const BATCH_ROWS: u32 = 200;
/// The longest rest between two batches, far below the time of a lease.
const MAX_REST: Duration = Duration::from_secs(1);

/// Removes, once an hour, records that are older than their tenant's retention, and the
/// oldest of a tenant that has too many. It needs no cursor: the next run continues with the
/// records that remain.
#[derive(Debug, Clone, Copy)]
pub struct PruneReads;

#[async_trait]
impl Job for PruneReads {
    fn plan(&self) -> JobPlan {
        JobPlan { name: "prune-reads", schedule: "40 5/10 * * * *", period: 60 * MINUTE, can_be_dry: true }
    }

    async fn run(&self, shared: &Shared, lease: &Lease<'_>) -> Result<Value, EngineError> {
        let mut old = OldReads { context: &shared.context, is_dry: lease.dry_run(), after: None, reads: 0 };
        let failed = remove_all(&mut old, lease).await?;
        let removed = if lease.dry_run() { "would_remove" } else { "removed" };
        Ok(json!({ removed: old.reads, "failed": failed }))
    }
}

struct OldReads<'a> {
    context: &'a Context,
    is_dry: bool,
    after: Option<TenantId>,
    reads: u64,
}

/// A tenant, and the time before which its records are removed once it is known.
struct OldReadsOfTenant {
    tenant: RecordingTenant,
    before: Option<Timestamp>,
}

impl Selection for OldReads<'_> {
    type Item = OldReadsOfTenant;

    fn place(OldReadsOfTenant { tenant, .. }: &OldReadsOfTenant) -> Option<RemovalScope> {
        Some((tenant.tenant_id, None))
    }

    async fn page(&mut self, _: u32) -> Result<Vec<OldReadsOfTenant>, EngineError> {
        let tenants = self.context.index.read_retention.tenants(self.after, TENANTS).await?;
        self.after = tenants.last().map_or(self.after, |last| Some(last.tenant_id));
        Ok(tenants.into_iter().map(|tenant| OldReadsOfTenant { tenant, before: None }).collect())
    }

    async fn batch(&mut self, item: &mut OldReadsOfTenant) -> Result<Step, EngineError> {
        let before = match item.before {
            Some(before) => before,
            None => *item.before.insert(self.removed_before(&item.tenant).await?),
        };
        let retention = &self.context.index.read_retention;
        let begun = Instant::now();
        let removed = retention.prune(item.tenant.tenant_id, before, BATCH_ROWS, self.is_dry).await?;
        self.reads += removed;
        if self.is_dry || removed < u64::from(BATCH_ROWS) {
            return Ok(Step::Done);
        }
        // Nobody waits for this removal, so that it leaves half of the disk's time to others.
        tokio::time::sleep(begun.elapsed().min(MAX_REST)).await;
        Ok(Step::More)
    }
}

impl OldReads<'_> {
    async fn removed_before(&self, tenant: &RecordingTenant) -> Result<Timestamp, EngineError> {
        let (limits, now) = (self.context.limits.with(&tenant.limits), self.context.now());
        // Without retention, nothing is kept of the time in which reads were recorded.
        let by_age = now.minus(Duration::from_secs(limits.read_retention_secs));
        let retention = &self.context.index.read_retention;
        let by_number = retention.surplus(tenant.tenant_id, limits.recorded_reads_per_tenant).await?;
        Ok(by_number.map_or(by_age, |by_number| by_number.max(by_age)))
    }
}
