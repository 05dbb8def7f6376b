//! What every area needs: a place for each fact, and checks of answers.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use keepsake_blobs::BlobStore;
use keepsake_core::{ContentHash, Timestamp};
use keepsake_index::Scope;
use reqwest::Method;
use serde_json::{Value, json};

pub(crate) use crate::support::client::ok;
use crate::support::client::send;
use crate::support::{Answer, Client, Deployment, Pair, Tenant, says, secrets};

pub(crate) const STORES: &str = "/v1/memory_stores";
pub(crate) const SESSIONS: &str = "/v1/sessions";
const AT_ONCE: usize = 4;

/// The fixture of a fact: a separate tenant on a shared server.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) deployment: Arc<Deployment>,
    /// What the object store holds.
    pub(crate) blobs: Arc<dyn BlobStore>,
    pub(crate) tenant: Tenant,
    /// With a key that may do everything.
    pub(crate) client: Client,
    /// With another key of the tenant that may do everything.
    pub(crate) second: Client,
    /// The next three have one scope: `memory:read`, `memory:write`, `stores:admin`.
    pub(crate) reader: Client,
    pub(crate) writer: Client,
    pub(crate) admin: Client,
    /// With all scopes, limited to the tenant's first store.
    pub(crate) bound: Client,
    /// With another tenant's key.
    pub(crate) stranger: Client,
}

pub(crate) struct Fact {
    pub(crate) name: &'static str,
    pub(crate) limits: Value,
    pub(crate) run: fn(Place) -> BoxFuture<'static, ()>,
}

macro_rules! fact {
    ($fact:path) => {
        $crate::api::support::Fact {
            name: stringify!($fact),
            limits: serde_json::json!({}),
            run: |place| Box::pin($fact(place)),
        }
    };
}
pub(crate) use fact;

/// Checks facts on one server; fails with the names of failed facts, and if the
/// server had an internal error.
pub(crate) async fn check(pair: Pair, facts: Vec<Fact>) {
    let deployment = Arc::new(Deployment::new(pair).await);
    let provision = deployment.provision().await;
    let stranger = provision.tenant().await;
    let mut given = Vec::new();
    for fact in facts {
        let tenant = provision.tenant_with(fact.limits.clone()).await;
        let key = |scopes, store_ids| provision.key(tenant.id, scopes, store_ids);
        let keys = [
            key(&Scope::ALL, None).await,
            key(&[Scope::MemoryRead], None).await,
            key(&[Scope::MemoryWrite], None).await,
            key(&[Scope::StoresAdmin], None).await,
            key(&Scope::ALL, Some(vec![tenant.store_id])).await,
        ];
        given.push((fact, tenant, keys));
    }
    provision.close().await;
    let blobs = deployment.blobs().await;
    let server = deployment.start().await;
    let failed: Vec<_> = stream::iter(given)
        .map(|(fact, tenant, keys)| {
            let client = server.client(&tenant);
            let [second, reader, writer, admin, bound] = keys.map(|key| client.with_key(&key));
            let (deployment, blobs) = (Arc::clone(&deployment), Arc::clone(&blobs));
            let stranger = client.with_key(&stranger.key);
            let place =
                Place { deployment, blobs, tenant, client, second, reader, writer, admin, bound, stranger };
            async move { tokio::spawn((fact.run)(place)).await.err().map(|_| fact.name) }
        })
        .buffer_unordered(AT_ONCE)
        .filter_map(std::future::ready)
        .collect()
        .await;
    let output = server.output();
    let complaints: Vec<_> = output.lines().filter(|line| line.contains("ERROR")).collect();
    let is_well = failed.is_empty() && complaints.is_empty();
    assert!(is_well, "these do not hold: {failed:#?}; the server said {complaints:#?}");
}

/// A store as one client sees it.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    pub(crate) client: Client,
    pub(crate) id: String,
    /// Its path: `/v1/memory_stores/…`
    pub(crate) path: String,
}

impl Place {
    pub(crate) fn store(&self) -> Store {
        Store::of(&self.client, &self.tenant)
    }

    pub(crate) async fn new_store(&self, name: &str) -> Store {
        Store::make(&self.client, name).await
    }

    /// A client with a new key of the tenant's.
    pub(crate) async fn key(&self, scopes: &[&str]) -> Client {
        self.client.with_key(&self.client.new_key(scopes).await.0)
    }
}

impl Store {
    pub(crate) fn new(client: &Client, id: &str) -> Self {
        Self { client: client.clone(), id: id.to_owned(), path: format!("{STORES}/{id}") }
    }

    pub(crate) async fn make(client: &Client, name: &str) -> Self {
        Self::make_with(client, &json!({"name": name})).await
    }

    pub(crate) async fn make_with(client: &Client, new: &Value) -> Self {
        Self::new(client, text(&ok(&client.post(STORES, new).await)["id"]))
    }

    pub(crate) fn of(client: &Client, tenant: &Tenant) -> Self {
        Self::new(client, &tenant.store_id.to_string())
    }

    pub(crate) fn seen_by(&self, client: &Client) -> Self {
        Self::new(client, &self.id)
    }

    pub(crate) fn memories(&self) -> String {
        format!("{}/memories", self.path)
    }

    /// The path of a memory, of which any object with its `id` may be given.
    pub(crate) fn memory(&self, memory: &Value) -> String {
        format!("{}/memories/{}", self.path, text(&memory["id"]))
    }

    pub(crate) fn versions(&self) -> String {
        format!("{}/memory_versions", self.path)
    }

    pub(crate) fn version(&self, id: &Value) -> String {
        format!("{}/memory_versions/{}", self.path, text(id))
    }

    pub(crate) async fn create(&self, path: &str, content: &str) -> Value {
        ok(&self.try_create(path, content).await)
    }

    pub(crate) async fn try_create(&self, path: &str, content: &str) -> Answer {
        let body = json!({"path": path, "content": content});
        self.client.post(&self.memories(), &body).await
    }

    pub(crate) async fn batch(&self, body: &Value) -> Answer {
        self.client.post(&format!("{}/batch", self.memories()), body).await
    }

    /// Makes a memory or replaces its content, as clients of the managed agents' preview do.
    pub(crate) async fn upsert(&self, path: &str, content: &str) -> Answer {
        let body = json!({"path": path, "content": content});
        let preview = ("anthropic-beta", "managed-agents-2026-04-01");
        post_with(&self.client, &self.memories(), &body, preview).await
    }

    pub(crate) async fn update(&self, memory: &Value, edit: &Value) -> Value {
        ok(&self.try_update(memory, edit).await)
    }

    pub(crate) async fn try_update(&self, memory: &Value, edit: &Value) -> Answer {
        self.client.post(&self.memory(memory), edit).await
    }

    pub(crate) async fn delete(&self, memory: &Value) {
        ok(&delete(&self.client, &self.memory(memory)).await);
    }

    pub(crate) async fn read(&self, memory: &Value) -> Value {
        ok(&self.client.get(&self.memory(memory)).await)
    }

    /// Reads a memory without its content.
    pub(crate) async fn basic(&self, memory: &Value) -> Value {
        ok(&self.client.get(&format!("{}?view=basic", self.memory(memory))).await)
    }

    pub(crate) async fn archive(&self) -> Value {
        let path = format!("{}/archive", self.path);
        ok(&self.client.post(&path, &json!({})).await)
    }

    pub(crate) async fn object(&self) -> Value {
        ok(&self.client.get(&self.path).await)
    }

    pub(crate) async fn paths(&self) -> Vec<String> {
        let listed = self.client.all(&format!("{}?limit=100", self.memories())).await;
        strings(&listed, "path")
    }

    /// Its versions, newest first.
    pub(crate) async fn history(&self) -> Vec<Value> {
        self.client.all(&format!("{}?limit=100", self.versions())).await
    }

    pub(crate) async fn version_count(&self) -> usize {
        self.history().await.len()
    }

    pub(crate) async fn redact(&self, version_id: &Value) -> Value {
        let path = format!("{}/redact", self.version(version_id));
        ok(&self.client.post(&path, &json!({})).await)
    }

    pub(crate) async fn restore(&self, version_id: &Value) -> Value {
        ok(&self.try_restore(version_id, &json!({})).await)
    }

    pub(crate) async fn try_restore(&self, version_id: &Value, body: &Value) -> Answer {
        let path = format!("{}/restore", self.version(version_id));
        self.client.post(&path, body).await
    }
}

pub(crate) async fn patch(client: &Client, path: &str, body: &Value) -> Answer {
    send(client.request(Method::PATCH, path).json(body)).await
}

pub(crate) fn micros(time: &Value) -> i64 {
    Timestamp::parse(text(time)).unwrap().as_micros()
}

pub(crate) async fn delete(client: &Client, path: &str) -> Answer {
    send(client.request(Method::DELETE, path)).await
}

pub(crate) async fn post_with(client: &Client, path: &str, body: &Value, header: (&str, &str)) -> Answer {
    let request = client.request(Method::POST, path).json(body);
    send(request.header(header.0, header.1)).await
}

pub(crate) async fn post_text(client: &Client, path: &str, body: impl Into<reqwest::Body>) -> Answer {
    let request = client.request(Method::POST, path);
    send(request.header("content-type", "application/json").body(body)).await
}

/// The key or token that an answer shows; no server may print it.
#[track_caller]
pub(crate) fn secret<'a>(answer: &'a Value, field: &str) -> &'a str {
    let secret = text(&answer[field]);
    secrets::remember(secret, "a credential");
    secret
}

pub(crate) async fn new_session(client: &Client, body: &Value) -> Value {
    let session = ok(&client.post(SESSIONS, body).await);
    secret(&session, "token");
    session
}

#[track_caller]
pub(crate) fn shows(object: &Value, expected: &Value) {
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&object[field], value, "`{field}` of {object}");
    }
}

/// The error object of an answer that must be a refusal.
#[track_caller]
pub(crate) fn refused(answer: &Answer, status: u16, kind: &str) -> Value {
    assert_eq!(answer.status, status, "{}", answer.text);
    assert_eq!(answer.header("content-type"), "application/json");
    let body = answer.json();
    let error = body["error"].clone();
    let request_id = answer.header("request-id");
    assert!(request_id.starts_with("req_"), "{request_id:?}");
    assert_eq!(body, json!({"type": "error", "error": error, "request_id": request_id}));
    assert_eq!(error["type"], kind, "{}", answer.text);
    assert_ne!(text(&error["message"]), "");
    let is_over = status == 429 && answer.header("retry-after").is_empty();
    let should_retry = if is_over || matches!(status, 409 | 410 | 507) { "false" } else { "" };
    assert_eq!(answer.header("x-should-retry"), should_retry, "{}", answer.text);
    error
}

/// The same, whose message has this part.
#[track_caller]
pub(crate) fn refused_for(answer: &Answer, status: u16, kind: &str, part: &str) -> Value {
    let error = refused(answer, status, kind);
    says(text(&error["message"]), &[part]);
    error
}

#[track_caller]
pub(crate) fn invalid(answer: &Answer, named: &str) {
    refused_for(answer, 400, "invalid_request_error", named);
}

#[track_caller]
pub(crate) fn denied(answer: &Answer, scope: &str) {
    refused_for(answer, 403, "permission_error", scope);
}

/// The answers that are 200, and the others.
#[track_caller]
pub(crate) fn parted(answers: Vec<Answer>) -> (Vec<Value>, Vec<Answer>) {
    let (made, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 200);
    (made.iter().map(ok).collect(), refused)
}

#[track_caller]
pub(crate) fn not_found(answer: &Answer) {
    refused(answer, 404, "not_found_error");
}

#[track_caller]
pub(crate) fn path_conflict(answer: &Answer, conflicting: &Value) {
    let error = refused(answer, 409, "memory_path_conflict_error");
    assert_eq!(error["conflicting_memory_id"], conflicting["id"], "{error}");
    assert_eq!(error["conflicting_path"], conflicting["path"], "{error}");
}

pub(crate) fn strings(items: &[Value], field: &str) -> Vec<String> {
    items.iter().map(|item| text(&item[field]).to_owned()).collect()
}

#[track_caller]
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no string"))
}

pub(crate) fn sha256(content: &str) -> String {
    ContentHash::of(content.as_bytes()).to_string()
}

pub(crate) fn block(tool: &str, input: &Value) -> Value {
    json!({"type": "tool_use", "name": tool, "input": input})
}

pub(crate) fn holds(content: &str) -> Value {
    json!({"type": "content_sha256", "content_sha256": sha256(content)})
}
