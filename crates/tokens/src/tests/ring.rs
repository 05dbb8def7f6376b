use aws_lc_rs::signature::Ed25519KeyPair;
use keepsake_core::{SessionId, StoreId, TenantId};
use uuid::Uuid;

use super::*;
use crate::{KeyRing, OwnClaims, Secret, SigningKey};

const HOUR: Duration = Duration::from_hours(1);

fn key(kid: &str, byte: u8, not_before: Timestamp, retired_at: Option<Timestamp>) -> SigningKey {
    SigningKey::new(kid.to_owned(), &Secret::new([byte; 32]), not_before, retired_at).unwrap()
}

fn ring() -> KeyRing {
    KeyRing::new(vec![key("token-1", 1, now(), None)])
}

fn claims() -> OwnClaims {
    OwnClaims {
        issued_to: None,
        tenant_id: TenantId::from_uuid(Uuid::from_u128(1)),
        actor: Actor::Session(SessionId::from_uuid(Uuid::from_u128(2))),
        scopes: vec!["memory:read".to_owned()],
        store_ids: Some(vec![StoreId::from_uuid(Uuid::from_u128(3))]),
        issued_at: now(),
        expires_at: now().plus(HOUR),
        token_id: Uuid::from_u128(4),
    }
}

fn verified(ring: &KeyRing, token: &str, now: Timestamp) -> Result<OwnClaims, TokenError> {
    ring.verify(&UnverifiedToken::parse(token)?, now).map(|(claims, _)| claims)
}

#[test]
fn issued_token_has_its_claims() {
    let token = ring().issue(&claims(), now()).unwrap();
    let parsed = UnverifiedToken::parse(&token).unwrap();
    assert!(parsed.is_own());
    let (verified_claims, refused_from) = ring().verify(&parsed, now()).unwrap();
    assert_eq!(verified_claims, claims());
    assert_eq!(refused_from, now().plus(HOUR + Duration::from_mins(1)));
    let all_stores = OwnClaims { store_ids: None, actor: Actor::User("ada".to_owned()), ..claims() };
    let token = ring().issue(&all_stores, now()).unwrap();
    assert_eq!(verified(&ring(), &token, now()), Ok(all_stores));
    assert_eq!(format!("{:?}", ring()), "KeyRing([SigningKey { kid: \"token-1\", .. }])");
}

#[test]
fn token_lives_a_day_at_most() {
    let day = Duration::from_hours(24);
    let second = Duration::from_secs(1);
    for (life, is_issued) in [(Duration::ZERO, false), (second, true), (day, true), (day + second, false)] {
        let claims = OwnClaims { expires_at: now().plus(life), ..claims() };
        assert_eq!(ring().issue(&claims, now()).is_ok(), is_issued, "{life:?}");
    }
}

#[test]
fn key_signs_after_its_start_and_verifies_around_it() {
    let later = now().plus(HOUR);
    let keys = || KeyRing::new(vec![key("token-2", 2, later, None), key("token-1", 1, now(), None)]);
    // A first key signs even before its start by this clock.
    for (time, is_of_first) in [(at(0), true), (later.minus(Duration::from_micros(1)), true), (later, false)]
    {
        let token = keys().issue(&claims(), time).unwrap();
        verified(&keys(), &token, now()).unwrap();
        assert_eq!(verified(&ring(), &token, now()).is_ok(), is_of_first, "{time:?}");
    }
}

#[test]
fn retired_key_neither_signs_nor_verifies() {
    let token = ring().issue(&claims(), now()).unwrap();
    let retired = KeyRing::new(vec![key("token-1", 1, now(), Some(now().plus(HOUR / 2)))]);
    verified(&retired, &token, now()).unwrap();
    let later = now().plus(HOUR / 2);
    assert_eq!(verified(&retired, &token, later), Err(TokenError::UnknownKey));
    assert_eq!(retired.issue(&claims(), later), Err(TokenError::Unissuable));
}

#[test]
fn token_of_another_ring_is_refused() {
    for (kid, byte, error) in [("token-1", 9, TokenError::Signature), ("token-9", 1, TokenError::UnknownKey)]
    {
        let other = KeyRing::new(vec![key(kid, byte, now(), None)]);
        assert_eq!(verified(&ring(), &other.issue(&claims(), now()).unwrap(), now()), Err(error));
    }
}

/// A correctly signed token whose payload differs from a valid one.
fn forged(changes: &Value) -> String {
    let mut payload = json!({
        "iss": "keepsake", "aud": "keepsake", "sub": "ada", "actor": "user_actor",
        "tenant": TenantId::from_uuid(Uuid::from_u128(1)), "scopes": [], "stores": null,
        "iat": now().as_micros() / 1_000_000, "exp": now().as_micros() / 1_000_000 + 60,
        "jti": Uuid::from_u128(4).to_string(),
    });
    payload.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    let header = r#"{"alg":"EdDSA","typ":"keepsake+jwt","kid":"token-1"}"#;
    let signed = unsigned(header, &payload.to_string());
    let pair = Ed25519KeyPair::from_seed_unchecked(&[1; 32]).unwrap();
    format!("{signed}.{}", encode(pair.sign(signed.as_bytes()).as_ref()))
}

#[test]
fn foreign_claim_in_an_own_token_is_refused() {
    verified(&ring(), &forged(&json!({})), now()).unwrap();
    for (changes, error) in [
        (json!({"iss": "other"}), TokenError::Issuer),
        (json!({"aud": "other"}), TokenError::Audience),
        (json!({"actor": "robot"}), TokenError::Claim),
        (json!({"actor": "session_actor"}), TokenError::Claim),
        (json!({"tenant": "acme"}), TokenError::Claim),
        (json!({"stores": ["x"]}), TokenError::Claim),
        (json!({"sub": null}), TokenError::Subject),
        (json!({"exp": null}), TokenError::MissingExpiry),
        (json!({"jti": 1}), TokenError::Claim),
    ] {
        assert_eq!(verified(&ring(), &forged(&changes), now()), Err(error), "{changes}");
    }
}

#[tokio::test]
async fn own_and_issuer_tokens_are_not_confused() {
    let token = ring().issue(&claims(), now()).unwrap();
    assert_eq!(verify(&trusting_all(), &token).await, Err(TokenError::Type));
    let theirs = KEYS.ed25519.token("token-1", &valid());
    assert_eq!(verified(&ring(), &theirs, now()), Err(TokenError::Type));
}
