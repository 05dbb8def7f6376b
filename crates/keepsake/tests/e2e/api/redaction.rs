//! Removing what a version holds.

use super::conventions::assert_time;
use crate::prelude::*;

async fn blobs(place: &Place, store: &Store) -> Vec<String> {
    let mut texts = Vec::new();
    for listed in place.blobs.list(None, None, 100_000).await.unwrap() {
        if listed.key.store_id.to_string() == store.id {
            let bytes = place.blobs.get(&listed.key, listed.size_bytes).await.unwrap();
            texts.extend(bytes.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap()));
        }
    }
    texts.sort();
    texts
}

pub(super) async fn redaction_removes_content_and_keeps_who_did_what(place: Place) {
    let store = place.new_store("redacted").await;
    let memory = store.create("/secret/path", "secret").await;
    store.update(&memory, &json!({"content": "harmless", "path": "/plain"})).await;
    assert_eq!(blobs(&place, &store).await, ["harmless", "secret"]);
    let before = store.history().await[1].clone();
    let redacted = store.seen_by(&place.second).redact(&before["id"]).await;
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
    let history = store.history().await;
    assert_eq!((history.len(), &history[1]), (2, &expected));
    let list = place.client.get(&format!("{}?view=full", store.versions())).await;
    assert!(!list.text.contains("secret"), "{}", list.text);
    expected["content_also_in"] = json!([]);
    assert_eq!(redacted, expected);
    assert_eq!(blobs(&place, &store).await, ["harmless"]);
    assert_eq!(store.read(&memory).await["content"], "harmless");
    // Again, by whomever, the answer is the same.
    for client in [&place.client, &place.second] {
        let mut again = store.seen_by(client).redact(&before["id"]).await;
        again["content_also_in"] = json!([]);
        assert_eq!(again, redacted);
    }
}

pub(super) async fn content_is_redacted_when_it_is_no_longer_live(place: Place) {
    let store = place.new_store("live").await;
    let memory = store.create("/a", "secret").await;
    let moved = store.update(&memory, &json!({"path": "/b"})).await;
    let both = [&memory, &moved].map(|memory| memory["memory_version_id"].clone());
    let is_refused = async || {
        for version in &both {
            refused(&store.try_redact(version).await, 409, "conflict_error");
        }
        shows(&store.read(&memory).await, &json!({"content": "secret"}));
    };
    is_refused().await;
    assert!(store.history().await.iter().all(|version| version["redacted_at"].is_null()));
    // Restored content is shared as well.
    store.update(&memory, &json!({"content": "harmless"})).await;
    store.restore(&both[0]).await;
    is_refused().await;
    assert_eq!(blobs(&place, &store).await, ["harmless", "secret"]);
    let restored = store.read(&memory).await;
    store.update(&memory, &json!({"content": "harmless"})).await;

    // A copy is another memory's content, and not told of from another store. A blob is
    // removed with its last version.
    let copy = store.create("/copy", "secret").await;
    place.new_store("elsewhere").await.create("/a", "secret").await;
    let also_in = [&copy, &restored, &moved].map(|memory| memory["memory_version_id"].clone());
    for (number, version) in [&both[0], &both[1], &restored["memory_version_id"]].into_iter().enumerate() {
        assert_eq!(store.read(&copy).await["content"], "secret");
        assert_eq!(blobs(&place, &store).await, ["harmless", "harmless", "secret", "secret"]);
        let redacted = store.redact(version).await;
        assert_eq!(redacted["content_also_in"], json!(also_in[..3 - number]));
    }
    assert_eq!(blobs(&place, &store).await, ["harmless", "harmless", "secret"]);
    // Of a memory that is deleted every version can be redacted.
    for memory in [&memory, &copy] {
        store.delete(memory).await;
    }
    for version in store.history().await {
        store.redact(&version["id"]).await;
    }
    assert_eq!(blobs(&place, &store).await, [""; 0]);
    let history = store.history().await;
    assert!(history.iter().all(|version| version["path"].is_null() && version["redacted_at"].is_string()));
}

pub(super) async fn path_of_a_deleted_memory_is_redacted_and_a_repeated_edit_shows_nothing(place: Place) {
    let store = place.new_store("deleted").await;
    let memory = store.create("/secret-name", "x").await;
    store.delete(&memory).await;
    // A memory whose later version has another path can be restored.
    let moved = store.create("/secret-name", "y").await;
    store.update(&moved, &json!({"path": "/plain", "content": "z"})).await;
    store.delete(&moved).await;
    let history = store.history().await;
    let named: Vec<_> = history.iter().filter(|version| version["path"] == "/secret-name").collect();
    assert_eq!(named.len(), 3);
    for version in named {
        store.redact(&version["id"]).await;
    }
    let listed = place.client.get(&store.versions()).await;
    assert!(!listed.text.contains("secret-name"), "{}", listed.text);
    assert_eq!(store.restore(&history[1]["id"]).await["path"], "/plain");
    let rows = "SELECT (SELECT count(*) FROM version WHERE path LIKE '%secret-name%') \
                + (SELECT count(*) FROM memory WHERE path LIKE '%secret-name%' OR name LIKE '%secret-name%') \
                + (SELECT count(*) FROM directory WHERE path LIKE '%secret-name%')";
    assert_eq!(place.deployment.number(rows).await, 0);

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
