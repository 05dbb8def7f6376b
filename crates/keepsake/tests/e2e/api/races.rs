//! Concurrent calls: one wins, and the others get a conflict.

use std::collections::BTreeSet;

use futures::future::join_all;
use serde_json::{Value, json};

use super::support::{
    PREVIEW, Place, delete, holds, ok, path_conflict, post_with, refused, sha256, strings, text,
};
use crate::support::Answer;

/// Calls of one race.
const AT_ONCE: usize = 12;

/// The answers that are 200, and the others.
fn parted(answers: Vec<Answer>) -> (Vec<Value>, Vec<Answer>) {
    let (made, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 200);
    (made.iter().map(ok).collect(), refused)
}

pub(super) async fn one_creation_gets_the_path(place: Place) {
    let store = place.store();
    for round in 0..3 {
        let path = format!("/{round}");
        let creations = (0..AT_ONCE).map(|n| {
            let (store, path) = (&store, &path);
            async move { store.try_create(path, &n.to_string()).await }
        });
        let (made, conflicts) = parted(join_all(creations).await);
        assert_eq!(made.len(), 1);
        for answer in &conflicts {
            path_conflict(answer, &made[0]);
        }
    }
    assert_eq!(store.version_count().await, 3);
}

pub(super) async fn file_and_directory_of_one_name_are_not_both_created(place: Place) {
    let store = place.store();
    for round in 0..4 {
        let paths = [
            format!("/{round}"),
            format!("/{round}/a"),
            format!("/{round}/a/b"),
            format!("/{round}/a/b/c"),
        ];
        let creations = paths.iter().map(|path| store.try_create(path, "x"));
        let (made, conflicts) = parted(join_all(creations).await);
        // Each of them excludes every other one.
        assert_eq!(made.len(), 1, "{made:?}");
        for answer in &conflicts {
            path_conflict(answer, &made[0]);
        }
    }
    let waiting = join_all((0..6).map(|n| {
        let store = &store;
        async move { store.create(&format!("/mover-{n}"), "x").await }
    }))
    .await;
    let moves = waiting.iter().enumerate().map(|(n, memory)| {
        let path = format!("/goal{}", "/a".repeat(n % 3));
        let (store, edit) = (&store, json!({"path": path}));
        async move { store.try_update(memory, &edit).await }
    });
    let (made, conflicts) = parted(join_all(moves).await);
    assert_eq!(made.len(), 1, "{made:?}");
    for answer in &conflicts {
        path_conflict(answer, &made[0]);
    }
    assert_eq!(store.object().await["memory_count"], 10);
}

pub(super) async fn racing_upserts_are_one_memory(place: Place) {
    let store = place.store();
    let upserts = (0..AT_ONCE).map(|n| {
        let store = &store;
        async move {
            let body = json!({"path": "/d/a", "content": format!("{n}")});
            let beta = ("anthropic-beta", PREVIEW);
            ok(&post_with(&store.client, &store.memories(), &body, beta).await)
        }
    });
    let made = join_all(upserts).await;
    let ids: BTreeSet<_> = strings(&made, "id").into_iter().collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    let versions: BTreeSet<_> = strings(&made, "memory_version_id").into_iter().collect();
    assert_eq!(versions.len(), AT_ONCE);
    let history = store.history().await;
    assert_eq!(history.len(), AT_ONCE);
    assert_eq!(store.read(&made[0]).await["memory_version_id"], history[0]["id"]);
    // Every answer has the content that its own call wrote.
    for (n, answer) in made.iter().enumerate() {
        assert_eq!(answer["content_sha256"], sha256(&n.to_string()));
    }
}

pub(super) async fn one_update_meets_its_precondition(place: Place) {
    let store = place.store();
    let memory = store.create("/a", "before").await;
    let updates = (0..AT_ONCE).map(|n| {
        let (store, memory) = (&store, &memory);
        let edit = json!({"content": format!("{n}"), "precondition": holds("before")});
        async move { store.try_update(memory, &edit).await }
    });
    let (made, late) = parted(join_all(updates).await);
    assert_eq!(made.len(), 1);
    for answer in &late {
        let error = refused(answer, 409, "memory_precondition_failed_error");
        assert_eq!(error["current_content_sha256"], made[0]["content_sha256"]);
    }
    let deletions = (0..AT_ONCE).map(|_| {
        let (client, at) = (&place.client, store.memory(&memory));
        async move { delete(client, &at).await }
    });
    let (gone, late) = parted(join_all(deletions).await);
    assert_eq!(gone.len(), 1);
    for answer in &late {
        refused(answer, 404, "not_found_error");
    }
    assert_eq!(store.version_count().await, 3);
}

pub(super) async fn deletion_and_update_leave_one_history(place: Place) {
    let store = place.store();
    for round in 0..4 {
        let memory = store.create(&format!("/{round}"), "before").await;
        let version = memory["memory_version_id"].clone();
        let at = store.memory(&memory);
        let (edit, rename) = (
            json!({"content": "after"}),
            json!({"path": format!("/moved/{round}")}),
        );
        let nothing = json!({});
        let (gone, edited, renamed, restored) = tokio::join!(
            delete(&place.client, &at),
            store.try_update(&memory, &edit),
            store.try_update(&memory, &rename),
            store.try_restore(&version, &nothing),
        );
        ok(&gone);
        for answer in [&edited, &renamed] {
            assert!(
                matches!(answer.status, 200 | 404),
                "{} {}",
                answer.status,
                answer.text
            );
        }
        ok(&restored);
        // One after the other, they made one chain of versions.
        let query = format!("{}?limit=100&memory_id={}", store.versions(), text(&memory["id"]));
        let history = super::support::all(&place.client, &query).await;
        let mut is_live = false;
        for version in history.iter().rev() {
            let expected = if is_live {
                ["modified", "deleted"]
            } else {
                ["created"; 2]
            };
            let operation = text(&version["operation"]);
            assert!(expected.contains(&operation), "{history:#?}");
            is_live = operation != "deleted";
        }
        let shown = place.client.get(&at).await;
        assert_eq!(shown.status, if is_live { 200 } else { 404 });
        if is_live {
            assert_eq!(ok(&shown)["memory_version_id"], history[0]["id"]);
        }
    }
}

pub(super) async fn no_merge_of_metadata_is_lost(place: Place) {
    let store = place.new_store("merged").await;
    let merge = |key: String| {
        let (client, path) = (&place.client, &store.path);
        async move { client.post(path, &json!({"metadata": {key: "v"}})).await }
    };
    let merged = join_all((0..10).map(|n| merge(format!("k{n}")))).await;
    for answer in &merged {
        ok(answer);
    }
    let object = store.object().await;
    assert_eq!(object["metadata"].as_object().unwrap().len(), 10);
    // Together they would be too many.
    let (made, over) = parted(join_all((10..22).map(|n| merge(format!("k{n}")))).await);
    assert_eq!((made.len(), over.len()), (6, 6));
    for answer in &over {
        refused(answer, 400, "invalid_request_error");
    }
    let object = store.object().await;
    assert_eq!(object["metadata"].as_object().unwrap().len(), 16);
}

pub(super) async fn nothing_is_written_after_the_archiving(place: Place) {
    let store = place.new_store("archived meanwhile").await;
    let creations = (0..AT_ONCE).map(|n| {
        let store = &store;
        async move { store.try_create(&format!("/{n}"), "x").await }
    });
    let archive = format!("{}/archive", store.path);
    let nothing = json!({});
    let (creations, archived) = tokio::join!(join_all(creations), place.second.post(&archive, &nothing));
    let archived_at = text(&ok(&archived)["archived_at"]).to_owned();
    let (made, late) = parted(creations);
    for answer in &late {
        refused(answer, 400, "invalid_request_error");
    }
    let history = store.history().await;
    assert_eq!(history.len(), made.len());
    assert_eq!(store.object().await["archived_at"], archived_at.as_str());
    assert_eq!(store.object().await["memory_count"], made.len());
}
