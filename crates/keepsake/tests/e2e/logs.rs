//! What servers write: enough to find a request, and never a secret.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::client::{send, tool_calls};
use crate::support::deployment::ServerConfig;
use crate::support::{Client, Deployment, Pair, Server, Tenant, secrets};

/// Words of content and paths that no log may have.
const CONTENT: &str = "Zugspitze";

#[tokio::test(flavor = "multi_thread")]
async fn finest_log_has_no_secret_content_or_path_on_postgres_and_s3() {
    finest_log_is_clean(Pair::PostgresS3, "human").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn finest_log_has_no_secret_content_or_path_on_sqlite_and_files() {
    finest_log_is_clean(Pair::SqliteFiles, "json").await;
}

/// Keepsake's own lines at their finest, and others' as far as they may go.
const FILTER: &str = "trace";

async fn finest_log_is_clean(pair: Pair, log_format: &'static str) {
    let deployment = Deployment::new(pair).await;
    let tenant = deployment.tenant().await;
    let config = ServerConfig {
        log_filter: FILTER,
        log_format,
        ..ServerConfig::default()
    };
    let mut server = deployment.start_with(&config).await;
    use_everything(&server, &tenant).await;
    server.end().await;

    let log = server.output();
    assert!(log.contains("keepsake listens on"), "{log}");
    assert!(!secrets::known().is_empty());
    secrets::assert_none_in(&log, "the server");
    let leak = log.lines().find(|line| line.contains(CONTENT));
    assert_eq!(leak, None, "content or a path was logged");
    if log_format == "json" {
        for line in log.lines() {
            assert!(serde_json::from_str::<Value>(line).is_ok(), "not JSON: {line}");
        }
    }
}

async fn use_everything(server: &Server, tenant: &Tenant) {
    let client = server.client(tenant);
    let file = format!("/memories/{CONTENT}.txt");
    let moved = format!("/memories/{CONTENT}/moved.txt");
    for input in [
        json!({"command": "create", "path": file, "file_text": format!("{CONTENT}\n")}),
        json!({"command": "create", "path": file, "file_text": CONTENT}),
        json!({"command": "view", "path": file}),
        json!({"command": "insert", "path": file, "insert_line": 1, "insert_text": CONTENT}),
        json!({"command": "insert", "path": file, "insert_line": 0, "insert_text": "nul \u{0}"}),
        json!({"command": "str_replace", "path": file, "old_str": "not there", "new_str": CONTENT}),
        json!({"command": "rename", "old_path": file, "new_path": moved}),
        json!({"command": "view", "path": format!("/memories/../{CONTENT}")}),
        json!({"command": "delete", "path": format!("/memories/{CONTENT}")}),
        json!({"command": CONTENT}),
    ] {
        assert_eq!(client.call(tenant.store_id, &input).await.status, 200);
    }
    client
        .post(
            "/v1/memory_stores",
            &json!({"name": CONTENT, "description": CONTENT}),
        )
        .await;
    client
        .post("/v1/memory_stores", &json!({"name": CONTENT, "other": CONTENT}))
        .await;
    let store = format!("/v1/memory_stores/{}", tenant.store_id);
    let memory = json!({"path": format!("/{CONTENT}"), "content": CONTENT});
    for (path, body) in [
        (format!("{store}/memories"), memory.clone()),
        (format!("{store}/memories"), memory),
        (
            "/v1/api_keys".to_owned(),
            json!({"name": CONTENT, "scopes": ["memory:read"]}),
        ),
        (
            "/v1/erasures".to_owned(),
            json!({"memory_store_id": tenant.store_id, "path_prefix": format!("/{CONTENT}/")}),
        ),
        (
            "/v1/erasures".to_owned(),
            json!({"store_metadata": {CONTENT: CONTENT}}),
        ),
    ] {
        let answer = client.post(&path, &body).await;
        if let Some(key) = answer.json()["api_key"].as_str() {
            secrets::remember(key, "an API key");
        }
    }
    client.get(&format!("/v1/memory_stores/{CONTENT}")).await;
    client.get(&format!("/v1/{CONTENT}?x-api-key={CONTENT}")).await;
    let broken = client.request(Method::POST, &tool_calls(tenant.store_id));
    send(
        broken
            .header("content-type", "application/json")
            .body(format!("{{\"{CONTENT}")),
    )
    .await;
    let mistyped = format!(
        "{}{}",
        &tenant.key[..56],
        if tenant.key.ends_with('0') { '1' } else { '0' }
    );
    secrets::remember(&mistyped, "a mistyped API key");
    let wrong = Client::new(&server.url(), &mistyped);
    assert_eq!(wrong.get("/v1/memory_stores/x").await.status, 401);
    let bearer = wrong.bare(Method::GET, "/v1/memory_stores/x");
    send(bearer.header("authorization", format!("Bearer {}", tenant.key))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_of_a_write_name_its_request_and_tenant() {
    let deployment = Deployment::new(Pair::PostgresS3).await;
    let tenant = deployment.tenant().await;
    let config = ServerConfig {
        log_filter: "debug",
        ..ServerConfig::default()
    };
    let mut server = deployment.start_with(&config).await;
    let input = json!({"command": "create", "path": "/memories/a", "file_text": "x"});
    let answer = server.client(&tenant).call(tenant.store_id, &input).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    server.end().await;
    let log = server.output();
    let puts: Vec<_> = log.lines().filter(|line| line.contains("blob.put")).collect();
    assert!(!puts.is_empty(), "{log}");
    for line in puts {
        assert!(line.contains(answer.header("request-id")), "{line}");
        assert!(line.contains(&tenant.id.to_string()), "{line}");
    }
}
