//! Health probes: liveness and readiness.

use axum::Extension;
use axum::extract::State;
use keepsake_engine::Engine;
use serde::Serialize;
use utoipa::ToSchema;

use crate::answer::{Answer, Json};
use crate::envelope::SharedProcess;
use crate::error::ApiError;

/// The result of the readiness probe, without details of the deployment.
#[derive(Serialize, ToSchema)]
pub(crate) struct Ready {
    /// `ok`, or `disk_full`: reads work, and writes are refused with 507.
    index: &'static str,
    /// `ok`, `unavailable`, `access_denied` (the server's credentials are
    /// refused), `misconfigured` (no such bucket), `disk_full`. None of them
    /// makes the replica unready.
    blobs: &'static str,
    /// `ok`, or `late`: for three minutes, this replica wrote no access times or sent no
    /// heartbeat. It does not make the replica unready.
    upkeep: &'static str,
}

/// Check that the process is alive
#[utoipa::path(
    get,
    path = "/livez",
    operation_id = "health.live",
    responses((status = 200, description = "The process is alive.", body = String, content_type = "text/plain")),
)]
pub(crate) async fn live() -> &'static str {
    "ok"
}

/// Check that the process is ready
///
/// 503 while the index is unavailable and once shutdown has begun. An
/// unreachable object store is reported but does not make the replica unready:
/// otherwise all replicas would be removed, although they can serve cached
/// content.
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "health.ready",
    responses((status = 200, description = "The process is ready.", body = Ready)),
)]
pub(crate) async fn ready(
    State(engine): State<Engine>,
    Extension(serving): Extension<SharedProcess>,
) -> Answer<Ready> {
    if serving.lifecycle.draining.is_cancelled() {
        return Err(ApiError::draining());
    }
    let readiness = engine.health.check().await;
    if !readiness.has_index() {
        return Err(ApiError::not_ready());
    }
    Ok(Json(Ready {
        index: readiness.index.name(),
        blobs: readiness.blobs.name(),
        upkeep: if readiness.is_upkeep_late { "late" } else { "ok" },
    }))
}
