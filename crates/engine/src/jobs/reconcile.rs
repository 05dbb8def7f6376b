//! `reconcile-usage`: recounts usage and corrects counters that differ.

use std::time::Duration;

use async_trait::async_trait;
use keepsake_index::{CountedPlace, Recount, Upkeep};
use serde::Serialize;
use serde_json::{Value, json};

use super::{DAY, Job, JobPlan, Lease};
use crate::EngineError;
use crate::shared::Shared;

const BATCH: u32 = 20;
/// Interval between lease renewals within a batch.
const RENEWED_EACH: Duration = Duration::from_secs(15);
/// Maximum number of ids in a run's record of differing counters.
const DRIFTED_TOLD: usize = 20;

/// Recounts stores, directories and tenants once a day and corrects counters
/// that differ. No counter should ever differ, so each difference is logged.
///
/// A store is first counted in one snapshot of the database, which blocks no
/// writer. Only when a counter differs is it counted under the store's lock and
/// corrected.
#[derive(Debug, Clone, Copy)]
pub struct ReconcileUsage;

#[async_trait]
impl Job for ReconcileUsage {
    fn plan(&self) -> JobPlan {
        JobPlan { name: "reconcile-usage", schedule: "30 5/10 * * * *", period: DAY, can_be_dry: true }
    }

    async fn run(&self, shared: &Shared, lease: &Lease<'_>) -> Result<Value, EngineError> {
        let (context, mut reconciled) = (&shared.context, ReconcileCounts::default());
        let mut after = lease.resumed_at().await?;
        let mut renewed_at = context.now();
        loop {
            let places = context.index.upkeep.places_after(after, BATCH).await?;
            after = places.last().copied();
            if after.is_none() {
                lease.renew(None).await?;
                return Ok(json!(reconciled));
            }
            for place in places {
                // One failure must not stop the others from being counted.
                if let Err(error) = reconciled.recount(&context.index.upkeep, place, !lease.dry_run()).await {
                    reconciled.failed += 1;
                    tracing::warn!(
                        tenant.id = %place.0, store.id = place.1.map(tracing::field::display), error = %error,
                        "job.reconcile_usage: a store or tenant could not be counted; the next run tries again"
                    );
                }
                // Counting a large store takes long.
                if Some(place) == after || context.now() >= renewed_at.plus(RENEWED_EACH) {
                    renewed_at = context.now();
                    if !lease.renew_at(Some(&place)).await? {
                        return Ok(json!(reconciled));
                    }
                }
            }
        }
    }
}

/// The counts of a run.
#[derive(Debug, Default, Serialize)]
struct ReconcileCounts {
    stores: u64,
    tenants: u64,
    drifted_stores: u64,
    drifted_directories: u64,
    drifted_tenants: u64,
    lost_heads: u64,
    mended: u64,
    failed: u64,
    drifted: Vec<String>,
}

impl ReconcileCounts {
    async fn recount(
        &mut self,
        upkeep: &Upkeep,
        place: CountedPlace,
        mends: bool,
    ) -> Result<(), EngineError> {
        let Some(recount) = upkeep.recount(place, false).await? else {
            return Ok(()); // deleted meanwhile
        };
        let (tenant_id, store_id) = (place.0, place.1.map(tracing::field::display));
        match &recount {
            Recount::Store(count) => {
                self.stores += 1;
                self.lost_heads += count.lost_heads;
                if count.lost_heads > 0 {
                    tracing::error!(
                        tenant.id = %tenant_id, store.id = store_id, memories = count.lost_heads,
                        "job.reconcile_usage: heads are no versions of their store"
                    );
                }
            }
            Recount::Tenant(_) => self.tenants += 1,
        }
        if !recount.has_drifted() {
            return Ok(());
        }
        if self.drifted.len() < DRIFTED_TOLD {
            self.drifted.push(match place {
                (tenant_id, Some(store_id)) => format!("{tenant_id}/{store_id}"),
                (tenant_id, None) => tenant_id.to_string(),
            });
        }
        match recount {
            Recount::Store(count) => {
                self.drifted_stores += 1;
                self.drifted_directories += count.directories.len() as u64;
                tracing::warn!(
                    tenant.id = %tenant_id, store.id = store_id,
                    memory_count = ?count.memory_count, live_bytes = ?count.live_bytes,
                    version_count = ?count.version_count, version_bytes = ?count.version_bytes,
                    directories = count.directories.len(), overdrawn_bytes = count.overdrawn_bytes,
                    "job.reconcile_usage: a store's counters are not what it holds"
                );
            }
            Recount::Tenant(count) => {
                self.drifted_tenants += 1;
                tracing::warn!(
                    tenant.id = %tenant_id, store_count = ?count.store_count, granted_bytes = ?count.granted_bytes,
                    "job.reconcile_usage: a tenant's counters are not what it has"
                );
            }
        }
        if mends && upkeep.recount(place, true).await?.is_some() {
            self.mended += 1;
        }
        Ok(())
    }
}
