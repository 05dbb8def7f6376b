//! Records when memories were last read, in memory, and writes it in batches.
//!
//! A read never waits for a write and never causes one. A crash loses at most
//! the reads since the last flush. Reads in the last tenth of a memory's unused
//! period are written at once.
//!
//! Before another replica expires memories, it waits for the reads that this
//! replica has not written. It stops waiting soon after this replica's last
//! heartbeat. So this replica refuses credentials when its last successful
//! heartbeat is too old by its clock, no matter whether later heartbeats
//! failed, hang, or were never sent.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use keepsake_core::{Actor, MemoryId, StoreId, TenantId, Timestamp};
use keepsake_index::{AccessRow, FORGOTTEN_AFTER, IndexError, MemoryTarget};
use keepsake_telemetry::Metrics;

use crate::{Clock, Engine, EngineError, Principal};

/// Rows of one batch.
const BATCH_ROWS: usize = 1000;

/// Time limit of a flush, including the wait for another flush. It is shorter
/// than the interval between two flushes.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(20);
/// Time limit of a heartbeat.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(8);
/// Time limit of a heartbeat that a request waits for.
const URGENT_HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(2);

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
pub(crate) struct Log {
    reads: Mutex<HashMap<Key, (Timestamp, Actor)>>,
    /// Held during a flush. A second flush that finds an empty log must not
    /// report reads as written while the first flush still writes them.
    flushing: tokio::sync::Mutex<()>,
    /// Every read before this time is written; microseconds since 1970.
    flushed_through: AtomicI64,
    /// Whether a flush will soon start and take the reads noted so far.
    flush_is_near: AtomicBool,
    /// When the last successful heartbeat was sent; 0: none was.
    heartbeat_at: AtomicI64,
    /// When the last heartbeat that a request waited for ended.
    urgent_heartbeat: tokio::sync::Mutex<Option<Instant>>,
    /// Stores without an unused period, and until when that is remembered.
    without_period: Mutex<HashMap<(TenantId, StoreId), Timestamp>>,
}

/// The result of noting a read.
struct Noted {
    at: Timestamp,
    /// Whether the memory had no noted read since the last flush.
    is_new: bool,
    /// Number of memories with a noted read.
    memories: usize,
}

impl Log {
    /// Creates an empty log; all reads before `now` count as written.
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            reads: Mutex::default(),
            flushing: tokio::sync::Mutex::default(),
            flushed_through: AtomicI64::new(now.as_micros()),
            flush_is_near: AtomicBool::new(false),
            heartbeat_at: AtomicI64::new(0),
            urgent_heartbeat: tokio::sync::Mutex::default(),
            without_period: Mutex::default(),
        }
    }

    /// Registers the flush lag as a metric for as long as this log exists.
    pub(crate) fn tell_lag(self: &Arc<Self>, metrics: &Metrics, clock: Arc<dyn Clock>) {
        let log = Arc::downgrade(self);
        metrics.watch_access_flush_lag(move || {
            let flushed_through = log.upgrade()?.flushed_through.load(Ordering::Relaxed);
            let behind_micros = clock.now().as_micros().saturating_sub(flushed_through);
            Some(Duration::from_micros(u64::try_from(behind_micros).unwrap_or(0)))
        });
    }

    /// Whether other replicas may soon stop waiting for this replica's
    /// unwritten reads.
    fn is_cut_off(&self, now: Timestamp) -> bool {
        let heartbeat_at = Timestamp::from_micros(self.heartbeat_at.load(Ordering::Acquire));
        heartbeat_at.plus(FORGOTTEN_AFTER / 2) <= now
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

    /// When a memory was last read, if that read is not written yet.
    pub(crate) fn noted(&self, key: &Key) -> Option<Timestamp> {
        self.reads().get(key).map(|(at, _)| *at)
    }

    /// When a memory was last read and by whom, if that is not written yet.
    pub(crate) fn noted_by(&self, key: &Key) -> Option<(Timestamp, Actor)> {
        self.reads().get(key).cloned()
    }

    /// Takes the noted reads out of the log.
    fn take(&self, clock: &dyn Clock) -> Taken<'_> {
        let mut reads = self.reads();
        let (taken, at) = (std::mem::take(&mut *reads), clock.now());
        drop(reads);
        let rows = taken
            .into_iter()
            .map(
                |((tenant_id, store_id, memory_id), (read_at, read_by))| AccessRow {
                    tenant_id,
                    store_id,
                    memory_id,
                    read_at,
                    read_by,
                },
            )
            .collect();
        Taken {
            log: self,
            rows,
            written: 0,
            at,
        }
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

impl Engine {
    /// Notes that a memory's content was read now.
    pub(crate) fn note_read(&self, principal: &Principal, store_id: StoreId, memory_id: MemoryId) {
        self.note_reads(principal, [(store_id, memory_id)]);
    }

    /// Notes that the contents of memories were read now.
    pub(crate) fn note_reads(
        &self,
        principal: &Principal,
        read: impl IntoIterator<Item = (StoreId, MemoryId)>,
    ) {
        let (log, tenant_id) = (&self.0.access, principal.tenant_id);
        let mut maybe_late = Vec::new();
        for (store_id, memory_id) in read {
            let noted = log.record((tenant_id, store_id, memory_id), &*self.0.clock, &principal.actor);
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
        let (engine, limits) = (self.clone(), &principal.limits);
        let tenants = (limits.unused_period_secs(), limits.period_set_at);
        // In sequence: the first check of a store may show that the store has
        // no unused period.
        tokio::spawn(async move {
            for (store_id, memory_id, at) in maybe_late {
                if engine.0.access.has_no_period((tenant_id, store_id), at) {
                    continue;
                }
                match engine
                    .is_late((tenant_id, store_id, memory_id), tenants, at)
                    .await
                {
                    Ok(true) => return engine.flush_soon(),
                    Ok(false) => {}
                    Err(error) => {
                        tracing::debug!(error = %error, "engine.note_reads: how old a memory is, is not known");
                    }
                }
            }
        });
    }

    /// Whether a read comes in the last tenth of the unused period, or after
    /// it.
    async fn is_late(
        &self,
        (tenant_id, store_id, memory_id): Key,
        (secs, set_at): (Option<u64>, Option<Timestamp>),
        read_at: Timestamp,
    ) -> Result<bool, EngineError> {
        let found = self.0.index.memories.find(tenant_id, store_id, memory_id).await?;
        let found = found.ok_or(EngineError::StoreNotFound)?;
        let expiry = found.expiry.or_tenants(secs, set_at);
        let Some(period_secs) = expiry.unused_after_secs else {
            self.0.access.remember_no_period((tenant_id, store_id), read_at);
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

    /// Starts a flush in the background.
    fn flush_soon(&self) {
        if self.0.access.flush_is_near.swap(true, Ordering::AcqRel) {
            return;
        }
        let engine = self.clone();
        tokio::spawn(async move {
            if let Err(error) = engine.write_access().await {
                tracing::warn!(error = %error, "engine.flush_access failed; tried again at the next tick");
            }
            // Also reset when the flush timed out before it got the lock.
            engine.0.access.flush_is_near.store(false, Ordering::Release);
        });
    }

    /// Writes the noted reads, this replica's heartbeat, and the use of API
    /// keys. Each part has a time limit.
    ///
    /// Returns the number of memories whose access times were written.
    ///
    /// # Errors
    /// [`IndexError`] when the access times could not be written. They are kept
    /// for the next flush. The heartbeat is sent in any case and does not
    /// report them as written.
    #[tracing::instrument(name = "engine.flush_access", level = "debug", skip_all)]
    pub async fn flush_access(&self) -> Result<usize, IndexError> {
        let written = self.write_access().await;
        // Also after a failed write: other replicas must wait for the reads
        // noted here.
        within(HEARTBEAT_TIMEOUT, self.heartbeat()).await?;
        let written = written?;
        // Last, because no expiry depends on the use of API keys.
        within(FLUSH_TIMEOUT, self.write_key_use()).await?;
        if let Err(error) = within(FLUSH_TIMEOUT, self.write_events()).await {
            tracing::warn!(error = %error, "engine.write_events failed; tried again at the next tick");
        }
        Ok(written)
    }

    /// Records that this replica is alive, and up to which time its reads are
    /// written.
    pub(crate) async fn heartbeat(&self) -> Result<(), IndexError> {
        let (log, now) = (&self.0.access, self.now());
        // A flush advances this only after its writes succeeded.
        let flushed_through = Timestamp::from_micros(log.flushed_through.load(Ordering::Acquire));
        self.0
            .index
            .replicas
            .beat(self.0.replica, self.0.role, now, flushed_through)
            .await?;
        log.heartbeat_at.fetch_max(now.as_micros(), Ordering::AcqRel);
        Ok(())
    }

    /// Whether other replicas may soon expire memories that this replica
    /// serves. Always false for an index of a single process, which writes its
    /// reads before it expires memories.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.0.index.is_shared() && self.0.access.is_cut_off(self.now())
    }

    /// Sends a heartbeat at once when the last one is too old, as after an
    /// outage.
    pub(crate) async fn end_cut_off(&self) {
        if !self.is_cut_off() {
            return;
        }
        let asked_at = Instant::now();
        // Concurrent requests share one attempt.
        let mut ended_at = self.0.access.urgent_heartbeat.lock().await;
        if ended_at.is_some_and(|ended_at| asked_at < ended_at) {
            return;
        }
        if let Err(error) = within(URGENT_HEARTBEAT_TIMEOUT, self.heartbeat()).await {
            tracing::warn!(error = %error, "engine.heartbeat failed: no reads are served until one succeeds");
        }
        *ended_at = Some(Instant::now());
    }

    /// Writes the noted reads, then advances the time up to which all are
    /// written.
    async fn write_access(&self) -> Result<usize, IndexError> {
        let log = &self.0.access;
        within(FLUSH_TIMEOUT, async {
            let _flushing = log.flushing.lock().await;
            log.flush_is_near.store(false, Ordering::Release);
            let mut taken = log.take(&*self.0.clock);
            while taken.written < taken.rows.len() {
                let end = taken.rows.len().min(taken.written + BATCH_ROWS);
                let rows = &taken.rows[taken.written..end];
                self.0.index.access_times.flush(rows).await?;
                taken.written = end;
            }
            // The use of a session counts as a read of the memories in its
            // stores.
            self.write_session_use().await?;
            log.flushed_through
                .fetch_max(taken.at.as_micros(), Ordering::AcqRel);
            Ok(taken.written)
        })
        .await
    }
}

/// Waits at most `limit` for a call of the index.
async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, IndexError>>,
) -> Result<T, IndexError> {
    let ended = tokio::time::timeout(limit, call).await;
    ended.unwrap_or_else(|_| Err(IndexError::timed_out(limit)))
}
