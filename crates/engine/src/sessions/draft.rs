//! Validation of new sessions and of session edits.

use keepsake_core::{JsonText, ResourceId, SessionId, Timestamp, null_as_default, schemas};
use keepsake_index::{Detail, MAX_ATTACHMENTS, NewAttachment, NewSession, Session};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::AttachmentDraft;
use super::agent::Agent;
use super::attachments::check_instructions;
use crate::EngineError;
use crate::context::Context;
use crate::request_fields::{check_name, check_text, invalid};
use crate::stores::{check_metadata, metadata_patch};

const TITLE_CHARS: usize = 1024;
const VAULTS: usize = 100;

/// The body of a create request.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CreateSession)]
pub struct SessionDraft {
    /// The agent: its id, or an object with the id. Stored without
    /// interpretation.
    #[schema(value_type = schemas::AgentReference)]
    pub agent: JsonText,
    /// The environment's id. Stored without interpretation.
    #[schema(value_type = schemas::ForeignId)]
    pub environment_id: String,
    /// The title of the session.
    #[schema(value_type = Option<schemas::Title>)]
    pub title: Option<String>,
    /// At most 16 of your own key-value pairs.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schema(value_type = Option<schemas::Metadata>)]
    pub metadata: Map<String, Value>,
    /// The memory stores to attach, without duplicates.
    #[serde(default, deserialize_with = "null_as_default", rename = "resources")]
    #[schema(value_type = Option<Vec<AttachmentDraft>>, max_items = 8)]
    pub attachments: Vec<AttachmentDraft>,
    /// Ids of vaults. Stored without interpretation.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schema(value_type = Option<Vec<schemas::ForeignId>>, max_items = 100)]
    pub vault_ids: Vec<String>,
    /// Must be empty: this server runs no agent.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schema(value_type = Option<Vec<Object>>, max_items = 0)]
    pub initial_events: Vec<Value>,
    #[schema(ignore)]
    pub budget: Option<Value>,
}

/// The body of an update; omitted fields stay unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = UpdateSession)]
pub struct SessionEdit {
    /// The title of the session.
    #[schema(value_type = Option<schemas::Title>)]
    pub title: Option<String>,
    /// Pairs to set; null removes a pair, and omitted pairs stay unchanged.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schema(value_type = Option<schemas::MetadataPatch>)]
    pub metadata: Map<String, Value>,
    #[schema(ignore)]
    pub agent: Option<Value>,
    #[schema(ignore)]
    pub vault_ids: Option<Value>,
    #[schema(ignore)]
    pub budget: Option<Value>,
}

/// Refuses a field that clients know but this server does not support.
pub(super) fn refuse(field: &'static str, value: Option<&Value>) -> Result<(), EngineError> {
    match value {
        None => Ok(()),
        Some(_) => invalid(field, "cannot be set: this server attaches memory and runs no agent"),
    }
}

impl SessionDraft {
    pub(super) fn check(self, context: &Context, now: Timestamp) -> Result<NewSession, EngineError> {
        refuse("budget", self.budget.as_ref())?;
        if !self.initial_events.is_empty() {
            return invalid("initial_events", "must be empty: this server attaches memory and runs no agent");
        }
        let agent = Agent::resolve(&self.agent)?;
        check_name("environment_id", &self.environment_id)?;
        check_text("title", self.title.as_deref(), TITLE_CHARS)?;
        check_metadata("metadata", &self.metadata)?;
        if self.vault_ids.len() > VAULTS {
            return invalid("vault_ids", format!("must be at most {VAULTS}"));
        }
        for vault_id in &self.vault_ids {
            check_name("vault_ids", vault_id)?;
        }
        if self.attachments.len() > MAX_ATTACHMENTS {
            let rule = format!("must be at most {MAX_ATTACHMENTS}, but are {}", self.attachments.len());
            return invalid("resources", rule);
        }
        let attachments = self.attachments.into_iter();
        let attachments = attachments.map(|draft| draft.check(context, now));
        Ok(NewSession {
            session: Session {
                session_id: SessionId::from_uuid(context.ids.uuid(now)),
                agent: agent.shown,
                environment_id: self.environment_id,
                title: self.title,
                metadata: self.metadata,
                vault_ids: self.vault_ids,
                attachments: Vec::new(),
                created_at: now,
                updated_at: now,
                archived_at: None,
                last_used_at: None,
            },
            agent_id: agent.id,
            agent_name: agent.name,
            agent_version: agent.version,
            attachments: attachments.collect::<Result<_, _>>()?,
        })
    }
}

impl AttachmentDraft {
    pub(super) fn check(self, context: &Context, now: Timestamp) -> Result<NewAttachment, EngineError> {
        check_instructions(self.instructions.as_deref())?;
        Ok(NewAttachment {
            resource_id: ResourceId::from_uuid(context.ids.uuid(now)),
            store_id: self.store_id,
            access: self.access.unwrap_or_default(),
            instructions: self.instructions,
        })
    }
}

impl SessionEdit {
    pub(super) fn check(self) -> Result<Detail, EngineError> {
        refuse("agent", self.agent.as_ref())?;
        refuse("vault_ids", self.vault_ids.as_ref())?;
        refuse("budget", self.budget.as_ref())?;
        check_text("title", self.title.as_deref(), TITLE_CHARS)?;
        Ok(Detail::Describe { title: self.title, metadata: metadata_patch(self.metadata)? })
    }
}
