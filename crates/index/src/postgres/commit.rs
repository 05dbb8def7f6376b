//! Commits on Postgres. A put is one call of the function `put_content`, and several puts
//! share one call of `put_contents`. Any other commit is one call of `commit_changes`,
//! which also returns the reason of a refusal.

use keepsake_core::{Actor, DirPath, SensitiveDataPolicy, TenantId};
use uuid::Uuid;

use crate::IndexError;
use crate::commit::{
    Attempt, Batching, Change, Commit, CommitOutcome, CommitPlan, Made, Refusal, StoreCommit,
};
use crate::database::{Database, FromRow, Query, Role, Row, Tx};
use crate::memories::{Answer, answers_of};
use crate::model::HeadChange;
use crate::numbers::signed;

const COMMIT_CHANGES: &str = "SELECT outcome, seq, object_id, path, measured, made_at, expires_unused_after, \
    period_set_at FROM commit_changes($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, \
    $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, \
    $40, $41, $42, $43, $44, $45, $46, $47, $48)";

/// The function is called in a subquery, because Postgres would buffer the result of a
/// function in `FROM`.
const PUT_CONTENT: &str = "SELECT CASE WHEN made = '{}' THEN 'locked' ELSE 'committed' END AS outcome, \
    made[1] AS seq, made[2] AS measured, made[3] AS made_at, made[4] AS expires_unused_after, \
    made[5] AS period_set_at FROM (SELECT put_content($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, \
    $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32) AS made) put \
    WHERE made IS NOT NULL";

const PUT_CONTENTS: &str = "SELECT element, outcome, seq, measured, made_at, expires_unused_after, \
    period_set_at FROM put_contents($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, \
    $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33)";

/// Changes of one or several commits, as one array per column.
#[derive(Default)]
struct ChangeColumns<'a> {
    op: Vec<&'static str>,
    memory: Vec<Uuid>,
    expect: Vec<Option<Uuid>>,
    version: Vec<Uuid>,
    path: Vec<&'a str>,
    parent: Vec<String>,
    name: Vec<&'a str>,
    blob: Vec<Option<Uuid>>,
    size: Vec<Option<i64>>,
    sha256: Vec<Option<&'a [u8]>>,
    first_line: Vec<Option<&'a str>>,
    is_pinned: Vec<Option<bool>>,
    expires_at: Vec<Option<i64>>,
    content: Vec<Option<&'a [u8]>>,
    analyser: Vec<Option<i64>>,
    length: Vec<Option<i64>>,
    terms: Vec<Option<&'a [u8]>>,
}

impl<'a> ChangeColumns<'a> {
    fn of(commit: &'a Commit) -> Self {
        let mut columns = Self::default();
        for change in &commit.changes {
            columns.push(change);
        }
        columns
    }

    fn push(&mut self, change: &'a Change) {
        let Some(path) = change.path() else {
            return;
        };
        let after = change.after.as_ref();
        self.op.push(change.operation().name());
        self.memory.push(change.memory_id.uuid());
        self.expect.push(change.expected_version().map(keepsake_core::Id::uuid));
        self.version.push(change.version_id.uuid());
        self.path.push(path.as_str());
        self.parent.push(path.parent().as_str().to_owned());
        self.name.push(path.name());
        self.blob.push(after.map(|after| after.blob_id.uuid()));
        self.size.push(after.and_then(|after| i64::try_from(after.size_bytes).ok()));
        self.sha256.push(after.map(|after| after.sha256.as_bytes().as_slice()));
        self.first_line.push(after.and_then(|after| after.first_line.as_deref()));
        let expiry = after.map(|after| after.expiry);
        self.is_pinned.push(expiry.and_then(|expiry| expiry.is_pinned));
        self.expires_at.push(expiry.and_then(|expiry| expiry.stored_time()));
        self.content.push(after.and_then(HeadChange::content_bytes));
        let search = after.and_then(|after| after.search.as_ref());
        self.analyser.push(search.map(|row| i64::from(row.analyser)));
        self.length.push(search.map(|row| i64::from(row.length)));
        self.terms.push(search.map(|row| row.terms.as_slice()));
    }
}

/// The changes of directories, as one array per column.
#[derive(Default)]
struct DirectoryColumns<'a> {
    path: Vec<&'a str>,
    parent: Vec<String>,
    name: Vec<&'a str>,
    files: Vec<i64>,
    size_bytes: Vec<i64>,
    children: Vec<i64>,
}

impl<'a> DirectoryColumns<'a> {
    fn of(plan: &'a CommitPlan) -> Self {
        let mut columns = Self::default();
        for (directory, delta) in &plan.directories {
            columns.path.push(directory.as_str());
            columns.parent.push(directory.parent().unwrap_or_else(DirPath::root).as_str().to_owned());
            columns.name.push(directory.name());
            columns.files.push(delta.files);
            columns.size_bytes.push(delta.size_bytes);
            columns.children.push(delta.visible_children);
        }
        columns
    }
}

/// Maximum bytes of contents and search terms in a batch. A call that is sent again on
/// another connection is in memory twice.
const MAX_BATCH_BYTES: usize = 2 << 20;

/// Whether the commit is a put, which one call may make together with others.
pub(crate) fn is_put(commit: &Commit) -> bool {
    put_of(commit).is_some()
}

/// Whether `next` may share a call with `batch`; only puts share calls.
pub(crate) fn joins(batch: &[StoreCommit], next: &StoreCommit) -> bool {
    let may_join = |commit: &StoreCommit| commit.batching != Batching::Never && is_put(&commit.commit);
    let bytes: usize = batch.iter().chain([next]).map(|commit| bytes_of(&commit.commit)).sum();
    batch.first().is_some_and(may_join) && may_join(next) && bytes <= MAX_BATCH_BYTES
}

fn bytes_of(commit: &Commit) -> usize {
    let changed = commit.changes.iter().filter_map(|change| change.after.as_ref());
    let bytes = changed.map(|after| {
        let content = after.content_bytes().map_or(0, <[u8]>::len);
        content + after.search.as_ref().map_or(0, |row| row.terms.len())
    });
    bytes.sum()
}

/// Executes commits that [`joins`] put together. A failure or refusal of one commit does
/// not affect the others.
pub(crate) async fn commit_all(database: &Database, commits: &[StoreCommit]) -> Vec<Made> {
    match commits {
        [commit] => vec![commit_one(database, commit).await],
        commits => put_all(database, commits).await,
    }
}

async fn commit_one(database: &Database, commit: &StoreCommit) -> Made {
    let StoreCommit { tenant_id, commit, batching } = commit;
    let role = Role::Tenant(*tenant_id);
    let mut tx = database.write_one("commit_alone", role).await?;
    if *batching != Batching::Never
        && let Some((change, after)) = put_of(commit)
    {
        let made = put(&mut tx, *tenant_id, commit, change, after, *batching).await?;
        match made {
            Some(made) => return Ok(made),
            None if *batching == Batching::AcrossStores => return Ok(Attempt::NotMade),
            None => {}
        }
    }
    commit_changes(&mut tx, *tenant_id, commit).await.map(Attempt::Done)
}

pub(crate) async fn commit_changes(
    tx: &mut Tx,
    tenant_id: TenantId,
    commit: &Commit,
) -> Result<CommitOutcome, IndexError> {
    let plan = CommitPlan::of(&commit.changes);
    let changes = ChangeColumns::of(commit);
    let directories = DirectoryColumns::of(&plan);
    let (guard, kept) = (commit.guard.as_ref(), &commit.kept);
    bind_shared(tx.query(COMMIT_CHANGES), tenant_id, commit)
        .bind(commit.idempotency.map(|call| call.since))
        .bind(guard.map(|guard| guard.directory.as_str()))
        .bind(guard.map(|guard| guard.files))
        .bind(commit.purge_epoch)
        .bind(commit.policy.map(SensitiveDataPolicy::name))
        .bind(plan.count_delta)
        .bind(plan.byte_delta)
        .bind(plan.directories_may_go)
        .bind_array(changes.op)
        .bind_array(changes.memory)
        .bind_array(changes.expect)
        .bind_array(changes.version)
        .bind_array(changes.path)
        .bind_array(changes.parent)
        .bind_array(changes.name)
        .bind_array(changes.blob)
        .bind_array(changes.size)
        .bind_array(changes.sha256)
        .bind_array(changes.first_line)
        .bind_array(changes.is_pinned)
        .bind_array(changes.expires_at)
        .bind_array(changes.content)
        .bind_array(changes.analyser)
        .bind_array(changes.length)
        .bind_array(changes.terms)
        .bind_array(kept.iter().map(|kept| kept.memory_id.uuid()).collect::<Vec<_>>())
        .bind_array(kept.iter().map(|kept| kept.expected.uuid()).collect::<Vec<_>>())
        .bind_array(kept.iter().map(|kept| kept.expiry.is_pinned).collect::<Vec<_>>())
        .bind_array(kept.iter().map(|kept| kept.expiry.stored_time()).collect::<Vec<_>>())
        .bind(commit.results.as_deref())
        .bind_array(&plan.taken_paths)
        .bind_array(&plan.ancestor_files)
        .bind_array(directories.path)
        .bind_array(directories.parent)
        .bind_array(directories.name)
        .bind_array(directories.files)
        .bind_array(directories.size_bytes)
        .bind_array(directories.children)
        .one()
        .await
}

/// Binds the first parameters, which both functions share.
fn bind_shared<'t>(query: Query<'t>, tenant_id: TenantId, commit: &Commit) -> Query<'t> {
    let idempotency = commit.idempotency.as_ref();
    query
        .bind(tenant_id)
        .bind(commit.store_id)
        .bind(commit.now)
        .bind(commit.actor.as_ref().map(Actor::kind))
        .bind(commit.actor.as_ref().map(Actor::id))
        .bind(commit.replica)
        .bind(commit.memory_limit)
        .bind(commit.byte_limit)
        .bind(idempotency.map(|call| call.scope_sha256.as_slice()))
        .bind(idempotency.map(|call| call.request_sha256.as_slice()))
}

impl FromRow for Attempt {
    fn from_row(row: &Row) -> Result<Self, IndexError> {
        Ok(match row.get::<String>("outcome")?.as_str() {
            "locked" => Self::Locked,
            _ => Self::Done(row.read()?),
        })
    }
}

impl FromRow for CommitOutcome {
    fn from_row(row: &Row) -> Result<Self, IndexError> {
        let refusal = match row.get::<String>("outcome")?.as_str() {
            "committed" => {
                return Ok(Self::Committed {
                    seq: row.get("seq")?,
                    purge_epoch: row.get("measured")?,
                    at: row.get("made_at")?,
                    expiry: row.read()?,
                });
            }
            "replayed" => return Ok(Self::Replayed { seq: row.get("seq")? }),
            "key_reused" => return Ok(Self::KeyReused),
            "no_store" => Refusal::NoStore,
            "archived" => Refusal::Archived,
            "stale" => Refusal::Stale,
            "taken" => Refusal::PathTaken { path: row.get("path")?, memory_id: row.get("object_id")? },
            "directory" => Refusal::PathIsDirectory { path: row.get("path")? },
            "parent_is_file" => {
                Refusal::ParentIsFile { path: row.get("path")?, memory_id: row.get("object_id")? }
            }
            "too_many" => Refusal::TooManyMemories { count: row.get("measured")? },
            "store_full" => Refusal::StoreFull { size_bytes: row.get("measured")? },
            "needs_grant" => Refusal::NeedsGrant { size_bytes: row.get("measured")? },
            "condemned" => Refusal::BlobCondemned,
            _ => {
                return Err(IndexError::Corrupt { table: "commit_changes", what: "unknown outcome" });
            }
        };
        Ok(Self::Refused(refusal))
    }
}

/// The change of a commit that only writes new content at one path, for a new
/// memory or for one that keeps its path.
fn put_of(commit: &Commit) -> Option<(&Change, &HeadChange)> {
    let [change] = commit.changes.as_slice() else {
        return None;
    };
    let after = change.after.as_ref()?;
    let is_new_content = after.blob_id == change.version_id;
    let before = change.before.as_ref();
    let moves = before.is_some_and(|before| before.path != after.path);
    let is_batch = !commit.kept.is_empty() || commit.results.is_some();
    let is_more =
        is_batch || commit.guard.is_some() || commit.purge_epoch.is_some() || change.revives.is_some();
    (is_new_content && !moves && !is_more).then_some((change, after))
}

/// Executes a commit that is only a put. Returns `None` if nothing except the
/// store's `last_version_at` was written; the general commit must then run, which
/// also determines the reason of a refusal.
async fn put(
    tx: &mut Tx,
    tenant_id: TenantId,
    commit: &Commit,
    change: &Change,
    after: &HeadChange,
    batching: Batching,
) -> Result<Option<Attempt>, IndexError> {
    let plan = CommitPlan::of(&commit.changes);
    let before = change.before.as_ref();
    let parent = after.path.parent();
    let nearest_first: Vec<&str> = plan.directories.keys().rev().map(DirPath::as_str).collect();
    let search = after.search.as_ref();
    bind_shared(tx.query(PUT_CONTENT), tenant_id, commit)
        .bind(commit.policy.map(SensitiveDataPolicy::name))
        .bind(change.memory_id)
        .bind(before.map(|before| before.version_id))
        .bind(before.map(|before| before.seq))
        .bind(change.version_id)
        .bind(after.path.as_str())
        .bind(parent.as_str())
        .bind(after.path.name())
        .bind(after.size_bytes)
        .bind(after.sha256.as_bytes().as_slice())
        .bind(after.first_line.as_deref())
        .bind((after.expiry.is_pinned, after.expiry.stored_time()))
        .bind(after.content_bytes())
        .bind(search.map(|row| row.analyser))
        .bind(search.map(|row| row.length))
        .bind(search.map(|row| row.terms.as_slice()))
        .bind(plan.count_delta)
        .bind(plan.byte_delta)
        .bind(children_of(&plan, after))
        .bind_array(nearest_first)
        .bind(batching == Batching::AcrossStores)
        .optional()
        .await
}

/// The puts of several commits, as one array per column.
#[derive(Default)]
struct PutColumns<'a> {
    tenant: Vec<Uuid>,
    store: Vec<Uuid>,
    now: Vec<i64>,
    actor_type: Vec<Option<&'static str>>,
    actor_id: Vec<Option<String>>,
    replica: Vec<Uuid>,
    memory_limit: Vec<i64>,
    byte_limit: Vec<i64>,
    scope: Vec<Option<&'a [u8]>>,
    request: Vec<Option<&'a [u8]>>,
    policy: Vec<Option<&'static str>>,
    prev_seq: Vec<Option<i64>>,
    files: Vec<i64>,
    size_bytes: Vec<i64>,
    children: Vec<i64>,
    directories: Vec<i32>,
    directory_paths: Vec<String>,
    changes: ChangeColumns<'a>,
}

impl<'a> PutColumns<'a> {
    fn push(&mut self, tenant_id: TenantId, commit: &'a Commit) {
        let Some((change, after)) = put_of(commit) else {
            return;
        };
        let plan = CommitPlan::of(&commit.changes);
        let (actor, idempotency) = (commit.actor.as_ref(), commit.idempotency.as_ref());
        self.tenant.push(tenant_id.uuid());
        self.store.push(commit.store_id.uuid());
        self.now.push(commit.now.as_micros());
        self.actor_type.push(actor.map(Actor::kind));
        self.actor_id.push(actor.map(Actor::id));
        self.replica.push(commit.replica);
        self.memory_limit.push(signed(commit.memory_limit));
        self.byte_limit.push(signed(commit.byte_limit));
        self.scope.push(idempotency.map(|call| call.scope_sha256.as_slice()));
        self.request.push(idempotency.map(|call| call.request_sha256.as_slice()));
        self.policy.push(commit.policy.map(SensitiveDataPolicy::name));
        self.prev_seq.push(change.before.as_ref().map(|before| before.seq));
        self.files.push(plan.count_delta);
        self.size_bytes.push(plan.byte_delta);
        self.children.push(children_of(&plan, after));
        self.directories.push(i32::try_from(plan.directories.len()).unwrap_or(i32::MAX));
        let nearest_first = plan.directories.keys().rev();
        self.directory_paths.extend(nearest_first.map(|directory| directory.as_str().to_owned()));
        self.changes.push(change);
    }
}

async fn put_all(database: &Database, commits: &[StoreCommit]) -> Vec<Made> {
    let made = match put_all_of(database, commits).await {
        // Postgres refused the statement, so no commit was made. One of them may be the
        // cause, so each one then runs by itself.
        Err(IndexError::Database(error)) => {
            tracing::warn!(error = %error, "index.commit: a batch was refused; its commits are made one by one");
            Ok(Vec::new())
        }
        made => made,
    };
    let answers = answers_of(made, commits.len()).into_iter();
    answers.map(|answer| answer.map(|made| made.unwrap_or(Attempt::NotMade))).collect()
}

async fn put_all_of(
    database: &Database,
    commits: &[StoreCommit],
) -> Result<Vec<Answer<Attempt>>, IndexError> {
    // Batches wait for each other only over idempotency keys, so every batch takes the
    // keys in the same order. Puts of one store are adjacent, so that the store is locked
    // once.
    let mut order: Vec<usize> = (0..commits.len()).collect();
    order.sort_by_key(|&job| {
        let StoreCommit { tenant_id, commit, .. } = &commits[job];
        let key = commit.idempotency.as_ref().map(|call| call.scope_sha256);
        (key, tenant_id.uuid(), commit.store_id.uuid())
    });
    let mut puts = PutColumns::default();
    for &job in &order {
        puts.push(commits[job].tenant_id, &commits[job].commit);
    }
    let changes = puts.changes;
    let skips_locked = commits.first().is_some_and(|commit| commit.batching == Batching::AcrossStores);
    // The function sets the tenant of each put.
    let mut tx = database.write_one("commit_batch", Role::Anonymous).await?;
    let answers: Vec<Answer<Attempt>> = tx
        .query(PUT_CONTENTS)
        .bind(skips_locked)
        .bind_array(puts.tenant)
        .bind_array(puts.store)
        .bind_array(puts.now)
        .bind_array(puts.actor_type)
        .bind_array(puts.actor_id)
        .bind_array(puts.replica)
        .bind_array(puts.memory_limit)
        .bind_array(puts.byte_limit)
        .bind_array(puts.scope)
        .bind_array(puts.request)
        .bind_array(puts.policy)
        .bind_array(changes.memory)
        .bind_array(changes.expect)
        .bind_array(puts.prev_seq)
        .bind_array(changes.version)
        .bind_array(changes.path)
        .bind_array(changes.parent)
        .bind_array(changes.name)
        .bind_array(changes.size)
        .bind_array(changes.sha256)
        .bind_array(changes.first_line)
        .bind_array(changes.is_pinned)
        .bind_array(changes.expires_at)
        .bind_array(changes.content)
        .bind_array(changes.analyser)
        .bind_array(changes.length)
        .bind_array(changes.terms)
        .bind_array(puts.files)
        .bind_array(puts.size_bytes)
        .bind_array(puts.children)
        .bind_array(puts.directories)
        .bind_array(puts.directory_paths)
        .all()
        .await?;
    Ok(answers.into_iter().map(|answer| answer.at(&order)).collect())
}

/// The change of the number of visible children in the directory of the new path.
fn children_of(plan: &CommitPlan, after: &HeadChange) -> i64 {
    let delta = plan.directories.get(&after.path.parent());
    delta.map(|delta| delta.visible_children).unwrap_or_default()
}
