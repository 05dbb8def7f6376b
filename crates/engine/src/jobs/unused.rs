//! `expire-unused`: deletes memories that were unused for their period.
//!
//! The store's period applies, or else its tenant's; without either, nothing
//! expires. An expired memory gets a `deleted` version without an actor, and it
//! can be restored while its versions are kept. Pinned memories never expire,
//! nor do memories of a store that a session uses.

use std::time::Duration;

use async_trait::async_trait;
use keepsake_core::{Timestamp, VersionId};
use keepsake_index::{Expiration, IdleStore, IdleStores, Life, PeriodOf, SESSION_KEEPS_FOR};
use serde_json::{Value, json};

use super::{Job, Lease};
use crate::{Engine, EngineError};

/// Stores read per query.
const STORES: u32 = 100;
/// Memories read per query.
const LIVES: u32 = 1000;
/// Memories deleted in one commit, which blocks the store's writers.
const BATCH: usize = 100;
/// Upper bound of the clock difference between two replicas. A memory created
/// now is never dated earlier than this long ago.
const CLOCKS_AGREE_WITHIN: Duration = Duration::from_hours(1);

/// Expires unused memories hourly, store by store.
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
    fn name(&self) -> &'static str {
        "expire-unused"
    }

    /// Every ten minutes, so that an interrupted run is soon resumed.
    fn schedule(&self) -> &'static str {
        "50 3/10 * * * *"
    }

    fn period(&self) -> Duration {
        Duration::from_hours(1)
    }

    fn can_be_dry(&self) -> bool {
        true
    }

    async fn run(&self, engine: &Engine, lease: &Lease<'_>) -> Result<Value, EngineError> {
        // Writes its own reads first, so that a single process need not wait.
        engine.flush_access().await?;
        let now = engine.now();
        let flush = engine.0.index.unused.access_flush(now).await?;
        let mut run = Run {
            engine,
            lease,
            until: flush.through.map_or(now, |through| through.min(now)),
            is_stalled: flush.is_stalled,
            counts: Counts::default(),
        };
        if flush.is_stalled {
            tracing::warn!("job.expire_unused: a replica does not write its access times; nothing expires");
        } else if run.all(PeriodOf::Store).await? {
            run.all(PeriodOf::Tenant).await?;
        }
        Ok(run.report())
    }
}

/// The counts of a run, or of a dry run.
#[derive(Debug, Default)]
struct Counts {
    stores: u64,
    /// How many of the stores a session uses.
    in_use: u64,
    memories: u64,
    failed: u64,
}

/// One run.
struct Run<'a> {
    engine: &'a Engine,
    lease: &'a Lease<'a>,
    /// All reads up to this time are written.
    until: Timestamp,
    is_stalled: bool,
    counts: Counts,
}

impl Run<'_> {
    fn report(&self) -> Value {
        let Counts {
            stores,
            in_use,
            memories,
            failed,
        } = self.counts;
        let done = if self.lease.dry_run() {
            "would_expire"
        } else {
            "expired"
        };
        json!({
            "stores": stores,
            "in_use": in_use,
            done: memories,
            "failed": failed,
            "reads_written_through": self.until.to_rfc3339(),
            "is_stalled": self.is_stalled,
        })
    }

    /// Processes all stores with one kind of period; `false`: the run must
    /// stop.
    async fn all(&mut self, period_of: PeriodOf) -> Result<bool, EngineError> {
        let mut after = None;
        loop {
            let wanted = IdleStores {
                period_of,
                after,
                until: self.until,
                limit: STORES,
            };
            let stores = self.engine.0.index.unused.idle_stores(&wanted).await?;
            let Some(last) = stores.last() else {
                return Ok(true);
            };
            after = Some((last.tenant_id, last.store_id));
            let until = self.until;
            for store in stores.into_iter().filter(|store| store.may_have_expired(until)) {
                match self.one(store).await {
                    Ok(true) => self.counts.stores += 1,
                    Ok(false) => return Ok(false),
                    // One failed store must not stop the others from being
                    // processed.
                    Err(error) => {
                        self.counts.failed += 1;
                        tracing::warn!(
                            tenant.id = %store.tenant_id, store.id = %store.store_id, error = %error,
                            "job.expire_unused: a store could not be seen to; the next run tries again"
                        );
                    }
                }
            }
            if !self.lease.renew(None).await? {
                return Ok(false);
            }
        }
    }

    /// Expires the unused memories of one store; `false`: the run must stop.
    async fn one(&mut self, store: IdleStore) -> Result<bool, EngineError> {
        let index = &self.engine.0.index;
        let used_at = index
            .unused
            .last_session_use(store.tenant_id, store.store_id)
            .await?;
        if used_at.is_some_and(|used_at| used_at.plus(SESSION_KEEPS_FOR) > self.until) {
            // The session may read its own copies of the memories, which is not
            // recorded.
            self.counts.in_use += 1;
            return Ok(true);
        }
        let mut idle_since = self.engine.now().minus(CLOCKS_AGREE_WITHIN);
        let mut after = None;
        loop {
            let lives = index
                .unused
                .lives(store.tenant_id, store.store_id, after, LIVES)
                .await?;
            let Some(last) = lives.last() else {
                break;
            };
            after = Some(last.memory_id);
            let (over, on): (Vec<_>, Vec<_>) = lives
                .into_iter()
                .partition(|life| life.is_over(store.expiry, self.until));
            let alive_at = on.iter().map(|life| life.alive_at).min();
            idle_since = alive_at.map_or(idle_since, |alive_at| alive_at.min(idle_since));
            for batch in over.chunks(BATCH) {
                let expired = self.expire(store, batch).await?;
                if expired < batch.len() as u64 {
                    // Some were used meanwhile: the next run checks them again.
                    idle_since = idle_since.min(store.idle_since);
                }
                self.counts.memories += expired;
                if !self.lease.renew(None).await? {
                    return Ok(false);
                }
            }
        }
        if !self.lease.dry_run() {
            index
                .unused
                .set_idle_since(store.tenant_id, store.store_id, idle_since)
                .await?;
        }
        Ok(true)
    }

    async fn expire(&self, store: IdleStore, lives: &[Life]) -> Result<u64, EngineError> {
        if self.lease.dry_run() {
            return Ok(lives.len() as u64);
        }
        let engine = self.engine;
        let now = engine.now();
        let version_id = || VersionId::from_uuid(engine.0.ids.uuid(now));
        let expiration = Expiration {
            store_id: store.store_id,
            expiry: store.expiry,
            until: self.until,
            memories: lives.iter().map(|life| (life.memory_id, version_id())).collect(),
            now,
            replica: engine.0.replica,
        };
        Ok(engine.0.index.unused.expire(store.tenant_id, &expiration).await?)
    }
}
