//! Removal of history: redaction, and the purge of deleted stores.

use async_trait::async_trait;
use keepsake_core::{Actor, MemoryId, StoreId, TenantId, Timestamp, VersionId};
use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use super::SqliteIndex;
use super::audit::audit;
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

/// Selects the grant of an existing store.
const GRANTED_BYTES: &str = "SELECT granted_bytes FROM store \
    WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL";

#[async_trait]
impl PurgeIndex for SqliteIndex {
    async fn redact(
        &self,
        tenant_id: TenantId,
        redaction: &Redaction,
    ) -> Result<RedactionOutcome, IndexError> {
        let store_id = redaction.store_id;
        let mut writer = self.writer.lock().await;
        let connection = writer.begin().await?;
        if granted_bytes(connection, tenant_id, store_id).await?.is_none() {
            return Ok(RedactionOutcome::NoStore);
        }
        let row: Option<VersionRow> = sqlx::query_as(VERSION)
            .bind(tenant_id.uuid())
            .bind(store_id.uuid())
            .bind(redaction.version_id.uuid())
            .fetch_optional(&mut *connection)
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
                .fetch_optional(&mut *connection)
                .await?;
            if let Some(memory_id) = live.map(MemoryId::from_uuid) {
                return Ok(RedactionOutcome::HoldsLiveContent { memory_id });
            }
        }
        remove_content(connection, tenant_id, redaction, &before).await?;
        let condemned = condemn(connection, tenant_id, redaction, &before).await?;
        let object = AuditObject::in_store(redaction.version_id.uuid(), store_id);
        let action = AuditAction::VersionRedacted;
        audit(connection, tenant_id, &redaction.audited, action, object).await?;
        writer.commit().await?;
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
        let mut writer = self.writer.lock().await;
        let connection = writer.begin().await?;
        if !end_store(connection, tenant_id, store_id, audited.at).await? {
            return Ok(false);
        }
        let (action, object) = (AuditAction::StoreDeleted, AuditObject::new(store_id.uuid()));
        audit(connection, tenant_id, audited, action, object).await?;
        writer.commit().await?;
        Ok(true)
    }

    async fn deleted_stores(&self, limit: u32) -> Result<Vec<(TenantId, StoreId)>, IndexError> {
        let rows = sqlx::query(DELETED_STORES)
            .bind(i64::from(limit))
            .fetch_all(&self.readers)
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
        let mut writer = self.writer.lock().await;
        let connection = writer.begin().await?;
        let purged = purge_batch(connection, tenant_id, store_id, now, i64::from(limit.max(1))).await?;
        writer.commit().await?;
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
    connection: &mut SqliteConnection,
    tenant_id: TenantId,
    store_id: StoreId,
    now: Timestamp,
) -> Result<bool, IndexError> {
    let Some(granted_bytes) = granted_bytes(connection, tenant_id, store_id).await? else {
        return Ok(false);
    };
    sqlx::query(FREE_TENANT)
        .bind(tenant_id.uuid())
        .bind(granted_bytes)
        .execute(&mut *connection)
        .await?;
    sqlx::query(DELETE_STORE)
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .bind(now.as_micros())
        .execute(&mut *connection)
        .await?;
    tell(connection, "store", tenant_id, Some(store_id.uuid()), now).await?;
    Ok(true)
}

/// Deletes a batch of a deleted store's rows, and queues their blobs.
pub(super) async fn purge_batch(
    connection: &mut SqliteConnection,
    tenant_id: TenantId,
    store_id: StoreId,
    not_before: Timestamp,
    limit: i64,
) -> Result<Purged, IndexError> {
    let mut purged = Purged::default();
    let is_deleted: Option<bool> =
        sqlx::query_scalar("SELECT deleted_at IS NOT NULL FROM store WHERE tenant_id = $1 AND store_id = $2")
            .bind(tenant_id.uuid())
            .bind(store_id.uuid())
            .fetch_optional(&mut *connection)
            .await?;
    if is_deleted != Some(true) {
        purged.is_done = true;
        return Ok(purged);
    }
    let bytes: i64 = sqlx::query_scalar(BYTES_PURGED)
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .bind(limit)
        .fetch_one(&mut *connection)
        .await?;
    purged.bytes = unsigned(bytes);
    let queued = sqlx::query(QUEUE_PURGED)
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .bind(limit)
        .bind(not_before.as_micros())
        .execute(&mut *connection)
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
        let removed = query.execute(&mut *connection).await?.rows_affected();
        purged.count(table, removed);
        purged.is_done = is_last;
        left -= i64::try_from(removed).unwrap_or(left);
    }
    Ok(purged)
}

async fn granted_bytes(
    connection: &mut SqliteConnection,
    tenant_id: TenantId,
    store_id: StoreId,
) -> Result<Option<i64>, IndexError> {
    Ok(sqlx::query_scalar(GRANTED_BYTES)
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .fetch_optional(&mut *connection)
        .await?)
}

/// Removes a version's content from its row, and the path of a deleted memory.
async fn remove_content(
    connection: &mut SqliteConnection,
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
        .execute(&mut *connection)
        .await?;
    if before.operation == Operation::Deleted {
        sqlx::query(FORGET_PATH)
            .bind(tenant_id.uuid())
            .bind(redaction.store_id.uuid())
            .bind(before.memory_id.uuid())
            .bind(before.version_id.uuid())
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

/// Queues the unreferenced blob, and counts the removal.
async fn condemn(
    connection: &mut SqliteConnection,
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
            .fetch_one(&mut *connection)
            .await?;
        condemned = (!is_named).then_some(content);
    }
    if let Some(content) = condemned {
        sqlx::query(QUEUE_REDACTED)
            .bind(tenant_id.uuid())
            .bind(redaction.store_id.uuid())
            .bind(content.blob_id.uuid())
            .bind(redaction.audited.at.as_micros())
            .execute(&mut *connection)
            .await?;
    }
    let freed_bytes = condemned.map_or(0, |content| content.size_bytes);
    sqlx::query(COUNT_PURGE)
        .bind(tenant_id.uuid())
        .bind(redaction.store_id.uuid())
        .bind(i64::try_from(freed_bytes).unwrap_or(i64::MAX))
        .execute(&mut *connection)
        .await?;
    Ok(condemned.map(|content| content.blob_id))
}
