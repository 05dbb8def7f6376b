//! A limited amount that tenants share fairly: running requests, or bytes of
//! memory.
//!
//! A tenant may take at most as much as remains free afterwards. A single
//! tenant gets half of the total, two tenants get a third each, and so on. So a
//! new tenant always finds some free, however much others request, and nothing
//! is reserved for idle tenants. Requests do not queue here: a request that
//! does not fit is refused at once.

use std::collections::HashMap;
use std::sync::Arc;

use keepsake_core::TenantId;
use parking_lot::Mutex;

#[derive(Debug, Clone)]
pub struct FairShares(Arc<Mutex<SharesInUse>>);

#[derive(Debug)]
struct SharesInUse {
    /// Negative while answers that could not be refused exceed the total.
    free: i64,
    by_tenant: HashMap<TenantId, i64>,
}

impl SharesInUse {
    fn add(&mut self, tenant_id: TenantId, amount: i64) {
        self.free -= amount;
        let own = self.by_tenant.entry(tenant_id).or_default();
        *own += amount;
        if *own == 0 {
            self.by_tenant.remove(&tenant_id);
        }
    }

    /// Whether at least as much stays free as the tenant would hold.
    fn allows(&self, tenant_id: TenantId, amount: i64) -> bool {
        let own = self.by_tenant.get(&tenant_id).copied().unwrap_or(0);
        own.saturating_add(amount) <= self.free.saturating_sub(amount)
    }
}

/// The amount that one request holds, released on drop.
#[derive(Debug)]
pub struct Share {
    shares: FairShares,
    tenant_id: TenantId,
    amount: Mutex<i64>,
}

impl FairShares {
    /// At least two, or nothing would fit.
    pub fn new(total: u64) -> Self {
        Self(Arc::new(Mutex::new(SharesInUse { free: signed(total.max(2)), by_tenant: HashMap::new() })))
    }

    /// `None`: the tenant's share does not allow the amount.
    pub fn take(&self, tenant_id: TenantId, amount: u64) -> Option<Share> {
        let share = Share { shares: self.clone(), tenant_id, amount: Mutex::new(0) };
        share.try_grow(amount).then_some(share)
    }
}

impl Share {
    pub(crate) fn amount(&self) -> u64 {
        u64::try_from(*self.amount.lock()).unwrap_or_default()
    }

    /// `false`: the tenant's share does not allow the amount.
    pub fn try_grow(&self, by: u64) -> bool {
        self.change(|amount| amount.saturating_add(signed(by)), true)
    }

    /// Sets the amount, even above the tenant's share.
    pub fn set(&self, to: u64) {
        self.change(|_| signed(to), false);
    }

    /// Sets the amount, if it is lower or the tenant's share allows it.
    pub fn try_set(&self, to: u64) -> bool {
        self.change(|_| signed(to), true)
    }

    fn change(&self, to: impl FnOnce(i64) -> i64, must_be_allowed: bool) -> bool {
        let mut amount = self.amount.lock();
        let more = to(*amount) - *amount;
        let mut taken = self.shares.0.lock();
        if must_be_allowed && more > 0 && !taken.allows(self.tenant_id, more) {
            return false;
        }
        taken.add(self.tenant_id, more);
        *amount += more;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint_queries::tests::tenant;

    /// Takes as many as the tenant's share allows.
    fn take_all(shares: &FairShares, number: u128) -> Vec<Share> {
        std::iter::from_fn(|| shares.take(tenant(number), 1)).collect()
    }

    #[test]
    fn single_tenant_gets_half_and_leaves_the_rest_to_others() {
        let shares = FairShares::new(1_024);
        let mut first = take_all(&shares, 1);
        assert_eq!(first.len(), 512);
        let second = take_all(&shares, 2);
        assert_eq!(second.len(), 256);
        let many: Vec<_> = (3..100).map(|number| shares.take(tenant(number), 1)).collect();
        assert!(many.iter().all(Option::is_some));
        // The first tenant now has more than its share and gets none.
        first.truncate(460);
        assert!(shares.take(tenant(1), 1).is_none());
    }

    #[test]
    fn greedy_tenants_converge_to_equal_shares() {
        let shares = FairShares::new(900);
        let mut held = [take_all(&shares, 0), Vec::new()];
        assert_eq!(held[0].len(), 450);
        // One request of each tenant ends, and each tenant starts two.
        for _ in 0..1_000 {
            for (number, own) in (0..).zip(&mut held) {
                own.pop();
                own.extend((0..2).filter_map(|_| shares.take(tenant(number), 1)));
            }
        }
        let counts: Vec<_> = held.iter().map(Vec::len).collect();
        assert!(counts.iter().all(|count| (290..=310).contains(count)), "{counts:?}");
    }

    #[test]
    fn large_amount_is_bounded_like_many_small_ones_and_returned_when_dropped() {
        let shares = FairShares::new(1_000);
        assert!(shares.take(tenant(1), 501).is_none());
        let share = shares.take(tenant(1), 400).unwrap();
        assert!(!share.try_grow(101));
        assert!(share.try_grow(100));
        assert!(shares.take(tenant(2), 250).is_some());
        // One that is exceeded all the same blocks new requests.
        share.set(2_000);
        assert!(shares.take(tenant(2), 1).is_none());
        assert!(share.try_set(100));
        assert!(shares.take(tenant(2), 400).is_some());
        drop(share);
        let state = shares.0.lock();
        assert!(state.free == 1_000 && state.by_tenant.is_empty());
        // However little there is, a request fits.
        assert!(FairShares::new(0).take(tenant(1), 1).is_some());
    }
}
