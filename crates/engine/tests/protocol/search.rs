//! Search: results follow every write on every replica, and equal those of a newly
//! built index.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keepsake_core::limits::LimitOverrides;
use keepsake_core::{MemoryId, MemoryPath, StoreId};
use keepsake_engine::jobs::{IndexMemories, RunOutcome, RunRequest};
use keepsake_engine::{
    Engine, EngineError, ErasureRequest, Page, PageRequest, Principal, Restoration, SearchHit, SearchQuery,
    ShownMemory, StoreDraft, View,
};
use keepsake_search::{Postings, Query, Row};
use keepsake_testkit::Seed;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::Config;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::test_engine::{TestEngine, create, edit_of};
use crate::writes::move_head;

crate::on_both_databases! {
    memory_is_found_after_its_write_and_not_after_its_deletion,
    every_replica_finds_what_another_wrote,
    moved_and_restored_memories_are_found_at_their_new_paths,
    erased_memories_are_not_found,
    hit_shows_the_best_passage_and_counts_as_a_read,
    damaged_content_hides_no_other_hits,
    pages_hold_every_hit_once,
    stores_are_searched_together,
    ties_across_stores_are_ordered_by_store,
    all_stores_of_a_credential_are_searched_and_no_others,
    stores_to_search_are_chosen_by_id,
    search_of_too_many_stores_is_refused_by_field,
    queries_that_break_a_rule_are_refused_by_field,
    store_of_another_tenant_is_not_found,
    memories_of_an_earlier_release_are_indexed_by_the_job,
    search_indexes_memories_of_an_earlier_release,
    any_history_is_searched_like_a_new_index,
    store_larger_than_the_cache_is_searched,
    concurrent_first_searches_load_a_store_once,
}

crate::with_object_store! {
    hit_that_changes_meanwhile_shows_the_content_that_was_found,
}

fn asked(query: &str) -> SearchQuery {
    SearchQuery {
        query: query.to_owned(),
        ..SearchQuery::default()
    }
}

async fn search_on(engine: &Engine, setup: &TestEngine, query: &SearchQuery) -> Page<SearchHit> {
    engine
        .search
        .find(&setup.principal, &[setup.store_id], query)
        .await
        .unwrap()
}

async fn paths_on(engine: &Engine, setup: &TestEngine, query: &str) -> Vec<String> {
    let page = search_on(engine, setup, &asked(query)).await;
    page.items.into_iter().map(|hit| hit.path.to_string()).collect()
}

async fn paths(setup: &TestEngine, query: &str) -> Vec<String> {
    paths_on(&setup.engine, setup, query).await
}

async fn memory_is_found_after_its_write_and_not_after_its_deletion(setup: TestEngine) {
    assert_eq!(paths(&setup, "zebra").await, Vec::<String>::new());
    let memory = setup.make("/notes/a.md", "a zebra crossed the road").await;
    assert_eq!(paths(&setup, "zebras").await, ["/notes/a.md"]);
    setup
        .update(&memory, edit_of(Some("a giraffe did"), None, None))
        .await
        .unwrap();
    assert_eq!(paths(&setup, "zebra").await, Vec::<String>::new());
    assert_eq!(paths(&setup, "giraffe").await, ["/notes/a.md"]);
    setup.create("/memories/b.md", "and another giraffe\n").await;
    setup.call(json!({"command": "str_replace", "path": "/memories/b.md", "old_str": "another", "new_str": "a tall"}))
        .await;
    assert_eq!(paths(&setup, "\"tall giraffe\"").await, ["/b.md"]);
    setup
        .call(json!({"command": "delete", "path": "/memories/notes"}))
        .await;
    assert_eq!(paths(&setup, "giraffe").await, ["/b.md"]);
    assert_eq!(paths(&setup, "notes").await, Vec::<String>::new());
}

async fn every_replica_finds_what_another_wrote(setup: TestEngine) {
    let other = setup.replica();
    assert_eq!(paths_on(&other, &setup, "first").await, Vec::<String>::new());
    let memory = setup.make("/a.md", "the first text").await;
    assert_eq!(paths_on(&other, &setup, "first").await, ["/a.md"]);
    setup
        .call_on(&other, None, create("/memories/b.md", "the first of another"))
        .await
        .unwrap();
    assert_eq!(paths(&setup, "another").await, ["/b.md"]);
    setup.delete(&memory, None).await.unwrap();
    assert_eq!(paths_on(&other, &setup, "first").await, ["/b.md"]);
    let both = (
        search_on(&setup.engine, &setup, &asked("first text")).await,
        search_on(&other, &setup, &asked("first text")).await,
    );
    assert_eq!(both.0, both.1);
}

async fn moved_and_restored_memories_are_found_at_their_new_paths(setup: TestEngine) {
    let memory = setup.make("/drafts/plan.md", "quarterly numbers").await;
    let edited = setup
        .update(&memory, edit_of(Some("yearly numbers"), None, None))
        .await
        .unwrap();
    setup
        .call(json!({"command": "rename", "old_path": "/memories/drafts", "new_path": "/memories/final"}))
        .await;
    assert_eq!(paths(&setup, "drafts").await, Vec::<String>::new());
    assert_eq!(paths(&setup, "final").await, ["/final/plan.md"]);
    assert_eq!(paths(&setup, "yearly path:final/").await, ["/final/plan.md"]);
    setup.delete(&edited, None).await.unwrap();
    assert_eq!(paths(&setup, "numbers").await, Vec::<String>::new());
    let restoration = Restoration {
        precondition: None,
        view: View::Basic,
        idempotency: None,
    };
    let version_id = memory.memory.head.version_id;
    setup
        .engine
        .memories
        .restore(&setup.principal, setup.store_id, version_id, restoration)
        .await
        .unwrap();
    assert_eq!(paths(&setup, "quarterly").await, ["/drafts/plan.md"]);
    assert_eq!(paths(&setup, "yearly").await, Vec::<String>::new());
}

async fn erased_memories_are_not_found(setup: TestEngine) {
    setup.make("/private/a.md", "a secret garden").await;
    setup.make("/public/b.md", "an open garden").await;
    let other = setup.replica();
    assert_eq!(paths_on(&other, &setup, "garden").await.len(), 2);
    let request = ErasureRequest {
        store_id: Some(setup.store_id),
        path_prefix: Some("/private/".to_owned()),
        store_metadata: None,
    };
    setup
        .engine
        .erasures
        .create(&setup.principal, request, None)
        .await
        .unwrap();
    let gone = async {
        while paths_on(&other, &setup, "garden").await.len() == 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), gone)
        .await
        .expect("an erasure ends");
    assert_eq!(paths_on(&other, &setup, "secret garden").await, ["/public/b.md"]);
}

async fn hit_shows_the_best_passage_and_counts_as_a_read(setup: TestEngine) {
    let content = format!(
        "{}\nthe deployment of the Kiel office failed\n",
        "filler\n".repeat(100)
    );
    let memory = setup.make("/log.md", &content).await;
    let page = search_on(&setup.engine, &setup, &asked("why did the Kiel deployment fail?")).await;
    let [hit] = page.items.as_slice() else {
        panic!("{page:?}");
    };
    assert_eq!((hit.memory_id, hit.line), (memory.memory.head.memory_id, 102));
    assert_eq!(hit.content_sha256, memory.memory.head.sha256);
    assert!(
        hit.snippet
            .contains("the ⟦deployment⟧ of the ⟦Kiel⟧ office ⟦failed⟧"),
        "{}",
        hit.snippet
    );
    let read = setup.read(&memory, View::Basic).await;
    assert_eq!(read.last_accessed_at, Some(setup.engine_now()));
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

async fn damaged_content_hides_no_other_hits(setup: TestEngine) {
    setup.make("/a.md", "zebra one").await;
    setup.make("/b.md", "zebra two").await;
    let key = setup.blob_key(&setup.head("/a.md").await.unwrap());
    let blobs = setup.blobs.inner();
    blobs.delete(&key).await.unwrap();
    blobs.put(&key, Bytes::from_static(b"zebra 0ne")).await.unwrap();
    let replica = setup.replica();
    assert_eq!(paths_on(&replica, &setup, "zebra").await, ["/b.md"]);
    // A page is not empty where others follow.
    let mut first = asked("zebra");
    first.page.limit = Some(1);
    let page = search_on(&replica, &setup, &first).await;
    assert_eq!((page.items.len(), page.next), (1, None));
}

async fn pages_hold_every_hit_once(setup: TestEngine) {
    for number in 0..23 {
        setup
            .make(
                &format!("/n/{number:02}.md"),
                &format!("tea {}", "and cake ".repeat(number % 4)),
            )
            .await;
    }
    let whole = search_on(
        &setup.engine,
        &setup,
        &SearchQuery {
            page: PageRequest {
                limit: Some(50),
                page: None,
            },
            ..asked("tea")
        },
    )
    .await;
    assert_eq!((whole.items.len(), &whole.next), (23, &None));
    let (mut query, mut hits) = (asked("tea"), Vec::new());
    query.page.limit = Some(4);
    loop {
        let page = search_on(&setup.engine, &setup, &query).await;
        hits.extend(page.items);
        query.page.page = page.next;
        if query.page.page.is_none() {
            break;
        }
        let of_another_query = SearchQuery {
            query: "cake".to_owned(),
            ..query.clone()
        };
        let refused = setup
            .engine
            .search
            .find(&setup.principal, &[setup.store_id], &of_another_query)
            .await;
        assert!(matches!(refused, Err(EngineError::Invalid { field: "page", .. })));
    }
    assert_eq!(hits, whole.items);
}

async fn second_store(setup: &TestEngine) -> StoreId {
    let draft = StoreDraft {
        name: "second".to_owned(),
        ..StoreDraft::default()
    };
    let store = setup
        .engine
        .stores
        .create(&setup.principal, draft, None)
        .await
        .unwrap();
    store.store_id
}

async fn stores_are_searched_together(setup: TestEngine) {
    let second = second_store(&setup).await;
    for (store_id, path) in [
        (setup.store_id, "/one.md"),
        (second, "/two.md"),
        (second, "/one.md"),
    ] {
        let new = crate::test_engine::new_memory(path, "the same text");
        setup
            .engine
            .memories
            .create(&setup.principal, store_id, new)
            .await
            .unwrap();
    }
    let mut query = asked("same");
    query.page.limit = Some(1);
    let mut found = Vec::new();
    loop {
        let stores = [second, setup.store_id];
        let page = setup
            .engine
            .search
            .find(&setup.principal, &stores, &query)
            .await
            .unwrap();
        found.extend(
            page.items
                .into_iter()
                .map(|hit| (hit.store_id, hit.path.to_string())),
        );
        query.page.page = page.next;
        if query.page.page.is_none() {
            break;
        }
    }
    found.sort();
    let mut expected = vec![
        (setup.store_id, "/one.md".to_owned()),
        (second, "/one.md".to_owned()),
        (second, "/two.md".to_owned()),
    ];
    expected.sort();
    assert_eq!(found, expected);
    let none = setup
        .engine
        .search
        .find(&setup.principal, &[], &asked("same"))
        .await
        .unwrap();
    assert_eq!(none.items, []);
}

/// Equal scores come in the order of the stores' ids, then by path.
async fn ties_across_stores_are_ordered_by_store(setup: TestEngine) {
    let second = second_store(&setup).await;
    for (store_id, paths) in [(setup.store_id, ["/y.md", "/z.md"]), (second, ["/a.md", "/b.md"])] {
        for path in paths {
            let new = crate::test_engine::new_memory(path, "the same text");
            setup
                .engine
                .memories
                .create(&setup.principal, store_id, new)
                .await
                .unwrap();
        }
    }
    let first = [(setup.store_id, "/y.md"), (setup.store_id, "/z.md")];
    let other = [(second, "/a.md"), (second, "/b.md")];
    let expected = if setup.store_id < second {
        [first, other]
    } else {
        [other, first]
    }
    .concat();
    for stores in [[setup.store_id, second], [second, setup.store_id]] {
        for limit in [1, 3, 50] {
            let mut query = asked("same");
            query.page.limit = Some(limit);
            let mut found = Vec::new();
            loop {
                let page = setup
                    .engine
                    .search
                    .find(&setup.principal, &stores, &query)
                    .await
                    .unwrap();
                found.extend(page.items);
                query.page.page = page.next;
                if query.page.page.is_none() {
                    break;
                }
            }
            let scores: Vec<_> = found.iter().map(|hit| hit.score.to_bits()).collect();
            assert!(
                scores.iter().all(|score| *score == scores[0]),
                "no tie: {found:?}"
            );
            let order: Vec<_> = found
                .iter()
                .map(|hit| (hit.store_id, hit.path.as_str()))
                .collect();
            assert_eq!(order, expected, "{limit} a page");
        }
    }
}

/// Creates a memory with the text `zebra` in a store.
async fn make_zebra(setup: &TestEngine, principal: &Arc<Principal>, store_id: StoreId, path: &str) {
    let new = crate::test_engine::new_memory(path, "a zebra");
    setup
        .engine
        .memories
        .create(principal, store_id, new)
        .await
        .unwrap();
}

/// The stores and paths of all hits, page by page.
async fn everywhere(
    setup: &TestEngine,
    principal: &Principal,
    chosen: &[StoreId],
    mut query: SearchQuery,
) -> Result<Vec<(StoreId, String)>, EngineError> {
    query.page.limit = Some(1);
    let mut found = Vec::new();
    loop {
        let search = &setup.engine.search;
        let page = search.find_everywhere(principal, chosen, &query).await?;
        let hits = page.items.into_iter();
        found.extend(hits.map(|hit| (hit.store_id, hit.path.to_string())));
        query.page.page = page.next;
        if query.page.page.is_none() {
            return Ok(found);
        }
    }
}

async fn all_stores_of_a_credential_are_searched_and_no_others(setup: TestEngine) {
    let (archived, deleted) = (second_store(&setup).await, second_store(&setup).await);
    let (stranger, strangers) = setup.tenant_with(LimitOverrides::default()).await;
    for store_id in [setup.store_id, archived, deleted] {
        make_zebra(&setup, &setup.principal, store_id, "/a.md").await;
    }
    make_zebra(&setup, &setup.principal, setup.store_id, "/notes/b.md").await;
    make_zebra(&setup, &stranger, strangers, "/theirs.md").await;
    let stores = &setup.engine.stores;
    stores.archive(&setup.principal, archived).await.unwrap();
    stores.delete(&setup.principal, deleted).await.unwrap();

    let found = everywhere(&setup, &setup.principal, &[], asked("zebra"))
        .await
        .unwrap();
    let mut expected = vec![
        (setup.store_id, "/a.md".to_owned()),
        (setup.store_id, "/notes/b.md".to_owned()),
        (archived, "/a.md".to_owned()),
    ];
    expected.sort();
    assert_eq!(
        {
            let mut found = found;
            found.sort();
            found
        },
        expected
    );
    let below = SearchQuery {
        path_prefix: Some("/notes/".to_owned()),
        ..asked("zebra")
    };
    let found = everywhere(&setup, &setup.principal, &[], below).await.unwrap();
    assert_eq!(found, [(setup.store_id, "/notes/b.md".to_owned())]);
    let found = everywhere(&setup, &stranger, &[], asked("zebra")).await.unwrap();
    assert_eq!(found, [(strangers, "/theirs.md".to_owned())]);

    let bound = setup.principal_bound_to(vec![archived, deleted]).await;
    let found = everywhere(&setup, &bound, &[], asked("zebra")).await.unwrap();
    assert_eq!(found, [(archived, "/a.md".to_owned())]);
    let refused = everywhere(&setup, &bound, &[archived, setup.store_id], asked("zebra")).await;
    assert!(matches!(refused, Err(EngineError::StoreNotFound)), "{refused:?}");
}

async fn stores_to_search_are_chosen_by_id(setup: TestEngine) {
    let second = second_store(&setup).await;
    for store_id in [setup.store_id, second] {
        make_zebra(&setup, &setup.principal, store_id, "/a.md").await;
    }
    let found = everywhere(&setup, &setup.principal, &[second, second], asked("zebra")).await;
    assert_eq!(found.unwrap(), [(second, "/a.md".to_owned())]);
    let (_, strangers) = setup.tenant_with(LimitOverrides::default()).await;
    let unknown = StoreId::from_uuid(uuid::Uuid::from_u128(1));
    for other in [strangers, unknown] {
        let refused = everywhere(&setup, &setup.principal, &[second, other], asked("zebra")).await;
        assert!(matches!(refused, Err(EngineError::StoreNotFound)), "{refused:?}");
    }
    let mut query = asked("zebra");
    query.page.limit = Some(1);
    let search = &setup.engine.search;
    let first = search
        .find_everywhere(&setup.principal, &[], &query)
        .await
        .unwrap();
    query.page.page = first.next;
    assert!(query.page.page.is_some());
    let refused = search.find_everywhere(&setup.principal, &[second], &query).await;
    assert!(
        matches!(refused, Err(EngineError::Invalid { field: "page", .. })),
        "a cursor of other stores: {refused:?}"
    );
    // A store that is created meanwhile does not end the pages.
    second_store(&setup).await;
    let next = search
        .find_everywhere(&setup.principal, &[], &query)
        .await
        .unwrap();
    assert_eq!((next.items.len(), next.next), (1, None));
}

async fn search_of_too_many_stores_is_refused_by_field(setup: TestEngine) {
    let mut stores = vec![setup.store_id];
    for _ in 0..100 {
        stores.push(second_store(&setup).await);
    }
    make_zebra(&setup, &setup.principal, setup.store_id, "/a.md").await;
    for chosen in [&stores[..], &[]] {
        let refused = everywhere(&setup, &setup.principal, chosen, asked("zebra")).await;
        assert!(
            matches!(
                refused,
                Err(EngineError::Invalid {
                    field: "memory_store_ids",
                    ..
                })
            ),
            "{refused:?}"
        );
    }
    let found = everywhere(&setup, &setup.principal, &stores[..100], asked("zebra")).await;
    assert_eq!(found.unwrap().len(), 1);
}

/// Only on Postgres: a standby that was behind takes over while replicas run on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn search_follows_a_restored_database() {
    const TABLES: [&str; 5] = ["store", "memory", "version", "directory", "search_doc"];
    let setup = TestEngine::postgres_and_s3().await;
    let restore = async || {
        for table in TABLES {
            setup.as_owner(&format!("DELETE FROM {table}")).await;
            setup
                .as_owner(&format!("INSERT INTO {table} SELECT * FROM saved_{table}"))
                .await;
        }
    };
    setup.make("/kept.md", "zebra").await;
    for table in TABLES {
        setup
            .as_owner(&format!("CREATE TABLE saved_{table} AS SELECT * FROM {table}"))
            .await;
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

async fn queries_that_break_a_rule_are_refused_by_field(setup: TestEngine) {
    let with = |limit, path_prefix: Option<&str>, query: &str| SearchQuery {
        path_prefix: path_prefix.map(str::to_owned),
        page: PageRequest { limit, page: None },
        ..asked(query)
    };
    for (query, wanted) in [
        (with(Some(0), None, "a"), "limit"),
        (with(Some(51), None, "a"), "limit"),
        (with(None, Some("/a"), "a"), "path_prefix"),
        (with(None, None, &"é".repeat(1_001)), "query"),
    ] {
        match setup
            .engine
            .search
            .find(&setup.principal, &[setup.store_id], &query)
            .await
        {
            Err(EngineError::Invalid { field, .. }) => assert_eq!(field, wanted),
            other => panic!("{other:?}"),
        }
    }
    setup.make("/a.md", "text").await;
    for empty in ["", "  ", "\"\"", "-text", "?"] {
        assert_eq!(paths(&setup, empty).await, Vec::<String>::new(), "{empty}");
    }
    for odd in ["\"", "text\"", "\"text", "te*xt", "path:", "-", "text -", "*"] {
        search_on(&setup.engine, &setup, &asked(odd)).await;
    }
}

async fn store_of_another_tenant_is_not_found(setup: TestEngine) {
    setup.make("/a.md", "text").await;
    assert_eq!(paths(&setup, "text").await, ["/a.md"]);
    let (stranger, _) = setup
        .tenant_with(keepsake_core::limits::LimitOverrides::default())
        .await;
    let crossed = setup
        .engine
        .search
        .find(&stranger, &[setup.store_id], &asked("text"))
        .await;
    assert!(matches!(crossed, Err(EngineError::StoreNotFound)));
    setup
        .engine
        .stores
        .delete(&setup.principal, setup.store_id)
        .await
        .unwrap();
    let gone = setup
        .engine
        .search
        .find(&setup.principal, &[setup.store_id], &asked("text"))
        .await;
    assert!(matches!(gone, Err(EngineError::StoreNotFound)));
}

async fn run_index(setup: &TestEngine, dry_run: bool) -> Value {
    setup.clock.advance(Duration::from_micros(1));
    let request = RunRequest::manual(dry_run);
    match setup
        .engine
        .jobs
        .run(Arc::new(IndexMemories), request, &CancellationToken::new())
        .await
        .unwrap()
    {
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
    let stopped = setup
        .engine
        .jobs
        .run(Arc::new(IndexMemories), RunRequest::SCHEDULED, &stopping)
        .await;
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
        setup
            .make(&format!("/{number}.md"), &format!("zebra number{number}"))
            .await;
        let found = paths_on(&other, &setup, "zebra").await;
        assert_eq!(found.len(), number + 1);
        assert_eq!(found, paths(&setup, "zebra").await);
    }
}

async fn search_indexes_memories_of_an_earlier_release(setup: TestEngine) {
    setup.create("/memories/a.txt", "one\n").await;
    assert_eq!(paths(&setup, "one").await, ["/a.txt"]);
    move_the_head(&setup).await;
    assert_eq!(paths(&setup, "one a.txt").await, ["/a.txt"], "by its path");
    let is_found = async { while paths(&setup, "moved after").await.is_empty() {} };
    tokio::time::timeout(Duration::from_mins(1), is_found)
        .await
        .unwrap();
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
        postings
            .set(head.memory_id, path, Some(Row::of(content).into_bytes().into()))
            .unwrap();
    }
    let found = postings
        .search(&Query::parse(query).unwrap(), None, 50, |_, _| true)
        .found;
    found
        .into_iter()
        .map(|found| (found.memory, found.path.to_string(), found.score))
        .collect()
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
                    Some((memory, _)) => setup
                        .update(memory, edit_of(Some(text), None, None))
                        .await
                        .unwrap(),
                    None => setup.make(&format!("/new/{which}.md"), text).await,
                };
                memories.insert(*which, (shown, text.clone()));
            }
            Step::Move(which, place) => {
                if let Some((memory, _)) = memories.get_mut(which) {
                    let place = format!("/{place}{which}");
                    *memory = setup
                        .update(memory, edit_of(None, Some(&place), None))
                        .await
                        .unwrap();
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
        setup
            .make(&format!("/n/{number:02}.md"), &format!("tea number {number}"))
            .await;
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
