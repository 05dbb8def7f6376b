//! The tests of a store, and the gate that they are for changes of many memories.
//!
//! A gate tests the memories as they will be, before anything is committed. The commit is made only on the
//! state of the store that was tested. A change that no gate forbids is committed only while the tests are those
//! that were read, so that a gate which is written meanwhile applies to it.

mod evaluation;

use std::sync::Arc;

use keepsake_core::path::TESTS_PATH;
use keepsake_core::{MemoryPath, ObjectKind, StoreId, TenantId, TestFile, VersionId};
use keepsake_index::{Lookup, PathGuard, Scope, Target};

use crate::content::Contents;
use crate::context::Context;
use crate::search::ChangedMemory;
use crate::shared::service;
use crate::test_file::parse_tests;
use crate::test_report::{BrokenTests, TestReport};
use crate::work::held;
use crate::write::{Admission, Proposal, Write};
use crate::{EngineError, Principal, Search};

use evaluation::Evaluation;

service!(pub StoreTests(shared, search: &Search) { search: Search = search.clone() });

/// The tests of a store at one time.
#[derive(Debug)]
pub(crate) struct StoredTests {
    /// `None`: the store has no tests.
    file: Option<TestFile>,
    /// The condition for changes that these tests allow.
    pub(crate) guard: PathGuard,
}

impl StoredTests {
    pub(crate) async fn read(write: &Write<'_>) -> Result<Self, EngineError> {
        let (context, store) = (write.context(), (write.principal.tenant_id, write.store_id));
        Self::of_store(context, write.contents(), store).await
    }

    async fn of_store(
        context: &Context,
        contents: &Contents,
        (tenant_id, store_id): (TenantId, StoreId),
    ) -> Result<Self, EngineError> {
        let path = MemoryPath::from_trusted(TESTS_PATH.to_owned());
        // Most stores have no tests, which one look-up shows.
        let lookup = context.look_up(tenant_id, store_id, Some(&path)).await?;
        if version_of(&lookup).is_none() {
            return Ok(Self::none(path));
        }
        let (found, text) = contents.at_path(tenant_id, store_id, Some(&path), 0).await?;
        let Some(text) = text else {
            return Ok(Self::none(path));
        };
        let parsed = parse_tests(&context.computations, tenant_id, text).await?;
        let file = parsed.map_err(|error| {
            EngineError::invalid(
                TESTS_PATH,
                format!(
                    "of the memory store is no file of tests, {error}; an administrator has to correct it"
                ),
            )
        })?;
        Ok(Self { file: Some(file), guard: PathGuard { path, version_id: version_of(&found) } })
    }

    const fn none(path: MemoryPath) -> Self {
        Self { file: None, guard: PathGuard { path, version_id: None } }
    }

    /// The tests, if they are a gate.
    pub(crate) fn gate(&self) -> Option<&TestFile> {
        self.file.as_ref().filter(|file| file.is_gate)
    }
}

impl Admission {
    /// Admits a change that is not tested, while the tests are the same.
    pub(crate) fn under(tests: PathGuard) -> Self {
        Self { tests: Some(tests), ..Self::default() }
    }

    /// Admits a part of a change that was tested as a whole, unless the tests were changed since.
    pub(crate) async fn of_tested(write: &Write<'_>, tests: &PathGuard) -> Result<Self, EngineError> {
        let tenant_id = write.principal.tenant_id;
        let lookup = write.context().look_up(tenant_id, write.store_id, Some(&tests.path)).await?;
        if version_of(&lookup) == tests.version_id {
            return Ok(Self::under(tests.clone()));
        }
        Err(EngineError::Conflict("the tests of the memory store were changed meanwhile"))
    }
}

impl StoreTests {
    /// Tests the store as it is, by the file of tests `tests` or by the file that the store has.
    #[tracing::instrument(name = "engine.test_store", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn run(
        &self,
        principal: &Principal,
        store_id: StoreId,
        tests: Option<String>,
    ) -> Result<TestReport, EngineError> {
        principal.require_outside_session(Scope::MemoryRead, store_id)?;
        let file = if let Some(text) = tests {
            let computations = &self.context.computations;
            let parsed = parse_tests(computations, principal.tenant_id, text.into()).await?;
            parsed.map_err(|error| EngineError::invalid("tests", error.to_string()))?
        } else {
            let stored = self.stored(principal, store_id).await?;
            stored.file.ok_or(EngineError::NotFound(ObjectKind::Tests))?
        };
        let evaluation = Evaluation { shared: &self.shared, search: &self.search, principal, store_id };
        let (results, _) = evaluation.run(&file.tests, Vec::new()).await?;
        Ok(TestReport::of(store_id, file.is_gate, results))
    }

    /// The tests of a store, of which only a gate applies to changes.
    pub(crate) async fn stored(
        &self,
        principal: &Principal,
        store_id: StoreId,
    ) -> Result<StoredTests, EngineError> {
        StoredTests::of_store(&self.context, &self.contents, (principal.tenant_id, store_id)).await
    }

    /// Admits a change of many memories if the store has no gate, or if all tests hold afterwards.
    pub(crate) async fn admit(
        &self,
        write: &Write<'_>,
        proposal: &Proposal,
    ) -> Result<Admission, EngineError> {
        if proposal.changes.is_empty() {
            return Ok(Admission::default());
        }
        let tests = StoredTests::read(write).await?;
        if tests.gate().is_none() {
            return Ok(Admission::under(tests.guard));
        }
        let turn = write.turn().await;
        let tests = StoredTests::read(write).await?;
        let Some(gate) = tests.gate() else {
            return Ok(Admission::under(tests.guard));
        };
        let changes = changed_memories(proposal, gate);
        let seq = self.require(write.principal, write.store_id, gate, changes).await?;
        Ok(Admission { seq: Some(seq), tests: Some(tests.guard), turn: Some(turn) })
    }

    /// The tests of a gate that would not hold after a change of many memories, on the state that was read last;
    /// `None`: all would.
    pub(crate) async fn broken_by(
        &self,
        write: &Write<'_>,
        gate: &TestFile,
        proposal: &Proposal,
    ) -> Result<Option<BrokenTests>, EngineError> {
        let changes = changed_memories(proposal, gate);
        match self.require(write.principal, write.store_id, gate, changes).await {
            Ok(_) => Ok(None),
            Err(EngineError::BrokenTests(broken)) => Ok(Some(*broken)),
            Err(error) => Err(error),
        }
    }

    /// Refuses changes after which a test does not hold. Returns the last version of the store that was tested.
    pub(crate) async fn require(
        &self,
        principal: &Principal,
        store_id: StoreId,
        tests: &TestFile,
        changes: Vec<ChangedMemory>,
    ) -> Result<i64, EngineError> {
        let held = held();
        let held_bytes = held.as_ref().map(|held| held.memory.amount());
        let evaluation = Evaluation { shared: &self.shared, search: &self.search, principal, store_id };
        let evaluated = evaluation.run(&tests.tests, changes).await;
        // The contents that were read are not kept.
        if let (Some(held), Some(bytes)) = (held, held_bytes) {
            held.memory.set(bytes);
        }
        let (results, seq) = evaluated?;
        match BrokenTests::of(results, principal.may_read()) {
            None => Ok(seq),
            Some(broken) => Err(EngineError::BrokenTests(Box::new(broken))),
        }
    }
}

fn version_of(tests: &Lookup) -> Option<VersionId> {
    match &tests.target {
        Target::Memory(head) => Some(head.version_id),
        Target::Missing | Target::Directory(_) => None,
    }
}

fn changed_memories(proposal: &Proposal, tests: &TestFile) -> Vec<ChangedMemory> {
    let changes = proposal.changes.iter().zip(&proposal.rows).map(|(change, row)| {
        let is_read = change.path.as_ref().is_some_and(|path| tests.reads(path));
        ChangedMemory {
            memory_id: change.head().map(|head| head.memory_id),
            before: change.head().map(|head| head.path.clone()),
            after: change.path.clone(),
            terms: row.as_ref().map(|row| row.terms.as_slice().into()),
            text: change.content.text().filter(|_| is_read).map(Arc::from),
        }
    });
    changes.collect()
}
