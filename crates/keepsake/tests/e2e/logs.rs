//! What servers write: enough to find a request, and never a secret.

use crate::api::support::holds;
use crate::isolation::carry_out_every_operation;
use crate::prelude::*;

/// A word of content and paths that no log may have.
const CONTENT: &str = "Zugspitze";

on_pairs! { finest_log_has_no_secret_content_or_path }

async fn finest_log_has_no_secret_content_or_path(pair: Pair) {
    // Keepsake's own lines at their finest, and others' as far as they may go.
    let log_format = if pair.has_postgres() { "human" } else { "json" };
    let config = ServerConfig { log_filter: "trace", log_format, ..ServerConfig::default() };
    let (_deployment, tenant, mut server, client) = started_with(pair, &config).await;
    carry_out_every_operation(&client, CONTENT).await;
    use_wrong_credentials(&client, &tenant.key).await;
    let store = Store::make_with(&client, &json!({"name": CONTENT, "description": CONTENT})).await;
    use_tools(&client, &tool_calls(&store.id), &format!("/mcp/{}", store.id), "/memories").await;
    use_session(&client, &store.id).await;
    use_store(&client, &store).await;
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
            // The copy of a store goes on after its request.
            let is_known = line.contains("req_") || line.contains("engine.copy_store");
            assert!(is_known && line.contains(&tenant.id.to_string()), "whose is it? {line}");
        }
    }
    assert_eq!(log.contains("blob.put"), pair.has_s3());
}

async fn use_wrong_credentials(client: &Client, key: &str) {
    let last = if key.ends_with('0') { '1' } else { '0' };
    let mistyped = format!("{}{last}", &key[..56]);
    secrets::remember(&mistyped, "a mistyped API key");
    let wrong = client.with_key(&mistyped).request(Method::GET, "/v1/memory_stores/x");
    assert_eq!(send(wrong).await.status, 401);
    send(client.bare(Method::GET, "/v1/memory_stores/x").bearer_auth(key)).await;
}

/// The word where `carry_out_every_operation` does not have it, as in refusals of each kind.
async fn use_store(client: &Client, store: &Store) {
    let (memories, search) = (store.memories(), format!("{}/search?query={CONTENT}", store.path));
    let new = store.create(&format!("/{CONTENT}/a.md"), &format!("{CONTENT} one")).await;
    let (at, version) = (store.memory(&new), store.version(&new["memory_version_id"]));
    assert_ne!(ok(&client.get(&search).await)["data"], json!([]), "the hit has no lines");
    store.update(&new, &json!({"content": format!("{CONTENT} two")})).await;
    let words = json!({CONTENT: CONTENT});
    let gone = format!("{at}?expected_content_sha256={}", sha256("stale"));
    let (post, get, delete, none) = (Method::POST, Method::GET, Method::DELETE, Value::Null);
    for (status, method, path, body) in [
        (400, &post, "/v1/memory_stores", json!({"name": CONTENT, "other": CONTENT})),
        (200, &post, &store.path, json!({"name": CONTENT, "description": CONTENT, "metadata": words})),
        (409, &post, &memories, json!({"path": format!("/{CONTENT}/a.md"), "content": CONTENT})),
        (409, &post, &memories, json!({"path": format!("/{CONTENT}"), "content": ""})),
        (200, &post, &at, json!({"path": format!("/{CONTENT}/b.md")})),
        (409, &post, &at, json!({"content": CONTENT, "precondition": holds("stale")})),
        (400, &post, &at, json!({"path": format!("/{CONTENT}//c.md")})),
        (400, &post, &at, words.clone()),
        (200, &post, &format!("{version}/redact"), json!({})),
        (409, &post, &format!("{version}/restore"), json!({})),
        (400, &get, &format!("{memories}?path_prefix={CONTENT}"), none.clone()),
        (400, &get, &format!("{search}&page=page_{CONTENT}"), none.clone()),
        (400, &get, &format!("{search}&path_prefix={CONTENT}"), none.clone()),
        (200, &get, &format!("/v1/sessions?agent_id={CONTENT}"), none.clone()),
        (404, &get, &format!("/v1/memory_stores/{CONTENT}"), none.clone()),
        (404, &get, &format!("/v1/{CONTENT}?x-api-key={CONTENT}"), none.clone()),
        (409, &delete, &gone, none),
    ] {
        let request = client.request(method.clone(), path);
        let answer = send(if body.is_null() { request } else { request.json(&body) }).await;
        assert_eq!(answer.status, status, "{path} {body}: {}", answer.text);
    }
    let below = json!({"memory_store_id": store.id, "path_prefix": format!("/{CONTENT}/")});
    for erasure in [below, json!({"store_metadata": words})] {
        ok(&client.post("/v1/erasures", &erasure).await);
    }
}

async fn use_session(client: &Client, store_id: &str) {
    let resource = json!({"type": "memory_store", "memory_store_id": store_id, "instructions": CONTENT});
    let session = json!({
        "agent": {"type": "agent", "id": CONTENT, "system": CONTENT}, "environment_id": CONTENT,
        "title": CONTENT, "metadata": {CONTENT: CONTENT}, "vault_ids": [CONTENT], "resources": [resource],
    });
    let session = new_session(client, &session).await;
    let at = format!("{SESSIONS}/{}", text(&session["id"]));
    ok(&client.post(&at, &json!({"title": format!("{CONTENT} again")})).await);
    let instructions = json!({"instructions": format!("{CONTENT} again")});
    ok(&client.post(&format!("{at}/resources/{store_id}"), &instructions).await);
    let holder = client.with_key(text(&session["token"]));
    let root = format!("/memories/{}", CONTENT.to_lowercase());
    use_tools(&holder, &format!("{at}/tool_calls"), "/mcp", &root).await;
    ok(&holder.get(&format!("{at}/events")).await);
}

/// Every tool below a root with an error of each kind, as blocks and over MCP.
async fn use_tools(client: &Client, calls: &str, mcp: &str, root: &str) {
    let file = format!("{root}/{CONTENT} tools.md");
    let moved = format!("{root}/{CONTENT}/moved.md");
    let edit = |old: &str| json!({"path": file, "edits": [{"old_str": old, "new_str": CONTENT}]});
    let new = json!({"path": file, "content": CONTENT, "precondition": {"type": "not_exists"}});
    for (name, input) in [
        ("memory_write", json!({"path": file, "content": format!("{CONTENT}\n")})),
        ("memory_write", new),
        ("memory_append", json!({"path": file, "content": CONTENT})),
        ("memory_edit", edit(&format!("{CONTENT}\n{CONTENT}"))),
        ("memory_edit", edit("not there")),
        ("memory_read", json!({"path": format!("{root}/../{CONTENT}")})),
        ("memory_list", json!({"path_prefix": format!("{root}/{CONTENT}/none")})),
        ("memory_search", json!({"query": format!("{CONTENT} -x \"{CONTENT}\""), "path_prefix": root})),
        ("memory_delete", json!({"path": file})),
        ("memory", json!({"command": "create", "path": file, "file_text": format!("{CONTENT}\n")})),
        ("memory", json!({"command": "insert", "path": file, "insert_line": 1, "insert_text": CONTENT})),
        ("memory", json!({"command": "insert", "path": file, "insert_line": 0, "insert_text": "nul \u{0}"})),
        ("memory", json!({"command": "str_replace", "path": file, "old_str": "none", "new_str": CONTENT})),
        ("memory", json!({"command": "rename", "old_path": file, "new_path": moved})),
        ("memory", json!({"command": "delete", "path": file})),
        ("memory", json!({"command": CONTENT})),
        (CONTENT, json!({"path": CONTENT})),
    ] {
        let mut call = block(name, &input);
        call["id"] = json!(format!("toolu_{CONTENT}"));
        ok(&client.post(calls, &call).await);
        ask(client, mcp, "tools/call", json!({"name": name, "arguments": input})).await;
    }
    let slug = CONTENT.to_lowercase();
    for (method, params) in [
        ("tools/list", json!({})),
        ("resources/list", json!({})),
        ("resources/read", json!({"uri": format!("memory://{slug}/{CONTENT}/moved.md")})),
        ("resources/read", json!({"uri": format!("memory://{CONTENT}/none")})),
        ("prompts/get", json!({"name": "memory_protocol", "arguments": {"topic": CONTENT}})),
        ("prompts/get", json!({"name": CONTENT})),
        (CONTENT, json!({CONTENT: CONTENT})),
    ] {
        ask(client, mcp, method, params).await;
    }
    for path in [calls, mcp] {
        let broken = client.request(Method::POST, path).header("content-type", "application/json");
        send(broken.body(format!("{{\"{CONTENT}"))).await;
    }
}

async fn ask(client: &Client, mcp: &str, method: &str, params: Value) {
    let message = json!({"jsonrpc": "2.0", "id": CONTENT, "method": method, "params": params});
    let answer = client.post(mcp, &message).await;
    assert!(answer.text.contains("jsonrpc"), "{message}: {}", answer.text);
}
