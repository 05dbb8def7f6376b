//! Errors of the caller in the API's error envelope.

use keepsake_core::limits::LimitOverrides;
use keepsake_index::Scope;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::client::{send, tool_calls};
use crate::support::{Answer, Client, Deployment, Pair, Server, Tenant};

const STORES: &str = "/v1/memory_stores";
/// An unknown store id.
const NOWHERE: &str = "memstore_00000000000000000000000001";

/// Checks an answer's envelope; answers its message.
fn message(answer: &Answer, status: u16, kind: &str) -> String {
    assert_eq!(answer.status, status, "{}", answer.text);
    assert_eq!(answer.header("content-type"), "application/json");
    let body = answer.json();
    let request_id = answer.header("request-id");
    assert!(request_id.starts_with("req_"), "{request_id:?}");
    let message = body["error"]["message"].as_str().unwrap().to_owned();
    assert!(!message.is_empty());
    let expected = json!({
        "type": "error", "error": {"type": kind, "message": message}, "request_id": request_id,
    });
    assert_eq!(body, expected);
    message
}

fn bad_request(answer: &Answer, named: &str) {
    let message = message(answer, 400, "invalid_request_error");
    assert!(message.contains(named), "{named:?} is not in {message:?}");
}

/// Sends a body as it is.
async fn post_text(client: &Client, path: &str, body: impl Into<reqwest::Body>) -> Answer {
    let request = client.request(Method::POST, path);
    send(request.header("content-type", "application/json").body(body)).await
}

async fn server_on(pair: Pair) -> (Deployment, Tenant, Server) {
    let deployment = Deployment::new(pair).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start().await;
    (deployment, tenant, server)
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_store_bodies_are_400_and_name_the_field() {
    let (_deployment, tenant, server) = server_on(Pair::Sqlite).await;
    let client = server.client(&tenant);
    for broken in [
        "",
        "{",
        "{\"name\":\"a\"",
        "nonsense",
        "{\"name\":\"a\"} x",
        "{\"name\":\"\\ud800\"}",
    ] {
        bad_request(&post_text(&client, STORES, broken).await, "the body is not valid");
    }
    bad_request(
        &post_text(&client, STORES, b"{\"name\":\"\xff\"}".to_vec()).await,
        "",
    );
    let long = "x".repeat(256);
    let many: Value = (0..17).map(|n| (n.to_string(), Value::from("v"))).collect();
    for (body, named) in [
        (json!({"name": "a", "descripton": "b"}), "`descripton`"),
        (json!({"description": "b"}), "`name`"),
        (json!({"name": 5}), "`name`"),
        (json!({"name": null}), "`name`"),
        (json!({"name": ""}), "`name`"),
        (json!({"name": long}), "`name`"),
        (json!({"name": "a\nb"}), "`name`"),
        (json!({"name": "a", "description": ["b"]}), "`description`"),
        (
            json!({"name": "a", "description": "x".repeat(1025)}),
            "`description`",
        ),
        (json!({"name": "a", "metadata": "b"}), "`metadata`"),
        (json!({"name": "a", "metadata": {"k": 1}}), "`metadata`"),
        (json!({"name": "a", "metadata": {"": "v"}}), "`metadata`"),
        (json!({"name": "a", "metadata": many}), "`metadata`"),
        (json!(["a"]), "the body is not valid"),
        (json!("a"), "the body is not valid"),
    ] {
        bad_request(&client.post(STORES, &body).await, named);
    }
    let edge = json!({"name": "x".repeat(255), "description": "é".repeat(1024)});
    assert_eq!(client.post(STORES, &edge).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_tool_call_is_400_and_a_bad_input_is_a_tool_error() {
    let (_deployment, tenant, server) = server_on(Pair::Sqlite).await;
    let client = server.client(&tenant);
    let view = json!({"command": "view", "path": "/memories"});
    for (body, named) in [
        (json!({}), "not a tool call"),
        (json!({"path": "/memories"}), "not a tool call"),
        (json!({"type": "tool_result", "content": "x"}), "not a tool call"),
        (
            json!({"type": "tool_use", "id": "t", "name": "memory"}),
            "`input`",
        ),
        (
            json!({"type": "tool_use", "id": "t", "name": "memory", "input": []}),
            "`input`",
        ),
        (json!({"type": "tool_use", "id": "t", "input": view}), "`name`"),
        (
            json!({"type": "tool_use", "id": 7, "name": "memory", "input": view}),
            "`id`",
        ),
        (
            json!({"type": "tool_use", "id": "", "name": "memory", "input": view}),
            "`id`",
        ),
        (json!([view]), "the body is not valid"),
        (json!(null), "the body is not valid"),
    ] {
        bad_request(&client.call(tenant.store_id, &body).await, named);
    }
    let path = tool_calls(tenant.store_id);
    bad_request(
        &post_text(&client, &path, "{\"command\":").await,
        "the body is not valid",
    );
    // Errors that the model can correct are tool results.
    for input in [
        json!({"command": "dance"}),
        json!({"command": 5}),
        json!({"command": "view", "path": 5}),
    ] {
        assert!(client.tool(&tenant, &input).await.is_error, "{input}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_and_foreign_objects_get_the_same_404() {
    let deployment = Deployment::new(Pair::PostgresS3).await;
    let provision = deployment.provision().await;
    let tenant = provision.tenant(LimitOverrides::default()).await;
    let other = provision.tenant(LimitOverrides::default()).await;
    let bound_to = provision.store(tenant.id).await;
    let bound = provision.key(tenant.id, &Scope::ALL, Some(vec![bound_to])).await;
    provision.close().await;
    let server = deployment.start().await;
    let client = server.client(&tenant);

    let others = other.store_id.to_string();
    let lowercase = tenant.store_id.to_string().to_lowercase();
    let ids = [
        NOWHERE,
        "x",
        "memstore_",
        "mem_00000000000000000000000001",
        "%00",
        &lowercase,
        &others,
    ];
    let view = json!({"command": "view", "path": "/memories"});
    let bad_input = json!({"command": "dance"});
    let other_tool = json!({"type": "tool_use", "id": "t", "name": "bash", "input": {}});
    let write = json!({"command": "create", "path": "/memories/a", "file_text": ""});
    let mut answers = Vec::new();
    for id in ids {
        answers.push(client.get(&format!("{STORES}/{id}")).await);
        for body in [&view, &bad_input, &other_tool, &write] {
            answers.push(client.call(id, body).await);
        }
    }
    // For a key of other stores, this store does not exist.
    let bound = client.with_key(&bound);
    answers.push(bound.get(&format!("{STORES}/{}", tenant.store_id)).await);
    for body in [&view, &bad_input, &other_tool, &write] {
        answers.push(bound.call(tenant.store_id, body).await);
    }
    let told = without_request(&answers[0]);
    for answer in &answers {
        message(answer, 404, "not_found_error");
        assert_eq!(without_request(answer), told);
    }
    // The other tenant's store still exists and is empty.
    let listing = server.client(&other).tool_ok(&other, &view).await;
    assert!(listing.ends_with("0B\t/memories"), "{listing}");
}

/// The answer with what differs from request to request taken out.
fn without_request(answer: &Answer) -> (String, Vec<(String, String)>) {
    let request_id = answer.header("request-id").to_owned();
    let mut headers: Vec<_> = answer
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .filter(|(name, _)| name != "request-id" && name != "date")
        .collect();
    headers.sort();
    (answer.text.replace(&request_id, "req_"), headers)
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_routes_methods_and_media_types_get_an_error_envelope() {
    let (_deployment, tenant, server) = server_on(Pair::Sqlite).await;
    let client = server.client(&tenant);
    let workspace = tenant.id.to_string();
    for path in [
        "/",
        "/v1",
        "/v1/",
        "/v1/nothing",
        "/v2/memory_stores",
        "/v1/memory_stores/",
        "//v1/memory_stores",
    ] {
        let answer = client.get(path).await;
        message(&answer, 404, "not_found_error");
    }
    let answer = client.get("/v1/nothing").await;
    assert_eq!(answer.header("anthropic-workspace-id"), workspace);

    // Below /v1, unauthenticated requests do not learn which routes exist.
    let stranger = send(client.bare(Method::GET, "/v1/nothing")).await;
    message(&stranger, 401, "authentication_error");
    let stranger = send(client.bare(Method::GET, "/nothing")).await;
    message(&stranger, 404, "not_found_error");

    let calls = tool_calls(tenant.store_id);
    for (method, path) in [
        (Method::PUT, STORES),
        (Method::GET, calls.as_str()),
        (Method::DELETE, calls.as_str()),
        (Method::POST, "/livez"),
    ] {
        let answer = send(client.request(method, path)).await;
        message(&answer, 405, "invalid_request_error");
        assert!(!answer.header("allow").is_empty(), "{path}");
    }
    let answer = send(client.request(Method::PUT, STORES)).await;
    assert_eq!(answer.header("anthropic-workspace-id"), workspace);

    let call = r#"{"command":"view","path":"/memories"}"#;
    for media_type in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "json",
        "",
    ] {
        let request = client
            .request(Method::POST, &calls)
            .header("content-type", media_type);
        let answer = send(request.body(call)).await;
        let message = message(&answer, 415, "invalid_request_error");
        assert!(message.contains("application/json"), "{message}");
        assert_eq!(answer.header("anthropic-workspace-id"), workspace);
    }
    let untyped = send(client.request(Method::POST, &calls).body(call)).await;
    message(&untyped, 415, "invalid_request_error");
}

#[tokio::test(flavor = "multi_thread")]
async fn body_over_the_limit_is_413() {
    let (_deployment, tenant, server) = server_on(Pair::Sqlite).await;
    let client = server.client(&tenant);
    let limit_bytes = 6 * 102_400 + (64 << 10);
    let call = |bytes: usize| {
        let (head, tail) = (r#"{"command":"view","path":"/memories","padding":""#, "\"}");
        format!("{head}{}{tail}", "x".repeat(bytes - head.len() - tail.len()))
    };
    let path = tool_calls(tenant.store_id);
    let answer = post_text(&client, &path, call(limit_bytes)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let answer = post_text(&client, &path, call(limit_bytes + 1)).await;
    let told = message(&answer, 413, "invalid_request_error");
    assert!(told.contains(&limit_bytes.to_string()), "{told}");
    assert_eq!(answer.header("anthropic-workspace-id"), tenant.id.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn store_over_the_quota_is_429_and_not_to_be_retried_on_postgres() {
    store_over_the_quota_is_429(Pair::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn store_over_the_quota_is_429_and_not_to_be_retried_on_sqlite() {
    store_over_the_quota_is_429(Pair::Sqlite).await;
}

async fn store_over_the_quota_is_429(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let limits = LimitOverrides {
        stores_per_tenant: Some(3),
        ..LimitOverrides::default()
    };
    let tenant = deployment.tenant_with(limits).await; // has one store already
    let server = deployment.start().await;
    let client = server.client(&tenant);
    let named = json!({"name": "a"});
    let answers = futures::future::join_all((0..10).map(|_| client.post(STORES, &named))).await;
    let (made, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 200);
    assert_eq!((made.len(), refused.len()), (2, 8));
    for answer in &refused {
        let told = message(answer, 429, "rate_limit_error");
        assert!(told.contains("limit is 3"), "{told}");
        assert_eq!(answer.header("x-should-retry"), "false");
        assert_eq!(answer.header("retry-after"), "");
    }
}
