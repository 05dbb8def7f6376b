//! Health probes: liveness and readiness.

use axum::extract::State;
use axum::{Extension, Json};
use keepsake_engine::Engine;
use serde::Serialize;
use utoipa::ToSchema;

use crate::Lifecycle;
use crate::error::ApiError;

/// What the readiness probe tells; nothing of the deployment's inside.
#[derive(Serialize, ToSchema)]
pub(crate) struct Ready {
    /// `ok`, or `disk_full`: reads are served, writes are answered 507.
    index: &'static str,
    /// `ok`, `unavailable`, `access_denied` (the server's credentials are refused), `misconfigured` (no such bucket),
    /// `disk_full`; none is a reason to take a replica out.
    blobs: &'static str,
}

/// Is the process alive
#[utoipa::path(
    get,
    path = "/livez",
    operation_id = "health.live",
    tag = "Health",
    responses((status = 200, description = "It is.", body = String, content_type = "text/plain")),
)]
pub(crate) async fn live() -> &'static str {
    "ok"
}

/// Can the process serve
///
/// 503 while the index cannot, and once the process is about to end. An unreachable object store is told, but is no
/// reason to take a replica out: every one of them would go, and cached content
/// could be read from none.
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "health.ready",
    tag = "Health",
    responses((status = 200, description = "It can.", body = Ready)),
)]
pub(crate) async fn ready(
    State(engine): State<Engine>,
    Extension(lifecycle): Extension<Lifecycle>,
) -> Result<Json<Ready>, ApiError> {
    if lifecycle.draining.is_cancelled() {
        return Err(ApiError::draining());
    }
    let readiness = engine.readiness().await;
    if !readiness.has_index() {
        return Err(ApiError::not_ready());
    }
    Ok(Json(Ready {
        index: readiness.index.name(),
        blobs: readiness.blobs.name(),
    }))
}
