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
    let short = "/a|/with space/and  two|/ leading|/trailing |/.hidden/.file|/...|/..a/b..|/%41%20|/100%|/a?b=c&d#e|\
        /quote'\"`|/_%*[x]|/é|/한국어/日本語/繁體|/🦀|/node_modules/x|/memories/x|/.anthropic-memory-stores|\
        /x/.anthropic-memory-store|/.Anthropic-Memory-Store";
    let long = [
        segments(19),
        segments(18) + "/twenty/deep",
        of_bytes(1023),
        of_bytes(1024),
        format!("/{}é", "q".repeat(1021)),
    ];
    for path in short.split('|').chain(long.each_ref().map(String::as_str)) {
        let made = store.create(path, "x").await;
        assert_eq!(text(&made["path"]), path);
        assert_eq!(text(&store.read(&made).await["path"]), path);
        assert!(store.paths().await.contains(&path.to_owned()));
        store.delete(&made).await;
        let moved = store.update(&renamed, &json!({"path": path})).await;
        assert_eq!(text(&moved["path"]), path);
    }
}

pub(super) async fn bad_paths_are_refused_everywhere(place: Place) {
    let store = place.store();
    let there = store.create("/there", "x").await;
    let short = "|/|a|a/b| /a|//|//a|/a//b|/a/|/.|/..|/a/./b|/a/../b|/a/..|/a\0b|/a\nb|/a\tb|/a\u{7f}|/a\u{85}|\
        /a\u{200b}b|/a\u{200d}b|/a\u{feff}|/a\u{ad}b|/a\u{202e}b|/a\u{2028}b|/a\u{2029}b|\
        /.anthropic-memory-store|/.anthropic-memory-store/state";
    // A letter and its accent, where one character has both, and a character whose normal
    // form is another one.
    let other_forms = ["/e\u{301}", "/\u{1112}\u{1161}\u{11ab}", "/\u{212b}"];
    let long = [segments(21), of_bytes(1025), format!("/{}é", "p".repeat(1022))];
    let long = long.each_ref().map(String::as_str);
    for path in short.split('|').chain(other_forms).chain(long) {
        invalid(&store.try_create(path, "x").await, "path");
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
    let [lower, upper, accent] =
        [store.create("/a/é", "1").await, store.create("/A/é", "2").await, store.create("/a/É", "3").await];
    for (memory, content) in [(&lower, "1"), (&upper, "2"), (&accent, "3")] {
        assert_eq!(store.read(memory).await["content"], content);
    }
    let renamed = store.update(&lower, &json!({"path": "/a/e"})).await;
    assert_eq!(renamed["path"], "/a/e");
    let renamed = store.update(&lower, &json!({"path": "/a/E"})).await;
    assert_eq!(renamed["path"], "/a/E");
    assert_eq!(store.paths().await, ["/A/é", "/a/E", "/a/É"]);
}
