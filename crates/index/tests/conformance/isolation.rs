//! A tenant that knows another's ids sees and changes nothing of it.

use keepsake_core::actor::ActorKind;
use keepsake_core::{StoreId, Timestamp};
use keepsake_index::{
    Commit, CommitOutcome, Depth, ExpiryChange, Grant, Idempotency, MemoryTarget, NewStore, Pin, PinOutcome,
    Redaction, RedactionOutcome, Refusal, StoreChange, StoreCreation, StoreListing, StoreUpdate, Target,
    VersionListing,
};

use crate::place::{
    NOW, PLENTY, Place, REPLICA, actor, after_seconds, by_nobody, by_tenant, committed, created, deleted,
    dir, edited, listing, new_store, path, renamed,
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
        assert_eq!(
            index.memories.head(me, store_id, at.as_ref(), 10).await.unwrap(),
            None
        );
    }
    assert_eq!(
        index.memories.heads_below(me, store_id, &dir("/")).await.unwrap(),
        []
    );
    assert_eq!(index.versions.find_at(me, store_id, 1).await.unwrap(), None);
    assert_eq!(index.stores.find(me, store_id).await.unwrap(), None);
    assert_eq!(
        index
            .memories
            .replayed(me, &SCOPE, Timestamp::from_micros(0))
            .await
            .unwrap(),
        None
    );
    // The owner finds each of them.
    let them = theirs.tenant_id;
    assert!(
        index
            .memories
            .head(them, store_id, Some(&path("/theirs")), 0)
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(
        index
            .memories
            .heads_below(them, store_id, &dir("/"))
            .await
            .unwrap()
            .len(),
        1
    );
    assert!(index.versions.find_at(them, store_id, 1).await.unwrap().is_some());
    assert!(index.stores.find(them, store_id).await.unwrap().is_some());
    assert!(
        index
            .memories
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
        let outcome = mine.index.memories.commit(mine.tenant_id, &commit).await.unwrap();
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
        .memories
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
        .grants
        .extend(mine.tenant_id, theirs.store_id, 1 << 30, PLENTY)
        .await
        .unwrap();
    assert_eq!(refused, Grant::NoStore);
    // A recall takes nothing from stores of others.
    let refused = mine
        .index
        .grants
        .extend(mine.tenant_id, mine.store_id, PLENTY, 10)
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
        let claim =
            mine.index
                .memories
                .claim_edit(mine.tenant_id, store_id, head.memory_id, REPLICA, NOW, until);
        assert!(!claim.await.unwrap());
    }
    assert_eq!(theirs.memory("/theirs").await, head);
}

pub(crate) async fn same_store_id_in_another_tenant_is_another_store(subject: &Subject) {
    let Two { mine, theirs } = two(subject).await;
    let same = NewStore {
        store_id: theirs.store_id,
        ..new_store()
    };
    let made = mine
        .index
        .stores
        .create(mine.tenant_id, &same, PLENTY, None, &by_tenant(NOW))
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
        first
            .index
            .versions
            .find_at(first.tenant_id, nowhere, 1)
            .await
            .unwrap(),
        None
    );
}

pub(crate) async fn lists_and_history_of_another_tenant_are_not_found(subject: &Subject) {
    let Two { mine, theirs } = two(subject).await;
    let head = theirs.memory("/theirs").await;
    let (index, store_id) = (&subject.index, theirs.store_id);
    let below = |depth| listing("/", depth, None, 10);
    let versions = VersionListing {
        limit: 10,
        ..VersionListing::default()
    };
    let stores = StoreListing {
        include_archived: true,
        only: Some(vec![theirs.store_id]),
        limit: 10,
        ..StoreListing::default()
    };
    for (tenant_id, is_found) in [(mine.tenant_id, false), (theirs.tenant_id, true)] {
        let found = index.memories.find(tenant_id, store_id, head.memory_id).await;
        assert_eq!(found.unwrap().is_some(), is_found);
        for depth in [Depth::All, Depth::Children] {
            let found = index.memories.list(tenant_id, store_id, &below(depth)).await;
            assert_eq!(found.unwrap().is_some(), is_found);
        }
        let found = index.versions.find(tenant_id, store_id, head.version_id).await;
        assert_eq!(found.unwrap().is_some(), is_found);
        let found = index.versions.list(tenant_id, store_id, &versions).await;
        assert_eq!(found.unwrap().is_some(), is_found);
        let found = index
            .versions
            .with_content(tenant_id, store_id, head.sha256, 10)
            .await;
        assert_eq!(found.unwrap().is_empty(), !is_found);
        let found = index.stores.list(tenant_id, &stores).await;
        assert_eq!(found.unwrap().is_empty(), !is_found);
    }
    // Their ids are unknown in another tenant's store, too.
    let (me, my_store) = (mine.tenant_id, mine.store_id);
    let found = index.memories.find(me, my_store, head.memory_id).await.unwrap();
    assert_eq!(found.unwrap().target, MemoryTarget::Missing);
    let found = index.versions.find(me, my_store, head.version_id).await.unwrap();
    assert_eq!(found.unwrap().version, None);
    for filtered in [
        VersionListing {
            memory_id: Some(head.memory_id),
            ..versions.clone()
        },
        VersionListing {
            actor: Some((ActorKind::ApiKey, actor().id())),
            ..versions
        },
    ] {
        let found = index.versions.list(me, my_store, &filtered).await.unwrap();
        let found = found.unwrap().versions;
        assert!(found.iter().all(|version| version.memory_id != head.memory_id));
    }
}

pub(crate) async fn store_of_another_tenant_is_not_changed_or_deleted(subject: &Subject) {
    let Two { mine, theirs } = two(subject).await;
    let head = theirs.memory("/theirs").await;
    theirs.change(vec![edited(&head, 1)]).await;
    let store = theirs
        .index
        .stores
        .find(theirs.tenant_id, theirs.store_id)
        .await
        .unwrap();
    let before = theirs.rows().await;
    let (index, me, store_id) = (&subject.index, mine.tenant_id, theirs.store_id);
    let change = StoreChange {
        name: Some("stolen".to_owned()),
        ..StoreChange::default()
    };
    let updated = index
        .stores
        .update(me, store_id, &change, None, &by_tenant(NOW))
        .await
        .unwrap();
    assert_eq!(updated, StoreUpdate::NoStore);
    assert_eq!(
        index.stores.archive(me, store_id, &by_tenant(NOW)).await.unwrap(),
        None
    );
    assert!(
        !index
            .store_deletions
            .begin(me, store_id, &by_tenant(NOW))
            .await
            .unwrap()
    );
    let redaction = |store_id| Redaction {
        store_id,
        version_id: head.version_id,
        audited: by_nobody(NOW),
    };
    let refused = index.redactions.redact(me, &redaction(store_id)).await.unwrap();
    assert_eq!(refused, RedactionOutcome::NoStore);
    let refused = index
        .redactions
        .redact(me, &redaction(mine.store_id))
        .await
        .unwrap();
    assert_eq!(refused, RedactionOutcome::NoVersion);
    let pin = |store_id| Pin {
        store_id,
        memory_id: head.memory_id,
        expected: head.version_id,
        expiry: ExpiryChange::pinned(true),
        idempotency: None,
        now: NOW,
    };
    assert_eq!(
        index.memories.pin(me, &pin(store_id)).await.unwrap(),
        PinOutcome::NoStore
    );
    assert_eq!(
        index.memories.pin(me, &pin(mine.store_id)).await.unwrap(),
        PinOutcome::Stale
    );
    assert_eq!(theirs.rows().await, before);
    assert_eq!(
        theirs
            .index
            .stores
            .find(theirs.tenant_id, theirs.store_id)
            .await
            .unwrap(),
        store
    );

    // The end of a store leaves the stores of others, and those of the same id.
    let twin = NewStore {
        store_id: theirs.store_id,
        ..new_store()
    };
    index
        .stores
        .create(me, &twin, PLENTY, None, &by_tenant(NOW))
        .await
        .unwrap();
    assert!(
        index
            .store_deletions
            .begin(me, twin.store_id, &by_tenant(NOW))
            .await
            .unwrap()
    );
    let purged = index
        .store_deletions
        .purge(me, twin.store_id, NOW, 1000)
        .await
        .unwrap();
    assert_eq!((purged.rows, purged.is_done), (2, true));
    assert_eq!(theirs.rows().await, before);
}
