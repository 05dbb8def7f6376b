//! Tenants, keys and stores: rare operations, each in a transaction.

use async_trait::async_trait;
use keepsake_core::limits::LimitOverrides;
use keepsake_core::{StoreId, TenantId, Timestamp};
use sqlx::types::Json;
use sqlx::{Postgres, Row, Transaction};
use uuid::Uuid;

use super::PostgresIndex;
use super::reads::unsigned;
use crate::model::{ApiKey, Grant, NewStore, Store, StoreCreation, Tenant, TenantStatus};
use crate::{IndexError, OperatorIndex, StoreIndex, grants};

#[async_trait]
impl StoreIndex for PostgresIndex {
    async fn create_store(
        &self,
        tenant_id: TenantId,
        store: &NewStore,
        stores_limit: u64,
    ) -> Result<StoreCreation, IndexError> {
        let mut transaction = self.begin(tenant_id).await?;
        let count: Option<i64> =
            sqlx::query_scalar("SELECT store_count FROM tenant WHERE tenant_id = $1 FOR NO KEY UPDATE")
                .bind(tenant_id.uuid())
                .fetch_optional(&mut *transaction)
                .await?;
        let Some(count) = count.map(unsigned) else {
            return Ok(StoreCreation::NoTenant);
        };
        if count >= stores_limit {
            return Ok(StoreCreation::TooMany { count });
        }
        sqlx::query("UPDATE tenant SET store_count = store_count + 1 WHERE tenant_id = $1")
            .bind(tenant_id.uuid())
            .execute(&mut *transaction)
            .await?;
        sqlx::query(
            "INSERT INTO store (tenant_id, store_id, name, description, metadata, policy, seq, last_version_at, \
             purge_epoch, memory_count, live_bytes, granted_bytes, version_count, version_bytes, retention_seq, \
             created_at, updated_at) VALUES ($1, $2, $3, $4, $5, 'off', 0, 0, 0, 0, 0, 0, 0, 0, 0, $6, $6)",
        )
        .bind(tenant_id.uuid())
        .bind(store.store_id.uuid())
        .bind(&store.name)
        .bind(&store.description)
        .bind(Json(&store.metadata))
        .bind(store.created_at.as_micros())
        .execute(&mut *transaction)
        .await?;
        sqlx::query(
            "INSERT INTO directory (tenant_id, store_id, path, parent, name, files, bytes, visible_children) \
             VALUES ($1, $2, '/', '/', '', 0, 0, 0)",
        )
        .bind(tenant_id.uuid())
        .bind(store.store_id.uuid())
        .execute(&mut *transaction)
        .await?;
        tell(
            &mut transaction,
            "store",
            tenant_id,
            Some(store.store_id.uuid()),
            store.created_at,
        )
        .await?;
        transaction.commit().await?;
        Ok(StoreCreation::Created)
    }

    async fn store(&self, tenant_id: TenantId, store_id: StoreId) -> Result<Option<Store>, IndexError> {
        let mut transaction = self.begin(tenant_id).await?;
        let row = sqlx::query(
            "SELECT name, description, metadata, policy, expires_unused_after, memory_count, live_bytes, \
             created_at, updated_at, archived_at FROM store \
             WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL",
        )
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .fetch_optional(&mut *transaction)
        .await?;
        transaction.commit().await?;
        row.map(|row| {
            Ok(Store {
                store_id,
                name: row.try_get(0)?,
                description: row.try_get(1)?,
                metadata: row.try_get::<Json<_>, _>(2)?.0,
                policy: row.try_get(3)?,
                expires_unused_after: row.try_get::<Option<i64>, _>(4)?.map(unsigned),
                memory_count: unsigned(row.try_get(5)?),
                live_bytes: unsigned(row.try_get(6)?),
                created_at: Timestamp::from_micros(row.try_get(7)?),
                updated_at: Timestamp::from_micros(row.try_get(8)?),
                archived_at: row.try_get::<Option<i64>, _>(9)?.map(Timestamp::from_micros),
            })
        })
        .transpose()
    }

    async fn grant_bytes(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        needed_bytes: u64,
        tenant_limit_bytes: u64,
    ) -> Result<Grant, IndexError> {
        let mut transaction = self.begin(tenant_id).await?;
        let granted: Option<i64> =
            sqlx::query_scalar("SELECT granted_bytes FROM tenant WHERE tenant_id = $1 FOR NO KEY UPDATE")
                .bind(tenant_id.uuid())
                .fetch_optional(&mut *transaction)
                .await?;
        let Some(tenant_granted) = granted.map(unsigned) else {
            return Ok(Grant::NoStore);
        };
        let own: Option<i64> = sqlx::query_scalar(
            "SELECT granted_bytes FROM store WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL",
        )
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .fetch_optional(&mut *transaction)
        .await?;
        let Some(own) = own.map(unsigned) else {
            return Ok(Grant::NoStore);
        };
        let mut account = grants::Account {
            own,
            others: tenant_granted.saturating_sub(own),
        };
        if account.must_recall(needed_bytes, tenant_limit_bytes) {
            account.others = recall(&mut transaction, tenant_id, store_id).await?;
        }
        let Some(new_grant) = account.grant(needed_bytes, tenant_limit_bytes) else {
            // What was recalled stays recalled: it was unused.
            set_grants(
                &mut transaction,
                tenant_id,
                store_id,
                account.own,
                account.total(),
            )
            .await?;
            transaction.commit().await?;
            return Ok(Grant::Refused {
                wanted_bytes: account.others.saturating_add(needed_bytes),
            });
        };
        account.own = new_grant;
        set_grants(
            &mut transaction,
            tenant_id,
            store_id,
            account.own,
            account.total(),
        )
        .await?;
        transaction.commit().await?;
        Ok(Grant::Granted)
    }
}

/// Takes back what other stores do not use; answers what they keep together.
async fn recall(
    transaction: &mut Transaction<'static, Postgres>,
    tenant_id: TenantId,
    store_id: StoreId,
) -> Result<u64, IndexError> {
    // By id, so that two recalls of one tenant (the tenant row forbids them
    // anyway) or a store's own deletion could not wait for each other in a ring.
    sqlx::query(
        "SELECT store_id FROM store WHERE tenant_id = $1 AND (store_id = $2 OR granted_bytes > live_bytes) \
         ORDER BY store_id FOR NO KEY UPDATE",
    )
    .bind(tenant_id.uuid())
    .bind(store_id.uuid())
    .execute(&mut **transaction)
    .await?;
    sqlx::query(
        "UPDATE store SET granted_bytes = live_bytes \
         WHERE tenant_id = $1 AND store_id <> $2 AND granted_bytes > live_bytes",
    )
    .bind(tenant_id.uuid())
    .bind(store_id.uuid())
    .execute(&mut **transaction)
    .await?;
    let others: i64 = sqlx::query_scalar(
        "SELECT coalesce(sum(granted_bytes), 0)::bigint FROM store WHERE tenant_id = $1 AND store_id <> $2",
    )
    .bind(tenant_id.uuid())
    .bind(store_id.uuid())
    .fetch_one(&mut **transaction)
    .await?;
    Ok(unsigned(others))
}

async fn set_grants(
    transaction: &mut Transaction<'static, Postgres>,
    tenant_id: TenantId,
    store_id: StoreId,
    store_bytes: u64,
    tenant_bytes: u64,
) -> Result<(), IndexError> {
    sqlx::query("UPDATE store SET granted_bytes = $3 WHERE tenant_id = $1 AND store_id = $2")
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .bind(i64::try_from(store_bytes).unwrap_or(i64::MAX))
        .execute(&mut **transaction)
        .await?;
    sqlx::query("UPDATE tenant SET granted_bytes = $2 WHERE tenant_id = $1")
        .bind(tenant_id.uuid())
        .bind(i64::try_from(tenant_bytes).unwrap_or(i64::MAX))
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

/// Writes the change feed, in the transaction of what it tells of.
async fn tell(
    transaction: &mut Transaction<'static, Postgres>,
    kind: &str,
    tenant_id: TenantId,
    object_id: Option<Uuid>,
    at: Timestamp,
) -> Result<(), IndexError> {
    sqlx::query("INSERT INTO change_feed (at, kind, tenant_id, object_id) VALUES ($1, $2, $3, $4)")
        .bind(at.as_micros())
        .bind(kind)
        .bind(tenant_id.uuid())
        .bind(object_id)
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

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
