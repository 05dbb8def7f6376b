//! Tenants and their keys: rare operations, each in a transaction.

use async_trait::async_trait;
use keepsake_core::limits::LimitOverrides;
use keepsake_core::{TenantId, Timestamp};
use sqlx::Row;
use sqlx::types::Json;

use super::PostgresIndex;
use super::stores::tell;
use crate::model::{ApiKey, Tenant, TenantStatus};
use crate::{IndexError, OperatorIndex};

#[async_trait]
impl OperatorIndex for PostgresIndex {
    async fn create_tenant(&self, tenant: &Tenant) -> Result<bool, IndexError> {
        let mut transaction = self.jobs.begin().await?;
        let made = sqlx::query(
            "INSERT INTO tenant (tenant_id, external_id, name, status, limits, store_count, granted_bytes, \
             created_at) VALUES ($1, $2, $3, $4, $5, 0, 0, $6) ON CONFLICT DO NOTHING",
        )
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
        tell(
            &mut transaction,
            "tenant",
            tenant.tenant_id,
            None,
            tenant.created_at,
        )
        .await?;
        transaction.commit().await?;
        Ok(true)
    }

    async fn tenant(&self, tenant_id: TenantId) -> Result<Option<Tenant>, IndexError> {
        let row = sqlx::query(
            "SELECT external_id, name, status, limits, created_at FROM tenant WHERE tenant_id = $1",
        )
        .bind(tenant_id.uuid())
        .fetch_optional(&self.jobs)
        .await?;
        row.map(|row| {
            Ok(Tenant {
                tenant_id,
                external_id: row.try_get(0)?,
                name: row.try_get(1)?,
                status: TenantStatus::parse(row.try_get(2)?).ok_or(IndexError::Corrupt {
                    table: "tenant",
                    what: "unknown status",
                })?,
                limits: row.try_get::<Json<_>, _>(3)?.0,
                created_at: Timestamp::from_micros(row.try_get(4)?),
            })
        })
        .transpose()
    }

    async fn set_limits(
        &self,
        tenant_id: TenantId,
        limits: &LimitOverrides,
        now: Timestamp,
    ) -> Result<bool, IndexError> {
        let mut transaction = self.jobs.begin().await?;
        let set = sqlx::query("UPDATE tenant SET limits = $2 WHERE tenant_id = $1")
            .bind(tenant_id.uuid())
            .bind(Json(limits))
            .execute(&mut *transaction)
            .await?;
        if set.rows_affected() == 0 {
            return Ok(false);
        }
        tell(&mut transaction, "limits", tenant_id, None, now).await?;
        transaction.commit().await?;
        Ok(true)
    }

    async fn create_api_key(&self, key: &ApiKey, secret_sha256: &[u8; 32]) -> Result<bool, IndexError> {
        let mut transaction = self.jobs.begin().await?;
        let made = sqlx::query(
            "INSERT INTO api_key (tenant_id, api_key_id, name, scopes, store_ids, created_at, expires_at) \
             SELECT t.tenant_id, $2, $3, $4, $5, $6, $7 FROM tenant t WHERE t.tenant_id = $1",
        )
        .bind(key.tenant_id.uuid())
        .bind(key.api_key_id.uuid())
        .bind(&key.name)
        .bind(Json(&key.scopes))
        .bind(key.store_ids.as_ref().map(Json))
        .bind(key.created_at.as_micros())
        .bind(key.expires_at.map(Timestamp::as_micros))
        .execute(&mut *transaction)
        .await?;
        if made.rows_affected() == 0 {
            return Ok(false);
        }
        sqlx::query("INSERT INTO credential (secret_sha256, tenant_id, api_key_id) VALUES ($1, $2, $3)")
            .bind(secret_sha256.as_slice())
            .bind(key.tenant_id.uuid())
            .bind(key.api_key_id.uuid())
            .execute(&mut *transaction)
            .await?;
        tell(
            &mut transaction,
            "api_key",
            key.tenant_id,
            Some(key.api_key_id.uuid()),
            key.created_at,
        )
        .await?;
        transaction.commit().await?;
        Ok(true)
    }
}
