//! Removing what a version holds.

use serde_json::{Value, json};

use super::conventions::assert_time;
use super::support::{Place, Store, ok, refused, shows, strings, text};

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
    assert_time(&redacted["redacted_at"]);
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
        let list = place.client.get(&format!("{}?view={view}", store.versions())).await;
        assert!(!list.text.contains("secret"), "{}", list.text);
    }
    assert_eq!(store.read(&memory).await["content"], "harmless");
    // Again, by whomever, the answer is the same.
    for client in [&place.client, &place.second] {
        let mut again = store.seen_by(client).redact(&before["id"]).await;
        again["content_also_in"] = json!([]);
        assert_eq!(again, redacted);
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
    shows(&read, &json!({"content": "secret", "path": "/b"}));
    let history = store.history().await;
    assert!(history.iter().all(|version| version["redacted_at"].is_null()));
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
    assert_eq!(strings(&history, "operation"), ["deleted", "modified", "modified", "created"]);
    assert!(history.iter().all(|version| version["path"].is_null() && version["redacted_at"].is_string()));
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
    assert_eq!(blobs(&place, &store).await, ["harmless", "secret"]);
}

pub(super) async fn path_of_a_deleted_memory_is_redacted_too(place: Place) {
    let store = place.new_store("deleted").await;
    let memory = store.create("/secret-name", "x").await;
    store.delete(&memory).await;
    let history = store.history().await;
    assert_eq!(history[0]["path"], "/secret-name");
    let redacted = store.redact(&history[0]["id"]).await;
    shows(&redacted, &json!({"operation": "deleted", "path": null}));
    assert_eq!(redacted["content_also_in"], json!([]));
    store.redact(&history[1]["id"]).await;
    let listed = place.client.get(&store.versions()).await;
    assert!(!listed.text.contains("secret-name"), "{}", listed.text);
    // Neither version can be restored.
    for version in history {
        let answer = store.try_restore(&version["id"], &json!({})).await;
        refused(&answer, 409, "conflict_error");
    }
    // A later version of a memory can be.
    let moved = store.create("/secret-name", "y").await;
    store.update(&moved, &json!({"path": "/plain", "content": "z"})).await;
    store.delete(&moved).await;
    store.redact(&moved["memory_version_id"]).await;
    let history = store.history().await;
    assert_eq!(store.restore(&history[1]["id"]).await["path"], "/plain");
    let database = place.deployment.database().await;
    let rows = "SELECT (SELECT count(*) FROM version WHERE path LIKE '%secret-name%') \
                + (SELECT count(*) FROM memory WHERE path LIKE '%secret-name%' OR name LIKE '%secret-name%') \
                + (SELECT count(*) FROM directory WHERE path LIKE '%secret-name%')";
    assert_eq!(database.number(rows).await, 0);
    database.close().await;
}

pub(super) async fn repeated_edit_shows_nothing_of_a_redacted_version(place: Place) {
    let store = place.new_store("edited").await;
    let memory = store.create("/a.txt", "one\nsecret\n").await;
    let edit = json!({"command": "str_replace", "path": "/memories/a.txt", "old_str": "secret\n", "new_str": "two\n"});
    let block = json!({"type": "tool_use", "id": "toolu_1", "name": "memory", "input": edit});
    let edited = async || ok(&place.client.call(&store.id, &block).await);
    let first = edited().await;
    assert!(text(&first["content"]).contains("2\ttwo"), "{first}");
    store.redact(&memory["memory_version_id"]).await;
    let again = edited().await;
    assert_eq!(again["content"], "The file /memories/a.txt has been edited.");
    assert_eq!(again["is_error"], false);
    assert_eq!(store.version_count().await, 2, "and the edit was not made again");
}
