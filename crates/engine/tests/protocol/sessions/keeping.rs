//! Sessions keep what their stores hold while they are used.

use std::time::Duration;

use keepsake_index::{Access, Scope};
use serde_json::json;

use super::call;
use crate::expiry::{DAY, PERIOD, SECOND, expire, restore, run_on, short_of, with_period};
use crate::test_engine::{TestEngine, principal_of, view};

crate::on_both_databases! {
    store_in_use_by_a_session_keeps_its_memories,
}

async fn store_in_use_by_a_session_keeps_its_memories(setup: TestEngine) {
    with_period(&setup).await;
    let memory = setup.make("/a.md", "x").await;
    let stores = [(setup.store_id, Access::ReadOnly)];
    let [used, archived] = [setup.open(&stores).await, setup.open(&stores).await];
    let scopes = [Scope::MemoryRead, Scope::SessionsWrite];
    let reader = principal_of(&setup.engine, setup.principal.tenant_id, &scopes).await;
    setup.clock.advance(short_of(PERIOD, SECOND));
    // A listing reads no memory.
    let replica = setup.replica();
    for session in [&used, &archived] {
        call(&replica, &setup.principal, session.session.session_id, view("/memories")).await;
    }
    let used_at = setup.engine_now();
    replica.replica.flush().await.unwrap();
    setup.clock.advance(DAY);
    replica.replica.flush().await.unwrap();
    setup.clock.advance(Duration::from_millis(1));
    // To the day after its last use, as far as all replicas have written.
    assert_eq!(expire(&setup).await, 1, "a day is over");
    restore(&setup, &memory).await.unwrap();

    setup.clock.advance(PERIOD);
    // Now by tokens that may only read.
    for session in [&used, &archived] {
        let session_id = session.session.session_id;
        let token = replica.sessions.issue_token(&reader, session_id).await.unwrap();
        let agent = replica.auth.authenticate(&token).await.unwrap();
        call(&replica, &agent, session_id, view("/memories")).await;
    }
    assert!(setup.engine_now() > used_at);
    replica.replica.flush().await.unwrap();
    setup.clock.advance(short_of(DAY, SECOND));
    replica.replica.flush().await.unwrap();
    let dry = run_on(&setup.engine, true).await;
    assert_eq!((&dry["in_use"], &dry["would_expire"]), (&json!(1), &json!(0)), "{dry}");
    assert_eq!(expire(&setup).await, 0);
    let usage = setup.engine.usage.of_store(&setup.principal, setup.store_id, None).await.unwrap();
    assert!(usage.in_use_until > Some(setup.engine_now()), "{:?}", usage.in_use_until);
    let session_id = archived.session.session_id;
    setup.engine.sessions.archive(&setup.principal, session_id).await.unwrap();
    assert_eq!(expire(&setup).await, 0, "the other one uses it still");
    let session_id = used.session.session_id;
    setup.engine.sessions.archive(&setup.principal, session_id).await.unwrap();
    assert_eq!(expire(&setup).await, 1, "archived sessions keep nothing");
    let usage = setup.engine.usage.of_store(&setup.principal, setup.store_id, None).await.unwrap();
    assert_eq!(usage.in_use_until, None);
}
