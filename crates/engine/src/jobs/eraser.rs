//! Carries out erasures: rows first, then blobs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt};
use keepsake_blobs::BlobError;
use keepsake_core::{BlobKey, ErasureId, ObjectVersions, StoreId, Surface, TenantId};
use keepsake_index::{Auditor, ErasedBlobs, IndexError, RowsErased, UseNumbers};
use tracing::Instrument;

use super::Lease;
use crate::EngineError;
use crate::context::Context;
use crate::shared::Shared;

/// Rows of one batch. A batch is one transaction, which may block other writers.
const BATCH_ROWS: u32 = 1000;
const BATCH_BLOBS: u32 = 100;
const BLOBS_AT_ONCE: usize = 16;
/// How long a worker holds an erasure after its last batch.
pub(super) const HELD_FOR: Duration = Duration::from_mins(2);
/// Delay before a failed attempt is retried.
const RETRY_AFTER: Duration = Duration::from_secs(45);
/// How often an attempt tries to empty the log of the index while reads prevent it.
const LOG_TRIES: u32 = 10;
const LOG_RETRY_DELAY: Duration = Duration::from_millis(500);

/// How long the replica collects erasures whose rows are erased: the database rewrites
/// its file once for all of them. It is shorter than the time that a worker holds an
/// erasure.
const ROUND: Duration = Duration::from_secs(30);

/// Starts an erasure in the background.
pub(crate) fn begin_erasure(shared: &Arc<Shared>, tenant_id: TenantId, erasure_id: ErasureId) {
    if !shared.erasure_queue.push((tenant_id, erasure_id)) {
        return;
    }
    let shared = Arc::clone(shared);
    let writes = shared.context.writes.clone();
    writes.spawn(async move {
        while !shared.context.writes.is_closed() {
            erase_waiting(&shared).await;
            if shared.erasure_queue.end() {
                return;
            }
        }
    });
}

/// Carries out the waiting erasures in two steps; the rows of all erasures are
/// overwritten together. On shutdown the job `erase` finishes them on any replica.
async fn erase_waiting(shared: &Shared) {
    let (mut erased, began_at) = (Vec::new(), Instant::now());
    while began_at.elapsed() < ROUND && !shared.context.writes.is_closed() {
        let Some((tenant_id, erasure_id)) = shared.erasure_queue.next() else {
            break;
        };
        let work = Work { shared, lease: None, tenant_id, erasure_id };
        match work.recorded(work.erase()).await {
            Ok(Ok(true)) => erased.push(work),
            Ok(_) => {}
            Err(error) => work.warn(&error),
        }
    }
    for work in erased {
        if shared.context.writes.is_closed() {
            return;
        }
        // The first erasure has the database rewritten, also for the others.
        if let Err(error) = work.recorded(work.end()).await {
            work.warn(&error);
        }
    }
}

/// Finishes an erasure, or records the error in it.
pub(super) async fn attempt(
    lease: &Lease<'_>,
    tenant_id: TenantId,
    erasure_id: ErasureId,
) -> Result<ErasureAttempt, EngineError> {
    let work = Work { shared: lease.shared, lease: Some(lease), tenant_id, erasure_id };
    let run = async { if work.erase().await? { work.end().await } else { Ok(ErasureAttempt::Stopped) } };
    Ok(work.recorded(run).await?.unwrap_or(ErasureAttempt::Failed))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErasureAttempt {
    Done,
    /// The error is recorded; a later attempt retries.
    Failed,
    /// Another worker finished the erasure, or another erasure still has blobs of the
    /// same stores: a later attempt checks again.
    NotEnded,
    /// The process is shutting down, or the lease was lost.
    Stopped,
}

#[derive(Debug, Clone, Copy)]
struct Work<'a> {
    shared: &'a Shared,
    /// `None` in the replica that received the request: that replica needs no lease.
    lease: Option<&'a Lease<'a>>,
    tenant_id: TenantId,
    erasure_id: ErasureId,
}

impl Work<'_> {
    fn context(&self) -> &Context {
        &self.shared.context
    }

    fn warn(self, error: &EngineError) {
        tracing::warn!(
            tenant.id = %self.tenant_id, erasure.id = %self.erasure_id, error = %error,
            "engine.erase could not continue; the job does"
        );
    }

    /// Runs a step of the erasure, and records the step's error in the erasure; the inner
    /// error is recorded.
    async fn recorded<T>(
        self,
        step: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<Result<T, EngineError>, EngineError> {
        let span = tracing::info_span!("engine.erase", tenant.id = %self.tenant_id);
        let error = match step.instrument(span).await {
            Ok(done) => return Ok(Ok(done)),
            Err(error) => error,
        };
        tracing::warn!(
            tenant.id = %self.tenant_id, erasure.id = %self.erasure_id, error = %error,
            "job.erase: an erasure was broken off; it is tried again"
        );
        let retry_at = self.context().now().plus(RETRY_AFTER);
        let index = &self.context().index;
        index.erasures.fail(self.tenant_id, self.erasure_id, word_of(&error), retry_at).await?;
        Ok(Err(error))
    }

    /// `false`: the run must stop.
    async fn erase(self) -> Result<bool, EngineError> {
        let Some(erased) = self.erase_rows().await? else {
            return Ok(false);
        };
        if !self.erase_blobs().await? {
            return Ok(false);
        }
        for store_id in erased.whole_stores {
            self.erase_rest_of(store_id).await?;
            if !self.goes_on().await? {
                return Ok(false);
            }
        }
        for store_id in erased.part_stores {
            if !self.erase_older_versions(store_id).await? {
                return Ok(false);
            }
        }
        let mut waiting = self.shared.erasure_queue.0.lock();
        waiting.erased.entry(self.erasure_id).or_default();
        Ok(true)
    }

    /// The rows and blobs of the erasure must be erased.
    async fn end(self) -> Result<ErasureAttempt, EngineError> {
        self.overwrite_rows().await?;
        self.shared.erasure_queue.0.lock().erased.remove(&self.erasure_id);
        let index = &self.context().index;
        let audited = self.context().audited(Auditor::Job);
        let has_ended = index.erasures.finish(self.tenant_id, self.erasure_id, &audited).await?;
        Ok(if has_ended { ErasureAttempt::Done } else { ErasureAttempt::NotEnded })
    }

    /// Makes the database overwrite the deleted rows in its files and log.
    async fn overwrite_rows(self) -> Result<(), EngineError> {
        let index = &self.context().index;
        let found = index.erasures.find(self.tenant_id, self.erasure_id).await?;
        if !found.is_some_and(|erasure| erasure.removed.has_rows()) {
            return Ok(());
        }
        let queue = &self.shared.erasure_queue;
        // Overwriting blocks all writers, so it runs once for all erasures whose rows are
        // gone by now, and not again for an attempt that only has to empty the log.
        let erased = queue.0.lock().erased.clone();
        if erased.get(&self.erasure_id) == Some(&false) {
            index.erasures.overwrite_deleted().await?;
            let mut waiting = queue.0.lock();
            waiting
                .erased
                .iter_mut()
                .filter(|(erasure_id, _)| erased.contains_key(erasure_id))
                .for_each(|(_, is_overwritten)| *is_overwritten = true);
        }
        let mut tries = 1;
        while !index.erasures.empty_log().await? {
            if tries == LOG_TRIES {
                return Err(EngineError::Conflict("the index is read without a pause"));
            }
            tries += 1;
            tokio::time::sleep(LOG_RETRY_DELAY).await;
        }
        Ok(())
    }

    /// Whether to continue with another batch.
    async fn goes_on(self) -> Result<bool, EngineError> {
        match self.lease {
            Some(lease) => lease.renew(None).await,
            None => Ok(!self.context().writes.is_closed()),
        }
    }

    /// The stores of the erasure; `None`: the run must stop.
    async fn erase_rows(self) -> Result<Option<RowsErased>, EngineError> {
        loop {
            let now = self.context().now();
            let step = self.context().index.erasures.erase_rows(
                self.tenant_id,
                self.erasure_id,
                now,
                now.plus(HELD_FOR),
                BATCH_ROWS,
            );
            let step = step.await?;
            if let Some((store_id, memories)) = step.live_memories {
                let numbers = UseNumbers { growth: -memories, ..UseNumbers::default() };
                let store = (self.tenant_id, store_id);
                self.context().use_counts.note_changes(store, Surface::Api, now, numbers);
            }
            if step.is_done {
                return Ok(Some(step));
            }
            if !self.goes_on().await? {
                return Ok(None);
            }
        }
    }

    /// `false`: the run must stop.
    async fn erase_blobs(self) -> Result<bool, EngineError> {
        let index = &self.context().index;
        loop {
            let keys = index.erasures.queued_blobs(self.tenant_id, self.erasure_id, BATCH_BLOBS).await?;
            if keys.is_empty() {
                return Ok(true);
            }
            self.erase_keys(keys, true).await?;
            if !self.goes_on().await? {
                return Ok(false);
            }
        }
    }

    /// `are_queued` says whether the blobs have rows in the deletion queue.
    async fn erase_keys(self, keys: Vec<BlobKey>, are_queued: bool) -> Result<(), EngineError> {
        let outcomes: Vec<_> = stream::iter(keys)
            .map(|key| async move { (key, self.erase_blob(&key).await) })
            .buffer_unordered(BLOBS_AT_ONCE)
            .collect()
            .await;
        for became in [ObjectVersions::Deleted, ObjectVersions::NotVersioned, ObjectVersions::Kept] {
            let same = outcomes.iter().filter(|(_, outcome)| matches!(outcome, Ok(one) if *one == became));
            let keys: Vec<_> = same.map(|(key, _)| *key).collect();
            let many = keys.len() as u64;
            match are_queued {
                _ if keys.is_empty() => {}
                true => self.count(keys, 0, became).await?,
                false => self.count(Vec::new(), many, became).await?,
            }
        }
        match outcomes.into_iter().find(|(_, outcome)| outcome.is_err()) {
            Some((_, Err(error))) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Erases older object versions of blobs that were deleted earlier, for
    /// example by retention, from a store that stays; `false`: the run must
    /// stop.
    ///
    /// No row records the paths of these blobs any longer, so all of them are
    /// erased. A blob that a version names is kept, and so is an orphan with a
    /// tombstone.
    async fn erase_older_versions(self, store_id: StoreId) -> Result<bool, EngineError> {
        let shared = self.context();
        let mut after = None;
        loop {
            let listed = shared
                .blobs
                .list_removed(self.tenant_id, store_id, after.as_ref(), BATCH_BLOBS as usize)
                .await?;
            let Some(removed) = listed else {
                self.count(Vec::new(), 0, ObjectVersions::Kept).await?;
                return Ok(true);
            };
            let Some(last) = removed.last().copied() else {
                return Ok(true);
            };
            let ids: Vec<_> = removed.iter().map(|key| key.blob_id).collect();
            let forgotten = shared.index.erasures.forgotten_blobs(self.tenant_id, store_id, &ids).await?;
            let mut keys = removed;
            keys.retain(|key| forgotten.contains(&key.blob_id));
            self.erase_keys(keys, false).await?;
            after = Some(last);
            if !self.goes_on().await? {
                return Ok(false);
            }
        }
    }

    /// Also checks that the blob no longer exists.
    async fn erase_blob(self, key: &BlobKey) -> Result<ObjectVersions, BlobError> {
        let blobs = &self.context().blobs;
        let erased = blobs.erase(key).await?;
        if blobs.contains(key).await? {
            return Err(BlobError::Unavailable("a blob is there after it was erased".to_owned()));
        }
        Ok(erased)
    }

    /// Erases blobs of a deleted store that no row names: blobs of writes that
    /// were never committed, and older object versions of deleted blobs.
    async fn erase_rest_of(self, store_id: StoreId) -> Result<(), EngineError> {
        let blobs = &self.context().blobs;
        let rest = blobs.erase_all(self.tenant_id, Some(store_id), None, usize::MAX).await?;
        self.count(Vec::new(), rest.gone, rest.of_gone()).await?;
        if rest.became == ObjectVersions::Kept {
            self.count(Vec::new(), rest.kept, rest.became).await?;
        }
        Ok(())
    }

    async fn count(
        self,
        keys: Vec<BlobKey>,
        orphans: u64,
        object_versions: ObjectVersions,
    ) -> Result<(), EngineError> {
        let blobs = ErasedBlobs { keys, orphans, object_versions };
        let until = self.context().now().plus(HELD_FOR);
        let index = &self.context().index;
        index.erasures.blobs_erased(self.tenant_id, self.erasure_id, &blobs, until).await?;
        Ok(())
    }
}

/// The error code in a receipt; it contains no text from users.
const fn word_of(error: &EngineError) -> &'static str {
    match error {
        EngineError::Blobs(BlobError::Denied(_)) => "object_store_denied",
        EngineError::Blobs(BlobError::Misconfigured(_)) => "object_store_misconfigured",
        EngineError::Index(IndexError::DiskFull(_) | IndexError::DiskFailed(_)) => "disk_full",
        EngineError::Blobs(_) => "object_store_unavailable",
        EngineError::Index(_) => "index_unavailable",
        EngineError::Conflict(_) => "index_busy",
        _ => "internal",
    }
}
