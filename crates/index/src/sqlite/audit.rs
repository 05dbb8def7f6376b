//! The audit log: entries are written with the audited change, and listed newest
//! first.

use keepsake_core::{StoreId, TenantId};
use sqlx::sqlite::SqliteConnection;

use crate::IndexError;
use crate::model::{AuditAction, AuditObject, Audited};
use crate::statements::operator::{COUNT_AUDIT, INSERT_AUDIT, INSERT_OPERATOR_AUDIT};

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

/// Counts an entry of a tenant's credential.
async fn count(
    connection: &mut SqliteConnection,
    tenant_id: TenantId,
    audited: &Audited,
) -> Result<(), IndexError> {
    if audited.by.actor().is_some() {
        sqlx::query(COUNT_AUDIT)
            .bind(tenant_id.uuid())
            .bind(audited.day())
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
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
