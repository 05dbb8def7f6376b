//! `expire-versions`: drops versions that were kept for long enough.
//!
//! A deleted memory goes with all its versions a retention after its deletion.
//! Of a live one the current version stays, and every other does unless its
//! tenant limits their age or number: then it goes a retention after it was
//! superseded. Blobs that no row names any more are queued for deletion.

use std::time::Duration;

use async_trait::async_trait;
use keepsake_core::{Limits, Timestamp};
use keepsake_index::{History, Outdated, VersionBatch};
use serde_json::{Value, json};

use super::{Job, Lease};
use crate::{Engine, EngineError};

/// Stores looked for at a time.
const STORES: u32 = 100;
/// Rows of one batch: one transaction, for which the store's writers wait.
const BATCH_ROWS: u32 = 500;

/// Drops old versions, daily, store by store, in batches; where a run ended, the
/// next one goes on, since what is left of a history says itself what may go.
#[derive(Debug, Clone, Copy)]
pub struct ExpireVersions;

#[async_trait]
impl Job for ExpireVersions {
    fn name(&self) -> &'static str {
        "expire-versions"
    }

    /// Each ten minutes, so that a run that was broken off is soon taken up.
    fn schedule(&self) -> &'static str {
        "10 4/10 * * * *"
    }

    fn period(&self) -> Duration {
        Duration::from_hours(24)
    }

    fn can_be_dry(&self) -> bool {
        true
    }

    async fn run(&self, engine: &Engine, lease: &Lease<'_>) -> Result<Value, EngineError> {
        let mut run = Run {
            engine,
            lease,
            now: engine.now(),
            counts: Counts::default(),
        };
        let mut after = None;
        loop {
            let histories = engine.0.index.histories(after, STORES).await?;
            let Some(last) = histories.last() else {
                return Ok(run.report());
            };
            after = Some((last.tenant_id, last.store_id));
            for history in &histories {
                match run.one(history).await {
                    Ok(true) => {}
                    Ok(false) => return Ok(run.report()),
                    // It must not keep the others from their end.
                    Err(error) => {
                        run.counts.failed += 1;
                        tracing::warn!(
                            tenant.id = %history.tenant_id, store.id = %history.store_id, error = %error,
                            "job.expire_versions: a store could not be seen to; the next run tries again"
                        );
                    }
                }
            }
            if !lease.renew(None).await? {
                return Ok(run.report());
            }
        }
    }
}

/// What a run has done, or would do.
#[derive(Debug, Default)]
struct Counts {
    versions: u64,
    memories: u64,
    blobs: u64,
    failed: u64,
}

/// One run.
struct Run<'a> {
    engine: &'a Engine,
    lease: &'a Lease<'a>,
    now: Timestamp,
    counts: Counts,
}

impl Run<'_> {
    fn report(&self) -> Value {
        let Counts {
            versions,
            memories,
            blobs,
            failed,
        } = self.counts;
        if self.lease.dry_run() {
            json!({"would_drop_versions": versions, "would_forget_memories": memories, "failed": failed})
        } else {
            json!({"versions": versions, "memories": memories, "blobs": blobs, "failed": failed})
        }
    }

    /// Drops what may go of one store; `false`: it has to stop.
    async fn one(&mut self, history: &History) -> Result<bool, EngineError> {
        let limits = self.engine.0.limits.with(&history.limits);
        let by = self.ago(limits.version_retention_secs);
        if history.deleted_at.is_some_and(|deleted_at| deleted_at <= by) {
            let outdated = Outdated::Deleted { by };
            if !self.batches(history, outdated, history.retention_seq).await? {
                return Ok(false);
            }
        }
        match self.superseded(&limits, by) {
            Some(outdated) => self.batches(history, outdated, 0).await,
            None => Ok(true),
        }
    }

    /// What may go of live memories; `None`: nothing.
    fn superseded(&self, limits: &Limits, by: Timestamp) -> Option<Outdated> {
        let set = |limit: u64| Some(limit).filter(|limit| *limit > 0);
        let made_by = set(limits.version_age_secs).map(|secs| self.ago(secs));
        let beyond = set(limits.versions_per_memory);
        (made_by.is_some() || beyond.is_some()).then_some(Outdated::Superseded { by, made_by, beyond })
    }

    fn ago(&self, secs: u64) -> Timestamp {
        self.now.minus(Duration::from_secs(secs))
    }

    async fn batches(
        &mut self,
        history: &History,
        outdated: Outdated,
        mut after: i64,
    ) -> Result<bool, EngineError> {
        loop {
            let batch = VersionBatch {
                store_id: history.store_id,
                outdated,
                after,
                blobs_go_from: self.engine.blobs_go_from(self.now),
                limit: BATCH_ROWS,
                dry_run: self.lease.dry_run(),
            };
            let index = &self.engine.0.index;
            let taken = index.take_outdated(history.tenant_id, &batch).await?;
            self.counts.versions += taken.versions;
            self.counts.memories += taken.memories;
            self.counts.blobs += taken.blobs;
            after = taken.next;
            if !self.lease.renew(None).await? {
                return Ok(false);
            }
            if taken.is_done {
                return Ok(true);
            }
        }
    }
}
