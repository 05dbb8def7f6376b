//! The permissions of a session token for each operation.
//!
//! The operations come from the server's OpenAPI document. A new operation fails this
//! test until it is in one of the lists below.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::cases;
use super::document::{Operation, operations};
use super::fixture::{Fixture, Ids, Kind, SESSIONS, made, snapshot_of_store, text, unread};
use super::sweep::ask;
use crate::support::{Answer, Client, Deployment, Pair, secrets};

/// Reading operations that a token may use.
const READS: [&str; 10] = [
    "memories.list",
    "memories.search",
    "memory_stores.search",
    "memories.retrieve",
    "sessions.retrieve",
    "sessions.events.list",
    "sessions.events.stream",
    "sessions.resources.list",
    "sessions.resources.retrieve",
    "tools.list",
];
/// Operations of which every request changes a memory.
const WRITES: [&str; 5] =
    ["memories.batch", "memories.create", "memories.update", "memories.update_by_patch", "memories.delete"];
/// Operations that read or change a memory, depending on the request.
const TOOLS: [&str; 3] = ["tool_calls.create", "sessions.tool_calls.create", "mcp.of_session"];
/// Operations that a session's token must not use.
const OTHERS: [&str; 33] = [
    "mcp.of_store",
    "memory_stores.create",
    "memory_stores.list",
    "memory_stores.retrieve",
    "memory_stores.update",
    "memory_stores.update_by_patch",
    "memory_stores.archive",
    "memory_stores.usage",
    "memory_stores.changes.list",
    "memory_stores.changes.stream",
    "memory_stores.import",
    "memory_stores.delete",
    "memory_versions.list",
    "memory_versions.retrieve",
    "memory_versions.redact",
    "memory_versions.restore",
    "api_keys.create",
    "api_keys.list",
    "api_keys.retrieve",
    "api_keys.revoke",
    "audit.list",
    "erasures.create",
    "erasures.list",
    "erasures.retrieve",
    "sessions.create",
    "sessions.list",
    "sessions.update",
    "sessions.token",
    "sessions.archive",
    "sessions.delete",
    "sessions.resources.add",
    "sessions.resources.update",
    "sessions.resources.delete",
];

#[tokio::test(flavor = "multi_thread")]
async fn session_token_has_exactly_its_permissions() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start().await;
    let owner = server.client(&tenant);
    let document = owner.get("/openapi.json").await.json();
    let guarded: Vec<_> =
        operations(&document).into_iter().filter(|operation| operation.needs_credential).collect();
    let known = READS.iter().chain(&WRITES).chain(&TOOLS).chain(&OTHERS);
    assert_eq!(
        guarded.iter().map(|operation| operation.id.as_str()).collect::<BTreeSet<_>>(),
        known.copied().collect(),
        "the document (left) has operations that are not here"
    );
    for operation in &guarded {
        on_own(&owner, operation).await;
        on_what_is_read_only(&owner, operation).await;
        on_what_is_not_attached(&owner, operation).await;
    }
}

/// A session of a fixture's store with this access, and its token's client.
async fn holder(owner: &Client, ids: &mut Ids, access: &str) -> Client {
    let store = ids.get(Kind::Store);
    let new = json!({
        "agent": "a", "environment_id": "e",
        "resources": [{"type": "memory_store", "memory_store_id": store, "access": access}],
    });
    let session = made(owner, SESSIONS, &new).await;
    let token = text(&session["token"]);
    secrets::remember(token, "a session's token");
    ids.set(Kind::Resource, text(&session["resources"][0]["id"]).to_owned());
    ids.set(Kind::Session, text(&session["id"]).to_owned());
    owner.with_key(token)
}

/// Sends all that an operation's owner may send, one after the other.
async fn try_all(client: &Client, operation: &Operation, ids: &Ids) -> Vec<(Value, Answer)> {
    let bodies = cases::bodies(&operation.id);
    let mut answers = Vec::new();
    if bodies.is_empty() {
        answers.push((Value::Null, ask(client, operation, ids, None).await));
    }
    for body in bodies {
        let body = (body.of)(ids);
        let answer = ask(client, operation, ids, Some(&body)).await;
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

/// Whether a tool refused, and what it told.
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

async fn on_own(owner: &Client, operation: &Operation) {
    let mut ids = Fixture::new(owner, "ayla").await.ids;
    let client = holder(owner, &mut ids, "read_write").await;
    for (body, answer) in try_all(&client, operation, &ids).await {
        let id = operation.id.as_str();
        let expected =
            if READS.contains(&id) || WRITES.contains(&id) || TOOLS.contains(&id) { 200 } else { 403 };
        assert_eq!(answer.status, expected, "{id} {body}: {}", answer.text);
        if expected == 200 {
            assert_ne!(answer.json()["is_error"], true, "{id} {body}: {}", answer.text);
        }
        if TOOLS.contains(&id) {
            assert!(!outcome(&answer).0, "{id} {body}: {}", answer.text);
        }
    }
}

async fn on_what_is_read_only(owner: &Client, operation: &Operation) {
    let mut ids = Fixture::new(owner, "ayla").await.ids;
    let client = holder(owner, &mut ids, "read_only").await;
    let store = ids.get(Kind::Store).to_owned();
    let before = unread(snapshot_of_store(owner, &store).await);
    for (body, answer) in try_all(&client, operation, &ids).await {
        let id = operation.id.as_str();
        if TOOLS.contains(&id) {
            assert_eq!(answer.status, 200, "{id} {body}: {}", answer.text);
            let (is_refused, told) = outcome(&answer);
            assert_eq!(is_refused, changes(&body), "{id} {body}: {}", answer.text);
            if is_refused {
                assert!(told.contains("read-only"), "{id} {body}: {}", answer.text);
            }
        } else {
            let expected = if READS.contains(&id) { 200 } else { 403 };
            assert_eq!(answer.status, expected, "{id} {body}: {}", answer.text);
        }
        if answer.status == 403 {
            assert_eq!(answer.json()["error"]["type"], "permission_error", "{}", answer.text);
        }
    }
    assert_eq!(unread(snapshot_of_store(owner, &store).await), before, "{} changed something", operation.id);
}

/// For a token, other stores and sessions do not exist.
async fn on_what_is_not_attached(owner: &Client, operation: &Operation) {
    let mut own = Fixture::new(owner, "ayla").await.ids;
    let client = holder(owner, &mut own, "read_write").await;
    let others = Fixture::new(owner, "bela").await.ids;
    let nobodys = Ids::of_nobody();
    let store = others.get(Kind::Store).to_owned();
    let before = unread(snapshot_of_store(owner, &store).await);
    for ((body, theirs), (_, never)) in try_all(&client, operation, &others)
        .await
        .into_iter()
        .zip(try_all(&client, operation, &nobodys).await)
    {
        let told = theirs.text.replace(others.path(), nobodys.path());
        let told = told.replace(others.get(Kind::MountedPath), nobodys.get(Kind::MountedPath));
        let id = &operation.id;
        assert_eq!(without_length(&Answer { text: told, ..theirs }), without_length(&never), "{id} {body}");
        let is_named = operation.in_path.iter().any(|name| name == "memory_store_id" || name == "session_id");
        if is_named {
            assert!([403, 404].contains(&never.status), "{id} {body}: {}", never.text);
        }
    }
    assert_eq!(unread(snapshot_of_store(owner, &store).await), before, "{} changed something", operation.id);
}
