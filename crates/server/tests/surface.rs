//! Answers common to all routes, tested on a real engine.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode, header};
use futures::stream::{self, StreamExt};
use http_body_util::BodyExt;
use keepsake_core::limits::LimitOverrides;
use keepsake_server::{ServerOptions, openapi};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::ServiceExt;

use support::Server;

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Value,
}

impl Server {
    async fn new() -> Self {
        Self::with_limits(LimitOverrides::default()).await
    }

    async fn with_limits(limits: LimitOverrides) -> Self {
        Self::with(limits, &ServerOptions::default()).await
    }

    async fn send(&self, request: axum::http::request::Builder, body: Body) -> Answer {
        let response = self.router.clone().oneshot(request.body(body).unwrap()).await;
        let (parts, body) = response.unwrap().into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        }
    }

    /// Sends a request without a credential or body.
    async fn ask(&self, method: &str, uri: &str) -> Answer {
        let request = Request::builder().method(method).uri(uri);
        self.send(request, Body::empty()).await
    }

    async fn call(&self, method: &str, uri: &str, body: Option<Value>) -> Answer {
        self.call_with(method, uri, body, &[]).await
    }

    async fn call_with(
        &self,
        method: &str,
        uri: &str,
        body: Option<Value>,
        headers: &[(&str, &str)],
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(uri).header("x-api-key", &self.secret);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        self.send(request, body).await
    }
}

impl Answer {
    /// Checks the envelope and returns the error's type.
    fn error(&self) -> (u16, &str) {
        assert_eq!(self.body["type"], "error", "{}", self.body);
        assert_eq!(self.headers["request-id"], self.body["request_id"].as_str().unwrap());
        (self.status.as_u16(), self.body["error"]["type"].as_str().unwrap())
    }

    fn message(&self) -> &str {
        self.body["error"]["message"].as_str().unwrap()
    }
}

#[tokio::test]
async fn unknown_routes_are_answered_in_the_envelope() {
    let server = Server::new().await;
    assert_eq!(server.ask("GET", "/nowhere").await.error(), (404, "not_found_error"));
    let nowhere = server.call("GET", "/v1/nowhere", None).await;
    assert_eq!(nowhere.error(), (404, "not_found_error"));
    assert!(nowhere.headers.contains_key("anthropic-workspace-id"));
    let unknown = server.ask("GET", "/v1/memory_stores").await;
    assert_eq!(unknown.error(), (401, "authentication_error"));
    let wrong = server.call("PUT", "/v1/memory_stores", None).await;
    assert_eq!(wrong.error(), (405, "invalid_request_error"));
    assert_eq!(wrong.headers[header::ALLOW], "POST,GET,HEAD");
    let memories = format!("{}/memories", server.store);
    let untyped = server.call("POST", &memories, None).await;
    assert_eq!(untyped.error(), (415, "invalid_request_error"));
}

#[tokio::test]
async fn reference_and_probes_need_no_credential() {
    let server = Server::new().await;
    for uri in ["/livez", "/readyz", "/openapi.json", "/docs"] {
        assert_eq!(server.ask("GET", uri).await.status, StatusCode::OK, "{uri}");
    }
    let document = server.ask("GET", "/openapi.json").await.body;
    assert_eq!(document["openapi"], "3.1.0");
}

/// The routes of a router, parsed from its debug output.
fn routes_of(router: &Router) -> BTreeSet<String> {
    let shown = format!("{router:?}");
    let after_ids = shown.split("RouteId(").skip(1);
    let paths = after_ids.filter_map(|rest| rest.split_once("): \"")?.1.split('"').next());
    paths.filter(|path| !path.ends_with("{*__private__axum_fallback}")).map(str::to_owned).collect()
}

#[tokio::test]
async fn router_has_the_operations_of_the_document_and_no_others() {
    let server = Server::new().await;
    let document: Value = serde_json::from_str(openapi()).unwrap();
    let described = document["paths"].as_object().unwrap();
    let mut paths: BTreeSet<String> = described.keys().cloned().collect();
    for fallback in ["/", "/v1"] {
        assert!(paths.insert(fallback.to_owned()));
        let nothing = server.call("GET", fallback, None).await;
        assert_eq!(nothing.error(), (404, "not_found_error"), "{fallback}");
    }
    for asset in ["/docs/reference.css", "/docs/reference.js"] {
        assert!(paths.insert(asset.to_owned()));
    }
    let mut routes = routes_of(&server.router);
    // Pages for people; the next test has them.
    routes.retain(|route| !is_page(route));
    assert_eq!(routes, paths, "the router's are on the left");
    for (path, item) in described {
        let id = "memstore_00000000000000000000000001";
        let uri: Vec<_> =
            path.split('/').map(|segment| if segment.starts_with('{') { id } else { segment }).collect();
        let wrong = server.call("TRACE", &uri.join("/"), None).await;
        assert_eq!(wrong.status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
        let allowed = wrong.headers[header::ALLOW].to_str().unwrap().split(',');
        // A GET route also answers HEAD.
        let allowed: BTreeSet<_> = allowed.filter(|method| *method != "HEAD").collect();
        let methods: Vec<_> = item.as_object().unwrap().keys().map(|method| method.to_uppercase()).collect();
        assert_eq!(allowed, methods.iter().map(String::as_str).collect(), "{path}");
    }
}

fn is_page(route: &str) -> bool {
    route == "/console" || route.starts_with("/console/")
}

#[tokio::test]
async fn every_page_of_the_console_needs_a_sign_in() {
    let server = Server::new().await;
    let open = [
        "/console/sign-in",
        "/console/sign-in/once",
        "/console/sign-in/issuer",
        "/console/sign-in/callback",
        "/console/assets/{file}",
    ];
    let mut pages = routes_of(&server.router);
    pages.retain(|route| is_page(route));
    for page in open {
        assert!(pages.remove(page), "{page}");
    }
    assert!(pages.len() > 30, "{pages:?}");
    for page in pages {
        let id = "memstore_00000000000000000000000001";
        let segments = page.split('/').map(|segment| if segment.starts_with('{') { id } else { segment });
        let uri = segments.collect::<Vec<_>>().join("/");
        // The API's headers are no sign-in.
        let asked = server.call("GET", &uri, None).await;
        assert_eq!(asked.status, StatusCode::SEE_OTHER, "{uri}");
        let location = asked.headers[header::LOCATION].to_str().unwrap();
        assert!(location.starts_with("/console/sign-in?next=%2Fconsole"), "{location}");
        let sent = server.call("POST", &uri, None).await;
        assert_eq!(sent.status, StatusCode::UNAUTHORIZED, "{uri}");
        assert_eq!(sent.headers[header::CONTENT_TYPE], "text/html; charset=utf-8");
    }
}

#[tokio::test]
async fn malformed_id_is_answered_like_an_unknown_one() {
    let server = Server::new().await;
    let unknown_store = "/v1/memory_stores/memstore_00000000000000000000000001";
    for store in [unknown_store, "/v1/memory_stores/x", "/v1/memory_stores/%ff"] {
        for rest in ["", "/memories/mem_1", "/memory_versions/1", "/memories"] {
            let answer = server.call("GET", &format!("{store}{rest}"), None).await;
            assert_eq!(answer.error(), (404, "not_found_error"), "{store}{rest}");
            assert_eq!(answer.message(), "the memory store was not found");
        }
    }
    let memory = server.call("GET", &format!("{}/memories/%ff", server.store), None).await;
    assert_eq!(memory.message(), "the memory was not found");
}

#[tokio::test]
async fn misspelt_precondition_changes_nothing() {
    let server = Server::new().await;
    let memories = format!("{}/memories", server.store);
    let made = server.call("POST", &memories, Some(json!({"path": "/a", "content": "x"}))).await;
    let memory = format!("{memories}/{}", made.body["id"].as_str().unwrap());
    let deleted = server.call("DELETE", &format!("{memory}?expected_sha256=0&beta=true"), None).await;
    assert_eq!(deleted.error(), (400, "invalid_request_error"));
    assert!(deleted.message().contains("`expected_sha256`"));
    let body = json!({"content": "y", "precondtion": {"type": "not_exists"}});
    let updated = server.call("PATCH", &memory, Some(body)).await;
    assert_eq!(updated.error(), (400, "invalid_request_error"));
    assert!(updated.message().contains("`precondtion`"));
    assert_eq!(server.call("GET", &memory, None).await.body["content"], "x");
}

#[tokio::test]
async fn taken_path_is_replaced_only_for_preview_clients() {
    let server = Server::new().await;
    let memories = format!("{}/memories", server.store);
    let body = |content: &str| Some(json!({"path": "/a", "content": content}));
    let made = server.call("POST", &memories, body("1")).await;
    let taken = server.call("POST", &memories, body("2")).await;
    assert_eq!(taken.error(), (409, "memory_path_conflict_error"));
    assert_eq!(taken.headers["x-should-retry"], "false");
    assert_eq!(taken.body["error"]["conflicting_memory_id"], made.body["id"]);
    let preview = [("anthropic-beta", "managed-agents-2026-04-01")];
    let replaced = server.call_with("POST", &memories, body("2"), &preview).await;
    assert_eq!(replaced.status, StatusCode::OK);
    assert_eq!(replaced.body["id"], made.body["id"]);
    let only_new = json!({"path": "/a", "content": "3", "precondition": {"type": "not_exists"}});
    let refused = server.call_with("POST", &memories, Some(only_new), &preview).await;
    assert_eq!(refused.error(), (409, "memory_precondition_failed_error"));
    assert_eq!(refused.body["error"]["current_content_sha256"], replaced.body["content_sha256"]);
}

#[tokio::test]
async fn repeated_idempotency_key_creates_one_store() {
    let server = Server::new().await;
    let key = [("idempotency-key", "once")];
    let create = |name: &str| Some(json!({"name": name}));
    let stores = "/v1/memory_stores";
    let first = server.call_with("POST", stores, create("a"), &key).await;
    let second = server.call_with("POST", stores, create("a"), &key).await;
    assert_eq!(first.status, StatusCode::OK);
    assert_eq!(first.body, second.body);
    let other = server.call_with("POST", stores, create("b"), &key).await;
    assert_eq!(other.error(), (400, "invalid_request_error"));
    assert!(other.message().contains("`Idempotency-Key`"));
}

#[tokio::test]
async fn endless_body_gets_a_normal_error() {
    let server = Server::new().await;
    let request = || {
        let request = Request::builder().method("POST").uri(&server.store);
        request.header("x-api-key", &server.secret).header("content-type", "application/json")
    };
    // The credential is cached now. From here on only this test advances the
    // clock.
    assert_eq!(server.send(request(), Body::from("{}")).await.status, StatusCode::OK);
    tokio::time::pause();
    let quiet = Body::from_stream(stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let trickling = Body::from_stream(stream::repeat(()).then(async |()| {
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok::<_, std::io::Error>(vec![b' '])
    }));
    for (body, seconds) in [(quiet, 10), (trickling, 60)] {
        let begun = Instant::now();
        let answer = server.send(request(), body).await;
        assert_eq!(begun.elapsed().as_secs(), seconds);
        assert_eq!(answer.error(), (408, "timeout_error"));
        assert!(answer.headers.contains_key("anthropic-workspace-id"));
    }
}

#[tokio::test]
async fn access_revoked_during_the_body_is_refused() {
    let server = Arc::new(Server::new().await);
    let store_id = server.store.rsplit('/').next().unwrap();
    let session = json!({"agent": "a", "environment_id": "e", "resources": [
        {"type": "memory_store", "memory_store_id": store_id},
    ]});
    let session = server.call("POST", "/v1/sessions", Some(session)).await.body;
    let token = session["token"].as_str().unwrap();
    let session = format!("/v1/sessions/{}", session["id"].as_str().unwrap());
    let by_tool = json!({"command": "create", "path": "/memories/notes/b.md", "file_text": "x"});
    let by_mcp = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "memory", "arguments": by_tool}});
    for (uri, body) in [
        (format!("{}/memories", server.store), json!({"path": "/a.md", "content": "x"})),
        (format!("{session}/tool_calls"), by_tool),
        ("/mcp".to_owned(), by_mcp),
    ] {
        let resource = format!("{session}/resources/{store_id}");
        let access = |access: &str| Some(json!({"access": access}));
        let allowed = server.call("POST", &resource, access("read_write")).await;
        assert_eq!(allowed.status, StatusCode::OK, "{}", allowed.body);
        let (narrowing, body) = (Arc::clone(&server), body.to_string());
        // Requested after the credential was accepted.
        let body = Body::from_stream(stream::once(async move {
            let narrowed = narrowing.call("POST", &resource, access("read_only")).await;
            assert_eq!(narrowed.status, StatusCode::OK, "{}", narrowed.body);
            tokio::time::pause();
            tokio::time::advance(Duration::from_secs(2)).await;
            tokio::time::resume();
            Ok::<_, std::io::Error>(body)
        }));
        let request = Request::builder().method("POST").uri(&uri);
        let request = request
            .header("authorization", format!("Bearer {token}"))
            .header("host", "localhost")
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json");
        let answer = server.send(request, body).await;
        let text = answer.body.to_string();
        assert!(text.contains("read-only") || answer.status == StatusCode::FORBIDDEN, "{uri}: {text}");
    }
    let listed = server.call("GET", &format!("{}/memories", server.store), None).await;
    assert_eq!(listed.body["data"], json!([]));
}

#[tokio::test]
async fn oversized_requests_are_refused_on_every_route() {
    let server = Server::new().await;
    let of = |bytes: usize| "x".repeat(bytes);
    let long = server.ask("GET", &format!("/livez?{}", of(8 << 10))).await;
    assert_eq!(long.error(), (414, "invalid_request_error"));
    let large = server.call_with("GET", "/livez", None, &[("x-large", &of(16 << 10))]).await;
    assert_eq!(large.error(), (431, "invalid_request_error"));
    let most =
        server.call_with("GET", &format!("/livez?{}", of(8_000)), None, &[("x-large", &of(16_000))]).await;
    assert_eq!(most.status, StatusCode::OK);
    let body = Body::from(of(6 * 102_400 + (64 << 10) + 1));
    let request = Request::builder().method("POST").uri(&server.store);
    let request = request.header("x-api-key", &server.secret).header("content-type", "application/json");
    assert_eq!(server.send(request, body).await.error(), (413, "invalid_request_error"));
}

#[tokio::test]
async fn rate_limit_refusal_has_retry_after() {
    let server = Server::with_limits(LimitOverrides {
        requests_per_second: Some(1),
        request_burst: Some(2),
        ..LimitOverrides::default()
    })
    .await;
    let ask = || server.call("GET", "/v1/memory_stores", None);
    assert_eq!([ask().await.status, ask().await.status], [StatusCode::OK; 2]);
    let refused = ask().await;
    assert_eq!(refused.error(), (429, "rate_limit_error"));
    assert_eq!(refused.headers[header::RETRY_AFTER], "1");
    assert!(!refused.headers.contains_key("x-should-retry"));
    assert!(refused.headers.contains_key("anthropic-workspace-id"));
    assert!(refused.message().contains("1 a second"));
    // The rate limit applies only to authenticated requests.
    assert_eq!(server.ask("GET", "/readyz").await.status, StatusCode::OK);
}

#[tokio::test]
async fn request_over_the_concurrency_limit_is_refused_at_once() {
    let options = ServerOptions { max_requests_in_flight: 2, ..ServerOptions::default() };
    let server = Server::with(LimitOverrides::default(), &options).await;
    let body = Body::from_stream(stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let request = Request::builder().method("POST").uri(&server.store);
    let request = request.header("x-api-key", &server.secret).header("content-type", "application/json");
    // The credential is cached now, so the next request reaches its body at
    // once.
    let first = server.call("GET", "/v1/memory_stores", None).await;
    assert_eq!(first.status, StatusCode::OK);
    let mut running = pin!(server.send(request, body));
    assert!(futures::poll!(running.as_mut()).is_pending());
    // One tenant may use one of the two shares.
    let refused = server.call("GET", "/v1/memory_stores", None).await;
    assert_eq!(refused.error(), (529, "overloaded_error"));
    assert_eq!(refused.headers[header::RETRY_AFTER], "1");
    assert_eq!(server.ask("GET", "/livez").await.status, StatusCode::OK);
    tokio::time::pause();
    assert_eq!(running.await.error(), (408, "timeout_error"));
    tokio::time::resume();
    let after = server.call("GET", "/v1/memory_stores", None).await;
    assert_eq!(after.status, StatusCode::OK);
}

/// One tenant may use half of it.
const LITTLE_MEMORY_BYTES: u64 = 1 << 20;

async fn server_with_little_memory() -> Server {
    let options = ServerOptions { max_request_memory_bytes: LITTLE_MEMORY_BYTES, ..ServerOptions::default() };
    Server::with(LimitOverrides::default(), &options).await
}

#[tokio::test]
async fn body_with_too_many_values_is_refused() {
    let server = Server::new().await;
    let objects = |count: usize| json!(vec![json!({"": 0}); count]);
    let session = |count| json!({"agent": {"type": "agent", "id": "a", "tools": objects(count)}, "environment_id": "e"});
    let call = |count| json!({"command": "view", "path": "/memories", "x": objects(count)});
    let (calls, mcp) =
        (format!("{}/tool_calls", server.store), server.store.replace("/v1/memory_stores", "/mcp"));
    for (path, body, limit) in [
        ("/v1/sessions", session(5_000), "10000"),
        (&*calls, call(1_000), "2000"),
        (&*calls, json!({"command": "view", "path": "/memories", "x": vec![json!({}); 2_000]}), "2000"),
        (&*mcp, json!({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": call(1_000)}), "2000"),
    ] {
        let refused = server.call("POST", path, Some(body)).await;
        assert_eq!(refused.error(), (400, "invalid_request_error"), "{path}");
        let rule = format!("at most {limit} JSON values");
        assert!(refused.message().contains(&rule), "{}", refused.message());
    }
    let made = server.call("POST", "/v1/sessions", Some(session(4_900))).await;
    assert_eq!(made.status, StatusCode::OK, "{}", made.body);
    assert_eq!(made.body["agent"]["tools"], objects(4_900));
    assert_eq!(server.call("POST", &calls, Some(call(900))).await.status, StatusCode::OK);
}

#[tokio::test]
async fn incoming_body_counts_towards_its_tenants_memory() {
    let server = server_with_little_memory().await;
    let calls = format!("{}/tool_calls", server.store);
    let first = server.call("GET", "/v1/memory_stores", None).await;
    assert_eq!(first.status, StatusCode::OK);
    let sent = stream::iter([Ok::<_, std::io::Error>(vec![b' '; 150 << 10])]).chain(stream::pending());
    let request = Request::builder().method("POST").uri(&calls);
    let request = request.header("x-api-key", &server.secret).header("content-type", "application/json");
    let mut running = Box::pin(server.send(request, Body::from_stream(sent)));
    assert!(futures::poll!(running.as_mut()).is_pending());
    let call = json!({"command": "view", "path": "/memories", "x": "x".repeat(30 << 10)});
    let refused = server.call("POST", &calls, Some(call.clone())).await;
    assert_eq!(refused.error(), (529, "overloaded_error"));
    assert_eq!(refused.headers[header::RETRY_AFTER], "1");
    drop(running);
    let taken = server.call("POST", &calls, Some(call)).await;
    assert_eq!(taken.status, StatusCode::OK, "{}", taken.body);
}

#[tokio::test]
async fn unsent_answer_counts_towards_its_tenants_memory() {
    let server = server_with_little_memory().await;
    let memories = format!("{}/memories", server.store);
    let memory = json!({"path": "/a", "content": "x".repeat(50 << 10)});
    let made = server.call("POST", &memories, Some(memory)).await;
    assert_eq!(made.status, StatusCode::OK, "{}", made.body);
    let full = format!("{memories}?view=full");
    let mut untaken = Vec::new();
    let refused = loop {
        let request = Request::builder().uri(&full).header("x-api-key", &server.secret);
        let answer = server.router.clone().oneshot(request.body(Body::empty()).unwrap()).await;
        let answer = answer.unwrap();
        if answer.status() != StatusCode::OK {
            break answer.status();
        }
        // As in a connection: the body has ended, but its bytes are not sent
        // yet.
        untaken.push(answer.into_body().collect().await.unwrap().to_bytes());
    };
    assert_eq!(refused.as_u16(), 529);
    assert!((4..10).contains(&untaken.len()), "{} answers", untaken.len());
    untaken.clear();
    assert_eq!(server.call("GET", &full, None).await.status, StatusCode::OK);
}
