//! Look-ups of one memory each. Waiting look-ups share a statement, also across stores
//! and tenants; the statement names the tenant of each.

use std::hash::Hash;
use std::slice;
use std::time::Duration;

use futures::future::BoxFuture;
use keepsake_core::{DirPath, MemoryId, MemoryPath};

use super::StoreKey;
use crate::database::{Backend, BatchRules, Batches, Database, FromRow, Role, Row, Unanswered};
use crate::model::{FoundMemory, Lookup};
use crate::{IndexError, postgres, sqlite};

const HEADS: &str = "heads";
const MEMORIES: &str = "memories_by_id";

/// A second batch at the same time takes a second connection and makes both batches
/// smaller, which costs more. So it begins only if the first batch does not return.
const fn rules<J, T>() -> BatchRules<J, Found<T>> {
    BatchRules {
        jobs: 16,
        max_running: 4,
        extra_batch_after: Duration::from_millis(10),
        joins: |_, _| true,
        answer_of_all: IndexError::of_all_that_wait,
    }
}

/// A path in a store; `None` is the root.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) store: StoreKey,
    pub(crate) path: Option<MemoryPath>,
}

#[derive(Debug)]
pub(crate) struct HeadAt {
    pub(crate) place: Place,
    /// Maximum number of entries to read of a directory.
    pub(crate) max_entries: u64,
}

#[derive(Debug)]
pub(crate) struct MemoryAt {
    pub(crate) store: StoreKey,
    pub(crate) memory_id: MemoryId,
}

/// The result of a look-up; `None`: no such store.
type Found<T> = Result<Option<T>, IndexError>;

/// The kinds of look-ups by path. A listing takes longer, so other look-ups do not share
/// its batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Wanted {
    Head,
    Listing,
}

#[derive(Debug, Clone)]
pub(super) struct Lookups {
    database: Database,
    heads: Batches<Wanted, HeadAt, Found<Lookup>>,
    memories: Batches<(), MemoryAt, Found<FoundMemory>>,
}

impl Place {
    /// The path, as that of a directory.
    pub(crate) fn directory(&self) -> DirPath {
        self.path.as_ref().map_or_else(DirPath::root, MemoryPath::as_dir)
    }
}

impl Lookups {
    pub(super) fn new(database: &Database) -> Self {
        Self {
            database: database.clone(),
            heads: batches(database, HEADS, heads),
            memories: batches(database, MEMORIES, memories),
        }
    }

    pub(super) async fn head(&self, at: HeadAt) -> Found<Lookup> {
        if let Backend::Sqlite(index) = self.database.backend()
            && let Some(found) = index.known().target(&at)
        {
            return Ok(Some(found));
        }
        let wanted = if at.max_entries == 0 { Wanted::Head } else { Wanted::Listing };
        answered(self.heads.run(wanted, at).await)
    }

    pub(super) async fn memory(&self, at: MemoryAt) -> Found<FoundMemory> {
        answered(self.memories.run((), at).await)
    }
}

fn answered<T>(answer: Result<Found<T>, Unanswered>) -> Found<T> {
    answer.unwrap_or_else(|unanswered| {
        Err(IndexError::Unavailable(match unanswered {
            Unanswered::NotBegun => sqlx::Error::PoolTimedOut,
            Unanswered::Lost => sqlx::Error::WorkerCrashed,
        }))
    })
}

type LookUp<J, T> = for<'a> fn(&'a Database, &'a [J]) -> BoxFuture<'a, Result<Vec<Answer<T>>, IndexError>>;

fn batches<K, J, T>(database: &Database, call: &'static str, look_up: LookUp<J, T>) -> Batches<K, J, Found<T>>
where
    K: Clone + Eq + Hash + Send + 'static,
    J: Send + Sync + 'static,
    T: Send + 'static,
{
    let database = database.clone();
    Batches::new(rules(), move |jobs: Vec<J>| {
        let database = database.clone();
        async move {
            match look_up(&database, &jobs).await {
                // One look-up may be the cause, so each one then runs by itself.
                Err(IndexError::Database(error)) if jobs.len() > 1 => {
                    tracing::warn!(error = %error, "index.{call}: a batch was refused; its look-ups are made one by one");
                    let mut answers = Vec::with_capacity(jobs.len());
                    for job in &jobs {
                        let found = look_up(&database, slice::from_ref(job)).await;
                        answers.extend(answers_of(found, 1));
                    }
                    answers
                }
                found => answers_of(found, jobs.len()),
            }
        }
    })
}

/// The row of one job of a batch; `element` is the index of the job.
pub(crate) struct Answer<T> {
    element: u64,
    /// A row that cannot be read fails only its own job.
    row: Result<T, IndexError>,
}

impl<T: FromRow> FromRow for Answer<T> {
    fn from_row(row: &Row) -> Result<Self, IndexError> {
        Ok(Self { element: row.get("element")?, row: row.read() })
    }
}

impl<T> Answer<T> {
    /// The job that the row answers, and the result.
    pub(crate) fn with_job<'a, J>(&'a mut self, jobs: &'a [J]) -> Option<(&'a J, &'a mut T)> {
        let job = jobs.get(usize::try_from(self.element).ok()?)?;
        Some((job, self.row.as_mut().ok()?))
    }

    /// Translates the index of the job, after jobs were sent in the given order of their
    /// indexes.
    pub(crate) fn at(self, order: &[usize]) -> Self {
        let sent = usize::try_from(self.element).ok();
        let job = sent.and_then(|sent| order.get(sent));
        Self { element: job.map_or(u64::MAX, |&job| job as u64), ..self }
    }
}

/// One answer for each of `count` jobs. If the read failed, every job gets the error.
pub(crate) fn answers_of<T>(read: Result<Vec<Answer<T>>, IndexError>, count: usize) -> Vec<Found<T>> {
    match read {
        Ok(rows) => {
            let mut answers: Vec<_> = (0..count).map(|_| Ok(None)).collect();
            for Answer { element, row } in rows {
                let element = usize::try_from(element).unwrap_or(usize::MAX);
                if let Some(answer) = answers.get_mut(element) {
                    *answer = row.map(Some);
                }
            }
            answers
        }
        Err(error) => {
            let mut answers: Vec<_> = (1..count).map(|_| Err(error.copy())).collect();
            answers.push(Err(error));
            answers
        }
    }
}

fn heads<'a>(
    database: &'a Database,
    jobs: &'a [HeadAt],
) -> BoxFuture<'a, Result<Vec<Answer<Lookup>>, IndexError>> {
    Box::pin(async move {
        if let Backend::Sqlite(index) = database.backend() {
            return sqlite::head::heads(database, index, HEADS, jobs).await;
        }
        let mut tx = database.read_one(HEADS, Role::Anonymous).await?;
        postgres::head::heads(&mut tx, jobs).all().await
    })
}

fn memories<'a>(
    database: &'a Database,
    jobs: &'a [MemoryAt],
) -> BoxFuture<'a, Result<Vec<Answer<FoundMemory>>, IndexError>> {
    Box::pin(async move {
        let mut tx = database.read_one(MEMORIES, Role::Anonymous).await?;
        let query = if tx.is_postgres() {
            postgres::head::memories(&mut tx, jobs)
        } else {
            sqlite::head::memories(&mut tx, jobs)
        };
        query.all().await
    })
}
