//! The lifetime of a session's token.

use std::time::Duration;

use keepsake_engine::EngineError;
use keepsake_tokens::TokenError;

use super::holder;
use crate::test_engine::TestEngine;

crate::on_backend! {
    sqlite,
    on_sqlite,
    token_lives_a_day_and_no_longer_than_its_creating_key,
}

async fn token_lives_a_day_and_no_longer_than_its_creating_key(setup: TestEngine) {
    let made = setup.open(&[]).await;
    setup.clock.advance(Duration::from_hours(24) - Duration::from_secs(1));
    holder(&setup.engine, &made).await;
    // A minute is what clocks may differ by.
    setup.clock.advance(Duration::from_secs(61));
    let refused = setup.engine.auth.authenticate(made.token.as_deref().unwrap()).await.unwrap_err();
    assert!(matches!(refused, EngineError::Token(TokenError::Expired)), "{refused}");
    let new = keepsake_engine::NewKey {
        tenant_id: setup.principal.tenant_id,
        name: "short".to_owned(),
        scopes: keepsake_index::Scope::ALL.to_vec(),
        store_ids: None,
        expires_at: Some(setup.engine_now().plus(Duration::from_hours(1))),
    };
    let (_, secret) = setup.engine.operator.keys.create(new).await.unwrap();
    let short = setup.engine.auth.authenticate(secret.expose()).await.unwrap();
    let token = setup.engine.sessions.issue_token(&short, made.session.session_id).await.unwrap();
    setup.clock.advance(Duration::from_mins(59));
    setup.engine.auth.authenticate(&token).await.unwrap();
    setup.clock.advance(Duration::from_mins(2));
    let refused = setup.engine.auth.authenticate(&token).await.unwrap_err();
    assert!(matches!(refused, EngineError::Token(TokenError::Expired)), "{refused}");
}
