//! Versions whose content is removed.

use keepsake_core::{Actor, SessionId, StoreId, VersionId};
use keepsake_index::{
    Auditor, Change, CommitOutcome, DeletionReason, DueDeletion, Head, MemoryTarget, Redaction,
    RedactionOutcome, Refusal, Version,
};
use uuid::Uuid;

use crate::place::{
    NOW, Place, after_seconds, audited_by, by_nobody, by_tenant, created, deleted, edited, next_uuid, renamed,
};
use crate::subject::Subject;

fn session() -> Actor {
    Actor::Session(SessionId::from_uuid(Uuid::from_u128(7)))
}

fn redaction(place: &Place, version_id: VersionId) -> Redaction {
    Redaction {
        store_id: place.store_id,
        version_id,
        audited: audited_by(Auditor::Credential(session()), after_seconds(100)),
    }
}

pub(crate) async fn redact(place: &Place, version_id: VersionId) -> RedactionOutcome {
    let redaction = redaction(place, version_id);
    place
        .index
        .redactions
        .redact(place.tenant_id, &redaction)
        .await
        .unwrap()
}

/// Redacts a version, which must succeed; returns the condemned blob.
async fn redacted(place: &Place, version_id: VersionId) -> Option<VersionId> {
    match redact(place, version_id).await {
        RedactionOutcome::Redacted { condemned } => condemned,
        other => panic!("{other:?}"),
    }
}

async fn version(place: &Place, version_id: VersionId) -> Version {
    let found = place
        .index
        .versions
        .find(place.tenant_id, place.store_id, version_id)
        .await
        .unwrap();
    found.unwrap().version.unwrap()
}

/// The content of an older version, back under a memory.
fn restored(head: &Head, older: &Head) -> Change {
    let mut change = renamed(head, head.path.as_str());
    let after = change.after.as_mut().unwrap();
    (after.blob_id, after.size_bytes, after.sha256) = (older.blob_id, older.size_bytes, older.sha256);
    change
}

async fn queue(place: &Place) -> Vec<DueDeletion> {
    place.queue().due(after_seconds(100), 100).await.unwrap()
}

/// The purge epoch, and the bytes of the history.
async fn counters(place: &Place) -> [i64; 2] {
    let counters = "SELECT purge_epoch, version_bytes FROM store WHERE tenant_id = $1 AND store_id = $2";
    let row = place.raw.numbers(counters, &place.ids()).await.remove(0);
    [row[0], row[1]]
}

pub(crate) async fn redaction_leaves_who_did_what_and_when(subject: &Subject) {
    let place = Place::new(subject).await;
    let first = place.create("/secret", 10).await;
    place.change(vec![edited(&first, 5)]).await;
    let before = version(&place, first.version_id).await;
    let outcome = redact(&place, first.version_id).await;
    assert_eq!(
        outcome,
        RedactionOutcome::Redacted {
            condemned: Some(first.blob_id),
        }
    );
    let after = Version {
        path: None,
        content: None,
        redacted_at: Some(after_seconds(100)),
        redacted_by: Some(session()),
        ..before
    };
    assert_eq!(version(&place, first.version_id).await, after);
    let at = place
        .index
        .versions
        .find_at(place.tenant_id, place.store_id, 1)
        .await;
    assert_eq!(at.unwrap(), Some(after));
    let key = place.blob(first.blob_id);
    assert_eq!(
        queue(&place).await,
        [DueDeletion {
            key,
            attempts: 0,
            reason: DeletionReason::Redacted
        }]
    );
    assert_eq!(counters(&place).await, [1, 5]);
    place.assert_recount().await;
}

pub(crate) async fn redacting_twice_changes_nothing(subject: &Subject) {
    let place = Place::new(subject).await;
    let first = place.create("/a", 10).await;
    place.change(vec![edited(&first, 5)]).await;
    redacted(&place, first.version_id).await;
    let (rows, counted) = (place.rows().await, counters(&place).await);
    assert_eq!(
        redact(&place, first.version_id).await,
        RedactionOutcome::AlreadyRedacted
    );
    assert_eq!((place.rows().await, counters(&place).await), (rows, counted));
    // A removed blob is not queued again.
    let queued = queue(&place).await;
    assert!(place.queue().finish(&queued, NOW, None).await.unwrap());
    redact(&place, first.version_id).await;
    assert_eq!(queue(&place).await, []);
}

pub(crate) async fn content_of_a_live_memory_is_not_redacted(subject: &Subject) {
    let place = Place::new(subject).await;
    let first = place.create("/a", 10).await;
    let memory_id = first.memory_id;
    let refused = RedactionOutcome::HoldsLiveContent { memory_id };
    assert_eq!(redact(&place, first.version_id).await, refused);
    place.change(vec![renamed(&first, "/b")]).await;
    let moved = place.memory("/b").await;
    for version_id in [first.version_id, moved.version_id] {
        assert_eq!(redact(&place, version_id).await, refused, "both name the blob");
    }
    assert_eq!(counters(&place).await, [0, 10]);
    place.change(vec![deleted(&moved)]).await;
    assert_eq!(redacted(&place, first.version_id).await, None);
    assert_eq!(redacted(&place, moved.version_id).await, Some(first.blob_id));
}

pub(crate) async fn blob_is_removed_with_its_last_version(subject: &Subject) {
    let place = Place::new(subject).await;
    let first = place.create("/a", 10).await;
    place.change(vec![edited(&first, 5)]).await;
    let second = place.memory("/a").await;
    place.change(vec![restored(&second, &first)]).await;
    let third = place.memory("/a").await;
    let memory_id = first.memory_id;
    let refused = RedactionOutcome::HoldsLiveContent { memory_id };
    assert_eq!(redact(&place, first.version_id).await, refused);
    place.change(vec![edited(&third, 2)]).await;

    assert_eq!(redacted(&place, third.version_id).await, None);
    assert_eq!((queue(&place).await, counters(&place).await), (vec![], [1, 17]));
    assert_eq!(redacted(&place, first.version_id).await, Some(first.blob_id));
    assert_eq!(queue(&place).await.len(), 1);
    assert_eq!(counters(&place).await, [2, 7]);
    assert_eq!(redacted(&place, second.version_id).await, Some(second.blob_id));
    assert_eq!(counters(&place).await, [3, 2]);
    place.assert_recount().await;
}

pub(crate) async fn path_of_a_deleted_memory_is_removed_with_its_last_version(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/d/secret", 3).await;
    let delete = deleted(&head);
    place.change(vec![delete.clone()]).await;
    let paths = async || {
        let paths = "SELECT path, parent, name FROM memory WHERE tenant_id = $1 AND store_id = $2";
        place.raw.rows(paths, &place.ids()).await.concat()
    };
    redacted(&place, head.version_id).await;
    let kept = ["/d/secret", "/d/", "secret"].map(|text| Some(text.to_owned()));
    assert_eq!(paths().await, kept);
    assert_eq!(redacted(&place, delete.version_id).await, None);
    assert_eq!(paths().await, vec![Some(String::new()); 3]);
    assert_eq!(version(&place, delete.version_id).await.path, None);
    assert_eq!(counters(&place).await, [2, 0]);

    // The memory is still deleted, and can be restored.
    let found = place
        .index
        .memories
        .find(place.tenant_id, place.store_id, head.memory_id)
        .await;
    let target = found.unwrap().unwrap().target;
    assert!(matches!(target, MemoryTarget::Deleted { .. }), "{target:?}");
    let back = Change {
        memory_id: head.memory_id,
        revives: Some(delete.version_id),
        ..created("/back", 1)
    };
    place.change(vec![back]).await;
    assert_eq!(place.paths_below("/").await, ["/back"]);
    place.assert_recount().await;
}

pub(crate) async fn path_of_a_restored_memory_is_kept(subject: &Subject) {
    let place = Place::new(subject).await;
    let delete = deleted(&place.create("/a", 3).await);
    place.change(vec![delete.clone()]).await;
    let back = Change {
        memory_id: delete.memory_id,
        revives: Some(delete.version_id),
        ..created("/a", 1)
    };
    place.change(vec![back]).await;
    redacted(&place, delete.version_id).await;
    assert_eq!(place.paths_below("/").await, ["/a"]);
}

pub(crate) async fn redaction_by_the_operator_has_no_author(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/a", 1).await;
    place.change(vec![edited(&head, 1)]).await;
    let by_nobody = Redaction {
        audited: by_nobody(after_seconds(100)),
        ..redaction(&place, head.version_id)
    };
    place
        .index
        .redactions
        .redact(place.tenant_id, &by_nobody)
        .await
        .unwrap();
    let version = version(&place, head.version_id).await;
    assert_eq!(
        (version.redacted_at, version.redacted_by),
        (Some(after_seconds(100)), None)
    );
}

pub(crate) async fn versions_of_an_archived_store_can_be_redacted(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/a", 1).await;
    place.change(vec![edited(&head, 1)]).await;
    place
        .index
        .stores
        .archive(place.tenant_id, place.store_id, &by_tenant(NOW))
        .await
        .unwrap();
    redacted(&place, head.version_id).await;
}

pub(crate) async fn unknown_versions_are_not_redacted(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/a", 1).await;
    let nothing = VersionId::from_uuid(next_uuid());
    assert_eq!(redact(&place, nothing).await, RedactionOutcome::NoVersion);
    let elsewhere = Redaction {
        store_id: StoreId::from_uuid(next_uuid()),
        ..redaction(&place, head.version_id)
    };
    let refused = place.index.redactions.redact(place.tenant_id, &elsewhere).await;
    assert_eq!(refused.unwrap(), RedactionOutcome::NoStore);
}

pub(crate) async fn redacted_content_is_not_committed_again(subject: &Subject) {
    let place = Place::new(subject).await;
    let first = place.create("/a", 10).await;
    place.change(vec![edited(&first, 5)]).await;
    redacted(&place, first.version_id).await;
    let head = place.memory("/a").await;
    let refused = place.try_changes(vec![restored(&head, &first)]).await;
    assert_eq!(refused, CommitOutcome::Refused(Refusal::BlobCondemned));
    // Once it is gone from the queue, what read it before is stale.
    let queued = queue(&place).await;
    assert!(place.queue().finish(&queued, NOW, None).await.unwrap());
    let mut commit = place.commit_of(vec![restored(&head, &first)]);
    commit.purge_epoch = Some(0);
    assert_eq!(place.run(&commit).await, CommitOutcome::Refused(Refusal::Stale));
}

pub(crate) async fn content_is_either_redacted_or_restored(subject: &Subject) {
    let place = Place::new(subject).await;
    let mut epoch = 0;
    for round in 0..12 {
        let first = place.create(&format!("/{round}"), 10).await;
        place.change(vec![edited(&first, 5)]).await;
        let head = place.memory(&format!("/{round}")).await;
        let mut commit = place.commit_of(vec![restored(&head, &first)]);
        commit.purge_epoch = Some(epoch);
        let both = if round % 2 == 0 {
            futures::join!(place.run(&commit), redact(&place, first.version_id))
        } else {
            let (redaction, outcome) = futures::join!(redact(&place, first.version_id), place.run(&commit));
            (outcome, redaction)
        };
        match both {
            (CommitOutcome::Committed { .. }, RedactionOutcome::HoldsLiveContent { .. }) => {}
            (CommitOutcome::Refused(Refusal::Stale), RedactionOutcome::Redacted { .. }) => epoch += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(counters(&place).await[0], epoch);
}

pub(crate) async fn redaction_in_one_store_does_not_affect_others(subject: &Subject) {
    let place = Place::new(subject).await;
    let other = Place::of_tenant(subject, place.tenant_id).await;
    let mut twin = created("/a", 1);
    place.change(vec![twin.clone()]).await;
    place.change(vec![edited(&place.memory("/a").await, 1)]).await;
    // The same ids under another store are other rows and another blob.
    twin.after.as_mut().unwrap().path = crate::place::path("/twin");
    other.change(vec![twin.clone()]).await;
    let before = other.rows().await;
    redacted(&place, twin.version_id).await;
    assert_eq!(other.rows().await, before);
    let keys: Vec<_> = queue(&place).await.iter().map(|due| due.key).collect();
    assert_eq!(keys, [place.blob(twin.version_id)]);
}
