//! `expire-versions`: deletes versions after their retention.
//!
//! A deleted memory loses all its versions one retention after its deletion. A
//! live memory keeps its current version. Its other versions are kept too,
//! unless the tenant limits their age or number: then a version beyond the
//! limit is deleted one retention after it was superseded. Blobs that no row
//! names any longer are queued for deletion.

use std::collections::VecDeque;
use std::time::Duration;

use async_trait::async_trait;
use keepsake_core::{Limits, StoreId, TenantId, Timestamp};
use keepsake_index::{CLOCK_AHEAD_AT_MOST, History, OutdatedPart, VersionBatch};
use serde_json::{Value, json};

use super::removal::{RemovalScope, Selection, Step, remove_all};
use super::{DAY, Job, JobPlan, Lease};
use crate::EngineError;
use crate::context::Context;
use crate::shared::Shared;

const STORES: u32 = 100;
/// Rows of one batch. A batch is one transaction, which blocks the store's writers.
const BATCH_ROWS: u32 = 500;

/// Deletes old versions daily, store by store, in batches. The job needs no cursor: the
/// next run continues with the versions that remain.
#[derive(Debug, Clone, Copy)]
pub struct ExpireVersions;

#[async_trait]
impl Job for ExpireVersions {
    fn plan(&self) -> JobPlan {
        JobPlan { name: "expire-versions", schedule: "10 4/10 * * * *", period: DAY, can_be_dry: true }
    }

    async fn run(&self, shared: &Shared, lease: &Lease<'_>) -> Result<Value, EngineError> {
        let mut outdated = OutdatedVersions {
            context: &shared.context,
            is_dry: lease.dry_run(),
            now: shared.context.now(),
            after: None,
            versions: 0,
            memories: 0,
            blobs: 0,
        };
        let failed = remove_all(&mut outdated, lease).await?;
        let OutdatedVersions { versions, memories, blobs, .. } = outdated;
        Ok(if lease.dry_run() {
            json!({"would_drop_versions": versions, "would_forget_memories": memories, "failed": failed})
        } else {
            json!({"versions": versions, "memories": memories, "blobs": blobs, "failed": failed})
        })
    }
}

struct OutdatedVersions<'a> {
    context: &'a Context,
    is_dry: bool,
    now: Timestamp,
    after: Option<(TenantId, StoreId)>,
    versions: u64,
    memories: u64,
    blobs: u64,
}

/// A store, and the batches that it needs.
struct StoreHistory {
    history: History,
    /// The kinds of outdated versions that are left to remove, the next first, each with the sequence
    /// number after which its next batch starts.
    outdated: VecDeque<(OutdatedPart, i64)>,
}

impl Selection for OutdatedVersions<'_> {
    type Item = StoreHistory;

    fn place(StoreHistory { history, .. }: &StoreHistory) -> Option<RemovalScope> {
        Some((history.tenant_id, Some(history.store_id)))
    }

    async fn page(&mut self, _: u32) -> Result<Vec<StoreHistory>, EngineError> {
        let retention = &self.context.index.retention;
        let histories = retention.histories(self.after, STORES).await?;
        let last = histories.last();
        self.after = last.map(|last| (last.tenant_id, last.store_id));
        let with_outdated = |history| StoreHistory { outdated: self.outdated(&history), history };
        Ok(histories.into_iter().map(with_outdated).collect())
    }

    async fn batch(
        &mut self,
        StoreHistory { history, outdated }: &mut StoreHistory,
    ) -> Result<Step, EngineError> {
        let Some((selected, after)) = outdated.front_mut() else {
            return Ok(Step::Done);
        };
        let batch = VersionBatch {
            store_id: history.store_id,
            outdated: *selected,
            after: *after,
            now: self.now,
            blobs_go_from: self.context.blobs_go_from(self.now),
            limit: BATCH_ROWS,
            dry_run: self.is_dry,
        };
        let retention = &self.context.index.retention;
        let taken = retention.remove(history.tenant_id, &batch).await?;
        self.versions += taken.versions;
        self.memories += taken.memories;
        self.blobs += taken.blobs;
        *after = taken.next;
        if taken.is_done {
            outdated.pop_front();
        }
        Ok(Step::More)
    }
}

impl OutdatedVersions<'_> {
    /// The versions of a store to delete, each kind with the position to start after.
    fn outdated(&self, history: &History) -> VecDeque<(OutdatedPart, i64)> {
        let limits = self.context.limits.with(&history.limits);
        let by = self.ago(limits.version_retention_secs);
        // A time in the future was written by a clock that was ahead. It does not show that
        // no deletion is due, so the batch reads this deletion and those after it.
        let ahead = self.now.plus(CLOCK_AHEAD_AT_MOST);
        let is_due = history.deleted_at.is_some_and(|deleted_at| deleted_at <= by || deleted_at > ahead);
        let deleted = is_due.then_some((OutdatedPart::Deleted { by }, history.retention_seq));
        let superseded = self.superseded(&limits, by).map(|outdated| (outdated, 0));
        deleted.into_iter().chain(superseded).collect()
    }

    /// `None`: no versions of live memories are deleted.
    fn superseded(&self, limits: &Limits, by: Timestamp) -> Option<OutdatedPart> {
        let set = |limit: u64| Some(limit).filter(|limit| *limit > 0);
        let made_by = set(limits.version_age_secs).map(|secs| self.ago(secs));
        let beyond = set(limits.versions_per_memory);
        (made_by.is_some() || beyond.is_some()).then_some(OutdatedPart::Superseded { by, made_by, beyond })
    }

    fn ago(&self, secs: u64) -> Timestamp {
        self.now.minus(Duration::from_secs(secs))
    }
}
