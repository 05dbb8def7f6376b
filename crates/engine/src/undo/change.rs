//! The change that takes back other changes, as [`Write::run`] carries it out.

use std::collections::HashMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};
use keepsake_core::{MemoryId, ObjectKind, Refused};
use keepsake_index::{
    MAX_READ_VERSIONS, MAX_SELECTED, NewContent, Origin, PointError, ProposedChange, UndoRead, UndoReadError,
    UndoSelection, UndoSource, Version,
};
use parking_lot::Mutex;

use super::answer::UndoOutcome;
use super::plan::{PlannedStep, Refusals, UndoAction, UndoSkipReason, UndoStep, plan};
use super::{GATED, MAX_CHANGES};
use crate::EngineError;
use crate::content::ContentLoss;
use crate::past::refusal;
use crate::store_tests::{StoreTests, StoredTests};
use crate::write::{Admission, Change, Decision, Proposal, Write, refused_contents};

/// Contents that are read concurrently.
const READS_AT_ONCE: usize = 10;

pub(super) struct UndoChange {
    pub(super) source: UndoSource,
    pub(super) bytes_per_memory: u64,
    /// The store's tests, which may refuse the outcome; `None`: the outcome is not tested, so no gate allows it.
    tests: Option<StoreTests>,
    /// Whether the call's record has the outcome.
    pub(super) is_recorded: bool,
    /// Memories that a read or a commit showed to be impossible to restore.
    refusals: Mutex<Refusals>,
}

/// The state that was read, with its plan and the contents that come back.
pub(super) struct UndoState {
    found: Arc<UndoRead>,
    plan: Mutex<Vec<StepOfRead>>,
    texts: HashMap<MemoryId, Arc<str>>,
}

/// A step, and the place of its memory in the read.
type StepOfRead = (usize, UndoStep);

fn in_read<'a>((place, step): &StepOfRead, found: &'a UndoRead) -> PlannedStep<'a> {
    PlannedStep { memory: &found.memories[*place], action: step.action, reason: step.reason }
}

impl UndoState {
    fn plan(&self) -> Vec<PlannedStep<'_>> {
        self.plan.lock().iter().map(|step| in_read(step, &self.found)).collect()
    }

    /// The newest change of the store.
    pub(super) fn seq(&self) -> i64 {
        self.found.seq
    }

    /// The steps in the order of the commit.
    pub(super) fn steps(&self) -> Vec<UndoStep> {
        self.plan.lock().iter().map(|(_, step)| step.clone()).collect()
    }
}

impl UndoChange {
    pub(super) fn new(source: UndoSource, write: &Write<'_>, is_recorded: bool) -> Self {
        let bytes_per_memory = write.principal.limits.bytes_per_memory;
        Self { source, bytes_per_memory, tests: None, is_recorded, refusals: Mutex::default() }
    }

    /// The change is refused if a test of a gate does not hold afterwards.
    pub(super) fn gated_by(self, tests: &StoreTests) -> Self {
        Self { tests: Some(tests.clone()), ..self }
    }

    /// Reads the store without contents.
    pub(super) async fn found(&self, write: &Write<'_>) -> Result<UndoRead, EngineError> {
        let undos = &write.context().index.undos;
        match undos.read(write.principal.tenant_id, write.store_id, &self.source).await? {
            Ok(found) if found.store.is_archived => Err(Refused::Archived.into()),
            Ok(found) => match &self.source {
                UndoSource::Selection(selection) if selection.after_seq > found.seq => {
                    Err(refusal("after_seq")(PointError::NotYet { newest_seq: found.seq }))
                }
                UndoSource::Selection(_) | UndoSource::Plan(_) => Ok(found),
            },
            Err(UndoReadError::NoStore) => Err(EngineError::NotFound(ObjectKind::Store)),
            Err(UndoReadError::TooMany) => Err(self.too_large()),
        }
    }

    /// The refusal of a selection that says what to change in the request.
    fn too_large(&self) -> EngineError {
        if let UndoSource::Selection(UndoSelection { takes_whole_memories: true, .. }) = self.source {
            let rule = format!(
                "or `at_seq` must be a later point: at most {MAX_READ_VERSIONS} changes may follow it, of at most \
                 {MAX_SELECTED} memories, or of so many below `path_prefix`"
            );
            return EngineError::invalid("at", rule);
        }
        let rule = format!(
            "or another filter must select fewer changes: at most {MAX_SELECTED}, which with `path_prefix` may be \
             among {MAX_READ_VERSIONS} that the other filters select"
        );
        EngineError::invalid("path_prefix", rule)
    }

    pub(super) fn plan<'a>(&self, found: &'a UndoRead) -> Vec<PlannedStep<'a>> {
        plan(found, &self.refusals.lock(), self.bytes_per_memory)
    }

    /// Plans off the runtime: a read may have as many memories as a selection has versions.
    async fn planned(
        &self,
        write: &Write<'_>,
        found: &Arc<UndoRead>,
    ) -> Result<Vec<StepOfRead>, EngineError> {
        let (found, refusals) = (Arc::clone(found), self.refusals.lock().clone());
        let bytes_per_memory = self.bytes_per_memory;
        let planning = move || {
            let places = found.memories.iter().enumerate().map(|(place, memory)| (memory.memory_id, place));
            let places: HashMap<_, _> = places.collect();
            let steps = plan(&found, &refusals, bytes_per_memory);
            steps.iter().map(|step| (places[&step.memory.memory_id], step.step())).collect()
        };
        write.context().computations.run(write.principal.tenant_id, planning).await
    }

    /// The content that comes back; `None`: it is gone.
    async fn text(
        write: &Write<'_>,
        found: &UndoRead,
        version: &Version,
    ) -> Result<Option<Arc<str>>, EngineError> {
        ContentLoss::or_none(write.text_of(found.store, version).await)
    }

    fn refuse(&self, memory_id: MemoryId, reason: UndoSkipReason) {
        self.refusals.lock().insert(memory_id, reason);
    }
}

impl Change for UndoChange {
    type Read = UndoState;
    type Error = EngineError;

    async fn read(&self, write: &Write<'_>) -> Result<UndoState, EngineError> {
        let found = Arc::new(self.found(write).await?);
        let mut plan = self.planned(write, &found).await?;
        let mut reads = Vec::new();
        for step in plan.iter().map(|step| in_read(step, &found)) {
            if let Some(version) = step.version().filter(|_| step.brings_content()) {
                let (memory_id, text) = (step.memory.memory_id, Self::text(write, &found, version));
                reads.push(text.map(move |text| text.map(|text| (memory_id, text))).boxed());
            }
        }
        let read: Vec<_> = stream::iter(reads).buffer_unordered(READS_AT_ONCE).try_collect().await?;
        let (mut texts, count) = (HashMap::with_capacity(read.len()), read.len());
        for (memory_id, text) in read {
            match text {
                Some(text) => {
                    texts.insert(memory_id, text);
                }
                None => self.refuse(memory_id, UndoSkipReason::ContentGone),
            }
        }
        if texts.len() < count {
            plan = self.planned(write, &found).await?;
        }
        Ok(UndoState { found, plan: Mutex::new(plan), texts })
    }

    fn decide(&self, read: &UndoState) -> Result<Decision, EngineError> {
        let plan = read.plan();
        let mut changes = Vec::new();
        for step in plan.iter().filter(|step| step.is_made()) {
            match change_of(step, read)? {
                Some(change) => changes.push(change),
                // The step was not planned yet when the contents were read, so its content is missing.
                None => return Ok(Decision::ReadAgain),
            }
        }
        if changes.is_empty() {
            return Ok(Decision::Nothing);
        }
        // It was small enough for one commit when it was planned first.
        if changes.len() > MAX_CHANGES {
            return Err(Refused::Contended.into());
        }
        let outcome = || UndoOutcome::of(read.steps());
        let results = self.is_recorded.then(|| serde_json::to_string(&outcome())).transpose();
        Ok(Decision::Commit(Proposal {
            store: Some(read.found.store),
            changes,
            reuses_paths: true,
            results: results.map_err(|_| EngineError::Internal("an outcome is no JSON"))?,
            ..Proposal::default()
        }))
    }

    async fn admit(&self, write: &Write<'_>, proposal: &Proposal) -> Result<Admission, EngineError> {
        if let Some(tests) = &self.tests {
            return tests.admit(write, proposal).await;
        }
        let tests = StoredTests::read(write).await?;
        match tests.gate() {
            Some(_) => Err(EngineError::Conflict(GATED)),
            None => Ok(Admission::under(tests.guard)),
        }
    }

    /// Skips the memories whose contents are refused; the next read shows any other obstacle.
    async fn refused(
        &self,
        write: &Write<'_>,
        read: &UndoState,
        refusal: Refused,
    ) -> Result<Decision, EngineError> {
        let Some(refused) = refused_contents(refusal)? else {
            return Ok(Decision::ReadAgain);
        };
        let made: Vec<_> = read.plan().into_iter().filter(PlannedStep::is_made).collect();
        for step in refused.into_iter().filter_map(|place| made.get(place)) {
            self.refuse(step.memory.memory_id, UndoSkipReason::SensitiveData);
        }
        let planned = self.planned(write, &read.found).await?;
        *read.plan.lock() = planned;
        self.decide(read)
    }
}

/// The change that makes a step; `None`: its content was not read.
fn change_of(step: &PlannedStep<'_>, read: &UndoState) -> Result<Option<ProposedChange>, EngineError> {
    let memory = step.memory;
    let change = match (step.action, &memory.live, step.version()) {
        (UndoAction::Deleted, Some(head), _) => ProposedChange::delete(head.clone()),
        (UndoAction::Renamed, Some(head), Some(Version { path: Some(path), .. })) => {
            ProposedChange::rename(head.clone(), path.clone())
        }
        (
            UndoAction::Restored | UndoAction::Recreated,
            live,
            Some(Version { path: Some(path), content: Some(content), .. }),
        ) => {
            let Some(text) = read.texts.get(&memory.memory_id) else {
                return Ok(None);
            };
            let from = match live {
                Some(head) => Origin::Live(head.clone()),
                None => Origin::Deleted(memory.memory_id, memory.from),
            };
            ProposedChange::store(from, path.clone(), NewContent::Restored(*content, Arc::clone(text)))
        }
        _ => return Err(EngineError::Internal("a step of an undo has no state")),
    };
    Ok(Some(ProposedChange { undoes: Some(memory.undoes), ..change }))
}
