//! Look-ups of one memory each. Waiting look-ups share a statement, also across stores
//! and tenants; the statement names the tenant of each. On a distributed database, only those
//! of one tenant do.

use std::hash::Hash;
use std::slice;
use std::time::Duration;

use futures::future::BoxFuture;
use keepsake_core::TenantId;

use super::{postgres, sqlite};
use crate::IndexError;
use crate::database::{Answer, BatchFailure, BatchRules, Batches, Database, Role, answers_of};
use crate::model::{FoundMemory, HeadLookup, Lookup, MemoryLookup};

const HEADS: &str = "heads";
const MEMORIES: &str = "memories_by_id";

/// A second batch at the same time takes a second connection and makes both batches
/// smaller, which costs more. So it begins only if the first batch does not return.
const fn rules<J, T>() -> BatchRules<J, LookupResult<T>> {
    BatchRules {
        jobs: 16,
        max_running: 4,
        extra_batch_after: Duration::from_millis(10),
        joins: |_, _| true,
        answer_of_all: IndexError::of_all_that_wait,
    }
}

/// The result of a look-up; `None`: no such store.
type LookupResult<T> = Result<Option<T>, IndexError>;

/// The kinds of look-ups by path. A listing takes longer, so other look-ups do not share
/// its batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum LookupKind {
    Head,
    Listing,
}

#[derive(Debug, Clone)]
pub(super) struct Lookups {
    database: Database,
    heads: Batches<(LookupKind, Option<TenantId>), HeadLookup, LookupResult<Lookup>>,
    memories: Batches<Option<TenantId>, MemoryLookup, LookupResult<FoundMemory>>,
}

impl Lookups {
    pub(super) fn new(database: &Database) -> Self {
        Self {
            database: database.clone(),
            heads: batches(database, HEADS, heads),
            memories: batches(database, MEMORIES, memories),
        }
    }

    pub(super) async fn head(&self, at: HeadLookup) -> LookupResult<Lookup> {
        if let Some(index) = self.database.sqlite()
            && let Some(found) = index.known().target(&at)
        {
            return Ok(Some(found));
        }
        let wanted = if at.max_entries == 0 { LookupKind::Head } else { LookupKind::Listing };
        let lane = self.database.lane_of(at.place.store.tenant_id);
        answered(self.heads.run((wanted, lane), at).await)
    }

    pub(super) async fn memory(&self, at: MemoryLookup) -> LookupResult<FoundMemory> {
        if let Some(index) = self.database.sqlite()
            && let Some(found) = index.known().memory(at)
        {
            return Ok(Some(found));
        }
        let lane = self.database.lane_of(at.0.tenant_id);
        answered(self.memories.run(lane, at).await)
    }
}

fn answered<T>(answer: Result<LookupResult<T>, BatchFailure>) -> LookupResult<T> {
    answer.unwrap_or_else(|unanswered| {
        Err(IndexError::Unavailable(match unanswered {
            BatchFailure::NotBegun => sqlx::Error::PoolTimedOut,
            BatchFailure::Lost => sqlx::Error::WorkerCrashed,
        }))
    })
}

type LookUp<J, T> = for<'a> fn(&'a Database, &'a [J]) -> BoxFuture<'a, Result<Vec<Answer<T>>, IndexError>>;

fn batches<K, J, T>(
    database: &Database,
    call: &'static str,
    look_up: LookUp<J, T>,
) -> Batches<K, J, LookupResult<T>>
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

fn heads<'a>(
    database: &'a Database,
    jobs: &'a [HeadLookup],
) -> BoxFuture<'a, Result<Vec<Answer<Lookup>>, IndexError>> {
    Box::pin(async move {
        if let Some(index) = database.sqlite() {
            return sqlite::heads(database, index, HEADS, jobs).await;
        }
        let mut tx = database.read_one(HEADS, Role::Anonymous).await?;
        postgres::heads(&mut tx, jobs).all().await
    })
}

fn memories<'a>(
    database: &'a Database,
    jobs: &'a [MemoryLookup],
) -> BoxFuture<'a, Result<Vec<Answer<FoundMemory>>, IndexError>> {
    Box::pin(async move {
        if let Some(index) = database.sqlite() {
            return sqlite::memories(database, index, MEMORIES, jobs).await;
        }
        let mut tx = database.read_one(MEMORIES, Role::Anonymous).await?;
        postgres::memories(&mut tx, jobs).all().await
    })
}
