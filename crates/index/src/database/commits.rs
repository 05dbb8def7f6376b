//! Commits in batches, on either database.

use std::hash::Hash;
use std::time::Duration;

use futures::future::BoxFuture;
use keepsake_core::{StoreId, TenantId};

use super::{Backend, BatchFailure, BatchRules, Batches, Database, Mode, Role, Tx};
use crate::commit::{Commit, CommitOutcome};
use crate::{IndexError, postgres, sqlite};

/// Executes commits in batches: the commits of a batch share a transaction and its flush,
/// and each has its own outcome.
///
/// On Postgres, commits of one memory share batches across stores, which do not wait for a
/// locked store; on a distributed database, across stores of one tenant. Other commits, and those of a locked store, wait in the lane of their
/// store. On SQLite, all commits wait in one lane, because only one connection writes.
#[derive(Debug, Clone)]
pub(crate) struct Commits {
    across_stores: Batches<Option<TenantId>, TenantCommit, CommitResult>,
    within_store: Batches<StoreLane, TenantCommit, CommitResult>,
}

/// The lane of a store. Any tenant may name the id of any store, so the lane includes the
/// tenant. `None` on SQLite.
type StoreLane = Option<(TenantId, StoreId)>;

/// A commit that waits for its batch, and its tenant.
pub(crate) type TenantCommit = (TenantId, Commit);

/// The commits with which a commit on Postgres shares a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Batching {
    /// With commits of any store; skipped if another transaction has locked its store.
    AcrossStores,
    /// With commits of its store; waits for the lock of the store.
    WithinStore,
}

/// The result of running one commit in a batch; `None`: the commit was skipped, because another
/// transaction has locked its store.
pub(crate) type CommitResult = Result<Option<CommitOutcome>, IndexError>;

/// Further batches run at the same time only while a connection hangs. `jobs` bounds how
/// long each commit waits for its batch.
const ACROSS_STORES: BatchRules<TenantCommit, CommitResult> = BatchRules {
    jobs: 32,
    max_running: 4,
    extra_batch_after: Duration::from_millis(250),
    joins: postgres::commit::joins,
    answer_of_all: IndexError::of_all_that_wait,
};
/// A batch locks the store, so a second one runs only if the first hangs.
const WITHIN_STORE: BatchRules<TenantCommit, CommitResult> =
    BatchRules { max_running: 2, extra_batch_after: Duration::from_secs(3), ..ACROSS_STORES };
const ON_SQLITE: BatchRules<TenantCommit, CommitResult> =
    BatchRules { jobs: 64, max_running: 1, joins: |_, _| true, ..WITHIN_STORE };

impl Commits {
    pub(crate) fn new(database: &Database) -> Self {
        let within_store = match database.backend() {
            Backend::Postgres(_) => WITHIN_STORE,
            Backend::Sqlite(_) => ON_SQLITE,
        };
        Self {
            across_stores: batches(ACROSS_STORES, database, Batching::AcrossStores),
            within_store: batches(within_store, database, Batching::WithinStore),
        }
    }

    pub(crate) async fn run(
        &self,
        database: &Database,
        tenant_id: TenantId,
        commit: &Commit,
    ) -> Result<CommitOutcome, IndexError> {
        // A trait object keeps the types of the callers' futures small.
        let outcome: BoxFuture<'_, _> = Box::pin(self.outcome(database, tenant_id, commit));
        let role = Role::Tenant(tenant_id);
        database.measure("commit", role, Mode::Write, outcome).await
    }

    async fn outcome(
        &self,
        database: &Database,
        tenant_id: TenantId,
        commit: &Commit,
    ) -> Result<CommitOutcome, IndexError> {
        let lane = match database.backend() {
            Backend::Postgres(_) => Some((tenant_id, commit.store_id)),
            Backend::Sqlite(_) => None,
        };
        let is_small = lane.is_some() && postgres::commit::is_small(commit);
        // A commit that runs in the store's lane holds the store's lock.
        let mut batching = if is_small && !self.within_store.is_running(&lane) {
            Batching::AcrossStores
        } else {
            Batching::WithinStore
        };
        loop {
            let job = (tenant_id, commit.clone());
            let answer = match batching {
                Batching::AcrossStores => self.across_stores.run(database.lane_of(tenant_id), job).await,
                Batching::WithinStore => self.within_store.run(lane, job).await,
            };
            let outcome = match answer {
                Ok(outcome) => outcome?,
                Err(BatchFailure::NotBegun) => {
                    return Err(IndexError::Unavailable(sqlx::Error::PoolTimedOut));
                }
                Err(BatchFailure::Lost) => {
                    return Err(IndexError::OutcomeUnknown(sqlx::Error::WorkerCrashed));
                }
            };
            if let Some(outcome) = outcome {
                return Ok(outcome);
            }
            batching = Batching::WithinStore;
        }
    }
}

fn batches<K>(
    rules: BatchRules<TenantCommit, CommitResult>,
    database: &Database,
    batching: Batching,
) -> Batches<K, TenantCommit, CommitResult>
where
    K: Clone + Eq + Hash + Send + 'static,
{
    let database = database.clone();
    Batches::new(rules, move |commits: Vec<TenantCommit>| {
        let database = database.clone();
        async move {
            match database.backend() {
                Backend::Postgres(_) => postgres::commit::commit_all(&database, &commits, batching).await,
                Backend::Sqlite(_) => sqlite::commit::commit_all(&database, &commits).await,
            }
        }
    })
}

/// Executes a commit as a part of a transaction that holds the store's lock.
pub(crate) async fn commit_changes(
    tx: &mut Tx,
    tenant_id: TenantId,
    commit: &Commit,
) -> Result<CommitOutcome, IndexError> {
    if tx.is_postgres() {
        postgres::commit::commit_changes(tx, tenant_id, commit).await
    } else {
        sqlite::commit::commit_changes(tx, tenant_id, commit).await
    }
}
