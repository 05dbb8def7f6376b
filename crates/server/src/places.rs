//! The places of requests under way: so many, shared fairly among tenants.
//!
//! A tenant may hold as many places as are free still. Alone it comes to half
//! of them, beside one other to a third, and so on: whoever comes always finds
//! places, however much others ask for, and none is kept for those who do not
//! come. A request that finds none is refused at once; nothing queues here.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use keepsake_core::TenantId;

/// All places of a process; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Places(Arc<Mutex<Held>>);

#[derive(Debug)]
struct Held {
    free: usize,
    /// Places of each tenant that holds some.
    by_tenant: HashMap<TenantId, usize>,
}

/// A place that is held, by a request and by what it began; given back when
/// dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Places,
    tenant_id: TenantId,
}

impl Places {
    /// So many places, all free; at least two, or none could ever be held.
    pub(crate) fn new(count: usize) -> Self {
        Self(Arc::new(Mutex::new(Held {
            free: count.max(2),
            by_tenant: HashMap::new(),
        })))
    }

    /// Takes a place for a tenant, if its share allows.
    pub(crate) fn take(&self, tenant_id: TenantId) -> Option<Place> {
        let mut held = self.lock();
        let own = held.by_tenant.get(&tenant_id).copied().unwrap_or(0);
        if own >= held.free {
            return None;
        }
        held.free -= 1;
        held.by_tenant.insert(tenant_id, own + 1);
        Some(Place {
            places: self.clone(),
            tenant_id,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut held = self.places.lock();
        held.free += 1;
        if let Entry::Occupied(mut own) = held.by_tenant.entry(self.tenant_id) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn tenant(number: u128) -> TenantId {
        TenantId::from_uuid(Uuid::from_u128(number))
    }

    /// As many as the tenant is given.
    fn take_all(places: &Places, number: u128) -> Vec<Place> {
        std::iter::from_fn(|| places.take(tenant(number))).collect()
    }

    #[test]
    fn tenant_alone_holds_half_and_others_find_places() {
        let places = Places::new(1_024);
        let mut first = take_all(&places, 1);
        assert_eq!(first.len(), 512);
        let second = take_all(&places, 2);
        assert_eq!(second.len(), 256);
        let many: Vec<_> = (3..100).map(|number| places.take(tenant(number))).collect();
        assert!(many.iter().all(Option::is_some));
        // The first one holds more than its share by now, and gets no more.
        first.truncate(460);
        assert!(places.take(tenant(1)).is_none());
    }

    #[test]
    fn greedy_tenants_come_to_equal_shares() {
        let places = Places::new(900);
        let mut held = [take_all(&places, 0), Vec::new()];
        assert_eq!(held[0].len(), 450);
        // One request of each ends, and each asks for two more.
        for _ in 0..1_000 {
            for (number, own) in (0..).zip(&mut held) {
                own.pop();
                own.extend((0..2).filter_map(|_| places.take(tenant(number))));
            }
        }
        let counts: Vec<_> = held.iter().map(Vec::len).collect();
        assert!(
            counts.iter().all(|count| (290..=310).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn place_comes_back_when_dropped() {
        let places = Places::new(0);
        let place = places.take(tenant(1)).unwrap();
        assert!(places.take(tenant(1)).is_none());
        drop(place);
        assert!(places.lock().by_tenant.is_empty());
        assert!(places.take(tenant(2)).is_some());
    }
}
