//! The API reference, for programs and for people.

use axum::http::header;
use axum::response::{Html, IntoResponse, Response};
use keepsake_console::asset;

use crate::openapi;
use crate::reference;

/// Allows only the page's own style sheet and script.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// This document
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "reference.document",
    responses((status = 200, description = "An OpenAPI 3.1 document.", body = Object)),
)]
pub(crate) async fn document() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], openapi::text())
}

/// This document as an HTML page
#[utoipa::path(
    get,
    path = "/docs",
    operation_id = "reference.page",
    responses((status = 200, description = "A page.", body = String, content_type = "text/html")),
)]
pub(crate) async fn page() -> impl IntoResponse {
    (
        [
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
        ],
        Html(reference::page()),
    )
}

pub(crate) async fn style() -> Response {
    asset(reference::STYLE.media_type, reference::STYLE.text)
}

pub(crate) async fn script() -> Response {
    asset(reference::SCRIPT.media_type, reference::SCRIPT.text)
}
