//! Every route, and what is answered where there is none.

mod health;
mod list;
mod memories;
mod memory_stores;
mod memory_versions;
mod tool_calls;

use axum::Router;
use axum::routing::{get, post};
use keepsake_engine::Engine;

use crate::error::ApiError;

/// Routes that need a credential, below `/v1`.
pub(crate) fn v1() -> Router<Engine> {
    Router::new()
        .route(
            "/memory_stores",
            post(memory_stores::create).get(memory_stores::list),
        )
        .route(
            "/memory_stores/{memory_store_id}",
            get(memory_stores::retrieve)
                .post(memory_stores::update)
                .patch(memory_stores::update)
                .delete(memory_stores::delete),
        )
        .route(
            "/memory_stores/{memory_store_id}/archive",
            post(memory_stores::archive),
        )
        .route(
            "/memory_stores/{memory_store_id}/memories",
            post(memories::create).get(memories::list),
        )
        .route(
            "/memory_stores/{memory_store_id}/memories/{memory_id}",
            get(memories::retrieve)
                .post(memories::update)
                .patch(memories::update)
                .delete(memories::delete),
        )
        .route(
            "/memory_stores/{memory_store_id}/memory_versions",
            get(memory_versions::list),
        )
        .route(
            "/memory_stores/{memory_store_id}/memory_versions/{memory_version_id}",
            get(memory_versions::retrieve),
        )
        .route(
            "/memory_stores/{memory_store_id}/memory_versions/{memory_version_id}/redact",
            post(memory_versions::redact),
        )
        .route(
            "/memory_stores/{memory_store_id}/memory_versions/{memory_version_id}/restore",
            post(memory_versions::restore),
        )
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
