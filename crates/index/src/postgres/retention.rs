//! Retention of versions.

use async_trait::async_trait;
use keepsake_core::limits::LimitOverrides;
use keepsake_core::{StoreId, TenantId, Timestamp};
use sqlx::Row;
use sqlx::types::Json;
use uuid::Uuid;

use super::PostgresIndex;
use super::pool::Tx;
use super::purge::PLAN_ANEW;
use crate::IndexError;
use crate::erasure::TakenVersion;
use crate::retention::{
    Archive, Deletion, History, Past, RetentionIndex, VersionBatch, VersionsTaken, take_batch,
};
use crate::statements::retention::COUNT_OUTDATED;
use crate::statements::retention::{DELETIONS, HISTORIES, PAST};

/// Takes the lock of a store's commits and of the flush of access times; no row for
/// a deleted store.
const LOCK_STORE: &str = "SELECT seq FROM store \
    WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL FOR UPDATE";

const PLACES_OF: &str = "SELECT v.seq, v.memory_id FROM version v \
    WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.memory_id = ANY($3) ORDER BY v.memory_id, v.seq LIMIT $4";

const TAKE: &str = "DELETE FROM version WHERE tenant_id = $1 AND store_id = $2 AND seq = ANY($3) \
    RETURNING blob_id, size_bytes";

/// Deletes memories and their related rows.
const FORGET: [&str; 3] = [
    "DELETE FROM memory WHERE tenant_id = $1 AND store_id = $2 AND memory_id = ANY($3) AND deleted_at IS NOT NULL",
    "DELETE FROM memory_access WHERE tenant_id = $1 AND store_id = $2 AND memory_id = ANY($3)",
    "DELETE FROM search_doc WHERE tenant_id = $1 AND store_id = $2 AND memory_id = ANY($3)",
];

/// Queues blobs that no version references any longer: neither the version that
/// introduced it, nor one that shares it.
const CONDEMN: &str = "INSERT INTO blob_deletion (tenant_id, store_id, blob_id, not_before, attempts, reason) \
    SELECT $1, $2, b.blob_id, $4, 0, 'expired' FROM unnest($3::uuid[]) AS b(blob_id) \
    WHERE NOT EXISTS (SELECT FROM version v WHERE v.tenant_id = $1 AND v.store_id = $2 \
            AND v.version_id = b.blob_id AND v.blob_id = b.blob_id) \
        AND NOT EXISTS (SELECT FROM version v WHERE v.tenant_id = $1 AND v.store_id = $2 \
            AND v.blob_id = b.blob_id AND v.blob_id <> v.version_id) \
    ON CONFLICT (tenant_id, store_id, blob_id) DO UPDATE SET reason = blob_deletion.reason RETURNING blob_id";

#[async_trait]
impl RetentionIndex for PostgresIndex {
    async fn histories(
        &self,
        after: Option<(TenantId, StoreId)>,
        limit: u32,
    ) -> Result<Vec<History>, IndexError> {
        let (tenant, store) = after.map_or((Uuid::nil(), Uuid::nil()), |(tenant, store)| {
            (tenant.uuid(), store.uuid())
        });
        let rows = sqlx::query(HISTORIES)
            .bind(tenant)
            .bind(store)
            .bind(i64::from(limit))
            .fetch_all(&self.jobs)
            .await?;
        rows.iter()
            .map(|row| {
                Ok(History {
                    tenant_id: TenantId::from_uuid(row.try_get(0)?),
                    store_id: StoreId::from_uuid(row.try_get(1)?),
                    limits: row.try_get::<Json<LimitOverrides>, _>(2)?.0,
                    retention_seq: row.try_get(3)?,
                    deleted_at: row.try_get::<Option<i64>, _>(4)?.map(Timestamp::from_micros),
                })
            })
            .collect()
    }

    async fn take_outdated(
        &self,
        tenant_id: TenantId,
        batch: &VersionBatch,
    ) -> Result<VersionsTaken, IndexError> {
        let mut transaction = self.begin(tenant_id).await?;
        sqlx::query(PLAN_ANEW).execute(&mut *transaction).await?;
        let mut open = Open {
            transaction: &mut transaction,
            tenant_id,
            store_id: batch.store_id,
        };
        if !open.lock_store().await? {
            return Ok(VersionsTaken {
                is_done: true,
                ..VersionsTaken::default()
            });
        }
        let taken = take_batch(&mut open, batch).await?;
        transaction.commit().await?;
        Ok(taken)
    }
}

/// The transaction of a batch.
struct Open<'a> {
    transaction: &'a mut Tx,
    tenant_id: TenantId,
    store_id: StoreId,
}

impl Open<'_> {
    async fn lock_store(&mut self) -> Result<bool, IndexError> {
        let locked = sqlx::query(LOCK_STORE)
            .bind(self.tenant_id.uuid())
            .bind(self.store_id.uuid())
            .fetch_optional(&mut **self.transaction)
            .await?;
        Ok(locked.is_some())
    }
}

#[async_trait]
impl Archive for Open<'_> {
    async fn deletions(&mut self, after: i64, limit: i64) -> Result<Vec<Deletion>, IndexError> {
        let rows: Vec<(i64, Uuid, i64, bool)> = sqlx::query_as(DELETIONS)
            .bind(self.tenant_id.uuid())
            .bind(self.store_id.uuid())
            .bind(after)
            .bind(limit)
            .fetch_all(&mut **self.transaction)
            .await?;
        Ok(rows.into_iter().map(Deletion::of).collect())
    }

    async fn past(
        &mut self,
        after: i64,
        made_by: i64,
        beyond: Option<i64>,
        limit: i64,
    ) -> Result<Vec<Past>, IndexError> {
        let rows: Vec<(i64, i64, Option<i64>, bool, bool)> = sqlx::query_as(PAST)
            .bind(self.tenant_id.uuid())
            .bind(self.store_id.uuid())
            .bind(after)
            .bind(made_by)
            .bind(beyond.unwrap_or_default())
            .bind(limit)
            .fetch_all(&mut **self.transaction)
            .await?;
        Ok(rows.into_iter().map(Past::of).collect())
    }

    async fn places_of(&mut self, memories: &[Uuid], limit: i64) -> Result<Vec<(i64, Uuid)>, IndexError> {
        Ok(sqlx::query_as(PLACES_OF)
            .bind(self.tenant_id.uuid())
            .bind(self.store_id.uuid())
            .bind(memories)
            .bind(limit)
            .fetch_all(&mut **self.transaction)
            .await?)
    }

    async fn take(&mut self, places: &[i64]) -> Result<Vec<TakenVersion>, IndexError> {
        let rows: Vec<(Option<Uuid>, Option<i64>)> = sqlx::query_as(TAKE)
            .bind(self.tenant_id.uuid())
            .bind(self.store_id.uuid())
            .bind(places)
            .fetch_all(&mut **self.transaction)
            .await?;
        let taken = rows
            .into_iter()
            .map(|(blob_id, size_bytes)| TakenVersion { blob_id, size_bytes });
        Ok(taken.collect())
    }

    async fn forget(&mut self, memories: &[Uuid]) -> Result<(), IndexError> {
        for statement in FORGET {
            sqlx::query(statement)
                .bind(self.tenant_id.uuid())
                .bind(self.store_id.uuid())
                .bind(memories)
                .execute(&mut **self.transaction)
                .await?;
        }
        Ok(())
    }

    async fn condemn(&mut self, blobs: &[Uuid], not_before: i64) -> Result<Vec<Uuid>, IndexError> {
        Ok(sqlx::query_scalar(CONDEMN)
            .bind(self.tenant_id.uuid())
            .bind(self.store_id.uuid())
            .bind(blobs)
            .bind(not_before)
            .fetch_all(&mut **self.transaction)
            .await?)
    }

    async fn count(
        &mut self,
        versions: i64,
        bytes: i64,
        retention_seq: Option<i64>,
    ) -> Result<(), IndexError> {
        sqlx::query(COUNT_OUTDATED)
            .bind(self.tenant_id.uuid())
            .bind(self.store_id.uuid())
            .bind(versions)
            .bind(bytes)
            .bind(retention_seq)
            .execute(&mut **self.transaction)
            .await?;
        Ok(())
    }
}
