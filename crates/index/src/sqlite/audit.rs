//! The audit: written beside what it tells of, read newest first.

use async_trait::async_trait;
use keepsake_core::{StoreId, TenantId, Timestamp};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use super::SqliteIndex;
use super::reads::unsigned;
use crate::model::{AuditAction, AuditEntry, AuditListing, AuditObject, AuditPlace, Audited, OverQuota};
use crate::statements::operator::{
    COUNT_AUDIT, INSERT_AUDIT, INSERT_OPERATOR_AUDIT, OPERATOR_AUDIT, list_audit,
};
use crate::{AuditIndex, IndexError};

#[async_trait]
impl AuditIndex for SqliteIndex {
    async fn audit(
        &self,
        tenant_id: TenantId,
        listing: &AuditListing,
    ) -> Result<Vec<AuditEntry>, IndexError> {
        let (at, id) = bound(listing.before);
        let [actor, other_actor] = listing.actors();
        let query = sqlx::query(AssertSqlSafe(list_audit(listing)))
            .bind(tenant_id.uuid())
            .bind(at)
            .bind(id)
            .bind(listing.from.map_or(i64::MIN, Timestamp::as_micros))
            .bind(listing.to.map_or(i64::MAX, Timestamp::as_micros))
            .bind(listing.action.map(AuditAction::name))
            .bind(actor)
            .bind(other_actor)
            .bind(listing.object_id)
            .bind(i64::from(listing.limit));
        let rows = query.fetch_all(&self.readers).await?;
        rows.iter().map(entry_of).collect()
    }

    async fn record(
        &self,
        tenant_id: TenantId,
        audited: &Audited,
        action: AuditAction,
        object: AuditObject,
    ) -> Result<Result<(), OverQuota>, IndexError> {
        let mut writer = self.writer.lock().await;
        let recorded = audit_within_quota(writer.begin().await?, tenant_id, audited, action, object).await?;
        if recorded.is_ok() {
            writer.commit().await?;
        }
        Ok(recorded)
    }

    async fn operator_audit(
        &self,
        before: Option<AuditPlace>,
        limit: u32,
    ) -> Result<Vec<AuditEntry>, IndexError> {
        let (at, id) = bound(before);
        let rows = sqlx::query(OPERATOR_AUDIT)
            .bind(at)
            .bind(id)
            .bind(i64::from(limit))
            .fetch_all(&self.readers)
            .await?;
        rows.iter().map(entry_of).collect()
    }
}

/// Where a page ends: before a place, or at the end of time.
fn bound(before: Option<AuditPlace>) -> (i64, Uuid) {
    before.map_or((i64::MAX, Uuid::max()), |(at, id)| (at.as_micros(), id))
}

fn entry_of(row: &SqliteRow) -> Result<AuditEntry, IndexError> {
    Ok(AuditEntry {
        id: row.try_get(0)?,
        at: Timestamp::from_micros(row.try_get(1)?),
        actor: row.try_get(2)?,
        action: row.try_get(3)?,
        object_id: row.try_get(4)?,
        store_id: row.try_get::<Option<Uuid>, _>(5)?.map(StoreId::from_uuid),
    })
}

/// Writes the audit entry of an action in its transaction: to the tenant's audit,
/// and for an action of the operator to the operator's audit too.
///
/// Locks the tenant's counters: nothing else may be locked after it.
pub(super) async fn audit(
    connection: &mut SqliteConnection,
    tenant_id: TenantId,
    audited: &Audited,
    action: AuditAction,
    object: AuditObject,
) -> Result<(), IndexError> {
    count(connection, tenant_id, audited).await?;
    insert(connection, tenant_id, audited, action, object).await
}

/// Writes the audit entry of an action, unless the tenant's credentials have used
/// up the entries of the day.
///
/// For actions that create or change an object. Actions that end or remove one use
/// [`audit`] and are never refused: a leaked key must be revocable at any time, and
/// each object is ended once, so its creation has already been counted.
pub(super) async fn audit_within_quota(
    connection: &mut SqliteConnection,
    tenant_id: TenantId,
    audited: &Audited,
    action: AuditAction,
    object: AuditObject,
) -> Result<Result<(), OverQuota>, IndexError> {
    let entries = count(connection, tenant_id, audited).await?;
    if let Some(limit) = audited.entries_per_day
        && entries > limit
    {
        return Ok(Err(OverQuota::AuditEntries { limit }));
    }
    insert(connection, tenant_id, audited, action, object).await?;
    Ok(Ok(()))
}

/// Counts an entry of a tenant's credential; answers how many there are of its
/// day, 0 for the operator and jobs.
async fn count(
    connection: &mut SqliteConnection,
    tenant_id: TenantId,
    audited: &Audited,
) -> Result<u64, IndexError> {
    if audited.by.actor().is_none() {
        return Ok(0);
    }
    let entries: i64 = sqlx::query_scalar(COUNT_AUDIT)
        .bind(tenant_id.uuid())
        .bind(audited.day())
        .fetch_one(&mut *connection)
        .await?;
    Ok(unsigned(entries))
}

async fn insert(
    connection: &mut SqliteConnection,
    tenant_id: TenantId,
    audited: &Audited,
    action: AuditAction,
    object: AuditObject,
) -> Result<(), IndexError> {
    let actor = audited.by.to_string();
    sqlx::query(INSERT_AUDIT)
        .bind(tenant_id.uuid())
        .bind(audited.id)
        .bind(audited.at.as_micros())
        .bind(&actor)
        .bind(action.name())
        .bind(object.id)
        .bind(object.store_id.map(StoreId::uuid))
        .execute(&mut *connection)
        .await?;
    if audited.by.is_operator() {
        sqlx::query(INSERT_OPERATOR_AUDIT)
            .bind(audited.id)
            .bind(audited.at.as_micros())
            .bind(&actor)
            .bind(action.name())
            .bind(object.id)
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}
