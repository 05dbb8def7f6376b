//! The outermost layer: assigns the request id, limits the request, writes its
//! error, and records it in log, metrics and trace.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use keepsake_console::{ErrorFrame, IsPage, RefusedForm, error_page, is_console};
use keepsake_core::StoreId;
use keepsake_core::id::RequestId;
use keepsake_engine::Engine;
use keepsake_index::Auditor;
use keepsake_telemetry::trace;
use serde::Serialize;
use tokio::time::Instant;
use tracing::{Instrument, Span};

use crate::answer::Json;
use crate::auth::{WORKSPACE, Workspace};
use crate::console::refused::FormSlot;
use crate::error::{ApiError, ErrorObject};
use crate::listener::OverConnectionLimit;
use crate::routes::sign_in::SignIn;
use crate::{Lifecycle, ServerOptions};

/// Maximum bytes of path and query; every route and cursor needs less.
const MAX_URI_BYTES: usize = 8 << 10;
/// Maximum total bytes of the names and values of all headers.
const MAX_HEADERS_BYTES: usize = 16 << 10;
/// Health probes, exempt from connection limits.
const PROBES: [&str; 2] = ["/livez", "/readyz"];
/// Polled routes, logged at debug level.
const POLLED_ROUTES: [&str; 3] = ["/livez", "/readyz", "/metrics"];
/// Headers that may carry a credential.
const CREDENTIAL_HEADERS: &str = "authorization, x-api-key, cookie";
/// The store's place in a route.
const STORE_SEGMENT: &str = "{memory_store_id}";
const NO_ROUTE: &str = "none";

/// When the request must have ended; also the limit for reading its body.
#[derive(Debug, Clone, Copy)]
struct Deadline(Instant);

/// `None` outside of [`wrap`].
pub(crate) fn deadline_of(head: &Parts) -> Option<Instant> {
    head.extensions.get().map(|Deadline(deadline)| *deadline)
}

/// The process's state that every request of a listener needs.
#[derive(Debug)]
pub(crate) struct Process {
    engine: Engine,
    deadline: Duration,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) sign_in: SignIn,
}

pub(crate) type SharedProcess = Arc<Process>;

impl Process {
    pub(crate) fn serving(engine: Engine, options: &ServerOptions, lifecycle: Lifecycle) -> SharedProcess {
        let (deadline, sign_in) = (options.request_deadline, options.sign_in.clone());
        Arc::new(Self { engine, deadline, lifecycle, sign_in })
    }
}

/// Marks an error answer in the form of another protocol, whose body this layer keeps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ForeignErrorFormat;

#[derive(Serialize)]
struct Envelope<'a> {
    r#type: &'static str,
    error: ErrorObject<'a>,
    request_id: &'a str,
}

/// Assigns the request id, which is in every answer, log line and error.
///
/// This is the only layer around all routes: axum copies each layer of a route, with all layers
/// inside it, for every request.
pub(crate) async fn wrap(State(serving): State<SharedProcess>, mut request: Request, next: Next) -> Response {
    let engine = &serving.engine;
    let workspace = Workspace::default();
    request.extensions_mut().insert(workspace.clone());
    let deadline = Instant::now() + serving.deadline;
    request.extensions_mut().insert(Arc::clone(&serving));
    request.extensions_mut().insert(Deadline(deadline));
    let request_id = RequestId::from_uuid(engine.new_uuid()).to_string();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or(NO_ROUTE, MatchedPath::as_str);
    let store_id = store_of(route, request.uri().path());
    let method = request.method().clone();
    let is_page = is_console(request.uri().path());
    let form = (is_page && request.method() == Method::POST).then(|| Form::of(&mut request));
    // A command reports its outcome to the user itself.
    let is_quiet =
        POLLED_ROUTES.contains(&route) || request.extensions().get() == Some(&Auditor::OperatorCli);
    let measured = engine.metrics().request_began(&method, route);
    let traced = trace_span(&method, route);
    let trace_id = trace::join(&traced, request.headers());
    // The parent span belongs to the trace and is not in the log.
    let span = traced.in_scope(|| {
        tracing::info_span!(
            "http.request",
            request.id = request_id,
            trace_id,
            tenant.id = tracing::field::Empty
        )
    });
    let mut response = match check(&request) {
        Ok(()) => {
            let answered = answer(request, next, deadline).instrument(span.clone());
            answered.instrument(traced.clone()).await
        }
        Err(error) => error.into_response(),
    };
    if let Some(kind) = response.extensions().get().and_then(ApiError::conflict_kind) {
        engine.metrics().conflicted(kind);
    }
    let status = response.status();
    let took = measured.ended(status);
    span.in_scope(|| log_end(&method, route, status, took, is_quiet));
    trace::answered(&traced, status);
    if let Some(tenant_id) = workspace.get().and_then(|value| value.to_str().ok()) {
        trace::of_tenant(&traced, tenant_id);
    }
    if let Some(store_id) = store_id {
        trace::of_store(&traced, store_id);
    }
    let is_error = response.status().is_client_error() || response.status().is_server_error();
    let extensions = response.extensions();
    let has_own_form =
        extensions.get::<ForeignErrorFormat>().is_some() || extensions.get::<IsPage>().is_some();
    if is_error && !has_own_form {
        response = enveloped(response, &request_id, is_page, form.as_ref());
    }
    if let Some(form) = form {
        response = form.slot.until_sent(response);
    }
    if let Ok(value) = HeaderValue::try_from(request_id) {
        response.headers_mut().insert("request-id", value);
    }
    if let Some(value) = workspace.get() {
        response.headers_mut().insert(WORKSPACE, value.clone());
    }
    keep_out_of_shared_caches(response.headers_mut());
    response
}

/// A form sent to the console. A refusal returns its text to the person.
struct Form {
    slot: FormSlot,
    path: String,
    /// Whether the browser's headers say that a page of the console sent the form.
    is_own: bool,
}

impl Form {
    fn of(request: &mut Request) -> Self {
        let slot = FormSlot::default();
        request.extensions_mut().insert(slot.clone());
        let is_own = RefusedForm::is_own(request.headers());
        Self { slot, path: request.uri().path().to_owned(), is_own }
    }
}

/// Forbids caches to store the answer, unless the answer declares itself public.
///
/// A shared cache does not know that `x-api-key` is a credential. Errors are private too: a cached
/// refusal would answer another tenant.
fn keep_out_of_shared_caches(headers: &mut HeaderMap) {
    let is_public =
        headers.get(header::CACHE_CONTROL).is_some_and(|value| value.as_bytes().starts_with(b"public"));
    if !is_public {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
        headers.insert(header::VARY, HeaderValue::from_static(CREDENTIAL_HEADERS));
    }
}

/// The store that the path names where its route has one; nothing else of the path, which a client
/// made up.
fn store_of(route: &str, path: &str) -> Option<StoreId> {
    let mut segments = route.split('/').zip(path.split('/'));
    segments.find(|(name, _)| *name == STORE_SEGMENT).and_then(|(_, store_id)| store_id.parse().ok())
}

/// Names the route, never the path.
fn trace_span(method: &Method, route: &str) -> Span {
    tracing::debug_span!(
        "http.server",
        otel.name = format!("{method} {route}"),
        otel.kind = "server",
        http.request.method = %method,
        http.route = route,
    )
}

fn log_end(method: &Method, route: &str, status: StatusCode, took: Duration, is_quiet: bool) {
    let (status, latency_ms) = (status.as_u16(), took.as_secs_f64() * 1_000.0);
    if status >= 500 {
        tracing::warn!(http.method = %method, http.route = route, http.status = status, latency_ms, "http.request ended");
    } else if is_quiet {
        tracing::debug!(http.method = %method, http.route = route, http.status = status, latency_ms, "http.request ended");
    } else {
        tracing::info!(http.method = %method, http.route = route, http.status = status, latency_ms, "http.request ended");
    }
}

/// Refuses a request that is too large for any route, or whose connection is over the limit.
fn check(request: &Request) -> Result<(), ApiError> {
    let uri = request.uri();
    let is_probe = PROBES.contains(&uri.path());
    if request.extensions().get::<OverConnectionLimit>().is_some() && !is_probe {
        return Err(ApiError::too_many_connections());
    }
    if uri.path().len() + uri.query().map_or(0, str::len) > MAX_URI_BYTES {
        return Err(ApiError::too_large(StatusCode::URI_TOO_LONG, "the URL is", MAX_URI_BYTES));
    }
    let headers = request.headers().iter();
    let headers_bytes: usize = headers.map(|(name, value)| name.as_str().len() + value.len()).sum();
    if headers_bytes > MAX_HEADERS_BYTES {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return Err(ApiError::too_large(status, "the request's headers are", MAX_HEADERS_BYTES));
    }
    Ok(())
}

/// Runs a request until its deadline; a panic ends only this request.
async fn answer(request: Request, next: Next, deadline: Instant) -> Response {
    // A panic leaves no lock held. The process's panic hook has logged the place without the
    // payload.
    let caught = AssertUnwindSafe(next.run(request)).catch_unwind();
    match tokio::time::timeout_at(deadline, caught).await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => ApiError::internal().into_response(),
        Err(_) => ApiError::timed_out().into_response(),
    }
}

/// Writes the body of an error, as JSON or as a page of the console. An error that the framework
/// made gets a message by its status.
fn enveloped(mut response: Response, request_id: &str, is_page: bool, form: Option<&Form>) -> Response {
    let error = response.extensions_mut().remove::<ApiError>().unwrap_or_else(|| match response.status() {
        StatusCode::NOT_FOUND => ApiError::not_found("the resource was not found"),
        StatusCode::METHOD_NOT_ALLOWED => ApiError::method_not_allowed(),
        status if status.is_client_error() => {
            ApiError::invalid_request("the request could not be understood")
        }
        _ => ApiError::internal(),
    });
    let body = Envelope { r#type: "error", error: error.object(), request_id };
    let mut enveloped = if is_page {
        let refused = form.and_then(|form| form.slot.refused(&form.path, form.is_own));
        let is_own_form = form.is_some_and(|form| form.is_own);
        let frame = response.extensions_mut().remove::<ErrorFrame>();
        error_page(error.status, &error.message, request_id, is_own_form, refused.as_ref(), frame)
    } else {
        (error.status, Json(body)).into_response()
    };
    let headers = enveloped.headers_mut();
    for name in response.headers().keys() {
        if matches!(name.as_str(), "content-type" | "content-length") {
            continue;
        }
        headers.remove(name);
        // There may be several cookies.
        for value in response.headers().get_all(name) {
            headers.append(name, value.clone());
        }
    }
    enveloped
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, Bytes};
    use axum::routing::{get, post};
    use axum::{Extension, Router};
    use http_body_util::BodyExt;
    use keepsake_engine::EngineOptions;
    use keepsake_index::{Index, SqliteIndex};
    use serde_json::Value;
    use tower::ServiceExt;

    use super::*;

    async fn panicking() -> &'static str {
        panic!("what a memory holds")
    }

    async fn typed(Extension(form): Extension<FormSlot>) -> &'static str {
        form.keep(Bytes::from_static(b"name=what+was+typed"));
        std::future::pending().await
    }

    #[tokio::test]
    async fn panic_or_endless_handler_ends_one_request_without_details() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("index.db").display());
        let index = Index::from(SqliteIndex::open(&url).await.unwrap());
        let engine = Engine::new(index, None, EngineOptions::default());
        let options =
            ServerOptions { request_deadline: Duration::from_millis(50), ..ServerOptions::default() };
        let serving = Process::serving(engine, &options, Lifecycle::default());
        let router: Router = Router::new()
            .route("/panic", get(panicking))
            .route("/endless", get(std::future::pending::<&'static str>))
            .route("/console/stores", post(typed))
            .layer(axum::middleware::from_fn_with_state(serving, wrap));
        for (path, status, kind) in [("/panic", 500, "api_error"), ("/endless", 504, "timeout_error")] {
            let request = Request::get(path).body(Body::empty()).unwrap();
            let (parts, body) = router.clone().oneshot(request).await.unwrap().into_parts();
            let body: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
            assert_eq!(parts.headers["request-id"], body["request_id"].as_str().unwrap());
            assert_eq!((parts.status.as_u16(), body["error"]["type"].as_str()), (status, Some(kind)));
            assert!(!body.to_string().contains("what a memory holds"), "{body}");
        }
        for (site, is_shown) in [("same-origin", true), ("cross-site", false)] {
            let form = Request::post("/console/stores").header("sec-fetch-site", site);
            let page = router.clone().oneshot(form.body(Body::empty()).unwrap()).await.unwrap();
            let page = page.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(str::from_utf8(&page).unwrap().contains("what was typed"), is_shown, "{site}");
        }
    }
}
