//! Stores: creation, changes, archiving and deletion.

use serde_json::{Map, Value, json};

use super::conventions::{assert_id, assert_time};
use super::support::{Place, STORES, Store, all, delete, invalid, ok, page_of, patch, shows, strings, text};

pub(super) async fn created_store_has_the_given_fields(place: Place) {
    let client = &place.client;
    let whole = json!({
        "name": "Notes", "description": "What we know\nof it.",
        "metadata": {"team": "a", "empty": "", "é": "ü\n"},
    });
    let made = ok(&client.post(STORES, &whole).await);
    assert_id(&made["id"], "memstore_");
    assert_time(&made["created_at"]);
    let mut expected = json!({
        "id": made["id"], "type": "memory_store", "created_at": made["created_at"], "updated_at": made["created_at"],
        "archived_at": null, "memory_count": 0, "content_bytes": 0, "expires_unused_after": null,
        "sensitive_data_policy": "off",
    });
    for field in ["name", "description", "metadata"] {
        expected[field] = whole[field].clone();
    }
    assert_eq!(made, expected);
    let store = Store::new(client, text(&made["id"]));
    assert_eq!(store.object().await, made);
    let least = ok(&client.post(STORES, &json!({"name": "n"})).await);
    shows(&least, &json!({"description": "", "metadata": {}}));
    let empty = json!({"name": "n", "description": "", "metadata": {}});
    let same_name = ok(&client.post(STORES, &empty).await);
    assert_ne!(same_name["id"], least["id"]);
}

pub(super) async fn name_and_description_are_bounded_in_characters(place: Place) {
    let (client, store) = (&place.client, place.store());
    for character in ["x", "é", "界", "🦀"] {
        for (field, lengths, over) in [("name", [1, 254, 255], 256), ("description", [0, 1023, 1024], 1025)] {
            let with = |length: usize| {
                let mut body = json!({"name": "a"});
                body[field] = json!(character.repeat(length));
                body
            };
            for body in lengths.map(with) {
                for path in [STORES, &store.path] {
                    assert_eq!(ok(&client.post(path, &body).await)[field], body[field]);
                }
            }
            invalid(&client.post(STORES, &with(over)).await, field);
            invalid(&client.post(&store.path, &with(over)).await, field);
        }
    }
    for control in ["\n", "\t", "\0", "\u{1b}", "\u{7f}", "\u{85}"] {
        let name = json!({"name": format!("a{control}b")});
        invalid(&client.post(STORES, &name).await, "name");
        invalid(&client.post(&store.path, &name).await, "name");
    }
    // One invalid field prevents the change of all others.
    let before = store.object().await;
    let half = json!({"name": "changed", "description": "x".repeat(1025)});
    invalid(&client.post(&store.path, &half).await, "description");
    assert_eq!(store.object().await, before);
}

fn pairs(range: std::ops::Range<usize>) -> Map<String, Value> {
    range.map(|n| (format!("k{n}"), json!("v"))).collect()
}

pub(super) async fn metadata_is_bounded(place: Place) {
    let (client, store) = (&place.client, place.store());
    for good in [
        Value::Object(pairs(0..15)),
        Value::Object(pairs(0..16)),
        json!({"k".repeat(64): "v"}),
        json!({"界".repeat(64): "界".repeat(512)}),
        json!({"k": "v".repeat(512), "l": ""}),
    ] {
        let made = ok(&client.post(STORES, &json!({"name": "a", "metadata": good})).await);
        assert_eq!(made["metadata"], good);
        let empty = place.new_store("to be updated").await;
        let updated = ok(&client.post(&empty.path, &json!({"metadata": good})).await);
        assert_eq!(updated["metadata"], good);
    }
    for bad in [
        Value::Object(pairs(0..17)),
        json!({"": "v"}),
        json!({"k".repeat(65): "v"}),
        json!({"界".repeat(65): "v"}),
        json!({"k": "v".repeat(513)}),
        json!({"k": "界".repeat(513)}),
        json!({"k": 5}),
        json!({"k": true}),
        json!({"k": ["v"]}),
        json!({"k": {"l": "v"}}),
    ] {
        let new = json!({"name": "a", "metadata": bad});
        invalid(&client.post(STORES, &new).await, "metadata");
        let edit = json!({"name": "changed", "metadata": bad});
        invalid(&client.post(&store.path, &edit).await, "metadata");
        invalid(&patch(client, &store.path, &edit).await, "metadata");
    }
    let null = json!({"name": "a", "metadata": {"k": null}});
    invalid(&client.post(STORES, &null).await, "metadata");
    let unchanged = store.object().await;
    shows(&unchanged, &json!({"name": "notes", "metadata": {}}));
}

pub(super) async fn metadata_is_bounded_after_the_merge(place: Place) {
    let (client, store) = (&place.client, place.store());
    let update = async |metadata: Value| client.post(&store.path, &json!({"metadata": metadata})).await;
    ok(&update(Value::Object(pairs(0..10))).await);
    let full = ok(&update(Value::Object(pairs(6..16))).await);
    assert_eq!(full["metadata"], Value::Object(pairs(0..16)));
    invalid(&update(json!({"one more": "v"})).await, "metadata");
    invalid(&update(json!({"k0": "other", "one more": "v"})).await, "metadata");
    assert_eq!(store.object().await, full);
    assert_eq!(ok(&update(json!({"k0": "other"})).await)["metadata"]["k0"], "other");
    ok(&update(json!({"nothing": null})).await);
    let swapped = ok(&update(json!({"k1": null, "one more": "v"})).await);
    assert_eq!(swapped["metadata"].as_object().unwrap().len(), 16);
    assert_eq!(swapped["metadata"]["one more"], "v");
    ok(&update(json!({"k2": null})).await);
    ok(&update(json!({"and one": "v"})).await);
    invalid(&update(json!({"too many": "v"})).await, "metadata");
}

pub(super) async fn update_changes_what_it_names_by_post_and_by_patch(place: Place) {
    let client = &place.client;
    let new = json!({"name": "a", "description": "b", "metadata": {"k": "v", "l": "w"}});
    let made = ok(&client.post(STORES, &new).await);
    let store = Store::new(client, text(&made["id"]));
    let mut expected = made;
    for (is_patch, edit, changed) in [
        (false, json!({"name": "A"}), json!({"name": "A"})),
        (true, json!({"description": "B"}), json!({"description": "B"})),
        (false, json!({"description": ""}), json!({"description": ""})),
        (
            true,
            json!({"metadata": {"k": "V", "m": "x"}}),
            json!({"metadata": {"k": "V", "l": "w", "m": "x"}}),
        ),
        (false, json!({"metadata": {"k": null}}), json!({"metadata": {"l": "w", "m": "x"}})),
        (
            true,
            json!({"name": "Z", "description": "Y", "metadata": {"l": null, "m": null, "never": null}}),
            json!({"name": "Z", "description": "Y", "metadata": {}}),
        ),
    ] {
        let answer = if is_patch {
            patch(client, &store.path, &edit).await
        } else {
            client.post(&store.path, &edit).await
        };
        let updated = ok(&answer);
        for (field, value) in changed.as_object().unwrap() {
            expected[field] = value.clone();
        }
        assert!(text(&updated["updated_at"]) > text(&expected["updated_at"]));
        expected["updated_at"] = updated["updated_at"].clone();
        assert_eq!(updated, expected, "{edit}");
        assert_eq!(store.object().await, expected);
    }
}

pub(super) async fn updated_at_moves_only_with_the_store(place: Place) {
    let (client, store) = (&place.client, place.new_store("a").await);
    ok(&client.post(&store.path, &json!({"metadata": {"k": "v"}})).await);
    let before = store.object().await["updated_at"].clone();
    let memory = store.create("/a", "one").await;
    store.update(&memory, &json!({"content": "two"})).await;
    store.redact(&memory["memory_version_id"]).await;
    store.delete(&memory).await;
    assert_eq!(store.object().await["updated_at"], before);
    for nothing in [
        json!({}),
        json!({"name": "a"}),
        json!({"description": ""}),
        json!({"metadata": {}}),
        json!({"metadata": {"k": "v"}}),
        json!({"metadata": {"never": null}}),
        json!({"name": "a", "description": "", "metadata": {"k": "v", "never": null}}),
        json!({"sensitive_data_policy": "reject"}),
        json!({"expires_unused_after": 86_400}),
    ] {
        let updated = ok(&client.post(&store.path, &nothing).await);
        assert_eq!(updated["updated_at"], before, "{nothing}");
    }
    let mut before = text(&before).to_owned();
    for something in [
        json!({"name": "b"}),
        json!({"description": "b"}),
        json!({"metadata": {"k": "w"}}),
        json!({"metadata": {"l": "v"}}),
        json!({"metadata": {"l": null}}),
    ] {
        let updated = ok(&client.post(&store.path, &something).await);
        let now = text(&updated["updated_at"]);
        assert!(now > before.as_str(), "{something}: {before}, {now}");
        now.clone_into(&mut before);
    }
}

pub(super) async fn stores_are_listed_newest_first_with_filters(place: Place) {
    let client = &place.client;
    let mut made = vec![place.store().object().await];
    for n in 0..7 {
        let store = place.new_store(&format!("store {n}")).await;
        made.push(store.object().await);
    }
    let archived = Store::new(client, text(&made[3]["id"]));
    let object = archived.archive().await;
    let deleted = made.remove(5);
    ok(&delete(client, &format!("{STORES}/{}", text(&deleted["id"]))).await);
    made.reverse();
    let mut whole = made;
    *whole.iter_mut().find(|store| store["id"] == object["id"]).unwrap() = object.clone();
    let mut live = whole.clone();
    live.retain(|store| store["id"] != object["id"]);
    for limit in [1, 2, 3, 7, 8, 100] {
        let list = format!("{STORES}?limit={limit}");
        assert_eq!(all(client, &list).await, live);
        assert_eq!(all(client, &format!("{list}&include_archived=false")).await, live);
        let listed = all(client, &format!("{list}&include_archived=true")).await;
        assert_eq!(listed, whole);
        let (from, to) = (text(&live[4]["created_at"]), text(&live[1]["created_at"]));
        let span = format!("{list}&created_at[gte]={from}&created_at[lte]={to}");
        assert_eq!(all(client, &span).await, live[1..=4]);
    }
    let (_, next) = page_of(&client.get(&format!("{STORES}?limit=6")).await);
    assert_eq!(next, None, "there are just {} stores", live.len());
    // No other tenant's are among them.
    let theirs = all(&place.stranger, &format!("{STORES}?limit=100")).await;
    let ids = strings(&whole, "id");
    assert!(strings(&theirs, "id").iter().all(|id| !ids.contains(id)));
}

pub(super) async fn archive_is_one_way_and_idempotent(place: Place) {
    let (client, store) = (&place.client, place.new_store("a").await);
    let before = store.object().await;
    let archive = format!("{}/archive", store.path);
    let archived = ok(&client.post(&archive, &json!({})).await);
    assert_time(&archived["archived_at"]);
    assert!(text(&archived["updated_at"]) > text(&before["updated_at"]));
    let mut expected = before;
    for field in ["archived_at", "updated_at"] {
        expected[field] = archived[field].clone();
    }
    assert_eq!(archived, expected);
    for _ in 0..2 {
        assert_eq!(ok(&client.post(&archive, &json!({})).await), archived);
    }
    assert_eq!(store.object().await, archived);
    for edit in [json!({"archived_at": null}), json!({"archived": false})] {
        invalid(&client.post(&store.path, &edit).await, "");
    }
}

pub(super) async fn archived_store_can_be_read_deleted_and_redacted_only(place: Place) {
    let (client, store) = (&place.client, place.new_store("a").await);
    let [kept, edited, deleted] = [
        store.create("/kept", "one").await,
        store.create("/edited", "secret").await,
        store.create("/deleted", "three").await,
    ];
    store.update(&edited, &json!({"content": "harmless"})).await;
    store.archive().await;
    let object = store.object().await;
    let version = &edited["memory_version_id"];
    let history = store.history().await;

    for answer in [
        store.try_create("/new", "x").await,
        store.upsert("/kept", "x").await,
        store.try_update(&kept, &json!({"content": "x"})).await,
        store.try_update(&kept, &json!({"path": "/moved"})).await,
        store.try_update(&kept, &json!({"pinned": true})).await,
        patch(client, &store.memory(&kept), &json!({"content": "x"})).await,
        store.try_restore(version, &json!({})).await,
        client.post(&store.path, &json!({"name": "b"})).await,
        patch(client, &store.path, &json!({"metadata": {"k": "v"}})).await,
    ] {
        invalid(&answer, "archived");
    }
    assert_eq!(store.history().await, history);
    assert_eq!(store.object().await, object);

    assert_eq!(store.read(&kept).await["content"], "one");
    assert_eq!(store.paths().await, ["/deleted", "/edited", "/kept"]);
    ok(&client.get(&store.version(version)).await);
    assert!(store.redact(version).await["redacted_at"].is_string());
    store.delete(&deleted).await;
    assert_eq!(store.paths().await, ["/edited", "/kept"]);
    assert_eq!(store.history().await[0]["operation"], "deleted");
    let batch = json!({"atomic": false, "operations": [
        {"type": "create", "path": "/new", "content": "x"},
        {"type": "delete", "memory_id": edited["id"]},
    ]});
    let batch = ok(&client.post(&format!("{}/batch", store.memories()), &batch).await);
    let [failed, done] = batch["data"].as_array().unwrap().as_slice() else {
        panic!("{batch}");
    };
    assert!(text(&failed["error"]["message"]).contains("archived"), "{failed}");
    assert_eq!(done["status"], "deleted");
    assert_eq!(store.paths().await, ["/kept"]);
    agent_tools_only_read_and_delete(&store).await;
    ok(&delete(client, &store.path).await);
}

/// In an archived store with a file `/kept`.
async fn agent_tools_only_read_and_delete(store: &Store) {
    let (kept, new) = ("/memories/kept", "/memories/new");
    let edits = json!([{"old_str": "one", "new_str": "x"}]);
    for (tool, input, is_refused) in [
        ("memory_write", json!({"path": kept, "content": "x"}), true),
        ("memory_write", json!({"path": new, "content": "x"}), true),
        ("memory_append", json!({"path": kept, "content": "x"}), true),
        ("memory_edit", json!({"path": kept, "edits": edits}), true),
        ("memory_read", json!({"path": kept}), false),
        ("memory_delete", json!({"path": kept}), false),
    ] {
        let block = json!({"type": "tool_use", "name": tool, "input": input});
        let told = store.client.call(&store.id, &block).await.tool_result();
        assert_eq!(told.is_error, is_refused, "{}", told.content);
        assert_eq!(told.content.contains("archived"), is_refused, "{}", told.content);
    }
    assert_eq!(store.paths().await, [""; 0]);
}
