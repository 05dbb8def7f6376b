//! The outermost layer: names the request, bounds it, writes its error.

use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use keepsake_core::id::RequestId;
use keepsake_engine::Engine;
use serde::Serialize;
use tracing::Instrument;

use crate::auth::{WORKSPACE, Workspace};
use crate::error::{ApiError, Details};

#[derive(Serialize)]
struct Envelope<'a> {
    r#type: &'static str,
    error: ErrorObject<'a>,
    request_id: &'a str,
}

#[derive(Serialize)]
struct ErrorObject<'a> {
    r#type: &'static str,
    message: &'a str,
    #[serde(flatten)]
    details: Option<&'a Details>,
}

/// Runs a request with its id, which every answer, log line and error carries.
pub(crate) async fn wrap(
    State((engine, deadline)): State<(Engine, Duration)>,
    mut request: Request,
    next: Next,
) -> Response {
    let workspace = Workspace::default();
    request.extensions_mut().insert(workspace.clone());
    let request_id = RequestId::from_uuid(engine.new_uuid()).to_string();
    let span = tracing::info_span!(
        "http.request",
        request.id = request_id,
        tenant.id = tracing::field::Empty
    );
    let answered = tokio::time::timeout(deadline, next.run(request).instrument(span)).await;
    let mut response = answered.unwrap_or_else(|_| ApiError::timed_out().into_response());
    if response.status().is_client_error() || response.status().is_server_error() {
        response = enveloped(response, &request_id);
    }
    if let Ok(value) = HeaderValue::try_from(request_id) {
        response.headers_mut().insert("request-id", value);
    }
    if let Some(value) = workspace.get() {
        response.headers_mut().insert(WORKSPACE, value.clone());
    }
    response
}

/// Gives an error its body; one that is not ours (a rejection of the framework)
/// is told by its status.
fn enveloped(mut response: Response, request_id: &str) -> Response {
    let error = response
        .extensions_mut()
        .remove::<ApiError>()
        .unwrap_or_else(|| match response.status() {
            StatusCode::NOT_FOUND => ApiError::not_found("there is nothing here"),
            StatusCode::METHOD_NOT_ALLOWED => ApiError::method_not_allowed(),
            status if status.is_client_error() => {
                ApiError::invalid_request("the request could not be understood")
            }
            _ => ApiError::internal(),
        });
    let body = Envelope {
        r#type: "error",
        error: ErrorObject {
            r#type: error.kind,
            message: &error.message,
            details: error.details.as_deref(),
        },
        request_id,
    };
    let mut enveloped = (error.status, Json(body)).into_response();
    for (name, value) in response.headers() {
        if !matches!(name.as_str(), "content-type" | "content-length") {
            enveloped.headers_mut().insert(name, value.clone());
        }
    }
    enveloped
}
