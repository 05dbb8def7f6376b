//! Forks: copies the memories of a store, as they were at a point, into a new store.
//!
//! The new store is there at once, and filled in the background. Each batch is one commit with an
//! idempotency record, and the path of the last memory is recorded, so that a copy that was
//! interrupted is continued. Blobs are copied: two stores share none.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use keepsake_core::{BlobKey, Content, DirPath, MemoryPath, Refused, StoreId, TenantId};
use keepsake_index::{
    Auditor, Depth, FoundMemories, Idempotency, MemoryTarget, Moment, OpenFork, PastItem, PastListing,
    PastMemory, PastPlace, Point, PointError, StoreOrigin, StoreOriginStatus,
};
use parking_lot::Mutex;

use crate::content::ContentLoss;
use crate::cursor::digest;
use crate::shared::Shared;
use crate::write::{Change, Decision, NewContent, Origin, Proposal, ProposedChange, Write, WriteResult};
use crate::{EngineError, Principal};

/// How long a worker holds a copy after its last batch.
pub(crate) const HELD_FOR: Duration = Duration::from_mins(2);
/// Memories and bytes of one commit.
const BATCH: u32 = 100;
const BATCH_BYTES: u64 = 4 << 20;
const READS_AT_ONCE: usize = 10;

/// Begins a copy in the background. The job `fork` continues the copy if this replica cannot.
pub(crate) fn begin_fork(shared: &Arc<Shared>, tenant_id: TenantId, store_id: StoreId) {
    let shared = Arc::clone(shared);
    let writes = shared.context.writes.clone();
    let began = shared.context.now();
    writes.spawn(async move {
        let slot = tokio::select! {
            slot = shared.long_work.take(tenant_id) => slot,
            () = shared.stopping.cancelled() => return,
        };
        let work = Work { shared: &shared, tenant_id, store_id };
        // The job holds it if this replica had to wait for long.
        let is_held = shared.context.now() < began.plus(HELD_FOR / 2);
        let made = match slot {
            Ok(_) if !is_held => return,
            Ok(_slot) => work.run().await,
            Err(error) => Err(error),
        };
        if let Err(error) = made {
            work.warn(&error);
        }
    });
}

/// Continues a copy that no worker holds; `false`: the process shuts down.
pub(crate) async fn continue_fork(
    shared: &Shared,
    (tenant_id, store_id): (TenantId, StoreId),
) -> Result<bool, EngineError> {
    let now = shared.context.now();
    if !shared.context.index.forks.hold(tenant_id, store_id, now, now.plus(HELD_FOR)).await? {
        return Ok(true);
    }
    Work { shared, tenant_id, store_id }.run().await
}

#[derive(Debug, Clone, Copy)]
struct Work<'a> {
    shared: &'a Shared,
    tenant_id: TenantId,
    store_id: StoreId,
}

/// The next memories of a copy.
struct NextMemories {
    memories: Vec<(MemoryPath, Content)>,
    skipped: u64,
    /// The path of the last memory.
    last: Option<String>,
    is_end: bool,
}

impl Work<'_> {
    fn warn(self, error: &EngineError) {
        tracing::warn!(
            tenant.id = %self.tenant_id, store.id = %self.store_id, error = %error,
            "engine.fork could not continue; the job does"
        );
    }

    #[tracing::instrument(name = "engine.copy_store", skip_all, fields(tenant.id = %self.tenant_id, store.id = %self.store_id))]
    async fn run(self) -> Result<bool, EngineError> {
        let context = &self.shared.context;
        let Some(tenant) = context.index.tenants.find(self.tenant_id).await? else {
            return Ok(true);
        };
        let limits = context.limits.with(&tenant.limits);
        while !self.shared.stopping.is_cancelled() {
            let Some(fork) = context.index.forks.find(self.tenant_id, self.store_id).await? else {
                return Ok(true);
            };
            let by = fork.actor.clone().map_or(Auditor::Job, Auditor::Credential);
            let principal = Principal::of_operator(self.tenant_id, by, limits.clone());
            match self.copy(&principal, &fork).await {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) if ends_fork(&error) => {
                    self.warn(&error);
                    self.end(&fork, fork.skipped, StoreOriginStatus::Failed, Some(error.to_string())).await?;
                    return Ok(true);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Copies the next memories; `true`: these were the last.
    async fn copy(self, principal: &Principal, fork: &OpenFork) -> Result<bool, EngineError> {
        let next = self.next(principal, fork).await?;
        let mut skipped = fork.skipped + next.skipped;
        if !next.memories.is_empty() {
            let call = self.call(fork);
            let (count, part) = (next.memories.len(), ForkPart::of(next.memories));
            let write = self.shared.writer.write(principal, self.store_id, Some(call));
            let made = match write.run_once(&part).await? {
                (WriteResult::Written(written), _) => written.changes.len(),
                (WriteResult::Replayed(_), _) => count,
                _ => 0,
            };
            skipped += (count - made.min(count)) as u64;
        }
        if next.is_end {
            self.end(fork, skipped, StoreOriginStatus::Done, None).await?;
        } else if let Some(last) = &next.last {
            let lease_until = self.shared.context.now().plus(HELD_FOR);
            let forks = &self.shared.context.index.forks;
            forks.advance(self.tenant_id, self.store_id, last, skipped, lease_until).await?;
        }
        Ok(next.is_end)
    }

    /// Reads the next memories of the source. Those whose version is redacted come last, and
    /// have nothing to copy.
    async fn next(self, principal: &Principal, fork: &OpenFork) -> Result<NextMemories, EngineError> {
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
        let (mut items, mut bytes, mut is_end) = (Vec::new(), 0, page.next.is_none());
        for item in page.items {
            let PastItem::Memory(PastMemory { path: Some(path), content: Some(stored), .. }) = item else {
                is_end = true;
                break;
            };
            bytes += stored.size_bytes;
            if bytes > BATCH_BYTES && !items.is_empty() {
                is_end = false;
                break;
            }
            items.push((path, stored));
        }
        let last = items.last().map(|(path, _)| path.as_str().to_owned());
        let count = items.len();
        let texts = items.into_iter().map(|(path, stored)| async move {
            let key =
                BlobKey { tenant_id: self.tenant_id, store_id: fork.source_id, blob_id: stored.blob_id };
            let text = match self.shared.contents.at(key, epoch_of(page.point), stored).await {
                Err(error) => ContentLoss::of(error).map(|_| None)?,
                Ok(text) => text,
            };
            let limit = principal.limits.bytes_per_memory;
            let checked = text.and_then(|text| Content::new(text.to_string(), limit).ok());
            Ok::<_, EngineError>(checked.map(|content| (path, content)))
        });
        let texts: Vec<_> = texts.collect();
        let read: Vec<_> = stream::iter(texts).buffered(READS_AT_ONCE).try_collect().await?;
        let memories: Vec<_> = read.into_iter().flatten().collect();
        let skipped = (count - memories.len()) as u64;
        Ok(NextMemories { memories, skipped, last, is_end })
    }

    async fn end(
        self,
        fork: &OpenFork,
        skipped: u64,
        status: StoreOriginStatus,
        error: Option<String>,
    ) -> Result<(), EngineError> {
        let origin = StoreOrigin { memory_store_id: fork.source_id, seq: fork.seq, status, skipped, error };
        Ok(self.shared.context.index.forks.end(self.tenant_id, self.store_id, &origin).await?)
    }

    /// Identifies the commit of the memories after a path.
    fn call(self, fork: &OpenFork) -> Idempotency {
        let after = fork.after.as_deref().unwrap_or_default();
        let id = digest(&[b"fork", self.store_id.uuid().as_bytes(), after.as_bytes()]);
        Idempotency { scope_sha256: id, request_sha256: id, since: fork.created_at.minus(HELD_FOR) }
    }
}

const fn epoch_of(point: Point) -> i64 {
    point.store.purge_epoch
}

fn refusal(error: PointError) -> EngineError {
    match error {
        PointError::Index(error) => error.into(),
        _ => EngineError::Conflict("the other memory store, or its history at this point, is gone"),
    }
}

/// Whether another attempt would meet the same refusal.
fn ends_fork(error: &EngineError) -> bool {
    match error {
        EngineError::Refused(refused) => !matches!(refused, Refused::Contended),
        EngineError::NotFound(_) | EngineError::Conflict(_) => true,
        _ => false,
    }
}

/// Creates the memories of a batch whose paths are free.
struct ForkPart {
    memories: Vec<(MemoryPath, Content)>,
    /// The places of memories whose content the store's policy refuses.
    refused: Mutex<BTreeSet<usize>>,
}

impl ForkPart {
    fn of(memories: Vec<(MemoryPath, Content)>) -> Self {
        Self { memories, refused: Mutex::default() }
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
            ProposedChange::store(Origin::New, path.clone(), NewContent::Exact(content.clone()))
        });
        let changes: Vec<_> = changes.collect();
        if changes.is_empty() {
            return Ok(Decision::Nothing);
        }
        Ok(Decision::Commit(Proposal { store: Some(found.store), changes, ..Proposal::default() }))
    }

    async fn refused(
        &self,
        _: &Write<'_>,
        found: &FoundMemories,
        refusal: Refused,
    ) -> Result<Decision, EngineError> {
        let refused: Vec<_> = match refusal {
            Refused::PathTaken { .. } | Refused::PathIsDirectory { .. } | Refused::ParentIsFile { .. } => {
                return Ok(Decision::ReadAgain);
            }
            Refused::Contents(refused) => refused.into_iter().map(|(place, _)| place).collect(),
            Refused::Content(_) | Refused::Sensitive { .. } => vec![0],
            refusal => return Err(refusal.into()),
        };
        let wanted: Vec<_> = self.wanted(found).map(|(place, _)| place).collect();
        self.refused.lock().extend(refused.into_iter().filter_map(|place| wanted.get(place)));
        self.decide(found)
    }
}
