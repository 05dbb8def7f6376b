//! Sessions: how long they and their tokens live, and what is kept of their calls.

use keepsake_tokens::{IssuerSettings, Issuers, KeySource, Subject, TokenError};

use crate::expiry::{PERIOD, expire, with_period};
use crate::prelude::*;
use crate::removals::{below, erase};

on_both_databases! {
    events_are_written_once_with_the_access_times,
    store_in_use_by_a_session_keeps_its_memories,
}

on_backend! {
    sqlite, on_one_database,
    deleted_store_hides_no_other_of_its_session,
    token_of_an_issuers_token_has_its_scopes_and_ends_with_it,
    token_lives_a_day_and_no_longer_than_its_creating_key,
}

fn draft(stores: &[(StoreId, Access)]) -> SessionDraft {
    let attached = stores.iter().map(|(store_id, access)| {
        json!({"type": "memory_store", "memory_store_id": store_id, "access": access.name()})
    });
    let resources: Vec<_> = attached.collect();
    let new = json!({"agent": "agent_1", "environment_id": "env_1", "resources": resources});
    serde_json::from_value(new).unwrap()
}

impl TestEngine {
    async fn open(&self, stores: &[(StoreId, Access)]) -> SessionWithToken {
        self.engine.sessions.create(&self.principal, draft(stores), None).await.unwrap()
    }

    /// The same, by another credential.
    async fn holding(&self, credential: &str) -> Self {
        let mut holding = self.clone();
        holding.principal = self.engine.auth.authenticate(credential).await.unwrap();
        holding
    }

    async fn call_in(&self, made: &SessionWithToken, input: Value) {
        let mounts = self.engine.sessions.mounts(&self.principal, made.session.session_id).await.unwrap();
        let called = self.engine.tools.call(&self.principal, mounts, tool_call(input));
        called.await.unwrap();
    }

    async fn assert_refused(&self, credentials: &[String], is_expected: fn(&EngineError) -> bool) {
        for credential in credentials {
            let refused = self.engine.auth.authenticate(credential).await.unwrap_err();
            assert!(is_expected(&refused), "{refused}");
        }
    }
}

async fn events(setup: &TestEngine, made: &SessionWithToken) -> Vec<SessionEvent> {
    let (filter, page) = (EventFilter::default(), PageRequest { limit: Some(100), page: None });
    let id = made.session.session_id;
    setup.engine.events.list(&setup.principal, id, &filter, &page).await.unwrap().items
}

async fn last_used_at(setup: &TestEngine, made: &SessionWithToken) -> Option<Timestamp> {
    let id = made.session.session_id;
    setup.engine.sessions.get(&setup.principal, id).await.unwrap().last_used_at
}

async fn events_are_written_once_with_the_access_times(setup: TestEngine) {
    let made = setup.open(&[(setup.store_id, Access::ReadWrite)]).await;
    let replica = setup.elsewhere();
    let agent = replica.holding(made.token.as_deref().unwrap()).await;
    agent.call_in(&made, view("/memories/notes")).await;
    assert_eq!(events(&replica, &made).await.len(), 1);
    assert_eq!(events(&setup, &made).await.len(), 0);
    assert_eq!(last_used_at(&setup, &made).await, None);
    replica.engine.replica.flush().await.unwrap();
    let written = events(&setup, &made).await;
    assert_eq!((written.len(), events(&replica, &made).await.len()), (1, 1));
    assert_eq!(last_used_at(&setup, &made).await, Some(setup.now()));
    replica.engine.replica.flush().await.unwrap();
    assert_eq!(events(&setup, &made).await, written);
    // An erasure also removes events that are not yet written.
    agent.call_in(&made, view("/memories/notes/private/a")).await;
    erase(&replica, below(&replica, "/private/")).await;
    assert_eq!(events(&replica, &made).await, written);
    replica.engine.replica.flush().await.unwrap();
    assert_eq!(events(&setup, &made).await, written);
    // The shutdown writes the noted events.
    setup.clock.advance(SECOND);
    agent.call_in(&made, view("/memories/notes/none")).await;
    replica.all_writes_end().await;
    let all = events(&setup, &made).await;
    assert_eq!((all.len(), all[1].is_error), (2, true));
}

async fn deleted_store_hides_no_other_of_its_session(setup: TestEngine) {
    setup.make("/a.md", "zebra").await;
    let (stores, principal) = (&setup.engine.stores, &setup.principal);
    let draft = StoreDraft { name: "gone".to_owned(), ..StoreDraft::default() };
    let gone = stores.create(principal, draft, None).await.unwrap().store_id;
    let made = setup.open(&[(gone, Access::ReadWrite), (setup.store_id, Access::ReadOnly)]).await;
    // As of a token that was checked just before.
    let mounts = setup.engine.sessions.mounts(principal, made.session.session_id).await.unwrap();
    stores.delete(principal, gone).await.unwrap();
    let call = ToolCall { name: "memory_search".to_owned(), ..tool_call(json!({"query": "zebra"})) };
    let found = setup.engine.tools.call(principal, mounts.clone(), call).await.unwrap();
    assert!(found.content.contains("/a.md"), "{found:?}");
    let options = PromptOptions::new(false, None, true).unwrap();
    let told = setup.engine.prompts.of_stores(principal, Some(&mounts), &options).await.unwrap();
    assert!(told.contains("/a.md"), "{told}");
}

async fn store_in_use_by_a_session_keeps_its_memories(setup: TestEngine) {
    with_period(&setup).await;
    let memory = setup.make("/a.md", "x").await;
    let stores = [(setup.store_id, Access::ReadOnly)];
    let sessions = [setup.open(&stores).await, setup.open(&stores).await];
    let reader = setup.key_with(&[Scope::MemoryRead, Scope::SessionsWrite], None).await;
    let reader = setup.holding(&reader).await;
    setup.clock.advance(short_of(PERIOD, SECOND));
    // A listing reads no memory.
    let replica = setup.elsewhere();
    for session in &sessions {
        replica.call_in(session, view("/memories")).await;
    }
    replica.engine.replica.flush().await.unwrap();
    setup.clock.advance(DAY);
    replica.engine.replica.flush().await.unwrap();
    setup.clock.advance(Duration::from_millis(1));
    // To the day after its last use, as far as all replicas have written.
    assert_eq!(expire(&setup).await, 1, "a day is over");
    setup.restore(&memory).await.unwrap();

    setup.clock.advance(PERIOD);
    // Now by tokens that may only read.
    for session in &sessions {
        let issued = replica.engine.sessions.issue_token(&reader.principal, session.session.session_id);
        replica.holding(&issued.await.unwrap()).await.call_in(session, view("/memories")).await;
    }
    replica.engine.replica.flush().await.unwrap();
    setup.clock.advance(short_of(DAY, SECOND));
    replica.engine.replica.flush().await.unwrap();
    let dry = setup.dry_run(ExpireUnused).await;
    assert_eq!((&dry["in_use"], &dry["would_expire"]), (&json!(1), &json!(0)), "{dry}");
    assert_eq!(expire(&setup).await, 0);
    let in_use_until = async || {
        let usage = setup.engine.usage.of_store(&setup.principal, setup.store_id, None, None).await;
        usage.unwrap().in_use_until
    };
    assert!(in_use_until().await > Some(setup.now()));
    // Archived sessions keep nothing.
    for (session, expired) in sessions.iter().zip([0, 1]) {
        setup.engine.sessions.archive(&setup.principal, session.session.session_id).await.unwrap();
        assert_eq!(expire(&setup).await, expired);
    }
    assert_eq!(in_use_until().await, None);
}

fn is_over(refused: &EngineError) -> bool {
    matches!(refused, EngineError::Token(TokenError::Expired))
}

async fn token_of_an_issuers_token_has_its_scopes_and_ends_with_it(setup: TestEngine) {
    let key = IssuerKey::ed25519();
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
    let issuers = Issuers::new(vec![settings]).unwrap();
    let replica = setup.elsewhere_with(|options| options.issuers = Arc::new(issuers));
    let claims = json!({
        "iss": "https://id.example.com", "aud": "keepsake", "sub": "ada", "scope": "sessions:write memory:read",
        "org": setup.principal.tenant_id.to_string(), "exp": setup.now().as_micros() / 1_000_000 + 5,
    });
    let ada = replica.holding(&key.token("any", &claims)).await;
    let made = ada.open(&[(setup.store_id, Access::ReadOnly)]).await;
    let again = ada.engine.sessions.issue_token(&ada.principal, made.session.session_id).await.unwrap();
    let tokens = [made.token.unwrap(), again];
    for token in &tokens {
        assert!(replica.holding(token).await.principal.require(Scope::MemoryWrite).is_err());
    }
    // The issuer's own token is refused from then on, too: a minute is what clocks
    // may differ by.
    setup.clock.advance(66 * SECOND);
    replica.assert_refused(&tokens, is_over).await;
}

async fn token_lives_a_day_and_no_longer_than_its_creating_key(setup: TestEngine) {
    let made = setup.open(&[]).await;
    let token = made.token.unwrap();
    setup.clock.advance(short_of(DAY, SECOND));
    setup.holding(&token).await;
    // A minute is what clocks may differ by.
    setup.clock.advance(61 * SECOND);
    setup.assert_refused(&[token], is_over).await;
    let short = setup.key_with(&Scope::ALL, Some(HOUR)).await;
    let short = setup.holding(&short).await;
    let another = short.open(&[]).await.token.unwrap();
    let issued = short.engine.sessions.issue_token(&short.principal, made.session.session_id);
    let tokens = [issued.await.unwrap(), another];
    setup.clock.advance(59 * MINUTE);
    for token in &tokens {
        setup.holding(token).await;
    }
    setup.clock.advance(MINUTE);
    setup.assert_refused(&tokens, |refused| matches!(refused, EngineError::Unauthenticated(_))).await;
}
