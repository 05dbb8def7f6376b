//! A cache of search indexes that is divided among tenants.
//!
//! Above its limit it evicts the least recently used entry of the tenant with
//! the most bytes. So a tenant that searches many stores evicts its own
//! entries, and a tenant with few bytes keeps its entries.

use std::collections::HashMap;

use keepsake_core::{StoreId, TenantId};
use lru::LruCache;
use parking_lot::Mutex;

/// Bytes of an entry besides its value.
const ENTRY_BYTES: u64 = 512;

type Key = (TenantId, StoreId);

#[derive(Debug)]
pub(super) struct DividedLru<V> {
    max_bytes: u64,
    entries: Mutex<Entries<V>>,
}

#[derive(Debug)]
struct Entries<V> {
    bytes: u64,
    by_tenant: HashMap<TenantId, TenantEntries<V>>,
}

#[derive(Debug)]
struct TenantEntries<V> {
    bytes: u64,
    /// The value and the bytes of each entry.
    entries: LruCache<StoreId, (V, u64)>,
}

impl<V: Clone> DividedLru<V> {
    pub(super) fn new(max_bytes: u64) -> Self {
        Self { max_bytes, entries: Mutex::new(Entries { bytes: 0, by_tenant: HashMap::new() }) }
    }

    /// A new entry has the weight of an empty value.
    pub(super) fn get_or_insert(&self, key: Key, make: impl FnOnce() -> V) -> V {
        let mut entries = self.entries.lock();
        if let Some(value) = entries.touch(key) {
            return value;
        }
        let value = make();
        entries.insert(key, value.clone(), ENTRY_BYTES);
        entries.evict(self.max_bytes);
        value
    }

    /// Adds an entry, or updates its value and weight.
    pub(super) fn insert(&self, key: Key, value: V, bytes: u64) {
        let mut entries = self.entries.lock();
        entries.remove(key);
        entries.insert(key, value, bytes.saturating_add(ENTRY_BYTES));
        entries.evict(self.max_bytes);
    }

    pub(super) fn remove(&self, key: Key) {
        self.entries.lock().remove(key);
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.entries.lock().bytes
    }

    pub(super) fn len(&self) -> usize {
        let entries = self.entries.lock();
        entries.by_tenant.values().map(|own| own.entries.len()).sum()
    }
}

impl<V: Clone> Entries<V> {
    fn touch(&mut self, (tenant_id, store_id): Key) -> Option<V> {
        let own = self.by_tenant.get_mut(&tenant_id)?;
        own.entries.get(&store_id).map(|(value, _)| value.clone())
    }

    /// The entry must not exist yet.
    fn insert(&mut self, (tenant_id, store_id): Key, value: V, bytes: u64) {
        let new = || TenantEntries { bytes: 0, entries: LruCache::unbounded() };
        let own = self.by_tenant.entry(tenant_id).or_insert_with(new);
        own.entries.put(store_id, (value, bytes));
        own.bytes += bytes;
        self.bytes += bytes;
    }

    fn remove(&mut self, (tenant_id, store_id): Key) {
        if let Some(own) = self.by_tenant.get_mut(&tenant_id)
            && let Some((_, bytes)) = own.entries.pop(&store_id)
        {
            own.bytes -= bytes;
            self.bytes -= bytes;
            if own.entries.is_empty() {
                self.by_tenant.remove(&tenant_id);
            }
        }
    }

    fn evict(&mut self, max_bytes: u64) {
        while self.bytes > max_bytes {
            let largest = self.by_tenant.iter().max_by_key(|(_, own)| own.bytes);
            let oldest = largest.and_then(|(tenant_id, own)| {
                let (store_id, _) = own.entries.peek_lru()?;
                Some((*tenant_id, *store_id))
            });
            let Some(oldest) = oldest else { return };
            self.remove(oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn key(tenant: u128, store: u128) -> Key {
        let (tenant, store) = (Uuid::from_u128(tenant), Uuid::from_u128(store));
        (TenantId::from_uuid(tenant), StoreId::from_uuid(store))
    }

    fn has(cache: &DividedLru<u32>, key: Key) -> bool {
        cache.entries.lock().touch(key).is_some()
    }

    #[test]
    fn tenant_with_many_entries_evicts_its_own() {
        let cache = DividedLru::new(100_000);
        cache.insert(key(1, 0), 7, 20_000);
        for store in 0..1_000 {
            cache.insert(key(2, store), 0, 20_000);
            assert!(cache.size_bytes() <= 100_000);
        }
        assert_eq!(cache.get_or_insert(key(1, 0), || 8), 7);
        assert!(has(&cache, key(2, 999)) && has(&cache, key(2, 997)) && !has(&cache, key(2, 990)));
        assert_eq!(cache.len(), 4);
    }

    #[test]
    fn least_recently_used_entry_goes_first() {
        let cache = DividedLru::new(10_000);
        for store in 0..3 {
            cache.insert(key(1, store), 0, 2_500);
        }
        assert!(has(&cache, key(1, 0)));
        cache.insert(key(1, 3), 0, 2_500);
        assert!(has(&cache, key(1, 0)) && !has(&cache, key(1, 1)));
    }

    #[test]
    fn reweighed_entry_counts_once() {
        let cache = DividedLru::new(10_000);
        cache.get_or_insert(key(1, 1), || 1);
        cache.insert(key(1, 1), 1, 1_000);
        cache.insert(key(1, 1), 1, 2_000);
        assert_eq!(cache.size_bytes(), 2_000 + ENTRY_BYTES);
        cache.remove(key(1, 1));
        assert_eq!((cache.size_bytes(), cache.len()), (0, 0));
    }

    #[test]
    fn empty_entries_are_bounded_too() {
        let cache = DividedLru::new(10 * ENTRY_BYTES);
        for store in 0..1_000 {
            cache.get_or_insert(key(1, store), || 0);
        }
        assert_eq!(cache.len(), 10);
    }
}
