//! The history of a store: versions, filters, and bringing one back.

use std::time::Duration;

use keepsake_core::VersionId;
use serde_json::{Value, json};

use super::support::{
    Place, Store, all, holds, ok, path_conflict, precondition_failed, refused, sha256, shows, strings, text,
};
use crate::support::eventually;

fn passes(version: &Value, (name, value): (&str, &str)) -> bool {
    match name {
        "created_at[gte]" => text(&version["created_at"]) >= value,
        "created_at[lte]" => text(&version["created_at"]) <= value,
        "memory_id" | "operation" => version[name] == value,
        _ => version["created_by"][name] == value,
    }
}

/// Checks what a list with these filters has of the whole history.
async fn lists_what_passes(store: &Store, whole: &[Value], filters: &[(&str, &str)]) {
    let query: Vec<_> = filters.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let list = format!("{}?limit=2&{}", store.versions(), query.join("&"));
    let mut expected = whole.to_vec();
    expected.retain(|version| filters.iter().all(|filter| passes(version, *filter)));
    assert_eq!(all(&store.client, &list).await, expected, "{list}");
}

pub(super) async fn filters_work_alone_and_combined_in_a_history_with_gaps(place: Place) {
    let (client, store) = (&place.client, place.store());
    let by_second = store.seen_by(&place.second);
    let mut memories = Vec::new();
    for n in 0..3 {
        store.create(&format!("/gone/{n}"), "x").await;
        let memory = store.create(&format!("/{n}"), "one").await;
        by_second.update(&memory, &json!({"content": "two"})).await;
        memories.push(memory);
    }
    let updated = store.update(&memories[0], &json!({"content": "three"})).await;
    by_second.delete(&memories[2]).await;
    let prefix = json!({"memory_store_id": store.id, "path_prefix": "/gone/"});
    let erasure = ok(&client.post("/v1/erasures", &prefix).await);
    let erasure = format!("/v1/erasures/{}", text(&erasure["id"]));
    let is_done = async || ok(&client.get(&erasure).await)["state"] == "done";
    eventually("the erasure is done", Duration::from_mins(1), is_done).await;

    let whole = store.history().await;
    assert_eq!(whole.len(), 8);
    assert_eq!(whole[1]["created_at"], updated["updated_at"]);
    for bound in &whole {
        let at = text(&bound["created_at"]);
        lists_what_passes(&store, &whole, &[("created_at[gte]", at), ("created_at[lte]", at)]).await;
    }
    let [last, last_but_one] =
        [&whole[0], &whole[1]].map(|version| text(&version["created_by"]["api_key_id"]));
    assert_ne!(last, last_but_one);
    let middle = text(&whole[4]["created_at"]);
    let filters = [
        ("memory_id", text(&memories[0]["id"])),
        ("operation", "created"),
        ("operation", "modified"),
        ("operation", "deleted"),
        ("api_key_id", last),
        ("api_key_id", last_but_one),
        ("created_at[gte]", middle),
        ("created_at[lte]", middle),
        ("session_id", "sesn_00000000000000000000000001"),
        ("service_account_id", "robot"),
        ("memory_id", "mem_00000000000000000000000001"),
    ];
    for (number, one) in filters.iter().enumerate() {
        lists_what_passes(&store, &whole, &[*one]).await;
        for other in filters[number..].iter().filter(|other| other.0 != one.0) {
            lists_what_passes(&store, &whole, &[*one, *other]).await;
        }
    }
}

pub(super) async fn list_is_in_the_order_of_commits(place: Place) {
    let store = place.store();
    let writers = (0..6).map(|writer| {
        let store = store.seen_by([&place.client, &place.second][writer % 2]);
        async move {
            for n in 0..6 {
                let memory = store.create(&format!("/{writer}/{n}"), "x").await;
                store.update(&memory, &json!({"content": "y"})).await;
            }
        }
    });
    futures::future::join_all(writers).await;
    let database = place.deployment.database().await;
    let mut committed: Vec<_> = database
        .versions(place.tenant.store_id)
        .await
        .iter()
        .map(|version| VersionId::from_uuid(version.id).to_string())
        .collect();
    database.close().await;
    committed.reverse();
    assert_eq!(committed.len(), 72);
    let listed = all(&place.client, &format!("{}?limit=7", store.versions())).await;
    assert_eq!(strings(&listed, "id"), committed);
    let times = strings(&listed, "created_at");
    assert!(times.is_sorted_by(|newer, older| newer >= older), "{times:?}");
}

pub(super) async fn restored_version_is_a_new_one_of_the_same_memory(place: Place) {
    let store = place.store();
    let made = store.create("/first", "one").await;
    let first = &made["memory_version_id"];
    let moved = store.update(&made, &json!({"path": "/second", "content": "two"})).await;
    let last = &moved["memory_version_id"];
    let history = store.history().await;
    let on = |content: &str| json!({"precondition": holds(content)});
    precondition_failed(&store.try_restore(first, &on("one")).await, &moved);
    let restored = ok(&store.try_restore(first, &on("two")).await);
    let expected = json!({
        "id": made["id"], "path": "/first", "content_sha256": sha256("one"), "created_at": made["created_at"],
    });
    shows(&restored, &expected);
    assert_eq!(store.read(&made).await["content"], "one");
    // Sent again, it succeeds: it already took effect.
    let again = ok(&store.try_restore(first, &on("two")).await);
    assert_eq!(again["memory_version_id"], restored["memory_version_id"]);
    assert_eq!(store.history().await[1..], history, "the old versions are as they were");

    // A deleted memory has no content, so the precondition fails.
    store.delete(&made).await;
    let failed = store.try_restore(last, &on("one")).await;
    let error = refused(&failed, 409, "memory_precondition_failed_error");
    shows(&error, &json!({"memory_id": made["id"], "current_content_sha256": null}));
    let restored = store.restore(last).await;
    shows(&restored, &json!({"id": made["id"], "path": "/second", "created_at": made["created_at"]}));
    assert_eq!(store.read(&made).await["content"], "two");
    // The path of the version may be taken.
    let other = store.create("/first", "other").await;
    path_conflict(&store.try_restore(first, &on("two")).await, &other);
    let only_if_free = json!({"precondition": {"type": "not_exists"}});
    let unchanged = ok(&store.try_restore(first, &only_if_free).await);
    assert_eq!(unchanged["memory_version_id"], restored["memory_version_id"]);
    // A version without content is not restored.
    store.redact(first).await;
    store.delete(&made).await;
    let history = store.history().await;
    assert_eq!(history[0]["operation"], "deleted");
    for version in [&history[0]["id"], first] {
        for body in [json!({}), on("two")] {
            refused(&store.try_restore(version, &body).await, 409, "conflict_error");
        }
    }
    assert_eq!(store.history().await, history);
}
