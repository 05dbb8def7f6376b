//! Changing and deleting memories.

use serde_json::{Value, json};

use super::support::{
    Place, delete, holds, invalid, not_found, ok, patch, path_conflict, precondition_failed, sha256, shows,
};

/// The head of a memory: what moves with a version.
fn head(memory: &Value) -> Value {
    json!([
        memory["id"],
        memory["memory_version_id"],
        memory["path"],
        memory["content_sha256"],
        memory["updated_at"]
    ])
}

pub(super) async fn content_path_and_both_change_in_one_version(place: Place) {
    let store = place.store();
    for is_patch in [false, true] {
        let update = async |memory: &Value, edit: Value| {
            if is_patch {
                ok(&patch(&place.client, &store.memory(memory), &edit).await)
            } else {
                store.update(memory, &edit).await
            }
        };
        let made = store.create(&format!("/{is_patch}/a"), "one").await;
        let versions = store.version_count().await;
        let mut last = made.clone();
        for (number, (edit, path, content)) in [
            (json!({"content": "two"}), "a", "two"),
            (json!({"path": format!("/{is_patch}/b")}), "b", "two"),
            (json!({"path": format!("/{is_patch}/c"), "content": "three"}), "c", "three"),
            (json!({"path": format!("/{is_patch}/c"), "content": ""}), "c", ""),
            (json!({"path": format!("/{is_patch}/d/e"), "content": ""}), "d/e", ""),
        ]
        .into_iter()
        .enumerate()
        {
            let updated = update(&made, edit).await;
            assert_eq!(updated["id"], made["id"]);
            assert_eq!(updated["created_at"], made["created_at"]);
            assert_eq!(updated["path"], format!("/{is_patch}/{path}"));
            assert_eq!(updated["content_sha256"], sha256(content));
            assert_eq!(updated["content_size_bytes"], content.len());
            assert_ne!(updated["memory_version_id"], last["memory_version_id"]);
            assert!(updated["updated_at"].as_str() > last["updated_at"].as_str());
            assert_eq!(store.version_count().await, versions + number + 1);
            assert_eq!(store.read(&made).await["content"], content);
            last = updated;
        }
        assert_eq!(store.basic(&made).await["path"], last["path"]);
    }
    assert_eq!(store.paths().await, ["/false/d/e", "/true/d/e"]);
}

pub(super) async fn update_that_changes_nothing_writes_no_version(place: Place) {
    let store = place.store();
    let made = store.create("/a", "one").await;
    for nothing in [
        json!({}),
        json!({"content": "one"}),
        json!({"path": "/a"}),
        json!({"path": "/a", "content": "one"}),
        json!({"content": "one", "precondition": holds("one")}),
        json!({"path": "/a", "precondition": {"type": "not_exists"}}),
        json!({"pinned": false}),
    ] {
        assert_eq!(store.update(&made, &nothing).await, made, "{nothing}");
        let patched = patch(&place.client, &store.memory(&made), &nothing).await;
        assert_eq!(ok(&patched), made, "{nothing}");
    }
    assert_eq!(store.version_count().await, 1);
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
    assert_eq!(head(&again), head(&two));
    for late in [
        json!({"content": "three"}),
        json!({"path": "/b"}),
        json!({"content": "three", "path": "/b"}),
        json!({"content": "two", "path": "/b"}),
        json!({"content": "one"}),
    ] {
        for answer in [
            store.try_update(&made, &on("one", late.clone())).await,
            patch(&place.client, &store.memory(&made), &on("one", late)).await,
        ] {
            precondition_failed(&answer, &two);
        }
    }
    assert_eq!(head(&store.basic(&made).await), head(&two));
    let both = on("two", json!({"path": "/b", "content": "three"}));
    let moved = store.update(&made, &both).await;
    for again in [both, on("two", json!({"path": "/b"}))] {
        assert_eq!(head(&store.update(&made, &again).await), head(&moved));
    }
    // The precondition is checked before the path, so its error is returned.
    let other = store.create("/other", "x").await;
    let to_other = async |content: &str| {
        let edit = on(content, json!({"path": "/other"}));
        store.try_update(&made, &edit).await
    };
    precondition_failed(&to_other("two").await, &moved);
    path_conflict(&to_other("three").await, &other);
    assert_eq!(store.version_count().await, 4);
}

pub(super) async fn malformed_preconditions_are_400(place: Place) {
    let store = place.store();
    let made = store.create("/a", "one").await;
    let hash = sha256("one");
    let hashes = [
        json!(null),
        json!(5),
        json!(""),
        json!(hash[1..]),
        json!(format!("{hash}0")),
        json!(format!("g{}", &hash[1..])),
        json!(format!(" {}", &hash[1..])),
        json!(format!("é{}", &hash[2..])),
    ];
    let with = |hash: Value| json!({"type": "content_sha256", "content_sha256": hash});
    let others = [
        json!("content_sha256"),
        json!(true),
        json!([]),
        json!({}),
        json!({"type": null}),
        json!({"type": "content_sha256"}),
        json!({"content_sha256": hash}),
        json!({"type": "exists"}),
        json!({"type": "CONTENT_SHA256", "content_sha256": hash}),
    ];
    for bad in hashes.map(with).into_iter().chain(others) {
        let edit = json!({"content": "two", "precondition": bad});
        invalid(&store.try_update(&made, &edit).await, "precondition");
        let patched = patch(&place.client, &store.memory(&made), &edit).await;
        invalid(&patched, "precondition");
        let new = json!({"path": "/b", "content": "x", "precondition": bad});
        invalid(&place.client.post(&store.memories(), &new).await, "precondition");
    }
    assert_eq!(store.version_count().await, 1);
}

pub(super) async fn rename_to_a_conflicting_path_is_409(place: Place) {
    let store = place.store();
    let made = store.create("/a", "one").await;
    let file = store.create("/file", "two").await;
    let deep = store.create("/d/e", "three").await;
    for (path, conflicting) in
        [("/file", &file), ("/file/below", &file), ("/d", &deep), ("/d/e", &deep), ("/d/e/f/g", &deep)]
    {
        for edit in [json!({"path": path}), json!({"path": path, "content": "new"})] {
            path_conflict(&store.try_update(&made, &edit).await, conflicting);
        }
    }
    assert_eq!(store.version_count().await, 3);
    assert_eq!(head(&store.basic(&made).await), head(&made));
    // A path that another memory left is free.
    store.update(&file, &json!({"path": "/elsewhere"})).await;
    let moved = store.update(&made, &json!({"path": "/file/below"})).await;
    assert_eq!(moved["path"], "/file/below");
    assert_eq!(store.paths().await, ["/d/e", "/elsewhere", "/file/below"]);
}

pub(super) async fn rename_if_not_exists_is_all_or_nothing(place: Place) {
    let store = place.store();
    let made = store.create("/a", "one").await;
    store.create("/file", "two").await;
    store.create("/d/e", "three").await;
    let to = |path: &str| json!({"path": path, "content": "new", "precondition": {"type": "not_exists"}});
    for taken in ["/file", "/d/e"] {
        assert_eq!(head(&store.update(&made, &to(taken)).await), head(&made));
    }
    assert_eq!(store.read(&made).await["content"], "one");
    assert_eq!(store.version_count().await, 3);
    let moved = store.update(&made, &to("/d/free")).await;
    shows(&moved, &json!({"path": "/d/free", "content_sha256": sha256("new")}));
    assert_eq!(store.version_count().await, 4);
    // Sent again after another change, it overwrites nothing.
    let theirs = store.update(&made, &json!({"content": "theirs"})).await;
    let again = store.update(&made, &to("/d/free")).await;
    assert_eq!(head(&again), head(&theirs));
}

pub(super) async fn delete_expects_the_hash_it_names(place: Place) {
    let store = place.store();
    let made = store.create("/a", "one").await;
    let at = store.memory(&made);
    let hash = sha256("one");
    let wrong = format!("{at}?expected_content_sha256={}", sha256("two"));
    precondition_failed(&delete(&place.client, &wrong).await, &made);
    for malformed in [
        String::new(),
        "x".to_owned(),
        "null".to_owned(),
        hash[..63].to_owned(),
        format!("{hash}0"),
        format!("{hash}%20"),
        format!("%22{hash}%22"),
        format!("sha256:{hash}"),
        format!("z{}", &hash[1..]),
    ] {
        let bad = format!("{at}?expected_content_sha256={malformed}");
        invalid(&delete(&place.client, &bad).await, "expected_content_sha256");
    }
    assert_eq!(store.basic(&made).await, made);
    let right = format!("{at}?expected_content_sha256={hash}");
    let gone = ok(&delete(&place.client, &right).await);
    assert_eq!(gone, json!({"id": made["id"], "type": "memory_deleted"}));
    not_found(&delete(&place.client, &right).await);
    not_found(&delete(&place.client, &wrong).await);
    assert_eq!(store.version_count().await, 2);
}

pub(super) async fn deleted_memory_is_gone_and_its_path_free(place: Place) {
    let store = place.store();
    let made = store.create("/a/b", "one").await;
    let gone = ok(&delete(&place.client, &store.memory(&made)).await);
    assert_eq!(gone, json!({"id": made["id"], "type": "memory_deleted"}));
    let at = store.memory(&made);
    for answer in [
        place.client.get(&at).await,
        place.client.get(&format!("{at}?view=basic")).await,
        store.try_update(&made, &json!({})).await,
        store.try_update(&made, &json!({"content": "x"})).await,
        patch(&place.client, &at, &json!({"path": "/c"})).await,
        delete(&place.client, &at).await,
    ] {
        not_found(&answer);
    }
    assert_eq!(store.paths().await, [""; 0]);
    assert_eq!(store.version_count().await, 2);
    let anew = store.create("/a/b", "two").await;
    assert_ne!(anew["id"], made["id"]);
    not_found(&place.client.get(&at).await);
    // The directory went with its last file.
    store.delete(&anew).await;
    store.create("/a", "three").await;
}

pub(super) async fn pin_writes_no_version(place: Place) {
    let store = place.store();
    let made = store.create("/a", "one").await;
    assert_eq!(made["pinned"], false);
    let pinned = store.update(&made, &json!({"pinned": true})).await;
    assert_eq!(pinned["pinned"], true);
    assert_eq!(head(&pinned), head(&made));
    assert_eq!(store.version_count().await, 1);
    assert_eq!(store.basic(&made).await["pinned"], true);
    // An update with a pin and content changes both; one without a pin keeps it.
    let edited = store.update(&made, &json!({"pinned": false, "content": "two"})).await;
    assert_eq!(edited["pinned"], false);
    let edit = json!({"pinned": true, "path": "/b"});
    let edited = patch(&place.client, &store.memory(&made), &edit).await;
    assert_eq!(ok(&edited)["pinned"], true);
    assert_eq!(store.update(&made, &json!({"content": "three"})).await["pinned"], true);
    assert_eq!(store.version_count().await, 4);
    // A condition that does not hold keeps the pin from being set.
    let refused = json!({"pinned": false, "content": "four", "precondition": holds("one")});
    assert_eq!(store.try_update(&made, &refused).await.status, 409);
    assert_eq!(store.basic(&made).await["pinned"], true);
}
