//! Every route, and what is answered where there is none.

mod health;
mod memory_stores;
mod tool_calls;

use axum::Router;
use axum::routing::{get, post};
use keepsake_engine::Engine;

use crate::error::ApiError;

/// Routes that need a credential, below `/v1`.
pub(crate) fn v1() -> Router<Engine> {
    Router::new()
        .route("/memory_stores", post(memory_stores::create))
        .route("/memory_stores/{memory_store_id}", get(memory_stores::retrieve))
        .route(
            "/memory_stores/{memory_store_id}/tool_calls",
            post(tool_calls::call),
        )
}

/// Routes for probes.
pub(crate) fn health() -> Router<Engine> {
    Router::new()
        .route("/livez", get(health::live))
        .route("/readyz", get(health::ready))
}

pub(crate) async fn no_such_route() -> ApiError {
    ApiError::not_found("there is no such route")
}

pub(crate) async fn no_such_method() -> ApiError {
    ApiError::method_not_allowed()
}
