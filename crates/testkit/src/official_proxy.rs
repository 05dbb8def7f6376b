//! A proxy before a server that makes it one of another maker: it lets only calls, parameters, headers
//! and fields pass that the official SDKs have, and shows only the fields that they know.

use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use proptest::prelude::Rng;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{listen, locked, serve};

const PARAMETERS: &str = "api_key_id beta created_at[gte] created_at[lte] depth expected_content_sha256 \
    include_archived limit memory_id operation page path_prefix session_id view";
const HEADERS: &str = "accept anthropic-beta anthropic-version authorization content-length content-type host \
    user-agent x-api-key";
/// Fields of answers that only this server has.
const OWN_FIELDS: &str = "content_also_in content_bytes content_error expires_at expires_unused_after expiry_time \
    forked_from last_accessed_at memory_count pinned records_reads search_mode sensitive_data_policy seq size_bytes \
    undoes";

fn has(names: &str, name: &str) -> bool {
    names.split(' ').any(|known| known == name)
}

/// A running proxy; stops when dropped.
#[derive(Debug)]
pub struct OfficialProxy {
    url: String,
    shared: Arc<Shared>,
    _serving: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    upstream: String,
    http: reqwest::Client,
    /// Whether answers state the hashes of contents.
    has_hashes: bool,
    /// Decides which calls fail; `None`: none does.
    faults: Option<Mutex<TestRunner>>,
    /// Calls that the official API does not have, and why.
    refused: Mutex<Vec<String>>,
}

impl OfficialProxy {
    pub async fn start(upstream: &str, has_hashes: bool, faults: Option<TestRunner>) -> Self {
        let (listener, url) = listen().await;
        let shared = Arc::new(Shared {
            upstream: upstream.to_owned(),
            http: reqwest::Client::builder().no_proxy().build().expect("no client"),
            has_hashes,
            faults: faults.map(Mutex::new),
            refused: Mutex::default(),
        });
        let router = Router::new().fallback(answer).layer(DefaultBodyLimit::disable());
        Self { url, _serving: serve(listener, router.with_state(Arc::clone(&shared))), shared }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn refused(&self) -> Vec<String> {
        locked(&self.shared.refused).clone()
    }
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    mut headers: HeaderMap,
    body: Bytes,
) -> Response {
    if let Some((status, why)) = refusal(&method, &uri, &headers, &body) {
        locked(&shared.refused).push(format!("{method} {uri} {why}"));
        return error(status, "not_found_error", &why);
    }
    // Of 256: 6 are not taken, 3 fail before, and 3 after they were carried out.
    let dice = shared.faults.as_ref().map_or(u32::MAX, |runner| locked(runner).rng().next_u32() % 256);
    match dice {
        0..6 => {
            let refused = error(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", "too many requests");
            return ([(header::RETRY_AFTER, "1")], refused).into_response();
        }
        6..9 => return error(StatusCode::INTERNAL_SERVER_ERROR, "api_error", "failed before"),
        _ => {}
    }
    for name in [header::HOST, header::CONTENT_LENGTH] {
        headers.remove(name);
    }
    let request =
        shared.http.request(method, format!("{}{uri}", shared.upstream)).headers(headers).body(body);
    let response = request.send().await.expect("the server is gone");
    let (status, body) = (response.status(), response.bytes().await.expect("the answer is cut off"));
    if (9..12).contains(&dice) {
        return error(StatusCode::INTERNAL_SERVER_ERROR, "api_error", "failed after");
    }
    let mut body: Value = serde_json::from_slice(&body).expect("the answer is no JSON");
    shared.remove_own_fields(&mut body);
    (status, Json(body)).into_response()
}

fn error(status: StatusCode, kind: &str, message: &str) -> Response {
    let body = json!({"type": "error", "error": {"type": kind, "message": message}});
    (status, Json(body)).into_response()
}

impl Shared {
    fn remove_own_fields(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.retain(|name, _| {
                    let is_hash = name == "content_sha256" && !self.has_hashes;
                    !is_hash && !has(OWN_FIELDS, name)
                });
                fields.values_mut().for_each(|value| self.remove_own_fields(value));
            }
            Value::Array(items) => items.iter_mut().for_each(|value| self.remove_own_fields(value)),
            _ => {}
        }
    }
}

/// Why a call is not one of the official API.
fn refusal(method: &Method, uri: &Uri, headers: &HeaderMap, body: &[u8]) -> Option<(StatusCode, String)> {
    let segments = uri.path().strip_prefix("/v1/").unwrap_or_default().split('/');
    let is_id =
        |segment: &str| ["memstore_", "mem_", "memver_"].iter().any(|prefix| segment.starts_with(prefix));
    let shape: Vec<_> = segments.map(|segment| if is_id(segment) { "*" } else { segment }).collect();
    let fields = match format!("{method} {}", shape.join("/")).as_str() {
        "GET memory_stores"
        | "GET memory_stores/*"
        | "GET memory_stores/*/memories"
        | "GET memory_stores/*/memories/*"
        | "GET memory_stores/*/memory_versions"
        | "GET memory_stores/*/memory_versions/*"
        | "DELETE memory_stores/*"
        | "DELETE memory_stores/*/memories/*"
        | "POST memory_stores/*/archive"
        | "POST memory_stores/*/memory_versions/*/redact" => "",
        "POST memory_stores" | "POST memory_stores/*" => "name description metadata",
        "POST memory_stores/*/memories" => "path content",
        "POST memory_stores/*/memories/*" => "path content precondition",
        _ => return Some((StatusCode::NOT_FOUND, "no such route".to_owned())),
    };
    let refused = |what: String| Some((StatusCode::BAD_REQUEST, what));
    let mut parameters = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    if let Some((name, _)) = parameters.find(|(name, _)| !has(PARAMETERS, name)) {
        return refused(format!("parameter {name}"));
    }
    if let Some(name) = headers.keys().find(|name| !has(HEADERS, name.as_str())) {
        return refused(format!("header {name}"));
    }
    let mut versions = headers.get_all("anthropic-beta").iter().filter_map(|value| value.to_str().ok());
    if !versions.any(|version| version.contains("agent-memory-2026-07-22")) {
        return refused("no anthropic-beta".to_owned());
    }
    let body = serde_json::from_slice::<Value>(body).unwrap_or_default();
    let mut given = body.as_object().into_iter().flat_map(|body| body.keys());
    given.find(|name| !has(fields, name)).and_then(|name| refused(format!("field {name}")))
}
