//! Content that moves between the index and an object store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use keepsake_blobs::{BlobError, BlobStore};
use keepsake_core::{BlobKey, StoreId, TenantId, VersionId};
use keepsake_engine::{BlobMove, Engine, EngineError, Moved, Problem};
use keepsake_testkit::{HookedBlobs, fresh_s3};
use serde_json::json;
use uuid::Uuid;

use crate::test_engine::{TestEngine, engine_on};

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

async fn try_move(job: &BlobMove) -> Result<Moved, EngineError> {
    let mut moved = Moved::default();
    job.copy(2, &mut moved, |_| {}).await?;
    if moved.problems.is_empty() {
        job.remove_originals(&mut moved, |_| {}).await?;
    }
    Ok(moved)
}

fn to_bucket(setup: &TestEngine, bucket: &Arc<HookedBlobs>) -> BlobMove {
    BlobMove::new(setup.index.clone(), None, Some(Arc::clone(bucket) as _))
}

fn to_index(setup: &TestEngine, bucket: &Arc<HookedBlobs>) -> BlobMove {
    BlobMove::new(setup.index.clone(), Some(Arc::clone(bucket) as _), None)
}

async fn in_index(setup: &TestEngine) -> usize {
    setup.index.contents.list(None, None, 100).await.unwrap().len()
}

async fn content_moves_to_an_object_store_and_back(setup: TestEngine) {
    fill(&setup).await;
    let bucket = bucket().await;
    let moved = try_move(&to_bucket(&setup, &bucket)).await.unwrap();
    assert_eq!((moved.copied, moved.removed), (CONTENTS, CONTENTS), "{moved:?}");
    assert_eq!((moved.problems.len(), in_index(&setup).await), (0, 0));
    let engine = engine_on(&setup.index, Some(&bucket), &setup.clock, |_| {});
    assert_readable(&setup, &engine).await;

    let moved = try_move(&to_index(&setup, &bucket)).await.unwrap();
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
    assert!(try_move(&job).await.is_err());
    assert_eq!(in_index(&setup).await, 5, "originals stay until all is copied");
    bucket.clear_hooks();
    let there = bucket.list(None, None, 10).await.unwrap().len() as u64;
    assert!((1..=2).contains(&there), "{there}");
    let moved = try_move(&job).await.unwrap();
    assert_eq!((moved.present, moved.copied), (there, CONTENTS - there));
    assert_eq!(in_index(&setup).await, 0);
    let again = try_move(&job).await.unwrap();
    assert_eq!((again.present, again.copied, again.removed), (CONTENTS, 0, 0));
}

async fn damaged_and_missing_originals_are_reported(setup: TestEngine) {
    fill(&setup).await;
    let bucket = bucket().await;
    try_move(&to_bucket(&setup, &bucket)).await.unwrap();
    let damaged = setup.blob_key(&setup.head("/e.txt").await.unwrap());
    let missing = setup.blob_key(&setup.head("/z.txt").await.unwrap());
    bucket.put(&damaged, Bytes::from_static(b"other")).await.unwrap();
    bucket.delete(&missing).await.unwrap();
    let moved = try_move(&to_index(&setup, &bucket)).await.unwrap();
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
    let moved = try_move(&to_bucket(&setup, &bucket)).await.unwrap();
    assert_eq!((moved.copied, moved.present), (CONTENTS, 0));
    let engine = engine_on(&setup.index, Some(&bucket), &setup.clock, |_| {});
    assert_readable(&setup, &engine).await;
}

async fn objects_without_a_version_are_removed_and_foreign_ones_stay(setup: TestEngine) {
    fill(&setup).await;
    let bucket = bucket().await;
    try_move(&to_bucket(&setup, &bucket)).await.unwrap();
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
    let moved = try_move(&to_index(&setup, &bucket)).await.unwrap();
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
    let moved = try_move(&job).await.unwrap();
    assert_eq!((moved.present, moved.removed), (1, 2), "{moved:?}");
    assert_eq!(bucket.list(None, None, 10).await.unwrap().len(), 1);
}

async fn content_outside_the_configured_location_is_detected(setup: TestEngine) {
    assert_eq!(setup.engine.verifier.misplaced_content().await.unwrap(), None);
    setup.create("/memories/a.txt", "text").await;
    let key = setup.blob_key(&setup.head("/a.txt").await.unwrap());
    assert_eq!(setup.engine.verifier.misplaced_content().await.unwrap(), None);
    let bucket = bucket().await;
    try_move(&to_bucket(&setup, &bucket)).await.unwrap();
    assert_eq!(
        setup.engine.verifier.misplaced_content().await.unwrap(),
        Some(key)
    );
    let moved = engine_on(&setup.index, Some(&bucket), &setup.clock, |_| {});
    assert_eq!(moved.verifier.misplaced_content().await.unwrap(), None);
}

async fn move_detects_running_servers(setup: TestEngine) {
    let job = to_bucket(&setup, &bucket().await);
    // The test's own engine was here.
    let now = setup.engine_now().plus(Duration::from_mins(2));
    assert!(!job.is_served(now).await.unwrap());
    setup
        .index
        .replicas
        .beat(Uuid::from_u128(7), "worker", now, now)
        .await
        .unwrap();
    assert!(job.is_served(now).await.unwrap());
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
}
