//! Removed content: blobs that wait in the deletion queue, and older versions in
//! a bucket that keeps them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use keepsake_blobs::BlobError;
use keepsake_core::{BlobKey, VersionId};
use keepsake_engine::jobs::{DrainDeletions, ExpireVersions, Job, RunOutcome, RunRequest};
use keepsake_engine::{Engine, ShownMemory};
use keepsake_index::DeletionReason;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::erasures::{below, erase};
use crate::test_engine::{TestEngine, edit_of};

crate::with_object_store! {
    erasure_removes_blobs_queued_by_retention,
    erasure_of_a_directory_keeps_tombstones_of_orphans,
    drain_past_its_lease_keeps_tombstones,
}

const DAY: Duration = Duration::from_hours(24);
/// How long versions of a deleted memory are kept.
const RETENTION: Duration = Duration::from_hours(30 * 24);

async fn run(setup: &TestEngine, engine: &Engine, job: impl Job + 'static) -> Value {
    setup.clock.advance(Duration::from_micros(1));
    let stopping = CancellationToken::new();
    let outcome = engine.jobs.run(Arc::new(job), RunRequest::manual(false), &stopping);
    match outcome.await.unwrap() {
        RunOutcome::Ran(counts) => counts,
        outcome => panic!("{outcome:?}"),
    }
}

/// A memory of which retention took every version; the blob is queued.
async fn expired_memory(setup: &TestEngine, engine: &Engine, path: &str) -> ShownMemory {
    let memory = setup.make(path, "secret").await;
    setup.delete(&memory, None).await.unwrap();
    setup.clock.advance(RETENTION);
    let taken = run(setup, engine, ExpireVersions).await;
    assert_eq!((&taken["memories"], &taken["blobs"]), (&1.into(), &1.into()));
    memory
}

/// A blob of the test's store that no row names.
async fn orphan(setup: &TestEngine) -> BlobKey {
    let key = BlobKey {
        tenant_id: setup.principal.tenant_id,
        store_id: setup.store_id,
        blob_id: VersionId::from_uuid(Uuid::from_u128(7)),
    };
    let bytes = Bytes::from_static(b"a write that lost");
    setup.blobs.inner().put(&key, bytes).await.unwrap();
    assert!(setup.index.blob_deletions.condemn_orphan(&key, setup.engine_now()).await.unwrap());
    key
}

async fn erasure_removes_blobs_queued_by_retention(setup: TestEngine) {
    let delayed = setup.replica_with(|options| options.blob_deletion_delay = 7 * DAY);
    expired_memory(&setup, &delayed, "/people/ada/notes.md").await;
    let kept = setup.make("/kept.md", "kept").await;
    run(&setup, &delayed, DrainDeletions).await;
    assert_eq!(setup.blobs_there().await.len(), 2, "the delay holds");

    let receipt = erase(&setup, below(&setup, "/people/")).await.receipt;
    assert_eq!(setup.blobs_there().await, [setup.blob_key(&kept.memory.head)]);
    assert_eq!((receipt.blobs, receipt.versions_kept), (1, 0));
    assert_eq!(setup.content_of(&kept).await, "kept");
}

/// A slow commit that names the orphan must still find it condemned.
async fn erasure_of_a_directory_keeps_tombstones_of_orphans(setup: TestEngine) {
    let key = orphan(&setup).await;
    setup.make("/p/a.md", "secret").await;
    erase(&setup, below(&setup, "/p/")).await;
    let queued = setup.index.blob_deletions.due(setup.engine_now(), 10).await.unwrap();
    let queued: Vec<_> = queued.iter().map(|entry| (entry.key, entry.reason)).collect();
    assert_eq!(queued, [(key, DeletionReason::Orphan)]);
}

async fn drain_past_its_lease_keeps_tombstones(setup: TestEngine) {
    let key = orphan(&setup).await;
    let (second, clock) = (setup.replica(), Arc::clone(&setup.clock));
    let is_begun = Arc::new(AtomicBool::new(false));
    let begun = Arc::clone(&is_begun);
    // The first drain is slow at its first blob; meanwhile its lease ends and a
    // second one does all the work.
    setup.blobs.before_delete(move |_| {
        let (second, clock, begun) = (second.clone(), Arc::clone(&clock), Arc::clone(&begun));
        async move {
            if !begun.swap(true, Ordering::SeqCst) {
                clock.advance(Duration::from_mins(2));
                let (job, stopping) = (Arc::new(DrainDeletions), CancellationToken::new());
                let ran = second.jobs.run(job, RunRequest::manual(false), &stopping);
                let ran = ran.await.unwrap();
                assert!(matches!(&ran, RunOutcome::Ran(counts) if counts["removed"] == 1), "{ran:?}");
            }
            Ok(())
        }
    });
    run(&setup, &setup.engine, DrainDeletions).await;
    assert!(is_begun.load(Ordering::SeqCst));
    assert_eq!(setup.blobs_there().await, []);
    let month_later = setup.engine_now().plus(RETENTION);
    let queued = setup.index.blob_deletions.due(month_later, 10).await.unwrap();
    let queued: Vec<_> = queued.iter().map(|entry| (entry.key, entry.reason)).collect();
    assert_eq!(queued, [(key, DeletionReason::Gone)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn erasure_deletes_object_versions_of_expired_blobs() {
    let (setup, bucket) = TestEngine::sqlite_and_versioned_s3().await;
    expired_memory(&setup, &setup.engine, "/people/ada/notes.md").await;
    let kept = setup.make("/kept.md", "one").await;
    setup.update(&kept, edit_of(Some("two"), None, None)).await.unwrap();
    let tombstone = orphan(&setup).await;
    run(&setup, &setup.engine, DrainDeletions).await;
    // The drain deleted two blobs, of which the bucket keeps a version and a marker.
    assert_eq!(bucket.objects(&setup).await, bucket.either(2 + 2 * 2, 2));

    let receipt = erase(&setup, below(&setup, "/people/")).await.receipt;
    let counted = (receipt.blobs, receipt.versions_deleted, receipt.versions_kept);
    assert_eq!(counted, bucket.either((1, 1, 0), (0, 0, 0)));
    assert_eq!(
        bucket.objects(&setup).await,
        bucket.either(2 + 2, 2),
        "both contents of the kept memory, and the orphan"
    );
    assert_eq!(setup.content_of(&kept).await, "two");
    // The orphan's tombstone ends after its retention.
    setup.clock.advance(RETENTION);
    run(&setup, &setup.engine, DrainDeletions).await;
    assert_eq!(bucket.objects(&setup).await, 2);
    assert_eq!(setup.blobs.inner().get(&tombstone, u64::MAX).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redacted_blob_that_the_drain_removes_leaves_no_object_version() {
    let (setup, bucket) = TestEngine::sqlite_and_versioned_s3().await;
    let memory = setup.make("/a.md", "secret").await;
    setup.update(&memory, edit_of(Some("harmless"), None, None)).await.unwrap();
    setup.blobs.before_delete(|_| async { Err(BlobError::Unavailable("as the test wants it".to_owned())) });
    setup
        .engine
        .versions
        .redact(&setup.principal, setup.store_id, memory.memory.head.version_id)
        .await
        .unwrap();
    setup.blobs.clear_hooks();
    assert_eq!(bucket.objects(&setup).await, 2, "it waits in the queue");
    let drained = run(&setup, &setup.engine, DrainDeletions).await;
    assert_eq!(drained["removed"], 1, "{drained}");
    assert_eq!(bucket.objects(&setup).await, 1, "no version and no delete marker");
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_content_is_in_no_file_after_the_next_flush() {
    const SECRET: &str = "a secret that nobody else has written";
    let setup = TestEngine::sqlite().await;
    let is_in_a_file = || {
        let files = std::fs::read_dir(setup.folder()).unwrap();
        files
            .map(|file| std::fs::read(file.unwrap().path()).unwrap())
            .any(|bytes| bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes()))
    };
    let redacted = setup.make("/redacted.md", SECRET).await;
    setup.update(&redacted, edit_of(Some("public"), None, None)).await.unwrap();
    let version_id = redacted.memory.head.version_id;
    let versions = &setup.engine.versions;
    versions.redact(&setup.principal, setup.store_id, version_id).await.unwrap();
    assert!(is_in_a_file(), "the test looks in the wrong place");
    setup.engine.replica.flush().await.unwrap();
    assert!(!is_in_a_file());

    let deleted = setup.make("/deleted.md", SECRET).await;
    setup.delete(&deleted, None).await.unwrap();
    setup.clock.advance(RETENTION);
    run(&setup, &setup.engine, ExpireVersions).await;
    setup.engine.replica.flush().await.unwrap();
    assert!(!is_in_a_file());
}
