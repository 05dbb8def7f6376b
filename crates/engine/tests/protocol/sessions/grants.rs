//! A session's token does no more than the credential it was issued to.

use std::sync::Arc;
use std::time::Duration;

use keepsake_core::{Actor, StoreId};
use keepsake_engine::{
    AttachmentDraft, AttachmentEdit, Engine, EngineError, EventQuery, NewKey, Principal, SessionEdit,
    SessionQuery,
};
use keepsake_index::{Access, AttachmentName, Scope};
use keepsake_testkit::IssuerKey;
use keepsake_tokens::{Subject, TokenError};
use serde_json::json;

use super::{call, draft, holder, refused_field, try_call};
use crate::credentials::trusting;
use crate::test_engine::{TestEngine, create, new_memory, view};

crate::on_both_databases! {
    token_never_reaches_stores_that_its_key_may_not_see,
    token_of_a_reading_key_never_writes,
    token_of_an_issuers_token_has_its_scopes_and_ends_with_it,
    token_ends_at_the_moment_its_key_expires,
    credential_in_its_leeway_obtains_no_session_token,
    bound_key_neither_sees_nor_creates_sessions_without_stores,
    stores_attached_after_the_check_are_not_shown_to_a_bound_key,
    session_is_shown_only_with_a_read_scope,
}

/// How long a replica may go on believing.
const FELT: Duration = Duration::from_secs(5);
const SESSIONS: [Scope; 3] = [Scope::SessionsWrite, Scope::MemoryRead, Scope::MemoryWrite];

async fn attach(setup: &TestEngine, session_id: keepsake_core::SessionId, store_id: StoreId) {
    let draft = AttachmentDraft {
        store_id,
        access: Some(Access::ReadWrite),
        instructions: Some("For others.".to_owned()),
    };
    let attached = setup
        .engine
        .attachments
        .attach(&setup.principal, session_id, draft, None);
    attached.await.unwrap();
}

async fn token_never_reaches_stores_that_its_key_may_not_see(setup: TestEngine) {
    let engine = &setup.engine;
    let other = setup.store("other").await.store_id;
    let bound = setup.key_with(&SESSIONS, Some(vec![setup.store_id])).await;
    let own = draft(&[(setup.store_id, Access::ReadWrite)]);
    let made = engine.sessions.create(&bound, own, None).await.unwrap();
    let id = made.session.session_id;
    attach(&setup, id, other).await;
    setup.clock.advance(FELT);
    let by_admin = engine.sessions.issue_token(&setup.principal, id).await.unwrap();
    let admin = engine.auth.authenticate(&by_admin).await.unwrap();
    call(engine, &admin, id, create("/memories/other/secret.md", "x")).await;
    for replica in [engine, &setup.replica()] {
        let principal = holder(replica, &made).await;
        let shown = call(replica, &principal, id, view("/memories")).await;
        assert!(
            shown.content.contains("notes") && !shown.content.contains("other"),
            "{}",
            shown.content
        );
        let refused = call(replica, &principal, id, view("/memories/other/secret.md")).await;
        assert!(refused.is_error, "{}", refused.content);
        let refused = replica
            .memories
            .create(&principal, other, new_memory("/a", "x"))
            .await;
        assert!(matches!(refused, Err(EngineError::StoreNotFound)), "{refused:?}");
        let shown = replica.sessions.get(&principal, id).await.unwrap();
        assert_eq!(shown.attachments.len(), 1, "{shown:?}");
        let events = replica
            .events
            .list(&principal, id, &EventQuery::default())
            .await
            .unwrap();
        let names_other = |event: &keepsake_index::SessionEvent| format!("{event:?}").contains("other/");
        assert!(!events.items.iter().any(names_other), "{events:?}");
    }
    // The token of a key that sees both reaches both.
    let shown = call(engine, &admin, id, view("/memories/other/secret.md")).await;
    assert!(!shown.is_error, "{}", shown.content);
}

async fn token_of_a_reading_key_never_writes(setup: TestEngine) {
    let engine = &setup.engine;
    let reader = setup
        .key_with(&[Scope::SessionsWrite, Scope::MemoryRead], None)
        .await;
    let reads = draft(&[(setup.store_id, Access::ReadOnly)]);
    let made = engine.sessions.create(&reader, reads, None).await.unwrap();
    let id = made.session.session_id;
    let edit = AttachmentEdit {
        access: Some(Access::ReadWrite),
        instructions: None,
    };
    let name = AttachmentName::Store(setup.store_id);
    engine
        .attachments
        .update(&setup.principal, id, name, edit, None)
        .await
        .unwrap();
    setup.clock.advance(FELT);
    let principal = holder(engine, &made).await;
    let refused = call(engine, &principal, id, create("/memories/notes/a.md", "x")).await;
    assert!(
        refused.is_error && refused.content.contains("read-only"),
        "{}",
        refused.content
    );
    let refused = engine
        .memories
        .create(&principal, setup.store_id, new_memory("/a", "x"))
        .await;
    assert!(
        matches!(refused, Err(EngineError::PermissionDenied(Scope::MemoryWrite))),
        "{refused:?}"
    );
    let shown = engine.sessions.get(&principal, id).await.unwrap();
    assert_eq!(shown.attachments[0].access, Access::ReadOnly);
    assert_eq!(setup.operations().await, Vec::<&str>::new());
}

/// A replica that trusts an issuer, and the principal of a token with this remaining time.
async fn issued(setup: &TestEngine, scope: &str, ends_in_secs: i64) -> (Engine, Arc<Principal>) {
    let key = IssuerKey::ed25519();
    let engine = setup.replica_with(|options| options.issuers = trusting(&key, Subject::User));
    let now_secs = setup.engine_now().as_micros() / 1_000_000;
    let claims = json!({
        "iss": "https://id.example.com", "aud": "keepsake", "sub": "ada", "scope": scope,
        "org": setup.principal.tenant_id.to_string(), "exp": now_secs + ends_in_secs,
    });
    let principal = engine
        .auth
        .authenticate(&key.token("any", &claims))
        .await
        .unwrap();
    (engine, principal)
}

async fn token_of_an_issuers_token_has_its_scopes_and_ends_with_it(setup: TestEngine) {
    let (engine, ada) = issued(&setup, "sessions:write memory:read", 5).await;
    let reads = draft(&[(setup.store_id, Access::ReadOnly)]);
    let made = engine.sessions.create(&ada, reads, None).await.unwrap();
    let again = engine
        .sessions
        .issue_token(&ada, made.session.session_id)
        .await
        .unwrap();
    let tokens = [made.token.unwrap(), again];
    for token in &tokens {
        let principal = engine.auth.authenticate(token).await.unwrap();
        assert!(principal.require(Scope::MemoryWrite).is_err());
    }
    // The issuer's own token is refused from then on, too: a minute is what clocks
    // may differ by.
    setup.clock.advance(Duration::from_secs(66));
    for token in &tokens {
        let refused = engine.auth.authenticate(token).await.unwrap_err();
        assert!(
            matches!(refused, EngineError::Token(TokenError::Expired)),
            "{refused}"
        );
    }
}

async fn token_ends_at_the_moment_its_key_expires(setup: TestEngine) {
    let new = NewKey {
        tenant_id: setup.principal.tenant_id,
        name: "short".to_owned(),
        scopes: SESSIONS.to_vec(),
        store_ids: None,
        expires_at: Some(setup.engine_now().plus(Duration::from_mins(1))),
    };
    let (_, secret) = setup.engine.operator.keys.create(new).await.unwrap();
    let short = setup.engine.auth.authenticate(secret.expose()).await.unwrap();
    let made = setup
        .engine
        .sessions
        .create(&short, draft(&[]), None)
        .await
        .unwrap();
    setup.clock.advance(Duration::from_secs(59));
    holder(&setup.engine, &made).await;
    setup.clock.advance(Duration::from_secs(1));
    let refused = setup
        .engine
        .auth
        .authenticate(made.token.as_deref().unwrap())
        .await
        .unwrap_err();
    assert!(matches!(refused, EngineError::Unauthenticated(_)), "{refused}");
}

async fn credential_in_its_leeway_obtains_no_session_token(setup: TestEngine) {
    let (engine, ada) = issued(&setup, "sessions:write memory:read", 0).await;
    let refused = engine.sessions.create(&ada, draft(&[]), None).await.unwrap_err();
    assert!(
        matches!(refused, EngineError::Token(TokenError::Expired)),
        "{refused}"
    );
    let all = SessionQuery {
        live: true,
        ..SessionQuery::default()
    };
    let listed = setup.engine.sessions.list(&setup.principal, &all).await.unwrap();
    assert!(listed.items.is_empty(), "{listed:?}");
}

fn assert_hidden<T: std::fmt::Debug>(outcome: &Result<T, EngineError>) {
    assert!(
        matches!(outcome, Err(EngineError::SessionNotFound)),
        "{outcome:?}"
    );
}

async fn bound_key_neither_sees_nor_creates_sessions_without_stores(setup: TestEngine) {
    let engine = &setup.engine;
    let bound = setup.key_with(&SESSIONS, Some(vec![setup.store_id])).await;
    let id = setup.open(&[]).await.session.session_id;
    assert_hidden(&engine.sessions.get(&bound, id).await);
    assert_hidden(&engine.sessions.issue_token(&bound, id).await);
    assert_hidden(
        &engine
            .sessions
            .update(&bound, id, SessionEdit::default(), None)
            .await,
    );
    assert_hidden(&engine.sessions.archive(&bound, id).await);
    assert_hidden(&engine.sessions.delete(&bound, id).await);
    assert_hidden(&engine.events.list(&bound, id, &EventQuery::default()).await);
    assert_hidden(&try_call(engine, &bound, id, view("/memories")).await);
    let own = AttachmentDraft {
        store_id: setup.store_id,
        access: None,
        instructions: None,
    };
    assert_hidden(&engine.attachments.attach(&bound, id, own, None).await);
    let all = SessionQuery {
        live: true,
        ..SessionQuery::default()
    };
    let listed = engine.sessions.list(&bound, &all).await.unwrap();
    assert!(listed.items.is_empty(), "{listed:?}");
    let refused = engine.sessions.create(&bound, draft(&[]), None).await;
    assert_eq!(refused_field(refused), "resources");
}

async fn stores_attached_after_the_check_are_not_shown_to_a_bound_key(setup: TestEngine) {
    let engine = &setup.engine;
    let other = setup.store("other").await.store_id;
    let bound = setup.key_with(&SESSIONS, Some(vec![setup.store_id])).await;
    let id = setup
        .open(&[(setup.store_id, Access::ReadWrite)])
        .await
        .session
        .session_id;
    let edit = SessionEdit {
        title: Some("mine".to_owned()),
        ..SessionEdit::default()
    };
    let named = setup.call_named("k", "body");
    engine
        .sessions
        .update(&bound, id, edit.clone(), Some(named))
        .await
        .unwrap();
    attach(&setup, id, other).await;
    // The same call again would be answered with the session as it is now.
    assert_hidden(&engine.sessions.update(&bound, id, edit, Some(named)).await);
}

async fn session_is_shown_only_with_a_read_scope(setup: TestEngine) {
    let engine = &setup.engine;
    let blind = setup
        .key_with(&[Scope::SessionsWrite, Scope::MemoryWrite], None)
        .await;
    let made = setup.open(&[(setup.store_id, Access::ReadWrite)]).await;
    let id = made.session.session_id;
    let name = AttachmentName::Store(setup.store_id);
    let own = AttachmentDraft {
        store_id: setup.store("other").await.store_id,
        access: None,
        instructions: None,
    };
    let outcomes = [
        engine
            .sessions
            .update(&blind, id, SessionEdit::default(), None)
            .await
            .map(drop),
        engine.sessions.archive(&blind, id).await.map(drop),
        engine.attachments.attach(&blind, id, own, None).await.map(drop),
        engine
            .attachments
            .update(&blind, id, name, AttachmentEdit::default(), None)
            .await
            .map(drop),
        engine.sessions.create(&blind, draft(&[]), None).await.map(drop),
        engine.sessions.issue_token(&blind, id).await.map(drop),
    ];
    for outcome in outcomes {
        assert!(
            matches!(outcome, Err(EngineError::PermissionDenied(Scope::MemoryRead))),
            "{outcome:?}"
        );
    }
    assert_eq!(
        engine.sessions.get(&setup.principal, id).await.unwrap(),
        made.session
    );
    // Calls that return nothing of the session need only the scope to change it.
    engine.attachments.detach(&blind, id, name).await.unwrap();
    engine.sessions.delete(&blind, id).await.unwrap();
    assert!(matches!(setup.principal.actor, Actor::ApiKey(_)));
}
