//! The queue of blobs that are to be removed.

use keepsake_index::DeletionReason::{Gone, Orphan};
use keepsake_index::{DeletionReason, DueDeletion, RunFence};

use crate::prelude::*;

async fn due(place: &Place, seconds: i64) -> Vec<DueDeletion> {
    place.queue().due(after_seconds(seconds), 100).await.unwrap()
}

/// Answers whether the blob is in the queue now, due at that time.
async fn condemn(place: &Place, key: &BlobKey, seconds: i64) -> bool {
    place.queue().condemn_orphan(key, after_seconds(seconds)).await.unwrap()
}

const fn entry(key: BlobKey, attempts: u32, reason: DeletionReason) -> DueDeletion {
    DueDeletion { key, attempts, reason }
}

/// Takes a removed blob off the queue, as a redaction does.
async fn done(place: &Place, key: BlobKey, reason: DeletionReason, orphan_until_seconds: i64) {
    let (done, until) = ([entry(key, 0, reason)], after_seconds(orphan_until_seconds));
    assert!(place.queue().finish(&done, until, None).await.unwrap());
}

/// Takes a job's lease, `number` runs after the first of a test.
async fn lease(place: &Place, job: &'static str, number: i64) -> RunFence {
    let index = &place.index;
    let (now, until) = (after_seconds(100 * number), after_seconds(100 * number + 60));
    let fence = index.job_runs.claim(job, now, next_uuid(), now, until).await.unwrap();
    RunFence { job, fence: fence.expect("the lease is free") }
}

/// Removed orphans stay in the queue as tombstones: writes that put them may be slow.
pub(crate) async fn orphan_stays_condemned_until_its_time_after_its_removal(place: Place) {
    let change = created("/late", 1);
    let key = place.blob(change.version_id);
    assert!(condemn(&place, &key, 0).await);
    let before = place.rows().await;
    assert!(condemn(&place, &key, 90).await);
    assert_eq!(place.rows().await, before, "condemned twice, queued once");
    let listed = due(&place, 0).await;
    assert_eq!(listed, [entry(key, 0, Orphan)]);
    done(&place, key, Orphan, 3600).await;
    // The failure that a slower run reports does not end the tombstone early.
    let fence = lease(&place, "a slower drain", 0).await;
    place.queue().postpone(&listed[0], after_seconds(30), &fence).await.unwrap();

    // The slow write of this blob commits after all.
    assert_eq!(place.try_changes(vec![change.clone()]).await, CommitOutcome::BlobCondemned);
    assert_eq!(due(&place, 3599).await, []);
    // It is tried once more, in case the write put it back, and then forgotten.
    assert_eq!(due(&place, 3600).await, [entry(key, 0, Gone)]);
    done(&place, key, Gone, 7200).await;
    assert_eq!(due(&place, 9000).await, []);
    assert_eq!(place.try_changes(vec![change]).await, committed(1));

    // A sweep finds that a slow write put a removed blob again.
    let again = place.blob(VersionId::from_uuid(next_uuid()));
    assert!(condemn(&place, &again, 0).await);
    done(&place, again, Orphan, 30 * 24 * 3600).await;
    assert_eq!(due(&place, 1000).await, [], "it is gone, and stays condemned");
    assert!(condemn(&place, &again, 500).await);
    assert_eq!(due(&place, 499).await, []);
    assert_eq!(due(&place, 500).await.len(), 1);
}

pub(crate) async fn blob_that_a_version_names_is_not_condemned(place: Place) {
    let is_condemned = async |blob_id| condemn(&place, &place.blob(blob_id), 60).await;
    let of_version = async |statement: &str, seq: i64| {
        let statement = format!("{statement} WHERE tenant_id = $1 AND store_id = $2 AND seq = {seq}");
        place.raw.execute(&statement, &place.ids()).await;
    };
    let first = place.create("/a", 1).await;
    let second = place.changed(edited(&first, 2)).await;
    place.change(vec![deleted(&second)]).await;
    // Versions that are no longer a head still name their blobs.
    for head in [&first, &second] {
        assert!(!is_condemned(head.content.blob_id).await);
    }
    let head = place.create("/b", 1).await;
    let moved = place.changed(renamed(&head, "/c")).await;
    // The version that introduced the blob is removed; a version that shares it stays.
    of_version("DELETE FROM version", 4).await;
    assert!(!is_condemned(head.content.blob_id).await);
    assert_eq!(due(&place, 1000).await, []);
    // The id of the rename's own version never named a blob.
    assert!(is_condemned(moved.version_id).await);
    of_version("DELETE FROM version", 5).await;
    assert!(is_condemned(head.content.blob_id).await);
    of_version("UPDATE version SET blob_id = NULL", 1).await;
    assert!(is_condemned(first.content.blob_id).await, "redacted");
}

pub(crate) async fn run_without_its_lease_reports_no_removal(place: Place) {
    const JOB: &str = "a drain that outlives its lease";
    let [orphan, redacted] = [(); 2].map(|()| place.blob(VersionId::from_uuid(next_uuid())));
    assert!(condemn(&place, &orphan, 0).await);
    // As what removes history queues a blob that a row once named.
    let queue = "INSERT INTO blob_deletion (tenant_id, store_id, blob_id, not_before, attempts, reason) \
                 VALUES ($1, $2, $3, 0, 0, 'redacted')";
    let [tenant_id, store_id] = place.ids();
    place.raw.execute(queue, &[tenant_id, store_id, redacted.blob_id.uuid()]).await;
    let listed = due(&place, 0).await;
    assert_eq!(listed.len(), 2);
    let late = lease(&place, JOB, 0).await;
    let current = lease(&place, JOB, 1).await;
    assert!(current.fence > late.fence);

    let before = place.rows().await;
    let until = after_seconds(3600);
    let finish = async |fence| place.queue().finish(&listed, until, Some(fence)).await.unwrap();
    assert!(!finish(&late).await, "another run has the lease");
    for failed in &listed {
        place.queue().postpone(failed, until, &late).await.unwrap();
    }
    assert_eq!(place.rows().await, before);

    assert!(finish(&current).await);
    assert_eq!(due(&place, 3600).await, [entry(orphan, 0, Gone)]);
}
