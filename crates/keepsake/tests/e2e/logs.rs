//! What servers write: enough to find a request, and never a secret.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::client::{send, tool_calls};
use crate::support::deployment::ServerConfig;
use crate::support::{Answer, Client, Deployment, Pair, Server, Tenant, secrets};

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

/// Keepsake's own lines at their finest, and others' as far as they may go.
const FILTER: &str = "trace";

async fn finest_log_is_clean(pair: Pair, log_format: &'static str) {
    let deployment = Deployment::new(pair).await;
    let tenant = deployment.tenant().await;
    let config = ServerConfig { log_filter: FILTER, log_format, ..ServerConfig::default() };
    let mut server = deployment.start_with(&config).await;
    use_everything(&server, &tenant).await;
    let client = server.client(&tenant);
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
    let leaks = log.lines().filter(|line| line.to_lowercase().contains(&word));
    let leaks: Vec<_> = leaks.collect();
    assert!(leaks.is_empty(), "content or a path was logged: {leaks:#?}");
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
    let store = format!("/v1/memory_stores/{}", tenant.store_id);
    let memory = json!({"path": format!("/{CONTENT}"), "content": CONTENT});
    let erasure = json!({"memory_store_id": tenant.store_id, "path_prefix": format!("/{CONTENT}/")});
    for (path, body) in [
        ("/v1/memory_stores", json!({"name": CONTENT, "description": CONTENT})),
        ("/v1/memory_stores", json!({"name": CONTENT, "other": CONTENT})),
        (&format!("{store}/memories"), memory.clone()),
        (&format!("{store}/memories"), memory),
        ("/v1/api_keys", json!({"name": CONTENT, "scopes": ["memory:read"]})),
        ("/v1/erasures", erasure),
        ("/v1/erasures", json!({"store_metadata": {CONTENT: CONTENT}})),
    ] {
        let answer = client.post(path, &body).await;
        if let Some(key) = answer.json()["api_key"].as_str() {
            secrets::remember(key, "an API key");
        }
    }
    client.get(&format!("/v1/memory_stores/{CONTENT}")).await;
    client.get(&format!("/v1/{CONTENT}?x-api-key={CONTENT}")).await;
    let broken = client.request(Method::POST, &tool_calls(tenant.store_id));
    let broken = broken.header("content-type", "application/json");
    send(broken.body(format!("{{\"{CONTENT}"))).await;
    let last = if tenant.key.ends_with('0') { '1' } else { '0' };
    let mistyped = format!("{}{last}", &tenant.key[..56]);
    secrets::remember(&mistyped, "a mistyped API key");
    let wrong = Client::new(&server.url(), &mistyped);
    assert_eq!(wrong.get("/v1/memory_stores/x").await.status, 401);
    let bearer = wrong.bare(Method::GET, "/v1/memory_stores/x");
    send(bearer.header("authorization", format!("Bearer {}", tenant.key))).await;
}

/// The id of what a POST made.
async fn made(client: &Client, path: &str, body: &Value) -> String {
    let made = done(&client.post(path, body).await);
    made["id"].as_str().unwrap().to_owned()
}

/// The answer to a request that must have been carried out, so that its lines are
/// in the log.
#[track_caller]
fn done(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

/// Every change of a memory by its id, and every way of listing it, refusals among
/// them.
async fn use_memories(client: &Client, store: &str) {
    let memories = format!("/v1/memory_stores/{store}/memories");
    let memory = json!({"path": format!("/{CONTENT}/a.md"), "content": format!("{CONTENT} one")});
    let id = made(client, &memories, &memory).await;
    let at = format!("{memories}/{id}");
    let stale = json!({"type": "content_sha256", "content_sha256": "0".repeat(64)});
    for (body, status) in [
        (json!({"content": format!("{CONTENT} two")}), 200),
        (json!({"path": format!("/{CONTENT}/b.md")}), 200),
        (json!({"pinned": true}), 200),
        (json!({"content": CONTENT, "precondition": stale}), 409),
        (json!({"path": format!("/{CONTENT}//c.md")}), 400),
        (json!({CONTENT: CONTENT}), 400),
    ] {
        let answer = send(client.request(Method::PATCH, &at).json(&body)).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.text);
    }
    let taken = json!({"path": format!("/{CONTENT}"), "content": ""});
    let taken = client.post(&memories, &taken).await;
    assert_eq!(taken.status, 409, "{}", taken.text);
    let below = format!("?path_prefix=/{CONTENT}/&view=full");
    for query in [below.as_str(), "?depth=1", "?limit=1"] {
        done(&client.get(&format!("{memories}{query}")).await);
    }
    done(&client.get(&at).await);
    let refused = client.get(&format!("{memories}?path_prefix={CONTENT}")).await;
    assert_eq!(refused.status, 400, "{}", refused.text);
    let gone = format!("{at}?expected_content_sha256={}", "0".repeat(64));
    assert_eq!(send(client.request(Method::DELETE, &gone)).await.status, 409);
    done(&send(client.request(Method::DELETE, &at)).await);
    let edit = json!({"name": CONTENT, "description": CONTENT, "metadata": {CONTENT: CONTENT}});
    let of_store = client.request(Method::PATCH, &format!("/v1/memory_stores/{store}"));
    done(&send(of_store.json(&edit)).await);
}

/// Versions read, restored and redacted.
async fn use_history(client: &Client, store: &str) {
    let versions = format!("/v1/memory_stores/{store}/memory_versions");
    let listed = done(&client.get(&format!("{versions}?view=full")).await);
    let listed = listed["data"].as_array().unwrap();
    assert!(listed.len() >= 4, "{listed:?}");
    let at = |operation: &str| {
        let version = listed.iter().find(|version| version["operation"] == operation);
        format!("{versions}/{}", version.unwrap()["id"].as_str().unwrap())
    };
    let (created, modified, deleted) = (at("created"), at("modified"), at("deleted"));
    done(&client.get(&created).await);
    done(&client.post(&format!("{modified}/restore"), &json!({})).await);
    let refused = client.post(&format!("{deleted}/restore"), &json!({})).await;
    assert_eq!(refused.status, 409, "{}", refused.text);
    done(&client.post(&format!("{created}/redact"), &json!({})).await);
    let refused = client.post(&format!("{created}/restore"), &json!({})).await;
    assert_eq!(refused.status, 409, "{}", refused.text);
}

/// Every agent tool below a root, with an error of each kind.
async fn use_agent_tools(client: &Client, calls: &str, root: &str) {
    let file = format!("{root}/{CONTENT} tools.md");
    let twice = format!("{CONTENT}\n{CONTENT}");
    let edit = |old: &str| json!({"path": file, "edits": [{"old_str": old, "new_str": CONTENT}]});
    let new = json!({"path": file, "content": CONTENT, "precondition": {"type": "not_exists"}});
    let query = format!("{CONTENT} -x \"{CONTENT}\"");
    for (name, input) in [
        ("memory_write", json!({"path": file, "content": format!("{CONTENT}\n")})),
        ("memory_write", new),
        ("memory_append", json!({"path": file, "content": CONTENT})),
        ("memory_edit", edit(&twice)),
        ("memory_edit", edit("not there")),
        ("memory_read", json!({"path": file})),
        ("memory_read", json!({"path": format!("{root}/../{CONTENT}")})),
        ("memory_list", json!({"path_prefix": root})),
        ("memory_list", json!({"path_prefix": format!("{root}/{CONTENT}/none")})),
        ("memory_search", json!({"query": query, "path_prefix": root})),
        ("memory_delete", json!({"path": file})),
        ("memory_delete", json!({"path": file})),
        (CONTENT, json!({"path": CONTENT})),
    ] {
        let block =
            json!({"type": "tool_use", "id": format!("toolu_{CONTENT}"), "name": name, "input": input});
        done(&client.post(calls, &block).await);
    }
}

async fn use_search(client: &Client, store: &str) {
    let search = format!("/v1/memory_stores/{store}/search");
    let found = done(&client.get(&format!("{search}?query={CONTENT}")).await);
    assert_ne!(found["data"], json!([]), "the hit has no lines");
    let below = format!("{search}?query={CONTENT}&path_prefix=/{CONTENT}/");
    done(&client.get(&below).await);
    for wrong in
        [format!("?query={CONTENT}&page=page_{CONTENT}"), format!("?query={CONTENT}&path_prefix={CONTENT}")]
    {
        let refused = client.get(&format!("{search}{wrong}")).await;
        assert_eq!(refused.status, 400, "{}", refused.text);
    }
}

/// A session with its tools, events and MCP.
async fn use_session(client: &Client, store: &str) {
    let resource = json!({"type": "memory_store", "memory_store_id": store, "instructions": CONTENT});
    let session = json!({
        "agent": {"type": "agent", "id": CONTENT, "system": CONTENT}, "environment_id": CONTENT,
        "title": CONTENT, "metadata": {CONTENT: CONTENT}, "vault_ids": [CONTENT], "resources": [resource],
    });
    let session = done(&client.post("/v1/sessions", &session).await);
    let token = session["token"].as_str().unwrap();
    secrets::remember(token, "a session's token");
    let at = format!("/v1/sessions/{}", session["id"].as_str().unwrap());
    let title = json!({"title": format!("{CONTENT} again")});
    done(&client.post(&at, &title).await);
    let instructions = json!({"instructions": format!("{CONTENT} again")});
    let resource = format!("{at}/resources/{store}");
    done(&client.post(&resource, &instructions).await);
    done(&client.get(&format!("/v1/sessions?agent_id={CONTENT}")).await);
    let holder = client.with_key(token);
    let root = format!("/memories/{}", CONTENT.to_lowercase());
    use_agent_tools(&holder, &format!("{at}/tool_calls"), &root).await;
    done(&holder.get(&format!("{at}/events")).await);
    use_mcp(&holder, "/mcp", &root).await;
    use_mcp(client, &format!("/mcp/{store}"), "/memories").await;
    done(&client.post(&format!("{at}/archive"), &json!({})).await);
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
    let broken = client.request(Method::POST, path);
    let broken = broken.header("content-type", "application/json");
    let broken = broken.header("accept", "application/json, text/event-stream");
    send(broken.body(format!("{{\"{CONTENT}"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_of_a_write_name_its_request_and_tenant() {
    let deployment = Deployment::new(Pair::PostgresS3).await;
    let tenant = deployment.tenant().await;
    let config = ServerConfig { log_filter: "debug", ..ServerConfig::default() };
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
