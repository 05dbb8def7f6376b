//! Stores: creation, changes, archiving and deletion.

use serde_json::json;

use super::conventions::assert_time;
use super::support::{Place, STORES, Store, all, delete, invalid, ok, page_of, patch, shows, strings, text};

pub(super) async fn wrong_field_prevents_the_change_of_all_others(place: Place) {
    let (client, store) = (&place.client, place.store());
    let before = store.object().await;
    for (field, wrong) in [
        ("name", json!("🦀".repeat(256))),
        ("name", json!("a\u{85}b")),
        ("description", json!("é".repeat(1025))),
        ("metadata", json!({"k": "界".repeat(513)})),
        ("expires_unused_after", json!(u64::MAX)),
    ] {
        let mut body = json!({"name": "changed", "description": "changed", "metadata": {"changed": ""}});
        body[field] = wrong;
        for path in [STORES, &store.path] {
            invalid(&client.post(path, &body).await, field);
        }
    }
    assert_eq!(store.object().await, before);
    let longest = json!({
        "name": "🦀".repeat(255), "description": "é".repeat(1024), "metadata": {"界".repeat(64): "界".repeat(512)},
    });
    shows(&ok(&client.post(&store.path, &longest).await), &longest);
    let null = json!({"name": "a", "metadata": {"k": null}});
    invalid(&client.post(STORES, &null).await, "metadata");
}

pub(super) async fn update_changes_what_it_names_and_updated_at(place: Place) {
    let client = &place.client;
    let new = json!({"name": "a", "description": "b", "metadata": {"k": "v", "l": "w"}});
    let mut expected = ok(&client.post(STORES, &new).await);
    let store = Store::new(client, text(&expected["id"]));
    let nothing = json!({});
    for (number, (edit, changed, is_update)) in [
        (json!({"name": "A"}), json!({"name": "A"}), true),
        (json!({"description": ""}), json!({"description": ""}), true),
        (json!({"metadata": {"k": "V"}}), json!({"metadata": {"k": "V", "l": "w"}}), true),
        (json!({"metadata": {"m": "x"}}), json!({"metadata": {"k": "V", "l": "w", "m": "x"}}), true),
        (json!({"metadata": {"k": null}}), json!({"metadata": {"l": "w", "m": "x"}}), true),
        (nothing.clone(), nothing.clone(), false),
        (json!({"name": "A", "description": null, "metadata": {"l": "w", "n": null}}), nothing, false),
        (json!({"sensitive_data_policy": "reject"}), json!({"sensitive_data_policy": "reject"}), false),
        (json!({"expires_unused_after": 60}), json!({"expires_unused_after": 60}), false),
        (json!({"expires_unused_after": 0}), json!({"expires_unused_after": null}), false),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = if number.is_multiple_of(2) {
            client.post(&store.path, &edit).await
        } else {
            patch(client, &store.path, &edit).await
        };
        let updated = ok(&answer);
        let was = expected["updated_at"].clone();
        assert_eq!(text(&updated["updated_at"]) > text(&was), is_update, "{edit}");
        expected["updated_at"] = if is_update { updated["updated_at"].clone() } else { was };
        for (field, value) in changed.as_object().unwrap() {
            expected[field] = value.clone();
        }
        assert_eq!(updated, expected, "{edit}");
        assert_eq!(store.object().await, expected);
    }
    let memory = store.create("/a", "one").await;
    store.update(&memory, &json!({"content": "two"})).await;
    store.redact(&memory["memory_version_id"]).await;
    store.delete(&memory).await;
    assert_eq!(store.object().await["updated_at"], expected["updated_at"]);
}

pub(super) async fn stores_are_listed_newest_first_with_filters(place: Place) {
    let client = &place.client;
    let mut whole = vec![place.store().object().await];
    for n in 0..7 {
        whole.push(place.new_store(&format!("store {n}")).await.object().await);
    }
    let deleted = whole.remove(5);
    ok(&delete(client, &format!("{STORES}/{}", text(&deleted["id"]))).await);
    whole[3] = Store::new(client, text(&whole[3]["id"])).archive().await;
    whole.reverse();
    let mut live = whole.clone();
    live.retain(|store| store["archived_at"].is_null());
    let (from, to) = (text(&live[4]["created_at"]), text(&live[1]["created_at"]));
    let span = format!("created_at[gte]={from}&created_at[lte]={to}");
    for limit in [1, 3, 100] {
        let list = format!("{STORES}?limit={limit}");
        assert_eq!(all(client, &list).await, live);
        assert_eq!(all(client, &format!("{list}&include_archived=false")).await, live);
        assert_eq!(all(client, &format!("{list}&include_archived=true")).await, whole);
        assert_eq!(all(client, &format!("{list}&{span}")).await, live[1..=4]);
    }
    let (_, next) = page_of(&client.get(&format!("{STORES}?limit=6")).await);
    assert_eq!(next, None, "there are just {} stores", live.len());
    // No other tenant's are among them.
    let theirs = all(&place.stranger, &format!("{STORES}?limit=100")).await;
    let ids = strings(&whole, "id");
    assert!(strings(&theirs, "id").iter().all(|id| !ids.contains(id)));
}

pub(super) async fn archived_store_can_be_read_deleted_and_redacted_only(place: Place) {
    let (client, store) = (&place.client, place.new_store("a").await);
    let [kept, edited] = [store.create("/kept", "one").await, store.create("/edited", "secret").await];
    store.update(&edited, &json!({"content": "harmless"})).await;
    let mut object = store.object().await;
    let archived = store.archive().await;
    assert_time(&archived["archived_at"]);
    assert!(text(&archived["updated_at"]) > text(&object["updated_at"]));
    for field in ["archived_at", "updated_at"] {
        object[field] = archived[field].clone();
    }
    assert_eq!(archived, object);
    assert_eq!(store.archive().await, archived);
    let version = &edited["memory_version_id"];
    let history = store.history().await;
    for answer in [
        store.try_create("/new", "x").await,
        store.upsert("/kept", "x").await,
        store.try_update(&kept, &json!({"content": "x"})).await,
        store.try_update(&kept, &json!({"path": "/moved"})).await,
        store.try_update(&kept, &json!({"pinned": true})).await,
        store.try_restore(version, &json!({})).await,
        client.post(&store.path, &json!({"name": "b"})).await,
        patch(client, &store.path, &json!({"metadata": {"k": "v"}})).await,
    ] {
        invalid(&answer, "archived");
    }
    invalid(&client.post(&store.path, &json!({"archived_at": null})).await, "archived_at");
    assert_eq!(store.history().await, history);
    assert_eq!(store.object().await, archived);

    assert_eq!(store.read(&kept).await["content"], "one");
    assert_eq!(store.paths().await, ["/edited", "/kept"]);
    assert!(store.redact(version).await["redacted_at"].is_string());
    let batch = json!({"atomic": false, "operations": [
        {"type": "create", "path": "/new", "content": "x"},
        {"type": "delete", "memory_id": edited["id"]},
    ]});
    let batch = ok(&client.post(&format!("{}/batch", store.memories()), &batch).await);
    let failed = text(&batch["data"][0]["error"]["message"]);
    assert!(failed.contains("archived"), "{batch}");
    assert_eq!(batch["data"][1]["status"], "deleted");
    assert_eq!(store.paths().await, ["/kept"]);
    let (path, edits) = ("/memories/kept", json!([{"old_str": "one", "new_str": "x"}]));
    for (tool, input, is_refused) in [
        ("memory_write", json!({"path": "/memories/new", "content": "x"}), true),
        ("memory_append", json!({"path": path, "content": "x"}), true),
        ("memory_edit", json!({"path": path, "edits": edits}), true),
        ("memory_read", json!({"path": path}), false),
        ("memory_delete", json!({"path": path}), false),
    ] {
        let block = json!({"type": "tool_use", "name": tool, "input": input});
        let told = client.call(&store.id, &block).await.tool_result();
        assert_eq!(told.is_error, is_refused, "{}", told.content);
        assert_eq!(told.content.contains("archived"), is_refused, "{}", told.content);
    }
    assert_eq!(store.paths().await, [""; 0]);
    ok(&delete(client, &store.path).await);
}
