//! Imports: archives that clients send, written into memory stores.
//!
//! The archive stays packed in memory. It is read once to verify all of it, and once more to write
//! the contents in batches. No file is written to a disk. A tenant has one import at a time, whose
//! memory is charged to its request. An import that was stopped is continued by sending the same
//! archive again: memories that were written are not written again.

mod contents;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keepsake_archive::Damage;
use keepsake_archive::packed::WINDOW_BYTES;
use keepsake_archive::plan::{
    Destination, DestinationMemory, ImportStep, MAX_BATCH_BYTES, OnConflict, decide,
};
use keepsake_archive::report::{Class, Outcome, Report};
use keepsake_archive::scanned::ArchiveScan;
use keepsake_archive::verified::{Prefix, SourceListing, verify};
use keepsake_core::{Refused, StoreId};
use keepsake_index::{ExpiresAt, PathGuard, Scope, Store};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::compute::cores;
use crate::fair::{FairSlot, FairSlots};
use crate::request_fields::parse_directory;
use crate::shared::service;
use crate::work::{RequestShares, held};
use crate::{
    BatchStatus, EngineError, Memories, MemoryBatch, MemoryOperation, MemoryQuery, OperationResult,
    PageRequest, Precondition, Principal, ShownItem, StoreTests, Stores, View,
};

use contents::{Batch, PlannedMemories, read_batches, unpack_limit};

/// Maximum size of a packed archive.
pub const MAX_ARCHIVE_BYTES: u64 = 16 << 20;
/// Maximum bytes of an archive's lists and names, and the memory charged for each of these bytes.
const MAX_KEPT_BYTES: u64 = 16 << 20;
const MEMORY_PER_KEPT_BYTE: u64 = 5;
/// Memory charged for a memory in the list of the store, besides its path.
const EXISTING_BYTES: u64 = 512;
/// Batches in memory at the same time: read, waiting, and written from a copy.
const BATCHES_IN_MEMORY: u64 = 4;
/// Time that an import leaves for its answer.
const ANSWER_TIME: Duration = Duration::from_secs(2);

service!(pub Imports(shared, tests: &StoreTests) {
    memories: Memories = Memories::new(shared, tests),
    tests: StoreTests = tests.clone(),
    stores: Stores = Stores::new(shared),
    /// One for each tenant.
    slots: Arc<FairSlots> = Arc::new(FairSlots::new(cores().max(2), 1)),
});

/// A verified archive that was not written yet. It keeps the slot of its tenant.
#[derive(Debug)]
pub struct VerifiedArchive {
    file: Bytes,
    found: SourceListing,
    held: Arc<RequestShares>,
    /// Memory that the request holds between two batches.
    held_bytes: u64,
    slot: Arc<FairSlot>,
}

#[derive(Debug, Clone, Copy)]
pub struct ImportOptions {
    pub on_conflict: OnConflict,
    /// Nothing is written; the report says what would be.
    pub is_dry_run: bool,
    /// When the request ends.
    pub deadline: Option<Instant>,
}

/// What became of an archive.
#[derive(Debug)]
pub struct ArchiveImport {
    pub report: Report,
    /// Nothing was imported, because memories of the store have other content. The report has
    /// only the refused files.
    pub is_refused: bool,
    /// Why the import ended early.
    pub stopped: Option<String>,
    /// Versions in the archive, which are not imported.
    pub versions: usize,
    /// Why memories of the exported store are not in the archive.
    pub left_out: Vec<String>,
}

impl Imports {
    /// Checks that a credential may import into a store; returns the store.
    pub async fn target(&self, principal: &Principal, store_id: StoreId) -> Result<Store, EngineError> {
        principal.require_in(Scope::MemoryRead, store_id)?;
        let store = self.stores.find(principal.tenant_id, store_id).await?;
        principal.require_writable(store_id)?;
        match store.archived_at {
            None => Ok(store),
            Some(_) => Err(Refused::Archived.into()),
        }
    }

    /// Verifies a whole archive, whose memories will be below the directory `prefix`.
    #[tracing::instrument(name = "engine.verify_archive", level = "debug", skip_all)]
    pub async fn verify(
        &self,
        principal: &Principal,
        file: Bytes,
        prefix: &str,
    ) -> Result<VerifiedArchive, EngineError> {
        let prefix = Prefix::new(parse_directory("prefix", prefix)?.as_str());
        let slot = Arc::new(self.slots.take(principal.tenant_id).await?);
        let held = held().ok_or(EngineError::Internal("an import has no request"))?;
        grow(&held, WINDOW_BYTES)?;
        let (read, its_held, its_slot) = (file.clone(), Arc::clone(&held), Arc::clone(&slot));
        let work = move || {
            // The work continues if the request ends, and keeps the slot.
            let _slot = its_slot;
            verified(&read, &prefix, &its_held)
        };
        let done = tokio::task::spawn_blocking(work).await;
        let found = done.map_err(|_| EngineError::Internal("an archive was not verified"))??;
        let content_bytes: u64 = found.items.iter().map(|item| item.size_bytes).sum();
        grow(&held, BATCHES_IN_MEMORY * content_bytes.min(MAX_BATCH_BYTES))?;
        let held_bytes = held.memory.amount();
        Ok(VerifiedArchive { file, found, held, held_bytes, slot })
    }

    /// Writes a verified archive into a store, in batches. `authenticate` is called before each
    /// batch, because the credential may be revoked or restricted during an import.
    ///
    /// Batches that were written before a failure stay.
    #[tracing::instrument(name = "engine.import_archive", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn write<A, F>(
        &self,
        archive: VerifiedArchive,
        store_id: StoreId,
        options: ImportOptions,
        authenticate: A,
    ) -> Result<ArchiveImport, EngineError>
    where
        A: Fn() -> F,
        F: Future<Output = Result<Arc<Principal>, EngineError>>,
    {
        let VerifiedArchive { file, found, held, held_bytes, slot } = archive;
        let SourceListing { items, mut report, versions, left_out } = found;
        let principal = authenticate().await?;
        let destination = self.destination(&principal, store_id, &held).await?;
        let now = self.context.now();
        let decided = tokio::task::spawn_blocking(move || {
            let steps = decide(items, &destination, options.on_conflict, now, &mut report);
            (steps, report)
        });
        let decided = decided.await.map_err(|_| EngineError::Internal("an import was not decided"))?;
        let (steps, mut report) = decided;
        // Gives back the memory that the list of the store's memories needed.
        held.memory.set(held_bytes);
        let is_refused = options.on_conflict == OnConflict::Fail && report.conflicts().next().is_some();
        let (mut stopped, mut tested) = (None, None);
        if !is_refused {
            tested = self.require_tests(&principal, store_id, (&file, &slot), &steps, &held).await?;
            // Gives back the memory that the tests needed.
            held.memory.set(held_bytes);
        }
        if is_refused {
            report = report.only_refusals();
        } else if options.is_dry_run {
            report.assume(&steps);
        } else {
            let max_bytes = principal.limits.bytes_per_memory;
            let writing = Writing {
                memories: &self.memories,
                store_id,
                total: steps.len(),
                done: 0,
                report: &mut report,
                held: &held,
                held_bytes,
                tested,
                deadline: options.deadline,
                authenticate,
            };
            let (sender, receiver) = mpsc::channel(1);
            let reader = tokio::task::spawn_blocking(move || {
                let _slot = slot;
                read_batches(&file, steps, max_bytes, &sender)
            });
            stopped = writing.run(receiver, reader).await?;
        }
        Ok(ArchiveImport { report, is_refused, stopped, versions: versions.len(), left_out })
    }

    /// Refuses the whole import if a test of the store would not hold after it. The archive is read once more for
    /// that. Returns the tests under which the import is allowed.
    async fn require_tests(
        &self,
        principal: &Principal,
        store_id: StoreId,
        (file, slot): (&Bytes, &Arc<FairSlot>),
        steps: &[ImportStep],
        held: &Arc<RequestShares>,
    ) -> Result<Option<PathGuard>, EngineError> {
        if steps.is_empty() {
            return Ok(None);
        }
        let tests = self.tests.stored(principal, store_id).await?;
        let Some(gate) = tests.gate() else {
            return Ok(Some(tests.guard));
        };
        let (file, planned, held) = (file.clone(), PlannedMemories::of(steps), Arc::clone(held));
        let (of_store, max_bytes) = (gate.clone(), principal.limits.bytes_per_memory);
        let slot = Arc::clone(slot);
        let read = move || {
            // As in `verify`, the work keeps the slot if the request ends.
            let _slot = slot;
            let allow = |bytes| held.memory.try_grow(bytes);
            planned.read(&file, max_bytes, &of_store, allow)
        };
        let read = tokio::task::spawn_blocking(read).await;
        let read = read.map_err(|_| EngineError::Internal("an archive was not read for the tests"))?;
        let changes = match read {
            Ok(changes) => changes.ok_or(EngineError::OverMemory)?,
            Err(damage) => return Err(EngineError::DamagedArchive(damage)),
        };
        self.tests.require(principal, store_id, gate, changes).await?;
        Ok(Some(tests.guard))
    }

    /// Lists the memories of a store.
    async fn destination(
        &self,
        principal: &Principal,
        store_id: StoreId,
        request: &RequestShares,
    ) -> Result<Destination, EngineError> {
        let mut destination = Destination::default();
        let mut query =
            MemoryQuery { page: PageRequest { limit: Some(100), page: None }, ..MemoryQuery::default() };
        loop {
            let page = self.memories.list(principal, store_id, &query, View::Basic).await?;
            for item in page.items {
                if let ShownItem::Memory(shown) = item {
                    let memory = shown.memory;
                    let head = memory.head;
                    grow(request, EXISTING_BYTES + 2 * head.path.as_str().len() as u64)?;
                    let existing = DestinationMemory {
                        id: head.memory_id.to_string(),
                        sha256: head.content.sha256.to_string(),
                        is_pinned: memory.is_pinned,
                        expires_at: memory.expires_at,
                    };
                    destination.add(&head.path, existing);
                }
            }
            query.page.page = page.next;
            if query.page.page.is_none() {
                return Ok(destination);
            }
        }
    }
}

fn grow(held: &RequestShares, by: u64) -> Result<(), EngineError> {
    held.memory.try_grow(by).then_some(()).ok_or(EngineError::OverMemory)
}

fn verified(file: &Bytes, prefix: &Prefix, held: &RequestShares) -> Result<SourceListing, EngineError> {
    let (mut kept_bytes, mut is_over_memory, mut is_too_long) = (0, false, false);
    let allow = |bytes: u64| {
        kept_bytes += bytes;
        if kept_bytes > MAX_KEPT_BYTES {
            is_too_long = true;
            return Err(String::new());
        }
        is_over_memory = grow(held, MEMORY_PER_KEPT_BYTE * bytes).is_err();
        if is_over_memory { Err(String::new()) } else { Ok(()) }
    };
    let scanned = ArchiveScan::read(&file[..], unpack_limit(file), allow);
    if is_over_memory {
        return Err(EngineError::OverMemory);
    }
    if is_too_long {
        let rule = "has more files or versions than one request imports: use `keepsake import`".to_owned();
        return Err(EngineError::Invalid { field: "archive", rule });
    }
    let found = scanned.and_then(|scanned| verify(&scanned, prefix, |_| {}));
    found.map_err(EngineError::DamagedArchive)
}

/// The steps of an import while they are carried out.
struct Writing<'a, A> {
    memories: &'a Memories,
    store_id: StoreId,
    total: usize,
    done: usize,
    report: &'a mut Report,
    held: &'a RequestShares,
    held_bytes: u64,
    /// The tests under which the import is allowed.
    tested: Option<PathGuard>,
    deadline: Option<Instant>,
    authenticate: A,
}

impl<A, F> Writing<'_, A>
where
    A: Fn() -> F,
    F: Future<Output = Result<Arc<Principal>, EngineError>>,
{
    /// Writes the batches that are received. Returns why the import stopped before the end.
    async fn run(
        mut self,
        mut batches: mpsc::Receiver<Batch>,
        reader: JoinHandle<Result<(), Damage>>,
    ) -> Result<Option<String>, EngineError> {
        while let Some(batch) = batches.recv().await {
            self.done += batch.refused.len();
            for (path, reason) in batch.refused {
                self.report.add(path, Outcome::refused(Class::Rule, reason));
            }
            let mut waiting = VecDeque::from([batch.writes]);
            while let Some(mut writes) = waiting.pop_front() {
                match self.write(&writes).await {
                    Ok(()) => self.done += writes.len(),
                    // Two writes need one path. Written one by one, the first succeeds.
                    Err(EngineError::Invalid { .. }) if writes.len() > 1 => {
                        let second = writes.split_off(writes.len() / 2);
                        waiting.push_front(second);
                        waiting.push_front(writes);
                    }
                    Err(EngineError::Invalid { field, rule }) => {
                        self.done += writes.len();
                        for (step, _) in writes {
                            let reason = format!("`{field}` {rule}");
                            self.report.add_step(&step, Outcome::refused(Class::Rule, reason));
                        }
                    }
                    // The server logs its own errors and does not show them.
                    Err(error) if self.done == 0 || is_of_the_server(&error) => return Err(error),
                    Err(error) => return Ok(Some(self.stopped(&error.to_string()))),
                }
            }
            let is_late = self.deadline.is_some_and(|at| Instant::now() + ANSWER_TIME >= at);
            if is_late && self.done < self.total {
                return Ok(Some(self.stopped("the time of the request is over")));
            }
        }
        match reader.await {
            Ok(Ok(())) => Ok(None),
            Ok(Err(damage)) => Ok(Some(self.stopped(&damage.to_string()))),
            Err(_) => Err(EngineError::Internal("an archive was not read to its end")),
        }
    }

    async fn write(&mut self, writes: &[(ImportStep, String)]) -> Result<(), EngineError> {
        if writes.is_empty() {
            return Ok(());
        }
        let principal = (self.authenticate)().await?;
        let batch = MemoryBatch {
            operations: writes.iter().map(operation).collect(),
            is_atomic: false,
            idempotency: None,
            tested: self.tested.clone(),
        };
        let results = self.memories.batch(&principal, self.store_id, batch).await;
        self.held.memory.set(self.held_bytes);
        for ((step, _), result) in writes.iter().zip(results?) {
            self.follow_tests(step, &result);
            let outcome = match result.outcome {
                Ok((BatchStatus::Created, _)) => Outcome::Created,
                Ok((BatchStatus::Updated | BatchStatus::Deleted, _)) => Outcome::Replaced,
                Ok((BatchStatus::Unchanged, _)) => Outcome::Unchanged,
                Err(error) => Outcome::refused(Class::Rule, error.to_string()),
            };
            self.report.add_step(step, outcome);
        }
        Ok(())
    }

    /// The import goes on under the tests that it has written itself.
    fn follow_tests(&mut self, step: &ImportStep, result: &OperationResult) {
        if let (Some(tests), Ok((_, Some(written)))) = (&mut self.tested, &result.outcome)
            && step.item.path == tests.path
        {
            tests.version_id = Some(written.memory.head.version_id);
        }
    }

    fn stopped(&self, why: &str) -> String {
        let Self { done, total, .. } = self;
        format!(
            "The import was stopped after {done} of {total} files: {why}. Send the same archive again to continue it."
        )
    }
}

const fn is_of_the_server(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Index(_)
            | EngineError::Secret(_)
            | EngineError::Blobs(_)
            | EngineError::Damaged(_)
            | EngineError::Shared(_)
            | EngineError::Internal(_)
    )
}

fn operation((step, content): &(ImportStep, String)) -> MemoryOperation {
    let (path, content) = (step.item.path.as_str().to_owned(), content.clone());
    let (pinned, expires_at) =
        (step.item.is_pinned.then_some(true), step.item.expires_at.map(ExpiresAt::Time));
    match &step.replaces {
        Some(existing) => {
            let expected = existing.sha256.parse().ok().map(Precondition::ContentSha256);
            MemoryOperation::Upsert { path, content, pinned, expires_at, precondition: expected }
        }
        None => MemoryOperation::Create { path, content, pinned, expires_at, precondition: None },
    }
}
