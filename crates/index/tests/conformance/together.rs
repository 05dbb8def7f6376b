//! Calls that wait for the database go together, and each has its own outcome.

use std::collections::HashSet;
use std::time::Duration;

use futures::future::{join_all, poll_immediate};
use keepsake_core::StoreId;
use keepsake_index::{CommitOutcome, MemoryTarget, Refusal, Target};
use sqlx::{Executor as _, PgPool};
use tokio::time::timeout;

use crate::place::{Place, committed, created, edited, next_uuid, path};
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
    let outcomes =
        join_all(commits.iter().map(|commit| place.index.memories.commit(place.tenant_id, commit))).await;
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
    assert_eq!(place.paths_below("/").await, ["/0", "/1", "/2", "/3", "/4", "/old", "/there"]);
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
        let found_at = |place: &Place, store_id, at, max_entries| {
            let tenant_id = place.tenant_id;
            async move { memories.head(tenant_id, store_id, Some(at), max_entries).await.unwrap() }
        };
        let head = |place, store_id, at| found_at(place, store_id, at, 0);
        let listing = |place, store_id, at| found_at(place, store_id, at, 10);
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

        let (my_entries, their_entries, no_directory, no_store, other_tenants) = tokio::join!(
            listing(&one, one.store_id, &directory),
            listing(&other, other.store_id, &directory),
            listing(&one, one.store_id, &only),
            listing(&one, nowhere, &directory),
            listing(&one, other.store_id, &directory),
        );
        for (found, size_bytes) in [(my_entries, 1), (their_entries, 2)] {
            let Target::Directory(directory) = found.unwrap().target else {
                panic!("/same is a directory");
            };
            let entries: Vec<_> =
                directory.entries.iter().map(|entry| (&*entry.path, entry.size_bytes)).collect();
            assert_eq!(entries, [("/same/path", size_bytes)]);
        }
        assert_eq!(no_directory.unwrap().target, Target::Missing);
        assert_eq!((no_store, other_tenants), (None, None));

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
    timeout(FOR_EVER, join_all(rounds)).await.expect("a look-up is never answered");
}

/// Anybody may name the id of a store; a batch must not lend the tenant of another commit.
pub(crate) async fn batched_commits_of_tenants_and_stores_do_not_mix(subject: &Subject) {
    let first = Place::new(subject).await;
    let places = [
        first.clone(),
        Place::of_tenant(subject, first.tenant_id).await,
        Place::on(first.index.clone(), first.raw.clone()).await,
        Place::on(first.index.clone(), first.raw.clone()).await,
    ];
    let mut edits = Vec::new();
    for place in &places {
        let there = place.create("/there", 1).await;
        edits.push(edited(&there, 3));
    }
    let of_each = |at: &str| places.each_ref().map(|place| (place, vec![created(at, 2)]));
    let calls: Vec<_> = (0..5)
        .flat_map(|number| of_each(&format!("/a/{number}")))
        .chain(of_each("/there"))
        .chain(places.iter().zip(edits.into_iter().map(|edit| vec![edit])))
        .map(|(place, changes)| (place.tenant_id, place.commit_of(changes)))
        // The last tenant names the store of the first one.
        .chain([(places[3].tenant_id, first.commit_of(vec![created("/foreign", 1)]))])
        .collect();
    let calls = calls.iter().map(|(tenant_id, commit)| first.index.memories.commit(*tenant_id, commit));
    let outcomes = timeout(FOR_EVER, join_all(calls)).await.expect("a commit is never answered");
    for (number, outcome) in outcomes.into_iter().enumerate() {
        let outcome = outcome.unwrap();
        let is_expected = match number {
            20..24 => matches!(outcome, CommitOutcome::Refused(Refusal::PathTaken { .. })),
            28 => outcome == CommitOutcome::Refused(Refusal::NoStore),
            _ => matches!(outcome, CommitOutcome::Committed { .. }),
        };
        assert!(is_expected, "{number}: {outcome:?}");
    }
    for place in &places {
        assert_eq!(place.paths_below("/").await, ["/a/0", "/a/1", "/a/2", "/a/3", "/a/4", "/there"]);
        assert_eq!(place.memory("/there").await.size_bytes, 3);
        place.assert_recount().await;
    }
}

/// Transactions of commits that begin at the same time: the first goes at once, and the
/// others together. On a slow machine, some do not wait for the batch before theirs.
const FEW: usize = 4;

/// Postgres notes `synchronous_commit` and the id of each transaction that makes a version.
async fn note_durability(raw: &PgPool) {
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
}

/// The transactions of noted versions, each of which was flushed.
async fn durable_transactions(raw: &PgPool, versions: usize) -> usize {
    let noted: Vec<(String, String)> =
        sqlx::query_as("SELECT setting, xid FROM durability").fetch_all(raw).await.unwrap();
    assert_eq!(noted.len(), versions);
    assert!(noted.iter().all(|(setting, _)| setting == "on"), "{noted:?}");
    let transactions: HashSet<_> = noted.into_iter().map(|(_, xid)| xid).collect();
    transactions.len()
}

#[tokio::test]
async fn commits_of_one_store_share_a_transaction() {
    let (index, raw, _database) = postgres_index().await;
    let place = Place::on(index.into(), Raw::Postgres(raw.clone())).await;
    let there = place.create("/there", 1).await;
    place.create("/full", 1).await;
    note_durability(&raw).await;
    let stale = {
        place.change(vec![edited(&there, 5)]).await;
        place.commit_of(vec![edited(&there, 2)])
    };
    raw.execute("DELETE FROM durability").await.unwrap();
    let mut commits: Vec<_> =
        (0..20).map(|number| place.commit_of(vec![created(&format!("/{number}"), 1)])).collect();
    // Refused in the middle and at the end: the others are durable nevertheless.
    commits[7] = stale.clone();
    commits[19] = stale;
    let outcomes =
        join_all(commits.iter().map(|commit| place.index.memories.commit(place.tenant_id, commit)));
    let outcomes = timeout(FOR_EVER, outcomes).await.expect("a commit is never answered");
    for (number, outcome) in outcomes.into_iter().enumerate() {
        let outcome = outcome.unwrap();
        if matches!(number, 7 | 19) {
            assert_eq!(outcome, CommitOutcome::Refused(Refusal::Stale));
        } else {
            assert!(matches!(outcome, CommitOutcome::Committed { .. }), "{outcome:?}");
        }
    }
    let transactions = durable_transactions(&raw, 18).await;
    assert!(transactions <= FEW, "{transactions}");
    place.assert_recount().await;
}

#[tokio::test]
async fn puts_of_several_tenants_share_a_transaction() {
    let (index, raw, _database) = postgres_index().await;
    let mut places = Vec::new();
    for _ in 0..12 {
        let place = Place::on(index.clone().into(), Raw::Postgres(raw.clone())).await;
        place.create("/room", 1).await;
        places.push(place);
    }
    let index = &places[0].index;
    note_durability(&raw).await;
    let commits: Vec<_> = places.iter().map(|place| place.commit_of(vec![created("/new", 1)])).collect();
    let calls =
        commits.iter().zip(&places).map(|(commit, place)| index.memories.commit(place.tenant_id, commit));
    let outcomes = timeout(FOR_EVER, join_all(calls)).await.expect("a commit is never answered");
    for outcome in outcomes {
        assert_eq!(outcome.unwrap(), committed(2));
    }
    let transactions = durable_transactions(&raw, 12).await;
    assert!(transactions <= FEW, "{transactions}");
    for place in &places {
        place.assert_recount().await;
    }
}

#[tokio::test]
async fn put_of_a_locked_store_holds_up_no_other_store() {
    let (index, raw, _database) = postgres_index().await;
    let locked = Place::on(index.into(), Raw::Postgres(raw.clone())).await;
    let other = Place::on(locked.index.clone(), locked.raw.clone()).await;
    let memories = &locked.index.memories;
    for place in [&locked, &other] {
        place.create("/room", 1).await;
    }
    let mut transaction = raw.begin().await.unwrap();
    sqlx::query("SELECT FROM store WHERE store_id = $1 FOR UPDATE")
        .bind(locked.store_id.uuid())
        .execute(&mut *transaction)
        .await
        .unwrap();
    let waiting = ["/0", "/1", "/2"].map(|at| locked.commit_of(vec![created(at, 1)]));
    let free = ["/0", "/1", "/2"].map(|at| other.commit_of(vec![created(at, 1)]));
    let mut waiting =
        Box::pin(join_all(waiting.iter().map(|commit| memories.commit(locked.tenant_id, commit))));
    // The first of the locked store goes at once, and the others share a batch.
    assert!(poll_immediate(&mut waiting).await.is_none());
    let free = join_all(free.iter().map(|commit| memories.commit(other.tenant_id, commit)));
    let free = async {
        tokio::select! {
            _ = &mut waiting => panic!("the store is locked"),
            outcomes = free => outcomes,
        }
    };
    let outcomes = timeout(FOR_EVER, free).await.expect("they wait for the lock");
    for (outcome, seq) in outcomes.into_iter().zip(2..) {
        assert_eq!(outcome.unwrap(), committed(seq));
    }
    transaction.rollback().await.unwrap();
    let outcomes = timeout(FOR_EVER, waiting).await.expect("a commit is never answered");
    let mut made: Vec<_> = outcomes
        .into_iter()
        .map(|outcome| match outcome.unwrap() {
            CommitOutcome::Committed { seq, .. } => seq,
            other => panic!("{other:?}"),
        })
        .collect();
    made.sort_unstable();
    assert_eq!(made, [2, 3, 4]);
    for place in [&locked, &other] {
        place.assert_recount().await;
    }
}
