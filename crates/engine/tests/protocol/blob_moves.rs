//! Content that moves between the index and an object store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use keepsake_blobs::{BlobError, BlobStore};
use keepsake_core::{BlobKey, StoreId, TenantId, VersionId};
use keepsake_engine::{BlobMove, Clock, Engine, EngineError, MoveError, MoveFence, Moved, NewKey, Problem};
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

async fn content_moves_to_an_object_store_and_back(setup: TestEngine) {
    fill(&setup).await;
    let bucket = bucket().await;
    let moved = try_move(&setup, &to_bucket(&setup, &bucket)).await.unwrap();
    assert_eq!((moved.copied, moved.removed), (CONTENTS, CONTENTS), "{moved:?}");
    assert_eq!((moved.problems.len(), in_index(&setup).await), (0, 0));
    let engine = engine_on(&setup.index, Some(&bucket), &setup.clock, |_| {});
    assert_readable(&setup, &engine).await;

    let moved = try_move(&setup, &to_index(&setup, &bucket)).await.unwrap();
    assert_eq!((moved.copied, moved.removed), (CONTENTS, CONTENTS), "{moved:?}");
    assert!(bucket.list(None, None, 10).await.unwrap().is_empty());
    let engine = engine_on(&setup.index, None, &setup.clock, |_| {});
    assert_readable(&setup, &engine).await;
}

async fn interrupted_move_continues(setup: TestEngine) {
    fill(&setup).await;
    let bucket = bucket().await;
    let puts = Arc::new(AtomicUsize::new(0));
    bucket.before_put(move |_| {
        let number = puts.fetch_add(1, Ordering::Relaxed);
        async move {
            if number < 2 {
                Ok(())
            } else {
                Err(BlobError::Unavailable("stopped by the test".to_owned()))
            }
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

async fn damaged_and_missing_originals_are_reported(setup: TestEngine) {
    fill(&setup).await;
    let bucket = bucket().await;
    try_move(&setup, &to_bucket(&setup, &bucket)).await.unwrap();
    let damaged = setup.blob_key(&setup.head("/e.txt").await.unwrap());
    let missing = setup.blob_key(&setup.head("/z.txt").await.unwrap());
    bucket.put(&damaged, Bytes::from_static(b"other")).await.unwrap();
    bucket.delete(&missing).await.unwrap();
    let moved = try_move(&setup, &to_index(&setup, &bucket)).await.unwrap();
    let mut problems = moved.problems;
    problems.sort_by_key(|problem| matches!(problem, Problem::MissingBlob { .. }));
    let expected = [
        Problem::DamagedBlob {
            key: damaged,
            expected_bytes: 2,
            found_bytes: 5,
        },
        Problem::MissingBlob { key: missing },
    ];
    assert_eq!(problems, expected);
    assert_eq!((moved.copied, moved.removed), (CONTENTS - 2, 0));
}

async fn damaged_copy_is_made_again(setup: TestEngine) {
    fill(&setup).await;
    let bucket = bucket().await;
    let key = setup.blob_key(&setup.head("/e.txt").await.unwrap());
    bucket.put(&key, Bytes::from_static(b"x")).await.unwrap();
    let moved = try_move(&setup, &to_bucket(&setup, &bucket)).await.unwrap();
    assert_eq!((moved.copied, moved.present), (CONTENTS, 0));
    let engine = engine_on(&setup.index, Some(&bucket), &setup.clock, |_| {});
    assert_readable(&setup, &engine).await;
}

async fn objects_without_a_version_are_removed_and_foreign_ones_stay(setup: TestEngine) {
    fill(&setup).await;
    let bucket = bucket().await;
    try_move(&setup, &to_bucket(&setup, &bucket)).await.unwrap();
    let key = |tenant_id| BlobKey {
        tenant_id,
        store_id: StoreId::from_uuid(Uuid::from_u128(2)),
        blob_id: VersionId::from_uuid(Uuid::from_u128(3)),
    };
    let leftover = key(setup.principal.tenant_id);
    let foreign = key(TenantId::from_uuid(Uuid::from_u128(1)));
    for key in [leftover, foreign] {
        bucket.put(&key, Bytes::from_static(b"x")).await.unwrap();
    }
    let moved = try_move(&setup, &to_index(&setup, &bucket)).await.unwrap();
    assert_eq!((moved.removed, moved.foreign), (CONTENTS + 1, 1));
    let left: Vec<_> = bucket
        .list(None, None, 10)
        .await
        .unwrap()
        .iter()
        .map(|blob| blob.key)
        .collect();
    assert_eq!(left, [foreign]);
}

async fn content_deleted_between_two_passes_is_removed_from_the_copy(setup: TestEngine) {
    setup.create("/memories/a.txt", "secret").await;
    let first = setup.head("/a.txt").await.unwrap().version_id;
    let edit = json!({"command": "str_replace", "path": "/memories/a.txt", "old_str": "secret", "new_str": "public"});
    setup.call(edit).await;
    let bucket = bucket().await;
    let job = to_bucket(&setup, &bucket);
    job.copy(2, &mut Moved::default(), |_| {}).await.unwrap();
    assert_eq!(bucket.list(None, None, 10).await.unwrap().len(), 2);
    let redacted = setup
        .engine
        .versions
        .redact(&setup.principal, setup.store_id, first)
        .await;
    redacted.unwrap();
    let moved = try_move(&setup, &job).await.unwrap();
    assert_eq!((moved.present, moved.removed), (1, 2), "{moved:?}");
    assert_eq!(bucket.list(None, None, 10).await.unwrap().len(), 1);
}

async fn content_outside_the_configured_location_is_detected(setup: TestEngine) {
    assert_eq!(setup.engine.verifier.misplaced_content().await.unwrap(), None);
    setup.create("/memories/a.txt", "text").await;
    let key = setup.blob_key(&setup.head("/a.txt").await.unwrap());
    assert_eq!(setup.engine.verifier.misplaced_content().await.unwrap(), None);
    let bucket = bucket().await;
    try_move(&setup, &to_bucket(&setup, &bucket)).await.unwrap();
    assert_eq!(
        setup.engine.verifier.misplaced_content().await.unwrap(),
        Some(key)
    );
    let moved = engine_on(&setup.index, Some(&bucket), &setup.clock, |_| {});
    assert_eq!(moved.verifier.misplaced_content().await.unwrap(), None);
}

async fn move_detects_running_servers(setup: TestEngine) {
    setup.create("/memories/a.txt", "text").await;
    let bucket = bucket().await;
    let job = to_bucket(&setup, &bucket);
    let now = setup.engine_now();
    let beat = setup.index.replicas.beat(Uuid::from_u128(7), "worker", now, now);
    beat.await.unwrap();
    let mut moved = Moved::default();
    let refused = job.run(2, &mut moved, |_| {}).await;
    assert!(matches!(refused, Err(MoveError::Served)), "{refused:?}");
    assert_eq!(moved, Moved::default());
    assert_eq!(
        try_move(&setup, &job).await.unwrap().removed,
        1,
        "it ended without retiring"
    );
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
        let held = Self {
            is_put: Arc::clone(&is_put),
            may_go: Arc::clone(&may_go),
        };
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

/// The lock on the file of SQLite keeps a server out; the fence does on Postgres.
async fn server_and_second_move_wait_for_the_end_of_a_move(setup: TestEngine) {
    setup.clock.advance(Duration::from_mins(2));
    let fence = put_up_fence(&setup).await.unwrap();
    let server = setup.replica();
    assert_eq!(server.replica.may_serve().await, !setup.index.is_shared());
    let second = put_up_fence(&setup).await;
    assert!(matches!(second, Err(MoveError::AlreadyMoving)), "{second:?}");
    fence
        .hold()
        .await
        .expect("a server that does not start sends no heartbeat");
    fence.take_down(&Value::Null, None).await;
    assert!(setup.replica().replica.may_serve().await);
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
    content_moves_to_an_object_store_and_back,
    interrupted_move_continues,
    damaged_and_missing_originals_are_reported,
    damaged_copy_is_made_again,
    objects_without_a_version_are_removed_and_foreign_ones_stay,
    content_deleted_between_two_passes_is_removed_from_the_copy,
    content_outside_the_configured_location_is_detected,
    move_detects_running_servers,
    uncommitted_write_to_the_old_place_keeps_its_content,
    uncommitted_write_to_the_new_place_keeps_its_content,
    content_written_during_the_removal_is_kept_and_reported,
    server_that_starts_during_the_copy_stops_the_move,
    server_that_starts_during_the_removal_stops_the_move,
    server_and_second_move_wait_for_the_end_of_a_move,
    killed_move_keeps_servers_out_for_two_minutes,
    server_that_was_silent_serves_nothing_during_a_move,
}
