//! Several memories changed in one call, over the wire.

use serde_json::{Value, json};

use super::support::{Place, Store, holds, invalid, ok, post_text, post_with, refused, sha256, text};
use crate::support::{Answer, Client};

fn batch_of(store: &Store) -> String {
    format!("{}/batch", store.memories())
}

async fn post(client: &Client, store: &Store, body: &Value) -> Answer {
    client.post(&batch_of(store), body).await
}

fn create(path: &str, content: &str) -> Value {
    json!({"type": "create", "path": path, "content": content})
}

fn statuses(body: &Value) -> Vec<&str> {
    let data = body["data"].as_array().unwrap();
    data.iter().map(|result| text(&result["status"])).collect()
}

pub(super) async fn results_come_in_the_order_sent(place: Place) {
    let (client, store) = (&place.client, place.store());
    let edited = store.create("/edited", "one").await;
    let deleted = store.create("/deleted", "one").await;
    let body = json!({"atomic": false, "operations": [
        {"type": "create", "path": "/made", "content": "x", "pinned": true},
        create("/edited", "x"),
        {"type": "update", "memory_id": edited["id"], "content": "two", "precondition": holds("one")},
        {"type": "upsert", "path": "/put", "content": "y"},
        {"type": "delete", "memory_id": deleted["id"], "expected_content_sha256": sha256("one")},
        {"type": "delete", "memory_id": "mem_00000000000000000000000001"},
    ]});
    // Two operations on one path, one of them by its id.
    let answer = ok(&post(client, &store, &body).await);
    assert_eq!(answer["type"], "memory_batch");
    let expected = ["created", "failed", "updated", "created", "deleted", "failed"];
    assert_eq!(statuses(&answer), expected);
    let data = answer["data"].as_array().unwrap();
    for (result, status) in data.iter().zip(expected) {
        assert_eq!(result["type"], "memory_batch_result");
        assert_eq!(result["error"].is_null(), status != "failed");
        if !result["memory"].is_null() {
            let mut shown = store.read(&result["memory"]).await;
            shown["content"] = Value::Null;
            shown["last_accessed_at"] = Value::Null;
            shown["expires_at"] = result["memory"]["expires_at"].clone();
            assert_eq!(result["memory"], shown);
            assert_eq!(result["memory_id"], shown["id"]);
        }
    }
    assert_eq!(data[0]["memory"]["pinned"], true);
    assert_eq!(
        data[1],
        json!({"type": "memory_batch_result", "status": "failed", "memory": null, "memory_id": null, "error": {
            "type": "memory_path_conflict_error", "message": "another memory exists at the path: `/edited`",
            "conflicting_memory_id": edited["id"], "conflicting_path": "/edited"}})
    );
    assert_eq!(
        data[4],
        json!({"type": "memory_batch_result", "status": "deleted", "memory": null, "memory_id": deleted["id"],
            "error": null})
    );
    assert_eq!(data[5]["error"]["type"], "not_found_error");
    assert_eq!(store.paths().await, ["/edited", "/made", "/put"]);
}

pub(super) async fn atomic_batch_fails_with_its_first_refused_operation(place: Place) {
    let (client, store) = (&place.client, place.store());
    let memory = store.create("/a", "one").await;
    for (operation, status, kind) in [
        (create("/a", "x"), 409, "memory_path_conflict_error"),
        (
            json!({"type": "delete", "memory_id": memory["id"], "expected_content_sha256": sha256("other")}),
            409,
            "memory_precondition_failed_error",
        ),
        (create("a", "x"), 400, "invalid_request_error"),
        (
            json!({"type": "delete", "memory_id": "mem_00000000000000000000000001"}),
            404,
            "not_found_error",
        ),
    ] {
        let body = json!({"operations": [create("/b", "x"), operation]});
        let error = refused(&post(client, &store, &body).await, status, kind);
        assert_eq!(error["operation"], 1, "{error}");
    }
    assert_eq!(store.version_count().await, 1);
    for (body, named) in [
        (json!({"operations": []}), "1 to 500"),
        (json!({"operations": vec![create("/b", ""); 501]}), "1 to 500"),
        (
            json!({"operations": [create("/b", ""), create("/b", "")]}),
            "0 and 1",
        ),
        (
            json!({"operations": [create("/b", "")], "atomic": "no"}),
            "atomic",
        ),
        (json!({"operations": [{"type": "rename"}]}), "operations[0]"),
        (json!({"operation": []}), "operation"),
    ] {
        invalid(&post(client, &store, &body).await, named);
    }
}

pub(super) async fn body_of_a_batch_may_have_eight_mebibytes(place: Place) {
    let (client, store) = (&place.client, place.store());
    let content = "x".repeat(100_000);
    let operations: Vec<_> = (0..83)
        .map(|number| create(&format!("/{number}"), &content))
        .collect();
    let answer = ok(&post(client, &store, &json!({"operations": operations})).await);
    assert!(statuses(&answer).iter().all(|status| *status == "created"));
    let too_large = format!("{{\"operations\": [], \"x\": \"{}\"}}", "x".repeat(8 << 20));
    let refused_body = post_text(client, &batch_of(&store), too_large).await;
    refused(&refused_body, 413, "invalid_request_error");
}

pub(super) async fn batch_with_a_key_is_made_once(place: Place) {
    let (client, store) = (&place.client, place.store());
    let body = json!({"atomic": false, "operations": [create("/a", "one"), create("/b", "two")]});
    let again = async || post_with(client, &batch_of(&store), &body, ("idempotency-key", "k")).await;
    let first = ok(&again().await);
    let made = &first["data"][0]["memory"];
    store.update(made, &json!({"content": "later"})).await;
    assert_eq!(ok(&again().await), first);
    assert_eq!(store.version_count().await, 3);
}

pub(super) async fn batch_needs_the_scope_to_write(place: Place) {
    let store = place.store();
    let body = json!({"operations": [create("/a", "one"), {"type": "upsert", "path": "/b", "content": "x"}]});
    refused(&post(&place.reader, &store, &body).await, 403, "permission_error");
    refused(
        &post(&place.stranger, &store, &body).await,
        404,
        "not_found_error",
    );
    let answer = ok(&post(&place.writer, &store, &body).await);
    assert_eq!(statuses(&answer), ["created", "updated"]);
    assert_eq!(answer["data"][1]["memory"]["memory_version_id"], "");
}
