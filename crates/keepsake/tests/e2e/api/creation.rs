//! Making memories: what they are called and hold, and when one is replaced.

use reqwest::Method;
use serde_json::{Value, json};

use super::support::{
    PREVIEW, Place, holds, invalid, ok, path_conflict, post_with, precondition_failed, sha256, shows, text,
};
use crate::support::client::send;

/// The beta of the API as it is, without upserts.
const CURRENT: &str = "agent-memory-2026-07-22";
const CONTENT_LIMIT_BYTES: usize = 102_400;

/// SDKs 0.97 to 0.112 send the preview's header on every request, with
/// `?beta=true`, and expect a conflict.
pub(super) async fn only_plain_clients_of_the_preview_replace_a_memory(place: Place) {
    let store = place.store();
    let first = store.create("/a", "0").await;
    for (number, (query, headers, is_upsert)) in [
        ("", &[][..], false),
        ("", &[CURRENT], false),
        ("", &["managed-agents"], false),
        ("", &[PREVIEW, CURRENT], false),
        ("", &["other-2025-01-01", PREVIEW], true),
        ("?beta=true", &[PREVIEW], false),
        ("?view=full&beta=true", &[PREVIEW], false),
        ("?beta=false", &[PREVIEW], true),
    ]
    .into_iter()
    .enumerate()
    {
        let before = store.basic(&first).await;
        let content = (number + 1).to_string();
        let path = format!("{}{query}", store.memories());
        let mut request = place.client.request(Method::POST, &path);
        for value in headers {
            request = request.header("anthropic-beta", *value);
        }
        let answer = send(request.json(&json!({"path": "/a", "content": content}))).await;
        if is_upsert {
            let replaced = ok(&answer);
            let kept = json!({"id": first["id"], "created_at": first["created_at"]});
            shows(&replaced, &kept);
            assert_eq!(replaced["content_sha256"], sha256(&content));
            assert_ne!(replaced["memory_version_id"], before["memory_version_id"]);
        } else {
            path_conflict(&answer, &first);
            assert_eq!(store.basic(&first).await, before, "{query} {headers:?}");
        }
    }
    let with = async |precondition: Value| {
        let new = json!({"path": "/a", "content": "x", "precondition": precondition});
        post_with(&place.client, &store.memories(), &new, ("anthropic-beta", PREVIEW)).await
    };
    let now = store.basic(&first).await;
    precondition_failed(&with(json!({"type": "not_exists"})).await, &now);
    invalid(&with(holds("8")).await, "precondition");
    assert_eq!(store.version_count().await, 3);
}

pub(super) async fn content_is_kept_byte_for_byte(place: Place) {
    let store = place.store();
    let edited = store.create("/edited", "before").await;
    let most = ["x".repeat(CONTENT_LIMIT_BYTES), "\u{1}".repeat(CONTENT_LIMIT_BYTES)];
    for (number, content) in [
        "",
        "no newline at the end",
        "one\r\ntwo\rthree\n",
        "\u{feff}with a mark",
        "e\u{301} and é",
        "\u{1}\u{1b}\u{7f}\u{85}\u{200b}\u{2028}\u{fffd}\u{ffff}\u{10ffff}",
        "{\"json\": \"\\u0000 \\\\ \"}",
    ]
    .into_iter()
    .chain(most.each_ref().map(String::as_str))
    .enumerate()
    {
        let made = store.create(&format!("/{number}"), content).await;
        let updated = store.update(&edited, &json!({"content": content})).await;
        for memory in [&made, &updated] {
            assert_eq!(memory["content_size_bytes"], content.len(), "{content:?}");
            assert_eq!(memory["content_sha256"], sha256(content), "{content:?}");
            assert_eq!(text(&store.read(memory).await["content"]), content);
            let version = store.version(&memory["memory_version_id"]);
            let kept = ok(&place.client.get(&version).await);
            assert_eq!(text(&kept["content"]), content);
        }
    }
}

pub(super) async fn content_refused_changes_nothing(place: Place) {
    let store = place.store();
    let made = store.create("/a", "one").await;
    let over = "x".repeat(CONTENT_LIMIT_BYTES - 1) + "é";
    for (content, rule) in
        [("\0", "content"), ("one\0two\n", "content"), (&over, "102400"), (&over, "102401")]
    {
        invalid(&store.try_create("/b", content).await, rule);
        let edit = json!({"content": content, "path": "/moved", "pinned": true});
        invalid(&store.try_update(&made, &edit).await, "content");
    }
    assert_eq!(store.paths().await, ["/a"]);
    assert_eq!(store.basic(&made).await, made);
    assert_eq!(store.read(&made).await["content"], "one");
    assert_eq!(store.version_count().await, 1);
}

pub(super) async fn good_paths_are_kept_as_they_are(place: Place) {
    let store = place.store();
    let renamed = store.create("/renamed", "x").await;
    let mut cases = Vec::new();
    for path in ["/Case/é", "/case/É", "/case/é"] {
        cases.push(store.create(path, path).await);
    }
    let (deep, long) = ("/s".repeat(20), format!("/{}é", "p".repeat(1021)));
    let odd = "/a|/with space/and  two|/ leading|/trailing |/.hidden/.file|/...|/a..b|/%41%20|/a?b=c&d#e|\
        /quote'\"`|/_%*[x]|/한국어/日本語|/🦀|/node_modules/x|/memories/x|/.Anthropic-Memory-Store";
    for path in odd.split('|').chain([deep.as_str(), &long]) {
        let made = store.create(path, "x").await;
        assert_eq!(text(&store.read(&made).await["path"]), path);
        assert!(store.paths().await.contains(&path.to_owned()));
        store.delete(&made).await;
        let moved = store.update(&renamed, &json!({"path": path})).await;
        assert_eq!(text(&moved["path"]), path);
    }
    for memory in cases {
        assert_eq!(store.read(&memory).await["content"], memory["path"]);
    }
}
