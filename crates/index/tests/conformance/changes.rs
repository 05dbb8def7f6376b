//! Changes of stores in the order of their commits, and the heads of watched objects.

use keepsake_core::{SessionId, StoreId};
use keepsake_index::{SessionHead, StoreHead};
use uuid::Uuid;

use crate::place::{NOW, Place, after_seconds, deleted, edited, renamed};
use crate::sessions::{event, make, new_session};
use crate::subject::Subject;

pub(crate) async fn changes_come_in_the_order_of_their_commits(subject: &Subject) {
    let place = Place::new(subject).await;
    let first = place.create("/a.md", 10).await;
    place.create("/b.md", 20).await;
    place.change(vec![renamed(&first, "/c.md")]).await;
    let third = place.memory("/c.md").await;
    place.change(vec![edited(&third, 30)]).await;
    let fourth = place.memory("/c.md").await;
    place.change(vec![deleted(&fourth)]).await;
    let changes = &subject.index.changes;
    let mut seen = Vec::new();
    let (mut after, mut version_before) = (0, None);
    loop {
        let page = changes.after(place.tenant_id, place.store_id, after, 2).await;
        let page = page.unwrap().unwrap();
        assert_eq!((page.seq, page.version_before), (5, version_before));
        let Some(last) = page.versions.last() else {
            assert_eq!(page.newest_version, version_before);
            break;
        };
        (after, version_before) = (last.seq, Some(last.version_id));
        seen.extend(page.versions.iter().cloned());
    }
    assert_eq!(
        seen.iter().map(|version| version.seq).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5]
    );
    let paths: Vec<_> = seen
        .iter()
        .map(|version| version.path.as_ref().unwrap().as_str())
        .collect();
    assert_eq!(paths, ["/a.md", "/b.md", "/c.md", "/c.md", "/c.md"]);
    let beyond = changes.after(place.tenant_id, place.store_id, i64::MAX, 2).await;
    let beyond = beyond.unwrap().unwrap();
    assert_eq!((beyond.seq, beyond.versions.len()), (5, 0));
    let nowhere = StoreId::from_uuid(Uuid::max());
    assert_eq!(changes.after(place.tenant_id, nowhere, 0, 2).await.unwrap(), None);
}

pub(crate) async fn heads_are_those_of_the_watched_stores(subject: &Subject) {
    let places = [Place::new(subject).await, Place::new(subject).await];
    places[0].create("/a.md", 10).await;
    places[0].create("/b.md", 10).await;
    let nowhere = (places[0].tenant_id, StoreId::from_uuid(Uuid::max()));
    // Another tenant's store is none of this tenant's.
    let foreign = (places[0].tenant_id, places[1].store_id);
    let own = places.each_ref().map(|place| (place.tenant_id, place.store_id));
    let watched = [own[0], nowhere, foreign, own[1]];
    let mut heads = subject.index.changes.store_heads(&watched).await.unwrap();
    heads.sort_by_key(|head| -head.seq);
    let head = |of: (_, _), seq| StoreHead {
        tenant_id: of.0,
        store_id: of.1,
        seq,
        purge_epoch: 0,
    };
    assert_eq!(heads, [head(own[0], 2), head(own[1], 0)]);
    let none = subject.index.changes.store_heads(&[]).await.unwrap();
    assert_eq!(none, []);
}

pub(crate) async fn recent_events_of_sessions_are_counted(subject: &Subject) {
    let place = Place::new(subject).await;
    let session = make(&place, &new_session(&[place.store_id], NOW))
        .await
        .session_id;
    let called = [1, 5, 6].map(|seconds| event(&place, session, seconds, &["/a"]));
    subject.index.sessions.flush_events(&called).await.unwrap();
    let nowhere = SessionId::from_uuid(Uuid::max());
    let watched = [(place.tenant_id, nowhere), (place.tenant_id, session)];
    let heads = subject
        .index
        .changes
        .session_heads(&watched, after_seconds(5))
        .await;
    let expected = SessionHead {
        tenant_id: place.tenant_id,
        session_id: session,
        recent_events: 2,
    };
    assert_eq!(heads.unwrap(), [expected]);
}
