//! `drain-deletions`: removes blobs that no row names any longer.

use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, StreamExt, TryStreamExt};
use keepsake_index::DueDeletion;
use serde_json::{Value, json};

use super::{Job, Lease};
use crate::purge::warn_of_kept_versions;
use crate::{Engine, EngineError};

/// Blobs of one batch.
const BATCH: u32 = 100;
/// Blobs removed concurrently.
const REMOVALS_AT_ONCE: usize = 16;
/// Delay before the first retry of a failed removal; doubles with each failure.
const FIRST_RETRY: Duration = Duration::from_secs(30);
/// Longest delay between retries.
const LAST_RETRY: Duration = Duration::from_hours(6);
/// How long an orphan stays condemned after its removal: longer than the
/// longest write that could still try to commit it.
const ORPHAN_CONDEMNED_FOR: Duration = Duration::from_hours(720);

/// Removes queued blobs every minute; failed removals are retried later.
#[derive(Debug, Clone, Copy)]
pub struct DrainDeletions;

#[async_trait]
impl Job for DrainDeletions {
    fn name(&self) -> &'static str {
        "drain-deletions"
    }

    fn schedule(&self) -> &'static str {
        "0 * * * * *"
    }

    fn period(&self) -> Duration {
        Duration::from_mins(1)
    }

    async fn run(&self, engine: &Engine, lease: &Lease<'_>) -> Result<Value, EngineError> {
        let (mut removed, mut failed) = (0_u64, 0_u64);
        let queue = &engine.0.index.blob_deletions;
        loop {
            let due = queue.due(engine.now(), BATCH).await?;
            if due.is_empty() {
                break;
            }
            let many = due.len() as u64;
            let gone: Vec<_> = stream::iter(due)
                .map(|deletion| async move {
                    let is_gone = self.remove(engine, lease, &deletion).await?;
                    Ok::<_, EngineError>(is_gone.then_some(deletion))
                })
                .buffer_unordered(REMOVALS_AT_ONCE)
                .try_filter_map(|gone| std::future::ready(Ok(gone)))
                .try_collect()
                .await?;
            removed += gone.len() as u64;
            failed += many - gone.len() as u64;
            let orphans_until = engine.now().plus(ORPHAN_CONDEMNED_FOR);
            let has_lease = queue.finish(&gone, orphans_until, Some(&lease.fence())).await?;
            if !has_lease || !lease.renew(None).await? {
                break;
            }
        }
        Ok(json!({ "removed": removed, "failed": failed }))
    }
}

impl DrainDeletions {
    /// Removes one blob, or schedules a retry.
    async fn remove(
        &self,
        engine: &Engine,
        lease: &Lease<'_>,
        deletion: &DueDeletion,
    ) -> Result<bool, EngineError> {
        let key = &deletion.key;
        let removed = if deletion.reason.is_for_good() {
            let erased = engine.0.blobs.erase(key).await;
            erased.map(|erased| warn_of_kept_versions(key, erased))
        } else {
            engine.0.blobs.delete(key).await
        };
        let Err(error) = removed else {
            return Ok(true);
        };
        tracing::warn!(blob.key = %deletion.key, attempts = deletion.attempts, error = %error, "blob.delete failed");
        let wait = FIRST_RETRY
            .saturating_mul(1 << deletion.attempts.min(20))
            .min(LAST_RETRY);
        let queue = &engine.0.index.blob_deletions;
        let not_before = engine.now().plus(wait);
        queue.postpone(deletion, not_before, &lease.fence()).await?;
        Ok(false)
    }
}
