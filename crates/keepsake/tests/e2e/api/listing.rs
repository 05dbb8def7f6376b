//! Lists of memories: order, prefixes, depth. `tests/sdk` has the sizes of pages.

use crate::console::browser::encoded;
use crate::prelude::*;

/// With names that sort otherwise by letters, by segments or by case, with the signs of patterns, and odd ones.
const PATHS: &str = "/ space|/%41|/.hidden|/.hidden-dir/x|/A|/Z/a|/a b/c|/a!/c|/a%/1|/a*/1|/a-|/a-b/x|/a.b|/aXb/1|\
    /a[b]/1|/a\\b/1|/a_b/1|/a/a/1|/a/a/2|/a/a-/3|/a/á|/aa|/ab/1|/b|/node_modules/y|/z|/~|/é/1|/two  spaces |/...|\
    /a..b|/%41%20|/a?b=c&d#e|/quote'\"`|/한국어/日本語|/🦀|/memories/x|/.Anthropic-Memory-Store";

async fn listed(store: &Store, query: &str) -> Vec<Value> {
    store.client.all(&format!("{}?{query}", store.memories())).await
}

async fn listed_paths(store: &Store, query: &str) -> Vec<String> {
    strings(&listed(store, query).await, "path")
}

/// The files directly in a directory, and its subdirectories.
fn children(below: &[String], directory: &str) -> Vec<String> {
    let child = |path: &String| match path[directory.len()..].split_once('/') {
        Some((name, _)) => format!("{directory}{name}/"),
        None => path.clone(),
    };
    let mut children: Vec<_> = below.iter().map(child).collect();
    children.sort();
    children.dedup();
    children
}

pub(super) async fn directories_are_listed_in_byte_order(place: Place) {
    let store = place.store();
    let mut paths: Vec<_> = PATHS.split('|').map(str::to_owned).collect();
    paths.sort();
    // Made in another order than they are listed.
    let (odd, even) = (paths.iter().skip(1).step_by(2), paths.iter().step_by(2));
    for path in odd.chain(even.rev()) {
        store.create(path, path).await;
    }
    assert_eq!(listed_paths(&store, "limit=100").await, paths);
    for item in listed(&store, "limit=7").await {
        assert_eq!(item, store.basic(&item).await);
        assert_eq!(store.read(&item).await["content"], item["path"]);
    }
    // A prefix is a directory: whole segments, no pattern, and case matters.
    let directories = "/|/a/|/a/a/|/a-b/|/a b/|/a%/|/a*/|/a[b]/|/a\\b/|/a_b/|/.hidden-dir/|/Z/|/é/|\
        /node_modules/|/b/|/A/|/z/a/|/a/á/|/a/a/1/|/nothing/at/all/|/%41/";
    for directory in directories.split('|') {
        let below = paths.iter().filter(|path| path.starts_with(directory));
        let below: Vec<_> = below.cloned().collect();
        for limit in [1, 3, 100] {
            let query = format!("path_prefix={}&limit={limit}", encoded(directory).replace("%20", "+"));
            assert_eq!(listed_paths(&store, &query).await, below, "{query}");
            let query = format!("{query}&depth=1");
            assert_eq!(listed_paths(&store, &query).await, children(&below, directory), "{query}");
        }
    }
}

pub(super) async fn list_of_a_path_has_the_memory_there_or_nothing(place: Place) {
    let store = place.store();
    store.create("/a/b.md", "text").await;
    let found = listed(&store, "path=/a/b.md&view=full").await;
    assert_eq!(found.len(), 1, "{found:?}");
    shows(&found[0], &json!({"path": "/a/b.md", "content": "text"}));
    // Both forms of `é` are one path, wherever a caller sends it.
    store.create("/e\u{301}/e\u{301}.md", "text").await;
    for (filter, path) in [("path", "/e\u{301}/é.md"), ("path_prefix", "/e\u{301}/")] {
        let query = format!("{filter}={}", encoded(path));
        assert_eq!(listed_paths(&store, &query).await, ["/é/é.md"], "{query}");
    }
    for nothing in ["/a", "/a/c.md", "/b.md"] {
        assert_eq!(listed_paths(&store, &format!("path={nothing}")).await, [""; 0], "{nothing}");
    }
    let refused = async |query: &str, named: &str| {
        let list = format!("{}?{query}", store.memories());
        invalid(&place.client.get(&list).await, named);
    };
    refused("path=/a/b.md&depth=1", "path").await;
    refused("path=a/b.md", "path").await;
    for prefix in "|a/|/a|//|/a//|/a/../|/a\0/|/a\u{200b}/".split('|') {
        refused(&format!("path_prefix={}", encoded(prefix)), "path_prefix").await;
    }
}

/// Each list of the only memory, asked for twice, shows it as it is.
async fn assert_first_pages(store: &Store, memory: &Value) {
    for _ in 0..2 {
        for query in ["", "path_prefix=/d/", "path_prefix=/d/&depth=1"] {
            assert_eq!(listed(store, query).await, [store.basic(memory).await], "{query}");
        }
    }
}

/// First pages of SQLite are kept in memory.
pub(super) async fn first_page_shows_every_change(place: Place) {
    let store = place.new_store("first pages").await;
    let memory = store.create("/d/a", "one").await;
    assert_first_pages(&store, &memory).await;
    for edit in [
        json!({"expires_at": "2999-12-31"}),
        json!({"expires_at": "never"}),
        json!({"pinned": true}),
        json!({"pinned": false}),
        json!({"content": "two"}),
        json!({"path": "/d/b"}),
    ] {
        store.update(&memory, &edit).await;
        assert_first_pages(&store, &memory).await;
    }
    ok(&place.client.post(&store.path, &json!({"expires_unused_after": 10 * 86_400})).await);
    assert_first_pages(&store, &memory).await;
    assert!(listed(&store, "").await[0]["expires_at"].is_string());
    store.read(&memory).await;
    assert_first_pages(&store, &memory).await;
    assert!(listed(&store, "").await[0]["last_accessed_at"].is_string());
    store.archive().await;
    assert_first_pages(&store, &memory).await;
    store.delete(&memory).await;
    for query in ["", "path_prefix=/d/", "path_prefix=/d/&depth=1"] {
        assert_eq!(listed_paths(&store, query).await, [""; 0], "{query}");
    }
}
