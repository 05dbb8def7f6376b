//! Credentials: the cost of checking them, and the keys that sign tokens.

use std::time::Duration;

use futures::future::join_all;
use keepsake_core::api_key::ApiKeySecret;
use keepsake_core::{Actor, ApiKeyId};
use keepsake_engine::{Engine, EngineError, NewToken, Rotation};
use keepsake_index::{ApiKey, Audited, Auditor, KeyCreation, Scope};
use keepsake_tokens::TokenError;

use crate::test_engine::TestEngine;

crate::on_both_databases! {
    replicas_share_the_first_signing_key,
}

crate::on_backend! {
    sqlite,
    on_one_database,
    flood_of_unknown_keys_costs_few_lookups_and_blocks_no_valid_key,
    repeated_unknown_key_is_looked_up_once,
    key_created_after_failed_attempts_is_found,
    signing_key_rotation_refuses_no_valid_token,
    compromised_key_is_refused_everywhere_after_a_minute,
}

const MINUTE: Duration = Duration::from_mins(1);
const DAY: Duration = Duration::from_hours(24);

fn made_up(number: u32) -> String {
    let mut random = [0xA5; 32];
    random[..4].copy_from_slice(&number.to_be_bytes());
    ApiKeySecret::from_random(random).expose().to_owned()
}

/// The number of made-up keys that were looked up; a lookup answers that the key is
/// unknown.
async fn looked_up(engine: &Engine, keys: std::ops::Range<u32>) -> usize {
    let tries = keys.map(|number| {
        let key = made_up(number);
        async move {
            match engine.auth.authenticate(&key).await.unwrap_err() {
                EngineError::Unauthenticated(why) => {
                    assert_eq!(why, "the API key is unknown");
                    1
                }
                EngineError::AuthenticationBusy(_) => 0,
                other => panic!("{other}"),
            }
        }
    });
    join_all(tries).await.into_iter().sum()
}

async fn flood_of_unknown_keys_costs_few_lookups_and_blocks_no_valid_key(setup: TestEngine) {
    let good = setup.key().await;
    setup.engine.auth.authenticate(&good).await.unwrap();
    for second in 0..5 {
        let first = looked_up(&setup.engine, second * 3000..second * 3000 + 1500).await;
        assert!((1..=208).contains(&first), "{first}");
        let rest = looked_up(&setup.engine, second * 3000 + 1500..second * 3000 + 3000).await;
        assert!(first + rest <= 208, "{first} and {rest}");
        // A valid key is looked up again after its cache entry ends, despite the flood.
        setup.engine.auth.authenticate(&good).await.unwrap();
        setup.clock.advance(Duration::from_secs(1));
    }
}

async fn repeated_unknown_key_is_looked_up_once(setup: TestEngine) {
    for _ in 0..300 {
        assert_eq!(looked_up(&setup.engine, 0..1).await, 1);
    }
    // Had each of them been looked up, none of these would be.
    assert_eq!(looked_up(&setup.engine, 1..9).await, 8);
}

async fn key_created_after_failed_attempts_is_found(setup: TestEngine) {
    let secret = ApiKeySecret::from_random([0x5A; 32]);
    for _ in 0..4 {
        let unknown = setup.engine.auth.authenticate(secret.expose()).await.unwrap_err();
        assert_eq!(unknown.to_string(), "the API key is unknown");
        setup.clock.advance(Duration::from_secs(1));
    }
    let key = ApiKey {
        api_key_id: ApiKeyId::from_uuid(setup.engine.new_uuid()),
        tenant_id: setup.principal.tenant_id,
        name: "late".to_owned(),
        scopes: vec![Scope::MemoryRead],
        store_ids: None,
        created_at: setup.engine_now(),
        expires_at: None,
    };
    let audited = Audited {
        id: setup.engine.new_uuid(),
        at: setup.engine_now(),
        by: Auditor::OperatorCli,
        entries_per_day: None,
    };
    let made = setup.index.keys.create(&key, &secret.sha256(), u64::MAX, None, &audited).await;
    assert_eq!(made.unwrap(), KeyCreation::Created);
    let mut seconds = 0;
    while setup.engine.auth.authenticate(secret.expose()).await.is_err() {
        seconds += 1;
        assert!(seconds < 4, "being asked for must not keep a key unknown");
        setup.clock.advance(Duration::from_secs(1));
    }
}

fn worker() -> Actor {
    Actor::ServiceAccount("worker".to_owned())
}

async fn replicas_share_the_first_signing_key(setup: TestEngine) {
    let replicas: Vec<_> = (0..6).map(|_| setup.replica()).collect();
    let issued = replicas.iter().map(|replica| replica.tokens.issue(setup.new_token()));
    let tokens: Vec<_> = join_all(issued).await.into_iter().map(Result::unwrap).collect();
    for replica in &replicas {
        for token in &tokens {
            replica.auth.authenticate(token).await.unwrap();
        }
    }
    assert_eq!(setup.key_names().await, ["token-1"]);
}

async fn signing_key_rotation_refuses_no_valid_token(setup: TestEngine) {
    let other = setup.replica();
    let believed = async |token: &str| {
        for engine in [&setup.engine, &other] {
            engine.auth.authenticate(token).await.unwrap();
        }
    };
    believed(&setup.token(|_| {}).await).await;
    setup.clock.advance(30 * DAY);
    // The other replica reads the keys, and a moment later there is a new one.
    let old = setup.long_token().await;
    other.auth.authenticate(&old).await.unwrap();
    assert_eq!(setup.key_names().await, ["token-1", "token-2"]);
    for _ in 0..16 {
        believed(&setup.token(|_| {}).await).await;
        believed(&old).await;
        setup.clock.advance(Duration::from_secs(10));
    }
    let by_kid = |token: &str| token.split('.').next().unwrap().to_owned();
    let new = setup.long_token().await;
    assert_ne!(by_kid(&new), by_kid(&old), "the new key signs by now");
    setup.clock.advance(Duration::from_mins(24 * 60 - 5));
    believed(&old).await;
    assert_eq!(setup.key_names().await, ["token-1", "token-2"]);
    setup.clock.advance(Duration::from_mins(15));
    believed(&setup.token(|_| {}).await).await;
    assert_eq!(setup.key_names().await, ["token-2"]);
    setup.engine.operator.rotate_token_key(Rotation::Planned).await.unwrap();
    believed(&setup.token(|_| {}).await).await;
    assert_eq!(setup.key_names().await, ["token-2", "token-3"]);
}

async fn compromised_key_is_refused_everywhere_after_a_minute(setup: TestEngine) {
    let other = setup.replica();
    let token = setup.token(|_| {}).await;
    for engine in [&setup.engine, &other] {
        engine.auth.authenticate(&token).await.unwrap();
    }
    setup.engine.operator.rotate_token_key(Rotation::Compromised).await.unwrap();
    // Keys are not read twice within a second, whatever is asked for.
    setup.clock.advance(Duration::from_secs(1));
    let new = setup.token(|_| {}).await;
    for engine in [&setup.engine, &other] {
        engine.auth.authenticate(&new).await.unwrap();
    }
    setup.clock.advance(MINUTE + Duration::from_secs(3));
    for engine in [&setup.engine, &other] {
        let refused = engine.auth.authenticate(&token).await.unwrap_err();
        assert!(matches!(refused, EngineError::Token(TokenError::UnknownKey)), "{refused}");
        engine.auth.authenticate(&new).await.unwrap();
    }
}

impl TestEngine {
    /// A key of the tenant's that may do everything.
    async fn key(&self) -> String {
        let new = keepsake_engine::NewKey {
            tenant_id: self.principal.tenant_id,
            name: "tests".to_owned(),
            scopes: Scope::ALL.to_vec(),
            store_ids: None,
            expires_at: None,
        };
        let (_, secret) = self.engine.operator.keys.create(new).await.unwrap();
        secret.expose().to_owned()
    }

    fn new_token(&self) -> NewToken {
        NewToken {
            issued_to: None,
            tenant_id: self.principal.tenant_id,
            actor: worker(),
            scopes: Scope::ALL.to_vec(),
            store_ids: None,
            life: Duration::from_hours(1),
        }
    }

    pub(crate) async fn token(&self, change: impl FnOnce(&mut NewToken)) -> String {
        let mut new = self.new_token();
        change(&mut new);
        self.engine.tokens.issue(new).await.unwrap()
    }

    async fn long_token(&self) -> String {
        self.token(|new| new.life = DAY).await
    }

    async fn key_names(&self) -> Vec<String> {
        let secrets = self.index.secrets.list("token").await.unwrap();
        secrets.into_iter().map(|secret| secret.kid).collect()
    }
}
