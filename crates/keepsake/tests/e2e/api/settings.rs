//! Fields of stores and memories that the SDK does not have.

use keepsake_core::Timestamp;
use serde_json::{Value, json};

use super::support::{PREVIEW, Place, STORES, Store, all, invalid, ok, patch, post_with, refused, text};

const DAY_MICROS: i64 = 86_400_000_000;

pub(super) async fn counts_follow_the_live_memories(place: Place) {
    let store = place.new_store("counted").await;
    let counts = async || {
        let object = store.object().await;
        (
            object["memory_count"].as_u64().unwrap(),
            object["content_bytes"].as_u64().unwrap(),
        )
    };
    assert_eq!(counts().await, (0, 0));
    let a = store.create("/a", "éé").await;
    assert_eq!(counts().await, (1, 4));
    store.create("/d/empty", "").await;
    assert_eq!(counts().await, (2, 4));
    store.update(&a, &json!({"content": "123456"})).await;
    assert_eq!(counts().await, (2, 6));
    store.update(&a, &json!({"path": "/d/a"})).await;
    assert_eq!(counts().await, (2, 6));
    let upsert = json!({"path": "/d/a", "content": "1"});
    let beta = ("anthropic-beta", PREVIEW);
    ok(&post_with(&place.client, &store.memories(), &upsert, beta).await);
    assert_eq!(counts().await, (2, 1));
    store.try_create("/d/a", "refused").await;
    assert_eq!(counts().await, (2, 1));
    store.redact(&a["memory_version_id"]).await;
    store.delete(&a).await;
    assert_eq!(counts().await, (1, 0));
    let versions = store.history().await;
    let last = versions
        .iter()
        .find(|version| version["content_size_bytes"] == 1)
        .unwrap();
    store.restore(&last["id"]).await;
    assert_eq!(counts().await, (2, 1));
}

pub(super) async fn expiry_and_policy_are_set_and_cleared(place: Place) {
    let client = &place.client;
    for policy in ["off", "redact", "reject"] {
        let new = json!({"name": "a", "sensitive_data_policy": policy, "expires_unused_after": 60});
        let made = ok(&client.post(STORES, &new).await);
        assert_eq!(made["sensitive_data_policy"], policy);
        assert_eq!(made["expires_unused_after"], 60);
        let path = format!("{STORES}/{}", text(&made["id"]));
        for (edit, field, expected) in [
            (
                json!({"expires_unused_after": 7200}),
                "expires_unused_after",
                json!(7200),
            ),
            (
                json!({"expires_unused_after": 0}),
                "expires_unused_after",
                Value::Null,
            ),
            (
                json!({"expires_unused_after": 1}),
                "expires_unused_after",
                json!(1),
            ),
            (
                json!({"sensitive_data_policy": "reject"}),
                "sensitive_data_policy",
                json!("reject"),
            ),
            (
                json!({"sensitive_data_policy": "off"}),
                "sensitive_data_policy",
                json!("off"),
            ),
        ] {
            assert_eq!(ok(&patch(client, &path, &edit).await)[field], expected, "{edit}");
            assert_eq!(ok(&client.get(&path).await)[field], expected, "{edit}");
        }
    }
    let never = ok(&client
        .post(STORES, &json!({"name": "a", "expires_unused_after": 0}))
        .await);
    assert!(never["expires_unused_after"].is_null());
    let too_long = json!({"name": "a", "expires_unused_after": u64::MAX});
    invalid(&client.post(STORES, &too_long).await, "expires_unused_after");
}

pub(super) async fn expiry_and_policy_need_the_scope_of_stores(place: Place) {
    let store = place.store();
    let before = store.object().await;
    for edit in [
        json!({"expires_unused_after": 60}),
        json!({"expires_unused_after": 0}),
        json!({"sensitive_data_policy": "reject"}),
        json!({"sensitive_data_policy": "off"}),
        json!({"name": "changed", "sensitive_data_policy": "off"}),
    ] {
        for answer in [
            place.writer.post(&store.path, &edit).await,
            patch(&place.writer, &store.path, &edit).await,
        ] {
            let error = refused(&answer, 403, "permission_error");
            assert!(text(&error["message"]).contains("stores:admin"), "{error}");
        }
    }
    assert_eq!(store.object().await, before);
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
    assert_eq!(
        micros(&memory["expires_at"]) - micros(&memory["updated_at"]),
        life
    );
    let updated = store.update(&memory, &json!({"content": "two"})).await;
    assert_eq!(
        micros(&updated["expires_at"]) - micros(&updated["updated_at"]),
        life
    );
    let read = store.read(&memory).await;
    let read_again = store.read(&memory).await;
    assert!(micros(&read_again["expires_at"]) > micros(&read["updated_at"]) + life);
    assert_eq!(
        micros(&read_again["expires_at"]) - micros(&read_again["last_accessed_at"]),
        life
    );
    let listed = all(client, &format!("{}?limit=5", store.memories())).await;
    assert!(micros(&listed[0]["expires_at"]) >= micros(&read_again["expires_at"]));
    let pinned = store.update(&memory, &json!({"pinned": true})).await;
    assert!(pinned["expires_at"].is_null(), "{pinned}");
    let freed = store.update(&memory, &json!({"pinned": false})).await;
    assert!(freed["expires_at"].is_string(), "{freed}");

    // A shorter period has no effect before a day has passed.
    let shorter = ok(&client
        .post(&store.path, &json!({"expires_unused_after": 60}))
        .await);
    assert_eq!(shorter["expires_unused_after"], 60);
    let now = store.create("/b", "x").await;
    let left = micros(&now["expires_at"]) - micros(&now["updated_at"]);
    assert!(left > DAY_MICROS - 600_000_000 && left <= DAY_MICROS, "{left}");
    ok(&client
        .post(&store.path, &json!({"expires_unused_after": 0}))
        .await);
    assert!(store.read(&memory).await["expires_at"].is_null());
    assert!(store.create("/c", "x").await["expires_at"].is_null());
}

pub(super) async fn reading_content_is_access_and_listing_is_not(place: Place) {
    let (client, store) = (&place.client, place.new_store("read").await);
    let memory = store.create("/a", "one").await;
    assert!(memory["last_accessed_at"].is_null());
    let at = store.memory(&memory);
    let basic = format!("{at}?view=basic");
    all(client, &format!("{}?limit=5", store.memories())).await;
    ok(&client.get(&basic).await);
    assert!(ok(&client.get(&basic).await)["last_accessed_at"].is_null());
    store.read(&memory).await;
    let first = ok(&client.get(&basic).await)["last_accessed_at"].clone();
    assert!(first.is_string());
    assert_eq!(ok(&client.get(&basic).await)["last_accessed_at"], first);
    all(client, &format!("{}?view=full", store.memories())).await;
    let second = ok(&client.get(&basic).await)["last_accessed_at"].clone();
    assert!(text(&second) > text(&first));
    let view = json!({"command": "view", "path": "/memories/a"});
    assert!(!client.call(&store.id, &view).await.tool_result().is_error);
    let third = ok(&client.get(&basic).await)["last_accessed_at"].clone();
    assert!(text(&third) > text(&second));
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
}
