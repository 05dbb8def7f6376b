//! Tokens with a wrong signature or none.

use aws_lc_rs::hmac;
use keepsake_testkit::issuer::{encode, unsigned};
use keepsake_testkit::{IssuerKey, issuer};
use keepsake_tokens::{TokenError, Untrusted};
use serde_json::json;

use crate::fixture::{KEYS, trusting, trusting_all, valid, verify};

#[tokio::test]
async fn token_of_each_algorithm_is_taken_from_a_jwks_and_from_pem() {
    let all = trusting_all();
    for (kid, key) in KEYS.all() {
        let token = key.token(kid, &valid());
        assert_eq!(verify(&all, &token).await.unwrap().tenant, "acme", "{kid}");
        // A PEM file has one key, so the name of the key does not matter.
        let one = trusting(&key.pem());
        verify(&one, &token).await.unwrap();
        let nameless = json!({"alg": key.algorithm()}).to_string();
        verify(&one, &key.token_with(&nameless, &valid().to_string())).await.unwrap();
    }
}

#[tokio::test]
async fn unsigned_token_is_refused_in_every_spelling() {
    let issuers = trusting_all();
    for alg in ["none", "None", "NONE", "nOnE", ""] {
        let header = json!({"alg": alg, "kid": "rsa"}).to_string();
        let signed = unsigned(&header, &valid().to_string());
        for signature in ["", "AA"] {
            let token = format!("{signed}.{signature}");
            assert_eq!(verify(&issuers, &token).await, Err(TokenError::Algorithm), "{alg}");
        }
    }
    for (kid, key) in KEYS.all() {
        let header = json!({"alg": key.algorithm(), "kid": kid}).to_string();
        let token = format!("{}.", unsigned(&header, &valid().to_string()));
        assert_eq!(verify(&issuers, &token).await, Err(TokenError::Signature), "{kid}");
    }
}

#[tokio::test]
async fn public_key_is_not_accepted_as_an_hmac_secret() {
    for (kid, key) in KEYS.all() {
        for (alg, of) in
            [("HS256", hmac::HMAC_SHA256), ("HS384", hmac::HMAC_SHA384), ("HS512", hmac::HMAC_SHA512)]
        {
            let header = json!({"alg": alg, "kid": kid}).to_string();
            let signed = unsigned(&header, &valid().to_string());
            let secret = hmac::Key::new(of, key.pem().as_bytes());
            let tag = hmac::sign(&secret, signed.as_bytes());
            let token = format!("{signed}.{}", encode(tag.as_ref()));
            for issuers in [trusting_all(), trusting(&key.pem())] {
                assert_eq!(verify(&issuers, &token).await, Err(TokenError::Algorithm));
            }
        }
    }
}

#[tokio::test]
async fn key_verifies_only_its_algorithm() {
    for (kid, key) in KEYS.all() {
        for alg in ["RS256", "ES256", "EdDSA"] {
            if alg == key.algorithm() {
                continue;
            }
            let header = json!({"alg": alg, "kid": kid}).to_string();
            let token = key.token_with(&header, &valid().to_string());
            for issuers in [trusting_all(), trusting(&key.pem())] {
                assert_eq!(verify(&issuers, &token).await, Err(TokenError::WrongKey), "{kid} {alg}");
            }
        }
    }
    for alg in ["RS384", "RS512", "PS256", "ES384", "ES256K", "ES512", "rs256", "RS256 "] {
        let header = json!({"alg": alg, "kid": "rsa"}).to_string();
        let token = KEYS.rsa.token_with(&header, &valid().to_string());
        assert_eq!(verify(&trusting_all(), &token).await, Err(TokenError::Algorithm), "{alg}");
    }
}

#[tokio::test]
async fn token_signed_by_an_unknown_key_is_refused() {
    let issuers = trusting_all();
    for (kid, stranger) in
        [("rsa", IssuerKey::rsa()), ("p256", IssuerKey::p256()), ("ed", IssuerKey::ed25519())]
    {
        let token = stranger.token(kid, &valid());
        assert_eq!(verify(&issuers, &token).await, Err(TokenError::Signature), "{kid}");
    }
}

#[tokio::test]
async fn key_embedded_in_a_token_is_ignored() {
    let issuers = trusting_all();
    let stranger = IssuerKey::ed25519();
    for header in [
        json!({"alg": "EdDSA", "kid": "ed", "jwk": stranger.jwk()}),
        json!({"alg": "EdDSA", "kid": "ed", "jku": "http://127.0.0.1:1/jwks.json"}),
        json!({"alg": "EdDSA", "kid": "ed", "x5u": "http://127.0.0.1:1/x", "x5c": ["AA"]}),
    ] {
        let token = stranger.token_with(&header.to_string(), &valid().to_string());
        assert_eq!(verify(&issuers, &token).await, Err(TokenError::Signature));
        // A valid token with such a header is accepted.
        let token = KEYS.ed25519.token_with(&header.to_string(), &valid().to_string());
        verify(&issuers, &token).await.unwrap();
    }
    let header = json!({"alg": "EdDSA", "jwk": stranger.jwk()});
    let token = stranger.token_with(&header.to_string(), &valid().to_string());
    assert_eq!(verify(&issuers, &token).await, Err(TokenError::MissingKey));
}

#[tokio::test]
async fn unknown_and_missing_kid_are_refused() {
    let issuers = trusting_all();
    for kid in ["", "nobody", "RSA", "../rsa", "rsa'--"] {
        let token = KEYS.rsa.token(kid, &valid());
        assert_eq!(verify(&issuers, &token).await, Err(TokenError::UnknownKey), "{kid}");
    }
    let token = KEYS.rsa.token_with(r#"{"alg":"RS256"}"#, &valid().to_string());
    assert_eq!(verify(&issuers, &token).await, Err(TokenError::MissingKey));
}

#[tokio::test]
async fn any_changed_character_is_noticed() {
    let issuers = trusting_all();
    let token = KEYS.ed25519.token("ed", &valid());
    for position in 0..token.len() {
        let mut changed = token.clone().into_bytes();
        changed[position] = if changed[position] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        let refused = verify(&issuers, &changed).await;
        assert!(refused.is_err(), "{position}");
    }
}

#[tokio::test]
async fn signature_in_another_encoding_is_refused() {
    let issuers = trusting_all();
    let token = KEYS.p256.token("p256", &valid());
    let (signed, _) = token.rsplit_once('.').unwrap();
    for signature in [
        encode(&[0; 64]),
        encode(&[0xFF; 64]),
        encode(&[0; 63]),
        encode(&[0; 10_000]),
        "====".to_owned(),
        "a b".to_owned(),
    ] {
        let refused = verify(&issuers, &format!("{signed}.{signature}")).await;
        assert!(matches!(refused, Err(TokenError::Signature | TokenError::TooLong)), "{refused:?}");
    }
    // Padding would allow a second text for the same token.
    assert_eq!(verify(&issuers, &format!("{token}==")).await, Err(TokenError::Signature));
}

#[tokio::test]
async fn issuer_named_like_the_server_is_refused() {
    let issuers = trusting_all();
    let header = json!({"alg": "EdDSA", "kid": "ed", "typ": "keepsake+jwt"}).to_string();
    let token = KEYS.ed25519.token_with(&header, &valid().to_string());
    assert!(Untrusted::parse(&token).unwrap().is_own());
    assert_eq!(verify(&issuers, &token).await, Err(TokenError::Type));
}

#[tokio::test]
async fn jwks_ignores_keys_not_for_verification() {
    let mut encryption = KEYS.rsa.jwk();
    encryption["use"] = json!("enc");
    let mut signing_only = KEYS.rsa.jwk();
    signing_only["key_ops"] = json!(["sign"]);
    let mut other_algorithm = KEYS.rsa.jwk();
    other_algorithm["alg"] = json!("PS256");
    let mut short = KEYS.rsa.jwk();
    short["n"] = json!(encode(&[0xC3; 128]));
    let mut other_curve = KEYS.p256.jwk();
    other_curve["crv"] = json!("P-384");
    let symmetric = json!({"kty": "oct", "k": encode(b"secret secret secret secret")});
    let future = json!({"kty": "AKP", "alg": "ML-DSA-44", "pub": "AA"});
    for mut entry in [encryption, signing_only, other_algorithm, short, other_curve, symmetric, future] {
        entry["kid"] = json!("it");
        let mut good_one = KEYS.ed25519.jwk();
        good_one["kid"] = json!("ed");
        let issuers = trusting(&json!({"keys": [entry, good_one]}).to_string());
        for key in [&KEYS.rsa, &KEYS.p256] {
            let refused = verify(&issuers, &key.token("it", &valid())).await;
            assert_eq!(refused, Err(TokenError::UnknownKey), "{entry}");
        }
        verify(&issuers, &KEYS.ed25519.token("ed", &valid())).await.unwrap();
    }
}

#[tokio::test]
async fn keys_with_one_name_are_distinguished_by_algorithm() {
    let keys = [("same", &KEYS.rsa), ("same", &KEYS.ed25519)];
    let issuers = trusting(&issuer::jwks(&keys));
    for (_, key) in keys {
        verify(&issuers, &key.token("same", &valid())).await.unwrap();
    }
    let refused = verify(&issuers, &KEYS.p256.token("same", &valid())).await;
    assert_eq!(refused, Err(TokenError::WrongKey));
}
