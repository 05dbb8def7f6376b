//! Rows of sessions, their attachments and events.

use keepsake_core::{EventId, JsonText, ResourceId, SessionId, StoreId, TenantId, Timestamp};
use serde_json::{Map, Value, json};
use sqlx::types::Json;
use uuid::Uuid;

use crate::IndexError;
use crate::numbers::{hex, unsigned};
use crate::sessions::{Access, Attachment, FoundSession, Session, SessionEvent};

#[derive(sqlx::FromRow)]
pub(super) struct SessionRow {
    session_id: Uuid,
    agent: String,
    environment_id: String,
    title: Option<String>,
    metadata: Json<Map<String, Value>>,
    vault_ids: Json<Vec<String>>,
    created_at: i64,
    updated_at: i64,
    archived_at: Option<i64>,
    last_used_at: Option<i64>,
}

#[derive(sqlx::FromRow)]
pub(super) struct FoundRow {
    session_id: Uuid,
    created_at: i64,
    agent_bytes: i64,
}

#[derive(sqlx::FromRow)]
pub(super) struct AttachmentRow {
    pub(super) session_id: Uuid,
    resource_id: Uuid,
    store_id: Uuid,
    position: i64,
    slug: String,
    access: String,
    instructions: Option<String>,
    name: String,
    description: String,
    created_at: i64,
    updated_at: i64,
}

#[derive(sqlx::FromRow)]
pub(super) struct EventRow {
    event_id: Uuid,
    at: i64,
    name: String,
    input: String,
}

impl From<FoundRow> for FoundSession {
    fn from(row: FoundRow) -> Self {
        Self {
            session_id: SessionId::from_uuid(row.session_id),
            created_at: Timestamp::from_micros(row.created_at),
            agent_bytes: unsigned(row.agent_bytes),
        }
    }
}

impl From<SessionRow> for Session {
    fn from(row: SessionRow) -> Self {
        Self {
            session_id: SessionId::from_uuid(row.session_id),
            agent: JsonText::from_trusted(&row.agent),
            environment_id: row.environment_id,
            title: row.title,
            metadata: row.metadata.0,
            vault_ids: row.vault_ids.0,
            attachments: Vec::new(),
            created_at: Timestamp::from_micros(row.created_at),
            updated_at: Timestamp::from_micros(row.updated_at),
            archived_at: row.archived_at.map(Timestamp::from_micros),
            last_used_at: row.last_used_at.map(Timestamp::from_micros),
        }
    }
}

impl AttachmentRow {
    pub(super) fn into_attachment(self) -> Result<Attachment, IndexError> {
        Ok(Attachment {
            resource_id: ResourceId::from_uuid(self.resource_id),
            store_id: StoreId::from_uuid(self.store_id),
            position: self.position,
            slug: self.slug,
            access: Access::parse(&self.access).ok_or(IndexError::Corrupt {
                table: "session_resource",
                what: "unknown access",
            })?,
            instructions: self.instructions,
            name: self.name,
            description: self.description,
            created_at: Timestamp::from_micros(self.created_at),
            updated_at: Timestamp::from_micros(self.updated_at),
        })
    }
}

impl EventRow {
    pub(super) fn into_event(
        self,
        tenant_id: TenantId,
        session_id: SessionId,
    ) -> Result<SessionEvent, IndexError> {
        Ok(SessionEvent {
            tenant_id,
            session_id,
            event_id: EventId::from_uuid(self.event_id),
            at: Timestamp::from_micros(self.at),
            name: self.name,
            input: serde_json::from_str(&self.input).map_err(|_| IndexError::Corrupt {
                table: "session_event",
                what: "text that is not a JSON object",
            })?,
            place: None,
        })
    }
}

/// An event as the statement that writes it reads it.
pub(super) fn row_of_event(event: &SessionEvent) -> Value {
    let place = event.place.as_ref();
    json!({
        "tenant_id": hex(event.tenant_id.uuid()),
        "session_id": hex(event.session_id.uuid()),
        "at": event.at.as_micros(),
        "event_id": hex(event.event_id.uuid()),
        "store_id": place.map(|place| hex(place.store_id.uuid())),
        "path": place.map(|place| &place.path),
        "new_path": place.and_then(|place| place.new_path.as_deref()),
        "name": event.name,
        "input": Value::Object(event.input.clone()).to_string(),
    })
}
