//! Sessions: the stores attached for an agent, and the agent's tool calls.
//!
//! Reads return the current state of a session: an attachment disappears at the
//! moment its store is deleted.

mod change;
mod queries;

use keepsake_core::schemas::MemoryStoreResourceType;
use keepsake_core::{EventId, JsonText, Quota, Refused, ResourceId, SessionId, StoreId, TenantId, Timestamp};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use utoipa::ToSchema;

pub use change::{AttachmentName, Detail, MAX_ATTACHMENTS, SessionChange, sees_session_of};
pub use queries::Sessions;
pub(crate) use queries::count as count_sessions;

keepsake_core::named_enum! {
    /// The access of a session to a store.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum Access {
        /// Read and change the store's memories.
        #[default]
        ReadWrite = "read_write",
        /// Read the store's memories.
        ReadOnly = "read_only",
    }
}

keepsake_core::shown_by_name!(Access as "Access" => "A session's access to a memory store.";);

/// A memory store attached to a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = SessionResource)]
pub struct Attachment {
    #[serde(rename = "id")]
    pub resource_id: ResourceId,
    #[schema(inline)]
    pub r#type: MemoryStoreResourceType,
    #[serde(rename = "memory_store_id")]
    pub store_id: StoreId,
    pub access: Access,
    /// Instructions for the agent about the store.
    #[schema(required)]
    pub instructions: Option<String>,
    /// The store's name when it was attached.
    pub name: String,
    /// The store's description when it was attached.
    pub description: String,
    /// The store's directory for an agent with a file system. For tools, it is
    /// `/memories/` with the same last segment.
    // The field has only the last segment of the directory, which is unique in the session.
    #[serde(rename = "mount_path", serialize_with = "mount_path_of_slug")]
    pub slug: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// The position among the attachments.
    #[serde(skip)]
    pub position: i64,
}

impl Attachment {
    /// The path of the store for an agent with a file system.
    pub fn mount_path(&self) -> String {
        format!("{MOUNTS}{}", self.slug)
    }
}

/// The directory of an agent's file system with the attached stores.
const MOUNTS: &str = "/mnt/memory/";

fn mount_path_of_slug<S: Serializer>(slug: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{MOUNTS}{slug}"))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub session_id: SessionId,
    /// In the form of API responses.
    pub agent: JsonText,
    /// Stored without interpretation.
    pub environment_id: String,
    pub title: Option<String>,
    /// A JSON object of strings.
    pub metadata: Map<String, Value>,
    /// Stored without interpretation.
    pub vault_ids: Vec<String>,
    /// In their order.
    pub attachments: Vec<Attachment>,
    pub created_at: Timestamp,
    /// When the session or an attachment was last changed.
    pub updated_at: Timestamp,
    /// An archived session refuses calls.
    pub archived_at: Option<Timestamp>,
    /// When a call last used the session, as far as uses are flushed.
    pub last_used_at: Option<Timestamp>,
}

/// The texts by which people know a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionName {
    pub session_id: SessionId,
    /// The beginning of the agent's name, or the agent's id.
    pub agent_name: String,
    pub title: Option<String>,
}

/// A session without the description of its agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSummary {
    pub name: SessionName,
    /// In their order.
    pub attachments: Vec<Attachment>,
    pub created_at: Timestamp,
    pub archived_at: Option<Timestamp>,
    /// When a call last used the session, as far as uses are flushed.
    pub last_used_at: Option<Timestamp>,
}

/// A session that was read without its attachments.
pub(crate) trait Attachable {
    fn session_id(&self) -> SessionId;

    fn attachments(&mut self) -> &mut Vec<Attachment>;
}

impl Attachable for Session {
    fn session_id(&self) -> SessionId {
        self.session_id
    }

    fn attachments(&mut self) -> &mut Vec<Attachment> {
        &mut self.attachments
    }
}

impl Attachable for SessionSummary {
    fn session_id(&self) -> SessionId {
        self.name.session_id
    }

    fn attachments(&mut self) -> &mut Vec<Attachment> {
        &mut self.attachments
    }
}

impl Session {
    pub fn attachment(&self, name: AttachmentName) -> Option<&Attachment> {
        self.attachments.iter().find(|attachment| name.is_of(attachment))
    }

    /// The size of the description: agent, title, metadata, environment, vault ids and
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

/// A tenant's quotas of sessions, archived ones included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    pub sessions: u64,
    /// Bytes of their descriptions together.
    pub session_bytes: u64,
}

/// A tenant's session counters, archived sessions included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionCounters {
    pub(crate) sessions: u64,
    pub(crate) session_bytes: u64,
}

impl SessionLimits {
    /// Checks the counters, which include a new session, against the limits.
    pub(crate) const fn check_creation(&self, now: SessionCounters) -> Result<(), Refused> {
        if now.sessions > self.sessions {
            return Err(Refused::over(Quota::SessionsPerTenant, now.sessions, self.sessions));
        }
        self.check_bytes(now)
    }

    /// Checks the counters, which include a grown session, against the limits.
    pub(crate) const fn check_bytes(&self, now: SessionCounters) -> Result<(), Refused> {
        if now.session_bytes > self.session_bytes {
            return Err(Refused::over(Quota::SessionBytesPerTenant, now.session_bytes, self.session_bytes));
        }
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSession {
    /// Without attachments.
    pub session: Session,
    /// A filter of listings.
    pub agent_id: String,
    /// The beginning of the agent's name, or its id.
    pub agent_name: String,
    /// A filter of listings.
    pub agent_version: i64,
    /// In their order.
    pub attachments: Vec<NewAttachment>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAttachment {
    pub resource_id: ResourceId,
    pub store_id: StoreId,
    pub access: Access,
    /// For the agent, about the store.
    pub instructions: Option<String>,
}

/// Filters of a tenant's sessions, and their order by creation time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct SessionFilter {
    /// Created at or after this time.
    pub created_from: Option<Timestamp>,
    /// Created at or before this time.
    pub created_to: Option<Timestamp>,
    /// Only sessions with this store attached.
    pub store_id: Option<StoreId>,
    pub agent_id: Option<String>,
    pub agent_version: Option<i64>,
    /// Whether to include sessions that are not archived.
    pub live: bool,
    pub archived: bool,
    pub oldest_first: bool,
}

/// A page of a tenant's sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionListing {
    pub filter: SessionFilter,
    /// Only sessions whose stores are all among these.
    pub only: Option<Vec<StoreId>>,
    /// The creation time and id of the last session of the previous page.
    pub after: Option<(Timestamp, SessionId)>,
    pub limit: u32,
    /// Maximum bytes of the listed agents; the first session is always listed.
    pub max_agent_bytes: u64,
}

impl SessionListing {
    /// Keeps the sessions that fit on the page; returns the position of the last one if
    /// more follow. The query reads one row more than `limit` to detect that.
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

/// A session of a listing, before its row is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoundSession {
    pub(crate) session_id: SessionId,
    pub(crate) created_at: Timestamp,
    pub(crate) agent_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionPage<S> {
    pub sessions: Vec<S>,
    /// The position after which the next page starts; `None`: this is the last page.
    pub next: Option<(Timestamp, SessionId)>,
}

/// The page with the sessions in the order in which they were found.
pub(crate) fn page_of<S: Attachable>(
    found: &[FoundSession],
    mut sessions: Vec<S>,
    next: Option<(Timestamp, SessionId)>,
) -> SessionPage<S> {
    let place = |session: &S| found.iter().position(|found| found.session_id == session.session_id());
    sessions.sort_by_key(place);
    SessionPage { sessions, next }
}

/// A tool call in a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionEvent {
    pub tenant_id: TenantId,
    pub session_id: SessionId,
    pub event_id: EventId,
    /// When the call was executed.
    pub at: Timestamp,
    /// The tool's name.
    pub name: String,
    /// The call's input, without content.
    pub input: Map<String, Value>,
    pub place: Option<EventPlace>,
    /// Whether the answer was an error, such as a conflict.
    pub is_error: bool,
}

/// The target of a call's paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventPlace {
    pub store_id: StoreId,
    /// The path in the store; for a directory, without a trailing slash.
    pub path: String,
    /// The second path, for calls with two paths.
    pub new_path: Option<String>,
}

/// Filters of a session's events, and their order by time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct EventFilter {
    /// At or after this time.
    pub from: Option<Timestamp>,
    /// At or before this time.
    pub to: Option<Timestamp>,
    pub newest_first: bool,
}

/// A page of a session's events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventListing {
    pub filter: EventFilter,
    /// Only events in these stores or without a store; `None`: all events.
    pub only: Option<Vec<StoreId>>,
    /// The time and id of the last event of the previous page.
    pub after: Option<(Timestamp, EventId)>,
    pub limit: u32,
}

impl EventListing {
    /// Whether an event matches the filters.
    pub fn asks_for(&self, event: &SessionEvent) -> bool {
        let place = (event.at, event.event_id);
        let is_after = self
            .after
            .is_none_or(|after| if self.filter.newest_first { place < after } else { place > after });
        let led_to = event.place.as_ref().map(|place| place.store_id);
        let is_seen =
            led_to.is_none_or(|store_id| self.only.as_ref().is_none_or(|only| only.contains(&store_id)));
        is_seen
            && is_after
            && self.filter.from.is_none_or(|from| event.at >= from)
            && self.filter.to.is_none_or(|to| event.at <= to)
    }
}
