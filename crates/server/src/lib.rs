//! The HTTP surface: who is it, what is asked, how an outcome is shown.
//!
//! A handler parses, calls one method of the engine and maps the result. The
//! order of the layers, outermost first: `envelope` names the request and
//! writes every error in one form, the deadline bounds it, `auth` finds the
//! principal for everything under `/v1`.

mod auth;
mod body;
mod envelope;
mod error;
mod openapi;
mod path;
mod precondition;
mod query;
mod reference;
mod routes;
mod schemas;

use std::time::Duration;

use axum::Router;
use axum::serve::ListenerExt;
use keepsake_engine::Engine;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// How the server behaves.
#[derive(Debug, Clone, Copy)]
pub struct ServerOptions {
    /// How long a request may take before it is answered 504.
    pub request_deadline: Duration,
    /// How long requests under way may take once the server shuts down.
    pub shutdown_deadline: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            request_deadline: Duration::from_mins(1),
            shutdown_deadline: Duration::from_secs(30),
        }
    }
}

/// Every route of the public listener.
pub fn router(engine: Engine, options: &ServerOptions) -> Router {
    let (authenticated, _) = routes::v1().split_for_parts();
    let (public, _) = routes::public().split_for_parts();
    // Around the fallbacks too: who sends a credential is told its tenant even
    // where there is nothing.
    let authenticated = authenticated
        .fallback(routes::no_such_route)
        .method_not_allowed_fallback(routes::no_such_method)
        .layer(axum::middleware::from_fn_with_state(
            engine.clone(),
            auth::require,
        ));
    Router::new()
        .nest("/v1", authenticated)
        .merge(public)
        .fallback(routes::no_such_route)
        .method_not_allowed_fallback(routes::no_such_method)
        .layer(axum::middleware::from_fn_with_state(
            (engine.clone(), options.request_deadline),
            envelope::wrap,
        ))
        .with_state(engine)
}

/// The OpenAPI document of every route, pretty printed, with a last newline.
pub fn openapi() -> &'static str {
    openapi::text()
}

/// Serves until `shutdown`, then finishes what is under way up to a deadline.
///
/// # Errors
/// [`std::io::Error`] when the listener fails.
pub async fn serve(
    engine: Engine,
    listener: TcpListener,
    options: ServerOptions,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    let router = router(engine, &options);
    // Answers are small: waiting to fill a packet would only delay them.
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(error = %error, "http.nodelay failed");
        }
    });
    let serving = axum::serve(listener, router)
        .with_graceful_shutdown(shutdown.clone().cancelled_owned())
        .into_future();
    let deadline = async {
        shutdown.cancelled().await;
        tokio::time::sleep(options.shutdown_deadline).await;
    };
    tokio::select! {
        served = serving => served,
        () = deadline => {
            tracing::warn!("http.shutdown: requests were still under way at the deadline");
            Ok(())
        }
    }
}
