//! Fields of stores and memories that the SDK does not have.

use keepsake_core::Timestamp;
use serde_json::{Value, json};

use super::support::{Place, STORES, Store, all, invalid, ok, patch, shows, text};

const DAY_MICROS: i64 = 86_400_000_000;

pub(super) async fn expiry_and_policy_are_set_and_cleared(place: Place) {
    let client = &place.client;
    for policy in ["off", "redact", "reject"] {
        let new = json!({"name": "a", "sensitive_data_policy": policy, "expires_unused_after": 60});
        let made = ok(&client.post(STORES, &new).await);
        assert_eq!(made["sensitive_data_policy"], policy);
        assert_eq!(made["expires_unused_after"], 60);
        let path = format!("{STORES}/{}", text(&made["id"]));
        for (field, value, expected) in [
            ("expires_unused_after", json!(7200), json!(7200)),
            ("expires_unused_after", json!(0), Value::Null),
            ("expires_unused_after", json!(1), json!(1)),
            ("sensitive_data_policy", json!("reject"), json!("reject")),
            ("sensitive_data_policy", json!("off"), json!("off")),
        ] {
            let edit = json!({field: value});
            assert_eq!(ok(&patch(client, &path, &edit).await)[field], expected, "{edit}");
            assert_eq!(ok(&client.get(&path).await)[field], expected, "{edit}");
        }
    }
    let never = json!({"name": "a", "expires_unused_after": 0});
    let never = ok(&client.post(STORES, &never).await);
    assert!(never["expires_unused_after"].is_null());
    let too_long = json!({"name": "a", "expires_unused_after": u64::MAX});
    invalid(&client.post(STORES, &too_long).await, "expires_unused_after");
}

fn micros(time: &Value) -> i64 {
    Timestamp::parse(text(time)).unwrap().as_micros()
}

pub(super) async fn memories_show_their_expiry_time(place: Place) {
    let client = &place.client;
    let new = json!({"name": "short-lived", "expires_unused_after": 10 * 86_400});
    let store = Store::new(client, text(&ok(&client.post(STORES, &new).await)["id"]));
    let memory = store.create("/a", "one").await;
    let life = 10 * DAY_MICROS;
    let lives_since = |memory: &Value, time: &str| {
        assert_eq!(micros(&memory["expires_at"]) - micros(&memory[time]), life, "{memory}");
    };
    lives_since(&memory, "updated_at");
    lives_since(&store.update(&memory, &json!({"content": "two"})).await, "updated_at");
    let read = store.read(&memory).await;
    let read_again = store.read(&memory).await;
    assert!(micros(&read_again["expires_at"]) > micros(&read["updated_at"]) + life);
    lives_since(&read_again, "last_accessed_at");
    let listed = all(client, &format!("{}?limit=5", store.memories())).await;
    assert!(micros(&listed[0]["expires_at"]) >= micros(&read_again["expires_at"]));
    let pinned = store.update(&memory, &json!({"pinned": true})).await;
    assert!(pinned["expires_at"].is_null(), "{pinned}");
    let freed = store.update(&memory, &json!({"pinned": false})).await;
    assert!(freed["expires_at"].is_string(), "{freed}");

    // A shorter period has no effect before a day has passed.
    let keep_for = async |seconds: u64| {
        let period = json!({"expires_unused_after": seconds});
        ok(&client.post(&store.path, &period).await)
    };
    assert_eq!(keep_for(60).await["expires_unused_after"], 60);
    let now = store.create("/b", "x").await;
    let left = micros(&now["expires_at"]) - micros(&now["updated_at"]);
    assert!(left > DAY_MICROS - 600_000_000 && left <= DAY_MICROS, "{left}");
    keep_for(0).await;
    assert!(store.read(&memory).await["expires_at"].is_null());
    assert!(store.create("/c", "x").await["expires_at"].is_null());
}

pub(super) async fn reading_content_is_access_and_listing_is_not(place: Place) {
    let (client, store) = (&place.client, place.new_store("read").await);
    let memory = store.create("/a", "one").await;
    assert!(memory["last_accessed_at"].is_null());
    let accessed = async || store.basic(&memory).await["last_accessed_at"].clone();
    all(client, &format!("{}?limit=5", store.memories())).await;
    accessed().await;
    assert!(accessed().await.is_null());
    let mut last = String::new();
    for read in [
        store.memory(&memory),
        format!("{}?view=full", store.memories()),
        format!("{}/search?query=one", store.path),
    ] {
        ok(&client.get(&read).await);
        let now = accessed().await;
        assert!(text(&now) > last.as_str(), "{read}");
        assert_eq!(accessed().await, now);
        text(&now).clone_into(&mut last);
    }
    let view = json!({"command": "view", "path": "/memories/a"});
    assert!(!client.call(&store.id, &view).await.tool_result().is_error);
    let third = accessed().await;
    assert!(text(&third) > last.as_str());
    let past_the_end = json!({"path": "/memories/a", "offset": 9});
    for (tool, input, is_access) in [
        ("memory_list", json!({}), false),
        ("memory_read", past_the_end, false),
        ("memory_read", json!({"path": "/memories/a"}), true),
    ] {
        let block = json!({"type": "tool_use", "name": tool, "input": input});
        ok(&client.call(&store.id, &block).await);
        let now = accessed().await;
        assert_eq!(text(&now) > text(&third), is_access, "{block}");
    }
    assert_eq!(store.version_count().await, 1);
}

pub(super) async fn expiry_time_of_a_memory_is_set_and_removed(place: Place) {
    let store = place.new_store("timed").await;
    let time = "2999-12-31T00:00:00.000000Z";
    let new = json!({"path": "/a", "content": "a", "expires_at": "2999-12-31"});
    let memory = ok(&place.client.post(&store.memories(), &new).await);
    assert_eq!(memory["expires_at"], time);
    for (edit, expected) in [
        (json!({"expires_at": null, "content": "b"}), json!(time)),
        (json!({"path": "/b"}), json!(time)),
        (json!({"pinned": true}), Value::Null),
        (json!({"pinned": false}), json!(time)),
        (json!({"expires_at": "never"}), Value::Null),
        (json!({"expires_at": time}), json!(time)),
    ] {
        let edited = store.update(&memory, &edit).await;
        assert_eq!(edited["expires_at"], expected, "{edit}");
        assert_eq!(store.read(&memory).await["expires_at"], expected, "{edit}");
    }
    assert_eq!(store.version_count().await, 3);
    for wrong in ["", "soon", "2020-01-01", "9999-12-31"] {
        let edit = json!({"expires_at": wrong, "content": "c"});
        invalid(&store.try_update(&memory, &edit).await, "`expires_at`");
        let new = json!({"path": "/new", "content": "", "expires_at": wrong});
        invalid(&place.client.post(&store.memories(), &new).await, "`expires_at`");
    }
    let both = json!({"expires_at": time, "pinned": true});
    invalid(&store.try_update(&memory, &both).await, "`expires_at`");
    assert_eq!(store.version_count().await, 3, "a refused change changes nothing");

    // Changes keep it, a deletion ends it.
    let insert = json!({"command": "insert", "path": "/memories/b", "insert_line": 0, "insert_text": "c"});
    let inserted = place.client.call(&store.id, &insert).await.tool_result();
    assert!(!inserted.is_error, "{inserted:?}");
    assert_eq!(store.read(&memory).await["expires_at"], time);
    let upserted = ok(&store.upsert("/b", "d").await);
    shows(&upserted, &json!({"id": memory["id"], "expires_at": time}));
    let first = &memory["memory_version_id"];
    assert_eq!(store.restore(first).await["expires_at"], time);
    store.delete(&memory).await;
    assert_eq!(store.restore(first).await["expires_at"], Value::Null);
}
