//! Probes: is the process alive, can it serve.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use keepsake_engine::Engine;
use serde::Serialize;

/// What the readiness probe tells; nothing of the deployment's inside.
#[derive(Serialize)]
pub(crate) struct Ready {
    index: &'static str,
    blobs: &'static str,
}

/// `GET /livez`: the process answers.
pub(crate) async fn live() -> &'static str {
    "ok"
}

/// `GET /readyz`: 200 when the index can serve, 503 when not. An unreachable
/// object store is told, but is no reason to take a replica out: every one of
/// them would go, and cached content could be read from none.
pub(crate) async fn ready(State(engine): State<Engine>) -> (StatusCode, Json<Ready>) {
    let readiness = engine.readiness().await;
    let word = |is_ok: bool| if is_ok { "ok" } else { "unavailable" };
    let ready = Ready {
        index: word(readiness.index.is_ok()),
        blobs: word(readiness.blobs.is_ok()),
    };
    let status = if readiness.index.is_ok() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, Json(ready))
}
