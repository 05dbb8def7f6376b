//! `expire-versions`: deletes versions after their retention.
//!
//! A deleted memory loses all its versions one retention after its deletion. A
//! live memory keeps its current version. Its other versions are kept too,
//! unless the tenant limits their age or number: then a version beyond the
//! limit is deleted one retention after it was superseded. Blobs that no row
//! names any longer are queued for deletion.

use std::time::Duration;

use async_trait::async_trait;
use keepsake_core::{Limits, Timestamp};
use keepsake_index::{History, Outdated, VersionBatch};
use serde_json::{Value, json};

use super::{Job, Lease};
use crate::{Engine, EngineError};

/// Stores read per query.
const STORES: u32 = 100;
/// Rows of one batch: one transaction, which blocks the store's writers.
const BATCH_ROWS: u32 = 500;

/// Deletes old versions daily, store by store, in batches. It needs no cursor:
/// the next run continues with the versions that remain.
#[derive(Debug, Clone, Copy)]
pub struct ExpireVersions;

#[async_trait]
impl Job for ExpireVersions {
    fn name(&self) -> &'static str {
        "expire-versions"
    }

    /// Every ten minutes, so that an interrupted run is soon resumed.
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
            let histories = engine.0.index.retention.histories(after, STORES).await?;
            let Some(last) = histories.last() else {
                return Ok(run.report());
            };
            after = Some((last.tenant_id, last.store_id));
            for history in &histories {
                match run.one(history).await {
                    Ok(true) => {}
                    Ok(false) => return Ok(run.report()),
                    // One failed store must not stop the others from being
                    // processed.
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

/// The counts of a run, or of a dry run.
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

    /// Deletes the old versions of one store; `false`: the run must stop.
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

    /// Which versions of live memories to delete; `None`: none.
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
            let taken = index.retention.remove(history.tenant_id, &batch).await?;
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
