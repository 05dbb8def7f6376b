//! The refusals of a commit: their reasons, and that a refused commit changes nothing.

use keepsake_core::{SensitiveDataPolicy, StoreId};
use keepsake_index::{Change, Commit, CommitOutcome, Guard, Refusal, StoreChange};

use crate::place::{
    NOW, Place, after_seconds, by_tenant, committed, created, deleted, dir, edited, next_uuid, renamed,
};
use crate::subject::Subject;

/// Holds a commit to be refused, and nothing to be written by it.
async fn assert_refused(place: &Place, commit: &Commit, expected: Refusal) {
    let before = place.rows().await;
    assert_eq!(place.run(commit).await, CommitOutcome::Refused(expected));
    assert_eq!(place.rows().await, before);
}

async fn assert_changes_refused(place: &Place, changes: Vec<Change>, expected: Refusal) {
    assert_refused(place, &place.commit_of(changes), expected).await;
}

async fn archive(place: &Place) {
    place
        .raw
        .execute(
            "UPDATE store SET archived_at = 1 WHERE tenant_id = $1 AND store_id = $2",
            &place.ids(),
        )
        .await;
}

pub(crate) async fn unknown_store_is_refused(subject: &Subject) {
    let place = Place::new(subject).await;
    let mut commit = place.commit_of(vec![created("/a", 1)]);
    commit.store_id = StoreId::from_uuid(next_uuid());
    assert_refused(&place, &commit, Refusal::NoStore).await;
}

pub(crate) async fn deleted_store_is_refused(subject: &Subject) {
    let place = Place::new(subject).await;
    place
        .raw
        .execute(
            "UPDATE store SET deleted_at = 1 WHERE tenant_id = $1 AND store_id = $2",
            &place.ids(),
        )
        .await;
    assert_changes_refused(&place, vec![created("/a", 1)], Refusal::NoStore).await;
}

pub(crate) async fn changed_head_is_stale(subject: &Subject) {
    let place = Place::new(subject).await;
    let old = place.create("/a", 1).await;
    place.change(vec![edited(&old, 2)]).await;
    for change in [edited(&old, 3), renamed(&old, "/b"), deleted(&old)] {
        assert_changes_refused(&place, vec![change], Refusal::Stale).await;
    }
}

pub(crate) async fn renamed_or_deleted_head_is_stale(subject: &Subject) {
    let place = Place::new(subject).await;
    let old = place.create("/a", 1).await;
    place.change(vec![renamed(&old, "/b")]).await;
    assert_changes_refused(&place, vec![edited(&old, 3)], Refusal::Stale).await;
    let moved = place.memory("/b").await;
    place.change(vec![deleted(&moved)]).await;
    for change in [edited(&moved, 3), renamed(&moved, "/c"), deleted(&moved)] {
        assert_changes_refused(&place, vec![change], Refusal::Stale).await;
    }
}

pub(crate) async fn unknown_head_is_stale(subject: &Subject) {
    let (place, other) = (Place::new(subject).await, Place::new(subject).await);
    let elsewhere = other.create("/a", 1).await;
    for change in [
        edited(&elsewhere, 3),
        renamed(&elsewhere, "/b"),
        deleted(&elsewhere),
    ] {
        assert_changes_refused(&place, vec![change], Refusal::Stale).await;
    }
}

pub(crate) async fn one_stale_head_refuses_the_whole_commit(subject: &Subject) {
    let place = Place::new(subject).await;
    let good = place.create("/a", 1).await;
    let old = place.create("/b", 1).await;
    place.change(vec![edited(&old, 2)]).await;
    let changes = vec![created("/new", 1), edited(&good, 5), deleted(&old)];
    assert_changes_refused(&place, changes, Refusal::Stale).await;
}

pub(crate) async fn path_of_another_memory_is_taken(subject: &Subject) {
    let place = Place::new(subject).await;
    let there = place.create("/d/a", 1).await;
    let head = place.create("/b", 1).await;
    let taken = || Refusal::PathTaken {
        path: "/d/a".to_owned(),
        memory_id: there.memory_id,
    };
    assert_changes_refused(&place, vec![created("/d/a", 1)], taken()).await;
    assert_changes_refused(&place, vec![renamed(&head, "/d/a")], taken()).await;
    assert_changes_refused(&place, vec![created("/free", 1), created("/d/a", 1)], taken()).await;
}

pub(crate) async fn path_of_a_directory_is_refused(subject: &Subject) {
    let place = Place::new(subject).await;
    place.create("/d/e/f", 1).await;
    let head = place.create("/b", 1).await;
    for (at, directory) in [("/d", "/d/"), ("/d/e", "/d/e/")] {
        let refusal = || Refusal::PathIsDirectory {
            path: directory.to_owned(),
        };
        assert_changes_refused(&place, vec![created(at, 1)], refusal()).await;
        assert_changes_refused(&place, vec![renamed(&head, at)], refusal()).await;
    }
    place.create("/d/e0", 1).await;
}

pub(crate) async fn path_below_a_file_is_refused(subject: &Subject) {
    let place = Place::new(subject).await;
    let file = place.create("/d/file", 1).await;
    let head = place.create("/b", 1).await;
    let refusal = || Refusal::ParentIsFile {
        path: "/d/file".to_owned(),
        memory_id: file.memory_id,
    };
    for at in ["/d/file/x", "/d/file/x/y/z"] {
        assert_changes_refused(&place, vec![created(at, 1)], refusal()).await;
        assert_changes_refused(&place, vec![renamed(&head, at)], refusal()).await;
    }
    assert_changes_refused(&place, vec![renamed(&file, "/d/file/below-itself")], refusal()).await;
    place.create("/d/file-x/y", 1).await;
}

pub(crate) async fn memory_limit_holds_exactly_at_its_edge(subject: &Subject) {
    let place = Place::new(subject).await;
    let limited = |changes| Commit {
        memory_limit: 3,
        ..place.commit_of(changes)
    };
    let first = place.create("/1", 1).await;
    let two_more = limited(vec![created("/2", 1), created("/3", 1)]);
    assert_eq!(place.run(&two_more).await, committed(3));
    assert_refused(
        &place,
        &limited(vec![created("/4", 1)]),
        Refusal::TooManyMemories { count: 4 },
    )
    .await;
    let swap = limited(vec![deleted(&first), created("/4", 1)]);
    assert_eq!(place.run(&swap).await, committed(5));
}

pub(crate) async fn byte_limit_holds_exactly_at_its_edge(subject: &Subject) {
    let place = Place::new(subject).await;
    let limited = |changes| Commit {
        byte_limit: 100,
        ..place.commit_of(changes)
    };
    let head = place.create("/1", 60).await;
    assert_refused(
        &place,
        &limited(vec![created("/2", 41)]),
        Refusal::StoreFull { size_bytes: 101 },
    )
    .await;
    assert_eq!(place.run(&limited(vec![created("/2", 40)])).await, committed(2));
    assert_refused(
        &place,
        &limited(vec![edited(&head, 61)]),
        Refusal::StoreFull { size_bytes: 101 },
    )
    .await;
    assert_refused(
        &place,
        &limited(vec![created("/3", 1)]),
        Refusal::StoreFull { size_bytes: 101 },
    )
    .await;
    assert_eq!(place.run(&limited(vec![created("/3", 0)])).await, committed(3));
    place.assert_recount().await;
}

pub(crate) async fn commit_scanned_under_another_policy_is_stale(subject: &Subject) {
    let place = Place::new(subject).await;
    let judged = |policy, path: &str| Commit {
        policy: Some(policy),
        ..place.commit_of(vec![created(path, 1)])
    };
    assert_eq!(
        place.run(&judged(SensitiveDataPolicy::Off, "/1")).await,
        committed(1)
    );
    let change = StoreChange {
        policy: Some(SensitiveDataPolicy::Reject),
        now: NOW,
        ..StoreChange::default()
    };
    place
        .index
        .stores
        .update(place.tenant_id, place.store_id, &change, None, &by_tenant(NOW))
        .await
        .unwrap();
    for policy in [SensitiveDataPolicy::Off, SensitiveDataPolicy::Redact] {
        assert_refused(&place, &judged(policy, "/2"), Refusal::Stale).await;
    }
    assert_eq!(
        place.run(&judged(SensitiveDataPolicy::Reject, "/2")).await,
        committed(2)
    );
    assert_eq!(
        place.try_changes(vec![created("/3", 1)]).await,
        committed(3),
        "what holds nothing sensitive is good under any"
    );
}

pub(crate) async fn store_over_its_limits_may_still_shrink(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/1", 60).await;
    place.create("/2", 60).await;
    let limited = |changes| Commit {
        byte_limit: 100,
        memory_limit: 1,
        ..place.commit_of(changes)
    };
    assert_refused(
        &place,
        &limited(vec![edited(&head, 61)]),
        Refusal::StoreFull { size_bytes: 121 },
    )
    .await;
    assert_eq!(place.run(&limited(vec![edited(&head, 60)])).await, committed(3));
    let head = place.memory("/1").await;
    assert_eq!(place.run(&limited(vec![edited(&head, 59)])).await, committed(4));
    let head = place.memory("/1").await;
    assert_eq!(
        place.run(&limited(vec![renamed(&head, "/3")])).await,
        committed(5)
    );
    let head = place.memory("/3").await;
    assert_eq!(place.run(&limited(vec![deleted(&head)])).await, committed(6));
}

pub(crate) async fn guard_refuses_when_a_file_was_added(subject: &Subject) {
    let place = Place::new(subject).await;
    place.create("/d/1", 1).await;
    place.create("/d/sub/2", 1).await;
    let read = place.heads_below("/d/").await;
    place.create("/d/sub/late", 1).await;
    let mut commit = place.commit_of(read.iter().map(deleted).collect());
    commit.guard = Some(Guard {
        directory: dir("/d/"),
        files: read.len() as u64,
    });
    assert_refused(&place, &commit, Refusal::Stale).await;

    let read = place.heads_below("/d/").await;
    let mut commit = place.commit_of(read.iter().map(deleted).collect());
    commit.guard = Some(Guard {
        directory: dir("/d/"),
        files: 3,
    });
    assert_eq!(place.run(&commit).await, committed(6));
    assert_eq!(place.paths_below("/").await, Vec::<String>::new());
    place.assert_recount().await;
}

pub(crate) async fn guard_refuses_when_its_directory_is_gone(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/b", 1).await;
    let mut commit = place.commit_of(vec![edited(&head, 2)]);
    commit.guard = Some(Guard {
        directory: dir("/d/"),
        files: 0,
    });
    assert_refused(&place, &commit, Refusal::Stale).await;
}

pub(crate) async fn condemned_blob_is_refused(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/kept", 1).await;
    for change in [created("/a", 1), edited(&head, 2)] {
        let key = place.blob(change.version_id);
        assert!(
            place
                .queue()
                .condemn_orphan(&key, after_seconds(60))
                .await
                .unwrap()
        );
        assert_changes_refused(&place, vec![change], Refusal::BlobCondemned).await;
    }
    place.create("/a", 1).await;
}

pub(crate) async fn archived_store_accepts_only_deletions(subject: &Subject) {
    let place = Place::new(subject).await;
    let first = place.create("/1", 5).await;
    let second = place.create("/2", 5).await;
    archive(&place).await;
    for changes in [
        vec![created("/3", 1)],
        vec![edited(&first, 1)],
        vec![renamed(&first, "/3")],
        vec![deleted(&first), created("/3", 1)],
    ] {
        assert_changes_refused(&place, changes, Refusal::Archived).await;
    }
    let outcome = place.try_changes(vec![deleted(&first), deleted(&second)]).await;
    assert_eq!(outcome, committed(4));
    place.assert_recount().await;
}

pub(crate) async fn checks_run_in_a_fixed_order(subject: &Subject) {
    let place = Place::new(subject).await;
    let old = place.create("/a", 1).await;
    let there = place.create("/taken", 1).await;
    place.change(vec![edited(&old, 1)]).await;
    let condemned = created("/new", 10);
    place
        .queue()
        .condemn_orphan(&place.blob(condemned.version_id), after_seconds(60))
        .await
        .unwrap();

    // Each commit breaks everything that those after it break, and one thing more.
    let mut everything = place.commit_of(vec![condemned, created("/taken", 1), edited(&old, 1)]);
    (everything.memory_limit, everything.byte_limit) = (1, 1);
    let with = |changes: usize| {
        let mut commit = everything.clone();
        commit.changes.truncate(changes);
        commit
    };
    assert_refused(&place, &with(3), Refusal::Stale).await;
    let taken = Refusal::PathTaken {
        path: "/taken".to_owned(),
        memory_id: there.memory_id,
    };
    assert_refused(&place, &with(2), taken).await;
    let mut commit = with(1);
    assert_refused(&place, &commit, Refusal::TooManyMemories { count: 3 }).await;
    commit.memory_limit = 3;
    assert_refused(&place, &commit, Refusal::StoreFull { size_bytes: 12 }).await;
    commit.byte_limit = 12;
    assert_refused(&place, &commit, Refusal::BlobCondemned).await;
    archive(&place).await;
    assert_refused(&place, &with(3), Refusal::Archived).await;
}
