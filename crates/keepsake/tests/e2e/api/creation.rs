//! Unusual paths and contents that are accepted; `tests/sdk` covers refused ones.

use crate::prelude::*;

const CONTENT_LIMIT_BYTES: usize = 102_400;
const PATHS: &str = "/a|/with space/and  two|/ leading|/trailing |/.hidden/.file|/...|/a..b|/%41%20|/a?b=c&d#e|\
    /quote'\"`|/_%*[x]|/한국어/日本語|/🦀|/node_modules/x|/memories/x|/.Anthropic-Memory-Store";

pub(super) async fn odd_paths_and_contents_are_kept_as_they_are(place: Place) {
    let store = place.store();
    let edited = store.create("/edited", "before").await;
    let (deep, long) = ("/s".repeat(20), format!("/{}é", "p".repeat(1021)));
    let most = ["x".repeat(CONTENT_LIMIT_BYTES), "\u{1}".repeat(CONTENT_LIMIT_BYTES)];
    let contents = [
        "",
        "no newline at the end",
        "one\r\ntwo\rthree\n",
        "\u{feff}with a mark",
        "e\u{301} and é",
        "\u{1}\u{1b}\u{7f}\u{85}\u{200b}\u{2028}\u{fffd}\u{ffff}\u{10ffff}",
        "{\"json\": \"\\u0000 \\\\ \"}",
        &most[0],
        &most[1],
    ];
    for (path, content) in PATHS.split('|').chain([deep.as_str(), &long]).zip(contents.into_iter().cycle()) {
        let expected = json!({
            "path": path, "content": content, "content_sha256": sha256(content), "content_size_bytes": content.len(),
        });
        let made = store.create(path, content).await;
        shows(&store.read(&made).await, &expected);
        store.delete(&made).await;
        let moved = store.update(&edited, &json!({"path": path, "content": content})).await;
        shows(&store.read(&edited).await, &expected);
        for version in [&made, &moved] {
            let kept = ok(&place.client.get(&store.version(&version["memory_version_id"])).await);
            assert_eq!(text(&kept["content"]), content);
        }
    }
}
