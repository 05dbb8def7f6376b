//! Every route, and the answers for unknown routes.

pub(crate) mod api_keys;
pub(crate) mod audit;
mod changes;
mod deleted;
pub(crate) mod erasures;
pub(crate) mod exports;
pub(crate) mod health;
mod imports;
pub(crate) mod list;
mod mcp;
mod memories;
pub(crate) mod memory_stores;
pub(crate) mod memory_versions;
mod readers;
mod reference;
mod search;
pub(crate) mod sessions;
pub(crate) mod sign_in;
mod tool_calls;
mod undos;
mod usage;

use axum::extract::OriginalUri;
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use axum::routing::get;
use keepsake_engine::Engine;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::console::front_page;
use crate::error::ApiError;

/// Below `/v1`; these routes need a credential.
pub(crate) fn v1() -> OpenApiRouter<Engine> {
    OpenApiRouter::new()
        .routes(routes!(memory_stores::create, memory_stores::list))
        .routes(routes!(memory_stores::retrieve, memory_stores::update, memory_stores::delete))
        .routes(routes!(memory_stores::archive))
        .routes(routes!(exports::export))
        .routes(routes!(imports::import))
        .routes(routes!(undos::create))
        .routes(routes!(undos::retrieve, undos::cancel))
        .routes(routes!(undos::restore))
        .routes(routes!(memory_stores::test))
        .routes(routes!(usage::retrieve))
        .routes(routes!(usage::daily))
        .routes(routes!(memory_stores::diff))
        .routes(routes!(memories::create, memories::list))
        .routes(routes!(memories::batch::carry_out))
        .routes(routes!(memories::list_deleted))
        .routes(routes!(memories::retrieve, memories::update, memories::delete))
        .routes(routes!(search::search))
        .routes(routes!(search::search_stores))
        .routes(routes!(memory_versions::list))
        .routes(routes!(memory_versions::retrieve))
        .routes(routes!(memory_versions::redact))
        .routes(routes!(memory_versions::restore))
        .routes(routes!(readers::of_store))
        .routes(routes!(changes::list))
        .routes(routes!(changes::stream))
        .routes(routes!(tool_calls::call))
        .routes(routes!(tool_calls::list))
        .routes(routes!(sessions::create, sessions::list))
        .routes(routes!(sessions::retrieve, sessions::update, sessions::delete))
        .routes(routes!(sessions::archive))
        .routes(routes!(sessions::token))
        .routes(routes!(sessions::call_tool))
        .routes(routes!(readers::of_session))
        .routes(routes!(sessions::events::list))
        .routes(routes!(sessions::events::stream))
        .routes(routes!(sessions::resources::add, sessions::resources::list))
        .routes(routes!(
            sessions::resources::retrieve,
            sessions::resources::update,
            sessions::resources::delete
        ))
        .routes(routes!(api_keys::create, api_keys::list))
        .routes(routes!(api_keys::retrieve))
        .routes(routes!(api_keys::revoke))
        .routes(routes!(api_keys::retrieve_credential))
        .routes(routes!(erasures::create, erasures::list))
        .routes(routes!(erasures::retrieve))
        .routes(routes!(audit::list))
}

/// At the root; these routes need a credential.
pub(crate) fn mcp() -> OpenApiRouter<Engine> {
    OpenApiRouter::new().routes(routes!(mcp::of_session)).routes(routes!(mcp::of_store))
}

/// How MCP clients sign in. No credential is needed here and in the groups below.
pub(crate) fn sign_in() -> OpenApiRouter<Engine> {
    OpenApiRouter::new().routes(routes!(sign_in::describe))
}

pub(crate) fn probes() -> OpenApiRouter<Engine> {
    OpenApiRouter::new().routes(routes!(health::live)).routes(routes!(health::ready))
}

pub(crate) fn reference() -> OpenApiRouter<Engine> {
    OpenApiRouter::new()
        .routes(routes!(reference::document))
        .routes(routes!(reference::page))
        .route("/docs/reference.css", get(reference::style))
        .route("/docs/reference.js", get(reference::script))
}

pub(crate) fn described() -> OpenApi {
    let of_mcp = OpenApiRouter::<Engine>::new().nest("/v1", v1()).merge(mcp());
    of_mcp.merge(probes()).merge(sign_in()).merge(reference()).into_openapi()
}

const NO_SUCH_ROUTE: &str = "there is no such route";
const RUNS_NO_AGENTS: &str = "this server keeps memory, and runs no models or agents";

pub(crate) async fn no_such_route() -> ApiError {
    ApiError::not_found(NO_SUCH_ROUTE)
}

/// Answers for a route below `/v1` that does not exist; names two mistakes of users of the SDKs.
pub(crate) async fn no_such_operation(uri: OriginalUri) -> ApiError {
    let mut segments = uri.path().split('/').skip(2);
    match (segments.next().unwrap_or_default(), segments.nth(1)) {
        ("v1", _) => ApiError::not_found("there is no such route: the base URL must be without `/v1`"),
        ("messages" | "models" | "agents" | "environments", _) | ("sessions", Some("threads")) => {
            ApiError::not_found(format!("{NO_SUCH_ROUTE}: {RUNS_NO_AGENTS}"))
        }
        _ => no_such_route().await,
    }
}

/// Answers for the public listener when the route is the operator's or does not exist.
pub(crate) async fn not_public(
    uri: OriginalUri,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let is_of_operator = uri.path() == "/metrics" || uri.path().starts_with("/admin/");
    let hint = "this is the public listener: the route is on the operator's (operator.listen)";
    other_route(&uri, &method, &headers, is_of_operator.then_some(hint))
}

/// Leads from `/` to the front page; any other request is not found, with `hint` if the other listener
/// has the route.
pub(crate) fn other_route(
    uri: &OriginalUri,
    method: &Method,
    headers: &HeaderMap,
    hint: Option<&str>,
) -> Result<Response, ApiError> {
    let redirect = front_page(uri, headers).filter(|_| matches!(*method, Method::GET | Method::HEAD));
    redirect.ok_or_else(|| ApiError::not_found(hint.unwrap_or(NO_SUCH_ROUTE)))
}

pub(crate) async fn no_such_method(uri: OriginalUri) -> ApiError {
    let mut error = ApiError::method_not_allowed();
    // `sessions.events.send` of the SDKs.
    if uri.path().starts_with("/v1/sessions/") && uri.path().ends_with("/events") {
        error.message = format!("{}: {RUNS_NO_AGENTS}", error.message);
    }
    error
}
