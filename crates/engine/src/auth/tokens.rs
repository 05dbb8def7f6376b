//! Authentication of tokens of trusted issuers and of the server's own tokens.
//!
//! Verified claims are cached as long as look-ups are, so that not every
//! request verifies a signature. The tenant's status and limits are looked up
//! as for an API key.

use std::sync::Arc;

use keepsake_core::{Actor, ApiKeyId, ContentHash, StoreId, TenantId, Timestamp};
use keepsake_index::{ApiKey, IssuedKey, Scope, TenantName, TenantStanding, TenantStatus};
use keepsake_telemetry::Cache as Looked;
use keepsake_tokens::{Issuers, MAX_TOKEN_BYTES, TokenError, Untrusted};
use moka::future::Cache;
use moka::ops::compute::{CompResult, Op};

use super::sessions::AttachedStores;
use super::{Principal, REMEMBERED, SUSPENDED, is_believed};
use crate::context::Context;
use crate::sessions::Activity;
use crate::{EngineError, Replica, Tokens};

/// Also the answer while the tenant is being deleted.
const UNKNOWN_TENANT: EngineError = EngineError::Unauthenticated("the token's tenant is unknown");

/// All scopes of a session's token; its issuer may have fewer.
pub(crate) const SESSION_SCOPES: [Scope; 2] = [Scope::MemoryRead, Scope::MemoryWrite];

#[derive(Debug)]
pub(super) struct TokenAuth {
    context: Arc<Context>,
    replica: Replica,
    own: Tokens,
    attached: Arc<AttachedStores>,
    activity: Arc<Activity>,
    issuers: Arc<Issuers>,
    believed: Cache<[u8; 32], Verified>,
    tenants: Cache<TenantName, Standing>,
    issuing_keys: Cache<(TenantId, ApiKeyId), IssuingKey>,
}

/// A cached look-up of the API key that a token was issued to.
#[derive(Debug, Clone)]
struct IssuingKey {
    looked_up_at: Timestamp,
    /// `None`: the key does not exist.
    found: Option<Arc<IssuedKey>>,
}

/// A token whose signature is valid.
#[derive(Debug, Clone)]
struct Verified {
    at: Timestamp,
    refused_from: Timestamp,
    says: Arc<Says>,
}

#[derive(Debug)]
struct Says {
    tenant: TenantName,
    actor: Actor,
    grant: Grant,
    issued_to: Option<ApiKeyId>,
    expires_at: Timestamp,
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

/// The cached look-up of a tenant.
#[derive(Debug, Clone)]
struct Standing {
    looked_up_at: Timestamp,
    found: Option<Arc<TenantStanding>>,
}

impl TokenAuth {
    pub(super) fn new(
        context: Arc<Context>,
        replica: Replica,
        own: Tokens,
        attached: Arc<AttachedStores>,
        activity: Arc<Activity>,
        issuers: Arc<Issuers>,
    ) -> Self {
        Self {
            context,
            replica,
            own,
            attached,
            activity,
            issuers,
            believed: Cache::new(REMEMBERED),
            tenants: Cache::new(REMEMBERED),
            issuing_keys: Cache::new(REMEMBERED),
        }
    }

    pub(super) async fn authenticate(&self, presented: &str) -> Result<Arc<Principal>, EngineError> {
        self.replica.require_heartbeat().await?;
        let now = self.context.now();
        let verified = self.verified(presented, now).await?;
        if verified.refused_from <= now {
            return Err(TokenError::Expired.into());
        }
        let says = &verified.says;
        let standing = self.standing(&says.tenant, now).await?;
        let standing = standing.ok_or(UNKNOWN_TENANT)?;
        match standing.status {
            TenantStatus::Active => {}
            TenantStatus::Suspended => return Err(EngineError::Unauthenticated(SUSPENDED)),
            TenantStatus::Deleting => return Err(UNKNOWN_TENANT),
        }
        let mut grant = says.grant.clone();
        if let Some(api_key_id) = says.issued_to {
            let issuing = self.issuing_key(standing.tenant_id, api_key_id, now).await?;
            grant = grant.within(&issuing.key);
        }
        let session = match &says.actor {
            // Issuers do not know sessions: only the server's own tokens name
            // them.
            Actor::Session(session_id) => {
                Some(self.attached.of_token(standing.tenant_id, *session_id, now).await?)
            }
            Actor::ApiKey(_) | Actor::User(_) | Actor::ServiceAccount(_) | Actor::Imported(..) => None,
        };
        if let Some(session) = &session {
            self.activity.used(standing.tenant_id, session.session_id, now);
        }
        if session.is_some() {
            grant.scopes.retain(|scope| SESSION_SCOPES.contains(scope));
        }
        let may_write = grant.scopes.contains(&Scope::MemoryWrite);
        let session = session.map(|session| session.narrowed(grant.store_ids.as_deref(), may_write));
        Ok(Arc::new(Principal {
            tenant_id: standing.tenant_id,
            actor: says.actor.clone(),
            limits: self.context.limits.with(&standing.limits),
            scopes: grant.scopes,
            store_ids: grant.store_ids,
            expires_at: Some(says.expires_at),
            session,
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
    ) -> Result<Arc<IssuedKey>, EngineError> {
        let issuing_keys = &self.issuing_keys;
        let name = (tenant_id, api_key_id);
        let is_fresh = |key: &IssuingKey| is_believed(key.looked_up_at, now);
        let known = issuing_keys.get(&name).await.filter(is_fresh);
        let found = if let Some(known) = known {
            known.found
        } else {
            let found = self.context.index.keys.find(tenant_id, api_key_id).await?.map(Arc::new);
            let key = IssuingKey { looked_up_at: now, found: found.clone() };
            issuing_keys.insert(name, key).await;
            found
        };
        let revoked = "the API key that the token was issued to is revoked";
        let expired = "the API key that the token was issued to has expired";
        let issued = found.filter(|issued| issued.revoked_at.is_none());
        let issued = issued.ok_or(EngineError::Unauthenticated(revoked))?;
        if issued.key.expires_at.is_some_and(|expires_at| expires_at <= now) {
            return Err(EngineError::Unauthenticated(expired));
        }
        Ok(issued)
    }

    async fn verified(&self, presented: &str, now: Timestamp) -> Result<Verified, EngineError> {
        if presented.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::TooLong.into());
        }
        // Keyed by hash, so that no copy of a credential stays in memory.
        let hash = *ContentHash::of(presented.as_bytes()).as_bytes();
        let known = self.believed.get(&hash).await;
        let known = known.filter(|known| is_believed(known.at, now));
        self.context.metrics.cache_looked_up(Looked::Token, known.is_some());
        if let Some(known) = known {
            return Ok(known);
        }
        let token = Untrusted::parse(presented)?;
        let (says, refused_from) = if token.is_own() {
            self.verify_own(&token, now).await?
        } else {
            self.verify_issued(&token, now).await?
        };
        let verified = Verified { at: now, refused_from, says: Arc::new(says) };
        self.believed.insert(hash, verified.clone()).await;
        Ok(verified)
    }

    async fn verify_own(
        &self,
        token: &Untrusted<'_>,
        now: Timestamp,
    ) -> Result<(Says, Timestamp), EngineError> {
        let keys = self.own.keys(Some(token)).await?;
        let (claims, refused_from) = keys.verify(token, now)?;
        let says = Says {
            tenant: TenantName::Id(claims.tenant_id),
            actor: claims.actor,
            grant: Grant { scopes: known_scopes(&claims.scopes), store_ids: claims.store_ids },
            issued_to: claims.issued_to,
            expires_at: claims.expires_at,
        };
        Ok((says, refused_from))
    }

    async fn verify_issued(
        &self,
        token: &Untrusted<'_>,
        now: Timestamp,
    ) -> Result<(Says, Timestamp), EngineError> {
        let identity = self.issuers.verify(token, now).await?;
        let says = Says {
            tenant: TenantName::parse(&identity.tenant),
            actor: identity.actor,
            grant: Grant { scopes: known_scopes(&identity.scopes), store_ids: None },
            issued_to: None,
            expires_at: identity.expires_at,
        };
        Ok((says, identity.refused_from))
    }

    async fn standing(
        &self,
        tenant: &TenantName,
        now: Timestamp,
    ) -> Result<Option<Arc<TenantStanding>>, EngineError> {
        let tenants = &self.tenants;
        let is_fresh = |standing: &Standing| is_believed(standing.looked_up_at, now);
        if let Some(standing) = tenants.get(tenant).await.filter(is_fresh) {
            return Ok(standing.found);
        }
        let computed = tenants
            .entry_by_ref(tenant)
            .and_try_compute_with(async |entry| {
                if entry.is_some_and(|entry| is_fresh(entry.value())) {
                    return Ok(Op::Nop);
                }
                let found = self.context.index.credentials.tenant_standing(tenant).await?;
                Ok::<_, EngineError>(Op::Put(Standing { looked_up_at: now, found: found.map(Arc::new) }))
            })
            .await?;
        Ok(match computed {
            CompResult::Inserted(entry) | CompResult::ReplacedWith(entry) | CompResult::Unchanged(entry) => {
                entry.into_value().found
            }
            CompResult::Removed(_) | CompResult::StillNone(_) => None,
        })
    }
}

/// Names of other services' scopes are ignored.
fn known_scopes(names: &[String]) -> Vec<Scope> {
    names.iter().filter_map(|name| name.parse().ok()).collect()
}
