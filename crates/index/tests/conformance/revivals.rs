//! Restored memories, pins, and commits that use older content.

use keepsake_core::VersionId;
use keepsake_index::{
    Change, CommitOutcome, ExpiryChange, HeadChange, Idempotency, MemoryTarget, Pin, PinOutcome, Refusal,
};

use crate::place::{
    NOW, Place, after_seconds, by_tenant, committed, created, deleted, edited, next_uuid, renamed,
};
use crate::subject::Subject;

const STALE: CommitOutcome = CommitOutcome::Refused(Refusal::Stale);

/// The return of a memory that `delete` deleted, with new content at a path.
fn revived(delete: &Change, at: &str, size_bytes: u64) -> Change {
    Change {
        memory_id: delete.memory_id,
        revives: Some(delete.version_id),
        ..created(at, size_bytes)
    }
}

async fn target_of(place: &Place, change: &Change) -> MemoryTarget {
    let found = place
        .index
        .memories
        .find(place.tenant_id, place.store_id, change.memory_id)
        .await
        .unwrap();
    found.unwrap().target
}

/// A memory that was made at `NOW`, pinned, and deleted; the deletion.
async fn deleted_memory(place: &Place) -> Change {
    let mut create = created("/d/a", 5);
    create.after.as_mut().unwrap().expiry = ExpiryChange::pinned(true);
    place.change(vec![create]).await;
    let delete = deleted(&place.memory("/d/a").await);
    place.change(vec![delete.clone()]).await;
    delete
}

pub(crate) async fn restored_memory_keeps_its_id_and_creation_time(subject: &Subject) {
    let place = Place::new(subject).await;
    let delete = deleted_memory(&place).await;
    let revive = revived(&delete, "/e/b", 7);
    let mut commit = place.commit_of(vec![revive.clone()]);
    commit.now = after_seconds(60);
    place.run(&commit).await;

    let MemoryTarget::Live(memory) = target_of(&place, &delete).await else {
        panic!("it is not there");
    };
    assert_eq!(memory.head, place.memory("/e/b").await);
    assert_eq!(memory.head.version_id, revive.version_id);
    assert_eq!((memory.created_at, memory.updated_at), (NOW, after_seconds(60)));
    assert!(memory.is_pinned, "a pin stays until it is taken off");
    let version = place
        .index
        .versions
        .find_at(place.tenant_id, place.store_id, 3)
        .await;
    let version = version.unwrap().unwrap();
    assert_eq!((version.operation.name(), version.prev_seq), ("created", Some(2)));
    let lines = "SELECT first_line FROM memory WHERE tenant_id = $1 AND store_id = $2";
    let line = format!("first line of {}", revive.version_id);
    assert_eq!(place.raw.rows(lines, &place.ids()).await, [[Some(line)]]);
    place.assert_recount().await;
}

pub(crate) async fn restore_brings_back_the_earlier_content(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/a", 5).await;
    let delete = deleted(&head);
    place.change(vec![delete.clone()]).await;
    let mut revive = revived(&delete, "/a", 5);
    revive.after = Some(HeadChange {
        blob_id: head.blob_id,
        sha256: head.sha256,
        ..revive.after.unwrap()
    });
    assert_eq!(place.change(vec![revive]).await, 3);
    assert_eq!(place.memory("/a").await.blob_id, head.blob_id);
    // The content counts once.
    place.assert_recount().await;
}

pub(crate) async fn only_the_deletion_that_was_read_is_undone(subject: &Subject) {
    let place = Place::new(subject).await;
    let delete = deleted_memory(&place).await;
    let never_was = Change {
        memory_id: created("/x", 1).memory_id,
        ..revived(&delete, "/x", 1)
    };
    let of_another_version = Change {
        revives: Some(VersionId::from_uuid(next_uuid())),
        ..revived(&delete, "/x", 1)
    };
    let before = place.rows().await;
    for change in [never_was, of_another_version] {
        assert_eq!(place.try_changes(vec![change]).await, STALE);
    }
    assert_eq!(place.rows().await, before);

    place.change(vec![revived(&delete, "/back", 1)]).await;
    assert_eq!(place.try_changes(vec![revived(&delete, "/x", 1)]).await, STALE);
    // Nor is what lives revived, even by the version it has.
    let alive = place.memory("/back").await;
    let mut change = revived(&delete, "/x", 1);
    change.revives = Some(alive.version_id);
    assert_eq!(place.try_changes(vec![change]).await, STALE);
    // A deleted memory cannot be edited.
    let delete_again = deleted(&alive);
    place.change(vec![delete_again.clone()]).await;
    let mut edit = edited(&alive, 1);
    edit.before.as_mut().unwrap().version_id = delete_again.version_id;
    assert_eq!(place.try_changes(vec![edit]).await, STALE);
    place.assert_recount().await;
}

pub(crate) async fn restore_to_a_taken_path_is_refused(subject: &Subject) {
    let place = Place::new(subject).await;
    let delete = deleted_memory(&place).await;
    let there = place.create("/d/a", 1).await;
    let taken = Refusal::PathTaken {
        path: "/d/a".to_owned(),
        memory_id: there.memory_id,
    };
    let refused = place.try_changes(vec![revived(&delete, "/d/a", 1)]).await;
    assert_eq!(refused, CommitOutcome::Refused(taken));
    assert!(matches!(
        target_of(&place, &delete).await,
        MemoryTarget::Deleted { .. }
    ));
    place.change(vec![revived(&delete, "/d/b", 1)]).await;
    place.assert_recount().await;
}

pub(crate) async fn change_sets_the_pin_or_keeps_it(subject: &Subject) {
    let place = Place::new(subject).await;
    place.create("/a", 1).await;
    let is_now_pinned = async || {
        let head = place.memory("/a").await;
        is_pinned(&place, &head).await
    };
    assert!(!is_now_pinned().await);
    for (pin, expected) in [
        (Some(true), true),
        (None, true),
        (Some(false), false),
        (None, false),
    ] {
        let mut edit = edited(&place.memory("/a").await, 1);
        edit.after.as_mut().unwrap().expiry.is_pinned = pin;
        place.change(vec![edit]).await;
        assert_eq!(is_now_pinned().await, expected, "after {pin:?}");
    }
}

pub(crate) async fn first_line_is_kept_unless_it_is_given(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/a", 1).await;
    let line = async || {
        let lines = "SELECT first_line FROM memory WHERE tenant_id = $1 AND store_id = $2";
        place.raw.rows(lines, &place.ids()).await[0][0].clone()
    };
    // Content that is restored from an older version has its first line again.
    let mut restore = renamed(&head, "/a");
    restore.after.as_mut().unwrap().first_line = Some("of old".to_owned());
    place.change(vec![restore]).await;
    assert_eq!(line().await.as_deref(), Some("of old"));
    place.change(vec![renamed(&place.memory("/a").await, "/b")]).await;
    assert_eq!(line().await.as_deref(), Some("of old"));
}

pub(crate) async fn commit_of_an_older_epoch_is_stale(subject: &Subject) {
    let place = Place::new(subject).await;
    let mut commit = place.commit_of(vec![created("/a", 1)]);
    commit.purge_epoch = Some(0);
    assert_eq!(place.run(&commit).await, committed(1));
    let purged = "UPDATE store SET purge_epoch = 1 WHERE tenant_id = $1 AND store_id = $2";
    place.raw.execute(purged, &place.ids()).await;
    let mut commit = place.commit_of(vec![created("/b", 1)]);
    commit.purge_epoch = Some(0);
    assert_eq!(place.run(&commit).await, STALE);
    commit.purge_epoch = Some(1);
    let outcome = place.run(&commit).await;
    assert!(
        matches!(outcome, CommitOutcome::Committed { purge_epoch: 1, .. }),
        "{outcome:?}"
    );
}

fn pin(place: &Place, expected: &keepsake_index::Head, is_pinned: impl Into<Option<bool>>) -> Pin {
    Pin {
        store_id: place.store_id,
        memory_id: expected.memory_id,
        expected: expected.version_id,
        expiry: ExpiryChange {
            is_pinned: is_pinned.into(),
            expires_at: None,
        },
        idempotency: None,
        now: NOW,
    }
}

async fn set(place: &Place, pin: &Pin) -> PinOutcome {
    place.index.memories.pin(place.tenant_id, pin).await.unwrap()
}

async fn is_pinned(place: &Place, head: &keepsake_index::Head) -> bool {
    let found = place
        .index
        .memories
        .find(place.tenant_id, place.store_id, head.memory_id)
        .await
        .unwrap();
    match found.unwrap().target {
        MemoryTarget::Live(memory) => memory.is_pinned,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn pin_is_set_and_removed_without_a_version(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/a", 1).await;
    for wanted in [true, true, false] {
        let done = PinOutcome::Done {
            is_pinned: wanted,
            expires_at: None,
        };
        assert_eq!(set(&place, &pin(&place, &head, wanted)).await, done);
        assert_eq!(is_pinned(&place, &head).await, wanted);
    }
    assert_eq!(place.memory("/a").await, head);
    place.assert_recount().await;
}

pub(crate) async fn pin_of_a_changed_head_is_stale(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/a", 1).await;
    place.change(vec![edited(&head, 1)]).await;
    assert_eq!(set(&place, &pin(&place, &head, true)).await, PinOutcome::Stale);
    let head = place.memory("/a").await;
    assert!(!is_pinned(&place, &head).await);
    let delete = deleted(&head);
    place.change(vec![delete.clone()]).await;
    let mut of_deleted = pin(&place, &head, true);
    assert_eq!(set(&place, &of_deleted).await, PinOutcome::Stale);
    of_deleted.expected = delete.version_id;
    assert_eq!(set(&place, &of_deleted).await, PinOutcome::Stale);
}

pub(crate) async fn pin_needs_a_writable_store(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/a", 1).await;
    let mut elsewhere = pin(&place, &head, true);
    elsewhere.store_id = keepsake_core::StoreId::from_uuid(next_uuid());
    assert_eq!(set(&place, &elsewhere).await, PinOutcome::NoStore);
    place
        .index
        .stores
        .archive(place.tenant_id, place.store_id, &by_tenant(NOW))
        .await
        .unwrap();
    assert_eq!(set(&place, &pin(&place, &head, true)).await, PinOutcome::Archived);
}

pub(crate) async fn repeated_pin_is_set_once(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/a", 1).await;
    let call = Idempotency {
        scope_sha256: [1; 32],
        request_sha256: [2; 32],
        since: after_seconds(-60),
    };
    let mut twice = pin(&place, &head, true);
    twice.idempotency = Some(call);
    let done = PinOutcome::Done {
        is_pinned: true,
        expires_at: None,
    };
    assert_eq!(set(&place, &twice).await, done);
    place.change(vec![edited(&head, 1)]).await;
    assert_eq!(set(&place, &twice).await, PinOutcome::Replayed { seq: 1 });
    let recorded = place
        .index
        .memories
        .replayed(place.tenant_id, &[1; 32], call.since)
        .await;
    let recorded = recorded.unwrap().unwrap();
    assert_eq!(recorded.object_id, Some(head.memory_id.uuid()));
    twice.idempotency = Some(Idempotency {
        request_sha256: [3; 32],
        ..call
    });
    assert_eq!(set(&place, &twice).await, PinOutcome::KeyReused);
}

pub(crate) async fn call_without_a_pin_keeps_it(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/a", 1).await;
    for (number, wanted) in [(1, false), (2, true), (3, false)] {
        set(&place, &pin(&place, &head, wanted)).await;
        let mut no_op = pin(&place, &head, None);
        no_op.idempotency = Some(Idempotency {
            scope_sha256: [number; 32],
            request_sha256: [0; 32],
            since: after_seconds(-60),
        });
        let kept = PinOutcome::Done {
            is_pinned: wanted,
            expires_at: None,
        };
        assert_eq!(set(&place, &no_op).await, kept);
        assert_eq!(is_pinned(&place, &head).await, wanted);
        assert_eq!(set(&place, &no_op).await, PinOutcome::Replayed { seq: 1 });
    }
}

pub(crate) async fn pin_racing_an_edit_is_set_or_stale(subject: &Subject) {
    let place = Place::new(subject).await;
    for round in 0..12 {
        let head = place.create(&format!("/{round}"), 1).await;
        let wanted = pin(&place, &head, true);
        let (pinned, edited) =
            futures::join!(set(&place, &wanted), place.try_changes(vec![edited(&head, 2)]));
        assert!(matches!(edited, CommitOutcome::Committed { .. }), "{edited:?}");
        let was_first = match pinned {
            PinOutcome::Done { .. } => true,
            PinOutcome::Stale => false,
            other => panic!("{other:?}"),
        };
        assert_eq!(is_pinned(&place, &head).await, was_first);
    }
    place.assert_recount().await;
}
