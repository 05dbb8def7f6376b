//! Batches: races and refusals at the object store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use keepsake_core::ContentHash;
use keepsake_core::limits::LimitOverrides;
use keepsake_engine::{
    BatchStatus, EngineError, MemoryBatch, MemoryOperation, OnTaken, Precondition, ShownMemory,
};

use crate::test_engine::{TestEngine, edit_of, new_memory};

crate::with_object_store! {
    batch_that_lost_a_race_is_retried,
    refused_batch_leaves_no_blobs,
}

fn create(path: &str, content: &str) -> MemoryOperation {
    MemoryOperation::Put {
        path: path.to_owned(),
        content: content.to_owned(),
        pinned: None,
        on_taken: OnTaken::Refuse,
        expected: None,
    }
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
                other.memories.update(&principal, store_id, memory_id, edit).await.unwrap();
                let new = new_memory("/b", "theirs too");
                other.memories.create(&principal, store_id, new).await.unwrap();
            }
            Ok(())
        }
    });
    puts
}

async fn batch_that_lost_a_race_is_retried(setup: TestEngine) {
    let memory = setup.make("/a", "one").await;
    let puts = race_once(&setup, &memory, "theirs");
    let ours = MemoryOperation::Update {
        memory_id: memory.memory.head.memory_id,
        content: Some("ours".to_owned()),
        path: None,
        pinned: None,
        precondition: Some(Precondition::ContentSha256(ContentHash::of(b"one"))),
    };
    let batch = MemoryBatch {
        operations: vec![ours, create("/b", "ours"), create("/c", "ours")],
        is_atomic: false,
        idempotency: None,
    };
    let memories = &setup.engine.memories;
    let results = memories.batch(&setup.principal, setup.store_id, batch).await;
    let outcomes = results.unwrap().into_iter().map(|result| result.outcome);
    let [ours, taken, made] = <[_; 3]>::try_from(outcomes.collect::<Vec<_>>()).unwrap();
    let refusal = ours.unwrap_err();
    assert!(matches!(*refusal, EngineError::PreconditionFailed { .. }), "{refusal:?}");
    assert_eq!(taken.unwrap_err().to_string(), "another memory exists at the path: `/b`");
    assert_eq!(made.unwrap().0, BatchStatus::Created);
    assert_eq!(setup.content_of(&memory).await, "theirs");
    assert_eq!(puts.load(Ordering::SeqCst), 3 + 2 + 1);
    assert_eq!(setup.blobs_there().await.len(), 4, "refused contents are removed");
}

async fn refused_batch_leaves_no_blobs(setup: TestEngine) {
    let (principal, store_id) =
        setup.tenant_with(LimitOverrides { memories_per_store: Some(1), ..LimitOverrides::default() }).await;
    let batch = MemoryBatch {
        operations: (0..40).map(|number| create(&format!("/{number}"), "x")).collect(),
        is_atomic: true,
        idempotency: None,
    };
    let refused = setup.engine.memories.batch(&principal, store_id, batch).await;
    assert!(matches!(refused, Err(EngineError::OfOperation { operation: 1, .. })), "{refused:?}");
    assert_eq!(setup.blobs_there().await, []);
    assert_eq!(setup.blobs.calls().put, 40);
}
