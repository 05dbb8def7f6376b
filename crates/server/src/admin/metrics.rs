//! `GET /metrics`, for Prometheus.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Router, middleware};
use keepsake_engine::Engine;
use keepsake_telemetry::Exposition;

use super::{OperatorOptions, require};
use crate::error::ApiError;

/// Needs the operator's token unless configured otherwise.
pub(super) fn router(options: &OperatorOptions) -> Router<Engine> {
    let route = get(read).with_state(options.exposition.clone());
    let route = if options.metrics_without_token {
        route
    } else {
        route.layer(middleware::from_fn_with_state(options.token, require))
    };
    Router::new().route("/metrics", route)
}

async fn read(State(exposition): State<Exposition>) -> Response {
    match exposition.text() {
        Some(text) => ([(header::CONTENT_TYPE, Exposition::CONTENT_TYPE)], text).into_response(),
        None => ApiError::internal().into_response(),
    }
}
