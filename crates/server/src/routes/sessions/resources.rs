//! `/v1/sessions/{session_id}/resources`

use keepsake_core::SessionId;
use keepsake_engine::{AttachmentDraft, AttachmentEdit};
use keepsake_index::{Attachment, AttachmentName};

use crate::answer::{Answer, Json};
use crate::auth::Caller;
use crate::body::JsonBody;
use crate::path::Path;
use crate::query::QueryParams;
use crate::routes::deleted::DeletedSessionResource;
use crate::routes::list::{List, SessionPage};

/// Attach a memory store
#[utoipa::path(
    post,
    path = "/sessions/{session_id}/resources",
    operation_id = "sessions.resources.add",
    request_body = AttachmentDraft,
    responses((status = 200, description = "The attachment.", body = Attachment)),
)]
pub(crate) async fn add(
    Path(session_id): Path<SessionId>,
    JsonBody(Caller(engine, principal), draft, call): JsonBody<AttachmentDraft>,
) -> Answer<Attachment> {
    Ok(Json(engine.attachments.attach(&principal, session_id, draft, call).await?))
}

/// List a session's attachments
///
/// In the order of attachment.
#[utoipa::path(
    get,
    path = "/sessions/{session_id}/resources",
    operation_id = "sessions.resources.list",
    params(SessionPage),
    responses((status = 200, description = "A page of attachments.", body = List<Attachment>)),
)]
pub(crate) async fn list(
    Caller(engine, principal): Caller,
    Path(session_id): Path<SessionId>,
    QueryParams(page): QueryParams<SessionPage>,
) -> Answer<List<Attachment>> {
    let attached = engine.attachments.list(&principal, session_id, &page.into()).await?;
    Ok(Json(attached.into()))
}

/// Retrieve an attachment
///
/// By the id of the attachment or of the memory store.
#[utoipa::path(
    get,
    path = "/sessions/{session_id}/resources/{resource_id}",
    operation_id = "sessions.resources.retrieve",
    responses((status = 200, description = "The attachment.", body = Attachment)),
)]
pub(crate) async fn retrieve(
    Caller(engine, principal): Caller,
    Path((session_id, name)): Path<(SessionId, AttachmentName)>,
) -> Answer<Attachment> {
    Ok(Json(engine.attachments.get(&principal, session_id, name).await?))
}

/// Update an attachment
///
/// Omitted fields stay unchanged.
#[utoipa::path(
    post,
    path = "/sessions/{session_id}/resources/{resource_id}",
    operation_id = "sessions.resources.update",
    request_body = AttachmentEdit,
    responses((status = 200, description = "The updated attachment.", body = Attachment)),
)]
pub(crate) async fn update(
    Path((session_id, name)): Path<(SessionId, AttachmentName)>,
    JsonBody(Caller(engine, principal), edit, call): JsonBody<AttachmentEdit>,
) -> Answer<Attachment> {
    Ok(Json(engine.attachments.update(&principal, session_id, name, edit, call).await?))
}

/// Detach a memory store
#[utoipa::path(
    delete,
    path = "/sessions/{session_id}/resources/{resource_id}",
    operation_id = "sessions.resources.delete",
    responses((status = 200, description = "The memory store was detached.", body = DeletedSessionResource)),
)]
pub(crate) async fn delete(
    Caller(engine, principal): Caller,
    Path((session_id, name)): Path<(SessionId, AttachmentName)>,
    _: QueryParams<()>,
) -> Answer<DeletedSessionResource> {
    let gone = engine.attachments.detach(&principal, session_id, name).await?;
    Ok(Json(gone.resource_id.into()))
}
