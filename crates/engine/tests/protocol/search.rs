//! Search: results follow every write on every replica, and equal those of a newly
//! built index.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keepsake_core::{MemoryId, MemoryPath};
use keepsake_engine::jobs::{IndexMemories, RunOutcome, RunRequest};
use keepsake_engine::{Engine, Page, SearchHit, SearchQuery, ShownMemory};
use keepsake_search::{Postings, Query, Row};
use keepsake_testkit::Seed;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::Config;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::test_engine::{TestEngine, edit_of};
use crate::writes::move_head;

crate::on_both_databases! {
    memories_of_an_earlier_release_are_indexed_by_the_job,
    search_indexes_memories_of_an_earlier_release,
    any_history_is_searched_like_a_new_index,
    concurrent_first_searches_load_a_store_once,
}

crate::on_backend! { sqlite, in_the_process, store_larger_than_the_cache_is_searched, }

crate::with_object_store! {
    hit_that_changes_meanwhile_shows_the_content_that_was_found,
}

fn asked(query: &str) -> SearchQuery {
    SearchQuery { query: query.to_owned(), ..SearchQuery::default() }
}

async fn search_on(engine: &Engine, setup: &TestEngine, query: &SearchQuery) -> Page<SearchHit> {
    engine.search.find(&setup.principal, &[setup.store_id], query).await.unwrap()
}

async fn paths_on(engine: &Engine, setup: &TestEngine, query: &str) -> Vec<String> {
    let page = search_on(engine, setup, &asked(query)).await;
    page.items.into_iter().map(|hit| hit.path.to_string()).collect()
}

async fn paths(setup: &TestEngine, query: &str) -> Vec<String> {
    paths_on(&setup.engine, setup, query).await
}

async fn hit_that_changes_meanwhile_shows_the_content_that_was_found(setup: TestEngine) {
    let other = setup.replica();
    setup.create("/memories/a.txt", "an apple\n").await;
    let (index, blobs) = (setup.index.clone(), Arc::clone(setup.blobs.inner()));
    let (tenant_id, store_id) = (setup.principal.tenant_id, setup.store_id);
    setup.blobs.before_get(move |_| {
        let (index, blobs) = (index.clone(), Arc::clone(&blobs));
        async move {
            move_head(&index, &*blobs, tenant_id, store_id).await;
            Ok(())
        }
    });
    let page = search_on(&other, &setup, &asked("apple")).await;
    setup.blobs.clear_hooks();
    assert_eq!(page.items[0].snippet, "an ⟦apple⟧\n");
    assert_eq!(paths_on(&other, &setup, "apple").await, Vec::<String>::new());
}

/// Only on Postgres: a standby that was behind takes over while replicas run on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn search_follows_a_restored_database() {
    const TABLES: [&str; 5] = ["store", "memory", "version", "directory", "search_doc"];
    let setup = TestEngine::postgres_and_s3().await;
    let restore = async || {
        for table in TABLES {
            setup.as_owner(&format!("DELETE FROM {table}")).await;
            setup.as_owner(&format!("INSERT INTO {table} SELECT * FROM saved_{table}")).await;
        }
    };
    setup.make("/kept.md", "zebra").await;
    for table in TABLES {
        setup.as_owner(&format!("CREATE TABLE saved_{table} AS SELECT * FROM {table}")).await;
    }
    setup.make("/lost.md", "zebra").await;
    assert_eq!(paths(&setup, "zebra").await, ["/kept.md", "/lost.md"]);
    restore().await;
    assert_eq!(paths(&setup, "zebra").await, ["/kept.md"]);

    // This time the new history is longer than the lost one before it is searched.
    setup.make("/lost.md", "zebra").await;
    assert_eq!(paths(&setup, "zebra").await, ["/kept.md", "/lost.md"]);
    restore().await;
    for path in ["/new.md", "/newer.md"] {
        setup.make(path, "zebra").await;
    }
    assert_eq!(paths(&setup, "zebra").await, ["/kept.md", "/new.md", "/newer.md"]);
}

async fn run_index(setup: &TestEngine, dry_run: bool) -> Value {
    setup.clock.advance(Duration::from_micros(1));
    let request = RunRequest::manual(dry_run);
    match setup.engine.jobs.run(Arc::new(IndexMemories), request, &CancellationToken::new()).await.unwrap() {
        RunOutcome::Ran(counts) => counts,
        other => panic!("{other:?}"),
    }
}

/// Writes the only memory as a release without search does.
async fn move_the_head(setup: &TestEngine) {
    let (index, blobs) = (&setup.index, &**setup.blobs.inner());
    move_head(index, blobs, setup.principal.tenant_id, setup.store_id).await;
}

async fn memories_of_an_earlier_release_are_indexed_by_the_job(setup: TestEngine) {
    let other = setup.replica();
    setup.create("/memories/a.txt", "one\n").await;
    assert_eq!(paths_on(&other, &setup, "one").await, ["/a.txt"]);
    move_the_head(&setup).await;
    let dry = run_index(&setup, true).await;
    assert_eq!(dry["would_index"], 1, "{dry}");
    let stopping = CancellationToken::new();
    stopping.cancel();
    setup.clock.advance(Duration::from_hours(24));
    let stopped = setup.engine.jobs.run(Arc::new(IndexMemories), RunRequest::SCHEDULED, &stopping).await;
    assert!(matches!(stopped, Ok(RunOutcome::Ran(_))), "{stopped:?}");
    let counts = run_index(&setup, false).await;
    assert_eq!((&counts["indexed"], &counts["failed"]), (&json!(0), &json!(0)));
    for engine in [&setup.engine, &other] {
        assert_eq!(paths_on(engine, &setup, "moved after").await, ["/a.txt"]);
    }
}

async fn store_larger_than_the_cache_is_searched(setup: TestEngine) {
    let other = setup.replica_with(|options| options.search_cache_bytes = 1_000);
    for number in 0..3 {
        setup.make(&format!("/{number}.md"), &format!("zebra number{number}")).await;
        let found = paths_on(&other, &setup, "zebra").await;
        assert_eq!(found.len(), number + 1);
        assert_eq!(found, paths(&setup, "zebra").await);
    }
}

async fn search_indexes_memories_of_an_earlier_release(setup: TestEngine) {
    setup.create("/memories/a.txt", "one\n").await;
    assert_eq!(paths(&setup, "one").await, ["/a.txt"]);
    move_the_head(&setup).await;
    assert_eq!(paths(&setup, "one").await, [""; 0], "its content is another");
    assert_eq!(paths(&setup, "one a.txt").await, ["/a.txt"], "by its path");
    let is_found = async { while paths(&setup, "moved after").await.is_empty() {} };
    tokio::time::timeout(Duration::from_mins(1), is_found).await.unwrap();
    assert_eq!(run_index(&setup, false).await["indexed"], 0);
}

/// What is done to one of a few memories.
#[derive(Debug, Clone)]
enum Step {
    Write(usize, String),
    Move(usize, String),
    Delete(usize),
    Search(&'static str),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let words = prop::sample::select(vec![
        "deploy",
        "deployed",
        "server",
        "retry_count",
        "the",
        "went",
        "部署服务",
        "서버를",
        "キャッシュ",
        "membaca",
    ]);
    let text = prop::collection::vec(words, 1..15).prop_map(|words| words.join(" "));
    let step = prop_oneof![
        5 => (0_usize..8, text).prop_map(|(which, text)| Step::Write(which, text)),
        2 => (0_usize..8, "[a-c]/(deploy|notes|server)").prop_map(|(which, path)| Step::Move(which, path)),
        1 => (0_usize..8).prop_map(Step::Delete),
        4 => prop::sample::select(vec![
            "deploy", "the server went down", "部署", "\"retry count\" -membaca", "서버", "dep* キャッシュ", "path:a/ baca",
        ]).prop_map(Step::Search),
    ];
    prop::collection::vec(step, 40)
}

/// The hits of a newly built index.
fn expected(memories: &BTreeMap<usize, (ShownMemory, String)>, query: &str) -> Vec<(MemoryId, String, f64)> {
    let mut postings = Postings::default();
    for (memory, content) in memories.values() {
        let head = &memory.memory.head;
        let path = MemoryPath::parse(head.path.as_str()).unwrap();
        postings.set(head.memory_id, path, Some(Row::of(content).into_bytes().into())).unwrap();
    }
    let found = postings.search(&Query::parse(query).unwrap(), None, 50, |_, _| true).found;
    found.into_iter().map(|found| (found.memory, found.path.to_string(), found.score)).collect()
}

async fn any_history_is_searched_like_a_new_index(setup: TestEngine) {
    let replicas = [setup.replica(), setup.replica()];
    let seed = Seed::new();
    let mut runner = seed.runner(Config::default());
    let steps = steps().new_tree(&mut runner).unwrap().current();
    let mut memories: BTreeMap<usize, (ShownMemory, String)> = BTreeMap::new();
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Write(which, text) => {
                let shown = match memories.get(which) {
                    Some((memory, _)) => setup.update(memory, edit_of(Some(text), None, None)).await.unwrap(),
                    None => setup.make(&format!("/new/{which}.md"), text).await,
                };
                memories.insert(*which, (shown, text.clone()));
            }
            Step::Move(which, place) => {
                if let Some((memory, _)) = memories.get_mut(which) {
                    let place = format!("/{place}{which}");
                    *memory = setup.update(memory, edit_of(None, Some(&place), None)).await.unwrap();
                }
            }
            Step::Delete(which) => {
                if let Some((memory, _)) = memories.remove(which) {
                    setup.delete(&memory, None).await.unwrap();
                }
            }
            Step::Search(text) => {
                let mut query = asked(text);
                query.page.limit = Some(50);
                let page = search_on(&replicas[number % 2], &setup, &query).await;
                let found: Vec<_> = page
                    .items
                    .into_iter()
                    .map(|hit| (hit.memory_id, hit.path.to_string(), hit.score))
                    .collect();
                assert_eq!(found, expected(&memories, text), "{text} after {steps:?}");
            }
        }
    }
}

async fn concurrent_first_searches_load_a_store_once(setup: TestEngine) {
    for number in 0..80 {
        setup.make(&format!("/n/{number:02}.md"), &format!("tea number {number}")).await;
    }
    let searches = (0..16).map(|_| paths(&setup, "tea 7"));
    for found in futures::future::join_all(searches).await {
        assert_eq!(found[0], "/n/07.md");
        assert_eq!(found.len(), 10);
    }
    // All postings are made beside; nothing is found otherwise by them.
    for _ in 0..50 {
        assert_eq!(paths(&setup, "tea 7").await[0], "/n/07.md");
    }
}
