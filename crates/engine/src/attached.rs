//! Cached look-ups of sessions and the stores attached to them.

use std::sync::Arc;

use keepsake_core::{ObjectKind, Refused, SessionId, TenantId, Timestamp};

use crate::EngineError;
use crate::context::Context;
use crate::look_ups::LookUps;
use crate::mounts::LiveSession;

#[derive(Debug, Clone)]
enum State {
    Live(Arc<LiveSession>),
    Archived,
}

#[derive(Debug)]
pub(crate) struct AttachedStores {
    context: Arc<Context>,
    sessions: LookUps<(TenantId, SessionId), State>,
}

impl AttachedStores {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        let sessions = LookUps::new();
        Self { context, sessions }
    }

    /// The next use of a session that was changed here reads it again.
    pub(crate) async fn forget(&self, tenant_id: TenantId, session_id: SessionId) {
        self.sessions.forget(&(tenant_id, session_id)).await;
    }

    pub(crate) async fn of_token(
        &self,
        tenant_id: TenantId,
        session_id: SessionId,
        now: Timestamp,
    ) -> Result<Arc<LiveSession>, EngineError> {
        match self.state_of(tenant_id, session_id, now).await? {
            Some(State::Live(attached)) => Ok(attached),
            Some(State::Archived) | None => {
                Err(EngineError::Unauthenticated("the token's session has ended"))
            }
        }
    }

    /// Finds a session's attached stores for a credential other than the session's token.
    pub(crate) async fn of_session(
        &self,
        tenant_id: TenantId,
        session_id: SessionId,
    ) -> Result<Arc<LiveSession>, EngineError> {
        match self.state_of(tenant_id, session_id, self.context.now()).await? {
            Some(State::Live(attached)) => Ok(attached),
            Some(State::Archived) => Err(Refused::SessionArchived.into()),
            None => Err(EngineError::NotFound(ObjectKind::Session)),
        }
    }

    /// Missing sessions are not cached, so that invented ids evict nothing.
    async fn state_of(
        &self,
        tenant_id: TenantId,
        session_id: SessionId,
        now: Timestamp,
    ) -> Result<Option<State>, EngineError> {
        let look_up = async |_| {
            let session = self.context.index.sessions.find(tenant_id, session_id).await?;
            Ok(session.map(|session| match session.archived_at {
                Some(_) => State::Archived,
                None => State::Live(Arc::new(LiveSession::from(&session))),
            }))
        };
        self.sessions.find(&(tenant_id, session_id), now, look_up).await
    }
}
