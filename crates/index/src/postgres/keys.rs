//! API keys: rare operations, each in a transaction that sees one tenant.

use async_trait::async_trait;
use keepsake_core::{Actor, ApiKeyId, TenantId, Timestamp};
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use uuid::Uuid;

use super::PostgresIndex;
use super::audit::{audit, audit_within_quota};
use super::pool::Tx;
use super::reads::{earlier_call, unsigned};
use super::stores::{record_call, tell};
use super::tenants::stays;
use crate::commit::{CallMade, Idempotency};
use crate::model::{ApiKey, AuditAction, AuditObject, Audited, Auditor, IssuedKey, KeyCreation, OverQuota};
use crate::statements::operator::{COUNT_KEYS, INSERT_KEY, IS_GOOD_MAKER, KEY, KEYS, REVOKE_KEY};
use crate::{IndexError, KeyIndex, REVOKED_KEYS_COUNT_FOR};

#[async_trait]
impl KeyIndex for PostgresIndex {
    async fn create_api_key(
        &self,
        key: &ApiKey,
        secret_sha256: &[u8; 32],
        keys_limit: u64,
        idempotency: Option<&Idempotency>,
        audited: &Audited,
    ) -> Result<KeyCreation, IndexError> {
        let (tenant_id, key_id) = (key.tenant_id, key.api_key_id.uuid());
        let mut transaction = self.begin_by(tenant_id, &audited.by).await?;
        if !stays(&mut transaction, tenant_id).await? {
            return Ok(KeyCreation::NoTenant);
        }
        if let Auditor::Credential(Actor::ApiKey(maker)) = &audited.by {
            // Under the tenant's lock, which revoking takes too: who was revoked
            // makes no key, however late its request came to its end.
            let is_good: bool = sqlx::query_scalar(IS_GOOD_MAKER)
                .bind(tenant_id.uuid())
                .bind(maker.uuid())
                .bind(audited.at.as_micros())
                .fetch_one(&mut *transaction)
                .await?;
            if !is_good {
                return Ok(KeyCreation::MakerRevoked);
            }
        }
        if let Some(call) = idempotency
            && let Some(earlier) =
                earlier_call(&mut *transaction, tenant_id, &call.scope_sha256, call.since).await?
        {
            return Ok(match earlier.same_key(call) {
                Some(api_key_id) => KeyCreation::Replayed { api_key_id },
                None => KeyCreation::KeyReused,
            });
        }
        let counted_from = audited.at.minus(REVOKED_KEYS_COUNT_FOR);
        let keys: i64 = sqlx::query_scalar(COUNT_KEYS)
            .bind(tenant_id.uuid())
            .bind(counted_from.as_micros())
            .fetch_one(&mut *transaction)
            .await?;
        if unsigned(keys) >= keys_limit {
            return Ok(KeyCreation::OverQuota(OverQuota::ApiKeys {
                count: unsigned(keys) + 1,
                limit: keys_limit,
            }));
        }
        sqlx::query(INSERT_KEY)
            .bind(tenant_id.uuid())
            .bind(key_id)
            .bind(&key.name)
            .bind(Json(&key.scopes))
            .bind(key.store_ids.as_ref().map(Json))
            .bind(key.created_at.as_micros())
            .bind(key.expires_at.map(Timestamp::as_micros))
            .execute(&mut *transaction)
            .await?;
        sqlx::query("SELECT record_credential($1, $2)")
            .bind(secret_sha256.as_slice())
            .bind(key_id)
            .execute(&mut *transaction)
            .await?;
        tell(
            &mut transaction,
            "api_key",
            tenant_id,
            Some(key_id),
            key.created_at,
        )
        .await?;
        let made = CallMade::object(key_id);
        record_call(&mut transaction, tenant_id, made, idempotency, key.created_at).await?;
        let (action, object) = (AuditAction::KeyCreated, AuditObject::new(key_id));
        if let Err(refusal) = audit_within_quota(&mut transaction, tenant_id, audited, action, object).await?
        {
            return Ok(KeyCreation::OverQuota(refusal));
        }
        transaction.commit().await?;
        Ok(KeyCreation::Created)
    }

    async fn api_key(
        &self,
        tenant_id: TenantId,
        api_key_id: ApiKeyId,
    ) -> Result<Option<IssuedKey>, IndexError> {
        let mut transaction = self.begin(tenant_id).await?;
        let row = sqlx::query(KEY)
            .bind(tenant_id.uuid())
            .bind(api_key_id.uuid())
            .fetch_optional(&mut *transaction)
            .await?;
        transaction.commit().await?;
        row.map(|row| key_of(tenant_id, &row)).transpose()
    }

    async fn api_keys(
        &self,
        tenant_id: TenantId,
        before: Option<ApiKeyId>,
        limit: u32,
    ) -> Result<Vec<IssuedKey>, IndexError> {
        let mut transaction = self.begin(tenant_id).await?;
        let rows = sqlx::query(KEYS)
            .bind(tenant_id.uuid())
            .bind(before.map_or(Uuid::max(), ApiKeyId::uuid))
            .bind(i64::from(limit))
            .fetch_all(&mut *transaction)
            .await?;
        transaction.commit().await?;
        rows.iter().map(|row| key_of(tenant_id, row)).collect()
    }

    async fn revoke_api_key(
        &self,
        tenant_id: TenantId,
        api_key_id: ApiKeyId,
        audited: &Audited,
    ) -> Result<Option<IssuedKey>, IndexError> {
        let key_id = api_key_id.uuid();
        let mut transaction = self.begin_by(tenant_id, &audited.by).await?;
        if !stays(&mut transaction, tenant_id).await? {
            return Ok(None);
        }
        let Some(row) = sqlx::query(KEY)
            .bind(tenant_id.uuid())
            .bind(key_id)
            .fetch_optional(&mut *transaction)
            .await?
        else {
            return Ok(None);
        };
        let before = key_of(tenant_id, &row)?;
        if before.revoked_at.is_some() {
            return Ok(Some(before));
        }
        sqlx::query(REVOKE_KEY)
            .bind(tenant_id.uuid())
            .bind(key_id)
            .bind(audited.at.as_micros())
            .execute(&mut *transaction)
            .await?;
        tell(&mut transaction, "api_key", tenant_id, Some(key_id), audited.at).await?;
        let (action, object) = (AuditAction::KeyRevoked, AuditObject::new(key_id));
        audit(&mut transaction, tenant_id, audited, action, object).await?;
        transaction.commit().await?;
        Ok(Some(IssuedKey {
            revoked_at: Some(audited.at),
            ..before
        }))
    }
}

/// Reads a key's row, in the order of the columns of [`KEY`].
fn key_of(tenant_id: TenantId, row: &PgRow) -> Result<IssuedKey, IndexError> {
    let time =
        |column| Ok::<_, IndexError>(row.try_get::<Option<i64>, _>(column)?.map(Timestamp::from_micros));
    Ok(IssuedKey {
        key: ApiKey {
            api_key_id: ApiKeyId::from_uuid(row.try_get(0)?),
            tenant_id,
            name: row.try_get(1)?,
            scopes: row.try_get::<Json<_>, _>(2)?.0,
            store_ids: row.try_get::<Option<Json<_>>, _>(3)?.map(|ids| ids.0),
            created_at: Timestamp::from_micros(row.try_get(4)?),
            expires_at: time(5)?,
        },
        last_used_at: time(6)?,
        revoked_at: time(7)?,
    })
}

impl PostgresIndex {
    /// Begins a transaction that sees one tenant, by the session of whoever acts:
    /// what the operator does is in the operator's audit too.
    pub(super) async fn begin_by(&self, tenant_id: TenantId, by: &Auditor) -> Result<Tx, IndexError> {
        if by.is_operator() {
            Ok(self.shared.begin(Some(tenant_id)).await?)
        } else {
            self.begin(tenant_id).await
        }
    }
}
