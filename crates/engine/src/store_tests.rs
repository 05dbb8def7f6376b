//! The tests of a store, and the gate that they are for changes of many memories.
//!
//! A gate tests the memories as they will be, before anything is committed. The commit is made only on the
//! state of the store that was tested.

mod evaluation;

use std::sync::Arc;

use keepsake_core::path::TESTS_PATH;
use keepsake_core::{MemoryId, MemoryPath, ObjectKind, Refused, StoreId, TestFile, VersionId};
use keepsake_index::{Scope, SearchRow, Target};

use crate::shared::service;
use crate::test_file::parse_tests;
use crate::test_report::{BrokenTests, TestReport};
use crate::work::held;
use crate::write::{Admission, Origin, Proposal, Write};
use crate::{EngineError, Principal, Search};

use evaluation::Evaluation;

/// Tests of one change while others edit the tests.
const MAX_ATTEMPTS: u32 = 4;

service!(pub StoreTests(shared, search: &Search) { search: Search = search.clone() });

/// A memory that a change leaves otherwise than it found it.
#[derive(Debug, Clone)]
pub(crate) struct ChangedMemory {
    /// `None`: the memory is new, or deleted and restored.
    pub(crate) memory_id: Option<MemoryId>,
    pub(crate) before: Option<MemoryPath>,
    /// `None`: the change deletes the memory.
    pub(crate) after: Option<MemoryPath>,
    /// `None`: the content stays as it is.
    pub(crate) content: Option<ChangedContent>,
}

#[derive(Debug, Clone)]
pub(crate) struct ChangedContent {
    /// The search terms.
    pub(crate) terms: Arc<[u8]>,
    /// `None`: no test reads the content.
    pub(crate) text: Option<Arc<str>>,
}

/// The tests of a store at one time.
#[derive(Debug)]
pub(crate) struct StoredTests {
    version_id: VersionId,
    pub(crate) file: TestFile,
}

impl StoreTests {
    /// Tests the store as it is, by the file of tests `tests` or by the file that the store has.
    #[tracing::instrument(name = "engine.test_store", level = "debug", skip_all)]
    pub async fn run(
        &self,
        principal: &Principal,
        store_id: StoreId,
        tests: Option<String>,
    ) -> Result<TestReport, EngineError> {
        principal.require_in(Scope::MemoryRead, store_id)?;
        principal.require_no_session()?;
        let file = if let Some(text) = tests {
            let computations = &self.context.computations;
            let parsed = parse_tests(computations, principal.tenant_id, text.into()).await?;
            parsed.map_err(|error| EngineError::Invalid { field: "tests", rule: error.to_string() })?
        } else {
            let stored = self.stored(principal, store_id).await?;
            stored.ok_or(EngineError::NotFound(ObjectKind::Tests))?.file
        };
        let evaluation = Evaluation { shared: &self.shared, search: &self.search, principal, store_id };
        let (results, _) = evaluation.run(&file.tests, Vec::new()).await?;
        Ok(TestReport::of(store_id, file.is_gate, results))
    }

    /// The tests of a store whose tests are a gate.
    pub(crate) async fn gate(
        &self,
        principal: &Principal,
        store_id: StoreId,
    ) -> Result<Option<StoredTests>, EngineError> {
        let stored = self.stored(principal, store_id).await?;
        Ok(stored.filter(|stored| stored.file.is_gate))
    }

    /// Admits a change of many memories if the store has no gate, or if all tests hold afterwards.
    pub(crate) async fn admit(
        &self,
        write: &Write<'_>,
        proposal: &Proposal,
        rows: &[Option<SearchRow>],
    ) -> Result<Admission, EngineError> {
        let (principal, store_id) = (write.principal, write.store_id);
        if proposal.changes.is_empty() || self.gate(principal, store_id).await?.is_none() {
            return Ok(Admission::default());
        }
        let turn = write.turn().await;
        for _ in 0..MAX_ATTEMPTS {
            let Some(tests) = self.gate(principal, store_id).await? else {
                return Ok(Admission::default());
            };
            let changes = changed_memories(proposal, rows, &tests.file);
            let seq = self.require(principal, store_id, &tests, changes).await?;
            if self.is_current(principal, store_id, &tests).await? {
                return Ok(Admission { seq, turn: Some(turn) });
            }
        }
        Err(Refused::Contended.into())
    }

    /// Refuses changes after which a test does not hold. Returns the last version of the store that was tested.
    pub(crate) async fn require(
        &self,
        principal: &Principal,
        store_id: StoreId,
        tests: &StoredTests,
        changes: Vec<ChangedMemory>,
    ) -> Result<Option<i64>, EngineError> {
        let held = held();
        let held_bytes = held.as_ref().map(|held| held.memory.amount());
        let evaluation = Evaluation { shared: &self.shared, search: &self.search, principal, store_id };
        let evaluated = evaluation.run(&tests.file.tests, changes).await;
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

    async fn stored(
        &self,
        principal: &Principal,
        store_id: StoreId,
    ) -> Result<Option<StoredTests>, EngineError> {
        let (tenant_id, path) = (principal.tenant_id, tests_path());
        // Most stores have no tests, which one look-up shows.
        let lookup = self.context.look_up(tenant_id, store_id, Some(&path)).await?;
        let Target::Memory(_) = lookup.target else {
            return Ok(None);
        };
        let (found, text) = self.contents.at_path(tenant_id, store_id, Some(&path), 0).await?;
        let (Target::Memory(head), Some(text)) = (found.target, text) else {
            return Ok(None);
        };
        let parsed = parse_tests(&self.context.computations, tenant_id, text).await?;
        let file = parsed.map_err(|error| EngineError::Invalid {
            field: TESTS_PATH,
            rule: format!(
                "of the memory store is no file of tests, {error}; an administrator has to correct it"
            ),
        });
        Ok(Some(StoredTests { version_id: head.version_id, file: file? }))
    }

    /// Whether the store still has these tests.
    async fn is_current(
        &self,
        principal: &Principal,
        store_id: StoreId,
        tests: &StoredTests,
    ) -> Result<bool, EngineError> {
        let lookup = self.context.look_up(principal.tenant_id, store_id, Some(&tests_path())).await?;
        Ok(matches!(lookup.target, Target::Memory(head) if head.version_id == tests.version_id))
    }
}

fn tests_path() -> MemoryPath {
    MemoryPath::from_trusted(TESTS_PATH.to_owned())
}

fn changed_memories(proposal: &Proposal, rows: &[Option<SearchRow>], tests: &TestFile) -> Vec<ChangedMemory> {
    let changes = proposal.changes.iter().zip(rows).map(|(change, row)| {
        let is_read = change.path.as_ref().is_some_and(|path| tests.reads(path));
        ChangedMemory {
            memory_id: match &change.from {
                Origin::Live(head) => Some(head.memory_id),
                Origin::New | Origin::Deleted(..) => None,
            },
            before: change.head().map(|head| head.path.clone()),
            after: change.path.clone(),
            content: row.as_ref().map(|row| ChangedContent {
                terms: row.terms.as_slice().into(),
                text: change.content.text().filter(|_| is_read).map(Arc::from),
            }),
        }
    });
    changes.collect()
}
