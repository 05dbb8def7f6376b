//! Erasures: what they race with, and what dies in the middle of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use keepsake_blobs::BlobError;
use keepsake_core::ErasureId;
use keepsake_engine::jobs::{Erase, RunOutcome, RunRequest};
use keepsake_engine::{Engine, EngineError, ErasureRequest, Restoration, VersionQuery, View};
use keepsake_index::{Erasure, ErasureState};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::test_engine::{TestEngine, edit_of, new_memory};

crate::on_both_databases! {
    writes_during_an_erasure_are_not_lost,
}

crate::with_object_store! {
    erasure_keeps_running_until_its_blobs_are_removed,
    interrupted_erasure_is_resumed,
    restore_during_an_erasure_finds_nothing,
    edit_during_an_erasure_finds_nothing,
}

pub(crate) fn below(setup: &TestEngine, prefix: &str) -> ErasureRequest {
    ErasureRequest {
        store_id: Some(setup.store_id),
        path_prefix: Some(prefix.to_owned()),
        store_metadata: None,
    }
}

async fn ask(setup: &TestEngine, request: ErasureRequest) -> ErasureId {
    let asked = setup.engine.erasures.create(&setup.principal, request, None).await;
    asked.unwrap().erasure_id
}

async fn found(setup: &TestEngine, erasure_id: ErasureId) -> Erasure {
    setup.engine.erasures.get(&setup.principal, erasure_id).await.unwrap()
}

/// Waits until what the replica began has come to its end, or was broken off.
async fn ended(setup: &TestEngine, erasure_id: ErasureId) -> Erasure {
    let ended = async {
        loop {
            let erasure = found(setup, erasure_id).await;
            if erasure.state == ErasureState::Done || erasure.failed_attempts > 0 {
                return erasure;
            }
            tokio::task::yield_now().await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_mins(1), ended);
    in_time.await.expect("an erasure ends")
}

/// Erases, to the end.
pub(crate) async fn erase(setup: &TestEngine, request: ErasureRequest) -> Erasure {
    let erasure_id = ask(setup, request).await;
    let erasure = ended(setup, erasure_id).await;
    assert_eq!(erasure.state, ErasureState::Done, "{erasure:?}");
    erasure
}

async fn run(engine: &Engine) -> Value {
    match engine.jobs.run(Arc::new(Erase), RunRequest::SCHEDULED, &CancellationToken::new()).await.unwrap() {
        RunOutcome::Ran(counts) => counts,
        outcome => panic!("{outcome:?}"),
    }
}

fn unavailable() -> Result<(), BlobError> {
    Err(BlobError::Unavailable("as the test wants it".to_owned()))
}

async fn erasure_keeps_running_until_its_blobs_are_removed(setup: TestEngine) {
    setup.make("/p/a", "secret").await;
    setup.blobs.before_delete(|_| async { unavailable() });
    let erasure_id = ask(&setup, below(&setup, "/p/")).await;
    ended(&setup, erasure_id).await;
    let replica = setup.replica();
    setup.clock.advance(Duration::from_mins(1));
    assert_eq!(run(&replica).await, json!({"done": 0, "failed": 1}));
    let failed = found(&setup, erasure_id).await;
    assert_eq!((failed.state, failed.failed_attempts), (ErasureState::Running, 2));
    assert_eq!(failed.error.as_deref(), Some("object_store_unavailable"));
    assert_eq!((failed.receipt.memories, failed.receipt.blobs), (1, 0));
    setup.blobs.clear_hooks();
    setup.clock.advance(Duration::from_mins(1));
    assert_eq!(run(&replica).await, json!({"done": 1, "failed": 0}));
    let done = found(&setup, erasure_id).await;
    assert_eq!((done.state, done.error, done.receipt.blobs), (ErasureState::Done, None, 1));
    assert_eq!(setup.blobs_there().await, []);
}

async fn interrupted_erasure_is_resumed(setup: TestEngine) {
    for number in 0..150 {
        setup.make(&format!("/p/{number}"), "secret").await;
    }
    // The worker hangs at its second batch of blobs, and dies there.
    let removals = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&removals);
    setup.blobs.before_delete(move |_| {
        let hangs = count.fetch_add(1, Ordering::SeqCst) >= 110;
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            Ok(())
        }
    });
    let erasure_id = ask(&setup, below(&setup, "/p/")).await;
    while removals.load(Ordering::SeqCst) < 111 {
        tokio::task::yield_now().await;
    }
    setup.blobs.clear_hooks();
    let replica = setup.replica();
    assert_eq!(run(&replica).await, json!({"done": 0, "failed": 0}), "it is another's");
    assert_eq!(found(&setup, erasure_id).await.state, ErasureState::Running);
    setup.clock.advance(Duration::from_mins(3));
    assert_eq!(run(&replica).await, json!({"done": 1, "failed": 0}));
    let receipt = found(&setup, erasure_id).await.receipt;
    assert_eq!((receipt.memories, receipt.versions, receipt.blobs), (150, 150, 150));
    assert_eq!(setup.blobs_there().await, []);
}

async fn restore_during_an_erasure_finds_nothing(setup: TestEngine) {
    let memory = setup.make("/p/a", "secret").await;
    setup.update(&memory, edit_of(Some("newer"), Some("/moved"), None)).await.unwrap();
    let setup = Arc::new(setup);
    // The restoration has read the version, and reads its content: now it is erased.
    let erasing = Arc::clone(&setup);
    let replica = setup.replica();
    let is_first = AtomicU32::new(0);
    setup.blobs.before_get(move |_| {
        let (setup, is_first) = (Arc::clone(&erasing), is_first.fetch_add(1, Ordering::SeqCst) == 0);
        async move {
            if is_first {
                erase(&setup, below(&setup, "/p/")).await;
            }
            Ok(())
        }
    });
    let restoration = Restoration { precondition: None, view: View::Basic, idempotency: None };
    let version_id = memory.memory.head.version_id;
    let restored = replica.memories.restore(&setup.principal, setup.store_id, version_id, restoration).await;
    assert!(matches!(restored, Err(EngineError::VersionNotFound)), "{restored:?}");
    assert_eq!(setup.operations().await.len(), 0);
    assert_eq!(setup.blobs_there().await, []);
}

async fn edit_during_an_erasure_finds_nothing(setup: TestEngine) {
    let memory = setup.make("/p/a", "secret").await;
    let setup = Arc::new(setup);
    let erasing = Arc::clone(&setup);
    let replica = setup.replica();
    let is_first = AtomicU32::new(0);
    // Its content is stored, its commit comes: between the two it is erased.
    setup.blobs.after_put(move |_| {
        let (setup, is_first) = (Arc::clone(&erasing), is_first.fetch_add(1, Ordering::SeqCst) == 0);
        async move {
            if is_first {
                erase(&setup, below(&setup, "/p/")).await;
            }
            Ok(())
        }
    });
    let id = memory.memory.head.memory_id;
    let edit = edit_of(Some("secret, and more"), None, None);
    let edited = replica.memories.update(&setup.principal, setup.store_id, id, edit).await;
    assert!(matches!(edited, Err(EngineError::MemoryNotFound)), "{edited:?}");
    assert_eq!(setup.blobs_there().await, [], "what it brought went with it");
    assert_eq!(setup.head("/p/a").await, None);
}

async fn writes_during_an_erasure_are_not_lost(setup: TestEngine) {
    for number in 0..60 {
        setup.make(&format!("/p/{}/{number}", number % 4), "secret").await;
    }
    setup.make("/q/log", "begin").await;
    let setup = Arc::new(setup);
    let beside = Arc::clone(&setup);
    let writes = tokio::spawn(async move {
        let replica = beside.replica();
        for number in 0..30 {
            let new = new_memory(&format!("/p/1/new{number}"), "kept");
            replica.memories.create(&beside.principal, beside.store_id, new).await.unwrap();
            let log = json!({"command": "insert", "path": "/memories/q/log", "insert_line": 1, "insert_text": "more\n"});
            assert!(!beside.call_on(&replica, None, log).await.unwrap().is_error);
        }
    });
    let erasure_id = ask(&setup, below(&setup, "/p/")).await;
    writes.await.unwrap();
    let receipt = ended(&setup, erasure_id).await.receipt;
    assert!(receipt.memories >= 60, "{receipt:?}");
    for number in 0..30 {
        let path = format!("/p/1/new{number}");
        let made_before = receipt.memories - 60;
        let is_there = setup.head(&path).await.is_some();
        assert_eq!(is_there, number >= made_before, "{path}, {made_before} were made before the request");
    }
    let log = setup.text_at(&setup.replica(), "/memories/q/log").await;
    assert_eq!(log.lines().count(), 31, "{log}");
    assert_eq!(setup.head("/p/2/2").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn erasure_deletes_object_versions_of_a_versioned_bucket() {
    let (setup, bucket) = TestEngine::sqlite_and_versioned_s3().await;
    let memory = setup.make("/p/a", "secret").await;
    setup.update(&memory, edit_of(Some("redacted"), None, None)).await.unwrap();
    setup.update(&memory, edit_of(Some("newer"), None, None)).await.unwrap();
    setup.make("/q", "kept").await;
    assert_eq!(bucket.objects(&setup).await, 4);
    let history = VersionQuery::default();
    let history = setup.engine.versions.list(&setup.principal, setup.store_id, &history, View::Basic).await;
    let second = history.unwrap().items[2].version.version_id;
    setup.engine.versions.redact(&setup.principal, setup.store_id, second).await.unwrap();
    assert_eq!(bucket.objects(&setup).await, 3, "a redaction means the same");

    let receipt = erase(&setup, below(&setup, "/p/")).await.receipt;
    assert_eq!(
        (receipt.blobs, receipt.versions_deleted, receipt.versions_not_kept),
        bucket.either((2, 2, 0), (2, 0, 2))
    );
    assert_eq!(bucket.objects(&setup).await, 1);
    // Object versions of blobs that were deleted earlier are erased with the store.
    let orphan = keepsake_core::BlobKey {
        blob_id: keepsake_core::VersionId::from_uuid(uuid::Uuid::from_u128(7)),
        ..setup.blob_key(&memory.memory.head)
    };
    let blobs = setup.blobs.inner();
    blobs.put(&orphan, bytes::Bytes::from_static(b"a write that lost")).await.unwrap();
    blobs.delete(&orphan).await.unwrap();
    assert_eq!(bucket.objects(&setup).await, bucket.either(3, 1));
    let whole = ErasureRequest { store_id: Some(setup.store_id), ..ErasureRequest::default() };
    let receipt = erase(&setup, whole).await.receipt;
    let counted = (receipt.blobs, receipt.versions_deleted);
    assert_eq!(counted, bucket.either((2, 2), (1, 0)));
    assert_eq!(bucket.objects(&setup).await, 0);
}

/// The bucket does not allow listing of object versions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receipt_reports_versions_that_could_not_be_counted() {
    let setup = TestEngine::sqlite_and_s3().await;
    setup.blobs.keep_versions(Some(0));
    let whole = ErasureRequest { store_id: Some(setup.store_id), ..ErasureRequest::default() };
    let receipt = erase(&setup, whole).await.receipt;
    assert_eq!((receipt.blobs, receipt.versions_kept), (0, 1));
}
