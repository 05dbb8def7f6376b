//! Tenants: rare operations, each in a transaction.

use async_trait::async_trait;
use keepsake_core::{TenantId, Timestamp};
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use uuid::Uuid;

use super::PostgresIndex;
use super::audit::audit;
use super::pool::Tx;
use super::reads::unsigned;
use super::stores::tell;
use crate::model::{
    AuditAction, AuditObject, Audited, Tenant, TenantChange, TenantStatus, TenantUpdate, TenantUsage,
};
use crate::statements::operator::{INSERT_TENANT, TENANT, TENANTS, TENANTS_CALLED, UPDATE_TENANT, USAGE};
use crate::{IndexError, OperatorIndex};

/// The status of a tenant, under a lock that keeps it from its end, and one of
/// two calls of the same name from being made beside the other.
const LOCK_STATUS: &str = "SELECT status FROM tenant WHERE tenant_id = $1 FOR NO KEY UPDATE";

/// A tenant that changes, under its lock.
const LOCK_TENANT: &str = "SELECT tenant_id, external_id, name, status, limits, created_at FROM tenant \
    WHERE tenant_id = $1 FOR NO KEY UPDATE";

#[async_trait]
impl OperatorIndex for PostgresIndex {
    async fn create_tenant(&self, tenant: &Tenant, audited: &Audited) -> Result<bool, IndexError> {
        let mut transaction = self.shared.begin(None).await?;
        let made = sqlx::query(INSERT_TENANT)
            .bind(tenant.tenant_id.uuid())
            .bind(&tenant.external_id)
            .bind(&tenant.name)
            .bind(tenant.status.name())
            .bind(Json(&tenant.limits))
            .bind(tenant.created_at.as_micros())
            .execute(&mut *transaction)
            .await?;
        if made.rows_affected() == 0 {
            return Ok(false);
        }
        let (tenant_id, at) = (tenant.tenant_id, tenant.created_at);
        tell(&mut transaction, "tenant", tenant_id, None, at).await?;
        let (action, object) = (AuditAction::TenantCreated, AuditObject::new(tenant_id.uuid()));
        audit(&mut transaction, tenant_id, audited, action, object).await?;
        transaction.commit().await?;
        Ok(true)
    }

    async fn tenant(&self, tenant_id: TenantId) -> Result<Option<Tenant>, IndexError> {
        let row = sqlx::query(TENANT)
            .bind(tenant_id.uuid())
            .fetch_optional(&self.shared)
            .await?;
        row.map(|row| tenant_of(&row)).transpose()
    }

    async fn tenants(
        &self,
        external_id: Option<&str>,
        before: Option<TenantId>,
        limit: u32,
    ) -> Result<Vec<Tenant>, IndexError> {
        let before = before.map_or(Uuid::max(), TenantId::uuid);
        let statement = if external_id.is_some() {
            TENANTS_CALLED
        } else {
            TENANTS
        };
        let query = sqlx::query(statement).bind(before).bind(i64::from(limit));
        let query = match external_id {
            Some(external_id) => query.bind(external_id),
            None => query,
        };
        let rows = query.fetch_all(&self.shared).await?;
        rows.iter().map(tenant_of).collect()
    }

    async fn update_tenant(
        &self,
        tenant_id: TenantId,
        change: &TenantChange,
        audited: &Audited,
    ) -> Result<TenantUpdate, IndexError> {
        let mut transaction = self.shared.begin(None).await?;
        let row = sqlx::query(LOCK_TENANT)
            .bind(tenant_id.uuid())
            .fetch_optional(&mut *transaction)
            .await?;
        let Some(row) = row else {
            return Ok(TenantUpdate::NoTenant);
        };
        let before = tenant_of(&row)?;
        if before.status == TenantStatus::Deleting {
            return Ok(TenantUpdate::Deleting);
        }
        let changed = change
            .applied_to(&before, audited.at)
            .map_err(|_| IndexError::Corrupt {
                table: "tenant",
                what: "unknown limits",
            })?;
        if changed == before {
            return Ok(TenantUpdate::Done(Box::new(changed)));
        }
        let replaced = sqlx::query(UPDATE_TENANT)
            .bind(tenant_id.uuid())
            .bind(&changed.external_id)
            .bind(&changed.name)
            .bind(changed.status.name())
            .bind(Json(&changed.limits))
            .execute(&mut *transaction)
            .await;
        match replaced {
            Err(sqlx::Error::Database(error)) if error.is_unique_violation() => {
                return Ok(TenantUpdate::ExternalIdTaken);
            }
            replaced => replaced?,
        };
        tell(&mut transaction, "tenant", tenant_id, None, audited.at).await?;
        let object = AuditObject::new(tenant_id.uuid());
        audit(&mut transaction, tenant_id, audited, change.action(), object).await?;
        transaction.commit().await?;
        Ok(TenantUpdate::Done(Box::new(changed)))
    }

    async fn usage(&self, tenant_id: TenantId) -> Result<Option<TenantUsage>, IndexError> {
        let row = sqlx::query(USAGE)
            .bind(tenant_id.uuid())
            .fetch_optional(&self.shared)
            .await?;
        let Some(row) = row else {
            return Ok(None);
        };
        let count = |column| Ok::<_, IndexError>(unsigned(row.try_get(column)?));
        Ok(Some(TenantUsage {
            stores: count(0)?,
            granted_bytes: count(1)?,
            memories: count(2)?,
            live_bytes: count(3)?,
            versions: count(4)?,
            version_bytes: count(5)?,
            api_keys: count(6)?,
            sessions: count(7)?,
            session_bytes: count(8)?,
        }))
    }
}

/// Locks a tenant against its end; `false`: it is not there, or about to go.
pub(super) async fn stays(transaction: &mut Tx, tenant_id: TenantId) -> Result<bool, IndexError> {
    let status: Option<String> = sqlx::query_scalar(LOCK_STATUS)
        .bind(tenant_id.uuid())
        .fetch_optional(&mut **transaction)
        .await?;
    Ok(status.is_some_and(|status| status != TenantStatus::Deleting.name()))
}

/// Reads a tenant's row, in the order of the columns of [`TENANT`].
fn tenant_of(row: &PgRow) -> Result<Tenant, IndexError> {
    Ok(Tenant {
        tenant_id: TenantId::from_uuid(row.try_get(0)?),
        external_id: row.try_get(1)?,
        name: row.try_get(2)?,
        status: TenantStatus::parse(row.try_get(3)?).ok_or(IndexError::Corrupt {
            table: "tenant",
            what: "unknown status",
        })?,
        limits: row.try_get::<Json<_>, _>(4)?.0,
        created_at: Timestamp::from_micros(row.try_get(5)?),
    })
}
