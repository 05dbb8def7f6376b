//! Cached look-ups of sessions and the stores attached to them.

use std::sync::Arc;

use keepsake_core::{SessionId, StoreId, TenantId, Timestamp};
use keepsake_index::{Access, Session};
use moka::future::Cache;
use moka::ops::compute::{CompResult, Op};

use super::{REMEMBERED, is_believed};
use crate::context::Context;
use crate::{EngineError, Mounted, Mounts};

/// A session that has not ended, and its stores.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) session_id: SessionId,
    pub(crate) store_ids: Vec<StoreId>,
    pub(crate) mounts: Mounts,
}

impl From<&Session> for Attached {
    fn from(session: &Session) -> Self {
        let attachments = session.attachments.iter();
        let mounts = attachments.map(|attachment| {
            let mounted = Mounted {
                store_id: attachment.store_id,
                is_read_only: attachment.access == Access::ReadOnly,
            };
            (attachment.slug.clone(), mounted)
        });
        Self::new(session.session_id, mounts)
    }
}

impl Attached {
    fn new(session_id: SessionId, mounts: impl IntoIterator<Item = (String, Mounted)>) -> Self {
        let mounts = Mounts::of_session(session_id, mounts);
        Self { session_id, store_ids: mounts.iter().map(|(_, mounted)| mounted.store_id).collect(), mounts }
    }

    /// The same session limited to some stores, or to reading.
    pub(super) fn narrowed(self: Arc<Self>, only: Option<&[StoreId]>, may_write: bool) -> Arc<Self> {
        if only.is_none() && may_write {
            return self;
        }
        let is_granted = |mounted: &Mounted| only.is_none_or(|only| only.contains(&mounted.store_id));
        let mounts = self.mounts.iter().filter(|(_, mounted)| is_granted(mounted));
        let mounts = mounts.map(|(slug, mounted)| {
            let mounted = Mounted { is_read_only: mounted.is_read_only || !may_write, ..mounted };
            (slug.unwrap_or_default().to_owned(), mounted)
        });
        Arc::new(Self::new(self.session_id, mounts))
    }
}

#[derive(Debug, Clone)]
enum State {
    Live(Arc<Attached>),
    Archived,
    Missing,
}

#[derive(Debug, Clone)]
struct Remembered {
    looked_up_at: Timestamp,
    state: State,
}

#[derive(Debug)]
pub(crate) struct AttachedStores {
    context: Arc<Context>,
    sessions: Cache<(TenantId, SessionId), Remembered>,
}

impl AttachedStores {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        let sessions = Cache::new(REMEMBERED);
        Self { context, sessions }
    }

    /// The next use of a session that was changed here reads it again.
    pub(crate) async fn forget(&self, tenant_id: TenantId, session_id: SessionId) {
        self.sessions.invalidate(&(tenant_id, session_id)).await;
    }

    pub(super) async fn of_token(
        &self,
        tenant_id: TenantId,
        session_id: SessionId,
        now: Timestamp,
    ) -> Result<Arc<Attached>, EngineError> {
        match self.state_of(tenant_id, session_id, now).await? {
            State::Live(attached) => Ok(attached),
            State::Archived | State::Missing => {
                Err(EngineError::Unauthenticated("the token's session has ended"))
            }
        }
    }

    /// Finds a session's attached stores for a credential other than the session's token.
    pub(crate) async fn of_session(
        &self,
        tenant_id: TenantId,
        session_id: SessionId,
    ) -> Result<Arc<Attached>, EngineError> {
        match self.state_of(tenant_id, session_id, self.context.now()).await? {
            State::Live(attached) => Ok(attached),
            State::Archived => Err(EngineError::SessionArchived),
            State::Missing => Err(EngineError::SessionNotFound),
        }
    }

    async fn state_of(
        &self,
        tenant_id: TenantId,
        session_id: SessionId,
        now: Timestamp,
    ) -> Result<State, EngineError> {
        let sessions = &self.sessions;
        let key = (tenant_id, session_id);
        let is_fresh = |remembered: &Remembered| is_believed(remembered.looked_up_at, now);
        if let Some(remembered) = sessions.get(&key).await.filter(is_fresh) {
            return Ok(remembered.state);
        }
        // Concurrent requests that miss the cache are serialized here and reuse
        // the first look-up.
        let computed = sessions
            .entry(key)
            .and_try_compute_with(async |entry| {
                if entry.is_some_and(|entry| is_fresh(entry.value())) {
                    return Ok(Op::Nop);
                }
                let state = match self.context.index.sessions.find(tenant_id, session_id).await? {
                    None => return Ok(Op::Remove),
                    Some(session) if session.archived_at.is_some() => State::Archived,
                    Some(session) => State::Live(Arc::new(Attached::from(&session))),
                };
                Ok::<_, EngineError>(Op::Put(Remembered { looked_up_at: now, state }))
            })
            .await?;
        Ok(match computed {
            CompResult::Inserted(entry) | CompResult::ReplacedWith(entry) | CompResult::Unchanged(entry) => {
                entry.into_value().state
            }
            // Missing sessions are not cached, so that invented ids evict
            // nothing.
            CompResult::Removed(_) | CompResult::StillNone(_) => State::Missing,
        })
    }
}
