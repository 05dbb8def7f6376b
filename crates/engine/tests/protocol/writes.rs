//! Content before row, unique keys, compare-and-set, no write half done.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use keepsake_blobs::{BlobError, BlobStore};
use keepsake_core::MemoryPath;
use keepsake_engine::{EngineError, FairShares, Held, holding};
use keepsake_index::{Audited, Auditor, ExpiryChange, Index, Target};
use serde_json::json;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::test_engine::{TestEngine, create, insert, tool_call};

crate::on_both_databases! {
    repeated_block_is_forgotten_after_a_day,
}

crate::with_object_store! {
    blob_is_stored_before_its_row,
    failed_put_changes_nothing,
    refused_commit_removes_its_blob,
    every_content_gets_its_own_key,
    lost_edit_is_retried_on_a_fresh_read,
    edit_that_keeps_losing_ends_in_a_conflict,
    blob_condemned_before_its_commit_is_written_again,
    disconnected_client_cancels_only_the_answer,
}

async fn blob_is_stored_before_its_row(setup: TestEngine) {
    let (index, tenant_id, store_id) = (setup.index.clone(), setup.principal.tenant_id, setup.store_id);
    let steps = Arc::new(AtomicU32::new(0));
    let is_unnamed = move |_: &_| {
        let (index, steps) = (index.clone(), Arc::clone(&steps));
        async move {
            let path = MemoryPath::parse("/a.txt").unwrap();
            let found = index.memories.head(tenant_id, store_id, Some(&path), 0).await.unwrap().unwrap();
            assert_eq!(found.target, Target::Missing);
            steps.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    };
    setup.blobs.before_put(is_unnamed.clone());
    setup.blobs.after_put(is_unnamed);
    setup.create("/memories/a.txt", "hello").await;
    let head = setup.head("/a.txt").await.unwrap();
    assert_eq!(setup.blobs_there().await, [setup.blob_key(&head)]);
    assert_eq!(setup.blobs.calls().put, 1);
}

async fn failed_put_changes_nothing(setup: TestEngine) {
    // The answer is lost after the store took the blob: the worse half.
    setup.blobs.after_put(|_| async { Err(BlobError::Unavailable("as the test wants it".to_owned())) });
    let failed = setup.try_call(create("/memories/a.txt", "hello")).await;
    assert!(matches!(failed, Err(EngineError::Blobs(BlobError::Unavailable(_)))), "{failed:?}");
    assert_eq!(setup.head("/a.txt").await, None);
    assert_eq!(setup.blobs_there().await, []);
    setup.blobs.clear_hooks();
    setup.create("/memories/a.txt", "hello").await;
}

async fn refused_commit_removes_its_blob(setup: TestEngine) {
    setup.create("/memories/a.txt", "first").await;
    let answer = setup.try_call(create("/memories/a.txt", "second")).await.unwrap();
    assert_eq!(answer.content, "Error: File /memories/a.txt already exists");
    let head = setup.head("/a.txt").await.unwrap();
    assert_eq!(setup.blobs_there().await, [setup.blob_key(&head)]);
    assert_eq!(setup.blobs.keys_deleted().len(), 1);
}

/// The bucket must not keep content whose write was refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_commit_leaves_no_object_version() {
    let (setup, bucket) = TestEngine::sqlite_and_versioned_s3().await;
    setup.create("/memories/a.txt", "first").await;
    assert_eq!(bucket.objects(&setup).await, 1);
    let answer = setup.try_call(create("/memories/a.txt", "second")).await.unwrap();
    assert!(answer.is_error, "{}", answer.content);
    assert_eq!(bucket.objects(&setup).await, 1, "the path was taken");

    setup.blobs.after_put(|_| async { Err(BlobError::Unavailable("as the test wants it".to_owned())) });
    let failed = setup.try_call(create("/memories/b.txt", "third")).await;
    assert!(matches!(failed, Err(EngineError::Blobs(_))), "{failed:?}");
    setup.blobs.clear_hooks();
    assert_eq!(bucket.objects(&setup).await, 1, "the put was not known to be done");

    let (index, clock) = (setup.index.clone(), Arc::clone(&setup.clock));
    let (tenant_id, store_id) = (setup.principal.tenant_id, setup.store_id);
    setup.blobs.before_put(move |_| {
        let (index, clock) = (index.clone(), Arc::clone(&clock));
        async move {
            use keepsake_engine::Clock;
            let by_job =
                Audited { id: Uuid::from_u128(7), at: clock.now(), by: Auditor::Job, entries_per_day: None };
            let deleted = index.store_deletions.begin(tenant_id, store_id, &by_job).await;
            assert!(deleted.unwrap());
            Ok(())
        }
    });
    let refused = setup.try_call(create("/memories/c.txt", "fourth")).await;
    assert!(matches!(refused, Err(EngineError::StoreNotFound)), "{refused:?}");
    assert_eq!(bucket.objects(&setup).await, 1, "the store was gone");
}

async fn every_content_gets_its_own_key(setup: TestEngine) {
    setup.create("/memories/a.txt", "0\n").await;
    for line in 1..=5 {
        setup.call(insert("/memories/a.txt", 0, &line.to_string())).await;
    }
    setup
        .call(json!({"command": "rename", "old_path": "/memories/a.txt", "new_path": "/memories/b.txt"}))
        .await;
    setup.call(json!({"command": "delete", "path": "/memories/b.txt"})).await;
    let mut keys = setup.blobs.keys_put();
    assert_eq!(keys.len(), 6, "a rename and a delete bring no content");
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 6);
    // History is kept: nothing was removed or written over.
    assert_eq!(setup.blobs_there().await, keys);
}

async fn lost_edit_is_retried_on_a_fresh_read(setup: TestEngine) {
    setup.create("/memories/a.txt", "one\n").await;
    let other = setup.replica();
    let (principal, store_id, raced) =
        (Arc::clone(&setup.principal), setup.store_id, Arc::new(AtomicU32::new(0)));
    setup.blobs.before_put(move |_| {
        let (other, principal, raced) = (other.clone(), Arc::clone(&principal), Arc::clone(&raced));
        async move {
            // Once, and not for the other's own put.
            if raced.fetch_add(1, Ordering::SeqCst) == 0 {
                let call = tool_call(None, insert("/memories/a.txt", 1, "theirs"));
                assert!(!other.tools.memory.call(&principal, store_id, call).await.unwrap().is_error);
            }
            Ok(())
        }
    });
    setup.call(insert("/memories/a.txt", 0, "ours")).await;
    assert_eq!(setup.text_at(&setup.engine, "/memories/a.txt").await, "ours\none\ntheirs\n");
    // First content, ours lost, theirs, ours again; the lost one was removed.
    assert_eq!(setup.blobs.calls().put, 4);
    assert_eq!(setup.blobs_there().await.len(), 3);
}

async fn edit_that_keeps_losing_ends_in_a_conflict(setup: TestEngine) {
    setup.create("/memories/a.txt", "one\n").await;
    let (blobs, index) = (Arc::clone(&setup.blobs), setup.index.clone());
    let (tenant_id, store_id) = (setup.principal.tenant_id, setup.store_id);
    let races = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&races);
    setup.blobs.before_put(move |_| {
        let (blobs, index, races) = (Arc::clone(&blobs), index.clone(), Arc::clone(&counted));
        async move {
            // Another writer ignores claims and changes the memory between each read and
            // commit.
            races.fetch_add(1, Ordering::SeqCst);
            crate::writes::move_head(&index, &**blobs.inner(), tenant_id, store_id).await;
            Ok(())
        }
    });
    let answer = setup.try_call(insert("/memories/a.txt", 0, "ours")).await.unwrap();
    assert!(answer.is_error && answer.content.contains("changed by others"), "{}", answer.content);
    assert_eq!(races.load(Ordering::SeqCst), 8, "the number of tries is bounded");
    setup.blobs.clear_hooks();
    assert!(!setup.text_at(&setup.replica(), "/memories/a.txt").await.contains("ours"));
}

/// Commits a new version of `/a.txt` behind the engine's back.
pub(crate) async fn move_head(
    index: &Index,
    blobs: &dyn BlobStore,
    tenant_id: keepsake_core::TenantId,
    store_id: keepsake_core::StoreId,
) {
    use keepsake_core::{BlobKey, Content, Timestamp, VersionId};
    use keepsake_index::{Change, Commit, CommitOutcome, HeadChange};

    let path = MemoryPath::parse("/a.txt").unwrap();
    let found = index.memories.head(tenant_id, store_id, Some(&path), 0).await.unwrap().unwrap();
    let Target::Memory(before) = found.target else { panic!("the memory is there") };
    let content = Content::new(format!("moved after {}\n", before.seq), 1_000).unwrap();
    let version_id = VersionId::from_uuid(uuid::Uuid::from_u128(before.version_id.uuid().as_u128() + 1));
    let key = BlobKey { tenant_id, store_id, blob_id: version_id };
    let after = HeadChange {
        path,
        blob_id: version_id,
        size_bytes: content.size_bytes(),
        sha256: content.hash(),
        content: None,
        first_line: Some(content.first_line()),
        expiry: ExpiryChange::default(),
        search: None,
    };
    let commit = Commit {
        store_id,
        now: Timestamp::from_micros(0),
        actor: None,
        replica: uuid::Uuid::nil(),
        memory_limit: 1_000,
        byte_limit: 1 << 30,
        idempotency: None,
        guard: None,
        purge_epoch: None,
        policy: None,
        changes: vec![Change {
            memory_id: before.memory_id,
            version_id,
            before: Some(before),
            after: Some(after),
            revives: None,
        }],
        kept: Vec::new(),
        results: None,
    };
    let outcome = index.memories.commit(tenant_id, &commit).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Committed { .. }), "{outcome:?}");
    // Content of the index needs its version first.
    blobs.put(&key, content.bytes().clone()).await.unwrap();
}

async fn blob_condemned_before_its_commit_is_written_again(setup: TestEngine) {
    let (index, clock) = (setup.index.clone(), Arc::clone(&setup.clock));
    let condemned = Arc::new(AtomicU32::new(0));
    setup.blobs.after_put(move |key| {
        let (index, clock, key, condemned) =
            (index.clone(), Arc::clone(&clock), *key, Arc::clone(&condemned));
        async move {
            if condemned.fetch_add(1, Ordering::SeqCst) == 0 {
                use keepsake_engine::Clock;
                assert!(index.blob_deletions.condemn_orphan(&key, clock.now()).await.unwrap());
            }
            Ok(())
        }
    });
    setup.create("/memories/a.txt", "hello").await;
    let head = setup.head("/a.txt").await.unwrap();
    let keys = setup.blobs.keys_put();
    assert_eq!(keys.len(), 2);
    assert_eq!(setup.blob_key(&head), keys[1], "the row names the second blob");
    assert!(
        !setup.index.blob_deletions.condemn_orphan(&keys[1], head_time()).await.unwrap(),
        "which cannot be condemned"
    );
}

fn head_time() -> keepsake_core::Timestamp {
    keepsake_core::Timestamp::from_micros(1)
}

async fn disconnected_client_cancels_only_the_answer(setup: TestEngine) {
    let (reached, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (at_put, released) = (Arc::clone(&reached), Arc::clone(&go_on));
    setup.blobs.before_put(move |_| {
        let (at_put, released) = (Arc::clone(&at_put), Arc::clone(&released));
        async move {
            at_put.notify_one();
            released.notified().await;
            Ok(())
        }
    });
    let (engine, principal, store_id) = (setup.engine.clone(), Arc::clone(&setup.principal), setup.store_id);
    let shares = FairShares::new(100);
    let share = || shares.take(setup.principal.tenant_id, 1).unwrap();
    let place = Arc::new(Held { request: share(), memory: share() });
    let held = Arc::clone(&place);
    let request = tokio::spawn(holding(held, async move {
        engine
            .tools
            .memory
            .call(&principal, store_id, tool_call(None, create("/memories/a.txt", "hello")))
            .await
    }));
    reached.notified().await;
    request.abort();
    assert!(request.await.unwrap_err().is_cancelled());
    assert_eq!(Arc::strong_count(&place), 2, "the write holds the place still");
    go_on.notify_one();
    setup.all_writes_end().await;
    assert_eq!(Arc::strong_count(&place), 1);
    assert!(setup.head("/a.txt").await.is_some());
}

async fn repeated_block_is_forgotten_after_a_day(setup: TestEngine) {
    setup.create("/memories/a.txt", "one\n").await;
    let block = insert("/memories/a.txt", 1, "two");
    let send = async || setup.call_on(&setup.engine, Some("toolu_1"), block.clone()).await.unwrap();
    let first = send().await;
    setup.call(json!({"command": "delete", "path": "/memories/a.txt"})).await;
    assert_eq!(send().await, first);
    setup.clock.advance(Duration::from_secs(24 * 3600 + 1));
    assert!(send().await.is_error, "the file is gone");
}

/// With one connection in the pool, a look at the index in the middle of a
/// blob call ends only if the write holds none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_connection_is_held_across_a_blob_call() {
    let setup = TestEngine::postgres_with_connections(1).await;
    let (index, tenant_id, store_id) = (setup.index.clone(), setup.principal.tenant_id, setup.store_id);
    let looks = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&looks);
    let look = move |_: &_| {
        let (index, looks) = (index.clone(), Arc::clone(&counted));
        async move {
            index.memories.head(tenant_id, store_id, None, 0).await.unwrap().unwrap();
            looks.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    };
    setup.blobs.before_put(look.clone());
    setup.blobs.before_get(look.clone());
    setup.blobs.before_delete(look);
    setup.create("/memories/a.txt", "one\n").await;
    setup.call_on(&setup.replica(), None, insert("/memories/a.txt", 0, "zero")).await.unwrap();
    assert!(setup.try_call(create("/memories/a.txt", "again")).await.unwrap().is_error);
    // Three puts, one get by the replica without a cache, one removal.
    assert_eq!(looks.load(Ordering::SeqCst), 5);
}
