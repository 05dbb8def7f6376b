//! The API reference, for programs and for people.

use axum::http::header;
use axum::response::{Html, IntoResponse};

use crate::{openapi, reference};

/// Allows only resources that are inline in the page.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'";

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
        [(header::CONTENT_SECURITY_POLICY, POLICY)],
        Html(reference::page()),
    )
}
