//! Commits of one store at the same time.

use futures::future::{join, join_all};
use keepsake_index::{Commit, CommitOutcome, Head, Refusal, Target};
use tokio::task::{JoinHandle, yield_now};

use crate::place::{Place, after_seconds, created, deleted, edited, renamed};
use crate::subject::Subject;

fn is_committed(outcome: &CommitOutcome) -> bool {
    matches!(outcome, CommitOutcome::Committed { .. })
}

pub(crate) async fn file_and_directory_of_one_name_never_both_appear(subject: &Subject) {
    let place = Place::new(subject).await;
    for round in 0..24 {
        let (file, below) = (format!("/{round}"), format!("/{round}/b"));
        let both = [&file, &below].map(|at| {
            let (place, at) = (place.clone(), at.clone());
            tokio::spawn(async move { place.try_changes(vec![created(&at, 1)]).await })
        });
        let [as_file, as_directory] = both;
        let outcomes = (as_file.await.unwrap(), as_directory.await.unwrap());
        match &outcomes {
            (CommitOutcome::Committed { .. }, CommitOutcome::Refused(Refusal::ParentIsFile { path, .. })) => {
                assert_eq!(path, &file);
            }
            (CommitOutcome::Refused(Refusal::PathIsDirectory { path }), CommitOutcome::Committed { .. }) => {
                assert_eq!(path, &format!("{file}/"));
            }
            _ => panic!("{outcomes:?}"),
        }
    }
    place.assert_recount().await;
}

pub(crate) async fn one_of_many_creates_of_a_path_wins(subject: &Subject) {
    let place = Place::new(subject).await;
    let creates = (0..16).map(|_| place.try_changes(vec![created("/d/same", 1)]));
    let outcomes = join_all(creates).await;
    let there = place.memory("/d/same").await;
    let taken = Refusal::PathTaken {
        path: "/d/same".to_owned(),
        memory_id: there.memory_id,
    };
    assert_eq!(outcomes.iter().filter(|outcome| is_committed(outcome)).count(), 1);
    let refused = outcomes
        .iter()
        .filter(|outcome| **outcome == CommitOutcome::Refused(taken.clone()));
    assert_eq!(refused.count(), 15, "{outcomes:?}");
    place.assert_recount().await;
}

pub(crate) async fn one_of_many_renames_to_a_path_wins(subject: &Subject) {
    let place = Place::new(subject).await;
    let mut heads = Vec::new();
    for number in 0..12 {
        heads.push(place.create(&format!("/from/{number}/x"), 1).await);
    }
    let outcomes = join_all(
        heads
            .iter()
            .map(|head| place.try_changes(vec![renamed(head, "/to")])),
    )
    .await;
    let winner = place.memory("/to").await;
    for (head, outcome) in heads.iter().zip(&outcomes) {
        let taken = Refusal::PathTaken {
            path: "/to".to_owned(),
            memory_id: winner.memory_id,
        };
        let won = head.memory_id == winner.memory_id;
        assert!(if won {
            is_committed(outcome)
        } else {
            *outcome == CommitOutcome::Refused(taken)
        });
    }
    assert_eq!(place.directory("/from", 0).await.files, 11);
    place.assert_recount().await;
}

pub(crate) async fn one_of_many_changes_of_a_head_wins(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/d/a", 1).await;
    let changes = (0..12).map(|number| match number % 3 {
        0 => renamed(&head, &format!("/to/{number}")),
        1 => edited(&head, 5),
        _ => deleted(&head),
    });
    let outcomes = join_all(changes.map(|change| place.try_changes(vec![change]))).await;
    assert_eq!(outcomes.iter().filter(|outcome| is_committed(outcome)).count(), 1);
    let stale = outcomes
        .iter()
        .filter(|outcome| **outcome == CommitOutcome::Refused(Refusal::Stale));
    assert_eq!(stale.count(), 11, "{outcomes:?}");
    place.assert_recount().await;
}

/// Adds a byte to the memory, and retries while it loses the race.
async fn add_a_byte(place: &Place) {
    loop {
        let head: Head = place.memory("/notes").await;
        match place.try_changes(vec![edited(&head, head.size_bytes + 1)]).await {
            CommitOutcome::Committed { .. } => return,
            CommitOutcome::Refused(Refusal::Stale) => {}
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) async fn edits_that_retry_lose_none_of_sixteen(subject: &Subject) {
    const EDITS: i64 = 16;
    let place = Place::new(subject).await;
    place.create("/notes", 0).await;
    let edits = (0..EDITS).map(|_| {
        let place = place.clone();
        tokio::spawn(async move { add_a_byte(&place).await })
    });
    join_all(edits).await.into_iter().for_each(Result::unwrap);
    let sizes = place
        .raw
        .numbers(
            "SELECT seq, coalesce(prev_seq, 0), size_bytes FROM version \
             WHERE tenant_id = $1 AND store_id = $2 ORDER BY seq",
            &place.ids(),
        )
        .await;
    let expected: Vec<_> = (0..=EDITS).map(|edit| vec![edit + 1, edit, edit]).collect();
    assert_eq!(sizes, expected);
    place.assert_recount().await;
}

pub(crate) async fn look_ups_see_every_commit_that_was_answered(subject: &Subject) {
    const SIZES: u64 = 40;
    let place = Place::new(subject).await;
    let paths = [1, 2, 3, 4].map(|number| format!("/d/{number}.md"));
    let writers = paths.clone().map(|at| {
        let place = place.clone();
        tokio::spawn(async move {
            let mut head = place.create(&at, 0).await;
            for size_bytes in 1..=SIZES {
                place.change(vec![edited(&head, size_bytes)]).await;
                head = place.memory(&at).await;
                assert_eq!(head.size_bytes, size_bytes);
                assert!(place.directory("/d", 0).await.size_bytes >= size_bytes);
            }
        })
    });
    let size_of = async |at: &str| match place.target(at, 0).await {
        Target::Missing => 0,
        Target::Memory(head) => head.size_bytes,
        Target::Directory(directory) => directory.size_bytes,
    };
    let mut seen = [0; 5];
    while !writers.iter().all(JoinHandle::is_finished) {
        for (at, seen) in paths.iter().map(String::as_str).chain(["/d"]).zip(&mut seen) {
            let now = size_of(at).await;
            assert!(now >= *seen, "{at} has {now} bytes after {seen}");
            *seen = now;
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }
}

pub(crate) async fn racing_creates_stop_exactly_at_the_memory_limit(subject: &Subject) {
    let place = Place::new(subject).await;
    let creates = (0..24).map(|number| {
        let place = place.clone();
        tokio::spawn(async move {
            let commit = place.commit_of(vec![created(&format!("/{number}"), 1)]);
            place
                .run(&Commit {
                    memory_limit: 10,
                    ..commit
                })
                .await
        })
    });
    let outcomes: Vec<_> = join_all(creates).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(
        outcomes.iter().filter(|outcome| is_committed(outcome)).count(),
        10
    );
    let over = CommitOutcome::Refused(Refusal::TooManyMemories { count: 11 });
    assert_eq!(
        outcomes.iter().filter(|outcome| **outcome == over).count(),
        14,
        "{outcomes:?}"
    );
    place.assert_recount().await;
}

pub(crate) async fn creates_racing_in_many_directories_keep_every_count(subject: &Subject) {
    let place = Place::new(subject).await;
    let writers = (0..12).map(|writer: u64| {
        let place = place.clone();
        tokio::spawn(async move {
            for turn in 0..6 {
                let at = format!("/{}/{}/{writer}-{turn}", writer % 3, turn % 2);
                let head = place.create(&at, writer + 1).await;
                match turn % 3 {
                    0 => {
                        place
                            .change(vec![renamed(&head, &format!("/moved/{writer}/{turn}"))])
                            .await
                    }
                    1 => place.change(vec![deleted(&head)]).await,
                    _ => place.change(vec![edited(&head, 50)]).await,
                };
            }
        })
    });
    join_all(writers).await.into_iter().for_each(Result::unwrap);
    assert_eq!(place.directory("/", 0).await.files, 12 * 4);
    place.assert_recount().await;
}

pub(crate) async fn blob_is_either_committed_or_condemned(subject: &Subject) {
    let place = Place::new(subject).await;
    for round in 0..24 {
        let change = created(&format!("/{round}"), 1);
        let key = place.blob(change.version_id);
        let commit = place.try_changes(vec![change]);
        let condemn = place.queue().condemn_orphan(&key, after_seconds(60));
        let (outcome, condemned) = if round % 2 == 0 {
            join(commit, condemn).await
        } else {
            let (condemned, outcome) = join(condemn, commit).await;
            (outcome, condemned)
        };
        let condemned = condemned.unwrap();
        let refused = outcome == CommitOutcome::Refused(Refusal::BlobCondemned);
        assert!(
            if condemned {
                refused
            } else {
                is_committed(&outcome)
            },
            "{condemned}, {outcome:?}"
        );
    }
}

pub(crate) async fn commit_that_is_abandoned_leaves_the_store_usable(subject: &Subject) {
    let place = Place::new(subject).await;
    place.create("/first", 1).await;
    for turns in 0..12 {
        let change = created(&format!("/abandoned-{turns}"), 1);
        let patience = async {
            for _ in 0..turns {
                yield_now().await;
            }
        };
        tokio::select! {
            biased;
            _ = place.try_changes(vec![change]) => {}
            () = patience => {}
        }
        place.create(&format!("/after-{turns}"), 1).await;
        place.assert_recount().await;
    }
}
