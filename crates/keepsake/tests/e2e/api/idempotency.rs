//! Calls that are sent again under one `Idempotency-Key`. `any_history` repeats the
//! changes of memories after later ones.

use crate::prelude::*;

async fn post(client: &Client, key: &str, path: &str, body: &Value) -> Answer {
    post_with(client, path, body, ("idempotency-key", key)).await
}

/// Sends each call eight times at once, in turns through both.
pub(super) async fn duplicates_are_made_once_through(stores: &[Store; 2]) {
    let [store, _] = stores;
    let memory = store.create("/edited", "one").await;
    let path = "/memories/edited";
    let tool = json!({"command": "insert", "path": path, "insert_line": 0, "insert_text": "0\n"});
    let create = |path: &str| json!({"type": "create", "path": path, "content": "one"});
    let batch = json!({"operations": [create("/b"), create("/c")]});
    let list = format!("{STORES}?limit=100");
    let before = store.client.all(&list).await.len();
    for (path, body) in [
        (STORES.to_owned(), json!({"name": "once"})),
        (store.memories(), json!({"path": "/a", "content": "x"})),
        (store.memory(&memory), json!({"content": "two\n"})),
        (tool_calls(&store.id), tool),
        (format!("{}/batch", store.memories()), batch),
    ] {
        let calls = (0..8).map(|n| post(&stores[n % 2].client, "same", &path, &body));
        let told: Vec<_> = join_all(calls).await.iter().map(ok).collect();
        for field in ["id", "memory_version_id", "is_error", "data"] {
            assert!(told.iter().all(|answer| answer[field] == told[0][field]), "{path}: {told:#?}");
        }
        assert_ne!(told[0]["is_error"], true, "{told:#?}");
    }
    assert_eq!(store.client.all(&list).await.len(), before + 1);
    assert_eq!(store.version_count().await, 6);
    assert_eq!(store.read(&memory).await["content"], "0\ntwo\n");
}

pub(super) async fn bad_key_and_key_with_another_body_are_400_and_patch_takes_none(place: Place) {
    let (client, store) = (&place.client, place.store());
    for key in ["", &"k".repeat(256)] {
        invalid(&post(client, key, STORES, &json!({"name": "a"})).await, "Idempotency-Key");
    }
    for keys in [&["é"][..], &["k", "k"]] {
        let request = client.request(Method::POST, STORES).json(&json!({"name": "a"}));
        let with =
            keys.iter().fold(request, |request, key| request.header("idempotency-key", key.as_bytes()));
        invalid(&send(with).await, "`Idempotency-Key` must be");
    }
    let memory = store.create("/m", "one").await;
    let edited = store.create("/edited", "secret").await;
    store.update(&edited, &json!({"content": "harmless"})).await;
    let restore = format!("{}/restore", store.version(&edited["memory_version_id"]));
    let insert = |text: &str| json!({"command": "insert", "path": "/memories/m", "insert_line": 0, "insert_text": text});
    let upsert = |text: &str| json!({"operations": [{"type": "upsert", "path": "/edited", "content": text}]});
    for (path, body, other) in [
        (STORES.to_owned(), json!({"description": "b", "name": "a"}), json!({"name": "b"})),
        (store.path.clone(), json!({"name": "a"}), json!({"description": "b"})),
        (store.memories(), json!({"path": "/a", "content": "x"}), json!({"path": "/a", "content": "y"})),
        (store.memory(&memory), json!({"content": "x"}), json!({"path": "/moved"})),
        // This one writes no version.
        (format!("{}/batch", store.memories()), upsert("harmless"), upsert("x")),
        (restore, json!({}), json!({"precondition": holds("harmless")})),
        (tool_calls(&store.id), insert("x"), insert("y")),
    ] {
        ok(&post(client, "k", &path, &body).await);
        let before = (store.history().await, store.object().await);
        invalid(&post(client, "k", &path, &other).await, "Idempotency-Key");
        assert_eq!((store.history().await, store.object().await), before);
        ok(&post(client, "k", &path, &body).await);
    }
    let in_other_words = r#"{ "name": "\u0061", "description": "b" }"#;
    let request = client.request(Method::POST, STORES).header("content-type", "application/json");
    ok(&send(request.header("idempotency-key", "k").body(in_other_words)).await);
    assert_eq!(client.all(&format!("{STORES}?limit=100")).await.len(), 2);
    assert_eq!(store.paths().await, ["/a", "/edited", "/m"]);
    let at = store.memory(&memory);
    for (path, field, values) in [(&at, "path", ["/b", "/c"]), (&store.path, "name", ["one", "two"])] {
        for value in values {
            let request = client.request(Method::PATCH, path).header("idempotency-key", "k");
            ok(&send(request.json(&json!({field: value}))).await);
            assert_eq!(ok(&client.get(path).await)[field], value);
        }
    }
}

pub(super) async fn key_is_scoped_to_one_credential_and_path(place: Place) {
    let (client, store) = (&place.client, place.store());
    let other = place.new_store("other").await;
    let new = json!({"path": "/a", "content": "one"});
    let here = ok(&post(client, "k", &store.memories(), &new).await);
    assert_ne!(here["id"], ok(&post(client, "k", &other.memories(), &new).await)["id"]);
    path_conflict(&post(&place.second, "k", &store.memories(), &new).await, &here);
    ok(&post(client, "k", &store.memory(&here), &json!({"content": "two"})).await);
    // So is the block of a tool.
    let log = store.create("/log", "").await;
    let insert = json!({"command": "insert", "path": "/memories/log", "insert_line": 0, "insert_text": "x"});
    let append = json!({"path": "/memories/log", "content": "y"});
    for (tool, input) in [("memory", insert), ("memory_append", append)] {
        let block = json!({"type": "tool_use", "id": "toolu_1", "name": tool, "input": input});
        // Each sends it twice.
        for client in [client, &place.second, client, &place.second] {
            assert!(!client.call(&store.id, &block).await.tool_result().is_error);
        }
    }
    assert_eq!(store.read(&log).await["content"], "x\nx\ny\ny\n");
}

pub(super) async fn repeated_call_is_answered_even_if_it_is_now_forbidden(place: Place) {
    let (client, store) = (&place.client, place.new_store("closed").await);
    let made = store.create("/a", "one").await;
    let at = store.memory(&made);
    let restore = format!("{}/restore", store.version(&made["memory_version_id"]));
    let calls = [
        (&at, json!({"content": "two", "precondition": holds("one")})),
        (&restore, json!({})),
        (&store.path, json!({"name": "renamed"})),
    ];
    let mut first = Vec::new();
    for (path, body) in &calls {
        first.push(ok(&post(client, "k", path, body).await));
    }
    // A batch that writes no version.
    let batch = format!("{}/batch", store.memories());
    let upsert = json!({"atomic": true, "operations": [{"type": "upsert", "path": "/a", "content": "one"}]});
    let unchanged = ok(&post(client, "k", &batch, &upsert).await);
    assert_eq!(unchanged["data"][0]["status"], "unchanged", "{unchanged}");
    ok(&client.post(&store.path, &json!({"name": "later"})).await);
    store.update(&made, &json!({"content": "three"})).await;
    store.redact(&made["memory_version_id"]).await;
    store.delete(&made).await;
    store.archive().await;
    for ((path, body), first) in calls.iter().zip(&first) {
        assert_ne!(post(client, "new", path, body).await.status, 200);
        let again = ok(&post(client, "k", path, body).await);
        if *path == &store.path {
            assert_eq!(again["name"], "later", "a store is answered as it is now");
            continue;
        }
        for field in "id path content_sha256 memory_version_id created_at updated_at".split(' ') {
            assert_eq!(again[field], first[field], "{path}");
        }
    }
    assert_ne!(post(client, "new", &batch, &upsert).await.status, 200);
    let again = ok(&post(client, "k", &batch, &upsert).await);
    for field in ["status", "memory_id"] {
        assert_eq!(again["data"][0][field], unchanged["data"][0][field], "{again}");
    }
    // The content is returned if it is requested and still stored.
    assert_eq!(ok(&post(client, "k", &format!("{at}?view=full"), &calls[0].1).await)["content"], "two");
    assert_eq!(store.version_count().await, 5);
}
