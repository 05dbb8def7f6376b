//! The HTTP API: authentication, request parsing, and answers.
//!
//! A handler parses, calls one method of the engine and maps the result. The
//! layers from the outside in: `listener` limits connections; `envelope`
//! assigns the request id, limits the request and writes every error in one
//! form; `auth` finds the principal for everything under `/v1`; `admission`
//! enforces the tenant's rate limit and its shares of requests and memory. The
//! web console (`console`) passes the same layers. The operator's routes
//! (`admin`) have a separate listener and token.

mod admin;
mod admission;
mod answer;
mod auth;
mod body;
mod console;
mod cors;
mod envelope;
mod error;
mod json_cost;
mod listener;
mod openapi;
mod path;
mod precondition;
mod query;
mod rate;
mod reference;
mod routes;
mod schemas;
mod streams;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use keepsake_engine::Engine;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use keepsake_console::{ConsoleOptions, OneTimeLinks};
pub use keepsake_mcp::HttpOptions as McpOptions;
use keepsake_mcp::HttpService;

pub use admin::{OperatorCallError, OperatorOptions, OperatorToken, operator_call, operator_router};
use admission::Admission;
use envelope::Serving;
pub use listener::run;
pub use routes::sign_in::SignIn;

/// The configuration of the server.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Time limit of a request; after that it is answered 504.
    pub request_deadline: Duration,
    /// Time limit for running requests at shutdown.
    pub shutdown_deadline: Duration,
    /// Maximum number of running authenticated requests; one tenant gets half.
    pub max_requests_in_flight: usize,
    /// Maximum bytes of memory of all running requests, as `admission` counts
    /// them; one tenant gets at most half.
    pub max_request_memory_bytes: u64,
    /// Maximum number of open connections.
    pub max_connections: usize,
    /// Options of MCP, including the allowed browser origins.
    pub mcp: McpOptions,
    /// How clients of MCP get a credential.
    pub sign_in: SignIn,
    /// How the web console is served.
    pub console: ConsoleOptions,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            request_deadline: Duration::from_mins(1),
            shutdown_deadline: Duration::from_secs(30),
            max_requests_in_flight: 1_024,
            max_request_memory_bytes: 192 << 20,
            max_connections: 2_048,
            mcp: McpOptions::default(),
            sign_in: SignIn::default(),
            console: ConsoleOptions::default(),
        }
    }
}

/// The two steps of a shutdown; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Lifecycle {
    /// When cancelled, the process reports that it is not ready but still
    /// serves. Each answer closes its connection, so that clients move to
    /// another replica.
    pub draining: CancellationToken,
    /// When cancelled, no connection is accepted any longer.
    pub stopping: CancellationToken,
}

/// Builds every route of the public listener.
pub fn router(engine: Engine, options: &ServerOptions, lifecycle: Lifecycle) -> Router {
    let (v1, _) = routes::v1().split_for_parts();
    let (mcp, _) = routes::mcp().split_for_parts();
    let (sign_in, _) = routes::sign_in().split_for_parts();
    let (probes, _) = routes::probes().split_for_parts();
    let (reference, _) = routes::reference().split_for_parts();
    let admission = Admission::new(engine.clone(), options);
    let authenticated = |routes: Router<Engine>| {
        routes
            .method_not_allowed_fallback(routes::no_such_method)
            .layer(axum::middleware::from_fn_with_state(admission.clone(), admission::admit))
    };
    let of_pages = axum::middleware::from_fn_with_state(Arc::new(options.mcp.clone()), cors::allow);
    let mcp_service = HttpService::new(engine.clone(), options.mcp.clone());
    Router::new()
        // Also around the fallback: a request with a credential gets its
        // tenant's id even for an unknown route.
        .nest("/v1", authenticated(v1.fallback(routes::no_such_route)))
        // Around the authentication: a browser asks first, without a credential.
        .merge(
            authenticated(mcp.layer(Extension(mcp_service)))
                .merge(sign_in.method_not_allowed_fallback(routes::no_such_method))
                .layer(of_pages),
        )
        .merge(console::routes(&engine, &admission, &options.console))
        .merge(probes)
        .merge(reference)
        .fallback(routes::not_public)
        .method_not_allowed_fallback(routes::no_such_method)
        .layer(axum::middleware::from_fn_with_state(
            Serving::new(engine.clone(), options, lifecycle),
            envelope::wrap,
        ))
        .with_state(engine)
}

/// The OpenAPI document of the operator's routes, in the same form.
pub fn operator_openapi() -> &'static str {
    openapi::operator_text()
}

/// The OpenAPI document of every public route, pretty printed, with a final
/// newline.
pub fn openapi() -> &'static str {
    openapi::text()
}

/// The method and the path of each page of the console that needs a sign-in.
pub fn console_pages() -> Vec<(axum::http::Method, String)> {
    let (mut pages, uploads) = console::pages(|router| router);
    pages.list.extend(uploads.list);
    pages.list
}

/// The status that an error of the engine is answered with.
pub fn status_of(error: &keepsake_engine::EngineError) -> axum::http::StatusCode {
    error::ApiError::from(error).status
}

/// Serves until stopped, then finishes running requests up to a deadline.
///
/// # Errors
/// [`std::io::Error`] when the listener fails.
pub async fn serve(
    engine: Engine,
    listener: TcpListener,
    options: ServerOptions,
    lifecycle: Lifecycle,
) -> std::io::Result<()> {
    let router = router(engine, &options, lifecycle.clone());
    run(router, listener, options, lifecycle).await
}

/// Serves the operator's routes in the same way; refuses requests without the
/// token.
///
/// # Errors
/// [`std::io::Error`] when the listener fails.
pub async fn serve_operator(
    engine: Engine,
    listener: TcpListener,
    options: OperatorOptions,
    lifecycle: Lifecycle,
) -> std::io::Result<()> {
    let router = operator_router(engine, &options, lifecycle.clone());
    run(router, listener, options.server, lifecycle).await
}
