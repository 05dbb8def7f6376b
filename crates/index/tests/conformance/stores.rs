//! Stores: made once, listed, changed, archived.

use futures::future::join_all;
use keepsake_core::{SensitiveDataPolicy, StoreId, TenantId};
use keepsake_index::{
    CommitOutcome, Idempotency, Index, NewStore, Refusal, Store, StoreChange, StoreCreation, StoreListing,
    StoreUpdate,
};
use serde_json::json;

use crate::place::{NOW, PLENTY, Place, after_seconds, by_tenant, created, new_store, new_tenant, next_uuid};
use crate::subject::Subject;

fn call(scope: u8, request: u8) -> Idempotency {
    Idempotency {
        scope_sha256: [scope; 32],
        request_sha256: [request; 32],
        since: after_seconds(-60),
    }
}

fn everything() -> StoreListing {
    StoreListing {
        include_archived: true,
        limit: 100,
        ..StoreListing::default()
    }
}

async fn create(index: &Index, tenant_id: TenantId, seconds: i64) -> StoreId {
    let store = NewStore {
        created_at: after_seconds(seconds),
        ..new_store()
    };
    let made = index
        .stores
        .create(tenant_id, &store, PLENTY, None, &by_tenant(NOW))
        .await;
    assert_eq!(made.unwrap(), StoreCreation::Created);
    store.store_id
}

async fn listed(index: &Index, tenant_id: TenantId, listing: &StoreListing) -> Vec<StoreId> {
    let stores = index.stores.list(tenant_id, listing).await.unwrap();
    stores.iter().map(|store| store.store_id).collect()
}

async fn update(place: &Place, change: &StoreChange) -> StoreUpdate {
    place
        .index
        .stores
        .update(place.tenant_id, place.store_id, change, None, &by_tenant(NOW))
        .await
        .unwrap()
}

async fn updated(place: &Place, change: &StoreChange) -> Store {
    match update(place, change).await {
        StoreUpdate::Done(store) => store,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn repeated_call_makes_one_store(subject: &Subject) {
    let tenant_id = new_tenant(subject).await;
    let store = new_store();
    let create = async |store: &NewStore, limit, call: Idempotency| {
        let made = subject
            .index
            .stores
            .create(tenant_id, store, limit, Some(&call), &by_tenant(NOW))
            .await;
        made.unwrap()
    };
    assert_eq!(create(&store, 1, call(1, 1)).await, StoreCreation::Created);
    let replayed = StoreCreation::Replayed {
        store_id: store.store_id,
    };
    // The limit is reached by now; the first call's answer stays.
    assert_eq!(create(&new_store(), 1, call(1, 1)).await, replayed);
    assert_eq!(
        create(&new_store(), 1, call(1, 2)).await,
        StoreCreation::KeyReused
    );
    assert_eq!(
        create(&new_store(), 1, call(2, 1)).await,
        StoreCreation::TooMany { count: 1 }
    );
    // A refusal is not remembered, nor is a call for ever.
    assert_eq!(create(&new_store(), 2, call(2, 1)).await, StoreCreation::Created);
    let later = Idempotency {
        since: after_seconds(60),
        ..call(1, 1)
    };
    assert_eq!(create(&new_store(), 3, later).await, StoreCreation::Created);
    let recorded = subject
        .index
        .memories
        .replayed(tenant_id, &[2; 32], after_seconds(-60))
        .await;
    assert_eq!(recorded.unwrap().unwrap().seq, None);
    assert_eq!(listed(&subject.index, tenant_id, &everything()).await.len(), 3);
}

pub(crate) async fn concurrent_duplicates_make_one_store(subject: &Subject) {
    let tenant_id = new_tenant(subject).await;
    let stores: Vec<_> = (0..12).map(|_| new_store()).collect();
    let call = call(1, 1);
    let creates = stores.iter().map(async |store| {
        subject
            .index
            .stores
            .create(tenant_id, store, PLENTY, Some(&call), &by_tenant(NOW))
            .await
    });
    let made: Vec<_> = join_all(creates).await.into_iter().map(Result::unwrap).collect();
    let there = listed(&subject.index, tenant_id, &everything()).await;
    assert_eq!(there.len(), 1);
    let replayed = StoreCreation::Replayed { store_id: there[0] };
    assert_eq!(
        made.iter()
            .filter(|made| **made == StoreCreation::Created)
            .count(),
        1
    );
    assert_eq!(
        made.iter().filter(|made| **made == replayed).count(),
        11,
        "{made:?}"
    );
}

pub(crate) async fn idempotency_key_of_a_commit_is_refused_for_a_store(subject: &Subject) {
    let place = Place::new(subject).await;
    let mut commit = place.commit_of(vec![created("/a", 1)]);
    commit.idempotency = Some(call(1, 1));
    place.run(&commit).await;
    let made = place
        .index
        .stores
        .create(
            place.tenant_id,
            &new_store(),
            PLENTY,
            Some(&call(1, 1)),
            &by_tenant(NOW),
        )
        .await;
    assert_eq!(made.unwrap(), StoreCreation::KeyReused);
    let made = place
        .index
        .stores
        .create(
            place.tenant_id,
            &new_store(),
            PLENTY,
            Some(&call(2, 1)),
            &by_tenant(NOW),
        )
        .await;
    assert_eq!(made.unwrap(), StoreCreation::Created);
    commit = place.commit_of(vec![created("/b", 1)]);
    commit.idempotency = Some(call(2, 1));
    assert_eq!(place.run(&commit).await, CommitOutcome::KeyReused);
}

pub(crate) async fn stores_are_listed_newest_first_page_by_page(subject: &Subject) {
    let tenant_id = new_tenant(subject).await;
    let index = &subject.index;
    let mut stores = Vec::new();
    // Some at the same time, and ids that do not follow the times.
    for seconds in [5, 1, 9, 5, 5, 3, 9, 0] {
        stores.push((seconds, create(index, tenant_id, seconds).await));
    }
    stores.sort_by_key(|(seconds, store_id)| std::cmp::Reverse((*seconds, store_id.uuid())));
    let expected: Vec<_> = stores.iter().map(|(_, store_id)| *store_id).collect();
    for limit in [1, 2, 3, 100] {
        let mut found = Vec::new();
        let mut listing = StoreListing {
            limit,
            ..everything()
        };
        loop {
            let page = index.stores.list(tenant_id, &listing).await.unwrap();
            let Some(last) = page.last() else {
                break;
            };
            listing.after = Some((last.created_at, last.store_id));
            found.extend(page.iter().map(|store| store.store_id));
        }
        assert_eq!(found, expected, "by {limit}");
    }
    let other = new_tenant(subject).await;
    assert_eq!(listed(index, other, &everything()).await, []);
}

pub(crate) async fn filters_of_stores_hold(subject: &Subject) {
    let tenant_id = new_tenant(subject).await;
    let index = &subject.index;
    let mut stores = Vec::new();
    for seconds in 0..6 {
        stores.push(create(index, tenant_id, seconds).await);
    }
    index
        .stores
        .archive(tenant_id, stores[2], &by_tenant(NOW))
        .await
        .unwrap();
    let of = |places: &[usize]| places.iter().map(|place| stores[*place]).collect::<Vec<_>>();
    let list = async |listing: StoreListing| listed(index, tenant_id, &listing).await;
    assert_eq!(list(everything()).await, of(&[5, 4, 3, 2, 1, 0]));
    let without_archived = StoreListing {
        include_archived: false,
        ..everything()
    };
    assert_eq!(list(without_archived).await, of(&[5, 4, 3, 1, 0]));
    let between = StoreListing {
        created_from: Some(after_seconds(1)),
        created_to: Some(after_seconds(3)),
        ..everything()
    };
    assert_eq!(list(between).await, of(&[3, 2, 1]));
    for only in [
        vec![],
        of(&[1, 4]),
        vec![stores[0], StoreId::from_uuid(next_uuid())],
    ] {
        let mut expected = only.clone();
        expected.retain(|store_id| stores.contains(store_id));
        expected.reverse();
        let listing = StoreListing {
            only: Some(only),
            ..everything()
        };
        assert_eq!(list(listing).await, expected);
    }
}

pub(crate) async fn listed_store_is_the_store(subject: &Subject) {
    let place = Place::new(subject).await;
    place.create("/a", 7).await;
    let change = StoreChange {
        metadata: vec![("ä\"".to_owned(), Some("\\ü".to_owned()))],
        metadata_pairs_limit: 16,
        expires_unused_after: Some(Some(9)),
        now: NOW,
        ..StoreChange::default()
    };
    let store = updated(&place, &change).await;
    assert_eq!((store.memory_count, store.live_bytes), (1, 7));
    let found = place
        .index
        .stores
        .find(place.tenant_id, place.store_id)
        .await
        .unwrap();
    assert_eq!(found.as_ref(), Some(&store));
    let listed = place
        .index
        .stores
        .list(place.tenant_id, &everything())
        .await
        .unwrap();
    assert_eq!(listed, [store]);
}

pub(crate) async fn updated_at_moves_only_with_name_description_and_metadata(subject: &Subject) {
    let place = Place::new(subject).await;
    let at = |seconds| StoreChange {
        metadata_pairs_limit: 16,
        now: after_seconds(seconds),
        ..StoreChange::default()
    };
    let name = StoreChange {
        name: Some("new".to_owned()),
        ..at(1)
    };
    let store = updated(&place, &name).await;
    assert_eq!((store.name.as_str(), store.updated_at), ("new", after_seconds(1)));
    let same = StoreChange {
        name: Some("new".to_owned()),
        description: Some(String::new()),
        metadata: vec![("absent".to_owned(), None)],
        ..at(2)
    };
    assert_eq!(updated(&place, &same).await, store, "nothing changed");
    let behaviour = StoreChange {
        policy: Some(SensitiveDataPolicy::Redact),
        expires_unused_after: Some(Some(60)),
        ..at(3)
    };
    let store = updated(&place, &behaviour).await;
    assert_eq!(
        (store.policy, store.expires_unused_after),
        (SensitiveDataPolicy::Redact, Some(60))
    );
    assert_eq!(store.updated_at, after_seconds(1));
    let description = StoreChange {
        description: Some("told".to_owned()),
        ..at(4)
    };
    assert_eq!(updated(&place, &description).await.updated_at, after_seconds(4));
    let metadata = StoreChange {
        metadata: vec![("k".to_owned(), Some("v".to_owned()))],
        ..at(5)
    };
    assert_eq!(updated(&place, &metadata).await.updated_at, after_seconds(5));
    // `updated_at` does not decrease if the clock goes back.
    let earlier = StoreChange {
        name: Some("earlier".to_owned()),
        ..at(-9)
    };
    assert_eq!(updated(&place, &earlier).await.updated_at, after_seconds(5));
}

pub(crate) async fn metadata_is_merged_within_its_limit(subject: &Subject) {
    let place = Place::new(subject).await;
    let change = |pairs: &[(&str, Option<&str>)], limit| StoreChange {
        metadata: pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.map(str::to_owned)))
            .collect(),
        metadata_pairs_limit: limit,
        now: NOW,
        ..StoreChange::default()
    };
    let store = updated(&place, &change(&[("a", Some("1")), ("b", Some("2"))], 2)).await;
    assert_eq!(json!(store.metadata), json!({"a": "1", "b": "2"}));
    let refused = update(&place, &change(&[("c", Some("3"))], 2)).await;
    assert_eq!(refused, StoreUpdate::TooManyPairs { count: 3 });
    let store = updated(
        &place,
        &change(&[("a", None), ("c", Some("3")), ("b", Some("x"))], 2),
    )
    .await;
    assert_eq!(json!(store.metadata), json!({"b": "x", "c": "3"}));
    // Pairs can be removed even when their number exceeds a lowered limit.
    let store = updated(&place, &change(&[("b", Some("y"))], 1)).await;
    assert_eq!(json!(store.metadata), json!({"b": "y", "c": "3"}));
    let store = updated(&place, &change(&[("b", None)], 0)).await;
    assert_eq!(json!(store.metadata), json!({"c": "3"}));
}

pub(crate) async fn only_a_new_or_shorter_period_starts_again(subject: &Subject) {
    let place = Place::new(subject).await;
    let set_at = async || {
        let set_at = "SELECT coalesce(period_set_at, -1) FROM store WHERE tenant_id = $1 AND store_id = $2";
        place.raw.numbers(set_at, &place.ids()).await[0][0]
    };
    assert_eq!(set_at().await, -1);
    for (seconds, period, expected) in [
        (1, Some(100), 1),
        (2, Some(100), 1),
        (3, Some(200), 1),
        (4, Some(150), 4),
        // From now on the tenant's own holds, which may be shorter.
        (5, None, 5),
        (6, Some(900), 6),
    ] {
        let change = StoreChange {
            expires_unused_after: Some(period),
            now: after_seconds(seconds),
            ..StoreChange::default()
        };
        assert_eq!(updated(&place, &change).await.expires_unused_after, period);
        assert_eq!(set_at().await, after_seconds(expected).as_micros(), "{period:?}");
    }
}

pub(crate) async fn repeated_update_is_applied_once(subject: &Subject) {
    let place = Place::new(subject).await;
    let update = async |name: &str, call: Idempotency| {
        let change = StoreChange {
            name: Some(name.to_owned()),
            now: NOW,
            ..StoreChange::default()
        };
        place
            .index
            .stores
            .update(
                place.tenant_id,
                place.store_id,
                &change,
                Some(&call),
                &by_tenant(NOW),
            )
            .await
            .unwrap()
    };
    assert!(matches!(update("first", call(1, 1)).await, StoreUpdate::Done(_)));
    assert!(matches!(update("second", call(2, 1)).await, StoreUpdate::Done(_)));
    let StoreUpdate::Replayed(store) = update("first", call(1, 1)).await else {
        panic!("made again");
    };
    assert_eq!(store.name, "second", "the store as it is now");
    assert_eq!(update("third", call(1, 3)).await, StoreUpdate::KeyReused);
    place
        .index
        .stores
        .archive(place.tenant_id, place.store_id, &by_tenant(NOW))
        .await
        .unwrap();
    assert!(matches!(
        update("first", call(1, 1)).await,
        StoreUpdate::Replayed(_)
    ));
    assert_eq!(update("fourth", call(4, 1)).await, StoreUpdate::Archived);
}

pub(crate) async fn concurrent_updates_lose_nothing(subject: &Subject) {
    let place = Place::new(subject).await;
    let changes: Vec<_> = (0..12)
        .map(|number| StoreChange {
            metadata: vec![(format!("k{number}"), Some("v".to_owned()))],
            metadata_pairs_limit: 16,
            now: NOW,
            ..StoreChange::default()
        })
        .collect();
    join_all(changes.iter().map(|change| updated(&place, change))).await;
    let store = place
        .index
        .stores
        .find(place.tenant_id, place.store_id)
        .await
        .unwrap();
    assert_eq!(store.unwrap().metadata.len(), 12);
}

pub(crate) async fn archived_store_stays_as_it_is(subject: &Subject) {
    let place = Place::new(subject).await;
    let archive = async |seconds| {
        let archived = place
            .index
            .stores
            .archive(
                place.tenant_id,
                place.store_id,
                &by_tenant(after_seconds(seconds)),
            )
            .await;
        archived.unwrap().unwrap()
    };
    let store = archive(7).await;
    assert_eq!(
        (store.archived_at, store.updated_at),
        (Some(after_seconds(7)), after_seconds(7))
    );
    assert_eq!(archive(9).await, store);
    let refused = place.try_changes(vec![created("/a", 1)]).await;
    assert_eq!(refused, CommitOutcome::Refused(Refusal::Archived));
    assert_eq!(
        update(&place, &StoreChange::default()).await,
        StoreUpdate::Archived
    );
}

pub(crate) async fn unknown_store_is_not_changed(subject: &Subject) {
    let place = Place::new(subject).await;
    let nowhere = StoreId::from_uuid(next_uuid());
    let change = StoreChange::default();
    let refused = place
        .index
        .stores
        .update(place.tenant_id, nowhere, &change, None, &by_tenant(NOW))
        .await;
    assert_eq!(refused.unwrap(), StoreUpdate::NoStore);
    let refused = place
        .index
        .stores
        .archive(place.tenant_id, nowhere, &by_tenant(NOW))
        .await;
    assert_eq!(refused.unwrap(), None);
}
