//! Jobs: access times, the deletion queue, leases and run records.

use async_trait::async_trait;
use keepsake_core::{BlobKey, StoreId, TenantId, Timestamp, VersionId};
use serde_json::{Value, json};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use sqlx::types::Json;
use uuid::Uuid;

use super::SqliteIndex;
use crate::model::{
    AccessRow, Audited, DeletionReason, DueDeletion, JobRun, KeyUse, RunFence, RunPlace, job_action,
};
use crate::statements::operator::INSERT_OPERATOR_AUDIT;
use crate::statements::upkeep::{
    DELETION_FAILED, DUE_DELETIONS, JOB_CURSOR, JOB_RUNS, NOTE_RUN, RELEASE_RUN,
};
use crate::{FAILED_RUN_RESTS, IndexError, JobIndex, LIVES_FOR, MaintenanceIndex};

/// Queues a blob that no version names: the one that brought it, or one that
/// shares it, asked for by a range as in `statements.rs`.
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

    async fn heartbeat(
        &self,
        replica: Uuid,
        role: &str,
        now: Timestamp,
        access_flushed_through: Timestamp,
    ) -> Result<(), IndexError> {
        let mut writer = self.writer.lock().await;
        let connection = writer.begin().await?;
        sqlx::query(
            "INSERT INTO replica (id, role, heartbeat_at, access_flushed_through) VALUES ($1, $2, $3, $4) \
             ON CONFLICT (id) DO UPDATE SET heartbeat_at = excluded.heartbeat_at, \
             access_flushed_through = excluded.access_flushed_through",
        )
        .bind(replica)
        .bind(role)
        .bind(now.as_micros())
        .bind(access_flushed_through.as_micros())
        .execute(connection)
        .await?;
        writer.commit().await
    }

    async fn retire(&self, replica: Uuid) -> Result<(), IndexError> {
        let mut writer = self.writer.lock().await;
        let connection = writer.begin().await?;
        sqlx::query("DELETE FROM replica WHERE id = $1")
            .bind(replica)
            .execute(connection)
            .await?;
        writer.commit().await
    }

    async fn live_gateways(&self, now: Timestamp) -> Result<u32, IndexError> {
        let count: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM replica WHERE role IN ('all', 'gateway') AND heartbeat_at > $1",
        )
        .bind(now.minus(LIVES_FOR).as_micros())
        .fetch_one(&self.readers)
        .await?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    async fn condemn_orphan(&self, key: &BlobKey, not_before: Timestamp) -> Result<bool, IndexError> {
        let mut writer = self.writer.lock().await;
        // The one write connection is the store's lock here: a commit that
        // names the blob has landed before, or comes later and is refused.
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
        // Those that are not orphans go first; the orphans then become `gone`.
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

#[async_trait]
impl JobIndex for SqliteIndex {
    async fn claim_run(
        &self,
        job: &str,
        slot: Timestamp,
        owner: Uuid,
        now: Timestamp,
        lease_until: Timestamp,
    ) -> Result<Option<i64>, IndexError> {
        let mut writer = self.writer.lock().await;
        let connection = writer.begin().await?;
        let fence: Option<i64> = sqlx::query_scalar(
            "INSERT INTO job (name, owner, lease_until, fence) VALUES ($1, $2, $3, 1) \
             ON CONFLICT (name) DO UPDATE \
             SET owner = excluded.owner, lease_until = excluded.lease_until, fence = fence + 1 \
             WHERE owner IS NULL OR lease_until <= $4 RETURNING fence",
        )
        .bind(job)
        .bind(owner)
        .bind(lease_until.as_micros())
        .bind(now.as_micros())
        .fetch_optional(&mut *connection)
        .await?;
        let Some(fence) = fence else {
            return Ok(None);
        };
        let claimed = sqlx::query(
            "INSERT INTO job_run (name, slot, started_at, owner, fence) VALUES ($1, $2, $3, $4, $5) \
             ON CONFLICT (name, slot) DO UPDATE \
             SET started_at = excluded.started_at, owner = excluded.owner, fence = excluded.fence, \
                 ended_at = NULL, counts = NULL, error = NULL \
             WHERE ended_at IS NULL OR (error IS NOT NULL AND ended_at <= $6)",
        )
        .bind(job)
        .bind(slot.as_micros())
        .bind(now.as_micros())
        .bind(owner)
        .bind(fence)
        .bind(now.minus(FAILED_RUN_RESTS).as_micros())
        .execute(&mut *connection)
        .await?;
        if claimed.rows_affected() == 0 {
            return Ok(None); // the slot was run: the transaction, and the lease with it, is undone
        }
        writer.commit().await?;
        Ok(Some(fence))
    }

    async fn renew_run(
        &self,
        job: &str,
        fence: i64,
        lease_until: Timestamp,
        cursor: Option<&str>,
    ) -> Result<bool, IndexError> {
        let mut writer = self.writer.lock().await;
        let connection = writer.begin().await?;
        let renewed = sqlx::query(
            "UPDATE job SET lease_until = $3, cursor = $4 WHERE name = $1 AND fence = $2 AND owner IS NOT NULL",
        )
        .bind(job)
        .bind(fence)
        .bind(lease_until.as_micros())
        .bind(cursor)
        .execute(connection)
        .await?;
        writer.commit().await?;
        Ok(renewed.rows_affected() > 0)
    }

    async fn finish_run(
        &self,
        job: &str,
        slot: Timestamp,
        fence: i64,
        ended_at: Timestamp,
        counts: &serde_json::Value,
        error: Option<&str>,
    ) -> Result<bool, IndexError> {
        let mut writer = self.writer.lock().await;
        let connection = writer.begin().await?;
        let released =
            sqlx::query("UPDATE job SET owner = NULL WHERE name = $1 AND fence = $2 AND owner IS NOT NULL")
                .bind(job)
                .bind(fence)
                .execute(&mut *connection)
                .await?;
        if released.rows_affected() == 0 {
            return Ok(false);
        }
        sqlx::query(
            "UPDATE job_run SET ended_at = $3, counts = $4, error = $5 WHERE name = $1 AND slot = $2",
        )
        .bind(job)
        .bind(slot.as_micros())
        .bind(ended_at.as_micros())
        .bind(Json(counts))
        .bind(error)
        .execute(&mut *connection)
        .await?;
        writer.commit().await?;
        Ok(true)
    }

    async fn release_run(&self, job: &str, fence: i64) -> Result<(), IndexError> {
        let mut writer = self.writer.lock().await;
        let connection = writer.begin().await?;
        sqlx::query(RELEASE_RUN)
            .bind(job)
            .bind(fence)
            .execute(connection)
            .await?;
        writer.commit().await
    }

    async fn job_cursor(&self, job: &str) -> Result<Option<String>, IndexError> {
        let cursor: Option<Option<String>> = sqlx::query_scalar(JOB_CURSOR)
            .bind(job)
            .fetch_optional(&self.readers)
            .await?;
        Ok(cursor.flatten())
    }

    async fn note_manual_run(
        &self,
        job: &str,
        slot: Timestamp,
        is_dry_run: bool,
        audited: &Audited,
    ) -> Result<(), IndexError> {
        let mut writer = self.writer.lock().await;
        let connection = writer.begin().await?;
        sqlx::query(NOTE_RUN)
            .bind(job)
            .bind(slot.as_micros())
            .bind(is_dry_run)
            .execute(&mut *connection)
            .await?;
        sqlx::query(INSERT_OPERATOR_AUDIT)
            .bind(audited.id)
            .bind(audited.at.as_micros())
            .bind(audited.by.to_string())
            .bind(job_action(job, is_dry_run))
            .bind(None::<Uuid>)
            .execute(&mut *connection)
            .await?;
        writer.commit().await
    }

    async fn job_runs(
        &self,
        job: &str,
        before: Option<RunPlace>,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<JobRun>, IndexError> {
        let (started_at, slot) = before.map_or((i64::MAX, i64::MAX), |(at, slot)| {
            (at.as_micros(), slot.as_micros())
        });
        let rows = sqlx::query(JOB_RUNS)
            .bind(job)
            .bind(now.as_micros())
            .bind(started_at)
            .bind(slot)
            .bind(i64::from(limit))
            .fetch_all(&self.readers)
            .await?;
        rows.iter().map(run_of).collect()
    }
}

fn run_of(row: &SqliteRow) -> Result<JobRun, IndexError> {
    Ok(JobRun {
        slot: Timestamp::from_micros(row.try_get(0)?),
        started_at: Timestamp::from_micros(row.try_get(1)?),
        ended_at: row.try_get::<Option<i64>, _>(2)?.map(Timestamp::from_micros),
        is_running: row.try_get(3)?,
        by_hand: row.try_get(4)?,
        is_dry_run: row.try_get(5)?,
        owner: row.try_get(6)?,
        counts: row
            .try_get::<Option<Json<Value>>, _>(7)?
            .map(|counts| counts.0)
            .filter(|counts| !counts.is_null()),
        error: row.try_get(8)?,
    })
}

fn hex(uuid: Uuid) -> String {
    uuid.simple().to_string()
}
