//! `erase`: takes what is to be erased away, rows first and blobs after them.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, StreamExt};
use keepsake_blobs::{BlobError, Erased};
use keepsake_core::{BlobKey, ErasureId, StoreId, TenantId};
use keepsake_index::{Auditor, ErasedBlobs, IndexError, ObjectVersions, RowsErased};
use serde_json::{Value, json};
use tracing::Instrument;

use super::{Job, Lease};
use crate::{Engine, EngineError};

/// Erasures looked for at a time.
const ERASURES: u32 = 10;
/// Rows of one batch: one transaction, which others may have to wait for.
const BATCH_ROWS: u32 = 1000;
/// Blobs of one batch.
const BATCH_BLOBS: u32 = 100;
/// Blobs erased at the same time.
const BLOBS_AT_ONCE: usize = 16;
/// How long an erasure is left to who works on it, from its last batch.
const HELD_FOR: Duration = Duration::from_mins(2);
/// The wait after an attempt that was broken off: the next run tries again.
const RETRY_AFTER: Duration = Duration::from_secs(45);

/// Ends erasures that the replica that took them could not, each minute; where
/// it ended, the next run goes on.
#[derive(Debug, Clone, Copy)]
pub struct Erase;

#[async_trait]
impl Job for Erase {
    fn name(&self) -> &'static str {
        "erase"
    }

    fn schedule(&self) -> &'static str {
        "40 * * * * *"
    }

    fn period(&self) -> Duration {
        Duration::from_mins(1)
    }

    async fn run(&self, engine: &Engine, lease: &Lease<'_>) -> Result<Value, EngineError> {
        let (mut done, mut failed) = (0_u64, 0_u64);
        loop {
            let open = engine.0.index.open_erasures(engine.now(), ERASURES).await?;
            if open.is_empty() {
                return Ok(json!({ "done": done, "failed": failed }));
            }
            for (tenant_id, erasure_id) in open {
                let work = Work {
                    engine,
                    lease: Some(lease),
                    tenant_id,
                    erasure_id,
                };
                match work.attempt().await? {
                    Attempt::Done => done += 1,
                    Attempt::Failed => failed += 1,
                    Attempt::NotEnded => {}
                    Attempt::Stopped => return Ok(json!({ "done": done, "failed": failed })),
                }
            }
        }
    }
}

/// Erasures that this replica took and works on, one after the other: however
/// many are asked for, they are no more than one client beside the others.
#[derive(Debug, Default)]
pub(crate) struct Queue(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    erasures: VecDeque<(TenantId, ErasureId)>,
    has_worker: bool,
    /// Those whose rows are overwritten already, and whose log is not empty yet.
    rewritten: HashSet<ErasureId>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts one into the queue; `true`: nobody works on it yet.
    fn push(&self, erasure: (TenantId, ErasureId)) -> bool {
        let mut waiting = self.lock();
        waiting.erasures.push_back(erasure);
        !std::mem::replace(&mut waiting.has_worker, true)
    }

    /// The next one; with `None` the worker's work is over.
    fn next(&self) -> Option<(TenantId, ErasureId)> {
        let mut waiting = self.lock();
        let next = waiting.erasures.pop_front();
        waiting.has_worker = next.is_some();
        next
    }
}

/// Begins an erasure in this replica, beside everything else.
pub(crate) fn begin(engine: &Engine, tenant_id: TenantId, erasure_id: ErasureId) {
    if !engine.0.erasures.push((tenant_id, erasure_id)) {
        return;
    }
    let worker = engine.clone();
    engine.0.writes.spawn(async move {
        while let Some((tenant_id, erasure_id)) = worker.0.erasures.next() {
            // The job goes on with them, wherever it runs.
            if worker.0.writes.is_closed() {
                return;
            }
            let work = Work {
                engine: &worker,
                lease: None,
                tenant_id,
                erasure_id,
            };
            let span = tracing::info_span!("engine.erase", tenant.id = %tenant_id);
            if let Err(error) = work.attempt().instrument(span).await {
                tracing::warn!(
                    tenant.id = %tenant_id, erasure.id = %erasure_id, error = %error,
                    "engine.erase could not go on; the job does"
                );
            }
        }
    });
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    Done,
    /// What went wrong is noted; it is tried again.
    Failed,
    /// Another worker ended it, or another erasure has blobs of its stores left:
    /// it is looked at again.
    NotEnded,
    /// The process is about to end, or the lease was lost.
    Stopped,
}

/// One erasure, and the right to work on it.
#[derive(Debug, Clone, Copy)]
struct Work<'a> {
    engine: &'a Engine,
    /// `None`: in the replica that took the request, which needs none.
    lease: Option<&'a Lease<'a>>,
    tenant_id: TenantId,
    erasure_id: ErasureId,
}

impl Work<'_> {
    /// Works to the end, or notes in the erasure why it could not.
    async fn attempt(self) -> Result<Attempt, EngineError> {
        let error = match self.run().await {
            Ok(attempt) => return Ok(attempt),
            Err(error) => error,
        };
        tracing::warn!(
            tenant.id = %self.tenant_id, erasure.id = %self.erasure_id, error = %error,
            "job.erase: an erasure was broken off; it is tried again"
        );
        let retry_at = self.engine.now().plus(RETRY_AFTER);
        let index = &self.engine.0.index;
        index
            .erasure_failed(self.tenant_id, self.erasure_id, word_of(&error), retry_at)
            .await?;
        Ok(Attempt::Failed)
    }

    async fn run(self) -> Result<Attempt, EngineError> {
        let Some(erased) = self.erase_rows().await? else {
            return Ok(Attempt::Stopped);
        };
        if !self.erase_blobs().await? {
            return Ok(Attempt::Stopped);
        }
        for store_id in erased.whole_stores {
            self.erase_rest_of(store_id).await?;
            if !self.goes_on().await? {
                return Ok(Attempt::Stopped);
            }
        }
        for store_id in erased.part_stores {
            if !self.erase_older_versions(store_id).await? {
                return Ok(Attempt::Stopped);
            }
        }
        self.overwrite_rows().await?;
        let index = &self.engine.0.index;
        let audited = self.engine.audited(Auditor::Job);
        let has_ended = index
            .finish_erasure(self.tenant_id, self.erasure_id, &audited)
            .await?;
        Ok(if has_ended {
            Attempt::Done
        } else {
            Attempt::NotEnded
        })
    }

    /// Has the database keep nothing of the rows that went.
    async fn overwrite_rows(self) -> Result<(), EngineError> {
        let index = &self.engine.0.index;
        let found = index.erasure(self.tenant_id, self.erasure_id).await?;
        if !found.is_some_and(|erasure| erasure.receipt.has_rows()) {
            return Ok(());
        }
        let queue = &self.engine.0.erasures;
        // It takes all who write their time: once is enough.
        if !queue.lock().rewritten.contains(&self.erasure_id) {
            index.overwrite_deleted().await?;
            queue.lock().rewritten.insert(self.erasure_id);
        }
        if !index.empty_log().await? {
            return Err(EngineError::Conflict("the index is read without a pause"));
        }
        queue.lock().rewritten.remove(&self.erasure_id);
        Ok(())
    }

    /// Whether to begin another batch.
    async fn goes_on(self) -> Result<bool, EngineError> {
        match self.lease {
            Some(lease) => lease.renew(None).await,
            None => Ok(!self.engine.0.writes.is_closed()),
        }
    }

    /// Takes the rows off; answers which stores it was about, or `None` where it
    /// has to stop.
    async fn erase_rows(self) -> Result<Option<RowsErased>, EngineError> {
        loop {
            let now = self.engine.now();
            let step = self.engine.0.index.erase_rows(
                self.tenant_id,
                self.erasure_id,
                now,
                now.plus(HELD_FOR),
                BATCH_ROWS,
            );
            let step = step.await?;
            if step.is_done {
                return Ok(Some(step));
            }
            if !self.goes_on().await? {
                return Ok(None);
            }
        }
    }

    /// Erases the blobs that are queued; `false`: it has to stop.
    async fn erase_blobs(self) -> Result<bool, EngineError> {
        let index = &self.engine.0.index;
        loop {
            let keys = index
                .queued_blobs(self.tenant_id, self.erasure_id, BATCH_BLOBS)
                .await?;
            if keys.is_empty() {
                return Ok(true);
            }
            self.erase_keys(keys, true).await?;
            if !self.goes_on().await? {
                return Ok(false);
            }
        }
    }

    /// Erases blobs and counts them; `are_queued`: they have rows in the deletion
    /// queue.
    async fn erase_keys(self, keys: Vec<BlobKey>, are_queued: bool) -> Result<(), EngineError> {
        let outcomes: Vec<_> = stream::iter(keys)
            .map(|key| async move { (key, self.erase_blob(&key).await) })
            .buffer_unordered(BLOBS_AT_ONCE)
            .collect()
            .await;
        for became in [
            Erased::EveryVersion,
            Erased::NotVersioned,
            Erased::OlderVersionsKept,
        ] {
            let same = outcomes
                .iter()
                .filter(|(_, outcome)| matches!(outcome, Ok(one) if *one == became));
            let keys: Vec<_> = same.map(|(key, _)| *key).collect();
            if keys.is_empty() {
                continue;
            }
            let many = keys.len() as u64;
            if are_queued {
                self.count(keys, 0, became).await?;
            } else {
                self.count(Vec::new(), many, became).await?;
            }
        }
        match outcomes.into_iter().find(|(_, outcome)| outcome.is_err()) {
            Some((_, Err(error))) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Erases older object versions of blobs that were deleted before from a store
    /// that stays, such as those that retention took; `false`: it has to stop.
    ///
    /// No row says any more which paths these had, so all of them go. A blob that a
    /// version names is left alone, and so is an orphan that waits under its
    /// tombstone.
    async fn erase_older_versions(self, store_id: StoreId) -> Result<bool, EngineError> {
        let shared = &self.engine.0;
        let mut after = None;
        loop {
            let listed = shared
                .blobs
                .list_removed(self.tenant_id, store_id, after.as_ref(), BATCH_BLOBS as usize)
                .await?;
            let Some(removed) = listed else {
                self.count(Vec::new(), 0, Erased::OlderVersionsKept).await?;
                return Ok(true);
            };
            let Some(last) = removed.last().copied() else {
                return Ok(true);
            };
            let ids: Vec<_> = removed.iter().map(|key| key.blob_id).collect();
            let forgotten = shared
                .index
                .forgotten_blobs(self.tenant_id, store_id, &ids)
                .await?;
            let mut keys = removed;
            keys.retain(|key| forgotten.contains(&key.blob_id));
            self.erase_keys(keys, false).await?;
            after = Some(last);
            if !self.goes_on().await? {
                return Ok(false);
            }
        }
    }

    /// Erases one blob, and looks whether it is gone.
    async fn erase_blob(self, key: &BlobKey) -> Result<Erased, BlobError> {
        let blobs = &self.engine.0.blobs;
        let erased = blobs.erase(key).await?;
        if blobs.contains(key).await? {
            return Err(BlobError::Unavailable(
                "a blob is there after it was erased".to_owned(),
            ));
        }
        Ok(erased)
    }

    /// Erases what no row names in a store that went: what a write brought that
    /// never landed, and older versions of what was deleted before.
    async fn erase_rest_of(self, store_id: StoreId) -> Result<(), EngineError> {
        let rest = self.engine.0.blobs.erase_store(self.tenant_id, store_id).await?;
        let of_gone = match rest.became {
            Erased::NotVersioned => Erased::NotVersioned,
            Erased::EveryVersion | Erased::OlderVersionsKept => Erased::EveryVersion,
        };
        self.count(Vec::new(), rest.gone, of_gone).await?;
        if rest.became == Erased::OlderVersionsKept {
            self.count(Vec::new(), rest.kept, rest.became).await?;
        }
        Ok(())
    }

    async fn count(self, keys: Vec<BlobKey>, orphans: u64, became: Erased) -> Result<(), EngineError> {
        let blobs = ErasedBlobs {
            keys,
            orphans,
            object_versions: match became {
                Erased::EveryVersion => ObjectVersions::Deleted,
                Erased::NotVersioned => ObjectVersions::NotVersioned,
                Erased::OlderVersionsKept => ObjectVersions::Kept,
            },
        };
        let until = self.engine.now().plus(HELD_FOR);
        let index = &self.engine.0.index;
        index
            .blobs_erased(self.tenant_id, self.erasure_id, &blobs, until)
            .await?;
        Ok(())
    }
}

/// What a receipt says of an error: a word, and nothing that somebody wrote.
const fn word_of(error: &EngineError) -> &'static str {
    match error {
        EngineError::Blobs(BlobError::Denied(_)) => "object_store_denied",
        EngineError::Blobs(BlobError::Misconfigured(_)) => "object_store_misconfigured",
        EngineError::Blobs(BlobError::Disk { .. })
        | EngineError::Index(IndexError::DiskFull(_) | IndexError::DiskFailed(_)) => "disk_full",
        EngineError::Blobs(_) => "object_store_unavailable",
        EngineError::Index(_) => "index_unavailable",
        EngineError::Conflict(_) => "index_busy",
        _ => "internal",
    }
}
