//! Making memories.

use reqwest::Method;
use serde_json::json;

use super::conventions::{assert_id, assert_time};
use super::support::{
    PREVIEW, Place, holds, invalid, ok, path_conflict, post_with, precondition_failed, sha256, shows, strings,
};
use crate::support::client::send;

/// The beta of the API as it is, without upserts.
const CURRENT: &str = "agent-memory-2026-07-22";

pub(super) async fn created_memory_has_the_given_fields(place: Place) {
    let store = place.store();
    for (path, content) in [("/a", "one"), ("/d/e/é.md", "zwölf\n"), ("/empty", "")] {
        let made = store.create(path, content).await;
        let mut expected = json!({
            "type": "memory", "memory_store_id": store.id, "path": path, "content": null,
            "content_size_bytes": content.len(), "size_bytes": content.len(),
            "content_sha256": sha256(content), "last_accessed_at": null, "expires_at": null, "pinned": false,
        });
        for own in ["id", "memory_version_id", "created_at", "updated_at"] {
            expected[own] = made[own].clone();
        }
        assert_eq!(made, expected);
        assert_id(&made["id"], "mem_");
        assert_id(&made["memory_version_id"], "memver_");
        assert_time(&made["created_at"]);
        assert_eq!(made["created_at"], made["updated_at"]);
        let read = store.read(&made).await;
        assert_eq!(read["content"], content);
        shows(&read, &json!({"id": made["id"], "memory_version_id": made["memory_version_id"]}));
    }
    assert_eq!(sha256("one"), "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed");
}

pub(super) async fn beta_header_decides_between_create_and_upsert(place: Place) {
    let store = place.store();
    let first = store.create("/a", "0").await;
    let both = [
        format!("{PREVIEW},{CURRENT}"),
        format!("{CURRENT}, {PREVIEW}"),
        format!("other-2025-01-01, {PREVIEW} , {CURRENT}"),
    ];
    let upserts = [
        PREVIEW.to_owned(),
        format!("{PREVIEW},other-2025-01-01"),
        format!("other-2025-01-01 , {PREVIEW}"),
        format!("  {PREVIEW}  "),
        format!(",{PREVIEW},"),
    ];
    let cases = [
        (vec![], false),
        (vec![CURRENT], false),
        (vec!["other-2025-01-01"], false),
        (vec!["managed-agents-2026-04-011"], false),
        (vec!["managed-agents"], false),
        (vec![""], false),
        (vec![PREVIEW, CURRENT], false),
        (vec![CURRENT, "other-2025-01-01", PREVIEW], false),
        (vec!["other-2025-01-01", PREVIEW], true),
        (vec![PREVIEW, "other-2025-01-01"], true),
        (vec![PREVIEW, PREVIEW], true),
    ];
    let both = both.each_ref().map(|value| (vec![value.as_str()], false));
    let upserts = upserts.each_ref().map(|value| (vec![value.as_str()], true));
    let mut content = "0".to_owned();
    for (number, (headers, is_upsert)) in cases.into_iter().chain(both).chain(upserts).enumerate() {
        let new = json!({"path": "/a", "content": format!("{}", number + 1)});
        let mut request = place.client.request(Method::POST, &store.memories()).json(&new);
        for &value in &headers {
            request = request.header("anthropic-beta", value);
        }
        let answer = send(request).await;
        if is_upsert {
            let replaced = ok(&answer);
            assert_eq!(replaced["id"], first["id"], "{headers:?}");
            content = (number + 1).to_string();
        } else {
            path_conflict(&answer, &first);
        }
        let read = store.read(&first).await;
        assert_eq!(read["content"], content.as_str(), "{headers:?}");
    }
}

/// SDKs 0.97 to 0.112 send the preview's header on every request, with
/// `?beta=true`, and expect a conflict.
pub(super) async fn sdk_of_the_preview_never_overwrites(place: Place) {
    let store = place.store();
    let first = store.create("/a", "kept").await;
    let new = json!({"path": "/a", "content": "lost"});
    let post = async |query: &str| {
        let path = format!("{}{query}", store.memories());
        post_with(&place.client, &path, &new, ("anthropic-beta", PREVIEW)).await
    };
    for query in ["?beta=true", "?view=full&beta=true", "?beta=true&beta=true"] {
        path_conflict(&post(query).await, &first);
        assert_eq!(store.read(&first).await["content"], "kept", "{query}");
    }
    assert_eq!(store.version_count().await, 1);
    for query in ["", "?beta=false"] {
        assert_eq!(ok(&post(query).await)["id"], first["id"], "{query}");
    }
}

pub(super) async fn upsert_keeps_the_id_and_writes_a_version(place: Place) {
    let store = place.store();
    let made = ok(&store.upsert("/d/a", "one").await);
    let replaced = ok(&store.upsert("/d/a", "two").await);
    shows(&replaced, &json!({"id": made["id"], "created_at": made["created_at"]}));
    assert_ne!(replaced["memory_version_id"], made["memory_version_id"]);
    assert_eq!(replaced["content_sha256"], sha256("two"));
    let history = store.history().await;
    assert_eq!(strings(&history, "operation"), ["modified", "created"]);
    // A directory is not replaced, nor is a memory made one.
    path_conflict(&store.upsert("/d", "x").await, &replaced);
    path_conflict(&store.upsert("/d/a/b", "x").await, &replaced);
    store.delete(&made).await;
    let anew = ok(&store.upsert("/d/a", "three").await);
    assert_ne!(anew["id"], made["id"]);
    assert_eq!(store.version_count().await, 4);
}

pub(super) async fn not_exists_makes_every_creation_create_only(place: Place) {
    let store = place.store();
    for beta in [PREVIEW, CURRENT] {
        let create = async |path: &str, content: &str| {
            let body = json!({"path": path, "content": content, "precondition": {"type": "not_exists"}});
            post_with(&place.client, &store.memories(), &body, ("anthropic-beta", beta)).await
        };
        let path = format!("/{beta}/a");
        let made = ok(&create(&path, "one").await);
        precondition_failed(&create(&path, "two").await, &made);
        // Not even where it would change nothing.
        precondition_failed(&create(&path, "one").await, &made);
        path_conflict(&create(&format!("/{beta}"), "x").await, &made);
        path_conflict(&create(&format!("{path}/b"), "x").await, &made);
        let on_content = json!({"path": path, "content": "x", "precondition": holds("one")});
        let beta = ("anthropic-beta", beta);
        let answer = post_with(&place.client, &store.memories(), &on_content, beta).await;
        invalid(&answer, "precondition");
        assert_eq!(store.read(&made).await["content"], "one");
    }
    assert_eq!(store.version_count().await, 2);
}

pub(super) async fn conflicting_path_is_named(place: Place) {
    let store = place.store();
    let file = store.create("/file", "one").await;
    let deep = store.create("/d/e/f", "two").await;
    store.create("/d/e/g", "three").await;
    let created = store.version_count().await;
    for (path, conflicting) in [
        ("/file", &file),
        ("/file/below", &file),
        ("/file/far/below/it", &file),
        ("/d", &deep),
        ("/d/e", &deep),
        ("/d/e/f/g/h", &deep),
    ] {
        path_conflict(&store.try_create(path, "x").await, conflicting);
    }
    assert_eq!(store.version_count().await, created);
    // Names that only resemble existing ones are free.
    for path in ["/file2", "/fil", "/d2", "/d/e/f2", "/File", "/d/e2"] {
        store.create(path, "x").await;
    }
    // The last file takes its directory with it.
    let alone = store.create("/lonely/dir/file", "x").await;
    path_conflict(&store.try_create("/lonely", "x").await, &alone);
    store.delete(&alone).await;
    let alone = store.create("/lonely", "x").await;
    path_conflict(&store.try_create("/lonely/dir/file", "x").await, &alone);
}
