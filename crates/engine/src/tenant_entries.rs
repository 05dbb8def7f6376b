//! Entries in memory that are divided among tenants until a flush writes them.
//!
//! The number of entries is bounded. If there is no room for a new entry, the caller drops the
//! value.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::ops::AddAssign;

use keepsake_core::TenantId;

/// Entries of all tenants, of at most about 200 bytes each.
pub(crate) const MAX_ENTRIES: usize = 100_000;
/// Entries that any tenant may use. The rest is divided equally among the tenants.
pub(crate) const SHARED_ENTRIES: usize = MAX_ENTRIES / 2;
/// Entries of all tenants after a failed flush: its own, and those noted meanwhile.
const MAX_ENTRIES_AFTER_FAILURE: usize = 2 * MAX_ENTRIES;

#[derive(Debug)]
pub(crate) struct TenantEntries<K, V> {
    by_tenant: HashMap<TenantId, HashMap<K, V>>,
    /// The number of all entries.
    entries: usize,
}

impl<K, V> Default for TenantEntries<K, V> {
    fn default() -> Self {
        Self { by_tenant: HashMap::new(), entries: 0 }
    }
}

impl<K: Eq + Hash, V: AddAssign> TenantEntries<K, V> {
    /// The number of all entries.
    pub(crate) const fn len(&self) -> usize {
        self.entries
    }

    /// `false`: the value needs a new entry, and the tenant has no room for it.
    pub(crate) fn add(&mut self, tenant_id: TenantId, key: K, value: V) -> bool {
        let own = self.by_tenant.get(&tenant_id).map_or(0, HashMap::len);
        let share = (MAX_ENTRIES - SHARED_ENTRIES) / self.by_tenant.len().max(1);
        let has_room = self.entries < SHARED_ENTRIES || (self.entries < MAX_ENTRIES && own < share);
        self.add_within(tenant_id, key, value, has_room)
    }

    /// Adds a value that a flush did not write; `false`: there is no room for it.
    pub(crate) fn put_back(&mut self, tenant_id: TenantId, key: K, value: V) -> bool {
        let has_room = self.entries < MAX_ENTRIES_AFTER_FAILURE;
        self.add_within(tenant_id, key, value, has_room)
    }

    fn add_within(&mut self, tenant_id: TenantId, key: K, value: V, has_room: bool) -> bool {
        match self.by_tenant.entry(tenant_id).or_default().entry(key) {
            Entry::Occupied(mut known) => *known.get_mut() += value,
            Entry::Vacant(_) if !has_room => return false,
            Entry::Vacant(free) => {
                free.insert(value);
                self.entries += 1;
            }
        }
        true
    }

    pub(crate) fn into_rows<T>(self, row: impl Fn(TenantId, K, V) -> T) -> Vec<T> {
        let mut rows = Vec::with_capacity(self.entries);
        for (tenant_id, entries) in self.by_tenant {
            rows.extend(entries.into_iter().map(|(key, value)| row(tenant_id, key, value)));
        }
        rows
    }
}
