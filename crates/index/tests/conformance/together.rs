//! Calls that wait for the database go together, and each has its own outcome.

use std::collections::HashSet;

use futures::future::{join, poll_immediate};
use keepsake_core::Refused;
use tokio::time::timeout;

use crate::prelude::*;

/// Far longer than anything here takes: a wait that long never ends.
const FOR_EVER: Duration = Duration::from_mins(1);

/// What a look-up finds: no store, nothing, the size of a memory, or the entries of a directory.
fn shown(target: Option<Target>) -> String {
    match target {
        None => "no store".to_owned(),
        Some(Target::Missing) => "nothing".to_owned(),
        Some(Target::Memory(head)) => head.content.size_bytes.to_string(),
        Some(Target::Directory(directory)) => {
            let shown = directory.entries.iter().map(|entry| format!("{} {}", entry.path, entry.size_bytes));
            shown.collect::<Vec<_>>().join(", ")
        }
    }
}

pub(crate) async fn batched_lookups_see_only_their_tenant(one: Place) {
    let other = one.stranger().await;
    one.create("/same/path", 1).await;
    let memory_id = other.create("/same/path", 2).await.memory_id;
    other.create("/only/theirs", 1).await;
    let nowhere = StoreId::from_uuid(next_uuid());
    let memories = &one.index.memories;
    let at_paths = [
        (&one, one.store_id, "/same/path", 0, "1"),
        (&other, other.store_id, "/same/path", 0, "2"),
        (&one, one.store_id, "/only/theirs", 0, "nothing"),
        (&one, nowhere, "/same/path", 0, "no store"),
        (&one, other.store_id, "/same/path", 0, "no store"),
        (&one, one.store_id, "/same", 10, "/same/path 1"),
        (&other, other.store_id, "/same", 10, "/same/path 2"),
        (&one, other.store_id, "/same", 10, "no store"),
    ];
    let by_ids =
        [(&other, other.store_id, "2"), (&one, one.store_id, "nothing"), (&one, other.store_id, "no store")];
    let rounds = (0..20).map(|_| {
        let at_paths = at_paths.iter().map(async |&(of, store_id, at, max_entries, expected)| {
            let found = memories.head(of.tenant_id, store_id, Some(&path(at)), max_entries).await.unwrap();
            assert_eq!(shown(found.map(|found| found.target)), expected);
        });
        let by_ids = by_ids.iter().map(async |&(of, store_id, expected)| {
            let found = memories.find(of.tenant_id, store_id, memory_id).await.unwrap();
            let target = found.map(|found| match found.target {
                MemoryTarget::Live(memory) => Target::Memory(memory.head),
                MemoryTarget::Missing | MemoryTarget::Deleted { .. } => Target::Missing,
            });
            assert_eq!(shown(target), expected);
        });
        join(join_all(at_paths), join_all(by_ids))
    });
    timeout(FOR_EVER, join_all(rounds)).await.expect("a look-up is never answered");
}

/// Anybody may name the id of a store; a batch must not lend the tenant of another commit. The first commit starts at
/// once; the others wait for it and form batches.
pub(crate) async fn batched_commits_do_not_mix_or_affect_each_other(first: Place) {
    let places = [first.clone(), first.sibling().await, first.stranger().await, first.stranger().await];
    let (mut edits, mut outdated) = (Vec::new(), Vec::new());
    let mut impossible = created("/impossible", 1);
    for place in &places {
        let there = place.create("/there", 1).await;
        outdated.push(edited(&there, 1));
        edits.push(edited(&place.changed(edited(&there, 2)).await, 3));
        // The id of a version that is there.
        impossible.version_id = there.version_id;
        impossible.wanted.content = NewContent::Restored(there.content, "".into());
    }
    let of_each = |at: &str| places.each_ref().map(|place| (place, vec![created(at, 2)]));
    let calls: Vec<_> = (0..5)
        .flat_map(|number| of_each(&format!("/a/{number}")))
        .chain(of_each("/there"))
        .chain(of_each("/there/below"))
        .chain(places.iter().cycle().zip(edits.into_iter().chain(outdated).map(|edit| vec![edit])))
        .map(|(place, changes)| (place.tenant_id, place.commit_of(changes)))
        // The last tenant names the store of the first one.
        .chain([(places[3].tenant_id, first.commit_of(vec![created("/foreign", 1)]))])
        .chain([(places[3].tenant_id, places[3].commit_of(vec![impossible]))])
        .collect();
    let calls = calls.iter().map(|(tenant_id, commit)| first.index.memories.commit(*tenant_id, commit));
    let outcomes = timeout(FOR_EVER, join_all(calls)).await.expect("a commit is never answered");
    for (number, outcome) in outcomes.into_iter().enumerate() {
        let is_expected = match number {
            20..24 => matches!(outcome, Ok(CommitOutcome::Refused(Refused::PathTaken { .. }))),
            24..28 => matches!(outcome, Ok(CommitOutcome::Refused(Refused::ParentIsFile { .. }))),
            32..36 => matches!(outcome, Ok(CommitOutcome::Stale)),
            36 => matches!(outcome, Ok(CommitOutcome::NoStore)),
            37 => outcome.is_err(),
            _ => matches!(outcome, Ok(CommitOutcome::Committed { .. })),
        };
        assert!(is_expected, "{number}: {outcome:?}");
    }
    for place in &places {
        assert_eq!(place.paths_below("/").await, ["/a/0", "/a/1", "/a/2", "/a/3", "/a/4", "/there"]);
        assert_eq!(place.memory("/there").await.content.size_bytes, 3);
        place.assert_recount().await;
    }
}

/// Postgres notes `synchronous_commit` and the id of each transaction that makes a version.
async fn note_durability(raw: &Raw) {
    for statement in [
        "CREATE TABLE durability (setting text, xid text)",
        "GRANT INSERT ON durability TO PUBLIC",
        "CREATE FUNCTION note_durability() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
            INSERT INTO durability VALUES (current_setting('synchronous_commit'), pg_current_xact_id()::text); \
            RETURN NULL; END $$",
        "CREATE CONSTRAINT TRIGGER at_the_end AFTER INSERT ON version DEFERRABLE INITIALLY DEFERRED \
            FOR EACH ROW EXECUTE FUNCTION note_durability()",
    ] {
        raw.execute(statement, &[]).await;
    }
}

/// Makes all commits at the same time: the first by itself, and the others, which wait for
/// it, in one transaction. Both are flushed.
async fn share_a_transaction(commits: &[(Place, Commit)], is_refused: fn(usize) -> bool) {
    let raw = &commits[0].0.raw;
    raw.execute("DELETE FROM durability", &[]).await;
    // The first one does not end before all others wait.
    let mut held = raw.postgres().begin().await.unwrap();
    sqlx::query("LOCK TABLE version IN SHARE MODE").execute(&mut *held).await.unwrap();
    let memories = &commits[0].0.index.memories;
    let calls = commits.iter().map(|(place, commit)| memories.commit(place.tenant_id, commit));
    let mut calls = Box::pin(join_all(calls));
    assert!(poll_immediate(&mut calls).await.is_none());
    held.rollback().await.unwrap();
    let outcomes = timeout(FOR_EVER, calls).await.expect("a commit is never answered");
    let mut made = 0;
    for (number, outcome) in outcomes.into_iter().enumerate() {
        let outcome = outcome.unwrap();
        if is_refused(number) {
            assert_eq!(outcome, CommitOutcome::Stale);
        } else {
            assert!(matches!(outcome, CommitOutcome::Committed { .. }), "{outcome:?}");
            made += 1;
        }
    }
    let noted = raw.rows("SELECT setting, xid FROM durability", &[]).await;
    assert_eq!(noted.len(), made);
    assert!(noted.iter().all(|row| row[0].as_deref() == Some("on")), "{noted:?}");
    let transactions: HashSet<_> = noted.iter().map(|row| &row[1]).collect();
    assert_eq!(transactions.len(), 2, "{noted:?}");
    for (place, _) in commits {
        place.assert_recount().await;
    }
}

#[tokio::test]
async fn commits_of_one_store_and_puts_of_several_tenants_share_a_transaction() {
    let (place, _index, _database) = Place::on_postgres().await;
    let there = place.create("/there", 1).await;
    place.change(vec![edited(&there, 5)]).await;
    note_durability(&place.raw).await;
    // Refused in the middle and at the end: the others are durable nevertheless.
    let is_stale = |number: usize| matches!(number, 7 | 19);
    let commits = (0..20).map(|number| {
        let change = if is_stale(number) { edited(&there, 2) } else { created(&format!("/{number}"), 1) };
        (place.clone(), place.commit_of(vec![change]))
    });
    share_a_transaction(&commits.collect::<Vec<_>>(), is_stale).await;

    let mut puts = Vec::new();
    for _ in 0..12 {
        let place = place.stranger().await;
        place.create("/room", 1).await;
        let put = place.commit_of(vec![created("/new", 1)]);
        puts.push((place, put));
    }
    share_a_transaction(&puts, |_| false).await;
}

#[tokio::test]
async fn put_of_a_locked_store_holds_up_no_other_store() {
    let (locked, _index, _database) = Place::on_postgres().await;
    let other = locked.stranger().await;
    for place in [&locked, &other] {
        place.create("/room", 1).await;
    }
    let mut transaction = locked.raw.postgres().begin().await.unwrap();
    let lock = "SELECT FROM store WHERE store_id = $1 FOR UPDATE";
    sqlx::query(lock).bind(locked.store_id.uuid()).execute(&mut *transaction).await.unwrap();
    let commit_three = async |place: &Place| {
        let commits = ["/0", "/1", "/2"].map(|at| place.commit_of(vec![created(at, 1)]));
        let calls = commits.iter().map(|commit| place.index.memories.commit(place.tenant_id, commit));
        timeout(FOR_EVER, join_all(calls)).await.expect("a commit is never answered")
    };
    // The first of the locked store goes at once, and the others share a batch.
    let mut waiting = Box::pin(commit_three(&locked));
    assert!(poll_immediate(&mut waiting).await.is_none());
    let outcomes = tokio::select! {
        _ = &mut waiting => panic!("the store is locked"),
        outcomes = commit_three(&other) => outcomes,
    };
    for (outcome, seq) in outcomes.into_iter().zip(2..) {
        assert_eq!(outcome.unwrap(), committed(seq));
    }
    transaction.rollback().await.unwrap();
    for outcome in waiting.await {
        let outcome = outcome.unwrap();
        assert!(matches!(outcome, CommitOutcome::Committed { .. }), "{outcome:?}");
    }
    for place in [&locked, &other] {
        place.assert_recount().await;
    }
}
