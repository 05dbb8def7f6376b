//! `count-totals`: sums up what all tenants store, for the metrics.

use async_trait::async_trait;
use keepsake_core::{StoreId, TenantId};
use keepsake_telemetry::StoredTotals;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Job, JobPlan, Lease, MINUTE};
use crate::EngineError;
use crate::context::Context;
use crate::shared::Shared;

const NAME: &str = "count-totals";
/// Number of recent run records that are searched for the last successful run.
const RECENT_RUNS: u32 = 20;
const BATCH: u32 = 1_000;

/// Sums up the counters of all stores every ten minutes.
///
/// One replica counts. Every worker reads the result from the run's record and
/// reports it, so that all of them report the same totals.
#[derive(Debug, Clone, Copy)]
pub struct CountTotals;

/// The cursor of a run: the sums so far, and the last store that the sums include.
#[derive(Debug, Default, Serialize, Deserialize)]
struct TotalsCursor {
    after: Option<(TenantId, StoreId)>,
    totals: StoredTotals,
}

#[async_trait]
impl Job for CountTotals {
    /// Each minute, so that a new installation soon has totals.
    fn plan(&self) -> JobPlan {
        JobPlan { name: NAME, schedule: "10 * * * * *", period: 10 * MINUTE, can_be_dry: false }
    }

    async fn run(&self, shared: &Shared, lease: &Lease<'_>) -> Result<Value, EngineError> {
        let mut counted: TotalsCursor = lease.resumed_at().await?.unwrap_or_default();
        loop {
            let batch = shared.context.index.upkeep.stores_after(counted.after, BATCH).await?;
            let Some(last) = batch.last() else {
                lease.renew(None).await?;
                return Ok(counted.record());
            };
            counted.after = Some((last.tenant_id, last.store_id));
            let totals = &mut counted.totals;
            for store in &batch {
                totals.stores += 1;
                totals.memories += store.memory_count;
                totals.versions += store.version_count;
                totals.memory_bytes += store.live_bytes;
                totals.version_bytes += store.version_bytes;
            }
            if !lease.renew_at(Some(&counted)).await? {
                return Ok(counted.record());
            }
        }
    }
}

impl TotalsCursor {
    /// The counts of the run. Totals are no items of work, so they are nested: only
    /// numbers at the top level are added to the metric of processed items.
    fn record(&self) -> Value {
        json!({"stores": self.totals.stores, "totals": self.totals})
    }
}

/// Records the totals of the last successful run in this process's metrics. After an
/// error the previous totals stay.
pub(crate) async fn report(context: &Context) -> Result<(), EngineError> {
    let job_runs = &context.index.job_runs;
    let runs = job_runs.list(NAME, None, context.now(), RECENT_RUNS).await?;
    let last = runs.into_iter().find(|run| run.ended_at.is_some() && run.error.is_none());
    let totals = last.and_then(|run| serde_json::from_value(run.counts?.get_mut("totals")?.take()).ok());
    if let Some(totals) = totals {
        context.metrics.counted(&totals);
    }
    Ok(())
}
