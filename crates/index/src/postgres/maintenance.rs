//! Jobs: access times, the deletion queue, leases and run records.

use async_trait::async_trait;
use keepsake_core::{BlobKey, StoreId, TenantId, Timestamp, VersionId};
use sqlx::Row;

use super::PostgresIndex;
use crate::model::{AccessRow, DeletionReason, DueDeletion, KeyUse, RunFence};
use crate::statements::upkeep::{DELETION_FAILED, DUE_DELETIONS};
use crate::{IndexError, MaintenanceIndex};

/// Locks stores against the removal of their memories' rows, which takes the
/// store's row `FOR UPDATE`. A later removal therefore sees and deletes a row that
/// was written under this lock. Commits take another lock and do not wait. Several
/// stores are always locked in the same order.
const LOCK_STORES_AGAINST_REMOVAL: &str = "SELECT FROM store s \
    WHERE (s.tenant_id, s.store_id) IN (SELECT * FROM unnest($1::uuid[], $2::uuid[])) AND s.deleted_at IS NULL \
    ORDER BY s.tenant_id, s.store_id FOR KEY SHARE";

/// Removes deleted blobs from the queue while the run holds its lease; returns
/// whether it does. An orphan becomes a tombstone.
///
/// The lease's row is locked, so that no other run can acquire the lease in the
/// meantime. All parts of the statement see the queue as it was before.
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
        // Every replica uses the same order, so two flushes cannot deadlock.
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
        // Every replica locks in the same order; the lock sees the writes of others.
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

    async fn condemn_orphan(&self, key: &BlobKey, not_before: Timestamp) -> Result<bool, IndexError> {
        let mut transaction = self.jobs.begin(None).await?;
        // The lock of commits: a commit that references the blob either has landed and
        // is visible below, or comes later and is refused.
        sqlx::query("SELECT seq FROM store WHERE tenant_id = $1 AND store_id = $2 FOR NO KEY UPDATE")
            .bind(key.tenant_id.uuid())
            .bind(key.store_id.uuid())
            .execute(&mut *transaction)
            .await?;
        // A blob is referenced by the version that introduced it, or by one that shares
        // it.
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
