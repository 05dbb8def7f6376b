//! Calls that are sent again under one `Idempotency-Key`.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};

use super::support::{
    PREVIEW, Place, STORES, Store, all, holds, invalid, not_found, ok, path_conflict, post_with, text,
};
use crate::support::client::{send, tool_calls};
use crate::support::{Answer, Client};

/// Posts under a key.
async fn post(client: &Client, key: &str, path: &str, body: &Value) -> Answer {
    post_with(client, path, body, ("idempotency-key", key)).await
}

pub(super) async fn store_is_made_once(place: Place) {
    let client = &place.client;
    let new = json!({"name": "once", "metadata": {"k": "v"}});
    let first = ok(&post(client, "k", STORES, &new).await);
    for _ in 0..3 {
        assert_eq!(ok(&post(client, "k", STORES, &new).await), first);
    }
    let other = ok(&post(client, "l", STORES, &new).await);
    let unkeyed = ok(&client.post(STORES, &new).await);
    assert_ne!(other["id"], first["id"]);
    assert_ne!(unkeyed["id"], first["id"]);
    assert_eq!(all(client, &format!("{STORES}?limit=100")).await.len(), 4);
    // The answer has the current state of the object with the same id.
    let path = format!("{STORES}/{}", text(&first["id"]));
    ok(&client.post(&path, &json!({"description": "later"})).await);
    assert_eq!(ok(&post(client, "k", STORES, &new).await)["id"], first["id"]);
}

/// The fields that a repeated call must return unchanged.
fn lasting(memory: &Value) -> Value {
    json!([
        memory["id"],
        memory["path"],
        memory["content_sha256"],
        memory["memory_version_id"],
        memory["created_at"],
        memory["updated_at"]
    ])
}

pub(super) async fn memory_is_made_once(place: Place) {
    let (client, store) = (&place.client, place.store());
    let new = json!({"path": "/a", "content": "one"});
    let first = ok(&post(client, "k", &store.memories(), &new).await);
    assert_eq!(ok(&post(client, "k", &store.memories(), &new).await), first);
    // The first answer is repeated even after later changes of the memory.
    store.update(&first, &json!({"content": "two", "path": "/b"})).await;
    let again = ok(&post(client, "k", &store.memories(), &new).await);
    assert_eq!(lasting(&again), lasting(&first));
    store.delete(&first).await;
    let again = ok(&post(client, "k", &store.memories(), &new).await);
    assert_eq!(lasting(&again), lasting(&first));
    assert_eq!(store.paths().await, [""; 0]);
    assert_eq!(store.version_count().await, 3);

    let upsert = async || {
        let request = client.request(Method::POST, &store.memories()).json(&new);
        let request = request.header("anthropic-beta", PREVIEW);
        ok(&send(request.header("idempotency-key", "upsert")).await)
    };
    let first = upsert().await;
    store.update(&first, &json!({"content": "two"})).await;
    assert_eq!(lasting(&upsert().await), lasting(&first));
    assert_eq!(store.read(&first).await["content"], "two");
}

pub(super) async fn every_post_answers_the_same_object_again(place: Place) {
    let (client, store) = (&place.client, place.new_store("posts").await);
    let memory = store.create("/a", "one").await;
    let at = store.memory(&memory);
    let version = store.version(&memory["memory_version_id"]);

    let edit = json!({"content": "two", "path": "/b"});
    let first = ok(&post(client, "update", &at, &edit).await);
    store.update(&memory, &json!({"content": "three", "path": "/c"})).await;
    let again = ok(&post(client, "update", &at, &edit).await);
    assert_eq!(lasting(&again), lasting(&first));
    assert_eq!(store.read(&memory).await["content"], "three");

    let restore = format!("{version}/restore");
    let first = ok(&post(client, "restore", &restore, &json!({})).await);
    store.update(&memory, &json!({"content": "four"})).await;
    let again = ok(&post(client, "restore", &restore, &json!({})).await);
    assert_eq!(lasting(&again), lasting(&first));
    assert_eq!(store.read(&memory).await["content"], "four");
    assert_eq!(store.version_count().await, 5);

    // An update that changed nothing changes nothing later.
    let same = json!({"content": "four"});
    let first = ok(&post(client, "same", &at, &same).await);
    store.update(&memory, &json!({"content": "five"})).await;
    let again = ok(&post(client, "same", &at, &same).await);
    assert_eq!(lasting(&again), lasting(&first));
    assert_eq!(store.read(&memory).await["content"], "five");
    assert_eq!(store.version_count().await, 6);

    let rename = json!({"name": "renamed"});
    ok(&post(client, "store", &store.path, &rename).await);
    ok(&client.post(&store.path, &json!({"name": "later"})).await);
    let again = ok(&post(client, "store", &store.path, &rename).await);
    assert_eq!(again["id"], store.id);
    assert_eq!(store.object().await["name"], "later");
}

pub(super) async fn concurrent_duplicates_are_made_once(place: Place) {
    let store = place.store();
    duplicates_are_made_once_through(&[store.clone(), store]).await;
}

/// Sends each call eight times at once, in turns through both.
pub(super) async fn duplicates_are_made_once_through(stores: &[Store; 2]) {
    let [store, _] = stores;
    let memory = store.create("/edited", "one").await;
    let tool =
        json!({"command": "insert", "path": "/memories/edited", "insert_line": 0, "insert_text": "0\n"});
    let batch = json!({"operations": [
        {"type": "create", "path": "/b", "content": "one"},
        {"type": "create", "path": "/c", "content": "two"},
    ]});
    let list = format!("{STORES}?limit=100");
    let before = all(&store.client, &list).await.len();
    for (path, body) in [
        (STORES.to_owned(), json!({"name": "once"})),
        (store.memories(), json!({"path": "/a", "content": "x"})),
        (store.memory(&memory), json!({"content": "two\n"})),
        (tool_calls(&store.id), tool),
        (format!("{}/batch", store.memories()), batch),
    ] {
        let calls = (0..8).map(|n| post(&stores[n % 2].client, "same", &path, &body));
        let answers = futures::future::join_all(calls).await;
        let told: Vec<_> = answers.iter().map(ok).collect();
        for field in ["id", "memory_version_id", "is_error", "data"] {
            assert!(told.iter().all(|answer| answer[field] == told[0][field]), "{path}: {told:#?}");
        }
        assert_ne!(told[0]["is_error"], true, "{told:#?}");
    }
    assert_eq!(all(&store.client, &list).await.len(), before + 1);
    assert_eq!(store.version_count().await, 6);
    assert_eq!(store.read(&memory).await["content"], "0\ntwo\n");
}

pub(super) async fn key_with_another_body_is_400(place: Place) {
    let (client, store) = (&place.client, place.store());
    let memory = store.create("/m", "one").await;
    let edited = store.create("/edited", "secret").await;
    store.update(&edited, &json!({"content": "harmless"})).await;
    let restore = format!("{}/restore", store.version(&edited["memory_version_id"]));
    let conditional = json!({"precondition": holds("harmless")});
    let insert = |text: &str| json!({"command": "insert", "path": "/memories/m", "insert_line": 0, "insert_text": text});
    for (path, body, other) in [
        (STORES.to_owned(), json!({"name": "a"}), json!({"name": "b"})),
        (store.path.clone(), json!({"name": "a"}), json!({"description": "b"})),
        (store.memories(), json!({"path": "/a", "content": "x"}), json!({"path": "/a", "content": "y"})),
        (store.memory(&memory), json!({"content": "x"}), json!({"path": "/moved"})),
        (restore, json!({}), conditional),
        (tool_calls(&store.id), insert("x"), insert("y")),
    ] {
        ok(&post(client, "k", &path, &body).await);
        let before = (store.history().await, store.object().await);
        invalid(&post(client, "k", &path, &other).await, "Idempotency-Key");
        assert_eq!((store.history().await, store.object().await), before);
        ok(&post(client, "k", &path, &body).await);
    }
    assert_eq!(all(client, &format!("{STORES}?limit=100")).await.len(), 2);
    assert_eq!(store.paths().await, ["/a", "/edited", "/m"]);
}

pub(super) async fn key_is_scoped_to_one_credential_and_path(place: Place) {
    let (client, store) = (&place.client, place.store());
    let other = place.new_store("other").await;
    let new = json!({"path": "/a", "content": "one"});
    let here = ok(&post(client, "k", &store.memories(), &new).await);
    let there = ok(&post(client, "k", &other.memories(), &new).await);
    assert_ne!(here["id"], there["id"]);
    path_conflict(&post(&place.second, "k", &store.memories(), &new).await, &here);
    let by_second = json!({"path": "/b", "content": "two"});
    ok(&post(&place.second, "k", &store.memories(), &by_second).await);
    ok(&post(client, "k", &store.memory(&here), &json!({"content": "two"})).await);
    let named = json!({"name": "a"});
    let made = [client, &place.second, &place.stranger].map(|client| post(client, "k", STORES, &named));
    let made = futures::future::join_all(made).await;
    let ids: BTreeSet<_> = made.iter().map(|made| text(&ok(made)["id"]).to_owned()).collect();
    assert_eq!(ids.len(), 3, "{ids:?}");
    assert_eq!(store.paths().await, ["/a", "/b"]);
    same_block_of_two_credentials_is_two_calls(&place, &store).await;
}

async fn same_block_of_two_credentials_is_two_calls(place: &Place, store: &Store) {
    let log = store.create("/log", "").await;
    let insert = json!({"command": "insert", "path": "/memories/log", "insert_line": 0, "insert_text": "x"});
    let append = json!({"path": "/memories/log", "content": "y"});
    for (tool, input) in [("memory", insert), ("memory_append", append)] {
        let block = json!({"type": "tool_use", "id": "toolu_1", "name": tool, "input": input});
        // Each sends it twice.
        for client in [&place.client, &place.second, &place.client, &place.second] {
            assert!(!client.call(&store.id, &block).await.tool_result().is_error);
        }
    }
    assert_eq!(store.read(&log).await["content"], "x\nx\ny\ny\n");
}

pub(super) async fn refusal_is_not_recorded(place: Place) {
    let (client, store) = (&place.client, place.store());
    let taken = store.create("/a", "one").await;
    let new = json!({"path": "/a", "content": "two"});
    path_conflict(&post(client, "k", &store.memories(), &new).await, &taken);
    // Another body is no other call as long as none was made.
    let without = json!({"path": "/a"});
    invalid(&post(client, "k", &store.memories(), &without).await, "content");
    store.delete(&taken).await;
    let made = ok(&post(client, "k", &store.memories(), &new).await);
    assert_eq!(made["path"], "/a");

    let edit = json!({"content": "three", "precondition": holds("other")});
    let at = store.memory(&made);
    assert_eq!(post(client, "edit", &at, &edit).await.status, 409);
    store.update(&made, &json!({"content": "other"})).await;
    ok(&post(client, "edit", &at, &edit).await);
    assert_eq!(store.read(&made).await["content"], "three");

    // A version can be redacted only when it is no longer a head.
    let redact = format!("{}/redact", store.version(&made["memory_version_id"]));
    let live = store.create("/live", "secret").await;
    let live_redact = format!("{}/redact", store.version(&live["memory_version_id"]));
    assert_eq!(post(client, "r", &live_redact, &json!({})).await.status, 409);
    store.delete(&live).await;
    ok(&post(client, "r", &live_redact, &json!({})).await);
    ok(&post(client, "r", &redact, &json!({})).await);

    let call = json!({"command": "create", "path": "/memories/a", "file_text": "x"});
    let path = tool_calls(&store.id);
    assert!(post(client, "tool", &path, &call).await.tool_result().is_error);
    store.delete(&made).await;
    assert!(!post(client, "tool", &path, &call).await.tool_result().is_error);
}

pub(super) async fn bad_keys_are_400(place: Place) {
    let (client, store) = (&place.client, place.store());
    let new = json!({"path": "/a", "content": "one"});
    for key in ["", &"k".repeat(256)] {
        invalid(&post(client, key, &store.memories(), &new).await, "Idempotency-Key");
    }
    let request = client.request(Method::POST, &store.memories());
    let twice = request.header("idempotency-key", "k").header("idempotency-key", "l");
    invalid(&send(twice.json(&new)).await, "Idempotency-Key");
    assert_eq!(store.paths().await, [""; 0]);
    let longest = "k".repeat(255);
    let made = ok(&post(client, &longest, &store.memories(), &new).await);
    let again = ok(&post(client, &longest, &store.memories(), &new).await);
    assert_eq!(again["id"], made["id"]);
}

pub(super) async fn repeated_call_is_answered_even_if_it_is_now_forbidden(place: Place) {
    let (client, store) = (&place.client, place.new_store("closed").await);
    let new = json!({"path": "/a", "content": "one"});
    let made = ok(&post(client, "create", &store.memories(), &new).await);
    let at = store.memory(&made);
    let edit = json!({"content": "two", "precondition": holds("one")});
    let edited = ok(&post(client, "edit", &at, &edit).await);
    let restore = format!("{}/restore", store.version(&made["memory_version_id"]));
    let restored = ok(&post(client, "restore", &restore, &json!({})).await);
    let named = json!({"name": "renamed"});
    ok(&post(client, "name", &store.path, &named).await);
    store.update(&made, &json!({"content": "three"})).await;
    store.redact(&made["memory_version_id"]).await;
    store.delete(&made).await;
    store.archive().await;
    let again = ok(&post(client, "edit", &at, &edit).await);
    assert_eq!(lasting(&again), lasting(&edited));
    let again = ok(&post(client, "restore", &restore, &json!({})).await);
    assert_eq!(lasting(&again), lasting(&restored));
    let again = ok(&post(client, "name", &store.path, &named).await);
    assert_eq!(again["name"], "renamed");
    // The content is returned if it is requested and still stored.
    let full = ok(&post(client, "edit", &format!("{at}?view=full"), &edit).await);
    assert_eq!(full["content"], "two");
    assert_eq!(store.version_count().await, 5);
    for (path, body) in [(&at, &edit), (&store.memories(), &new), (&store.path, &named)] {
        assert_ne!(post(client, "new", path, body).await.status, 200);
    }
}

pub(super) async fn patch_and_delete_take_no_key(place: Place) {
    let (client, store) = (&place.client, place.store());
    let memory = store.create("/a", "one").await;
    let keyed = |method: Method, path: &str| client.request(method, path).header("idempotency-key", "k");
    for (field, values) in [("content", ["two", "three"]), ("path", ["/b", "/c"])] {
        for value in values {
            let edit = json!({field: value});
            ok(&send(keyed(Method::PATCH, &store.memory(&memory)).json(&edit)).await);
            assert_eq!(store.read(&memory).await[field], value);
        }
    }
    for name in ["one", "two"] {
        let edit = json!({"name": name});
        let renamed = ok(&send(keyed(Method::PATCH, &store.path).json(&edit)).await);
        assert_eq!(renamed["name"], name);
    }
    ok(&send(keyed(Method::DELETE, &store.memory(&memory))).await);
    let gone = send(keyed(Method::DELETE, &store.memory(&memory))).await;
    not_found(&gone);
}
