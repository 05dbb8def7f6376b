//! Authentication of tokens of trusted issuers and of the server's own tokens.
//!
//! Verified claims are cached as long as look-ups are, so that not every
//! request verifies a signature. The tenant's status and limits are looked up
//! as for an API key.

use std::sync::Arc;

use keepsake_core::{Actor, ApiKeyId, ContentHash, StoreId, Surface, TenantId, Timestamp};
use keepsake_index::{ApiKey, Auditor, Scope, Tenant, TenantName, TenantStatus};
use keepsake_telemetry::Cache as Looked;
use keepsake_tokens::{MAX_TOKEN_BYTES, TokenError, UnverifiedToken};

use crate::look_ups::LookUps;
use crate::shared::Shared;
use crate::{EngineError, Principal};

/// Also the answer while the tenant is being deleted.
const UNKNOWN_TENANT: EngineError = EngineError::Unauthenticated("the token's tenant is unknown");

/// All scopes of a session's token; its issuer may have fewer.
pub(crate) const SESSION_SCOPES: [Scope; 2] = [Scope::MemoryRead, Scope::MemoryWrite];

#[derive(Debug)]
pub(super) struct TokenAuth {
    shared: Arc<Shared>,
    believed: LookUps<[u8; 32], Arc<VerifiedToken>>,
    /// `None`: there is no such tenant.
    tenants: LookUps<TenantName, Option<Arc<Tenant>>>,
    /// The API keys that tokens were issued to; `None`: the key does not exist.
    issuing_keys: LookUps<(TenantId, ApiKeyId), Option<Arc<ApiKey>>>,
}

/// A token whose signature is valid.
#[derive(Debug)]
struct VerifiedToken {
    tenant: TenantName,
    actor: Actor,
    grant: Grant,
    issued_to: Option<ApiKeyId>,
    expires_at: Timestamp,
    /// When the token is refused: later than its end, by the clock difference that is
    /// accepted.
    refused_from: Timestamp,
}

#[derive(Debug, Clone)]
struct Grant {
    scopes: Vec<Scope>,
    /// The only stores; `None`: all stores of the tenant.
    store_ids: Option<Vec<StoreId>>,
}

impl Grant {
    /// The intersection of this grant and the grant of an API key.
    fn within(mut self, key: &ApiKey) -> Self {
        self.scopes.retain(|scope| key.scopes.contains(scope));
        match (&mut self.store_ids, &key.store_ids) {
            (Some(own), Some(of_key)) => own.retain(|store_id| of_key.contains(store_id)),
            (own @ None, Some(of_key)) => *own = Some(of_key.clone()),
            (_, None) => {}
        }
        self
    }
}

impl TokenAuth {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, believed: LookUps::new(), tenants: LookUps::new(), issuing_keys: LookUps::new() }
    }

    pub(super) async fn authenticate(&self, presented: &str) -> Result<Arc<Principal>, EngineError> {
        self.shared.replica.require_heartbeat().await?;
        let now = self.shared.context.now();
        let token = self.verified(presented, now).await?;
        if token.refused_from <= now {
            return Err(TokenError::Expired.into());
        }
        let tenant = self.tenant(&token.tenant, now).await?.ok_or(UNKNOWN_TENANT)?;
        match tenant.status {
            TenantStatus::Active => {}
            TenantStatus::Suspended => return Err(EngineError::TenantSuspended),
            TenantStatus::Deleting => return Err(UNKNOWN_TENANT),
        }
        let mut grant = token.grant.clone();
        if let Some(api_key_id) = token.issued_to {
            let issuing = self.issuing_key(tenant.tenant_id, api_key_id, now).await?;
            grant = grant.within(&issuing);
        }
        let session = match &token.actor {
            // Issuers do not know sessions: only the server's own tokens name
            // them.
            Actor::Session(session_id) => {
                Some(self.shared.attached.of_token(tenant.tenant_id, *session_id, now).await?)
            }
            Actor::ApiKey(_) | Actor::User(_) | Actor::ServiceAccount(_) | Actor::Imported(..) => None,
        };
        if let Some(session) = &session {
            self.shared.activity.used(tenant.tenant_id, session.session_id, now);
        }
        if session.is_some() {
            grant.scopes.retain(|scope| SESSION_SCOPES.contains(scope));
        }
        let may_write = grant.scopes.contains(&Scope::MemoryWrite);
        let session = session.map(|session| session.narrowed(grant.store_ids.as_deref(), may_write));
        Ok(Arc::new(Principal {
            tenant_id: tenant.tenant_id,
            by: Auditor::Credential(token.actor.clone()),
            limits: self.shared.context.limits.with(&tenant.limits),
            scopes: grant.scopes,
            store_ids: grant.store_ids,
            expires_at: Some(token.expires_at),
            session,
            surface: Surface::Api,
            called_in: None,
            tenant_name: tenant.name.as_str().into(),
            key_name: None,
        }))
    }

    /// The API key that a token was issued to, if the key is still valid.
    ///
    /// The key is looked up every few seconds. The token may do at most what its key may
    /// do now, and ends with the key. The token does not contain the stores of its key,
    /// because up to a thousand of them would not fit.
    async fn issuing_key(
        &self,
        tenant_id: TenantId,
        api_key_id: ApiKeyId,
        now: Timestamp,
    ) -> Result<Arc<ApiKey>, EngineError> {
        let look_up = async |_| {
            let found = self.shared.context.index.keys.find(tenant_id, api_key_id).await?;
            Ok(Some(found.map(Arc::new)))
        };
        let found = self.issuing_keys.find(&(tenant_id, api_key_id), now, look_up).await?.flatten();
        let revoked = "the API key that the token was issued to is revoked";
        let expired = "the API key that the token was issued to has expired";
        let issued = found.filter(|issued| issued.revoked_at.is_none());
        let issued = issued.ok_or(EngineError::Unauthenticated(revoked))?;
        if issued.expires_at.is_some_and(|expires_at| expires_at <= now) {
            return Err(EngineError::Unauthenticated(expired));
        }
        Ok(issued)
    }

    async fn verified(&self, presented: &str, now: Timestamp) -> Result<Arc<VerifiedToken>, EngineError> {
        if presented.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::TooLong.into());
        }
        // Keyed by hash, so that no copy of a credential stays in memory.
        let hash = *ContentHash::of(presented.as_bytes()).as_bytes();
        let known = self.believed.known(&hash, now).await;
        self.shared.context.metrics.cache_looked_up(Looked::Token, known.is_some());
        if let Some(known) = known {
            return Ok(known);
        }
        let verify = async |_| {
            let token = UnverifiedToken::parse(presented)?;
            let verified = if token.is_own() {
                self.verify_own(&token, now).await?
            } else {
                self.verify_issued(&token, now).await?
            };
            Ok(Some(Arc::new(verified)))
        };
        let verified = self.believed.find(&hash, now, verify).await?;
        verified.ok_or(EngineError::Internal("a verified token is gone"))
    }

    async fn verify_own(
        &self,
        token: &UnverifiedToken<'_>,
        now: Timestamp,
    ) -> Result<VerifiedToken, EngineError> {
        let keys = self.shared.tokens.keys(Some(token)).await?;
        let (claims, refused_from) = keys.verify(token, now)?;
        Ok(VerifiedToken {
            tenant: TenantName::Id(claims.tenant_id),
            actor: claims.actor,
            grant: Grant { scopes: known_scopes(&claims.scopes), store_ids: claims.store_ids },
            issued_to: claims.issued_to,
            expires_at: claims.expires_at,
            refused_from,
        })
    }

    async fn verify_issued(
        &self,
        token: &UnverifiedToken<'_>,
        now: Timestamp,
    ) -> Result<VerifiedToken, EngineError> {
        let identity = self.shared.issuers.verify(token, now).await?;
        Ok(VerifiedToken {
            tenant: TenantName::parse(&identity.tenant),
            actor: identity.actor,
            grant: Grant { scopes: known_scopes(&identity.scopes), store_ids: None },
            issued_to: None,
            expires_at: identity.expires_at,
            refused_from: identity.refused_from,
        })
    }

    async fn tenant(&self, name: &TenantName, now: Timestamp) -> Result<Option<Arc<Tenant>>, EngineError> {
        let look_up = async |_| {
            let found = self.shared.context.index.credentials.tenant(name).await?;
            Ok(Some(found.map(Arc::new)))
        };
        Ok(self.tenants.find(name, now, look_up).await?.flatten())
    }
}

/// Names of other services' scopes are ignored.
fn known_scopes(names: &[String]) -> Vec<Scope> {
    names.iter().filter_map(|name| name.parse().ok()).collect()
}
