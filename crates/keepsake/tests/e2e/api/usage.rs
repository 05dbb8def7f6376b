//! The usage of a store: next expiries, unread memories, and readers.

use keepsake_core::Timestamp;
use serde_json::json;

use super::support::{Place, STORES, Store, delete, invalid, not_found, ok, strings, text};

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
    assert_eq!(
        (&usage["id"], &usage["type"]),
        (&json!(store.id), &json!("memory_store_usage"))
    );
    assert_eq!(
        (&usage["memory_count"], &usage["content_bytes"]),
        (&json!(3), &json!(8))
    );
    assert_eq!(
        (&usage["version_count"], &usage["version_bytes"]),
        (&json!(4), &json!(10))
    );
    assert_eq!(usage["limits"]["memories_per_store"], 2_000);
    assert_eq!(usage["limits"]["version_retention_secs"], 30 * 86_400);
    assert_eq!(usage["expires_unused_after"], PERIOD_SECS);
    let made = Timestamp::parse(text(&store.object().await["created_at"])).unwrap();
    let in_effect = Timestamp::parse(text(&usage["takes_effect_at"])).unwrap();
    assert_eq!(in_effect.as_micros() - made.as_micros(), 86_400_000_000);

    let next = usage["expiring_next"].as_array().unwrap();
    assert_eq!(
        strings(next, "path"),
        ["/unread", "/read"],
        "the pinned one never does"
    );
    assert_eq!(next[0]["memory_id"], unread["id"]);
    assert_eq!(next[0]["content_size_bytes"], 3);
    assert_eq!(
        (&next[0]["last_accessed_at"], &next[0]["last_accessed_by"]),
        (&json!(null), &json!(null))
    );
    assert_eq!(next[0]["expires_at"], unread["expires_at"]);
    let versions = store.history().await;
    for memory in next {
        assert_eq!(
            memory["last_written_by"], versions[0]["created_by"],
            "one key wrote all"
        );
    }
    assert_eq!(next[1]["last_accessed_by"], versions[0]["created_by"]);
    assert!(text(&next[1]["last_accessed_at"]) > text(&next[1]["last_written_at"]));
    assert!(text(&next[1]["expires_at"]) > text(&next[0]["expires_at"]));
    let never = usage["never_read"].as_array().unwrap();
    assert_eq!(strings(never, "path"), ["/unread", "/pinned"]);
    assert_eq!(usage["never_read_count"], 2);
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
    assert_eq!(
        strings(usage["never_read"].as_array().unwrap(), "path"),
        ["/0", "/1"]
    );
    assert_eq!(usage["never_read_count"], 3);
    for bad in ["0", "101", "x"] {
        invalid(
            &client.get(&format!("{}?limit={bad}", usage_of(&store))).await,
            "limit",
        );
    }
    ok(&delete(client, &store.path).await);
    not_found(&client.get(&usage_of(&store)).await);
}
