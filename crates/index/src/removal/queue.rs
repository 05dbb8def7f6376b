//! The queue of blobs to delete.

use keepsake_core::{BlobKey, Timestamp};
use serde_json::{Value, json};

use super::{PLAN_BY_KEYS, Queue, Removal};
use crate::IndexError;
use crate::database::{Database, Role, RowLock, from_row};
use crate::model::{DeletionReason, DueDeletion, RunFence};
use crate::numbers::hex;
use crate::stores::lock_store;

const DUE: &str = "SELECT tenant_id, store_id, blob_id, attempts, reason FROM blob_deletion \
    WHERE not_before <= $1 ORDER BY not_before LIMIT $2 + 0";

/// Removes deleted blobs from the queue while the run holds its lease; returns whether it
/// does. An orphan becomes a tombstone.
///
/// The lease's row is locked, so that no other run can acquire the lease in the
/// meantime. All parts of the statement see the queue as it was before.
const FINISH_ON_POSTGRES: &str = "WITH held AS ( \
        SELECT 1 FROM job WHERE name = $3 AND fence = $4 AND owner IS NOT NULL FOR SHARE \
    ), allowed AS (SELECT $3::text IS NULL OR EXISTS (SELECT FROM held) AS yes), \
    k AS (SELECT k.* FROM jsonb_to_recordset($1::jsonb) AS k(tenant_id uuid, s uuid, id uuid, reason text), allowed \
        WHERE allowed.yes), \
    kept AS ( \
        UPDATE blob_deletion b SET reason = 'gone', not_before = $2 FROM k \
        WHERE b.tenant_id = k.tenant_id AND b.store_id = k.s AND b.blob_id = k.id \
            AND b.reason = 'orphan' AND k.reason = 'orphan' \
    ), dropped AS ( \
        DELETE FROM blob_deletion b USING k \
        WHERE b.tenant_id = k.tenant_id AND b.store_id = k.s AND b.blob_id = k.id \
            AND b.reason = k.reason AND k.reason <> 'orphan' \
    ) SELECT yes FROM allowed";

const IS_LEASE_HELD: &str =
    "SELECT $3 IS NULL OR EXISTS (SELECT 1 FROM job WHERE name = $3 AND fence = $4 AND owner IS NOT NULL)";

/// The other blobs leave the queue before the orphans become tombstones.
const FINISH_ON_SQLITE: &str = "DELETE FROM blob_deletion \
    WHERE reason <> 'orphan' AND (tenant_id, store_id, blob_id, reason) IN ( \
        SELECT unhex(value ->> 'tenant_id'), unhex(value ->> 's'), unhex(value ->> 'id'), value ->> 'reason' \
        FROM json_each($1)); \
    UPDATE blob_deletion SET reason = 'gone', not_before = $2 \
    WHERE reason = 'orphan' AND (tenant_id, store_id, blob_id, reason) IN ( \
        SELECT unhex(value ->> 'tenant_id'), unhex(value ->> 's'), unhex(value ->> 'id'), value ->> 'reason' \
        FROM json_each($1))";

/// As on Postgres, for the blobs of one tenant, in a transaction that holds the lease.
const FINISH_OF_TENANT: [&str; 2] = [
    "DELETE FROM blob_deletion b USING jsonb_to_recordset($1::jsonb) AS k(tenant_id uuid, s uuid, id uuid, reason text) \
        WHERE b.tenant_id = k.tenant_id AND b.store_id = k.s AND b.blob_id = k.id \
            AND b.reason = k.reason AND k.reason <> 'orphan'",
    "UPDATE blob_deletion b SET reason = 'gone', not_before = $2 \
        FROM jsonb_to_recordset($1::jsonb) AS k(tenant_id uuid, s uuid, id uuid, reason text) \
        WHERE b.tenant_id = k.tenant_id AND b.store_id = k.s AND b.blob_id = k.id \
            AND b.reason = 'orphan' AND k.reason = 'orphan'",
];

const LEASE: &str = "SELECT fence FROM job WHERE name = $1 AND fence = $2 AND owner IS NOT NULL";

const POSTPONE: &str = "UPDATE blob_deletion SET attempts = attempts + 1, not_before = $4 \
    WHERE tenant_id = $1 AND store_id = $2 AND blob_id = $3 AND reason = $5 \
        AND EXISTS (SELECT 1 FROM job WHERE name = $6 AND fence = $7 AND owner IS NOT NULL)";

#[derive(Debug, Clone)]
pub struct BlobDeletions(pub(crate) Database);

from_row!(DueDeletion { attempts, reason; key });

impl BlobDeletions {
    /// Queues a blob under its store's lock, unless a version references it; returns
    /// whether it is queued now.
    ///
    /// From then on a commit that references the blob is refused.
    pub async fn condemn_orphan(&self, key: &BlobKey, not_before: Timestamp) -> Result<bool, IndexError> {
        let mut tx = self.0.write("condemn_orphan", Role::Job(None)).await?;
        tx.execute_on_postgres(PLAN_BY_KEYS, ()).await?;
        // A commit that references the blob either has landed and is visible below, or
        // comes later and is refused.
        lock_store(&mut tx, key.tenant_id, key.store_id).await?;
        let mut removal = Removal::of(&mut tx, key.tenant_id, key.store_id);
        let queue = Queue::drained(DeletionReason::Orphan, not_before);
        let condemned = removal.queue_unreferenced(vec![key.blob_id], queue).await?;
        tx.commit().await?;
        Ok(!condemned.is_empty())
    }

    /// Blobs whose deletion is due, oldest first.
    pub async fn due(&self, now: Timestamp, limit: u32) -> Result<Vec<DueDeletion>, IndexError> {
        self.0.all("due_deletions", Role::Job(None), DUE, (now, limit)).await
    }

    /// Removes deleted blobs from the queue, each for the reason with which it was
    /// listed: an entry that has another reason by now belongs to another removal.
    ///
    /// An orphan stays condemned until `orphans_until`, so that a slow commit that
    /// references it is refused. Returns `false`, and changes nothing, if the lease of
    /// `fence` was lost. A caller that queued the blobs itself has no fence.
    pub async fn finish(
        &self,
        deleted: &[DueDeletion],
        orphans_until: Timestamp,
        fence: Option<&RunFence>,
    ) -> Result<bool, IndexError> {
        if self.0.is_distributed() {
            return self.finish_by_tenant(deleted, orphans_until, fence).await;
        }
        let blobs: Value = deleted.iter().map(to_json).collect();
        let (blobs, until) = (blobs.to_string(), orphans_until.as_micros());
        let (job, fence) = (fence.map(|fence| fence.job), fence.map(|fence| fence.fence));
        let mut tx = self.0.write_one("deletions_done", Role::Job(None)).await?;
        let query = tx.query(tx.choose([FINISH_ON_POSTGRES, IS_LEASE_HELD]));
        let is_held = query.bind((&blobs, until, job, fence)).scalar().await?;
        if is_held && let Some(text) = tx.choose([None, Some(FINISH_ON_SQLITE)]) {
            tx.query(text).bind((blobs, until)).execute().await?;
        }
        tx.commit().await?;
        Ok(is_held)
    }

    async fn finish_by_tenant(
        &self,
        deleted: &[DueDeletion],
        orphans_until: Timestamp,
        fence: Option<&RunFence>,
    ) -> Result<bool, IndexError> {
        let mut tx = self.0.write("deletions_done", Role::Job(None)).await?;
        if let Some(fence) = fence {
            let query = tx.query_locking(LEASE, RowLock::Share).bind((fence.job, fence.fence));
            if query.optional_scalar::<i64>().await?.is_none() {
                return Ok(false);
            }
        }
        for blobs in self.0.json_parts(deleted, |deleted| deleted.key.tenant_id, to_json) {
            let [remove, keep] = FINISH_OF_TENANT;
            tx.query(remove).bind(&blobs).execute().await?;
            tx.query(keep).bind((&blobs, orphans_until)).execute().await?;
        }
        tx.commit().await?;
        Ok(true)
    }

    /// Postpones a blob that could not be deleted. Changes nothing if its entry has
    /// another reason by now, or if the lease was lost.
    pub async fn postpone(
        &self,
        failed: &DueDeletion,
        not_before: Timestamp,
        fence: &RunFence,
    ) -> Result<(), IndexError> {
        let values = (&failed.key, not_before, failed.reason.name(), fence.job, fence.fence);
        self.0.change("deletion_failed", Role::Job(None), POSTPONE, values).await.map(drop)
    }
}

fn to_json(deletion: &DueDeletion) -> Value {
    json!({
        "tenant_id": hex(deletion.key.tenant_id.uuid()),
        "s": hex(deletion.key.store_id.uuid()),
        "id": hex(deletion.key.blob_id.uuid()),
        "reason": deletion.reason.name(),
    })
}
