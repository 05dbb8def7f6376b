//! The end of stores: gone for every reader at once, purged in batches.

use std::collections::BTreeSet;

use futures::future::join_all;
use keepsake_core::{StoreId, TenantId};
use keepsake_index::{
    AccessRow, CommitOutcome, Depth, ExpiryChange, Grant, Pin, PinOutcome, Redaction, RedactionOutcome,
    Refusal, StoreChange, StoreListing, StorePurge, StoreUpdate, VersionListing,
};

use crate::place::{
    NOW, PLENTY, Place, actor, after_seconds, by_nobody, by_tenant, created, deleted, dir, edited, listing,
    new_store, next_uuid, path, renamed,
};
use crate::subject::Subject;

/// Tables that hold rows of stores.
const TABLES: [&str; 6] = [
    "version",
    "memory",
    "memory_access",
    "search_doc",
    "directory",
    "store",
];

async fn delete(place: &Place, seconds: i64) -> bool {
    place
        .index
        .store_deletions
        .begin(
            place.tenant_id,
            place.store_id,
            &by_tenant(after_seconds(seconds)),
        )
        .await
        .unwrap()
}

async fn purge(place: &Place, limit: u32) -> StorePurge {
    place
        .index
        .store_deletions
        .purge(place.tenant_id, place.store_id, NOW, limit)
        .await
        .unwrap()
}

/// Purges to the end; returns the number of removed rows, of blobs and of batches.
async fn purge_all(place: &Place, limit: u32) -> (u64, u64, u64) {
    let (mut rows, mut blobs, mut batches) = (0, 0, 0);
    loop {
        let batch = purge(place, limit).await;
        assert!(batch.rows <= u64::from(limit), "{batch:?}");
        (rows, blobs, batches) = (rows + batch.rows, blobs + batch.blobs, batches + 1);
        if batch.is_done {
            return (rows, blobs, batches);
        }
        assert!(batch.rows > 0, "a batch that does nothing never ends");
    }
}

/// Rows of a store in each of its tables.
async fn rows_in_tables(place: &Place) -> Vec<i64> {
    let mut counts = Vec::new();
    for table in TABLES {
        let count = format!("SELECT count(*) FROM {table} WHERE tenant_id = $1 AND store_id = $2");
        counts.push(place.raw.numbers(&count, &place.ids()).await[0][0]);
    }
    counts
}

/// A store with rows in every table: twelve versions of four memories, eight
/// blobs of which one is shared.
async fn filled(subject: &Subject, tenant_id: TenantId) -> (Place, BTreeSet<keepsake_core::BlobKey>) {
    let place = Place::of_tenant(subject, tenant_id).await;
    let mut blobs = BTreeSet::new();
    for number in 0..4 {
        let at = format!("/d{number}/a");
        let head = place.create(&at, 10).await;
        blobs.insert(place.blob(head.blob_id));
        place.change(vec![edited(&head, 20)]).await;
        let head = place.memory(&at).await;
        blobs.insert(place.blob(head.blob_id));
        place
            .change(vec![if number == 0 {
                deleted(&head)
            } else {
                renamed(&head, &format!("/e/{number}"))
            }])
            .await;
        let read = AccessRow {
            tenant_id,
            store_id: place.store_id,
            memory_id: head.memory_id,
            read_at: NOW,
            read_by: actor(),
        };
        place.index.access_times.flush(&[read]).await.unwrap();
    }
    let document = "INSERT INTO search_doc (tenant_id, store_id, memory_id, analyser, length, terms) \
                    SELECT tenant_id, store_id, memory_id, 1, 1, sha256 FROM memory \
                    WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL";
    place.raw.execute(document, &place.ids()).await;
    assert_eq!(rows_in_tables(&place).await, [12, 4, 4, 3, 2, 1]);
    (place, blobs)
}

async fn filled_of_its_own(subject: &Subject) -> (Place, BTreeSet<keepsake_core::BlobKey>) {
    let tenant_id = crate::place::new_tenant(subject).await;
    filled(subject, tenant_id).await
}

async fn queued(place: &Place) -> Vec<keepsake_core::BlobKey> {
    let due = place.queue().due(NOW, 1000).await.unwrap();
    due.into_iter().map(|due| due.key).collect()
}

/// The tenant's stores and granted bytes, and the sum of what its stores have.
async fn account(place: &Place) -> [i64; 3] {
    let account = "SELECT t.store_count, t.granted_bytes, (SELECT CAST(coalesce(sum(s.granted_bytes), 0) AS BIGINT) \
                   FROM store s WHERE s.tenant_id = t.tenant_id) FROM tenant t WHERE t.tenant_id = $1";
    let row = place
        .raw
        .numbers(account, &[place.tenant_id.uuid()])
        .await
        .remove(0);
    [row[0], row[1], row[2]]
}

pub(crate) async fn deleted_store_is_gone_for_every_reader(subject: &Subject) {
    let (place, _) = filled_of_its_own(subject).await;
    let head = place.memory("/e/1").await;
    assert!(delete(&place, 0).await);
    let (index, me, store_id) = (&place.index, place.tenant_id, place.store_id);
    for at in [None, Some(path("/e/1"))] {
        assert_eq!(
            index.memories.head(me, store_id, at.as_ref(), 10).await.unwrap(),
            None
        );
    }
    assert_eq!(
        index.memories.heads_below(me, store_id, &dir("/")).await.unwrap(),
        []
    );
    assert_eq!(
        index.memories.find(me, store_id, head.memory_id).await.unwrap(),
        None
    );
    for depth in [Depth::All, Depth::Children] {
        let listing = listing("/", depth, None, 10);
        assert_eq!(index.memories.list(me, store_id, &listing).await.unwrap(), None);
    }
    assert_eq!(
        index.versions.find(me, store_id, head.version_id).await.unwrap(),
        None
    );
    assert_eq!(
        index.versions.find_at(me, store_id, head.seq).await.unwrap(),
        None
    );
    let listing = VersionListing {
        limit: 10,
        ..VersionListing::default()
    };
    assert_eq!(index.versions.list(me, store_id, &listing).await.unwrap(), None);
    let found = index.versions.with_content(me, store_id, head.sha256, 10).await;
    assert_eq!(found.unwrap(), []);
    assert_eq!(index.stores.find(me, store_id).await.unwrap(), None);
    let listing = StoreListing {
        include_archived: true,
        only: Some(vec![store_id]),
        limit: 10,
        ..StoreListing::default()
    };
    assert_eq!(index.stores.list(me, &listing).await.unwrap(), []);
}

pub(crate) async fn deleted_store_accepts_no_changes(subject: &Subject) {
    let (place, _) = filled_of_its_own(subject).await;
    let head = place.memory("/e/1").await;
    assert!(delete(&place, 0).await);
    let before = place.rows().await;
    let (index, me, store_id) = (&place.index, place.tenant_id, place.store_id);
    for change in [created("/new", 1), edited(&head, 1), deleted(&head)] {
        let outcome = index
            .memories
            .commit(me, &place.commit_of(vec![change]))
            .await
            .unwrap();
        assert_eq!(outcome, CommitOutcome::Refused(Refusal::NoStore));
    }
    let pin = Pin {
        store_id,
        memory_id: head.memory_id,
        expected: head.version_id,
        expiry: ExpiryChange::pinned(true),
        idempotency: None,
        now: NOW,
    };
    assert_eq!(index.memories.pin(me, &pin).await.unwrap(), PinOutcome::NoStore);
    let redaction = Redaction {
        store_id,
        version_id: head.version_id,
        audited: by_nobody(NOW),
    };
    assert_eq!(
        index.redactions.redact(me, &redaction).await.unwrap(),
        RedactionOutcome::NoStore
    );
    let change = StoreChange::default();
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
    let granted = index.grants.extend(me, store_id, 1, PLENTY).await.unwrap();
    assert_eq!(granted, Grant::NoStore);
    assert!(!delete(&place, 1).await, "it is deleted once");
    assert_eq!(place.rows().await, before);
    let nowhere = StoreId::from_uuid(next_uuid());
    assert!(
        !index
            .store_deletions
            .begin(me, nowhere, &by_tenant(NOW))
            .await
            .unwrap()
    );
}

pub(crate) async fn store_deletion_frees_the_quota_at_once(subject: &Subject) {
    let place = Place::new(subject).await;
    let other = Place::of_tenant(subject, place.tenant_id).await;
    let limit = 100;
    let mut commit = place.commit_of(vec![created("/a", 90)]);
    commit.byte_limit = limit;
    place.run_within(&commit, limit).await;
    other.create("/b", 1).await;
    let wanted = async || {
        let granted = other
            .index
            .grants
            .extend(other.tenant_id, other.store_id, 50, limit);
        granted.await.unwrap()
    };
    assert_eq!(wanted().await, Grant::Refused { wanted_bytes: 140 });
    let third = new_store();
    let made = place
        .index
        .stores
        .create(place.tenant_id, &third, 2, None, &by_tenant(NOW))
        .await
        .unwrap();
    assert_eq!(made, keepsake_index::StoreCreation::TooMany { count: 2 });

    assert!(delete(&place, 0).await);
    assert_eq!(wanted().await, Grant::Granted);
    let made = place
        .index
        .stores
        .create(place.tenant_id, &third, 2, None, &by_tenant(NOW))
        .await
        .unwrap();
    assert_eq!(made, keepsake_index::StoreCreation::Created);
    let [stores, granted, sum] = account(&place).await;
    assert_eq!((stores, granted), (2, sum));
}

pub(crate) async fn store_deletion_moves_the_purge_epoch(subject: &Subject) {
    let place = Place::new(subject).await;
    assert!(delete(&place, 0).await);
    let epoch = "SELECT purge_epoch FROM store WHERE tenant_id = $1 AND store_id = $2";
    assert_eq!(place.raw.numbers(epoch, &place.ids()).await, [[1]]);
}

pub(crate) async fn deletion_during_commits_and_grants_keeps_the_byte_account_exact(subject: &Subject) {
    let place = Place::new(subject).await;
    let other = Place::of_tenant(subject, place.tenant_id).await;
    let writers = (0..16).map(|number| {
        let place = if number % 2 == 0 { &place } else { &other }.clone();
        tokio::spawn(async move {
            for turn in 0..4 {
                let commit = place.commit_of(vec![created(&format!("/{number}/{turn}"), 400_000)]);
                place.run(&commit).await;
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let deletions = join_all((0..3).map(|_| delete(&place, 0))).await;
    join_all(writers).await.into_iter().for_each(Result::unwrap);
    assert_eq!(deletions.iter().filter(|deleted| **deleted).count(), 1);
    let [stores, granted, sum] = account(&place).await;
    assert_eq!((stores, granted), (1, sum));
    other.assert_recount().await;
}

pub(crate) async fn purge_removes_everything_in_batches_of_any_size(subject: &Subject) {
    for limit in [1, 5, 7, 26, 1000] {
        let (place, blobs) = filled_of_its_own(subject).await;
        let (other, _) = filled(subject, place.tenant_id).await;
        let theirs = other.rows().await;
        assert!(delete(&place, 0).await);
        let already: BTreeSet<_> = queued(&place).await.into_iter().collect();
        let (rows, queued_blobs, batches) = purge_all(&place, limit).await;
        assert_eq!((rows, queued_blobs), (26, 8), "in batches of {limit}");
        assert!(batches >= 26 / u64::from(limit), "{batches} of {limit}");
        assert_eq!(rows_in_tables(&place).await, [0; 6]);
        let found: BTreeSet<_> = queued(&place).await.into_iter().collect();
        assert_eq!(
            found.difference(&already).copied().collect::<BTreeSet<_>>(),
            blobs
        );
        assert_eq!(other.rows().await, theirs);
        other.assert_recount().await;
    }
}

pub(crate) async fn interrupted_purge_is_resumed(subject: &Subject) {
    let (place, blobs) = filled_of_its_own(subject).await;
    delete(&place, 0).await;
    let first = purge(&place, 5).await;
    assert_eq!((first.rows, first.is_done), (5, false));
    let waiting = place.index.store_deletions.due(10).await.unwrap();
    assert_eq!(waiting, [(place.tenant_id, place.store_id)]);
    // The blobs of the first batch are removed before the purge continues.
    let listed = place.queue().due(NOW, 1000).await.unwrap();
    assert!(place.queue().finish(&listed, NOW, None).await.unwrap());
    let gone: Vec<_> = listed.into_iter().map(|due| due.key).collect();
    let (rows, ..) = purge_all(&place, 9).await;
    assert_eq!(rows, 21);
    let mut all: BTreeSet<_> = queued(&place).await.into_iter().collect();
    all.extend(gone);
    assert_eq!(all, blobs);
    assert_eq!(place.index.store_deletions.due(10).await.unwrap(), []);
    assert_eq!(rows_in_tables(&place).await, [0; 6]);
}

pub(crate) async fn concurrent_purges_remove_everything_once(subject: &Subject) {
    let (place, blobs) = filled_of_its_own(subject).await;
    delete(&place, 0).await;
    let racing = (0..4).map(|_| {
        let place = place.clone();
        tokio::spawn(async move { purge_all_of_many(&place).await })
    });
    let purged: Vec<_> = join_all(racing).await.into_iter().map(Result::unwrap).collect();
    let sum = purged
        .iter()
        .fold((0, 0), |sum, purged| (sum.0 + purged.0, sum.1 + purged.1));
    assert_eq!(sum, (26, 8));
    assert_eq!(queued(&place).await.into_iter().collect::<BTreeSet<_>>(), blobs);
}

async fn purge_all_of_many(place: &Place) -> (u64, u64) {
    let (mut rows, mut blobs) = (0, 0);
    loop {
        let batch = purge(place, 3).await;
        (rows, blobs) = (rows + batch.rows, blobs + batch.blobs);
        if batch.is_done {
            return (rows, blobs);
        }
    }
}

pub(crate) async fn purge_finds_blobs_whose_own_version_was_redacted(subject: &Subject) {
    let place = Place::new(subject).await;
    let first = place.create("/a", 1).await;
    place.change(vec![renamed(&first, "/b")]).await;
    place.change(vec![deleted(&place.memory("/b").await)]).await;
    let redaction = Redaction {
        store_id: place.store_id,
        version_id: first.version_id,
        audited: by_nobody(NOW),
    };
    place
        .index
        .redactions
        .redact(place.tenant_id, &redaction)
        .await
        .unwrap();
    assert_eq!(queued(&place).await, []);
    delete(&place, 0).await;
    purge_all(&place, 1).await;
    assert_eq!(queued(&place).await, [place.blob(first.blob_id)]);
}

pub(crate) async fn store_that_is_not_deleted_is_not_purged(subject: &Subject) {
    let (place, _) = filled_of_its_own(subject).await;
    let before = place.rows().await;
    let nothing = StorePurge {
        is_done: true,
        ..StorePurge::default()
    };
    assert_eq!(purge(&place, 100).await, nothing);
    assert_eq!(place.rows().await, before);
    let nowhere = Place {
        store_id: StoreId::from_uuid(next_uuid()),
        ..place
    };
    assert_eq!(purge(&nowhere, 100).await, nothing);
}

pub(crate) async fn deleted_stores_come_oldest_first_and_limited(subject: &Subject) {
    let places = [
        Place::new(subject).await,
        Place::new(subject).await,
        Place::new(subject).await,
    ];
    for (place, seconds) in places.iter().zip([30, 10, 20]) {
        delete(place, seconds).await;
    }
    let ids = |place: &Place| (place.tenant_id, place.store_id);
    let waiting = places[0].index.store_deletions.due(10).await.unwrap();
    assert_eq!(waiting, [ids(&places[1]), ids(&places[2]), ids(&places[0])]);
    let waiting = places[0].index.store_deletions.due(1).await.unwrap();
    assert_eq!(waiting, [ids(&places[1])]);
}
