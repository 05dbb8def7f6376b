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
use crate::bed::{Bed, create, new_memory, view};
use crate::credentials::trusting;

crate::on_both_databases! {
    token_never_reaches_stores_that_its_key_may_not_see,
    token_of_a_reading_key_never_writes,
    token_of_an_issuers_token_has_its_scopes_and_ends_with_it,
    token_ends_at_the_moment_its_key_expires,
    credential_in_its_leeway_obtains_no_session_token,
    bound_key_neither_sees_nor_makes_sessions_without_stores,
    stores_attached_after_the_check_are_not_shown_to_a_bound_key,
    session_is_shown_only_to_those_who_may_read,
}

/// How long a replica may go on believing.
const FELT: Duration = Duration::from_secs(5);
const SESSIONS: [Scope; 3] = [Scope::SessionsWrite, Scope::MemoryRead, Scope::MemoryWrite];

async fn attach(bed: &Bed, session_id: keepsake_core::SessionId, store_id: StoreId) {
    let draft = AttachmentDraft {
        store_id,
        access: Some(Access::ReadWrite),
        instructions: Some("For others.".to_owned()),
    };
    let attached = bed.engine.attach(&bed.principal, session_id, draft, None);
    attached.await.unwrap();
}

async fn token_never_reaches_stores_that_its_key_may_not_see(bed: Bed) {
    let engine = &bed.engine;
    let other = bed.store("other").await.store_id;
    let bound = bed.key_with(&SESSIONS, Some(vec![bed.store_id])).await;
    let own = draft(&[(bed.store_id, Access::ReadWrite)]);
    let made = engine.create_session(&bound, own, None).await.unwrap();
    let id = made.session.session_id;
    attach(&bed, id, other).await;
    bed.clock.advance(FELT);
    let by_admin = engine.session_token(&bed.principal, id).await.unwrap();
    let admin = engine.authenticate(&by_admin).await.unwrap();
    call(engine, &admin, id, create("/memories/other/secret.md", "x")).await;
    for replica in [engine, &bed.replica()] {
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
            .create_memory(&principal, other, new_memory("/a", "x"))
            .await;
        assert!(matches!(refused, Err(EngineError::StoreNotFound)), "{refused:?}");
        let shown = replica.session(&principal, id).await.unwrap();
        assert_eq!(shown.attachments.len(), 1, "{shown:?}");
        let events = replica
            .session_events(&principal, id, &EventQuery::default())
            .await
            .unwrap();
        let names_other = |event: &keepsake_index::SessionEvent| format!("{event:?}").contains("other/");
        assert!(!events.items.iter().any(names_other), "{events:?}");
    }
    // The token of a key that sees both reaches both.
    let shown = call(engine, &admin, id, view("/memories/other/secret.md")).await;
    assert!(!shown.is_error, "{}", shown.content);
}

async fn token_of_a_reading_key_never_writes(bed: Bed) {
    let engine = &bed.engine;
    let reader = bed
        .key_with(&[Scope::SessionsWrite, Scope::MemoryRead], None)
        .await;
    let reads = draft(&[(bed.store_id, Access::ReadOnly)]);
    let made = engine.create_session(&reader, reads, None).await.unwrap();
    let id = made.session.session_id;
    let edit = AttachmentEdit {
        access: Some(Access::ReadWrite),
        instructions: None,
    };
    let name = AttachmentName::Store(bed.store_id);
    engine
        .update_attachment(&bed.principal, id, name, edit, None)
        .await
        .unwrap();
    bed.clock.advance(FELT);
    let principal = holder(engine, &made).await;
    let refused = call(engine, &principal, id, create("/memories/notes/a.md", "x")).await;
    assert!(
        refused.is_error && refused.content.contains("read-only"),
        "{}",
        refused.content
    );
    let refused = engine
        .create_memory(&principal, bed.store_id, new_memory("/a", "x"))
        .await;
    assert!(
        matches!(refused, Err(EngineError::PermissionDenied(Scope::MemoryWrite))),
        "{refused:?}"
    );
    let shown = engine.session(&principal, id).await.unwrap();
    assert_eq!(shown.attachments[0].access, Access::ReadOnly);
    assert_eq!(bed.operations().await, Vec::<&str>::new());
}

/// A replica that trusts an issuer, and a token of it that ends in so many seconds.
async fn issued(bed: &Bed, scope: &str, ends_in_secs: i64) -> (Engine, Arc<Principal>) {
    let key = IssuerKey::ed25519();
    let engine = bed.replica_with(|options| options.issuers = trusting(&key, Subject::User));
    let now_secs = bed.engine_now().as_micros() / 1_000_000;
    let claims = json!({
        "iss": "https://id.example.com", "aud": "keepsake", "sub": "ada", "scope": scope,
        "org": bed.principal.tenant_id.to_string(), "exp": now_secs + ends_in_secs,
    });
    let principal = engine.authenticate(&key.token("any", &claims)).await.unwrap();
    (engine, principal)
}

async fn token_of_an_issuers_token_has_its_scopes_and_ends_with_it(bed: Bed) {
    let (engine, ada) = issued(&bed, "sessions:write memory:read", 5).await;
    let reads = draft(&[(bed.store_id, Access::ReadOnly)]);
    let made = engine.create_session(&ada, reads, None).await.unwrap();
    let again = engine.session_token(&ada, made.session.session_id).await.unwrap();
    let tokens = [made.token.unwrap(), again];
    for token in &tokens {
        let principal = engine.authenticate(token).await.unwrap();
        assert!(principal.require(Scope::MemoryWrite).is_err());
    }
    // The issuer's own token is refused from then on, too: a minute is what clocks
    // may differ by.
    bed.clock.advance(Duration::from_secs(66));
    for token in &tokens {
        let refused = engine.authenticate(token).await.unwrap_err();
        assert!(
            matches!(refused, EngineError::Token(TokenError::Expired)),
            "{refused}"
        );
    }
}

async fn token_ends_at_the_moment_its_key_expires(bed: Bed) {
    let new = NewKey {
        tenant_id: bed.principal.tenant_id,
        name: "short".to_owned(),
        scopes: SESSIONS.to_vec(),
        store_ids: None,
        expires_at: Some(bed.engine_now().plus(Duration::from_mins(1))),
    };
    let (_, secret) = bed.engine.operator().create_key(new).await.unwrap();
    let short = bed.engine.authenticate(secret.expose()).await.unwrap();
    let made = bed.engine.create_session(&short, draft(&[]), None).await.unwrap();
    bed.clock.advance(Duration::from_secs(59));
    holder(&bed.engine, &made).await;
    bed.clock.advance(Duration::from_secs(1));
    let refused = bed
        .engine
        .authenticate(made.token.as_deref().unwrap())
        .await
        .unwrap_err();
    assert!(matches!(refused, EngineError::Unauthenticated(_)), "{refused}");
}

async fn credential_in_its_leeway_obtains_no_session_token(bed: Bed) {
    let (engine, ada) = issued(&bed, "sessions:write memory:read", 0).await;
    let refused = engine.create_session(&ada, draft(&[]), None).await.unwrap_err();
    assert!(
        matches!(refused, EngineError::Token(TokenError::Expired)),
        "{refused}"
    );
    let all = SessionQuery {
        live: true,
        ..SessionQuery::default()
    };
    let listed = bed.engine.sessions(&bed.principal, &all).await.unwrap();
    assert!(listed.items.is_empty(), "{listed:?}");
}

fn assert_hidden<T: std::fmt::Debug>(outcome: &Result<T, EngineError>) {
    assert!(
        matches!(outcome, Err(EngineError::SessionNotFound)),
        "{outcome:?}"
    );
}

async fn bound_key_neither_sees_nor_makes_sessions_without_stores(bed: Bed) {
    let engine = &bed.engine;
    let bound = bed.key_with(&SESSIONS, Some(vec![bed.store_id])).await;
    let id = bed.open(&[]).await.session.session_id;
    assert_hidden(&engine.session(&bound, id).await);
    assert_hidden(&engine.session_token(&bound, id).await);
    assert_hidden(
        &engine
            .update_session(&bound, id, SessionEdit::default(), None)
            .await,
    );
    assert_hidden(&engine.archive_session(&bound, id).await);
    assert_hidden(&engine.delete_session(&bound, id).await);
    assert_hidden(&engine.session_events(&bound, id, &EventQuery::default()).await);
    assert_hidden(&try_call(engine, &bound, id, view("/memories")).await);
    let own = AttachmentDraft {
        store_id: bed.store_id,
        access: None,
        instructions: None,
    };
    assert_hidden(&engine.attach(&bound, id, own, None).await);
    let all = SessionQuery {
        live: true,
        ..SessionQuery::default()
    };
    let listed = engine.sessions(&bound, &all).await.unwrap();
    assert!(listed.items.is_empty(), "{listed:?}");
    let refused = engine.create_session(&bound, draft(&[]), None).await;
    assert_eq!(refused_field(refused), "resources");
}

async fn stores_attached_after_the_check_are_not_shown_to_a_bound_key(bed: Bed) {
    let engine = &bed.engine;
    let other = bed.store("other").await.store_id;
    let bound = bed.key_with(&SESSIONS, Some(vec![bed.store_id])).await;
    let id = bed
        .open(&[(bed.store_id, Access::ReadWrite)])
        .await
        .session
        .session_id;
    let edit = SessionEdit {
        title: Some("mine".to_owned()),
        ..SessionEdit::default()
    };
    let named = bed.call_named("k", "body");
    engine
        .update_session(&bound, id, edit.clone(), Some(named))
        .await
        .unwrap();
    attach(&bed, id, other).await;
    // The same call again would be answered with the session as it is now.
    assert_hidden(&engine.update_session(&bound, id, edit, Some(named)).await);
}

async fn session_is_shown_only_to_those_who_may_read(bed: Bed) {
    let engine = &bed.engine;
    let blind = bed
        .key_with(&[Scope::SessionsWrite, Scope::MemoryWrite], None)
        .await;
    let made = bed.open(&[(bed.store_id, Access::ReadWrite)]).await;
    let id = made.session.session_id;
    let name = AttachmentName::Store(bed.store_id);
    let own = AttachmentDraft {
        store_id: bed.store("other").await.store_id,
        access: None,
        instructions: None,
    };
    let outcomes = [
        engine
            .update_session(&blind, id, SessionEdit::default(), None)
            .await
            .map(drop),
        engine.archive_session(&blind, id).await.map(drop),
        engine.attach(&blind, id, own, None).await.map(drop),
        engine
            .update_attachment(&blind, id, name, AttachmentEdit::default(), None)
            .await
            .map(drop),
        engine.create_session(&blind, draft(&[]), None).await.map(drop),
        engine.session_token(&blind, id).await.map(drop),
    ];
    for outcome in outcomes {
        assert!(
            matches!(outcome, Err(EngineError::PermissionDenied(Scope::MemoryRead))),
            "{outcome:?}"
        );
    }
    assert_eq!(engine.session(&bed.principal, id).await.unwrap(), made.session);
    // What answers nothing of the session needs no more than the scope to change it.
    engine.detach(&blind, id, name).await.unwrap();
    engine.delete_session(&blind, id).await.unwrap();
    assert!(matches!(bed.principal.actor, Actor::ApiKey(_)));
}
