//! The history of a store: its order and filters. `any_history` restores versions.

use keepsake_core::VersionId;

use crate::prelude::*;

fn passes(version: &Value, (name, value): (&str, &str)) -> bool {
    match name {
        "created_at[gte]" => text(&version["created_at"]) >= value,
        "created_at[lte]" => text(&version["created_at"]) <= value,
        "memory_id" | "operation" => version[name] == value,
        _ => version["created_by"][name] == value,
    }
}

async fn lists_what_passes(store: &Store, whole: &[Value], filters: &[(&str, &str)]) {
    let query: Vec<_> = filters.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let list = format!("{}?limit=2&{}", store.versions(), query.join("&"));
    let mut expected = whole.to_vec();
    expected.retain(|version| filters.iter().all(|filter| passes(version, *filter)));
    assert_eq!(store.client.all(&list).await, expected, "{list}");
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
    client.receipt(&ok(&client.post("/v1/erasures", &prefix).await)).await;

    let whole = store.history().await;
    assert_eq!(whole.len(), 8);
    assert_eq!(whole[1]["created_at"], updated["updated_at"]);
    for bound in &whole {
        let at = text(&bound["created_at"]);
        lists_what_passes(&store, &whole, &[("created_at[gte]", at), ("created_at[lte]", at)]).await;
    }
    let [last, last_but_one] = [0, 1].map(|place: usize| text(&whole[place]["created_by"]["api_key_id"]));
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
    let versions = database.versions(place.tenant.store_id).await;
    database.close().await;
    let committed = versions.iter().rev().map(|it| VersionId::from_uuid(it.id).to_string());
    let committed: Vec<_> = committed.collect();
    assert_eq!(committed.len(), 72);
    let listed = place.client.all(&format!("{}?limit=7", store.versions())).await;
    assert_eq!(strings(&listed, "id"), committed);
    let times = strings(&listed, "created_at");
    assert!(times.is_sorted_by(|newer, older| newer >= older), "{times:?}");
}

pub(super) async fn deleted_memories_are_listed_until_they_are_restored_or_redacted(place: Place) {
    let store = place.new_store("deleted").await;
    let listed = async |query: &str| place.client.all(&format!("{}/deleted?{query}", store.memories())).await;
    let mut deleted = Vec::new();
    for (path, content) in [("/a", "first"), ("/a", "second"), ("/b/c", "third"), ("/kept", "x")] {
        let memory = store.create(path, content).await;
        let changed = store.update(&memory, &json!({"content": format!("{content} again")})).await;
        if path != "/kept" {
            store.delete(&memory).await;
            deleted.push(changed);
        }
    }
    deleted.reverse();
    let all = listed("limit=2").await;
    assert_eq!(all.len(), 3);
    for (deletion, memory) in all.iter().zip(&deleted) {
        shows(deletion, &json!({"type": "memory_deletion", "memory_id": memory["id"]}));
        for field in "memory_store_id memory_version_id path content_sha256 content_size_bytes".split(' ') {
            assert_eq!(deletion[field], memory[field], "{field}");
        }
        let version = ok(&place.client.get(&store.version(&deletion["deletion_version_id"])).await);
        assert_eq!(version["operation"], "deleted");
        assert_eq!(version["created_at"], deletion["deleted_at"]);
        assert_eq!(version["created_by"], deletion["deleted_by"]);
        let [at, until] = ["deleted_at", "restorable_until"].map(|time| micros(&deletion[time]));
        assert_eq!(until - at, 30 * 86_400 * 1_000_000);
    }
    assert_eq!(listed("path=/a").await, all[1..]);
    assert_eq!(listed("path=/kept").await, [] as [Value; 0]);
    invalid(&place.client.get(&format!("{}/deleted?path=a", store.memories())).await, "`path`");

    store.restore(&all[2]["memory_version_id"]).await;
    assert_eq!(listed("path=/a").await, all[1..2]);
    store.redact(&all[1]["memory_version_id"]).await;
    assert_eq!(listed("").await, all[..1]);
}
