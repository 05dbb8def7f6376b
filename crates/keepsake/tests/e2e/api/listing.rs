//! Lists of memories: order, prefixes, depth, pages.

use serde_json::{Value, json};

use super::support::{Place, Store, all, invalid, page_of, strings};

/// With names that sort otherwise by letters, by segments or by case.
const PATHS: [&str; 22] = [
    "/ space",
    "/%41",
    "/.hidden",
    "/.hidden-dir/x",
    "/0",
    "/A",
    "/Z/a",
    "/a b/c",
    "/a!/c",
    "/a-",
    "/a-b/x",
    "/a.b",
    "/a/a/1",
    "/a/a/2",
    "/a/a-/3",
    "/a/á",
    "/aa",
    "/b",
    "/node_modules/y",
    "/z",
    "/~",
    "/é",
];

fn paths() -> Vec<String> {
    let mut paths = PATHS.map(str::to_owned).to_vec();
    paths.sort();
    paths
}

async fn filled(place: &Place) -> (Store, Vec<String>) {
    let store = place.store();
    let paths = paths();
    // Made in another order than they are listed.
    for path in paths
        .iter()
        .skip(1)
        .step_by(2)
        .chain(paths.iter().step_by(2).rev())
    {
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
        assert_eq!(item, {
            let at = format!("{}?view=basic", store.memory(&item));
            store.client.get(&at).await.json()
        });
    }
}

pub(super) async fn prefix_matches_whole_segments(place: Place) {
    let (store, paths) = filled(&place).await;
    for prefix in [
        "/",
        "/a/",
        "/a/a/",
        "/a-b/",
        "/a b/",
        "/.hidden-dir/",
        "/Z/",
        "/node_modules/",
    ] {
        let expected = below(&paths, prefix);
        assert!(!expected.is_empty());
        for limit in [1, 3, 100] {
            let query = format!("path_prefix={}&limit={limit}", encoded(prefix));
            assert_eq!(listed_paths(&store, &query).await, expected, "{query}");
            let query = format!("{query}&depth=1");
            assert_eq!(
                listed_paths(&store, &query).await,
                children(&paths, prefix),
                "{query}"
            );
        }
    }
    // Files are no directories, case matters, nothing is somewhere.
    for prefix in [
        "/b/",
        "/A/",
        "/z/a/",
        "/a/á/",
        "/a/a/1/",
        "/nothing/at/all/",
        "/%41/",
    ] {
        for depth in [0, 1] {
            let query = format!("path_prefix={}&depth={depth}", encoded(prefix));
            assert_eq!(listed_paths(&store, &query).await, [""; 0], "{query}");
        }
    }
}

pub(super) async fn prefix_is_not_a_pattern(place: Place) {
    let store = place.store();
    let paths = [
        "/a%/1", "/a*/1", "/aXb/1", "/a[b]/1", "/a\\b/1", "/a_b/1", "/ab/1", "/é/1",
    ];
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
    for prefix in [
        "",
        "a",
        "a/",
        "/a",
        "/a/b",
        "//",
        "/a//",
        "//a/",
        "/./",
        "/a/../",
        "/a\0/",
        "/a\u{200b}/",
        "/e\u{301}/",
    ] {
        for depth in ["", "&depth=1"] {
            let query = format!("path_prefix={}{depth}", encoded(prefix));
            let list = format!("{}?{query}", store.memories());
            invalid(&place.client.get(&list).await, "path_prefix");
        }
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
    let of_a: Vec<_> = strings(&items, "path")
        .into_iter()
        .filter(|path| path.starts_with("/a"))
        .collect();
    assert_eq!(of_a, ["/a b/", "/a!/", "/a-", "/a-b/", "/a.b", "/a/", "/aa"]);
}

pub(super) async fn pages_of_any_size_make_the_same_list(place: Place) {
    let (store, paths) = filled(&place).await;
    let count = paths.len();
    for depth in [0, 1] {
        let expected = if depth == 0 {
            paths.clone()
        } else {
            children(&paths, "/")
        };
        for limit in [1, 2, 3, 5, count - 1, count, count + 1, 100] {
            let query = format!("depth={depth}&limit={limit}");
            let mut shown = Vec::new();
            let mut page = String::new();
            loop {
                let list = format!("{}?{query}{page}", store.memories());
                let (items, next) = page_of(&place.client.get(&list).await);
                let is_full = items.len() == limit;
                shown.extend(strings(&items, "path"));
                let Some(next) = next else {
                    break;
                };
                assert!(is_full, "a page of {} before another one", items.len());
                page = format!("&page={next}");
            }
            assert_eq!(shown, expected, "{query}");
        }
    }
}

pub(super) async fn page_with_content_has_at_most_20(place: Place) {
    let store = place.store();
    for n in 0..21 {
        store.create(&format!("/{n:02}"), &format!("content {n}")).await;
        store.create(&format!("/d/{n:02}/x"), "deep").await;
    }
    for (list, whole) in [
        (format!("{}?path_prefix=/&view=full", store.memories()), 42),
        (
            format!("{}?path_prefix=/d/&depth=1&view=full", store.memories()),
            21,
        ),
        (format!("{}?view=full", store.versions()), 42),
    ] {
        for limit in ["", "&limit=20", "&limit=21", "&limit=100"] {
            let (items, next) = page_of(&place.client.get(&format!("{list}{limit}")).await);
            assert_eq!(items.len(), 20, "{list}{limit}");
            assert!(next.is_some());
        }
        let (items, _) = page_of(&place.client.get(&format!("{list}&limit=19")).await);
        assert_eq!(items.len(), 19, "{list}");
        assert_eq!(
            all(&place.client, &format!("{list}&limit=100")).await.len(),
            whole
        );
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
