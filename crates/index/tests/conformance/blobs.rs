//! The queue of blobs that are to be removed.

use keepsake_core::{BlobKey, VersionId};
use keepsake_index::{CommitOutcome, DueDeletion, Refusal};

use crate::place::{Place, after_seconds, committed, created, deleted, edited, next_uuid, renamed};
use crate::subject::Subject;

fn orphan(place: &Place) -> BlobKey {
    place.blob(VersionId::from_uuid(next_uuid()))
}

async fn due(place: &Place, seconds: i64) -> Vec<DueDeletion> {
    place
        .index
        .due_deletions(after_seconds(seconds), 100)
        .await
        .unwrap()
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
    assert!(place.index.condemn_orphan(&key, after_seconds(60)).await.unwrap());
    assert_eq!(due(&place, 59).await, []);
    assert_eq!(
        due(&place, 60).await,
        [DueDeletion {
            key,
            attempts: 0,
            is_for_good: false
        }]
    );
}

pub(crate) async fn condemning_twice_changes_nothing(subject: &Subject) {
    let place = Place::new(subject).await;
    let key = orphan(&place);
    assert!(place.index.condemn_orphan(&key, after_seconds(60)).await.unwrap());
    let before = place.rows().await;
    assert!(place.index.condemn_orphan(&key, after_seconds(90)).await.unwrap());
    assert_eq!(place.rows().await, before);
}

pub(crate) async fn blob_that_a_version_names_is_not_condemned(subject: &Subject) {
    let place = Place::new(subject).await;
    let first = place.create("/a", 1).await;
    place.change(vec![edited(&first, 2)]).await;
    let second = place.memory("/a").await;
    place.change(vec![deleted(&second)]).await;
    // Versions that are no longer a head name theirs all the same.
    for head in [first, second] {
        assert!(
            !place
                .index
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
    // The version that brought the blob goes; the one that shares it stays.
    place
        .raw
        .execute(
            "DELETE FROM version WHERE tenant_id = $1 AND store_id = $2 AND seq = 1",
            &place.ids(),
        )
        .await;
    let key = place.blob(head.blob_id);
    assert!(!place.index.condemn_orphan(&key, after_seconds(60)).await.unwrap());
    // The id of the rename's own version never named a blob.
    let unused = place.memory("/b").await.version_id;
    assert!(
        place
            .index
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
    assert!(place.index.condemn_orphan(&key, after_seconds(60)).await.unwrap());
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
            .index
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
            .index
            .condemn_orphan(key, after_seconds(seconds))
            .await
            .unwrap();
    }
    let found: Vec<_> = due(&place, 100).await.iter().map(|due| due.key).collect();
    assert_eq!(found, [keys[1], keys[2], keys[0]]);
    let found = place.index.due_deletions(after_seconds(100), 2).await.unwrap();
    assert_eq!(
        found.iter().map(|due| due.key).collect::<Vec<_>>(),
        [keys[1], keys[2]]
    );
}

pub(crate) async fn failed_deletion_waits_and_counts(subject: &Subject) {
    let place = Place::new(subject).await;
    let (key, other) = (orphan(&place), orphan(&place));
    for key in [&key, &other] {
        place.index.condemn_orphan(key, after_seconds(0)).await.unwrap();
    }
    place
        .index
        .deletion_failed(&key, after_seconds(10))
        .await
        .unwrap();
    assert_eq!(
        due(&place, 9).await,
        [DueDeletion {
            key: other,
            attempts: 0,
            is_for_good: false
        }]
    );
    place
        .index
        .deletion_failed(&key, after_seconds(40))
        .await
        .unwrap();
    assert_eq!(
        due(&place, 40).await,
        [
            DueDeletion {
                key: other,
                attempts: 0,
                is_for_good: false
            },
            DueDeletion {
                key,
                attempts: 2,
                is_for_good: false
            }
        ]
    );
}

pub(crate) async fn removed_blob_leaves_the_queue(subject: &Subject) {
    let place = Place::new(subject).await;
    let (key, other) = (orphan(&place), orphan(&place));
    queue_purged(&place, &key).await;
    queue_purged(&place, &other).await;
    place
        .index
        .deletions_done(&[key], after_seconds(1000))
        .await
        .unwrap();
    assert_eq!(
        due(&place, 5000).await,
        [DueDeletion {
            key: other,
            attempts: 0,
            is_for_good: true
        }]
    );
    place
        .index
        .deletions_done(&[], after_seconds(1000))
        .await
        .unwrap();
    assert_eq!(due(&place, 5000).await.len(), 1);
}

pub(crate) async fn removed_orphan_stays_condemned_until_its_time(subject: &Subject) {
    let place = Place::new(subject).await;
    let change = created("/late", 1);
    let key = place.blob(change.version_id);
    place.index.condemn_orphan(&key, after_seconds(0)).await.unwrap();
    place
        .index
        .deletions_done(&[key], after_seconds(3600))
        .await
        .unwrap();

    // The slow write that brought it comes to commit after all.
    let refused = CommitOutcome::Refused(Refusal::BlobCondemned);
    assert_eq!(place.try_changes(vec![change.clone()]).await, refused);
    assert_eq!(due(&place, 3599).await, []);
    // It is tried once more, in case the write put it back, and then forgotten.
    assert_eq!(
        due(&place, 3600).await,
        [DueDeletion {
            key,
            attempts: 0,
            is_for_good: true
        }]
    );
    place
        .index
        .deletions_done(&[key], after_seconds(7200))
        .await
        .unwrap();
    assert_eq!(due(&place, 9000).await, []);
    assert_eq!(place.try_changes(vec![change]).await, committed(1));
}

pub(crate) async fn queues_of_stores_do_not_mix(subject: &Subject) {
    let (mine, theirs) = (Place::new(subject).await, Place::new(subject).await);
    let change = created("/a", 1);
    mine.index
        .condemn_orphan(&mine.blob(change.version_id), after_seconds(0))
        .await
        .unwrap();
    // The same id under another store is another blob.
    assert_eq!(theirs.try_changes(vec![change.clone()]).await, committed(1));
    mine.index
        .deletion_failed(&theirs.blob(change.version_id), after_seconds(500))
        .await
        .unwrap();
    mine.index
        .deletions_done(&[theirs.blob(change.version_id)], after_seconds(500))
        .await
        .unwrap();
    let expected = DueDeletion {
        key: mine.blob(change.version_id),
        attempts: 0,
        is_for_good: false,
    };
    assert_eq!(due(&mine, 0).await, [expected]);
}
