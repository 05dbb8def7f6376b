//! Search: results follow every write on every replica, and equal those of a newly
//! built index.

use keepsake_core::MemoryId;
use keepsake_engine::SearchPage;
use keepsake_engine::jobs::IndexMemories;
use keepsake_search::{Postings, Query, TermRow};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::Config;

use crate::prelude::*;
use crate::writes::move_head;

crate::on_both_databases! {
    memories_of_an_earlier_release_are_indexed_by_searches_and_the_job,
    any_history_is_searched_like_a_new_index,
}

crate::with_object_store! { hit_that_changes_meanwhile_shows_the_content_that_was_found, }

fn asked(query: &str) -> SearchQuery {
    SearchQuery { query: query.to_owned(), ..SearchQuery::default() }
}

async fn search(setup: &TestEngine, query: &SearchQuery) -> SearchPage {
    setup.engine.search.find(&setup.principal, &[setup.store_id], query).await.unwrap()
}

async fn paths(setup: &TestEngine, query: &str) -> Vec<String> {
    let page = search(setup, &asked(query)).await;
    page.items.into_iter().map(|hit| hit.path.to_string()).collect()
}

async fn hit_that_changes_meanwhile_shows_the_content_that_was_found(setup: TestEngine) {
    let (other, moved) = (setup.elsewhere(), setup.clone());
    setup.create("/memories/a.txt", "an apple\n").await;
    setup.blobs.before_get(once(async move { move_head(&moved).await }));
    let page = search(&other, &asked("apple")).await;
    assert_eq!(page.items[0].snippet, "an ⟦apple⟧\n");
    assert_eq!(paths(&other, "apple").await, Vec::<String>::new());
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

async fn memories_of_an_earlier_release_are_indexed_by_searches_and_the_job(setup: TestEngine) {
    let other = setup.elsewhere();
    setup.create("/memories/a.txt", "one\n").await;
    assert_eq!(paths(&other, "one").await, ["/a.txt"]);
    move_head(&setup).await;
    assert_eq!(setup.dry_run(IndexMemories).await["would_index"], 1);
    setup.clock.advance(DAY);
    setup.run_stopped(IndexMemories).await;
    let counts = setup.run(IndexMemories).await;
    assert_eq!((&counts["indexed"], &counts["failed"]), (&json!(0), &json!(0)));
    for engine in [&setup, &other] {
        assert_eq!(paths(engine, "moved after").await, ["/a.txt"]);
    }
    move_head(&setup).await;
    assert_eq!(paths(&setup, "moved").await, [""; 0], "not yet");
    assert_eq!(paths(&setup, "moved a.txt").await, ["/a.txt"], "by its path");
    let is_found = async { while paths(&setup, "moved after").await.is_empty() {} };
    tokio::time::timeout(MINUTE, is_found).await.unwrap();
    assert_eq!(setup.run(IndexMemories).await["indexed"], 0);
}

const WORDS: &str = "deploy deployed server retry_count the went 部署服务 서버를 キャッシュ membaca";
const QUERIES: &str =
    "deploy|the server went down|部署|\"retry count\" -membaca|서버|dep* キャッシュ|path:a/ baca";

/// What is done with one of a few memories: a number decides it.
type Step = (u8, usize, String, String, &'static str);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let words = prop::sample::select(WORDS.split(' ').collect::<Vec<_>>());
    let queries = prop::sample::select(QUERIES.split('|').collect::<Vec<_>>());
    let text = prop::collection::vec(words, 1..15).prop_map(|words| words.join(" "));
    prop::collection::vec((0_u8..12, 0_usize..8, text, "[a-c]/(deploy|notes|server)", queries), 40)
}

fn expected(memories: &BTreeMap<usize, (ShownMemory, String)>, query: &str) -> Vec<(MemoryId, String, f64)> {
    let mut postings = Postings::default();
    for (memory, content) in memories.values() {
        let head = &memory.memory.head;
        let path = MemoryPath::parse(head.path.as_str()).unwrap();
        postings.set(head.memory_id, path, Some(TermRow::of(content).into_bytes().into())).unwrap();
    }
    let found = postings.search(&Query::parse(query).unwrap(), None, 50, |_, _| true).found;
    found.into_iter().map(|found| (found.memory, found.path.to_string(), found.score)).collect()
}

async fn any_history_is_searched_like_a_new_index(setup: TestEngine) {
    let replicas = [setup.elsewhere(), setup.elsewhere()];
    let seed = Seed::new();
    let steps = steps().new_tree(&mut seed.runner(Config::default())).unwrap().current();
    let mut memories: BTreeMap<usize, (ShownMemory, String)> = BTreeMap::new();
    for (number, (kind, which, text, place, query)) in steps.iter().enumerate() {
        match (*kind, memories.get(which)) {
            (0..5, Some((memory, _))) => {
                let edited = setup.update(memory, edit_of(Some(text), None, None)).await.unwrap();
                memories.insert(*which, (edited, text.clone()));
            }
            (0..5, None) => {
                let made = setup.make(&format!("/new/{which}.md"), text).await;
                memories.insert(*which, (made, text.clone()));
            }
            (5..7, Some((memory, text))) => {
                let to = edit_of(None, Some(&format!("/{place}{which}")), None);
                let (moved, text) = (setup.update(memory, to).await.unwrap(), text.clone());
                memories.insert(*which, (moved, text));
            }
            (7, Some((memory, _))) => {
                setup.delete(memory).await;
                memories.remove(which);
            }
            (5..8, None) => {}
            _ => {
                let mut asked = asked(query);
                asked.page.limit = Some(50);
                let hits = search(&replicas[number % 2], &asked).await.items.into_iter();
                let found = hits.map(|hit| (hit.memory_id, hit.path.to_string(), hit.score));
                let expected = expected(&memories, query);
                assert_eq!(found.collect::<Vec<_>>(), expected, "{query} after {steps:?}");
            }
        }
    }
}
