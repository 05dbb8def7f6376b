//! Commits on Postgres: one call of the function `commit_batch` for several, or of
//! `commit_changes` for one, also in a transaction that goes on.

use std::slice;

use keepsake_core::TenantId;
use serde_json::Value;
use sqlx::types::Json;

use crate::IndexError;
use crate::commit::{Commit, CommitOutcome, CommitPlan};
use crate::database::{Batching, CommitResult, Database, Role, TenantCommit, Tx};
use crate::postgres::row::row_of;

const COMMIT_CHANGES: &str = "SELECT commit_changes($1, $2, $3::commit_document, $4, false)";

/// As `commit_batch` for one commit: without a change there is nothing to make durable, so the transaction does
/// not wait for a flush.
const COMMIT_ONE: &str = "SELECT made, CASE WHEN made ->> 'outcome' <> 'committed' \
    THEN set_config('synchronous_commit', 'off', true) END AS durability \
    FROM (SELECT commit_changes($1, $2, $3::commit_document, $4, $5) AS made) one";

/// On a distributed database, on the node of the tenant.
const COMMIT_OF_TENANT: &str = "SELECT commit_batch_of($1, $2, $3, $4, $5)";

const COMMIT_BATCH: &str = "SELECT commit_batch($1, $2, $3, $4::commit_document[], $5)";

/// Maximum bytes of contents and search terms in a batch. A call that is sent again on
/// another connection is in memory twice.
const MAX_BATCH_BYTES: usize = 2 << 20;

/// Whether `next` may share a call with `batch`: only commits of one memory share calls.
pub(crate) fn joins(batch: &[TenantCommit], next: &TenantCommit) -> bool {
    let bytes: usize = batch.iter().chain([next]).map(|(_, commit)| commit.bytes()).sum();
    batch.first().is_some_and(|(_, first)| is_small(first)) && is_small(&next.1) && bytes <= MAX_BATCH_BYTES
}

/// Whether the commit is about one memory, so that other commits may wait for it.
pub(crate) const fn is_small(commit: &Commit) -> bool {
    commit.changes.len() + commit.kept.len() <= 1
}

/// Executes commits that [`joins`] put together. A failure or refusal of one commit does
/// not affect the others.
pub(crate) async fn commit_all(
    database: &Database,
    commits: &[TenantCommit],
    batching: Batching,
) -> Vec<CommitResult> {
    if let [commit] = commits {
        return vec![commit_one(database, commit, batching).await];
    }
    match commit_batch(database, commits, batching).await {
        Ok(made) => made,
        // Postgres refused the statement, so no commit was made. One of them may be the
        // cause, so each one then runs by itself.
        Err(IndexError::Database(error @ sqlx::Error::Database(_))) => {
            tracing::warn!(error = %error, "index.commit: a batch was refused; its commits are made one by one");
            let mut made = Vec::with_capacity(commits.len());
            for commit in commits {
                made.push(commit_one(database, commit, batching).await);
            }
            made
        }
        Err(error) => {
            let mut made: Vec<CommitResult> = (1..commits.len()).map(|_| Err(error.copy())).collect();
            made.push(Err(error));
            made
        }
    }
}

async fn commit_one(database: &Database, job: &TenantCommit, batching: Batching) -> CommitResult {
    if database.is_distributed() {
        // Only a single function goes to the node of the tenant.
        let made = commit_batch(database, slice::from_ref(job), batching).await?;
        return made.into_iter().next().unwrap_or_else(|| Err(unknown_outcome()));
    }
    let (tenant_id, commit) = job;
    let parameters = parameters_of(commit);
    let skips_locked = batching == Batching::AcrossStores;
    let mut tx = database.write_one("commit_batch", Role::Anonymous).await?;
    let query = tx.query(COMMIT_ONE).bind((*tenant_id, commit.store_id));
    let answer: Json<Value> = query.bind((parameters, skips_locked)).scalar().await?;
    outcome_of(answer.0)
}

async fn commit_batch(
    database: &Database,
    commits: &[TenantCommit],
    batching: Batching,
) -> Result<Vec<CommitResult>, IndexError> {
    // Batches wait for each other only over idempotency records, so every batch takes the
    // records in the order of their keys, in which jobs remove them. Commits of one store
    // without a record are adjacent, so that the store is locked once.
    let mut order: Vec<usize> = (0..commits.len()).collect();
    order.sort_by_key(|&job| {
        let (tenant_id, commit) = &commits[job];
        let key = commit.idempotency.as_ref().map(|call| call.scope_sha256);
        (tenant_id.uuid(), key, commit.store_id.uuid())
    });
    let sorted: Vec<&TenantCommit> = order.iter().map(|&job| &commits[job]).collect();
    let parameters = sorted.iter().map(|(_, commit)| parameters_of(commit));
    let (rows, contents): (Vec<_>, Vec<_>) = parameters.unzip();
    let skips_locked = batching == Batching::AcrossStores;
    // The function sets the tenant of each commit.
    let mut tx = database.write_one("commit_batch", Role::Anonymous).await?;
    let query = match commits.first() {
        Some((tenant_id, _)) if tx.is_distributed() => {
            tx.query(COMMIT_OF_TENANT).bind((*tenant_id, skips_locked))
        }
        _ => {
            let query = tx.query(COMMIT_BATCH).bind(skips_locked);
            query.bind_array(sorted.iter().map(|(tenant_id, _)| tenant_id.uuid()).collect::<Vec<_>>())
        }
    };
    let query = query.bind_array(sorted.iter().map(|(_, commit)| commit.store_id.uuid()).collect::<Vec<_>>());
    let answers: Json<Vec<Value>> = query.bind_array(rows).bind_array(contents).scalar().await?;
    if answers.len() != commits.len() {
        return Err(unknown_outcome());
    }
    // An outcome that cannot be read fails only its own commit: the others are made.
    let made = answers.0.into_iter().map(outcome_of);
    let mut made: Vec<(usize, CommitResult)> = order.into_iter().zip(made).collect();
    made.sort_unstable_by_key(|(job, _)| *job);
    Ok(made.into_iter().map(|(_, made)| made).collect())
}

fn outcome_of(answer: Value) -> CommitResult {
    if answer["outcome"] == "locked" {
        return Ok(None);
    }
    serde_json::from_value(answer).map(Some).map_err(|_| unknown_outcome())
}

/// The commit may be made: another attempt finds its record.
fn unknown_outcome() -> IndexError {
    IndexError::OutcomeUnknown(sqlx::Error::Protocol("an unknown outcome of `commit_batch`".to_owned()))
}

pub(crate) async fn commit_changes(
    tx: &mut Tx,
    tenant_id: TenantId,
    commit: &Commit,
) -> Result<CommitOutcome, IndexError> {
    let query = tx.query(COMMIT_CHANGES).bind((tenant_id, commit.store_id));
    let outcome: Json<CommitOutcome> = query.bind(parameters_of(commit)).scalar().await?;
    Ok(outcome.0)
}

/// The document of a commit as a row, and its contents.
fn parameters_of(commit: &Commit) -> (String, Vec<u8>) {
    (row_of(&commit.document(&CommitPlan::of(commit))), commit.contents())
}
