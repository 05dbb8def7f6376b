//! Archived stores and the search mode. `tests/sdk` creates, changes, lists and deletes others.

use crate::prelude::*;

pub(super) async fn search_mode_is_set_and_taken_back(place: Place) {
    let client = &place.client;
    let store = Store::make_with(client, &json!({"name": "a", "search_mode": "lexical"})).await;
    for (change, mode) in [
        (json!({"name": "b"}), json!("lexical")),
        (json!({"search_mode": "hybrid"}), json!("hybrid")),
        (json!({"search_mode": null}), json!(null)),
    ] {
        assert_eq!(ok(&client.post(&store.path, &change).await)["search_mode"], mode);
        assert_eq!(store.object().await["search_mode"], mode);
    }
    let rule = "`search_mode` must be `lexical` or `hybrid`";
    let wrong = json!({"name": "a", "search_mode": "words"});
    for path in [STORES, &store.path] {
        invalid(&client.post(path, &wrong).await, rule);
    }
}

pub(super) async fn archived_store_can_be_read_deleted_and_redacted_only(place: Place) {
    let (client, store) = (&place.client, place.new_store("a").await);
    let [kept, edited] = [store.create("/kept", "one").await, store.create("/edited", "secret").await];
    store.update(&edited, &json!({"content": "harmless"})).await;
    let archived = store.archive().await;
    let version = &edited["memory_version_id"];
    let history = store.history().await;
    for answer in [
        store.try_create("/new", "x").await,
        store.upsert("/kept", "x").await,
        store.try_update(&kept, &json!({"path": "/moved"})).await,
        store.try_update(&kept, &json!({"pinned": true})).await,
        store.try_restore(version, &json!({})).await,
        client.post(&store.path, &json!({"name": "b"})).await,
        patch(client, &store.path, &json!({"metadata": {"k": "v"}})).await,
    ] {
        invalid(&answer, "archived");
    }
    invalid(&client.post(&store.path, &json!({"archived_at": null})).await, "archived_at");
    assert_eq!(store.history().await, history);
    assert_eq!(store.object().await, archived);

    assert_eq!(store.read(&kept).await["content"], "one");
    assert!(store.redact(version).await["redacted_at"].is_string());
    let batch = json!({"atomic": false, "operations": [
        {"type": "create", "path": "/new", "content": "x"},
        {"type": "delete", "memory_id": edited["id"]},
    ]});
    let batch = ok(&store.batch(&batch).await);
    let failed = text(&batch["data"][0]["error"]["message"]);
    assert!(failed.contains("archived"), "{batch}");
    assert_eq!(batch["data"][1]["status"], "deleted");
    assert_eq!(store.paths().await, ["/kept"]);
    let (path, edits) = ("/memories/kept", json!([{"old_str": "one", "new_str": "x"}]));
    for (tool, input, is_refused) in [
        ("memory_write", json!({"path": "/memories/new", "content": "x"}), true),
        ("memory_append", json!({"path": path, "content": "x"}), true),
        ("memory_edit", json!({"path": path, "edits": edits}), true),
        ("memory_read", json!({"path": path}), false),
        ("memory_delete", json!({"path": path}), false),
    ] {
        let told = client.call(&store.id, &block(tool, &input)).await.tool_result();
        assert_eq!(told.is_error, is_refused, "{}", told.content);
        assert_eq!(told.content.contains("archived"), is_refused, "{}", told.content);
    }
    assert_eq!(store.paths().await, [""; 0]);
    ok(&delete(client, &store.path).await);
}
