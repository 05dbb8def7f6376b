//! The operator's routes: tenants, their keys and limits, usage, jobs, audit.
//!
//! These routes have a separate listener and token and are never served beside the public routes.
//! Requests, errors and pages have the same form as those of the public routes.

mod api_keys;
mod audit;
mod body;
mod jobs;
mod tenants;
mod token_keys;

use std::convert::Infallible;
use std::fmt;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, OriginalUri, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http_body_util::BodyExt;
use keepsake_core::ContentHash;
use keepsake_engine::Engine;
use keepsake_index::Auditor;
use keepsake_telemetry::Exposition;
use serde_json::Value;
use subtle::ConstantTimeEq;
use tower::ServiceExt;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{bearer, only};
use crate::console::operator_console;
use crate::envelope::{self, Process};
use crate::error::ApiError;
use crate::routes::{no_such_method, no_such_route, other_route, probes};
use crate::{Lifecycle, ServerOptions};

/// Holds only the hash of the token.
#[derive(Clone, Copy)]
pub struct OperatorToken([u8; 32]);

impl OperatorToken {
    pub const MIN_CHARS: usize = 32;

    /// `None`: the secret has fewer than [`Self::MIN_CHARS`] characters.
    pub fn new(secret: &str) -> Option<Self> {
        (secret.chars().count() >= Self::MIN_CHARS).then(|| Self(hash(secret)))
    }

    /// Compares hashes in constant time.
    pub(crate) fn is(&self, presented: &str) -> bool {
        self.0.ct_eq(&hash(presented)).into()
    }
}

impl fmt::Debug for OperatorToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OperatorToken(***)")
    }
}

fn hash(secret: &str) -> [u8; 32] {
    *ContentHash::of(secret.as_bytes()).as_bytes()
}

#[derive(Debug, Clone)]
pub struct OperatorOptions {
    pub token: OperatorToken,
    pub exposition: Exposition,
    /// Whether `/metrics` needs no token.
    pub metrics_without_token: bool,
    pub server: ServerOptions,
}

/// The engine, and the operator as the audit names it: the holder of the token, unless a local command
/// with database access made the request.
struct OperatorCaller(Engine, Auditor);

impl FromRequestParts<Engine> for OperatorCaller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, engine: &Engine) -> Result<Self, Infallible> {
        Ok(Self(engine.clone(), parts.extensions.get().cloned().unwrap_or(Auditor::Operator)))
    }
}

/// Answers a local command's request to the operator's routes, in process, without listener and
/// token. `path` is the part after `/admin/v1`.
pub async fn operator_call(
    engine: &Engine,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, OperatorCallError> {
    let broken = || OperatorCallError {
        status: StatusCode::INTERNAL_SERVER_ERROR,
        message: "the request could not be made".to_owned(),
    };
    let (operations, _) = v1().split_for_parts();
    let router = Router::new()
        .nest("/admin/v1", operations)
        .layer(middleware::from_fn_with_state(
            Process::serving(engine.clone(), &ServerOptions::default(), Lifecycle::default()),
            envelope::wrap,
        ))
        .with_state(engine.clone());
    let request = Request::builder()
        .method(method)
        .uri(format!("/admin/v1{path}"))
        .header(header::CONTENT_TYPE, "application/json")
        .extension(Auditor::OperatorCli)
        .body(body.map_or_else(Body::empty, |body| Body::from(body.to_string())))
        .map_err(|_| broken())?;
    let Ok(response) = router.oneshot(request).await;
    let status = response.status();
    let bytes = response.into_body().collect().await.map_err(|_| broken())?.to_bytes();
    let answer: Value = serde_json::from_slice(&bytes).map_err(|_| broken())?;
    if status.is_success() {
        return Ok(answer);
    }
    let message = answer["error"]["message"].as_str().unwrap_or_default().to_owned();
    Err(OperatorCallError { status, message })
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorCallError {
    pub status: StatusCode,
    pub message: String,
}

pub fn operator_router(engine: Engine, options: &OperatorOptions, lifecycle: Lifecycle) -> Router {
    let (authenticated, _) = v1().split_for_parts();
    // A worker has no other listener.
    let (probes, _) = probes().split_for_parts();
    // Also around the fallbacks: without the token no client learns which
    // routes exist.
    let authenticated = authenticated
        .fallback(no_such_route)
        .method_not_allowed_fallback(no_such_method)
        .layer(middleware::from_fn_with_state(options.token, require));
    Router::new()
        .nest("/admin/v1", authenticated)
        .merge(probes)
        .merge(metrics(options))
        .merge(operator_console(&engine, options))
        .fallback(not_of_operator)
        .method_not_allowed_fallback(no_such_method)
        .layer(middleware::from_fn_with_state(
            Process::serving(engine.clone(), &options.server, lifecycle),
            envelope::wrap,
        ))
        .with_state(engine)
}

/// Routes that need the token, below `/admin/v1`.
fn v1() -> OpenApiRouter<Engine> {
    OpenApiRouter::new()
        .routes(routes!(tenants::create, tenants::list))
        .routes(routes!(tenants::retrieve, tenants::update, tenants::delete))
        .routes(routes!(tenants::suspend))
        .routes(routes!(tenants::resume))
        .routes(routes!(tenants::usage))
        .routes(routes!(tenants::deletion))
        .routes(routes!(api_keys::create, api_keys::list))
        .routes(routes!(api_keys::retrieve))
        .routes(routes!(api_keys::revoke))
        .routes(routes!(jobs::list))
        .routes(routes!(jobs::runs))
        .routes(routes!(jobs::run))
        .routes(routes!(token_keys::rotate))
        .routes(routes!(audit::of_tenant))
        .routes(routes!(audit::of_operator))
}

/// `GET /metrics`, for Prometheus; it needs the operator's token unless configured otherwise.
fn metrics(options: &OperatorOptions) -> Router<Engine> {
    let route = get(read_metrics).with_state(options.exposition.clone());
    let route = if options.metrics_without_token {
        route
    } else {
        route.layer(middleware::from_fn_with_state(options.token, require))
    };
    Router::new().route("/metrics", route)
}

async fn read_metrics(State(exposition): State<Exposition>) -> Response {
    match exposition.text() {
        Some(text) => ([(header::CONTENT_TYPE, Exposition::CONTENT_TYPE)], text).into_response(),
        None => ApiError::internal().into_response(),
    }
}

/// Answers for the operator's listener when the route is a public one or does not exist.
async fn not_of_operator(uri: OriginalUri, method: Method, headers: HeaderMap) -> Result<Response, ApiError> {
    let public = ["/v1/", "/mcp", "/openapi.json", "/docs"];
    let is_public = public.iter().any(|prefix| uri.path().starts_with(prefix));
    let hint = "this is the operator's listener: the route is on the public one (server.listen)";
    other_route(&uri, &method, &headers, is_public.then_some(hint))
}

pub(crate) fn described() -> OpenApi {
    OpenApiRouter::<Engine>::new().nest("/admin/v1", v1()).merge(probes()).into_openapi()
}

pub(crate) async fn require(State(token): State<OperatorToken>, request: Request, next: Next) -> Response {
    let authorization = match only(request.headers(), header::AUTHORIZATION.as_str()) {
        Ok(authorization) => authorization,
        Err(error) => return error.into_response(),
    };
    match authorization.and_then(bearer) {
        Some(presented) if token.is(presented) => next.run(request).await,
        Some(_) => ApiError::unauthenticated("this is not the operator's token").into_response(),
        None => ApiError::unauthenticated("no token: send the operator's as `authorization: Bearer`")
            .into_response(),
    }
}
