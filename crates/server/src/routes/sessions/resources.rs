//! `/v1/sessions/{session_id}/resources`

use axum::extract::State;
use keepsake_core::{ResourceId, SessionId, StoreId};
use keepsake_engine::{AttachmentDraft, AttachmentEdit, Engine, mount_path};
use keepsake_index::{Access, Attachment, AttachmentName};
use serde::de::{Error, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::refuse;
use crate::answer::Json;
use crate::auth::Caller;
use crate::body::{JsonBody, Object};
use crate::error::ApiError;
use crate::path::Path;
use crate::query::QueryParams;
use crate::routes::deleted::DeletedSessionResource;
use crate::routes::list::{List, SessionPage};
use crate::schemas::{self, MemoryStoreResourceType};

/// A memory store to attach.
#[derive(Debug, ToSchema)]
pub(crate) struct AttachStore {
    #[expect(dead_code, reason = "checked during deserialization; present for the document")]
    #[schema(inline)]
    r#type: MemoryStoreResourceType,
    /// The store.
    #[schema(value_type = schemas::MemoryStoreId)]
    memory_store_id: StoreId,
    /// The session's access to the store; `read_write` by default.
    #[schema(value_type = Option<schemas::Access>)]
    access: Option<Access>,
    /// Instructions for the agent about the store, at most 4,096 characters.
    /// `prompt` is an older name of this field.
    #[schema(value_type = Option<schemas::Instructions>)]
    instructions: Option<String>,
}

impl<'de> Deserialize<'de> for AttachStore {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Fields {
            #[serde(rename = "type")]
            _type: IgnoredAny,
            memory_store_id: StoreId,
            access: Option<String>,
            instructions: Option<String>,
            prompt: Option<String>,
        }
        let Object(fields): Object<Map<String, Value>> = Object::deserialize(deserializer)?;
        // Checked first, so that no error mentions fields of other types.
        if fields.get("type").and_then(Value::as_str) != Some("memory_store") {
            return Err(D::Error::custom("`type` must be `memory_store`: nothing else can be attached"));
        }
        let fields: Fields = serde_json::from_value(Value::Object(fields)).map_err(D::Error::custom)?;
        if fields.instructions.is_some() && fields.prompt.is_some() {
            return Err(D::Error::custom("`prompt` is the older name of `instructions`: send one of them"));
        }
        Ok(Self {
            r#type: MemoryStoreResourceType,
            memory_store_id: fields.memory_store_id,
            access: fields.access.as_deref().map(parse_access).transpose()?,
            instructions: fields.instructions.or(fields.prompt),
        })
    }
}

fn parse_access<E: Error>(name: &str) -> Result<Access, E> {
    Access::parse(name).ok_or_else(|| E::custom("`access` must be `read_write` or `read_only`"))
}

impl AttachStore {
    pub(super) fn draft(self) -> AttachmentDraft {
        AttachmentDraft {
            store_id: self.memory_store_id,
            access: self.access,
            instructions: self.instructions,
        }
    }
}

/// The body of an update; omitted fields stay unchanged.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpdateResource {
    /// The session's access to the store.
    #[schema(value_type = Option<schemas::Access>)]
    access: Option<String>,
    /// Instructions for the agent about the store, at most 4,096 characters.
    #[schema(value_type = Option<schemas::Instructions>)]
    instructions: Option<String>,
    #[schema(ignore)]
    authorization_token: Option<Value>,
}

/// A memory store attached to a session.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SessionResource)]
pub(crate) struct Resource {
    #[schema(value_type = schemas::SessionResourceId)]
    id: ResourceId,
    #[schema(inline)]
    r#type: MemoryStoreResourceType,
    #[schema(value_type = schemas::MemoryStoreId)]
    memory_store_id: StoreId,
    #[schema(value_type = schemas::Access)]
    access: &'static str,
    /// Instructions for the agent about the store.
    #[schema(required)]
    instructions: Option<String>,
    /// The store's name when it was attached.
    name: String,
    /// The store's description when it was attached.
    description: String,
    /// The store's directory for an agent with a file system. For tools, it is
    /// `/memories/` with the same last segment.
    mount_path: String,
    #[schema(value_type = schemas::Time)]
    created_at: String,
    #[schema(value_type = schemas::Time)]
    updated_at: String,
}

impl From<Attachment> for Resource {
    fn from(attachment: Attachment) -> Self {
        Self {
            mount_path: mount_path(&attachment),
            id: attachment.resource_id,
            r#type: MemoryStoreResourceType,
            memory_store_id: attachment.store_id,
            access: attachment.access.name(),
            instructions: attachment.instructions,
            name: attachment.name,
            description: attachment.description,
            created_at: attachment.created_at.to_rfc3339(),
            updated_at: attachment.updated_at.to_rfc3339(),
        }
    }
}

/// Attach a memory store
#[utoipa::path(
    post,
    path = "/sessions/{session_id}/resources",
    operation_id = "sessions.resources.add",
    request_body = AttachStore,
    responses((status = 200, description = "The attachment.", body = Resource)),
)]
pub(crate) async fn add(
    State(engine): State<Engine>,
    Path(session_id): Path<SessionId>,
    JsonBody(principal, body, call): JsonBody<AttachStore>,
) -> Result<Json<Resource>, ApiError> {
    let attached = engine.attachments.attach(&principal, session_id, body.draft(), call).await?;
    Ok(Json(attached.into()))
}

/// List a session's attachments
///
/// In the order of attachment.
#[utoipa::path(
    get,
    path = "/sessions/{session_id}/resources",
    operation_id = "sessions.resources.list",
    params(SessionPage),
    responses((status = 200, description = "A page of attachments.", body = List<Resource>)),
)]
pub(crate) async fn list(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    Path(session_id): Path<SessionId>,
    QueryParams(page): QueryParams<SessionPage>,
) -> Result<Json<List<Resource>>, ApiError> {
    let attached = engine.attachments.list(&principal, session_id, &page.into()).await?;
    Ok(Json(List::of(attached, Resource::from)))
}

/// Retrieve an attachment
///
/// By the id of the attachment or of the memory store.
#[utoipa::path(
    get,
    path = "/sessions/{session_id}/resources/{resource_id}",
    operation_id = "sessions.resources.retrieve",
    responses((status = 200, description = "The attachment.", body = Resource)),
)]
pub(crate) async fn retrieve(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    Path((session_id, name)): Path<(SessionId, AttachmentName)>,
) -> Result<Json<Resource>, ApiError> {
    Ok(Json(engine.attachments.get(&principal, session_id, name).await?.into()))
}

/// Update an attachment
///
/// Omitted fields stay unchanged.
#[utoipa::path(
    post,
    path = "/sessions/{session_id}/resources/{resource_id}",
    operation_id = "sessions.resources.update",
    request_body = UpdateResource,
    responses((status = 200, description = "The updated attachment.", body = Resource)),
)]
pub(crate) async fn update(
    State(engine): State<Engine>,
    Path((session_id, name)): Path<(SessionId, AttachmentName)>,
    JsonBody(principal, body, call): JsonBody<UpdateResource>,
) -> Result<Json<Resource>, ApiError> {
    refuse("authorization_token", body.authorization_token.as_ref())?;
    let access = body.access.as_deref().map(parse_access::<serde_json::Error>);
    let edit = AttachmentEdit {
        access: access.transpose().map_err(|error| ApiError::invalid_request(error.to_string()))?,
        instructions: body.instructions,
    };
    let attached = engine.attachments.update(&principal, session_id, name, edit, call).await?;
    Ok(Json(attached.into()))
}

/// Detach a memory store
#[utoipa::path(
    delete,
    path = "/sessions/{session_id}/resources/{resource_id}",
    operation_id = "sessions.resources.delete",
    responses((status = 200, description = "The memory store was detached.", body = DeletedSessionResource)),
)]
pub(crate) async fn delete(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    Path((session_id, name)): Path<(SessionId, AttachmentName)>,
    _: QueryParams<()>,
) -> Result<Json<DeletedSessionResource>, ApiError> {
    let gone = engine.attachments.detach(&principal, session_id, name).await?;
    Ok(Json(gone.resource_id.into()))
}
