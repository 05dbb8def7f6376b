//! Jobs: access times, the deletion queue, leases and run records.

use async_trait::async_trait;
use keepsake_core::{BlobKey, StoreId, TenantId, Timestamp, VersionId};
use serde_json::{Value, json};
use sqlx::Row;

use super::SqliteIndex;
use crate::model::{AccessRow, DeletionReason, DueDeletion, KeyUse, RunFence};
use crate::numbers::hex;
use crate::statements::upkeep::{DELETION_FAILED, DUE_DELETIONS};
use crate::{IndexError, MaintenanceIndex};

/// Queues a blob that no version references: neither the version that introduced
/// it, nor one that shares it. Uses a range, for the reason given in
/// `statements.rs`.
pub(super) const CONDEMN_ORPHAN: &str = "INSERT INTO blob_deletion (tenant_id, store_id, blob_id, not_before, attempts, reason) \
    SELECT $1, $2, $3, $4, 0, 'orphan' WHERE NOT EXISTS ( \
        SELECT 1 FROM version WHERE tenant_id = $1 AND store_id = $2 AND version_id = $3 AND blob_id = $3 \
    ) AND NOT EXISTS ( \
        SELECT 1 FROM version WHERE tenant_id = $1 AND store_id = $2 AND blob_id BETWEEN $3 AND $3 \
            AND blob_id <> version_id \
    ) ON CONFLICT (tenant_id, store_id, blob_id) DO UPDATE SET \
        not_before = CASE reason WHEN 'gone' THEN excluded.not_before ELSE not_before END, \
        reason = CASE reason WHEN 'gone' THEN 'orphan' ELSE reason END";

#[async_trait]
impl MaintenanceIndex for SqliteIndex {
    async fn flush_access(&self, rows: &[AccessRow]) -> Result<(), IndexError> {
        let mut sorted: Vec<_> = rows.iter().collect();
        sorted.sort_by_key(|row| (row.tenant_id, row.store_id, row.memory_id));
        let rows: Value = sorted
            .iter()
            .map(|row| {
                json!([
                    hex(row.tenant_id.uuid()),
                    hex(row.store_id.uuid()),
                    hex(row.memory_id.uuid()),
                    row.read_at.as_micros(),
                    row.read_by.id(),
                    row.read_by.kind(),
                ])
            })
            .collect();
        let mut writer = self.writer.lock().await;
        let connection = writer.begin().await?;
        sqlx::query(
            "INSERT INTO memory_access (tenant_id, store_id, memory_id, last_read_at, last_read_by, active_at, \
                 last_read_by_type) \
             SELECT unhex(r.value ->> 0), unhex(r.value ->> 1), unhex(r.value ->> 2), r.value ->> 3, r.value ->> 4, \
                 r.value ->> 3, r.value ->> 5 FROM json_each($1) r WHERE EXISTS (SELECT 1 FROM store s \
                     WHERE s.tenant_id = unhex(r.value ->> 0) AND s.store_id = unhex(r.value ->> 1) \
                     AND s.deleted_at IS NULL) \
                 AND EXISTS (SELECT 1 FROM memory m WHERE m.tenant_id = unhex(r.value ->> 0) \
                     AND m.store_id = unhex(r.value ->> 1) AND m.memory_id = unhex(r.value ->> 2)) \
             ON CONFLICT (tenant_id, store_id, memory_id) DO UPDATE \
             SET last_read_at = excluded.last_read_at, last_read_by = excluded.last_read_by, \
                 last_read_by_type = excluded.last_read_by_type, \
                 active_at = max(active_at, excluded.active_at) \
             WHERE last_read_at < excluded.last_read_at",
        )
        .bind(rows.to_string())
        .execute(connection)
        .await?;
        writer.commit().await
    }

    async fn flush_key_use(&self, uses: &[KeyUse]) -> Result<(), IndexError> {
        let uses: Value = uses
            .iter()
            .map(|used| {
                json!([
                    hex(used.tenant_id.uuid()),
                    hex(used.api_key_id.uuid()),
                    used.used_at.as_micros(),
                ])
            })
            .collect();
        let mut writer = self.writer.lock().await;
        let connection = writer.begin().await?;
        sqlx::query(
            "UPDATE api_key SET last_used_at = u.used_at FROM ( \
                 SELECT unhex(r.value ->> 0) AS t, unhex(r.value ->> 1) AS id, max(r.value ->> 2) AS used_at \
                 FROM json_each($1) r GROUP BY 1, 2 \
             ) u WHERE tenant_id = u.t AND api_key_id = u.id \
                 AND (last_used_at IS NULL OR last_used_at < u.used_at)",
        )
        .bind(uses.to_string())
        .execute(connection)
        .await?;
        writer.commit().await
    }

    async fn condemn_orphan(&self, key: &BlobKey, not_before: Timestamp) -> Result<bool, IndexError> {
        let mut writer = self.writer.lock().await;
        // The single write connection serves as the store's lock: a commit that
        // references the blob either has landed, or comes later and is refused.
        let connection = writer.begin().await?;
        let condemned = sqlx::query(CONDEMN_ORPHAN)
            .bind(key.tenant_id.uuid())
            .bind(key.store_id.uuid())
            .bind(key.blob_id.uuid())
            .bind(not_before.as_micros())
            .execute(connection)
            .await?;
        writer.commit().await?;
        Ok(condemned.rows_affected() > 0)
    }

    async fn due_deletions(&self, now: Timestamp, limit: u32) -> Result<Vec<DueDeletion>, IndexError> {
        let rows = sqlx::query(DUE_DELETIONS)
            .bind(now.as_micros())
            .bind(limit)
            .fetch_all(&self.readers)
            .await?;
        rows.iter()
            .map(|row| {
                Ok(DueDeletion {
                    key: BlobKey {
                        tenant_id: TenantId::from_uuid(row.try_get(0)?),
                        store_id: StoreId::from_uuid(row.try_get(1)?),
                        blob_id: VersionId::from_uuid(row.try_get(2)?),
                    },
                    attempts: u32::try_from(row.try_get::<i64, _>(3)?).unwrap_or(u32::MAX),
                    reason: DeletionReason::of_row(row.try_get(4)?)?,
                })
            })
            .collect()
    }

    async fn deletions_done(
        &self,
        done: &[DueDeletion],
        orphans_until: Timestamp,
        fence: Option<&RunFence>,
    ) -> Result<bool, IndexError> {
        let gone: Value = done
            .iter()
            .map(|gone| {
                json!([
                    hex(gone.key.tenant_id.uuid()),
                    hex(gone.key.store_id.uuid()),
                    hex(gone.key.blob_id.uuid()),
                    gone.reason.name(),
                ])
            })
            .collect();
        let gone = gone.to_string();
        let mut writer = self.writer.lock().await;
        let connection = writer.begin().await?;
        if let Some(fence) = fence {
            let is_held: bool = sqlx::query_scalar(
                "SELECT EXISTS (SELECT 1 FROM job WHERE name = $1 AND fence = $2 AND owner IS NOT NULL)",
            )
            .bind(fence.job)
            .bind(fence.fence)
            .fetch_one(&mut *connection)
            .await?;
            if !is_held {
                return Ok(false);
            }
        }
        // The other blobs are deleted from the queue first; then the orphans become
        // `gone`.
        sqlx::query(
            "DELETE FROM blob_deletion WHERE reason <> 'orphan' AND (tenant_id, store_id, blob_id, reason) IN \
                 (SELECT unhex(k.value ->> 0), unhex(k.value ->> 1), unhex(k.value ->> 2), k.value ->> 3 \
                  FROM json_each($1) k); \
             UPDATE blob_deletion SET reason = 'gone', not_before = $2 \
             WHERE reason = 'orphan' AND (tenant_id, store_id, blob_id, reason) IN \
                 (SELECT unhex(k.value ->> 0), unhex(k.value ->> 1), unhex(k.value ->> 2), k.value ->> 3 \
                  FROM json_each($1) k)",
        )
        .bind(&gone)
        .bind(orphans_until.as_micros())
        .execute(connection)
        .await?;
        writer.commit().await?;
        Ok(true)
    }

    async fn deletion_failed(
        &self,
        failed: &DueDeletion,
        not_before: Timestamp,
        fence: &RunFence,
    ) -> Result<(), IndexError> {
        let mut writer = self.writer.lock().await;
        let connection = writer.begin().await?;
        sqlx::query(DELETION_FAILED)
            .bind(failed.key.tenant_id.uuid())
            .bind(failed.key.store_id.uuid())
            .bind(failed.key.blob_id.uuid())
            .bind(not_before.as_micros())
            .bind(failed.reason.name())
            .bind(fence.job)
            .bind(fence.fence)
            .execute(connection)
            .await?;
        writer.commit().await
    }
}
