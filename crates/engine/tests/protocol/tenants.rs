//! The end of tenants.

use crate::prelude::*;

with_object_store! {
    interrupted_deletion_is_resumed,
    write_during_the_deletion_leaves_nothing,
}

async fn report(setup: &TestEngine) -> TenantDeletion {
    setup.engine.tenants.deletion(setup.principal.tenant_id).await.unwrap()
}

async fn delete(setup: &TestEngine) {
    let begun = setup.engine.tenants.delete(setup.principal.tenant_id, Auditor::OperatorCli).await;
    assert_eq!(begun.unwrap().state, DeletionState::Removing);
}

/// Runs the job; how many deletions settle or are done.
async fn run(setup: &TestEngine) -> (u64, u64) {
    let counts = setup.run_in_slot(DeleteTenants).await;
    (counts["settling"].as_u64().unwrap(), counts["done"].as_u64().unwrap())
}

/// A key in a store of the tenant's that was deleted long ago.
fn orphan_key(setup: &TestEngine, number: u128) -> BlobKey {
    blob_key(setup.principal.tenant_id.uuid().as_u128(), number, number)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletion_leaves_no_object_version_of_deleted_blobs() {
    let (setup, bucket) = TestEngine::sqlite_and_versioned_s3().await;
    setup.make("/live", "12345").await;
    let plant_and_delete = async |number| {
        let orphan = setup.plant(orphan_key(&setup, number)).await;
        setup.blobs.inner().delete(&orphan).await.unwrap();
    };
    plant_and_delete(1).await;
    plant_and_delete(2).await;
    setup.plant(blob_key(9, 9, 9)).await;
    // Each deleted one is a version and a delete marker.
    assert_eq!(bucket.objects(&setup).await, bucket.either(1 + 2 * 2 + 1, 2));
    delete(&setup).await;
    assert_eq!(run(&setup).await, (1, 0));
    assert_eq!(bucket.objects(&setup).await, 1, "another tenant's");
    let versions = |deleted, not_versioned| VersionCounts { deleted, not_versioned, kept: 0 };
    let settling = report(&setup).await;
    let counted = bucket.either(versions(3, 0), versions(0, 1));
    assert_eq!((settling.blobs, settling.object_versions), (1, counted));

    // A late blob that its writer removed again.
    plant_and_delete(3).await;
    setup.clock.advance(HOUR);
    assert_eq!(run(&setup).await, (0, 1));
    assert_eq!(bucket.objects(&setup).await, 1, "another tenant's");
    let (done, counted) = (report(&setup).await, bucket.either(versions(4, 0), versions(0, 1)));
    assert_eq!((done.state, done.object_versions), (DeletionState::Done, counted));
}

/// With credentials of the object store that may only write and delete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletion_reports_versions_that_it_could_not_delete() {
    let setup = TestEngine::sqlite_and_s3().await;
    setup.make("/live", "12345").await;
    delete(&setup).await;
    let kept = |seen| VersionCounts { kept: seen, ..VersionCounts::default() };
    // Versions cannot be listed: at least the blob that was just removed has some.
    setup.blobs.keep_versions(Some(0));
    assert_eq!(run(&setup).await, (1, 0));
    assert_eq!(report(&setup).await.object_versions, kept(1));
    // Two versions can be listed, but not deleted.
    setup.blobs.keep_versions(Some(2));
    setup.clock.advance(HOUR);
    let counts = setup.run_in_slot(DeleteTenants).await;
    assert_eq!((&counts["done"], &counts["older_versions_kept"]), (&1.into(), &2.into()));
    let done = report(&setup).await;
    assert_eq!((done.state, done.object_versions), (DeletionState::Done, kept(2)));
}

async fn interrupted_deletion_is_resumed(setup: TestEngine) {
    for number in 0..6 {
        setup.make(&format!("/{number}"), "12345").await;
    }
    delete(&setup).await;
    // The third removal fails, and the run's counting is ahead of it.
    let removals = AtomicU64::new(0);
    setup.blobs.before_delete(move |_| {
        let is_third = removals.fetch_add(1, Ordering::SeqCst) == 2;
        ready(if is_third { unavailable() } else { Ok(()) })
    });
    let counts = setup.run_in_slot(DeleteTenants).await;
    assert_eq!((&counts["failed"], &counts["settling"]), (&1.into(), &0.into()), "{counts}");
    setup.blobs.clear_hooks();
    assert!(!setup.blobs_there().await.is_empty());
    assert_eq!(report(&setup).await.state, DeletionState::Removing);

    setup.clock.advance(MINUTE);
    setup.run_stopped(DeleteTenants).await;
    assert_eq!(report(&setup).await.state, DeletionState::Removing);

    setup.clock.advance(MINUTE);
    assert_eq!(run(&setup).await, (1, 0));
    assert_eq!(setup.blobs_there().await, []);
    let report = report(&setup).await;
    assert_eq!((report.blobs, report.blob_bytes), (6, 30), "each is counted once");
    assert_eq!(report.rows["version"], 6);
}

async fn write_during_the_deletion_leaves_nothing(setup: TestEngine) {
    setup.make("/before", "12345").await;
    // All is removed between the look at the store and the content's arrival. From then
    // on nothing can be removed: the refused write's blob stays.
    let deleting = setup.clone();
    setup.blobs.before_put(once(async move {
        delete(&deleting).await;
        deleting.run_in_slot(DeleteTenants).await;
        deleting.blobs.before_delete(fails);
    }));
    let refused = setup.try_call(create("/memories/late", "late")).await;
    assert!(matches!(refused, Err(EngineError::NotFound(ObjectKind::Store))), "{refused:?}");
    setup.blobs.clear_hooks();
    assert_eq!(report(&setup).await.state, DeletionState::Settling);
    assert_eq!(setup.blobs_there().await.len(), 1, "an orphan that came late");
    // The deletion is not done while an earlier request may still be running.
    setup.plant(orphan_key(&setup, 1)).await;
    setup.clock.advance(59 * MINUTE);
    assert_eq!(run(&setup).await.1, 0);
    setup.clock.advance(MINUTE);
    assert_eq!(run(&setup).await, (0, 1));
    assert_eq!(setup.blobs_there().await, []);
    let done = report(&setup).await;
    assert_eq!((done.blobs, done.rows["version"]), (3, 1));
}
