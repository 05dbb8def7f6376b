//! Rows of sessions, their attachments and events.

use keepsake_core::{SessionId, StoreId};
use serde_json::{Value, json};

use crate::IndexError;
use crate::database::{FromRow, Row, from_row, named_columns};
use crate::numbers::hex;
use crate::sessions::change::StoreToAttach;
use crate::sessions::{
    Access, Attachment, EventPlace, FoundSession, Session, SessionEvent, SessionName, SessionSummary,
};

/// An event, in the form that the statement reads that writes it.
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
        "is_error": event.is_error,
    })
}

pub(super) struct AttachmentRow {
    pub(super) session_id: SessionId,
    pub(super) attachment: Attachment,
}

named_columns!(Access);

from_row! {
    Session {
        session_id, agent, environment_id, title, metadata, vault_ids, created_at, updated_at, archived_at,
        last_used_at .. attachments
    }
    FoundSession { session_id, created_at, agent_bytes }
    SessionName { session_id, agent_name, title }
    SessionSummary { created_at, archived_at, last_used_at; name .. attachments }
    Attachment {
        resource_id, store_id, position, slug, access, instructions, name, description, created_at, updated_at
        .. r#type
    }
    AttachmentRow { session_id; attachment }
    StoreToAttach { name, description, is_archived }
}

impl FromRow for SessionEvent {
    fn from_row(row: &Row) -> Result<Self, IndexError> {
        let input: String = row.get("input")?;
        let store_id: Option<StoreId> = row.get("store_id")?;
        let place = store_id.map(|store_id| -> Result<_, IndexError> {
            Ok(EventPlace { store_id, path: row.get("path")?, new_path: row.get("new_path")? })
        });
        Ok(Self {
            tenant_id: row.get("tenant_id")?,
            session_id: row.get("session_id")?,
            event_id: row.get("event_id")?,
            at: row.get("at")?,
            name: row.get("name")?,
            input: serde_json::from_str(&input).map_err(|_| IndexError::Corrupt {
                table: "session_event",
                what: "text that is not a JSON object",
            })?,
            place: place.transpose()?,
            is_error: row.get("is_error")?,
        })
    }
}
