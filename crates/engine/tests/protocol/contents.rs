//! Content in the index: it is stored and removed with its version, so there are no
//! orphans.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use keepsake_core::limits::LimitOverrides;
use keepsake_core::{BlobKey, VersionId};
use keepsake_engine::jobs::{
    DrainDeletions, ExpireVersions, Job, PurgeStores, ReconcileUsage, RunOutcome, RunRequest, SweepBlobs,
};
use keepsake_engine::{Engine, EngineError, NewMemory, Precondition};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::test_engine::{TestEngine, edit_of, insert, new_memory};
use crate::upkeep::{Worker, assert_all_is_well, write_until};

crate::with_index_content! {
    every_new_content_is_stored_separately,
    refused_writes_leave_no_content,
    content_of_expired_versions_is_removed_at_once,
    content_of_a_purged_store_is_removed_at_once,
    content_that_no_version_names_is_not_stored,
    upkeep_during_writes_removes_no_needed_content,
}

const DAY: Duration = Duration::from_hours(24);

async fn run(engine: &Engine, job: impl Job + 'static) -> Value {
    let stopping = CancellationToken::new();
    let outcome = engine.jobs.run(Arc::new(job), RunRequest::manual(false), &stopping);
    match outcome.await.unwrap() {
        RunOutcome::Ran(counts) => counts,
        outcome => panic!("{outcome:?}"),
    }
}

/// A replica that delays the deletion of objects by a week.
fn delaying(setup: &TestEngine) -> Engine {
    setup.replica_with(|options| options.blob_deletion_delay = 7 * DAY)
}

async fn every_new_content_is_stored_separately(setup: TestEngine) {
    setup.create("/memories/a.txt", "0\n").await;
    for line in 1..=5 {
        setup.call(insert("/memories/a.txt", 0, &line.to_string())).await;
    }
    setup
        .call(json!({"command": "rename", "old_path": "/memories/a.txt", "new_path": "/memories/b.txt"}))
        .await;
    let expected = "5\n4\n3\n2\n1\n0\n";
    for engine in [&setup.engine, &setup.replica()] {
        assert_eq!(setup.text_at(engine, "/memories/b.txt").await, expected);
    }
    setup.call(json!({"command": "delete", "path": "/memories/b.txt"})).await;
    assert_eq!(setup.blobs_there().await.len(), 6, "a rename and a delete bring no content");
}

async fn refused_writes_leave_no_content(setup: TestEngine) {
    let memory = setup.make("/a.txt", "one").await;
    let kept = setup.blob_key(&memory.memory.head);
    for path in ["/a.txt", "/a.txt/b"] {
        let refused = setup.try_make(new_memory(path, "two")).await;
        assert!(matches!(refused, Err(EngineError::PathConflict { .. })), "{refused:?}");
    }
    let outdated = Precondition::ContentSha256(keepsake_core::ContentHash::of(b"another"));
    let refused = setup.update(&memory, edit_of(Some("two"), None, Some(outdated))).await;
    assert!(matches!(refused, Err(EngineError::PreconditionFailed { .. })), "{refused:?}");
    let named = |path: &str, body: &str| NewMemory {
        idempotency: Some(setup.call_named("key", body)),
        ..new_memory(path, "three")
    };
    setup.try_make(named("/b.txt", "body")).await.unwrap();
    setup.try_make(named("/b.txt", "body")).await.unwrap();
    let of_another_body = setup.try_make(named("/c.txt", "another body")).await;
    assert!(matches!(of_another_body, Err(EngineError::KeyReused)), "{of_another_body:?}");
    let there = setup.blobs_there().await;
    assert!(there.len() == 2 && there.contains(&kept), "{there:?}");

    let limits = LimitOverrides { bytes_per_store: Some(10), ..LimitOverrides::default() };
    let (principal, store_id) = setup.tenant_with(limits).await;
    let new = new_memory("/a.txt", "more than ten bytes");
    let refused = setup.engine.memories.create(&principal, store_id, new).await;
    assert!(refused.is_err());
    assert_eq!(setup.blobs_there().await, there);
}

async fn content_of_expired_versions_is_removed_at_once(setup: TestEngine) {
    let memory = setup.make("/a.txt", "one").await;
    setup.delete(&memory, None).await.unwrap();
    setup.clock.advance(30 * DAY);
    let expired = run(&delaying(&setup), ExpireVersions).await;
    assert_eq!((&expired["memories"], &expired["blobs"]), (&json!(1), &json!(1)));
    assert_eq!(setup.blobs_there().await, []);
}

async fn content_of_a_purged_store_is_removed_at_once(setup: TestEngine) {
    for number in 0..3 {
        setup.make(&format!("/{number}"), "text").await;
    }
    let delaying = delaying(&setup);
    delaying.stores.delete(&setup.principal, setup.store_id).await.unwrap();
    assert_eq!(run(&delaying, PurgeStores).await["blobs"], 3);
    assert_eq!(setup.blobs_there().await, []);
    setup.clock.advance(7 * DAY);
    assert_eq!(run(&delaying, DrainDeletions).await["failed"], 0);
}

async fn content_that_no_version_names_is_not_stored(setup: TestEngine) {
    let memory = setup.make("/a.txt", "kept").await;
    let named = setup.blob_key(&memory.memory.head);
    let unnamed = BlobKey { blob_id: VersionId::from_uuid(Uuid::from_u128(7)), ..named };
    for key in [unnamed, named] {
        let another = Bytes::from_static(b"another");
        setup.blobs.inner().put(&key, another).await.unwrap();
    }
    assert_eq!(setup.blobs_there().await, [named]);
    let replica = setup.replica();
    assert_eq!(setup.text_at(&replica, "/memories/a.txt").await, "kept");
    let swept = run(&Worker::of(&setup).engine, SweepBlobs::default()).await;
    assert_eq!(
        (&swept["blobs"], &swept["condemned"], &swept["missing"]),
        (&json!(1), &json!(0), &json!(0)),
        "{swept}"
    );
}

async fn upkeep_during_writes_removes_no_needed_content(setup: TestEngine) {
    let end = Instant::now() + Duration::from_secs(3);
    let worker = Worker::of(&setup);
    let is_over = AtomicBool::new(false);
    let upkeep = async {
        let mut sweeps = 0;
        while Instant::now() < end || sweeps < 2 {
            let swept = worker.run(SweepBlobs { batch: 7 }).await;
            assert_eq!((&swept["condemned"], &swept["missing"]), (&json!(0), &json!(0)), "{swept}");
            let counted = worker.run(ReconcileUsage::default()).await;
            assert_eq!((&counted["drifted_stores"], &counted["lost_heads"]), (&json!(0), &json!(0)));
            assert_all_is_well(&worker.engine).await;
            sweeps += 1;
        }
        is_over.store(true, Ordering::Relaxed);
    };
    let writers = futures::future::join_all((0..4).map(|writer| write_until(&setup, writer, &is_over)));
    tokio::join!(writers, upkeep);

    setup.all_writes_end().await;
    assert_all_is_well(&worker.engine).await;
    let named = setup.index.upkeep.named_blobs(None, 100_000).await.unwrap();
    let mut named: Vec<_> = named.iter().map(|row| row.key).collect();
    named.dedup();
    assert!(!named.is_empty());
    assert_eq!(setup.blobs_there().await, named);
}
