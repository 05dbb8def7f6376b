//! Authentication: turns a presented secret into a principal.

mod keys;
pub(crate) mod sessions;
pub(crate) mod tokens;

use std::sync::Arc;
use std::time::Duration;

use keepsake_core::{Actor, Limits, SessionId, StoreId, TenantId, Timestamp};
use keepsake_index::Scope;
use keepsake_tokens::Issuers;

use crate::context::Context;
use crate::key_use::KeyUses;
use crate::sessions::Activity;
use crate::{EngineError, Mounts, Replica, Tokens};

use keys::KeyAuth;
use sessions::{Attached, AttachedStores};
use tokens::TokenAuth;

/// Lifetime of cached credential look-ups. It is short enough that a revocation
/// takes effect within five seconds, including the time of the look-up.
const BELIEVED_FOR: Duration = Duration::from_secs(3);
/// Maximum number of cached credentials of each kind.
const REMEMBERED: u64 = 10_000;
const SUSPENDED: &str = "the tenant is suspended";

#[derive(Debug, Clone)]
pub struct Principal {
    /// Always derived from the credential.
    pub tenant_id: TenantId,
    /// Changes are attributed to this actor.
    pub actor: Actor,
    pub limits: Limits,
    scopes: Vec<Scope>,
    /// The only stores granted to the credential; `None`: all stores of the
    /// tenant.
    store_ids: Option<Vec<StoreId>>,
    /// When the credential expires. Tokens issued to it must not live longer.
    pub(crate) expires_at: Option<Timestamp>,
    /// The session whose token the credential is, with its attached stores.
    session: Option<Arc<Attached>>,
}

impl Principal {
    pub fn require(&self, scope: Scope) -> Result<(), EngineError> {
        if self.scopes.contains(&scope) { Ok(()) } else { Err(EngineError::PermissionDenied(scope)) }
    }

    pub(crate) fn may_read(&self) -> bool {
        self.require(Scope::MemoryRead).is_ok()
    }

    /// A change of a session also shows the session, so both scopes are needed.
    pub(crate) fn require_session_change(&self) -> Result<(), EngineError> {
        self.require(Scope::SessionsWrite)?;
        self.require(Scope::MemoryRead)
    }

    /// Checks that the credential may see a store. For a credential that is
    /// bound to a list of stores, another store looks like one that never
    /// existed.
    pub fn require_store(&self, store_id: StoreId) -> Result<(), EngineError> {
        match self.store_ids() {
            Some(seen) if !seen.contains(&store_id) => Err(EngineError::StoreNotFound),
            _ => Ok(()),
        }
    }

    /// Every write calls this first, and the commit calls it again, so that a read-only
    /// attachment never allows a write.
    pub fn require_writable(&self, store_id: StoreId) -> Result<(), EngineError> {
        self.require(Scope::MemoryWrite)?;
        self.require_store(store_id)?;
        if self.is_read_only(store_id) {
            return Err(EngineError::ReadOnly);
        }
        Ok(())
    }

    /// Whether the credential is the token of a session that may only read the
    /// store.
    pub(crate) fn is_read_only(&self, store_id: StoreId) -> bool {
        let session = self.session.as_ref();
        session.is_some_and(|session| session.mounts.is_read_only(store_id))
    }

    /// Session tokens may only read and change memories.
    pub fn require_no_session(&self) -> Result<(), EngineError> {
        match self.session {
            None => Ok(()),
            Some(_) => Err(EngineError::NotForSessions),
        }
    }

    /// `None`: the credential is not a session's token.
    pub fn session_id(&self) -> Option<SessionId> {
        self.session.as_ref().map(|session| session.session_id)
    }

    /// The mounts of the session whose token the credential is; they resolve the paths of
    /// its tools.
    pub fn mounts(&self) -> Option<&Mounts> {
        self.session.as_ref().map(|session| &session.mounts)
    }

    /// The only stores that the credential may see; `None`: all.
    pub(crate) fn store_ids(&self) -> Option<&[StoreId]> {
        match &self.session {
            Some(session) => Some(&session.store_ids),
            None => self.granted_store_ids(),
        }
    }

    /// The only stores granted to the credential, attached now or not. For a
    /// session's token: the stores of the credential that it was issued to.
    pub(crate) fn granted_store_ids(&self) -> Option<&[StoreId]> {
        self.store_ids.as_deref()
    }

    pub const fn is_bound_to_stores(&self) -> bool {
        self.store_ids.is_some() || self.session.is_some()
    }
}

/// A look-up is not valid after the clock was set back.
fn is_believed(looked_up_at: Timestamp, now: Timestamp) -> bool {
    looked_up_at <= now && now < looked_up_at.plus(BELIEVED_FOR)
}

#[derive(Debug)]
pub struct Auth {
    keys: KeyAuth,
    tokens: TokenAuth,
}

impl Auth {
    pub(crate) fn new(
        context: &Arc<Context>,
        replica: &Replica,
        key_uses: Arc<KeyUses>,
        own: Tokens,
        attached: Arc<AttachedStores>,
        activity: Arc<Activity>,
        issuers: Arc<Issuers>,
    ) -> Self {
        let (of_keys, of_tokens) = (Arc::clone(context), Arc::clone(context));
        Self {
            keys: KeyAuth::new(of_keys, replica.clone(), key_uses),
            tokens: TokenAuth::new(of_tokens, replica.clone(), own, attached, activity, issuers),
        }
    }

    /// Authenticates an API key or a token. A cached look-up needs no query.
    pub async fn authenticate(&self, presented: &str) -> Result<Arc<Principal>, EngineError> {
        // Every token contains a dot; no API key does.
        if presented.contains('.') {
            self.tokens.authenticate(presented).await
        } else {
            self.keys.authenticate(presented).await
        }
    }

    pub async fn authenticate_key(&self, presented: &str) -> Result<Arc<Principal>, EngineError> {
        self.keys.authenticate(presented).await
    }
}
