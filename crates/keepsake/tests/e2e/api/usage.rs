//! The usage of a store: next expiries, unread memories, and readers.

use keepsake_core::Timestamp;
use serde_json::json;

use super::support::{Place, STORES, Store, delete, invalid, not_found, ok, shows, strings, text};

const PERIOD_SECS: u64 = 30 * 86_400;

fn usage_of(store: &Store) -> String {
    format!("{}/usage", store.path)
}

pub(super) async fn usage_lists_next_expiries_and_unread_memories(place: Place) {
    let client = &place.client;
    let new = json!({"name": "used", "expires_unused_after": PERIOD_SECS});
    let store = Store::new(client, text(&ok(&client.post(STORES, &new).await)["id"]));
    let read = store.create("/read", "12").await;
    let unread = store.create("/unread", "345").await;
    let pinned = store.create("/pinned", "6").await;
    store.update(&pinned, &json!({"pinned": true})).await;
    store.update(&read, &json!({"content": "1234"})).await;
    store.read(&read).await;

    let usage = ok(&client.get(&usage_of(&store)).await);
    let expected = json!({
        "id": store.id, "type": "memory_store_usage", "memory_count": 3, "content_bytes": 8, "version_count": 4,
        "version_bytes": 10, "expires_unused_after": PERIOD_SECS, "never_read_count": 2,
    });
    shows(&usage, &expected);
    assert_eq!(usage["limits"]["memories_per_store"], 2_000);
    assert_eq!(usage["limits"]["version_retention_secs"], 30 * 86_400);
    let made = Timestamp::parse(text(&store.object().await["created_at"])).unwrap();
    let in_effect = Timestamp::parse(text(&usage["takes_effect_at"])).unwrap();
    assert_eq!(in_effect.as_micros() - made.as_micros(), 86_400_000_000);

    let next = usage["expiring_next"].as_array().unwrap();
    // The pinned one never does.
    assert_eq!(strings(next, "path"), ["/unread", "/read"]);
    let expected = json!({
        "memory_id": unread["id"], "content_size_bytes": 3, "last_accessed_at": null, "last_accessed_by": null,
        "expires_at": unread["expires_at"],
    });
    shows(&next[0], &expected);
    let versions = store.history().await;
    let by = &versions[0]["created_by"];
    for memory in next {
        assert_eq!(memory["last_written_by"], *by, "one key wrote all");
    }
    assert_eq!(next[1]["last_accessed_by"], *by);
    assert!(text(&next[1]["last_accessed_at"]) > text(&next[1]["last_written_at"]));
    assert!(text(&next[1]["expires_at"]) > text(&next[0]["expires_at"]));
    let never = usage["never_read"].as_array().unwrap();
    assert_eq!(strings(never, "path"), ["/unread", "/pinned"]);
    assert!(never[1]["expires_at"].is_null());
}

pub(super) async fn usage_without_a_period_and_its_bounds(place: Place) {
    let (client, store) = (&place.client, place.new_store("plain").await);
    for number in 0..3 {
        store.create(&format!("/{number}"), "x").await;
    }
    let usage = ok(&client.get(&format!("{}?limit=2", usage_of(&store))).await);
    assert!(usage["expires_unused_after"].is_null() && usage["takes_effect_at"].is_null());
    assert_eq!(usage["expiring_next"], json!([]));
    let never = usage["never_read"].as_array().unwrap();
    assert_eq!(strings(never, "path"), ["/0", "/1"]);
    assert_eq!(usage["never_read_count"], 3);
    // Content that stays counts once in the history.
    let memory = store.create("/3", "xx").await;
    for path in ["/4", "/5"] {
        store.update(&memory, &json!({"path": path})).await;
    }
    store.restore(&memory["memory_version_id"]).await;
    let usage = ok(&client.get(&usage_of(&store)).await);
    shows(&usage, &json!({"version_count": 7, "version_bytes": 5}));
    for bad in ["0", "101", "x"] {
        let bad = format!("{}?limit={bad}", usage_of(&store));
        invalid(&client.get(&bad).await, "limit");
    }
    ok(&delete(client, &store.path).await);
    not_found(&client.get(&usage_of(&store)).await);
}
