use futures::future::join_all;
use keepsake_testkit::{JwksAnswer, JwksServer};

use super::*;

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
        let claims = changed(&json!({"exp": now.as_micros() / 1_000_000 + 60}));
        let token = key.token(kid, &claims);
        self.issuers.verify(&UnverifiedToken::parse(&token)?, now).await
    }
}

fn after(seconds: u64) -> Timestamp {
    now().plus(Duration::from_secs(seconds))
}

fn down() -> JwksAnswer {
    JwksAnswer { status: Some(503), ..JwksAnswer::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_tokens_share_one_fetch_which_a_leaving_client_does_not_cancel() {
    let issuer = TestIssuer::with_keys(&KEYS.all()).await;
    issuer.server.answer_with(JwksAnswer {
        body: issuer::jwks(&KEYS.all()),
        after: Duration::from_millis(200),
        ..JwksAnswer::default()
    });
    let leaving = issuer.verify(&KEYS.ed25519, "ed", now());
    let left = tokio::time::timeout(Duration::from_millis(50), leaving).await;
    assert!(left.is_err(), "the fetch takes longer");
    let keys = KEYS.all().into_iter().cycle().take(60);
    for answer in join_all(keys.map(|(kid, key)| issuer.verify(key, kid, now()))).await {
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
    assert_eq!(issuer.verify(&KEYS.ed25519, "new", after(59)).await, Err(TokenError::UnknownKey));
    issuer.verify(&KEYS.ed25519, "new", after(60)).await.unwrap();
    assert_eq!(issuer.server.requests(), 2);
    assert_eq!(issuer.verify(&KEYS.rsa, "old", after(61)).await, Err(TokenError::UnknownKey));
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
    while issuer.server.requests() < 2 {
        tokio::task::yield_now().await;
    }
    // A token with an unknown key waits for the running fetch.
    issuer.verify(&KEYS.ed25519, "new", after(601)).await.unwrap();
    assert_eq!(issuer.server.requests(), 2);
}

#[tokio::test]
async fn failing_issuer_is_asked_once_a_minute_and_cached_keys_stay_valid() {
    let issuer = TestIssuer::with_keys(&[]).await;
    let other = JwksServer::start(issuer::jwks(&[("new", &KEYS.ed25519)])).await;
    issuer.server.answer_with(down());
    for seconds in [0, 1, 59] {
        let refused = issuer.verify(&KEYS.rsa, "old", after(seconds)).await.unwrap_err();
        assert!(refused == TokenError::KeysUnavailable && refused.is_transient());
    }
    assert_eq!(issuer.server.requests(), 1);
    issuer.server.publish(&[("old", &KEYS.rsa)]);
    issuer.verify(&KEYS.rsa, "old", after(60)).await.unwrap();
    let body = |body: &str| JwksAnswer { body: body.to_owned(), ..JwksAnswer::default() };
    let location = Some(other.url().to_owned());
    let redirect = JwksAnswer { status: Some(307), location, ..JwksAnswer::default() };
    let too_long = format!("{{\"keys\": []}}{}", " ".repeat(256 << 10));
    for (hour, answer) in (1..).zip([down(), body("<html>"), body(&too_long), redirect]) {
        issuer.server.answer_with(answer);
        // An unknown key causes a fetch, and gets the error that the key may be valid.
        let unknown = issuer.verify(&KEYS.ed25519, "new", after(3600 * hour)).await;
        assert_eq!(unknown, Err(TokenError::KeysUnavailable));
        assert_eq!(issuer.server.requests() as u64, 2 + hour);
        issuer.verify(&KEYS.rsa, "old", after(3600 * hour)).await.unwrap();
    }
    assert_eq!(other.requests(), 0, "a redirect was followed");
    issuer.server.publish(&[("new", &KEYS.ed25519)]);
    issuer.verify(&KEYS.ed25519, "new", after(36_000)).await.unwrap();
}
