//! Batches that are sent again, and batches that meet others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use keepsake_core::limits::LimitOverrides;
use keepsake_engine::{EngineError, MemoryBatch, OperationResult, Precondition, ShownMemory};

use super::{DIFFERS, TAKEN, all_told, atomic, create, each, hash, pin, update, upsert};
use crate::test_engine::{TestEngine, edit_of, new_memory};

crate::on_every_backend! {
    repeated_call_answers_the_same_results,
    repeated_call_without_any_version_answers_the_same_results,
    concurrent_duplicates_are_applied_once,
}

crate::with_object_store! {
    batch_that_lost_a_race_is_retried,
    refused_batch_leaves_no_blobs,
}

/// Has another replica make these changes at the first put of this one.
fn race_once(setup: &TestEngine, memory: &ShownMemory, theirs: &'static str) -> Arc<AtomicU32> {
    let (other, principal, store_id) = (setup.replica(), Arc::clone(&setup.principal), setup.store_id);
    let (puts, memory_id) = (Arc::new(AtomicU32::new(0)), memory.memory.head.memory_id);
    let counter = Arc::clone(&puts);
    setup.blobs.before_put(move |_| {
        let (other, principal, puts) = (other.clone(), Arc::clone(&principal), Arc::clone(&counter));
        async move {
            if puts.fetch_add(1, Ordering::SeqCst) == 0 {
                let edit = edit_of(Some(theirs), None, None);
                other
                    .memories
                    .update(&principal, store_id, memory_id, edit)
                    .await
                    .unwrap();
                let new = new_memory("/b", "theirs too");
                other.memories.create(&principal, store_id, new).await.unwrap();
            }
            Ok(())
        }
    });
    puts
}

async fn repeated_call_answers_the_same_results(setup: TestEngine) {
    let taken = setup.make("/taken", "one").await;
    let edited = setup.make("/edited", "one").await;
    let batch = MemoryBatch {
        idempotency: Some(setup.call_named("key", "body")),
        ..each(vec![
            create("/a", "one"),
            create("/taken", "x"),
            upsert("/taken", "one"),
            update(&edited, edit_of(Some("two"), None, None)),
            upsert("/b", "three"),
        ])
    };
    // `/taken` is named twice.
    let refused = setup.batch(batch.clone()).await.unwrap_err();
    assert!(matches!(refused, EngineError::Invalid { .. }), "{refused:?}");
    let mut batch = batch;
    batch.operations.remove(2);
    batch.operations.push(pin(&taken, None));
    let first = setup.batch(batch.clone()).await.unwrap();
    let expected = [
        "created /a",
        TAKEN,
        "updated /edited",
        "created /b",
        "updated /taken pinned",
    ];
    assert_eq!(all_told(&first), expected);
    let operations = setup.operations().await;
    setup
        .update(&edited, edit_of(Some("later"), Some("/later"), None))
        .await
        .unwrap();
    let again = setup.batch(batch.clone()).await.unwrap();
    assert_eq!(all_told(&again), expected);
    let memory = |results: &[OperationResult]| match &results[2].outcome {
        Ok((_, Some(shown))) => shown.memory.head.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(memory(&again), memory(&first));
    assert_eq!(setup.operations().await.len(), operations.len() + 1);
    let other = MemoryBatch {
        idempotency: Some(setup.call_named("key", "another body")),
        ..batch
    };
    let refused = setup.batch(other).await;
    assert!(matches!(refused, Err(EngineError::KeyReused)), "{refused:?}");
}

async fn repeated_call_without_any_version_answers_the_same_results(setup: TestEngine) {
    let memory = setup.make("/a", "one").await;
    let batch = MemoryBatch {
        idempotency: Some(setup.call_named("key", "body")),
        ..atomic(vec![upsert("/a", "one")])
    };
    assert_eq!(
        all_told(&setup.batch(batch.clone()).await.unwrap()),
        ["unchanged /a"]
    );
    setup
        .update(&memory, edit_of(Some("two"), None, None))
        .await
        .unwrap();
    let again = setup.batch(batch).await.unwrap();
    assert_eq!(all_told(&again), ["unchanged /a"]);
    assert_eq!(setup.content_of(&memory).await, "two");
}

async fn concurrent_duplicates_are_applied_once(setup: TestEngine) {
    let batch = MemoryBatch {
        idempotency: Some(setup.call_named("key", "body")),
        ..each(vec![create("/a", "one"), create("/b", "two")])
    };
    let calls = (0..6).map(|_| setup.batch(batch.clone()));
    for results in futures::future::join_all(calls).await {
        assert_eq!(all_told(&results.unwrap()), ["created /a", "created /b"]);
    }
    assert_eq!(setup.operations().await.len(), 2);
}

async fn batch_that_lost_a_race_is_retried(setup: TestEngine) {
    let memory = setup.make("/a", "one").await;
    let puts = race_once(&setup, &memory, "theirs");
    let expects = Some(Precondition::ContentSha256(hash("one")));
    let batch = vec![
        update(&memory, edit_of(Some("ours"), None, expects)),
        create("/b", "ours"),
        create("/c", "ours"),
    ];
    let results = setup.batch(each(batch)).await.unwrap();
    let taken = "another memory exists at the path: `/b`";
    assert_eq!(all_told(&results), [DIFFERS, taken, "created /c"]);
    assert_eq!(setup.content_of(&memory).await, "theirs");
    assert_eq!(puts.load(Ordering::SeqCst), 3 + 2 + 1);
    assert_eq!(setup.blobs_there().await.len(), 4, "refused contents are removed");
}

async fn refused_batch_leaves_no_blobs(setup: TestEngine) {
    let (principal, store_id) = setup
        .tenant_with(LimitOverrides {
            memories_per_store: Some(1),
            ..LimitOverrides::default()
        })
        .await;
    let batch = atomic((0..40).map(|number| create(&format!("/{number}"), "x")).collect());
    let refused = setup.engine.memories.batch(&principal, store_id, batch).await;
    assert!(
        matches!(refused, Err(EngineError::OfOperation { operation: 1, .. })),
        "{refused:?}"
    );
    assert_eq!(setup.blobs_there().await, []);
    assert_eq!(setup.blobs.calls().put, 40);
}
