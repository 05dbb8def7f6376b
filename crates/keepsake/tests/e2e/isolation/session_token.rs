//! The permissions of a session token for each operation of the server's OpenAPI document.

use super::sweep::ask;
use super::*;

/// Reading operations that a token may use. Those that are in no list, it must not use.
const READS: &str = "memories.list memories.search memory_stores.search memories.retrieve sessions.retrieve \
    sessions.events.list sessions.events.stream sessions.resources.list sessions.resources.retrieve tools.list";
const WRITES: &str =
    "memories.batch memories.create memories.update memories.update_by_patch memories.delete";
const TOOLS: &str = "tool_calls.create sessions.tool_calls.create mcp.of_session";

fn has(operations: &str, id: &str) -> bool {
    operations.split(' ').any(|operation| operation == id)
}

#[tokio::test(flavor = "multi_thread")]
async fn session_token_has_exactly_its_permissions() {
    let (_deployment, _server, _, owner) = on_sqlite().await;
    let document = owner.get("/openapi.json").await.json();
    for operation in operations(&document).iter().filter(|operation| operation.needs_credential) {
        for access in ["read_write", "read_only"] {
            on_own(&owner, operation, access).await;
        }
        on_what_is_not_attached(&owner, operation).await;
    }
}

/// A session of a store with this access, and its token's client.
async fn holder(owner: &Client, ids: &mut Ids, access: &str) -> Client {
    let new = r#"{"agent": "a", "environment_id": "e",
        "resources": [{"type": "memory_store", "memory_store_id": "{store}", "access": "ACCESS"}]}"#;
    let session = made(owner, SESSIONS, &ids.body(&new.replace("ACCESS", access))).await;
    ids.set("resource", text(&session["resources"][0]["id"]));
    ids.set("session", text(&session["id"]));
    owner.with_key(text(&session["token"]))
}

async fn try_all(client: &Client, operation: &Operation, ids: &Ids) -> Vec<(Value, Answer)> {
    let mut bodies: Vec<_> = cases::bodies(&operation.id).iter().map(|body| ids.body(body)).collect();
    if bodies.is_empty() {
        bodies.push(Value::Null);
    }
    let mut answers = Vec::new();
    for body in bodies {
        let answer = ask(client, operation, ids, &body).await;
        answers.push((body, answer));
    }
    answers
}

/// The lasting parts of an answer without its length, because paths differ in length.
fn without_length(answer: &Answer) -> (u16, Vec<(String, String)>, String) {
    let (status, mut headers, text) = answer.lasting();
    headers.retain(|(name, _)| name != "content-length");
    (status, headers, text)
}

fn changes(body: &Value) -> bool {
    if let Some(method) = body["method"].as_str() {
        return method == "tools/call" && changes(&body["params"]);
    }
    let name = body["name"].as_str().unwrap_or_default();
    let command = body["command"].as_str().or(body["input"]["command"].as_str());
    !matches!(command, Some("view")) && !matches!(name, "memory_list" | "memory_read" | "memory_search")
}

fn outcome(answer: &Answer) -> (bool, String) {
    let told = answer.json();
    if told["jsonrpc"].is_string() {
        let result = &told["result"];
        assert!(result.is_object(), "{}", answer.text);
        (result["isError"] == true, result["content"].to_string())
    } else {
        (told["is_error"] == true, told["content"].to_string())
    }
}

async fn on_own(owner: &Client, operation: &Operation, access: &str) {
    let mut ids = Ids::of_new(owner, "ayla").await;
    let client = holder(owner, &mut ids, access).await;
    let is_read_only = access == "read_only";
    let before = unread(snapshot_of_store(owner, ids.get("store")).await);
    let id = &operation.id;
    let is_allowed = has(READS, id) || has(TOOLS, id) || !is_read_only && has(WRITES, id);
    for (body, answer) in try_all(&client, operation, &ids).await {
        assert_eq!(answer.status, if is_allowed { 200 } else { 403 }, "{id} {body}: {}", answer.text);
        if has(TOOLS, id) {
            let (is_refused, told) = outcome(&answer);
            assert_eq!(is_refused, is_read_only && changes(&body), "{id} {body}: {}", answer.text);
            assert!(!is_refused || told.contains("read-only"), "{id} {body}: {}", answer.text);
        }
        if !is_allowed {
            assert_eq!(answer.json()["error"]["type"], "permission_error", "{}", answer.text);
        }
    }
    if is_read_only {
        let after = unread(snapshot_of_store(owner, ids.get("store")).await);
        assert_eq!(after, before, "{id} changed something");
    }
}

/// For a token, other stores and sessions do not exist.
async fn on_what_is_not_attached(owner: &Client, operation: &Operation) {
    let mut own = Ids::of_new(owner, "ayla").await;
    let client = holder(owner, &mut own, "read_write").await;
    let (others, nobodys) = (Ids::of_new(owner, "bela").await, Ids::of_nobody());
    let before = unread(snapshot_of_store(owner, others.get("store")).await);
    let asked = try_all(&client, operation, &others).await;
    let asked = asked.into_iter().zip(try_all(&client, operation, &nobodys).await);
    let id = &operation.id;
    for ((body, theirs), (_, never)) in asked {
        let told = theirs.text.replace(others.get("path"), nobodys.get("path"));
        let told = told.replace(others.get("mounted_path"), nobodys.get("mounted_path"));
        assert_eq!(without_length(&Answer { text: told, ..theirs }), without_length(&never), "{id} {body}");
        if operation.path.contains("{store}") || operation.path.contains("{session}") {
            assert!([403, 404].contains(&never.status), "{id} {body}: {}", never.text);
        }
    }
    assert_eq!(unread(snapshot_of_store(owner, others.get("store")).await), before, "{id} changed something");
}
