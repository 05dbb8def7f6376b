//! Retention of versions.

use async_trait::async_trait;
use keepsake_core::limits::LimitOverrides;
use keepsake_core::{StoreId, TenantId, Timestamp};
use serde_json::json;
use sqlx::Row;
use sqlx::sqlite::SqliteConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::SqliteIndex;
use crate::IndexError;
use crate::erasure::TakenVersion;
use crate::retention::{
    Archive, Deletion, History, Past, RetentionIndex, VersionBatch, VersionsTaken, take_batch,
};
use crate::statements::retention::COUNT_OUTDATED;

/// Selects stores with a history, after a given one, and each store's first
/// unprocessed deletion. SQLite needs `INDEXED BY` for the subquery per store.
pub(super) const HISTORIES: &str = "SELECT s.tenant_id, s.store_id, t.limits, s.retention_seq, \
    (SELECT v.created_at FROM version v INDEXED BY version_op WHERE v.tenant_id = s.tenant_id \
        AND v.store_id = s.store_id AND v.op = 'deleted' AND v.op <> 'modified' AND v.seq > s.retention_seq \
        ORDER BY v.seq LIMIT 1) \
    FROM store s JOIN tenant t ON t.tenant_id = s.tenant_id \
    WHERE s.deleted_at IS NULL AND t.status <> 'deleting' AND s.version_count > 0 \
    AND (s.tenant_id, s.store_id) > ($1, $2) ORDER BY s.tenant_id, s.store_id LIMIT $3";

/// Selects deletions of a store after a sequence number, and whether the memory is
/// still deleted by that version.
pub(super) const DELETIONS: &str = "SELECT v.seq, v.memory_id, v.created_at, \
    coalesce((SELECT m.head_seq FROM memory m WHERE m.tenant_id = $1 AND m.store_id = $2 \
        AND m.memory_id = v.memory_id) = v.seq, FALSE) \
    FROM version v INDEXED BY version_op WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.op = 'deleted' \
    AND v.op <> 'modified' AND v.seq > $3 ORDER BY v.seq LIMIT $4";

/// Selects versions of a store after a sequence number, up to the first one that
/// was created too late.
pub(super) const PAST: &str = "SELECT v.seq, v.created_at, \
    (SELECT n.created_at FROM version n INDEXED BY version_memory WHERE n.tenant_id = $1 AND n.store_id = $2 \
        AND n.memory_id = v.memory_id AND n.seq > v.seq ORDER BY n.seq LIMIT 1), \
    coalesce((SELECT m.deleted_at IS NULL AND m.head_seq <> v.seq FROM memory m \
        WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = v.memory_id), FALSE), \
    ($5 > 0 AND EXISTS (SELECT 1 FROM version n INDEXED BY version_memory WHERE n.tenant_id = $1 \
        AND n.store_id = $2 AND n.memory_id = v.memory_id AND n.seq > v.seq ORDER BY n.seq LIMIT 1 OFFSET $5 - 1)) \
    FROM (SELECT seq, memory_id, created_at FROM version WHERE tenant_id = $1 AND store_id = $2 AND seq > $3 \
        ORDER BY seq LIMIT $6) v WHERE v.created_at <= $4 ORDER BY v.seq";

/// Whether a store exists and is not deleted.
const STORE_IS_THERE: &str =
    "SELECT EXISTS (SELECT 1 FROM store WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL)";

const PLACES_OF: &str = "SELECT v.seq, v.memory_id FROM version v \
    WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.memory_id IN (SELECT unhex(value) FROM json_each($3)) ORDER BY v.memory_id, v.seq LIMIT $4";

const TAKE: &str = "DELETE FROM version WHERE tenant_id = $1 AND store_id = $2 AND seq IN (SELECT value FROM json_each($3)) \
    RETURNING blob_id, size_bytes";

/// Deletes memories and their related rows.
const FORGET: [&str; 3] = [
    "DELETE FROM memory WHERE tenant_id = $1 AND store_id = $2 AND memory_id IN (SELECT unhex(value) FROM json_each($3)) AND deleted_at IS NOT NULL",
    "DELETE FROM memory_access WHERE tenant_id = $1 AND store_id = $2 AND memory_id IN (SELECT unhex(value) FROM json_each($3))",
    "DELETE FROM search_doc WHERE tenant_id = $1 AND store_id = $2 AND memory_id IN (SELECT unhex(value) FROM json_each($3))",
];

/// Queues blobs that no version references any longer: neither the version that
/// introduced it, nor one that shares it.
const CONDEMN: &str = "INSERT INTO blob_deletion (tenant_id, store_id, blob_id, not_before, attempts, reason) \
    SELECT $1, $2, unhex(b.value), $4, 0, 'expired' FROM json_each($3) b \
    WHERE NOT EXISTS (SELECT 1 FROM version v WHERE v.tenant_id = $1 AND v.store_id = $2 \
            AND v.version_id = unhex(b.value) AND v.blob_id = v.version_id) \
        AND NOT EXISTS (SELECT 1 FROM version v WHERE v.tenant_id = $1 AND v.store_id = $2 \
            AND v.blob_id BETWEEN unhex(b.value) AND unhex(b.value) AND v.blob_id <> v.version_id) \
    ON CONFLICT (tenant_id, store_id, blob_id) DO UPDATE SET reason = reason RETURNING blob_id";

#[async_trait]
impl RetentionIndex for SqliteIndex {
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
            .bind(limit)
            .fetch_all(&self.readers)
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
        let mut writer = self.writer.lock().await;
        let mut open = Open {
            connection: writer.begin().await?,
            tenant_id,
            store_id: batch.store_id,
        };
        if !open.is_there().await? {
            return Ok(VersionsTaken {
                is_done: true,
                ..VersionsTaken::default()
            });
        }
        let taken = take_batch(&mut open, batch).await?;
        writer.commit().await?;
        Ok(taken)
    }
}

/// The write connection during a batch.
struct Open<'a> {
    connection: &'a mut SqliteConnection,
    tenant_id: TenantId,
    store_id: StoreId,
}

impl Open<'_> {
    async fn is_there(&mut self) -> Result<bool, IndexError> {
        Ok(sqlx::query_scalar(STORE_IS_THERE)
            .bind(self.tenant_id.uuid())
            .bind(self.store_id.uuid())
            .fetch_one(&mut *self.connection)
            .await?)
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
            .fetch_all(&mut *self.connection)
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
            .fetch_all(&mut *self.connection)
            .await?;
        Ok(rows.into_iter().map(Past::of).collect())
    }

    async fn places_of(&mut self, memories: &[Uuid], limit: i64) -> Result<Vec<(i64, Uuid)>, IndexError> {
        Ok(sqlx::query_as(PLACES_OF)
            .bind(self.tenant_id.uuid())
            .bind(self.store_id.uuid())
            .bind(hexes(memories))
            .bind(limit)
            .fetch_all(&mut *self.connection)
            .await?)
    }

    async fn take(&mut self, places: &[i64]) -> Result<Vec<TakenVersion>, IndexError> {
        let rows: Vec<(Option<Uuid>, Option<i64>)> = sqlx::query_as(TAKE)
            .bind(self.tenant_id.uuid())
            .bind(self.store_id.uuid())
            .bind(json!(places).to_string())
            .fetch_all(&mut *self.connection)
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
                .bind(hexes(memories))
                .execute(&mut *self.connection)
                .await?;
        }
        Ok(())
    }

    async fn condemn(&mut self, blobs: &[Uuid], not_before: i64) -> Result<Vec<Uuid>, IndexError> {
        Ok(sqlx::query_scalar(CONDEMN)
            .bind(self.tenant_id.uuid())
            .bind(self.store_id.uuid())
            .bind(hexes(blobs))
            .bind(not_before)
            .fetch_all(&mut *self.connection)
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
            .execute(&mut *self.connection)
            .await?;
        Ok(())
    }
}

/// Ids in the form that the statements read.
fn hexes(ids: &[Uuid]) -> String {
    let ids = ids.iter().map(|id| json!(id.simple().to_string()));
    ids.collect::<serde_json::Value>().to_string()
}
