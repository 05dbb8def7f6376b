//! What a session's token may do, and until when.

use std::sync::Arc;
use std::time::Duration;

use keepsake_core::Actor;
use keepsake_engine::{AttachmentEdit, Engine, EngineError, MadeSession, NewMemory, Principal, View};
use keepsake_index::{Access, AttachmentName};
use keepsake_tokens::TokenError;

use super::{call, holder, try_call};
use crate::bed::{Bed, create, edit_of, new_memory, tool_call, view};

crate::on_both_databases! {
    token_works_in_its_session_on_every_replica,
    token_of_an_archived_session_is_refused_within_five_seconds,
    token_of_a_deleted_session_is_refused_within_five_seconds,
    change_of_an_attachment_is_felt_within_five_seconds,
    what_is_attached_to_be_read_is_written_on_no_way,
    token_does_nothing_beside_its_memories,
    token_lives_a_day_and_no_longer_than_the_key_that_asked_for_it,
    token_ends_with_the_key_that_asked_for_it_within_five_seconds,
    block_that_is_sent_again_writes_once,
    block_of_another_session_is_another_call,
}

/// How long a replica may go on believing.
const FELT: Duration = Duration::from_secs(5);

async fn token_works_in_its_session_on_every_replica(bed: Bed) {
    let made = bed.open(&[(bed.store_id, Access::ReadWrite)]).await;
    let id = made.session.session_id;
    let replica = bed.replica();
    let principal = holder(&replica, &made).await;
    assert_eq!(principal.actor, Actor::Session(id));
    assert_eq!(principal.tenant_id, bed.principal.tenant_id);
    let made_file = call(&replica, &principal, id, create("/memories/notes/a.md", "x")).await;
    assert_eq!(
        made_file.content,
        "File created successfully at: /memories/notes/a.md"
    );
    let seen = call(&bed.engine, &principal, id, view("/mnt/memory/notes/a.md")).await;
    assert!(seen.content.ends_with("     1\tx"), "{}", seen.content);
    let version = bed
        .index
        .versions
        .find_at(principal.tenant_id, bed.store_id, 1)
        .await;
    assert_eq!(version.unwrap().unwrap().created_by, Some(Actor::Session(id)));
    // A key that calls in the session writes as itself.
    call(
        &bed.engine,
        &bed.principal,
        id,
        create("/memories/notes/b.md", "x"),
    )
    .await;
    let version = bed
        .index
        .versions
        .find_at(principal.tenant_id, bed.store_id, 2)
        .await;
    assert_eq!(
        version.unwrap().unwrap().created_by,
        Some(bed.principal.actor.clone())
    );
    let other = bed
        .open(&[(bed.store_id, Access::ReadWrite)])
        .await
        .session
        .session_id;
    let refused = try_call(&replica, &principal, other, view("/memories")).await;
    assert!(
        matches!(refused, Err(EngineError::SessionNotFound)),
        "{refused:?}"
    );
    let refused = replica.session(&principal, other).await;
    assert!(
        matches!(refused, Err(EngineError::SessionNotFound)),
        "{refused:?}"
    );
    assert_eq!(replica.session(&principal, id).await.unwrap(), made.session);
}

async fn assert_ends(bed: &Bed, made: &MadeSession, replica: &Engine) {
    let token = made.token.as_deref().unwrap();
    let refused = bed.engine.authenticate(token).await.unwrap_err();
    assert!(
        matches!(
            refused,
            EngineError::Unauthenticated("the token's session has ended")
        ),
        "{refused}"
    );
    bed.clock.advance(FELT);
    let refused = replica.authenticate(token).await.unwrap_err();
    assert!(
        matches!(
            refused,
            EngineError::Unauthenticated("the token's session has ended")
        ),
        "{refused}"
    );
}

async fn token_of_an_archived_session_is_refused_within_five_seconds(bed: Bed) {
    let made = bed.open(&[(bed.store_id, Access::ReadWrite)]).await;
    let id = made.session.session_id;
    let replica = bed.replica();
    for engine in [&bed.engine, &replica] {
        holder(engine, &made).await;
    }
    let archived = bed.engine.archive_session(&bed.principal, id).await.unwrap();
    assert!(archived.archived_at.is_some());
    assert_ends(&bed, &made, &replica).await;
    let again = bed.engine.archive_session(&bed.principal, id).await.unwrap();
    assert_eq!(again, archived);
    let refused = bed.engine.session_token(&bed.principal, id).await;
    assert!(
        matches!(refused, Err(EngineError::SessionArchived)),
        "{refused:?}"
    );
    for engine in [&bed.engine, &replica] {
        let refused = try_call(engine, &bed.principal, id, view("/memories")).await;
        assert!(
            matches!(refused, Err(EngineError::SessionArchived)),
            "{refused:?}"
        );
    }
}

async fn token_of_a_deleted_session_is_refused_within_five_seconds(bed: Bed) {
    let made = bed.open(&[(bed.store_id, Access::ReadWrite)]).await;
    let id = made.session.session_id;
    let replica = bed.replica();
    for engine in [&bed.engine, &replica] {
        holder(engine, &made).await;
    }
    bed.engine.delete_session(&bed.principal, id).await.unwrap();
    assert_ends(&bed, &made, &replica).await;
    for engine in [&bed.engine, &replica] {
        let refused = engine.session(&bed.principal, id).await;
        assert!(
            matches!(refused, Err(EngineError::SessionNotFound)),
            "{refused:?}"
        );
        let refused = engine.delete_session(&bed.principal, id).await;
        assert!(
            matches!(refused, Err(EngineError::SessionNotFound)),
            "{refused:?}"
        );
    }
}

async fn change_of_an_attachment_is_felt_within_five_seconds(bed: Bed) {
    let made = bed.open(&[(bed.store_id, Access::ReadWrite)]).await;
    let id = made.session.session_id;
    let replica = bed.replica();
    let write = async |path: &str| {
        let principal = holder(&replica, &made).await;
        call(&replica, &principal, id, create(path, "x")).await
    };
    assert!(!write("/memories/notes/1").await.is_error);
    let edit = AttachmentEdit {
        access: Some(Access::ReadOnly),
        instructions: None,
    };
    let name = AttachmentName::Store(bed.store_id);
    bed.engine
        .update_attachment(&bed.principal, id, name, edit, None)
        .await
        .unwrap();
    bed.clock.advance(FELT);
    let refused = write("/memories/notes/2").await;
    assert!(
        refused.is_error && refused.content.contains("read-only"),
        "{}",
        refused.content
    );
    bed.engine.detach(&bed.principal, id, name).await.unwrap();
    bed.clock.advance(FELT);
    let refused = write("/memories/notes/3").await;
    assert!(
        refused.content.contains("None is attached"),
        "{}",
        refused.content
    );
    let principal = holder(&replica, &made).await;
    let refused = replica
        .memory(
            &principal,
            bed.store_id,
            keepsake_core::MemoryId::from_uuid(uuid::Uuid::nil()),
            View::Basic,
        )
        .await;
    assert!(matches!(refused, Err(EngineError::StoreNotFound)), "{refused:?}");
}

/// Everything that changes a memory but by a tool.
async fn changes(bed: &Bed, principal: &Arc<Principal>) -> Vec<(&'static str, Result<(), EngineError>)> {
    let engine = &bed.engine;
    let memory = bed.make("/there.md", "x").await;
    let memory_id = memory.memory.head.memory_id;
    let pinned = keepsake_engine::MemoryEdit {
        pinned: Some(true),
        ..edit_of(None, None, None)
    };
    let replaced = NewMemory {
        on_taken: keepsake_engine::OnTaken::Replace,
        ..new_memory("/there.md", "y")
    };
    let store_id = bed.store_id;
    vec![
        (
            "create",
            engine
                .create_memory(principal, store_id, new_memory("/new.md", "x"))
                .await
                .map(drop),
        ),
        (
            "replace",
            engine
                .create_memory(principal, store_id, replaced)
                .await
                .map(drop),
        ),
        (
            "edit",
            engine
                .update_memory(principal, store_id, memory_id, edit_of(Some("z"), None, None))
                .await
                .map(drop),
        ),
        (
            "rename",
            engine
                .update_memory(principal, store_id, memory_id, edit_of(None, Some("/b"), None))
                .await
                .map(drop),
        ),
        (
            "pin",
            engine
                .update_memory(principal, store_id, memory_id, pinned)
                .await
                .map(drop),
        ),
        (
            "delete",
            engine.delete_memory(principal, store_id, memory_id, None).await,
        ),
    ]
}

async fn what_is_attached_to_be_read_is_written_on_no_way(bed: Bed) {
    let made = bed.open(&[(bed.store_id, Access::ReadOnly)]).await;
    let id = made.session.session_id;
    let principal = holder(&bed.engine, &made).await;
    for (what, outcome) in changes(&bed, &principal).await {
        assert!(
            matches!(outcome, Err(EngineError::ReadOnly)),
            "{what}: {outcome:?}"
        );
    }
    let commands = [
        create("/memories/notes/new.md", "x"),
        serde_json::json!({"command": "str_replace", "path": "/memories/notes/there.md", "old_str": "x", "new_str": "y"}),
        crate::bed::insert("/memories/notes/there.md", 0, "y"),
        serde_json::json!({"command": "delete", "path": "/memories/notes/there.md"}),
        serde_json::json!({"command": "rename", "old_path": "/memories/notes/there.md", "new_path": "/memories/notes/b"}),
    ];
    for command in commands {
        // With the token and with a key, by the session and by the store.
        for caller in [&principal, &bed.principal] {
            let refused = call(&bed.engine, caller, id, command.clone()).await;
            assert!(
                refused.is_error && refused.content.contains("read-only"),
                "{}",
                refused.content
            );
        }
        let text = command.to_string().replace("/memories/notes/", "/memories/");
        let on_store = tool_call(None, serde_json::from_str(&text).unwrap());
        let refused = bed
            .engine
            .call_tool_named(&principal, bed.store_id, "memory", on_store)
            .await;
        let refused = refused.unwrap();
        assert!(
            refused.is_error && refused.content.contains("read-only"),
            "{}",
            refused.content
        );
    }
    assert_eq!(bed.operations().await, ["created"]);
    // The same are done where the store is attached to be written.
    let made = bed
        .open(&[(bed.store("w").await.store_id, Access::ReadOnly)])
        .await;
    drop(made);
    let made = bed.open(&[(bed.store_id, Access::ReadWrite)]).await;
    let principal = holder(&bed.engine, &made).await;
    bed.delete(&bed.make("/gone.md", "x").await, None).await.unwrap();
    let there = bed.head("/there.md").await.unwrap();
    bed.engine
        .delete_memory(&bed.principal, bed.store_id, there.memory_id, None)
        .await
        .unwrap();
    for (what, outcome) in changes(&bed, &principal).await {
        assert!(outcome.is_ok(), "{what}: {outcome:?}");
    }
}

async fn token_does_nothing_beside_its_memories(bed: Bed) {
    let memory = bed.make("/a.md", "x").await;
    let version_id = memory.memory.head.version_id;
    let made = bed.open(&[(bed.store_id, Access::ReadWrite)]).await;
    let id = made.session.session_id;
    let principal = holder(&bed.engine, &made).await;
    let engine = &bed.engine;
    let restoration = keepsake_engine::Restoration {
        precondition: None,
        view: View::Basic,
        idempotency: None,
    };
    let name = AttachmentName::Store(bed.store_id);
    let outcomes: Vec<(&str, Result<(), EngineError>)> = vec![
        (
            "restore",
            engine
                .restore_version(&principal, bed.store_id, version_id, restoration)
                .await
                .map(drop),
        ),
        (
            "redact",
            engine
                .redact_version(&principal, bed.store_id, version_id)
                .await
                .map(drop),
        ),
        (
            "version",
            engine
                .version(&principal, bed.store_id, version_id, View::Basic)
                .await
                .map(drop),
        ),
        ("store", engine.store(&principal, bed.store_id).await.map(drop)),
        (
            "archive store",
            engine.archive_store(&principal, bed.store_id).await.map(drop),
        ),
        (
            "delete store",
            engine.delete_store(&principal, bed.store_id).await.map(drop),
        ),
        (
            "usage",
            engine.store_usage(&principal, bed.store_id, None).await.map(drop),
        ),
        (
            "sessions",
            engine
                .sessions(&principal, &keepsake_engine::SessionQuery::default())
                .await
                .map(drop),
        ),
        ("token", engine.session_token(&principal, id).await.map(drop)),
        ("archive", engine.archive_session(&principal, id).await.map(drop)),
        ("delete", engine.delete_session(&principal, id).await),
        ("detach", engine.detach(&principal, id, name).await.map(drop)),
        (
            "create",
            engine
                .create_session(&principal, super::draft(&[]), None)
                .await
                .map(drop),
        ),
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
    let other = bed.store("other").await.store_id;
    let refused = engine
        .create_memory(&principal, other, new_memory("/a", "x"))
        .await;
    assert!(matches!(refused, Err(EngineError::StoreNotFound)), "{refused:?}");
    let refused = engine
        .call_tool(&principal, other, tool_call(None, view("/memories")))
        .await;
    assert!(matches!(refused, Err(EngineError::StoreNotFound)), "{refused:?}");
}

async fn token_lives_a_day_and_no_longer_than_the_key_that_asked_for_it(bed: Bed) {
    let made = bed.open(&[]).await;
    bed.clock
        .advance(Duration::from_hours(24) - Duration::from_secs(1));
    holder(&bed.engine, &made).await;
    // A minute is what clocks may differ by.
    bed.clock.advance(Duration::from_secs(61));
    let refused = bed
        .engine
        .authenticate(made.token.as_deref().unwrap())
        .await
        .unwrap_err();
    assert!(
        matches!(refused, EngineError::Token(TokenError::Expired)),
        "{refused}"
    );
    let new = keepsake_engine::NewKey {
        tenant_id: bed.principal.tenant_id,
        name: "short".to_owned(),
        scopes: keepsake_index::Scope::ALL.to_vec(),
        store_ids: None,
        expires_at: Some(bed.engine_now().plus(Duration::from_hours(1))),
    };
    let (_, secret) = bed.engine.operator().create_key(new).await.unwrap();
    let short = bed.engine.authenticate(secret.expose()).await.unwrap();
    let token = bed
        .engine
        .session_token(&short, made.session.session_id)
        .await
        .unwrap();
    bed.clock.advance(Duration::from_mins(59));
    bed.engine.authenticate(&token).await.unwrap();
    bed.clock.advance(Duration::from_mins(2));
    let refused = bed.engine.authenticate(&token).await.unwrap_err();
    assert!(
        matches!(refused, EngineError::Token(TokenError::Expired)),
        "{refused}"
    );
}

async fn block_that_is_sent_again_writes_once(bed: Bed) {
    let made = bed.open(&[(bed.store_id, Access::ReadWrite)]).await;
    let principal = holder(&bed.engine, &made).await;
    bed.create("/memories/a", "x\n").await;
    for engine in [&bed.engine, &bed.replica()] {
        let mounts = engine
            .session_mounts(&principal, made.session.session_id)
            .await
            .unwrap();
        let block = tool_call(Some("toolu_1"), crate::bed::insert("/memories/notes/a", 1, "y"));
        let answer = engine
            .call_tool_named(&principal, mounts, "memory", block)
            .await
            .unwrap();
        assert!(!answer.is_error, "{}", answer.content);
    }
    assert_eq!(bed.text_at(&bed.engine, "/memories/a").await, "x\ny\n");
}

async fn token_ends_with_the_key_that_asked_for_it_within_five_seconds(bed: Bed) {
    let made = bed.open(&[(bed.store_id, Access::ReadWrite)]).await;
    let id = made.session.session_id;
    let other = bed.key_with(&keepsake_index::Scope::ALL, None).await;
    let token = bed.engine.session_token(&other, id).await.unwrap();
    let replica = bed.replica();
    for engine in [&bed.engine, &replica] {
        engine.authenticate(&token).await.unwrap();
        holder(engine, &made).await;
    }
    let Actor::ApiKey(key) = other.actor else {
        panic!("{:?}", other.actor)
    };
    bed.engine.revoke_api_key(&bed.principal, key).await.unwrap();
    bed.clock.advance(FELT);
    for engine in [&bed.engine, &replica] {
        let refused = engine.authenticate(&token).await.unwrap_err();
        assert!(matches!(refused, EngineError::Unauthenticated(_)), "{refused}");
        // Its session goes on, and so does what was issued to others.
        holder(engine, &made).await;
    }
}

async fn block_of_another_session_is_another_call(bed: Bed) {
    bed.create("/memories/a", "x\n").await;
    for _ in 0..2 {
        let made = bed.open(&[(bed.store_id, Access::ReadWrite)]).await;
        let mounts = bed
            .engine
            .session_mounts(&bed.principal, made.session.session_id)
            .await
            .unwrap();
        // Harnesses that number their calls begin anew in each session.
        let block = tool_call(Some("1"), crate::bed::insert("/memories/notes/a", 1, "y"));
        let answer = bed
            .engine
            .call_tool_named(&bed.principal, mounts, "memory", block)
            .await
            .unwrap();
        assert!(!answer.is_error, "{}", answer.content);
    }
    assert_eq!(bed.text_at(&bed.engine, "/memories/a").await, "x\ny\ny\n");
}
