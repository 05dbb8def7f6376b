//! Who was shown which version.

use std::ops::AddAssign;

use keepsake_core::actor::VersionActor;
use keepsake_core::schemas::MemoryReaderType;
use keepsake_core::{
    Actor, MemoryId, MemoryPath, SessionId, StoreId, Surface, TenantId, Timestamp, VersionId,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Stands for no session in the key of a row.
pub(crate) const NO_SESSION: SessionId = SessionId::from_uuid(Uuid::nil());

/// Who was shown something, and where.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct VersionReader {
    pub actor: Actor,
    /// The session of the call, whatever credential made the call.
    pub session_id: Option<SessionId>,
    pub surface: Surface,
}

/// How often something was shown, and when for the first and the last time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadSpan {
    pub first_at: Timestamp,
    pub last_at: Timestamp,
    pub count: u64,
}

impl AddAssign for ReadSpan {
    fn add_assign(&mut self, other: Self) {
        self.first_at = self.first_at.min(other.first_at);
        self.last_at = self.last_at.max(other.last_at);
        self.count += other.count;
    }
}

/// The reads of one version by one reader since the last flush.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedReads {
    pub tenant_id: TenantId,
    pub store_id: StoreId,
    pub version_id: VersionId,
    pub reader: VersionReader,
    pub span: ReadSpan,
}

/// A reader of a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct MemoryReader {
    #[schema(inline)]
    pub r#type: MemoryReaderType,
    #[serde(rename = "memory_store_id")]
    pub store_id: StoreId,
    pub memory_id: MemoryId,
    /// The version that was shown.
    #[serde(rename = "memory_version_id")]
    pub version_id: VersionId,
    /// The path of that version; null if redacted.
    #[schema(required)]
    pub path: Option<MemoryPath>,
    /// The credential of the requests.
    #[schema(value_type = VersionActor)]
    pub actor: Actor,
    /// The session of the requests; null: they belonged to none.
    #[schema(required)]
    pub session_id: Option<SessionId>,
    pub surface: Surface,
    pub first_read_at: Timestamp,
    pub last_read_at: Timestamp,
    /// How often the version was shown.
    pub count: u64,
}

/// The versions of a store whose readers are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum ReadVersions {
    Store,
    Memory(MemoryId),
    Version(MemoryId, VersionId),
}

/// The position of a reader in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReaderPlace {
    pub first_read_at: i64,
    pub memory_id: MemoryId,
    pub version_id: VersionId,
    /// Nil for a reader outside of a session.
    pub session_id: SessionId,
    pub actor_type: String,
    pub actor_id: String,
    pub surface: String,
}

impl ReaderPlace {
    /// The start of a listing, which is in descending order.
    pub(crate) const FIRST: &'static Self = &Self {
        first_read_at: i64::MAX,
        memory_id: MemoryId::from_uuid(Uuid::max()),
        version_id: VersionId::from_uuid(Uuid::max()),
        session_id: SessionId::from_uuid(Uuid::max()),
        actor_type: String::new(),
        actor_id: String::new(),
        surface: String::new(),
    };
}

impl From<&MemoryReader> for ReaderPlace {
    fn from(reader: &MemoryReader) -> Self {
        Self {
            first_read_at: reader.first_read_at.as_micros(),
            memory_id: reader.memory_id,
            version_id: reader.version_id,
            session_id: reader.session_id.unwrap_or(NO_SESSION),
            actor_type: reader.actor.kind().to_owned(),
            actor_id: reader.actor.id(),
            surface: reader.surface.name().to_owned(),
        }
    }
}

/// A page of readers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReaderPage {
    pub readers: Vec<MemoryReader>,
    /// The time since which no read was left out; `None`: reads are not recorded.
    pub recorded_from: Option<Timestamp>,
}

/// The readers of a version, or of a memory, in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReaderCounts {
    pub sessions: u64,
    /// Readers outside of a session.
    pub others: u64,
    /// Whether there may be more than were counted.
    pub are_least: bool,
    /// The first time; `None`: there was none.
    pub since: Option<Timestamp>,
}
