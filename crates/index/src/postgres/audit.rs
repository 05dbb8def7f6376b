//! The audit log: entries are written with the audited change, and listed newest
//! first.

use keepsake_core::{StoreId, TenantId};

use super::pool::Tx;
use crate::IndexError;
use crate::model::{AuditAction, AuditObject, Audited, OverQuota};
use crate::numbers::unsigned;
use crate::statements::operator::{COUNT_AUDIT, INSERT_AUDIT, INSERT_OPERATOR_AUDIT};

/// Writes the audit entry of an action in its transaction: to the tenant's audit,
/// and for an action of the operator to the operator's audit too.
///
/// Locks the tenant's counters: nothing else may be locked after it.
pub(super) async fn audit(
    transaction: &mut Tx,
    tenant_id: TenantId,
    audited: &Audited,
    action: AuditAction,
    object: AuditObject,
) -> Result<(), IndexError> {
    count(transaction, tenant_id, audited).await?;
    insert(transaction, tenant_id, audited, action, object).await
}

/// Writes the audit entry of an action, unless the tenant's credentials have used
/// up the entries of the day.
///
/// For actions that create or change an object. Actions that end or remove one use
/// [`audit`] and are never refused: a leaked key must be revocable at any time, and
/// each object is ended once, so its creation has already been counted.
pub(super) async fn audit_within_quota(
    transaction: &mut Tx,
    tenant_id: TenantId,
    audited: &Audited,
    action: AuditAction,
    object: AuditObject,
) -> Result<Result<(), OverQuota>, IndexError> {
    let entries = count(transaction, tenant_id, audited).await?;
    if let Some(limit) = audited.entries_per_day
        && entries > limit
    {
        return Ok(Err(OverQuota::AuditEntries { limit }));
    }
    insert(transaction, tenant_id, audited, action, object).await?;
    Ok(Ok(()))
}

/// Counts an entry of a tenant's credential; returns the number of entries of its
/// day, 0 for the operator and jobs.
async fn count(transaction: &mut Tx, tenant_id: TenantId, audited: &Audited) -> Result<u64, IndexError> {
    if audited.by.actor().is_none() {
        return Ok(0);
    }
    let entries: i64 = sqlx::query_scalar(COUNT_AUDIT)
        .bind(tenant_id.uuid())
        .bind(audited.day())
        .fetch_one(&mut **transaction)
        .await?;
    Ok(unsigned(entries))
}

async fn insert(
    transaction: &mut Tx,
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
        .execute(&mut **transaction)
        .await?;
    if audited.by.is_operator() {
        sqlx::query(INSERT_OPERATOR_AUDIT)
            .bind(audited.id)
            .bind(audited.at.as_micros())
            .bind(&actor)
            .bind(action.name())
            .bind(object.id)
            .execute(&mut **transaction)
            .await?;
    }
    Ok(())
}
