//! `expire-unused`: deletes memories that were unused for their period, and
//! memories whose expiry time has come.
//!
//! The period is the store's, or else its tenant's; without either, only memories
//! with an expiry time expire. An expired memory gets a `deleted` version without
//! an actor, and it can be restored while its versions are kept. Pinned memories
//! never expire. Unused memories of a store that a session uses are kept; those
//! whose expiry time has come are not.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use keepsake_core::{MemoryId, StoreId, Surface, TenantId, Timestamp, VersionId};
use keepsake_index::{
    DueMemory, Expiration, ExpirationCause, IdleStore, IdleStores, Life, PeriodOf, SESSION_KEEPS_FOR,
    UseNumbers,
};
use serde_json::{Value, json};

use super::removal::{RemovalScope, Selection, Step, remove_all};
use super::{Job, JobPlan, Lease, MINUTE};
use crate::EngineError;
use crate::context::Context;
use crate::shared::Shared;

const STORES: u32 = 100;
const LIVES: u32 = 1000;
/// Memories deleted in one commit, which blocks the store's writers.
const BATCH: usize = 100;
/// Upper bound of the clock difference between two replicas. A memory created
/// now is never dated earlier than this long ago.
const CLOCKS_AGREE_WITHIN: Duration = Duration::from_hours(1);

/// Expires memories hourly: those whose expiry time has come, then unused ones,
/// store by store.
///
/// Replicas write their reads with a delay. So a run only counts time up to
/// which every replica has written its reads, and expires nothing while a live
/// replica cannot write its reads. Each store records since when none of its
/// memories can have expired. So the next run continues an interrupted one, and
/// a repeated run finds nothing.
#[derive(Debug, Clone, Copy)]
pub struct ExpireUnused;

#[async_trait]
impl Job for ExpireUnused {
    fn plan(&self) -> JobPlan {
        JobPlan { name: "expire-unused", schedule: "50 3/10 * * * *", period: 60 * MINUTE, can_be_dry: true }
    }

    async fn run(&self, shared: &Shared, lease: &Lease<'_>) -> Result<Value, EngineError> {
        // The job writes its own reads first, so that a single process need not wait.
        shared.replica.flush().await?;
        let now = shared.context.now();
        let mut due = DueMemories {
            context: &shared.context,
            is_dry: lease.dry_run(),
            until: now,
            after: None,
            memories: 0,
        };
        let failed_due = remove_all(&mut due, lease).await?;
        let flush = shared.context.index.unused.access_flush(now).await?;
        let until = flush.through.map_or(now, |through| through.min(now));
        let mut unused = UnusedMemories {
            context: &shared.context,
            is_dry: lease.dry_run(),
            wanted: IdleStores { period_of: PeriodOf::Store, after: None, until, limit: STORES },
            stores: 0,
            in_use: 0,
            memories: 0,
        };
        let failed = if flush.is_stalled {
            tracing::warn!(
                "job.expire_unused: a replica does not write its access times; no unused memory expires"
            );
            0
        } else {
            remove_all(&mut unused, lease).await?
        };
        let expired = if lease.dry_run() { "would_expire" } else { "expired" };
        Ok(json!({
            "stores": unused.stores,
            "in_use": unused.in_use,
            expired: unused.memories + due.memories,
            "at_expiry_time": due.memories,
            "failed": failed + failed_due,
            "reads_written_through": until.to_rfc3339(),
            "is_stalled": flush.is_stalled,
        }))
    }
}

struct UnusedMemories<'a> {
    context: &'a Context,
    is_dry: bool,
    /// The next page of stores: first those with their own period, then those with their tenant's.
    /// All reads up to its time are written.
    wanted: IdleStores,
    stores: u64,
    /// Number of stores that a session uses.
    in_use: u64,
    memories: u64,
}

struct StoreProgress {
    store: IdleStore,
    /// Since when none of the store's live memories can have expired; `None` before the
    /// first batch.
    idle_since: Option<Timestamp>,
    /// The last memory that the job has listed.
    after: Option<MemoryId>,
    /// Listed memories that were unused for their period and are to expire.
    over: Vec<Life>,
}

impl Selection for UnusedMemories<'_> {
    type Item = StoreProgress;

    fn place(StoreProgress { store, .. }: &StoreProgress) -> Option<RemovalScope> {
        Some((store.tenant_id, Some(store.store_id)))
    }

    async fn page(&mut self, _: u32) -> Result<Vec<StoreProgress>, EngineError> {
        loop {
            let stores = self.context.index.unused.idle_stores(&self.wanted).await?;
            let last = stores.last();
            self.wanted.after = last.map(|last| (last.tenant_id, last.store_id));
            if self.wanted.after.is_some() || self.wanted.period_of == PeriodOf::Tenant {
                let idle = stores.into_iter().map(|store| StoreProgress {
                    store,
                    idle_since: None,
                    after: None,
                    over: Vec::new(),
                });
                return Ok(idle.collect());
            }
            self.wanted.period_of = PeriodOf::Tenant;
        }
    }

    async fn batch(&mut self, idle: &mut StoreProgress) -> Result<Step, EngineError> {
        if idle.idle_since.is_none() {
            idle.idle_since = self.begin(idle.store).await?;
        }
        let Some(mut idle_since) = idle.idle_since else {
            return Ok(Step::Done);
        };
        if idle.over.is_empty() {
            let step = self.read_lives(idle, idle_since).await?;
            if idle.over.is_empty() {
                return Ok(step);
            }
            idle_since = idle.idle_since.unwrap_or(idle_since);
        }
        let many = idle.over.len().min(BATCH);
        let batch: Vec<_> = idle.over.drain(..many).collect();
        let expired = self.expire(idle.store, &batch).await?;
        if expired < batch.len() as u64 {
            // Some memories were used meanwhile: the next run checks them again.
            idle.idle_since = Some(idle_since.min(idle.store.idle_since));
        }
        self.memories += expired;
        Ok(Step::More)
    }
}

impl UnusedMemories<'_> {
    /// The latest possible value of `idle_since`: the clocks of other replicas may be behind.
    /// `None`: no memory of the store can expire now.
    async fn begin(&mut self, store: IdleStore) -> Result<Option<Timestamp>, EngineError> {
        if !store.may_have_expired(self.wanted.until) {
            return Ok(None);
        }
        let unused = &self.context.index.unused;
        let used_at = unused.last_session_use(store.tenant_id, store.store_id).await?;
        if used_at.is_some_and(|used_at| used_at.plus(SESSION_KEEPS_FOR) > self.wanted.until) {
            // The session may read its own copies of the memories, which is not
            // recorded.
            self.in_use += 1;
            self.stores += 1;
            return Ok(None);
        }
        Ok(Some(self.context.now().minus(CLOCKS_AGREE_WITHIN)))
    }

    /// After the last memory, records since when the store is idle.
    async fn read_lives(
        &mut self,
        idle: &mut StoreProgress,
        idle_since: Timestamp,
    ) -> Result<Step, EngineError> {
        let (unused, store) = (&self.context.index.unused, idle.store);
        let lives = unused.lives(store.tenant_id, store.store_id, idle.after, LIVES).await?;
        let Some(last) = lives.last() else {
            if !self.is_dry {
                unused.set_idle_since(store.tenant_id, store.store_id, idle_since).await?;
            }
            self.stores += 1;
            return Ok(Step::Done);
        };
        idle.after = Some(last.memory_id);
        let (over, on): (Vec<_>, Vec<_>) =
            lives.into_iter().partition(|life| life.is_over(store.expiry, self.wanted.until));
        let alive_at = on.iter().map(Life::alive_at).min();
        let idle_since = alive_at.map_or(idle_since, |alive_at| alive_at.min(idle_since));
        idle.idle_since = Some(idle_since);
        idle.over = over;
        Ok(Step::More)
    }

    async fn expire(&self, store: IdleStore, lives: &[Life]) -> Result<u64, EngineError> {
        if self.is_dry {
            // `DueMemories` has counted the due memories already.
            let now = self.context.now();
            return Ok(lives.iter().filter(|life| !life.is_due(now)).count() as u64);
        }
        let cause = ExpirationCause::Unused { expiry: store.expiry, until: self.wanted.until };
        let memory_ids = lives.iter().map(|life| life.memory_id);
        expire(self.context, (store.tenant_id, store.store_id), cause, memory_ids).await
    }
}

/// The memories whose expiry time has come, the earliest first.
struct DueMemories<'a> {
    context: &'a Context,
    is_dry: bool,
    until: Timestamp,
    after: Option<DueMemory>,
    memories: u64,
}

impl Selection for DueMemories<'_> {
    type Item = ((TenantId, StoreId), Vec<MemoryId>);

    fn place(((tenant_id, store_id), _): &Self::Item) -> Option<RemovalScope> {
        Some((*tenant_id, Some(*store_id)))
    }

    async fn page(&mut self, _: u32) -> Result<Vec<Self::Item>, EngineError> {
        let unused = &self.context.index.unused;
        let page = unused.due(self.after, self.until, LIVES).await?;
        self.after = page.last().copied().or(self.after);
        let mut by_store = BTreeMap::<_, Vec<_>>::new();
        for due in page {
            let memories = by_store.entry((due.tenant_id, due.store_id)).or_default();
            memories.push(due.memory_id);
        }
        Ok(by_store.into_iter().collect())
    }

    async fn batch(&mut self, (store, memories): &mut Self::Item) -> Result<Step, EngineError> {
        if memories.is_empty() {
            return Ok(Step::Done);
        }
        let batch = memories.drain(..memories.len().min(BATCH));
        self.memories += if self.is_dry {
            batch.len() as u64
        } else {
            expire(self.context, *store, ExpirationCause::Due, batch).await?
        };
        Ok(Step::More)
    }
}

/// Returns the number of deleted memories. They count for the growth of the store, not as writes.
async fn expire(
    context: &Context,
    (tenant_id, store_id): (TenantId, StoreId),
    cause: ExpirationCause,
    memory_ids: impl Iterator<Item = MemoryId>,
) -> Result<u64, EngineError> {
    let now = context.now();
    let version_id = || VersionId::from_uuid(context.ids.uuid(now));
    let expiration = Expiration {
        store_id,
        cause,
        memories: memory_ids.map(|memory_id| (memory_id, version_id())).collect(),
        now,
        replica: context.replica,
    };
    let expired = context.index.unused.expire(tenant_id, &expiration).await?;
    if expired > 0 {
        let growth = 0_i64.saturating_sub_unsigned(expired);
        let numbers = UseNumbers { growth, ..UseNumbers::default() };
        context.use_counts.note_changes((tenant_id, store_id), Surface::Api, now, numbers);
    }
    Ok(expired)
}
