//! Keys behind a JWKS URL: fetches and caching.

use std::time::Duration;

use futures::future::join_all;
use keepsake_core::Timestamp;
use keepsake_testkit::{IssuerKey, JwksAnswer, JwksServer, issuer};
use keepsake_tokens::{Identity, Issuers, KeySource, TokenError, Untrusted};

use crate::fixture::{KEYS, changed, now, settings, valid};

struct TestIssuer {
    server: JwksServer,
    issuers: Issuers,
}

impl TestIssuer {
    async fn with_keys(keys: &[(&str, &IssuerKey)]) -> Self {
        let server = JwksServer::start(issuer::jwks(keys)).await;
        let keys = KeySource::Url { url: server.url().to_owned(), allow_http: false };
        let issuers = Issuers::new(vec![settings(keys)]).unwrap();
        Self { server, issuers }
    }

    async fn verify(&self, key: &IssuerKey, kid: &str, now: Timestamp) -> Result<Identity, TokenError> {
        let claims = changed(serde_json::json!({"exp": now.as_micros() / 1_000_000 + 60}));
        let token = key.token(kid, &claims);
        self.issuers.verify(&Untrusted::parse(&token)?, now).await
    }

    fn answer(&self, answer: JwksAnswer) {
        self.server.answer_with(answer);
    }

    /// Waits for a background fetch.
    async fn wait_for_fetches(&self, times: usize) {
        while self.server.requests() < times {
            tokio::task::yield_now().await;
        }
    }
}

fn after(seconds: u64) -> Timestamp {
    now().plus(Duration::from_secs(seconds))
}

fn down() -> JwksAnswer {
    JwksAnswer { status: Some(503), ..JwksAnswer::default() }
}

#[tokio::test]
async fn keys_are_fetched_once_for_many_tokens() {
    let issuer = TestIssuer::with_keys(&KEYS.all()).await;
    for _ in 0..3 {
        for (kid, key) in KEYS.all() {
            issuer.verify(key, kid, now()).await.unwrap();
        }
    }
    assert_eq!(issuer.server.requests(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn first_requests_share_one_fetch() {
    let issuer = TestIssuer::with_keys(&KEYS.all()).await;
    issuer.answer(JwksAnswer {
        body: issuer::jwks(&KEYS.all()),
        after: Duration::from_millis(100),
        ..JwksAnswer::default()
    });
    let requests = (0..50).map(|_| issuer.verify(&KEYS.ed25519, "ed", now()));
    for answer in join_all(requests).await {
        answer.unwrap();
    }
    assert_eq!(issuer.server.requests(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn flood_of_unknown_kids_costs_one_fetch_a_minute() {
    let issuer = TestIssuer::with_keys(&KEYS.all()).await;
    let stranger = IssuerKey::ed25519();
    for minute in 0..3 {
        let kids: Vec<_> = (0..200).map(|number| format!("made up {number}")).collect();
        let requests = kids
            .iter()
            .enumerate()
            .map(|(number, kid)| issuer.verify(&stranger, kid, after(minute * 60 + number as u64 / 4)));
        for answer in join_all(requests).await {
            assert_eq!(answer, Err(TokenError::UnknownKey));
        }
        assert_eq!(issuer.server.requests(), 1 + usize::try_from(minute).unwrap());
        // Tokens with a known key are still accepted.
        issuer.verify(&KEYS.ed25519, "ed", after(minute * 60)).await.unwrap();
    }
}

#[tokio::test]
async fn new_key_is_found_by_its_first_token_and_vanished_one_is_dropped() {
    let issuer = TestIssuer::with_keys(&[("old", &KEYS.rsa)]).await;
    issuer.verify(&KEYS.rsa, "old", now()).await.unwrap();
    issuer.server.publish(&[("new", &KEYS.ed25519)]);
    let early = issuer.verify(&KEYS.ed25519, "new", after(59)).await;
    assert_eq!(early, Err(TokenError::UnknownKey));
    issuer.verify(&KEYS.ed25519, "new", after(60)).await.unwrap();
    assert_eq!(issuer.server.requests(), 2);
    let vanished = issuer.verify(&KEYS.rsa, "old", after(61)).await;
    assert_eq!(vanished, Err(TokenError::UnknownKey));
    assert_eq!(issuer.server.requests(), 2);
}

#[tokio::test]
async fn old_keys_are_refreshed_in_the_background() {
    let issuer = TestIssuer::with_keys(&[("old", &KEYS.rsa)]).await;
    issuer.verify(&KEYS.rsa, "old", now()).await.unwrap();
    issuer.server.publish(&[("new", &KEYS.ed25519)]);
    issuer.verify(&KEYS.rsa, "old", after(599)).await.unwrap();
    assert_eq!(issuer.server.requests(), 1);
    // Verified with the old keys, without waiting for the new ones.
    issuer.verify(&KEYS.rsa, "old", after(600)).await.unwrap();
    issuer.wait_for_fetches(2).await;
    // A token with an unknown key waits for the running fetch.
    issuer.verify(&KEYS.ed25519, "new", after(601)).await.unwrap();
    assert_eq!(issuer.server.requests(), 2);
    let vanished = issuer.verify(&KEYS.rsa, "old", after(602)).await;
    assert_eq!(vanished, Err(TokenError::UnknownKey));
}

#[tokio::test]
async fn cached_keys_stay_valid_while_the_issuer_is_down() {
    let issuer = TestIssuer::with_keys(&[("old", &KEYS.rsa)]).await;
    issuer.verify(&KEYS.rsa, "old", now()).await.unwrap();
    for (hour, answer) in [
        down(),
        JwksAnswer { body: "<html>".to_owned(), ..JwksAnswer::default() },
        JwksAnswer { body: format!("{{\"keys\": []}}{}", " ".repeat(256 << 10)), ..JwksAnswer::default() },
        JwksAnswer {
            status: Some(302),
            location: Some(issuer.server.url().replace("jwks.json", "elsewhere")),
            ..JwksAnswer::default()
        },
    ]
    .into_iter()
    .enumerate()
    {
        issuer.answer(answer);
        let time = after(3600 * (hour as u64 + 1));
        // An unknown key causes a fetch, and gets the error that the key may be valid.
        let unknown = issuer.verify(&KEYS.ed25519, "new", time).await;
        assert_eq!(unknown, Err(TokenError::KeysUnavailable));
        assert_eq!(issuer.server.requests(), 2 + hour);
        issuer.verify(&KEYS.rsa, "old", time).await.unwrap();
    }
    issuer.server.publish(&[("new", &KEYS.ed25519)]);
    issuer.verify(&KEYS.ed25519, "new", after(36_000)).await.unwrap();
}

#[tokio::test]
async fn unreachable_issuer_is_retried_once_a_minute() {
    let issuer = TestIssuer::with_keys(&[("ed", &KEYS.ed25519)]).await;
    issuer.answer(down());
    for second in 0..60 {
        let refused = issuer.verify(&KEYS.ed25519, "ed", after(second)).await;
        assert_eq!(refused, Err(TokenError::KeysUnavailable));
    }
    assert_eq!(issuer.server.requests(), 1);
    issuer.server.publish(&[("ed", &KEYS.ed25519)]);
    issuer.verify(&KEYS.ed25519, "ed", after(60)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_client_does_not_cancel_the_shared_fetch() {
    let issuer = TestIssuer::with_keys(&KEYS.all()).await;
    issuer.answer(JwksAnswer {
        body: issuer::jwks(&KEYS.all()),
        after: Duration::from_millis(200),
        ..JwksAnswer::default()
    });
    let leaving = issuer.verify(&KEYS.ed25519, "ed", now());
    assert!(
        tokio::time::timeout(Duration::from_millis(50), leaving).await.is_err(),
        "the fetch takes longer"
    );
    issuer.verify(&KEYS.ed25519, "ed", now()).await.unwrap();
    assert_eq!(issuer.server.requests(), 1);
}

#[tokio::test]
async fn token_cannot_choose_the_requested_host() {
    let issuer = TestIssuer::with_keys(&KEYS.all()).await;
    let other = JwksServer::start(issuer::jwks(&[("theirs", &KEYS.p256)])).await;
    let header = serde_json::json!({"alg": "ES256", "kid": "theirs", "jku": other.url()});
    let token = KEYS.p256.token_with(&header.to_string(), &valid().to_string());
    let parsed = Untrusted::parse(&token).unwrap();
    let refused = issuer.issuers.verify(&parsed, now()).await;
    assert_eq!(refused, Err(TokenError::UnknownKey));
    // Redirects are not followed.
    issuer.answer(JwksAnswer {
        status: Some(307),
        location: Some(other.url().to_owned()),
        ..JwksAnswer::default()
    });
    let refused = issuer.issuers.verify(&parsed, after(60)).await;
    assert_eq!(refused, Err(TokenError::KeysUnavailable));
    assert_eq!((issuer.server.requests(), other.requests()), (2, 0));
}
