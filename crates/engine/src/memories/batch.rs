//! Several changes of one store's memories in one call and one commit.
//!
//! Each operation is decided like its single call, on one read of all memories and paths
//! that the batch names. When a commit is refused because of some operations, the batch
//! commits the others, unless it is atomic.

mod over_limit;
mod request;
mod results;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures::FutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};
use keepsake_core::{ObjectKind, Refused, StoreId};
use keepsake_index::{
    ExpiryChange, FoundMemories, FoundMemory, KeptMemory, MemoryTarget, PathGuard, ProposedChange,
};
use parking_lot::Mutex;

use super::Memories;
use super::decisions::{Creation, Update};
use super::receipt::{SentFields, conceal_refusal};
use super::requests::OnExistingMemory;
use crate::store_tests::StoreTests;
use crate::write::{Admission, Change, Decision, Proposal, Write};
use crate::{EngineError, Principal};

use over_limit::over_limit;
use request::{ParsedOperation, parse, require_apart};
use results::{Answers, record};

pub use request::{MAX_OPERATIONS, MemoryBatch, MemoryOperation};
pub use results::{BatchStatus, OperationResult};

/// Contents or versions that a batch reads concurrently.
const READS_AT_ONCE: usize = 10;

struct Batch {
    tests: StoreTests,
    /// The tests that were made before; `None`: the outcome is tested.
    tested: Option<PathGuard>,
    operations: Vec<ParsedOperation>,
    is_atomic: bool,
    is_recorded: bool,
    /// Operations that a commit was refused for.
    refused: Mutex<BTreeMap<usize, Arc<EngineError>>>,
}

enum Operation {
    Put(Creation),
    Update(Update),
}

/// The decision on an operation, or the error that the read shows.
type OperationDecision = Result<Decision, Arc<EngineError>>;

/// The state that a batch read, and the decision on each operation.
struct BatchRead {
    found: FoundMemories,
    decided: Vec<OperationDecision>,
}

/// The memories that were read, by path.
type MemoriesByPath<'a> = HashMap<&'a str, &'a FoundMemory>;

impl Memories {
    /// Carries out several operations in one commit, and returns a result for each, in
    /// the order of the operations.
    ///
    /// An atomic batch commits all operations or none. Otherwise refused operations are
    /// left out. After a failure of the index the operations may have been carried out.
    #[tracing::instrument(name = "engine.batch", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn batch(
        &self,
        principal: &Arc<Principal>,
        store_id: StoreId,
        batch: MemoryBatch,
    ) -> Result<Vec<OperationResult>, EngineError> {
        principal.require_writable(store_id)?;
        let idempotency = batch.idempotency;
        let operations = parse(principal, batch.operations, self.context.now())?;
        require_apart(&operations)?;
        let batch = Batch {
            tests: self.tests.clone(),
            tested: batch.tested,
            operations,
            is_atomic: batch.is_atomic,
            is_recorded: idempotency.is_some(),
            refused: Mutex::default(),
        };
        batch.require_parsed()?;
        let (memories, owner) = (self.clone(), Arc::clone(principal));
        self.context
            .run_to_end(async move {
                let write = memories.writer.write(&owner, store_id, idempotency);
                let (outcome, read) = write.run_once(&batch).await?;
                let answers = Answers { memories: &memories, batch: &batch, write: &write };
                answers.results_of(outcome, read).await
            })
            .await
    }
}

impl Batch {
    /// Fails an atomic batch with an operation that no state of the store allows.
    fn require_parsed(&self) -> Result<(), EngineError> {
        let parsed = self.operations.iter().map(|operation| operation.operation.as_ref());
        for (position, parsed) in parsed.enumerate() {
            if let (true, Err(error)) = (self.is_atomic, parsed) {
                return Err(of_operation(position, error));
            }
        }
        Ok(())
    }

    /// The decision on each operation, or why it is refused: by its own checks, or by a commit.
    fn settled<'a>(&self, read: &'a BatchRead) -> Vec<Result<&'a Decision, Arc<EngineError>>> {
        let refused = self.refused.lock();
        let decided = read.decided.iter().enumerate();
        decided
            .map(|(position, decided)| match (refused.get(&position), decided) {
                (Some(error), _) | (None, Err(error)) => Err(Arc::clone(error)),
                (None, Ok(decision)) => Ok(decision),
            })
            .collect()
    }

    /// The operations that are part of the commit, with their changes.
    fn committed<'a>(&self, read: &'a BatchRead) -> Vec<(usize, &'a ProposedChange)> {
        let settled = self.settled(read).into_iter().enumerate();
        settled
            .filter_map(|(position, settled)| match settled {
                Ok(Decision::Commit(proposal)) => Some((position, proposal.changes.first()?)),
                Ok(_) | Err(_) => None,
            })
            .collect()
    }

    async fn read_all(&self, write: &Write<'_>) -> Result<FoundMemories, EngineError> {
        let mut ids = Vec::new();
        let mut paths = Vec::new();
        for operation in &self.operations {
            ids.extend(operation.memory_id);
            if let Some(path) = &operation.sent.path {
                paths.extend(path.ancestor_files());
                paths.push(path.as_str());
            }
        }
        paths.sort_unstable();
        paths.dedup();
        write.memories(&ids, &paths).await
    }

    /// Decides one operation on the memories that were read.
    async fn decide_one(
        &self,
        write: &Write<'_>,
        found: &FoundMemories,
        by_path: &MemoriesByPath<'_>,
        operation: &ParsedOperation,
    ) -> Result<OperationDecision, EngineError> {
        let obstacle = |decision: &Decision| obstacle(found, by_path, decision);
        let missing = FoundMemory { store: found.store, expiry: found.expiry, target: MemoryTarget::Missing };
        let decided = match &operation.operation {
            Err(error) => return Ok(Err(Arc::clone(error))),
            Ok(Operation::Put(creation)) => {
                let replaces = creation.on_taken == OnExistingMemory::Replace;
                let there = by_path.get(creation.path.as_str()).filter(|_| replaces);
                let read = Some(there.map_or(missing, |there| FoundMemory::clone(there)));
                decide_as_single(write, creation, &read, obstacle).await
            }
            Ok(Operation::Update(update)) => {
                let read = found.memories.get(&update.memory_id).unwrap_or(&missing);
                decide_as_single(write, update, read, obstacle).await
            }
        };
        match decided {
            Err(error) if is_refusal(&error) => Ok(Err(operation.refusal(write.principal, error))),
            Err(error) => Err(error),
            Ok(decision) => Ok(match write.refusal_of_setting(&decision) {
                Some(refusal) => Err(operation.refusal(write.principal, refusal.into())),
                None => Ok(decision),
            }),
        }
    }
}

impl ParsedOperation {
    /// Removes details that the credential may not read.
    fn refusal(&self, principal: &Principal, error: EngineError) -> Arc<EngineError> {
        Arc::new(conceal_refusal(principal, error, self.sent.path.as_ref()))
    }
}

impl Change for Batch {
    type Read = BatchRead;
    type Error = EngineError;

    async fn read(&self, write: &Write<'_>) -> Result<BatchRead, EngineError> {
        let found = self.read_all(write).await?;
        let mut by_path = MemoriesByPath::new();
        for found in found.memories.values() {
            if let MemoryTarget::Live(memory) = &found.target {
                by_path.insert(memory.head.path.as_str(), found);
            }
        }
        let mut decided = Vec::with_capacity(self.operations.len());
        for operation in &self.operations {
            decided.push(self.decide_one(write, &found, &by_path, operation).await?);
        }
        drop(by_path);
        let decided: Vec<_> = decided.into_iter().map(|decided| or_anew(write, decided).boxed()).collect();
        let decided: Vec<OperationDecision> =
            stream::iter(decided).buffered(READS_AT_ONCE).try_collect().await?;
        Ok(BatchRead { found, decided })
    }

    fn decide(&self, read: &BatchRead) -> Result<Decision, EngineError> {
        let settled = self.settled(read);
        let (mut changes, mut kept) = (Vec::new(), Vec::new());
        let (mut sets_expiry, mut by_memory) = (false, HashMap::new());
        for (position, settled) in settled.iter().enumerate() {
            let memory_id = match settled {
                Err(error) if self.is_atomic => return Err(of_operation(position, error)),
                Err(_) => continue,
                Ok(Decision::Commit(proposal)) => {
                    changes.extend(proposal.changes.iter().cloned());
                    let change = proposal.changes.first();
                    change.and_then(ProposedChange::head).map(|head| head.memory_id)
                }
                Ok(Decision::Pin(memory, expiry, _)) => {
                    let is_applied = expiry.is_applied_to(memory);
                    let expiry = if is_applied { ExpiryChange::default() } else { *expiry };
                    sets_expiry |= !is_applied;
                    kept.push(KeptMemory::of(&memory.head, expiry));
                    Some(memory.head.memory_id)
                }
                Ok(Decision::Nothing) => None,
                Ok(Decision::ReadAgain) => return Ok(Decision::ReadAgain),
            };
            let earlier = memory_id.and_then(|memory_id| by_memory.insert(memory_id, position));
            if let Some(earlier) = earlier {
                return Err(together(earlier, position, "are about the same memory"));
            }
        }
        let is_recorded = self.is_recorded && !(changes.is_empty() && kept.is_empty());
        if changes.is_empty() && !sets_expiry && !is_recorded {
            return Ok(Decision::Nothing);
        }
        Ok(Decision::Commit(Proposal {
            store: Some(read.found.store),
            changes,
            kept,
            results: is_recorded.then(|| record(&settled)).transpose()?,
            ..Proposal::default()
        }))
    }

    async fn admit(&self, write: &Write<'_>, proposal: &Proposal) -> Result<Admission, EngineError> {
        match &self.tested {
            None => self.tests.admit(write, proposal).await,
            Some(tests) => Admission::of_tested(write, tests).await,
        }
    }

    /// Leaves out the operations that the refusal names; the next read shows any other
    /// refusal.
    async fn refused(
        &self,
        write: &Write<'_>,
        read: &BatchRead,
        refusal: Refused,
    ) -> Result<Decision, EngineError> {
        let committed = self.committed(read);
        let over = match refusal {
            Refused::Archived
            | Refused::PathTaken { .. }
            | Refused::PathIsDirectory { .. }
            | Refused::ParentIsFile { .. } => return Ok(Decision::ReadAgain),
            Refused::Contents(refusals) => {
                for (change, refusal) in refusals {
                    self.refuse(write, committed.get(change), refusal)?;
                }
                return self.decide(read);
            }
            Refused::Content(_) | Refused::Sensitive { .. } | Refused::Tests(_) => {
                self.refuse(write, committed.first(), refusal)?;
                return self.decide(read);
            }
            Refused::OverLimit(over) => over_limit(&committed, &over),
            // Of no operation, but of the whole batch.
            _ => return Err(refusal.into()),
        };
        let error = Arc::new(conceal_refusal(write.principal, refusal.into(), None));
        let refused = over.into_iter().map(|position| (position, Arc::clone(&error)));
        self.refused.lock().extend(refused);
        self.decide(read)
    }
}

impl Batch {
    /// Leaves out an operation that the commit was refused for.
    fn refuse(
        &self,
        write: &Write<'_>,
        committed: Option<&(usize, &ProposedChange)>,
        refusal: Refused,
    ) -> Result<(), EngineError> {
        let Some((position, _)) = committed else {
            return Err(EngineError::Internal("a refused change has no operation"));
        };
        let error = self.operations[*position].refusal(write.principal, refusal.into());
        self.refused.lock().insert(*position, error);
        Ok(())
    }
}

/// If an operation keeps a memory's content and this content is lost, stores the content
/// again.
async fn or_anew(write: &Write<'_>, decided: OperationDecision) -> Result<OperationDecision, EngineError> {
    match decided {
        Ok(decision) => write.or_anew(decision).await.map(Ok),
        Err(refusal) => Ok(Err(refusal)),
    }
}

/// Decides like the single call. An obstacle, which the commit of a single call would
/// meet, is known already.
async fn decide_as_single<C: Change<Error = EngineError>>(
    write: &Write<'_>,
    change: &C,
    read: &C::Read,
    obstacle: impl Fn(&Decision) -> Option<Refused> + Send,
) -> Result<Decision, EngineError> {
    let decision = change.decide(read)?;
    match obstacle(&decision) {
        Some(refusal) => change.refused(write, read, refusal).await,
        None => Ok(decision),
    }
}

/// The obstacle to a change that takes a path, in the order of the commit's checks.
fn obstacle(found: &FoundMemories, by_path: &MemoriesByPath<'_>, decision: &Decision) -> Option<Refused> {
    let Decision::Commit(proposal) = decision else {
        return None;
    };
    let change = proposal.changes.first()?;
    let path = change.path.as_ref()?;
    if found.store.is_archived {
        return Some(Refused::Archived);
    }
    if change.head().is_some_and(|head| head.path == *path) {
        return None;
    }
    let memory_at = |path: &str| match &by_path.get(path)?.target {
        MemoryTarget::Live(memory) => Some(memory.head.memory_id),
        MemoryTarget::Missing | MemoryTarget::Deleted { .. } => None,
    };
    if let memory_id @ Some(_) = memory_at(path.as_str()) {
        let path = path.as_str().to_owned();
        return Some(Refused::PathTaken { path, memory_id });
    }
    let directory = path.as_dir();
    if found.directories.contains(&directory) {
        let path = directory.as_str().to_owned();
        return Some(Refused::PathIsDirectory { path, memory_id: None });
    }
    path.ancestor_files().find_map(|file| {
        let memory_id = Some(memory_at(file)?);
        Some(Refused::ParentIsFile { path: file.to_owned(), memory_id })
    })
}

/// Whether the error is about one operation, not about the whole call.
const fn is_refusal(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Invalid { .. }
            | EngineError::NotFound(ObjectKind::Memory)
            | EngineError::PreconditionFailed { .. }
            | EngineError::Refused(_)
    )
}

fn of_operation(operation: usize, error: &Arc<EngineError>) -> EngineError {
    EngineError::OfOperation { operation, refusal: Arc::clone(error) }
}

/// The error of two operations that must not be in one batch.
fn together(one: usize, other: usize, why: &str) -> EngineError {
    EngineError::invalid("operations", format!("{one} and {other} {why}: send one of them in another call"))
}
