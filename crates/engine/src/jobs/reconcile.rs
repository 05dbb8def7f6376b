//! `reconcile-usage`: recounts usage and corrects counters that differ.

use std::time::Duration;

use async_trait::async_trait;
use keepsake_core::{StoreId, TenantId};
use serde_json::{Value, json};

use super::{Job, JobServices, Lease};
use crate::EngineError;

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
pub struct ReconcileUsage {
    pub batch: u32,
}

impl Default for ReconcileUsage {
    fn default() -> Self {
        Self { batch: 20 }
    }
}

#[async_trait]
impl Job for ReconcileUsage {
    fn name(&self) -> &'static str {
        "reconcile-usage"
    }

    /// Every ten minutes, so that an interrupted run is soon resumed.
    fn schedule(&self) -> &'static str {
        "30 5/10 * * * *"
    }

    fn period(&self) -> Duration {
        Duration::from_hours(24)
    }

    fn can_be_dry(&self) -> bool {
        true
    }

    async fn run(&self, services: &JobServices, lease: &Lease<'_>) -> Result<Value, EngineError> {
        let mut reconciled = Reconciled::default();
        let mut place = Place::parse(lease.cursor().await?.as_deref());
        let mut renewed_at = services.context.now();
        loop {
            let counted = place.following(services, self.batch).await?;
            let Some(next) = place.after(&counted) else {
                lease.renew(None).await?;
                return Ok(reconciled.counts());
            };
            for (tenant_id, store_id) in counted {
                let mends = !lease.dry_run();
                let counted = match store_id {
                    Some(store_id) => reconciled.store(services, tenant_id, store_id, mends).await,
                    None => reconciled.tenant(services, tenant_id, mends).await,
                };
                // One failure must not stop the others from being counted.
                if let Err(error) = counted {
                    reconciled.failed += 1;
                    tracing::warn!(
                        tenant.id = %tenant_id, store.id = store_id.map(tracing::field::display), error = %error,
                        "job.reconcile_usage: a store or tenant could not be counted; the next run tries again"
                    );
                }
                // Counting a large store takes long.
                if services.context.now() >= renewed_at.plus(RENEWED_EACH) {
                    renewed_at = services.context.now();
                    let here = Place::of(tenant_id, store_id).to_text();
                    if !lease.renew(Some(&here)).await? {
                        return Ok(reconciled.counts());
                    }
                }
            }
            place = next;
            if !lease.renew(Some(&place.to_text())).await? {
                return Ok(reconciled.counts());
            }
        }
    }
}

/// Stores are counted before tenants; the value is the last counted id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Stores(Option<(TenantId, StoreId)>),
    Tenants(Option<TenantId>),
}

impl Place {
    fn of(tenant_id: TenantId, store_id: Option<StoreId>) -> Self {
        match store_id {
            Some(store_id) => Self::Stores(Some((tenant_id, store_id))),
            None => Self::Tenants(Some(tenant_id)),
        }
    }

    async fn following(
        self,
        services: &JobServices,
        batch: u32,
    ) -> Result<Vec<(TenantId, Option<StoreId>)>, EngineError> {
        let upkeep = &services.context.index.upkeep;
        Ok(match self {
            Self::Stores(after) => {
                let stores = upkeep.stores_after(after, batch).await?;
                stores.into_iter().map(|(tenant_id, store_id)| (tenant_id, Some(store_id))).collect()
            }
            Self::Tenants(after) => {
                let tenants = upkeep.tenants_after(after, batch).await?;
                tenants.into_iter().map(|tenant_id| (tenant_id, None)).collect()
            }
        })
    }

    /// The place after this batch; `None`: everything is counted.
    ///
    /// Tenants come last, because correcting a store may change its tenant's
    /// grant.
    fn after(self, counted: &[(TenantId, Option<StoreId>)]) -> Option<Self> {
        match (self, counted.last()) {
            (_, Some((tenant_id, store_id))) => Some(Self::of(*tenant_id, *store_id)),
            (Self::Stores(_), None) => Some(Self::Tenants(None)),
            (Self::Tenants(_), None) => None,
        }
    }

    /// An invalid or missing cursor starts from the beginning.
    fn parse(cursor: Option<&str>) -> Self {
        let mut ids = cursor.unwrap_or_default().split('/');
        match (ids.next(), ids.next()) {
            (Some("tenants"), tenant) => Self::Tenants(tenant.and_then(|id| id.parse().ok())),
            (Some(tenant), Some(store)) => Self::Stores(tenant.parse().ok().zip(store.parse().ok())),
            _ => Self::Stores(None),
        }
    }

    fn to_text(self) -> String {
        match self {
            Self::Stores(None) => String::new(),
            Self::Stores(Some((tenant_id, store_id))) => format!("{tenant_id}/{store_id}"),
            Self::Tenants(None) => "tenants".to_owned(),
            Self::Tenants(Some(tenant_id)) => format!("tenants/{tenant_id}"),
        }
    }
}

#[derive(Debug, Default)]
struct Reconciled {
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

impl Reconciled {
    fn counts(&self) -> Value {
        json!({
            "stores": self.stores,
            "tenants": self.tenants,
            "drifted_stores": self.drifted_stores,
            "drifted_directories": self.drifted_directories,
            "drifted_tenants": self.drifted_tenants,
            "lost_heads": self.lost_heads,
            "mended": self.mended,
            "failed": self.failed,
            "drifted": self.drifted,
        })
    }

    fn tell(&mut self, id: String) {
        if self.drifted.len() < DRIFTED_TOLD {
            self.drifted.push(id);
        }
    }

    async fn store(
        &mut self,
        services: &JobServices,
        tenant_id: TenantId,
        store_id: StoreId,
        mends: bool,
    ) -> Result<(), EngineError> {
        let upkeep = &services.context.index.upkeep;
        let Some(count) = upkeep.recount_store(tenant_id, store_id, false).await? else {
            return Ok(()); // deleted meanwhile
        };
        self.stores += 1;
        self.lost_heads += count.lost_heads;
        if count.lost_heads > 0 {
            tracing::error!(
                tenant.id = %tenant_id, store.id = %store_id, memories = count.lost_heads,
                "job.reconcile_usage: heads are no versions of their store"
            );
        }
        if !count.has_drifted() {
            return Ok(());
        }
        self.drifted_stores += 1;
        self.drifted_directories += count.directories.len() as u64;
        self.tell(format!("{tenant_id}/{store_id}"));
        tracing::warn!(
            tenant.id = %tenant_id, store.id = %store_id,
            memory_count = ?count.memory_count, live_bytes = ?count.live_bytes,
            version_count = ?count.version_count, version_bytes = ?count.version_bytes,
            directories = count.directories.len(), overdrawn_bytes = count.overdrawn_bytes,
            "job.reconcile_usage: a store's counters are not what it holds"
        );
        if mends && upkeep.recount_store(tenant_id, store_id, true).await?.is_some() {
            self.mended += 1;
        }
        Ok(())
    }

    async fn tenant(
        &mut self,
        services: &JobServices,
        tenant_id: TenantId,
        mends: bool,
    ) -> Result<(), EngineError> {
        let upkeep = &services.context.index.upkeep;
        let Some(count) = upkeep.recount_tenant(tenant_id, false).await? else {
            return Ok(()); // gone meanwhile
        };
        self.tenants += 1;
        if !count.has_drifted() {
            return Ok(());
        }
        self.drifted_tenants += 1;
        self.tell(tenant_id.to_string());
        tracing::warn!(
            tenant.id = %tenant_id, store_count = ?count.store_count, granted_bytes = ?count.granted_bytes,
            "job.reconcile_usage: a tenant's counters are not what it has"
        );
        if mends && upkeep.recount_tenant(tenant_id, true).await?.is_some() {
            self.mended += 1;
        }
        Ok(())
    }
}
