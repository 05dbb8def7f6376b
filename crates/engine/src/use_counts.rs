//! Reads, writes, refused changes and growth of each day and store since the last flush.
//!
//! A read or a change costs two entries of a map, and no write. The number of entries is
//! bounded, and divided among the tenants: what exceeds the bound is dropped.

use keepsake_core::{StoreId, Surface, TenantId, Timestamp};
use keepsake_index::{CountedUse, MICROS_PER_DAY, UseNumbers};
use parking_lot::Mutex;
use uuid::Uuid;

use crate::flush_batches::{Batch, Batches};
use crate::tenant_entries::TenantEntries;

/// `None`: all stores of the tenant.
type Place = (Option<StoreId>, i64, Surface);

#[derive(Debug, Default)]
pub(crate) struct UseCounts(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    entries: TenantEntries<Place, UseNumbers>,
    /// The batch that the last flush may have written.
    begun: Option<Batch<CountedUse>>,
    /// Uses without an entry.
    dropped: u64,
}

/// The day of a time (UTC), in days since 1970.
pub(crate) const fn day_of(at: Timestamp) -> i64 {
    at.as_micros().div_euclid(MICROS_PER_DAY)
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

    /// Counts written versions and the growth of a store, or changes that were not made.
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
                if !counts.entries.add(tenant_id, (store_id, day, surface), numbers) {
                    counts.dropped += numbers.total();
                }
            }
        }
    }

    pub(crate) fn take(&self) -> UnwrittenCounts<'_> {
        let Counts { entries, begun, dropped } = std::mem::take(&mut *self.0.lock());
        if dropped > 0 {
            tracing::warn!(dropped, "engine.use_counts: more stores were used than are counted at once");
        }
        let counted = |tenant_id, (store_id, day, surface), numbers| CountedUse {
            tenant_id,
            store_id,
            day,
            surface,
            numbers,
        };
        UnwrittenCounts { log: self, batches: Batches::new(begun, entries.into_rows(counted)) }
    }
}

/// Counts that a flush writes; there is one flush at a time. Dropping the value puts them
/// back, also after a failed or cancelled flush.
pub(crate) struct UnwrittenCounts<'a> {
    log: &'a UseCounts,
    batches: Batches<CountedUse>,
}

impl UnwrittenCounts<'_> {
    /// The counts to write next; `None`: all are written.
    pub(crate) fn batch(&mut self, new_id: impl FnOnce() -> Uuid) -> Option<&Batch<CountedUse>> {
        self.batches.begin(new_id)
    }

    /// Removes the batch that was written, or that the index refused.
    pub(crate) fn remove_batch(&mut self) {
        self.batches.end();
    }
}

impl Drop for UnwrittenCounts<'_> {
    fn drop(&mut self) {
        if self.batches.is_empty() {
            return;
        }
        let mut log = self.log.0.lock();
        log.begun = self.batches.begun.take();
        for count in self.batches.rest.drain(..) {
            let place = (count.store_id, count.day, count.surface);
            if !log.entries.put_back(count.tenant_id, place, count.numbers) {
                log.dropped += count.numbers.total();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint_queries::tests::tenant;

    #[test]
    fn tenant_with_many_stores_leaves_room_for_the_counts_of_others() {
        let (counts, at) = (UseCounts::default(), Timestamp::from_micros(0));
        let stores = |many| (0..many).map(|number| StoreId::from_uuid(Uuid::from_u128(number)));
        counts.note_reads(tenant(1), Surface::Api, at, stores(200_000));
        counts.note_reads(tenant(2), Surface::Api, at, stores(100));
        let taken = counts.take();
        assert_eq!(taken.batches.rest.iter().filter(|count| count.tenant_id == tenant(2)).count(), 101);
    }
}
