//! API keys: created by the operator for a tenant, or by a tenant for itself.
//!
//! A credential with the scope `keys:admin` creates keys with at most its own
//! scopes, stores and lifetime. A credential that is bound to stores sees only
//! keys that are bound to a subset of its stores.

use std::sync::Arc;

use keepsake_core::api_key::ApiKeySecret;
use keepsake_core::{Actor, ApiKeyId, StoreId, TenantId, Timestamp};
use keepsake_index::{ApiKey, Audited, Idempotency, IssuedKey, KeyCreation, Scope};

use crate::context::Context;
use crate::cursor::{Query, parse_id};
use crate::operator::check_text;
use crate::stores::invalid;
use crate::{EngineError, Page, PageRequest, Principal};

const MAX_STORES: usize = 1000;
/// Keys read per query when some of them are filtered out.
const READ_AT_ONCE: u32 = 100;

#[derive(Debug, Clone)]
pub struct NewKey {
    pub tenant_id: TenantId,
    pub name: String,
    pub scopes: Vec<Scope>,
    /// `None`: all stores of the tenant.
    pub store_ids: Option<Vec<StoreId>>,
    pub expires_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyDraft {
    /// 1 to 255 characters, none of them a control character.
    pub name: String,
    /// At least one.
    pub scopes: Vec<Scope>,
    /// 1 to 1,000 stores; `None`: all stores of the tenant.
    pub store_ids: Option<Vec<StoreId>>,
    /// Must be in the future.
    pub expires_at: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub struct MadeKey {
    pub issued: IssuedKey,
    /// `None` for a repeated call, because a secret is shown only once.
    pub secret: Option<ApiKeySecret>,
}

impl KeyDraft {
    pub(crate) fn check(&self, now: Timestamp) -> Result<(), EngineError> {
        check_text("name", &self.name)?;
        if self.scopes.is_empty() {
            return invalid("scopes", "must have at least one scope");
        }
        if let Some(store_ids) = &self.store_ids
            && !(1..=MAX_STORES).contains(&store_ids.len())
        {
            return invalid("memory_store_ids", format!("must be 1 to {MAX_STORES} ids"));
        }
        if self.expires_at.is_some_and(|expires_at| expires_at <= now) {
            return invalid("expires_at", "must be in the future");
        }
        Ok(())
    }

    pub(crate) fn of_tenant(mut self, tenant_id: TenantId) -> NewKey {
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
        NewKey { tenant_id, name: self.name, scopes, store_ids: self.store_ids, expires_at: self.expires_at }
    }
}

#[derive(Debug, Clone)]
pub struct ApiKeys {
    context: Arc<Context>,
}

impl ApiKeys {
    pub(crate) const fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// The key gets at most the scopes, stores and lifetime of the credential. A call
    /// repeated under its idempotency key returns the key without its secret.
    #[tracing::instrument(name = "engine.create_api_key", level = "debug", skip_all)]
    pub async fn create(
        &self,
        principal: &Arc<Principal>,
        draft: KeyDraft,
        idempotency: Option<Idempotency>,
    ) -> Result<MadeKey, EngineError> {
        principal.require(Scope::KeysAdmin)?;
        let audited = self.context.audited_by(principal);
        draft.check(audited.at)?;
        self.check_share(principal, &draft).await?;
        let new = draft.of_tenant(principal.tenant_id);
        let (keys, limit) = (self.clone(), principal.limits.api_keys_per_tenant);
        self.context
            .run_to_end(async move {
                let made = keys.make(new, limit, idempotency.as_ref(), &audited).await;
                // The tenant was deleted after the credential was checked.
                made.map_err(|error| match error {
                    EngineError::TenantNotFound => EngineError::Unauthenticated("the API key is unknown"),
                    other => other,
                })
            })
            .await
    }

    #[tracing::instrument(name = "engine.api_key", level = "debug", skip_all)]
    pub async fn get(&self, principal: &Principal, api_key_id: ApiKeyId) -> Result<IssuedKey, EngineError> {
        principal.require(Scope::KeysAdmin)?;
        self.seen(principal, api_key_id).await
    }

    /// Newest first.
    #[tracing::instrument(name = "engine.api_keys", level = "debug", skip_all)]
    pub async fn list(
        &self,
        principal: &Principal,
        page: &PageRequest,
    ) -> Result<Page<IssuedKey>, EngineError> {
        principal.require(Scope::KeysAdmin)?;
        if !principal.is_bound_to_stores() {
            return self.of_tenant(principal.tenant_id, page).await;
        }
        // Few bound credentials create keys, so keys that they may not see are
        // read and filtered out here.
        let (limit, tenant_id) = (page.limit(false)?, principal.tenant_id);
        let identity = keys_of(tenant_id);
        let cursors = &self.context.cursors;
        let before = cursors.after(identity, page, parse_id).await?;
        let mut before = before.map(ApiKeyId::from_uuid);
        let mut seen = Vec::new();
        while seen.len() <= limit as usize {
            let read = self.context.index.keys.list(tenant_id, before, READ_AT_ONCE).await?;
            before = read.last().map(|issued| issued.key.api_key_id);
            let is_last = read.len() < READ_AT_ONCE as usize;
            seen.extend(read.into_iter().filter(|issued| sees(principal, issued)));
            if is_last {
                break;
            }
        }
        cursors.page(identity, seen, limit, key_position).await
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
    ) -> Result<IssuedKey, EngineError> {
        principal.require(Scope::KeysAdmin)?;
        let audited = self.context.audited_by(principal);
        self.seen(principal, api_key_id).await?;
        let (keys, tenant_id) = (self.clone(), principal.tenant_id);
        self.context.run_to_end(async move { keys.revoke_now(tenant_id, api_key_id, &audited).await }).await
    }

    pub(crate) async fn revoke_now(
        &self,
        tenant_id: TenantId,
        api_key_id: ApiKeyId,
        audited: &Audited,
    ) -> Result<IssuedKey, EngineError> {
        let keys = &self.context.index.keys;
        let revoked = keys.revoke(tenant_id, api_key_id, audited).await?;
        revoked.ok_or(EngineError::KeyNotFound)
    }

    /// Checks that a new key gets no more than its creating credential has.
    async fn check_share(&self, principal: &Principal, draft: &KeyDraft) -> Result<(), EngineError> {
        for scope in &draft.scopes {
            principal.require(*scope)?;
        }
        if principal.is_bound_to_stores() && draft.store_ids.is_none() {
            return invalid(
                "memory_store_ids",
                "must be given, since this credential is bound to memory stores itself",
            );
        }
        for store_id in draft.store_ids.iter().flatten() {
            principal.require_store(*store_id)?;
        }
        self.check_stores(principal.tenant_id, draft.store_ids.as_deref()).await?;
        // Only API keys are checked: a token expires within minutes anyway.
        if let Actor::ApiKey(own) = principal.actor {
            let own = self.find(principal.tenant_id, own).await?;
            if let Some(own_end) = own.key.expires_at
                && draft.expires_at.is_none_or(|expires_at| expires_at > own_end)
            {
                let rule = format!("must not be after that of this credential, {}", own_end.to_rfc3339());
                return invalid("expires_at", rule);
            }
        }
        Ok(())
    }

    pub(crate) async fn check_stores(
        &self,
        tenant_id: TenantId,
        store_ids: Option<&[StoreId]>,
    ) -> Result<(), EngineError> {
        for store_id in store_ids.into_iter().flatten() {
            let found = self.context.index.stores.find(tenant_id, *store_id).await?;
            found.ok_or(EngineError::StoreNotFound)?;
        }
        Ok(())
    }

    pub(crate) async fn make(
        &self,
        new: NewKey,
        keys_limit: u64,
        idempotency: Option<&Idempotency>,
        audited: &Audited,
    ) -> Result<MadeKey, EngineError> {
        let secret = ApiKeySecret::from_random(self.context.ids.secret());
        let key = ApiKey {
            api_key_id: ApiKeyId::from_uuid(self.context.ids.uuid(audited.at)),
            tenant_id: new.tenant_id,
            name: new.name,
            scopes: new.scopes,
            store_ids: new.store_ids,
            created_at: audited.at,
            expires_at: new.expires_at,
        };
        let index = &self.context.index;
        match index.keys.create(&key, &secret.sha256(), keys_limit, idempotency, audited).await? {
            KeyCreation::Created => Ok(MadeKey {
                issued: IssuedKey { key, last_used_at: None, revoked_at: None },
                secret: Some(secret),
            }),
            KeyCreation::Replayed { api_key_id } => {
                Ok(MadeKey { issued: self.find(new.tenant_id, api_key_id).await?, secret: None })
            }
            KeyCreation::KeyReused => Err(EngineError::KeyReused),
            KeyCreation::OverQuota(refusal) => Err(self.context.over_quota(refusal)),
            KeyCreation::MakerRevoked => {
                Err(EngineError::Unauthenticated("the API key has been revoked, or its time is over"))
            }
            KeyCreation::NoTenant => Err(EngineError::TenantNotFound),
        }
    }

    pub(crate) async fn find(
        &self,
        tenant_id: TenantId,
        api_key_id: ApiKeyId,
    ) -> Result<IssuedKey, EngineError> {
        let found = self.context.index.keys.find(tenant_id, api_key_id).await?;
        found.ok_or(EngineError::KeyNotFound)
    }

    /// Finds a key if the credential may see it.
    async fn seen(&self, principal: &Principal, api_key_id: ApiKeyId) -> Result<IssuedKey, EngineError> {
        let issued = self.find(principal.tenant_id, api_key_id).await?;
        if sees(principal, &issued) { Ok(issued) } else { Err(EngineError::KeyNotFound) }
    }

    pub(crate) async fn of_tenant(
        &self,
        tenant_id: TenantId,
        request: &PageRequest,
    ) -> Result<Page<IssuedKey>, EngineError> {
        let limit = request.limit(false)?;
        let identity = keys_of(tenant_id);
        let cursors = &self.context.cursors;
        let before = cursors.after(identity, request, parse_id).await?;
        let before = before.map(ApiKeyId::from_uuid);
        // One more item shows whether there is another page.
        let items = self.context.index.keys.list(tenant_id, before, limit + 1).await?;
        cursors.page(identity, items, limit, key_position).await
    }
}

fn keys_of(tenant_id: TenantId) -> Query {
    Query::of(&[b"api_keys", tenant_id.uuid().as_bytes()])
}

fn key_position(issued: &IssuedKey) -> Vec<u8> {
    issued.key.api_key_id.uuid().as_bytes().to_vec()
}

/// Whether a credential may see a key. A credential that is bound to stores
/// sees only keys bound to a subset of its stores.
fn sees(principal: &Principal, issued: &IssuedKey) -> bool {
    let is_seen = |store_id: &StoreId| principal.require_store(*store_id).is_ok();
    let of_key = issued.key.store_ids.as_ref();
    !principal.is_bound_to_stores() || of_key.is_some_and(|stores| stores.iter().all(is_seen))
}
