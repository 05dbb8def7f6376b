//! Search by meaning: hits follow each write, and words are enough without vectors.

use keepsake_embeddings::{Embedder, EndpointConfig};
use keepsake_testkit::{
    EMBEDDINGS_DIMENSIONS, EMBEDDINGS_KEY, EMBEDDINGS_MODEL, EmbeddingsFault, EmbeddingsServer,
};
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection};
use tokio::task::JoinHandle;

use crate::prelude::*;

on_both_databases! {
    moved_edited_and_deleted_memories_are_found_by_what_they_are_now,
    long_memory_shows_the_passage_that_was_meant,
    lexical_store_has_no_vectors_and_sends_nothing,
    vectors_of_removed_history_are_not_written,
    pages_of_words_and_meaning_have_each_hit_once,
    page_after_a_fused_one_is_scored_alike_or_refused,
    new_model_takes_over_when_its_vectors_are_complete,
    store_whose_vectors_do_not_fit_is_searched_by_words,
    tenants_take_turns,
}

with_object_store! { failed_turn_is_tried_again_and_a_refused_or_lost_text_is_left_out, }

/// Words of equal meaning.
const CONCEPTS: &[&[&str]] = &[
    &["terse", "short", "brief"],
    &["umbrella", "rain"],
    &["invoice", "bill"],
    &["garden", "plants"],
    &["bicycle", "cycling"],
    &["piano", "music"],
    &["bread", "bakery"],
    &["mountain", "summit"],
];

/// One memory of each concept, in words that no query here has.
const TEXTS: [(&str, &str); 8] = [
    ("/style.md", "prefers terse replies\n"),
    ("/weather.md", "took an umbrella\n"),
    ("/money.md", "paid the invoice\n"),
    ("/green.md", "waters the garden\n"),
    ("/travel.md", "came by bicycle\n"),
    ("/sound.md", "plays piano\n"),
    ("/food.md", "bakes bread\n"),
    ("/hills.md", "climbs a mountain\n"),
];

const ALL_MEANT: SearchMeaning = SearchMeaning { used: true, pending: 0, reason: None };

/// Another prefix makes another model.
fn embedder(server: &EmbeddingsServer, document_prefix: &str) -> Arc<Embedder> {
    let config = EndpointConfig {
        url: server.url().to_owned(),
        model: EMBEDDINGS_MODEL.to_owned(),
        key: Some(EMBEDDINGS_KEY.into()),
        dimensions: EMBEDDINGS_DIMENSIONS,
        query_prefix: String::new(),
        document_prefix: document_prefix.to_owned(),
    };
    Arc::new(Embedder::endpoint(config).unwrap())
}

/// The same on a replica that embeds by this server.
fn meaning_by(server: &EmbeddingsServer, setup: &TestEngine) -> TestEngine {
    setup.elsewhere_with(|options| options.embedder = embedder(server, ""))
}

fn with_a_new_model(server: &EmbeddingsServer, setup: &TestEngine) -> TestEngine {
    setup.elsewhere_with(|options| options.embedder = embedder(server, "passage: "))
}

/// A server, and a replica that embeds by it.
async fn with_meaning(setup: &TestEngine) -> (EmbeddingsServer, TestEngine) {
    let server = EmbeddingsServer::start(CONCEPTS).await;
    let setup = meaning_by(&server, setup);
    (server, setup)
}

/// The memories of all concepts.
async fn make_all(setup: &TestEngine) -> Vec<ShownMemory> {
    let mut made = Vec::new();
    for (path, content) in TEXTS {
        made.push(setup.make(path, content).await);
    }
    made
}

async fn embed_all(setup: &TestEngine) {
    while setup.engine.embeddings.take_turn().await.unwrap() {}
}

pub(crate) fn asked(query: &str) -> SearchQuery {
    SearchQuery { query: query.to_owned(), explain: true, ..SearchQuery::default() }
}

pub(crate) async fn search(setup: &TestEngine, query: &SearchQuery) -> SearchPage {
    setup.engine.search.find(&setup.principal, &[setup.store_id], query).await.unwrap()
}

async fn found(setup: &TestEngine, query: &str) -> SearchPage {
    search(setup, &asked(query)).await
}

/// The best hit, which must have only the meaning of the query.
async fn meant(setup: &TestEngine, query: &str) -> SearchHit {
    let page = found(setup, query).await;
    assert_eq!(page.meaning, ALL_MEANT);
    let hit = page.items.into_iter().next().unwrap();
    let explanation = hit.explanation.unwrap();
    assert!(explanation.lexical <= 0.0, "{hit:?}");
    assert!(explanation.meaning > 0.0, "{hit:?}");
    hit
}

/// The paths of the hits with a score. Those that only fill up a short list have none.
pub(crate) async fn paths(setup: &TestEngine, query: &str) -> Vec<String> {
    let hits = found(setup, query).await.items.into_iter().filter(|hit| hit.score > 0.0);
    hits.map(|hit| hit.path.to_string()).collect()
}

fn lexical(reason: MeaningReason) -> SearchMeaning {
    SearchMeaning { used: false, pending: 0, reason: Some(reason) }
}

async fn moved_edited_and_deleted_memories_are_found_by_what_they_are_now(setup: TestEngine) {
    let (server, setup) = with_meaning(&setup).await;
    let other = meaning_by(&server, &setup);
    let made = make_all(&setup).await;
    embed_all(&setup).await;
    assert_eq!(meant(&other, "short").await.path.as_str(), "/style.md");

    // Of a path, only the file's name is part of the text.
    let sent = || server.texts().iter().filter(|text| text.contains("prefers")).count();
    let (in_notes, sent_before) = ("/notes/style.md", sent());
    let kept = setup.update(&made[0], new_path(in_notes)).await.unwrap();
    assert_eq!(meant(&other, "short").await.path.as_str(), in_notes);
    embed_all(&setup).await;
    assert_eq!(meant(&meaning_by(&server, &setup), "short").await.path.as_str(), in_notes);
    assert_eq!(sent(), sent_before);

    let moved = setup.update(&kept, new_path("/replies.md")).await.unwrap();
    assert_eq!(found(&other, "short").await.meaning.pending, 1);
    assert_eq!(paths(&other, "short").await, [""; 0]);
    embed_all(&setup).await;
    assert_eq!(meant(&other, "short").await.path.as_str(), "/replies.md");

    let edited = setup.update(&moved, new_content("likes cycling\n")).await.unwrap();
    assert_eq!(paths(&other, "short").await, [""; 0]);
    embed_all(&setup).await;
    let on_wheels: BTreeSet<_> = paths(&other, "cycling").await.into_iter().take(2).collect();
    assert_eq!(on_wheels, BTreeSet::from(["/replies.md".to_owned(), "/travel.md".to_owned()]));
    assert!(!paths(&other, "short").await.contains(&"/replies.md".to_owned()));

    assert_eq!(meant(&other, "rain").await.path.as_str(), "/weather.md");
    setup.delete(&made[1]).await;
    setup.delete(&edited).await;
    for replica in [&setup, &other] {
        assert!(!paths(replica, "rain").await.contains(&"/weather.md".to_owned()));
        assert!(!paths(replica, "cycling").await.contains(&"/replies.md".to_owned()));
    }
    embed_all(&setup).await;
    assert_eq!(found(&other, "rain").await.meaning, ALL_MEANT);
}

async fn long_memory_shows_the_passage_that_was_meant(setup: TestEngine) {
    let (_server, setup) = with_meaning(&setup).await;
    make_all(&setup).await;
    let line = "Nothing of note happened on this day, and so nothing is written about it here.\n";
    let before = line.repeat(1_000);
    let long = format!("{before}The reply was brief.\n{}", line.repeat(200));
    setup.make("/diary.md", &long).await;
    embed_all(&setup).await;
    let page = found(&setup, "terse").await;
    let diary = page.items.iter().find(|hit| hit.path.as_str() == "/diary.md").unwrap();
    assert!(diary.snippet.contains("The reply was brief."), "{diary:?}");
    // Chunks are whole lines of at most 600 bytes.
    assert!(diary.line.abs_diff(1_001) < 8, "{diary:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn search_goes_on_by_words_if_vectors_cannot_be_read() {
    let (server, setup) = with_meaning(&TestEngine::sqlite().await).await;
    make_all(&setup).await;
    embed_all(&setup).await;
    let url = format!("sqlite://{}", setup.sqlite_file().display());
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    let without_vectors = SearchMeaning { used: true, pending: 8, reason: None };
    for (table, meaning) in
        [("embedding", without_vectors), ("embedded_store", lexical(MeaningReason::Failed))]
    {
        let rename = format!("ALTER TABLE {table} RENAME TO {table}_of_another_release");
        sqlx::query(AssertSqlSafe(rename)).execute(&mut connection).await.unwrap();
        // This replica has read no vectors yet.
        let page = found(&meaning_by(&server, &setup), "terse").await;
        assert_eq!(page.meaning, meaning, "{table}");
        assert_eq!(page.items[0].path.as_str(), "/style.md");
    }
}

async fn failed_turn_is_tried_again_and_a_refused_or_lost_text_is_left_out(setup: TestEngine) {
    let (server, setup) = with_meaning(&setup).await;
    let made = make_all(&setup).await;
    for fault in [EmbeddingsFault::Unavailable, EmbeddingsFault::TooFewVectors, EmbeddingsFault::NoNumbers] {
        server.fail(fault);
        let failed = setup.engine.embeddings.take_turn().await;
        assert!(matches!(failed, Err(EmbeddingError::Model(_))), "{fault:?}: {failed:?}");
    }
    server.fail(EmbeddingsFault::RefusesText("umbrella"));
    setup.blobs.before_get(fails);
    let failed = setup.engine.embeddings.take_turn().await;
    assert!(matches!(failed, Err(EmbeddingError::Storage(_))), "{failed:?}");
    setup.blobs.clear_hooks();
    assert_eq!(found(&setup, "short").await.meaning, SearchMeaning { pending: 8, ..ALL_MEANT });
    setup.blobs.inner().erase(&setup.blob_key(&made[4].memory.head)).await.unwrap();
    let trip = format!("something umbrellaesque\n{}found a bakery\n", "and so on\n".repeat(100));
    setup.make("/trip.md", &trip).await;
    embed_all(&setup).await;
    server.fail(EmbeddingsFault::None);
    assert_eq!(meant(&setup, "short").await.path.as_str(), "/style.md");
    let hit = &found(&setup, "umbrella").await.items[0];
    assert_eq!((hit.path.as_str(), hit.explanation.unwrap().meaning), ("/weather.md", 0.0));
    assert!(!paths(&setup, "rain").await.contains(&"/weather.md".to_owned()));
    assert!(paths(&setup, "bread").await.contains(&"/trip.md".to_owned()), "its other passage is found");
    // A server may take fewer texts at a time: no text is the cause, and the next requests have fewer.
    setup.make("/boots.md", &format!("took an umbrella\n{}", "and boots\n".repeat(2_500))).await;
    server.fail(EmbeddingsFault::RefusesMoreThan(8));
    embed_all(&setup).await;
    assert_eq!(meant(&setup, "rain").await.path.as_str(), "/boots.md");
    let checks = || server.texts().iter().filter(|text| *text == "keepsake").count();
    let checks_before = checks();
    setup.make("/shoes.md", &"and shoes\n".repeat(2_500)).await;
    embed_all(&setup).await;
    assert_eq!(checks(), checks_before);

    setup.make("/fatal.md", "it ends by this\n").await;
    setup.make("/later.md", "was at the summit\n").await;
    server.fail(EmbeddingsFault::EndsBy("ends by"));
    for _ in 0..5 {
        let failed = setup.engine.embeddings.take_turn().await;
        assert!(matches!(failed, Err(EmbeddingError::Model(_))), "{failed:?}");
    }
    embed_all(&setup).await;
    assert_eq!(found(&setup, "short").await.meaning, ALL_MEANT);
    assert!(paths(&setup, "mountain").await.contains(&"/later.md".to_owned()));
}

async fn set_mode(setup: &TestEngine, mode: Option<SearchMode>) {
    let mode = mode.map(|mode| mode.name().to_owned());
    setup.edit_store(StoreEdit { search_mode: Some(mode), ..StoreEdit::default() }).await;
}

async fn lexical_store_has_no_vectors_and_sends_nothing(setup: TestEngine) {
    let (server, setup) = with_meaning(&setup).await;
    set_mode(&setup, Some(SearchMode::Lexical)).await;
    make_all(&setup).await;
    embed_all(&setup).await;
    let page = found(&setup, "terse").await;
    assert_eq!((page.items.len(), page.meaning), (1, lexical(MeaningReason::LexicalStore)));
    assert_eq!(server.texts(), [""; 0]);

    set_mode(&setup, Some(SearchMode::Hybrid)).await;
    assert_eq!(setup.run(EmbedMemories).await["queued"], 1);
    embed_all(&setup).await;
    assert_eq!(meant(&setup, "short").await.path.as_str(), "/style.md");
    assert_eq!(setup.run(EmbedMemories).await, json!({"queued": 0, "removed": 0, "failed": 0}));

    set_mode(&setup, Some(SearchMode::Lexical)).await;
    assert_eq!(found(&setup, "short").await.meaning, lexical(MeaningReason::LexicalStore));
    assert_eq!(setup.dry_run(EmbedMemories).await["would_remove_from"], 1);
    assert_eq!(setup.run(EmbedMemories).await["removed"], 8);
    set_mode(&setup, None).await;
    for replica in [&setup, &meaning_by(&server, &setup)] {
        assert_eq!(found(replica, "short").await.meaning.pending, 8);
    }
    assert_eq!(setup.run(EmbedMemories).await["queued"], 1);
    embed_all(&setup).await;
    for replica in [&setup, &meaning_by(&server, &setup)] {
        assert_eq!(meant(replica, "short").await.path.as_str(), "/style.md");
    }
}

fn begin_turn(setup: &TestEngine) -> JoinHandle<Result<bool, EmbeddingError>> {
    let embeddings = setup.engine.embeddings.clone();
    tokio::spawn(async move { embeddings.take_turn().await })
}

async fn vectors_of_removed_history_are_not_written(setup: TestEngine) {
    let (server, setup) = with_meaning(&setup).await;
    let made = make_all(&setup).await;
    let edited = setup.update(&made[0], new_content("prefers a short reply\n")).await.unwrap();
    server.fail(EmbeddingsFault::Silent);
    let turn = begin_turn(&setup);
    server.is_asked("a short reply").await;
    setup.delete(&edited).await;
    setup.redact(&edited).await;
    server.fail(EmbeddingsFault::None);
    assert!(turn.await.unwrap().unwrap());
    // The page was claimed before the removal, so all of it is refused.
    assert_eq!(found(&setup, "terse").await.meaning.pending, 7);
    embed_all(&setup).await;
    assert_eq!(found(&setup, "terse").await.meaning.pending, 0);
    assert_eq!(meant(&setup, "rain").await.path.as_str(), "/weather.md");
    assert!(!paths(&setup, "terse").await.contains(&"/style.md".to_owned()));

    // Without a removal of history, only the memory that changed is left out.
    server.fail(EmbeddingsFault::Silent);
    let made = [setup.make("/a.md", "wrote music\n").await, setup.make("/b.md", "found a bakery\n").await];
    let turn = begin_turn(&setup);
    server.is_asked("found a bakery").await;
    setup.update(&made[0], new_content("went to the summit\n")).await.unwrap();
    server.fail(EmbeddingsFault::None);
    assert!(turn.await.unwrap().unwrap());
    assert_eq!(found(&setup, "terse").await.meaning.pending, 1);
    embed_all(&setup).await;
    let on_top: BTreeSet<_> = paths(&setup, "summit").await.into_iter().take(2).collect();
    assert_eq!(on_top, BTreeSet::from(["/a.md".to_owned(), "/hills.md".to_owned()]));
}

/// Memories with the word of a query, with its meaning, and with neither.
async fn make_many(setup: &TestEngine, [words, meanings, others]: [usize; 3]) {
    let kinds =
        [("word", "terse note", words), ("meaning", "a brief entry", meanings), ("other", "rain", others)];
    for (name, text, count) in kinds {
        for number in 0..count {
            setup.make(&format!("/{name}{number}.md"), &format!("{text} {number}\n")).await;
        }
    }
}

async fn pages_of_words_and_meaning_have_each_hit_once(setup: TestEngine) {
    let (_server, setup) = with_meaning(&setup).await;
    let mut lexical_store = setup.clone();
    let draft = StoreDraft { name: "more".to_owned(), ..StoreDraft::default() };
    lexical_store.store_id =
        setup.engine.stores.create(&setup.principal, draft, None).await.unwrap().store_id;
    set_mode(&lexical_store, Some(SearchMode::Lexical)).await;
    for store in [&setup, &lexical_store] {
        make_many(store, [5, 5, 30]).await;
    }
    embed_all(&setup).await;
    let mut query = asked("terse");
    query.page.limit = Some(50);
    let all = setup.engine.search.find_everywhere(&setup.principal, &[], &query).await.unwrap();
    assert_eq!((all.meaning, all.next), (ALL_MEANT, None));
    let is_of = |hit: &&SearchHit, part: &str| hit.path.as_str().contains(part);
    assert_eq!(all.items.iter().filter(|hit| is_of(hit, "word")).count(), 10);
    assert_eq!(all.items.iter().filter(|hit| is_of(hit, "meaning")).count(), 5);
    assert!(all.items.is_sorted_by(|one, next| one.score >= next.score));

    let mut paged = Vec::new();
    query.page.limit = Some(4);
    loop {
        let page = setup.engine.search.find_everywhere(&setup.principal, &[], &query).await.unwrap();
        assert_eq!(page.meaning, ALL_MEANT);
        paged.extend(page.items);
        query.page.page = page.next;
        if query.page.page.is_none() {
            break;
        }
    }
    assert_eq!(paged, all.items);
    // No store has memories there, and none is set to words only.
    query.path_prefix = Some("/none/".to_owned());
    let nothing = setup.engine.search.find_everywhere(&setup.principal, &[], &query).await.unwrap();
    assert_eq!((nothing.items, nothing.meaning), (vec![], ALL_MEANT));
}

async fn page_after_a_fused_one_is_scored_alike_or_refused(setup: TestEngine) {
    let off = setup.clone();
    let (server, setup) = with_meaning(&setup).await;
    make_many(&setup, [12, 2, 50]).await;
    embed_all(&setup).await;
    let mut query = asked("terse");
    let all = search(&setup, &query).await;
    query.page.limit = Some(5);
    let first = search(&setup, &query).await;
    assert_eq!(first.meaning, ALL_MEANT);
    query.page.page = first.next;
    let refused = async |setup: &TestEngine| {
        setup.engine.search.find(&setup.principal, &[setup.store_id], &query).await.unwrap_err()
    };
    for (fault, reason) in [
        (EmbeddingsFault::Unavailable, MeaningReason::Failed),
        (EmbeddingsFault::Silent, MeaningReason::Timeout),
    ] {
        server.fail(fault);
        let error = refused(&setup).await;
        assert!(matches!(error, EngineError::MeaningLost(lost) if lost == reason), "{error:?}");
        assert!(error.to_string().contains("`page`"), "{error}");
    }
    server.fail(EmbeddingsFault::None);
    let other_model = with_a_new_model(&server, &setup);
    other_model.run(EmbedMemories).await;
    embed_all(&other_model).await;
    let error = refused(&other_model).await;
    assert!(matches!(error, EngineError::Invalid { field: "page", .. }), "{error:?}");
    let second = search(&setup, &query).await;
    assert_eq!(second.meaning, ALL_MEANT);
    let paged: Vec<_> = first.items.iter().chain(&second.items).collect();
    assert_eq!(paged, all.items.iter().collect::<Vec<_>>());

    // All pages of a search by words stay so.
    server.fail(EmbeddingsFault::Unavailable);
    query.page.page = None;
    let first = search(&setup, &query).await;
    assert_eq!(first.meaning, lexical(MeaningReason::Failed));
    let without = search(&off, &query).await;
    assert_eq!(without.meaning, lexical(MeaningReason::Off));
    let scores = |page: &SearchPage| page.items.iter().map(|hit| hit.score).collect::<Vec<_>>();
    assert_eq!(scores(&first), scores(&without));
    server.fail(EmbeddingsFault::None);
    query.page.page = first.next;
    let second = search(&setup, &query).await;
    assert_eq!(second.meaning, lexical(MeaningReason::Failed));
    let of_both: BTreeSet<_> = first.items.iter().chain(&second.items).map(|hit| hit.memory_id).collect();
    assert_eq!(of_both.len(), 10);

    query.page.page = None;
    query.page.page = search(&setup, &query).await.next;
    setup.engine.stores.delete(&setup.principal, setup.store_id).await.unwrap();
    let page = setup.engine.search.find(&setup.principal, &[setup.store_id], &query).await;
    let error = page.unwrap_err();
    assert!(matches!(error, EngineError::NotFound(ObjectKind::Store)), "{error:?}");
}

async fn new_model_takes_over_when_its_vectors_are_complete(setup: TestEngine) {
    let (server, old) = with_meaning(&setup).await;
    make_many(&old, [1, 1, 32]).await;
    embed_all(&old).await;
    assert_eq!(setup.run(EmbedMemories).await["queued"], 0, "no model");
    let new = with_a_new_model(&server, &setup);
    assert_eq!(new.dry_run(EmbedMemories).await, json!({"would_queue": 1, "would_remove_from": 0}));
    assert!(!new.engine.embeddings.take_turn().await.unwrap(), "nothing is queued");
    assert_eq!(new.run(EmbedMemories).await["queued"], 1);
    // A turn embeds 32 of the 34 memories.
    for _ in 0..2 {
        let by_words = SearchMeaning { used: false, pending: 34, reason: Some(MeaningReason::Pending) };
        assert_eq!(found(&new, "terse").await.meaning, by_words);
        assert_eq!(paths(&new, "terse").await, ["/word0.md"]);
        assert_eq!(found(&old, "terse").await.meaning, ALL_MEANT);
        assert!(new.engine.embeddings.take_turn().await.unwrap());
    }
    for replica in [&new, &old] {
        assert_eq!(found(replica, "terse").await.meaning, ALL_MEANT);
        assert!(paths(replica, "terse").await.contains(&"/meaning0.md".to_owned()));
    }
    // A later write makes the vectors incomplete, and search by meaning goes on.
    new.make("/later.md", "a brief entry\n").await;
    assert_eq!(found(&new, "terse").await.meaning, SearchMeaning { pending: 1, ..ALL_MEANT });
    setup.clock.advance(2 * HOUR);
    assert_eq!(new.run(EmbedMemories).await["removed"], 34);
}

async fn store_whose_vectors_do_not_fit_is_searched_by_words(setup: TestEngine) {
    let (server, setup) = with_meaning(&setup).await;
    make_all(&setup).await;
    embed_all(&setup).await;
    let mut sizes = [0, 0];
    for search_cache_bytes in (1_000..31_000).step_by(1_000) {
        let small = setup.elsewhere_with(|options| {
            options.embedder = embedder(&server, "");
            options.search_cache_bytes = search_cache_bytes;
        });
        let page = found(&small, "terse").await;
        assert_eq!(page.items[0].path.as_str(), "/style.md");
        assert_eq!(found(&small, "terse").await, page);
        let has_vectors = page.meaning.used;
        assert_eq!(page.meaning, if has_vectors { ALL_MEANT } else { lexical(MeaningReason::TooLarge) });
        assert_eq!(has_vectors, page.items[0].explanation.unwrap().meaning > 0.0);
        sizes[usize::from(has_vectors)] += 1;
    }
    assert!(sizes.iter().all(|caches| *caches > 3), "{sizes:?}");
}

async fn tenants_take_turns(setup: TestEngine) {
    let (_server, large) = with_meaning(&setup).await;
    let small = large.of_tenant_with(json!({})).await;
    let make_more = async |kind: &str| {
        for number in 0..100 {
            large.make(&format!("/{kind}{number}.md"), "took an umbrella\n").await;
        }
    };
    // More than the two turns of a large tenant, before and after the changes of a small one.
    make_more("before").await;
    make_all(&small).await;
    for is_first in [true, false] {
        for _ in 0..2 {
            assert!(large.engine.embeddings.take_turn().await.unwrap());
        }
        assert_eq!(meant(&small, "short").await.path.as_str(), "/style.md");
        assert!(found(&large, "short").await.meaning.pending > 0);
        embed_all(&large).await;
        if is_first {
            small.make("/more.md", "went cycling\n").await;
            make_more("after").await;
        }
    }
}
