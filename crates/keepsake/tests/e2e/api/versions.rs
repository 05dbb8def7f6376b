//! The history of a store: versions, filters, and bringing one back.

use std::cmp::Ordering;
use std::time::Duration;

use keepsake_core::VersionId;
use serde_json::{Value, json};

use super::conventions::{assert_id, assert_time};
use super::support::{
    Place, Store, all, holds, not_found, ok, path_conflict, precondition_failed, refused, sha256, shows,
    strings, text,
};
use crate::support::eventually;

pub(super) async fn versions_show_what_was_done(place: Place) {
    let store = place.store();
    let made = store.create("/a", "one").await;
    let edited = store.update(&made, &json!({"content": "two"})).await;
    let moved = store.update(&made, &json!({"path": "/d/b"})).await;
    store.delete(&made).await;
    let shown = store.history().await;
    let by = &shown[0]["created_by"];
    assert_eq!(*by, json!({"type": "api_actor", "api_key_id": by["api_key_id"]}));
    assert_id(&by["api_key_id"], "apikey_");
    assert_id(&shown[0]["id"], "memver_");
    assert_time(&shown[0]["created_at"]);
    let expected = |operation: &str, path: &str, content: Option<&str>| {
        json!({
            "type": "memory_version", "memory_store_id": store.id, "memory_id": made["id"],
            "operation": operation, "path": path, "content": null,
            "content_size_bytes": content.map(str::len), "content_sha256": content.map(sha256),
            "created_by": by, "redacted_at": null, "redacted_by": null,
        })
    };
    let mut told = [
        expected("deleted", "/d/b", None),
        expected("modified", "/d/b", Some("two")),
        expected("modified", "/a", Some("two")),
        expected("created", "/a", Some("one")),
    ];
    for (told, shown) in told.iter_mut().zip(&shown) {
        for own in ["id", "created_at"] {
            told[own] = shown[own].clone();
        }
    }
    assert_eq!(shown, told);
    for (version, memory) in [(3, &made), (2, &edited), (1, &moved)] {
        assert_eq!(shown[version]["id"], memory["memory_version_id"]);
        assert_eq!(shown[version]["created_at"], memory["updated_at"]);
    }
    for (version, content) in shown.iter().zip([Value::Null, json!("two"), json!("two"), json!("one")]) {
        let at = store.version(&version["id"]);
        let mut full = version.clone();
        full["content"] = content;
        assert_eq!(ok(&place.client.get(&at).await), full);
        assert_eq!(ok(&place.client.get(&format!("{at}?view=full")).await), full);
        assert_eq!(ok(&place.client.get(&format!("{at}?view=basic")).await), *version);
    }
    let full = all(&place.client, &format!("{}?view=full", store.versions())).await;
    let full: Vec<_> = full.iter().map(|version| version["content"].clone()).collect();
    assert_eq!(json!(full), json!([null, "two", "two", "one"]));
}

type Filter<'a> = Box<dyn Fn(&Value) -> bool + Send + Sync + 'a>;

pub(super) async fn filters_work_alone_and_combined(place: Place) {
    let store = place.store();
    let by_second = store.seen_by(&place.second);
    let mut memories = Vec::new();
    for n in 0..3 {
        let memory = store.create(&format!("/{n}"), "one").await;
        by_second.update(&memory, &json!({"content": "two"})).await;
        memories.push(memory);
    }
    store.update(&memories[0], &json!({"content": "three"})).await;
    by_second.delete(&memories[2]).await;
    let whole = store.history().await;
    let keys = [text(&whole[1]["created_by"]["api_key_id"]), text(&whole[0]["created_by"]["api_key_id"])];
    assert_ne!(keys[0], keys[1]);
    let (middle, id) = (text(&whole[4]["created_at"]), text(&memories[0]["id"]));
    let of = |field: &'static str, value: &str| -> (String, Filter) {
        let (query, value) = (format!("{field}={value}"), value.to_owned());
        (query, Box::new(move |version| version[field] == value.as_str()))
    };
    let by = |key: &'static str, id: &str| -> (String, Filter) {
        let (query, id) = (format!("{key}={id}"), id.to_owned());
        (query, Box::new(move |version| version["created_by"][key] == id.as_str()))
    };
    let filters: Vec<(String, Filter)> = vec![
        of("memory_id", id),
        of("operation", "created"),
        of("operation", "modified"),
        of("operation", "deleted"),
        by("api_key_id", keys[0]),
        by("api_key_id", keys[1]),
        (format!("created_at[gte]={middle}"), Box::new(|version| text(&version["created_at"]) >= middle)),
        (format!("created_at[lte]={middle}"), Box::new(|version| text(&version["created_at"]) <= middle)),
        by("session_id", "sesn_00000000000000000000000001"),
        by("service_account_id", "robot"),
        by("api_key_id", "apikey_00000000000000000000000001"),
        of("memory_id", "mem_00000000000000000000000001"),
    ];
    let expect = |wanted: &dyn Fn(&Value) -> bool| -> Vec<Value> {
        whole.iter().filter(|version| wanted(version)).cloned().collect()
    };
    let list = format!("{}?", store.versions());
    for (number, (query, wanted)) in filters.iter().enumerate() {
        for limit in [1, 100] {
            let listed = all(&place.client, &format!("{list}limit={limit}&{query}")).await;
            assert_eq!(listed, expect(&**wanted), "{query}");
        }
        for (other_query, other_wanted) in &filters[number + 1..] {
            let [name, other_name] = [query, other_query].map(|query| query.split('=').next());
            if name == other_name {
                continue; // A parameter is given once.
            }
            let both = format!("{query}&{other_query}");
            let listed = all(&place.client, &format!("{list}limit=2&{both}")).await;
            let expected = expect(&|version| wanted(version) && other_wanted(version));
            assert_eq!(listed, expected, "{both}");
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
    for limit in [7, 100] {
        let list = format!("{}?limit={limit}", store.versions());
        let listed = all(&place.client, &list).await;
        assert_eq!(strings(&listed, "id"), committed);
        let times = strings(&listed, "created_at");
        assert!(times.is_sorted_by(|newer, older| newer >= older), "{times:?}");
    }
}

pub(super) async fn tool_and_api_write_one_history_with_its_actors(place: Place) {
    let store = place.store();
    let tenant = &place.tenant;
    let memory = store.create("/a.txt", "one\n").await;
    let tool = async |input: Value| place.second.tool_ok(tenant, &input).await;
    tool(json!({"command": "str_replace", "path": "/memories/a.txt", "old_str": "one", "new_str": "two"}))
        .await;
    assert_eq!(store.read(&memory).await["content"], "two\n");
    store.update(&memory, &json!({"content": "three\n"})).await;
    assert_eq!(place.second.lines(tenant, "/memories/a.txt").await, ["three", ""]);
    tool(json!({"command": "rename", "old_path": "/memories/a.txt", "new_path": "/memories/d/b.txt"})).await;
    assert_eq!(store.read(&memory).await["path"], "/d/b.txt");
    tool(json!({"command": "create", "path": "/memories/c.txt", "file_text": "by the tool\n"})).await;
    let listed = all(&place.client, &format!("{}?limit=5", store.memories())).await;
    assert_eq!(strings(&listed, "path"), ["/c.txt", "/d/b.txt"]);
    store.delete(&listed[0]).await;
    tool(json!({"command": "delete", "path": "/memories/d"})).await;
    assert_eq!(store.paths().await, [""; 0]);

    let versions = store.history().await;
    let told: Vec<_> =
        versions.iter().rev().map(|version| (text(&version["operation"]), text(&version["path"]))).collect();
    assert_eq!(
        told,
        [
            ("created", "/a.txt"),
            ("modified", "/a.txt"),
            ("modified", "/a.txt"),
            ("modified", "/d/b.txt"),
            ("created", "/c.txt"),
            ("deleted", "/c.txt"),
            ("deleted", "/d/b.txt"),
        ]
    );
    let by: Vec<_> = versions.iter().rev().map(|version| &version["created_by"]).collect();
    let (first, second) = (by[0], by[1]);
    assert_ne!(first, second);
    assert_eq!(by, [first, second, first, second, second, first, second]);
}

pub(super) async fn times_are_found_in_a_history_with_gaps(place: Place) {
    let (client, store) = (&place.client, place.store());
    for n in 0..13 {
        let directory = if n % 3 == 0 { "gone" } else { "kept" };
        store.create(&format!("/{directory}/{n}"), "x").await;
    }
    let prefix = json!({"memory_store_id": store.id, "path_prefix": "/gone/"});
    let erasure = ok(&client.post("/v1/erasures", &prefix).await);
    let erasure = format!("/v1/erasures/{}", text(&erasure["id"]));
    let is_done = async || ok(&client.get(&erasure).await)["state"] == "done";
    eventually("the erasure is done", Duration::from_mins(1), is_done).await;
    let whole = store.history().await;
    assert_eq!(whole.len(), 8);
    for bound in &whole {
        let at = text(&bound["created_at"]);
        for (query, is_later, is_earlier) in [
            (format!("created_at[gte]={at}"), true, false),
            (format!("created_at[lte]={at}"), false, true),
            (format!("created_at[gte]={at}&created_at[lte]={at}"), false, false),
        ] {
            let mut expected = whole.clone();
            expected.retain(|version| match text(&version["created_at"]).cmp(at) {
                Ordering::Greater => is_later,
                Ordering::Equal => true,
                Ordering::Less => is_earlier,
            });
            let listed = all(client, &format!("{}?limit=3&{query}", store.versions())).await;
            assert_eq!(listed, expected, "{query}");
        }
    }
}

/// A memory with the contents `one`, `two` and a second path, and its versions
/// from the first to the last.
async fn with_past(store: &Store) -> (Value, Vec<Value>) {
    let made = store.create("/first", "one").await;
    let two = store.update(&made, &json!({"content": "two"})).await;
    let moved = store.update(&made, &json!({"path": "/second", "content": "three"})).await;
    let versions = [&made, &two, &moved].map(|memory| memory["memory_version_id"].clone());
    (made, versions.to_vec())
}

pub(super) async fn restored_version_is_a_new_one(place: Place) {
    let store = place.store();
    let (made, versions) = with_past(&store).await;
    let restored = store.restore(&versions[0]).await;
    shows(&restored, &json!({"id": made["id"], "type": "memory"}));
    shows(&restored, &json!({"path": "/first", "content_sha256": sha256("one")}));
    assert_eq!(restored["created_at"], made["created_at"]);
    assert!(!versions.contains(&restored["memory_version_id"]));
    assert_eq!(store.read(&made).await["content"], "one");
    let history = store.history().await;
    assert_eq!(history.len(), 4);
    assert_eq!(history[0]["id"], restored["memory_version_id"]);
    assert_eq!(history[0]["operation"], "modified");
    // A change without effect is not written.
    let again = store.restore(&versions[0]).await;
    assert_eq!(again["memory_version_id"], restored["memory_version_id"]);
    assert_eq!(store.version_count().await, 4);
    // The old ones are as they were.
    assert_eq!(history[3]["path"], "/first");
    let old = ok(&place.client.get(&store.version(&versions[2])).await);
    shows(&old, &json!({"path": "/second", "content": "three"}));
    store.restore(&versions[2]).await;
    assert_eq!(store.paths().await, ["/second"]);
}

pub(super) async fn restored_memory_keeps_its_id(place: Place) {
    let store = place.store();
    let (made, versions) = with_past(&store).await;
    store.delete(&made).await;
    not_found(&place.client.get(&store.memory(&made)).await);
    let restored = ok(&store.try_restore(&versions[1], &json!({})).await);
    shows(&restored, &json!({"id": made["id"], "path": "/first"}));
    assert_eq!(restored["created_at"], made["created_at"]);
    assert_eq!(store.read(&made).await["content"], "two");
    assert_eq!(store.paths().await, ["/first"]);
    assert_eq!(store.version_count().await, 5);
    // And once more, with another one's path between.
    store.delete(&made).await;
    let other = store.create("/first", "other").await;
    path_conflict(&store.try_restore(&versions[0], &json!({})).await, &other);
    let restored = store.restore(&versions[2]).await;
    shows(&restored, &json!({"id": made["id"], "path": "/second"}));
    assert_eq!(store.paths().await, ["/first", "/second"]);
}

pub(super) async fn restore_of_a_version_without_content_is_refused(place: Place) {
    let store = place.store();
    let (made, versions) = with_past(&store).await;
    store.redact(&versions[0]).await;
    store.delete(&made).await;
    let history = store.history().await;
    assert_eq!(history[0]["operation"], "deleted");
    for version in [&history[0]["id"], &versions[0]] {
        // A precondition makes no difference.
        for body in [json!({}), json!({"precondition": holds("three")})] {
            refused(&store.try_restore(version, &body).await, 409, "conflict_error");
        }
    }
    assert_eq!(store.history().await, history);
}

pub(super) async fn restore_needs_its_precondition_and_a_free_path(place: Place) {
    let store = place.store();
    let (made, versions) = with_past(&store).await;
    let on = |content: &str| json!({"precondition": holds(content)});
    let now = store.basic(&made).await;
    precondition_failed(&store.try_restore(&versions[0], &on("two")).await, &now);
    let other = store.create("/first", "other").await;
    path_conflict(&store.try_restore(&versions[0], &on("three")).await, &other);
    let only_if_free = json!({"precondition": {"type": "not_exists"}});
    let unchanged = ok(&store.try_restore(&versions[0], &only_if_free).await);
    shows(&unchanged, &json!({"path": now["path"], "memory_version_id": now["memory_version_id"]}));
    assert_eq!(store.version_count().await, 4);
    store.delete(&other).await;
    let restored = ok(&store.try_restore(&versions[0], &on("three")).await);
    assert_eq!(restored["path"], "/first");
    // Sent again, it succeeds: it already took effect.
    let again = ok(&store.try_restore(&versions[0], &on("three")).await);
    assert_eq!(again["memory_version_id"], restored["memory_version_id"]);
    // A deleted memory has no content, so the precondition fails.
    store.delete(&made).await;
    let error =
        refused(&store.try_restore(&versions[2], &on("one")).await, 409, "memory_precondition_failed_error");
    assert_eq!(error["memory_id"], made["id"]);
    assert!(error["current_content_sha256"].is_null(), "{error}");
    let directory = store.create("/first/below", "x").await;
    path_conflict(&store.try_restore(&versions[1], &json!({})).await, &directory);
}
