//! Lists of memories: order, prefixes, depth, pages.

use serde_json::{Value, json};

use super::support::{Place, Store, all, invalid, ok, page_of, shows, strings};

/// With names that sort otherwise by letters, by segments or by case.
const PATHS: &str = "/ space|/%41|/.hidden|/.hidden-dir/x|/0|/A|/Z/a|/a b/c|/a!/c|/a-|/a-b/x|/a.b|/a/a/1|/a/a/2|\
    /a/a-/3|/a/á|/aa|/b|/node_modules/y|/z|/~|/é";

fn paths() -> Vec<String> {
    let mut paths: Vec<_> = PATHS.split('|').map(str::to_owned).collect();
    paths.sort();
    paths
}

async fn filled(place: &Place) -> (Store, Vec<String>) {
    let store = place.store();
    let paths = paths();
    // Made in another order than they are listed.
    let (odd, even) = (paths.iter().skip(1).step_by(2), paths.iter().step_by(2));
    for path in odd.chain(even.rev()) {
        store.create(path, path).await;
    }
    (store, paths)
}

async fn listed(store: &Store, query: &str) -> Vec<Value> {
    all(&store.client, &format!("{}?{query}", store.memories())).await
}

async fn listed_paths(store: &Store, query: &str) -> Vec<String> {
    strings(&listed(store, query).await, "path")
}

fn below(paths: &[String], prefix: &str) -> Vec<String> {
    let below = paths.iter().filter(|path| path.starts_with(prefix));
    below.cloned().collect()
}

/// The files directly in a directory, and its subdirectories.
fn children(paths: &[String], prefix: &str) -> Vec<String> {
    let mut children: Vec<_> = below(paths, prefix)
        .iter()
        .map(|path| match path[prefix.len()..].split_once('/') {
            Some((directory, _)) => format!("{prefix}{directory}/"),
            None => path.clone(),
        })
        .collect();
    children.sort();
    children.dedup();
    children
}

fn encoded(prefix: &str) -> String {
    prefix
        .bytes()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() || byte == b'/' {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

pub(super) async fn memories_are_listed_in_byte_order_of_their_paths(place: Place) {
    let (store, paths) = filled(&place).await;
    assert_eq!(listed_paths(&store, "limit=100").await, paths);
    assert_eq!(listed_paths(&store, "depth=0").await, paths);
    assert_eq!(listed_paths(&store, "path_prefix=/").await, paths);
    for item in listed(&store, "limit=7").await {
        assert_eq!(item["type"], "memory");
        assert!(item["content"].is_null());
        assert_eq!(item, store.basic(&item).await);
    }
}

pub(super) async fn prefix_matches_whole_segments(place: Place) {
    let (store, paths) = filled(&place).await;
    for prefix in ["/", "/a/", "/a/a/", "/a-b/", "/a b/", "/.hidden-dir/", "/Z/", "/node_modules/"] {
        let expected = below(&paths, prefix);
        assert!(!expected.is_empty());
        for limit in [1, 3, 100] {
            let query = format!("path_prefix={}&limit={limit}", encoded(prefix));
            assert_eq!(listed_paths(&store, &query).await, expected, "{query}");
            let (query, expected) = (format!("{query}&depth=1"), children(&paths, prefix));
            assert_eq!(listed_paths(&store, &query).await, expected, "{query}");
        }
    }
    // Files are no directories, case matters, nothing is somewhere.
    for prefix in "/b/ /A/ /z/a/ /a/á/ /a/a/1/ /nothing/at/all/ /%41/".split(' ') {
        for depth in [0, 1] {
            let query = format!("path_prefix={}&depth={depth}", encoded(prefix));
            assert_eq!(listed_paths(&store, &query).await, [""; 0], "{query}");
        }
    }
}

pub(super) async fn prefix_is_not_a_pattern(place: Place) {
    let store = place.store();
    let paths = ["/a%/1", "/a*/1", "/aXb/1", "/a[b]/1", "/a\\b/1", "/a_b/1", "/ab/1", "/é/1"];
    for path in paths {
        store.create(path, "x").await;
    }
    for path in paths {
        let prefix = encoded(path.trim_end_matches('1'));
        for depth in [0, 1] {
            let query = format!("path_prefix={prefix}&depth={depth}");
            assert_eq!(listed_paths(&store, &query).await, [path], "{query}");
        }
    }
}

pub(super) async fn bad_prefixes_are_refused(place: Place) {
    let store = place.store();
    store.create("/a/b", "x").await;
    let prefixes = "|a|a/|/a|/a/b|//|/a//|//a/|/./|/a/../|/a\0/|/a\u{200b}/|/e\u{301}/";
    for prefix in prefixes.split('|') {
        for depth in ["", "&depth=1"] {
            let query = format!("path_prefix={}{depth}", encoded(prefix));
            let list = format!("{}?{query}", store.memories());
            invalid(&place.client.get(&list).await, "path_prefix");
        }
    }
}

pub(super) async fn listing_of_a_path_has_the_memory_there_or_nothing(place: Place) {
    let store = place.store();
    store.create("/a/b.md", "text").await;
    let found = listed(&store, "path=/a/b.md&view=full").await;
    let [memory] = found.as_slice() else {
        panic!("{found:?}");
    };
    shows(memory, &json!({"path": "/a/b.md", "content": "text"}));
    for nothing in ["/a", "/a/c.md", "/b.md"] {
        let query = format!("path={nothing}");
        assert_eq!(listed_paths(&store, &query).await, [""; 0], "{query}");
    }
    for query in ["path=/a/b.md&depth=1", "path=a/b.md"] {
        let list = format!("{}?{query}", store.memories());
        invalid(&place.client.get(&list).await, "path");
    }
}

pub(super) async fn depth_one_rolls_up_what_is_deeper(place: Place) {
    let (store, paths) = filled(&place).await;
    let items = listed(&store, "depth=1&limit=100").await;
    assert_eq!(strings(&items, "path"), children(&paths, "/"));
    for item in &items {
        let path = item["path"].as_str().unwrap();
        if path.ends_with('/') {
            assert_eq!(*item, json!({"type": "memory_prefix", "path": path}));
        } else {
            assert_eq!(item["type"], "memory");
            assert!(item["id"].is_string());
        }
    }
    // `-` and `.` come before `/`: so do their names before the directory.
    let of_a: Vec<_> = strings(&items, "path").into_iter().filter(|path| path.starts_with("/a")).collect();
    assert_eq!(of_a, ["/a b/", "/a!/", "/a-", "/a-b/", "/a.b", "/a/", "/aa"]);
}

pub(super) async fn page_with_content_has_at_most_20(place: Place) {
    let store = place.store();
    for n in 0..21 {
        store.create(&format!("/{n:02}"), &format!("content {n}")).await;
        store.create(&format!("/d/{n:02}/x"), "deep").await;
    }
    let (memories, versions) = (store.memories(), store.versions());
    for (list, whole) in [
        (format!("{memories}?path_prefix=/&view=full"), 42),
        (format!("{memories}?path_prefix=/d/&depth=1&view=full"), 21),
        (format!("{versions}?view=full"), 42),
    ] {
        for limit in ["", "&limit=20", "&limit=21", "&limit=100"] {
            let (items, next) = page_of(&place.client.get(&format!("{list}{limit}")).await);
            assert_eq!(items.len(), 20, "{list}{limit}");
            assert!(next.is_some());
        }
        let (items, _) = page_of(&place.client.get(&format!("{list}&limit=19")).await);
        assert_eq!(items.len(), 19, "{list}");
        let all = all(&place.client, &format!("{list}&limit=100")).await;
        assert_eq!(all.len(), whole);
        invalid(&place.client.get(&format!("{list}&limit=101")).await, "limit");
    }
    for item in listed(&store, "view=full").await {
        let path = item["path"].as_str().unwrap();
        let expected = match path[1..].parse::<usize>() {
            Ok(n) => format!("content {n}"),
            Err(_) => "deep".to_owned(),
        };
        assert_eq!(item["content"], expected, "{path}");
    }
}

/// Each list of the only memory, asked for twice, shows it as it is.
async fn assert_first_pages(store: &Store, memory: &Value) {
    for _ in 0..2 {
        for query in ["", "path_prefix=/d/", "path_prefix=/d/&depth=1"] {
            let listed = listed(store, query).await;
            assert_eq!(listed, [store.basic(memory).await], "{query}");
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
    let period = json!({"expires_unused_after": 10 * 86_400});
    ok(&place.client.post(&store.path, &period).await);
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
