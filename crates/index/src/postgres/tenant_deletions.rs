//! The end of a tenant: marked at once, removed in batches.

use std::collections::BTreeMap;

use async_trait::async_trait;
use keepsake_core::{BlobKey, TenantId, Timestamp};
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use super::PostgresIndex;
use super::audit::audit;
use super::pool::Tx;
use super::reads::unsigned;
use super::stores::tell;
use crate::model::{
    AuditAction, AuditObject, Audited, DeletionState, TenantDeletion, TenantPurge, VersionCounts,
};
use crate::statements::DELETE_STORE;
use crate::statements::operator::{
    COUNT_BLOBS, COUNT_ROWS, DELETE_TENANT, DELETION, DUE_DELETIONS, FINISH, INSERT_DELETION, MARK_TENANT,
    NOTE_VERSIONS, SETTLE, TENANT_TABLES, has_rows, purge_table,
};
use crate::{IndexError, TenantDeletionIndex};

/// Every batch finds its rows by an index, whatever the statistics say of a
/// table that one tenant has most of.
const PLAN_BY_KEYS: &str = "SET LOCAL plan_cache_mode = force_custom_plan; SET LOCAL enable_seqscan = off; \
    SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off";

/// A tenant under a lock that waits for stores and keys being made.
const LOCK_TENANT: &str = "SELECT tenant_id FROM tenant WHERE tenant_id = $1 FOR UPDATE";

/// What is left of a deletion, batch by batch: two that purge take turns.
const LOCK_DELETION: &str = "SELECT row_counts FROM tenant_deletion \
    WHERE tenant_id = $1 AND ended_at IS NULL FOR UPDATE";

/// Stores that commits still find, under a lock against commits and writers of
/// access times; by id, as everything that locks several does.
const LOCK_STORES: &str = "SELECT store_id FROM store WHERE tenant_id = $1 AND deleted_at IS NULL \
    ORDER BY store_id LIMIT $2 FOR UPDATE";

#[async_trait]
impl TenantDeletionIndex for PostgresIndex {
    async fn delete_tenant(
        &self,
        tenant_id: TenantId,
        audited: &Audited,
    ) -> Result<Option<TenantDeletion>, IndexError> {
        let mut transaction = self.shared.begin(None).await?;
        let locked = sqlx::query(LOCK_TENANT)
            .bind(tenant_id.uuid())
            .fetch_optional(&mut *transaction)
            .await?;
        let begun = find(&mut transaction, tenant_id).await?;
        if locked.is_none() || begun.is_some() {
            return Ok(begun);
        }
        sqlx::query(MARK_TENANT)
            .bind(tenant_id.uuid())
            .execute(&mut *transaction)
            .await?;
        sqlx::query(INSERT_DELETION)
            .bind(tenant_id.uuid())
            .bind(audited.at.as_micros())
            .execute(&mut *transaction)
            .await?;
        tell(&mut transaction, "tenant", tenant_id, None, audited.at).await?;
        let (action, object) = (AuditAction::TenantDeleted, AuditObject::new(tenant_id.uuid()));
        audit(&mut transaction, tenant_id, audited, action, object).await?;
        let begun = find(&mut transaction, tenant_id).await?;
        transaction.commit().await?;
        Ok(begun)
    }

    async fn tenant_deletion(&self, tenant_id: TenantId) -> Result<Option<TenantDeletion>, IndexError> {
        let row = sqlx::query(DELETION)
            .bind(tenant_id.uuid())
            .fetch_optional(&self.shared)
            .await?;
        row.map(|row| deletion_of(&row)).transpose()
    }

    async fn due_tenant_deletions(
        &self,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<TenantDeletion>, IndexError> {
        let rows = sqlx::query(DUE_DELETIONS)
            .bind(now.as_micros())
            .bind(i64::from(limit))
            .fetch_all(&self.jobs)
            .await?;
        rows.iter().map(deletion_of).collect()
    }

    async fn purge_tenant(
        &self,
        tenant_id: TenantId,
        now: Timestamp,
        limit: u32,
    ) -> Result<TenantPurge, IndexError> {
        let mut purge = TenantPurge::default();
        let mut transaction = self.jobs.begin(None).await?;
        sqlx::raw_sql(PLAN_BY_KEYS).execute(&mut *transaction).await?;
        let Some(mut counts) = lock(&mut transaction, tenant_id).await? else {
            purge.is_done = true;
            return Ok(purge);
        };
        let limit = i64::from(limit.max(1));
        if end_stores(&mut transaction, tenant_id, now, limit).await? {
            transaction.commit().await?;
            return Ok(purge);
        }
        let mut left = limit;
        for (table, key) in TENANT_TABLES {
            let removed = sqlx::query(AssertSqlSafe(purge_table(table, key)))
                .bind(tenant_id.uuid())
                .bind(left)
                .execute(&mut *transaction)
                .await?
                .rows_affected();
            if removed > 0 {
                *counts.entry(table.to_owned()).or_default() += removed;
            }
            purge.rows += removed;
            left -= i64::try_from(removed).unwrap_or(left);
            if left == 0 {
                break;
            }
        }
        purge.is_done = left > 0;
        sqlx::query(COUNT_ROWS)
            .bind(tenant_id.uuid())
            .bind(Json(&counts))
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(purge)
    }

    async fn count_blobs(
        &self,
        tenant_id: TenantId,
        last: &BlobKey,
        blobs: u64,
        bytes: u64,
    ) -> Result<(), IndexError> {
        sqlx::query(COUNT_BLOBS)
            .bind(tenant_id.uuid())
            .bind(last.to_string())
            .bind(i64::try_from(blobs).unwrap_or(i64::MAX))
            .bind(i64::try_from(bytes).unwrap_or(i64::MAX))
            .execute(&self.jobs)
            .await?;
        Ok(())
    }

    async fn note_object_versions(
        &self,
        tenant_id: TenantId,
        versions: &VersionCounts,
    ) -> Result<(), IndexError> {
        sqlx::query(NOTE_VERSIONS)
            .bind(tenant_id.uuid())
            .bind(i64::try_from(versions.deleted).unwrap_or(i64::MAX))
            .bind(i64::try_from(versions.not_versioned).unwrap_or(i64::MAX))
            .bind(i64::try_from(versions.kept).unwrap_or(i64::MAX))
            .execute(&self.jobs)
            .await?;
        Ok(())
    }

    async fn settle_tenant(&self, tenant_id: TenantId, settles_at: Timestamp) -> Result<(), IndexError> {
        sqlx::query(SETTLE)
            .bind(tenant_id.uuid())
            .bind(settles_at.as_micros())
            .execute(&self.jobs)
            .await?;
        Ok(())
    }

    async fn finish_tenant(&self, tenant_id: TenantId, now: Timestamp) -> Result<bool, IndexError> {
        let mut transaction = self.jobs.begin(None).await?;
        sqlx::raw_sql(PLAN_BY_KEYS).execute(&mut *transaction).await?;
        let Some(mut counts) = lock(&mut transaction, tenant_id).await? else {
            return Ok(false);
        };
        for (table, _) in TENANT_TABLES {
            let has_rows: bool = sqlx::query_scalar(AssertSqlSafe(has_rows(table)))
                .bind(tenant_id.uuid())
                .fetch_one(&mut *transaction)
                .await?;
            if has_rows {
                return Ok(false);
            }
        }
        let gone = sqlx::query(DELETE_TENANT)
            .bind(tenant_id.uuid())
            .execute(&mut *transaction)
            .await?;
        counts.insert("tenant".to_owned(), gone.rows_affected());
        sqlx::query(FINISH)
            .bind(tenant_id.uuid())
            .bind(now.as_micros())
            .bind(Json(&counts))
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(true)
    }
}

async fn find(transaction: &mut Tx, tenant_id: TenantId) -> Result<Option<TenantDeletion>, IndexError> {
    let row = sqlx::query(DELETION)
        .bind(tenant_id.uuid())
        .fetch_optional(&mut **transaction)
        .await?;
    row.map(|row| deletion_of(&row)).transpose()
}

/// The rows counted so far, under the deletion's lock; `None`: it has ended.
async fn lock(
    transaction: &mut Tx,
    tenant_id: TenantId,
) -> Result<Option<BTreeMap<String, u64>>, IndexError> {
    let counts: Option<Json<_>> = sqlx::query_scalar(LOCK_DELETION)
        .bind(tenant_id.uuid())
        .fetch_optional(&mut **transaction)
        .await?;
    Ok(counts.map(|counts| counts.0))
}

/// Ends a batch of stores for every commit; answers whether there were any.
async fn end_stores(
    transaction: &mut Tx,
    tenant_id: TenantId,
    now: Timestamp,
    limit: i64,
) -> Result<bool, IndexError> {
    let stores: Vec<Uuid> = sqlx::query_scalar(LOCK_STORES)
        .bind(tenant_id.uuid())
        .bind(limit)
        .fetch_all(&mut **transaction)
        .await?;
    for store_id in &stores {
        sqlx::query(DELETE_STORE)
            .bind(tenant_id.uuid())
            .bind(store_id)
            .bind(now.as_micros())
            .execute(&mut **transaction)
            .await?;
    }
    Ok(!stores.is_empty())
}

/// Reads a deletion's row, in the order of the columns of [`DELETION`].
fn deletion_of(row: &PgRow) -> Result<TenantDeletion, IndexError> {
    let corrupt = |what| IndexError::Corrupt {
        table: "tenant_deletion",
        what,
    };
    let time =
        |column| Ok::<_, IndexError>(row.try_get::<Option<i64>, _>(column)?.map(Timestamp::from_micros));
    let cursor: Option<String> = row.try_get(8)?;
    let cursor = cursor.map(|cursor| {
        cursor
            .parse()
            .map_err(|_| corrupt("a cursor that is no blob's key"))
    });
    Ok(TenantDeletion {
        tenant_id: TenantId::from_uuid(row.try_get(0)?),
        state: DeletionState::parse(row.try_get(1)?).ok_or_else(|| corrupt("unknown state"))?,
        requested_at: Timestamp::from_micros(row.try_get(2)?),
        settles_at: time(3)?,
        ended_at: time(4)?,
        rows: row.try_get::<Json<_>, _>(5)?.0,
        blobs: unsigned(row.try_get(6)?),
        blob_bytes: unsigned(row.try_get(7)?),
        blob_cursor: cursor.transpose()?,
        object_versions: VersionCounts {
            deleted: unsigned(row.try_get(9)?),
            not_versioned: unsigned(row.try_get(10)?),
            kept: unsigned(row.try_get(11)?),
        },
    })
}
