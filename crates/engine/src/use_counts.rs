//! Reads, writes and refused changes of each day and store since the last flush.
//!
//! A read or a change costs two entries of a map, and no write. The number of entries is
//! bounded: what exceeds the bound is dropped.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use keepsake_core::{StoreId, Surface, TenantId, Timestamp};
use keepsake_index::{CountedUse, UseNumbers};
use parking_lot::Mutex;

/// Entries of all tenants, of about 100 bytes each.
const MAX_ENTRIES: usize = 100_000;
/// Entries after a failed flush: its own, and those noted meanwhile.
const MAX_ENTRIES_AFTER_FAILURE: usize = 2 * MAX_ENTRIES;
/// Entries written in one transaction.
const BATCH_ROWS: usize = 500;

pub(crate) const MICROS_PER_DAY: i64 = 86_400_000_000;

/// `None`: all stores of the tenant.
type Place = (TenantId, Option<StoreId>, i64, Surface);

#[derive(Debug, Default)]
pub(crate) struct UseCounts(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    by_place: HashMap<Place, UseNumbers>,
    /// Uses without an entry.
    dropped: u64,
}

/// The day of a time (UTC), in days since 1970.
pub(crate) const fn day_of(at: Timestamp) -> i64 {
    at.as_micros().div_euclid(MICROS_PER_DAY)
}

impl Counts {
    fn add(&mut self, place: Place, numbers: UseNumbers, max_entries: usize) {
        let UseNumbers { reads, writes, refusals, conflicts } = numbers;
        let has_room = self.by_place.len() < max_entries;
        match self.by_place.entry(place) {
            Entry::Occupied(mut known) => {
                let known = known.get_mut();
                known.reads += reads;
                known.writes += writes;
                known.refusals += refusals;
                known.conflicts += conflicts;
            }
            Entry::Vacant(free) if has_room => {
                free.insert(numbers);
            }
            Entry::Vacant(_) => self.dropped += reads + writes + refusals + conflicts,
        }
    }
}

impl UseCounts {
    /// Counts a read of a version of each of these stores.
    pub(crate) fn note_reads(
        &self,
        tenant_id: TenantId,
        surface: Surface,
        at: Timestamp,
        stores: impl Iterator<Item = StoreId>,
    ) {
        let read = UseNumbers { reads: 1, ..UseNumbers::default() };
        self.note(tenant_id, surface, at, stores.map(|store_id| (store_id, read)));
    }

    /// Counts written versions, or changes that were not made.
    pub(crate) fn note_changes(
        &self,
        (tenant_id, store_id): (TenantId, StoreId),
        surface: Surface,
        at: Timestamp,
        numbers: UseNumbers,
    ) {
        self.note(tenant_id, surface, at, [(store_id, numbers)].into_iter());
    }

    fn note(
        &self,
        tenant_id: TenantId,
        surface: Surface,
        at: Timestamp,
        uses: impl Iterator<Item = (StoreId, UseNumbers)>,
    ) {
        let (day, mut counts) = (day_of(at), self.0.lock());
        for (store_id, numbers) in uses {
            for store_id in [None, Some(store_id)] {
                counts.add((tenant_id, store_id, day, surface), numbers, MAX_ENTRIES);
            }
        }
    }

    pub(crate) fn take(&self) -> UnwrittenCounts<'_> {
        let Counts { by_place, dropped } = std::mem::take(&mut *self.0.lock());
        if dropped > 0 {
            tracing::warn!(dropped, "engine.use_counts: more stores were used than are counted at once");
        }
        let counted = |((tenant_id, store_id, day, surface), numbers): (Place, UseNumbers)| CountedUse {
            tenant_id,
            store_id,
            day,
            surface,
            numbers,
        };
        UnwrittenCounts { log: self, counts: by_place.into_iter().map(counted).collect() }
    }
}

/// Counts that a flush writes. Dropping the value puts them back, also after a failed or
/// cancelled flush.
pub(crate) struct UnwrittenCounts<'a> {
    log: &'a UseCounts,
    counts: Vec<CountedUse>,
}

impl UnwrittenCounts<'_> {
    /// The counts to write next; `None`: all are written.
    pub(crate) fn batch(&self) -> Option<&[CountedUse]> {
        self.counts.rchunks(BATCH_ROWS).next()
    }

    /// Removes the batch that was written, or that the index refused.
    pub(crate) fn remove_batch(&mut self) {
        self.counts.truncate(self.counts.len().saturating_sub(BATCH_ROWS));
    }
}

impl Drop for UnwrittenCounts<'_> {
    fn drop(&mut self) {
        if self.counts.is_empty() {
            return;
        }
        let mut log = self.log.0.lock();
        for count in self.counts.drain(..) {
            let place = (count.tenant_id, count.store_id, count.day, count.surface);
            log.add(place, count.numbers, MAX_ENTRIES_AFTER_FAILURE);
        }
    }
}
