//! The HTTP API: authentication, request parsing, and answers. A handler parses, calls one method
//! of the engine and maps the result.
//!
//! The layers from the outside in: `listener` limits connections; `envelope` assigns the request
//! id, limits the request and writes every error in one form; `auth` finds the principal for
//! everything under `/v1`; `admission` enforces the tenant's rate limit and its shares of requests
//! and memory. The web console (`console`) passes the same layers. The operator's routes (`admin`)
//! have a separate listener and token.

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

use keepsake_console::path;
pub use keepsake_console::{ConsoleOptions, OneTimeLinks};
pub use keepsake_mcp::HttpOptions as McpOptions;
use keepsake_mcp::HttpService;

pub use admin::{OperatorCallError, OperatorOptions, OperatorToken, operator_call, operator_router};
use admission::Admission;
use envelope::Process;
pub use listener::run;
pub use openapi::{operator_text as operator_openapi, text as openapi};
pub use routes::sign_in::SignIn;

#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// A request that runs longer is answered 504.
    pub request_deadline: Duration,
    /// Time limit for running requests at shutdown.
    pub shutdown_deadline: Duration,
    /// Authenticated requests only; one tenant gets half.
    pub max_requests_in_flight: usize,
    /// Memory of all running requests as `admission` counts it; one tenant gets at most half.
    pub max_request_memory_bytes: u64,
    pub max_connections: usize,
    /// Includes the browser origins that may use MCP.
    pub mcp: McpOptions,
    /// How MCP clients get a credential.
    pub sign_in: SignIn,
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

pub fn router(engine: Engine, options: &ServerOptions, lifecycle: Lifecycle) -> Router {
    let (v1, _) = routes::v1().split_for_parts();
    let (mcp, _) = routes::mcp().split_for_parts();
    let (sign_in, _) = routes::sign_in().split_for_parts();
    let (probes, _) = routes::probes().split_for_parts();
    let (reference, _) = routes::reference().split_for_parts();
    let admission = Arc::new(Admission::new(engine.clone(), options));
    let authenticated = |routes: Router<Engine>| {
        routes
            .method_not_allowed_fallback(routes::no_such_method)
            .layer(axum::middleware::from_fn_with_state(Arc::clone(&admission), admission::admit))
    };
    let of_pages = axum::middleware::from_fn_with_state(Arc::new(options.mcp.clone()), cors::allow);
    let mcp_service = HttpService::new(engine.clone(), options.mcp.clone());
    Router::new()
        // Layered around the fallback too: a request with a credential gets its tenant's id even
        // for an unknown route.
        .nest("/v1", authenticated(v1.fallback(routes::no_such_operation)))
        // Outside the authentication: a browser's preflight has no credential.
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
            Process::serving(engine.clone(), options, lifecycle),
            envelope::wrap,
        ))
        .with_state(engine)
}

/// Method and path of each console page that needs a sign-in.
pub fn console_pages() -> Vec<(axum::http::Method, String)> {
    let (mut pages, uploads) = console::pages(|router| router);
    pages.list.extend(uploads.list);
    pages.list
}

pub fn status_of(error: &keepsake_engine::EngineError) -> axum::http::StatusCode {
    error::ApiError::from(error).status
}

/// Serves until stopped, then finishes running requests within `shutdown_deadline`.
pub async fn serve(
    engine: Engine,
    listener: TcpListener,
    options: ServerOptions,
    lifecycle: Lifecycle,
) -> std::io::Result<()> {
    let router = router(engine, &options, lifecycle.clone());
    run(router, listener, options, lifecycle).await
}

/// [`serve`] for the operator's routes.
pub async fn serve_operator(
    engine: Engine,
    listener: TcpListener,
    options: OperatorOptions,
    lifecycle: Lifecycle,
) -> std::io::Result<()> {
    let router = operator_router(engine, &options, lifecycle.clone());
    run(router, listener, options.server, lifecycle).await
}
