//! Evaluates tests on the memories of a store, or on the memories that a change leaves.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::FutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};
use keepsake_core::schemas::MemoryStoreTestResultType;
use keepsake_core::test_file::{Area, Expectation, MAX_WITHIN, StoreTest};
use keepsake_core::{BlobKey, ContentHash, MemoryId, MemoryPath, StoreId, VersionId, words};
use keepsake_search::{Query, RankedMemory, Results};

use crate::content::ContentLoss;
use crate::search::{ChangedMemory, StoreOutcome};
use crate::shared::Shared;
use crate::test_report::{TestHit, TestResult};
use crate::{EngineError, Principal, Search};

/// Hits that a result has.
const MAX_HITS: usize = 10;
/// Hits that a message names.
const NAMED_HITS: usize = 3;
const READS_AT_ONCE: usize = 10;

pub(super) struct Evaluation<'a> {
    pub(super) shared: &'a Shared,
    pub(super) search: &'a Search,
    pub(super) principal: &'a Principal,
    pub(super) store_id: StoreId,
}

/// What the tests need to know of the tested memories, apart from their contents.
struct TestedMemories {
    seq: i64,
    purge_epoch: i64,
    count: usize,
    /// The memories at the paths of tests, with the blob and the hash of a content that no change brings.
    at_paths: HashMap<MemoryPath, (MemoryId, Option<(VersionId, ContentHash)>)>,
    /// The results of the searches, in the order of their tests.
    searches: Vec<Results>,
}

/// A content that a test reads.
enum FoundContent {
    Missing,
    Lost(ContentLoss),
    Text(Arc<str>),
}

impl Evaluation<'_> {
    /// The results in the order of the tests, and the last version of the store that was tested.
    pub(super) async fn run(
        &self,
        tests: &[StoreTest],
        changes: Vec<ChangedMemory>,
    ) -> Result<(Vec<TestResult>, i64), EngineError> {
        let (tenant_id, tests) = (self.principal.tenant_id, tests.to_vec());
        let changes: Arc<[ChangedMemory]> = changes.into();
        let paths: HashSet<_> = tests.iter().filter_map(path_of).cloned().collect();
        let (asked, asked_paths) = (tests.clone(), paths.clone());
        let tested = self
            .search
            .with_outcome(tenant_id, self.store_id, Arc::clone(&changes), paths, move |outcome| {
                TestedMemories::of(&outcome, &asked, &asked_paths)
            })
            .await?;
        let contents = self.contents(&tests, &changes, &tested).await?;
        let seq = tested.seq;
        let conclude = move || {
            let mut results = tested.searches.iter();
            let concluded = tests.into_iter().map(|test| {
                let StoreTest { line, expected } = test;
                let searched =
                    matches!(expected, Expectation::Search { .. }).then(|| results.next()).flatten();
                let found = searched.map_or(&[][..], |results| &results.found);
                let message = match &expected {
                    Expectation::Search { finds, within, .. } => {
                        let is_there = tested.at_paths.contains_key(finds);
                        let is_too_broad = searched.is_none_or(|results| results.is_too_broad);
                        why_not_found(found, finds, *within, is_there, is_too_broad)
                    }
                    Expectation::Contains { path, contains } => {
                        why_not_contained(contents.get(path), contains)
                    }
                    Expectation::Unchanged { unchanged } => why_not_unchanged(&changes, unchanged),
                    Expectation::MaxFiles { max_files } => {
                        let count = tested.count as u64;
                        let is_over = count > *max_files;
                        is_over.then(|| format!("the memory store has {}", words::counted(count, "memory")))
                    }
                };
                let hits = found.iter().take(MAX_HITS);
                let hits = hits.map(|hit| TestHit { path: hit.path.clone(), score: hit.score });
                TestResult {
                    r#type: MemoryStoreTestResultType,
                    line,
                    test: expected,
                    passed: message.is_none(),
                    message,
                    hits: hits.collect(),
                }
            });
            concluded.collect::<Vec<_>>()
        };
        let results = self.shared.context.computations.run(tenant_id, conclude).await?;
        Ok((results, seq))
    }

    /// The contents that tests read, by their paths.
    async fn contents(
        &self,
        tests: &[StoreTest],
        changes: &[ChangedMemory],
        tested: &TestedMemories,
    ) -> Result<HashMap<MemoryPath, FoundContent>, EngineError> {
        let mut contents = HashMap::new();
        for change in changes {
            if let (Some(path), Some(text)) = (&change.after, &change.text) {
                contents.insert(path.clone(), FoundContent::Text(Arc::clone(text)));
            }
        }
        let is_read = |test: &StoreTest| matches!(test.expected, Expectation::Contains { .. });
        let paths: HashSet<_> = tests.iter().filter(|test| is_read(test)).filter_map(path_of).collect();
        let to_read = paths.into_iter().filter(|path| !contents.contains_key(*path));
        let to_read: Vec<_> = to_read.map(|path| self.content(path, tested).boxed()).collect();
        let read: Vec<_> = stream::iter(to_read).buffer_unordered(READS_AT_ONCE).try_collect().await?;
        contents.extend(read);
        Ok(contents)
    }

    async fn content(
        &self,
        path: &MemoryPath,
        tested: &TestedMemories,
    ) -> Result<(MemoryPath, FoundContent), EngineError> {
        let content = match tested.at_paths.get(path) {
            Some((memory_id, Some((blob_id, sha256)))) => {
                let (tenant_id, store_id) = (self.principal.tenant_id, self.store_id);
                let key = BlobKey { tenant_id, store_id, blob_id: *blob_id };
                let contents = &self.shared.contents;
                contents.searched(key, tested.purge_epoch, (*memory_id, path), *sha256).await
            }
            Some((_, None)) | None => Ok(None),
        };
        let found = match content {
            Ok(Some(text)) => FoundContent::Text(text),
            // Changed meanwhile: no change is committed on this state.
            Ok(None) => FoundContent::Missing,
            Err(error) => FoundContent::Lost(ContentLoss::of(error)?),
        };
        Ok((path.clone(), found))
    }
}

impl TestedMemories {
    fn of(outcome: &StoreOutcome, tests: &[StoreTest], paths: &HashSet<MemoryPath>) -> Self {
        let queries = tests.iter().filter_map(|test| match &test.expected {
            // The file's own limit is that of queries.
            Expectation::Search { search, .. } => Some(Query::parse(search).unwrap_or_default()),
            _ => None,
        });
        let at_paths = outcome.memories().filter(|(_, path)| paths.contains(path));
        Self {
            seq: outcome.place.seq,
            purge_epoch: outcome.place.purge_epoch,
            count: outcome.count(),
            at_paths: at_paths
                .map(|(memory_id, path)| (path.clone(), (memory_id, outcome.blob_of(memory_id))))
                .collect(),
            searches: outcome.search(&queries.collect::<Vec<_>>(), MAX_WITHIN),
        }
    }
}

const fn path_of(test: &StoreTest) -> Option<&MemoryPath> {
    match &test.expected {
        Expectation::Search { finds: path, .. } | Expectation::Contains { path, .. } => Some(path),
        Expectation::Unchanged { .. } | Expectation::MaxFiles { .. } => None,
    }
}

fn why_not_found(
    found: &[RankedMemory],
    finds: &MemoryPath,
    within: usize,
    is_there: bool,
    is_too_broad: bool,
) -> Option<String> {
    if is_too_broad {
        return Some("the searches of the tests are too broad: ask for fewer or rarer words".to_owned());
    }
    let place = found.iter().position(|hit| hit.path == *finds);
    if place.is_some_and(|place| place < within) {
        return None;
    }
    let why = match place {
        Some(place) => format!("it is hit {}", place + 1),
        None if is_there => format!("it is not among the first {MAX_WITHIN} hits"),
        None => "there is no such memory".to_owned(),
    };
    let first: Vec<_> = found.iter().take(NAMED_HITS).map(|hit| format!("`{}`", hit.path)).collect();
    Some(if first.is_empty() {
        format!("{why}, and the search has no hits")
    } else {
        format!("{why}, the first hits are {}", first.join(", "))
    })
}

fn why_not_contained(content: Option<&FoundContent>, text: &str) -> Option<String> {
    let why = match content {
        Some(FoundContent::Text(content)) if content.contains(text) => return None,
        Some(FoundContent::Text(_)) => "the memory does not have the text",
        Some(FoundContent::Lost(ContentLoss::Missing)) => {
            "the content of the memory is missing in the content store"
        }
        Some(FoundContent::Lost(ContentLoss::Damaged)) => {
            "the content of the memory is damaged in the content store"
        }
        Some(FoundContent::Missing) | None => "there is no such memory",
    };
    Some(why.to_owned())
}

fn why_not_unchanged(changes: &[ChangedMemory], area: &Area) -> Option<String> {
    let touched = changes.iter().filter_map(|change| {
        let mut paths = change.before.iter().chain(&change.after);
        paths.find(|path| area.has(path) && !path.is_setting())
    });
    let mut touched: Vec<_> = touched.collect();
    touched.sort_unstable();
    let first = touched.first()?;
    Some(match touched.len() {
        1 => format!("the change touches `{first}`"),
        count => format!("the change touches `{first}` and {} more", count - 1),
    })
}
