//! Jobs: access times, the deletion queue, leases and run records.

use async_trait::async_trait;
use keepsake_core::{BlobKey, StoreId, TenantId, Timestamp, VersionId};
use serde_json::Value;
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use uuid::Uuid;

use super::PostgresIndex;
use crate::model::{
    AccessRow, Audited, DeletionReason, DueDeletion, JobRun, KeyUse, RunFence, RunPlace, job_action,
};
use crate::statements::operator::INSERT_OPERATOR_AUDIT;
use crate::statements::upkeep::{
    DELETION_FAILED, DUE_DELETIONS, JOB_CURSOR, JOB_RUNS, NOTE_RUN, RELEASE_RUN,
};
use crate::{FAILED_RUN_RESTS, IndexError, JobIndex, LIVES_FOR, MaintenanceIndex};

/// Locks stores against the removal of their memories' rows, which takes the
/// store's row `FOR UPDATE`: a row that is written under this lock is seen and
/// removed by a removal that comes after it. Commits take another lock and do
/// not wait. In the order of everything that locks several stores.
const LOCK_STORES_AGAINST_REMOVAL: &str = "SELECT FROM store s \
    WHERE (s.tenant_id, s.store_id) IN (SELECT * FROM unnest($1::uuid[], $2::uuid[])) AND s.deleted_at IS NULL \
    ORDER BY s.tenant_id, s.store_id FOR KEY SHARE";

/// Takes removed blobs off the queue while the run has its lease; answers
/// whether it has. An orphan becomes a tombstone.
///
/// The lease's row is locked, so that no other run can take the job meanwhile.
/// All parts of the statement see the queue as it was before.
const DELETIONS_DONE: &str = "WITH held AS ( \
        SELECT 1 FROM job WHERE name = $6 AND fence = $7 AND owner IS NOT NULL FOR SHARE \
    ), allowed AS (SELECT $6::text IS NULL OR EXISTS (SELECT FROM held) AS yes), \
    k AS (SELECT k.* FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[]) AS k(t, s, id, reason), allowed \
        WHERE allowed.yes), \
    kept AS ( \
        UPDATE blob_deletion b SET reason = 'gone', not_before = $5 FROM k \
        WHERE b.tenant_id = k.t AND b.store_id = k.s AND b.blob_id = k.id \
            AND b.reason = 'orphan' AND k.reason = 'orphan' \
    ), dropped AS ( \
        DELETE FROM blob_deletion b USING k \
        WHERE b.tenant_id = k.t AND b.store_id = k.s AND b.blob_id = k.id \
            AND b.reason = k.reason AND k.reason <> 'orphan' \
    ) SELECT yes FROM allowed";

#[async_trait]
impl MaintenanceIndex for PostgresIndex {
    async fn flush_access(&self, rows: &[AccessRow]) -> Result<(), IndexError> {
        let mut sorted: Vec<_> = rows.iter().collect();
        // One order for every replica: two flushes never wait for each other in a ring.
        sorted.sort_by_key(|row| (row.tenant_id, row.store_id, row.memory_id));
        let tenants: Vec<_> = sorted.iter().map(|row| row.tenant_id.uuid()).collect();
        let stores: Vec<_> = sorted.iter().map(|row| row.store_id.uuid()).collect();
        let memories: Vec<_> = sorted.iter().map(|row| row.memory_id.uuid()).collect();
        let times: Vec<_> = sorted.iter().map(|row| row.read_at.as_micros()).collect();
        let readers: Vec<_> = sorted.iter().map(|row| row.read_by.id()).collect();
        let kinds: Vec<_> = sorted.iter().map(|row| row.read_by.kind()).collect();
        let mut transaction = self.shared.begin(None).await?;
        sqlx::query(LOCK_STORES_AGAINST_REMOVAL)
            .bind(&tenants)
            .bind(&stores)
            .execute(&mut *transaction)
            .await?;
        sqlx::query(
            "INSERT INTO memory_access AS a (tenant_id, store_id, memory_id, last_read_at, last_read_by, active_at, \
                 last_read_by_type) \
             SELECT DISTINCT ON (r.tenant_id, r.store_id, r.memory_id) \
                 r.tenant_id, r.store_id, r.memory_id, r.at, r.reader, r.at, r.kind \
             FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bigint[], $5::text[], $6::text[]) \
                  AS r(tenant_id, store_id, memory_id, at, reader, kind) \
             WHERE EXISTS (SELECT FROM store s \
                 WHERE s.tenant_id = r.tenant_id AND s.store_id = r.store_id AND s.deleted_at IS NULL) \
               AND EXISTS (SELECT FROM memory m WHERE m.tenant_id = r.tenant_id AND m.store_id = r.store_id \
                 AND m.memory_id = r.memory_id) \
             ORDER BY r.tenant_id, r.store_id, r.memory_id, r.at DESC \
             ON CONFLICT (tenant_id, store_id, memory_id) DO UPDATE \
             SET last_read_at = excluded.last_read_at, last_read_by = excluded.last_read_by, \
                 last_read_by_type = excluded.last_read_by_type, \
                 active_at = greatest(a.active_at, excluded.active_at) \
             WHERE a.last_read_at < excluded.last_read_at",
        )
        .bind(tenants)
        .bind(stores)
        .bind(memories)
        .bind(times)
        .bind(readers)
        .bind(kinds)
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(())
    }

    async fn flush_key_use(&self, uses: &[KeyUse]) -> Result<(), IndexError> {
        let tenants: Vec<_> = uses.iter().map(|used| used.tenant_id.uuid()).collect();
        let keys: Vec<_> = uses.iter().map(|used| used.api_key_id.uuid()).collect();
        let times: Vec<_> = uses.iter().map(|used| used.used_at.as_micros()).collect();
        // Locked in one order by every replica; the lock sees what another wrote.
        sqlx::query(
            "WITH u AS (SELECT t, id, max(at) AS at FROM unnest($1::uuid[], $2::uuid[], $3::bigint[]) \
                 AS u(t, id, at) GROUP BY t, id), \
             locked AS ( \
                 SELECT k.tenant_id, k.api_key_id, u.at FROM api_key k \
                 JOIN u ON k.tenant_id = u.t AND k.api_key_id = u.id \
                 WHERE k.last_used_at IS NULL OR k.last_used_at < u.at \
                 ORDER BY k.tenant_id, k.api_key_id FOR NO KEY UPDATE OF k \
             ) \
             UPDATE api_key k SET last_used_at = l.at FROM locked l \
             WHERE k.tenant_id = l.tenant_id AND k.api_key_id = l.api_key_id",
        )
        .bind(tenants)
        .bind(keys)
        .bind(times)
        .execute(&self.shared)
        .await?;
        Ok(())
    }

    async fn heartbeat(
        &self,
        replica: Uuid,
        role: &str,
        now: Timestamp,
        access_flushed_through: Timestamp,
    ) -> Result<(), IndexError> {
        sqlx::query(
            "INSERT INTO replica (id, role, heartbeat_at, access_flushed_through) VALUES ($1, $2, $3, $4) \
             ON CONFLICT (id) DO UPDATE SET heartbeat_at = excluded.heartbeat_at, \
             access_flushed_through = excluded.access_flushed_through",
        )
        .bind(replica)
        .bind(role)
        .bind(now.as_micros())
        .bind(access_flushed_through.as_micros())
        .execute(&self.shared)
        .await?;
        Ok(())
    }

    async fn retire(&self, replica: Uuid) -> Result<(), IndexError> {
        sqlx::query("DELETE FROM replica WHERE id = $1")
            .bind(replica)
            .execute(&self.shared)
            .await?;
        Ok(())
    }

    async fn live_gateways(&self, now: Timestamp) -> Result<u32, IndexError> {
        let count: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM replica WHERE role IN ('all', 'gateway') AND heartbeat_at > $1",
        )
        .bind(now.minus(LIVES_FOR).as_micros())
        .fetch_one(&self.shared)
        .await?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    async fn condemn_orphan(&self, key: &BlobKey, not_before: Timestamp) -> Result<bool, IndexError> {
        let mut transaction = self.jobs.begin(None).await?;
        // The lock that commits take: one that names the blob has either
        // landed already and is seen below, or comes later and is refused.
        sqlx::query("SELECT seq FROM store WHERE tenant_id = $1 AND store_id = $2 FOR NO KEY UPDATE")
            .bind(key.tenant_id.uuid())
            .bind(key.store_id.uuid())
            .execute(&mut *transaction)
            .await?;
        // A blob is named by the version that brought it, or by one that shares it.
        let condemned = sqlx::query(
            "INSERT INTO blob_deletion (tenant_id, store_id, blob_id, not_before, attempts, reason) \
             SELECT $1, $2, $3, $4, 0, 'orphan' WHERE NOT EXISTS ( \
                 SELECT FROM version WHERE tenant_id = $1 AND store_id = $2 AND version_id = $3 AND blob_id = $3 \
             ) AND NOT EXISTS ( \
                 SELECT FROM version WHERE tenant_id = $1 AND store_id = $2 AND blob_id = $3 \
                        AND blob_id <> version_id \
             ) ON CONFLICT (tenant_id, store_id, blob_id) DO UPDATE SET \
                 not_before = CASE blob_deletion.reason WHEN 'gone' THEN excluded.not_before \
                     ELSE blob_deletion.not_before END, \
                 reason = CASE blob_deletion.reason WHEN 'gone' THEN 'orphan' ELSE blob_deletion.reason END",
        )
        .bind(key.tenant_id.uuid())
        .bind(key.store_id.uuid())
        .bind(key.blob_id.uuid())
        .bind(not_before.as_micros())
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(condemned.rows_affected() > 0)
    }

    async fn due_deletions(&self, now: Timestamp, limit: u32) -> Result<Vec<DueDeletion>, IndexError> {
        let rows = sqlx::query(DUE_DELETIONS)
            .bind(now.as_micros())
            .bind(i64::from(limit))
            .fetch_all(&self.jobs)
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
        let tenants: Vec<_> = done.iter().map(|gone| gone.key.tenant_id.uuid()).collect();
        let stores: Vec<_> = done.iter().map(|gone| gone.key.store_id.uuid()).collect();
        let blobs: Vec<_> = done.iter().map(|gone| gone.key.blob_id.uuid()).collect();
        let reasons: Vec<_> = done.iter().map(|gone| gone.reason.name()).collect();
        Ok(sqlx::query_scalar(DELETIONS_DONE)
            .bind(tenants)
            .bind(stores)
            .bind(blobs)
            .bind(reasons)
            .bind(orphans_until.as_micros())
            .bind(fence.map(|fence| fence.job))
            .bind(fence.map(|fence| fence.fence))
            .fetch_one(&self.jobs)
            .await?)
    }

    async fn deletion_failed(
        &self,
        failed: &DueDeletion,
        not_before: Timestamp,
        fence: &RunFence,
    ) -> Result<(), IndexError> {
        sqlx::query(DELETION_FAILED)
            .bind(failed.key.tenant_id.uuid())
            .bind(failed.key.store_id.uuid())
            .bind(failed.key.blob_id.uuid())
            .bind(not_before.as_micros())
            .bind(failed.reason.name())
            .bind(fence.job)
            .bind(fence.fence)
            .execute(&self.jobs)
            .await?;
        Ok(())
    }
}

#[async_trait]
impl JobIndex for PostgresIndex {
    async fn claim_run(
        &self,
        job: &str,
        slot: Timestamp,
        owner: Uuid,
        now: Timestamp,
        lease_until: Timestamp,
    ) -> Result<Option<i64>, IndexError> {
        let mut transaction = self.shared.begin(None).await?;
        let fence: Option<i64> = sqlx::query_scalar(
            "INSERT INTO job AS j (name, owner, lease_until, fence) VALUES ($1, $2, $3, 1) \
             ON CONFLICT (name) DO UPDATE \
             SET owner = excluded.owner, lease_until = excluded.lease_until, fence = j.fence + 1 \
             WHERE j.owner IS NULL OR j.lease_until <= $4 RETURNING fence",
        )
        .bind(job)
        .bind(owner)
        .bind(lease_until.as_micros())
        .bind(now.as_micros())
        .fetch_optional(&mut *transaction)
        .await?;
        let Some(fence) = fence else {
            return Ok(None);
        };
        let claimed = sqlx::query(
            "INSERT INTO job_run (name, slot, started_at, owner, fence) VALUES ($1, $2, $3, $4, $5) \
             ON CONFLICT (name, slot) DO UPDATE \
             SET started_at = excluded.started_at, owner = excluded.owner, fence = excluded.fence, \
                 ended_at = NULL, counts = NULL, error = NULL \
             WHERE job_run.ended_at IS NULL OR (job_run.error IS NOT NULL AND job_run.ended_at <= $6)",
        )
        .bind(job)
        .bind(slot.as_micros())
        .bind(now.as_micros())
        .bind(owner)
        .bind(fence)
        .bind(now.minus(FAILED_RUN_RESTS).as_micros())
        .execute(&mut *transaction)
        .await?;
        if claimed.rows_affected() == 0 {
            return Ok(None); // the slot was run: dropping the transaction gives the lease back
        }
        transaction.commit().await?;
        Ok(Some(fence))
    }

    async fn renew_run(
        &self,
        job: &str,
        fence: i64,
        lease_until: Timestamp,
        cursor: Option<&str>,
    ) -> Result<bool, IndexError> {
        let renewed = sqlx::query(
            "UPDATE job SET lease_until = $3, cursor = $4 WHERE name = $1 AND fence = $2 AND owner IS NOT NULL",
        )
        .bind(job)
        .bind(fence)
        .bind(lease_until.as_micros())
        .bind(cursor)
        .execute(&self.shared)
        .await?;
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
        let mut transaction = self.shared.begin(None).await?;
        let released =
            sqlx::query("UPDATE job SET owner = NULL WHERE name = $1 AND fence = $2 AND owner IS NOT NULL")
                .bind(job)
                .bind(fence)
                .execute(&mut *transaction)
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
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(true)
    }

    async fn release_run(&self, job: &str, fence: i64) -> Result<(), IndexError> {
        sqlx::query(RELEASE_RUN)
            .bind(job)
            .bind(fence)
            .execute(&self.shared)
            .await?;
        Ok(())
    }

    async fn job_cursor(&self, job: &str) -> Result<Option<String>, IndexError> {
        let cursor: Option<Option<String>> = sqlx::query_scalar(JOB_CURSOR)
            .bind(job)
            .fetch_optional(&self.shared)
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
        let mut transaction = self.shared.begin(None).await?;
        sqlx::query(NOTE_RUN)
            .bind(job)
            .bind(slot.as_micros())
            .bind(is_dry_run)
            .execute(&mut *transaction)
            .await?;
        sqlx::query(INSERT_OPERATOR_AUDIT)
            .bind(audited.id)
            .bind(audited.at.as_micros())
            .bind(audited.by.to_string())
            .bind(job_action(job, is_dry_run))
            .bind(None::<Uuid>)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(())
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
            .fetch_all(&self.shared)
            .await?;
        rows.iter().map(run_of).collect()
    }
}

fn run_of(row: &PgRow) -> Result<JobRun, IndexError> {
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
