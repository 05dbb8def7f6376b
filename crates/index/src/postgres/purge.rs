//! Removal of history: redaction, and the purge of deleted stores.

use async_trait::async_trait;
use keepsake_core::{Actor, MemoryId, StoreId, TenantId, Timestamp, VersionId};
use sqlx::Row;

use super::PostgresIndex;
use super::audit::audit;
use super::pool::Tx;
use super::stores::tell;
use crate::erasure::Purged;
use crate::model::{
    AuditAction, AuditObject, Audited, Operation, Redaction, RedactionOutcome, StorePurge, Version,
};
use crate::numbers::unsigned;
use crate::statements::{
    BLOB_IS_LIVE, BLOB_IS_NAMED, BYTES_PURGED, COUNT_PURGE, DELETE_STORE, DELETED_STORES, FORGET_PATH,
    FREE_TENANT, PURGE, PURGE_STORE, QUEUE_PURGED, QUEUE_REDACTED, REDACT, VERSION,
};
use crate::versions::VersionRow;
use crate::{IndexError, PurgeIndex};

/// Plans each statement of the transaction for its parameters and the current
/// tables. A generic plan would scan a whole table, and removals are rare enough to
/// be planned each time.
pub(super) const PLAN_ANEW: &str = "SET LOCAL plan_cache_mode = force_custom_plan";

/// Takes the lock of a store's commits; returns the store's grant.
const LOCK_STORE: &str = "SELECT granted_bytes FROM store \
    WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL FOR NO KEY UPDATE";

#[async_trait]
impl PurgeIndex for PostgresIndex {
    async fn redact(
        &self,
        tenant_id: TenantId,
        redaction: &Redaction,
    ) -> Result<RedactionOutcome, IndexError> {
        let store_id = redaction.store_id;
        let mut transaction = self.begin(tenant_id).await?;
        sqlx::query(PLAN_ANEW).execute(&mut *transaction).await?;
        if lock_store(&mut transaction, tenant_id, store_id).await?.is_none() {
            return Ok(RedactionOutcome::NoStore);
        }
        let row: Option<VersionRow> = sqlx::query_as(VERSION)
            .bind(tenant_id.uuid())
            .bind(store_id.uuid())
            .bind(redaction.version_id.uuid())
            .fetch_optional(&mut *transaction)
            .await?;
        let Some(before) = row.map_or(Ok(None), VersionRow::into_version)? else {
            return Ok(RedactionOutcome::NoVersion);
        };
        if before.redacted_at.is_some() {
            return Ok(RedactionOutcome::AlreadyRedacted);
        }
        if let Some(content) = before.content {
            let live = sqlx::query_scalar(BLOB_IS_LIVE)
                .bind(tenant_id.uuid())
                .bind(store_id.uuid())
                .bind(content.blob_id.uuid())
                .fetch_optional(&mut *transaction)
                .await?;
            if let Some(memory_id) = live.map(MemoryId::from_uuid) {
                return Ok(RedactionOutcome::HoldsLiveContent { memory_id });
            }
        }
        remove_content(&mut transaction, tenant_id, redaction, &before).await?;
        let condemned = condemn(&mut transaction, tenant_id, redaction, &before).await?;
        let object = AuditObject::in_store(redaction.version_id.uuid(), store_id);
        let action = AuditAction::VersionRedacted;
        audit(&mut transaction, tenant_id, &redaction.audited, action, object).await?;
        transaction.commit().await?;
        Ok(RedactionOutcome::Redacted {
            before: Box::new(before),
            condemned,
        })
    }

    async fn delete_store(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        audited: &Audited,
    ) -> Result<bool, IndexError> {
        let mut transaction = self.begin(tenant_id).await?;
        if !end_store(&mut transaction, tenant_id, store_id, audited.at).await? {
            return Ok(false);
        }
        let (action, object) = (AuditAction::StoreDeleted, AuditObject::new(store_id.uuid()));
        audit(&mut transaction, tenant_id, audited, action, object).await?;
        transaction.commit().await?;
        Ok(true)
    }

    async fn deleted_stores(&self, limit: u32) -> Result<Vec<(TenantId, StoreId)>, IndexError> {
        let rows = sqlx::query(DELETED_STORES)
            .bind(i64::from(limit))
            .fetch_all(&self.jobs)
            .await?;
        rows.iter()
            .map(|row| {
                let tenant_id = TenantId::from_uuid(row.try_get(0)?);
                Ok((tenant_id, StoreId::from_uuid(row.try_get(1)?)))
            })
            .collect()
    }

    async fn purge_store(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        now: Timestamp,
        limit: u32,
    ) -> Result<StorePurge, IndexError> {
        let mut transaction = self.jobs.begin(None).await?;
        sqlx::query(PLAN_ANEW).execute(&mut *transaction).await?;
        let purged = purge_batch(
            &mut transaction,
            tenant_id,
            store_id,
            now,
            i64::from(limit.max(1)),
        )
        .await?;
        transaction.commit().await?;
        Ok(StorePurge {
            rows: purged.rows(),
            blobs: purged.blobs,
            is_done: purged.is_done,
        })
    }
}

/// Marks a store as deleted, which hides it from every reader; `false`: no such
/// store, or already deleted.
pub(super) async fn end_store(
    transaction: &mut Tx,
    tenant_id: TenantId,
    store_id: StoreId,
    now: Timestamp,
) -> Result<bool, IndexError> {
    sqlx::query("SELECT granted_bytes FROM tenant WHERE tenant_id = $1 FOR NO KEY UPDATE")
        .bind(tenant_id.uuid())
        .execute(&mut **transaction)
        .await?;
    let Some(granted_bytes) = lock_store(transaction, tenant_id, store_id).await? else {
        return Ok(false);
    };
    sqlx::query(FREE_TENANT)
        .bind(tenant_id.uuid())
        .bind(granted_bytes)
        .execute(&mut **transaction)
        .await?;
    sqlx::query(DELETE_STORE)
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .bind(now.as_micros())
        .execute(&mut **transaction)
        .await?;
    tell(transaction, "store", tenant_id, Some(store_id.uuid()), now).await?;
    Ok(true)
}

/// Deletes a batch of a deleted store's rows, and queues their blobs.
pub(super) async fn purge_batch(
    transaction: &mut Tx,
    tenant_id: TenantId,
    store_id: StoreId,
    not_before: Timestamp,
    limit: i64,
) -> Result<Purged, IndexError> {
    let mut purged = Purged::default();
    // Concurrent purges of one store take turns, batch by batch.
    let is_deleted: Option<bool> = sqlx::query_scalar(
        "SELECT deleted_at IS NOT NULL FROM store WHERE tenant_id = $1 AND store_id = $2 FOR UPDATE",
    )
    .bind(tenant_id.uuid())
    .bind(store_id.uuid())
    .fetch_optional(&mut **transaction)
    .await?;
    if is_deleted != Some(true) {
        purged.is_done = true;
        return Ok(purged);
    }
    let bytes: i64 = sqlx::query_scalar(BYTES_PURGED)
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .bind(limit)
        .fetch_one(&mut **transaction)
        .await?;
    purged.bytes = unsigned(bytes);
    let queued = sqlx::query(QUEUE_PURGED)
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .bind(limit)
        .bind(not_before.as_micros())
        .execute(&mut **transaction)
        .await?;
    purged.blobs = queued.rows_affected();
    let mut left = limit;
    for (table, statement) in PURGE.into_iter().chain([PURGE_STORE]).enumerate() {
        if left == 0 {
            break;
        }
        let query = sqlx::query(statement)
            .bind(tenant_id.uuid())
            .bind(store_id.uuid());
        let is_last = statement == PURGE_STORE;
        let query = if is_last { query } else { query.bind(left) };
        let removed = query.execute(&mut **transaction).await?.rows_affected();
        purged.count(table, removed);
        purged.is_done = is_last;
        left -= i64::try_from(removed).unwrap_or(left);
    }
    Ok(purged)
}

async fn lock_store(
    transaction: &mut Tx,
    tenant_id: TenantId,
    store_id: StoreId,
) -> Result<Option<i64>, IndexError> {
    Ok(sqlx::query_scalar(LOCK_STORE)
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .fetch_optional(&mut **transaction)
        .await?)
}

/// Removes a version's content from its row, and the path of a deleted memory.
async fn remove_content(
    transaction: &mut Tx,
    tenant_id: TenantId,
    redaction: &Redaction,
    before: &Version,
) -> Result<(), IndexError> {
    sqlx::query(REDACT)
        .bind(tenant_id.uuid())
        .bind(redaction.store_id.uuid())
        .bind(before.seq)
        .bind(redaction.audited.at.as_micros())
        .bind(redaction.audited.by.actor().map(Actor::kind))
        .bind(redaction.audited.by.actor().map(Actor::id))
        .execute(&mut **transaction)
        .await?;
    if before.operation == Operation::Deleted {
        sqlx::query(FORGET_PATH)
            .bind(tenant_id.uuid())
            .bind(redaction.store_id.uuid())
            .bind(before.memory_id.uuid())
            .bind(before.version_id.uuid())
            .execute(&mut **transaction)
            .await?;
    }
    Ok(())
}

/// Queues the unreferenced blob, and counts the removal.
async fn condemn(
    transaction: &mut Tx,
    tenant_id: TenantId,
    redaction: &Redaction,
    before: &Version,
) -> Result<Option<VersionId>, IndexError> {
    let mut condemned = None;
    if let Some(content) = before.content {
        let is_named: bool = sqlx::query_scalar(BLOB_IS_NAMED)
            .bind(tenant_id.uuid())
            .bind(redaction.store_id.uuid())
            .bind(content.blob_id.uuid())
            .fetch_one(&mut **transaction)
            .await?;
        condemned = (!is_named).then_some(content);
    }
    if let Some(content) = condemned {
        sqlx::query(QUEUE_REDACTED)
            .bind(tenant_id.uuid())
            .bind(redaction.store_id.uuid())
            .bind(content.blob_id.uuid())
            .bind(redaction.audited.at.as_micros())
            .execute(&mut **transaction)
            .await?;
    }
    let freed_bytes = condemned.map_or(0, |content| content.size_bytes);
    sqlx::query(COUNT_PURGE)
        .bind(tenant_id.uuid())
        .bind(redaction.store_id.uuid())
        .bind(i64::try_from(freed_bytes).unwrap_or(i64::MAX))
        .execute(&mut **transaction)
        .await?;
    Ok(condemned.map(|content| content.blob_id))
}
