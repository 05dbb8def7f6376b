//! Who was shown which version since the last flush.
//!
//! A read costs one entry of a map, and no write. The number of entries is bounded: what
//! exceeds the bound is dropped, and the record of the tenant says since when it is
//! complete.

use std::collections::HashMap;

use keepsake_core::{StoreId, TenantId, Timestamp, VersionId};
use keepsake_index::{ReadSpan, RecordedReads, VersionReader};
use parking_lot::Mutex;
use uuid::Uuid;

use crate::flush_batches::{Batch, Batches};
use crate::tenant_entries::TenantEntries;

#[derive(Debug, Default)]
pub(crate) struct ReadLog(Mutex<Reads>);

#[derive(Debug, Default)]
struct Reads {
    entries: TenantEntries<(StoreId, VersionId, VersionReader), ReadSpan>,
    /// The batch that the last flush may have written.
    begun: Option<Batch<RecordedReads>>,
    /// The last time at which a read of a tenant was dropped.
    dropped_at: HashMap<TenantId, Timestamp>,
}

/// The log after reads were noted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct NotedReads {
    /// Entries of all tenants.
    pub(crate) entries: usize,
    /// The number of reads that were dropped.
    pub(crate) dropped: u64,
}

impl Reads {
    fn note_drop(&mut self, tenant_id: TenantId, at: Timestamp) {
        let dropped_at = self.dropped_at.entry(tenant_id).or_insert(at);
        *dropped_at = at.max(*dropped_at);
    }
}

impl ReadLog {
    /// Notes that a reader was shown versions. The time is taken while the log is locked, so
    /// that a flush which does not include a read began earlier.
    pub(crate) fn note(
        &self,
        tenant_id: TenantId,
        reader: &VersionReader,
        shown: impl IntoIterator<Item = (StoreId, VersionId)>,
        time: impl FnOnce() -> Timestamp,
    ) -> NotedReads {
        let mut reads = self.0.lock();
        let at = time();
        let span = ReadSpan { first_at: at, last_at: at, count: 1 };
        let mut dropped = 0;
        for (store_id, version_id) in shown {
            let key = (store_id, version_id, reader.clone());
            dropped += u64::from(!reads.entries.add(tenant_id, key, span));
        }
        if dropped > 0 {
            reads.note_drop(tenant_id, at);
        }
        NotedReads { entries: reads.entries.len(), dropped }
    }

    pub(crate) fn take(&self) -> UnwrittenReads<'_> {
        let taken = std::mem::take(&mut *self.0.lock());
        let recorded = |tenant_id, (store_id, version_id, reader), span| RecordedReads {
            tenant_id,
            store_id,
            version_id,
            reader,
            span,
        };
        UnwrittenReads {
            log: self,
            batches: Batches::new(taken.begun, taken.entries.into_rows(recorded)),
            dropped_at: taken.dropped_at.into_iter().collect(),
        }
    }
}

/// Reads that a flush writes; there is one flush at a time. Dropping the value puts them back
/// into the log, also after a failed or cancelled flush.
pub(crate) struct UnwrittenReads<'a> {
    log: &'a ReadLog,
    batches: Batches<RecordedReads>,
    dropped_at: Vec<(TenantId, Timestamp)>,
}

impl UnwrittenReads<'_> {
    /// The reads to write next; `None`: all are written.
    pub(crate) fn batch(&mut self, new_id: impl FnOnce() -> Uuid) -> Option<&Batch<RecordedReads>> {
        self.batches.begin(new_id)
    }

    /// Removes the batch that was written.
    pub(crate) fn note_written(&mut self) {
        self.batches.end();
    }

    /// Drops the batch, which the index refused; returns the number of its reads.
    pub(crate) fn drop_batch(&mut self) -> u64 {
        let batch = self.batches.end();
        self.dropped_at.extend(batch.iter().map(|reads| (reads.tenant_id, reads.span.last_at)));
        batch.iter().map(|reads| reads.span.count).sum()
    }

    /// A tenant and the last time at which a read of it was dropped; `None`: all such times
    /// are written.
    pub(crate) fn dropped(&self) -> Option<(TenantId, Timestamp)> {
        self.dropped_at.last().copied()
    }

    /// Removes the time that was written.
    pub(crate) fn note_drop_written(&mut self) {
        self.dropped_at.pop();
    }
}

impl Drop for UnwrittenReads<'_> {
    fn drop(&mut self) {
        if self.batches.is_empty() && self.dropped_at.is_empty() {
            return;
        }
        let mut log = self.log.0.lock();
        log.begun = self.batches.begun.take();
        for RecordedReads { tenant_id, store_id, version_id, reader, span } in self.batches.rest.drain(..) {
            if !log.entries.put_back(tenant_id, (store_id, version_id, reader), span) {
                log.note_drop(tenant_id, span.last_at);
            }
        }
        for (tenant_id, at) in self.dropped_at.drain(..) {
            log.note_drop(tenant_id, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use keepsake_core::{Actor, ApiKeyId, Surface};

    use super::*;
    use crate::flush_batches::BATCH_ROWS;
    use crate::tenant_entries::{MAX_ENTRIES, SHARED_ENTRIES};

    fn note(log: &ReadLog, tenant: u128, versions: std::ops::Range<u128>, at: i64) -> NotedReads {
        let actor = Actor::ApiKey(ApiKeyId::from_uuid(Uuid::from_u128(1)));
        let reader = VersionReader { actor, session_id: None, surface: Surface::Api };
        let store_id = StoreId::from_uuid(Uuid::nil());
        let shown = versions.map(|version| (store_id, VersionId::from_uuid(Uuid::from_u128(version))));
        let tenant_id = TenantId::from_uuid(Uuid::from_u128(tenant));
        log.note(tenant_id, &reader, shown, || Timestamp::from_micros(at))
    }

    #[test]
    fn full_log_drops_reads_of_its_greatest_users_and_says_so() {
        let log = ReadLog::default();
        let many = 2 * MAX_ENTRIES as u128;
        assert_eq!(note(&log, 1, 0..many, 5).entries, SHARED_ENTRIES);
        assert_eq!(note(&log, 1, 0..1, 6).dropped, 0, "a known read needs no room");
        let of_others = (MAX_ENTRIES - SHARED_ENTRIES) / 2;
        assert_eq!(note(&log, 2, 0..1_000, 7).dropped, 0);
        assert_eq!(note(&log, 2, 0..many, 8).entries, SHARED_ENTRIES + of_others);
        assert_eq!(note(&log, 3, 0..100, 9).dropped, 0);

        let mut taken = log.take();
        assert_eq!(taken.batches.rest.len(), SHARED_ENTRIES + of_others + 100);
        taken.dropped_at.sort_unstable();
        let micros: Vec<_> = taken.dropped_at.iter().map(|(_, at)| at.as_micros()).collect();
        assert_eq!(micros, [5, 8]);
        assert!(taken.batch(|| Uuid::from_u128(1)).is_some());
        taken.note_written();
        assert!(taken.batch(|| Uuid::from_u128(2)).is_some());
        drop(taken);
        let mut again = log.take();
        assert_eq!(again.batches.rest.len(), SHARED_ENTRIES + of_others + 100 - 2 * BATCH_ROWS);
        let known = again.batches.rest.iter().find(|reads| reads.span.count == 2);
        assert!(known.is_none_or(|known| known.span.first_at < known.span.last_at));
        assert_eq!(again.dropped_at.len(), 2);
        let batch = again.batch(Uuid::nil).unwrap();
        assert_eq!((batch.id, batch.rows.len()), (Uuid::from_u128(2), BATCH_ROWS), "it may be written");
    }
}
