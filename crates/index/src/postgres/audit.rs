//! The audit: written beside what it tells of, read newest first.

use async_trait::async_trait;
use keepsake_core::{TenantId, Timestamp};
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::PostgresIndex;
use super::pool::Tx;
use crate::model::{AuditAction, AuditEntry, AuditPlace, Audited};
use crate::statements::operator::{AUDIT, INSERT_AUDIT, INSERT_OPERATOR_AUDIT, OPERATOR_AUDIT};
use crate::{AuditIndex, IndexError};

#[async_trait]
impl AuditIndex for PostgresIndex {
    async fn audit(
        &self,
        tenant_id: TenantId,
        before: Option<AuditPlace>,
        limit: u32,
    ) -> Result<Vec<AuditEntry>, IndexError> {
        let (at, id) = bound(before);
        let rows = sqlx::query(AUDIT)
            .bind(tenant_id.uuid())
            .bind(at)
            .bind(id)
            .bind(i64::from(limit))
            .fetch_all(&self.shared)
            .await?;
        rows.iter().map(entry_of).collect()
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
            .fetch_all(&self.shared)
            .await?;
        rows.iter().map(entry_of).collect()
    }
}

/// Where a page ends: before a place, or at the end of time.
fn bound(before: Option<AuditPlace>) -> (i64, Uuid) {
    before.map_or((i64::MAX, Uuid::max()), |(at, id)| (at.as_micros(), id))
}

fn entry_of(row: &PgRow) -> Result<AuditEntry, IndexError> {
    Ok(AuditEntry {
        id: row.try_get(0)?,
        at: Timestamp::from_micros(row.try_get(1)?),
        actor: row.try_get(2)?,
        action: row.try_get(3)?,
        object_id: row.try_get(4)?,
    })
}

/// Writes the audit, in the transaction of what it tells of: the tenant's, and
/// the operator's where it is the operator's action.
pub(super) async fn audit(
    transaction: &mut Tx,
    tenant_id: TenantId,
    audited: &Audited,
    action: AuditAction,
    object_id: Option<Uuid>,
) -> Result<(), IndexError> {
    let actor = audited.by.to_string();
    sqlx::query(INSERT_AUDIT)
        .bind(tenant_id.uuid())
        .bind(audited.id)
        .bind(audited.at.as_micros())
        .bind(&actor)
        .bind(action.name())
        .bind(object_id)
        .execute(&mut **transaction)
        .await?;
    if audited.by.is_operator() {
        sqlx::query(INSERT_OPERATOR_AUDIT)
            .bind(audited.id)
            .bind(audited.at.as_micros())
            .bind(&actor)
            .bind(action.name())
            .bind(object_id)
            .execute(&mut **transaction)
            .await?;
    }
    Ok(())
}
