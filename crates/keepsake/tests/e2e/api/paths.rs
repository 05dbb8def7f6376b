//! Paths at the edges of their rules.

use serde_json::json;

use super::support::{Place, invalid, ok, patch, text};

fn segments(count: usize) -> String {
    "/s".repeat(count)
}

/// A path of this number of bytes in one segment.
fn of_bytes(bytes: usize) -> String {
    format!("/{}", "p".repeat(bytes - 1))
}

pub(super) async fn good_paths_are_kept_as_they_are(place: Place) {
    let store = place.store();
    let renamed = store.create("/renamed", "x").await;
    for path in [
        "/a".to_owned(),
        "/with space/and  two".to_owned(),
        "/ leading".to_owned(),
        "/trailing ".to_owned(),
        "/.hidden/.file".to_owned(),
        "/...".to_owned(),
        "/..a/b..".to_owned(),
        "/%41%20".to_owned(),
        "/100%".to_owned(),
        "/a?b=c&d#e".to_owned(),
        "/quote'\"`".to_owned(),
        "/_%*[x]".to_owned(),
        "/é".to_owned(),
        "/한국어/日本語/繁體".to_owned(),
        "/🦀".to_owned(),
        "/node_modules/x".to_owned(),
        "/memories/x".to_owned(),
        "/.anthropic-memory-stores".to_owned(),
        "/x/.anthropic-memory-store".to_owned(),
        "/.Anthropic-Memory-Store".to_owned(),
        segments(19),
        segments(18) + "/twenty/deep",
        of_bytes(1023),
        of_bytes(1024),
        format!("/{}é", "q".repeat(1021)),
    ] {
        let made = store.create(&path, "x").await;
        assert_eq!(text(&made["path"]), path);
        assert_eq!(text(&store.read(&made).await["path"]), path);
        assert!(store.paths().await.contains(&path));
        store.delete(&made).await;
        let moved = store.update(&renamed, &json!({"path": path})).await;
        assert_eq!(text(&moved["path"]), path);
    }
}

pub(super) async fn bad_paths_are_refused_everywhere(place: Place) {
    let store = place.store();
    let there = store.create("/there", "x").await;
    for path in [
        String::new(),
        "/".to_owned(),
        "a".to_owned(),
        "a/b".to_owned(),
        " /a".to_owned(),
        "//".to_owned(),
        "//a".to_owned(),
        "/a//b".to_owned(),
        "/a/".to_owned(),
        "/.".to_owned(),
        "/..".to_owned(),
        "/a/./b".to_owned(),
        "/a/../b".to_owned(),
        "/a/..".to_owned(),
        "/a\0b".to_owned(),
        "/a\nb".to_owned(),
        "/a\tb".to_owned(),
        "/a\u{7f}".to_owned(),
        "/a\u{85}".to_owned(),
        "/a\u{200b}b".to_owned(),
        "/a\u{200d}b".to_owned(),
        "/a\u{feff}".to_owned(),
        "/a\u{ad}b".to_owned(),
        "/a\u{202e}b".to_owned(),
        "/a\u{2028}b".to_owned(),
        "/a\u{2029}b".to_owned(),
        // A letter and its accent, where one character has both.
        "/e\u{301}".to_owned(),
        "/\u{1112}\u{1161}\u{11ab}".to_owned(),
        // A character whose normal form is another character.
        "/\u{212b}".to_owned(),
        "/.anthropic-memory-store".to_owned(),
        "/.anthropic-memory-store/state".to_owned(),
        segments(21),
        of_bytes(1025),
        format!("/{}é", "p".repeat(1022)),
    ] {
        invalid(&store.try_create(&path, "x").await, "path");
        let edit = json!({"path": path});
        invalid(&store.try_update(&there, &edit).await, "path");
        invalid(&patch(&place.client, &store.memory(&there), &edit).await, "path");
    }
    assert_eq!(store.paths().await, ["/there"]);
    assert_eq!(store.version_count().await, 1);
    ok(&store.try_create(&segments(20), "x").await);
}

pub(super) async fn paths_are_case_sensitive(place: Place) {
    let store = place.store();
    let [lower, upper, accent] = [
        store.create("/a/é", "1").await,
        store.create("/A/é", "2").await,
        store.create("/a/É", "3").await,
    ];
    for (memory, content) in [(&lower, "1"), (&upper, "2"), (&accent, "3")] {
        assert_eq!(store.read(memory).await["content"], content);
    }
    let renamed = store.update(&lower, &json!({"path": "/a/e"})).await;
    assert_eq!(renamed["path"], "/a/e");
    let renamed = store.update(&lower, &json!({"path": "/a/E"})).await;
    assert_eq!(renamed["path"], "/a/E");
    assert_eq!(store.paths().await, ["/A/é", "/a/E", "/a/É"]);
}
