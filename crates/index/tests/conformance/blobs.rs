//! The queue of blobs that are to be removed.

use keepsake_core::{BlobKey, VersionId};
use keepsake_index::DeletionReason::{Gone, Orphan, Redacted};
use keepsake_index::{CommitOutcome, DeletionReason, DueDeletion, Refusal, RunFence};

use crate::place::{Place, after_seconds, committed, created, deleted, edited, next_uuid, renamed};
use crate::subject::Subject;

fn orphan(place: &Place) -> BlobKey {
    place.blob(VersionId::from_uuid(next_uuid()))
}

async fn due(place: &Place, seconds: i64) -> Vec<DueDeletion> {
    place.queue().due(after_seconds(seconds), 100).await.unwrap()
}

const fn entry(key: BlobKey, attempts: u32, reason: DeletionReason) -> DueDeletion {
    DueDeletion {
        key,
        attempts,
        reason,
    }
}

/// Takes a removed blob off the queue, as a redaction does.
async fn done(place: &Place, key: BlobKey, reason: DeletionReason, orphan_until_seconds: i64) {
    let until = after_seconds(orphan_until_seconds);
    let done = entry(key, 0, reason);
    assert!(place.queue().finish(&[done], until, None).await.unwrap());
}

/// Takes a job's lease, `number` runs after the first of a test.
async fn lease(place: &Place, job: &'static str, number: i64) -> RunFence {
    let index = &place.index;
    let (now, until) = (after_seconds(100 * number), after_seconds(100 * number + 60));
    let fence = index
        .job_runs
        .claim(job, now, next_uuid(), now, until)
        .await
        .unwrap();
    RunFence {
        job,
        fence: fence.expect("the lease is free"),
    }
}

/// Queues a blob that a row once named, as what removes history does.
async fn queue_purged(place: &Place, key: &BlobKey) {
    place
        .raw
        .execute(
            "INSERT INTO blob_deletion (tenant_id, store_id, blob_id, not_before, attempts, reason) \
             VALUES ($1, $2, $3, 0, 0, 'redacted')",
            &[key.tenant_id.uuid(), key.store_id.uuid(), key.blob_id.uuid()],
        )
        .await;
}

pub(crate) async fn orphan_is_condemned_and_due_in_time(subject: &Subject) {
    let place = Place::new(subject).await;
    let key = orphan(&place);
    assert!(
        place
            .queue()
            .condemn_orphan(&key, after_seconds(60))
            .await
            .unwrap()
    );
    assert_eq!(due(&place, 59).await, []);
    assert_eq!(due(&place, 60).await, [entry(key, 0, Orphan)]);
}

pub(crate) async fn condemning_twice_changes_nothing(subject: &Subject) {
    let place = Place::new(subject).await;
    let key = orphan(&place);
    assert!(
        place
            .queue()
            .condemn_orphan(&key, after_seconds(60))
            .await
            .unwrap()
    );
    let before = place.rows().await;
    assert!(
        place
            .queue()
            .condemn_orphan(&key, after_seconds(90))
            .await
            .unwrap()
    );
    assert_eq!(place.rows().await, before);
}

pub(crate) async fn blob_of_a_version_is_not_condemned(subject: &Subject) {
    let place = Place::new(subject).await;
    let first = place.create("/a", 1).await;
    place.change(vec![edited(&first, 2)]).await;
    let second = place.memory("/a").await;
    place.change(vec![deleted(&second)]).await;
    // Versions that are no longer a head still name their blobs.
    for head in [first, second] {
        assert!(
            !place
                .queue()
                .condemn_orphan(&place.blob(head.blob_id), after_seconds(60))
                .await
                .unwrap()
        );
    }
    assert_eq!(due(&place, 1000).await, []);
}

pub(crate) async fn blob_shared_by_a_rename_is_not_condemned(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/a", 1).await;
    place.change(vec![renamed(&head, "/b")]).await;
    // The version that introduced the blob is removed; a version that shares it stays.
    place
        .raw
        .execute(
            "DELETE FROM version WHERE tenant_id = $1 AND store_id = $2 AND seq = 1",
            &place.ids(),
        )
        .await;
    let key = place.blob(head.blob_id);
    assert!(
        !place
            .queue()
            .condemn_orphan(&key, after_seconds(60))
            .await
            .unwrap()
    );
    // The id of the rename's own version never named a blob.
    let unused = place.memory("/b").await.version_id;
    assert!(
        place
            .queue()
            .condemn_orphan(&place.blob(unused), after_seconds(60))
            .await
            .unwrap()
    );
    place
        .raw
        .execute(
            "DELETE FROM version WHERE tenant_id = $1 AND store_id = $2 AND seq = 2",
            &place.ids(),
        )
        .await;
    assert!(
        place
            .queue()
            .condemn_orphan(&key, after_seconds(60))
            .await
            .unwrap()
    );
}

pub(crate) async fn blob_of_a_redacted_version_is_an_orphan(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/a", 1).await;
    place
        .raw
        .execute(
            "UPDATE version SET blob_id = NULL WHERE tenant_id = $1 AND store_id = $2",
            &place.ids(),
        )
        .await;
    assert!(
        place
            .queue()
            .condemn_orphan(&place.blob(head.blob_id), after_seconds(60))
            .await
            .unwrap()
    );
}

pub(crate) async fn deletions_come_oldest_first_and_limited(subject: &Subject) {
    let place = Place::new(subject).await;
    let keys = [orphan(&place), orphan(&place), orphan(&place)];
    for (key, seconds) in keys.iter().zip([30, 10, 20]) {
        place
            .queue()
            .condemn_orphan(key, after_seconds(seconds))
            .await
            .unwrap();
    }
    let found: Vec<_> = due(&place, 100).await.iter().map(|due| due.key).collect();
    assert_eq!(found, [keys[1], keys[2], keys[0]]);
    let found = place.queue().due(after_seconds(100), 2).await.unwrap();
    assert_eq!(
        found.iter().map(|due| due.key).collect::<Vec<_>>(),
        [keys[1], keys[2]]
    );
}

pub(crate) async fn failed_deletion_waits_and_counts(subject: &Subject) {
    let place = Place::new(subject).await;
    let (key, other) = (orphan(&place), orphan(&place));
    for key in [&key, &other] {
        place.queue().condemn_orphan(key, after_seconds(0)).await.unwrap();
    }
    let fence = lease(&place, "failed deletions", 0).await;
    place
        .queue()
        .postpone(&entry(key, 0, Orphan), after_seconds(10), &fence)
        .await
        .unwrap();
    assert_eq!(due(&place, 9).await, [entry(other, 0, Orphan)]);
    place
        .queue()
        .postpone(&entry(key, 1, Orphan), after_seconds(40), &fence)
        .await
        .unwrap();
    assert_eq!(
        due(&place, 40).await,
        [entry(other, 0, Orphan), entry(key, 2, Orphan)]
    );
}

pub(crate) async fn removed_blob_leaves_the_queue(subject: &Subject) {
    let place = Place::new(subject).await;
    let (key, other) = (orphan(&place), orphan(&place));
    queue_purged(&place, &key).await;
    queue_purged(&place, &other).await;
    done(&place, key, Redacted, 1000).await;
    assert_eq!(due(&place, 5000).await, [entry(other, 0, Redacted)]);
    let nothing = place.queue().finish(&[], after_seconds(1000), None).await;
    assert!(nothing.unwrap());
    assert_eq!(due(&place, 5000).await.len(), 1);
}

pub(crate) async fn removed_orphan_stays_condemned_until_its_time(subject: &Subject) {
    let place = Place::new(subject).await;
    let change = created("/late", 1);
    let key = place.blob(change.version_id);
    place
        .queue()
        .condemn_orphan(&key, after_seconds(0))
        .await
        .unwrap();
    done(&place, key, Orphan, 3600).await;

    // The slow write of this blob commits after all.
    let refused = CommitOutcome::Refused(Refusal::BlobCondemned);
    assert_eq!(place.try_changes(vec![change.clone()]).await, refused);
    assert_eq!(due(&place, 3599).await, []);
    // It is tried once more, in case the write put it back, and then forgotten.
    assert_eq!(due(&place, 3600).await, [entry(key, 0, Gone)]);
    done(&place, key, Gone, 7200).await;
    assert_eq!(due(&place, 9000).await, []);
    assert_eq!(place.try_changes(vec![change]).await, committed(1));
}

pub(crate) async fn queues_of_stores_do_not_mix(subject: &Subject) {
    let (mine, theirs) = (Place::new(subject).await, Place::new(subject).await);
    let change = created("/a", 1);
    mine.index
        .blob_deletions
        .condemn_orphan(&mine.blob(change.version_id), after_seconds(0))
        .await
        .unwrap();
    // The same id under another store is another blob.
    assert_eq!(theirs.try_changes(vec![change.clone()]).await, committed(1));
    let (fence, other) = (
        lease(&mine, "queues", 0).await,
        entry(theirs.blob(change.version_id), 0, Orphan),
    );
    mine.index
        .blob_deletions
        .postpone(&other, after_seconds(500), &fence)
        .await
        .unwrap();
    done(&mine, other.key, Orphan, 500).await;
    let expected = entry(mine.blob(change.version_id), 0, Orphan);
    assert_eq!(due(&mine, 0).await, [expected]);
}

/// Two drains list the same orphan; the slower one reports it removed after the
/// faster one did.
pub(crate) async fn orphan_removed_by_two_runs_keeps_its_tombstone(subject: &Subject) {
    let place = Place::new(subject).await;
    let change = created("/late", 1);
    let key = place.blob(change.version_id);
    place
        .queue()
        .condemn_orphan(&key, after_seconds(0))
        .await
        .unwrap();
    let listed = due(&place, 0).await;
    assert_eq!(listed, [entry(key, 0, Orphan)]);
    for until in [3600, 9000] {
        let done = place.queue().finish(&listed, after_seconds(until), None);
        assert!(done.await.unwrap());
    }
    let refused = CommitOutcome::Refused(Refusal::BlobCondemned);
    assert_eq!(place.try_changes(vec![change]).await, refused);
    assert_eq!(due(&place, 3599).await, []);
    assert_eq!(due(&place, 3600).await, [entry(key, 0, Gone)]);
}

pub(crate) async fn run_without_its_lease_reports_no_removal(subject: &Subject) {
    const JOB: &str = "a drain that outlives its lease";
    let place = Place::new(subject).await;
    let (orphan, redacted) = (orphan(&place), orphan(&place));
    place
        .queue()
        .condemn_orphan(&orphan, after_seconds(0))
        .await
        .unwrap();
    queue_purged(&place, &redacted).await;
    let listed = due(&place, 0).await;
    assert_eq!(listed.len(), 2);
    let late = lease(&place, JOB, 0).await;
    let current = lease(&place, JOB, 1).await;
    assert!(current.fence > late.fence);

    let before = place.rows().await;
    let until = after_seconds(3600);
    let reported = place.queue().finish(&listed, until, Some(&late)).await;
    assert!(!reported.unwrap(), "another run has the lease");
    for failed in &listed {
        place.queue().postpone(failed, until, &late).await.unwrap();
    }
    assert_eq!(place.rows().await, before);

    let reported = place.queue().finish(&listed, until, Some(&current)).await;
    assert!(reported.unwrap());
    assert_eq!(due(&place, 3600).await, [entry(orphan, 0, Gone)]);
}

/// The failure that a slower run reports does not end a tombstone early.
pub(crate) async fn failed_removal_does_not_end_a_tombstone(subject: &Subject) {
    let place = Place::new(subject).await;
    let key = orphan(&place);
    place
        .queue()
        .condemn_orphan(&key, after_seconds(0))
        .await
        .unwrap();
    let listed = due(&place, 0).await;
    let fence = lease(&place, "a slower drain", 0).await;
    done(&place, key, Orphan, 3600).await;
    place
        .queue()
        .postpone(&listed[0], after_seconds(30), &fence)
        .await
        .unwrap();
    assert_eq!(due(&place, 3599).await, []);
    assert_eq!(due(&place, 3600).await, [entry(key, 0, Gone)]);
}
