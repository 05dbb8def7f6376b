//! Calls that wait for the database go together, and each has its own outcome.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{join_all, poll_immediate};
use keepsake_core::StoreId;
use keepsake_index::{Commit, CommitOutcome, Idempotency, MemoryTarget, Refusal, Target};
use sqlx::Executor as _;
use tokio::time::timeout;

use crate::place::{NOW, Place, committed, created, deleted, edited, next_uuid, path, renamed};
use crate::subject::{Raw, Subject, postgres_index};

/// Far longer than anything here takes: a wait that long never ends.
const FOR_EVER: Duration = Duration::from_mins(1);

pub(crate) async fn batched_commits_do_not_affect_each_other(subject: &Subject) {
    let place = Place::new(subject).await;
    let old = place.create("/old", 1).await;
    let there = place.create("/there", 1).await;
    place.change(vec![edited(&old, 2)]).await;
    let taken_version = {
        let mut change = created("/impossible", 1);
        change.version_id = there.version_id;
        change.after.as_mut().unwrap().blob_id = there.version_id;
        change
    };
    // The first commit starts at once; all others wait for it and form one batch.
    let commits = [
        created("/0", 1),
        created("/1", 1),
        created("/there", 1),
        created("/2", 1),
        edited(&old, 3),
        taken_version,
        created("/3", 1),
        created("/there/below", 1),
        created("/4", 1),
    ]
    .map(|change| place.commit_of(vec![change]));
    let outcomes = join_all(
        commits
            .iter()
            .map(|commit| place.index.memories.commit(place.tenant_id, commit)),
    )
    .await;
    let expected = [
        Some(committed(4)),
        Some(committed(5)),
        Some(CommitOutcome::Refused(Refusal::PathTaken {
            path: "/there".to_owned(),
            memory_id: there.memory_id,
        })),
        Some(committed(6)),
        Some(CommitOutcome::Refused(Refusal::Stale)),
        None,
        Some(committed(7)),
        Some(CommitOutcome::Refused(Refusal::ParentIsFile {
            path: "/there".to_owned(),
            memory_id: there.memory_id,
        })),
        Some(committed(8)),
    ];
    let outcomes: Vec<_> = outcomes.into_iter().map(Result::ok).collect();
    assert_eq!(outcomes, expected);
    assert_eq!(
        place.paths_below("/").await,
        ["/0", "/1", "/2", "/3", "/4", "/old", "/there"]
    );
    place.assert_recount().await;
}

/// Runs commits at the same time: the first goes at once, and all others wait for it.
async fn run_together(place: &Place, commits: &[Commit]) -> Vec<CommitOutcome> {
    let commits = commits
        .iter()
        .map(|commit| place.index.memories.commit(place.tenant_id, commit));
    join_all(commits).await.into_iter().map(Result::unwrap).collect()
}

/// Anybody may name the id of a store; its lane must not lend the tenant of another commit.
pub(crate) async fn commit_of_another_tenant_joins_no_batch(subject: &Subject) {
    let place = Place::new(subject).await;
    let other = Place::on(place.index.clone(), place.raw.clone()).await;
    place.create("/room", 1).await;
    let before = other.rows().await;
    let commits = ["/0", "/1", "/foreign", "/2"].map(|at| place.commit_of(vec![created(at, 1)]));
    let tenants = [place.tenant_id, place.tenant_id, other.tenant_id, place.tenant_id];
    let calls = commits
        .iter()
        .zip(tenants)
        .map(|(commit, tenant_id)| place.index.memories.commit(tenant_id, commit));
    let outcomes: Vec<_> = join_all(calls).await.into_iter().map(Result::unwrap).collect();
    let no_store = CommitOutcome::Refused(Refusal::NoStore);
    assert_eq!(outcomes, [committed(2), committed(3), no_store, committed(4)]);
    assert_eq!(place.paths_below("/").await, ["/0", "/1", "/2", "/room"]);
    assert_eq!(other.rows().await, before);
    place.assert_recount().await;
}

pub(crate) async fn refusals_within_a_batch_undo_only_themselves(subject: &Subject) {
    let place = Place::new(subject).await;
    let there = place.create("/there", 1).await;
    place.create("/a/0", 1).await;
    let memory_id = there.memory_id;
    let path = "/there".to_owned();
    let commits = [
        vec![created("/0", 1)],
        vec![created("/1", 1)],
        vec![created("/there", 7)],
        vec![created("/a/2", 1)],
        vec![created("/there/below", 7)],
        vec![edited(&there, 3)],
        vec![created("/a", 7)],
        vec![created("/a/3", 1)],
    ]
    .map(|changes| place.commit_of(changes));
    let expected = [
        committed(3),
        committed(4),
        CommitOutcome::Refused(Refusal::PathTaken {
            path: path.clone(),
            memory_id,
        }),
        committed(5),
        CommitOutcome::Refused(Refusal::ParentIsFile { path, memory_id }),
        committed(6),
        CommitOutcome::Refused(Refusal::PathIsDirectory {
            path: "/a/".to_owned(),
        }),
        committed(7),
    ];
    assert_eq!(run_together(&place, &commits).await, expected);
    assert_eq!(
        place.paths_below("/").await,
        ["/0", "/1", "/a/0", "/a/2", "/a/3", "/there"]
    );
    place.assert_recount().await;
}

pub(crate) async fn idempotency_key_twice_in_a_batch_commits_once(subject: &Subject) {
    let place = Place::new(subject).await;
    place.create("/room", 1).await;
    let named = |at: &str| Commit {
        idempotency: Some(Idempotency {
            scope_sha256: [3; 32],
            request_sha256: [9; 32],
            since: NOW.minus(Duration::from_hours(24)),
        }),
        ..place.commit_of(vec![created(at, 1)])
    };
    let plain = |at: &str| place.commit_of(vec![created(at, 1)]);
    let commits = [
        plain("/0"),
        named("/once"),
        plain("/1"),
        named("/once"),
        plain("/2"),
    ];
    let expected = [
        committed(2),
        committed(3),
        committed(4),
        CommitOutcome::Replayed { seq: 3 },
        committed(5),
    ];
    assert_eq!(run_together(&place, &commits).await, expected);
    place.assert_recount().await;
}

pub(crate) async fn limits_hold_within_a_batch(subject: &Subject) {
    let place = Place::new(subject).await;
    place.create("/room", 1).await;
    let commits: Vec<_> = (0..6)
        .map(|number| Commit {
            memory_limit: 4,
            ..place.commit_of(vec![created(&format!("/{number}"), 1)])
        })
        .collect();
    let full = CommitOutcome::Refused(Refusal::TooManyMemories { count: 5 });
    let expected = [
        committed(2),
        committed(3),
        committed(4),
        full.clone(),
        full.clone(),
        full,
    ];
    assert_eq!(run_together(&place, &commits).await, expected);
    place.assert_recount().await;
}

pub(crate) async fn puts_renames_and_deletions_that_wait_are_all_made(subject: &Subject) {
    let place = Place::new(subject).await;
    let (moved, gone) = (place.create("/old", 1).await, place.create("/gone", 1).await);
    let commits = [
        vec![created("/0", 1)],
        vec![created("/1", 1)],
        vec![renamed(&moved, "/new")],
        vec![created("/2", 1)],
        vec![deleted(&gone)],
        vec![created("/3", 1)],
    ]
    .map(|changes| place.commit_of(changes));
    let outcomes = run_together(&place, &commits).await;
    let expected = [3, 4, 5, 6, 7, 8].map(committed);
    assert_eq!(outcomes, expected);
    assert_eq!(place.paths_below("/").await, ["/0", "/1", "/2", "/3", "/new"]);
    place.assert_recount().await;
}

pub(crate) async fn more_commits_than_fit_one_batch_are_all_answered(subject: &Subject) {
    let place = Place::new(subject).await;
    place.create("/first", 1).await;
    let commits = (0..300).map(|number| {
        let place = place.clone();
        tokio::spawn(async move { place.change(vec![created(&format!("/{number}"), 1)]).await })
    });
    let all = timeout(FOR_EVER, join_all(commits))
        .await
        .expect("a commit is never answered");
    let mut seqs: Vec<_> = all.into_iter().map(Result::unwrap).collect();
    seqs.sort_unstable();
    assert!(seqs.into_iter().eq(2..=301));
    place.assert_recount().await;
}

pub(crate) async fn commit_behind_many_abandoned_ones_is_answered(subject: &Subject) {
    let place = Place::new(subject).await;
    place.create("/room", 1).await;
    let running = place.commit_of(vec![created("/running", 1)]);
    let mut running = Box::pin(place.index.memories.commit(place.tenant_id, &running));
    assert_eq!(
        poll_immediate(&mut running).await.map(Result::ok),
        None,
        "it runs"
    );
    let abandoned: Vec<_> = (0..100)
        .map(|number| place.commit_of(vec![created(&format!("/{number}"), 1)]))
        .collect();
    for commit in &abandoned {
        assert!(
            place
                .index
                .memories
                .commit(place.tenant_id, commit)
                .now_or_never()
                .is_none(),
            "it waits"
        );
    }
    let last = place.commit_of(vec![created("/last", 1)]);
    let both = join_all([
        running,
        Box::pin(place.index.memories.commit(place.tenant_id, &last)),
    ]);
    let outcomes = timeout(FOR_EVER, both).await.expect("a commit is never answered");
    for outcome in outcomes {
        assert!(
            matches!(outcome, Ok(CommitOutcome::Committed { .. })),
            "{outcome:?}"
        );
    }
    place.memory("/last").await;
    place.assert_recount().await;
}

pub(crate) async fn batched_lookups_see_only_their_tenant(subject: &Subject) {
    let one = Place::new(subject).await;
    let other = Place::on(one.index.clone(), one.raw.clone()).await;
    let mine = one.create("/same/path", 1).await;
    let theirs = other.create("/same/path", 2).await;
    other.create("/only/theirs", 1).await;
    let nowhere = StoreId::from_uuid(next_uuid());
    let [same, only, directory] = ["/same/path", "/only/theirs", "/same"].map(path);
    let memories = &one.index.memories;
    let rounds = (0..20).map(|_| async {
        let head = |place: &Place, store_id, at| {
            let tenant_id = place.tenant_id;
            async move { memories.head(tenant_id, store_id, Some(at), 0).await.unwrap() }
        };
        let (found, foreign, missing, no_store, other_tenants, below) = tokio::join!(
            head(&one, one.store_id, &same),
            head(&other, other.store_id, &same),
            head(&one, one.store_id, &only),
            head(&one, nowhere, &same),
            head(&one, other.store_id, &same),
            head(&other, other.store_id, &directory),
        );
        assert_eq!(found.unwrap().target, Target::Memory(mine.clone()));
        assert_eq!(foreign.unwrap().target, Target::Memory(theirs.clone()));
        assert_eq!(missing.unwrap().target, Target::Missing);
        assert_eq!(no_store, None);
        assert_eq!(other_tenants, None);
        assert!(matches!(below.unwrap().target, Target::Directory(directory) if directory.files == 1));

        let find = |place: &Place, store_id, memory_id| {
            let tenant_id = place.tenant_id;
            async move { memories.find(tenant_id, store_id, memory_id).await.unwrap() }
        };
        let (found, foreign, not_mine, other_tenants) = tokio::join!(
            find(&one, one.store_id, mine.memory_id),
            find(&other, other.store_id, theirs.memory_id),
            find(&one, one.store_id, theirs.memory_id),
            find(&one, other.store_id, theirs.memory_id),
        );
        for (found, head) in [(found, &mine), (foreign, &theirs)] {
            let target = found.unwrap().target;
            assert!(matches!(target, MemoryTarget::Live(memory) if memory.head == *head));
        }
        assert!(matches!(not_mine.unwrap().target, MemoryTarget::Missing));
        assert_eq!(other_tenants, None);
    });
    timeout(FOR_EVER, join_all(rounds))
        .await
        .expect("a look-up is never answered");
}

#[tokio::test]
async fn commits_of_one_store_share_a_transaction() {
    let (index, raw, _database) = postgres_index().await;
    let place = Place::on(index.into(), Raw::Postgres(raw.clone())).await;
    let there = place.create("/there", 1).await;
    place.create("/full", 1).await;
    // Records `synchronous_commit` and the id of each transaction at its end.
    for statement in [
        "CREATE TABLE durability (setting text, xid text)",
        "GRANT INSERT ON durability TO PUBLIC",
        "CREATE FUNCTION note_durability() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
            INSERT INTO durability VALUES (current_setting('synchronous_commit'), pg_current_xact_id()::text); \
            RETURN NULL; END $$",
        "CREATE CONSTRAINT TRIGGER at_the_end AFTER INSERT ON version DEFERRABLE INITIALLY DEFERRED \
            FOR EACH ROW EXECUTE FUNCTION note_durability()",
    ] {
        raw.execute(statement).await.unwrap();
    }
    let stale = {
        place.change(vec![edited(&there, 5)]).await;
        place.commit_of(vec![edited(&there, 2)])
    };
    raw.execute("DELETE FROM durability").await.unwrap();
    let mut commits: Vec<_> = (0..20)
        .map(|number| place.commit_of(vec![created(&format!("/{number}"), 1)]))
        .collect();
    // Refused in the middle and at the end: the others are durable nevertheless.
    commits[7] = stale.clone();
    commits[19] = stale;
    let outcomes = join_all(
        commits
            .iter()
            .map(|commit| place.index.memories.commit(place.tenant_id, commit)),
    );
    let outcomes = timeout(FOR_EVER, outcomes)
        .await
        .expect("a commit is never answered");
    for (number, outcome) in outcomes.into_iter().enumerate() {
        let outcome = outcome.unwrap();
        if matches!(number, 7 | 19) {
            assert_eq!(outcome, CommitOutcome::Refused(Refusal::Stale));
        } else {
            assert!(matches!(outcome, CommitOutcome::Committed { .. }), "{outcome:?}");
        }
    }
    let durability: Vec<(String, String)> = sqlx::query_as("SELECT setting, xid FROM durability")
        .fetch_all(&raw)
        .await
        .unwrap();
    assert_eq!(durability.len(), 18);
    assert!(
        durability.iter().all(|(setting, _)| setting == "on"),
        "{durability:?}"
    );
    let mut transactions: Vec<_> = durability.into_iter().map(|(_, xid)| xid).collect();
    transactions.dedup();
    assert_eq!(
        transactions.len(),
        2,
        "the first goes at once, the others together"
    );
    place.assert_recount().await;
}
