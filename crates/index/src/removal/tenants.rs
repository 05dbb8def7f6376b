//! The end of a tenant: marked at once, removed in batches.

use std::collections::BTreeMap;

use keepsake_core::{BlobKey, TenantId, Timestamp};
use sqlx::AssertSqlSafe;
use sqlx::types::Json;
use uuid::Uuid;

use super::{DELETE_STORE, PurgedBatch, STORE_TABLES, TENANT, Table, begin_removal, delete_batch};
use crate::database::{Database, Role, RowLock, Tx, from_row, selects};
use crate::model::{AuditAction, AuditObject, AuditedAction, TenantDeletion, VersionCounts};
use crate::{IndexError, audit};

const ROW_COUNTS: &str = "SELECT row_counts FROM tenant_deletion WHERE tenant_id = $1 AND ended_at IS NULL";

/// Stores that commits still find, ordered by id like everything that locks several
/// stores.
const STORES: &str =
    "SELECT store_id FROM store WHERE tenant_id = $1 AND deleted_at IS NULL ORDER BY store_id LIMIT $2 + 0";

selects! {
    "tenant_id, state, requested_at, settles_at, ended_at, row_counts, blob_count, blob_bytes, blob_cursor, \
        versions_deleted, versions_not_kept, versions_kept FROM tenant_deletion WHERE";
    const FIND = "tenant_id = $1";
    const DUE = "ended_at IS NULL AND coalesce(settles_at, 0) <= $1 ORDER BY requested_at LIMIT $2 + 0";
}

const INSERT: &str = "INSERT INTO tenant_deletion (tenant_id, state, requested_at, row_counts, blob_count, blob_bytes, \
    versions_deleted, versions_not_kept, versions_kept) VALUES ($1, 'removing', $2, '{}', 0, 0, 0, 0, 0)";

const MARK_TENANT: &str = "UPDATE tenant SET status = 'deleting' WHERE tenant_id = $1";

const COUNT_ROWS: &str = "UPDATE tenant_deletion SET row_counts = $2 WHERE tenant_id = $1";

const COUNT_BLOBS: &str = "UPDATE tenant_deletion SET blob_count = blob_count + $3, \
    blob_bytes = blob_bytes + $4, blob_cursor = $2 WHERE tenant_id = $1 AND ended_at IS NULL";

const NOTE_VERSIONS: &str = "UPDATE tenant_deletion SET versions_deleted = $2, versions_not_kept = $3, \
    versions_kept = $4 WHERE tenant_id = $1 AND ended_at IS NULL";

/// The blobs are counted from the beginning when the job looks for late ones.
const SETTLE: &str = "UPDATE tenant_deletion SET state = 'settling', settles_at = $2, blob_cursor = NULL \
    WHERE tenant_id = $1 AND state = 'removing'";

const FINISH: &str = "UPDATE tenant_deletion SET state = 'done', ended_at = $2, row_counts = $3 \
    WHERE tenant_id = $1 AND ended_at IS NULL";

const DELETE_TENANT: &str = "DELETE FROM tenant WHERE tenant_id = $1";

/// The tables with other rows of tenants, except `tenant` itself and the report of its
/// deletion, with the rest of their key.
///
/// A test compares these and [`STORE_TABLES`] with the tables of both databases.
const OTHER_TABLES: [(&str, &str); 10] = [
    ("content", "store_id, blob_id"),
    ("blob_deletion", "store_id, blob_id"),
    ("session", "session_id"),
    ("store", "store_id"),
    ("idempotency", "scope_sha256"),
    ("erasure", "id"),
    ("credential", "api_key_id, secret_sha256"),
    ("api_key", "api_key_id"),
    ("audit", "id"),
    ("tenant_counter", "tenant_id"),
];

#[derive(Debug, Clone)]
pub struct TenantDeletions(pub(crate) Database);

from_row! {
    VersionCounts { deleted = "versions_deleted", not_versioned = "versions_not_kept", kept = "versions_kept" }
    TenantDeletion {
        tenant_id, state, requested_at, settles_at, ended_at, rows = "row_counts", blobs = "blob_count", blob_bytes,
        blob_cursor; object_versions .. r#type
    }
}

impl TenantDeletions {
    /// Marks a tenant as being deleted; `None`: there is no such tenant.
    ///
    /// Costs the same whatever the tenant holds. Its keys stop working, and no store or
    /// key can be created for it. Idempotent: a second call returns the deletion that the
    /// first one began, even if it has ended.
    pub async fn begin(
        &self,
        tenant_id: TenantId,
        audited: &AuditedAction,
    ) -> Result<Option<TenantDeletion>, IndexError> {
        let mut tx = self.0.write("delete_tenant", Role::Shared(None)).await?;
        // Waits for stores and keys that are being created.
        let query = tx.query_locking(TENANT, RowLock::Update).bind(tenant_id);
        let locked: Option<Uuid> = query.optional_scalar().await?;
        let begun = find(&mut tx, tenant_id).await?;
        if locked.is_none() || begun.is_some() {
            return Ok(begun);
        }
        tx.query(MARK_TENANT).bind(tenant_id).execute().await?;
        tx.query(INSERT).bind((tenant_id, audited.at)).execute().await?;
        let (action, object) = (AuditAction::TenantDeleted, AuditObject::new(tenant_id.uuid()));
        audit::record(&mut tx, tenant_id, audited, action, object).await?;
        let begun = find(&mut tx, tenant_id).await?;
        tx.commit().await?;
        Ok(begun)
    }

    pub async fn find(&self, tenant_id: TenantId) -> Result<Option<TenantDeletion>, IndexError> {
        self.0.optional("tenant_deletion", Role::Shared(None), FIND, tenant_id).await
    }

    /// Deletions that are due, oldest first.
    pub async fn due(&self, now: Timestamp, limit: u32) -> Result<Vec<TenantDeletion>, IndexError> {
        self.0.all("due_tenant_deletions", Role::Job(None), DUE, (now, limit)).await
    }

    /// Removes one batch of a tenant's rows, and counts them.
    ///
    /// Deletes its stores first, each under its lock, so that a running commit finds
    /// no store. Each call is one transaction of at most `limit` rows. Safe to run
    /// twice and at the same time. The tenant's own row stays: it prevents new stores
    /// and keys.
    pub async fn purge(
        &self,
        tenant_id: TenantId,
        now: Timestamp,
        limit: u32,
    ) -> Result<PurgedBatch, IndexError> {
        let mut tx = self.0.write("purge_tenant", Role::Job(None)).await?;
        let Some(mut counts) = lock(&mut tx, tenant_id).await? else {
            return Ok(PurgedBatch { is_done: true, ..PurgedBatch::default() });
        };
        let limit = i64::from(limit.max(1));
        if end_stores(&mut tx, tenant_id, now, limit).await? {
            tx.commit().await?;
            return Ok(PurgedBatch::default());
        }
        let purged = delete_batch(&mut tx, tenant_id, None, &tables(), limit).await?;
        for (&table, rows) in &purged.by_table {
            *counts.entry(table.to_owned()).or_default() += rows;
        }
        let query = tx.query(COUNT_ROWS).bind((tenant_id, Json(&counts)));
        query.execute().await?;
        tx.commit().await?;
        Ok(purged)
    }

    /// Counts blobs that are about to be removed, up to `last`.
    pub async fn count_blobs(
        &self,
        tenant_id: TenantId,
        last: &BlobKey,
        blobs: u64,
        bytes: u64,
    ) -> Result<(), IndexError> {
        let values = (tenant_id, last.to_string(), blobs, bytes);
        self.0.change("count_blobs", Role::Job(None), COUNT_BLOBS, values).await.map(drop)
    }

    /// Records the removal of older object versions, replacing the earlier record.
    pub async fn note_object_versions(
        &self,
        tenant_id: TenantId,
        versions: &VersionCounts,
    ) -> Result<(), IndexError> {
        let values = (tenant_id, versions.deleted, versions.not_versioned, versions.kept);
        self.0.change("note_object_versions", Role::Job(None), NOTE_VERSIONS, values).await.map(drop)
    }

    /// Records that everything was removed once, and when to look again for late writes.
    pub async fn settle(&self, tenant_id: TenantId, settles_at: Timestamp) -> Result<(), IndexError> {
        self.0.change("settle_tenant", Role::Job(None), SETTLE, (tenant_id, settles_at)).await.map(drop)
    }

    /// Removes the tenant's own row and ends its deletion, if the tenant has no other
    /// row; returns whether it did.
    pub async fn finish(&self, tenant_id: TenantId, now: Timestamp) -> Result<bool, IndexError> {
        let mut tx = self.0.write("finish_tenant", Role::Job(None)).await?;
        let Some(mut counts) = lock(&mut tx, tenant_id).await? else {
            return Ok(false);
        };
        for (table, ..) in tables() {
            let query = tx.query(AssertSqlSafe(has_rows(table))).bind(tenant_id);
            if query.scalar::<bool>().await? {
                return Ok(false);
            }
        }
        let gone = tx.query(DELETE_TENANT).bind(tenant_id).execute().await?;
        counts.insert("tenant".to_owned(), gone);
        let query = tx.query(FINISH).bind((tenant_id, now, Json(&counts)));
        query.execute().await?;
        tx.commit().await?;
        Ok(true)
    }
}

async fn find(tx: &mut Tx, tenant_id: TenantId) -> Result<Option<TenantDeletion>, IndexError> {
    tx.query(FIND).bind(tenant_id).optional().await
}

/// Locks the deletion and returns the rows counted so far; `None`: it has ended.
async fn lock(tx: &mut Tx, tenant_id: TenantId) -> Result<Option<BTreeMap<String, u64>>, IndexError> {
    begin_removal(tx).await?;
    // Two purges of one tenant take turns.
    let query = tx.query_locking(ROW_COUNTS, RowLock::Update).bind(tenant_id);
    let counts: Option<Json<_>> = query.optional_scalar().await?;
    Ok(counts.map(|counts| counts.0))
}

/// Deletes a batch of stores, so that no commit finds them; returns whether there were
/// any.
async fn end_stores(
    tx: &mut Tx,
    tenant_id: TenantId,
    now: Timestamp,
    limit: i64,
) -> Result<bool, IndexError> {
    // Locks against commits and against writers of access times.
    let query = tx.query_locking(STORES, RowLock::Update).bind((tenant_id, limit));
    let stores: Vec<Uuid> = query.scalars().await?;
    for store_id in &stores {
        let query = tx.query(DELETE_STORE).bind((tenant_id, *store_id, now));
        query.execute().await?;
    }
    Ok(!stores.is_empty())
}

/// Every table with rows of tenants, in the order of its key.
fn tables() -> Vec<Table> {
    let of_stores = STORE_TABLES.into_iter().map(|(table, key, _)| (table, key));
    let all = of_stores.chain(OTHER_TABLES);
    all.map(|(table, key)| (table, key, key)).collect()
}

fn has_rows(table: &str) -> String {
    format!("SELECT EXISTS (SELECT 1 FROM {table} WHERE tenant_id = $1)")
}
