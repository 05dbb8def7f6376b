//! The removal of history: what goes, in which order, and what never comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use keepsake_blobs::BlobError;
use keepsake_engine::jobs::{DrainDeletions, Job, PurgeStores, RunOutcome, RunRequest, run_job};
use keepsake_engine::{Engine, EngineError, Restoration, ShownVersion, VersionQuery, View};
use keepsake_index::Operation;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::bed::{Bed, edit_of, new_memory};

crate::on_every_bed! {
    redaction_removes_the_blob_and_keeps_who_did_what,
    content_of_a_live_memory_is_not_redacted,
    shared_blob_goes_with_the_last_version_that_names_it,
    restored_content_must_fit_the_limit_of_today,
    deleted_memory_comes_back_under_its_id,
    restoration_of_a_path_that_is_taken_names_what_is_there,
    tool_and_api_write_one_history,
    deleted_store_is_gone_at_once_and_purged_in_batches,
    purge_that_was_stopped_is_gone_on_with,
}

crate::with_object_store! {
    redaction_whose_blob_stays_is_finished_by_the_queue,
    redacted_content_is_served_from_no_cache,
    restoration_that_meets_a_redaction_is_refused,
    restorations_and_edits_of_one_memory_queue,
}

async fn versions(bed: &Bed) -> Vec<ShownVersion> {
    bed.engine
        .versions(&bed.principal, bed.store_id, &VersionQuery::default(), View::Full)
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

async fn redaction_removes_the_blob_and_keeps_who_did_what(bed: Bed) {
    let memory = bed.make("/a.txt", "secret").await;
    bed.update(&memory, edit_of(Some("harmless"), None, None))
        .await
        .unwrap();
    let before = versions(&bed).await.pop().unwrap();
    let id = before.version.version_id;
    let redacted = bed
        .engine
        .redact_version(&bed.principal, bed.store_id, id)
        .await
        .unwrap();
    assert_eq!(redacted.content_also_in, Some(vec![]));
    let key = bed.blob_key(&memory.memory.head);
    assert!(
        !bed.blobs_there().await.contains(&key),
        "it is gone when the answer is there"
    );
    let after = versions(&bed).await.pop().unwrap();
    assert_eq!(
        (after.version.path, after.version.content, after.content),
        (None, None, None)
    );
    assert_eq!(after.version.created_by, before.version.created_by);
    assert_eq!(after.version.created_at, before.version.created_at);
    assert_eq!(after.version.operation, Operation::Created);
    assert!(after.version.redacted_at.is_some());
    assert_eq!(after.version.redacted_by, Some(bed.principal.actor.clone()));
    // Sent again it is done already.
    bed.clock.advance(Duration::from_secs(1));
    let again = bed
        .engine
        .redact_version(&bed.principal, bed.store_id, id)
        .await
        .unwrap();
    assert_eq!(again.content_also_in, None);
    assert_eq!(again.version.version.redacted_at, after.version.redacted_at);
    assert_eq!(bed.content_of(&memory).await, "harmless");
}

async fn redaction_whose_blob_stays_is_finished_by_the_queue(bed: Bed) {
    let memory = bed.make("/a.txt", "secret").await;
    bed.update(&memory, edit_of(Some("harmless"), None, None))
        .await
        .unwrap();
    let id = memory.memory.head.version_id;
    bed.blobs
        .before_delete(|_| async { Err(BlobError::Unavailable("as the test wants it".to_owned())) });
    let redacted = bed.engine.redact_version(&bed.principal, bed.store_id, id).await;
    assert!(
        redacted.is_ok(),
        "the rows are clean, the blob is queued: {redacted:?}"
    );
    assert_eq!(bed.blobs_there().await.len(), 2);
    bed.blobs.clear_hooks();
    run(&bed.engine, DrainDeletions).await;
    assert_eq!(bed.blobs_there().await.len(), 1);
}

async fn content_of_a_live_memory_is_not_redacted(bed: Bed) {
    let memory = bed.make("/a.txt", "secret").await;
    let renamed = bed
        .update(&memory, edit_of(None, Some("/b.txt"), None))
        .await
        .unwrap();
    for id in [memory.memory.head.version_id, renamed.memory.head.version_id] {
        let refused = bed.engine.redact_version(&bed.principal, bed.store_id, id).await;
        assert!(matches!(refused, Err(EngineError::Conflict(_))), "{refused:?}");
    }
    assert_eq!(bed.content_of(&memory).await, "secret");
    bed.delete(&memory, None).await.unwrap();
    for shown in versions(&bed).await {
        bed.engine
            .redact_version(&bed.principal, bed.store_id, shown.version.version_id)
            .await
            .unwrap();
    }
    assert_eq!(bed.blobs_there().await, []);
}

async fn shared_blob_goes_with_the_last_version_that_names_it(bed: Bed) {
    let memory = bed.make("/a.txt", "secret").await;
    let renamed = bed
        .update(&memory, edit_of(None, Some("/b.txt"), None))
        .await
        .unwrap();
    bed.update(&memory, edit_of(Some("harmless"), None, None))
        .await
        .unwrap();
    let (first, second) = (memory.memory.head.version_id, renamed.memory.head.version_id);
    let redacted = bed
        .engine
        .redact_version(&bed.principal, bed.store_id, first)
        .await
        .unwrap();
    assert_eq!(redacted.content_also_in, Some(vec![second]));
    assert_eq!(bed.blobs_there().await.len(), 2);
    let shown = bed
        .engine
        .version(&bed.principal, bed.store_id, second, View::Full)
        .await
        .unwrap();
    assert_eq!(shown.content.as_deref(), Some("secret"));
    let redacted = bed
        .engine
        .redact_version(&bed.principal, bed.store_id, second)
        .await
        .unwrap();
    assert_eq!(redacted.content_also_in, Some(vec![]));
    assert_eq!(bed.blobs_there().await.len(), 1);
}

async fn redacted_content_is_served_from_no_cache(bed: Bed) {
    let memory = bed.make("/a.txt", "secret").await;
    let kept = bed
        .update(&memory, edit_of(Some("kept"), None, None))
        .await
        .unwrap();
    bed.update(&memory, edit_of(Some("harmless"), None, None))
        .await
        .unwrap();
    let (id, kept) = (memory.memory.head.version_id, kept.memory.head.version_id);
    let replicas = [bed.replica(), bed.replica()];
    let content_on = async |engine: &Engine, version_id| {
        let shown = engine.version(&bed.principal, bed.store_id, version_id, View::Full);
        shown.await.unwrap().content
    };
    // The first look fills the cache, the second is served from it.
    for fetches in [4, 0] {
        let before = bed.blobs.calls().get;
        for engine in &replicas {
            assert_eq!(content_on(engine, id).await.as_deref(), Some("secret"));
            assert_eq!(content_on(engine, kept).await.as_deref(), Some("kept"));
        }
        assert_eq!(bed.blobs.calls().get - before, fetches);
    }
    bed.engine
        .redact_version(&bed.principal, bed.store_id, id)
        .await
        .unwrap();
    // No entry from before the redaction is served again, whichever content it has.
    let before = bed.blobs.calls().get;
    for engine in &replicas {
        assert_eq!(content_on(engine, id).await, None);
        assert_eq!(content_on(engine, kept).await.as_deref(), Some("kept"));
    }
    assert_eq!(bed.blobs.calls().get - before, 2);
}

async fn restored_content_must_fit_the_limit_of_today(bed: Bed) {
    let memory = bed.make("/a.txt", "123456789").await;
    bed.update(&memory, edit_of(Some("tiny"), None, None))
        .await
        .unwrap();
    let restore_under = async |bytes_per_memory: u64| {
        let mut principal = (*bed.principal).clone();
        principal.limits.bytes_per_memory = bytes_per_memory;
        let id = memory.memory.head.version_id;
        bed.engine
            .restore_version(&Arc::new(principal), bed.store_id, id, restoration())
            .await
    };
    let refused = restore_under(8).await;
    assert!(
        matches!(&refused, Err(EngineError::Invalid { field: "content", rule }) if rule.contains("limit of 8 bytes")),
        "{refused:?}"
    );
    assert_eq!(bed.content_of(&memory).await, "tiny");
    restore_under(9).await.unwrap();
    assert_eq!(bed.content_of(&memory).await, "123456789");
}

async fn restoration_that_meets_a_redaction_is_refused(bed: Bed) {
    let memory = bed.make("/a.txt", "secret").await;
    bed.update(&memory, edit_of(None, Some("/b.txt"), None))
        .await
        .unwrap();
    bed.update(&memory, edit_of(Some("harmless"), None, None))
        .await
        .unwrap();
    let id = memory.memory.head.version_id;
    // Redacted by another after the version was read and before the commit; the
    // blob stays, since another version shares it.
    let (other, principal, store_id) = (bed.replica(), Arc::clone(&bed.principal), bed.store_id);
    let gets = Arc::new(AtomicU32::new(0));
    bed.blobs.before_get(move |_| {
        let (other, principal, gets) = (other.clone(), Arc::clone(&principal), Arc::clone(&gets));
        async move {
            if gets.fetch_add(1, Ordering::SeqCst) == 0 {
                other.redact_version(&principal, store_id, id).await.unwrap();
            }
            Ok(())
        }
    });
    let refused = bed
        .replica()
        .restore_version(&bed.principal, bed.store_id, id, restoration())
        .await;
    assert!(matches!(refused, Err(EngineError::Conflict(_))), "{refused:?}");
    assert_eq!(bed.content_of(&memory).await, "harmless");
}

async fn deleted_memory_comes_back_under_its_id(bed: Bed) {
    let memory = bed.make("/a.txt", "one").await;
    bed.clock.advance(Duration::from_mins(1));
    bed.delete(&memory, None).await.unwrap();
    let deletion = versions(&bed).await.remove(0);
    let refused = bed
        .engine
        .restore_version(
            &bed.principal,
            bed.store_id,
            deletion.version.version_id,
            restoration(),
        )
        .await;
    assert!(matches!(refused, Err(EngineError::Conflict(_))), "{refused:?}");
    let id = memory.memory.head.version_id;
    let restored = bed
        .engine
        .restore_version(&bed.principal, bed.store_id, id, restoration())
        .await
        .unwrap();
    assert_eq!(restored.memory.head.memory_id, memory.memory.head.memory_id);
    assert_eq!(restored.memory.created_at, memory.memory.created_at);
    assert_eq!(restored.content.as_deref(), Some("one"));
    assert_eq!(bed.text_at(&bed.engine, "/memories/a.txt").await, "one");
    assert_eq!(bed.operations().await, ["created", "deleted", "created"]);
    assert_eq!(
        bed.blobs_there().await.len(),
        1,
        "what comes back needs no new blob"
    );
    // Again, it is there.
    bed.engine
        .restore_version(&bed.principal, bed.store_id, id, restoration())
        .await
        .unwrap();
    assert_eq!(bed.operations().await.len(), 3);
}

async fn restoration_of_a_path_that_is_taken_names_what_is_there(bed: Bed) {
    let memory = bed.make("/a.txt", "one").await;
    bed.delete(&memory, None).await.unwrap();
    let newer = bed.make("/a.txt", "two").await;
    let refused = bed
        .engine
        .restore_version(
            &bed.principal,
            bed.store_id,
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
async fn restorations_and_edits_of_one_memory_queue(bed: Bed) {
    let memory = bed.make("/a.txt", "0").await;
    let first = memory.memory.head.version_id;
    bed.update(&memory, edit_of(Some("1"), Some("/b.txt"), None))
        .await
        .unwrap();
    let changes = (0..20).map(|number| {
        let (bed, memory) = (&bed, &memory);
        async move {
            if number % 2 == 0 {
                let restored = bed
                    .engine
                    .restore_version(&bed.principal, bed.store_id, first, restoration());
                restored.await.unwrap();
            } else {
                let edit = edit_of(Some(&format!("{number} edits")), Some("/b.txt"), None);
                bed.update(memory, edit).await.unwrap();
            }
        }
    });
    futures::future::join_all(changes).await;
    // No change lost a race, so no blob was put twice.
    assert_eq!(bed.blobs.calls().put, 12);
    assert_eq!(bed.blobs.calls().delete, 0);
}

async fn tool_and_api_write_one_history(bed: Bed) {
    bed.create("/memories/a.txt", "one\n").await;
    let head = bed.head("/a.txt").await.unwrap();
    let memory = bed
        .engine
        .memory(&bed.principal, bed.store_id, head.memory_id, View::Full)
        .await
        .unwrap();
    bed.update(&memory, edit_of(Some("two\n"), None, None))
        .await
        .unwrap();
    bed.call(
        json!({"command": "str_replace", "path": "/memories/a.txt", "old_str": "two", "new_str": "three"}),
    )
    .await;
    let texts: Vec<_> = versions(&bed)
        .await
        .into_iter()
        .map(|shown| {
            assert_eq!(shown.version.memory_id, head.memory_id);
            assert_eq!(shown.version.created_by, Some(bed.principal.actor.clone()));
            shown.content.unwrap().to_string()
        })
        .collect();
    assert_eq!(texts, ["three\n", "two\n", "one\n"]);
}

async fn run(engine: &Engine, job: impl Job + 'static) -> serde_json::Value {
    match run_job(
        engine,
        Arc::new(job),
        RunRequest::SCHEDULED,
        &CancellationToken::new(),
    )
    .await
    .unwrap()
    {
        RunOutcome::Ran(counts) => counts,
        outcome => panic!("{outcome:?}"),
    }
}

async fn deleted_store_is_gone_at_once_and_purged_in_batches(bed: Bed) {
    for number in 0..30 {
        let memory = bed.make(&format!("/d{}/{number}", number % 3), "text").await;
        bed.update(&memory, edit_of(Some("other text"), None, None))
            .await
            .unwrap();
    }
    bed.engine
        .delete_store(&bed.principal, bed.store_id)
        .await
        .unwrap();
    let (principal, store_id) = (&bed.principal, bed.store_id);
    for engine in [bed.engine.clone(), bed.replica()] {
        let gone = engine.store(principal, store_id).await;
        assert!(matches!(gone, Err(EngineError::StoreNotFound)), "{gone:?}");
        let gone = engine
            .create_memory(principal, store_id, new_memory("/x", "x"))
            .await;
        assert!(matches!(gone, Err(EngineError::StoreNotFound)), "{gone:?}");
        let gone = engine
            .versions(principal, store_id, &VersionQuery::default(), View::Full)
            .await;
        assert!(matches!(gone, Err(EngineError::StoreNotFound)), "{gone:?}");
    }
    assert_eq!(bed.blobs_there().await.len(), 60);
    let counts = run(&bed.engine, PurgeStores).await;
    assert_eq!(
        (counts["stores"].as_u64(), counts["blobs"].as_u64()),
        (Some(1), Some(60))
    );
    let drained = run(&bed.engine, DrainDeletions).await;
    assert_eq!(drained["removed"], 60);
    assert_eq!(bed.blobs_there().await, []);
    bed.clock.advance(Duration::from_mins(1));
    assert_eq!(run(&bed.engine, PurgeStores).await["rows"], 0);
}

async fn purge_that_was_stopped_is_gone_on_with(bed: Bed) {
    for number in 0..10 {
        bed.make(&format!("/{number}"), "text").await;
    }
    bed.engine
        .delete_store(&bed.principal, bed.store_id)
        .await
        .unwrap();
    // One that died between two batches, and one that is told to stop.
    let now = keepsake_engine::Clock::now(&*bed.clock);
    let tenant_id = bed.principal.tenant_id;
    let batch = bed
        .index
        .store_deletions
        .purge(tenant_id, bed.store_id, now, 4)
        .await
        .unwrap();
    assert!(!batch.is_done && batch.rows <= 4, "{batch:?}");
    let stopping = CancellationToken::new();
    stopping.cancel();
    run_job(
        &bed.engine,
        Arc::new(PurgeStores),
        RunRequest::SCHEDULED,
        &stopping,
    )
    .await
    .unwrap();
    bed.clock.advance(Duration::from_mins(1));
    run(&bed.engine, PurgeStores).await;
    run(&bed.engine, DrainDeletions).await;
    assert_eq!(bed.index.store_deletions.due(10).await.unwrap(), []);
    assert_eq!(bed.blobs_there().await, []);
}
