//! Sessions: attachments, visibility, events and retention.

use keepsake_core::{ErasureId, EventId, ResourceId, SessionId, StoreId, TenantId, Timestamp};
use keepsake_index::{
    Access, AttachmentName, AttachmentRefusal, Detail, EventListing, EventPlace, NewAttachment, NewSession,
    Prunable, Selector, Session, SessionChange, SessionCreation, SessionEvent, SessionLimits, SessionListing,
    SessionRefusal, SessionUpdate, SessionUse,
};
use serde_json::{Map, json};

use crate::erasures::{ask, below, end, erase, step};
use crate::place::{NOW, PLENTY, Place, after_seconds, by_tenant, next_uuid, renamed};
use crate::subject::Subject;

pub(crate) const UNLIMITED: SessionLimits = SessionLimits {
    sessions: PLENTY,
    session_bytes: PLENTY,
};

const ALL: EventListing = EventListing {
    only: None,
    from: None,
    to: None,
    newest_first: false,
    after: None,
    limit: 1000,
};

pub(crate) fn attachment(store_id: StoreId) -> NewAttachment {
    NewAttachment {
        resource_id: ResourceId::from_uuid(next_uuid()),
        store_id,
        access: Access::ReadWrite,
        instructions: None,
    }
}

pub(crate) fn new_session(stores: &[StoreId], created_at: Timestamp) -> NewSession {
    NewSession {
        session_id: SessionId::from_uuid(next_uuid()),
        agent: json!({"id": "agent\u{0}1"}).into(),
        agent_id: "agent_1".to_owned(),
        agent_version: 2,
        environment_id: "env".to_owned(),
        title: Some("title".to_owned()),
        metadata: Map::from_iter([("a".to_owned(), json!("1"))]),
        vault_ids: vec!["vlt".to_owned()],
        attachments: stores.iter().copied().map(attachment).collect(),
        created_at,
    }
}

pub(crate) async fn make(place: &Place, new: &NewSession) -> Session {
    match place
        .index
        .sessions
        .create(place.tenant_id, new, &UNLIMITED, None, &by_tenant(NOW))
        .await
        .unwrap()
    {
        SessionCreation::Created(session) => *session,
        other => panic!("{other:?}"),
    }
}

async fn open(place: &Place) -> Session {
    make(place, &new_session(&[place.store_id], NOW)).await
}

async fn found(place: &Place, session_id: SessionId) -> Option<Session> {
    place
        .index
        .sessions
        .find(place.tenant_id, session_id)
        .await
        .unwrap()
}

pub(crate) async fn change(place: &Place, session_id: SessionId, detail: Detail) -> SessionUpdate {
    change_within(place, session_id, detail, UNLIMITED).await
}

pub(crate) async fn change_within(
    place: &Place,
    session_id: SessionId,
    detail: Detail,
    limits: SessionLimits,
) -> SessionUpdate {
    let change = SessionChange {
        detail,
        only: None,
        limits,
        audited: by_tenant(after_seconds(1)),
    };
    let changed = place
        .index
        .sessions
        .change(place.tenant_id, session_id, &change, None);
    changed.await.unwrap()
}

fn listing() -> SessionListing {
    SessionListing {
        created_from: None,
        created_to: None,
        store_id: None,
        agent_id: None,
        agent_version: None,
        live: true,
        archived: true,
        only: None,
        oldest_first: false,
        after: None,
        limit: 100,
        max_agent_bytes: u64::MAX,
    }
}

async fn listed(place: &Place, listing: &SessionListing) -> Vec<SessionId> {
    let page = place.index.sessions.list(place.tenant_id, listing).await.unwrap();
    page.sessions.iter().map(|session| session.session_id).collect()
}

/// A call in a session, with the paths that it named in the store.
pub(crate) fn event(place: &Place, session_id: SessionId, seconds: i64, paths: &[&str]) -> SessionEvent {
    let place_of = |path: &str| EventPlace {
        store_id: place.store_id,
        path: path.to_owned(),
        new_path: paths.get(1).map(|path| (*path).to_owned()),
    };
    SessionEvent {
        tenant_id: place.tenant_id,
        session_id,
        event_id: EventId::from_uuid(next_uuid()),
        at: after_seconds(seconds),
        name: "memory".to_owned(),
        input: Map::from_iter([("paths".to_owned(), json!(paths))]),
        place: paths.first().map(|path| place_of(path)),
    }
}

async fn events(place: &Place, session_id: SessionId, listing: &EventListing) -> Vec<String> {
    let events = place
        .index
        .sessions
        .list_events(place.tenant_id, session_id, listing)
        .await
        .unwrap();
    let named = |event: &SessionEvent| {
        let paths = event.input["paths"].as_array().unwrap();
        let paths: Vec<_> = paths.iter().map(|path| path.as_str().unwrap()).collect();
        paths.join(" ")
    };
    events.iter().map(named).collect()
}

pub(crate) async fn session_is_found_only_by_its_tenant(subject: &Subject) {
    let (mine, theirs) = (Place::new(subject).await, Place::new(subject).await);
    let made = open(&theirs).await;
    assert_eq!(found(&theirs, made.session_id).await.as_ref(), Some(&made));
    assert_eq!(made.agent.as_str(), r#"{"id":"agent\u00001"}"#);
    assert_eq!(made.attachments.len(), 1);
    assert_eq!(found(&mine, made.session_id).await, None);
    assert_eq!(listed(&mine, &listing()).await, []);
    let of_store = SessionListing {
        store_id: Some(theirs.store_id),
        ..listing()
    };
    assert_eq!(listed(&mine, &of_store).await, []);
    assert_eq!(listed(&theirs, &of_store).await, [made.session_id]);
    assert_eq!(
        change(&mine, made.session_id, Detail::Archive).await,
        SessionUpdate::NoSession
    );
    let by = by_tenant(NOW);
    let deleted = mine.index.sessions.delete(mine.tenant_id, made.session_id, &by);
    assert!(!deleted.await.unwrap());
    let called = event(&theirs, made.session_id, 1, &["/a"]);
    mine.index
        .sessions
        .flush_events(std::slice::from_ref(&called))
        .await
        .unwrap();
    assert_eq!(events(&mine, made.session_id, &ALL).await, [""; 0]);
    assert_eq!(events(&theirs, made.session_id, &ALL).await, ["/a"]);
    // A store of another tenant cannot be attached.
    let foreign = new_session(&[theirs.store_id], NOW);
    let refused = mine
        .index
        .sessions
        .create(mine.tenant_id, &foreign, &UNLIMITED, None, &by_tenant(NOW))
        .await
        .unwrap();
    assert_eq!(refused, SessionCreation::Refused(AttachmentRefusal::NoStore));
    assert_eq!(found(&mine, foreign.session_id).await, None);
    assert_eq!(found(&theirs, made.session_id).await, Some(made));
}

pub(crate) async fn sessions_made_at_one_moment_are_paged_once_each(subject: &Subject) {
    let place = Place::new(subject).await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(open(&place).await.session_id);
    }
    for (store_id, agent_id) in [
        (None, None),
        (Some(place.store_id), None),
        (None, Some("agent_1".to_owned())),
        (Some(place.store_id), Some("agent_1".to_owned())),
    ] {
        // With room for one agent, a page has one session.
        for (oldest_first, max_agent_bytes, page_len) in
            [(false, u64::MAX, 2), (true, u64::MAX, 2), (true, 1, 1)]
        {
            let mut asked = SessionListing {
                store_id,
                agent_id: agent_id.clone(),
                agent_version: agent_id.as_ref().map(|_| 2),
                oldest_first,
                limit: 2,
                max_agent_bytes,
                ..listing()
            };
            let mut seen = Vec::new();
            loop {
                let page = place.index.sessions.list(place.tenant_id, &asked).await.unwrap();
                assert!((1..=page_len).contains(&page.sessions.len()), "{page:?}");
                seen.extend(page.sessions.iter().map(|session| session.session_id));
                asked.after = page.next;
                if asked.after.is_none() {
                    break;
                }
            }
            if !oldest_first {
                seen.reverse();
            }
            assert_eq!(seen, ids);
        }
    }
    let other = SessionListing {
        agent_id: Some("agent_2".to_owned()),
        ..listing()
    };
    assert_eq!(listed(&place, &other).await, []);
    let bound = |only| SessionListing {
        only: Some(only),
        ..listing()
    };
    assert_eq!(listed(&place, &bound(vec![place.store_id])).await.len(), 5);
    let nothing = bound(vec![StoreId::from_uuid(next_uuid())]);
    assert_eq!(listed(&place, &nothing).await, []);
}

pub(crate) async fn bound_credential_sees_sessions_of_its_own_stores_only(subject: &Subject) {
    let place = Place::new(subject).await;
    let other = Place::of_tenant(subject, place.tenant_id).await.store_id;
    let own = open(&place).await;
    let foreign = make(&place, &new_session(&[other], NOW)).await;
    let mixed = make(&place, &new_session(&[place.store_id, other], NOW)).await;
    let bare = make(&place, &new_session(&[], NOW)).await;
    let bound = SessionListing {
        only: Some(vec![place.store_id]),
        ..listing()
    };
    assert_eq!(listed(&place, &bound).await, [own.session_id]);
    for hidden in [foreign, mixed, bare] {
        let change = SessionChange {
            detail: Detail::Archive,
            only: Some(vec![place.store_id]),
            limits: UNLIMITED,
            audited: by_tenant(after_seconds(1)),
        };
        let (tenant_id, session_id) = (place.tenant_id, hidden.session_id);
        let outcome = place.index.sessions.change(tenant_id, session_id, &change, None);
        assert_eq!(outcome.await.unwrap(), SessionUpdate::NoSession);
        assert_eq!(found(&place, session_id).await, Some(hidden));
    }
}

pub(crate) async fn concurrent_attachments_stay_within_the_limit(subject: &Subject) {
    let place = Place::new(subject).await;
    let session = make(&place, &new_session(&[], NOW)).await;
    let mut stores = Vec::new();
    for _ in 0..12 {
        stores.push(Place::of_tenant(subject, place.tenant_id).await.store_id);
    }
    let attached = stores
        .iter()
        .map(|store_id| change(&place, session.session_id, Detail::Attach(attachment(*store_id))));
    let outcomes = futures::future::join_all(attached).await;
    let done = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, SessionUpdate::Done(_)))
        .count();
    let refused = SessionUpdate::Refused(SessionRefusal::Attachment(AttachmentRefusal::TooMany));
    assert_eq!(
        (
            done,
            outcomes.iter().filter(|outcome| **outcome == refused).count()
        ),
        (8, 4)
    );
    let found = found(&place, session.session_id).await.unwrap();
    let mut slugs: Vec<_> = found.attachments.iter().map(|a| a.slug.clone()).collect();
    slugs.sort();
    slugs.dedup();
    assert_eq!(slugs.len(), 8, "each has its own directory");
}

pub(crate) async fn deleted_store_is_no_longer_attached(subject: &Subject) {
    let place = Place::new(subject).await;
    let other = Place::of_tenant(subject, place.tenant_id).await;
    let session = make(&place, &new_session(&[place.store_id, other.store_id], NOW)).await;
    let called = [
        event(&place, session.session_id, 1, &["/a"]),
        event(&other, session.session_id, 2, &["/b"]),
    ];
    place.index.sessions.flush_events(&called).await.unwrap();
    let index = &place.index;
    assert!(
        index
            .store_deletions
            .begin(place.tenant_id, other.store_id, &by_tenant(NOW))
            .await
            .unwrap()
    );
    let left = found(&place, session.session_id).await.unwrap();
    assert_eq!(left.attachments, session.attachments[..1]);
    let of_store = SessionListing {
        store_id: Some(other.store_id),
        ..listing()
    };
    assert_eq!(listed(&place, &of_store).await, []);
    // Later events of the store are dropped, and the purge removes the written ones.
    let late = [event(&other, session.session_id, 3, &["/late"])];
    index.sessions.flush_events(&late).await.unwrap();
    while !index
        .store_deletions
        .purge(place.tenant_id, other.store_id, NOW, 1)
        .await
        .unwrap()
        .is_done
    {}
    assert_eq!(events(&place, session.session_id, &ALL).await, ["/a"]);
    for table in ["session_resource", "session_event"] {
        let count = format!("SELECT count(*) FROM {table} WHERE tenant_id = $1 AND store_id = $2");
        assert_eq!(place.raw.numbers(&count, &other.ids()).await, [[0]], "{table}");
    }
}

pub(crate) async fn events_are_kept_once_in_their_order(subject: &Subject) {
    let place = Place::new(subject).await;
    let session_id = open(&place).await.session_id;
    let called = [
        event(&place, session_id, 3, &["/c", "/d"]),
        event(&place, session_id, 1, &["/a"]),
        event(&place, session_id, 2, &[]),
    ];
    for _ in 0..2 {
        place.index.sessions.flush_events(&called).await.unwrap();
    }
    assert_eq!(events(&place, session_id, &ALL).await, ["/a", "", "/c /d"]);
    let listed = place
        .index
        .sessions
        .list_events(place.tenant_id, session_id, &ALL);
    let [last, first, middle] = &called;
    assert_eq!(
        listed.await.unwrap().iter().collect::<Vec<_>>(),
        [first, middle, last]
    );
    let newest = EventListing {
        newest_first: true,
        limit: 2,
        ..ALL
    };
    assert_eq!(events(&place, session_id, &newest).await, ["/c /d", ""]);
    let rest = EventListing {
        after: Some((called[2].at, called[2].event_id)),
        ..ALL
    };
    assert_eq!(events(&place, session_id, &rest).await, ["/c /d"]);
    let middle = EventListing {
        from: Some(after_seconds(2)),
        to: Some(after_seconds(2)),
        ..ALL
    };
    assert_eq!(events(&place, session_id, &middle).await, [""]);
    // A deleted session gets no further events.
    let by = by_tenant(NOW);
    let deleted = place.index.sessions.delete(place.tenant_id, session_id, &by);
    assert!(deleted.await.unwrap());
    let late = [event(&place, session_id, 4, &["/late"])];
    place.index.sessions.flush_events(&late).await.unwrap();
    let count = "SELECT count(*) FROM session_event WHERE tenant_id = $1";
    let rows = place.raw.numbers(count, &place.ids()[..1]).await;
    assert_eq!(rows, [[3]]);
}

pub(crate) async fn erasure_removes_events_that_name_erased_paths(subject: &Subject) {
    let place = Place::new(subject).await;
    let session_id = open(&place).await.session_id;
    let head = place.create("/p/inside", 1).await;
    place.change(vec![renamed(&head, "/moved/away")]).await;
    place.create("/p0", 1).await;
    let called = [
        event(&place, session_id, 1, &["/p/inside"]),
        event(&place, session_id, 2, &["/p/inside", "/moved/away"]),
        event(&place, session_id, 3, &["/x", "/moved/away"]),
        event(&place, session_id, 4, &["/p"]),
        event(&place, session_id, 5, &["/y", "/p/was-refused"]),
        event(&place, session_id, 6, &["/p0"]),
        event(&place, session_id, 7, &["/moved"]),
        event(&place, session_id, 8, &[]),
        event(&place, session_id, 9, &[""]),
    ];
    place.index.sessions.flush_events(&called).await.unwrap();
    let erasure = erase(&place, below(&place, "/p/"), 1).await;
    assert_eq!(erasure.receipt.session_events, 5);
    assert_eq!(erasure.receipt.session_resources, 0);
    assert_eq!(events(&place, session_id, &ALL).await, ["/p0", "/moved", "", ""]);
}

pub(crate) async fn late_event_from_before_an_erasure_is_dropped(subject: &Subject) {
    let place = Place::new(subject).await;
    let session_id = open(&place).await.session_id;
    place.create("/p/a", 1).await;
    let before = event(&place, session_id, 0, &["/p/a"]);
    let erasure_id: ErasureId = ask(&place, below(&place, "/p/")).await;
    while !step(&place, erasure_id, 100).await {}
    end(&place, erasure_id).await;
    let after = event(&place, session_id, 60, &["/p/b"]);
    place.index.sessions.flush_events(&[before, after]).await.unwrap();
    assert_eq!(events(&place, session_id, &ALL).await, ["/p/b"]);
}

pub(crate) async fn erased_store_leaves_no_attachment_and_no_event(subject: &Subject) {
    let place = Place::new(subject).await;
    let other = Place::of_tenant(subject, place.tenant_id).await;
    let session = make(&place, &new_session(&[place.store_id, other.store_id], NOW)).await;
    let called = [
        event(&place, session.session_id, 1, &["/a"]),
        event(&other, session.session_id, 2, &["/b"]),
    ];
    place.index.sessions.flush_events(&called).await.unwrap();
    let erasure = erase(&place, Selector::Store(place.store_id), 1).await;
    let receipt = &erasure.receipt;
    assert_eq!((receipt.session_resources, receipt.session_events), (1, 1));
    let left = found(&place, session.session_id).await.unwrap();
    assert_eq!(left.attachments, session.attachments[1..]);
    assert_eq!(events(&place, session.session_id, &ALL).await, ["/b"]);
}

async fn use_at(place: &Place, session_id: SessionId, seconds: i64) {
    let used = SessionUse {
        tenant_id: place.tenant_id,
        session_id,
        used_at: after_seconds(seconds),
    };
    place.index.sessions.flush_use(&[used]).await.unwrap();
}

pub(crate) async fn last_use_of_a_session_never_moves_back(subject: &Subject) {
    let place = Place::new(subject).await;
    let session_id = open(&place).await.session_id;
    let last_use = async |of: &Place| {
        of.index
            .unused
            .last_session_use(of.tenant_id, of.store_id)
            .await
            .unwrap()
    };
    assert_eq!(last_use(&place).await, Some(NOW), "it was made then");
    for (seconds, expected) in [(5, 5), (3, 5), (9, 9)] {
        use_at(&place, session_id, seconds).await;
        assert_eq!(last_use(&place).await, Some(after_seconds(expected)));
    }
    let session = found(&place, session_id).await.unwrap();
    assert_eq!(session.last_used_at, Some(after_seconds(9)));
    assert_eq!(session.updated_at, NOW);
    let other = open(&place).await.session_id;
    use_at(&place, other, 7).await;
    assert_eq!(last_use(&place).await, Some(after_seconds(9)));
    change(&place, session_id, Detail::Archive).await;
    assert_eq!(
        last_use(&place).await,
        Some(after_seconds(7)),
        "archived sessions do not count"
    );
    let detached = Detail::Detach(AttachmentName::Store(place.store_id));
    change(&place, other, detached).await;
    assert_eq!(last_use(&place).await, None);
    let stranger = Place::new(subject).await;
    let theirs = place
        .index
        .unused
        .last_session_use(stranger.tenant_id, place.store_id);
    assert_eq!(theirs.await.unwrap(), None);
}

async fn rows_of(place: &Place, tenant_id: TenantId) -> [i64; 3] {
    let mut counts = [0; 3];
    for (count, table) in counts
        .iter_mut()
        .zip(["session", "session_resource", "session_event"])
    {
        let query = format!("SELECT count(*) FROM {table} WHERE tenant_id = $1");
        *count = place.raw.numbers(&query, &[tenant_id.uuid()]).await[0][0];
    }
    counts
}

pub(crate) async fn ended_sessions_are_pruned_with_what_belongs_to_them(subject: &Subject) {
    let place = Place::new(subject).await;
    let (live, archived, deleted) = (open(&place).await, open(&place).await, open(&place).await);
    for session in [&live, &archived, &deleted] {
        let called = [1, 50].map(|seconds| event(&place, session.session_id, seconds, &["/a"]));
        place.index.sessions.flush_events(&called).await.unwrap();
    }
    change(&place, archived.session_id, Detail::Archive).await;
    let index = &place.index;
    assert!(
        index
            .sessions
            .delete(place.tenant_id, deleted.session_id, &by_tenant(NOW))
            .await
            .unwrap()
    );
    let prune = async |what, before: Timestamp| {
        let told = index.upkeep.prune(what, before, 1, true).await.unwrap();
        let mut removed = 0;
        loop {
            let rows = index.upkeep.prune(what, before, 1, false).await.unwrap();
            removed += rows;
            if rows == 0 {
                assert_eq!(removed, told, "the dry run counted the same rows: {what:?}");
                return removed;
            }
        }
    };
    // The rows of a session are removed before the session.
    assert_eq!(
        index
            .upkeep
            .prune(Prunable::EndedSessions, after_seconds(1), 9, false)
            .await
            .unwrap(),
        0
    );
    assert_eq!(prune(Prunable::SessionEvents, after_seconds(50)).await, 3);
    assert_eq!(prune(Prunable::EventsOfEndedSessions, after_seconds(1)).await, 1);
    assert_eq!(
        prune(Prunable::ResourcesOfEndedSessions, after_seconds(1)).await,
        1
    );
    assert_eq!(prune(Prunable::EndedSessions, after_seconds(1)).await, 1);
    assert!(
        found(&place, archived.session_id).await.is_some(),
        "it ended at that time, not before"
    );
    let later = after_seconds(2);
    assert_eq!(prune(Prunable::EventsOfEndedSessions, later).await, 1);
    assert_eq!(prune(Prunable::ResourcesOfEndedSessions, later).await, 1);
    assert_eq!(prune(Prunable::EndedSessions, later).await, 1);
    assert_eq!(rows_of(&place, place.tenant_id).await, [1, 1, 1]);
    assert_eq!(found(&place, live.session_id).await, Some(live));
}
