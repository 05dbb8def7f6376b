//! Forks: copies the memories of a store, as they were at a point, into a new store.
//!
//! The new store is there at once, and filled in the background. Each batch is one commit with an
//! idempotency record, and the path of the last memory is recorded, so that a copy that was
//! interrupted is continued. The record says which memories the batch was about: another read may find other
//! ones, because versions of the source are redacted. Blobs are copied: two stores share none.
//!
//! The first steps count the memories of the point. Those that are not copied at the end are skipped,
//! whatever became of them and of the copied ones in the source.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use keepsake_core::{BlobKey, Content, DirPath, MemoryId, MemoryPath, Refused, StoreId, TenantId, Timestamp};
use keepsake_index::{
    Auditor, Depth, FORK_HELD_FOR, ForkCounts, FoundMemories, Idempotency, MemoryTarget, Moment, NewContent,
    OpenFork, Origin, PastItem, PastListing, PastMemory, PastPlace, PointError, ProposedChange, Store,
    StoreOrigin, StoreOriginStatus,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::content::ContentLoss;
use crate::cursor::digest;
use crate::long_work::{COMMITS_PER_TURN, Turn, begin_work, ends_work, reason_of};
use crate::shared::Shared;
use crate::write::{Change, Decision, Proposal, Write, WriteResult, refused_contents};
use crate::{EngineError, Principal};

/// How long a worker holds a copy after its last batch.
const HELD_FOR: Duration = FORK_HELD_FOR;
/// Memories and bytes of one commit.
const BATCH: u32 = 100;
const BATCH_BYTES: u64 = 4 << 20;
const READS_AT_ONCE: usize = 10;
/// Memories that are counted at once.
const COUNTED_AT_ONCE: u32 = 2_000;

/// Begins a copy in the background. The job `fork` continues the copy if this replica cannot.
pub(crate) fn begin_fork(shared: &Arc<Shared>, tenant_id: TenantId, store: &Store) {
    let (store_id, held_until) = (store.store_id, store.created_at.plus(HELD_FOR));
    begin_work(shared, tenant_id, HELD_FOR, move |shared| async move {
        let work = Work { shared: &shared, tenant_id, store_id };
        if let Err(error) = work.run(held_until, usize::MAX).await {
            work.warn(&error, "the job does");
        }
    });
}

/// Continues a copy that no worker holds for a turn.
pub(crate) async fn continue_fork(
    shared: &Shared,
    (tenant_id, store_id): (TenantId, StoreId),
) -> Result<Turn, EngineError> {
    let now = shared.context.now();
    let until = now.plus(HELD_FOR);
    if !shared.context.index.forks.hold(tenant_id, store_id, now, until).await? {
        return Ok(Turn::Ended);
    }
    Work { shared, tenant_id, store_id }.run(until, COMMITS_PER_TURN).await
}

#[derive(Debug, Clone, Copy)]
struct Work<'a> {
    shared: &'a Shared,
    tenant_id: TenantId,
    store_id: StoreId,
}

/// What became of the memories of a part, in the record of their commit.
#[derive(Debug, Serialize, Deserialize)]
struct CopiedPart {
    copied: u64,
    /// The path of the last memory; `None`: there is no other one.
    last: Option<String>,
}

/// How far a worker has counted the memories of the point. Another worker begins again.
#[derive(Debug, Default)]
struct Counted {
    memories: u64,
    last: Option<MemoryId>,
}

impl Work<'_> {
    fn warn(self, error: &EngineError, next: &str) {
        tracing::warn!(
            tenant.id = %self.tenant_id, store.id = %self.store_id, error = %error,
            "engine.fork could not continue; {next}"
        );
    }

    #[tracing::instrument(name = "engine.copy_store", skip_all, fields(tenant.id = %self.tenant_id, gen_ai.memory.store.id = %self.store_id))]
    async fn run(self, mut held_until: Timestamp, commits: usize) -> Result<Turn, EngineError> {
        let context = &self.shared.context;
        let Some(tenant) = context.index.tenants.find(self.tenant_id).await? else {
            return Ok(Turn::Ended);
        };
        let limits = context.limits.with(&tenant.limits);
        let (mut made, mut counted) = (0, Counted::default());
        while !self.shared.stopping.is_cancelled() {
            let Some(fork) = context.index.forks.find(self.tenant_id, self.store_id).await? else {
                return Ok(Turn::Ended);
            };
            let by = fork.actor.clone().map_or(Auditor::Job, Auditor::Credential);
            let principal = Principal::of_operator(self.tenant_id, by, limits.clone());
            let (last, counts) = match self.step(&principal, &fork, &mut counted).await {
                Ok(reached) => reached,
                Err(error) if ends_work(&error) => {
                    self.warn(&error, "it has failed");
                    let failed = origin(&fork, fork.counts, Some(reason_of(&error)));
                    context.index.forks.end(self.tenant_id, self.store_id, &failed, held_until).await?;
                    return Ok(Turn::Ended);
                }
                Err(error) => return Err(error),
            };
            let Some(last) = last else {
                let done = origin(&fork, counts, None);
                context.index.forks.end(self.tenant_id, self.store_id, &done, held_until).await?;
                return Ok(Turn::Ended);
            };
            // Counting is no commit.
            made += usize::from(counts.memories.is_some());
            let (now, pauses) = (context.now(), made == commits);
            let until = if pauses { now } else { held_until.max(now.plus(HELD_FOR)) };
            let (forks, place) = (&context.index.forks, (last.as_str(), counts));
            if !forks.advance(self.tenant_id, self.store_id, place, held_until, until).await? {
                return Ok(Turn::Ended);
            }
            if pauses {
                return Ok(Turn::Paused);
            }
            held_until = until;
        }
        Ok(Turn::Stopping)
    }

    /// Counts the next memories of the point, or if all are counted, copies the next ones. Returns the path of
    /// the last memory that the copy has reached; `None`: there is no other one.
    async fn step(
        self,
        principal: &Principal,
        fork: &OpenFork,
        counted: &mut Counted,
    ) -> Result<(Option<String>, ForkCounts), EngineError> {
        let counts = fork.counts;
        if counts.memories.is_none() {
            let (past, moment) = (&self.shared.context.index.past, Moment::Seq(fork.seq));
            let batch = past.count(self.tenant_id, fork.source_id, moment, counted.last, COUNTED_AT_ONCE);
            let (memories, last) = batch.await.map_err(refusal)?;
            *counted = Counted { memories: counted.memories + memories, last };
            let place = fork.after.clone().unwrap_or_default();
            let memories = last.is_none().then_some(counted.memories);
            return Ok((Some(place), ForkCounts { memories, ..counts }));
        }
        let part = self.copy(principal, fork).await?;
        Ok((part.last, ForkCounts { copied: counts.copied + part.copied, ..counts }))
    }

    /// Copies the next memories, or returns the recorded result of the same copy.
    async fn copy(self, principal: &Principal, fork: &OpenFork) -> Result<CopiedPart, EngineError> {
        let part = self.next(principal, fork).await?;
        let write = self.shared.writer.write(principal, self.store_id, Some(self.call(fork))).uncounted();
        if part.memories.is_empty() {
            // Memories that the same part has copied may be redacted by now.
            let recorded = recorded_part(&write).await?;
            return Ok(recorded.unwrap_or_else(|| part.copied(0)));
        }
        match write.run_once(&part).await? {
            (WriteResult::Replayed(_), _) => {
                let recorded = recorded_part(&write).await?;
                recorded.ok_or(EngineError::Internal("a part of a copy has no record"))
            }
            (WriteResult::Written(written), _) => Ok(part.copied(written.changes.len())),
            _ => Ok(part.copied(0)),
        }
    }

    /// Reads the next memories of the source. Those whose version is redacted come last, and
    /// have nothing to copy.
    async fn next(self, principal: &Principal, fork: &OpenFork) -> Result<ForkPart, EngineError> {
        let context = &self.shared.context;
        let listing = PastListing {
            below: DirPath::root(),
            depth: Depth::All,
            after: fork.after.clone().map(PastPlace::Path),
            limit: BATCH,
        };
        let moment = Moment::Seq(fork.seq);
        let page = context.index.past.list(self.tenant_id, fork.source_id, moment, &listing).await;
        let page = page.map_err(refusal)?;
        let (mut items, mut bytes) = (Vec::new(), 0);
        for item in page.items {
            let PastItem::Memory(PastMemory { path: Some(path), content: Some(stored), .. }) = item else {
                break;
            };
            bytes += stored.size_bytes;
            if bytes > BATCH_BYTES && !items.is_empty() {
                break;
            }
            items.push((path, stored));
        }
        let last = items.last().map(|(path, _)| path.as_str().to_owned());
        let texts = items.into_iter().map(|(path, stored)| async move {
            let key =
                BlobKey { tenant_id: self.tenant_id, store_id: fork.source_id, blob_id: stored.blob_id };
            let text = self.shared.contents.at(key, page.point.store.purge_epoch, stored).await;
            let text = ContentLoss::or_none(text)?;
            let limit = principal.limits.bytes_per_memory;
            let checked = text.and_then(|text| Content::new(text.to_string(), limit).ok());
            Ok::<_, EngineError>(checked.map(|content| (path, content)))
        });
        let texts: Vec<_> = texts.collect();
        let read: Vec<_> = stream::iter(texts).buffered(READS_AT_ONCE).try_collect().await?;
        Ok(ForkPart { memories: read.into_iter().flatten().collect(), last, refused: Mutex::default() })
    }

    /// Identifies the commit of the memories after a path.
    fn call(self, fork: &OpenFork) -> Idempotency {
        let after = fork.after.as_deref().unwrap_or_default();
        let id = digest(&[b"fork", self.store_id.uuid().as_bytes(), after.as_bytes()]);
        Idempotency { scope_sha256: id, request_sha256: id, since: fork.created_at.minus(HELD_FOR) }
    }
}

/// The record of a part; `None`: the part is not committed.
async fn recorded_part(write: &Write<'_>) -> Result<Option<CopiedPart>, EngineError> {
    let recorded = write.earlier_record().await?.and_then(|earlier| earlier.results);
    Ok(recorded.and_then(|recorded| serde_json::from_str(&recorded).ok()))
}

/// What the store shows of a copy that ends.
fn origin(fork: &OpenFork, counts: ForkCounts, error: Option<String>) -> StoreOrigin {
    let status = if error.is_some() { StoreOriginStatus::Failed } else { StoreOriginStatus::Done };
    let skipped = counts.missing();
    StoreOrigin { memory_store_id: fork.source_id, seq: fork.seq, status, skipped, error }
}

fn refusal(error: PointError) -> EngineError {
    match error {
        PointError::Index(error) => error.into(),
        _ => EngineError::Conflict("the other memory store, or its history at this point, is gone"),
    }
}

/// Creates the memories of a batch whose paths are free.
struct ForkPart {
    /// The next memories whose content is there.
    memories: Vec<(MemoryPath, Content)>,
    /// The path of the last one, also if its content is gone; `None`: there is no other one.
    last: Option<String>,
    /// The places of memories whose content the store's policy refuses.
    refused: Mutex<BTreeSet<usize>>,
}

impl ForkPart {
    /// What became of the part if so many memories were created.
    fn copied(&self, created: usize) -> CopiedPart {
        CopiedPart { copied: created as u64, last: self.last.clone() }
    }

    fn wanted<'a>(
        &'a self,
        found: &'a FoundMemories,
    ) -> impl Iterator<Item = (usize, &'a (MemoryPath, Content))> {
        let live = found.memories.values().filter_map(|found| match &found.target {
            MemoryTarget::Live(memory) => Some(memory.head.path.as_str()),
            MemoryTarget::Missing | MemoryTarget::Deleted { .. } => None,
        });
        let live: BTreeSet<&str> = live.collect();
        let refused = self.refused.lock().clone();
        self.memories.iter().enumerate().filter(move |(place, (path, _))| {
            let is_taken = live.contains(path.as_str())
                || path.ancestor_files().any(|file| live.contains(file))
                || found.directories.contains(&path.as_dir());
            !is_taken && !refused.contains(place)
        })
    }
}

impl Change for ForkPart {
    type Read = FoundMemories;
    type Error = EngineError;

    async fn read(&self, write: &Write<'_>) -> Result<FoundMemories, EngineError> {
        let mut paths: Vec<&str> = Vec::new();
        for (path, _) in &self.memories {
            paths.extend(path.ancestor_files());
            paths.push(path.as_str());
        }
        paths.sort_unstable();
        paths.dedup();
        write.memories(&[], &paths).await
    }

    fn decide(&self, found: &FoundMemories) -> Result<Decision, EngineError> {
        let changes = self.wanted(found).map(|(_, (path, content))| {
            ProposedChange::store(Origin::New, path.clone(), NewContent::New(content.clone()))
        });
        let changes: Vec<_> = changes.collect();
        if changes.is_empty() {
            return Ok(Decision::Nothing);
        }
        let results = serde_json::to_string(&self.copied(changes.len()));
        let results = results.map_err(|_| EngineError::Internal("a part of a copy is no JSON"))?;
        let store = Some(found.store);
        Ok(Decision::Commit(Proposal { store, changes, results: Some(results), ..Proposal::default() }))
    }

    async fn refused(
        &self,
        _: &Write<'_>,
        found: &FoundMemories,
        refusal: Refused,
    ) -> Result<Decision, EngineError> {
        let Some(refused) = refused_contents(refusal)? else {
            return Ok(Decision::ReadAgain);
        };
        let wanted: Vec<_> = self.wanted(found).map(|(place, _)| place).collect();
        self.refused.lock().extend(refused.into_iter().filter_map(|place| wanted.get(place)));
        self.decide(found)
    }
}
