//! What replicas settle between themselves: claims of edits, and secrets in another form.

use keepsake_index::{Claim, ServerSecret};
use uuid::Uuid;

use crate::place::{NOW, Place, REPLICA, after_seconds};
use crate::subject::Subject;

const OTHER: Uuid = Uuid::from_u128(2);

/// Claims the memory at a path for ten seconds.
async fn claim(place: &Place, at: &str, replica: Uuid, now: i64) -> bool {
    let head = place.memory(at).await;
    let (now, until) = (after_seconds(now), after_seconds(now + 10));
    let claim =
        place.index.memories.claim_edit(place.tenant_id, place.store_id, head.memory_id, replica, now, until);
    claim.await.unwrap()
}

pub(crate) async fn claim_goes_to_the_first_replica_until_it_ends(subject: &Subject) {
    let place = Place::new(subject).await;
    place.create("/a", 1).await;
    assert!(claim(&place, "/a", REPLICA, 0).await);
    let held = Claim { replica: REPLICA, until: after_seconds(10) };
    assert_eq!(place.memory("/a").await.claim, Some(held));
    assert_eq!(place.heads_below("/").await[0].claim, Some(held));
    assert!(!claim(&place, "/a", OTHER, 9).await);
    assert!(claim(&place, "/a", REPLICA, 5).await, "its own claim is no obstacle");
    assert!(!claim(&place, "/a", OTHER, 14).await);
    assert!(claim(&place, "/a", OTHER, 15).await);
    assert_eq!(place.memory("/a").await.claim.map(|claim| claim.replica), Some(OTHER));
    // A clock that is wrong claims nothing beyond the time of a claim.
    assert!(claim(&place, "/a", REPLICA, 86_400).await);
    assert!(claim(&place, "/a", OTHER, 16).await);
}

pub(crate) async fn secret_is_rewrapped_only_if_unchanged_since_the_read(subject: &Subject) {
    let secrets = &subject.index.secrets;
    let secret = |byte| ServerSecret {
        kid: "cursor".to_owned(),
        purpose: "cursor".to_owned(),
        wrapped_key: vec![byte; 61],
        not_before: NOW,
        retired_at: None,
    };
    secrets.add(&secret(1)).await.unwrap();
    let rewrap =
        async |kid: &str, from: u8, to: u8| secrets.rewrap(kid, &[from; 61], &[to; 61]).await.unwrap();
    assert!(!rewrap("cursor", 9, 2).await);
    assert!(!rewrap("other", 1, 2).await);
    assert!(rewrap("cursor", 1, 2).await);
    assert!(!rewrap("cursor", 1, 3).await);
    assert_eq!(secrets.list("cursor").await.unwrap(), [secret(2)]);
}
