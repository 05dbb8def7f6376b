//! Sessions: stores that are attached for an agent, and the calls it made.
//!
//! A session reads as it is now: an attachment whose store was deleted is not
//! there any more, from the moment of the deletion on.

mod change;

use async_trait::async_trait;
use keepsake_core::{EventId, JsonText, ResourceId, SessionId, StoreId, TenantId, Timestamp};
use serde_json::{Map, Value};

use crate::IndexError;
use crate::commit::Idempotency;
use crate::model::{Audited, OverQuota};

pub(crate) use change::StoreToAttach;
pub use change::{
    AttachmentName, AttachmentRefusal, Detail, MOST_ATTACHMENTS, SessionChange, SessionRefusal,
    sees_session_of,
};

/// What a session may do with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Access {
    /// Read and change its memories.
    #[default]
    ReadWrite,
    /// Read them.
    ReadOnly,
}

impl Access {
    /// The protocol's name, as the index stores it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadWrite => "read_write",
            Self::ReadOnly => "read_only",
        }
    }

    /// Reads the name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::ReadWrite, Self::ReadOnly]
            .into_iter()
            .find(|access| access.name() == name)
    }
}

/// A store that is attached to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Its own id.
    pub resource_id: ResourceId,
    /// The store.
    pub store_id: StoreId,
    /// Its place among the attachments.
    pub position: i64,
    /// Its directory: one segment of a path, unique in the session.
    pub slug: String,
    /// What the session may do with it.
    pub access: Access,
    /// What the agent is told about it.
    pub instructions: Option<String>,
    /// The store's name when it was attached.
    pub name: String,
    /// The store's description when it was attached.
    pub description: String,
    /// When it was attached.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Its id.
    pub session_id: SessionId,
    /// The agent, as it is answered.
    pub agent: JsonText,
    /// The environment, kept and never looked into.
    pub environment_id: String,
    /// What it is called.
    pub title: Option<String>,
    /// A JSON object of strings.
    pub metadata: Map<String, Value>,
    /// Vaults, kept and never looked into.
    pub vault_ids: Vec<String>,
    /// The stores, in their order.
    pub attachments: Vec<Attachment>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it or an attachment was last changed.
    pub updated_at: Timestamp,
    /// Since when it takes no calls.
    pub archived_at: Option<Timestamp>,
    /// When a call was last made in it, as far as that is written.
    pub last_used_at: Option<Timestamp>,
}

impl Session {
    /// Finds an attachment.
    pub fn attachment(&self, name: AttachmentName) -> Option<&Attachment> {
        self.attachments.iter().find(|attachment| name.is_of(attachment))
    }

    /// Bytes of its description: agent, title, metadata, environment, vault ids and
    /// instructions.
    pub(crate) fn description_bytes(&self) -> u64 {
        let metadata = serde_json::to_string(&self.metadata).map_or(0, |text| text.len());
        let vault_ids: usize = self.vault_ids.iter().map(String::len).sum();
        let instructions = self.attachments.iter().filter_map(|a| a.instructions.as_ref());
        let bytes = self.agent.as_str().len()
            + metadata
            + self.environment_id.len()
            + self.title.as_ref().map_or(0, String::len)
            + vault_ids
            + instructions.map(String::len).sum::<usize>();
        bytes as u64
    }
}

/// A tenant's quotas of live and archived sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    /// Number of sessions.
    pub sessions: u64,
    /// Bytes of their descriptions together.
    pub session_bytes: u64,
}

/// A tenant's counters of live and archived sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionCounters {
    pub(crate) sessions: u64,
    pub(crate) session_bytes: u64,
}

impl SessionLimits {
    /// Holds the counters, a new session included, to the limits.
    pub(crate) fn check_creation(&self, now: SessionCounters) -> Result<(), OverQuota> {
        if now.sessions > self.sessions {
            return Err(OverQuota::Sessions {
                count: now.sessions,
                limit: self.sessions,
            });
        }
        self.check_bytes(now)
    }

    /// Holds the counters, a session that grew included, to the limits.
    pub(crate) const fn check_bytes(&self, now: SessionCounters) -> Result<(), OverQuota> {
        if now.session_bytes > self.session_bytes {
            return Err(OverQuota::SessionBytes {
                size_bytes: now.session_bytes,
                limit_bytes: self.session_bytes,
            });
        }
        Ok(())
    }
}

/// A session to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSession {
    /// Its id.
    pub session_id: SessionId,
    /// The agent, as it is to be answered.
    pub agent: JsonText,
    /// The agent's id, by which sessions are listed.
    pub agent_id: String,
    /// The agent's version, by which sessions are listed.
    pub agent_version: i64,
    /// The environment.
    pub environment_id: String,
    /// What it is called.
    pub title: Option<String>,
    /// A JSON object of strings.
    pub metadata: Map<String, Value>,
    /// Vaults.
    pub vault_ids: Vec<String>,
    /// The stores, in their order.
    pub attachments: Vec<NewAttachment>,
    /// When it is made.
    pub created_at: Timestamp,
}

/// A store to be attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAttachment {
    /// The attachment's id.
    pub resource_id: ResourceId,
    /// The store.
    pub store_id: StoreId,
    /// What the session may do with it.
    pub access: Access,
    /// What the agent is told about it.
    pub instructions: Option<String>,
}

/// How making a session went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionCreation {
    /// It is there.
    Created(Box<Session>),
    /// The same call made this one before.
    Replayed {
        /// The session.
        session_id: SessionId,
    },
    /// The call's name was used for another request.
    KeyReused,
    /// A store cannot be attached.
    Refused(AttachmentRefusal),
    /// A quota of the tenant does not allow it.
    OverQuota(OverQuota),
    /// There is no such tenant, or it is about to be gone.
    NoTenant,
}

/// How changing a session went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionUpdate {
    /// It is done; the session as it is now.
    Done(Box<Session>),
    /// The same call was made before; the session as it is now.
    Replayed(Box<Session>),
    /// The call's name was used for another request.
    KeyReused,
    /// Nothing changed.
    Refused(SessionRefusal),
    /// A quota of the tenant does not allow it.
    OverQuota(OverQuota),
    /// There is no such session.
    NoSession,
}

/// What is asked of a tenant's sessions, by when they were made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionListing {
    /// Made at or after this time.
    pub created_from: Option<Timestamp>,
    /// Made at or before this time.
    pub created_to: Option<Timestamp>,
    /// Those that are attached to a store.
    pub store_id: Option<StoreId>,
    /// Those of an agent.
    pub agent_id: Option<String>,
    /// Those of a version of it.
    pub agent_version: Option<i64>,
    /// Whether those that are not archived are listed.
    pub live: bool,
    /// Whether those that are archived are listed.
    pub archived: bool,
    /// Those with no store but these.
    pub only: Option<Vec<StoreId>>,
    /// Whether the first is the one made first.
    pub oldest_first: bool,
    /// When the session before the first one wanted was made, and its id.
    pub after: Option<(Timestamp, SessionId)>,
    /// Sessions, at most.
    pub limit: u32,
    /// Bytes of their agents, at most; the first session is listed in any case.
    pub max_agent_bytes: u64,
}

impl SessionListing {
    /// Keeps the sessions that fit the page; answers the place of the last one if
    /// others follow. One row more than `limit` tells whether any do.
    pub(crate) fn fit(&self, found: &mut Vec<FoundSession>) -> Option<(Timestamp, SessionId)> {
        let mut left = self.max_agent_bytes;
        let mut fitting = 0;
        for session in found.iter().take(self.limit as usize) {
            if fitting > 0 && session.agent_bytes > left {
                break;
            }
            left = left.saturating_sub(session.agent_bytes);
            fitting += 1;
        }
        let has_more = found.len() > fitting;
        found.truncate(fitting);
        let last = found.last().filter(|_| has_more)?;
        Some((last.created_at, last.session_id))
    }
}

/// A session that is asked for, before it is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoundSession {
    pub(crate) session_id: SessionId,
    pub(crate) created_at: Timestamp,
    pub(crate) agent_bytes: u64,
}

/// A part of a listing of sessions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionPage {
    /// The sessions.
    pub sessions: Vec<Session>,
    /// Where the next part begins after; `None`: this is the last.
    pub next: Option<(Timestamp, SessionId)>,
}

impl SessionPage {
    /// The sessions in the order in which they were found.
    pub(crate) fn of(
        found: &[FoundSession],
        mut sessions: Vec<Session>,
        next: Option<(Timestamp, SessionId)>,
    ) -> Self {
        let place = |session: &Session| {
            found
                .iter()
                .position(|found| found.session_id == session.session_id)
        };
        sessions.sort_by_key(place);
        Self { sessions, next }
    }
}

/// When a session was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionUse {
    /// The tenant.
    pub tenant_id: TenantId,
    /// The session.
    pub session_id: SessionId,
    /// When.
    pub used_at: Timestamp,
}

/// A call of a tool in a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionEvent {
    /// The tenant.
    pub tenant_id: TenantId,
    /// The session.
    pub session_id: SessionId,
    /// The event.
    pub event_id: EventId,
    /// When the call was carried out.
    pub at: Timestamp,
    /// The tool's name.
    pub name: String,
    /// The call's input, without content.
    pub input: Map<String, Value>,
    /// Where its paths led.
    pub place: Option<EventPlace>,
}

/// Where the paths of a call led.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventPlace {
    /// The store.
    pub store_id: StoreId,
    /// The path there; a directory's without a slash at its end.
    pub path: String,
    /// The second one, of a call that has two.
    pub new_path: Option<String>,
}

/// What is asked of a session's events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventListing {
    /// At or after this time.
    pub from: Option<Timestamp>,
    /// At or before this time.
    pub to: Option<Timestamp>,
    /// Whether the last is listed first.
    pub newest_first: bool,
    /// Only those that led into these stores, or nowhere; `None`: all.
    pub only: Option<Vec<StoreId>>,
    /// The event before the first one wanted: when it was, and its id.
    pub after: Option<(Timestamp, EventId)>,
    /// Events, at most.
    pub limit: u32,
}

impl EventListing {
    /// Whether an event is one of those that are asked for.
    pub fn asks_for(&self, event: &SessionEvent) -> bool {
        let place = (event.at, event.event_id);
        let is_after = self.after.is_none_or(|after| {
            if self.newest_first {
                place < after
            } else {
                place > after
            }
        });
        let led_to = event.place.as_ref().map(|place| place.store_id);
        let is_seen =
            led_to.is_none_or(|store_id| self.only.as_ref().is_none_or(|only| only.contains(&store_id)));
        is_seen
            && is_after
            && self.from.is_none_or(|from| event.at >= from)
            && self.to.is_none_or(|to| event.at <= to)
    }
}

/// Sessions of one tenant.
#[async_trait]
pub trait SessionIndex: Send + Sync {
    /// Makes a session with its attachments, or nothing.
    async fn create_session(
        &self,
        tenant_id: TenantId,
        session: &NewSession,
        limits: &SessionLimits,
        idempotency: Option<&Idempotency>,
        audited: &Audited,
    ) -> Result<SessionCreation, IndexError>;

    /// Finds a session that is not deleted.
    async fn session(
        &self,
        tenant_id: TenantId,
        session_id: SessionId,
    ) -> Result<Option<Session>, IndexError>;

    /// Lists sessions that are not deleted, by when they were made.
    async fn list_sessions(
        &self,
        tenant_id: TenantId,
        listing: &SessionListing,
    ) -> Result<SessionPage, IndexError>;

    /// Changes a session or one of its attachments.
    async fn change_session(
        &self,
        tenant_id: TenantId,
        session_id: SessionId,
        change: &SessionChange,
        idempotency: Option<&Idempotency>,
    ) -> Result<SessionUpdate, IndexError>;

    /// Makes a session gone for every reader; `false`: there is no such session.
    ///
    /// Its rows go later, by the prune.
    async fn delete_session(
        &self,
        tenant_id: TenantId,
        session_id: SessionId,
        audited: &Audited,
    ) -> Result<bool, IndexError>;

    /// Lists the events of a session in the order of their times.
    async fn list_session_events(
        &self,
        tenant_id: TenantId,
        session_id: SessionId,
        listing: &EventListing,
    ) -> Result<Vec<SessionEvent>, IndexError>;

    /// Writes events of any tenant, in one transaction, each of them once.
    ///
    /// Those of a session or a store that was deleted meanwhile are dropped, and
    /// those from before an erasure of their store.
    async fn flush_session_events(&self, events: &[SessionEvent]) -> Result<(), IndexError>;

    /// Writes when sessions of any tenant were used, in one transaction, never
    /// moving a time back.
    async fn flush_session_use(&self, uses: &[SessionUse]) -> Result<(), IndexError>;
}
