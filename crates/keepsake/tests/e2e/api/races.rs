//! Concurrent calls: one wins, and the others get a conflict.

use std::sync::atomic::{AtomicBool, Ordering};

use super::idempotency::duplicates_are_made_once_through;
use super::store_tests::batches_at_once_keep_the_tests_through;
use crate::prelude::*;

const AT_ONCE: usize = 12;

/// Makes these memories at once, of which each excludes every other one.
async fn one_of_these_is_created(store: &Store, paths: &[String]) {
    let creations = paths.iter().map(|path| store.try_create(path, "x"));
    let (made, conflicts) = parted(join_all(creations).await);
    assert_eq!(made.len(), 1, "{made:?}");
    for answer in &conflicts {
        path_conflict(answer, &made[0]);
    }
}

pub(super) async fn one_creation_gets_the_path(place: Place) {
    let store = &place.store();
    for round in 0..3 {
        one_of_these_is_created(store, &vec![format!("/{round}"); AT_ONCE]).await;
        let nested = ["", "/a", "/a/b", "/a/b/c"].map(|below| format!("/nested-{round}{below}"));
        one_of_these_is_created(store, &nested).await;
    }
    let create = |n: usize| async move { store.create(&format!("/mover-{n}"), "x").await };
    let waiting = join_all((0..6).map(create)).await;
    let moves = waiting.iter().enumerate().map(|(n, memory)| async move {
        store.try_update(memory, &json!({"path": format!("/goal{}", "/a".repeat(n % 3))})).await
    });
    let (made, conflicts) = parted(join_all(moves).await);
    assert_eq!(made.len(), 1, "{made:?}");
    for answer in &conflicts {
        path_conflict(answer, &made[0]);
    }
    assert_eq!(store.object().await["memory_count"], 6 + 6);
}

/// Of updates that all expect the content that was read before, one is made.
pub(super) async fn one_update_meets_its_precondition_through(stores: &[Store; 2]) {
    let mut memory = stores[0].create("/expected", "before").await;
    let before = stores[0].version_count().await;
    for round in 1..=8 {
        let expected = json!({"type": "content_sha256", "content_sha256": memory["content_sha256"]});
        let updates = (0..AT_ONCE).map(|n| {
            let (store, memory) = (&stores[n % 2], &memory);
            let edit = json!({"content": format!("{round} {n}"), "precondition": expected});
            async move { store.try_update(memory, &edit).await }
        });
        let (mut made, late) = parted(join_all(updates).await);
        assert_eq!(made.len(), 1, "{made:?}");
        for answer in &late {
            let error = refused(answer, 409, "memory_precondition_failed_error");
            assert_eq!(error["current_content_sha256"], made[0]["content_sha256"]);
        }
        memory = made.remove(0);
        assert_eq!(stores[0].version_count().await, before + round);
    }
}

pub(super) async fn deletion_and_update_leave_one_history(place: Place) {
    let store = place.store();
    for round in 0..4 {
        let memory = store.create(&format!("/{round}"), "before").await;
        let version = memory["memory_version_id"].clone();
        let at = store.memory(&memory);
        let (edit, nothing) = (json!({"content": "after"}), json!({}));
        let rename = json!({"path": format!("/moved/{round}")});
        let (gone, edited, renamed, restored) = tokio::join!(
            delete(&place.client, &at),
            store.try_update(&memory, &edit),
            store.try_update(&memory, &rename),
            store.try_restore(&version, &nothing),
        );
        ok(&gone);
        for answer in [&edited, &renamed] {
            assert!(matches!(answer.status, 200 | 404), "{}", answer.text);
        }
        ok(&restored);
        // One after the other, they made one chain of versions.
        let query = format!("{}?limit=100&memory_id={}", store.versions(), text(&memory["id"]));
        let history = place.client.all(&query).await;
        let mut is_live = false;
        for version in history.iter().rev() {
            let operation = text(&version["operation"]);
            assert_eq!(operation == "created", !is_live, "{history:#?}");
            is_live = operation != "deleted";
        }
        let shown = place.client.get(&at).await;
        assert_eq!(shown.status, if is_live { 200 } else { 404 });
        if is_live {
            assert_eq!(ok(&shown)["memory_version_id"], history[0]["id"]);
        }
    }
}

pub(super) async fn no_merge_of_metadata_and_no_pin_is_lost(place: Place) {
    let store = place.new_store("merged").await;
    let (client, path) = (&place.client, &store.path);
    let merge = |n: usize| async move { client.post(path, &json!({"metadata": {n.to_string(): "v"}})).await };
    assert_eq!(parted(join_all((0..10).map(merge)).await).1.len(), 0);
    // Together the others would be too many.
    let (made, over) = parted(join_all((10..22).map(merge)).await);
    assert_eq!((made.len(), over.len()), (6, 6));
    for answer in &over {
        refused(answer, 400, "invalid_request_error");
    }
    assert_eq!(store.object().await["metadata"].as_object().unwrap().len(), 16);

    let (pin, edit) = (json!({"pinned": true}), json!({"content": "after"}));
    for round in 0..12 {
        let memory = store.create(&format!("/{round}"), "before").await;
        tokio::join!(store.update(&memory, &pin), store.update(&memory, &edit));
        shows(&store.read(&memory).await, &json!({"pinned": true, "content": "after"}));
    }
    assert_eq!(store.version_count().await, 24);
}

pub(super) async fn session_gets_no_more_stores_than_it_may_have(place: Place) {
    let (_, session, _) = open(&place.client, &[]).await;
    let (client, resources) = (&place.client, &format!("{session}/resources"));
    let mut stores = Vec::new();
    for _ in 0..AT_ONCE {
        stores.push(place.new_store("of one name").await);
    }
    let attach = |store| async move { client.post(resources, &attached(store, "read_write")).await };
    let attaching = stores.iter().map(attach);
    let (attached, over) = parted(join_all(attaching).await);
    assert_eq!((attached.len(), over.len()), (8, 4));
    for answer in &over {
        refused(answer, 400, "invalid_request_error");
    }
    let mounts: BTreeSet<_> = strings(&attached, "mount_path").into_iter().collect();
    assert_eq!(mounts.len(), 8, "{mounts:?}");
}

pub(super) async fn nothing_is_written_after_the_archiving(place: Place) {
    let store = &place.new_store("archived meanwhile").await;
    let creations = (0..AT_ONCE).map(|n| async move { store.try_create(&format!("/{n}"), "x").await });
    let archive = format!("{}/archive", store.path);
    let nothing = json!({});
    let (creations, archived) = tokio::join!(join_all(creations), place.second.post(&archive, &nothing));
    let archived_at = text(&ok(&archived)["archived_at"]).to_owned();
    let (made, late) = parted(creations);
    for answer in &late {
        refused(answer, 400, "invalid_request_error");
    }
    assert_eq!(store.history().await.len(), made.len());
    assert_eq!(store.object().await["archived_at"], archived_at.as_str());
    assert_eq!(store.object().await["memory_count"], made.len());
}

pub(super) async fn directory_is_deleted_as_a_whole_while_files_are_created_in_it(place: Place) {
    let store = &place.store();
    for n in 0..10 {
        store.create(&format!("/d/{n}/x"), "x").await;
    }
    // A deletion that meets a new file begins again, up to eight times.
    let creations = (0..4).map(|n| async move { store.create(&format!("/d/late-{n}"), "x").await });
    let deletion = json!({"command": "delete", "path": "/memories/d"});
    let (created, _) = tokio::join!(join_all(creations), place.client.tool_ok(&place.tenant, &deletion));
    // Each late file was deleted with the others, or came after all of them were gone.
    let left = store.paths().await;
    assert!(left.iter().all(|path| path.starts_with("/d/late-")), "{left:?}");
    assert_eq!(store.version_count().await, 2 * (10 + created.len()) - left.len());
}

pub(super) async fn racing_changes_are_made_once_seen_and_counted(place: Place) {
    let store = place.store();
    let views = [store.clone(), store.seen_by(&place.second)];
    one_update_meets_its_precondition_through(&views).await;
    answered_edits_are_seen_through(&views).await;
    racing_changes_keep_every_count_through(&views).await;
    let [own, tested] = [place.new_store("duplicates").await, place.new_store("tested").await];
    duplicates_are_made_once_through(&[own.clone(), own]).await;
    batches_at_once_keep_the_tests_through(&[tested.clone(), tested]).await;
}

async fn call(store: &Store, input: &Value) -> String {
    let result = store.client.call(&store.id, input).await.tool_result();
    assert!(!result.is_error, "{input}: {}", result.content);
    result.content
}

/// The bytes that `view` shows of a directory and of all in it.
async fn shown_bytes(store: &Store, directory: &str) -> BTreeMap<String, usize> {
    let shown = call(store, &json!({"command": "view", "path": directory})).await;
    let line = |line: &str| {
        let (bytes, path) = line.split_once("B\t").unwrap();
        (path.to_owned(), bytes.parse().unwrap())
    };
    shown.lines().skip(1).map(line).collect()
}

/// Edits a file through both in turns, and looks at it through both after each answer.
async fn edit_and_look(stores: &[Store; 2], file: usize) {
    let path = format!("/seen/{file}");
    let memory = stores[0].create(&path, "").await;
    for bytes in 1..=20 {
        let edit = json!({"content": "x".repeat(bytes)});
        stores[bytes % 2].update(&memory, &edit).await;
        for store in stores {
            assert_eq!(store.read(&memory).await["content_size_bytes"], bytes);
            assert_eq!(shown_bytes(store, "/memories/seen").await[&format!("/memories{path}")], bytes);
        }
    }
}

/// Two views of one store show every edit that was answered, and never go back.
pub(super) async fn answered_edits_are_seen_through(stores: &[Store; 2]) {
    stores[0].create("/seen/first", "").await;
    let is_done = AtomicBool::new(false);
    let writers = async {
        join_all((0..4).map(|file| edit_and_look(stores, file))).await;
        is_done.store(true, Ordering::Relaxed);
    };
    let reader = async {
        let mut seen = BTreeMap::new();
        while !is_done.load(Ordering::Relaxed) {
            for store in stores {
                for (path, bytes) in shown_bytes(store, "/memories/seen").await {
                    let before = seen.insert(path.clone(), bytes).unwrap_or_default();
                    assert!(bytes >= before, "{path} has {bytes} bytes after {before}");
                }
            }
        }
    };
    tokio::join!(writers, reader);
}

/// Makes, renames, deletes and edits files in directories that others change too.
async fn change_in_turns(store: &Store, writer: usize) {
    for turn in 0..6 {
        let path = format!("/{}/{}/{writer}-{turn}", writer % 3, turn % 2);
        let memory = store.create(&path, &"x".repeat(writer + 1)).await;
        let edit = match turn % 3 {
            0 => json!({"path": format!("/moved/{writer}/{turn}")}),
            1 => json!({"content": "x".repeat(50)}),
            _ => {
                store.delete(&memory).await;
                continue;
            }
        };
        store.update(&memory, &edit).await;
    }
}

pub(super) async fn racing_changes_keep_every_count_through(stores: &[Store; 2]) {
    let counts = async || {
        let object = stores[0].object().await;
        ["memory_count", "content_bytes"].map(|field| object[field].as_u64().unwrap())
    };
    let before = counts().await;
    join_all((0..AT_ONCE).map(|writer| change_in_turns(&stores[writer % 2], writer))).await;
    // Of six files of each writer, two are moved, and two have 50 bytes.
    let moved = 2 * (1..=AT_ONCE).sum::<usize>();
    let [memories, bytes] = before;
    let more = [4 * AT_ONCE, 100 * AT_ONCE + moved].map(|more| more as u64);
    assert_eq!(counts().await, [memories + more[0], bytes + more[1]]);
    let kept = AT_ONCE / 3;
    for directory in 0..3 {
        let at = format!("/memories/{directory}");
        let [zero, one] = [0, 1].map(|below| (format!("{at}/{below}/"), 50 * kept));
        let expected = [(at.clone(), 100 * kept), zero, one];
        let mut shown = shown_bytes(&stores[1], &at).await;
        shown.retain(|path, _| path.ends_with('/') || *path == at);
        assert_eq!(shown, BTreeMap::from(expected));
    }
    assert_eq!(shown_bytes(&stores[1], "/memories/moved").await["/memories/moved"], moved);
    // A directory is deleted with as many files as it counts.
    for directory in ["0", "1", "2", "moved"] {
        let delete = json!({"command": "delete", "path": format!("/memories/{directory}")});
        call(&stores[1], &delete).await;
    }
    assert_eq!(counts().await, before);
}
