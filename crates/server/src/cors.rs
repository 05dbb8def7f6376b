//! Requests of web pages to MCP.
//!
//! A browser first sends a preflight, which has no credential, and shows a page of another origin
//! only answers that name this origin. Cookies are never allowed: such a page sends its own
//! credential.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::McpOptions;
use crate::error::ApiError;

/// MCP has only POST. The others are listed so that pages can read their refusal.
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");
/// How long browsers may keep the answer to a preflight; most browsers cap it at this value.
const MAX_AGE_SECONDS: HeaderValue = HeaderValue::from_static("7200");
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "anthropic-workspace-id, mcp-protocol-version, mcp-session-id, request-id, retry-after, www-authenticate, \
     x-should-retry",
);

/// Answers preflights, lets pages of allowed origins read every answer, and refuses requests of
/// other origins.
pub(crate) async fn allow(
    State(options): State<Arc<McpOptions>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let Some(origin) = request.headers().get(header::ORIGIN).cloned() else {
        return Ok(next.run(request).await);
    };
    if !origin.to_str().is_ok_and(|origin| options.allows_origin(origin)) {
        let rule = "pages of this `Origin` may not use MCP: see server.mcp_allowed_origins";
        return Err(ApiError::permission_denied(rule));
    }
    let is_preflight = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if is_preflight { preflight(request.headers()) } else { next.run(request).await };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    Ok(response)
}

fn preflight(asked: &HeaderMap) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE_SECONDS);
    // MCP clients send additional headers, which differ by version.
    if let Some(names) = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    response
}
