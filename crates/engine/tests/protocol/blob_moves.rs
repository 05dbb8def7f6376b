//! Content that moves between the index and an object store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use keepsake_blobs::{BlobError, BlobStore};
use keepsake_core::BlobKey;
use keepsake_engine::{BlobMove, Clock, Engine, EngineError, MoveError, MoveFence, Moved, NewKey};
use keepsake_index::Scope;
use keepsake_testkit::{HookedBlobs, fresh_s3};
use serde_json::{Value, json};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::test_engine::{TestEngine, create, engine_on, tool_call};

const TEXTS: [(&str, &str); 4] = [
    ("/memories/a.txt", "one\n"),
    ("/memories/d/b.txt", ""),
    ("/memories/d/c.txt", "caf\u{e9} \u{1f980}\n"),
    ("/memories/e.txt", "five\n"),
];
/// The texts and the version before an edit; a rename brings no content.
const CONTENTS: u64 = 5;

async fn bucket() -> Arc<HookedBlobs> {
    HookedBlobs::new(fresh_s3().await)
}

async fn fill(setup: &TestEngine) {
    for (path, text) in TEXTS {
        setup.create(path, text).await;
    }
    let edit =
        json!({"command": "str_replace", "path": "/memories/e.txt", "old_str": "five", "new_str": "5"});
    setup.call(edit).await;
    let rename = json!({"command": "rename", "old_path": "/memories/a.txt", "new_path": "/memories/z.txt"});
    setup.call(rename).await;
}

/// Reads everything in an engine with empty caches.
async fn assert_readable(setup: &TestEngine, engine: &Engine) {
    for (path, text) in [
        ("/memories/z.txt", "one\n"),
        ("/memories/d/b.txt", ""),
        ("/memories/d/c.txt", "caf\u{e9} \u{1f980}\n"),
        ("/memories/e.txt", "5\n"),
    ] {
        assert_eq!(setup.text_at(engine, path).await, text, "{path}");
    }
}

/// Moves content when the servers of the test have ended.
async fn try_move(setup: &TestEngine, job: &BlobMove) -> Result<Moved, MoveError> {
    let (moved, ended) = stopped_move(setup, job).await;
    ended.map(|()| moved)
}

/// The same, with what a move that failed did before.
async fn stopped_move(setup: &TestEngine, job: &BlobMove) -> (Moved, Result<(), MoveError>) {
    setup.clock.advance(Duration::from_mins(2));
    let mut moved = Moved::default();
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

async fn put_up_fence(setup: &TestEngine) -> Result<MoveFence, MoveError> {
    let clock: Arc<dyn Clock> = setup.clock.clone();
    MoveFence::put_up(setup.index.clone(), clock).await
}

async fn in_index(setup: &TestEngine) -> usize {
    setup.index.contents.list(None, None, 100).await.unwrap().len()
}

async fn interrupted_move_continues(setup: TestEngine) {
    fill(&setup).await;
    let bucket = bucket().await;
    let puts = Arc::new(AtomicUsize::new(0));
    bucket.before_put(move |_| {
        let number = puts.fetch_add(1, Ordering::Relaxed);
        async move {
            if number < 2 { Ok(()) } else { Err(BlobError::Unavailable("stopped by the test".to_owned())) }
        }
    });
    let job = to_bucket(&setup, &bucket);
    assert!(try_move(&setup, &job).await.is_err());
    assert_eq!(in_index(&setup).await, 5, "originals stay until all is copied");
    bucket.clear_hooks();
    let there = bucket.list(None, None, 10).await.unwrap().len() as u64;
    assert!((1..=2).contains(&there), "{there}");
    let moved = try_move(&setup, &job).await.unwrap();
    assert_eq!((moved.present, moved.copied), (there, CONTENTS - there));
    assert_eq!(in_index(&setup).await, 0);
    let again = try_move(&setup, &job).await.unwrap();
    assert_eq!((again.present, again.copied, again.removed), (CONTENTS, 0, 0));
}

/// A write whose content is in the bucket and whose commit waits.
struct HeldWrite {
    is_put: Arc<Notify>,
    may_go: Arc<Notify>,
}

impl HeldWrite {
    /// Holds the next write to `bucket`.
    fn next_of(bucket: &HookedBlobs) -> Self {
        let (is_put, may_go) = (Arc::<Notify>::default(), Arc::<Notify>::default());
        let held = Self { is_put: Arc::clone(&is_put), may_go: Arc::clone(&may_go) };
        bucket.after_put(move |_| {
            let (is_put, may_go) = (Arc::clone(&is_put), Arc::clone(&may_go));
            async move {
                is_put.notify_one();
                may_go.notified().await;
                Ok(())
            }
        });
        held
    }

    /// Makes `job` move content between the put and the commit of `create`.
    async fn around(
        self,
        setup: &TestEngine,
        (server, bucket): (&Engine, &HookedBlobs),
        job: &BlobMove,
        create: Value,
    ) -> Moved {
        let moving = async {
            self.is_put.notified().await;
            let moved = try_move(setup, job).await;
            bucket.clear_hooks();
            self.may_go.notify_one();
            moved
        };
        let (written, moved) = tokio::join!(setup.call_on(server, None, create), moving);
        let answer = written.unwrap();
        assert!(!answer.is_error, "{}", answer.content);
        moved.unwrap()
    }
}

async fn uncommitted_write_to_the_old_place_keeps_its_content(setup: TestEngine) {
    let bucket = bucket().await;
    let server = engine_on(&setup.index, Some(&bucket), &setup.clock, |_| {});
    let before = create("/memories/a.txt", "one");
    setup.call_on(&server, None, before).await.unwrap();
    let job = to_index(&setup, &bucket);
    let held = HeldWrite::next_of(&bucket);
    let meanwhile = create("/memories/b.txt", "two");
    let moved = held.around(&setup, (&server, &*bucket), &job, meanwhile).await;
    assert_eq!((moved.copied, moved.removed), (1, 2), "{moved:?}");
    // The write was repeated with a new blob.
    let unmoved = engine_on(&setup.index, Some(&bucket), &setup.clock, |_| {});
    assert_eq!(setup.text_at(&unmoved, "/memories/b.txt").await, "two");

    let moved = try_move(&setup, &job).await.unwrap();
    assert_eq!((moved.copied, moved.removed), (1, 1), "{moved:?}");
    let after = engine_on(&setup.index, None, &setup.clock, |_| {});
    for (path, text) in [("/memories/a.txt", "one"), ("/memories/b.txt", "two")] {
        assert_eq!(setup.text_at(&after, path).await, text);
    }
}

async fn uncommitted_write_to_the_new_place_keeps_its_content(setup: TestEngine) {
    setup.create("/memories/a.txt", "one").await;
    let bucket = bucket().await;
    let server = engine_on(&setup.index, Some(&bucket), &setup.clock, |_| {});
    let held = HeldWrite::next_of(&bucket);
    // The puts of the move are not held.
    let (to, clock) = (Arc::clone(bucket.inner()), Arc::clone(&setup.clock));
    let job = BlobMove::new(setup.index.clone(), None, Some(to), clock);
    let meanwhile = create("/memories/b.txt", "two");
    let moved = held.around(&setup, (&server, &*bucket), &job, meanwhile).await;
    assert_eq!((moved.copied, moved.removed), (1, 2), "{moved:?}");
    let after = engine_on(&setup.index, Some(&bucket), &setup.clock, |_| {});
    for (path, text) in [("/memories/a.txt", "one"), ("/memories/b.txt", "two")] {
        assert_eq!(setup.text_at(&after, path).await, text);
    }
}

async fn content_written_during_the_removal_is_kept_and_reported(setup: TestEngine) {
    fill(&setup).await;
    let bucket = bucket().await;
    try_move(&setup, &to_bucket(&setup, &bucket)).await.unwrap();
    let server = engine_on(&setup.index, Some(&bucket), &setup.clock, |_| {});
    let (principal, store_id) = (Arc::clone(&setup.principal), setup.store_id);
    let has_written = Arc::new(AtomicBool::new(false));
    bucket.before_delete(move |_| {
        let (server, principal) = (server.clone(), Arc::clone(&principal));
        let is_first = !has_written.swap(true, Ordering::Relaxed);
        async move {
            if is_first {
                let call = tool_call(None, create("/memories/new.txt", "new"));
                let written = server.tools.memory.call(&principal, store_id, call).await;
                assert!(!written.unwrap().is_error);
            }
            Ok(())
        }
    });
    let job = to_index(&setup, &bucket);
    let (moved, stopped) = stopped_move(&setup, &job).await;
    assert!(matches!(stopped, Err(MoveError::ContentWritten)), "{stopped:?}");
    assert_eq!((moved.copied, moved.removed), (CONTENTS, CONTENTS), "{moved:?}");
    bucket.clear_hooks();
    let unmoved = engine_on(&setup.index, Some(&bucket), &setup.clock, |_| {});
    assert_eq!(setup.text_at(&unmoved, "/memories/new.txt").await, "new");

    let moved = try_move(&setup, &job).await.unwrap();
    assert_eq!((moved.copied, moved.removed), (1, 1), "{moved:?}");
    let after = engine_on(&setup.index, None, &setup.clock, |_| {});
    assert_readable(&setup, &after).await;
    assert_eq!(setup.text_at(&after, "/memories/new.txt").await, "new");
}

/// A hook that sends the heartbeat of another server.
fn heartbeat_of_another(
    setup: &TestEngine,
) -> impl Fn(&BlobKey) -> BoxFuture<'static, Result<(), BlobError>> + use<> {
    let (index, clock) = (setup.index.clone(), Arc::clone(&setup.clock));
    move |_| {
        let (index, now) = (index.clone(), clock.now());
        Box::pin(async move {
            let beat = index.replicas.beat(Uuid::from_u128(7), "all", now, now);
            beat.await.unwrap();
            Ok(())
        })
    }
}

async fn server_that_starts_during_the_copy_stops_the_move(setup: TestEngine) {
    fill(&setup).await;
    let bucket = bucket().await;
    bucket.before_put(heartbeat_of_another(&setup));
    let job = to_bucket(&setup, &bucket);
    let (moved, stopped) = stopped_move(&setup, &job).await;
    assert!(matches!(stopped, Err(MoveError::ServerStarted)), "{stopped:?}");
    assert!(!moved.has_begun_removal);
    assert_eq!((moved.removed, in_index(&setup).await), (0, 5));
    bucket.clear_hooks();
    let moved = try_move(&setup, &job).await.unwrap();
    assert_eq!((moved.present, moved.removed), (CONTENTS, CONTENTS));
}

async fn server_that_starts_during_the_removal_stops_the_move(setup: TestEngine) {
    fill(&setup).await;
    let bucket = bucket().await;
    try_move(&setup, &to_bucket(&setup, &bucket)).await.unwrap();
    bucket.before_delete(heartbeat_of_another(&setup));
    let (moved, stopped) = stopped_move(&setup, &to_index(&setup, &bucket)).await;
    assert!(matches!(stopped, Err(MoveError::ServerStarted)), "{stopped:?}");
    assert!(moved.has_begun_removal);
    let after = engine_on(&setup.index, None, &setup.clock, |_| {});
    assert_readable(&setup, &after).await;
}

async fn killed_move_keeps_servers_out_for_two_minutes(setup: TestEngine) {
    setup.clock.advance(Duration::from_mins(2));
    let fence = put_up_fence(&setup).await.unwrap();
    setup.clock.advance(Duration::from_secs(119));
    let server = setup.replica();
    assert_eq!(server.replica.may_serve().await, !setup.index.is_shared());
    setup.clock.advance(Duration::from_secs(1));
    let server = setup.replica();
    assert!(server.replica.may_serve().await);
    server.replica.flush().await.unwrap();
    // A process that was only stopped, and goes on.
    let resumed = fence.hold().await;
    assert!(matches!(resumed, Err(MoveError::ServerStarted)), "{resumed:?}");
}

async fn server_that_was_silent_serves_nothing_during_a_move(setup: TestEngine) {
    let new = NewKey {
        tenant_id: setup.principal.tenant_id,
        name: "reader".to_owned(),
        scopes: Scope::ALL.to_vec(),
        store_ids: None,
        expires_at: None,
    };
    let (_, secret) = setup.engine.operator.keys.create(new).await.unwrap();
    setup.engine.replica.flush().await.unwrap();
    setup.clock.advance(Duration::from_mins(2));
    let fence = put_up_fence(&setup).await.unwrap();
    setup.engine.replica.flush().await.unwrap();
    let answer = setup.engine.auth.authenticate(secret.expose()).await;
    if setup.index.is_shared() {
        assert!(matches!(answer, Err(EngineError::CutOff)), "{answer:?}");
        fence.hold().await.expect("it sends no heartbeat");
    }
    fence.take_down(&Value::Null, None).await;
    // The content may be elsewhere now.
    let answer = setup.engine.auth.authenticate(secret.expose()).await;
    assert_eq!(answer.is_err(), setup.index.is_shared(), "{answer:?}");
}

crate::with_index_content! {
    interrupted_move_continues,
    uncommitted_write_to_the_old_place_keeps_its_content,
    uncommitted_write_to_the_new_place_keeps_its_content,
    content_written_during_the_removal_is_kept_and_reported,
    server_that_starts_during_the_copy_stops_the_move,
    server_that_starts_during_the_removal_stops_the_move,
    killed_move_keeps_servers_out_for_two_minutes,
    server_that_was_silent_serves_nothing_during_a_move,
}
