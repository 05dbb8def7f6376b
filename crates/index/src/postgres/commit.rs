//! Commits of any changes: one call of the function `commit_changes`, which also
//! returns the reason of a refusal.

use async_trait::async_trait;
use keepsake_core::{DirPath, MemoryId, MemoryPath, SensitiveDataPolicy, StoreId, TenantId, Timestamp};
use sqlx::postgres::PgRow;
use sqlx::{PgExecutor, Row};
use uuid::Uuid;

use super::PostgresIndex;
use super::memories::expiry_of;
use crate::commit::{Commit, CommitOutcome, CommitPlan, Refusal};
use crate::model::{
    Directory, FoundMemory, Head, Lookup, MemoryListing, MemoryPage, Pin, PinOutcome, Replayed,
};
use crate::numbers::unsigned;
use crate::{IndexError, MemoryIndex};

/// The changes of a commit, as one array per column.
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
    analyser: Vec<Option<i64>>,
    length: Vec<Option<i64>>,
    terms: Vec<Option<&'a [u8]>>,
}

impl<'a> ChangeColumns<'a> {
    fn of(commit: &'a Commit) -> Self {
        let mut columns = Self::default();
        for change in &commit.changes {
            let Some(path) = change.path() else {
                continue;
            };
            let after = change.after.as_ref();
            columns.op.push(change.operation().name());
            columns.memory.push(change.memory_id.uuid());
            columns
                .expect
                .push(change.expected_version().map(keepsake_core::Id::uuid));
            columns.version.push(change.version_id.uuid());
            columns.path.push(path.as_str());
            columns.parent.push(path.parent().as_str().to_owned());
            columns.name.push(path.name());
            columns.blob.push(after.map(|after| after.blob_id.uuid()));
            columns
                .size
                .push(after.and_then(|after| i64::try_from(after.size_bytes).ok()));
            columns
                .sha256
                .push(after.map(|after| after.sha256.as_bytes().as_slice()));
            columns
                .first_line
                .push(after.and_then(|after| after.first_line.as_deref()));
            columns.is_pinned.push(after.and_then(|after| after.is_pinned));
            let search = after.and_then(|after| after.search.as_ref());
            columns.analyser.push(search.map(|row| i64::from(row.analyser)));
            columns.length.push(search.map(|row| i64::from(row.length)));
            columns.terms.push(search.map(|row| row.terms.as_slice()));
        }
        columns
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
            columns.parent.push(
                directory
                    .parent()
                    .unwrap_or_else(DirPath::root)
                    .as_str()
                    .to_owned(),
            );
            columns.name.push(directory.name());
            columns.files.push(delta.files);
            columns.size_bytes.push(delta.size_bytes);
            columns.children.push(delta.visible_children);
        }
        columns
    }
}

/// Executes a commit, by itself or as a part of a transaction.
pub(super) async fn commit_on(
    executor: impl PgExecutor<'_>,
    tenant_id: TenantId,
    commit: &Commit,
) -> Result<CommitOutcome, IndexError> {
    let plan = CommitPlan::of(&commit.changes);
    let changes = ChangeColumns::of(commit);
    let directories = DirectoryColumns::of(&plan);
    let idempotency = commit.idempotency.as_ref();
    let row = sqlx::query(
        "SELECT outcome, seq, object_id, path, measured, made_at, expires_unused_after, period_set_at \
         FROM commit_changes($1, $2, $3, $4, $5, $6, $7, $8, \
         $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, \
         $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41)",
    )
    .bind(tenant_id.uuid())
    .bind(commit.store_id.uuid())
    .bind(commit.now.as_micros())
    .bind(commit.actor.as_ref().map(keepsake_core::Actor::kind))
    .bind(commit.actor.as_ref().map(keepsake_core::Actor::id))
    .bind(commit.replica)
    .bind(i64::try_from(commit.memory_limit).unwrap_or(i64::MAX))
    .bind(i64::try_from(commit.byte_limit).unwrap_or(i64::MAX))
    .bind(idempotency.map(|call| call.scope_sha256.as_slice()))
    .bind(idempotency.map(|call| call.request_sha256.as_slice()))
    .bind(idempotency.map(|call| call.since.as_micros()))
    .bind(commit.guard.as_ref().map(|guard| guard.directory.as_str()))
    .bind(
        commit
            .guard
            .as_ref()
            .and_then(|guard| i64::try_from(guard.files).ok()),
    )
    .bind(commit.purge_epoch)
    .bind(commit.policy.map(SensitiveDataPolicy::name))
    .bind(plan.count_delta)
    .bind(plan.byte_delta)
    .bind(plan.directories_may_go)
    .bind(changes.op)
    .bind(changes.memory)
    .bind(changes.expect)
    .bind(changes.version)
    .bind(changes.path)
    .bind(changes.parent)
    .bind(changes.name)
    .bind(changes.blob)
    .bind(changes.size)
    .bind(changes.sha256)
    .bind(changes.first_line)
    .bind(changes.is_pinned)
    .bind(changes.analyser)
    .bind(changes.length)
    .bind(changes.terms)
    .bind(&plan.taken_paths)
    .bind(&plan.ancestor_files)
    .bind(directories.path)
    .bind(directories.parent)
    .bind(directories.name)
    .bind(directories.files)
    .bind(directories.size_bytes)
    .bind(directories.children)
    .fetch_one(executor)
    .await?;
    outcome_of(&row)
}

/// Reads the outcome of a commit from the function's result.
fn outcome_of(row: &PgRow) -> Result<CommitOutcome, IndexError> {
    let path = || row.try_get::<String, _>(3);
    let memory_id = || row.try_get(2).map(MemoryId::from_uuid);
    let measured = || row.try_get(4).map(unsigned);
    let refusal = match row.try_get::<&str, _>(0)? {
        "committed" => {
            return Ok(CommitOutcome::Committed {
                seq: row.try_get(1)?,
                purge_epoch: row.try_get(4)?,
                at: row.try_get(5).map(Timestamp::from_micros)?,
                expiry: expiry_of(row, 6)?,
            });
        }
        "replayed" => return Ok(CommitOutcome::Replayed { seq: row.try_get(1)? }),
        "key_reused" => return Ok(CommitOutcome::KeyReused),
        "no_store" => Refusal::NoStore,
        "archived" => Refusal::Archived,
        "stale" => Refusal::Stale,
        "taken" => Refusal::PathTaken {
            path: path()?,
            memory_id: memory_id()?,
        },
        "directory" => Refusal::PathIsDirectory { path: path()? },
        "parent_is_file" => Refusal::ParentIsFile {
            path: path()?,
            memory_id: memory_id()?,
        },
        "too_many" => Refusal::TooManyMemories { count: measured()? },
        "store_full" => Refusal::StoreFull {
            size_bytes: measured()?,
        },
        "needs_grant" => Refusal::NeedsGrant {
            size_bytes: measured()?,
        },
        "condemned" => Refusal::BlobCondemned,
        _ => {
            return Err(IndexError::Corrupt {
                table: "commit_changes",
                what: "unknown outcome",
            });
        }
    };
    Ok(CommitOutcome::Refused(refusal))
}

#[async_trait]
impl MemoryIndex for PostgresIndex {
    async fn head(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        path: Option<&MemoryPath>,
        max_entries: u64,
    ) -> Result<Option<Lookup>, IndexError> {
        self.read_head(tenant_id, store_id, path, max_entries).await
    }

    async fn root(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        max_entries: u64,
    ) -> Result<Option<Directory>, IndexError> {
        self.read_root(tenant_id, store_id, max_entries).await
    }

    async fn heads_below(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        directory: &DirPath,
    ) -> Result<Vec<Head>, IndexError> {
        self.read_heads_below(tenant_id, store_id, directory).await
    }

    async fn commit(&self, tenant_id: TenantId, commit: &Commit) -> Result<CommitOutcome, IndexError> {
        if let Some(made) = self.put(tenant_id, commit).await? {
            return Ok(made);
        }
        commit_on(&self.app, tenant_id, commit).await
    }

    async fn claim_edit(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        memory_id: MemoryId,
        replica: Uuid,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<bool, IndexError> {
        Ok(sqlx::query_scalar("SELECT claim_edit($1, $2, $3, $4, $5, $6)")
            .bind(tenant_id.uuid())
            .bind(store_id.uuid())
            .bind(memory_id.uuid())
            .bind(replica)
            .bind(now.as_micros())
            .bind(until.as_micros())
            .fetch_one(&self.app)
            .await?)
    }

    async fn replayed(
        &self,
        tenant_id: TenantId,
        scope_sha256: &[u8; 32],
        since: Timestamp,
    ) -> Result<Option<Replayed>, IndexError> {
        self.read_replayed(tenant_id, scope_sha256, since).await
    }

    async fn memory(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        memory_id: MemoryId,
    ) -> Result<Option<FoundMemory>, IndexError> {
        self.read_memory(tenant_id, store_id, memory_id).await
    }

    async fn list_memories(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        listing: &MemoryListing,
    ) -> Result<Option<MemoryPage>, IndexError> {
        self.read_list(tenant_id, store_id, listing).await
    }

    async fn pin(&self, tenant_id: TenantId, pin: &Pin) -> Result<PinOutcome, IndexError> {
        self.set_pin(tenant_id, pin).await
    }
}
