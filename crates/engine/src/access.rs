//! Records when memories were last read, in memory, and writes it in batches.
//!
//! A read never waits for a write and never causes one. A crash loses at most
//! the reads since the last flush. Reads in the last tenth of a memory's unused
//! period are written at once.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use keepsake_core::{Actor, MemoryId, StoreId, TenantId, Timestamp};
use keepsake_index::{AccessRow, IndexError, LIVES_FOR, MemoryTarget};
use keepsake_telemetry::Metrics;

use crate::context::Context;
use crate::sessions::Activity;
use crate::{Clock, EngineError, Principal};

const BATCH_ROWS: usize = 1000;

/// Time limit of a flush, including the wait for another flush. It is shorter
/// than the interval between two flushes.
pub(crate) const FLUSH_TIMEOUT: Duration = Duration::from_secs(20);

type Key = (TenantId, StoreId, MemoryId);

/// Noted memories above which a flush starts early, so that the log stays
/// small.
const EARLY_FLUSH_ROWS: usize = 20_000;

/// How long the engine remembers that a store has no unused period. A new
/// period takes effect only after a longer delay.
const WITHOUT_PERIOD_FOR: Duration = Duration::from_mins(10);
/// Maximum number of stores remembered to have no unused period.
const WITHOUT_PERIOD: usize = 10_000;

/// The latest read of each memory since the last flush.
#[derive(Debug)]
struct Log {
    reads: Mutex<HashMap<Key, (Timestamp, Actor)>>,
    /// Held during a flush. A second flush that finds an empty log must not
    /// report reads as written while the first flush still writes them.
    flushing: tokio::sync::Mutex<()>,
    /// Every read before this time is written; microseconds since 1970.
    flushed_through: AtomicI64,
    /// When all reads were written last. No step of the machine's clock changes it.
    written_at: Mutex<Instant>,
    /// Whether a flush will soon start and take the reads noted so far.
    flush_is_near: AtomicBool,
    /// The value is the time until which the store is remembered to have no unused
    /// period.
    without_period: Mutex<HashMap<(TenantId, StoreId), Timestamp>>,
}

struct Noted {
    at: Timestamp,
    /// Whether the memory had no noted read since the last flush.
    is_new: bool,
    memories: usize,
}

impl Log {
    /// All reads before `now` count as written.
    fn new(now: Timestamp) -> Self {
        Self {
            reads: Mutex::default(),
            flushing: tokio::sync::Mutex::default(),
            flushed_through: AtomicI64::new(now.as_micros()),
            written_at: Mutex::new(Instant::now()),
            flush_is_near: AtomicBool::new(false),
            without_period: Mutex::default(),
        }
    }

    /// Registers the flush lag as a metric for as long as this log exists.
    fn watch_lag(self: &Arc<Self>, metrics: &Metrics, clock: Arc<dyn Clock>) {
        let log = Arc::downgrade(self);
        metrics.watch_access_flush_lag(move || Some(log.upgrade()?.lag(clock.now())));
    }

    /// The age of the last complete write, by the system clock or by the monotonic clock,
    /// whichever is greater.
    fn lag(&self, now: Timestamp) -> Duration {
        let flushed_through = self.flushed_through.load(Ordering::Relaxed);
        let behind_micros = now.as_micros().saturating_sub(flushed_through);
        let behind = Duration::from_micros(u64::try_from(behind_micros).unwrap_or(0));
        behind.max(self.written_at().elapsed())
    }

    fn written_at(&self) -> MutexGuard<'_, Instant> {
        self.written_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn advance(&self, at: Timestamp) {
        let flushed_through = &self.flushed_through;
        let claimed = Timestamp::from_micros(flushed_through.load(Ordering::Acquire));
        if claimed > at.plus(LIVES_FOR) {
            // The clock was ahead. Otherwise later reads would get its time, and other
            // replicas would take them for written.
            flushed_through.store(at.as_micros(), Ordering::Release);
        } else {
            flushed_through.fetch_max(at.as_micros(), Ordering::AcqRel);
        }
        *self.written_at() = Instant::now();
    }

    fn reads(&self) -> MutexGuard<'_, HashMap<Key, (Timestamp, Actor)>> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a read. The time is taken under the lock, so that a flush which
    /// does not include the read does not report that time as written.
    fn record(&self, key: Key, clock: &dyn Clock, by: &Actor) -> Noted {
        let mut reads = self.reads();
        // After the clock was set back, the time must not be one that a flush
        // already reported as written.
        let claimed = Timestamp::from_micros(self.flushed_through.load(Ordering::Acquire));
        let at = clock.now().max(claimed);
        let is_new = put(&mut reads, key, at, by);
        let memories = reads.len();
        Noted { at, is_new, memories }
    }

    fn take(&self, clock: &dyn Clock) -> Taken<'_> {
        let mut reads = self.reads();
        let (taken, at) = (std::mem::take(&mut *reads), clock.now());
        drop(reads);
        let rows = taken
            .into_iter()
            .map(|((tenant_id, store_id, memory_id), (read_at, read_by))| AccessRow {
                tenant_id,
                store_id,
                memory_id,
                read_at,
                read_by,
            })
            .collect();
        Taken { log: self, rows, written: 0, at }
    }

    fn put_back(&self, rows: &[AccessRow]) {
        let mut reads = self.reads();
        for row in rows {
            let key = (row.tenant_id, row.store_id, row.memory_id);
            put(&mut reads, key, row.read_at, &row.read_by);
        }
    }

    fn has_no_period(&self, store: (TenantId, StoreId), now: Timestamp) -> bool {
        let known = self.without_period.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&store).is_some_and(|until| now < *until)
    }

    fn remember_no_period(&self, store: (TenantId, StoreId), now: Timestamp) {
        let mut known = self.without_period.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= WITHOUT_PERIOD {
            known.clear();
        }
        known.insert(store, now.plus(WITHOUT_PERIOD_FOR));
    }
}

/// Reads that a flush writes to the index. Dropping the value puts the
/// unwritten reads back into the log, also after a failed or cancelled flush.
struct Taken<'a> {
    log: &'a Log,
    rows: Vec<AccessRow>,
    /// How many of the rows are written, counted from the first.
    written: usize,
    /// When the reads were taken; all earlier reads are included.
    at: Timestamp,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.log.put_back(&self.rows[self.written..]);
    }
}

/// Keeps the later read of a memory; returns whether the memory was new.
fn put(reads: &mut HashMap<Key, (Timestamp, Actor)>, key: Key, at: Timestamp, by: &Actor) -> bool {
    match reads.entry(key) {
        Entry::Occupied(mut known) => {
            if known.get().0 < at {
                known.insert((at, by.clone()));
            }
            false
        }
        Entry::Vacant(free) => {
            free.insert((at, by.clone()));
            true
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct AccessTimes {
    context: Arc<Context>,
    log: Arc<Log>,
    activity: Arc<Activity>,
}

impl AccessTimes {
    pub(crate) fn new(context: Arc<Context>, activity: Arc<Activity>) -> Self {
        let log = Arc::new(Log::new(context.now()));
        log.watch_lag(&context.metrics, Arc::clone(&context.clock));
        Self { context, log, activity }
    }

    /// When a memory was last read and by whom, if that is not yet written.
    pub(crate) fn noted(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        memory_id: MemoryId,
    ) -> Option<(Timestamp, Actor)> {
        self.log.reads().get(&(tenant_id, store_id, memory_id)).cloned()
    }

    pub(crate) fn lag(&self) -> Duration {
        self.log.lag(self.context.now())
    }

    /// The time before which every read is written.
    pub(crate) fn flushed_through(&self) -> Timestamp {
        Timestamp::from_micros(self.log.flushed_through.load(Ordering::Acquire))
    }

    pub(crate) fn note_read(&self, principal: &Principal, store_id: StoreId, memory_id: MemoryId) {
        self.note_reads(principal, [(store_id, memory_id)]);
    }

    pub(crate) fn note_reads(
        &self,
        principal: &Principal,
        read: impl IntoIterator<Item = (StoreId, MemoryId)>,
    ) {
        let (log, tenant_id) = (&self.log, principal.tenant_id);
        let mut maybe_late = Vec::new();
        for (store_id, memory_id) in read {
            let noted = log.record((tenant_id, store_id, memory_id), &*self.context.clock, &principal.actor);
            if noted.memories >= EARLY_FLUSH_ROWS {
                self.flush_soon();
            }
            if noted.is_new && !log.has_no_period((tenant_id, store_id), noted.at) {
                maybe_late.push((store_id, memory_id, noted.at));
            }
        }
        if maybe_late.is_empty() {
            return;
        }
        let (access, limits) = (self.clone(), &principal.limits);
        let tenants = (limits.unused_period_secs(), limits.period_set_at);
        // In sequence: the first check of a store may show that the store has
        // no unused period.
        tokio::spawn(async move {
            for (store_id, memory_id, at) in maybe_late {
                if access.log.has_no_period((tenant_id, store_id), at) {
                    continue;
                }
                match access.is_late((tenant_id, store_id, memory_id), tenants, at).await {
                    Ok(true) => return access.flush_soon(),
                    Ok(false) => {}
                    Err(error) => {
                        tracing::debug!(error = %error, "engine.note_reads: how old a memory is, is not known");
                    }
                }
            }
        });
    }

    /// Whether a read comes in the last tenth of the unused period, or after the period.
    async fn is_late(
        &self,
        (tenant_id, store_id, memory_id): Key,
        (secs, set_at): (Option<u64>, Option<Timestamp>),
        read_at: Timestamp,
    ) -> Result<bool, EngineError> {
        let found = self.context.index.memories.find(tenant_id, store_id, memory_id).await?;
        let found = found.ok_or(EngineError::StoreNotFound)?;
        let expiry = found.expiry.or_tenants(secs, set_at);
        let Some(period_secs) = expiry.unused_after_secs else {
            self.log.remember_no_period((tenant_id, store_id), read_at);
            return Ok(false);
        };
        let MemoryTarget::Live(memory) = found.target else {
            return Ok(false);
        };
        let alive_at = memory.last_read_at.max(memory.active_at);
        let ends_at = expiry.ends_at(alive_at.map_or(memory.updated_at, |at| at.max(memory.updated_at)));
        let tenth = Duration::from_secs(period_secs) / 10;
        Ok(!memory.is_pinned && ends_at.is_some_and(|ends_at| ends_at.minus(tenth) <= read_at))
    }

    fn flush_soon(&self) {
        if self.log.flush_is_near.swap(true, Ordering::AcqRel) {
            return;
        }
        let access = self.clone();
        tokio::spawn(async move {
            if let Err(error) = access.write().await {
                tracing::warn!(error = %error, "engine.flush_access failed; tried again at the next tick");
            }
            // Also reset when the flush timed out before it got the lock.
            access.log.flush_is_near.store(false, Ordering::Release);
        });
    }

    /// Writes the noted reads, then advances the time up to which all reads are written.
    pub(crate) async fn write(&self) -> Result<usize, IndexError> {
        let log = &self.log;
        within(FLUSH_TIMEOUT, async {
            let _flushing = log.flushing.lock().await;
            log.flush_is_near.store(false, Ordering::Release);
            let mut taken = log.take(&*self.context.clock);
            while taken.written < taken.rows.len() {
                let end = taken.rows.len().min(taken.written + BATCH_ROWS);
                let rows = &taken.rows[taken.written..end];
                self.context.index.access_times.flush(rows).await?;
                taken.written = end;
            }
            // The use of a session counts as a read of the memories in its
            // stores.
            self.activity.write_use().await?;
            log.advance(taken.at);
            Ok(taken.written)
        })
        .await
    }
}

pub(crate) async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, IndexError>>,
) -> Result<T, IndexError> {
    let ended = tokio::time::timeout(limit, call).await;
    ended.unwrap_or_else(|_| Err(IndexError::timed_out(limit)))
}
