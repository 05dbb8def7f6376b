//! API keys of tenants, managed by the operator.

use keepsake_core::api_key::ApiKeySecret;
use keepsake_core::{ApiKeyId, TenantId};
use keepsake_index::{ApiKey, IssuedKey};

use super::{Operation, Tenants, check_text};
use crate::{ApiKeys, EngineError, KeyDraft, MadeKey, NewKey, Page, PageRequest};

#[derive(Debug, Clone)]
pub struct TenantKeys {
    operation: Operation,
    tenants: Tenants,
    keys: ApiKeys,
}

impl TenantKeys {
    pub(super) const fn new(operation: Operation, tenants: Tenants, keys: ApiKeys) -> Self {
        Self { operation, tenants, keys }
    }

    /// The secret exists only in the answer.
    pub async fn create(&self, new: NewKey) -> Result<(ApiKey, ApiKeySecret), EngineError> {
        check_text("name", &new.name)?;
        let limit = self.limit(new.tenant_id).await?;
        let made = self.make(new, limit).await?;
        let secret = made.secret.ok_or(EngineError::Internal("a key without its secret"))?;
        Ok((made.issued.key, secret))
    }

    #[tracing::instrument(name = "engine.issue_key", level = "debug", skip_all)]
    pub async fn issue(&self, tenant_id: TenantId, draft: KeyDraft) -> Result<MadeKey, EngineError> {
        draft.check(self.operation.context.now())?;
        let limit = self.limit(tenant_id).await?;
        let stores = draft.store_ids.as_deref();
        self.keys.check_stores(tenant_id, stores).await?;
        let new = draft.of_tenant(tenant_id);
        self.make(new, limit).await
    }

    async fn make(&self, new: NewKey, limit: u64) -> Result<MadeKey, EngineError> {
        let keys = self.keys.clone();
        let make = |audited| async move { keys.make(new, limit, None, &audited).await };
        self.operation.run(make).await
    }

    /// Maximum number of API keys of a tenant.
    async fn limit(&self, tenant_id: TenantId) -> Result<u64, EngineError> {
        let tenant = self.tenants.get(tenant_id).await?;
        Ok(self.operation.context.limits.with(&tenant.limits).api_keys_per_tenant)
    }

    /// Also finds a revoked key.
    #[tracing::instrument(name = "engine.key", level = "debug", skip_all)]
    pub async fn get(&self, tenant_id: TenantId, api_key_id: ApiKeyId) -> Result<IssuedKey, EngineError> {
        self.keys.find(tenant_id, api_key_id).await
    }

    /// Newest first.
    #[tracing::instrument(name = "engine.keys", level = "debug", skip_all)]
    pub async fn list(
        &self,
        tenant_id: TenantId,
        page: &PageRequest,
    ) -> Result<Page<IssuedKey>, EngineError> {
        self.tenants.get(tenant_id).await?;
        self.keys.of_tenant(tenant_id, page).await
    }

    /// Takes effect on every replica within five seconds. Idempotent.
    #[tracing::instrument(name = "engine.revoke_key", level = "debug", skip_all)]
    pub async fn revoke(&self, tenant_id: TenantId, api_key_id: ApiKeyId) -> Result<IssuedKey, EngineError> {
        let keys = self.keys.clone();
        let revoke = |audited| async move { keys.revoke_now(tenant_id, api_key_id, &audited).await };
        self.operation.run(revoke).await
    }
}
