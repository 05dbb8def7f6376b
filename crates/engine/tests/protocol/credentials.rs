//! Credentials: what checking them costs, the keys that sign tokens, and sign-ins.

use std::ops::Range;

use keepsake_core::api_key::ApiKeySecret;
use keepsake_tokens::TokenError;

use crate::prelude::*;

on_both_databases! { replicas_share_the_first_signing_key, }

on_backend! {
    sqlite, on_one_database,
    flood_of_unknown_keys_costs_few_lookups_and_blocks_no_valid_key,
    rotation_refuses_no_token_but_those_of_a_compromised_key,
    cookie_is_valid_on_every_replica_until_it_expires,
}

/// How many of these made-up keys were looked up; a lookup answers that the key is
/// unknown.
async fn looked_up(setup: &TestEngine, keys: Range<u32>) -> usize {
    let tries = keys.map(|number| async move {
        let mut random = [0xA5; 32];
        random[..4].copy_from_slice(&number.to_be_bytes());
        let made_up = ApiKeySecret::from_random(random);
        match setup.engine.auth.authenticate(made_up.expose()).await {
            Err(EngineError::Unauthenticated("the API key is unknown")) => 1,
            Err(EngineError::AuthenticationBusy(_)) => 0,
            other => panic!("{other:?}"),
        }
    });
    join_all(tries).await.into_iter().sum()
}

async fn flood_of_unknown_keys_costs_few_lookups_and_blocks_no_valid_key(setup: TestEngine) {
    let good = setup.key_with(&Scope::ALL, None).await;
    setup.engine.auth.authenticate(&good).await.unwrap();
    for _ in 0..300 {
        assert_eq!(looked_up(&setup, 0..1).await, 1);
    }
    // Had each of them been looked up, none of these would be.
    assert_eq!(looked_up(&setup, 1..9).await, 8);
    setup.clock.advance(SECOND);
    for second in 1..6 {
        let first = looked_up(&setup, second * 3000..second * 3000 + 1500).await;
        assert!((1..=208).contains(&first), "{first}");
        let rest = looked_up(&setup, second * 3000 + 1500..second * 3000 + 3000).await;
        assert!(first + rest <= 208, "{first} and {rest}");
        // A valid key is looked up again after its cache entry ends, despite the flood.
        setup.engine.auth.authenticate(&good).await.unwrap();
        setup.clock.advance(SECOND);
    }
}

async fn replicas_share_the_first_signing_key(setup: TestEngine) {
    let replicas: Vec<_> = (0..6).map(|_| setup.elsewhere().engine).collect();
    let issued = replicas.iter().map(|replica| replica.tokens.issue(setup.new_token(HOUR)));
    let tokens: Vec<_> = join_all(issued).await.into_iter().map(Result::unwrap).collect();
    for replica in &replicas {
        for token in &tokens {
            replica.auth.authenticate(token).await.unwrap();
        }
    }
    assert_eq!(setup.key_names().await, ["token-1"]);
}

async fn rotation_refuses_no_token_but_those_of_a_compromised_key(setup: TestEngine) {
    let other = setup.elsewhere().engine;
    let believed = async |token: &str| {
        for engine in [&setup.engine, &other] {
            engine.auth.authenticate(token).await.unwrap();
        }
    };
    believed(&setup.token(HOUR).await).await;
    setup.clock.advance(30 * DAY);
    // The other replica reads the keys, and a moment later there is a new one.
    let old = setup.token(DAY).await;
    other.auth.authenticate(&old).await.unwrap();
    assert_eq!(setup.key_names().await, ["token-1", "token-2"]);
    for _ in 0..16 {
        believed(&setup.token(HOUR).await).await;
        believed(&old).await;
        setup.clock.advance(10 * SECOND);
    }
    let by_kid = |token: &str| token.split('.').next().unwrap().to_owned();
    let new = setup.token(DAY).await;
    assert_ne!(by_kid(&new), by_kid(&old), "the new key signs by now");
    setup.clock.advance(short_of(DAY, 5 * MINUTE));
    believed(&old).await;
    assert_eq!(setup.key_names().await, ["token-1", "token-2"]);
    setup.clock.advance(15 * MINUTE);
    believed(&setup.token(HOUR).await).await;
    assert_eq!(setup.key_names().await, ["token-2"]);
    setup.engine.tokens.rotate_key(Rotation::Planned, Auditor::OperatorCli).await.unwrap();
    believed(&setup.token(HOUR).await).await;
    assert_eq!(setup.key_names().await, ["token-2", "token-3"]);

    let token = setup.token(HOUR).await;
    believed(&token).await;
    setup.engine.tokens.rotate_key(Rotation::Compromised, Auditor::OperatorCli).await.unwrap();
    // Keys are not read twice within a second, whatever is asked for.
    setup.clock.advance(SECOND);
    let new = setup.token(HOUR).await;
    believed(&new).await;
    setup.clock.advance(MINUTE + 3 * SECOND);
    for engine in [&setup.engine, &other] {
        let refused = engine.auth.authenticate(&token).await.unwrap_err();
        assert!(matches!(refused, EngineError::Token(TokenError::UnknownKey)), "{refused}");
    }
    believed(&new).await;
}

async fn cookie_is_valid_on_every_replica_until_it_expires(setup: TestEngine) {
    const CREDENTIAL: &str = "ks_live_not_a_real_one";
    let (sign_ins, other) = (&setup.engine.sign_ins, setup.elsewhere().engine);
    let (signed_in, cookie) = sign_ins.begin(Audience::Tenant, CREDENTIAL).await.unwrap();
    let opened = other.sign_ins.open(Audience::Tenant, &cookie).await.unwrap().unwrap();
    assert_eq!(opened, signed_in);
    assert!(!format!("{cookie} {opened:?}").contains(CREDENTIAL));
    let token = sign_ins.form_token(Audience::Tenant, &signed_in).await.unwrap();
    assert_eq!(other.sign_ins.form_token(Audience::Tenant, &opened).await.unwrap(), token);
    for (audience, is_one) in [(Audience::Tenant, true), (Audience::SignInForm, false)] {
        assert_eq!(other.sign_ins.is_form_token(audience, &token).await.unwrap(), is_one);
    }
    setup.clock.advance(short_of(SIGN_IN_LIFE, SECOND));
    assert!(sign_ins.open(Audience::Tenant, &cookie).await.unwrap().is_some());
    setup.clock.advance(SECOND);
    assert_eq!(sign_ins.open(Audience::Tenant, &cookie).await.unwrap(), None);
}

impl TestEngine {
    async fn token(&self, life: Duration) -> String {
        self.engine.tokens.issue(self.new_token(life)).await.unwrap()
    }

    fn new_token(&self, life: Duration) -> NewToken {
        NewToken {
            issued_to: None,
            tenant_id: self.principal.tenant_id,
            actor: Actor::ServiceAccount("worker".to_owned()),
            scopes: Scope::ALL.to_vec(),
            store_ids: None,
            life,
        }
    }

    async fn key_names(&self) -> Vec<String> {
        let secrets = self.index.secrets.list("token").await.unwrap();
        secrets.into_iter().map(|secret| secret.kid).collect()
    }
}
