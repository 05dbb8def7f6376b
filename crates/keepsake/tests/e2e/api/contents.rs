//! Content at the edges of its rules.

use serde_json::json;

use super::support::{Place, invalid, ok, post_text, sha256, shows, text};

const LIMIT_BYTES: usize = 102_400;

pub(super) async fn content_is_kept_byte_for_byte(place: Place) {
    let store = place.store();
    let edited = store.create("/edited", "before").await;
    for (number, content) in [
        "",
        " ",
        "\n",
        "no newline at the end",
        "one\r\ntwo\rthree\n",
        "\u{feff}with a mark",
        "\u{feff}",
        "e\u{301} and é",
        "\u{1}\u{1b}\u{7f}\u{85}",
        "\u{200b}\u{2028}\u{2029}\u{fffd}\u{ffff}\u{10ffff}",
        "🦀\t한국어 日本語\n\n\n",
        "{\"json\": \"\\u0000 \\\\ \"}",
    ]
    .into_iter()
    .enumerate()
    {
        let made = store.create(&format!("/{number}"), content).await;
        let updated = store.update(&edited, &json!({"content": content})).await;
        for memory in [&made, &updated] {
            assert_eq!(memory["content_size_bytes"], content.len(), "{content:?}");
            assert_eq!(memory["size_bytes"], content.len(), "{content:?}");
            assert_eq!(memory["content_sha256"], sha256(content), "{content:?}");
            let read = store.read(memory).await;
            assert_eq!(text(&read["content"]), content);
            let version = store.version(&memory["memory_version_id"]);
            let kept = ok(&place.client.get(&version).await);
            assert_eq!(text(&kept["content"]), content);
            assert_eq!(kept["content_sha256"], sha256(content));
        }
    }
    // A lone surrogate is no text at all.
    let lone = r#"{"path": "/lone", "content": "\ud800"}"#;
    invalid(&post_text(&place.client, &store.memories(), lone).await, "");
}

pub(super) async fn content_is_bounded_in_bytes(place: Place) {
    let store = place.store();
    let edited = store.create("/edited", "before").await;
    let most = [
        "x".repeat(LIMIT_BYTES - 1),
        "x".repeat(LIMIT_BYTES),
        "é".repeat(LIMIT_BYTES / 2),
        "🦀".repeat(LIMIT_BYTES / 4),
        "\u{1}".repeat(LIMIT_BYTES),
    ];
    for (number, content) in most.iter().enumerate() {
        let made = store.create(&format!("/{number}"), content).await;
        assert_eq!(made["content_sha256"], sha256(content));
        store.update(&edited, &json!({"content": content})).await;
        assert_eq!(text(&store.read(&edited).await["content"]), content);
    }
    for content in
        ["x".repeat(LIMIT_BYTES + 1), "x".repeat(LIMIT_BYTES - 1) + "é", "é".repeat(LIMIT_BYTES / 2) + "x"]
    {
        let answer = store.try_create("/over", &content).await;
        invalid(&answer, "content");
        invalid(&answer, &LIMIT_BYTES.to_string());
        invalid(&answer, &content.len().to_string());
        let edit = json!({"content": content});
        invalid(&store.try_update(&edited, &edit).await, "content");
    }
    assert_eq!(text(&store.read(&edited).await["content"]), most[4]);
    assert!(!store.paths().await.contains(&"/over".to_owned()));
}

pub(super) async fn content_refused_changes_nothing(place: Place) {
    let store = place.store();
    let made = store.create("/a", "one").await;
    for content in ["\0", "x\0", "\0\0x", "one\0two\n"] {
        invalid(&store.try_create("/b", content).await, "content");
        invalid(&store.try_create("/a", content).await, "content");
        let edit = json!({"content": content, "path": "/moved", "pinned": true});
        invalid(&store.try_update(&made, &edit).await, "content");
    }
    assert_eq!(store.paths().await, ["/a"]);
    let read = store.read(&made).await;
    shows(&read, &json!({"content": "one", "pinned": false}));
    assert_eq!(store.version_count().await, 1);
}
