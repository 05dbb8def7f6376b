//! Sessions: memory stores attached for an agent, with a separate lifecycle.
//!
//! A session never has more rights than its creator. A credential that attaches
//! a store or requests a token must itself be able to read each attached store,
//! and to write those attached for writing. A token never has more rights than
//! the credential it was issued to, whatever is attached later, and it expires
//! with that credential. Every answer that shows a session needs the scope
//! `memory:read`. Attachments are looked up and cached as keys are, so a change
//! or the end of a session takes effect on every replica within five seconds.

mod agent;
mod attachments;
mod draft;
mod events;
mod follow;

use std::sync::Arc;
use std::time::Duration;

use keepsake_core::{Actor, ObjectKind, Refused, SessionId, StoreId, Timestamp};
use keepsake_index::{
    Access, Attachment, AuditAction, AuditObject, Detail, Idempotency, Scope, Session, SessionChange,
    SessionFilter, SessionLimits, SessionListing, SessionName, SessionPage, SessionSummary, sees_session_of,
};
use keepsake_tokens::{MAX_LIFE, TokenError};

use crate::auth::tokens::SESSION_SCOPES;
use crate::cursor::Query;
use crate::request_fields::invalid;
use crate::shared::service;
use crate::work::charge;
use crate::{EngineError, Mounts, NewToken, Page, PageRequest, Principal};

pub use attachments::{AttachmentDraft, AttachmentEdit, Attachments};
pub use draft::{SessionDraft, SessionEdit};
pub use events::SessionEvents;
pub(crate) use events::event_of_call;
pub use follow::FollowedSession;

/// Lifetime of a session's token, unless its issuing key expires earlier.
const TOKEN_LIFE: Duration = MAX_LIFE;

/// Maximum bytes of the agents of one page; a single agent may exceed it.
const PAGE_AGENT_BYTES: u64 = 1 << 20;
/// Sessions whose names one call looks up.
const MAX_NAMES: usize = 200;
/// Concurrently built pages, of all tenants and of one tenant.
pub(crate) const PAGES_AT_ONCE: usize = 8;
pub(crate) const PAGES_PER_TENANT: usize = 2;
/// Bytes of memory charged per byte of a listed session: the row and its copies
/// in the answer.
const BYTES_PER_SESSION_BYTE: usize = 3;

/// `token` is only set if this call created the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionWithToken {
    pub session: Session,
    /// A token for this session only; shown only once.
    pub token: Option<String>,
}

service!(pub Sessions);

impl Sessions {
    /// Creates a session and a token for it. After a failure of the index the session may
    /// have been created.
    #[tracing::instrument(name = "engine.create_session", level = "debug", skip_all)]
    pub async fn create(
        &self,
        principal: &Arc<Principal>,
        draft: SessionDraft,
        idempotency: Option<Idempotency>,
    ) -> Result<SessionWithToken, EngineError> {
        principal.require_session_change()?;
        let audited = self.context.audited_by(principal);
        let new = draft.check(&self.context, audited.at)?;
        if principal.is_bound_to_stores() && new.attachments.is_empty() {
            // Otherwise the credential could not see its session, since others
            // may attach stores that it may not see.
            let rule = "must have a memory store: this credential is bound to some memory stores, and sees \
                only sessions with them";
            return invalid("resources", rule);
        }
        for attachment in &new.attachments {
            may_give(principal, attachment.store_id, attachment.access)?;
        }
        // Issued before the session is created, so that no session is created without a
        // token.
        let token = self.token_of(principal, new.session.session_id).await?;
        let (sessions, owner) = (self.clone(), Arc::clone(principal));
        self.context
            .run_to_end(async move {
                let (index, tenant_id) = (&sessions.context.index, owner.tenant_id);
                let (limits, call) = (session_limits(&owner), idempotency.as_ref());
                let created = index.sessions.create(tenant_id, &new, &limits, call, &audited).await;
                let session = sessions.context.counted(created)?.ok_or_else(|| owner.tenant_is_gone())?;
                if session.session_id == new.session.session_id {
                    return Ok(SessionWithToken { session, token: Some(token) });
                }
                // Others may have attached stores that the credential may not see.
                Ok(SessionWithToken { session: seen_by(&owner, session)?, token: None })
            })
            .await
            .map_err(|error| shown_error(principal, error))
    }

    #[tracing::instrument(name = "engine.session", level = "debug", skip_all)]
    pub async fn get(&self, principal: &Principal, session_id: SessionId) -> Result<Session, EngineError> {
        principal.require(Scope::MemoryRead)?;
        self.seen(principal, session_id).await
    }

    /// Lists the sessions that the credential may see, by creation time. A page has fewer
    /// sessions than requested when their agents are large.
    #[tracing::instrument(name = "engine.sessions", level = "debug", skip_all)]
    pub async fn list(
        &self,
        principal: &Principal,
        filter: &SessionFilter,
        page: &PageRequest,
    ) -> Result<Page<Session>, EngineError> {
        let (identity, listing) = self.listing(principal, filter, page).await?;
        let _slot = self.pages.take(principal.tenant_id).await?;
        let page = self.context.index.sessions.list(principal.tenant_id, &listing).await?;
        charge(BYTES_PER_SESSION_BYTE * page.sessions.iter().map(bytes_of).sum::<usize>())?;
        self.sealed(identity, page).await
    }

    /// Lists sessions like [`Self::list`], without their agents.
    #[tracing::instrument(name = "engine.session_summaries", level = "debug", skip_all)]
    pub async fn summaries(
        &self,
        principal: &Principal,
        filter: &SessionFilter,
        page: &PageRequest,
    ) -> Result<Page<SessionSummary>, EngineError> {
        let (identity, listing) = self.listing(principal, filter, page).await?;
        // No agent is read, so none limits the page.
        let listing = SessionListing { max_agent_bytes: u64::MAX, ..listing };
        let page = self.context.index.sessions.summaries(principal.tenant_id, &listing).await?;
        self.sealed(identity, page).await
    }

    /// The names of those of some sessions that the credential may see; of at most 200.
    #[tracing::instrument(name = "engine.session_names", level = "debug", skip_all)]
    pub async fn names(
        &self,
        principal: &Principal,
        session_ids: &[SessionId],
    ) -> Result<Vec<SessionName>, EngineError> {
        principal.require(Scope::MemoryRead)?;
        principal.require_no_session()?;
        let session_ids = &session_ids[..session_ids.len().min(MAX_NAMES)];
        let (index, only) = (&self.context.index, principal.store_ids());
        Ok(index.sessions.names(principal.tenant_id, session_ids, only).await?)
    }

    /// A listing that the credential may request, with its identity.
    async fn listing(
        &self,
        principal: &Principal,
        filter: &SessionFilter,
        page: &PageRequest,
    ) -> Result<(Query, SessionListing), EngineError> {
        principal.require(Scope::MemoryRead)?;
        principal.require_no_session()?;
        let limit = page.limit(false)?;
        let identity = Query::filtered("sessions", principal.tenant_id, filter)?;
        let after = self.context.cursors.after(identity, page).await?;
        let listing = SessionListing {
            filter: filter.clone(),
            only: principal.store_ids().map(<[StoreId]>::to_vec),
            after,
            limit,
            max_agent_bytes: PAGE_AGENT_BYTES,
        };
        Ok((identity, listing))
    }

    async fn sealed<S>(&self, identity: Query, page: SessionPage<S>) -> Result<Page<S>, EngineError> {
        let next = match page.next {
            Some(place) => Some(self.context.cursors.seal(identity, &place).await?),
            None => None,
        };
        Ok(Page { items: page.sessions, next })
    }

    /// Changes a session's title and metadata.
    #[tracing::instrument(name = "engine.update_session", level = "debug", skip_all)]
    pub async fn update(
        &self,
        principal: &Arc<Principal>,
        session_id: SessionId,
        edit: SessionEdit,
        idempotency: Option<Idempotency>,
    ) -> Result<Session, EngineError> {
        principal.require_session_change()?;
        let detail = edit.check()?;
        self.seen(principal, session_id).await?;
        self.change(principal, session_id, detail, idempotency).await
    }

    /// Archives a session: it no longer accepts calls, and its tokens stop
    /// working. This cannot be undone.
    ///
    /// Takes effect on every replica within five seconds. Idempotent.
    #[tracing::instrument(name = "engine.archive_session", level = "debug", skip_all)]
    pub async fn archive(
        &self,
        principal: &Arc<Principal>,
        session_id: SessionId,
    ) -> Result<Session, EngineError> {
        principal.require_session_change()?;
        self.seen(principal, session_id).await?;
        self.change(principal, session_id, Detail::Archive, None).await
    }

    /// Deletes a session and its events; its stores are unchanged.
    ///
    /// Takes effect on every replica within five seconds.
    #[tracing::instrument(name = "engine.delete_session", level = "debug", skip_all)]
    pub async fn delete(&self, principal: &Arc<Principal>, session_id: SessionId) -> Result<(), EngineError> {
        principal.require(Scope::SessionsWrite)?;
        self.seen(principal, session_id).await?;
        let (sessions, tenant_id) = (self.clone(), principal.tenant_id);
        let audited = self.context.audited_by(principal);
        self.context
            .run_to_end(async move {
                let index = &sessions.context.index;
                let deleted = index.sessions.delete(tenant_id, session_id, &audited).await;
                sessions.attached.forget(tenant_id, session_id).await;
                Ok(deleted?)
            })
            .await
    }

    /// Issues another token for a session.
    #[tracing::instrument(name = "engine.session_token", level = "debug", skip_all)]
    pub async fn issue_token(
        &self,
        principal: &Principal,
        session_id: SessionId,
    ) -> Result<String, EngineError> {
        principal.require_session_change()?;
        let session = self.seen(principal, session_id).await?;
        if session.archived_at.is_some() {
            return Err(Refused::SessionArchived.into());
        }
        for attachment in &session.attachments {
            may_give(principal, attachment.store_id, attachment.access)?;
        }
        let token = self.token_of(principal, session_id).await?;
        // The audit entry comes first, so that every returned token is audited.
        let (sessions, tenant_id) = (self.clone(), principal.tenant_id);
        let (audited, object) = (self.context.audited_by(principal), AuditObject::new(session_id.uuid()));
        self.context
            .run_to_end(async move {
                let (index, action) = (&sessions.context.index, AuditAction::SessionTokenIssued);
                sessions.context.counted(index.audit.record(tenant_id, &audited, action, object).await)
            })
            .await?;
        Ok(token)
    }

    /// The mounts for the paths of a session's tools.
    pub async fn mounts(&self, principal: &Principal, session_id: SessionId) -> Result<Mounts, EngineError> {
        if principal.require(Scope::MemoryWrite).is_err() {
            principal.require(Scope::MemoryRead)?;
        }
        if let Some(own) = principal.session_id() {
            let mounts = principal.mounts().filter(|_| own == session_id);
            return mounts.cloned().ok_or(EngineError::NotFound(ObjectKind::Session));
        }
        let attached = self.attached.of_session(principal.tenant_id, session_id).await;
        let attached = attached?;
        if !sees_session_of(principal.store_ids(), attached.store_ids.iter().copied()) {
            return Err(EngineError::NotFound(ObjectKind::Session));
        }
        let now = self.context.now();
        self.activity.used(principal.tenant_id, session_id, now);
        Ok(attached.mounts.clone())
    }

    async fn token_of(&self, principal: &Principal, session_id: SessionId) -> Result<String, EngineError> {
        let scopes = SESSION_SCOPES.into_iter();
        let scopes = scopes.filter(|scope| principal.require(*scope).is_ok()).collect();
        let (issued_to, store_ids) = match principal.actor() {
            // The key and its stores are looked up when the token is used.
            Some(Actor::ApiKey(api_key_id)) => (Some(*api_key_id), None),
            _ => (None, principal.granted_store_ids().map(<[StoreId]>::to_vec)),
        };
        self.tokens
            .issue(NewToken {
                tenant_id: principal.tenant_id,
                actor: Actor::Session(session_id),
                scopes,
                store_ids,
                issued_to,
                life: life_left(principal, self.context.now())?.min(TOKEN_LIFE),
            })
            .await
    }

    /// Finds a session if the credential may see it.
    async fn seen(&self, principal: &Principal, session_id: SessionId) -> Result<Session, EngineError> {
        let found = self.context.index.sessions.find(principal.tenant_id, session_id).await?;
        seen_by(principal, found.ok_or(EngineError::NotFound(ObjectKind::Session))?)
    }

    async fn change(
        &self,
        principal: &Principal,
        session_id: SessionId,
        detail: Detail,
        idempotency: Option<Idempotency>,
    ) -> Result<Session, EngineError> {
        let (sessions, tenant_id) = (self.clone(), principal.tenant_id);
        let change = SessionChange {
            detail,
            // Checked again in the transaction: others may attach stores
            // meanwhile.
            only: principal.store_ids().map(<[StoreId]>::to_vec),
            limits: session_limits(principal),
            audited: self.context.audited_by(principal),
        };
        self.context
            .run_to_end(async move {
                let index = &sessions.context.index;
                let changed =
                    index.sessions.change(tenant_id, session_id, &change, idempotency.as_ref()).await;
                // Also when the outcome is unknown: the change may have been
                // committed.
                sessions.attached.forget(tenant_id, session_id).await;
                sessions.context.counted(changed)
            })
            .await
            .map_err(|error| shown_error(principal, error))
    }
}

/// The error without the bytes of sessions that the credential may not see.
fn shown_error(principal: &Principal, error: EngineError) -> EngineError {
    match error {
        EngineError::Refused(refused) => principal.shown_refusal(refused).into(),
        other => other,
    }
}

/// The session, if the credential may see it.
fn seen_by(principal: &Principal, mut session: Session) -> Result<Session, EngineError> {
    match principal.session_id() {
        Some(own) if own == session.session_id => narrow(principal, &mut session),
        None if session.is_within(principal.store_ids()) => {}
        Some(_) | None => return Err(EngineError::NotFound(ObjectKind::Session)),
    }
    Ok(session)
}

/// Maximum lifetime of a token issued to this credential.
fn life_left(principal: &Principal, now: Timestamp) -> Result<Duration, EngineError> {
    let Some(expires_at) = principal.expires_at else {
        return Ok(TOKEN_LIFE);
    };
    let left = expires_at.as_micros().saturating_sub(now.as_micros());
    match u64::try_from(left) {
        // An issuer's token is still accepted for the leeway after its
        // expiry.
        Err(_) | Ok(0) => Err(TokenError::Expired.into()),
        Ok(left) => Ok(Duration::from_micros(left)),
    }
}

/// Removes the stores from a session that the session's token was not granted, and shows
/// all stores as read-only to a token that may not write.
fn narrow(principal: &Principal, session: &mut Session) {
    if let Some(granted) = principal.granted_store_ids() {
        let is_granted = |attachment: &Attachment| granted.contains(&attachment.store_id);
        session.attachments.retain(is_granted);
    }
    if principal.require(Scope::MemoryWrite).is_err() {
        for attachment in &mut session.attachments {
            attachment.access = Access::ReadOnly;
        }
    }
}

const fn session_limits(principal: &Principal) -> SessionLimits {
    SessionLimits {
        sessions: principal.limits.sessions_per_tenant,
        session_bytes: principal.limits.session_bytes_per_tenant,
    }
}

/// Checks that a credential has the rights that a session would get.
fn may_give(principal: &Principal, store_id: StoreId, access: Access) -> Result<(), EngineError> {
    principal.require(Scope::MemoryRead)?;
    match access {
        Access::ReadOnly => principal.require_store(store_id),
        Access::ReadWrite => principal.require_writable(store_id),
    }
}

/// Approximate size of a session, without its metadata.
fn bytes_of(session: &Session) -> usize {
    let of_attachment = |attachment: &keepsake_index::Attachment| {
        let instructions = attachment.instructions.as_ref().map_or(0, String::len);
        // The name, description and instructions are also in the text for the system
        // prompt.
        2 * (attachment.name.len() + attachment.description.len() + instructions)
    };
    let attachments = session.attachments.iter().map(of_attachment);
    session.agent.as_str().len() + attachments.sum::<usize>()
}
