//! Changing and deleting memories. `any_history` has what each change does to a store.

use serde_json::{Value, json};

use super::support::{
    Place, delete, holds, invalid, not_found, ok, patch, path_conflict, precondition_failed, sha256, shows,
};

/// What moves with a version.
fn head(memory: &Value) -> Value {
    let fields = ["id", "memory_version_id", "path", "content_sha256", "updated_at"];
    json!(fields.map(|field| &memory[field]))
}

pub(super) async fn post_and_patch_change_content_path_and_pin_in_one_version(place: Place) {
    let store = place.store();
    for is_patch in [false, true] {
        let made = store.create(&format!("/{is_patch}/a"), "one").await;
        let update = async |edit: &Value| {
            if is_patch {
                ok(&patch(&place.client, &store.memory(&made), edit).await)
            } else {
                store.update(&made, edit).await
            }
        };
        let versions = store.version_count().await;
        let mut last = made.clone();
        for (number, (edit, path, content)) in [
            (json!({"content": "two"}), "a", "two"),
            (json!({"path": format!("/{is_patch}/b")}), "b", "two"),
            (json!({"path": format!("/{is_patch}/d/e"), "content": ""}), "d/e", ""),
        ]
        .into_iter()
        .enumerate()
        {
            let updated = update(&edit).await;
            let expected = json!({
                "id": made["id"], "created_at": made["created_at"], "path": format!("/{is_patch}/{path}"),
                "content_sha256": sha256(content), "content_size_bytes": content.len(),
            });
            shows(&updated, &expected);
            assert!(updated["updated_at"].as_str() > last["updated_at"].as_str());
            assert_eq!(store.version_count().await, versions + number + 1);
            last = updated;
        }
        for nothing in [
            json!({}),
            json!({"path": format!("/{is_patch}/d/e"), "content": ""}),
            json!({"content": "", "precondition": holds("")}),
            json!({"path": format!("/{is_patch}/d/e"), "precondition": {"type": "not_exists"}}),
            json!({"pinned": false}),
        ] {
            assert_eq!(head(&update(&nothing).await), head(&last), "{nothing}");
        }
        // Changing only the pin makes no version and keeps the memory's time.
        let pinned = update(&json!({"pinned": true})).await;
        assert_eq!((&pinned["pinned"], head(&pinned)), (&json!(true), head(&last)));
        assert_eq!(store.version_count().await, versions + 3);
        assert_eq!(update(&json!({"content": "kept"})).await["pinned"], true);
        assert_eq!(update(&json!({"pinned": false, "content": "x"})).await["pinned"], false);
    }
}

pub(super) async fn content_precondition_is_checked_against_the_stored_content(place: Place) {
    let store = place.store();
    let made = store.create("/a", "one").await;
    let on = |content: &str, mut edit: Value| {
        edit["precondition"] = holds(content);
        edit
    };
    let two = store.update(&made, &on("one", json!({"content": "two"}))).await;
    // Sent again, the update succeeds although its precondition no longer holds: it
    // already took effect.
    let again = store.update(&made, &on("one", json!({"content": "two"}))).await;
    assert_eq!(again["memory_version_id"], two["memory_version_id"]);
    for late in [
        json!({"content": "three"}),
        json!({"path": "/b"}),
        json!({"content": "two", "path": "/b"}),
        json!({"pinned": true, "content": "three"}),
    ] {
        precondition_failed(&store.try_update(&made, &on("one", late)).await, &two);
    }
    assert_eq!(head(&store.basic(&made).await), head(&two));
    // The precondition is checked before the path, so its error is returned.
    let other = store.create("/other", "x").await;
    let to_other =
        async |content: &str| store.try_update(&made, &on(content, json!({"path": "/other"}))).await;
    precondition_failed(&to_other("one").await, &two);
    path_conflict(&to_other("two").await, &other);
    path_conflict(&store.try_update(&made, &json!({"path": "/other/below"})).await, &other);
}

pub(super) async fn malformed_preconditions_are_400(place: Place) {
    let store = place.store();
    let made = store.create("/a", "one").await;
    let hash = sha256("one");
    let hashes = [
        String::new(),
        hash[1..].to_owned(),
        format!("{hash}0"),
        format!("g{}", &hash[1..]),
        format!("{} ", &hash[1..]),
        format!("é{}", &hash[2..]),
    ];
    let mut bad = vec![
        json!("content_sha256"),
        json!([]),
        json!({}),
        json!({"type": null}),
        json!({"type": "content_sha256"}),
        json!({"type": "content_sha256", "content_sha256": 5}),
        json!({"content_sha256": hash}),
        json!({"type": "CONTENT_SHA256", "content_sha256": hash}),
    ];
    for hash in &hashes {
        bad.push(json!({"type": "content_sha256", "content_sha256": hash}));
        let at = format!("{}?expected_content_sha256={}", store.memory(&made), hash.replace(' ', "%20"));
        invalid(&delete(&place.client, &at).await, "expected_content_sha256");
    }
    for bad in bad {
        let edit = json!({"content": "two", "precondition": bad});
        invalid(&store.try_update(&made, &edit).await, "precondition");
        let new = json!({"path": "/b", "content": "x", "precondition": bad});
        invalid(&place.client.post(&store.memories(), &new).await, "precondition");
    }
    assert_eq!(store.version_count().await, 1);
}

pub(super) async fn deleted_memory_is_gone_and_its_path_free(place: Place) {
    let store = place.store();
    let made = store.create("/a/b", "one").await;
    let at = store.memory(&made);
    let expecting = |content: &str| format!("{at}?expected_content_sha256={}", sha256(content));
    precondition_failed(&delete(&place.client, &expecting("two")).await, &made);
    let gone = ok(&delete(&place.client, &expecting("one")).await);
    assert_eq!(gone, json!({"id": made["id"], "type": "memory_deleted"}));
    for answer in [
        place.client.get(&at).await,
        place.client.get(&format!("{at}?view=basic")).await,
        store.try_update(&made, &json!({})).await,
        patch(&place.client, &at, &json!({"path": "/c"})).await,
        delete(&place.client, &expecting("one")).await,
    ] {
        not_found(&answer);
    }
    // The directory went with its last file.
    let anew = store.create("/a", "two").await;
    assert_ne!(anew["id"], made["id"]);
    assert_eq!(store.version_count().await, 3);
}
