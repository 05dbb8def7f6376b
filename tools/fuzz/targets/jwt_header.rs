//! Tokens: whatever the header says, only signed tokens are accepted.

#![no_main]

use std::pin::pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keepsake_core::{Actor, ApiKeyId, TenantId, Timestamp};
use keepsake_tokens::{
    IssuerSettings, Issuers, KeyRing, KeySource, MAX_TOKEN_BYTES, OwnClaims, Secret, SigningKey, Subject,
    TokenError, UnverifiedToken,
};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const ISSUER: &str = "https://issuer.example";
/// The public key of RFC 8037's example; the target has no secret key for it.
const JWKS: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k1",
    "x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

struct Known {
    ring: KeyRing,
    /// A good token of our own.
    token: String,
    issuers: Issuers,
}

fn now() -> Timestamp {
    Timestamp::from_micros(1_800_000_000_000_000)
}

static KNOWN: LazyLock<Known> = LazyLock::new(|| {
    let key = SigningKey::new("k1".to_owned(), &Secret::new([7; 32]), now(), None).unwrap();
    let ring = KeyRing::new(vec![key]);
    let uuid = uuid::Uuid::from_u128(7);
    let claims = OwnClaims {
        issued_to: None,
        tenant_id: TenantId::from_uuid(uuid),
        actor: Actor::ApiKey(ApiKeyId::from_uuid(uuid)),
        scopes: vec!["memory:read".to_owned()],
        store_ids: None,
        issued_at: now(),
        expires_at: now().plus(Duration::from_hours(1)),
        token_id: uuid,
    };
    let token = ring.issue(&claims, now()).unwrap();
    let file = std::env::temp_dir().join(format!("keepsake-fuzz-{}.jwks", std::process::id()));
    std::fs::write(&file, JWKS).unwrap();
    let settings = IssuerSettings {
        issuer: ISSUER.to_owned(),
        audience: "keepsake".to_owned(),
        keys: KeySource::File(file.clone()),
        tenant_claim: "tenant".to_owned(),
        scopes_claim: "scope".to_owned(),
        tenants: None,
        actor: Subject::User,
        console: None,
    };
    let issuers = Issuers::new(vec![settings]).unwrap();
    std::fs::remove_file(file).unwrap();
    Known { ring, token, issuers }
});

/// By keys of a file, which waits for nothing.
fn verify(token: &UnverifiedToken<'_>) -> bool {
    let verified = pin!(KNOWN.issuers.verify(token, now()));
    match verified.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(verified) => verified.is_ok(),
        Poll::Pending => panic!("a key of a file was waited for"),
    }
}

/// Asserts the properties of every token that could be parsed.
fn assert_well_formed(text: &str, token: &UnverifiedToken<'_>) {
    assert!(text.len() <= MAX_TOKEN_BYTES);
    let parts: Vec<_> = text.split('.').collect();
    assert!(parts.len() == 3 && parts.iter().all(|part| !part.is_empty()));
    let header: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts[0]).unwrap()).unwrap();
    let algorithm = header["alg"].as_str().unwrap();
    assert!(["RS256", "ES256", "EdDSA"].contains(&algorithm));
    assert!(header["crit"].is_null());
    assert_eq!(token.is_own(), header["typ"] == "keepsake+jwt");
    // Debug output does not contain the signature.
    assert!(!format!("{token:?}").contains(parts[2]) || parts[2].len() < 20);
}

fn assert_not_believed(text: &str) -> Option<TokenError> {
    match UnverifiedToken::parse(text) {
        Ok(token) => {
            assert_well_formed(text, &token);
            let own = KNOWN.ring.verify(&token, now());
            assert!(own.is_err() && !verify(&token), "{text}");
            own.err()
        }
        Err(refused) => {
            assert!(!refused.is_transient());
            Some(refused)
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let mut parts = KNOWN.token.split('.');
    let [header, payload, signature] = [(); 3].map(|()| parts.next().unwrap());
    let good = UnverifiedToken::parse(&KNOWN.token).unwrap();
    assert!(KNOWN.ring.verify(&good, now()).is_ok() && !verify(&good));
    // As it comes from a client.
    if let Ok(text) = std::str::from_utf8(data)
        && text != KNOWN.token
    {
        assert_not_believed(text);
    }
    // Another header, payload or signature on a good token, and headers with
    // claims that are good but for the signature.
    let part = URL_SAFE_NO_PAD.encode(data);
    let claims =
        format!(r#"{{"iss":"{ISSUER}","aud":"keepsake","sub":"ada","tenant":"t","exp":1900000000}}"#);
    let claims = URL_SAFE_NO_PAD.encode(claims);
    for [header, payload, signature] in [
        [part.as_str(), payload, signature],
        [header, &part, signature],
        [header, payload, &part],
        [&part, &claims, signature],
        [&part, &claims, ""],
    ] {
        let text = format!("{header}.{payload}.{signature}");
        if text != KNOWN.token {
            assert_not_believed(&text);
        }
    }
});
