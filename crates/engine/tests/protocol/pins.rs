//! A pin that another replica sets while a call is under way is never lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use keepsake_core::{BlobKey, MemoryId};
use keepsake_engine::{Engine, MemoryEdit, Precondition, Restoration, ShownMemory, View};
use keepsake_index::Idempotency;

use crate::test_engine::{TestEngine, edit_of};

crate::with_object_store! {
    no_op_update_keeps_a_concurrent_pin,
    no_op_restore_keeps_a_concurrent_pin,
    no_op_update_keeps_a_concurrent_unpin,
}

async fn set_pin(setup: &TestEngine, engine: &Engine, memory_id: MemoryId, pinned: bool) {
    let edit = MemoryEdit { pinned: Some(pinned), ..edit_of(None, None, None) };
    engine.memories.update(&setup.principal, setup.store_id, memory_id, edit).await.unwrap();
}

/// Has another replica set the pin at the next call of the blob store: after the
/// memory was read, and before the outcome is written.
fn pin_meanwhile(setup: &TestEngine, memory: &ShownMemory, pinned: bool) -> Arc<AtomicBool> {
    let is_done = Arc::new(AtomicBool::new(false));
    let (other, principal, store_id) = (setup.replica(), Arc::clone(&setup.principal), setup.store_id);
    let (memory_id, done) = (memory.memory.head.memory_id, Arc::clone(&is_done));
    let hook = move |_: &BlobKey| {
        let (other, principal, done) = (other.clone(), Arc::clone(&principal), Arc::clone(&done));
        async move {
            if !done.swap(true, Ordering::SeqCst) {
                let edit = MemoryEdit { pinned: Some(pinned), ..edit_of(None, None, None) };
                other.memories.update(&principal, store_id, memory_id, edit).await.unwrap();
            }
            Ok(())
        }
    };
    setup.blobs.before_put(hook.clone());
    setup.blobs.before_get(hook);
    is_done
}

async fn assert_pinned(setup: &TestEngine, answer: &ShownMemory, expected: bool) {
    assert_eq!(answer.memory.is_pinned, expected, "the answer");
    let read = setup.read(answer, View::Basic).await;
    assert_eq!(read.memory.is_pinned, expected, "the row");
}

/// A move onto a taken path, which `not_exists` makes a change of nothing.
fn move_onto_taken(idempotency: Idempotency) -> MemoryEdit {
    MemoryEdit {
        idempotency: Some(idempotency),
        ..edit_of(Some("new"), Some("/taken.txt"), Some(Precondition::NotExists))
    }
}

async fn no_op_update_keeps_a_concurrent_pin(setup: TestEngine) {
    let memory = setup.make("/a.txt", "one").await;
    setup.make("/taken.txt", "other").await;
    let is_pinned = pin_meanwhile(&setup, &memory, true);
    let answer = setup.update(&memory, move_onto_taken(setup.call_named("key", "body"))).await.unwrap();
    assert!(is_pinned.load(Ordering::SeqCst), "nothing was interleaved");
    assert_pinned(&setup, &answer, true).await;
    assert_eq!(setup.operations().await, ["created", "created"]);
}

async fn no_op_update_keeps_a_concurrent_unpin(setup: TestEngine) {
    let memory = setup.make("/a.txt", "one").await;
    setup.make("/taken.txt", "other").await;
    set_pin(&setup, &setup.engine, memory.memory.head.memory_id, true).await;
    let is_unpinned = pin_meanwhile(&setup, &memory, false);
    let answer = setup.update(&memory, move_onto_taken(setup.call_named("key", "body"))).await.unwrap();
    assert!(is_unpinned.load(Ordering::SeqCst), "nothing was interleaved");
    assert_pinned(&setup, &answer, false).await;
}

async fn no_op_restore_keeps_a_concurrent_pin(setup: TestEngine) {
    let memory = setup.make("/a.txt", "one").await;
    setup.update(&memory, edit_of(Some("two"), Some("/b.txt"), None)).await.unwrap();
    setup.make("/a.txt", "in the way").await;
    let is_pinned = pin_meanwhile(&setup, &memory, true);
    let restoration = Restoration {
        precondition: Some(Precondition::NotExists),
        view: View::Basic,
        idempotency: Some(setup.call_named("key", "body")),
    };
    // A replica has nothing cached: it reads the version's content.
    let answer = setup
        .replica()
        .memories
        .restore(&setup.principal, setup.store_id, memory.memory.head.version_id, restoration)
        .await
        .unwrap();
    assert!(is_pinned.load(Ordering::SeqCst), "nothing was interleaved");
    assert_eq!(answer.memory.head.path.as_str(), "/b.txt", "nothing changed");
    assert_pinned(&setup, &answer, true).await;
}
