//! Slots for expensive work, shared fairly among tenants.

use std::collections::HashMap;
use std::sync::Arc;

use keepsake_core::TenantId;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::EngineError;

/// Tenants whose semaphores are kept; above this, idle ones are pruned.
const MAX_IDLE_TENANTS: usize = 1_024;

/// A bounded number of slots, with a smaller limit for each tenant.
///
/// A request waits first for a slot of its tenant's share and then for a common
/// slot. So a tenant's requests in the common queue never exceed its share, and
/// other tenants wait behind at most that share, however many requests the
/// tenant makes.
#[derive(Debug)]
pub struct FairSlots {
    all: Arc<Semaphore>,
    per_tenant: usize,
    by_tenant: Mutex<HashMap<TenantId, Arc<Semaphore>>>,
}

/// Releases the slot on drop.
#[derive(Debug)]
pub struct FairSlot {
    _common: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
    _of_share: Option<OwnedSemaphorePermit>,
}

impl FairSlots {
    /// At least one slot in all, and one per tenant.
    pub(crate) fn new(all: usize, per_tenant: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(all.max(1))),
            per_tenant: per_tenant.max(1),
            by_tenant: Mutex::default(),
        }
    }

    /// The request's deadline bounds the wait. No semaphore is ever closed, so the call
    /// never fails.
    pub async fn take(&self, tenant_id: TenantId) -> Result<FairSlot, EngineError> {
        let own = permit(self.of_tenant(tenant_id)).await?;
        let common = permit(Arc::clone(&self.all)).await?;
        Ok(FairSlot { _common: common, _own: own, _of_share: None })
    }

    /// Waits for a slot that also counts towards the tenant's share of other
    /// slots.
    ///
    /// The common slot is taken last, so that no task holds it while it waits
    /// for another task of the same tenant.
    pub(crate) async fn take_within(
        &self,
        tenant_id: TenantId,
        share: &Self,
    ) -> Result<FairSlot, EngineError> {
        let own = permit(self.of_tenant(tenant_id)).await?;
        let of_share = permit(share.of_tenant(tenant_id)).await?;
        let common = permit(Arc::clone(&self.all)).await?;
        Ok(FairSlot { _common: common, _own: own, _of_share: Some(of_share) })
    }

    fn of_tenant(&self, tenant_id: TenantId) -> Arc<Semaphore> {
        let mut by_tenant = self.by_tenant.lock();
        if by_tenant.len() >= MAX_IDLE_TENANTS && !by_tenant.contains_key(&tenant_id) {
            by_tenant.retain(|_, own| Arc::strong_count(own) > 1);
        }
        let own = by_tenant.entry(tenant_id).or_insert_with(|| Arc::new(Semaphore::new(self.per_tenant)));
        Arc::clone(own)
    }
}

async fn permit(semaphore: Arc<Semaphore>) -> Result<OwnedSemaphorePermit, EngineError> {
    let permit = semaphore.acquire_owned().await;
    permit.map_err(|_| EngineError::Internal("a semaphore was closed"))
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, poll};

    use super::*;
    use crate::endpoint_queries::tests::tenant;

    #[tokio::test]
    async fn tenant_with_many_requests_leaves_a_slot_to_others() {
        let slots = FairSlots::new(2, 1);
        let held = slots.take(tenant(1)).await.unwrap();
        let mut waiting: Vec<_> = (0..50).map(|_| Box::pin(slots.take(tenant(1)))).collect();
        for next in &mut waiting {
            assert!(poll!(next).is_pending());
        }
        let other = slots.take(tenant(2)).now_or_never();
        assert!(other.is_some_and(|slot| slot.is_ok()));
        drop(held);
        assert!(poll!(&mut waiting[0]).is_ready());
    }

    #[tokio::test]
    async fn request_waiting_for_its_tenant_holds_no_shared_slot() {
        let (searches, loads) = (FairSlots::new(2, 1), FairSlots::new(2, 1));
        let searching = searches.take(tenant(1)).await.unwrap();
        let mut loading = Box::pin(loads.take_within(tenant(1), &searches));
        assert!(poll!(&mut loading).is_pending());
        for other in 2..4 {
            let other = loads.take_within(tenant(other), &searches).now_or_never();
            assert!(other.is_some_and(|slot| slot.is_ok()));
        }
        drop(searching);
        assert!(poll!(&mut loading).is_ready());
    }

    #[tokio::test]
    async fn tenants_take_turns() {
        let slots = FairSlots::new(1, 1);
        let held = slots.take(tenant(1)).await.unwrap();
        let mut first: Vec<_> = (0..3).map(|_| Box::pin(slots.take(tenant(1)))).collect();
        for next in &mut first {
            assert!(poll!(next).is_pending());
        }
        let mut second = Box::pin(slots.take(tenant(2)));
        assert!(poll!(&mut second).is_pending());
        drop(held);
        // The first tenant's next request queues behind the second tenant's.
        assert!(poll!(&mut first[0]).is_pending());
        assert!(poll!(&mut second).is_ready());
    }
}
