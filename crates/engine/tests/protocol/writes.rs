//! Content before row, compare-and-set, no write half done.

use crate::prelude::*;

with_object_store! {
    lost_edit_is_retried_on_a_fresh_read,
    change_waits_while_another_replica_claims_the_memory,
    edit_that_keeps_losing_ends_in_a_conflict,
    disconnected_client_cancels_only_the_answer,
    batch_that_lost_a_race_is_retried,
    refused_batch_leaves_no_blobs,
    no_op_update_keeps_a_concurrent_pin,
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

    // The answer is lost after the store took the blob: the worse half.
    setup.blobs.after_put(fails);
    let failed = setup.try_call(create("/memories/b.txt", "third")).await;
    assert!(matches!(failed, Err(EngineError::Blobs(_))), "{failed:?}");
    setup.blobs.clear_hooks();
    assert_eq!(bucket.objects(&setup).await, 1, "the put was not known to be done");
    assert_eq!(setup.head("/b.txt").await, None);
    setup.create("/memories/b.txt", "third").await;

    let deleting = setup.clone();
    setup.blobs.before_put(once(async move {
        let (tenant_id, id) = (deleting.principal.tenant_id, Uuid::from_u128(7));
        let by_job = AuditedAction { id, at: deleting.now(), by: Auditor::Job, entries_per_day: None };
        let deleted = deleting.index.store_deletions.begin(tenant_id, deleting.store_id, &by_job).await;
        deleted.unwrap();
    }));
    let refused = setup.try_call(create("/memories/c.txt", "fourth")).await;
    assert!(matches!(refused, Err(EngineError::NotFound(ObjectKind::Store))), "{refused:?}");
    assert_eq!(bucket.objects(&setup).await, 2, "the store was gone");
}

async fn lost_edit_is_retried_on_a_fresh_read(setup: TestEngine) {
    setup.create("/memories/a.txt", "one\n").await;
    let other = setup.elsewhere();
    setup.blobs.before_put(once(async move {
        other.call(insert("/memories/a.txt", 1, "theirs")).await;
        let looking = other.clone();
        other.blobs.before_put(once(async move {
            assert!(looking.head("/a.txt").await.unwrap().claim.is_some(), "who lost is the next");
        }));
    }));
    setup.call(insert("/memories/a.txt", 0, "ours")).await;
    assert_eq!(setup.text_at("/memories/a.txt").await, "ours\none\ntheirs\n");
    // First content, ours lost, theirs, ours again; the lost one was removed.
    assert_eq!(setup.blobs.calls().put, 4);
    assert_eq!(setup.blobs_there().await.len(), 3);
}

async fn change_waits_while_another_replica_claims_the_memory(setup: TestEngine) {
    let memory = setup.make("/a.txt", "one").await;
    let (tenant_id, memory_id) = (setup.principal.tenant_id, memory.memory.head.memory_id);
    let (other, now) = (Uuid::from_u128(7), setup.now());
    let until = now.plus(SECOND);
    let claim = setup.index.memories.claim_edit(tenant_id, setup.store_id, memory_id, other, now, until);
    assert!(claim.await.unwrap());
    let mut deletion = Box::pin(setup.delete(&memory));
    let waited = tokio::time::timeout(SECOND / 5, &mut deletion).await;
    assert!(waited.is_err(), "it did not wait");
    setup.clock.advance(SECOND);
    deletion.await;
}

async fn edit_that_keeps_losing_ends_in_a_conflict(setup: TestEngine) {
    setup.create("/memories/a.txt", "one\n").await;
    let other = Arc::new(setup.clone());
    let races = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&races);
    setup.blobs.before_put(move |_| {
        // Another writer ignores claims and changes the memory between each read and
        // commit.
        let other = Arc::clone(&other);
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            move_head(&other).await;
            Ok(())
        }
    });
    let answer = setup.try_call(insert("/memories/a.txt", 0, "ours")).await.unwrap();
    setup.blobs.clear_hooks();
    assert!(answer.is_error && answer.content.contains("changed by others"), "{}", answer.content);
    assert_eq!(races.load(Ordering::SeqCst), 8, "the number of tries is bounded");
    assert!(!setup.elsewhere().text_at("/memories/a.txt").await.contains("ours"));
}

/// Commits a new version of `/a.txt` behind the engine's back, as a release without
/// search does.
pub(crate) async fn move_head(setup: &TestEngine) {
    let (tenant_id, store_id) = (setup.principal.tenant_id, setup.store_id);
    let before = setup.head("/a.txt").await.expect("the memory is there");
    let content = Content::new(format!("moved after {}\n", before.seq), 1_000).unwrap();
    let version_id = VersionId::from_uuid(Uuid::from_u128(before.version_id.uuid().as_u128() + 1));
    let (size_bytes, sha256) = (content.size_bytes(), content.hash());
    let stored = StoredContent { blob_id: version_id, size_bytes, sha256 };
    let (memory_id, path) = (before.memory_id, before.path.clone());
    let new = NewContent::Restored(stored, content.as_str().into());
    let wanted = ProposedChange::store(Origin::Live(before), path, new);
    let change = CommitChange { memory_id, version_id, wanted, search: None };
    let commit = Commit::of(store_id, Timestamp::from_micros(0), Uuid::nil(), vec![change]);
    let outcome = setup.index.memories.commit(tenant_id, &commit).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Committed { .. }), "{outcome:?}");
    // Content of the index needs its version first.
    let key = BlobKey { tenant_id, store_id, blob_id: version_id };
    setup.blobs.inner().put(&key, content.bytes().clone()).await.unwrap();
}

async fn disconnected_client_cancels_only_the_answer(setup: TestEngine) {
    let (at_put, go_on) = (Arc::<Notify>::default(), Arc::<Notify>::default());
    let (reached, released) = (Arc::clone(&at_put), Arc::clone(&go_on));
    setup.blobs.before_put(once(async move {
        reached.notify_one();
        released.notified().await;
    }));
    let shares = FairShares::new(100);
    let share = || shares.take(setup.principal.tenant_id, 1).unwrap();
    let place = Arc::new(RequestShares { request: share(), memory: share() });
    let client = setup.clone();
    let request = tokio::spawn(holding(Arc::clone(&place), async move {
        client.try_call(create("/memories/a.txt", "hello")).await
    }));
    at_put.notified().await;
    request.abort();
    assert!(request.await.unwrap_err().is_cancelled());
    assert_eq!(Arc::strong_count(&place), 2, "the write holds the place still");
    go_on.notify_one();
    setup.all_writes_end().await;
    assert_eq!(Arc::strong_count(&place), 1);
    assert!(setup.head("/a.txt").await.is_some());
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
    setup.elsewhere().call(insert("/memories/a.txt", 0, "zero")).await;
    assert!(setup.try_call(create("/memories/a.txt", "again")).await.unwrap().is_error);
    // Three puts, one get by the replica without a cache, one removal.
    assert_eq!(looks.load(Ordering::SeqCst), 5);
}

fn creation(path: &str, content: &str) -> Value {
    json!({"type": "create", "path": path, "content": content})
}

async fn batch_that_lost_a_race_is_retried(setup: TestEngine) {
    let memory = setup.make("/a", "one").await;
    let (other, theirs) = (setup.elsewhere(), memory.clone());
    setup.blobs.before_put(once(async move {
        other.update(&theirs, new_content("theirs")).await.unwrap();
        other.make("/b", "theirs too").await;
    }));
    let ours = json!({
        "type": "update", "memory_id": memory.memory.head.memory_id, "content": "ours",
        "precondition": {"type": "content_sha256", "content_sha256": ContentHash::of(b"one")},
    });
    let operations = [ours, creation("/b", "ours"), creation("/c", "ours")];
    let results = setup.try_batch(json!({"operations": operations, "atomic": false})).await;
    let outcomes = results.unwrap().into_iter().map(|result| result.outcome);
    let [ours, taken, made] = <[_; 3]>::try_from(outcomes.collect::<Vec<_>>()).unwrap();
    let refusal = ours.unwrap_err();
    assert!(matches!(*refusal, EngineError::PreconditionFailed { .. }), "{refusal:?}");
    assert_eq!(taken.unwrap_err().to_string(), "another memory exists at the path: `/b`");
    assert_eq!(made.unwrap().0, BatchStatus::Created);
    assert_eq!(setup.content_of(&memory).await, "theirs");
    assert_eq!(setup.blobs.calls().put, 1 + 3 + 2 + 1);
    assert_eq!(setup.blobs_there().await.len(), 4, "refused contents are removed");
}

async fn refused_batch_leaves_no_blobs(setup: TestEngine) {
    let tenant = setup.of_tenant_with(json!({"memories_per_store": 1})).await;
    let operations: Vec<_> = (0..40).map(|number| creation(&format!("/{number}"), "x")).collect();
    let refused = tenant.try_batch(json!({"operations": operations})).await;
    assert!(matches!(refused, Err(EngineError::OfOperation { operation: 1, .. })), "{refused:?}");
    assert_eq!(setup.blobs_there().await, []);
    assert_eq!(setup.blobs.calls().put, 40);
}

async fn no_op_update_keeps_a_concurrent_pin(setup: TestEngine) {
    let memory = setup.make("/a.txt", "one").await;
    setup.make("/taken.txt", "other").await;
    for (key, pinned) in [("pin", true), ("unpin", false)] {
        let (other, its) = (setup.elsewhere(), memory.clone());
        setup.blobs.before_put(once(async move {
            other.update(&its, pin(pinned)).await.unwrap();
        }));
        // `not_exists` makes a move onto a taken path a change of nothing.
        let edit = MemoryEdit {
            path: Some("/taken.txt".to_owned()),
            precondition: Some(Precondition::NotExists),
            idempotency: Some(setup.call_named(key, "body")),
            ..new_content("new")
        };
        let answer = setup.update(&memory, edit).await.unwrap();
        let read = setup.read(&memory, View::Basic).await;
        assert_eq!((answer.memory.is_pinned, read.memory.is_pinned), (pinned, pinned), "{key}");
    }
    assert_eq!(setup.operations().await, ["created", "created"]);
}
