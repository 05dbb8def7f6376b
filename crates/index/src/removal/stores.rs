//! The deletion of stores: hidden at once, purged in batches.

use keepsake_core::{ObjectKind, StoreId, TenantId, Timestamp, VersionId};

use super::{DELETE_STORE, PurgedBatch, Removal, STORE_TABLES, TENANT, begin_removal, delete_batch};
use crate::database::{Database, Role, RowLock};
use crate::model::{AuditAction, AuditObject, AuditedAction, DeletionReason};
use crate::numbers::signed;
use crate::{ChangeError, IndexError, audit};

/// Returns a store's place and bytes to its tenant.
const FREE_TENANT: &str = "UPDATE tenant SET store_count = store_count - 1, \
    granted_bytes = granted_bytes - $2 WHERE tenant_id = $1";

/// Selects deleted stores of every tenant, oldest first.
///
/// A tenant deletion or an erasure counts the rows that it deletes, so it must
/// delete them itself. Stores of a tenant with a deletion or an open erasure are
/// therefore left out.
pub(super) const DUE: &str = "SELECT tenant_id, store_id FROM store s WHERE s.deleted_at IS NOT NULL \
    AND NOT EXISTS (SELECT 1 FROM tenant_deletion d WHERE d.tenant_id = s.tenant_id) \
    AND NOT EXISTS (SELECT 1 FROM erasure e WHERE e.tenant_id = s.tenant_id AND e.ended_at IS NULL) \
    ORDER BY s.deleted_at LIMIT $1 + 0";

/// Queues the blobs of the versions that a batch deletes next.
pub(super) const QUEUE_BLOBS: &str = "INSERT INTO blob_deletion (tenant_id, store_id, blob_id, not_before, attempts, reason) \
    SELECT DISTINCT $1, $2, v.blob_id, $4, 0, $5 FROM (SELECT blob_id FROM version \
        WHERE tenant_id = $1 AND store_id = $2 ORDER BY seq LIMIT $3 + 0) v \
    WHERE v.blob_id IS NOT NULL ON CONFLICT (tenant_id, store_id, blob_id) DO NOTHING RETURNING blob_id";

/// The bytes introduced by the versions that a batch deletes next.
const BYTES: &str = "SELECT CAST(coalesce(sum(CASE WHEN v.blob_id = v.version_id THEN v.size_bytes \
    ELSE 0 END), 0) AS BIGINT) FROM (SELECT version_id, blob_id, size_bytes FROM version \
        WHERE tenant_id = $1 AND store_id = $2 ORDER BY seq LIMIT $3 + 0) v";

/// Deletes the row of a store without any other rows.
const DELETE: &str = "DELETE FROM store WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NOT NULL";

#[derive(Debug, Clone)]
pub struct StoreDeletions(pub(crate) Database);

impl StoreDeletions {
    /// Hides a store from every reader.
    ///
    /// Costs the same for any store: [`Self::purge`] removes its rows and blobs later.
    /// The tenant gets the store's bytes and its place back at once.
    pub async fn begin(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        audited: &AuditedAction,
    ) -> Result<(), ChangeError> {
        let mut tx = self.0.write("delete_store", Role::Tenant(tenant_id)).await?;
        if !end(&mut Removal::of(&mut tx, tenant_id, store_id), audited.at).await? {
            return Err(ChangeError::NotFound(ObjectKind::Store));
        }
        let (action, object) = (AuditAction::StoreDeleted, AuditObject::new(store_id.uuid()));
        audit::record(&mut tx, tenant_id, audited, action, object).await?;
        Ok(tx.commit().await?)
    }

    /// Deleted stores of any tenant that are not purged yet, oldest first. Stores of a
    /// tenant with an open erasure wait for the erasure.
    pub async fn due(&self, limit: u32) -> Result<Vec<(TenantId, StoreId)>, IndexError> {
        self.0.all("deleted_stores", Role::Job(None), DUE, limit).await
    }

    /// Removes one batch of a deleted store's rows, and queues their blobs.
    ///
    /// Each batch is one transaction of at most `limit` rows. Safe to run twice and at
    /// the same time. A store that is not deleted is done and stays as it is.
    pub async fn purge(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        blobs_go_from: Timestamp,
        limit: u32,
    ) -> Result<PurgedBatch, IndexError> {
        let mut tx = self.0.write("purge_store", Role::Job(None)).await?;
        begin_removal(&mut tx).await?;
        let mut removal = Removal::of(&mut tx, tenant_id, store_id);
        let purged = purge_batch(&mut removal, blobs_go_from, limit).await?;
        tx.commit().await?;
        Ok(purged)
    }
}

/// Marks a store as deleted, which hides it from every reader; `false`: no such
/// store, or already deleted.
pub(super) async fn end(removal: &mut Removal<'_>, now: Timestamp) -> Result<bool, IndexError> {
    let tenant_id = removal.tenant_id;
    // The tenant first, like everything that locks both.
    let query = removal.tx.query_locking(TENANT, RowLock::NoKeyUpdate);
    query.bind(tenant_id).execute().await?;
    let Some(store) = removal.lock_live(RowLock::NoKeyUpdate).await? else {
        return Ok(false);
    };
    let query = removal.tx.query(FREE_TENANT).bind(tenant_id);
    query.bind(store.granted_bytes).execute().await?;
    removal.query(DELETE_STORE).bind(now).execute().await?;
    Ok(true)
}

/// Deletes a batch of a deleted store's rows, and queues their blobs.
///
/// Purges of one store that run at the same time take turns, batch by batch.
pub(super) async fn purge_batch(
    removal: &mut Removal<'_>,
    blobs_go_from: Timestamp,
    limit: u32,
) -> Result<PurgedBatch, IndexError> {
    let limit = i64::from(limit.max(1));
    let store = removal.lock(RowLock::Update).await?;
    if !store.is_some_and(|store| store.is_deleted) {
        return Ok(PurgedBatch { is_done: true, ..PurgedBatch::default() });
    }
    let (tenant_id, store_id) = (removal.tenant_id, Some(removal.store_id));
    let versions = STORE_TABLES.iter().position(|(table, ..)| *table == "version");
    let (before, others) = STORE_TABLES.split_at(versions.unwrap_or_default());
    let first = delete_batch(removal.tx, tenant_id, store_id, before, limit).await?;
    if !first.is_done {
        return Ok(first);
    }
    // So many versions are deleted next, unless there are fewer.
    let limit = limit - signed(first.rows());
    let bytes: u64 = removal.query(BYTES).bind(limit).scalar().await?;
    let query = removal.query(QUEUE_BLOBS).bind((limit, blobs_go_from));
    let queued: Vec<VersionId> = query.bind(DeletionReason::StoreDeleted.name()).scalars().await?;
    removal.delete_contents(&queued).await?;
    let blobs = queued.len() as u64;
    let mut purged = delete_batch(removal.tx, tenant_id, store_id, others, limit).await?;
    purged.by_table.extend(first.by_table);
    if purged.is_done {
        purged.by_table.insert("store", removal.query(DELETE).execute().await?);
    }
    Ok(PurgedBatch { blobs, bytes, ..purged })
}
