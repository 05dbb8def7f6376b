//! Redactions that race or fail, and their order with restores.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use keepsake_blobs::BlobError;
use keepsake_engine::jobs::{DrainDeletions, RunOutcome, RunRequest};
use keepsake_engine::{Engine, EngineError, Restoration, View};
use tokio_util::sync::CancellationToken;

use crate::test_engine::{TestEngine, edit_of};

crate::with_object_store! {
    failed_blob_removal_of_a_redaction_is_queued,
    redacted_content_is_served_from_no_cache,
    restore_during_a_redaction_is_refused,
    restores_and_edits_of_one_memory_are_serialized,
}

fn restoration() -> Restoration {
    Restoration { precondition: None, view: View::Full, idempotency: None }
}

async fn failed_blob_removal_of_a_redaction_is_queued(setup: TestEngine) {
    let memory = setup.make("/a.txt", "secret").await;
    setup.update(&memory, edit_of(Some("harmless"), None, None)).await.unwrap();
    let id = memory.memory.head.version_id;
    setup.blobs.before_delete(|_| async { Err(BlobError::Unavailable("as the test wants it".to_owned())) });
    let redacted = setup.engine.versions.redact(&setup.principal, setup.store_id, id).await;
    assert!(redacted.is_ok(), "the rows are clean, the blob is queued: {redacted:?}");
    assert_eq!(setup.blobs_there().await.len(), 2);
    setup.blobs.clear_hooks();
    let drained = setup
        .engine
        .jobs
        .run(Arc::new(DrainDeletions), RunRequest::SCHEDULED, &CancellationToken::new())
        .await;
    assert!(matches!(drained, Ok(RunOutcome::Ran(_))), "{drained:?}");
    assert_eq!(setup.blobs_there().await.len(), 1);
}

async fn redacted_content_is_served_from_no_cache(setup: TestEngine) {
    let memory = setup.make("/a.txt", "secret").await;
    let kept = setup.update(&memory, edit_of(Some("kept"), None, None)).await.unwrap();
    setup.update(&memory, edit_of(Some("harmless"), None, None)).await.unwrap();
    let (id, kept) = (memory.memory.head.version_id, kept.memory.head.version_id);
    let replicas = [setup.replica(), setup.replica()];
    let content_on = async |engine: &Engine, version_id| {
        let shown = engine.versions.get(&setup.principal, setup.store_id, version_id, View::Full);
        shown.await.unwrap().content
    };
    // The first look fills the cache, the second is served from it.
    for fetches in [4, 0] {
        let before = setup.blobs.calls().get;
        for engine in &replicas {
            assert_eq!(content_on(engine, id).await.as_deref(), Some("secret"));
            assert_eq!(content_on(engine, kept).await.as_deref(), Some("kept"));
        }
        assert_eq!(setup.blobs.calls().get - before, fetches);
    }
    setup.engine.versions.redact(&setup.principal, setup.store_id, id).await.unwrap();
    // No entry from before the redaction is served again, whichever content it has.
    let before = setup.blobs.calls().get;
    for engine in &replicas {
        assert_eq!(content_on(engine, id).await, None);
        assert_eq!(content_on(engine, kept).await.as_deref(), Some("kept"));
    }
    assert_eq!(setup.blobs.calls().get - before, 2);
}

async fn restore_during_a_redaction_is_refused(setup: TestEngine) {
    let memory = setup.make("/a.txt", "secret").await;
    setup.update(&memory, edit_of(None, Some("/b.txt"), None)).await.unwrap();
    setup.update(&memory, edit_of(Some("harmless"), None, None)).await.unwrap();
    let id = memory.memory.head.version_id;
    // Redacted by another after the version was read and before the commit; the
    // blob stays, since another version shares it.
    let (other, principal, store_id) = (setup.replica(), Arc::clone(&setup.principal), setup.store_id);
    let gets = Arc::new(AtomicU32::new(0));
    setup.blobs.before_get(move |_| {
        let (other, principal, gets) = (other.clone(), Arc::clone(&principal), Arc::clone(&gets));
        async move {
            if gets.fetch_add(1, Ordering::SeqCst) == 0 {
                other.versions.redact(&principal, store_id, id).await.unwrap();
            }
            Ok(())
        }
    });
    let refused = setup.replica().memories.restore(&setup.principal, setup.store_id, id, restoration()).await;
    assert!(matches!(refused, Err(EngineError::Conflict(_))), "{refused:?}");
    assert_eq!(setup.content_of(&memory).await, "harmless");
}

/// Each of them moves the memory away from the path that the others queue for.
async fn restores_and_edits_of_one_memory_are_serialized(setup: TestEngine) {
    let memory = setup.make("/a.txt", "0").await;
    let first = memory.memory.head.version_id;
    setup.update(&memory, edit_of(Some("1"), Some("/b.txt"), None)).await.unwrap();
    let changes = (0..20).map(|number| {
        let (setup, memory) = (&setup, &memory);
        async move {
            if number % 2 == 0 {
                let restored =
                    setup.engine.memories.restore(&setup.principal, setup.store_id, first, restoration());
                restored.await.unwrap();
            } else {
                let edit = edit_of(Some(&format!("{number} edits")), Some("/b.txt"), None);
                setup.update(memory, edit).await.unwrap();
            }
        }
    });
    futures::future::join_all(changes).await;
    // No change lost a race, so no blob was put twice.
    assert_eq!(setup.blobs.calls().put, 12);
    assert_eq!(setup.blobs.calls().delete, 0);
}
