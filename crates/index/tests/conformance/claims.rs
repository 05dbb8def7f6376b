//! A replica that lost a race asks the others to let it go first.

use keepsake_core::MemoryId;
use keepsake_index::Claim;
use uuid::Uuid;

use crate::place::{NOW, Place, REPLICA, after_seconds, committed, edited, next_uuid, renamed};
use crate::subject::Subject;

const OTHER: Uuid = Uuid::from_u128(2);

/// Claims the memory at a path for ten seconds.
async fn claim(place: &Place, at: &str, replica: Uuid, now: i64) -> bool {
    let head = place.memory(at).await;
    let (now, until) = (after_seconds(now), after_seconds(now + 10));
    let claim = place.index.memories.claim_edit(
        place.tenant_id,
        place.store_id,
        head.memory_id,
        replica,
        now,
        until,
    );
    claim.await.unwrap()
}

pub(crate) async fn claim_goes_to_the_first_replica_until_it_ends(subject: &Subject) {
    let place = Place::new(subject).await;
    place.create("/a", 1).await;
    assert!(claim(&place, "/a", REPLICA, 0).await);
    let held = Claim {
        replica: REPLICA,
        until: after_seconds(10),
    };
    assert_eq!(place.memory("/a").await.claim, Some(held));
    assert_eq!(place.heads_below("/").await[0].claim, Some(held));
    assert!(!claim(&place, "/a", OTHER, 9).await);
    assert!(
        claim(&place, "/a", REPLICA, 5).await,
        "its own claim is no obstacle"
    );
    assert!(!claim(&place, "/a", OTHER, 14).await);
    assert!(claim(&place, "/a", OTHER, 15).await);
    assert_eq!(
        place.memory("/a").await.claim.map(|claim| claim.replica),
        Some(OTHER)
    );
}

pub(crate) async fn claim_ends_with_the_commit_of_its_replica(subject: &Subject) {
    let place = Place::new(subject).await;
    place.create("/a", 1).await;
    assert!(claim(&place, "/a", OTHER, 0).await);
    // A claim is only a hint: a replica without it may commit, and the claim stays.
    let head = place.memory("/a").await;
    assert_eq!(place.try_changes(vec![edited(&head, 2)]).await, committed(2));
    let head = place.memory("/a").await;
    assert_eq!(head.claim.map(|claim| claim.replica), Some(OTHER));
    let mut commit = place.commit_of(vec![renamed(&head, "/b")]);
    commit.replica = OTHER;
    assert_eq!(place.run(&commit).await, committed(3));
    assert_eq!(place.memory("/b").await.claim, None);
    assert!(claim(&place, "/b", REPLICA, 1).await);
}

pub(crate) async fn claim_covers_one_memory(subject: &Subject) {
    let place = Place::new(subject).await;
    place.create("/a", 1).await;
    let other = place.create("/b", 1).await;
    assert!(claim(&place, "/a", REPLICA, 0).await);
    assert_eq!(place.memory("/b").await, other);
    assert!(claim(&place, "/b", OTHER, 0).await);
}

pub(crate) async fn claim_on_a_missing_memory_is_refused(subject: &Subject) {
    let place = Place::new(subject).await;
    let nothing = MemoryId::from_uuid(next_uuid());
    let claim = place.index.memories.claim_edit(
        place.tenant_id,
        place.store_id,
        nothing,
        REPLICA,
        NOW,
        after_seconds(10),
    );
    assert!(!claim.await.unwrap());
}
