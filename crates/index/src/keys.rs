//! API keys of one tenant.

use std::time::Duration;

use keepsake_core::{Actor, ApiKeyId, ObjectKind, Quota, Refused, TenantId};
use sqlx::types::Json;
use uuid::Uuid;

use crate::calls::{CallObject, earlier_object, record_call};
use crate::database::{Database, Ids, Role, Tx, from_row, selects};
use crate::model::{ApiKey, AuditAction, AuditObject, AuditedAction, Auditor, Idempotency};
use crate::numbers::unsigned;
use crate::tenants::lock_live_tenant;
use crate::{ChangeError, IndexError, audit};

const INSERT: &str = "INSERT INTO api_key (tenant_id, api_key_id, name, scopes, store_ids, created_at, expires_at) \
    VALUES ($1, $2, $3, $4, $5, $6, $7)";

const INSERT_CREDENTIAL: &str =
    "INSERT INTO credential (secret_sha256, tenant_id, api_key_id) VALUES ($1, $2, $3)";

selects! {
    "tenant_id, api_key_id, name, scopes, store_ids, created_at, expires_at, last_used_at, revoked_at \
        FROM api_key WHERE tenant_id = $1 AND";
    const FIND = "api_key_id = $2";
    const LIST = "api_key_id < $2 ORDER BY api_key_id DESC LIMIT $3 + 0";
}

const FIND_ALL: &str = "SELECT k.tenant_id, k.api_key_id, k.name, k.scopes, k.store_ids, k.created_at, k.expires_at, \
    k.last_used_at, k.revoked_at FROM_IDS($2) EACH[api_key k: k.tenant_id = $1 AND k.api_key_id = ids.id]";

/// Whether a key may make another one: it is valid and its tenant is active.
const MAY_MAKE_KEYS: &str = "SELECT count(*) > 0 FROM api_key k JOIN tenant t ON t.tenant_id = k.tenant_id \
    WHERE k.tenant_id = $1 AND k.api_key_id = $2 AND k.revoked_at IS NULL \
        AND (k.expires_at IS NULL OR k.expires_at > $3) AND t.status = 'active'";

const COUNT: &str = "SELECT count(*) FROM api_key \
    WHERE tenant_id = $1 AND (revoked_at IS NULL OR revoked_at > $2)";

const REVOKE: &str = "UPDATE api_key SET revoked_at = $3 WHERE tenant_id = $1 AND api_key_id = $2";

/// How long a key counts against its tenant's limit after it was revoked.
pub const REVOKED_KEYS_COUNT_FOR: Duration = Duration::from_hours(30 * 24);

#[derive(Debug, Clone)]
pub struct ApiKeys(pub(crate) Database);

from_row! {
    ApiKey {
        api_key_id, tenant_id, name, scopes, store_ids, created_at, expires_at, last_used_at, revoked_at
        .. r#type
    }
}

impl ApiKeys {
    /// Records an API key under the hash of its secret, unless the tenant has
    /// `keys_limit` of them.
    ///
    /// Keys revoked within [`REVOKED_KEYS_COUNT_FOR`] count, so that a tenant cannot
    /// make any number of keys by revoking them. Returns the id of the key that this call
    /// recorded, or the same call earlier; `None`: the tenant does not exist, or is being
    /// deleted.
    pub async fn create(
        &self,
        key: &ApiKey,
        secret_sha256: &[u8; 32],
        keys_limit: u64,
        idempotency: Option<&Idempotency>,
        audited: &AuditedAction,
    ) -> Result<Option<ApiKeyId>, ChangeError> {
        let tenant_id = key.tenant_id;
        let role = Role::of_auditor(tenant_id, &audited.by);
        let mut tx = self.0.write("create_api_key", role).await?;
        if !lock_live_tenant(&mut tx, tenant_id).await? {
            return Ok(None);
        }
        if let Auditor::Credential(Actor::ApiKey(maker)) = &audited.by {
            // Under the tenant's lock, which revoking takes too: a request that ends
            // after its key was revoked makes no key.
            let query = tx.query(MAY_MAKE_KEYS).bind((tenant_id, *maker, audited.at));
            if !query.scalar::<bool>().await? {
                return Err(Refused::KeyEnded.into());
            }
        }
        if let Some(earlier) = earlier_object(&mut tx, tenant_id, idempotency).await? {
            return Ok(Some(earlier));
        }
        let counted_from = audited.at.minus(REVOKED_KEYS_COUNT_FOR);
        let keys = unsigned(tx.query(COUNT).bind((tenant_id, counted_from)).scalar().await?);
        if keys >= keys_limit {
            return Err(Refused::over(Quota::ApiKeysPerTenant, keys + 1, keys_limit).into());
        }
        insert(&mut tx, key, secret_sha256).await?;
        let made = CallObject::object(key.api_key_id.uuid());
        record_call(&mut tx, tenant_id, made, idempotency, key.created_at).await?;
        let (action, object) = (AuditAction::KeyCreated, AuditObject::new(key.api_key_id.uuid()));
        audit::record_within_quota(&mut tx, tenant_id, audited, action, object).await?;
        tx.commit().await?;
        Ok(Some(key.api_key_id))
    }

    /// Finds a key, also a revoked one.
    pub async fn find(
        &self,
        tenant_id: TenantId,
        api_key_id: ApiKeyId,
    ) -> Result<Option<ApiKey>, IndexError> {
        self.0.optional("api_key", Role::Tenant(tenant_id), FIND, (tenant_id, api_key_id)).await
    }

    /// Finds keys, also revoked ones.
    pub async fn find_all(
        &self,
        tenant_id: TenantId,
        api_key_ids: &[ApiKeyId],
    ) -> Result<Vec<ApiKey>, IndexError> {
        let (role, values) = (Role::Tenant(tenant_id), (tenant_id, Ids(Some(api_key_ids))));
        self.0.all_with_lists("api_keys_by_id", role, FIND_ALL, values).await
    }

    /// Lists keys with ids before one, newest id first.
    pub async fn list(
        &self,
        tenant_id: TenantId,
        before: Option<ApiKeyId>,
        limit: u32,
    ) -> Result<Vec<ApiKey>, IndexError> {
        let values = (tenant_id, before.map_or(Uuid::max(), ApiKeyId::uuid), limit);
        self.0.all("api_keys", Role::Tenant(tenant_id), LIST, values).await
    }

    /// Revokes a key.
    ///
    /// Idempotent: a revoked key keeps the time at which it was revoked.
    pub async fn revoke(
        &self,
        tenant_id: TenantId,
        api_key_id: ApiKeyId,
        audited: &AuditedAction,
    ) -> Result<ApiKey, ChangeError> {
        const NOT_FOUND: ChangeError = ChangeError::NotFound(ObjectKind::ApiKey);
        let key_id = api_key_id.uuid();
        let role = Role::of_auditor(tenant_id, &audited.by);
        let mut tx = self.0.write("revoke_api_key", role).await?;
        if !lock_live_tenant(&mut tx, tenant_id).await? {
            return Err(NOT_FOUND);
        }
        let found: Option<ApiKey> = tx.query(FIND).bind((tenant_id, key_id)).optional().await?;
        let before = found.ok_or(NOT_FOUND)?;
        if before.revoked_at.is_some() {
            return Ok(before);
        }
        let query = tx.query(REVOKE).bind((tenant_id, key_id, audited.at));
        query.execute().await?;
        let (action, object) = (AuditAction::KeyRevoked, AuditObject::new(key_id));
        audit::record(&mut tx, tenant_id, audited, action, object).await?;
        tx.commit().await?;
        Ok(ApiKey { revoked_at: Some(audited.at), ..before })
    }
}

async fn insert(tx: &mut Tx, key: &ApiKey, secret_sha256: &[u8; 32]) -> Result<(), IndexError> {
    let (tenant_id, key_id) = (key.tenant_id, key.api_key_id.uuid());
    let query = tx.query(INSERT).bind((tenant_id, key_id, &key.name));
    let query = query.bind((Json(&key.scopes), key.store_ids.as_ref().map(Json)));
    query.bind((key.created_at, key.expires_at)).execute().await?;
    tx.query(INSERT_CREDENTIAL).bind(secret_sha256.as_slice()).bind(tenant_id).bind(key_id).execute().await?;
    Ok(())
}
