//! Credentials: which ones are accepted, for how long, and the cost of checking them.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use keepsake_core::api_key::ApiKeySecret;
use keepsake_core::{Actor, ApiKeyId, StoreId, TenantId};
use keepsake_engine::{
    Engine, EngineError, NewTenant, NewToken, PageRequest, Principal, Rotation, StoreQuery, TenantEdit,
};
use keepsake_index::{ApiKey, Audited, Auditor, KeyCreation, Scope};
use keepsake_testkit::IssuerKey;
use keepsake_tokens::{
    IssuerSettings, Issuers, KeySource, MasterKey, Subject, TokenError, Vault, VaultError,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::test_engine::{TestEngine, create, tool_call, view};

crate::on_both_databases! {
    flood_of_unknown_keys_costs_few_lookups_and_blocks_no_valid_key,
    repeated_unknown_key_is_looked_up_once,
    key_created_after_failed_attempts_is_found,
    change_of_a_tenant_takes_effect_within_five_seconds,
    issuer_token_is_accepted_for_its_tenant,
    issued_token_is_valid_on_every_replica,
    token_sees_no_store_but_its_own,
    replicas_share_the_first_signing_key,
    signing_key_rotation_refuses_no_valid_token,
    compromised_key_is_refused_everywhere_after_a_minute,
    unknown_names_of_keys_are_refused,
    secrets_are_wrapped_when_a_master_key_is_set,
    wrong_master_key_is_reported_at_the_start,
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
    let made = setup
        .index
        .keys
        .create(&key, &secret.sha256(), u64::MAX, None, &audited)
        .await;
    assert_eq!(made.unwrap(), KeyCreation::Created);
    let mut seconds = 0;
    while setup.engine.auth.authenticate(secret.expose()).await.is_err() {
        seconds += 1;
        assert!(seconds < 4, "being asked for must not keep a key unknown");
        setup.clock.advance(Duration::from_secs(1));
    }
}

async fn change_of_a_tenant_takes_effect_within_five_seconds(setup: TestEngine) {
    let key = setup.key().await;
    let token = setup.token(|_| {}).await;
    let allowed = async |credential: &str| {
        let principal = setup.engine.auth.authenticate(credential).await.unwrap();
        principal.limits.stores_per_tenant
    };
    let before = allowed(&key).await;
    assert_eq!(allowed(&token).await, before);
    let tenant_id = setup.principal.tenant_id;
    // Reads of the token and of its tenant do not add up.
    setup.clock.advance(Duration::from_secs(2));
    assert_eq!(allowed(&token).await, before);
    let edit = TenantEdit {
        limits: json!({"stores_per_tenant": 7}).as_object().unwrap().clone(),
        ..TenantEdit::default()
    };
    setup
        .engine
        .operator
        .tenants
        .update(tenant_id, edit)
        .await
        .unwrap();
    setup.clock.advance(Duration::from_millis(2999));
    for credential in [&key, &token] {
        assert_eq!(allowed(credential).await, 7);
    }
}

pub(crate) fn trusting(key: &IssuerKey, actor: Subject) -> Arc<Issuers> {
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
        actor,
        console: None,
    };
    Arc::new(Issuers::new(vec![settings]).unwrap())
}

async fn issuer_token_is_accepted_for_its_tenant(setup: TestEngine) {
    let key = IssuerKey::ed25519();
    let engine = setup.replica_with(|options| options.issuers = trusting(&key, Subject::ServiceAccount));
    let now_secs = setup.engine_now().as_micros() / 1_000_000;
    let token = |org: &Value| {
        let claims = json!({
            "iss": "https://id.example.com", "aud": "keepsake", "sub": "ci", "org": org,
            "scope": "openid memory:read memory:burn", "exp": now_secs + 10,
        });
        key.token("any", &claims)
    };
    let tenant = async |external_id: &str| {
        let new = NewTenant {
            external_id: Some(external_id.to_owned()),
            name: "tenant".to_owned(),
            ..NewTenant::default()
        };
        engine.operator.tenants.create(new).await.unwrap().tenant_id
    };
    let acme = tenant("acme").await;
    let suspended = tenant("suspended").await;
    engine.operator.tenants.suspend(suspended).await.unwrap();
    let deleting = tenant("deleting").await;
    engine.operator.tenants.delete(deleting).await.unwrap();
    for name in [json!("acme"), json!(acme.to_string())] {
        let principal = engine.auth.authenticate(&token(&name)).await.unwrap();
        assert_eq!(principal.tenant_id, acme);
        assert_eq!(principal.actor, Actor::ServiceAccount("ci".to_owned()));
        principal.require(Scope::MemoryRead).unwrap();
        for missing in Scope::ALL.into_iter().filter(|scope| *scope != Scope::MemoryRead) {
            assert!(principal.require(missing).is_err(), "{missing}");
        }
    }
    for (name, why) in [
        (json!("suspended"), "the tenant is suspended"),
        (json!("deleting"), "the token's tenant is unknown"),
        (json!("Acme"), "the token's tenant is unknown"),
        (
            json!(TenantId::from_uuid(Uuid::nil()).to_string()),
            "the token's tenant is unknown",
        ),
        (json!(null), "the token names no tenant"),
    ] {
        let refused = engine.auth.authenticate(&token(&name)).await.unwrap_err();
        assert_eq!(refused.to_string(), why);
    }
    let good = token(&json!("acme"));
    engine.auth.authenticate(&good).await.unwrap();
    setup.clock.advance(Duration::from_secs(70));
    let refused = engine.auth.authenticate(&good).await.unwrap_err();
    assert!(
        matches!(refused, EngineError::Token(TokenError::Expired)),
        "{refused}"
    );
    // No other replica trusts this issuer.
    let refused = setup
        .engine
        .auth
        .authenticate(&token(&json!("acme")))
        .await
        .unwrap_err();
    assert!(
        matches!(refused, EngineError::Token(TokenError::Issuer)),
        "{refused}"
    );
}

fn worker() -> Actor {
    Actor::ServiceAccount("worker".to_owned())
}

async fn issued_token_is_valid_on_every_replica(setup: TestEngine) {
    let token = setup.token(|_| {}).await;
    let replica = setup.replica();
    let principal = replica.auth.authenticate(&token).await.unwrap();
    assert_eq!(principal.tenant_id, setup.principal.tenant_id);
    assert_eq!(principal.actor, worker());
    let call = tool_call(None, create("/memories/a", "x"));
    let answer = replica
        .tools
        .memory
        .call(&principal, setup.store_id, call)
        .await
        .unwrap();
    assert!(!answer.is_error, "{}", answer.content);
    let version = setup
        .index
        .versions
        .find_at(principal.tenant_id, setup.store_id, 1)
        .await
        .unwrap();
    assert_eq!(version.unwrap().created_by, Some(worker()));
    setup.clock.advance(Duration::from_mins(61));
    let refused = replica.auth.authenticate(&token).await.unwrap_err();
    assert!(
        matches!(refused, EngineError::Token(TokenError::Expired)),
        "{refused}"
    );
}

async fn token_sees_no_store_but_its_own(setup: TestEngine) {
    let other = setup
        .engine
        .operator
        .create_store(setup.principal.tenant_id, "other")
        .await
        .unwrap();
    let token = setup
        .token(|new| {
            new.store_ids = Some(vec![setup.store_id]);
            new.scopes = vec![Scope::MemoryRead];
        })
        .await;
    let principal = setup.engine.auth.authenticate(&token).await.unwrap();
    let call = async |principal: &Arc<Principal>, store_id: StoreId, input| {
        let call = tool_call(None, input);
        setup.engine.tools.memory.call(principal, store_id, call).await
    };
    call(&principal, setup.store_id, view("/memories")).await.unwrap();
    let refused = call(&principal, other.store_id, view("/memories")).await;
    assert!(matches!(refused, Err(EngineError::StoreNotFound)), "{refused:?}");
    let refused = call(&principal, setup.store_id, create("/memories/a", "x")).await;
    assert!(
        matches!(refused, Err(EngineError::PermissionDenied(Scope::MemoryWrite))),
        "{refused:?}"
    );
    let long = NewToken {
        life: DAY + Duration::from_secs(1),
        ..setup.new_token()
    };
    let refused = setup.engine.tokens.issue(long).await.unwrap_err();
    assert!(
        matches!(refused, EngineError::Token(TokenError::Unissuable)),
        "{refused}"
    );
}

async fn replicas_share_the_first_signing_key(setup: TestEngine) {
    let replicas: Vec<_> = (0..6).map(|_| setup.replica()).collect();
    let issued = replicas
        .iter()
        .map(|replica| replica.tokens.issue(setup.new_token()));
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
    setup
        .engine
        .operator
        .rotate_token_key(Rotation::Planned)
        .await
        .unwrap();
    believed(&setup.token(|_| {}).await).await;
    assert_eq!(setup.key_names().await, ["token-2", "token-3"]);
}

async fn compromised_key_is_refused_everywhere_after_a_minute(setup: TestEngine) {
    let other = setup.replica();
    let token = setup.token(|_| {}).await;
    for engine in [&setup.engine, &other] {
        engine.auth.authenticate(&token).await.unwrap();
    }
    setup
        .engine
        .operator
        .rotate_token_key(Rotation::Compromised)
        .await
        .unwrap();
    // Keys are not read twice within a second, whatever is asked for.
    setup.clock.advance(Duration::from_secs(1));
    let new = setup.token(|_| {}).await;
    for engine in [&setup.engine, &other] {
        engine.auth.authenticate(&new).await.unwrap();
    }
    setup.clock.advance(MINUTE + Duration::from_secs(3));
    for engine in [&setup.engine, &other] {
        let refused = engine.auth.authenticate(&token).await.unwrap_err();
        assert!(
            matches!(refused, EngineError::Token(TokenError::UnknownKey)),
            "{refused}"
        );
        engine.auth.authenticate(&new).await.unwrap();
    }
}

async fn unknown_names_of_keys_are_refused(setup: TestEngine) {
    setup.engine.prepare_secrets().await.unwrap();
    let key = IssuerKey::ed25519();
    for kid in ["token-9", "cursor", ""] {
        let header = json!({"alg": "EdDSA", "typ": "keepsake+jwt", "kid": kid}).to_string();
        let token = key.token_with(&header, "{}");
        let refused = setup.engine.auth.authenticate(&token).await.unwrap_err();
        assert!(
            matches!(refused, EngineError::Token(TokenError::UnknownKey)),
            "{refused}"
        );
    }
}

fn vault(current: u8, previous: Option<u8>) -> Vault {
    let master = |byte: u8| {
        // 32 bytes of it in base64.
        let text: String = match byte {
            1 => "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=".to_owned(),
            _ => "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=".to_owned(),
        };
        MasterKey::parse(&text).unwrap()
    };
    Vault::new(Some(master(current)), previous.map(master))
}

async fn secrets_are_wrapped_when_a_master_key_is_set(setup: TestEngine) {
    for number in 0..3 {
        let name = format!("store {number}");
        let operator = &setup.engine.operator;
        operator
            .create_store(setup.principal.tenant_id, &name)
            .await
            .unwrap();
    }
    let first = StoreQuery {
        page: PageRequest {
            limit: Some(1),
            page: None,
        },
        ..StoreQuery::default()
    };
    let next = setup
        .engine
        .stores
        .list(&setup.principal, &first)
        .await
        .unwrap()
        .next;
    let second = StoreQuery {
        page: PageRequest {
            limit: Some(1),
            page: next,
        },
        ..StoreQuery::default()
    };
    let token = setup.token(|_| {}).await;
    assert_eq!(setup.stored_sizes().await, [32, 32]);
    let mut before = setup.stored().await;
    for vault in [vault(1, None), vault(2, Some(1)), vault(2, None)] {
        let engine = setup.replica_with(|options| options.vault = vault);
        engine.prepare_secrets().await.unwrap();
        // The secrets are the same: signed tokens and cursors stay valid.
        engine.auth.authenticate(&token).await.unwrap();
        engine.stores.list(&setup.principal, &second).await.unwrap();
        assert_eq!(setup.stored_sizes().await, [61, 61]);
        let now = setup.stored().await;
        assert!(before.iter().all(|old| old.len() == 61 || !now.contains(old)));
        before = now;
    }
}

async fn wrong_master_key_is_reported_at_the_start(setup: TestEngine) {
    let first = setup.replica_with(|options| options.vault = vault(1, None));
    first.prepare_secrets().await.unwrap();
    let stored = setup.stored().await;
    let other = setup.replica_with(|options| options.vault = vault(2, None));
    let refused = other.prepare_secrets().await.unwrap_err();
    assert!(
        matches!(refused, EngineError::Secret(VaultError::WrongKey)),
        "{refused}"
    );
    let refused = setup.engine.prepare_secrets().await.unwrap_err();
    assert!(
        matches!(refused, EngineError::Secret(VaultError::Locked)),
        "{refused}"
    );
    assert_eq!(setup.stored().await, stored);
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

    async fn stored(&self) -> Vec<Vec<u8>> {
        let mut stored = Vec::new();
        for purpose in ["cursor", "token"] {
            let secrets = self.index.secrets.list(purpose).await.unwrap();
            stored.extend(secrets.into_iter().map(|secret| secret.wrapped_key));
        }
        stored
    }

    async fn stored_sizes(&self) -> Vec<usize> {
        self.stored().await.iter().map(Vec::len).collect()
    }
}
