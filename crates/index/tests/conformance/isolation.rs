//! A tenant that knows another's ids sees and changes nothing of it.

use keepsake_core::{StoreId, Timestamp};
use keepsake_index::{Commit, CommitOutcome, Grant, Idempotency, NewStore, Refusal, StoreCreation, Target};

use crate::place::{
    NOW, PLENTY, Place, REPLICA, after_seconds, committed, created, deleted, dir, edited, new_store, path,
    renamed,
};
use crate::subject::Subject;

const SCOPE: [u8; 32] = [1; 32];

struct Two {
    mine: Place,
    theirs: Place,
}

/// Two tenants with a store and a memory each.
async fn two(subject: &Subject) -> Two {
    let (mine, theirs) = (Place::new(subject).await, Place::new(subject).await);
    mine.create("/mine", 1).await;
    let mut commit = theirs.commit_of(vec![created("/theirs", 5)]);
    commit.idempotency = Some(Idempotency {
        scope_sha256: SCOPE,
        request_sha256: SCOPE,
        since: Timestamp::from_micros(0),
    });
    assert_eq!(theirs.run(&commit).await, committed(1));
    Two { mine, theirs }
}

pub(crate) async fn reads_find_nothing_of_another_tenant(subject: &Subject) {
    let Two { mine, theirs } = two(subject).await;
    let (index, me, store_id) = (&subject.index, mine.tenant_id, theirs.store_id);
    for at in [None, Some(path("/theirs"))] {
        assert_eq!(index.head(me, store_id, at.as_ref(), 10).await.unwrap(), None);
    }
    assert_eq!(index.heads_below(me, store_id, &dir("/")).await.unwrap(), []);
    assert_eq!(index.version_at(me, store_id, 1).await.unwrap(), None);
    assert_eq!(index.store(me, store_id).await.unwrap(), None);
    assert_eq!(
        index
            .replayed(me, &SCOPE, Timestamp::from_micros(0))
            .await
            .unwrap(),
        None
    );
    // The owner finds each of them.
    let them = theirs.tenant_id;
    assert!(
        index
            .head(them, store_id, Some(&path("/theirs")), 0)
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(
        index.heads_below(them, store_id, &dir("/")).await.unwrap().len(),
        1
    );
    assert!(index.version_at(them, store_id, 1).await.unwrap().is_some());
    assert!(index.store(them, store_id).await.unwrap().is_some());
    assert!(
        index
            .replayed(them, &SCOPE, Timestamp::from_micros(0))
            .await
            .unwrap()
            .is_some()
    );
}

pub(crate) async fn commits_do_not_reach_another_tenant(subject: &Subject) {
    let Two { mine, theirs } = two(subject).await;
    let head = theirs.memory("/theirs").await;
    let before = theirs.rows().await;
    let changes = [
        created("/new", 1),
        edited(&head, 9),
        renamed(&head, "/stolen"),
        deleted(&head),
    ];
    for change in changes.clone() {
        let commit = Commit {
            store_id: theirs.store_id,
            ..mine.commit_of(vec![change])
        };
        let outcome = mine.index.commit(mine.tenant_id, &commit).await.unwrap();
        assert_eq!(outcome, CommitOutcome::Refused(Refusal::NoStore));
    }
    for change in changes.into_iter().skip(1) {
        let outcome = mine.try_changes(vec![change]).await;
        assert_eq!(outcome, CommitOutcome::Refused(Refusal::Stale));
    }
    // A memory, a version and a path of the same names are another's.
    let mut same = created("/theirs", 7);
    same.memory_id = head.memory_id;
    same.version_id = head.version_id;
    same.after.as_mut().unwrap().blob_id = head.version_id;
    assert_eq!(mine.change(vec![same]).await, 2);
    assert_eq!(mine.memory("/theirs").await.size_bytes, 7);
    assert_eq!(theirs.rows().await, before);
}

pub(crate) async fn idempotent_call_of_another_tenant_is_not_replayed(subject: &Subject) {
    let Two { mine, theirs } = two(subject).await;
    let mut commit = mine.commit_of(vec![created("/again", 1)]);
    commit.idempotency = Some(Idempotency {
        scope_sha256: SCOPE,
        request_sha256: SCOPE,
        since: Timestamp::from_micros(0),
    });
    assert_eq!(mine.run(&commit).await, committed(2));
    let recorded = theirs
        .index
        .replayed(theirs.tenant_id, &SCOPE, Timestamp::from_micros(0))
        .await
        .unwrap();
    assert_eq!(recorded.and_then(|found| found.seq), Some(1));
}

pub(crate) async fn grants_do_not_reach_another_tenant(subject: &Subject) {
    let Two { mine, theirs } = two(subject).await;
    let granted = "SELECT granted_bytes FROM store WHERE tenant_id = $1 AND store_id = $2";
    let before = theirs.raw.numbers(granted, &theirs.ids()).await;
    let refused = mine
        .index
        .grant_bytes(mine.tenant_id, theirs.store_id, 1 << 30, PLENTY)
        .await
        .unwrap();
    assert_eq!(refused, Grant::NoStore);
    // A recall takes nothing from stores of others.
    let refused = mine
        .index
        .grant_bytes(mine.tenant_id, mine.store_id, PLENTY, 10)
        .await
        .unwrap();
    assert_eq!(refused, Grant::Refused { wanted_bytes: PLENTY });
    assert_eq!(theirs.raw.numbers(granted, &theirs.ids()).await, before);
}

pub(crate) async fn claims_do_not_reach_another_tenant(subject: &Subject) {
    let Two { mine, theirs } = two(subject).await;
    let head = theirs.memory("/theirs").await;
    let until = after_seconds(60);
    for store_id in [theirs.store_id, mine.store_id] {
        let claim = mine
            .index
            .claim_edit(mine.tenant_id, store_id, head.memory_id, REPLICA, NOW, until);
        assert!(!claim.await.unwrap());
    }
    assert_eq!(theirs.memory("/theirs").await, head);
}

pub(crate) async fn store_of_the_same_id_is_another_store(subject: &Subject) {
    let Two { mine, theirs } = two(subject).await;
    let same = NewStore {
        store_id: theirs.store_id,
        ..new_store()
    };
    let made = mine
        .index
        .create_store(mine.tenant_id, &same, PLENTY, None)
        .await
        .unwrap();
    assert_eq!(made, StoreCreation::Created);
    let twin = Place {
        store_id: same.store_id,
        ..mine.clone()
    };
    let before = theirs.rows().await;
    assert_eq!(twin.target("/theirs", 0).await, Target::Missing);
    twin.create("/theirs", 1).await;
    twin.assert_recount().await;
    assert_eq!(theirs.rows().await, before);
}

pub(crate) async fn stores_of_one_tenant_do_not_mix(subject: &Subject) {
    let first = Place::new(subject).await;
    let second = Place::of_tenant(subject, first.tenant_id).await;
    let head = first.create("/a", 1).await;
    second.create("/b", 1).await;
    assert_eq!(second.target("/a", 0).await, Target::Missing);
    assert_eq!(second.paths_below("/").await, ["/b"]);
    let before = first.rows().await;
    for change in [edited(&head, 9), renamed(&head, "/c"), deleted(&head)] {
        assert_eq!(
            second.try_changes(vec![change]).await,
            CommitOutcome::Refused(Refusal::Stale)
        );
    }
    assert_eq!(first.rows().await, before);
    let nowhere = StoreId::from_uuid(crate::place::next_uuid());
    assert_eq!(
        first.index.version_at(first.tenant_id, nowhere, 1).await.unwrap(),
        None
    );
}
