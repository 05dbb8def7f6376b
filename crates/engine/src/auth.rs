//! Who is it: from a presented secret to a principal.

pub(crate) mod keys;
pub(crate) mod sessions;
pub(crate) mod tokens;

use std::sync::Arc;
use std::time::Duration;

use keepsake_core::{Actor, Limits, SessionId, StoreId, TenantId, Timestamp};
use keepsake_index::Scope;

use crate::{Engine, EngineError, Mounts};
use sessions::Attached;

/// How long what was looked up of a credential is believed. Together with the
/// look-up itself it keeps a revocation within five seconds.
const BELIEVED_FOR: Duration = Duration::from_secs(3);
/// Credentials of each kind that are remembered, at most.
const REMEMBERED: u64 = 10_000;
/// Why a credential of a tenant is refused that is not served.
const SUSPENDED: &str = "the tenant is suspended";

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
    /// The only stores that the credential was granted; `None`: all of the tenant's.
    store_ids: Option<Vec<StoreId>>,
    /// When the credential ends: no token issued to it may live longer.
    pub(crate) expires_at: Option<Timestamp>,
    /// The session that the credential is a token of, and what is attached to it.
    session: Option<Arc<Attached>>,
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
        match self.store_ids() {
            Some(seen) if !seen.contains(&store_id) => Err(EngineError::StoreNotFound),
            _ => Ok(()),
        }
    }

    /// Checks that the credential may change what is in a store.
    ///
    /// Whatever writes asks this, and the commit asks it once more: what is
    /// attached for reading alone is written on no way.
    ///
    /// # Errors
    /// [`EngineError::PermissionDenied`] without the scope,
    /// [`EngineError::StoreNotFound`] as [`Self::require_store`],
    /// [`EngineError::ReadOnly`] where the session may only read the store.
    pub fn require_writable(&self, store_id: StoreId) -> Result<(), EngineError> {
        self.require(Scope::MemoryWrite)?;
        self.require_store(store_id)?;
        if self.is_read_only(store_id) {
            return Err(EngineError::ReadOnly);
        }
        Ok(())
    }

    /// Whether the credential is a session's token and the session may only read
    /// the store.
    pub(crate) fn is_read_only(&self, store_id: StoreId) -> bool {
        let session = self.session.as_ref();
        session.is_some_and(|session| session.mounts.is_read_only(store_id))
    }

    /// Checks that the credential is no session's token, which may do nothing but
    /// read and change memories.
    ///
    /// # Errors
    /// [`EngineError::NotForSessions`] when it is one.
    pub fn require_no_session(&self) -> Result<(), EngineError> {
        match self.session {
            None => Ok(()),
            Some(_) => Err(EngineError::NotForSessions),
        }
    }

    /// The session that the credential is a token of.
    pub fn session_id(&self) -> Option<SessionId> {
        self.session.as_ref().map(|session| session.session_id)
    }

    /// Where the paths of that session's tools lead.
    pub fn mounts(&self) -> Option<&Mounts> {
        self.session.as_ref().map(|session| &session.mounts)
    }

    /// The only stores that the credential sees, where it is bound to some.
    pub(crate) fn store_ids(&self) -> Option<&[StoreId]> {
        match &self.session {
            Some(session) => Some(&session.store_ids),
            None => self.granted_store_ids(),
        }
    }

    /// The only stores that the credential was granted, attached at the moment or
    /// not; for a session's token those of the credential it was issued to.
    pub(crate) fn granted_store_ids(&self) -> Option<&[StoreId]> {
        self.store_ids.as_deref()
    }

    /// Whether the credential is bound to a list of stores.
    pub const fn is_bound_to_stores(&self) -> bool {
        self.store_ids.is_some() || self.session.is_some()
    }
}

/// Whether what was looked up is still taken for true; a clock that was set back
/// ends it.
fn is_believed(looked_up_at: Timestamp, now: Timestamp) -> bool {
    looked_up_at <= now && now < looked_up_at.plus(BELIEVED_FOR)
}

impl Engine {
    /// Checks that the others wait for what is read here, before it expires.
    pub(crate) async fn require_touch(&self) -> Result<(), EngineError> {
        self.end_cut_off().await;
        if self.is_cut_off() {
            return Err(EngineError::CutOff);
        }
        Ok(())
    }

    /// Finds out who presents an API key, or a token.
    ///
    /// Neither costs a query while what was looked up a moment ago is believed.
    ///
    /// # Errors
    /// [`EngineError::Unauthenticated`], [`EngineError::Token`],
    /// [`EngineError::AuthenticationBusy`], [`EngineError::CutOff`],
    /// [`EngineError::Index`].
    pub async fn authenticate(&self, presented: &str) -> Result<Arc<Principal>, EngineError> {
        // Every token has a point in it, no key has.
        if presented.contains('.') {
            self.authenticate_token(presented).await
        } else {
            self.authenticate_key(presented).await
        }
    }
}
