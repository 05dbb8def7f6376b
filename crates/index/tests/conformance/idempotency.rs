//! A call that is made twice is done once.

use futures::future::join_all;
use keepsake_core::Timestamp;
use keepsake_index::{Commit, CommitOutcome, Idempotency, Refusal, Replayed};

use crate::place::{Place, after_seconds, committed, committed_at, created, deleted, edited};
use crate::subject::Subject;

fn named(commit: Commit, scope: u8, since: Timestamp) -> Commit {
    let idempotency = Idempotency {
        scope_sha256: [scope; 32],
        request_sha256: [9; 32],
        since,
    };
    Commit {
        idempotency: Some(idempotency),
        ..commit
    }
}

fn a_day_before(now: Timestamp) -> Timestamp {
    now.minus(std::time::Duration::from_hours(24))
}

pub(crate) async fn second_call_is_replayed_and_writes_nothing(subject: &Subject) {
    let place = Place::new(subject).await;
    let changes = vec![created("/a", 1), created("/b", 1)];
    let memory_id = changes[0].memory_id;
    let first = named(place.commit_of(changes), 1, a_day_before(after_seconds(0)));
    assert_eq!(place.run(&first).await, committed(2));
    place.create("/later", 1).await;

    let before = place.rows().await;
    let again = named(
        place.commit_of(vec![created("/a", 1)]),
        1,
        a_day_before(after_seconds(0)),
    );
    assert_eq!(place.run(&again).await, CommitOutcome::Replayed { seq: 2 });
    assert_eq!(place.rows().await, before);
    let recorded = place
        .index
        .memories
        .replayed(place.tenant_id, &[1; 32], a_day_before(after_seconds(0)))
        .await
        .unwrap();
    assert_eq!(
        recorded,
        Some(Replayed {
            results: None,
            request_sha256: [9; 32],
            seq: Some(2),
            object_id: Some(memory_id.uuid()),
        })
    );
}

pub(crate) async fn replay_ends_with_its_window(subject: &Subject) {
    let place = Place::new(subject).await;
    let first = named(place.commit_of(vec![created("/a", 1)]), 1, after_seconds(-10));
    place.run(&first).await;
    let replayed = async |since| {
        place
            .index
            .memories
            .replayed(place.tenant_id, &[1; 32], since)
            .await
            .unwrap()
    };
    assert!(
        replayed(Timestamp::from_micros(after_seconds(0).as_micros() - 1))
            .await
            .is_some()
    );
    assert_eq!(replayed(after_seconds(0)).await, None);

    let mut late = named(place.commit_of(vec![created("/b", 1)]), 1, after_seconds(0));
    late.now = after_seconds(10);
    assert_eq!(place.run(&late).await, committed_at(2, after_seconds(10)));
    // The key now belongs to the second call.
    assert_eq!(
        replayed(after_seconds(0)).await.and_then(|found| found.seq),
        Some(2)
    );
    let mut again = named(place.commit_of(vec![created("/c", 1)]), 1, after_seconds(0));
    again.now = after_seconds(11);
    assert_eq!(place.run(&again).await, CommitOutcome::Replayed { seq: 2 });
}

pub(crate) async fn another_scope_is_another_call(subject: &Subject) {
    let place = Place::new(subject).await;
    let since = a_day_before(after_seconds(0));
    place
        .run(&named(place.commit_of(vec![created("/a", 1)]), 1, since))
        .await;
    let other = named(place.commit_of(vec![created("/b", 1)]), 2, since);
    assert_eq!(place.run(&other).await, committed(2));
    assert_eq!(
        place
            .index
            .memories
            .replayed(place.tenant_id, &[3; 32], since)
            .await
            .unwrap(),
        None
    );
}

pub(crate) async fn refused_call_may_be_made_again(subject: &Subject) {
    let place = Place::new(subject).await;
    let since = a_day_before(after_seconds(0));
    let there = place.create("/a", 1).await;
    let commit = named(place.commit_of(vec![created("/a", 1)]), 1, since);
    let taken = Refusal::PathTaken {
        path: "/a".to_owned(),
        memory_id: there.memory_id,
    };
    assert_eq!(place.run(&commit).await, CommitOutcome::Refused(taken));
    assert_eq!(
        place
            .index
            .memories
            .replayed(place.tenant_id, &[1; 32], since)
            .await
            .unwrap(),
        None
    );
    place.change(vec![deleted(&there)]).await;
    assert_eq!(place.run(&commit).await, committed(3));
}

pub(crate) async fn replay_comes_before_every_other_refusal(subject: &Subject) {
    let place = Place::new(subject).await;
    let since = a_day_before(after_seconds(0));
    let head = place.create("/a", 1).await;
    let edit = named(place.commit_of(vec![edited(&head, 2)]), 1, since);
    assert_eq!(place.run(&edit).await, committed(2));
    // By now the head is stale and the store is closed: the answer stays.
    place
        .raw
        .execute(
            "UPDATE store SET archived_at = 1 WHERE tenant_id = $1 AND store_id = $2",
            &place.ids(),
        )
        .await;
    assert_eq!(place.run(&edit).await, CommitOutcome::Replayed { seq: 2 });
}

pub(crate) async fn concurrent_duplicates_commit_once(subject: &Subject) {
    let place = Place::new(subject).await;
    let since = a_day_before(after_seconds(0));
    let calls = (0..16).map(|call| {
        let place = place.clone();
        tokio::spawn(async move {
            place
                .run(&named(
                    place.commit_of(vec![created(&format!("/{call}"), 1)]),
                    1,
                    since,
                ))
                .await
        })
    });
    let outcomes: Vec<_> = join_all(calls).await.into_iter().map(Result::unwrap).collect();
    let count = |wanted: &CommitOutcome| outcomes.iter().filter(|outcome| *outcome == wanted).count();
    assert_eq!(count(&committed(1)), 1, "{outcomes:?}");
    assert_eq!(count(&CommitOutcome::Replayed { seq: 1 }), 15, "{outcomes:?}");
    assert_eq!(place.directory("/", 0).await.files, 1);
    place.assert_recount().await;
}

pub(crate) async fn idempotency_key_of_another_request_writes_nothing(subject: &Subject) {
    let place = Place::new(subject).await;
    let since = a_day_before(after_seconds(0));
    place
        .run(&named(place.commit_of(vec![created("/a", 1)]), 1, since))
        .await;
    let mut other = named(place.commit_of(vec![created("/b", 1)]), 1, since);
    other.idempotency.as_mut().unwrap().request_sha256 = [8; 32];
    let before = place.rows().await;
    assert_eq!(place.run(&other).await, CommitOutcome::KeyReused);
    assert_eq!(place.rows().await, before);
    // When the first is forgotten, the name is free for it.
    other.idempotency.as_mut().unwrap().since = after_seconds(0);
    assert_eq!(place.run(&other).await, committed(2));
}
