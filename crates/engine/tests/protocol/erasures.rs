//! Erasures: what they race with, and what dies in the middle of them.

use keepsake_core::ErasureId;
use keepsake_engine::ErasureRequest;
use keepsake_engine::jobs::Erase;
use keepsake_index::{Erasure, ErasureState};

use crate::prelude::*;

crate::with_object_store! {
    erasure_keeps_running_until_its_blobs_are_removed,
    interrupted_erasure_is_resumed,
    restore_or_edit_during_an_erasure_finds_nothing,
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

/// Waits until what the replica began has come to its end, or was broken off.
async fn ended(setup: &TestEngine, erasure_id: ErasureId) -> Erasure {
    let ended = async {
        loop {
            let erasure = found(setup, erasure_id).await;
            if erasure.state == ErasureState::Done || erasure.failed_attempts > 0 {
                return erasure;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(MINUTE, ended).await.expect("an erasure ends")
}

pub(crate) async fn erase(setup: &TestEngine, request: ErasureRequest) -> Erasure {
    let erasure_id = ask(setup, request).await;
    let erasure = ended(setup, erasure_id).await;
    assert_eq!(erasure.state, ErasureState::Done, "{erasure:?}");
    erasure
}

async fn erasure_keeps_running_until_its_blobs_are_removed(setup: TestEngine) {
    setup.make("/p/a", "secret").await;
    setup.blobs.before_delete(fails);
    let erasure_id = ask(&setup, below(&setup, "/p/")).await;
    ended(&setup, erasure_id).await;
    let replica = setup.elsewhere();
    setup.clock.advance(MINUTE);
    assert_eq!(replica.run_in_slot(Erase).await, json!({"done": 0, "failed": 1}));
    let failed = found(&setup, erasure_id).await;
    assert_eq!((failed.state, failed.failed_attempts), (ErasureState::Running, 2));
    assert_eq!(failed.error.as_deref(), Some("object_store_unavailable"));
    assert_eq!((failed.removed.memories, failed.removed.blobs), (1, 0));
    setup.blobs.clear_hooks();
    setup.clock.advance(MINUTE);
    assert_eq!(replica.run_in_slot(Erase).await, json!({"done": 1, "failed": 0}));
    let done = found(&setup, erasure_id).await;
    assert_eq!((done.state, done.error, done.removed.blobs), (ErasureState::Done, None, 1));
    assert_eq!(setup.blobs_there().await, []);
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
    setup.clock.advance(3 * MINUTE);
    assert_eq!(replica.run_in_slot(Erase).await, json!({"done": 1, "failed": 0}));
    let removed = found(&setup, erasure_id).await.removed;
    assert_eq!((removed.memories, removed.versions, removed.blobs), (150, 150, 150));
    assert_eq!(setup.blobs_there().await, []);
}

async fn restore_or_edit_during_an_erasure_finds_nothing(setup: TestEngine) {
    let memory = setup.make("/p/a", "secret").await;
    setup.update(&memory, edit_of(Some("newer"), Some("/moved"), None)).await.unwrap();
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
    let edited = setup.elsewhere().update(&memory, edit_of(Some("secret, and more"), None, None)).await;
    assert!(matches!(edited, Err(EngineError::NotFound(ObjectKind::Memory))), "{edited:?}");
    assert_eq!(setup.blobs_there().await, [], "what it brought went with it");
    assert_eq!(setup.head("/p/a").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn erasure_deletes_object_versions_of_a_versioned_bucket() {
    let (setup, bucket) = TestEngine::sqlite_and_versioned_s3().await;
    let memory = setup.make("/p/a", "secret").await;
    let redacted = setup.update(&memory, edit_of(Some("redacted"), None, None)).await.unwrap();
    setup.update(&memory, edit_of(Some("newer"), None, None)).await.unwrap();
    setup.make("/q", "kept").await;
    assert_eq!(bucket.objects(&setup).await, 4);
    setup.redact(&redacted).await;
    assert_eq!(bucket.objects(&setup).await, 3, "a redaction means the same");

    let receipt = erase(&setup, below(&setup, "/p/")).await;
    let counted =
        (receipt.removed.blobs, receipt.object_versions.deleted, receipt.object_versions.not_versioned);
    assert_eq!(counted, bucket.either((2, 2, 0), (2, 0, 2)));
    assert_eq!(bucket.objects(&setup).await, 1);
    // Object versions of blobs that were deleted earlier are erased with the store.
    let orphan = setup.orphan_key(7);
    setup.plant(orphan).await;
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
