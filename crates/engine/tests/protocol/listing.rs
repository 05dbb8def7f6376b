//! Any listing, page by page, is what a plain look at all paths would list,
//! also while others come and go between the pages.

use std::collections::BTreeSet;

use keepsake_engine::{EngineError, MemoryQuery, PageRequest, ShownItem, View};
use keepsake_testkit::Seed;
use proptest::prelude::*;
use proptest::test_runner::Config;
use tokio::runtime::Handle;

use crate::test_engine::TestEngine;

crate::on_both_databases! {
    any_listing_is_complete_and_in_order,
    listing_of_a_path_has_the_memory_there_or_nothing,
}

async fn listing_of_a_path_has_the_memory_there_or_nothing(setup: TestEngine) {
    setup.make("/a/b.md", "text").await;
    let list = async |query: MemoryQuery| {
        let (engine, principal) = (&setup.engine, &setup.principal);
        let listed = engine
            .memories
            .list(principal, setup.store_id, &query, View::Full)
            .await;
        listed.map(|page| page.items)
    };
    let at = |path: &str| MemoryQuery {
        path: Some(path.to_owned()),
        ..MemoryQuery::default()
    };
    let found = list(at("/a/b.md")).await.unwrap();
    let [ShownItem::Memory(memory)] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!(memory.content.as_deref(), Some("text"));
    for nothing in ["/a", "/a/c.md", "/b.md"] {
        assert_eq!(list(at(nothing)).await.unwrap(), [], "{nothing}");
    }
    let both = MemoryQuery {
        depth: Some(1),
        ..at("/a/b.md")
    };
    for refused in [both, at("a/b.md")] {
        let error = list(refused).await.unwrap_err();
        assert!(
            matches!(error, EngineError::Invalid { field: "path", .. }),
            "{error:?}"
        );
    }
}

/// Trees that are tried.
const CASES: u32 = 12;

#[derive(Debug, Clone)]
struct Tree {
    stay: BTreeSet<String>,
    come_or_go: Vec<String>,
    prefix: String,
    depth: u64,
    limit: u64,
}

fn any_path() -> impl Strategy<Value = String> {
    // Names around the slash in byte order, hidden ones, and more than ASCII.
    let segment = prop::sample::select(vec!["a", "a!", "a-", "a.b", "a0", "b", ".h", "node_modules", "é"]);
    prop::collection::vec(segment, 1..=4).prop_map(|segments| format!("/{}", segments.join("/")))
}

fn any_tree() -> impl Strategy<Value = Tree> {
    let prefix = prop_oneof![
        Just("/".to_owned()),
        any_path().prop_map(|path| format!("{path}/")),
        Just("/a/".to_owned())
    ];
    (
        prop::collection::btree_set(any_path(), 0..40),
        prop::collection::vec(any_path(), 0..10),
        prefix,
        0_u64..=1,
        1_u64..=7,
    )
        .prop_map(|(stay, come_or_go, prefix, depth, limit)| Tree {
            stay,
            come_or_go,
            prefix,
            depth,
            limit,
        })
}

/// The expected items of a listing, computed from all paths.
fn listed<'a>(paths: impl Iterator<Item = &'a String>, prefix: &str, depth: u64) -> Vec<String> {
    let below = paths.filter_map(|path| Some((path, path.strip_prefix(prefix)?)));
    let items: BTreeSet<_> = below
        .map(|(path, rest)| match rest.split_once('/') {
            Some((directory, _)) if depth == 1 => format!("{prefix}{directory}/"),
            _ => path.clone(),
        })
        .collect();
    items.into_iter().collect()
}

async fn make(setup: &TestEngine, path: &str) -> bool {
    match setup.try_make(crate::test_engine::new_memory(path, "x")).await {
        Ok(_) => true,
        Err(EngineError::PathConflict { .. }) => false,
        Err(error) => panic!("{error:?}"),
    }
}

async fn remove(setup: &TestEngine, path: &str) {
    let head = setup.head(path).await.unwrap();
    setup
        .engine
        .memories
        .delete(&setup.principal, setup.store_id, head.memory_id, None)
        .await
        .unwrap();
}

async fn is_listed_whole(setup: &TestEngine, tree: Tree) {
    let mut there = BTreeSet::new();
    for path in &tree.stay {
        if make(setup, path).await {
            there.insert(path.clone());
        }
    }
    let mut passing: BTreeSet<String> = BTreeSet::new();
    let mut changes = tree.come_or_go.iter().cycle();
    let mut shown = Vec::new();
    let mut page = None;
    loop {
        let query = MemoryQuery {
            path: None,
            path_prefix: Some(tree.prefix.clone()),
            depth: Some(tree.depth),
            page: PageRequest {
                limit: Some(tree.limit),
                page: page.take(),
            },
        };
        let answer = setup
            .engine
            .memories
            .list(&setup.principal, setup.store_id, &query, View::Basic)
            .await
            .unwrap();
        assert!(answer.items.len() as u64 <= tree.limit);
        assert!(
            answer.next.is_none() || !answer.items.is_empty(),
            "an empty page leads on"
        );
        shown.extend(answer.items.iter().map(|item| match item {
            ShownItem::Memory(shown) => shown.memory.head.path.as_str().to_owned(),
            ShownItem::Prefix(path) => path.as_str().to_owned(),
        }));
        let Some(next) = answer.next else {
            break;
        };
        page = Some(next);
        // A memory outside the permanent ones is created or deleted between two pages.
        if let Some(path) = changes.next() {
            if passing.remove(path) {
                remove(setup, path).await;
            } else if !there.contains(path) && make(setup, path).await {
                passing.insert(path.clone());
            }
        }
    }
    let sorted: BTreeSet<_> = shown.iter().cloned().collect();
    assert!(shown.iter().eq(&sorted), "twice or out of order: {shown:?}");
    let stayed = listed(there.iter(), &tree.prefix, tree.depth);
    let missing: Vec<_> = stayed.iter().filter(|path| !sorted.contains(*path)).collect();
    assert!(missing.is_empty(), "not listed: {missing:?} of {tree:?}");
    let ever: BTreeSet<_> = listed(there.iter().chain(&tree.come_or_go), &tree.prefix, tree.depth)
        .into_iter()
        .collect();
    let invented: Vec<_> = sorted.difference(&ever).collect();
    assert!(
        invented.is_empty(),
        "listed but never there: {invented:?} of {tree:?}"
    );

    for path in there.iter().chain(&passing) {
        remove(setup, path).await;
    }
}

async fn any_listing_is_complete_and_in_order(setup: TestEngine) {
    let runtime = Handle::current();
    let tried = tokio::task::spawn_blocking(move || {
        let config = Config {
            cases: CASES,
            failure_persistence: None,
            max_shrink_iters: 100,
            ..Config::default()
        };
        let seed = Seed::new();
        let tried = seed.runner(config).run(&any_tree(), |tree| {
            runtime.block_on(is_listed_whole(&setup, tree));
            Ok(())
        });
        tried.unwrap_or_else(|failure| panic!("{failure}"));
    });
    tried.await.unwrap();
}
