//! `POST /mcp`, `POST /mcp/{memory_store_id}`
//!
//! MCP over streamable HTTP, stateless: a JSON-RPC message, and its answer as JSON. Errors before
//! MCP have the API's envelope; errors of MCP have MCP's own form.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use keepsake_core::StoreId;
use keepsake_core::slug::slug_of;
use keepsake_engine::{Engine, Mounts};
use keepsake_mcp::{Access, HttpService};

use crate::admission::Holder;
use crate::body::ReceivedRequest;
use crate::envelope::ForeignErrorFormat;
use crate::error::ApiError;
use crate::path::Path;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Send an MCP message to a session
///
/// One message of the Model Context Protocol over streamable HTTP, or a batch,
/// without MCP sessions. A request is answered with 200, a notification with 202.
/// Requires a session's token; the session's stores are directories under `/memories`.
#[utoipa::path(
    post,
    path = "/mcp",
    operation_id = "mcp.of_session",
    request_body(
        content = Object,
        description = "A JSON-RPC message.",
        example = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
    ),
    responses(
        (status = 200, description = "The JSON-RPC response, or a list of those of a batch.", body = Value),
        (status = 202, description = "The notification was accepted."),
        (status = 400, description = "The message is not valid in MCP, or the credential is not a session's token.", body = Object),
    ),
)]
pub(crate) async fn of_session(
    Extension(service): Extension<HttpService>,
    Extension(holder): Extension<Holder>,
    request: ReceivedRequest,
) -> Result<Response, ApiError> {
    let Some(mounts) = request.principal.mounts().cloned() else {
        return Err(ApiError::invalid_request(
            "only a session's token determines the memory stores: with another credential use /mcp/{memory_store_id}",
        ));
    };
    let slugs = mounts.iter().filter_map(|(slug, _)| slug.map(str::to_owned)).collect();
    answer(&service, mounts, slugs, holder, request).await
}

/// Send an MCP message to a memory store
///
/// One message of the Model Context Protocol over streamable HTTP, or a batch,
/// without MCP sessions. A request is answered with 200, a notification with 202.
#[utoipa::path(
    post,
    path = "/mcp/{memory_store_id}",
    operation_id = "mcp.of_store",
    request_body(
        content = Object,
        description = "A JSON-RPC message.",
        example = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
    ),
    responses(
        (status = 200, description = "The JSON-RPC response, or a list of those of a batch.", body = Value),
        (status = 202, description = "The notification was accepted."),
        (status = 400, description = "The message is not valid in MCP.", body = Object),
    ),
)]
pub(crate) async fn of_store(
    State(engine): State<Engine>,
    Extension(service): Extension<HttpService>,
    Extension(holder): Extension<Holder>,
    Path(store_id): Path<StoreId>,
    request: ReceivedRequest,
) -> Result<Response, ApiError> {
    let store = engine.stores.get(&request.principal, store_id).await?;
    let slugs = [slug_of(&store.name, &[])];
    answer(&service, store_id.into(), slugs.into(), holder, request).await
}

async fn answer(
    service: &HttpService,
    mounts: Mounts,
    slugs: Arc<[String]>,
    Holder(held): Holder,
    ReceivedRequest { principal, head, bytes, .. }: ReceivedRequest,
) -> Result<Response, ApiError> {
    let principal = Arc::new(principal.over_mcp());
    let access = Access { principal, mounts, slugs, held: Some(held) };
    let mut response = service.answer(access, head, bytes).await?.map(Body::new);
    let status = response.status();
    if status.is_client_error() || status.is_server_error() {
        if response.headers().get(header::CONTENT_TYPE) != Some(&JSON) {
            return Err(refusal(status));
        }
        response.extensions_mut().insert(ForeignErrorFormat);
    }
    Ok(response)
}

/// The request was refused before MCP parsed a message.
fn refusal(status: StatusCode) -> ApiError {
    match status {
        StatusCode::FORBIDDEN => ApiError::permission_denied(
            "the `Host` header is not allowed: see server.mcp_allowed_hosts".to_owned(),
        ),
        StatusCode::METHOD_NOT_ALLOWED => ApiError::method_not_allowed(),
        status if status.is_client_error() => ApiError::invalid_request(
            "the body is not a JSON-RPC message of MCP, or a header of MCP is invalid",
        ),
        _ => ApiError::internal(),
    }
}
