//! A session's token does no more than the credential it was issued to.

use std::sync::Arc;
use std::time::Duration;

use keepsake_engine::{Engine, EngineError, NewKey, Principal};
use keepsake_index::{Access, Scope};
use keepsake_testkit::IssuerKey;
use keepsake_tokens::{IssuerSettings, Issuers, KeySource, Subject, TokenError};
use serde_json::json;

use super::{draft, holder};
use crate::test_engine::TestEngine;

crate::on_backend! {
    sqlite,
    on_sqlite,
    token_of_an_issuers_token_has_its_scopes_and_ends_with_it,
    token_ends_at_the_moment_its_key_expires,
}

fn trusting(key: &IssuerKey) -> Arc<Issuers> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key.pem");
    std::fs::write(&file, key.pem()).unwrap();
    let settings = IssuerSettings {
        issuer: "https://id.example.com".to_owned(),
        audience: "keepsake".to_owned(),
        keys: KeySource::File(file),
        tenant_claim: "org".to_owned(),
        scopes_claim: "scope".to_owned(),
        tenants: None,
        actor: Subject::User,
        console: None,
    };
    Arc::new(Issuers::new(vec![settings]).unwrap())
}

/// A replica that trusts an issuer, and the principal of a token that ends in five seconds.
async fn issued(setup: &TestEngine) -> (Engine, Arc<Principal>) {
    let key = IssuerKey::ed25519();
    let engine = setup.replica_with(|options| options.issuers = trusting(&key));
    let now_secs = setup.engine_now().as_micros() / 1_000_000;
    let claims = json!({
        "iss": "https://id.example.com", "aud": "keepsake", "sub": "ada", "scope": "sessions:write memory:read",
        "org": setup.principal.tenant_id.to_string(), "exp": now_secs + 5,
    });
    let principal = engine.auth.authenticate(&key.token("any", &claims)).await.unwrap();
    (engine, principal)
}

async fn token_of_an_issuers_token_has_its_scopes_and_ends_with_it(setup: TestEngine) {
    let (engine, ada) = issued(&setup).await;
    let reads = draft(&[(setup.store_id, Access::ReadOnly)]);
    let made = engine.sessions.create(&ada, reads, None).await.unwrap();
    let again = engine.sessions.issue_token(&ada, made.session.session_id).await.unwrap();
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
        assert!(matches!(refused, EngineError::Token(TokenError::Expired)), "{refused}");
    }
}

async fn token_ends_at_the_moment_its_key_expires(setup: TestEngine) {
    let new = NewKey {
        tenant_id: setup.principal.tenant_id,
        name: "short".to_owned(),
        scopes: vec![Scope::SessionsWrite, Scope::MemoryRead],
        store_ids: None,
        expires_at: Some(setup.engine_now().plus(Duration::from_mins(1))),
    };
    let (_, secret) = setup.engine.operator.keys.create(new).await.unwrap();
    let short = setup.engine.auth.authenticate(secret.expose()).await.unwrap();
    let made = setup.engine.sessions.create(&short, draft(&[]), None).await.unwrap();
    setup.clock.advance(Duration::from_secs(59));
    holder(&setup.engine, &made).await;
    setup.clock.advance(Duration::from_secs(1));
    let refused = setup.engine.auth.authenticate(made.token.as_deref().unwrap()).await.unwrap_err();
    assert!(matches!(refused, EngineError::Unauthenticated(_)), "{refused}");
}
