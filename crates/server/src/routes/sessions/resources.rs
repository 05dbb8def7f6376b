//! `/v1/sessions/{session_id}/resources`

use axum::Json;
use axum::extract::State;
use keepsake_core::{ResourceId, StoreId};
use keepsake_engine::{AttachmentDraft, AttachmentEdit, Engine, PageRequest, mount_path};
use keepsake_index::{Access, Attachment};
use serde::de::{Error, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use super::refuse;
use crate::auth::Caller;
use crate::body::{JsonBody, Object};
use crate::error::ApiError;
use crate::path::{InResource, OfSession};
use crate::query::{FromQuery, NoParams, Query, QueryParams};
use crate::routes::list::List;
use crate::schemas::{self, DeletedSessionResourceType, MemoryStoreResourceType};

/// A memory store to attach.
#[derive(Debug, ToSchema)]
pub(crate) struct AttachStore {
    #[expect(
        dead_code,
        reason = "checked during deserialization; present for the document"
    )]
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
            return Err(D::Error::custom(
                "`type` must be `memory_store`: nothing else can be attached",
            ));
        }
        let fields: Fields = serde_json::from_value(Value::Object(fields)).map_err(D::Error::custom)?;
        if fields.instructions.is_some() && fields.prompt.is_some() {
            return Err(D::Error::custom(
                "`prompt` is the older name of `instructions`: send one of them",
            ));
        }
        Ok(Self {
            r#type: MemoryStoreResourceType::MemoryStore,
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
            r#type: MemoryStoreResourceType::MemoryStore,
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

/// The response to a deletion.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DeletedSessionResource)]
pub(crate) struct DeletedResource {
    #[schema(value_type = schemas::SessionResourceId)]
    id: ResourceId,
    #[schema(inline)]
    r#type: DeletedSessionResourceType,
}

/// Parameters of a page of attachments.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListResources {
    /// Items per page; all items by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u64>,
    /// The `next_page` of the previous page.
    #[param(value_type = Option<schemas::Cursor>)]
    page: Option<String>,
}

impl FromQuery for ListResources {
    fn from_query(query: &mut Query) -> Result<Self, ApiError> {
        Ok(Self {
            limit: query.session_limit()?,
            page: query.text("page")?,
        })
    }
}

/// Attach a memory store
#[utoipa::path(
    post,
    path = "/sessions/{session_id}/resources",
    operation_id = "sessions.resources.add",
    tag = "Sessions",
    params(("session_id" = schemas::SessionId, Path, description = "The session.")),
    request_body = AttachStore,
    responses((status = 200, description = "The attachment.", body = Resource)),
)]
pub(crate) async fn add(
    State(engine): State<Engine>,
    OfSession(session_id): OfSession,
    JsonBody {
        principal,
        body,
        call,
    }: JsonBody<AttachStore>,
) -> Result<Json<Resource>, ApiError> {
    let attached = engine.attach(&principal, session_id, body.draft(), call).await?;
    Ok(Json(attached.into()))
}

/// List a session's attachments
///
/// In the order of attachment.
#[utoipa::path(
    get,
    path = "/sessions/{session_id}/resources",
    operation_id = "sessions.resources.list",
    tag = "Sessions",
    params(("session_id" = schemas::SessionId, Path, description = "The session."), ListResources),
    responses((status = 200, description = "A page of attachments.", body = List<Resource>)),
)]
pub(crate) async fn list(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    OfSession(session_id): OfSession,
    QueryParams(params): QueryParams<ListResources>,
) -> Result<Json<List<Resource>>, ApiError> {
    let page = PageRequest {
        limit: params.limit,
        page: params.page,
    };
    let attached = engine.attachments(&principal, session_id, &page).await?;
    Ok(Json(List::of(attached, Resource::from)))
}

/// Retrieve an attachment
///
/// By the id of the attachment or of the memory store.
#[utoipa::path(
    get,
    path = "/sessions/{session_id}/resources/{resource_id}",
    operation_id = "sessions.resources.retrieve",
    tag = "Sessions",
    params(
        ("session_id" = schemas::SessionId, Path, description = "The session."),
        ("resource_id" = schemas::ResourceName, Path, description = "The attachment."),
    ),
    responses((status = 200, description = "The attachment.", body = Resource)),
)]
pub(crate) async fn retrieve(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    InResource(session_id, name): InResource,
) -> Result<Json<Resource>, ApiError> {
    Ok(Json(
        engine.attachment(&principal, session_id, name).await?.into(),
    ))
}

/// Update an attachment
///
/// Omitted fields stay unchanged.
#[utoipa::path(
    post,
    path = "/sessions/{session_id}/resources/{resource_id}",
    operation_id = "sessions.resources.update",
    tag = "Sessions",
    params(
        ("session_id" = schemas::SessionId, Path, description = "The session."),
        ("resource_id" = schemas::ResourceName, Path, description = "The attachment."),
    ),
    request_body = UpdateResource,
    responses((status = 200, description = "The updated attachment.", body = Resource)),
)]
pub(crate) async fn update(
    State(engine): State<Engine>,
    InResource(session_id, name): InResource,
    JsonBody {
        principal,
        body,
        call,
    }: JsonBody<UpdateResource>,
) -> Result<Json<Resource>, ApiError> {
    refuse("authorization_token", body.authorization_token.as_ref())?;
    let access = body.access.as_deref().map(parse_access::<serde_json::Error>);
    let edit = AttachmentEdit {
        access: access
            .transpose()
            .map_err(|error| ApiError::invalid_request(error.to_string()))?,
        instructions: body.instructions,
    };
    let attached = engine
        .update_attachment(&principal, session_id, name, edit, call)
        .await?;
    Ok(Json(attached.into()))
}

/// Detach a memory store
#[utoipa::path(
    delete,
    path = "/sessions/{session_id}/resources/{resource_id}",
    operation_id = "sessions.resources.delete",
    tag = "Sessions",
    params(
        ("session_id" = schemas::SessionId, Path, description = "The session."),
        ("resource_id" = schemas::ResourceName, Path, description = "The attachment."),
    ),
    responses((status = 200, description = "The memory store was detached.", body = DeletedResource)),
)]
pub(crate) async fn delete(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    InResource(session_id, name): InResource,
    QueryParams(NoParams): QueryParams<NoParams>,
) -> Result<Json<DeletedResource>, ApiError> {
    let gone = engine.detach(&principal, session_id, name).await?;
    Ok(Json(DeletedResource {
        id: gone.resource_id,
        r#type: DeletedSessionResourceType::Deleted,
    }))
}
