//! What servers write: enough to find a request, and never a secret.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::client::{send, tool_calls};
use crate::support::deployment::ServerConfig;
use crate::support::{Client, Deployment, Pair, Tenant, secrets};

/// Words of content and paths that no log may have.
const CONTENT: &str = "Zugspitze";

#[tokio::test(flavor = "multi_thread")]
async fn finest_log_has_no_secret_content_or_path_on_postgres_and_s3() {
    finest_log_is_clean(Pair::PostgresS3, "human").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn finest_log_has_no_secret_content_or_path_on_sqlite() {
    finest_log_is_clean(Pair::Sqlite, "json").await;
}

async fn finest_log_is_clean(pair: Pair, log_format: &'static str) {
    let deployment = Deployment::new(pair).await;
    let tenant = deployment.tenant().await;
    // Keepsake's own lines at their finest, and others' as far as they may go.
    let config = ServerConfig { log_filter: "trace", log_format, ..ServerConfig::default() };
    let mut server = deployment.start_with(&config).await;
    let client = server.client(&tenant);
    use_memory_tool(&client, &tenant).await;
    use_stores(&client, &tenant).await;
    use_wrong_credentials(&client, &tenant.key).await;
    let store = made(&client, "/v1/memory_stores", &json!({"name": CONTENT})).await;
    use_memories(&client, &store).await;
    use_history(&client, &store).await;
    use_agent_tools(&client, &tool_calls(&store), "/memories").await;
    use_search(&client, &store).await;
    use_session(&client, &store).await;
    server.end().await;

    let log = server.output();
    assert!(log.contains("keepsake listens on"), "{log}");
    assert!(!secrets::known().is_empty());
    secrets::assert_none_in(&log, "the server");
    // In lower case too, because search folds the case of its text.
    let word = CONTENT.to_lowercase();
    let leaks: Vec<_> = log.lines().filter(|line| line.to_lowercase().contains(&word)).collect();
    assert!(leaks.is_empty(), "content or a path was logged: {leaks:#?}");
    for line in log.lines() {
        let is_json = serde_json::from_str::<Value>(line).is_ok();
        assert!(is_json || log_format != "json", "not JSON: {line}");
        if line.contains("blob.put") {
            assert!(line.contains("req_") && line.contains(&tenant.id.to_string()), "whose is it? {line}");
        }
    }
    assert_eq!(log.contains("blob.put"), pair.has_s3());
}

/// Sends a request that must be answered with this status, so that its lines are in
/// the log.
async fn answered(client: &Client, request: (Method, &str), body: &Value, status: u16) -> Value {
    let (method, path) = request;
    let request = client.request(method, path);
    let answer = send(if body.is_null() { request } else { request.json(body) }).await;
    assert_eq!(answer.status, status, "{path} {body}: {}", answer.text);
    answer.json()
}

async fn got(client: &Client, path: &str) -> Value {
    answered(client, (Method::GET, path), &Value::Null, 200).await
}

async fn posted(client: &Client, path: &str, body: &Value) -> Value {
    answered(client, (Method::POST, path), body, 200).await
}

async fn made(client: &Client, path: &str, body: &Value) -> String {
    posted(client, path, body).await["id"].as_str().unwrap().to_owned()
}

async fn use_memory_tool(client: &Client, tenant: &Tenant) {
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
        client.tool(tenant, &input).await;
    }
}

async fn use_stores(client: &Client, tenant: &Tenant) {
    let memories = format!("/v1/memory_stores/{}/memories", tenant.store_id);
    let memory = json!({"path": format!("/{CONTENT}"), "content": CONTENT});
    let erasure = json!({"memory_store_id": tenant.store_id, "path_prefix": format!("/{CONTENT}/")});
    for (path, body) in [
        ("/v1/memory_stores", json!({"name": CONTENT, "description": CONTENT})),
        ("/v1/memory_stores", json!({"name": CONTENT, "other": CONTENT})),
        (&memories, memory.clone()),
        (&memories, memory),
        ("/v1/api_keys", json!({"name": CONTENT, "scopes": ["memory:read"]})),
        ("/v1/erasures", erasure),
        ("/v1/erasures", json!({"store_metadata": {CONTENT: CONTENT}})),
    ] {
        let answer = client.post(path, &body).await;
        if let Some(key) = answer.json()["api_key"].as_str() {
            secrets::remember(key, "an API key");
        }
    }
    for path in [format!("/v1/memory_stores/{CONTENT}"), format!("/v1/{CONTENT}?x-api-key={CONTENT}")] {
        answered(client, (Method::GET, &path), &Value::Null, 404).await;
    }
    let broken = client.request(Method::POST, &tool_calls(tenant.store_id));
    send(broken.header("content-type", "application/json").body(format!("{{\"{CONTENT}"))).await;
}

async fn use_wrong_credentials(client: &Client, key: &str) {
    let last = if key.ends_with('0') { '1' } else { '0' };
    let mistyped = format!("{}{last}", &key[..56]);
    secrets::remember(&mistyped, "a mistyped API key");
    let wrong = client.with_key(&mistyped).request(Method::GET, "/v1/memory_stores/x");
    assert_eq!(send(wrong).await.status, 401);
    send(client.bare(Method::GET, "/v1/memory_stores/x").bearer_auth(key)).await;
}

/// Every change of a memory by its id, and every way of listing it, refusals among
/// them.
async fn use_memories(client: &Client, store: &str) {
    let memories = format!("/v1/memory_stores/{store}/memories");
    let memory = json!({"path": format!("/{CONTENT}/a.md"), "content": format!("{CONTENT} one")});
    let id = made(client, &memories, &memory).await;
    let at = format!("{memories}/{id}");
    let zeros = "0".repeat(64);
    let stale = json!({"type": "content_sha256", "content_sha256": zeros});
    for (body, status) in [
        (json!({"content": format!("{CONTENT} two")}), 200),
        (json!({"path": format!("/{CONTENT}/b.md")}), 200),
        (json!({"pinned": true}), 200),
        (json!({"content": CONTENT, "precondition": stale}), 409),
        (json!({"path": format!("/{CONTENT}//c.md")}), 400),
        (json!({CONTENT: CONTENT}), 400),
    ] {
        answered(client, (Method::PATCH, &at), &body, status).await;
    }
    let taken = json!({"path": format!("/{CONTENT}"), "content": ""});
    answered(client, (Method::POST, &memories), &taken, 409).await;
    let below = format!("?path_prefix=/{CONTENT}/&view=full");
    for query in [below.as_str(), "?depth=1", "?limit=1", &format!("/{id}")] {
        got(client, &format!("{memories}{query}")).await;
    }
    let wrong = format!("{memories}?path_prefix={CONTENT}");
    let gone = format!("{at}?expected_content_sha256={zeros}");
    for (method, path, status) in
        [(Method::GET, wrong, 400), (Method::DELETE, gone, 409), (Method::DELETE, at, 200)]
    {
        answered(client, (method, &path), &Value::Null, status).await;
    }
    let edit = json!({"name": CONTENT, "description": CONTENT, "metadata": {CONTENT: CONTENT}});
    answered(client, (Method::PATCH, &format!("/v1/memory_stores/{store}")), &edit, 200).await;
}

async fn use_history(client: &Client, store: &str) {
    let versions = format!("/v1/memory_stores/{store}/memory_versions");
    let listed = got(client, &format!("{versions}?view=full")).await;
    let at = |operation: &str| {
        let mut listed = listed["data"].as_array().unwrap().iter();
        let version = listed.find(|version| version["operation"] == operation).unwrap();
        format!("{versions}/{}", version["id"].as_str().unwrap())
    };
    got(client, &at("created")).await;
    for (operation, change, status) in [
        ("modified", "restore", 200),
        ("deleted", "restore", 409),
        ("created", "redact", 200),
        ("created", "restore", 409),
    ] {
        let path = format!("{}/{change}", at(operation));
        answered(client, (Method::POST, &path), &json!({}), status).await;
    }
}

/// Every agent tool below a root, with an error of each kind.
async fn use_agent_tools(client: &Client, calls: &str, root: &str) {
    let file = format!("{root}/{CONTENT} tools.md");
    let edit = |old: &str| json!({"path": file, "edits": [{"old_str": old, "new_str": CONTENT}]});
    let new = json!({"path": file, "content": CONTENT, "precondition": {"type": "not_exists"}});
    for (name, input) in [
        ("memory_write", json!({"path": file, "content": format!("{CONTENT}\n")})),
        ("memory_write", new),
        ("memory_append", json!({"path": file, "content": CONTENT})),
        ("memory_edit", edit(&format!("{CONTENT}\n{CONTENT}"))),
        ("memory_edit", edit("not there")),
        ("memory_read", json!({"path": file})),
        ("memory_read", json!({"path": format!("{root}/../{CONTENT}")})),
        ("memory_list", json!({"path_prefix": root})),
        ("memory_list", json!({"path_prefix": format!("{root}/{CONTENT}/none")})),
        ("memory_search", json!({"query": format!("{CONTENT} -x \"{CONTENT}\""), "path_prefix": root})),
        ("memory_delete", json!({"path": file})),
        ("memory_delete", json!({"path": file})),
        (CONTENT, json!({"path": CONTENT})),
    ] {
        let id = format!("toolu_{CONTENT}");
        posted(client, calls, &json!({"type": "tool_use", "id": id, "name": name, "input": input})).await;
    }
}

async fn use_search(client: &Client, store: &str) {
    let search = format!("/v1/memory_stores/{store}/search?query={CONTENT}");
    assert_ne!(got(client, &search).await["data"], json!([]), "the hit has no lines");
    for (more, status) in [
        (format!("&path_prefix=/{CONTENT}/"), 200),
        (format!("&page=page_{CONTENT}"), 400),
        (format!("&path_prefix={CONTENT}"), 400),
    ] {
        answered(client, (Method::GET, &format!("{search}{more}")), &Value::Null, status).await;
    }
}

async fn use_session(client: &Client, store: &str) {
    let resource = json!({"type": "memory_store", "memory_store_id": store, "instructions": CONTENT});
    let session = json!({
        "agent": {"type": "agent", "id": CONTENT, "system": CONTENT}, "environment_id": CONTENT,
        "title": CONTENT, "metadata": {CONTENT: CONTENT}, "vault_ids": [CONTENT], "resources": [resource],
    });
    let session = posted(client, "/v1/sessions", &session).await;
    let token = session["token"].as_str().unwrap();
    secrets::remember(token, "a session's token");
    let at = format!("/v1/sessions/{}", session["id"].as_str().unwrap());
    posted(client, &at, &json!({"title": format!("{CONTENT} again")})).await;
    let instructions = json!({"instructions": format!("{CONTENT} again")});
    posted(client, &format!("{at}/resources/{store}"), &instructions).await;
    got(client, &format!("/v1/sessions?agent_id={CONTENT}")).await;
    let holder = client.with_key(token);
    let root = format!("/memories/{}", CONTENT.to_lowercase());
    use_agent_tools(&holder, &format!("{at}/tool_calls"), &root).await;
    got(&holder, &format!("{at}/events")).await;
    use_mcp(&holder, "/mcp", &root).await;
    use_mcp(client, &format!("/mcp/{store}"), "/memories").await;
    posted(client, &format!("{at}/archive"), &json!({})).await;
}

async fn use_mcp(client: &Client, path: &str, root: &str) {
    let file = format!("{root}/{CONTENT} mcp.md");
    let uri = format!("memory://{}/{CONTENT}%20mcp.md", CONTENT.to_lowercase());
    let prompt = json!({"name": "memory_protocol", "arguments": {"topic": CONTENT}});
    let tool = |name: &str, input: Value| ("tools/call", json!({"name": name, "arguments": input}));
    for (method, params) in [
        ("tools/list", json!({})),
        tool("memory_write", json!({"path": file, "content": CONTENT})),
        tool("memory_search", json!({"query": CONTENT})),
        tool("memory", json!({"command": "view", "path": file})),
        tool("memory", json!({"command": CONTENT})),
        tool(CONTENT, json!({CONTENT: CONTENT})),
        ("resources/list", json!({})),
        ("resources/read", json!({"uri": uri})),
        ("resources/read", json!({"uri": format!("memory://{CONTENT}/none")})),
        ("prompts/get", prompt),
        ("prompts/get", json!({"name": CONTENT})),
        (CONTENT, json!({CONTENT: CONTENT})),
        tool("memory_delete", json!({"path": file})),
    ] {
        let message = json!({"jsonrpc": "2.0", "id": CONTENT, "method": method, "params": params});
        let request = client.request(Method::POST, path).json(&message);
        let answer = send(request.header("accept", "application/json, text/event-stream")).await;
        assert!(answer.text.contains("jsonrpc"), "{message}: {}", answer.text);
    }
    let broken = client.request(Method::POST, path).header("content-type", "application/json");
    let broken = broken.header("accept", "application/json, text/event-stream");
    send(broken.body(format!("{{\"{CONTENT}"))).await;
}
