//! Calls that are sent again under one `Idempotency-Key`.

use reqwest::Method;
use serde_json::{Value, json};

use super::support::{PREVIEW, Place, STORES, Store, all, delete, invalid, ok, path_conflict, strings, text};
use crate::support::client::{send, tool_calls};
use crate::support::{Answer, Client};

/// Posts under a key.
async fn post(client: &Client, key: &str, path: &str, body: &Value) -> Answer {
    super::support::post_with(client, path, body, ("idempotency-key", key)).await
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
    store
        .update(&first, &json!({"content": "two", "path": "/b"}))
        .await;
    let again = ok(&post(client, "k", &store.memories(), &new).await);
    assert_eq!(lasting(&again), lasting(&first));
    store.delete(&first).await;
    let again = ok(&post(client, "k", &store.memories(), &new).await);
    assert_eq!(lasting(&again), lasting(&first));
    assert_eq!(store.paths().await, [""; 0]);
    assert_eq!(store.version_count().await, 3);

    let upsert = async || {
        let request = client.request(Method::POST, &store.memories());
        let request = request
            .header("anthropic-beta", PREVIEW)
            .header("idempotency-key", "upsert");
        ok(&send(request.json(&new)).await)
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
    store
        .update(&memory, &json!({"content": "three", "path": "/c"}))
        .await;
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

    let rename = json!({"name": "renamed"});
    ok(&post(client, "store", &store.path, &rename).await);
    ok(&client.post(&store.path, &json!({"name": "later"})).await);
    let again = ok(&post(client, "store", &store.path, &rename).await);
    assert_eq!(again["id"], store.id);
    assert_eq!(store.object().await["name"], "later");

    let redact = format!("{version}/redact");
    let first = ok(&post(client, "redact", &redact, &json!({})).await);
    let again = ok(&post(client, "redact", &redact, &json!({})).await);
    assert_eq!(
        (&again["id"], &again["redacted_at"], &again["redacted_by"]),
        (&first["id"], &first["redacted_at"], &first["redacted_by"])
    );
    let archive = format!("{}/archive", store.path);
    let first = ok(&post(client, "archive", &archive, &json!({})).await);
    assert_eq!(ok(&post(client, "archive", &archive, &json!({})).await), first);
}

pub(super) async fn tool_call_is_made_once(place: Place) {
    let (client, tenant, store) = (&place.client, &place.tenant, place.store());
    let path = tool_calls(tenant.store_id);
    let create = json!({"command": "create", "path": "/memories/a", "file_text": "one\n"});
    let insert =
        json!({"command": "insert", "path": "/memories/a", "insert_line": 0, "insert_text": "zero\n"});
    for (key, call) in [("create", &create), ("insert", &insert)] {
        let first = post(client, key, &path, call).await.tool_result();
        assert!(!first.is_error, "{first:?}");
        for _ in 0..2 {
            let again = post(client, key, &path, call).await.tool_result();
            assert!(!again.is_error, "{again:?}");
        }
    }
    assert_eq!(client.lines(tenant, "/memories/a").await, ["zero", "one", ""]);
    assert_eq!(store.version_count().await, 2);
    let block = json!({"type": "tool_use", "id": "toolu_1", "name": "memory", "input": insert});
    for _ in 0..2 {
        let result = post(client, "block", &path, &block).await;
        assert_eq!(result.json()["tool_use_id"], "toolu_1", "{}", result.text);
        assert!(!result.tool_result().is_error);
    }
    assert_eq!(store.version_count().await, 3);
    // A new key is a new call.
    assert!(
        !post(client, "another", &path, &insert)
            .await
            .tool_result()
            .is_error
    );
    assert_eq!(store.version_count().await, 4);
    let other = json!({"command": "insert", "path": "/memories/a", "insert_line": 0, "insert_text": "x\n"});
    invalid(&post(client, "insert", &path, &other).await, "Idempotency-Key");
    assert_eq!(store.version_count().await, 4);
}

pub(super) async fn concurrent_duplicates_are_made_once(place: Place) {
    let (client, store) = (&place.client, place.store());
    let memory = store.create("/edited", "one").await;
    let tool =
        json!({"command": "insert", "path": "/memories/edited", "insert_line": 0, "insert_text": "0\n"});
    let calls = [
        (STORES.to_owned(), json!({"name": "once"})),
        (store.memories(), json!({"path": "/a", "content": "x"})),
        (store.memory(&memory), json!({"content": "two\n"})),
        (tool_calls(&store.id), tool),
    ];
    for (path, body) in &calls {
        let answers = futures::future::join_all((0..8).map(|_| post(client, "same", path, body))).await;
        let told: Vec<_> = answers.iter().map(ok).collect();
        for field in ["id", "memory_version_id", "is_error"] {
            assert!(
                told.iter().all(|answer| answer[field] == told[0][field]),
                "{path}: {told:#?}"
            );
        }
        assert_ne!(told[0]["is_error"], true, "{told:#?}");
    }
    assert_eq!(all(client, &format!("{STORES}?limit=100")).await.len(), 2);
    assert_eq!(store.version_count().await, 4);
    assert_eq!(store.read(&memory).await["content"], "0\ntwo\n");
}

pub(super) async fn key_with_another_body_is_400(place: Place) {
    let (client, store) = (&place.client, place.store());
    let memory = store.create("/m", "one").await;
    let edited = store.create("/edited", "secret").await;
    store.update(&edited, &json!({"content": "harmless"})).await;
    let restore = format!("{}/restore", store.version(&edited["memory_version_id"]));
    let conditional = json!({"precondition": super::support::holds("harmless")});
    for (path, body, other) in [
        (STORES.to_owned(), json!({"name": "a"}), json!({"name": "b"})),
        (
            store.path.clone(),
            json!({"name": "a"}),
            json!({"description": "b"}),
        ),
        (
            store.memories(),
            json!({"path": "/a", "content": "x"}),
            json!({"path": "/a", "content": "y"}),
        ),
        (
            store.memory(&memory),
            json!({"content": "x"}),
            json!({"path": "/moved"}),
        ),
        (restore, json!({}), conditional),
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
    let ids = strings(
        &futures::future::join_all(made)
            .await
            .iter()
            .map(ok)
            .collect::<Vec<_>>(),
        "id",
    );
    assert!(
        ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2],
        "{ids:?}"
    );
    assert_eq!(store.paths().await, ["/a", "/b"]);
}

pub(super) async fn refusal_is_not_recorded(place: Place) {
    let (client, store) = (&place.client, place.store());
    let taken = store.create("/a", "one").await;
    let new = json!({"path": "/a", "content": "two"});
    path_conflict(&post(client, "k", &store.memories(), &new).await, &taken);
    // Another body is no other call as long as none was made.
    invalid(
        &post(client, "k", &store.memories(), &json!({"path": "/a"})).await,
        "content",
    );
    store.delete(&taken).await;
    let made = ok(&post(client, "k", &store.memories(), &new).await);
    assert_eq!(made["path"], "/a");

    let edit = json!({"content": "three", "precondition": super::support::holds("other")});
    let at = store.memory(&made);
    assert_eq!(post(client, "edit", &at, &edit).await.status, 409);
    store.update(&made, &json!({"content": "other"})).await;
    assert_eq!(
        ok(&post(client, "edit", &at, &edit).await)["content_size_bytes"],
        5
    );
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
        invalid(
            &post(client, key, &store.memories(), &new).await,
            "Idempotency-Key",
        );
    }
    let request = client.request(Method::POST, &store.memories());
    let twice = request
        .header("idempotency-key", "k")
        .header("idempotency-key", "l");
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
    let edit = json!({"content": "two", "precondition": super::support::holds("one")});
    let edited = ok(&post(client, "edit", &at, &edit).await);
    let restore = format!("{}/restore", store.version(&made["memory_version_id"]));
    let restored = ok(&post(client, "restore", &restore, &json!({})).await);
    let named = json!({"name": "renamed"});
    ok(&post(client, "name", &store.path, &named).await);
    store.update(&made, &json!({"content": "three"})).await;
    store.redact(&made["memory_version_id"]).await;
    store.delete(&made).await;
    ok(&client.post(&format!("{}/archive", store.path), &json!({})).await);
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
        assert_eq!(
            ok(&send(keyed(Method::PATCH, &store.path).json(&edit)).await)["name"],
            name
        );
    }
    ok(&send(keyed(Method::DELETE, &store.memory(&memory))).await);
    let gone = send(keyed(Method::DELETE, &store.memory(&memory))).await;
    super::support::not_found(&gone);
    let anew: Store = place.store();
    ok(&delete(client, &anew.path).await);
}
