//! Several memories changed in one call, over the wire.

use serde_json::{Value, json};

use super::support::{Place, Store, holds, invalid, ok, post_text, post_with, refused, sha256, shows, text};
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

pub(super) async fn each_kind_of_operation_is_made_in_one_batch(place: Place) {
    let (client, store) = (&place.client, place.store());
    let mut made = Vec::new();
    for name in ["replaced", "same", "expected", "moved", "pinned"] {
        made.push(store.create(&format!("/{name}"), name).await);
    }
    let not_exists = json!({"type": "not_exists"});
    let body = json!({"operations": [
        {"type": "create", "path": "/new/a", "content": "one", "precondition": not_exists},
        {"type": "upsert", "path": "/new/b", "content": "two"},
        {"type": "upsert", "path": "/replaced", "content": "three"},
        {"type": "upsert", "path": "/same", "content": "same"},
        {"type": "upsert", "path": "/expected", "content": "four", "pinned": true, "precondition": holds("expected")},
        {"type": "update", "memory_id": made[3]["id"], "path": "/new/c", "precondition": not_exists},
        {"type": "update", "memory_id": made[4]["id"], "pinned": true},
    ]});
    let answer = ok(&post(client, &store, &body).await);
    let expected = [
        ("created", "/new/a", false),
        ("created", "/new/b", false),
        ("updated", "/replaced", false),
        ("unchanged", "/same", false),
        ("updated", "/expected", true),
        ("updated", "/new/c", false),
        ("updated", "/pinned", true),
    ];
    for (result, (status, path, is_pinned)) in answer["data"].as_array().unwrap().iter().zip(expected) {
        assert_eq!(result["status"], status, "{result}");
        shows(&result["memory"], &json!({"path": path, "pinned": is_pinned}));
    }
    assert_eq!(store.read(&made[0]).await["content"], "three");
    assert_eq!(store.version_count().await, 5 + 5);
    // An unchanged memory writes no version, and neither does a refused operation.
    let body = json!({"operations": [{"type": "upsert", "path": "/same", "content": "same"}]});
    assert_eq!(statuses(&ok(&post(client, &store, &body).await)), ["unchanged"]);
    let body = json!({"atomic": false, "operations": [create("/same", "x")]});
    assert_eq!(statuses(&ok(&post(client, &store, &body).await)), ["failed"]);
    assert_eq!(store.version_count().await, 10);
}

pub(super) async fn path_freed_by_a_batch_is_still_taken_within_it(place: Place) {
    let (client, store) = (&place.client, place.store());
    let memory = store.create("/taken", "one").await;
    let below = store.create("/dir/only", "two").await;
    let create_both = [create("/taken", "x"), create("/dir", "y")];
    let [taken, dir] = create_both.clone();
    let body = json!({"atomic": false, "operations": [
        {"type": "delete", "memory_id": memory["id"]}, taken,
        {"type": "delete", "memory_id": below["id"]}, dir,
    ]});
    let answer = ok(&post(client, &store, &body).await);
    assert_eq!(statuses(&answer), ["deleted", "failed", "deleted", "failed"]);
    for (position, conflicting) in [(1_usize, &memory), (3, &below)] {
        let error = &answer["data"][position]["error"];
        assert_eq!(error["conflicting_path"], conflicting["path"], "{error}");
    }
    let again = json!({"operations": create_both});
    let answer = ok(&post(client, &store, &again).await);
    assert_eq!(statuses(&answer), ["created", "created"]);
}

pub(super) async fn five_hundred_operations_are_one_commit(place: Place) {
    let (client, store) = (&place.client, place.store());
    let text = "four kilobytes of text\n".repeat(180);
    let path = |number: usize| format!("/d{}/e{}/f{number}", number % 10, number % 7);
    let operations: Vec<_> =
        (0..500).map(|number| create(&path(number), &format!("{number} {text}"))).collect();
    let answer = ok(&post(client, &store, &json!({"operations": operations})).await);
    assert_eq!(statuses(&answer), ["created"; 500]);
    let made = answer["data"].as_array().unwrap().iter();
    let made: Vec<_> = made.map(|result| &result["memory"]).collect();
    assert_eq!(store.read(made[499]).await["content"], format!("499 {text}"));
    let edit = |memory: &&Value| json!({"type": "update", "memory_id": memory["id"], "content": "short"});
    let edits: Vec<_> = made.iter().map(edit).collect();
    let answer = ok(&post(client, &store, &json!({"operations": edits})).await);
    assert_eq!(statuses(&answer), ["updated"; 500]);
    let hash = sha256("short");
    let delete = |memory: &&Value| json!({"type": "delete", "memory_id": memory["id"], "expected_content_sha256": hash});
    let deletions: Vec<_> = made.iter().map(delete).collect();
    let answer = ok(&post(client, &store, &json!({"operations": deletions})).await);
    assert_eq!(statuses(&answer), ["deleted"; 500]);
    let history = store.history().await;
    assert_eq!(history.len(), 1_500);
    for commit in history.chunks(500) {
        let is_of_commit = |version: &Value| version["created_at"] == commit[0]["created_at"];
        assert!(commit.iter().all(is_of_commit), "one commit has one time");
    }
    assert_eq!(store.paths().await, [""; 0]);
}

pub(super) async fn atomic_batch_fails_with_its_first_refused_operation(place: Place) {
    let (client, store) = (&place.client, place.store());
    let memory = store.create("/a", "one").await;
    let upsert_if =
        |path: &str| json!({"type": "upsert", "path": path, "content": "x", "precondition": holds("other")});
    let (failed, conflict) = ("memory_precondition_failed_error", "memory_path_conflict_error");
    let (invalid_request, missing) = ("invalid_request_error", "not_found_error");
    let (id, unknown) = (&memory["id"], "mem_00000000000000000000000001");
    let wrong = json!({"type": "delete", "memory_id": id, "expected_content_sha256": sha256("other")});
    let delete = json!({"type": "delete", "memory_id": unknown});
    let update = json!({"type": "update", "memory_id": unknown, "content": "x"});
    let only_new =
        json!({"type": "create", "path": "/a", "content": "x", "precondition": {"type": "not_exists"}});
    let pin = json!({"type": "update", "memory_id": id, "pinned": true, "precondition": holds("other")});
    for (operation, status, kind) in [
        (create("/a", "x"), 409, conflict),
        (wrong, 409, failed),
        (create("a", "x"), 400, invalid_request),
        (delete, 404, missing),
        (update, 404, missing),
        (only_new, 409, failed),
        (create("/a/below", "x"), 409, conflict),
        (upsert_if("/a"), 409, failed),
        (upsert_if("/free"), 409, failed),
        (pin, 409, failed),
        (create("/nul", "\0"), 400, invalid_request),
    ] {
        let body = json!({"operations": [create("/b", "x"), operation]});
        let error = refused(&post(client, &store, &body).await, status, kind);
        assert_eq!(error["operation"], 1, "{error}");
    }
    assert_eq!(store.version_count().await, 1);
    assert_eq!(store.read(&memory).await["pinned"], false);
    operations_on_one_memory_or_path_are_refused(client, &store, &memory).await;
    // A directory is named by the first memory in it; `-` sorts before `/`.
    store.create("/d-e", "x").await;
    let inside = store.create("/d/x", "x").await;
    let body = json!({"operations": [create("/d", "x")]});
    let error = refused(&post(client, &store, &body).await, 409, conflict);
    assert_eq!(error["conflicting_memory_id"], inside["id"]);
    for (body, named) in [
        (json!({"operations": []}), "1 to 500"),
        (json!({"operations": vec![create("/b", ""); 501]}), "1 to 500"),
        (json!({"operations": [create("/b", "")], "atomic": "no"}), "atomic"),
        (json!({"operations": [{"type": "rename"}]}), "operations[0]"),
        (json!({"operation": []}), "operation"),
    ] {
        invalid(&post(client, &store, &body).await, named);
    }
}

async fn operations_on_one_memory_or_path_are_refused(client: &Client, store: &Store, memory: &Value) {
    let update = json!({"type": "update", "memory_id": memory["id"], "content": "x"});
    let rename = json!({"type": "update", "memory_id": memory["id"], "path": "/b"});
    let delete = json!({"type": "delete", "memory_id": memory["id"]});
    let upsert = json!({"type": "upsert", "path": "/a", "content": "y"});
    let (id, path) = ("are about the same memory", "are about the same path");
    let above = "need one path as a memory and as a directory";
    for (one, other, why) in [
        (&create("/b", "x"), &rename, path),
        (&update, &delete, id),
        (&update, &upsert, id),
        (&create("/b", "x"), &create("/b/c/d", "y"), above),
        (&create("/b/c/d", "x"), &create("/b", "y"), above),
    ] {
        for is_atomic in [true, false] {
            let body = json!({"atomic": is_atomic, "operations": [create("/other", ""), one, other]});
            let named = format!("`operations` 1 and 2 {why}");
            invalid(&post(client, store, &body).await, &named);
        }
    }
    assert_eq!(store.version_count().await, 1);
}

pub(super) async fn body_of_a_batch_may_have_eight_mebibytes(place: Place) {
    let (client, store) = (&place.client, place.store());
    let content = "x".repeat(100_000);
    let operations: Vec<_> = (0..83).map(|number| create(&format!("/{number}"), &content)).collect();
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

    // Also if it wrote no version.
    let body = json!({"operations": [{"type": "upsert", "path": "/b", "content": "two"}]});
    let again = async || post_with(client, &batch_of(&store), &body, ("idempotency-key", "l")).await;
    let same = ok(&again().await);
    assert_eq!(statuses(&same), ["unchanged"]);
    let other = &first["data"][1]["memory"];
    store.update(other, &json!({"content": "later"})).await;
    assert_eq!(statuses(&ok(&again().await)), ["unchanged"]);
    assert_eq!(store.read(other).await["content"], "later");
}
