//! The list of routes, and what needs a clock or a body that is sent bit by bit.

mod copies;

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::request::Builder;
use axum::http::{HeaderMap, Request, StatusCode, header};
use futures::future::{Either, select};
use futures::stream::{self, StreamExt};
use http_body_util::BodyExt;
use keepsake_core::{TenantId, Timestamp};
use keepsake_engine::{
    Clock, Engine, EngineOptions, KeyDraft, ManualClock, NewTenant, StoreDraft, SystemClock,
};
use keepsake_index::{Auditor, Index, Scope, SqliteIndex};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::ServiceExt;

use crate::{Lifecycle, ServerOptions, console_pages, openapi, router};

/// A server on a new SQLite index, with a tenant, its key and a store.
struct Server {
    router: Router,
    /// The key of the tenant, with all scopes.
    secret: String,
    /// The path of the store's route.
    store: String,
    engine: Engine,
    tenant_id: TenantId,
    _folder: tempfile::TempDir,
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Value,
}

impl Server {
    async fn new() -> Self {
        Self::with(&ServerOptions::default()).await
    }

    async fn with(options: &ServerOptions) -> Self {
        Self::on_clock(options, Arc::new(SystemClock)).await
    }

    async fn on_clock(options: &ServerOptions, clock: Arc<dyn Clock>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("index.db").display());
        let index = Index::from(SqliteIndex::open(&url).await.unwrap());
        let engine = Engine::new(index, None, EngineOptions { clock, ..EngineOptions::default() });
        let name = "tests".to_owned();
        let tenant = NewTenant { name: name.clone(), ..NewTenant::default() };
        let tenant = engine.tenants.create(tenant, Auditor::OperatorCli).await.unwrap();
        let operator = engine.tenants.operator(tenant.tenant_id, Auditor::OperatorCli).await.unwrap();
        let draft = StoreDraft { name: "notes".to_owned(), ..StoreDraft::default() };
        let key = KeyDraft { name, scopes: Scope::ALL.to_vec(), store_ids: None, expires_at: None };
        let secret = engine.keys.create(&operator, key, None).await.unwrap().secret.unwrap();
        let store = engine.stores.create(&operator, draft, None).await.unwrap();
        Self {
            router: router(engine.clone(), options, Lifecycle::default()),
            engine,
            tenant_id: tenant.tenant_id,
            secret: secret.expose().to_owned(),
            store: format!("/v1/memory_stores/{}", store.store_id),
            _folder: folder,
        }
    }

    /// A JSON request with the tenant's key.
    fn request(&self, method: &str, uri: &str) -> Builder {
        let request = Request::builder().method(method).uri(uri).header("x-api-key", &self.secret);
        request.header(header::CONTENT_TYPE, "application/json")
    }

    async fn send(&self, request: Builder, body: Body) -> Answer {
        let response = self.router.clone().oneshot(request.body(body).unwrap()).await;
        let (parts, body) = response.unwrap().into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Answer { status: parts.status, headers: parts.headers, body }
    }

    async fn get(&self, uri: &str) -> Answer {
        self.send(self.request("GET", uri), Body::empty()).await
    }

    async fn post(&self, uri: &str, body: &Value) -> Answer {
        self.send(self.request("POST", uri), Body::from(body.to_string())).await
    }

    /// Posts what must be accepted.
    async fn made(&self, uri: &str, body: &Value) -> Value {
        let answer = self.post(uri, body).await;
        assert_eq!(answer.status, StatusCode::OK, "{uri}: {}", answer.body);
        answer.body
    }
}

impl Answer {
    /// Checks the envelope and returns the error's type.
    fn error(&self) -> (u16, &str) {
        assert_eq!(self.body["type"], "error", "{}", self.body);
        assert_eq!(self.headers["request-id"], self.body["request_id"].as_str().unwrap());
        (self.status.as_u16(), self.body["error"]["type"].as_str().unwrap())
    }

    fn assert_overloaded(&self) {
        assert_eq!(self.error(), (529, "overloaded_error"));
        assert_eq!(self.headers[header::RETRY_AFTER], "1");
    }
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
    paths.extend(["/", "/v1", "/docs/reference.css", "/docs/reference.js"].map(str::to_owned));
    // Pages for people, which need a sign-in but for these.
    paths.extend(console_pages().into_iter().map(|(_, path)| path));
    let sign_in = ["sign-in", "sign-in/once", "sign-in/issuer", "sign-in/callback", "assets/{file}"];
    let unknown = ["", "{*page}"];
    paths.extend(sign_in.iter().chain(&unknown).map(|page| format!("/console/{page}")));
    assert_eq!(routes_of(&server.router), paths, "the router's are on the left");
    for (path, item) in described {
        let id = "memstore_00000000000000000000000001";
        let uri: Vec<_> =
            path.split('/').map(|segment| if segment.starts_with('{') { id } else { segment }).collect();
        let wrong = server.send(server.request("TRACE", &uri.join("/")), Body::empty()).await;
        assert_eq!(wrong.status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
        let allowed = wrong.headers[header::ALLOW].to_str().unwrap().split(',');
        // A GET route also answers HEAD.
        let allowed: BTreeSet<_> = allowed.filter(|method| *method != "HEAD").collect();
        let methods: Vec<_> = item.as_object().unwrap().keys().map(|method| method.to_uppercase()).collect();
        assert_eq!(allowed, methods.iter().map(String::as_str).collect(), "{path}");
    }
}

#[tokio::test]
async fn endless_body_gets_a_normal_error() {
    let server = Server::new().await;
    let request = || server.request("POST", &server.store);
    // The credential is cached now, and only this test advances the clock.
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
    }
}

#[tokio::test]
async fn access_revoked_during_the_body_is_refused() {
    let server = Arc::new(Server::new().await);
    let store_id = server.store.rsplit('/').next().unwrap();
    let resources = json!([{"type": "memory_store", "memory_store_id": store_id}]);
    let session = json!({"agent": "a", "environment_id": "e", "resources": resources});
    let session = server.made("/v1/sessions", &session).await;
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
        server.made(&resource, &json!({"access": "read_write"})).await;
        let (narrowing, body) = (Arc::clone(&server), body.to_string());
        // Requested after the credential was accepted.
        let body = Body::from_stream(stream::once(async move {
            narrowing.made(&resource, &json!({"access": "read_only"})).await;
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
    assert_eq!(server.get(&format!("{}/memories", server.store)).await.body["data"], json!([]));
}

#[tokio::test]
async fn key_revoked_while_a_part_of_an_export_is_awaited_ends_the_export() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000)));
    let server = Server::on_clock(&ServerOptions::default(), clock.clone()).await;
    server.made(&format!("{}/memories", server.store), &json!({"path": "/a.md", "content": "x"})).await;
    let request = server.request("GET", &format!("{}/export", server.store)).body(Body::empty());
    let answer = server.router.clone().oneshot(request.unwrap()).await.unwrap();
    let mut archive = pin!(answer.into_body().collect());
    assert!(futures::poll!(archive.as_mut()).is_pending());
    let keys = server.get("/v1/api_keys").await.body;
    let id = keys["data"][0]["id"].as_str().unwrap();
    server.made(&format!("/v1/api_keys/{id}/revoke"), &json!({})).await;
    clock.advance(Duration::from_secs(5));
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(2)).await;
    tokio::time::resume();
    assert!(archive.await.is_err());
}

#[tokio::test]
async fn request_over_the_concurrency_limit_is_refused_at_once() {
    let options = ServerOptions { max_requests_in_flight: 2, ..ServerOptions::default() };
    let server = Server::with(&options).await;
    let stores = "/v1/memory_stores";
    // The credential is cached now, so the next request reaches its body at once.
    assert_eq!(server.get(stores).await.status, StatusCode::OK);
    let body = Body::from_stream(stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let mut running = pin!(server.send(server.request("POST", &server.store), body));
    assert!(futures::poll!(running.as_mut()).is_pending());
    // One tenant may use one of the two shares.
    server.get(stores).await.assert_overloaded();
    assert_eq!(server.get("/livez").await.status, StatusCode::OK);
    tokio::time::pause();
    assert_eq!(running.await.error(), (408, "timeout_error"));
    tokio::time::resume();
    assert_eq!(server.get(stores).await.status, StatusCode::OK);
}

#[tokio::test]
async fn body_with_too_many_values_is_refused() {
    let server = Server::new().await;
    let objects = |count: usize| json!(vec![json!({"": 0}); count]);
    let session = |count| json!({"agent": {"type": "agent", "id": "a", "tools": objects(count)}, "environment_id": "e"});
    let call = |values: Value| json!({"command": "view", "path": "/memories", "x": values});
    let (calls, mcp) =
        (format!("{}/tool_calls", server.store), server.store.replace("/v1/memory_stores", "/mcp"));
    for (path, body, limit) in [
        ("/v1/sessions", session(5_000), "10000"),
        (&*calls, call(objects(1_000)), "2000"),
        (&*calls, call(json!(vec![json!({}); 2_000])), "2000"),
        (&*mcp, json!({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": call(objects(1_000))}), "2000"),
    ] {
        let refused = server.post(path, &body).await;
        assert_eq!(refused.error(), (400, "invalid_request_error"), "{path}");
        let message = refused.body["error"]["message"].as_str().unwrap();
        assert!(message.contains(&format!("at most {limit} JSON values")), "{message}");
    }
    server.made("/v1/sessions", &session(4_900)).await;
    server.made(&calls, &call(objects(900))).await;
}

#[tokio::test]
async fn large_body_is_parsed_in_a_slot_of_its_tenant() {
    let server = Server::new().await;
    let (open, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    for _ in 0..std::thread::available_parallelism().unwrap().get() {
        let (computations, gate) = (server.engine.computations.clone(), Arc::clone(&gate));
        let tenant_id = server.tenant_id;
        let wait = move || gate.lock().unwrap().recv().is_err();
        tokio::spawn(async move { computations.run(tenant_id, wait).await });
    }
    let calls = format!("{}/tool_calls", server.store);
    let call = |bytes| json!({"command": "view", "path": "/memories", "x": "x".repeat(bytes)});
    let (large, small) = (call(200 << 10), call(1));
    server.made(&calls, &small).await;
    let large = pin!(server.made(&calls, &large));
    let others = pin!(async {
        for _ in 0..20 {
            server.made(&calls, &small).await;
        }
    });
    let Either::Right(((), large)) = select(large, others).await else {
        panic!("it was parsed without a slot");
    };
    drop(open);
    large.await;
}

/// A server with a megabyte for requests, of which one tenant may use half.
async fn server_with_little_memory() -> Server {
    let options = ServerOptions { max_request_memory_bytes: 1 << 20, ..ServerOptions::default() };
    Server::with(&options).await
}

#[tokio::test]
async fn incoming_body_counts_towards_its_tenants_memory() {
    let server = server_with_little_memory().await;
    let calls = format!("{}/tool_calls", server.store);
    // The credential is cached now.
    assert_eq!(server.get("/v1/memory_stores").await.status, StatusCode::OK);
    let sent = stream::iter([Ok::<_, std::io::Error>(vec![b' '; 150 << 10])]).chain(stream::pending());
    let mut running = Box::pin(server.send(server.request("POST", &calls), Body::from_stream(sent)));
    assert!(futures::poll!(running.as_mut()).is_pending());
    let call = json!({"command": "view", "path": "/memories", "x": "x".repeat(30 << 10)});
    server.post(&calls, &call).await.assert_overloaded();
    drop(running);
    server.made(&calls, &call).await;
}

#[tokio::test]
async fn unsent_answer_counts_towards_its_tenants_memory() {
    let server = server_with_little_memory().await;
    let memories = format!("{}/memories", server.store);
    server.made(&memories, &json!({"path": "/a", "content": "x".repeat(50 << 10)})).await;
    let full = format!("{memories}?view=full");
    let mut untaken = Vec::new();
    let refused = loop {
        let request = server.request("GET", &full).body(Body::empty()).unwrap();
        let answer = server.router.clone().oneshot(request).await.unwrap();
        if answer.status() != StatusCode::OK {
            break answer.status();
        }
        // As in a connection: the body has ended, but its bytes are not sent yet.
        untaken.push(answer.into_body().collect().await.unwrap().to_bytes());
    };
    assert_eq!(refused.as_u16(), 529);
    assert!((4..10).contains(&untaken.len()), "{} answers", untaken.len());
    untaken.clear();
    assert_eq!(server.get(&full).await.status, StatusCode::OK);
}
