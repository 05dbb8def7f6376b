//! Attachments of stores to a session: added, changed and removed.

use std::sync::Arc;

use keepsake_core::schemas::{self, MemoryStoreResourceType};
use keepsake_core::{JsonObject, ObjectKind, SessionId, StoreId};
use keepsake_index::{Access, Attachment, AttachmentName, Detail, Idempotency, Scope, Session};

use serde::de::{Error, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::draft::refuse;
use super::{Sessions, may_give};
use crate::cursor::{MAX_SESSION_LIMIT, Query};
use crate::request_fields::{check_text, invalid};
use crate::shared::service;
use crate::{EngineError, Page, PageRequest, Principal};

const INSTRUCTION_CHARS: usize = 4096;

/// A memory store to attach.
#[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
#[schema(as = AttachStore)]
pub struct AttachmentDraft {
    #[schema(inline)]
    pub r#type: MemoryStoreResourceType,
    /// The store.
    #[schema(rename = "memory_store_id")]
    pub store_id: StoreId,
    /// The session's access to the store; `read_write` by default.
    pub access: Option<Access>,
    /// Instructions for the agent about the store, at most 4,096 characters.
    /// `prompt` is an older name of this field.
    #[schema(value_type = Option<schemas::Instructions>)]
    pub instructions: Option<String>,
}

/// The body of an update; omitted fields stay unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = UpdateResource)]
pub struct AttachmentEdit {
    /// The session's access to the store.
    #[schema(value_type = Option<Access>)]
    pub access: Option<String>,
    /// Instructions for the agent about the store, at most 4,096 characters.
    #[schema(value_type = Option<schemas::Instructions>)]
    pub instructions: Option<String>,
    #[schema(ignore)]
    pub authorization_token: Option<Value>,
}

impl<'de> Deserialize<'de> for AttachmentDraft {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Fields {
            #[serde(rename = "type")]
            _type: IgnoredAny,
            memory_store_id: String,
            access: Option<String>,
            instructions: Option<String>,
            prompt: Option<String>,
        }
        let JsonObject(fields): JsonObject<Map<String, Value>> = JsonObject::deserialize(deserializer)?;
        // Checked first, so that no error mentions fields of other types.
        if fields.get("type").and_then(Value::as_str) != Some("memory_store") {
            return Err(D::Error::custom("`type` must be `memory_store`: nothing else can be attached"));
        }
        let fields: Fields = serde_json::from_value(Value::Object(fields)).map_err(D::Error::custom)?;
        if fields.instructions.is_some() && fields.prompt.is_some() {
            return Err(D::Error::custom("`prompt` is the older name of `instructions`: send one of them"));
        }
        let store_id = fields.memory_store_id.parse::<StoreId>();
        let access = fields.access.as_deref().map(parse_access).transpose();
        Ok(Self {
            r#type: MemoryStoreResourceType,
            store_id: store_id.map_err(|error| D::Error::custom(format!("`memory_store_id` {error}")))?,
            access: access.map_err(|error| D::Error::custom(error.to_string()))?,
            instructions: fields.instructions.or(fields.prompt),
        })
    }
}

fn parse_access(name: &str) -> Result<Access, EngineError> {
    match Access::parse(name) {
        Some(access) => Ok(access),
        None => invalid("access", "must be `read_write` or `read_only`"),
    }
}

pub(super) fn check_instructions(instructions: Option<&str>) -> Result<(), EngineError> {
    check_text("instructions", instructions, INSTRUCTION_CHARS)
}

service!(pub Attachments(shared) { sessions: Sessions = Sessions::new(shared) });

impl Attachments {
    /// Lists the attachments of a session in the order of attaching; all of
    /// them if no limit is set.
    #[tracing::instrument(name = "engine.attachments", level = "debug", skip_all)]
    pub async fn list(
        &self,
        principal: &Principal,
        session_id: SessionId,
        page: &PageRequest,
    ) -> Result<Page<Attachment>, EngineError> {
        let session = self.sessions.get(principal, session_id).await?;
        // A session has fewer attachments than the largest page.
        let limit = page.limit_within(MAX_SESSION_LIMIT, MAX_SESSION_LIMIT)?;
        let tenant_id = principal.tenant_id;
        let identity =
            Query::of(&[b"session_resources", tenant_id.uuid().as_bytes(), session_id.uuid().as_bytes()]);
        let mut items = session.attachments;
        let cursors = &self.context.cursors;
        if let Some(after) = cursors.after::<i64>(identity, page).await? {
            items.retain(|attachment| attachment.position > after);
        }
        cursors.page(identity, items, limit, |attachment| attachment.position).await
    }

    /// The name is the attachment's id or its store's id.
    #[tracing::instrument(name = "engine.attachment", level = "debug", skip_all)]
    pub async fn get(
        &self,
        principal: &Principal,
        session_id: SessionId,
        name: AttachmentName,
    ) -> Result<Attachment, EngineError> {
        let session = self.sessions.get(principal, session_id).await?;
        attachment_of(&session, name)
    }

    /// Attaches a store to a session.
    #[tracing::instrument(name = "engine.attach", level = "debug", skip_all)]
    pub async fn attach(
        &self,
        principal: &Arc<Principal>,
        session_id: SessionId,
        draft: AttachmentDraft,
        idempotency: Option<Idempotency>,
    ) -> Result<Attachment, EngineError> {
        principal.require_session_change()?;
        let new = draft.check(&self.context, self.context.now())?;
        self.sessions.seen(principal, session_id).await?;
        may_give(principal, new.store_id, new.access)?;
        let name = AttachmentName::Store(new.store_id);
        let session = self.sessions.change(principal, session_id, Detail::Attach(new), idempotency).await?;
        attachment_of(&session, name)
    }

    /// Changes a session's access to a store, and the instructions for it.
    ///
    /// Takes effect on every replica within five seconds.
    #[tracing::instrument(name = "engine.update_attachment", level = "debug", skip_all)]
    pub async fn update(
        &self,
        principal: &Arc<Principal>,
        session_id: SessionId,
        name: AttachmentName,
        edit: AttachmentEdit,
        idempotency: Option<Idempotency>,
    ) -> Result<Attachment, EngineError> {
        principal.require_session_change()?;
        refuse("authorization_token", edit.authorization_token.as_ref())?;
        let access = edit.access.as_deref().map(parse_access).transpose()?;
        check_instructions(edit.instructions.as_deref())?;
        let session = self.sessions.seen(principal, session_id).await?;
        let before = attachment_of(&session, name)?;
        if let Some(access) = access {
            may_give(principal, before.store_id, access)?;
        }
        let detail = Detail::Reattach { name, access, instructions: edit.instructions };
        let session = self.sessions.change(principal, session_id, detail, idempotency).await?;
        attachment_of(&session, name)
    }

    /// Returns the removed attachment. Takes effect on every replica within five seconds.
    #[tracing::instrument(name = "engine.detach", level = "debug", skip_all)]
    pub async fn detach(
        &self,
        principal: &Arc<Principal>,
        session_id: SessionId,
        name: AttachmentName,
    ) -> Result<Attachment, EngineError> {
        principal.require(Scope::SessionsWrite)?;
        let session = self.sessions.seen(principal, session_id).await?;
        let before = attachment_of(&session, name)?;
        self.sessions.change(principal, session_id, Detail::Detach(name), None).await?;
        Ok(before)
    }
}

fn attachment_of(session: &Session, name: AttachmentName) -> Result<Attachment, EngineError> {
    let found = session.attachment(name).cloned();
    found.ok_or(EngineError::NotFound(ObjectKind::SessionResource))
}
