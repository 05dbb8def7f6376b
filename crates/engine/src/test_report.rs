//! What became of the tests of a store.

use std::fmt;

use keepsake_core::path::TESTS_PATH;
use keepsake_core::schemas::{MemoryStoreTestResultType, MemoryStoreTestType};
use keepsake_core::test_file::Expectation;
use keepsake_core::{MemoryPath, StoreId};
use serde::Serialize;
use utoipa::ToSchema;

/// Broken tests that a message describes, and that an error has.
const MAX_DESCRIBED: usize = 5;
const MAX_KEPT: usize = 20;

/// What became of the tests of a memory store.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = MemoryStoreTestReport)]
pub struct TestReport {
    #[schema(inline)]
    pub r#type: MemoryStoreTestType,
    #[serde(rename = "memory_store_id")]
    pub store_id: StoreId,
    /// Whether all tests hold.
    pub passed: bool,
    /// Whether the file says that its tests are a gate.
    pub gate: bool,
    /// The tests, in the order of the file.
    pub data: Vec<TestResult>,
}

/// What became of one test.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = MemoryStoreTestResult)]
pub struct TestResult {
    #[schema(inline)]
    pub r#type: MemoryStoreTestResultType,
    /// The line that the test begins in, counted from 1.
    pub line: usize,
    pub test: Expectation,
    pub passed: bool,
    /// Why the test does not hold; null if it holds.
    #[schema(required)]
    pub message: Option<String>,
    /// The first hits of a search, at most 10.
    pub hits: Vec<TestHit>,
}

/// A hit of the search of a test.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = MemoryStoreTestHit)]
pub struct TestHit {
    pub path: MemoryPath,
    /// Higher is better; comparable only within one search.
    pub score: f64,
}

impl TestReport {
    pub(crate) fn of(store_id: StoreId, is_gate: bool, results: Vec<TestResult>) -> Self {
        let passed = results.iter().all(|result| result.passed);
        Self { r#type: MemoryStoreTestType, store_id, passed, gate: is_gate, data: results }
    }
}

/// The tests that do not hold after a change, which is refused.
#[derive(Debug, Clone, PartialEq)]
pub struct BrokenTests {
    /// The number of tests.
    total: usize,
    lines: Vec<usize>,
    /// The first of the broken tests; none if the caller may not read memories.
    pub shown: Vec<TestResult>,
}

impl BrokenTests {
    /// `None`: all tests hold.
    pub(crate) fn of(results: Vec<TestResult>, may_read: bool) -> Option<Self> {
        let total = results.len();
        let broken: Vec<_> = results.into_iter().filter(|result| !result.passed).collect();
        let lines: Vec<_> = broken.iter().map(|result| result.line).collect();
        let shown = if may_read { broken.into_iter().take(MAX_KEPT).collect() } else { Vec::new() };
        (!lines.is_empty()).then_some(Self { total, lines, shown })
    }
}

impl fmt::Display for BrokenTests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (broken, total) = (self.lines.len(), self.total);
        write!(
            f,
            "nothing was changed: {broken} of {total} tests in {TESTS_PATH} would not hold afterwards. "
        )?;
        let described = self.shown.iter().take(MAX_DESCRIBED);
        for (number, result) in described.enumerate() {
            let (line, test, why) = (result.line, &result.test, result.message.as_deref());
            let separator = if number == 0 { "Line" } else { "; line" };
            write!(f, "{separator} {line} ({test}): {}", why.unwrap_or_default())?;
        }
        let lines = &self.lines[self.shown.len().min(MAX_DESCRIBED)..];
        if self.shown.is_empty() {
            let lines: Vec<_> = lines.iter().map(usize::to_string).collect();
            return write!(f, "They are in the lines {}.", lines.join(", "));
        }
        if lines.is_empty() { f.write_str(".") } else { write!(f, "; and {} more.", lines.len()) }
    }
}
