//! Memories by their ids: races, and calls of the object store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use keepsake_core::ContentHash;
use keepsake_engine::{
    EngineError, MemoryEdit, MemoryQuery, NewMemory, OnTaken, PageRequest, Precondition, View,
};

use crate::test_engine::{TestEngine, edit_of, insert, new_memory};

crate::with_object_store! {
    lost_update_is_retried_on_a_fresh_read,
    precondition_is_checked_again_after_a_lost_race,
    edits_of_one_memory_by_tool_and_api_are_serialized,
    store_deletion_during_a_write_leaves_no_blob,
    upsert_that_loses_a_race_replaces_the_winner,
    one_page_of_contents_is_one_query_and_cached_blobs,
}

fn hash(text: &str) -> ContentHash {
    ContentHash::of(text.as_bytes())
}

/// Has another replica change the memory at the first put of this one.
fn race_once(setup: &TestEngine, memory_id: keepsake_core::MemoryId, theirs: &'static str) -> Arc<AtomicU32> {
    let (other, principal, store_id) = (setup.replica(), Arc::clone(&setup.principal), setup.store_id);
    let puts = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&puts);
    setup.blobs.before_put(move |_| {
        let (other, principal, puts) = (other.clone(), Arc::clone(&principal), Arc::clone(&counter));
        async move {
            // Once, and not for the other's own put.
            if puts.fetch_add(1, Ordering::SeqCst) == 0 {
                let edit = edit_of(Some(theirs), None, None);
                other.memories.update(&principal, store_id, memory_id, edit).await.unwrap();
            }
            Ok(())
        }
    });
    puts
}

async fn lost_update_is_retried_on_a_fresh_read(setup: TestEngine) {
    let memory = setup.make("/a.txt", "one").await;
    let puts = race_once(&setup, memory.memory.head.memory_id, "theirs");
    let edit = edit_of(None, Some("/b.txt"), None);
    // A rename brings no content, so nothing races it; with content, it does.
    let edit = MemoryEdit { content: Some("ours".to_owned()), ..edit };
    let shown = setup.update(&memory, edit).await.unwrap();
    assert_eq!(puts.load(Ordering::SeqCst), 3, "ours, theirs, and ours again");
    assert_eq!(shown.memory.head.path.as_str(), "/b.txt");
    assert_eq!(setup.content_of(&memory).await, "ours");
    assert_eq!(setup.operations().await, ["modified", "modified", "created"]);
}

async fn precondition_is_checked_again_after_a_lost_race(setup: TestEngine) {
    let memory = setup.make("/a.txt", "one").await;
    race_once(&setup, memory.memory.head.memory_id, "theirs");
    let edit = edit_of(Some("ours"), None, Some(Precondition::ContentSha256(hash("one"))));
    let refused = setup.update(&memory, edit).await.unwrap_err();
    let EngineError::PreconditionFailed { memory_id, current_sha256, .. } = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(memory_id, Some(memory.memory.head.memory_id));
    assert_eq!(current_sha256, Some(hash("theirs")));
    assert_eq!(setup.content_of(&memory).await, "theirs");
    assert_eq!(setup.blobs_there().await.len(), 2, "the refused content is removed");
}

async fn edits_of_one_memory_by_tool_and_api_are_serialized(setup: TestEngine) {
    let memory = setup.make("/a.txt", "").await;
    let edits = (0..20).map(|number| {
        let (setup, memory) = (&setup, &memory);
        async move {
            if number % 2 == 0 {
                setup.call(insert("/memories/a.txt", 0, "by the tool")).await;
            } else {
                let edit = edit_of(Some(&format!("by the API {number}\n")), None, None);
                setup.update(memory, edit).await.unwrap();
            }
        }
    });
    futures::future::join_all(edits).await;
    // No edit lost a race, so no edit put a blob twice.
    assert_eq!(setup.blobs.calls().put, 21);
    assert_eq!(setup.blobs.calls().delete, 0);
}

async fn store_deletion_during_a_write_leaves_no_blob(setup: TestEngine) {
    let (other, principal, store_id) = (setup.replica(), Arc::clone(&setup.principal), setup.store_id);
    setup.blobs.after_put(move |_| {
        let (other, principal) = (other.clone(), Arc::clone(&principal));
        async move {
            other.stores.delete(&principal, store_id).await.unwrap();
            Ok(())
        }
    });
    let refused = setup.try_make(new_memory("/a.txt", "one")).await;
    assert!(matches!(refused, Err(EngineError::StoreNotFound)), "{refused:?}");
    assert_eq!(setup.blobs_there().await, []);
}

async fn upsert_that_loses_a_race_replaces_the_winner(setup: TestEngine) {
    let (other, principal, store_id) = (setup.replica(), Arc::clone(&setup.principal), setup.store_id);
    let puts = AtomicU32::new(0);
    let puts = Arc::new(puts);
    setup.blobs.before_put(move |_| {
        let (other, principal, puts) = (other.clone(), Arc::clone(&principal), Arc::clone(&puts));
        async move {
            if puts.fetch_add(1, Ordering::SeqCst) == 0 {
                let theirs = new_memory("/a.txt", "theirs");
                other.memories.create(&principal, store_id, theirs).await.unwrap();
            }
            Ok(())
        }
    });
    let upsert = NewMemory { on_taken: OnTaken::Replace, ..new_memory("/a.txt", "ours") };
    let shown = setup.try_make(upsert).await.unwrap();
    assert_eq!(setup.content_of(&shown).await, "ours");
    assert_eq!(setup.operations().await, ["modified", "created"]);
    assert_eq!(setup.blobs_there().await.len(), 2, "the refused creation's blob is removed");
}

async fn one_page_of_contents_is_one_query_and_cached_blobs(setup: TestEngine) {
    for number in 0..25 {
        setup.make(&format!("/{number:02}"), &number.to_string()).await;
    }
    let query = MemoryQuery { page: PageRequest { limit: Some(100), page: None }, ..MemoryQuery::default() };
    let replica = setup.replica();
    for _ in 0..2 {
        let page = replica.memories.list(&setup.principal, setup.store_id, &query, View::Full).await.unwrap();
        assert_eq!(page.items.len(), 20, "a page with content is clamped");
    }
    assert_eq!(setup.blobs.calls().get, 20);
}
