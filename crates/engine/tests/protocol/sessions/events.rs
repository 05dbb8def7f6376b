//! What is kept of the calls of a session.

use std::time::Duration;

use keepsake_core::SessionId;
use keepsake_engine::{Engine, EventQuery, PageRequest};
use keepsake_index::{Access, SessionEvent};
use serde_json::Value;

use super::{call, holder};
use crate::erasures::below;
use crate::test_engine::{TestEngine, view};

crate::on_both_databases! {
    events_are_written_once_with_the_access_times,
    read_in_a_session_writes_nothing_before_the_flush,
}

async fn events(setup: &TestEngine, engine: &Engine, id: SessionId) -> Vec<SessionEvent> {
    let query = EventQuery { page: PageRequest { limit: Some(100), page: None }, ..EventQuery::default() };
    engine.events.list(&setup.principal, id, &query).await.unwrap().items
}

fn inputs(events: &[SessionEvent]) -> Vec<Value> {
    events.iter().map(|event| Value::Object(event.input.clone())).collect()
}

async fn events_are_written_once_with_the_access_times(setup: TestEngine) {
    let made = setup.open(&[(setup.store_id, Access::ReadWrite)]).await;
    let id = made.session.session_id;
    let replica = setup.replica();
    let principal = holder(&replica, &made).await;
    call(&replica, &principal, id, view("/memories/notes")).await;
    assert_eq!(events(&setup, &replica, id).await.len(), 1);
    assert_eq!(events(&setup, &setup.engine, id).await.len(), 0);
    let session = setup.engine.sessions.get(&setup.principal, id).await.unwrap();
    assert_eq!(session.last_used_at, None);
    replica.replica.flush().await.unwrap();
    let written = events(&setup, &setup.engine, id).await;
    assert_eq!(written.len(), 1);
    assert_eq!(inputs(&events(&setup, &replica, id).await), inputs(&written));
    let session = setup.engine.sessions.get(&setup.principal, id).await.unwrap();
    assert_eq!(session.last_used_at, Some(setup.engine_now()));
    replica.replica.flush().await.unwrap();
    assert_eq!(events(&setup, &setup.engine, id).await, written);
    // The shutdown writes the noted events.
    setup.clock.advance(Duration::from_secs(1));
    call(&replica, &principal, id, view("/memories/notes")).await;
    assert!(replica.shut_down(Duration::from_secs(20)).await);
    assert_eq!(events(&setup, &setup.engine, id).await.len(), 2);
}

async fn read_in_a_session_writes_nothing_before_the_flush(setup: TestEngine) {
    let made = setup.open(&[(setup.store_id, Access::ReadWrite)]).await;
    let id = made.session.session_id;
    let principal = holder(&setup.engine, &made).await;
    setup.create("/memories/p/a", "x").await;
    for _ in 0..3 {
        call(&setup.engine, &principal, id, view("/memories/notes/p/a")).await;
    }
    let replica = setup.replica();
    assert_eq!(events(&setup, &replica, id).await.len(), 0);
    let session = replica.sessions.get(&setup.principal, id).await.unwrap();
    assert_eq!(session.last_used_at, None);
    // An erasure also removes events that are not written yet.
    assert_eq!(events(&setup, &setup.engine, id).await.len(), 3);
    let (erasures, selection) = (&setup.engine.erasures, below(&setup, "/p/"));
    erasures.create(&setup.principal, selection, None).await.unwrap();
    assert_eq!(events(&setup, &setup.engine, id).await, []);
}
