//! Removed content: blobs that wait in the deletion queue, and older versions in
//! a bucket that keeps them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use keepsake_blobs::BlobError;
use keepsake_core::{BlobKey, VersionId};
use keepsake_engine::jobs::{DrainDeletions, ExpireVersions, Job, RunOutcome, RunRequest, run_job};
use keepsake_engine::{Engine, ShownMemory};
use keepsake_index::DeletionReason;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::bed::{Bed, edit_of};
use crate::erasures::{below, erase};

crate::with_object_store! {
    erasure_takes_blobs_that_retention_queued_before,
    erasure_of_a_directory_leaves_tombstones_of_orphans,
    drain_that_outlives_its_lease_leaves_tombstones,
}

const DAY: Duration = Duration::from_hours(24);
/// How long versions of a deleted memory are kept.
const RETENTION: Duration = Duration::from_hours(30 * 24);

async fn run(bed: &Bed, engine: &Engine, job: impl Job + 'static) -> Value {
    bed.clock.advance(Duration::from_micros(1));
    let stopping = CancellationToken::new();
    let outcome = run_job(engine, Arc::new(job), RunRequest::manual(false), &stopping);
    match outcome.await.unwrap() {
        RunOutcome::Ran(counts) => counts,
        outcome => panic!("{outcome:?}"),
    }
}

/// A memory of which retention took every version; the blob is queued.
async fn expired_memory(bed: &Bed, engine: &Engine, path: &str) -> ShownMemory {
    let memory = bed.make(path, "secret").await;
    bed.delete(&memory, None).await.unwrap();
    bed.clock.advance(RETENTION);
    let taken = run(bed, engine, ExpireVersions).await;
    assert_eq!((&taken["memories"], &taken["blobs"]), (&1.into(), &1.into()));
    memory
}

/// A blob of the bed's store that no row names.
async fn orphan(bed: &Bed) -> BlobKey {
    let key = BlobKey {
        tenant_id: bed.principal.tenant_id,
        store_id: bed.store_id,
        blob_id: VersionId::from_uuid(Uuid::from_u128(7)),
    };
    let bytes = Bytes::from_static(b"a write that lost");
    bed.blobs.inner().put(&key, bytes).await.unwrap();
    assert!(
        bed.index
            .blob_deletions
            .condemn_orphan(&key, bed.engine_now())
            .await
            .unwrap()
    );
    key
}

async fn erasure_takes_blobs_that_retention_queued_before(bed: Bed) {
    let delayed = bed.replica_with(|options| options.blob_deletion_delay = 7 * DAY);
    expired_memory(&bed, &delayed, "/people/ada/notes.md").await;
    let kept = bed.make("/kept.md", "kept").await;
    run(&bed, &delayed, DrainDeletions).await;
    assert_eq!(bed.blobs_there().await.len(), 2, "the delay holds");

    let receipt = erase(&bed, below(&bed, "/people/")).await.receipt;
    assert_eq!(bed.blobs_there().await, [bed.blob_key(&kept.memory.head)]);
    assert_eq!((receipt.blobs, receipt.versions_kept), (1, 0));
    assert_eq!(bed.content_of(&kept).await, "kept");
}

/// A slow commit that names the orphan must still find it condemned.
async fn erasure_of_a_directory_leaves_tombstones_of_orphans(bed: Bed) {
    let key = orphan(&bed).await;
    bed.make("/p/a.md", "secret").await;
    erase(&bed, below(&bed, "/p/")).await;
    let queued = bed.index.blob_deletions.due(bed.engine_now(), 10).await.unwrap();
    let queued: Vec<_> = queued.iter().map(|entry| (entry.key, entry.reason)).collect();
    assert_eq!(queued, [(key, DeletionReason::Orphan)]);
}

async fn drain_that_outlives_its_lease_leaves_tombstones(bed: Bed) {
    let key = orphan(&bed).await;
    let (second, clock) = (bed.replica(), Arc::clone(&bed.clock));
    let is_begun = Arc::new(AtomicBool::new(false));
    let begun = Arc::clone(&is_begun);
    // The first drain is slow at its first blob; meanwhile its lease ends and a
    // second one does all the work.
    bed.blobs.before_delete(move |_| {
        let (second, clock, begun) = (second.clone(), Arc::clone(&clock), Arc::clone(&begun));
        async move {
            if !begun.swap(true, Ordering::SeqCst) {
                clock.advance(Duration::from_mins(2));
                let (job, stopping) = (Arc::new(DrainDeletions), CancellationToken::new());
                let ran = run_job(&second, job, RunRequest::manual(false), &stopping);
                let ran = ran.await.unwrap();
                assert!(
                    matches!(&ran, RunOutcome::Ran(counts) if counts["removed"] == 1),
                    "{ran:?}"
                );
            }
            Ok(())
        }
    });
    run(&bed, &bed.engine, DrainDeletions).await;
    assert!(is_begun.load(Ordering::SeqCst));
    assert_eq!(bed.blobs_there().await, []);
    let month_later = bed.engine_now().plus(RETENTION);
    let queued = bed.index.blob_deletions.due(month_later, 10).await.unwrap();
    let queued: Vec<_> = queued.iter().map(|entry| (entry.key, entry.reason)).collect();
    assert_eq!(queued, [(key, DeletionReason::Gone)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn erasure_takes_older_versions_of_what_retention_removed() {
    let (bed, bucket) = Bed::sqlite_and_versioned_s3().await;
    expired_memory(&bed, &bed.engine, "/people/ada/notes.md").await;
    let kept = bed.make("/kept.md", "one").await;
    bed.update(&kept, edit_of(Some("two"), None, None)).await.unwrap();
    let tombstone = orphan(&bed).await;
    run(&bed, &bed.engine, DrainDeletions).await;
    // The drain deleted two blobs, of which the bucket keeps a version and a marker.
    assert_eq!(bucket.objects(&bed).await, bucket.either(2 + 2 * 2, 2));

    let receipt = erase(&bed, below(&bed, "/people/")).await.receipt;
    let counted = (receipt.blobs, receipt.versions_deleted, receipt.versions_kept);
    assert_eq!(counted, bucket.either((1, 1, 0), (0, 0, 0)));
    assert_eq!(
        bucket.objects(&bed).await,
        bucket.either(2 + 2, 2),
        "both contents of the kept memory, and the orphan"
    );
    assert_eq!(bed.content_of(&kept).await, "two");
    // The orphan goes for good at its own time.
    bed.clock.advance(RETENTION);
    run(&bed, &bed.engine, DrainDeletions).await;
    assert_eq!(bucket.objects(&bed).await, 2);
    assert_eq!(bed.blobs.inner().get(&tombstone, u64::MAX).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redacted_blob_that_the_drain_removes_leaves_no_object_version() {
    let (bed, bucket) = Bed::sqlite_and_versioned_s3().await;
    let memory = bed.make("/a.md", "secret").await;
    bed.update(&memory, edit_of(Some("harmless"), None, None))
        .await
        .unwrap();
    bed.blobs
        .before_delete(|_| async { Err(BlobError::Unavailable("as the test wants it".to_owned())) });
    bed.engine
        .redact_version(&bed.principal, bed.store_id, memory.memory.head.version_id)
        .await
        .unwrap();
    bed.blobs.clear_hooks();
    assert_eq!(bucket.objects(&bed).await, 2, "it waits in the queue");
    let drained = run(&bed, &bed.engine, DrainDeletions).await;
    assert_eq!(drained["removed"], 1, "{drained}");
    assert_eq!(bucket.objects(&bed).await, 1, "no version and no delete marker");
}
