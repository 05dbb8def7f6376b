//! The time at which a session was last used.

use keepsake_core::{ResourceId, SessionId};
use keepsake_index::{
    Access, AttachmentName, Detail, NewAttachment, NewSession, SessionChange, SessionCreation, SessionLimits,
    SessionUpdate, SessionUse,
};
use serde_json::{Map, json};

use crate::place::{NOW, PLENTY, Place, after_seconds, by_tenant, next_uuid};
use crate::subject::Subject;

const UNLIMITED: SessionLimits = SessionLimits { sessions: PLENTY, session_bytes: PLENTY };

/// Makes a session with the store.
async fn open(place: &Place) -> SessionId {
    let new = NewSession {
        session_id: SessionId::from_uuid(next_uuid()),
        agent: json!({"id": "agent"}).into(),
        agent_id: "agent".to_owned(),
        agent_version: 1,
        environment_id: "env".to_owned(),
        title: None,
        metadata: Map::new(),
        vault_ids: Vec::new(),
        attachments: vec![NewAttachment {
            resource_id: ResourceId::from_uuid(next_uuid()),
            store_id: place.store_id,
            access: Access::ReadWrite,
            instructions: None,
        }],
        created_at: NOW,
    };
    let (index, by) = (&place.index, by_tenant(NOW));
    let made = index.sessions.create(place.tenant_id, &new, &UNLIMITED, None, &by);
    let made = made.await.unwrap();
    assert!(matches!(made, SessionCreation::Created(_)), "{made:?}");
    new.session_id
}

async fn change(place: &Place, session_id: SessionId, detail: Detail) {
    let change =
        SessionChange { detail, only: None, limits: UNLIMITED, audited: by_tenant(after_seconds(1)) };
    let sessions = &place.index.sessions;
    let changed = sessions.change(place.tenant_id, session_id, &change, None);
    let changed = changed.await.unwrap();
    assert!(matches!(changed, SessionUpdate::Done(_)), "{changed:?}");
}

async fn use_at(place: &Place, session_id: SessionId, seconds: i64) {
    let used = SessionUse { tenant_id: place.tenant_id, session_id, used_at: after_seconds(seconds) };
    place.index.sessions.flush_use(&[used]).await.unwrap();
}

pub(crate) async fn last_use_of_a_session_never_moves_back(subject: &Subject) {
    let place = Place::new(subject).await;
    let session_id = open(&place).await;
    let last_use =
        async |of: &Place| of.index.unused.last_session_use(of.tenant_id, of.store_id).await.unwrap();
    assert_eq!(last_use(&place).await, Some(NOW), "it was made then");
    for (seconds, expected) in [(5, 5), (3, 5), (9, 9)] {
        use_at(&place, session_id, seconds).await;
        assert_eq!(last_use(&place).await, Some(after_seconds(expected)));
    }
    let session = place.index.sessions.find(place.tenant_id, session_id).await;
    let session = session.unwrap().unwrap();
    assert_eq!(session.last_used_at, Some(after_seconds(9)));
    assert_eq!(session.updated_at, NOW);
    let other = open(&place).await;
    use_at(&place, other, 7).await;
    assert_eq!(last_use(&place).await, Some(after_seconds(9)));
    change(&place, session_id, Detail::Archive).await;
    assert_eq!(last_use(&place).await, Some(after_seconds(7)), "archived sessions do not count");
    let detached = Detail::Detach(AttachmentName::Store(place.store_id));
    change(&place, other, detached).await;
    assert_eq!(last_use(&place).await, None);
    let stranger = Place::new(subject).await;
    let theirs = place.index.unused.last_session_use(stranger.tenant_id, place.store_id);
    assert_eq!(theirs.await.unwrap(), None);
}
