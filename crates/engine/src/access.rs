//! When memories were last read: coalesced here, written in batches.
//!
//! A read never waits for, nor causes, a write. A crash may forget the reads
//! since the last flush, no more; and not those in the last tenth of a life,
//! which are written at once.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use keepsake_core::{Actor, MemoryId, StoreId, TenantId, Timestamp};
use keepsake_index::{AccessRow, FORGOTTEN_AFTER, IndexError, MemoryTarget};
use keepsake_telemetry::Metrics;

use crate::{Clock, Engine, EngineError, Principal};

/// Rows of one batch.
const BATCH_ROWS: usize = 1000;

type Key = (TenantId, StoreId, MemoryId);

/// Memories noted before a flush is begun early, so that the log stays small.
const EARLY_FLUSH_ROWS: usize = 20_000;

/// How long a store is believed to have no period: a new one waits longer than
/// that before it has an effect.
const WITHOUT_PERIOD_FOR: Duration = Duration::from_mins(10);
/// Stores remembered to have no period, at most.
const WITHOUT_PERIOD: usize = 10_000;

/// The latest read of each memory since the last flush.
#[derive(Debug)]
pub(crate) struct Log {
    reads: Mutex<HashMap<Key, (Timestamp, Actor)>>,
    /// Held by whoever flushes, so that a heartbeat never claims rows that
    /// another flush took and has not written yet.
    flushing: tokio::sync::Mutex<()>,
    /// Until when all reads are written, in microseconds since 1970.
    flushed_through: AtomicI64,
    /// Whether a flush is about to begin that will take what was noted so far.
    flush_is_near: AtomicBool,
    /// When this replica last told that it lives.
    heard_of_at: AtomicI64,
    /// Whether it could not since.
    is_unheard: AtomicBool,
    /// Stores that had no period of expiry, and until when that is believed.
    without_period: Mutex<HashMap<(TenantId, StoreId), Timestamp>>,
}

/// What noting a read found.
struct Noted {
    at: Timestamp,
    /// Whether the memory was not noted since the last flush.
    is_new: bool,
    /// Memories noted.
    memories: usize,
}

impl Log {
    /// An empty log: no read of before `now` is missing in the index.
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            reads: Mutex::default(),
            flushing: tokio::sync::Mutex::default(),
            flushed_through: AtomicI64::new(now.as_micros()),
            flush_is_near: AtomicBool::new(false),
            heard_of_at: AtomicI64::new(now.as_micros()),
            is_unheard: AtomicBool::new(false),
            without_period: Mutex::default(),
        }
    }

    /// Has the metrics tell how far this log is behind, while it is there.
    pub(crate) fn tell_lag(self: &Arc<Self>, metrics: &Metrics, clock: Arc<dyn Clock>) {
        let log = Arc::downgrade(self);
        metrics.watch_access_flush_lag(move || {
            let flushed_through = log.upgrade()?.flushed_through.load(Ordering::Relaxed);
            let behind_micros = clock.now().as_micros().saturating_sub(flushed_through);
            Some(Duration::from_micros(u64::try_from(behind_micros).unwrap_or(0)))
        });
    }

    /// Whether the others may soon take this replica for dead, and no longer wait
    /// for the reads it has not written: then it must not serve any.
    pub(crate) fn is_cut_off(&self, now: Timestamp) -> bool {
        let heard_of_at = Timestamp::from_micros(self.heard_of_at.load(Ordering::Acquire));
        self.is_unheard.load(Ordering::Acquire) && heard_of_at.plus(FORGOTTEN_AFTER / 2) <= now
    }

    fn told(&self, at: Timestamp, was_heard: bool) {
        if was_heard {
            self.heard_of_at.store(at.as_micros(), Ordering::Release);
        }
        self.is_unheard.store(!was_heard, Ordering::Release);
    }

    fn reads(&self) -> MutexGuard<'_, HashMap<Key, (Timestamp, Actor)>> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a read. It has its time under the lock, so that a flush which has
    /// not taken it does not claim that time.
    fn record(&self, key: Key, clock: &dyn Clock, by: &Actor) -> Noted {
        let mut reads = self.reads();
        // A clock that was set back must not give it a time that is claimed already.
        let claimed = Timestamp::from_micros(self.flushed_through.load(Ordering::Acquire));
        let at = clock.now().max(claimed);
        let is_new = put(&mut reads, key, at, by);
        let memories = reads.len();
        Noted { at, is_new, memories }
    }

    /// When a memory was last read, as far as it is not written yet.
    pub(crate) fn noted(&self, key: &Key) -> Option<Timestamp> {
        self.reads().get(key).map(|(at, _)| *at)
    }

    /// The same, and who read it.
    pub(crate) fn noted_by(&self, key: &Key) -> Option<(Timestamp, Actor)> {
        self.reads().get(key).cloned()
    }

    /// Takes what is noted, and when it was taken.
    fn take(&self, clock: &dyn Clock) -> (Vec<AccessRow>, Timestamp) {
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
        (rows, at)
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

/// Puts a read in its place; answers whether its memory was not there.
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
    /// Notes that a memory's content was read, now.
    pub(crate) fn note_read(&self, principal: &Principal, store_id: StoreId, memory_id: MemoryId) {
        self.note_reads(principal, [(store_id, memory_id)]);
    }

    /// Notes that the contents of memories were read, now.
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
        // One after the other: the first of a store may tell that no other can be.
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

    /// Whether a read comes in the last tenth of a life, or after it.
    async fn is_late(
        &self,
        (tenant_id, store_id, memory_id): Key,
        (secs, set_at): (Option<u64>, Option<Timestamp>),
        read_at: Timestamp,
    ) -> Result<bool, EngineError> {
        let found = self.0.index.memory(tenant_id, store_id, memory_id).await?;
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

    /// Begins to write what is noted, beside what goes on.
    fn flush_soon(&self) {
        if self.0.access.flush_is_near.swap(true, Ordering::AcqRel) {
            return;
        }
        let engine = self.clone();
        tokio::spawn(async move {
            let log = &engine.0.access;
            let _flushing = log.flushing.lock().await;
            log.flush_is_near.store(false, Ordering::Release);
            if let Err(error) = engine.write_access().await {
                tracing::warn!(error = %error, "engine.flush_access failed; tried again at the next tick");
            }
        });
    }

    /// Writes the access times noted so far, this replica's heartbeat, and when
    /// keys were used.
    ///
    /// Answers how many memories' times were written.
    ///
    /// # Errors
    /// [`IndexError`] when they could not be written; they are kept for the
    /// next flush, and the heartbeat, which is sent all the same, does not claim
    /// them.
    #[tracing::instrument(name = "engine.flush_access", level = "debug", skip_all)]
    pub async fn flush_access(&self) -> Result<usize, IndexError> {
        let log = &self.0.access;
        let _flushing = log.flushing.lock().await;
        let written = self.write_access().await;
        let flushed_through = Timestamp::from_micros(log.flushed_through.load(Ordering::Acquire));
        // Also where nothing was written: others must wait for what is noted here.
        let (index, now) = (&self.0.index, self.now());
        let heard = index
            .heartbeat(self.0.replica, self.0.role, now, flushed_through)
            .await;
        log.told(now, heard.is_ok());
        heard?;
        let written = written?;
        // Last: nothing that expires waits for them.
        self.write_key_use().await?;
        if let Err(error) = self.write_events().await {
            tracing::warn!(error = %error, "engine.write_events failed; tried again at the next tick");
        }
        Ok(written)
    }

    /// Writes what is noted; once all of it is written, it is known through when.
    async fn write_access(&self) -> Result<usize, IndexError> {
        let log = &self.0.access;
        let (rows, taken_at) = log.take(&*self.0.clock);
        for (position, batch) in rows.chunks(BATCH_ROWS).enumerate() {
            if let Err(error) = self.0.index.flush_access(batch).await {
                log.put_back(&rows[position * BATCH_ROWS..]);
                return Err(error);
            }
        }
        // Memories of a session's stores live on by it, as if they were read.
        self.write_session_use().await?;
        log.flushed_through
            .fetch_max(taken_at.as_micros(), Ordering::AcqRel);
        Ok(rows.len())
    }
}
