//! Removed content: what erasures and redactions race with and what dies in the middle of them, blobs
//! that wait in the deletion queue, and older versions in a bucket that keeps them.

use crate::prelude::*;

with_object_store! {
    interrupted_erasure_is_resumed,
    restore_or_edit_during_a_removal_is_refused,
    redaction_and_erasure_do_not_wait_for_the_deletion_delay,
}

pub(crate) fn below(setup: &TestEngine, prefix: &str) -> ErasureRequest {
    ErasureRequest { path_prefix: Some(prefix.to_owned()), ..whole_store(setup) }
}

fn whole_store(setup: &TestEngine) -> ErasureRequest {
    ErasureRequest { store_id: Some(setup.store_id), ..ErasureRequest::default() }
}

async fn ask(setup: &TestEngine, request: ErasureRequest) -> ErasureId {
    let asked = setup.engine.erasures.create(&setup.principal, request, None).await;
    asked.unwrap().erasure_id
}

async fn found(setup: &TestEngine, erasure_id: ErasureId) -> Erasure {
    setup.engine.erasures.get(&setup.principal, erasure_id).await.unwrap()
}

pub(crate) async fn erase(setup: &TestEngine, request: ErasureRequest) -> Erasure {
    let erasure_id = ask(setup, request).await;
    let done = async {
        loop {
            let erasure = found(setup, erasure_id).await;
            if erasure.state == ErasureState::Done {
                return erasure;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(MINUTE, done).await.expect("an erasure ends")
}

async fn interrupted_erasure_is_resumed(setup: TestEngine) {
    setup.write_all((0..150).map(|n| (format!("/p/{n}"), "secret".to_owned()))).await;
    // The worker hangs at its second batch of blobs, and dies there.
    let (removals, hang) = hanging_after(110);
    setup.blobs.before_delete(removals);
    let erasure_id = ask(&setup, below(&setup, "/p/")).await;
    hang.notified().await;
    setup.blobs.clear_hooks();
    let replica = setup.elsewhere();
    assert_eq!(replica.run_in_slot(Erase).await, json!({"done": 0, "failed": 0}), "it is another's");
    assert_eq!(found(&setup, erasure_id).await.state, ErasureState::Running);
    // The clock of the other one was ahead.
    let (tenant_id, ahead) = (setup.principal.tenant_id, setup.now().plus(365 * DAY));
    setup.index.erasures.erase_rows(tenant_id, erasure_id, setup.now(), ahead, 1).await.unwrap();
    setup.clock.advance(MINUTE);
    setup.blobs.before_delete(fails);
    assert_eq!(replica.run_in_slot(Erase).await, json!({"done": 0, "failed": 1}));
    let failed = found(&setup, erasure_id).await;
    assert_eq!((failed.state, failed.failed_attempts), (ErasureState::Running, 1));
    assert_eq!(failed.error.as_deref(), Some("object_store_unavailable"));
    setup.blobs.clear_hooks();
    setup.clock.advance(MINUTE);
    assert_eq!(replica.run_in_slot(Erase).await, json!({"done": 1, "failed": 0}));
    let Erasure { state, error, removed, .. } = found(&setup, erasure_id).await;
    assert_eq!((state, error), (ErasureState::Done, None));
    assert_eq!((removed.memories, removed.versions, removed.blobs), (150, 150, 150));
    assert_eq!(setup.blobs_there().await, []);
}

async fn restore_or_edit_during_a_removal_is_refused(setup: TestEngine) {
    let memory = setup.make("/p/a", "secret").await;
    let moved = MemoryEdit { path: Some("/moved".to_owned()), ..new_content("newer") };
    setup.update(&memory, moved).await.unwrap();
    // The restoration has read the version, and reads its content: now it is erased.
    let erasing = setup.clone();
    setup.blobs.before_get(once(async move {
        erase(&erasing, below(&erasing, "/p/")).await;
    }));
    let restored = setup.elsewhere().restore(&memory).await;
    assert!(matches!(restored, Err(EngineError::NotFound(ObjectKind::Version))), "{restored:?}");
    assert_eq!(setup.operations().await.len(), 0);
    assert_eq!(setup.blobs_there().await, []);

    let memory = setup.make("/p/a", "secret").await;
    // Its content is stored, its commit comes: between the two it is erased.
    let erasing = setup.clone();
    setup.blobs.after_put(once(async move {
        erase(&erasing, below(&erasing, "/p/")).await;
    }));
    let edited = setup.elsewhere().update(&memory, new_content("secret, and more")).await;
    assert!(matches!(edited, Err(EngineError::NotFound(ObjectKind::Memory))), "{edited:?}");
    assert_eq!(setup.blobs_there().await, [], "what it brought went with it");
    assert_eq!(setup.head("/p/a").await, None);

    let memory = setup.make("/a.txt", "secret").await;
    setup.update(&memory, new_path("/b.txt")).await.unwrap();
    setup.update(&memory, new_content("harmless")).await.unwrap();
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn erasure_and_redaction_delete_object_versions_of_a_versioned_bucket() {
    let (setup, bucket) = TestEngine::sqlite_and_versioned_s3().await;
    let memory = setup.make("/p/a", "secret").await;
    let redacted = setup.update(&memory, new_content("redacted")).await.unwrap();
    let queued = setup.update(&memory, new_content("redacted later")).await.unwrap();
    setup.update(&memory, new_content("newer")).await.unwrap();
    setup.make("/q", "kept").await;
    assert_eq!(bucket.objects(&setup).await, 5);
    setup.redact(&redacted).await;
    setup.blobs.before_delete(fails);
    setup.redact(&queued).await;
    setup.blobs.clear_hooks();
    assert_eq!(bucket.objects(&setup).await, 4, "one waits in the queue");
    assert_eq!(setup.run(DrainDeletions).await["removed"], 1);
    assert_eq!(bucket.objects(&setup).await, 3, "no version and no delete marker");

    let receipt = erase(&setup, below(&setup, "/p/")).await;
    let counted =
        (receipt.removed.blobs, receipt.object_versions.deleted, receipt.object_versions.not_versioned);
    assert_eq!(counted, bucket.either((2, 2, 0), (2, 0, 2)));
    assert_eq!(bucket.objects(&setup).await, 1);
    // Object versions of blobs that were deleted earlier are erased with the store.
    let orphan = setup.plant(setup.orphan_key(7)).await;
    setup.blobs.inner().delete(&orphan).await.unwrap();
    assert_eq!(bucket.objects(&setup).await, bucket.either(3, 1));
    let receipt = erase(&setup, whole_store(&setup)).await;
    assert_eq!((receipt.removed.blobs, receipt.object_versions.deleted), bucket.either((2, 2), (1, 0)));
    assert_eq!(bucket.objects(&setup).await, 0);
    // If the bucket does not list its versions, the receipt counts at least one.
    let other = setup.of_tenant_with(json!({})).await;
    setup.blobs.keep_versions(Some(0));
    let receipt = erase(&other, whole_store(&other)).await;
    assert_eq!((receipt.removed.blobs, receipt.object_versions.kept), (0, 1));
}

const SECRET: &str = "a secret that nobody else has written";

/// A memory of which retention took every version; the blob is queued.
async fn expired_memory(setup: &TestEngine, path: &str) {
    setup.delete(&setup.make(path, SECRET).await).await;
    setup.clock.advance(30 * DAY);
    let taken = setup.run(ExpireVersions).await;
    assert_eq!((&taken["memories"], &taken["blobs"]), (&1.into(), &1.into()));
}

async fn condemned_orphan(setup: &TestEngine) -> BlobKey {
    let key = setup.plant(setup.orphan_key(7)).await;
    assert!(setup.index.blob_deletions.condemn_orphan(&key, setup.now()).await.unwrap());
    key
}

async fn redaction_and_erasure_do_not_wait_for_the_deletion_delay(setup: TestEngine) {
    let delaying = setup.delaying();
    expired_memory(&delaying, "/people/ada/notes.md").await;
    let (kept, redacted) = (setup.make("/kept.md", "kept").await, setup.make("/redacted.md", "x").await);
    setup.delete(&redacted).await;
    delaying.redact(&redacted).await;
    delaying.run(DrainDeletions).await;
    assert_eq!(setup.blobs_there().await.len(), 2, "the kept one and the expired one");
    let orphan = condemned_orphan(&setup).await;

    let receipt = erase(&setup, below(&setup, "/people/")).await;
    assert_eq!((receipt.removed.blobs, receipt.object_versions.kept), (1, 0));
    assert_eq!(setup.blobs_there().await, [orphan, setup.blob_key(&kept.memory.head)]);
    assert_eq!(setup.content_of(&kept).await, "kept");
    // A slow commit that names the orphan must still find it condemned.
    let queued = setup.index.blob_deletions.due(setup.now(), 10).await.unwrap();
    let queued: Vec<_> = queued.iter().map(|entry| (entry.key, entry.reason)).collect();
    assert_eq!(queued, [(orphan, DeletionReason::Orphan)]);
    setup.run(DrainDeletions).await;

    delaying.engine.stores.delete(&setup.principal, setup.store_id).await.unwrap();
    assert_eq!(delaying.run_in_slot(PurgeStores).await["blobs"], 1);
    for (days, left) in [(6, 1), (1, 0)] {
        setup.clock.advance(days * DAY);
        delaying.run_in_slot(DrainDeletions).await;
        assert_eq!(setup.blobs_there().await.len(), left);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn erasure_deletes_object_versions_of_expired_blobs() {
    let (setup, bucket) = TestEngine::sqlite_and_versioned_s3().await;
    expired_memory(&setup, "/people/ada/notes.md").await;
    let kept = setup.make("/kept.md", "one").await;
    setup.update(&kept, new_content("two")).await.unwrap();
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

#[tokio::test(flavor = "multi_thread")]
async fn removed_content_is_in_no_file_after_the_next_flush() {
    let setup = TestEngine::sqlite().await;
    let is_in_a_file = || {
        let mut files = std::fs::read_dir(setup.sqlite_file().parent().unwrap()).unwrap();
        files.any(|file| {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes())
        })
    };
    let redacted = setup.make("/redacted.md", SECRET).await;
    setup.update(&redacted, new_content("public")).await.unwrap();
    setup.redact(&redacted).await;
    assert!(is_in_a_file(), "the test looks in the wrong place");
    setup.engine.replica.flush().await.unwrap();
    assert!(!is_in_a_file());

    expired_memory(&setup, "/deleted.md").await;
    setup.engine.replica.flush().await.unwrap();
    assert!(!is_in_a_file());
}
