//! Removed content: blobs that wait in the deletion queue, older versions in a bucket
//! that keeps them, and redactions that race.

use keepsake_index::DeletionReason;

use crate::erasures::{below, erase};
use crate::prelude::*;

crate::with_object_store! {
    erasure_removes_blobs_queued_by_retention,
    erasure_of_a_directory_keeps_tombstones_of_orphans,
    restore_during_a_redaction_is_refused,
}

const SECRET: &str = "a secret that nobody else has written";

/// A memory of which retention took every version; the blob is queued.
async fn expired_memory(setup: &TestEngine, path: &str) {
    let memory = setup.make(path, SECRET).await;
    setup.delete(&memory).await;
    setup.clock.advance(30 * DAY);
    let taken = setup.run(ExpireVersions).await;
    assert_eq!((&taken["memories"], &taken["blobs"]), (&1.into(), &1.into()));
}

async fn condemned_orphan(setup: &TestEngine) -> BlobKey {
    let key = setup.orphan_key(7);
    setup.plant(key).await;
    assert!(setup.index.blob_deletions.condemn_orphan(&key, setup.now()).await.unwrap());
    key
}

async fn erasure_removes_blobs_queued_by_retention(setup: TestEngine) {
    let delaying = setup.delaying();
    expired_memory(&delaying, "/people/ada/notes.md").await;
    let kept = setup.make("/kept.md", "kept").await;
    delaying.run(DrainDeletions).await;
    assert_eq!(setup.blobs_there().await.len(), 2, "the delay holds");

    let receipt = erase(&setup, below(&setup, "/people/")).await;
    assert_eq!(setup.blobs_there().await, [setup.blob_key(&kept.memory.head)]);
    assert_eq!((receipt.removed.blobs, receipt.object_versions.kept), (1, 0));
    assert_eq!(setup.content_of(&kept).await, "kept");
}

/// A slow commit that names the orphan must still find it condemned.
async fn erasure_of_a_directory_keeps_tombstones_of_orphans(setup: TestEngine) {
    let key = condemned_orphan(&setup).await;
    setup.make("/p/a.md", "secret").await;
    erase(&setup, below(&setup, "/p/")).await;
    let queued = setup.index.blob_deletions.due(setup.now(), 10).await.unwrap();
    let queued: Vec<_> = queued.iter().map(|entry| (entry.key, entry.reason)).collect();
    assert_eq!(queued, [(key, DeletionReason::Orphan)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn erasure_deletes_object_versions_of_expired_blobs() {
    let (setup, bucket) = TestEngine::sqlite_and_versioned_s3().await;
    expired_memory(&setup, "/people/ada/notes.md").await;
    let kept = setup.make("/kept.md", "one").await;
    setup.update(&kept, edit_of(Some("two"), None, None)).await.unwrap();
    let tombstone = condemned_orphan(&setup).await;
    setup.run(DrainDeletions).await;
    // The drain deleted two blobs, of which the bucket keeps a version and a marker.
    assert_eq!(bucket.objects(&setup).await, bucket.either(2 + 2 * 2, 2));

    let receipt = erase(&setup, below(&setup, "/people/")).await;
    let counted = (receipt.removed.blobs, receipt.object_versions.deleted, receipt.object_versions.kept);
    assert_eq!(counted, bucket.either((1, 1, 0), (0, 0, 0)));
    let left = bucket.either(2 + 2, 2);
    assert_eq!(bucket.objects(&setup).await, left, "both contents of the kept memory, and the orphan");
    assert_eq!(setup.content_of(&kept).await, "two");
    // The orphan's tombstone ends after its retention.
    setup.clock.advance(30 * DAY);
    setup.run(DrainDeletions).await;
    assert_eq!(bucket.objects(&setup).await, 2);
    assert_eq!(setup.blobs.inner().get(&tombstone, u64::MAX).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redacted_blob_that_the_drain_removes_leaves_no_object_version() {
    let (setup, bucket) = TestEngine::sqlite_and_versioned_s3().await;
    let memory = setup.make("/a.md", "secret").await;
    setup.update(&memory, edit_of(Some("harmless"), None, None)).await.unwrap();
    setup.blobs.before_delete(fails);
    setup.redact(&memory).await;
    setup.blobs.clear_hooks();
    assert_eq!(bucket.objects(&setup).await, 2, "it waits in the queue");
    assert_eq!(setup.run(DrainDeletions).await["removed"], 1);
    assert_eq!(bucket.objects(&setup).await, 1, "no version and no delete marker");
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_content_is_in_no_file_after_the_next_flush() {
    let setup = TestEngine::sqlite().await;
    let is_in_a_file = || {
        let mut files = std::fs::read_dir(setup.folder()).unwrap();
        files.any(|file| {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes())
        })
    };
    let redacted = setup.make("/redacted.md", SECRET).await;
    setup.update(&redacted, edit_of(Some("public"), None, None)).await.unwrap();
    setup.redact(&redacted).await;
    assert!(is_in_a_file(), "the test looks in the wrong place");
    setup.engine.replica.flush().await.unwrap();
    assert!(!is_in_a_file());

    expired_memory(&setup, "/deleted.md").await;
    setup.engine.replica.flush().await.unwrap();
    assert!(!is_in_a_file());
}

async fn restore_during_a_redaction_is_refused(setup: TestEngine) {
    let memory = setup.make("/a.txt", "secret").await;
    setup.update(&memory, edit_of(None, Some("/b.txt"), None)).await.unwrap();
    setup.update(&memory, edit_of(Some("harmless"), None, None)).await.unwrap();
    // Redacted by another after the version was read and before the commit; the
    // blob stays, since another version shares it.
    let (other, redacted) = (setup.elsewhere(), memory.clone());
    setup.blobs.before_get(once(async move {
        other.redact(&redacted).await;
    }));
    let refused = setup.elsewhere().restore(&memory).await;
    assert!(matches!(refused, Err(EngineError::Conflict(_))), "{refused:?}");
    assert_eq!(setup.content_of(&memory).await, "harmless");
}
