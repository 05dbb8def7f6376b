//! The end of tenants.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use keepsake_blobs::BlobError;
use keepsake_core::limits::LimitOverrides;
use keepsake_core::{BlobKey, StoreId, TenantId, VersionId};
use keepsake_engine::jobs::{DeleteTenants, PurgeStores, RunOutcome, RunRequest};
use keepsake_engine::{Clock, EngineError};
use keepsake_index::{DeletionState, TenantDeletion, VersionCounts};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::test_engine::{TestEngine, create};

crate::with_object_store! {
    deletion_leaves_no_row_and_no_blob,
    interrupted_deletion_is_resumed,
    write_during_the_deletion_leaves_nothing,
}

async fn run(setup: &TestEngine) -> Value {
    match setup
        .engine
        .jobs
        .run(Arc::new(DeleteTenants), RunRequest::SCHEDULED, &CancellationToken::new())
        .await
        .unwrap()
    {
        RunOutcome::Ran(counts) => counts,
        outcome => panic!("{outcome:?}"),
    }
}

async fn report(setup: &TestEngine) -> TenantDeletion {
    let operator = &setup.engine.operator;
    operator.tenants.deletion(setup.principal.tenant_id).await.unwrap()
}

async fn delete(setup: &TestEngine) {
    let begun = setup.engine.operator.tenants.delete(setup.principal.tenant_id).await;
    assert_eq!(begun.unwrap().state, DeletionState::Removing);
}

/// A blob of the test's tenant that no row names.
async fn orphan(setup: &TestEngine, number: u128) {
    setup.blobs.inner().put(&orphan_key(setup, number), Bytes::from_static(b"orphan")).await.unwrap();
}

fn orphan_key(setup: &TestEngine, number: u128) -> BlobKey {
    BlobKey {
        tenant_id: setup.principal.tenant_id,
        store_id: StoreId::from_uuid(Uuid::from_u128(number)),
        blob_id: VersionId::from_uuid(Uuid::from_u128(number)),
    }
}

async fn deletion_leaves_no_row_and_no_blob(setup: TestEngine) {
    for number in 0..3 {
        setup.create(&format!("/memories/{number}"), "12345").await;
    }
    orphan(&setup, 1).await;
    let (other, _) = setup.tenant_with(LimitOverrides::default()).await;
    let usage = setup.engine.operator.tenants.usage(other.tenant_id).await.unwrap();
    delete(&setup).await;
    // Other purges and drains leave the counting to the deletion.
    setup
        .engine
        .jobs
        .run(Arc::new(PurgeStores), RunRequest::SCHEDULED, &CancellationToken::new())
        .await
        .unwrap();

    let counts = run(&setup).await;
    assert_eq!(counts["settling"], 1, "{counts}");
    assert_eq!(counts["blobs"], 4, "{counts}");
    assert_eq!(setup.blobs_there().await, []);
    let settling = report(&setup).await;
    assert_eq!((settling.state, settling.ended_at), (DeletionState::Settling, None));
    assert_eq!((settling.blobs, settling.blob_bytes), (4, 3 * 5 + 6));
    assert_eq!((settling.rows["version"], settling.rows["memory"], settling.rows["store"]), (3, 3, 1));

    // The deletion is not done while an earlier request may still be running.
    orphan(&setup, 2).await;
    setup.clock.advance(Duration::from_mins(59));
    assert_eq!(run(&setup).await["done"], 0);
    setup.clock.advance(Duration::from_mins(1));
    assert_eq!(run(&setup).await["done"], 1);
    assert_eq!(setup.blobs_there().await, []);
    let done = report(&setup).await;
    assert_eq!((done.state, done.ended_at), (DeletionState::Done, Some(setup.clock.now())));
    assert_eq!((done.blobs, done.rows["tenant"]), (5, 1));
    assert_eq!(done.object_versions, versions(0, 5));
    let gone = setup.engine.operator.tenants.get(setup.principal.tenant_id).await;
    assert!(matches!(gone, Err(EngineError::TenantNotFound)));
    assert_eq!(setup.engine.operator.tenants.usage(other.tenant_id).await.unwrap(), usage);

    setup.clock.advance(Duration::from_mins(1));
    let again = setup.engine.operator.tenants.delete(setup.principal.tenant_id).await;
    assert_eq!(again.unwrap(), done);
    assert_eq!(run(&setup).await["done"], 0);
}

/// Blobs whose versions were all deleted, and blobs without versions; none are kept.
const fn versions(deleted: u64, not_versioned: u64) -> VersionCounts {
    VersionCounts { deleted, not_versioned, kept: 0 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletion_leaves_no_object_version_of_deleted_blobs() {
    let (setup, bucket) = TestEngine::sqlite_and_versioned_s3().await;
    setup.create("/memories/live", "12345").await;
    // As the queue removes what a deleted store had, long ago.
    for store in [1, 2] {
        orphan(&setup, store).await;
        setup.blobs.inner().delete(&orphan_key(&setup, store)).await.unwrap();
    }
    let of_another = BlobKey { tenant_id: TenantId::from_uuid(Uuid::from_u128(9)), ..orphan_key(&setup, 9) };
    let text = Bytes::from_static(b"another's");
    setup.blobs.inner().put(&of_another, text).await.unwrap();
    // Each deleted one is a version and a delete marker.
    assert_eq!(bucket.objects(&setup).await, bucket.either(1 + 2 * 2 + 1, 2));
    delete(&setup).await;
    assert_eq!(run(&setup).await["settling"], 1);
    assert_eq!(bucket.objects(&setup).await, 1, "another tenant's");
    let settling = report(&setup).await;
    assert_eq!(
        (settling.blobs, settling.object_versions),
        (1, bucket.either(versions(3, 0), versions(0, 1)))
    );

    // A late blob that its writer removed again.
    orphan(&setup, 3).await;
    setup.blobs.inner().delete(&orphan_key(&setup, 3)).await.unwrap();
    setup.clock.advance(Duration::from_hours(1));
    assert_eq!(run(&setup).await["done"], 1);
    assert_eq!(bucket.objects(&setup).await, 1, "another tenant's");
    let done = report(&setup).await;
    assert_eq!(
        (done.state, done.object_versions),
        (DeletionState::Done, bucket.either(versions(4, 0), versions(0, 1)))
    );
}

/// With credentials of the object store that may only write and delete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletion_reports_versions_that_it_could_not_delete() {
    let setup = TestEngine::sqlite_and_s3().await;
    setup.create("/memories/live", "12345").await;
    delete(&setup).await;
    let kept = |seen| VersionCounts { kept: seen, ..VersionCounts::default() };
    // Versions cannot be listed: at least the blob that was just removed has some.
    setup.blobs.keep_versions(Some(0));
    assert_eq!(run(&setup).await["settling"], 1);
    assert_eq!(report(&setup).await.object_versions, kept(1));
    // Two versions can be listed, but not deleted.
    setup.blobs.keep_versions(Some(2));
    setup.clock.advance(Duration::from_hours(1));
    let counts = run(&setup).await;
    assert_eq!((&counts["done"], &counts["older_versions_kept"]), (&1.into(), &2.into()));
    let done = report(&setup).await;
    assert_eq!((done.state, done.object_versions), (DeletionState::Done, kept(2)));
}

async fn interrupted_deletion_is_resumed(setup: TestEngine) {
    for number in 0..6 {
        setup.create(&format!("/memories/{number}"), "12345").await;
    }
    delete(&setup).await;
    // The third removal fails, and the run's counting is ahead of it.
    let removals = Arc::new(AtomicU64::new(0));
    setup.blobs.before_delete(move |_| {
        let many = removals.fetch_add(1, Ordering::SeqCst);
        async move {
            if many == 2 {
                return Err(BlobError::Unavailable("as the test wants it".to_owned()));
            }
            Ok(())
        }
    });
    let counts = run(&setup).await;
    assert_eq!(counts["failed"], 1, "{counts}");
    assert_eq!(counts["settling"], 0, "{counts}");
    setup.blobs.clear_hooks();
    assert!(!setup.blobs_there().await.is_empty());
    assert_eq!(report(&setup).await.state, DeletionState::Removing);

    // A cancelled worker ends after its batch.
    setup.clock.advance(Duration::from_mins(1));
    let stopping = CancellationToken::new();
    stopping.cancel();
    setup.engine.jobs.run(Arc::new(DeleteTenants), RunRequest::SCHEDULED, &stopping).await.unwrap();
    assert_eq!(report(&setup).await.state, DeletionState::Removing);

    setup.clock.advance(Duration::from_mins(1));
    assert_eq!(run(&setup).await["settling"], 1);
    assert_eq!(setup.blobs_there().await, []);
    let report = report(&setup).await;
    assert_eq!((report.blobs, report.blob_bytes), (6, 30), "each is counted once");
    assert_eq!(report.rows["version"], 6);
}

async fn write_during_the_deletion_leaves_nothing(setup: TestEngine) {
    setup.create("/memories/before", "12345").await;
    let (engine, tenant_id) = (setup.engine.clone(), setup.principal.tenant_id);
    // All is removed between the look at the store and the content's arrival.
    setup.blobs.before_put(move |_| {
        let engine = engine.clone();
        async move {
            engine.operator.tenants.delete(tenant_id).await.unwrap();
            let ran = engine
                .jobs
                .run(Arc::new(DeleteTenants), RunRequest::SCHEDULED, &CancellationToken::new())
                .await;
            assert!(matches!(ran, Ok(RunOutcome::Ran(_))), "{ran:?}");
            Ok(())
        }
    });
    // From then on nothing can be removed: the refused write's blob stays.
    let blobs = Arc::clone(&setup.blobs);
    setup.blobs.after_put(move |_| {
        blobs.before_delete(|_| async { Err(BlobError::Unavailable("as the test wants it".to_owned())) });
        async { Ok(()) }
    });
    let refused = setup.try_call(create("/memories/late", "late")).await;
    assert!(matches!(refused, Err(EngineError::StoreNotFound)), "{refused:?}");
    setup.blobs.clear_hooks();
    assert_eq!(report(&setup).await.state, DeletionState::Settling);
    assert_eq!(setup.blobs_there().await.len(), 1, "an orphan that came late");
    setup.clock.advance(Duration::from_hours(1));
    assert_eq!(run(&setup).await["done"], 1);
    assert_eq!(setup.blobs_there().await, []);
    let done = report(&setup).await;
    assert_eq!((done.blobs, done.rows["version"]), (2, 1));
}
