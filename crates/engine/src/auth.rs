//! Who is it: from a presented secret to a principal.

use std::sync::Arc;
use std::time::Duration;

use keepsake_core::api_key::ApiKeySecret;
use keepsake_core::{Actor, Limits, StoreId, TenantId, Timestamp};
use keepsake_index::{Credential, Scope, TenantStatus};

use crate::{Engine, EngineError};

/// How long what was looked up of a credential is believed. Together with the
/// look-up itself it keeps a revocation within five seconds.
const BELIEVED_FOR: Duration = Duration::from_secs(3);
/// Credentials remembered, good and unknown ones together.
const REMEMBERED: u64 = 10_000;

/// Who makes a request, and what it may do.
#[derive(Debug, Clone)]
pub struct Principal {
    /// The tenant, which follows from the credential alone.
    pub tenant_id: TenantId,
    /// Who its changes are attributed to.
    pub actor: Actor,
    /// The tenant's limits.
    pub limits: Limits,
    scopes: Vec<Scope>,
    store_ids: Option<Vec<StoreId>>,
}

impl Principal {
    /// Checks that the credential has a scope.
    ///
    /// # Errors
    /// [`EngineError::PermissionDenied`] when it has not.
    pub fn require(&self, scope: Scope) -> Result<(), EngineError> {
        if self.scopes.contains(&scope) {
            Ok(())
        } else {
            Err(EngineError::PermissionDenied(scope))
        }
    }

    /// Checks that the credential sees a store: one bound to a list of stores
    /// is told of others what it is told of those that never existed.
    ///
    /// # Errors
    /// [`EngineError::StoreNotFound`] when it does not.
    pub fn require_store(&self, store_id: StoreId) -> Result<(), EngineError> {
        match &self.store_ids {
            Some(seen) if !seen.contains(&store_id) => Err(EngineError::StoreNotFound),
            _ => Ok(()),
        }
    }

    /// The only stores that the credential sees, where it is bound to some.
    pub(crate) fn store_ids(&self) -> Option<&[StoreId]> {
        self.store_ids.as_deref()
    }

    /// Whether the credential is bound to a list of stores.
    pub const fn is_bound_to_stores(&self) -> bool {
        self.store_ids.is_some()
    }
}

/// What is remembered of a secret's hash.
#[derive(Debug, Clone)]
struct Remembered {
    looked_up_at: Timestamp,
    expires_at: Option<Timestamp>,
    principal: Result<Arc<Principal>, &'static str>,
}

/// What was looked up of credentials a moment ago.
#[derive(Debug)]
pub(crate) struct Cache(moka::future::Cache<[u8; 32], Remembered>);

impl Cache {
    pub(crate) fn new() -> Self {
        Self(moka::future::Cache::new(REMEMBERED))
    }
}

impl Engine {
    /// Finds out who presents an API key.
    ///
    /// A mistyped key fails its checksum and costs no look-up; a look-up costs
    /// one query and is believed for some seconds.
    ///
    /// # Errors
    /// [`EngineError::Unauthenticated`], [`EngineError::Index`].
    pub async fn authenticate(&self, presented: &str) -> Result<Arc<Principal>, EngineError> {
        let secret = ApiKeySecret::parse(presented)
            .map_err(|_| EngineError::Unauthenticated("the API key is malformed"))?;
        let secret_sha256 = secret.sha256();
        let now = self.now();
        let cache = &self.0.principals.0;
        let is_stale = |known: &Remembered| known.looked_up_at.plus(BELIEVED_FOR) <= now;
        let mut known = cache.get(&secret_sha256).await;
        if known.as_ref().is_some_and(is_stale) {
            cache.invalidate(&secret_sha256).await;
            known = None;
        }
        let known = match known {
            Some(known) => known,
            // Requests that miss at the same time share one look-up.
            None => cache
                .try_get_with(secret_sha256, self.look_up(secret_sha256, now))
                .await
                .map_err(EngineError::Shared)?,
        };
        if known.expires_at.is_some_and(|expires_at| expires_at <= now) {
            return Err(EngineError::Unauthenticated("the API key has expired"));
        }
        known.principal.map_err(EngineError::Unauthenticated)
    }

    async fn look_up(&self, secret_sha256: [u8; 32], now: Timestamp) -> Result<Remembered, EngineError> {
        let found = self.0.index.authenticate(&secret_sha256).await?;
        let expires_at = found.as_ref().and_then(|credential| credential.expires_at);
        Ok(Remembered {
            looked_up_at: now,
            expires_at,
            principal: self.principal_of(found),
        })
    }

    fn principal_of(&self, found: Option<Credential>) -> Result<Arc<Principal>, &'static str> {
        let credential = found.ok_or("the API key is unknown")?;
        if credential.is_revoked {
            return Err("the API key has been revoked");
        }
        match credential.tenant_status {
            TenantStatus::Active => {}
            TenantStatus::Suspended => return Err("the tenant is suspended"),
            TenantStatus::Deleting => return Err("the API key is unknown"),
        }
        Ok(Arc::new(Principal {
            tenant_id: credential.tenant_id,
            actor: Actor::ApiKey(credential.api_key_id),
            limits: self.0.limits.with(&credential.limits),
            scopes: credential.scopes,
            store_ids: credential.store_ids,
        }))
    }
}
