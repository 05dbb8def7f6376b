//! When memories were last read, and who was shown which version. Reads in the last tenth
//! of a memory's unused period are written at once.

use std::collections::{BTreeMap, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;
use keepsake_core::{Actor, MemoryId, ObjectKind, StoreId, Surface, TenantId, Timestamp, VersionId};
use keepsake_index::{
    Expiry, FlushedBatch, FoundMemory, Head, IndexError, LIVES_FOR, MemoryPlace, MemoryTarget, VersionReader,
};
use keepsake_telemetry::Metrics;
use parking_lot::Mutex;
use uuid::Uuid;

use crate::activity::Activity;
use crate::context::Context;
use crate::read_log::ReadLog;
use crate::use_log::UseLog;
use crate::{Clock, EngineError, Principal};

/// Time limit of a flush, including the wait for another flush. It is shorter
/// than the interval between two flushes.
pub(crate) const FLUSH_TIMEOUT: Duration = Duration::from_secs(20);

/// Noted memories, or versions and their readers, above which a flush starts early, so
/// that the log stays small.
const EARLY_FLUSH_ROWS: usize = 20_000;

/// How long the engine remembers that a store has no unused period. A new
/// period takes effect only after a longer delay.
const WITHOUT_PERIOD_FOR: Duration = Duration::from_mins(10);
/// Maximum number of stores remembered to have no unused period.
const WITHOUT_PERIOD: usize = 10_000;
/// Reads of a tenant that wait for their check. If there are more, all are written at once.
const MAX_UNCHECKED: usize = 10_000;
/// Reads of a store that one query checks.
const CHECKED_AT_ONCE: usize = 100;

#[derive(Debug)]
struct Log {
    reads: UseLog<MemoryPlace, Actor>,
    readers: ReadLog,
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
    /// The reads of each tenant that may be near the end of an unused period. While a tenant
    /// is here, one task checks its reads, however many requests note some.
    unchecked: Mutex<HashMap<TenantId, UncheckedReads>>,
}

/// The memories of stores that were read, with the times of the reads.
type UncheckedReads = BTreeMap<StoreId, HashMap<MemoryId, Timestamp>>;

impl Log {
    /// All reads before `now` count as written.
    fn new(now: Timestamp) -> Self {
        Self {
            reads: UseLog::default(),
            readers: ReadLog::default(),
            flushing: tokio::sync::Mutex::default(),
            flushed_through: AtomicI64::new(now.as_micros()),
            written_at: Mutex::new(Instant::now()),
            flush_is_near: AtomicBool::new(false),
            without_period: Mutex::default(),
            unchecked: Mutex::default(),
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
        behind.max(self.written_at.lock().elapsed())
    }

    fn advance(&self, at: Timestamp) {
        let flushed_through = &self.flushed_through;
        let claimed = Timestamp::from_micros(flushed_through.load(Ordering::Acquire));
        if claimed > at.plus(LIVES_FOR) {
            // The clock was ahead, so this time goes back. If it stayed, later reads would get
            // this time (`earliest`), and other replicas would take them for written.
            flushed_through.store(at.as_micros(), Ordering::Release);
        } else {
            flushed_through.fetch_max(at.as_micros(), Ordering::AcqRel);
        }
        *self.written_at.lock() = Instant::now();
    }

    /// The earliest time of a read: after the clock was set back, a read must not have a
    /// time that a flush already reported as written.
    fn earliest(&self) -> Timestamp {
        Timestamp::from_micros(self.flushed_through.load(Ordering::Acquire))
    }

    fn has_no_period(&self, store: (TenantId, StoreId), now: Timestamp) -> bool {
        let known = self.without_period.lock();
        known.get(&store).is_some_and(|until| now < *until)
    }

    fn remember_no_period(&self, store: (TenantId, StoreId), now: Timestamp) {
        let mut known = self.without_period.lock();
        if known.len() >= WITHOUT_PERIOD {
            known.clear();
        }
        known.insert(store, now.plus(WITHOUT_PERIOD_FOR));
    }

    /// Adds reads that wait for their check.
    fn add_unchecked(&self, tenant_id: TenantId, reads: Vec<(StoreId, MemoryId, Timestamp)>) -> AddedReads {
        let mut unchecked = self.unchecked.lock();
        let is_checked = unchecked.contains_key(&tenant_id);
        let own = unchecked.entry(tenant_id).or_default();
        // A new entry has room for all memories of a request.
        if is_checked && own.values().map(HashMap::len).sum::<usize>() + reads.len() > MAX_UNCHECKED {
            return AddedReads::TooMany;
        }
        for (store_id, memory_id, at) in reads {
            own.entry(store_id).or_default().insert(memory_id, at);
        }
        if is_checked { AddedReads::Wait } else { AddedReads::NeedTask }
    }

    /// The reads of a store to check next; `None`: all are checked.
    fn next_unchecked(&self, tenant_id: TenantId) -> Option<(StoreId, Vec<(MemoryId, Timestamp)>)> {
        let mut unchecked = self.unchecked.lock();
        let next = unchecked.get_mut(&tenant_id).and_then(BTreeMap::pop_first);
        if next.is_none() {
            unchecked.remove(&tenant_id);
        }
        next.map(|(store_id, reads)| (store_id, reads.into_iter().collect()))
    }

    /// Drops the reads of a tenant whose task ended before it checked them.
    fn forget_unchecked(&self, tenant_id: TenantId) {
        self.unchecked.lock().remove(&tenant_id);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AddedReads {
    /// A task must check them.
    NeedTask,
    /// The running task will check them.
    Wait,
    TooMany,
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
        self.log.reads.get((tenant_id, store_id, memory_id))
    }

    pub(crate) fn lag(&self) -> Duration {
        self.log.lag(self.context.now())
    }

    /// The time before which every read is written.
    pub(crate) fn flushed_through(&self) -> Timestamp {
        self.log.earliest()
    }

    /// Notes that the content of a memory was shown.
    pub(crate) fn note_read(&self, principal: &Principal, store_id: StoreId, head: &Head) {
        let shown = (store_id, head.memory_id, head.version_id);
        self.note_shown(principal, principal.surface, &[shown]);
    }

    /// Notes that parts of memories were shown as the hits of a search.
    pub(crate) fn note_hits(&self, principal: &Principal, shown: &[(StoreId, MemoryId, VersionId)]) {
        let is_of_agent = principal.surface.is_of_agents();
        let surface = if is_of_agent { Surface::Search } else { principal.surface };
        self.note_shown(principal, surface, shown);
    }

    /// Counts a use of the memories if an agent read them, not a backup or a person.
    fn note_shown(&self, principal: &Principal, surface: Surface, shown: &[(StoreId, MemoryId, VersionId)]) {
        if surface.is_of_agents() {
            self.note_uses(principal, shown.iter().map(|&(store_id, memory_id, _)| (store_id, memory_id)));
        }
        let shown: Vec<_> = shown.iter().map(|&(store_id, _, version_id)| (store_id, version_id)).collect();
        self.record(principal, surface, &shown);
    }

    /// Records who was shown a version from the history. This is no use of the memory.
    pub(crate) fn record_version(&self, principal: &Principal, store_id: StoreId, version_id: VersionId) {
        self.record(principal, principal.surface, &[(store_id, version_id)]);
    }

    /// Counts shown versions, and records who was shown them.
    fn record(&self, principal: &Principal, surface: Surface, shown: &[(StoreId, VersionId)]) {
        let stores = shown.iter().map(|(store_id, _)| *store_id);
        self.context.use_counts.note_reads(principal.tenant_id, surface, self.context.now(), stores);
        let Some(actor) = principal.actor().filter(|_| principal.limits.read_retention_secs > 0) else {
            return;
        };
        let session_id = principal.called_in.or_else(|| principal.session_id());
        let reader = VersionReader { actor: actor.clone(), session_id, surface };
        let time = || self.context.now().max(self.log.earliest());
        let noted = self.log.readers.note(principal.tenant_id, &reader, shown.iter().copied(), time);
        if noted.dropped > 0 {
            self.context.metrics.reads_dropped(noted.dropped);
        }
        if noted.entries >= EARLY_FLUSH_ROWS {
            self.flush_soon();
        }
    }

    /// Notes that memories were shown to an agent, or that a call of anybody brought the
    /// content that they have.
    pub(crate) fn note_uses(
        &self,
        principal: &Principal,
        used: impl IntoIterator<Item = (StoreId, MemoryId)>,
    ) {
        let (log, tenant_id) = (&self.log, principal.tenant_id);
        let Some(actor) = principal.actor() else {
            return;
        };
        let mut maybe_late = Vec::new();
        for (store_id, memory_id) in used {
            let time = || self.context.now().max(log.earliest());
            let noted = log.reads.note_at((tenant_id, store_id, memory_id), time, actor);
            if noted.objects >= EARLY_FLUSH_ROWS {
                self.flush_soon();
            }
            if noted.is_new && !log.has_no_period((tenant_id, store_id), noted.at) {
                maybe_late.push((store_id, memory_id, noted.at));
            }
        }
        if maybe_late.is_empty() {
            return;
        }
        match log.add_unchecked(tenant_id, maybe_late) {
            AddedReads::Wait => {}
            AddedReads::TooMany => self.flush_soon(),
            AddedReads::NeedTask => {
                let limits = &principal.limits;
                self.check_soon(tenant_id, (limits.unused_period_secs(), limits.period_set_at));
            }
        }
    }

    /// Starts the task that checks the reads of a tenant. After a panic, all reads are written, and
    /// the next read starts another task.
    fn check_soon(&self, tenant_id: TenantId, tenants: (Option<u64>, Option<Timestamp>)) {
        let access = self.clone();
        tokio::spawn(async move {
            let checks = AssertUnwindSafe(access.check_reads(tenant_id, tenants)).catch_unwind();
            if checks.await.is_err() {
                tracing::error!("engine.note_reads: the check of reads panicked");
                access.log.forget_unchecked(tenant_id);
                access.flush_soon();
            }
        });
    }

    /// Checks the reads of a tenant until none waits. `tenants` is the tenant's own period.
    async fn check_reads(&self, tenant_id: TenantId, tenants: (Option<u64>, Option<Timestamp>)) {
        while let Some((store_id, reads)) = self.log.next_unchecked(tenant_id) {
            for reads in reads.chunks(CHECKED_AT_ONCE) {
                match self.are_late((tenant_id, store_id), reads, tenants).await {
                    Ok(true) => {
                        self.flush_soon();
                        break;
                    }
                    Ok(false) => {}
                    Err(error) => {
                        tracing::debug!(error = %error, "engine.note_reads: how old memories are, is not known");
                    }
                }
            }
        }
    }

    /// Whether one of the reads comes in the last tenth of the unused period, or after the period.
    async fn are_late(
        &self,
        (tenant_id, store_id): (TenantId, StoreId),
        reads: &[(MemoryId, Timestamp)],
        (secs, set_at): (Option<u64>, Option<Timestamp>),
    ) -> Result<bool, EngineError> {
        let Some((_, first_at)) = reads.first() else {
            return Ok(false);
        };
        if self.log.has_no_period((tenant_id, store_id), *first_at) {
            return Ok(false);
        }
        let (expiry, found) = self.memories((tenant_id, store_id), reads).await?;
        let expiry = expiry.or_tenants(secs, set_at);
        let Some(period_secs) = expiry.unused_after_secs else {
            self.log.remember_no_period((tenant_id, store_id), *first_at);
            return Ok(false);
        };
        let tenth = Duration::from_secs(period_secs) / 10;
        let is_late = |(memory_id, read_at): &(MemoryId, Timestamp)| {
            let Some(MemoryTarget::Live(memory)) = found.get(memory_id).map(|found| &found.target) else {
                return false;
            };
            let alive_at = memory.last_read_at.max(memory.active_at);
            let alive_at = alive_at.map_or(memory.updated_at, |at| at.max(memory.updated_at));
            let ends_at = expiry.ends_at(alive_at);
            !memory.is_pinned && ends_at.is_some_and(|ends_at| ends_at.minus(tenth) <= *read_at)
        };
        Ok(reads.iter().any(is_late))
    }

    /// The memories that were read, by their ids, and their store's period.
    async fn memories(
        &self,
        (tenant_id, store_id): (TenantId, StoreId),
        reads: &[(MemoryId, Timestamp)],
    ) -> Result<(Expiry, HashMap<MemoryId, FoundMemory>), EngineError> {
        if let [(memory_id, _)] = reads {
            let found = self.context.find_memory(tenant_id, store_id, *memory_id).await?;
            return Ok((found.expiry, HashMap::from([(*memory_id, found)])));
        }
        let ids: Vec<_> = reads.iter().map(|(memory_id, _)| *memory_id).collect();
        let found = self.context.index.memories.find_all(tenant_id, store_id, &ids, &[]).await?;
        let found = found.ok_or(EngineError::NotFound(ObjectKind::Store))?;
        Ok((found.expiry, found.memories))
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

    /// Writes the readers of versions. A batch that the index refuses is dropped, so that the
    /// others are written.
    async fn write_readers(&self) -> Result<(), IndexError> {
        let (index, mut reads) = (&self.context.index.reads, self.log.readers.take());
        while let Some(batch) = reads.batch(|| self.context.new_uuid()) {
            match index.flush(self.batch_of_flush(batch.id), &batch.rows).await {
                Ok(()) => reads.note_written(),
                Err(error) if error.is_passing() => return Err(error),
                Err(error) => {
                    tracing::error!(error = %error, "engine.write_readers: reads were refused, and are dropped");
                    self.context.metrics.reads_dropped(reads.drop_batch());
                }
            }
        }
        while let Some((tenant_id, at)) = reads.dropped() {
            index.note_gap(tenant_id, at.plus(Duration::from_micros(1))).await?;
            reads.note_drop_written();
        }
        Ok(())
    }

    /// Adds the noted reads and writes to the counts of their days. A batch that the index
    /// refuses is dropped, so that the others are written.
    async fn write_counts(&self) -> Result<(), IndexError> {
        let mut counts = self.context.use_counts.take();
        while let Some(batch) = counts.batch(|| self.context.new_uuid()) {
            match self.context.index.daily_use.add(self.batch_of_flush(batch.id), &batch.rows).await {
                Ok(()) => {}
                Err(error) if error.is_passing() => return Err(error),
                Err(error) => {
                    tracing::error!(error = %error, "engine.write_counts: counts were refused, and are dropped");
                }
            }
            counts.remove_batch();
        }
        Ok(())
    }

    fn batch_of_flush(&self, id: Uuid) -> FlushedBatch {
        FlushedBatch { replica: self.context.replica, id, at: self.context.now() }
    }

    /// Writes the noted reads, then advances the time up to which all reads are written.
    pub(crate) async fn write(&self) -> Result<usize, IndexError> {
        let log = &self.log;
        within(FLUSH_TIMEOUT, async {
            let _flushing = log.flushing.lock().await;
            log.flush_is_near.store(false, Ordering::Release);
            let mut reads = log.reads.take(&*self.context.clock);
            let (memories, taken_at) = (reads.len(), reads.at);
            while let Some(batch) = reads.batch() {
                self.context.index.access_times.flush(batch).await?;
                reads.note_written();
            }
            self.write_readers().await?;
            self.write_counts().await?;
            // The use of a session counts as a read of the memories in its
            // stores.
            self.activity.write_use().await?;
            log.advance(taken_at);
            Ok(memories)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint_queries::tests::tenant;

    #[test]
    fn one_task_checks_the_reads_of_many_requests() {
        let (tenant_id, store_id) = (tenant(1), StoreId::from_uuid(Uuid::nil()));
        let (at, log) = (Timestamp::from_micros(1), Log::new(Timestamp::from_micros(0)));
        let add = |number| {
            log.add_unchecked(tenant_id, vec![(store_id, MemoryId::from_uuid(Uuid::from_u128(number)), at)])
        };
        let next = || log.next_unchecked(tenant_id).map(|(_, reads)| reads.len());
        assert_eq!([1, 2, 2].map(add), [AddedReads::NeedTask, AddedReads::Wait, AddedReads::Wait]);
        assert_eq!(next(), Some(2));
        assert_eq!(add(3), AddedReads::Wait, "the task is not at its end");
        assert_eq!([next(), next()], [Some(1), None]);
        assert_eq!(add(4), AddedReads::NeedTask);
        log.forget_unchecked(tenant_id);
        assert_eq!(add(5), AddedReads::NeedTask);
    }
}
