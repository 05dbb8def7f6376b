//! API keys: created by the operator for a tenant, or by a tenant for itself.
//!
//! A credential with the scope `keys:admin` creates keys with at most its own
//! scopes, stores and lifetime. A credential that is bound to stores sees only
//! keys that are bound to a subset of its stores.

use std::sync::Arc;

use keepsake_core::api_key::ApiKeySecret;
use keepsake_core::{Actor, ApiKeyId, StoreId, TenantId, Timestamp};
use keepsake_index::{ApiKey, Audited, Idempotency, IssuedKey, KeyCreation, Scope};

use super::{Operator, check_text};
use crate::cursor::Query;
use crate::{Engine, EngineError, Page, PageRequest, Principal};

/// Maximum number of stores that a key may be bound to.
const MAX_STORES: usize = 1000;
/// Keys read per query when some of them are filtered out.
const READ_AT_ONCE: u32 = 100;

/// An API key to create.
#[derive(Debug, Clone)]
pub struct NewKey {
    /// The tenant of the key.
    pub tenant_id: TenantId,
    /// A display name.
    pub name: String,
    /// The granted scopes.
    pub scopes: Vec<Scope>,
    /// The only stores it may see; `None`: all stores of the tenant.
    pub store_ids: Option<Vec<StoreId>>,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
}

/// An API key as the caller requests it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyDraft {
    /// 1 to 255 characters, none of them a control character.
    pub name: String,
    /// The granted scopes; at least one.
    pub scopes: Vec<Scope>,
    /// The only stores it may see, 1 to 1,000; `None`: all stores of the
    /// tenant.
    pub store_ids: Option<Vec<StoreId>>,
    /// When it expires; must be in the future.
    pub expires_at: Option<Timestamp>,
}

/// The result of a call that creates a key.
#[derive(Debug, Clone)]
pub struct MadeKey {
    /// The key.
    pub issued: IssuedKey,
    /// Its secret; `None` for a repeated call, because a secret is shown only
    /// once.
    pub secret: Option<ApiKeySecret>,
}

fn invalid<T>(field: &'static str, rule: impl Into<String>) -> Result<T, EngineError> {
    Err(EngineError::Invalid {
        field,
        rule: rule.into(),
    })
}

impl KeyDraft {
    fn check(&self, now: Timestamp) -> Result<(), EngineError> {
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

    fn of_tenant(mut self, tenant_id: TenantId) -> NewKey {
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
        NewKey {
            tenant_id,
            name: self.name,
            scopes,
            store_ids: self.store_ids,
            expires_at: self.expires_at,
        }
    }
}

impl Operator<'_> {
    /// Creates an API key; its secret exists only in the answer.
    ///
    /// # Errors
    /// [`EngineError::Invalid`], [`EngineError::TenantNotFound`],
    /// [`EngineError::Index`].
    pub async fn create_key(&self, new: NewKey) -> Result<(ApiKey, ApiKeySecret), EngineError> {
        check_text("name", &new.name)?;
        let limit = self.keys_limit(new.tenant_id).await?;
        let made = self
            .change(|engine, audited| async move { engine.make_key(new, limit, None, &audited).await })
            .await?;
        let secret = made
            .secret
            .ok_or(EngineError::Internal("a key without its secret"))?;
        Ok((made.issued.key, secret))
    }

    /// Creates an API key for a tenant from a draft.
    ///
    /// # Errors
    /// [`EngineError::Invalid`], [`EngineError::TenantNotFound`],
    /// [`EngineError::StoreNotFound`], [`EngineError::Index`].
    #[tracing::instrument(name = "engine.issue_key", level = "debug", skip_all)]
    pub async fn issue_key(&self, tenant_id: TenantId, draft: KeyDraft) -> Result<MadeKey, EngineError> {
        draft.check(self.engine.now())?;
        let limit = self.keys_limit(tenant_id).await?;
        self.engine
            .check_stores(tenant_id, draft.store_ids.as_deref())
            .await?;
        let new = draft.of_tenant(tenant_id);
        self.change(|engine, audited| async move { engine.make_key(new, limit, None, &audited).await })
            .await
    }

    /// Maximum number of API keys of a tenant.
    async fn keys_limit(&self, tenant_id: TenantId) -> Result<u64, EngineError> {
        let tenant = self.tenant(tenant_id).await?;
        Ok(self.engine.0.limits.with(&tenant.limits).api_keys_per_tenant)
    }

    /// Finds a key of a tenant; also a revoked one.
    ///
    /// # Errors
    /// [`EngineError::KeyNotFound`], [`EngineError::Index`].
    #[tracing::instrument(name = "engine.key", level = "debug", skip_all)]
    pub async fn key(&self, tenant_id: TenantId, api_key_id: ApiKeyId) -> Result<IssuedKey, EngineError> {
        self.engine.find_key(tenant_id, api_key_id).await
    }

    /// Lists the keys of a tenant, newest first.
    ///
    /// # Errors
    /// [`EngineError::TenantNotFound`], [`EngineError::Invalid`],
    /// [`EngineError::Index`].
    #[tracing::instrument(name = "engine.keys", level = "debug", skip_all)]
    pub async fn keys(
        &self,
        tenant_id: TenantId,
        page: &PageRequest,
    ) -> Result<Page<IssuedKey>, EngineError> {
        self.tenant(tenant_id).await?;
        self.engine.list_keys(tenant_id, page).await
    }

    /// Revokes a key of a tenant, within five seconds on every replica.
    /// Idempotent.
    ///
    /// # Errors
    /// [`EngineError::KeyNotFound`], [`EngineError::Index`].
    #[tracing::instrument(name = "engine.revoke_key", level = "debug", skip_all)]
    pub async fn revoke_key(
        &self,
        tenant_id: TenantId,
        api_key_id: ApiKeyId,
    ) -> Result<IssuedKey, EngineError> {
        self.change(|engine, audited| async move {
            let index = &engine.0.index;
            let revoked = index.keys.revoke(tenant_id, api_key_id, &audited).await?;
            revoked.ok_or(EngineError::KeyNotFound)
        })
        .await
    }
}

impl Engine {
    /// Creates an API key for the credential's tenant.
    ///
    /// The key gets at most the scopes, stores and lifetime of the credential.
    /// A call repeated under its idempotency key returns the key without its
    /// secret.
    ///
    /// # Errors
    /// [`EngineError::PermissionDenied`], [`EngineError::Invalid`],
    /// [`EngineError::StoreNotFound`], [`EngineError::KeyReused`],
    /// [`EngineError::Index`].
    #[tracing::instrument(name = "engine.create_api_key", level = "debug", skip_all)]
    pub async fn create_api_key(
        &self,
        principal: &Arc<Principal>,
        draft: KeyDraft,
        idempotency: Option<Idempotency>,
    ) -> Result<MadeKey, EngineError> {
        principal.require(Scope::KeysAdmin)?;
        let audited = self.audited_by(principal);
        draft.check(audited.at)?;
        self.check_share(principal, &draft).await?;
        let new = draft.of_tenant(principal.tenant_id);
        let (engine, limit) = (self.clone(), principal.limits.api_keys_per_tenant);
        self.run_to_end(async move {
            let made = engine.make_key(new, limit, idempotency.as_ref(), &audited).await;
            // The tenant was deleted after the credential was checked.
            made.map_err(|error| match error {
                EngineError::TenantNotFound => EngineError::Unauthenticated("the API key is unknown"),
                other => other,
            })
        })
        .await
    }

    /// Finds a key of the credential's tenant.
    ///
    /// # Errors
    /// [`EngineError::PermissionDenied`], [`EngineError::KeyNotFound`],
    /// [`EngineError::Index`].
    #[tracing::instrument(name = "engine.api_key", level = "debug", skip_all)]
    pub async fn api_key(
        &self,
        principal: &Principal,
        api_key_id: ApiKeyId,
    ) -> Result<IssuedKey, EngineError> {
        principal.require(Scope::KeysAdmin)?;
        self.seen_key(principal, api_key_id).await
    }

    /// Lists the keys of the credential's tenant, newest first.
    ///
    /// # Errors
    /// [`EngineError::PermissionDenied`], [`EngineError::Invalid`],
    /// [`EngineError::Index`].
    #[tracing::instrument(name = "engine.api_keys", level = "debug", skip_all)]
    pub async fn api_keys(
        &self,
        principal: &Principal,
        page: &PageRequest,
    ) -> Result<Page<IssuedKey>, EngineError> {
        principal.require(Scope::KeysAdmin)?;
        if !principal.is_bound_to_stores() {
            return self.list_keys(principal.tenant_id, page).await;
        }
        // Few bound credentials create keys, so keys that they may not see are
        // read and filtered out here.
        let (limit, tenant_id) = (page.limit(false)?, principal.tenant_id);
        let identity = keys_of(tenant_id);
        let mut before = self.key_before(identity, page).await?;
        let mut seen = Vec::new();
        while seen.len() <= limit as usize {
            let read = self.0.index.keys.list(tenant_id, before, READ_AT_ONCE).await?;
            before = read.last().map(|issued| issued.key.api_key_id);
            let is_last = read.len() < READ_AT_ONCE as usize;
            seen.extend(read.into_iter().filter(|issued| sees(principal, issued)));
            if is_last {
                break;
            }
        }
        self.page_of(identity, seen, limit, key_position).await
    }

    /// Revokes a key of the credential's tenant, possibly the credential's own
    /// key.
    ///
    /// Takes effect on every replica within five seconds. Idempotent.
    ///
    /// # Errors
    /// [`EngineError::PermissionDenied`], [`EngineError::KeyNotFound`],
    /// [`EngineError::Index`].
    #[tracing::instrument(name = "engine.revoke_api_key", level = "debug", skip_all)]
    pub async fn revoke_api_key(
        &self,
        principal: &Arc<Principal>,
        api_key_id: ApiKeyId,
    ) -> Result<IssuedKey, EngineError> {
        principal.require(Scope::KeysAdmin)?;
        let audited = self.audited_by(principal);
        self.seen_key(principal, api_key_id).await?;
        let (engine, tenant_id) = (self.clone(), principal.tenant_id);
        self.run_to_end(async move {
            let index = &engine.0.index;
            let revoked = index.keys.revoke(tenant_id, api_key_id, &audited).await?;
            revoked.ok_or(EngineError::KeyNotFound)
        })
        .await
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
        self.check_stores(principal.tenant_id, draft.store_ids.as_deref())
            .await?;
        // Only API keys are checked: a token expires within minutes anyway.
        if let Actor::ApiKey(own) = principal.actor {
            let own = self.find_key(principal.tenant_id, own).await?;
            if let Some(own_end) = own.key.expires_at
                && draft.expires_at.is_none_or(|expires_at| expires_at > own_end)
            {
                let rule = format!(
                    "must not be after that of this credential, {}",
                    own_end.to_rfc3339()
                );
                return invalid("expires_at", rule);
            }
        }
        Ok(())
    }

    async fn check_stores(
        &self,
        tenant_id: TenantId,
        store_ids: Option<&[StoreId]>,
    ) -> Result<(), EngineError> {
        for store_id in store_ids.into_iter().flatten() {
            let found = self.0.index.stores.find(tenant_id, *store_id).await?;
            found.ok_or(EngineError::StoreNotFound)?;
        }
        Ok(())
    }

    async fn make_key(
        &self,
        new: NewKey,
        keys_limit: u64,
        idempotency: Option<&Idempotency>,
        audited: &Audited,
    ) -> Result<MadeKey, EngineError> {
        let secret = ApiKeySecret::from_random(self.0.ids.secret());
        let key = ApiKey {
            api_key_id: ApiKeyId::from_uuid(self.0.ids.uuid(audited.at)),
            tenant_id: new.tenant_id,
            name: new.name,
            scopes: new.scopes,
            store_ids: new.store_ids,
            created_at: audited.at,
            expires_at: new.expires_at,
        };
        let index = &self.0.index;
        match index
            .keys
            .create(&key, &secret.sha256(), keys_limit, idempotency, audited)
            .await?
        {
            KeyCreation::Created => Ok(MadeKey {
                issued: IssuedKey {
                    key,
                    last_used_at: None,
                    revoked_at: None,
                },
                secret: Some(secret),
            }),
            KeyCreation::Replayed { api_key_id } => Ok(MadeKey {
                issued: self.find_key(new.tenant_id, api_key_id).await?,
                secret: None,
            }),
            KeyCreation::KeyReused => Err(EngineError::KeyReused),
            KeyCreation::OverQuota(refusal) => Err(self.over_quota(refusal)),
            KeyCreation::MakerRevoked => Err(EngineError::Unauthenticated(
                "the API key has been revoked, or its time is over",
            )),
            KeyCreation::NoTenant => Err(EngineError::TenantNotFound),
        }
    }

    async fn find_key(&self, tenant_id: TenantId, api_key_id: ApiKeyId) -> Result<IssuedKey, EngineError> {
        let found = self.0.index.keys.find(tenant_id, api_key_id).await?;
        found.ok_or(EngineError::KeyNotFound)
    }

    /// Finds a key if the credential may see it.
    async fn seen_key(&self, principal: &Principal, api_key_id: ApiKeyId) -> Result<IssuedKey, EngineError> {
        let issued = self.find_key(principal.tenant_id, api_key_id).await?;
        if sees(principal, &issued) {
            Ok(issued)
        } else {
            Err(EngineError::KeyNotFound)
        }
    }

    async fn key_before(&self, identity: Query, page: &PageRequest) -> Result<Option<ApiKeyId>, EngineError> {
        Ok(self.after_id(identity, page).await?.map(ApiKeyId::from_uuid))
    }

    async fn list_keys(
        &self,
        tenant_id: TenantId,
        request: &PageRequest,
    ) -> Result<Page<IssuedKey>, EngineError> {
        let limit = request.limit(false)?;
        let identity = keys_of(tenant_id);
        let before = self.key_before(identity, request).await?;
        // One more item shows whether there is another page.
        let items = self.0.index.keys.list(tenant_id, before, limit + 1).await?;
        self.page_of(identity, items, limit, key_position).await
    }
}

fn keys_of(tenant_id: TenantId) -> Query {
    Query::of(&[b"api_keys", tenant_id.uuid().as_bytes()])
}

/// The position of a key in a listing, as a cursor contains it.
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
