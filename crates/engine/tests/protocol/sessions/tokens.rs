//! The permissions and the lifetime of a session's token.

use std::sync::Arc;
use std::time::Duration;

use keepsake_core::Actor;
use keepsake_engine::{AttachmentEdit, Engine, EngineError, MadeSession, NewMemory, Principal, View};
use keepsake_index::{Access, AttachmentName};
use keepsake_tokens::TokenError;

use super::{call, holder, try_call};
use crate::test_engine::{TestEngine, create, edit_of, new_memory, tool_call, view};

crate::on_both_databases! {
    token_works_in_its_session_on_every_replica,
    token_of_an_archived_session_is_refused_within_five_seconds,
    token_of_a_deleted_session_is_refused_within_five_seconds,
    change_of_an_attachment_takes_effect_within_five_seconds,
    read_only_attachment_rejects_writes,
    session_token_is_limited_to_memories,
    token_lives_a_day_and_no_longer_than_its_creating_key,
    token_ends_with_its_creating_key_within_five_seconds,
    repeated_block_writes_once,
    same_block_id_in_another_session_is_another_call,
}

/// How long a replica may go on believing.
const FELT: Duration = Duration::from_secs(5);

async fn token_works_in_its_session_on_every_replica(setup: TestEngine) {
    let made = setup.open(&[(setup.store_id, Access::ReadWrite)]).await;
    let id = made.session.session_id;
    let replica = setup.replica();
    let principal = holder(&replica, &made).await;
    assert_eq!(principal.actor, Actor::Session(id));
    assert_eq!(principal.tenant_id, setup.principal.tenant_id);
    let made_file = call(&replica, &principal, id, create("/memories/notes/a.md", "x")).await;
    assert_eq!(
        made_file.content,
        "File created successfully at: /memories/notes/a.md"
    );
    let seen = call(&setup.engine, &principal, id, view("/mnt/memory/notes/a.md")).await;
    assert!(seen.content.ends_with("     1\tx"), "{}", seen.content);
    let version = setup
        .index
        .versions
        .find_at(principal.tenant_id, setup.store_id, 1)
        .await;
    assert_eq!(version.unwrap().unwrap().created_by, Some(Actor::Session(id)));
    // A key that calls in the session writes as itself.
    call(
        &setup.engine,
        &setup.principal,
        id,
        create("/memories/notes/b.md", "x"),
    )
    .await;
    let version = setup
        .index
        .versions
        .find_at(principal.tenant_id, setup.store_id, 2)
        .await;
    assert_eq!(
        version.unwrap().unwrap().created_by,
        Some(setup.principal.actor.clone())
    );
    let other = setup
        .open(&[(setup.store_id, Access::ReadWrite)])
        .await
        .session
        .session_id;
    let refused = try_call(&replica, &principal, other, view("/memories")).await;
    assert!(
        matches!(refused, Err(EngineError::SessionNotFound)),
        "{refused:?}"
    );
    let refused = replica.sessions.get(&principal, other).await;
    assert!(
        matches!(refused, Err(EngineError::SessionNotFound)),
        "{refused:?}"
    );
    assert_eq!(replica.sessions.get(&principal, id).await.unwrap(), made.session);
}

async fn assert_ends(setup: &TestEngine, made: &MadeSession, replica: &Engine) {
    let token = made.token.as_deref().unwrap();
    let refused = setup.engine.auth.authenticate(token).await.unwrap_err();
    assert!(
        matches!(
            refused,
            EngineError::Unauthenticated("the token's session has ended")
        ),
        "{refused}"
    );
    setup.clock.advance(FELT);
    let refused = replica.auth.authenticate(token).await.unwrap_err();
    assert!(
        matches!(
            refused,
            EngineError::Unauthenticated("the token's session has ended")
        ),
        "{refused}"
    );
}

async fn token_of_an_archived_session_is_refused_within_five_seconds(setup: TestEngine) {
    let made = setup.open(&[(setup.store_id, Access::ReadWrite)]).await;
    let id = made.session.session_id;
    let replica = setup.replica();
    for engine in [&setup.engine, &replica] {
        holder(engine, &made).await;
    }
    let archived = setup.engine.sessions.archive(&setup.principal, id).await.unwrap();
    assert!(archived.archived_at.is_some());
    assert_ends(&setup, &made, &replica).await;
    let again = setup.engine.sessions.archive(&setup.principal, id).await.unwrap();
    assert_eq!(again, archived);
    let refused = setup.engine.sessions.issue_token(&setup.principal, id).await;
    assert!(
        matches!(refused, Err(EngineError::SessionArchived)),
        "{refused:?}"
    );
    for engine in [&setup.engine, &replica] {
        let refused = try_call(engine, &setup.principal, id, view("/memories")).await;
        assert!(
            matches!(refused, Err(EngineError::SessionArchived)),
            "{refused:?}"
        );
    }
}

async fn token_of_a_deleted_session_is_refused_within_five_seconds(setup: TestEngine) {
    let made = setup.open(&[(setup.store_id, Access::ReadWrite)]).await;
    let id = made.session.session_id;
    let replica = setup.replica();
    for engine in [&setup.engine, &replica] {
        holder(engine, &made).await;
    }
    setup.engine.sessions.delete(&setup.principal, id).await.unwrap();
    assert_ends(&setup, &made, &replica).await;
    for engine in [&setup.engine, &replica] {
        let refused = engine.sessions.get(&setup.principal, id).await;
        assert!(
            matches!(refused, Err(EngineError::SessionNotFound)),
            "{refused:?}"
        );
        let refused = engine.sessions.delete(&setup.principal, id).await;
        assert!(
            matches!(refused, Err(EngineError::SessionNotFound)),
            "{refused:?}"
        );
    }
}

async fn change_of_an_attachment_takes_effect_within_five_seconds(setup: TestEngine) {
    let made = setup.open(&[(setup.store_id, Access::ReadWrite)]).await;
    let id = made.session.session_id;
    let replica = setup.replica();
    let write = async |path: &str| {
        let principal = holder(&replica, &made).await;
        call(&replica, &principal, id, create(path, "x")).await
    };
    assert!(!write("/memories/notes/1").await.is_error);
    let edit = AttachmentEdit {
        access: Some(Access::ReadOnly),
        instructions: None,
    };
    let name = AttachmentName::Store(setup.store_id);
    setup
        .engine
        .attachments
        .update(&setup.principal, id, name, edit, None)
        .await
        .unwrap();
    setup.clock.advance(FELT);
    let refused = write("/memories/notes/2").await;
    assert!(
        refused.is_error && refused.content.contains("read-only"),
        "{}",
        refused.content
    );
    setup
        .engine
        .attachments
        .detach(&setup.principal, id, name)
        .await
        .unwrap();
    setup.clock.advance(FELT);
    let refused = write("/memories/notes/3").await;
    assert!(
        refused.content.contains("None is attached"),
        "{}",
        refused.content
    );
    let principal = holder(&replica, &made).await;
    let refused = replica
        .memories
        .get(
            &principal,
            setup.store_id,
            keepsake_core::MemoryId::from_uuid(uuid::Uuid::nil()),
            View::Basic,
        )
        .await;
    assert!(matches!(refused, Err(EngineError::StoreNotFound)), "{refused:?}");
}

/// Everything that changes a memory but by a tool.
async fn changes(
    setup: &TestEngine,
    principal: &Arc<Principal>,
) -> Vec<(&'static str, Result<(), EngineError>)> {
    let engine = &setup.engine;
    let memory = setup.make("/there.md", "x").await;
    let memory_id = memory.memory.head.memory_id;
    let pinned = keepsake_engine::MemoryEdit {
        pinned: Some(true),
        ..edit_of(None, None, None)
    };
    let replaced = NewMemory {
        on_taken: keepsake_engine::OnTaken::Replace,
        ..new_memory("/there.md", "y")
    };
    let store_id = setup.store_id;
    vec![
        (
            "create",
            engine
                .memories
                .create(principal, store_id, new_memory("/new.md", "x"))
                .await
                .map(drop),
        ),
        (
            "replace",
            engine
                .memories
                .create(principal, store_id, replaced)
                .await
                .map(drop),
        ),
        (
            "edit",
            engine
                .memories
                .update(principal, store_id, memory_id, edit_of(Some("z"), None, None))
                .await
                .map(drop),
        ),
        (
            "rename",
            engine
                .memories
                .update(principal, store_id, memory_id, edit_of(None, Some("/b"), None))
                .await
                .map(drop),
        ),
        (
            "pin",
            engine
                .memories
                .update(principal, store_id, memory_id, pinned)
                .await
                .map(drop),
        ),
        (
            "delete",
            engine.memories.delete(principal, store_id, memory_id, None).await,
        ),
    ]
}

async fn read_only_attachment_rejects_writes(setup: TestEngine) {
    let made = setup.open(&[(setup.store_id, Access::ReadOnly)]).await;
    let id = made.session.session_id;
    let principal = holder(&setup.engine, &made).await;
    for (what, outcome) in changes(&setup, &principal).await {
        assert!(
            matches!(outcome, Err(EngineError::ReadOnly)),
            "{what}: {outcome:?}"
        );
    }
    let commands = [
        create("/memories/notes/new.md", "x"),
        serde_json::json!({"command": "str_replace", "path": "/memories/notes/there.md", "old_str": "x", "new_str": "y"}),
        crate::test_engine::insert("/memories/notes/there.md", 0, "y"),
        serde_json::json!({"command": "delete", "path": "/memories/notes/there.md"}),
        serde_json::json!({"command": "rename", "old_path": "/memories/notes/there.md", "new_path": "/memories/notes/b"}),
    ];
    for command in commands {
        // With the token and with a key, by the session and by the store.
        for caller in [&principal, &setup.principal] {
            let refused = call(&setup.engine, caller, id, command.clone()).await;
            assert!(
                refused.is_error && refused.content.contains("read-only"),
                "{}",
                refused.content
            );
        }
        let text = command.to_string().replace("/memories/notes/", "/memories/");
        let on_store = tool_call(None, serde_json::from_str(&text).unwrap());
        let refused = setup
            .engine
            .tools
            .call(&principal, setup.store_id, "memory", on_store)
            .await;
        let refused = refused.unwrap();
        assert!(
            refused.is_error && refused.content.contains("read-only"),
            "{}",
            refused.content
        );
    }
    assert_eq!(setup.operations().await, ["created"]);
    // The same are done where the store is attached to be written.
    let made = setup
        .open(&[(setup.store("w").await.store_id, Access::ReadOnly)])
        .await;
    drop(made);
    let made = setup.open(&[(setup.store_id, Access::ReadWrite)]).await;
    let principal = holder(&setup.engine, &made).await;
    setup
        .delete(&setup.make("/gone.md", "x").await, None)
        .await
        .unwrap();
    let there = setup.head("/there.md").await.unwrap();
    setup
        .engine
        .memories
        .delete(&setup.principal, setup.store_id, there.memory_id, None)
        .await
        .unwrap();
    for (what, outcome) in changes(&setup, &principal).await {
        assert!(outcome.is_ok(), "{what}: {outcome:?}");
    }
}

async fn session_token_is_limited_to_memories(setup: TestEngine) {
    let memory = setup.make("/a.md", "x").await;
    let version_id = memory.memory.head.version_id;
    let made = setup.open(&[(setup.store_id, Access::ReadWrite)]).await;
    let id = made.session.session_id;
    let principal = holder(&setup.engine, &made).await;
    let engine = &setup.engine;
    let restoration = keepsake_engine::Restoration {
        precondition: None,
        view: View::Basic,
        idempotency: None,
    };
    let name = AttachmentName::Store(setup.store_id);
    let (memories, versions, stores) = (&engine.memories, &engine.versions, &engine.stores);
    let (sessions, store_id) = (&engine.sessions, setup.store_id);
    let all = keepsake_engine::SessionQuery::default();
    let restored = memories
        .restore(&principal, store_id, version_id, restoration)
        .await;
    let shown = versions.get(&principal, store_id, version_id, View::Basic).await;
    let usage = engine.usage.of_store(&principal, store_id, None).await;
    let created = sessions.create(&principal, super::draft(&[]), None).await;
    let detached = engine.attachments.detach(&principal, id, name).await;
    let outcomes: Vec<(&str, Result<(), EngineError>)> = vec![
        ("restore", restored.map(drop)),
        (
            "redact",
            versions.redact(&principal, store_id, version_id).await.map(drop),
        ),
        ("version", shown.map(drop)),
        ("store", stores.get(&principal, store_id).await.map(drop)),
        (
            "archive store",
            stores.archive(&principal, store_id).await.map(drop),
        ),
        (
            "delete store",
            stores.delete(&principal, store_id).await.map(drop),
        ),
        ("usage", usage.map(drop)),
        ("sessions", sessions.list(&principal, &all).await.map(drop)),
        ("token", sessions.issue_token(&principal, id).await.map(drop)),
        ("archive", sessions.archive(&principal, id).await.map(drop)),
        ("delete", sessions.delete(&principal, id).await),
        ("detach", detached.map(drop)),
        ("create", created.map(drop)),
    ];
    for (what, outcome) in outcomes {
        assert!(
            matches!(
                outcome,
                Err(EngineError::NotForSessions | EngineError::PermissionDenied(_))
            ),
            "{what}: {outcome:?}"
        );
    }
    let other = setup.store("other").await.store_id;
    let refused = engine
        .memories
        .create(&principal, other, new_memory("/a", "x"))
        .await;
    assert!(matches!(refused, Err(EngineError::StoreNotFound)), "{refused:?}");
    let refused = engine
        .tools
        .memory
        .call(&principal, other, tool_call(None, view("/memories")))
        .await;
    assert!(matches!(refused, Err(EngineError::StoreNotFound)), "{refused:?}");
}

async fn token_lives_a_day_and_no_longer_than_its_creating_key(setup: TestEngine) {
    let made = setup.open(&[]).await;
    setup
        .clock
        .advance(Duration::from_hours(24) - Duration::from_secs(1));
    holder(&setup.engine, &made).await;
    // A minute is what clocks may differ by.
    setup.clock.advance(Duration::from_secs(61));
    let refused = setup
        .engine
        .auth
        .authenticate(made.token.as_deref().unwrap())
        .await
        .unwrap_err();
    assert!(
        matches!(refused, EngineError::Token(TokenError::Expired)),
        "{refused}"
    );
    let new = keepsake_engine::NewKey {
        tenant_id: setup.principal.tenant_id,
        name: "short".to_owned(),
        scopes: keepsake_index::Scope::ALL.to_vec(),
        store_ids: None,
        expires_at: Some(setup.engine_now().plus(Duration::from_hours(1))),
    };
    let (_, secret) = setup.engine.operator.keys.create(new).await.unwrap();
    let short = setup.engine.auth.authenticate(secret.expose()).await.unwrap();
    let token = setup
        .engine
        .sessions
        .issue_token(&short, made.session.session_id)
        .await
        .unwrap();
    setup.clock.advance(Duration::from_mins(59));
    setup.engine.auth.authenticate(&token).await.unwrap();
    setup.clock.advance(Duration::from_mins(2));
    let refused = setup.engine.auth.authenticate(&token).await.unwrap_err();
    assert!(
        matches!(refused, EngineError::Token(TokenError::Expired)),
        "{refused}"
    );
}

async fn repeated_block_writes_once(setup: TestEngine) {
    let made = setup.open(&[(setup.store_id, Access::ReadWrite)]).await;
    let principal = holder(&setup.engine, &made).await;
    setup.create("/memories/a", "x\n").await;
    for engine in [&setup.engine, &setup.replica()] {
        let mounts = engine
            .sessions
            .mounts(&principal, made.session.session_id)
            .await
            .unwrap();
        let block = tool_call(
            Some("toolu_1"),
            crate::test_engine::insert("/memories/notes/a", 1, "y"),
        );
        let answer = engine
            .tools
            .call(&principal, mounts, "memory", block)
            .await
            .unwrap();
        assert!(!answer.is_error, "{}", answer.content);
    }
    assert_eq!(setup.text_at(&setup.engine, "/memories/a").await, "x\ny\n");
}

async fn token_ends_with_its_creating_key_within_five_seconds(setup: TestEngine) {
    let made = setup.open(&[(setup.store_id, Access::ReadWrite)]).await;
    let id = made.session.session_id;
    let other = setup.key_with(&keepsake_index::Scope::ALL, None).await;
    let token = setup.engine.sessions.issue_token(&other, id).await.unwrap();
    let replica = setup.replica();
    for engine in [&setup.engine, &replica] {
        engine.auth.authenticate(&token).await.unwrap();
        holder(engine, &made).await;
    }
    let Actor::ApiKey(key) = other.actor else {
        panic!("{:?}", other.actor)
    };
    setup.engine.keys.revoke(&setup.principal, key).await.unwrap();
    setup.clock.advance(FELT);
    for engine in [&setup.engine, &replica] {
        let refused = engine.auth.authenticate(&token).await.unwrap_err();
        assert!(matches!(refused, EngineError::Unauthenticated(_)), "{refused}");
        // The session stays live, and tokens that other keys requested stay valid.
        holder(engine, &made).await;
    }
}

async fn same_block_id_in_another_session_is_another_call(setup: TestEngine) {
    setup.create("/memories/a", "x\n").await;
    for _ in 0..2 {
        let made = setup.open(&[(setup.store_id, Access::ReadWrite)]).await;
        let mounts = setup
            .engine
            .sessions
            .mounts(&setup.principal, made.session.session_id)
            .await
            .unwrap();
        // Harnesses that number their calls start again at 1 in each session.
        let block = tool_call(Some("1"), crate::test_engine::insert("/memories/notes/a", 1, "y"));
        let answer = setup
            .engine
            .tools
            .call(&setup.principal, mounts, "memory", block)
            .await
            .unwrap();
        assert!(!answer.is_error, "{}", answer.content);
    }
    assert_eq!(setup.text_at(&setup.engine, "/memories/a").await, "x\ny\ny\n");
}
