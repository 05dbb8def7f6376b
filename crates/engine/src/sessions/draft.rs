//! Validation of new sessions and of session edits.

use keepsake_core::{JsonText, ResourceId, SessionId, Timestamp};
use keepsake_index::{Detail, MAX_ATTACHMENTS, NewAttachment, NewSession};
use serde_json::{Map, Value};

use super::agent::Agent;
use super::{AttachmentDraft, METADATA_PAIRS};
use crate::EngineError;
use crate::context::Context;
use crate::stores::{check_metadata, invalid, metadata_patch};

/// Maximum number of characters of an id that a client assigned.
pub(super) const FOREIGN_ID_CHARS: usize = 255;
const TITLE_CHARS: usize = 1024;
const VAULTS: usize = 100;

#[derive(Debug, Clone, PartialEq)]
pub struct SessionDraft {
    /// The agent's id, or an object with the id.
    pub agent: JsonText,
    /// Stored unchanged.
    pub environment_id: String,
    /// At most 1,024 characters.
    pub title: Option<String>,
    /// At most 16 pairs of strings.
    pub metadata: Map<String, Value>,
    /// Stored unchanged.
    pub vault_ids: Vec<String>,
    /// At most 8.
    pub attachments: Vec<AttachmentDraft>,
}

/// `None` leaves a field unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionEdit {
    /// At most 1,024 characters.
    pub title: Option<String>,
    /// Pairs to set; null removes a pair.
    pub metadata: Map<String, Value>,
}

impl SessionDraft {
    pub(super) fn check(self, context: &Context, now: Timestamp) -> Result<NewSession, EngineError> {
        let agent = Agent::resolve(&self.agent)?;
        check_foreign_id("environment_id", &self.environment_id)?;
        self.title.as_deref().map_or(Ok(()), check_title)?;
        check_metadata("metadata", &self.metadata)?;
        if self.vault_ids.len() > VAULTS {
            return invalid("vault_ids", format!("must be at most {VAULTS}"));
        }
        for vault_id in &self.vault_ids {
            check_foreign_id("vault_ids", vault_id)?;
        }
        if self.attachments.len() > MAX_ATTACHMENTS {
            let rule = format!("must be at most {MAX_ATTACHMENTS}, but are {}", self.attachments.len());
            return invalid("resources", rule);
        }
        let attachments = self.attachments.into_iter();
        let attachments = attachments.map(|draft| draft.check(context, now));
        Ok(NewSession {
            session_id: SessionId::from_uuid(context.ids.uuid(now)),
            agent: agent.shown,
            agent_id: agent.id,
            agent_version: agent.version,
            environment_id: self.environment_id,
            title: self.title,
            metadata: self.metadata,
            vault_ids: self.vault_ids,
            attachments: attachments.collect::<Result<_, _>>()?,
            created_at: now,
        })
    }
}

impl AttachmentDraft {
    pub(super) fn check(self, context: &Context, now: Timestamp) -> Result<NewAttachment, EngineError> {
        self.instructions.as_deref().map_or(Ok(()), super::attachments::check_instructions)?;
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
        self.title.as_deref().map_or(Ok(()), check_title)?;
        Ok(Detail::Describe {
            title: self.title,
            metadata: metadata_patch(self.metadata)?,
            metadata_pairs_limit: METADATA_PAIRS,
        })
    }
}

/// Validates an id that is stored without being resolved.
pub(super) fn check_foreign_id(field: &'static str, id: &str) -> Result<(), EngineError> {
    if !(1..=FOREIGN_ID_CHARS).contains(&id.chars().count()) || id.chars().any(char::is_control) {
        let rule =
            format!("must be an id of 1 to {FOREIGN_ID_CHARS} characters, none of them a control character");
        return invalid(field, rule);
    }
    Ok(())
}

fn check_title(title: &str) -> Result<(), EngineError> {
    let chars = title.chars().count();
    if chars > TITLE_CHARS {
        let rule = format!("must be at most {TITLE_CHARS} characters, but is {chars}");
        return invalid("title", rule);
    }
    if title.contains('\0') {
        return invalid("title", "must not contain NUL");
    }
    Ok(())
}
