//! What is kept of the calls of a session.

use std::time::Duration;

use keepsake_core::SessionId;
use keepsake_engine::{Engine, EventQuery, PageRequest};
use keepsake_index::{Access, SessionEvent};
use serde_json::{Value, json};

use super::{call, holder};
use crate::test_engine::{TestEngine, create, insert, tool_call, view};

crate::on_both_databases! {
    every_call_becomes_an_event_without_content,
    events_are_written_once_with_the_access_times,
    invalid_tool_names_are_not_recorded,
    events_are_paged_in_both_orders,
    page_of_events_holds_up_to_a_thousand,
    read_in_a_session_writes_nothing_before_the_flush,
}

async fn events(setup: &TestEngine, engine: &Engine, id: SessionId) -> Vec<SessionEvent> {
    let query = EventQuery {
        page: PageRequest {
            limit: Some(100),
            page: None,
        },
        ..EventQuery::default()
    };
    engine
        .events
        .list(&setup.principal, id, &query)
        .await
        .unwrap()
        .items
}

fn inputs(events: &[SessionEvent]) -> Vec<Value> {
    events
        .iter()
        .map(|event| Value::Object(event.input.clone()))
        .collect()
}

async fn every_call_becomes_an_event_without_content(setup: TestEngine) {
    let made = setup.open(&[(setup.store_id, Access::ReadWrite)]).await;
    let id = made.session.session_id;
    let principal = holder(&setup.engine, &made).await;
    let calls = [
        create("/memories/notes/a.md", "secret\n"),
        json!({"command": "str_replace", "path": "/memories/notes/a.md", "old_str": "secret", "new_str": "ö"}),
        insert("/memories/notes/a.md", 1, "more"),
        json!({"command": "view", "path": "/mnt/memory/notes/a.md", "view_range": [1, 2], "note": "a thought"}),
        json!({"command": "rename", "old_path": "/memories/notes/a.md", "new_path": "/memories/notes/b.md"}),
        json!({"command": "view", "path": "/memories/elsewhere/secret"}),
        json!({"command": "view", "path": "/memories"}),
    ];
    for input in calls {
        setup.clock.advance(Duration::from_millis(1));
        call(&setup.engine, &principal, id, input).await;
    }
    setup.clock.advance(Duration::from_millis(1));
    // By the store's own route it is the session's call still.
    let by_store = tool_call(None, json!({"command": "view", "path": "/memories/b.md"}));
    setup
        .engine
        .tools
        .call(&principal, setup.store_id, "memory", by_store)
        .await
        .unwrap();
    let kept = events(&setup, &setup.engine, id).await;
    assert!(kept.iter().all(|event| event.name == "memory"));
    assert!(kept.is_sorted_by_key(|event| event.at));
    assert_eq!(
        inputs(&kept),
        [
            json!({"command": "create", "path": "/memories/notes/a.md", "file_text": {"size_bytes": 7}}),
            json!({"command": "str_replace", "path": "/memories/notes/a.md",
                "old_str": {"size_bytes": 6}, "new_str": {"size_bytes": 2}}),
            json!({"command": "insert", "path": "/memories/notes/a.md", "insert_line": 1,
                "insert_text": {"size_bytes": 4}}),
            json!({"command": "view", "path": "/mnt/memory/notes/a.md", "view_range": [1, 2]}),
            json!({"command": "rename", "old_path": "/memories/notes/a.md", "new_path": "/memories/notes/b.md"}),
            // This is no path, so an erasure could not match it.
            json!({"command": "view", "path": {"size_bytes": 26}}),
            json!({"command": "view", "path": "/memories"}),
            json!({"command": "view", "path": "/memories/b.md"}),
        ]
    );
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

async fn invalid_tool_names_are_not_recorded(setup: TestEngine) {
    let made = setup.open(&[(setup.store_id, Access::ReadWrite)]).await;
    let id = made.session.session_id;
    for name in ["no\0tool", "", "a secret", "some_tool"] {
        let mounts = setup.engine.sessions.mounts(&setup.principal, id).await.unwrap();
        let odd = tool_call(
            None,
            json!({"command": "a secret", "a\0": "b", "path": "/memories"}),
        );
        let answer = setup.engine.tools.call(&setup.principal, mounts, name, odd).await;
        assert!(answer.unwrap().is_error);
    }
    setup.engine.replica.flush().await.unwrap();
    let kept = events(&setup, &setup.replica(), id).await;
    let mut names: Vec<_> = kept.iter().map(|event| event.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["some_tool", "unknown", "unknown", "unknown"]);
    let without = json!({"command": {"size_bytes": 8}, "path": "/memories"});
    assert!(inputs(&kept).iter().all(|input| *input == without), "{kept:?}");
}

async fn events_are_paged_in_both_orders(setup: TestEngine) {
    let made = setup.open(&[(setup.store_id, Access::ReadWrite)]).await;
    let id = made.session.session_id;
    for number in 0..7 {
        setup.clock.advance(Duration::from_secs(1));
        call(
            &setup.engine,
            &setup.principal,
            id,
            view(&format!("/memories/notes/{number}")),
        )
        .await;
        if number == 3 {
            setup.engine.replica.flush().await.unwrap();
        }
    }
    let whole = events(&setup, &setup.engine, id).await;
    assert_eq!(whole.len(), 7);
    for newest_first in [false, true] {
        let mut query = EventQuery {
            newest_first,
            page: PageRequest {
                limit: Some(2),
                page: None,
            },
            ..EventQuery::default()
        };
        let mut seen = Vec::new();
        loop {
            let page = setup
                .engine
                .events
                .list(&setup.principal, id, &query)
                .await
                .unwrap();
            seen.extend(inputs(&page.items));
            query.page.page = page.next;
            if query.page.page.is_none() {
                break;
            }
        }
        if newest_first {
            seen.reverse();
        }
        assert_eq!(seen, inputs(&whole));
    }
    let late = EventQuery {
        from: Some(whole[2].at),
        to: Some(whole[5].at),
        ..EventQuery::default()
    };
    let page = setup
        .engine
        .events
        .list(&setup.principal, id, &late)
        .await
        .unwrap();
    assert_eq!(inputs(&page.items), inputs(&whole[2..=5]));
}

async fn page_of_events_holds_up_to_a_thousand(setup: TestEngine) {
    let made = setup.open(&[(setup.store_id, Access::ReadWrite)]).await;
    let id = made.session.session_id;
    for number in 0..103 {
        setup.clock.advance(Duration::from_secs(1));
        let path = format!("/memories/notes/{number}");
        call(&setup.engine, &setup.principal, id, view(&path)).await;
    }
    setup.engine.replica.flush().await.unwrap();
    let page_of = async |limit| {
        let query = EventQuery {
            page: PageRequest {
                limit: Some(limit),
                page: None,
            },
            ..EventQuery::default()
        };
        setup.engine.events.list(&setup.principal, id, &query).await
    };
    assert_eq!(page_of(101).await.unwrap().items.len(), 101);
    assert_eq!(page_of(1_000).await.unwrap().items.len(), 103);
    for limit in [0, 1_001] {
        let refused = page_of(limit).await.unwrap_err();
        let rule = format!("`limit` must be 1 to 1000, but is {limit}");
        assert_eq!(refused.to_string(), rule);
    }
}

async fn read_in_a_session_writes_nothing_before_the_flush(setup: TestEngine) {
    let made = setup.open(&[(setup.store_id, Access::ReadWrite)]).await;
    let id = made.session.session_id;
    let principal = holder(&setup.engine, &made).await;
    setup.create("/memories/a", "x").await;
    for _ in 0..3 {
        call(&setup.engine, &principal, id, view("/memories/notes/a")).await;
    }
    let replica = setup.replica();
    assert_eq!(events(&setup, &replica, id).await.len(), 0);
    let session = replica.sessions.get(&setup.principal, id).await.unwrap();
    assert_eq!(session.last_used_at, None);
}
