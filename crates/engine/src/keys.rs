//! API keys of a tenant.
//!
//! A credential with the scope `keys:admin` creates keys with at most its own
//! scopes, stores and lifetime. A credential that is bound to stores sees only
//! keys that are bound to a subset of its stores.

use std::sync::Arc;

use keepsake_core::api_key::ApiKeySecret;
use keepsake_core::schemas::{self, ApiKeyType};
use keepsake_core::{Actor, ApiKeyId, ObjectKind, StoreId, TenantId, Timestamp};
use keepsake_index::{ApiKey, AuditedAction, Idempotency, Scope};
use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

use crate::cursor::Query;
use crate::request_fields::{check_name, invalid, parse_time};
use crate::shared::service;
use crate::{EngineError, Page, PageRequest, Principal};

const MAX_STORES: usize = 1000;
/// Keys whose names one call looks up.
const MAX_NAMES: usize = 200;
/// Keys read per query when some of them are filtered out.
const READ_AT_ONCE: u32 = 100;

/// The body of a create request.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CreateApiKey)]
pub struct KeyDraft {
    /// 1 to 255 characters without control characters.
    #[schema(value_type = schemas::TenantName)]
    pub name: String,
    /// The permissions of the key; at least one.
    #[schema(min_items = 1)]
    pub scopes: Vec<Scope>,
    /// The only stores that the key can access, at most 1,000; all stores by
    /// default.
    #[serde(rename = "memory_store_ids")]
    #[schema(min_items = 1, max_items = 1000)]
    pub store_ids: Option<Vec<StoreId>>,
    /// When the key expires, in the future; never by default.
    #[schema(value_type = Option<Timestamp>)]
    pub expires_at: Option<String>,
}

/// An API key with its secret.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = NewApiKey)]
pub struct KeyWithSecret {
    #[serde(flatten)]
    pub key: ApiKey,
    /// The secret, returned only once; null in the response to a retry.
    #[serde(rename = "api_key", serialize_with = "exposed")]
    #[schema(value_type = Option<String>, required)]
    pub secret: Option<ApiKeySecret>,
}

#[expect(clippy::ref_option, reason = "serde passes a reference")]
fn exposed<S: Serializer>(secret: &Option<ApiKeySecret>, serializer: S) -> Result<S::Ok, S::Error> {
    secret.as_ref().map(ApiKeySecret::expose).serialize(serializer)
}

impl KeyDraft {
    fn expires_at(&self) -> Result<Option<Timestamp>, EngineError> {
        self.expires_at.as_deref().map(|text| parse_time("expires_at", text)).transpose()
    }

    /// The key to create, if the draft follows the rules.
    fn key(
        mut self,
        tenant_id: TenantId,
        api_key_id: ApiKeyId,
        expires_at: Option<Timestamp>,
        created_at: Timestamp,
    ) -> Result<ApiKey, EngineError> {
        check_name("name", &self.name)?;
        if self.scopes.is_empty() {
            return invalid("scopes", "must have at least one scope");
        }
        if let Some(store_ids) = &self.store_ids
            && !(1..=MAX_STORES).contains(&store_ids.len())
        {
            return invalid("memory_store_ids", format!("must be 1 to {MAX_STORES} ids"));
        }
        if expires_at.is_some_and(|expires_at| expires_at <= created_at) {
            return invalid("expires_at", "must be in the future");
        }
        let mut scopes = Vec::new();
        for scope in self.scopes {
            if !scopes.contains(&scope) {
                scopes.push(scope);
            }
        }
        if let Some(store_ids) = &mut self.store_ids {
            store_ids.sort_unstable();
            store_ids.dedup();
        }
        Ok(ApiKey {
            api_key_id,
            r#type: ApiKeyType,
            tenant_id,
            name: self.name,
            scopes,
            store_ids: self.store_ids,
            created_at,
            expires_at,
            last_used_at: None,
            revoked_at: None,
        })
    }
}

service!(pub ApiKeys);

impl ApiKeys {
    /// The key gets at most the scopes, stores and lifetime of the credential. A call
    /// repeated under its idempotency key returns the key without its secret.
    #[tracing::instrument(name = "engine.create_api_key", level = "debug", skip_all)]
    pub async fn create(
        &self,
        principal: &Arc<Principal>,
        draft: KeyDraft,
        idempotency: Option<Idempotency>,
    ) -> Result<KeyWithSecret, EngineError> {
        let expires_at = draft.expires_at()?;
        principal.require(Scope::KeysAdmin)?;
        let audited = self.context.audited_by(principal);
        let api_key_id = ApiKeyId::from_uuid(self.context.ids.uuid(audited.at));
        let key = draft.key(principal.tenant_id, api_key_id, expires_at, audited.at)?;
        self.check_share(principal, &key).await?;
        let (keys, principal) = (self.clone(), Arc::clone(principal));
        let make = async move { keys.make(&principal, key, idempotency.as_ref(), &audited).await };
        self.context.run_to_end(make).await
    }

    #[tracing::instrument(name = "engine.api_key", level = "debug", skip_all)]
    pub async fn get(&self, principal: &Principal, api_key_id: ApiKeyId) -> Result<ApiKey, EngineError> {
        principal.require(Scope::KeysAdmin)?;
        self.seen(principal, api_key_id).await
    }

    /// Newest first.
    #[tracing::instrument(name = "engine.api_keys", level = "debug", skip_all)]
    pub async fn list(&self, principal: &Principal, page: &PageRequest) -> Result<Page<ApiKey>, EngineError> {
        principal.require(Scope::KeysAdmin)?;
        let (limit, tenant_id) = (page.limit(false)?, principal.tenant_id);
        let identity = Query::of(&[b"api_keys", tenant_id.uuid().as_bytes()]);
        let cursors = &self.context.cursors;
        let mut before = cursors.after(identity, page).await?;
        // Few bound credentials create keys, so keys that they may not see are read and
        // filtered out here. One more item shows whether there is another page.
        let wanted = if principal.is_bound_to_stores() { READ_AT_ONCE } else { limit + 1 };
        let mut seen = Vec::new();
        while seen.len() <= limit as usize {
            let read = self.context.index.keys.list(tenant_id, before, wanted).await?;
            before = read.last().map(|key| key.api_key_id);
            let is_last = read.len() < wanted as usize;
            seen.extend(read.into_iter().filter(|key| sees(principal, key)));
            if is_last {
                break;
            }
        }
        cursors.page(identity, seen, limit, |key| key.api_key_id).await
    }

    /// The names of those of some keys that the credential may see; of at most 200.
    #[tracing::instrument(name = "engine.api_key_names", level = "debug", skip_all)]
    pub async fn names(
        &self,
        principal: &Principal,
        api_key_ids: &[ApiKeyId],
    ) -> Result<Vec<(ApiKeyId, String)>, EngineError> {
        principal.require(Scope::KeysAdmin)?;
        let api_key_ids = &api_key_ids[..api_key_ids.len().min(MAX_NAMES)];
        let found = self.context.index.keys.find_all(principal.tenant_id, api_key_ids).await?;
        let seen = found.into_iter().filter(|key| sees(principal, key));
        Ok(seen.map(|key| (key.api_key_id, key.name)).collect())
    }

    /// Revokes a key of the credential's tenant, possibly the credential's own
    /// key.
    ///
    /// Takes effect on every replica within five seconds. Idempotent.
    #[tracing::instrument(name = "engine.revoke_api_key", level = "debug", skip_all)]
    pub async fn revoke(
        &self,
        principal: &Arc<Principal>,
        api_key_id: ApiKeyId,
    ) -> Result<ApiKey, EngineError> {
        principal.require(Scope::KeysAdmin)?;
        let audited = self.context.audited_by(principal);
        self.seen(principal, api_key_id).await?;
        let (context, tenant_id) = (Arc::clone(&self.context), principal.tenant_id);
        self.context
            .run_to_end(async move { Ok(context.index.keys.revoke(tenant_id, api_key_id, &audited).await?) })
            .await
    }

    /// Checks that a new key gets no more than its creating credential has.
    async fn check_share(&self, principal: &Principal, key: &ApiKey) -> Result<(), EngineError> {
        for scope in &key.scopes {
            principal.require(*scope)?;
        }
        if principal.is_bound_to_stores() && key.store_ids.is_none() {
            return invalid(
                "memory_store_ids",
                "must be given, since this credential is bound to memory stores itself",
            );
        }
        for store_id in key.store_ids.iter().flatten() {
            principal.require_store(*store_id)?;
        }
        for store_id in key.store_ids.iter().flatten() {
            let found = self.context.index.stores.find(principal.tenant_id, *store_id).await?;
            found.ok_or(EngineError::NotFound(ObjectKind::Store))?;
        }
        // Only API keys are checked: a token expires within minutes anyway.
        if let Some(Actor::ApiKey(own)) = principal.actor() {
            let own = self.find(principal.tenant_id, *own).await?;
            if let Some(own_end) = own.expires_at
                && key.expires_at.is_none_or(|expires_at| expires_at > own_end)
            {
                let rule = format!("must not be after that of this credential, {}", own_end.to_rfc3339());
                return invalid("expires_at", rule);
            }
        }
        Ok(())
    }

    async fn make(
        &self,
        principal: &Principal,
        key: ApiKey,
        idempotency: Option<&Idempotency>,
        audited: &AuditedAction,
    ) -> Result<KeyWithSecret, EngineError> {
        let secret = ApiKeySecret::from_random(self.context.ids.secret());
        let limit = principal.limits.api_keys_per_tenant;
        let index = &self.context.index;
        let created = index.keys.create(&key, &secret.sha256(), limit, idempotency, audited).await;
        let created = self.context.counted(created)?.ok_or_else(|| principal.tenant_is_gone())?;
        if created == key.api_key_id {
            return Ok(KeyWithSecret { key, secret: Some(secret) });
        }
        Ok(KeyWithSecret { key: self.find(principal.tenant_id, created).await?, secret: None })
    }

    async fn find(&self, tenant_id: TenantId, api_key_id: ApiKeyId) -> Result<ApiKey, EngineError> {
        let found = self.context.index.keys.find(tenant_id, api_key_id).await?;
        found.ok_or(EngineError::NotFound(ObjectKind::ApiKey))
    }

    /// Finds a key if the credential may see it.
    async fn seen(&self, principal: &Principal, api_key_id: ApiKeyId) -> Result<ApiKey, EngineError> {
        let key = self.find(principal.tenant_id, api_key_id).await?;
        if sees(principal, &key) { Ok(key) } else { Err(EngineError::NotFound(ObjectKind::ApiKey)) }
    }
}

/// Whether a credential may see a key. A credential that is bound to stores
/// sees only keys bound to a subset of its stores.
fn sees(principal: &Principal, key: &ApiKey) -> bool {
    let is_seen = |store_id: &StoreId| principal.require_store(*store_id).is_ok();
    let of_key = key.store_ids.as_ref();
    !principal.is_bound_to_stores() || of_key.is_some_and(|stores| stores.iter().all(is_seen))
}
