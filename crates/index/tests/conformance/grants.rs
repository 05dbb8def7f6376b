//! A tenant's bytes: granted to its stores, exact at the edge.

use futures::future::join_all;
use keepsake_core::StoreId;
use keepsake_index::{CommitOutcome, Grant, Refusal};

use crate::place::{PLENTY, Place, committed, created, deleted, edited, new_tenant, next_uuid};
use crate::subject::Subject;

const NEEDS_A_BYTE: CommitOutcome = CommitOutcome::Refused(Refusal::NeedsGrant { size_bytes: 1 });

/// Live and granted bytes of the tenant's stores, and what its row says of the grants.
async fn account(place: &Place) -> (i64, i64, i64) {
    let rows = place
        .raw
        .numbers(
            "SELECT CAST(coalesce(sum(s.live_bytes), 0) AS BIGINT), \
             CAST(coalesce(sum(s.granted_bytes), 0) AS BIGINT), \
             (SELECT t.granted_bytes FROM tenant t WHERE t.tenant_id = $1) \
             FROM store s WHERE s.tenant_id = $1",
            &[place.tenant_id.uuid()],
        )
        .await;
    (rows[0][0], rows[0][1], rows[0][2])
}

async fn assert_account_is_sound(place: &Place, limit_bytes: i64) {
    let (live, granted, booked) = account(place).await;
    assert_eq!(granted, booked, "the tenant's row differs from its stores'");
    assert!(
        live <= granted && granted <= limit_bytes,
        "{live} live, {granted} granted, {limit_bytes} allowed"
    );
}

pub(crate) async fn first_byte_needs_a_grant(subject: &Subject) {
    let place = Place::new(subject).await;
    let commit = place.commit_of(vec![created("/a", 1)]);
    let before = place.rows().await;
    assert_eq!(
        place
            .index
            .memories
            .commit(place.tenant_id, &commit)
            .await
            .unwrap(),
        NEEDS_A_BYTE
    );
    assert_eq!(place.rows().await, before);
    let granted = place
        .index
        .grants
        .extend(place.tenant_id, place.store_id, 1, 1)
        .await
        .unwrap();
    assert_eq!(granted, Grant::Granted);
    let outcome = place
        .index
        .memories
        .commit(place.tenant_id, &commit)
        .await
        .unwrap();
    assert_eq!(outcome, committed(1));
    assert_account_is_sound(&place, 1).await;
}

pub(crate) async fn empty_memory_and_shrinking_need_no_grant(subject: &Subject) {
    let place = Place::new(subject).await;
    let commit = place.commit_of(vec![created("/empty", 0)]);
    let outcome = place
        .index
        .memories
        .commit(place.tenant_id, &commit)
        .await
        .unwrap();
    assert_eq!(outcome, committed(1));
    let head = place.create("/a", 100).await;
    place
        .raw
        .execute(
            "UPDATE store SET granted_bytes = 0 WHERE tenant_id = $1 AND store_id = $2",
            &place.ids(),
        )
        .await;
    let shrink = place.commit_of(vec![edited(&head, 99)]);
    let outcome = place
        .index
        .memories
        .commit(place.tenant_id, &shrink)
        .await
        .unwrap();
    assert_eq!(outcome, committed(3));
}

pub(crate) async fn grant_exceeds_the_need_if_there_is_room(subject: &Subject) {
    let place = Place::new(subject).await;
    place.create("/a", 10).await;
    let commit = place.commit_of(vec![created("/b", 1000)]);
    let outcome = place
        .index
        .memories
        .commit(place.tenant_id, &commit)
        .await
        .unwrap();
    assert_eq!(outcome, committed(2), "asked again too soon");
    assert_account_is_sound(&place, i64::try_from(PLENTY).unwrap()).await;
}

pub(crate) async fn grant_to_a_missing_store_is_refused(subject: &Subject) {
    let place = Place::new(subject).await;
    let nowhere = StoreId::from_uuid(next_uuid());
    assert_eq!(
        place
            .index
            .grants
            .extend(place.tenant_id, nowhere, 1, PLENTY)
            .await
            .unwrap(),
        Grant::NoStore
    );
    let nobody = keepsake_core::TenantId::from_uuid(next_uuid());
    assert_eq!(
        place
            .index
            .grants
            .extend(nobody, place.store_id, 1, PLENTY)
            .await
            .unwrap(),
        Grant::NoStore
    );
    assert_eq!(account(&place).await, (0, 0, 0));
}

pub(crate) async fn tenant_limit_is_exact_over_its_stores(subject: &Subject) {
    const LIMIT: u64 = 100;
    let tenant_id = new_tenant(subject).await;
    let (first, second, third) = (
        Place::of_tenant(subject, tenant_id).await,
        Place::of_tenant(subject, tenant_id).await,
        Place::of_tenant(subject, tenant_id).await,
    );
    let create = async |place: &Place, at, size_bytes| {
        place
            .run_within(&place.commit_of(vec![created(at, size_bytes)]), LIMIT)
            .await
    };
    // The first store is granted all the room there is; the others get it back.
    assert_eq!(create(&first, "/a", 50).await, committed(1));
    assert_eq!(account(&first).await, (50, 100, 100));
    assert_eq!(create(&second, "/a", 30).await, committed(1));
    let over = CommitOutcome::Refused(Refusal::NeedsGrant { size_bytes: 21 });
    assert_eq!(create(&third, "/a", 21).await, over);
    assert_eq!(create(&third, "/a", 20).await, committed(1));
    assert_eq!(account(&first).await, (100, 100, 100));
    for place in [&first, &second, &third] {
        assert!(matches!(
            create(place, "/b", 1).await,
            CommitOutcome::Refused(Refusal::NeedsGrant { .. })
        ));
    }

    // Bytes that one store frees are available to another, exactly.
    let head = second.memory("/a").await;
    second.change(vec![deleted(&head)]).await;
    let over = CommitOutcome::Refused(Refusal::NeedsGrant { size_bytes: 81 });
    assert_eq!(create(&first, "/b", 31).await, over);
    assert_eq!(create(&first, "/b", 30).await, committed(2));
    assert_eq!(account(&first).await, (100, 100, 100));
}

pub(crate) async fn refused_grant_says_what_the_tenant_would_hold(subject: &Subject) {
    let tenant_id = new_tenant(subject).await;
    let (first, second) = (
        Place::of_tenant(subject, tenant_id).await,
        Place::of_tenant(subject, tenant_id).await,
    );
    first
        .run_within(&first.commit_of(vec![created("/a", 60)]), 100)
        .await;
    let refused = second
        .index
        .grants
        .extend(tenant_id, second.store_id, 41, 100)
        .await
        .unwrap();
    assert_eq!(refused, Grant::Refused { wanted_bytes: 101 });
    assert_account_is_sound(&first, 100).await;
}

pub(crate) async fn lowered_limit_revokes_nothing(subject: &Subject) {
    let place = Place::new(subject).await;
    place.create("/a", 60).await;
    let refused = place
        .index
        .grants
        .extend(place.tenant_id, place.store_id, 61, 10)
        .await
        .unwrap();
    assert_eq!(refused, Grant::Refused { wanted_bytes: 61 });
    assert_eq!(place.memory("/a").await.size_bytes, 60);
    let (live, granted, booked) = account(&place).await;
    assert!(live == 60 && granted >= live && booked == granted);
}

pub(crate) async fn tenants_do_not_share_their_bytes(subject: &Subject) {
    let (mine, theirs) = (Place::new(subject).await, Place::new(subject).await);
    theirs.create("/a", 1000).await;
    let create = mine.commit_of(vec![created("/a", 100)]);
    assert_eq!(mine.run_within(&create, 100).await, committed(1));
    assert_account_is_sound(&mine, 100).await;
    assert_eq!(account(&theirs).await.0, 1000);
}

pub(crate) async fn racing_writers_stop_exactly_at_the_tenants_limit(subject: &Subject) {
    const WRITERS: usize = 64;
    const CREATES_PER_WRITER: usize = 4;
    const SIZE_BYTES: u64 = 7;
    const FIT: usize = 150;
    let limit_bytes = FIT as u64 * SIZE_BYTES;
    let tenant_id = new_tenant(subject).await;
    let mut places = Vec::new();
    for _ in 0..8 {
        places.push(Place::of_tenant(subject, tenant_id).await);
    }
    let writers = (0..WRITERS).map(|writer| {
        let place = places[writer % places.len()].clone();
        tokio::spawn(async move {
            let mut committed = 0;
            for turn in 0..CREATES_PER_WRITER {
                let commit = place.commit_of(vec![created(&format!("/{writer}/{turn}"), SIZE_BYTES)]);
                match place.run_within(&commit, limit_bytes).await {
                    CommitOutcome::Committed { .. } => committed += 1,
                    CommitOutcome::Refused(Refusal::NeedsGrant { .. }) => {}
                    other => panic!("neither written nor over the limit: {other:?}"),
                }
            }
            committed
        })
    });
    let committed: usize = join_all(writers).await.into_iter().map(Result::unwrap).sum();
    assert_eq!(committed, FIT);
    let limit = i64::try_from(limit_bytes).unwrap();
    assert_eq!(account(&places[0]).await, (limit, limit, limit));
    for place in &places {
        place.assert_recount().await;
    }
}
