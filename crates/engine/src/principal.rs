//! Principals: a caller's tenant, auditor, scopes and stores, and the checks of them.

use std::sync::Arc;

use keepsake_core::actor::VersionActor;
use keepsake_core::schemas::CredentialType;
use keepsake_core::{
    Actor, Limits, ObjectKind, Purpose, Refused, SessionId, StoreId, Surface, TenantId, Timestamp,
};
use keepsake_index::{Auditor, Scope};
use serde::Serialize;
use utoipa::ToSchema;

use crate::mounts::LiveSession;
use crate::{EngineError, Mounts};

/// The caller of a tenant's services: a credential of the tenant, or the operator.
#[derive(Debug, Clone)]
pub struct Principal {
    /// Derived from the credential, unless the operator calls.
    pub tenant_id: TenantId,
    /// Changes are attributed to this auditor.
    pub by: Auditor,
    pub limits: Limits,
    pub(crate) scopes: Vec<Scope>,
    /// The only stores granted to the credential; `None`: all stores of the
    /// tenant.
    pub(crate) store_ids: Option<Vec<StoreId>>,
    /// When the credential expires. Tokens issued to it must not live longer.
    pub(crate) expires_at: Option<Timestamp>,
    /// The session whose token the credential is, with its attached stores.
    pub(crate) session: Option<Arc<LiveSession>>,
    /// Where the request shows what it reads.
    pub(crate) surface: Surface,
    /// The session of the call, if the credential is no token of it.
    pub(crate) called_in: Option<SessionId>,
    /// Empty: the operator calls.
    pub tenant_name: Arc<str>,
    /// The name of the API key that the credential is.
    pub key_name: Option<Arc<str>>,
}

/// A credential: who it stands for, and what it may do.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Credential {
    #[schema(inline)]
    pub r#type: CredentialType,
    #[serde(rename = "workspace_id")]
    pub tenant_id: TenantId,
    /// The author of the changes that it makes.
    #[schema(value_type = Option<VersionActor>, required)]
    pub actor: Option<Actor>,
    pub scopes: Vec<Scope>,
    /// The only stores that it can access; null: all stores, or those attached to the session.
    #[serde(rename = "memory_store_ids")]
    #[schema(required)]
    pub store_ids: Option<Vec<StoreId>>,
    /// When it expires; null: never.
    #[schema(required)]
    pub expires_at: Option<Timestamp>,
}

impl Principal {
    /// The credential, as its holder may see it. A session's token is refused: what it may do, its session says.
    pub fn credential(&self) -> Result<Credential, EngineError> {
        self.require_no_session()?;
        Ok(Credential {
            r#type: CredentialType,
            tenant_id: self.tenant_id,
            actor: self.actor().cloned(),
            scopes: self.scopes.clone(),
            store_ids: self.store_ids.clone(),
            expires_at: self.expires_at,
        })
    }

    pub(crate) fn of_operator(tenant_id: TenantId, by: Auditor, limits: Limits) -> Self {
        let scopes = Scope::ALL.to_vec();
        Self {
            tenant_id,
            by,
            limits,
            scopes,
            store_ids: None,
            expires_at: None,
            session: None,
            surface: Surface::Api,
            called_in: None,
            tenant_name: "".into(),
            key_name: None,
        }
    }

    /// The same caller, for one request whose reads are no uses by an agent.
    #[must_use]
    pub fn reading_for(&self, purpose: Purpose) -> Self {
        Self { surface: purpose.into(), ..self.clone() }
    }

    /// The same caller, for a request of an MCP client.
    #[must_use]
    pub fn over_mcp(&self) -> Self {
        Self { surface: self.surface_unless_named(Surface::Mcp), ..self.clone() }
    }

    /// The same caller, for one call of a tool.
    pub(crate) fn calling_tool(&self, session_id: Option<SessionId>) -> Self {
        Self { surface: self.surface_unless_named(Surface::Tool), called_in: session_id, ..self.clone() }
    }

    /// `surface`, unless the request named another one.
    fn surface_unless_named(&self, surface: Surface) -> Surface {
        if self.surface == Surface::Api { surface } else { self.surface }
    }

    /// `None` for the operator, who reads and changes no memories.
    pub const fn actor(&self) -> Option<&Actor> {
        self.by.actor()
    }

    /// The error if the tenant was deleted after the principal was made.
    pub(crate) const fn tenant_is_gone(&self) -> EngineError {
        match self.by {
            Auditor::Credential(_) => EngineError::Unauthenticated("the API key is unknown"),
            Auditor::Operator | Auditor::OperatorCli | Auditor::Job => {
                EngineError::NotFound(ObjectKind::Tenant)
            }
        }
    }

    pub fn require(&self, scope: Scope) -> Result<(), EngineError> {
        if self.scopes.contains(&scope) { Ok(()) } else { Err(EngineError::PermissionDenied(scope)) }
    }

    /// Refuses a credential that is bound to stores, too.
    pub fn require_for_all_stores(&self, scope: Scope) -> Result<(), EngineError> {
        self.require(scope)?;
        if self.is_bound_to_stores() { Err(EngineError::PermissionDenied(scope)) } else { Ok(()) }
    }

    /// Checks the scopes of a tool's call.
    pub(crate) fn require_for(&self, is_change: bool, shows_content: bool) -> Result<(), EngineError> {
        if is_change {
            self.require(Scope::MemoryWrite)?;
        }
        if shows_content { self.require(Scope::MemoryRead) } else { Ok(()) }
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
            Some(seen) if !seen.contains(&store_id) => Err(EngineError::NotFound(ObjectKind::Store)),
            _ => Ok(()),
        }
    }

    /// Checks a scope, and that the credential may see a store.
    pub(crate) fn require_in(&self, scope: Scope, store_id: StoreId) -> Result<(), EngineError> {
        self.require(scope)?;
        self.require_store(store_id)
    }

    /// Like [`Self::require_in`], and refuses the tokens of sessions.
    pub(crate) fn require_outside_session(&self, scope: Scope, store_id: StoreId) -> Result<(), EngineError> {
        self.require_in(scope, store_id)?;
        self.require_no_session()
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

    /// Mounts with the permissions of this credential, which must see all of the stores. A
    /// session's token may write only what its session may write, no matter how the store
    /// was mounted.
    pub(crate) fn seen(&self, mounts: Mounts) -> Result<Mounts, EngineError> {
        mounts.each(|store| {
            self.require_store(store.store_id)?;
            store.is_read_only |= self.is_read_only(store.store_id);
            Ok(())
        })
    }

    pub const fn is_bound_to_stores(&self) -> bool {
        self.store_ids.is_some() || self.session.is_some()
    }

    /// A refusal as the credential may see it: without sums over stores that it may not see.
    pub(crate) fn shown_refusal(&self, refused: Refused) -> Refused {
        if self.is_bound_to_stores() { refused.without_sums_of_tenant() } else { refused }
    }
}
