//! The removal of history: redaction, deletion of stores, and their order with restores.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use keepsake_blobs::BlobError;
use keepsake_engine::jobs::{DrainDeletions, Job, PurgeStores, RunOutcome, RunRequest};
use keepsake_engine::{Engine, EngineError, Restoration, ShownVersion, VersionQuery, View};
use keepsake_index::Operation;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::test_engine::{TestEngine, edit_of, new_memory};

crate::on_every_backend! {
    redaction_removes_the_blob_and_keeps_who_did_what,
    repeated_edit_of_a_redacted_version_shows_no_content,
    content_of_a_live_memory_is_not_redacted,
    shared_blob_is_removed_with_its_last_version,
    restored_content_must_fit_the_current_limit,
    restored_memory_keeps_its_id,
    restore_to_a_taken_path_names_the_other_memory,
    tool_and_api_write_one_history,
    deleted_store_is_gone_at_once_and_purged_in_batches,
    stopped_purge_is_resumed,
}

crate::with_object_store! {
    failed_blob_removal_of_a_redaction_is_queued,
    redacted_content_is_served_from_no_cache,
    restore_during_a_redaction_is_refused,
    restores_and_edits_of_one_memory_are_serialized,
}

async fn versions(setup: &TestEngine) -> Vec<ShownVersion> {
    setup
        .engine
        .versions
        .list(
            &setup.principal,
            setup.store_id,
            &VersionQuery::default(),
            View::Full,
        )
        .await
        .unwrap()
        .items
}

fn restoration() -> Restoration {
    Restoration {
        precondition: None,
        view: View::Full,
        idempotency: None,
    }
}

async fn redaction_removes_the_blob_and_keeps_who_did_what(setup: TestEngine) {
    let memory = setup.make("/a.txt", "secret").await;
    setup
        .update(&memory, edit_of(Some("harmless"), None, None))
        .await
        .unwrap();
    let before = versions(&setup).await.pop().unwrap();
    let id = before.version.version_id;
    let redacted = setup
        .engine
        .versions
        .redact(&setup.principal, setup.store_id, id)
        .await
        .unwrap();
    assert_eq!(redacted.content_also_in, Some(vec![]));
    let key = setup.blob_key(&memory.memory.head);
    assert!(
        !setup.blobs_there().await.contains(&key),
        "it is gone when the answer is there"
    );
    let after = versions(&setup).await.pop().unwrap();
    assert_eq!(
        (after.version.path, after.version.content, after.content),
        (None, None, None)
    );
    assert_eq!(after.version.created_by, before.version.created_by);
    assert_eq!(after.version.created_at, before.version.created_at);
    assert_eq!(after.version.operation, Operation::Created);
    assert!(after.version.redacted_at.is_some());
    assert_eq!(after.version.redacted_by, Some(setup.principal.actor.clone()));
    // Sent again it is done already.
    setup.clock.advance(Duration::from_secs(1));
    let again = setup
        .engine
        .versions
        .redact(&setup.principal, setup.store_id, id)
        .await
        .unwrap();
    assert_eq!(again.content_also_in, None);
    assert_eq!(again.version.version.redacted_at, after.version.redacted_at);
    assert_eq!(setup.content_of(&memory).await, "harmless");
}

async fn repeated_edit_of_a_redacted_version_shows_no_content(setup: TestEngine) {
    let memory = setup.make("/a.txt", "one\nsecret\n").await;
    let edit = json!({"command": "str_replace", "path": "/memories/a.txt", "old_str": "secret\n", "new_str": "two\n"});
    let repeat = || setup.call_on(&setup.engine, Some("toolu_1"), edit.clone());
    let first = repeat().await.unwrap();
    assert!(first.content.contains("2\ttwo"), "{}", first.content);
    let id = memory.memory.head.version_id;
    let redacted = setup
        .engine
        .versions
        .redact(&setup.principal, setup.store_id, id)
        .await;
    redacted.unwrap();
    let again = repeat().await.unwrap();
    assert_eq!(again.content, "The file /memories/a.txt has been edited.");
    assert!(!again.is_error);
    assert_eq!(versions(&setup).await.len(), 2, "and the edit was not made again");
}

async fn failed_blob_removal_of_a_redaction_is_queued(setup: TestEngine) {
    let memory = setup.make("/a.txt", "secret").await;
    setup
        .update(&memory, edit_of(Some("harmless"), None, None))
        .await
        .unwrap();
    let id = memory.memory.head.version_id;
    setup
        .blobs
        .before_delete(|_| async { Err(BlobError::Unavailable("as the test wants it".to_owned())) });
    let redacted = setup
        .engine
        .versions
        .redact(&setup.principal, setup.store_id, id)
        .await;
    assert!(
        redacted.is_ok(),
        "the rows are clean, the blob is queued: {redacted:?}"
    );
    assert_eq!(setup.blobs_there().await.len(), 2);
    setup.blobs.clear_hooks();
    run(&setup.engine, DrainDeletions).await;
    assert_eq!(setup.blobs_there().await.len(), 1);
}

async fn content_of_a_live_memory_is_not_redacted(setup: TestEngine) {
    let memory = setup.make("/a.txt", "secret").await;
    let renamed = setup
        .update(&memory, edit_of(None, Some("/b.txt"), None))
        .await
        .unwrap();
    for id in [memory.memory.head.version_id, renamed.memory.head.version_id] {
        let refused = setup
            .engine
            .versions
            .redact(&setup.principal, setup.store_id, id)
            .await;
        assert!(matches!(refused, Err(EngineError::Conflict(_))), "{refused:?}");
    }
    assert_eq!(setup.content_of(&memory).await, "secret");
    setup.delete(&memory, None).await.unwrap();
    for shown in versions(&setup).await {
        setup
            .engine
            .versions
            .redact(&setup.principal, setup.store_id, shown.version.version_id)
            .await
            .unwrap();
    }
    assert_eq!(setup.blobs_there().await, []);
}

async fn shared_blob_is_removed_with_its_last_version(setup: TestEngine) {
    let memory = setup.make("/a.txt", "secret").await;
    let renamed = setup
        .update(&memory, edit_of(None, Some("/b.txt"), None))
        .await
        .unwrap();
    setup
        .update(&memory, edit_of(Some("harmless"), None, None))
        .await
        .unwrap();
    let (first, second) = (memory.memory.head.version_id, renamed.memory.head.version_id);
    let redacted = setup
        .engine
        .versions
        .redact(&setup.principal, setup.store_id, first)
        .await
        .unwrap();
    assert_eq!(redacted.content_also_in, Some(vec![second]));
    assert_eq!(setup.blobs_there().await.len(), 2);
    let shown = setup
        .engine
        .versions
        .get(&setup.principal, setup.store_id, second, View::Full)
        .await
        .unwrap();
    assert_eq!(shown.content.as_deref(), Some("secret"));
    let redacted = setup
        .engine
        .versions
        .redact(&setup.principal, setup.store_id, second)
        .await
        .unwrap();
    assert_eq!(redacted.content_also_in, Some(vec![]));
    assert_eq!(setup.blobs_there().await.len(), 1);
}

async fn redacted_content_is_served_from_no_cache(setup: TestEngine) {
    let memory = setup.make("/a.txt", "secret").await;
    let kept = setup
        .update(&memory, edit_of(Some("kept"), None, None))
        .await
        .unwrap();
    setup
        .update(&memory, edit_of(Some("harmless"), None, None))
        .await
        .unwrap();
    let (id, kept) = (memory.memory.head.version_id, kept.memory.head.version_id);
    let replicas = [setup.replica(), setup.replica()];
    let content_on = async |engine: &Engine, version_id| {
        let shown = engine
            .versions
            .get(&setup.principal, setup.store_id, version_id, View::Full);
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
    setup
        .engine
        .versions
        .redact(&setup.principal, setup.store_id, id)
        .await
        .unwrap();
    // No entry from before the redaction is served again, whichever content it has.
    let before = setup.blobs.calls().get;
    for engine in &replicas {
        assert_eq!(content_on(engine, id).await, None);
        assert_eq!(content_on(engine, kept).await.as_deref(), Some("kept"));
    }
    assert_eq!(setup.blobs.calls().get - before, 2);
}

async fn restored_content_must_fit_the_current_limit(setup: TestEngine) {
    let memory = setup.make("/a.txt", "123456789").await;
    setup
        .update(&memory, edit_of(Some("tiny"), None, None))
        .await
        .unwrap();
    let restore_under = async |bytes_per_memory: u64| {
        let mut principal = (*setup.principal).clone();
        principal.limits.bytes_per_memory = bytes_per_memory;
        let id = memory.memory.head.version_id;
        setup
            .engine
            .memories
            .restore(&Arc::new(principal), setup.store_id, id, restoration())
            .await
    };
    let refused = restore_under(8).await;
    assert!(
        matches!(&refused, Err(EngineError::Invalid { field: "content", rule }) if rule.contains("limit of 8 bytes")),
        "{refused:?}"
    );
    assert_eq!(setup.content_of(&memory).await, "tiny");
    restore_under(9).await.unwrap();
    assert_eq!(setup.content_of(&memory).await, "123456789");
}

async fn restore_during_a_redaction_is_refused(setup: TestEngine) {
    let memory = setup.make("/a.txt", "secret").await;
    setup
        .update(&memory, edit_of(None, Some("/b.txt"), None))
        .await
        .unwrap();
    setup
        .update(&memory, edit_of(Some("harmless"), None, None))
        .await
        .unwrap();
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
    let refused = setup
        .replica()
        .memories
        .restore(&setup.principal, setup.store_id, id, restoration())
        .await;
    assert!(matches!(refused, Err(EngineError::Conflict(_))), "{refused:?}");
    assert_eq!(setup.content_of(&memory).await, "harmless");
}

async fn restored_memory_keeps_its_id(setup: TestEngine) {
    let memory = setup.make("/a.txt", "one").await;
    setup.clock.advance(Duration::from_mins(1));
    setup.delete(&memory, None).await.unwrap();
    let deletion = versions(&setup).await.remove(0);
    let refused = setup
        .engine
        .memories
        .restore(
            &setup.principal,
            setup.store_id,
            deletion.version.version_id,
            restoration(),
        )
        .await;
    assert!(matches!(refused, Err(EngineError::Conflict(_))), "{refused:?}");
    let id = memory.memory.head.version_id;
    let restored = setup
        .engine
        .memories
        .restore(&setup.principal, setup.store_id, id, restoration())
        .await
        .unwrap();
    assert_eq!(restored.memory.head.memory_id, memory.memory.head.memory_id);
    assert_eq!(restored.memory.created_at, memory.memory.created_at);
    assert_eq!(restored.content.as_deref(), Some("one"));
    assert_eq!(setup.text_at(&setup.engine, "/memories/a.txt").await, "one");
    assert_eq!(setup.operations().await, ["created", "deleted", "created"]);
    assert_eq!(
        setup.blobs_there().await.len(),
        1,
        "a restored memory needs no new blob"
    );
    // Again, it is there.
    setup
        .engine
        .memories
        .restore(&setup.principal, setup.store_id, id, restoration())
        .await
        .unwrap();
    assert_eq!(setup.operations().await.len(), 3);
}

async fn restore_to_a_taken_path_names_the_other_memory(setup: TestEngine) {
    let memory = setup.make("/a.txt", "one").await;
    setup.delete(&memory, None).await.unwrap();
    let newer = setup.make("/a.txt", "two").await;
    let refused = setup
        .engine
        .memories
        .restore(
            &setup.principal,
            setup.store_id,
            memory.memory.head.version_id,
            restoration(),
        )
        .await
        .unwrap_err();
    let EngineError::PathConflict {
        conflicting_memory_id,
        ..
    } = refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!(conflicting_memory_id, Some(newer.memory.head.memory_id));
}

/// Each of them moves the memory away from the path that the others queue for.
async fn restores_and_edits_of_one_memory_are_serialized(setup: TestEngine) {
    let memory = setup.make("/a.txt", "0").await;
    let first = memory.memory.head.version_id;
    setup
        .update(&memory, edit_of(Some("1"), Some("/b.txt"), None))
        .await
        .unwrap();
    let changes = (0..20).map(|number| {
        let (setup, memory) = (&setup, &memory);
        async move {
            if number % 2 == 0 {
                let restored =
                    setup
                        .engine
                        .memories
                        .restore(&setup.principal, setup.store_id, first, restoration());
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

async fn tool_and_api_write_one_history(setup: TestEngine) {
    setup.create("/memories/a.txt", "one\n").await;
    let head = setup.head("/a.txt").await.unwrap();
    let memory = setup
        .engine
        .memories
        .get(&setup.principal, setup.store_id, head.memory_id, View::Full)
        .await
        .unwrap();
    setup
        .update(&memory, edit_of(Some("two\n"), None, None))
        .await
        .unwrap();
    setup.call(
        json!({"command": "str_replace", "path": "/memories/a.txt", "old_str": "two", "new_str": "three"}),
    )
    .await;
    let texts: Vec<_> = versions(&setup)
        .await
        .into_iter()
        .map(|shown| {
            assert_eq!(shown.version.memory_id, head.memory_id);
            assert_eq!(shown.version.created_by, Some(setup.principal.actor.clone()));
            shown.content.unwrap().to_string()
        })
        .collect();
    assert_eq!(texts, ["three\n", "two\n", "one\n"]);
}

async fn run(engine: &Engine, job: impl Job + 'static) -> serde_json::Value {
    match engine
        .jobs
        .run(Arc::new(job), RunRequest::SCHEDULED, &CancellationToken::new())
        .await
        .unwrap()
    {
        RunOutcome::Ran(counts) => counts,
        outcome => panic!("{outcome:?}"),
    }
}

async fn deleted_store_is_gone_at_once_and_purged_in_batches(setup: TestEngine) {
    for number in 0..30 {
        let memory = setup.make(&format!("/d{}/{number}", number % 3), "text").await;
        setup
            .update(&memory, edit_of(Some("other text"), None, None))
            .await
            .unwrap();
    }
    setup
        .engine
        .stores
        .delete(&setup.principal, setup.store_id)
        .await
        .unwrap();
    let (principal, store_id) = (&setup.principal, setup.store_id);
    for engine in [setup.engine.clone(), setup.replica()] {
        let gone = engine.stores.get(principal, store_id).await;
        assert!(matches!(gone, Err(EngineError::StoreNotFound)), "{gone:?}");
        let gone = engine
            .memories
            .create(principal, store_id, new_memory("/x", "x"))
            .await;
        assert!(matches!(gone, Err(EngineError::StoreNotFound)), "{gone:?}");
        let gone = engine
            .versions
            .list(principal, store_id, &VersionQuery::default(), View::Full)
            .await;
        assert!(matches!(gone, Err(EngineError::StoreNotFound)), "{gone:?}");
    }
    assert_eq!(setup.blobs_there().await.len(), 60);
    let counts = run(&setup.engine, PurgeStores).await;
    assert_eq!(
        (counts["stores"].as_u64(), counts["blobs"].as_u64()),
        (Some(1), Some(60))
    );
    let drained = run(&setup.engine, DrainDeletions).await;
    assert_eq!(drained["removed"], 60);
    assert_eq!(setup.blobs_there().await, []);
    setup.clock.advance(Duration::from_mins(1));
    assert_eq!(run(&setup.engine, PurgeStores).await["rows"], 0);
}

async fn stopped_purge_is_resumed(setup: TestEngine) {
    for number in 0..10 {
        setup.make(&format!("/{number}"), "text").await;
    }
    setup
        .engine
        .stores
        .delete(&setup.principal, setup.store_id)
        .await
        .unwrap();
    // One run died between two batches, and another is cancelled.
    let now = keepsake_engine::Clock::now(&*setup.clock);
    let tenant_id = setup.principal.tenant_id;
    let batch = setup
        .index
        .store_deletions
        .purge(tenant_id, setup.store_id, now, 4)
        .await
        .unwrap();
    assert!(!batch.is_done && batch.rows <= 4, "{batch:?}");
    let stopping = CancellationToken::new();
    stopping.cancel();
    setup
        .engine
        .jobs
        .run(Arc::new(PurgeStores), RunRequest::SCHEDULED, &stopping)
        .await
        .unwrap();
    setup.clock.advance(Duration::from_mins(1));
    run(&setup.engine, PurgeStores).await;
    run(&setup.engine, DrainDeletions).await;
    assert_eq!(setup.index.store_deletions.due(10).await.unwrap(), []);
    assert_eq!(setup.blobs_there().await, []);
}
