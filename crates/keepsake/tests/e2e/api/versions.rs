//! The history of a store: its order, filters and redactions. `any_history` restores versions.

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
    let committed = versions.iter().rev().map(|it| keepsake_core::VersionId::from_uuid(it.id).to_string());
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

/// `tests/sdk` has all fields of the answer, and repetitions.
pub(super) async fn content_is_redacted_when_it_is_no_longer_live(place: Place) {
    let store = place.new_store("live").await;
    let memory = store.create("/a", "secret").await;
    let moved = store.update(&memory, &json!({"path": "/b"})).await;
    let both = [&memory, &moved].map(|memory| memory["memory_version_id"].clone());
    let is_refused = async || {
        for version in &both {
            let redact = format!("{}/redact", store.version(version));
            refused(&place.client.post(&redact, &json!({})).await, 409, "conflict_error");
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
        let redacted = store.seen_by(&place.second).redact(version).await;
        assert_eq!(redacted["content_also_in"], json!(also_in[..3 - number]));
        assert_ne!(redacted["redacted_by"], redacted["created_by"]);
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
    let shown = store.client.all(&format!("{}?view=full", store.versions())).await;
    let is_gone = |version: &Value| ["path", "content"].iter().all(|field| version[field].is_null());
    assert!(shown.iter().all(is_gone), "{shown:?}");
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
