//! Memories by their ids: races, preconditions, replays, and what a read notes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use keepsake_core::ContentHash;
use keepsake_core::limits::LimitOverrides;
use keepsake_engine::{
    Clock, EngineError, MemoryEdit, MemoryQuery, NewMemory, OnTaken, PageRequest, Precondition, ShownItem,
    View,
};
use keepsake_index::MemoryTarget;

use crate::test_engine::{TestEngine, edit_of, insert, new_memory};

crate::on_every_backend! {
    precondition_is_checked_before_pinning,
    repeated_rename_overwrites_nothing,
    refused_creation_removes_its_blob_and_names_the_conflicting_path,
    repeated_creation_returns_its_first_result,
    idempotency_key_of_another_request_is_refused,
    concurrent_duplicates_write_once,
    repeated_no_op_update_is_not_applied,
    only_reads_of_content_record_an_access_time,
    cursor_is_valid_only_for_its_query,
    expiry_time_is_shown_before_the_memory_expires,
}

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
                other
                    .memories
                    .update(&principal, store_id, memory_id, edit)
                    .await
                    .unwrap();
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
    let edit = MemoryEdit {
        content: Some("ours".to_owned()),
        ..edit
    };
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
    let EngineError::PreconditionFailed {
        memory_id,
        current_sha256,
        ..
    } = refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!(memory_id, Some(memory.memory.head.memory_id));
    assert_eq!(current_sha256, Some(hash("theirs")));
    assert_eq!(setup.content_of(&memory).await, "theirs");
    assert_eq!(
        setup.blobs_there().await.len(),
        2,
        "the refused content is removed"
    );
}

async fn precondition_is_checked_before_pinning(setup: TestEngine) {
    let memory = setup.make("/a.txt", "one").await;
    let other = Some(Precondition::ContentSha256(hash("other")));
    for content in [None, Some("one")] {
        let edit = MemoryEdit {
            pinned: Some(true),
            ..edit_of(content, None, other)
        };
        let refused = setup.update(&memory, edit).await;
        assert!(
            matches!(refused, Err(EngineError::PreconditionFailed { .. })),
            "{refused:?}"
        );
    }
    assert!(!setup.read(&memory, View::Basic).await.memory.is_pinned);
    // An update that was applied is found applied.
    let again = edit_of(Some("one"), None, other);
    assert_eq!(
        setup.update(&memory, again).await.unwrap().memory.head,
        memory.memory.head
    );
}

async fn repeated_rename_overwrites_nothing(setup: TestEngine) {
    let memory = setup.make("/a.txt", "one").await;
    let rename = edit_of(Some("ours"), Some("/b.txt"), Some(Precondition::NotExists));
    setup.update(&memory, rename.clone()).await.unwrap();
    setup
        .update(&memory, edit_of(Some("theirs"), None, None))
        .await
        .unwrap();
    let again = setup.update(&memory, rename).await.unwrap();
    assert_eq!(again.memory.head.sha256, hash("theirs"));
    assert_eq!(setup.operations().await, ["modified", "modified", "created"]);
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

async fn refused_creation_removes_its_blob_and_names_the_conflicting_path(setup: TestEngine) {
    let below = setup.make("/a/b.txt", "one").await;
    for path in ["/a/b.txt", "/a", "/a/b.txt/c"] {
        let refused = setup.try_make(new_memory(path, "two")).await.unwrap_err();
        let EngineError::PathConflict {
            conflicting_memory_id,
            conflicting_path,
            ..
        } = refused
        else {
            panic!("{refused:?}");
        };
        assert_eq!(conflicting_memory_id, Some(below.memory.head.memory_id), "{path}");
        assert_eq!(conflicting_path, "/a/b.txt", "{path}");
    }
    assert_eq!(setup.blobs_there().await, [setup.blob_key(&below.memory.head)]);
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

async fn repeated_creation_returns_its_first_result(setup: TestEngine) {
    let call = Some(setup.call_named("key", "body"));
    let new = NewMemory {
        idempotency: call,
        view: View::Full,
        ..new_memory("/a.txt", "one")
    };
    let first = setup.try_make(new.clone()).await.unwrap();
    setup
        .update(&first, edit_of(Some("two"), Some("/b.txt"), None))
        .await
        .unwrap();
    let again = setup.try_make(new.clone()).await.unwrap();
    assert_eq!(again.memory.head, first.memory.head);
    assert_eq!(again.memory.updated_at, first.memory.updated_at);
    assert_eq!(again.content, first.content);
    setup.delete(&first, None).await.unwrap();
    let again = setup.try_make(new).await.unwrap();
    assert_eq!(again.memory.head, first.memory.head);
    assert_eq!(setup.operations().await, ["deleted", "modified", "created"]);
}

async fn idempotency_key_of_another_request_is_refused(setup: TestEngine) {
    let new = NewMemory {
        idempotency: Some(setup.call_named("key", "body")),
        ..new_memory("/a.txt", "one")
    };
    let first = setup.try_make(new).await.unwrap();
    let other = Some(setup.call_named("key", "another body"));
    let refused = setup
        .try_make(NewMemory {
            idempotency: other,
            ..new_memory("/b.txt", "two")
        })
        .await;
    assert!(matches!(refused, Err(EngineError::KeyReused)), "{refused:?}");
    let edit = MemoryEdit {
        idempotency: other,
        ..edit_of(Some("two"), None, None)
    };
    let refused = setup.update(&first, edit).await;
    assert!(matches!(refused, Err(EngineError::KeyReused)), "{refused:?}");
    assert_eq!(setup.operations().await, ["created"]);
    assert_eq!(setup.blobs_there().await.len(), 1);
}

async fn concurrent_duplicates_write_once(setup: TestEngine) {
    let call = Some(setup.call_named("key", "body"));
    let new = NewMemory {
        idempotency: call,
        ..new_memory("/a.txt", "one")
    };
    let (here, there) = (setup.engine.clone(), setup.replica());
    let calls = (0..8).map(|number| {
        let engine = if number % 2 == 0 { &here } else { &there };
        engine
            .memories
            .create(&setup.principal, setup.store_id, new.clone())
    });
    let answers = futures::future::join_all(calls).await;
    let ids: std::collections::HashSet<_> = answers
        .into_iter()
        .map(|answer| answer.unwrap().memory.head.version_id)
        .collect();
    assert_eq!(ids.len(), 1);
    assert_eq!(setup.operations().await, ["created"]);
    assert_eq!(setup.blobs_there().await.len(), 1);
}

async fn repeated_no_op_update_is_not_applied(setup: TestEngine) {
    let memory = setup.make("/a.txt", "one").await;
    let edit = MemoryEdit {
        idempotency: Some(setup.call_named("key", "body")),
        ..edit_of(Some("one"), None, None)
    };
    setup.update(&memory, edit.clone()).await.unwrap();
    setup
        .update(&memory, edit_of(Some("two"), None, None))
        .await
        .unwrap();
    // Sent again, it is not carried out: it had been.
    let again = setup.update(&memory, edit).await.unwrap();
    assert_eq!(again.memory.head.sha256, hash("one"));
    assert_eq!(setup.content_of(&memory).await, "two");
    assert_eq!(setup.operations().await, ["modified", "created"]);
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
    let upsert = NewMemory {
        on_taken: OnTaken::Replace,
        ..new_memory("/a.txt", "ours")
    };
    let shown = setup.try_make(upsert).await.unwrap();
    assert_eq!(setup.content_of(&shown).await, "ours");
    assert_eq!(setup.operations().await, ["modified", "created"]);
    assert_eq!(
        setup.blobs_there().await.len(),
        2,
        "the refused creation's blob is removed"
    );
}

async fn only_reads_of_content_record_an_access_time(setup: TestEngine) {
    let memory = setup.make("/a.txt", "one").await;
    let query = MemoryQuery::default();
    for view in [View::Basic, View::Full] {
        let page = setup
            .engine
            .memories
            .list(&setup.principal, setup.store_id, &query, view)
            .await
            .unwrap();
        let [ShownItem::Memory(shown)] = page.items.as_slice() else {
            panic!("{page:?}");
        };
        assert_eq!(shown.content.as_deref(), (view == View::Full).then_some("one"));
        assert_eq!(
            setup.engine.replica.flush().await.unwrap(),
            usize::from(view == View::Full)
        );
    }
    setup.clock.advance(std::time::Duration::from_secs(5));
    setup.read(&memory, View::Basic).await;
    assert_eq!(setup.engine.replica.flush().await.unwrap(), 0);
    setup.read(&memory, View::Full).await;
    // Told at once where it was read, and by every replica once it is written.
    assert_eq!(
        setup.read(&memory, View::Basic).await.last_accessed_at,
        Some(setup.clock.now())
    );
    assert_eq!(setup.engine.replica.flush().await.unwrap(), 1);
    let elsewhere = setup
        .replica()
        .memories
        .get(
            &setup.principal,
            setup.store_id,
            memory.memory.head.memory_id,
            View::Basic,
        )
        .await
        .unwrap();
    assert_eq!(elsewhere.last_accessed_at, Some(setup.clock.now()));
}

async fn cursor_is_valid_only_for_its_query(setup: TestEngine) {
    for name in ["a", "b", "c"] {
        setup.make(&format!("/{name}"), name).await;
    }
    let (others, their_store) = setup.tenant_with(LimitOverrides::default()).await;
    let page_of = |page: Option<String>| MemoryQuery {
        page: PageRequest { limit: Some(1), page },
        ..MemoryQuery::default()
    };
    let first = setup
        .engine
        .memories
        .list(&setup.principal, setup.store_id, &page_of(None), View::Basic)
        .await
        .unwrap();
    let next = first.next.unwrap();
    // Another replica takes it, with another limit.
    let rest = MemoryQuery {
        page: PageRequest {
            limit: Some(100),
            page: Some(next.clone()),
        },
        ..MemoryQuery::default()
    };
    let page = setup
        .replica()
        .memories
        .list(&setup.principal, setup.store_id, &rest, View::Basic)
        .await
        .unwrap();
    assert_eq!((page.items.len(), page.next), (2, None));
    let refused = |outcome: Result<_, EngineError>, what: &str| {
        assert!(
            matches!(outcome, Err(EngineError::Invalid { field: "page", .. })),
            "{what}: {outcome:?}"
        );
    };
    let foreign = setup
        .engine
        .memories
        .list(&others, their_store, &page_of(Some(next.clone())), View::Basic)
        .await;
    refused(foreign, "another tenant");
    let deeper = MemoryQuery {
        depth: Some(1),
        ..page_of(Some(next.clone()))
    };
    let other_query = setup
        .engine
        .memories
        .list(&setup.principal, setup.store_id, &deeper, View::Basic)
        .await;
    refused(other_query, "another query");
    for position in 5..next.len() {
        let mut forged = next.clone().into_bytes();
        forged[position] = if forged[position] == b'A' { b'B' } else { b'A' };
        let query = page_of(Some(String::from_utf8(forged).unwrap()));
        let outcome = setup
            .engine
            .memories
            .list(&setup.principal, setup.store_id, &query, View::Basic)
            .await;
        refused(outcome, "a changed character");
    }
    for garbage in ["", "page_", "page_AAAA", "x", "page_*"] {
        let query = page_of(Some(garbage.to_owned()));
        let outcome = setup
            .engine
            .memories
            .list(&setup.principal, setup.store_id, &query, View::Basic)
            .await;
        refused(outcome, garbage);
    }
}

async fn one_page_of_contents_is_one_query_and_cached_blobs(setup: TestEngine) {
    for number in 0..25 {
        setup.make(&format!("/{number:02}"), &number.to_string()).await;
    }
    let query = MemoryQuery {
        page: PageRequest {
            limit: Some(100),
            page: None,
        },
        ..MemoryQuery::default()
    };
    let replica = setup.replica();
    for _ in 0..2 {
        let page = replica
            .memories
            .list(&setup.principal, setup.store_id, &query, View::Full)
            .await
            .unwrap();
        assert_eq!(page.items.len(), 20, "a page with content is clamped");
    }
    assert_eq!(setup.blobs.calls().get, 20);
}

async fn expiry_time_is_shown_before_the_memory_expires(setup: TestEngine) {
    let draft = keepsake_engine::StoreDraft {
        name: "short".to_owned(),
        expires_unused_after: Some(60),
        ..Default::default()
    };
    let store = setup
        .engine
        .stores
        .create(&setup.principal, draft, None)
        .await
        .unwrap();
    let made = setup
        .engine
        .memories
        .create(&setup.principal, store.store_id, new_memory("/a", "one"))
        .await
        .unwrap();
    let day = std::time::Duration::from_hours(24);
    assert_eq!(
        made.expires_at,
        Some(setup.clock.now().plus(day)),
        "a new period waits a day"
    );
    let pinned = MemoryEdit {
        pinned: Some(true),
        ..edit_of(None, None, None)
    };
    let memory_id = made.memory.head.memory_id;
    let shown = setup
        .engine
        .memories
        .update(&setup.principal, store.store_id, memory_id, pinned)
        .await
        .unwrap();
    assert!(shown.memory.is_pinned && shown.expires_at.is_none());
    assert_eq!(shown.memory.head, made.memory.head, "a pin writes no version");
    setup.clock.advance(day * 10);
    let found = setup
        .index
        .memories
        .find(setup.principal.tenant_id, store.store_id, memory_id)
        .await
        .unwrap()
        .unwrap();
    assert!(matches!(found.target, MemoryTarget::Live(_)));
}
