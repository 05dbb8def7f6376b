//! Content that moves between the index and an object store.

use keepsake_blobs::BlobStore;

use crate::prelude::*;

with_index_content! {
    uncommitted_write_to_the_old_place_keeps_its_content,
    uncommitted_write_to_the_new_place_keeps_its_content,
    content_written_during_the_removal_is_kept_and_reported,
    move_that_was_interrupted_or_stopped_by_a_server_continues,
    killed_move_keeps_servers_out_for_two_minutes,
    server_that_was_silent_serves_nothing_during_a_move,
}

const TEXTS: [(&str, &str); 4] = [
    ("/memories/a.txt", "one\n"),
    ("/memories/d/b.txt", ""),
    ("/memories/d/c.txt", "caf\u{e9} \u{1f980}\n"),
    ("/memories/e.txt", "five\n"),
];
/// The texts, and that of a deleted file.
const CONTENTS: u64 = 5;

async fn bucket() -> Arc<HookedBlobs> {
    HookedBlobs::new(fresh_s3().await)
}

fn server_on(setup: &TestEngine, bucket: &Arc<HookedBlobs>) -> TestEngine {
    setup.on(engine_on(&setup.index, Some(bucket), &setup.clock, |_| {}))
}

async fn fill(setup: &TestEngine) {
    for (path, text) in TEXTS.into_iter().chain([("/memories/deleted.txt", "deleted")]) {
        setup.create(path, text).await;
    }
    setup.call(delete("/memories/deleted.txt")).await;
}

async fn assert_has(server: &TestEngine, texts: &[(&str, &str)]) {
    for (path, text) in texts {
        assert_eq!(server.text_at(path).await, *text, "{path}");
    }
}

/// Moves content when the servers of the test have ended.
async fn try_move(setup: &TestEngine, job: &BlobMove) -> Result<MoveReport, MoveError> {
    let (moved, ended) = stopped_move(setup, job).await;
    ended.map(|()| moved)
}

/// The same, with what a move that failed did before.
async fn stopped_move(setup: &TestEngine, job: &BlobMove) -> (MoveReport, Result<(), MoveError>) {
    setup.clock.advance(2 * MINUTE);
    let mut moved = MoveReport::default();
    let ended = job.run(2, &mut moved, |_| {}).await;
    (moved, ended)
}

fn to_bucket(setup: &TestEngine, bucket: &Arc<HookedBlobs>) -> BlobMove {
    let (bucket, clock) = (Arc::clone(bucket), Arc::clone(&setup.clock));
    BlobMove::new(setup.index.clone(), None, Some(bucket), clock)
}

fn to_index(setup: &TestEngine, bucket: &Arc<HookedBlobs>) -> BlobMove {
    let (bucket, clock) = (Arc::clone(bucket), Arc::clone(&setup.clock));
    BlobMove::new(setup.index.clone(), Some(bucket), None, clock)
}

async fn put_up_fence(setup: &TestEngine) -> MoveFence {
    setup.clock.advance(2 * MINUTE);
    let clock: Arc<dyn Clock> = setup.clock.clone();
    MoveFence::put_up(setup.index.clone(), clock).await.unwrap()
}

/// Moves content between the put and the commit of a write.
async fn move_during_a_write(
    setup: &TestEngine,
    server: &TestEngine,
    bucket: &HookedBlobs,
    job: &BlobMove,
) -> MoveReport {
    let (is_put, may_go) = (Arc::<Notify>::default(), Arc::<Notify>::default());
    let (reached, released) = (Arc::clone(&is_put), Arc::clone(&may_go));
    bucket.after_put(once(async move {
        reached.notify_one();
        released.notified().await;
    }));
    let moving = async {
        is_put.notified().await;
        let moved = try_move(setup, job).await;
        may_go.notify_one();
        moved.unwrap()
    };
    let (_, moved) = tokio::join!(server.create("/memories/b.txt", "two"), moving);
    moved
}

async fn uncommitted_write_to_the_old_place_keeps_its_content(setup: TestEngine) {
    let bucket = bucket().await;
    let server = server_on(&setup, &bucket);
    server.create("/memories/a.txt", "one").await;
    let job = to_index(&setup, &bucket);
    let moved = move_during_a_write(&setup, &server, &bucket, &job).await;
    assert_eq!((moved.copied, moved.removed), (1, 2), "{moved:?}");
    // The write was repeated with a new blob.
    assert_has(&server_on(&setup, &bucket), &[("/memories/b.txt", "two")]).await;

    let moved = try_move(&setup, &job).await.unwrap();
    assert_eq!((moved.copied, moved.removed), (1, 1), "{moved:?}");
    assert_has(&setup.elsewhere(), &[("/memories/a.txt", "one"), ("/memories/b.txt", "two")]).await;
}

async fn uncommitted_write_to_the_new_place_keeps_its_content(setup: TestEngine) {
    setup.create("/memories/a.txt", "one").await;
    let bucket = bucket().await;
    let (server, job) = (server_on(&setup, &bucket), to_bucket(&setup, &bucket));
    let moved = move_during_a_write(&setup, &server, &bucket, &job).await;
    assert_eq!((moved.copied, moved.removed), (1, 2), "{moved:?}");
    let after = server_on(&setup, &bucket);
    assert_has(&after, &[("/memories/a.txt", "one"), ("/memories/b.txt", "two")]).await;
}

async fn content_written_during_the_removal_is_kept_and_reported(setup: TestEngine) {
    const NEW: (&str, &str) = ("/memories/new.txt", "new");
    fill(&setup).await;
    let bucket = bucket().await;
    try_move(&setup, &to_bucket(&setup, &bucket)).await.unwrap();
    let server = server_on(&setup, &bucket);
    bucket.before_delete(once(async move {
        server.create(NEW.0, NEW.1).await;
    }));
    let job = to_index(&setup, &bucket);
    let (moved, stopped) = stopped_move(&setup, &job).await;
    assert!(matches!(stopped, Err(MoveError::ContentWritten)), "{stopped:?}");
    assert_eq!((moved.copied, moved.removed), (CONTENTS, CONTENTS), "{moved:?}");
    assert_has(&server_on(&setup, &bucket), &[NEW]).await;

    let moved = try_move(&setup, &job).await.unwrap();
    assert_eq!((moved.copied, moved.removed), (1, 1), "{moved:?}");
    let after = setup.elsewhere();
    assert_has(&after, &TEXTS).await;
    assert_has(&after, &[NEW]).await;
}

async fn move_that_was_interrupted_or_stopped_by_a_server_continues(setup: TestEngine) {
    fill(&setup).await;
    let bucket = bucket().await;
    let puts = AtomicUsize::new(0);
    bucket.before_put(move |_| {
        let is_stopped = puts.fetch_add(1, Ordering::Relaxed) >= 2;
        ready(if is_stopped { unavailable() } else { Ok(()) })
    });
    let job = to_bucket(&setup, &bucket);
    assert!(try_move(&setup, &job).await.is_err());
    assert_eq!(setup.blobs_there().await.len(), 5, "originals stay until all is copied");
    let there = bucket.list(None, None, 10).await.unwrap().len() as u64;
    assert!((1..=2).contains(&there), "{there}");

    let another_starts = || {
        let another = setup.clone();
        once(async move {
            let now = another.now();
            another.index.replicas.beat(Uuid::from_u128(7), "all", now, now).await.unwrap();
        })
    };
    bucket.before_put(another_starts());
    let (moved, stopped) = stopped_move(&setup, &job).await;
    assert!(matches!(stopped, Err(MoveError::ServerStarted)), "{stopped:?}");
    assert!(!moved.has_begun_removal);
    assert_eq!((moved.present, moved.copied, moved.removed), (there, CONTENTS - there, 0));
    assert_eq!(setup.blobs_there().await.len(), 5);
    for removed in [CONTENTS, 0] {
        let moved = try_move(&setup, &job).await.unwrap();
        assert_eq!((moved.present, moved.copied, moved.removed), (CONTENTS, 0, removed));
    }
    assert_eq!(setup.blobs_there().await, []);

    bucket.before_delete(another_starts());
    let (moved, stopped) = stopped_move(&setup, &to_index(&setup, &bucket)).await;
    assert!(matches!(stopped, Err(MoveError::ServerStarted)), "{stopped:?}");
    assert!(moved.has_begun_removal);
    assert_has(&setup.elsewhere(), &TEXTS).await;
}

async fn killed_move_keeps_servers_out_for_two_minutes(setup: TestEngine) {
    let fence = put_up_fence(&setup).await;
    setup.clock.advance(119 * SECOND);
    assert_eq!(setup.elsewhere().engine.replica.may_serve().await, !setup.index.is_shared());
    setup.clock.advance(SECOND);
    let server = setup.elsewhere().engine;
    assert!(server.replica.may_serve().await);
    server.replica.flush().await.unwrap();
    // A process that was only stopped, and goes on.
    let resumed = fence.hold().await;
    assert!(matches!(resumed, Err(MoveError::ServerStarted)), "{resumed:?}");
}

async fn server_that_was_silent_serves_nothing_during_a_move(setup: TestEngine) {
    let (key, replica) = (setup.key_with(&Scope::ALL, None).await, &setup.engine.replica);
    replica.flush().await.unwrap();
    let fence = put_up_fence(&setup).await;
    replica.flush().await.unwrap();
    let answer = setup.engine.auth.authenticate(&key).await;
    if setup.index.is_shared() {
        assert!(matches!(answer, Err(EngineError::CutOff)), "{answer:?}");
        fence.hold().await.expect("it sends no heartbeat");
    }
    fence.take_down(&Value::Null, None).await;
    // The content may be elsewhere now.
    let answer = setup.engine.auth.authenticate(&key).await;
    assert_eq!(answer.is_err(), setup.index.is_shared(), "{answer:?}");
}
