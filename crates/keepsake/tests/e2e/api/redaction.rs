//! Removing what a version holds.

use serde_json::{Value, json};

use super::support::{Place, Store, invalid, not_found, ok, refused, strings};

/// The texts of a store's blobs.
async fn blobs(place: &Place, store: &Store) -> Vec<String> {
    let mut texts = Vec::new();
    for listed in place.blobs.list(None, None, 100_000).await.unwrap() {
        if listed.key.store_id.to_string() != store.id {
            continue;
        }
        let bytes = place.blobs.get(&listed.key, listed.size_bytes).await.unwrap();
        texts.extend(bytes.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap()));
    }
    texts.sort();
    texts
}

pub(super) async fn redaction_removes_content_and_keeps_who_did_what(place: Place) {
    let store = place.new_store("redacted").await;
    let memory = store.create("/secret/path", "secret").await;
    let edit = json!({"content": "harmless", "path": "/plain"});
    store.update(&memory, &edit).await;
    assert_eq!(blobs(&place, &store).await, ["harmless", "secret"]);
    let before = store.history().await[1].clone();
    let redactor = store.seen_by(&place.second);
    let redacted = redactor.redact(&before["id"]).await;
    let mut expected = before.clone();
    for gone in ["content", "path", "content_size_bytes", "content_sha256"] {
        expected[gone] = Value::Null;
    }
    for new in ["redacted_at", "redacted_by"] {
        expected[new] = redacted[new].clone();
    }
    assert!(redacted["redacted_at"].is_string());
    assert_eq!(redacted["redacted_by"]["type"], "api_actor");
    assert_ne!(redacted["redacted_by"], before["created_by"]);
    let version = store.version(&before["id"]);
    assert_eq!(ok(&place.client.get(&version).await), expected);
    assert_eq!(store.history().await[1], expected);
    expected["content_also_in"] = json!([]);
    assert_eq!(redacted, expected);
    assert_eq!(blobs(&place, &store).await, ["harmless"]);
    for view in ["basic", "full"] {
        let shown = place.client.get(&format!("{version}?view={view}")).await;
        assert!(!shown.text.contains("secret"), "{}", shown.text);
        let list = place
            .client
            .get(&format!("{}?view={view}", store.versions()))
            .await;
        assert!(!list.text.contains("secret"), "{}", list.text);
    }
    assert_eq!(store.read(&memory).await["content"], "harmless");
    not_found(
        &store
            .try_redact(&json!("memver_00000000000000000000000001"))
            .await,
    );
    invalid(
        &place
            .client
            .post(&format!("{version}/redact"), &json!({"why": "x"}))
            .await,
        "why",
    );
}

pub(super) async fn redaction_is_idempotent(place: Place) {
    let store = place.new_store("redacted").await;
    let memory = store.create("/a", "secret").await;
    store.update(&memory, &json!({"content": "harmless"})).await;
    let id = &memory["memory_version_id"];
    let first = store.redact(id).await;
    for client in [&place.client, &place.second] {
        let again = store.seen_by(client).redact(id).await;
        for field in [
            "id",
            "operation",
            "redacted_at",
            "redacted_by",
            "created_at",
            "created_by",
        ] {
            assert_eq!(again[field], first[field], "{field}");
        }
        for gone in ["content", "path", "content_size_bytes", "content_sha256"] {
            assert!(again[gone].is_null(), "{again}");
        }
    }
    assert_eq!(store.version_count().await, 2);
}

pub(super) async fn live_content_is_not_redacted(place: Place) {
    let store = place.new_store("live").await;
    let memory = store.create("/a", "secret").await;
    let moved = store.update(&memory, &json!({"path": "/b"})).await;
    let both = [&memory, &moved].map(|memory| memory["memory_version_id"].clone());
    for version in &both {
        refused(&store.try_redact(version).await, 409, "conflict_error");
    }
    let read = store.read(&memory).await;
    assert_eq!(
        (&read["content"], &read["path"]),
        (&json!("secret"), &json!("/b"))
    );
    assert!(
        store
            .history()
            .await
            .iter()
            .all(|version| version["redacted_at"].is_null())
    );
    assert_eq!(blobs(&place, &store).await, ["secret"]);
    // Restored content is shared as well.
    store.update(&memory, &json!({"content": "harmless"})).await;
    store.restore(&both[0]).await;
    for version in &both {
        refused(&store.try_redact(version).await, 409, "conflict_error");
    }
    assert_eq!(store.read(&memory).await["content"], "secret");
    store.update(&memory, &json!({"content": "harmless"})).await;
    for version in &both {
        store.redact(version).await;
    }
}

pub(super) async fn shared_blob_is_removed_with_its_last_version(place: Place) {
    let store = place.new_store("shared").await;
    let memory = store.create("/a", "secret").await;
    let moved = store.update(&memory, &json!({"path": "/b"})).await;
    store.update(&memory, &json!({"content": "harmless"})).await;
    let (first, second) = (&memory["memory_version_id"], &moved["memory_version_id"]);
    assert_eq!(store.redact(first).await["content_also_in"], json!([second]));
    assert_eq!(blobs(&place, &store).await, ["harmless", "secret"]);
    let kept = ok(&place.client.get(&store.version(second)).await);
    assert_eq!(kept["content"], "secret");
    assert_eq!(store.redact(second).await["content_also_in"], json!([]));
    assert_eq!(blobs(&place, &store).await, ["harmless"]);
    // Of a memory that is deleted every version can be redacted.
    store.delete(&memory).await;
    for version in store.history().await {
        store.redact(&version["id"]).await;
    }
    assert_eq!(blobs(&place, &store).await, [""; 0]);
    let history = store.history().await;
    assert_eq!(
        strings(&history, "operation"),
        ["deleted", "modified", "modified", "created"]
    );
    assert!(
        history
            .iter()
            .all(|version| version["path"].is_null() && version["redacted_at"].is_string())
    );
    not_found(&place.client.get(&store.memory(&memory)).await);
}

pub(super) async fn redaction_lists_versions_with_the_same_content(place: Place) {
    let store = place.new_store("twice").await;
    let memory = store.create("/a", "secret").await;
    store.update(&memory, &json!({"content": "harmless"})).await;
    let copy = store.create("/copy", "secret").await;
    let elsewhere = place.new_store("elsewhere").await;
    elsewhere.create("/a", "secret").await;
    let redacted = store.redact(&memory["memory_version_id"]).await;
    assert_eq!(redacted["content_also_in"], json!([copy["memory_version_id"]]));
    assert_eq!(store.read(&copy).await["content"], "secret");
    refused(
        &store.try_redact(&copy["memory_version_id"]).await,
        409,
        "conflict_error",
    );
    assert_eq!(blobs(&place, &store).await, ["harmless", "secret"]);
}

pub(super) async fn path_of_a_deleted_memory_is_redacted_too(place: Place) {
    let store = place.new_store("deleted").await;
    let memory = store.create("/secret-name", "x").await;
    store.delete(&memory).await;
    let history = store.history().await;
    assert_eq!(history[0]["path"], "/secret-name");
    let redacted = store.redact(&history[0]["id"]).await;
    assert_eq!(
        (&redacted["operation"], &redacted["path"]),
        (&json!("deleted"), &Value::Null)
    );
    assert_eq!(redacted["content_also_in"], json!([]));
    store.redact(&history[1]["id"]).await;
    let listed = place.client.get(&store.versions()).await;
    assert!(!listed.text.contains("secret-name"), "{}", listed.text);
    // Neither version can be restored.
    for version in history {
        refused(
            &store.try_restore(&version["id"], &json!({})).await,
            409,
            "conflict_error",
        );
    }
}
