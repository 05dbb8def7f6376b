//! `drain-deletions`: removes blobs that no row names any longer.

use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, StreamExt, TryStreamExt};
use keepsake_index::DueDeletion;
use serde_json::{Value, json};

use super::removal::{Selection, Step, remove_all};
use super::{Job, JobPlan, Lease, MINUTE};
use crate::EngineError;
use crate::context::Context;
use crate::shared::Shared;

const BATCH: u32 = 100;
const REMOVALS_AT_ONCE: usize = 16;
/// Delay before the first retry of a failed removal; doubles with each failure.
const FIRST_RETRY: Duration = Duration::from_secs(30);
/// Longest delay between retries.
const LAST_RETRY: Duration = Duration::from_hours(6);
/// How long an orphan stays condemned after its removal: longer than the
/// longest write that could still try to commit it.
pub(crate) const ORPHAN_CONDEMNED_FOR: Duration = Duration::from_hours(720);

/// Runs every minute; failed removals are retried later.
#[derive(Debug, Clone, Copy)]
pub struct DrainDeletions;

#[async_trait]
impl Job for DrainDeletions {
    fn plan(&self) -> JobPlan {
        JobPlan { name: "drain-deletions", schedule: "0 * * * * *", period: MINUTE, can_be_dry: false }
    }

    async fn run(&self, shared: &Shared, lease: &Lease<'_>) -> Result<Value, EngineError> {
        let mut queue = QueuedBlobs { context: &shared.context, lease, removed: 0, failed: 0 };
        remove_all(&mut queue, lease).await?;
        Ok(json!({ "removed": queue.removed, "failed": queue.failed }))
    }
}

struct QueuedBlobs<'a> {
    context: &'a Context,
    lease: &'a Lease<'a>,
    removed: u64,
    failed: u64,
}

impl Selection for QueuedBlobs<'_> {
    type Item = Vec<DueDeletion>;

    async fn page(&mut self, _: u32) -> Result<Vec<Self::Item>, EngineError> {
        let queue = &self.context.index.blob_deletions;
        let due = queue.due(self.context.now(), BATCH).await?;
        Ok(if due.is_empty() { Vec::new() } else { vec![due] })
    }

    async fn batch(&mut self, due: &mut Vec<DueDeletion>) -> Result<Step, EngineError> {
        let (this, many) = (&*self, due.len() as u64);
        let gone: Vec<_> = stream::iter(std::mem::take(due))
            .map(|deletion| async move {
                let is_gone = this.remove_blob(&deletion).await?;
                Ok::<_, EngineError>(is_gone.then_some(deletion))
            })
            .buffer_unordered(REMOVALS_AT_ONCE)
            .try_filter_map(|gone| std::future::ready(Ok(gone)))
            .try_collect()
            .await?;
        self.removed += gone.len() as u64;
        self.failed += many - gone.len() as u64;
        let orphans_until = self.context.now().plus(ORPHAN_CONDEMNED_FOR);
        let queue = &self.context.index.blob_deletions;
        let has_lease = queue.finish(&gone, orphans_until, Some(&self.lease.fence())).await?;
        Ok(if has_lease { Step::Done } else { Step::Stopped })
    }
}

impl QueuedBlobs<'_> {
    /// `false`: the removal failed and a retry is scheduled.
    async fn remove_blob(&self, deletion: &DueDeletion) -> Result<bool, EngineError> {
        let (context, key) = (self.context, &deletion.key);
        let removed = if deletion.reason.is_for_good() {
            context.erase_blob(key).await
        } else {
            context.blobs.delete(key).await
        };
        let Err(error) = removed else {
            return Ok(true);
        };
        tracing::warn!(blob.key = %key, attempts = deletion.attempts, error = %error, "blob.delete failed");
        let wait = FIRST_RETRY.saturating_mul(1 << deletion.attempts.min(20)).min(LAST_RETRY);
        let queue = &context.index.blob_deletions;
        let not_before = context.now().plus(wait);
        queue.postpone(deletion, not_before, &self.lease.fence()).await?;
        Ok(false)
    }
}
