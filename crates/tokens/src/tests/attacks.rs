use super::*;

#[tokio::test]
async fn token_of_each_algorithm_is_taken_from_a_jwks_and_from_pem() {
    let all = trusting_all();
    for (kid, key) in KEYS.all() {
        let token = key.token(kid, &valid());
        assert_eq!(verify(&all, &token).await.unwrap().tenant, "acme", "{kid}");
        // A PEM file has one key, so the name of the key does not matter.
        let one = trusting(&key.pem());
        verify(&one, &token).await.unwrap();
        verify(&one, &signed(key, &json!({"alg": key.algorithm()}))).await.unwrap();
    }
    let keys = [("same", &KEYS.rsa), ("same", &KEYS.ed25519)];
    let issuers = trusting(&issuer::jwks(&keys));
    for (kid, key) in keys {
        verify(&issuers, &key.token(kid, &valid())).await.unwrap();
    }
    assert_eq!(verify(&issuers, &KEYS.p256.token("same", &valid())).await, Err(TokenError::WrongKey));
}

#[tokio::test]
async fn unsigned_token_and_other_algorithms_are_refused() {
    let issuers = trusting_all();
    for alg in ["none", "None", "nOnE", "", "HS256", "HS512", "RS384", "PS256", "ES256K", "rs256", "RS256 "] {
        let header = json!({"alg": alg, "kid": "rsa"});
        let bare = unsigned(&header.to_string(), &valid().to_string());
        for token in [format!("{bare}."), format!("{bare}.AA"), signed(&KEYS.rsa, &header)] {
            assert_eq!(verify(&issuers, &token).await, Err(TokenError::Algorithm), "{alg}");
        }
    }
}

#[tokio::test]
async fn key_verifies_only_its_algorithm_and_its_signatures() {
    let all = trusting_all();
    for ((kid, key), stranger) in
        KEYS.all().into_iter().zip([IssuerKey::rsa(), IssuerKey::p256(), IssuerKey::ed25519()])
    {
        for alg in ["RS256", "ES256", "EdDSA"].into_iter().filter(|alg| *alg != key.algorithm()) {
            let token = signed(key, &json!({"alg": alg, "kid": kid}));
            for issuers in [&all, &trusting(&key.pem())] {
                assert_eq!(verify(issuers, &token).await, Err(TokenError::WrongKey), "{kid} {alg}");
            }
        }
        let forged = stranger.token(kid, &valid());
        assert_eq!(verify(&all, &forged).await, Err(TokenError::Signature), "{kid}");
    }
}

#[tokio::test]
async fn key_embedded_in_a_token_is_ignored() {
    let issuers = trusting_all();
    let stranger = IssuerKey::ed25519();
    for (name, value) in
        [("jwk", stranger.jwk()), ("jku", json!("http://127.0.0.1:1/jwks.json")), ("x5c", json!(["AA"]))]
    {
        let header = json!({"alg": "EdDSA", "kid": "ed", (name): value});
        assert_eq!(verify(&issuers, &signed(&stranger, &header)).await, Err(TokenError::Signature));
        verify(&issuers, &signed(&KEYS.ed25519, &header)).await.unwrap();
    }
    for (kid, error) in [
        (Value::Null, TokenError::MissingKey),
        (json!(""), TokenError::UnknownKey),
        (json!("ED"), TokenError::UnknownKey),
    ] {
        let header = json!({"alg": "EdDSA", "kid": kid, "jwk": stranger.jwk()});
        assert_eq!(verify(&issuers, &signed(&stranger, &header)).await, Err(error), "{kid}");
    }
}

#[tokio::test]
async fn any_changed_character_is_noticed() {
    let issuers = trusting_all();
    let token = KEYS.ed25519.token("ed", &valid());
    for position in 0..token.len() {
        let mut changed = token.clone().into_bytes();
        changed[position] = if changed[position] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        assert!(verify(&issuers, &changed).await.is_err(), "{position}");
    }
    // So is a signature in another encoding.
    let token = KEYS.p256.token("p256", &valid());
    let (bare, signature) = token.rsplit_once('.').unwrap();
    // Padding would allow a second text for the same token.
    for other in [encode(&[0; 64]), encode(&[0; 63]), "a b".to_owned(), format!("{signature}==")] {
        let refused = verify(&issuers, &format!("{bare}.{other}")).await;
        assert_eq!(refused, Err(TokenError::Signature), "{other}");
    }
}

#[tokio::test]
async fn jwks_ignores_keys_not_for_verification() {
    let changed = |key: &IssuerKey, name: &str, value: Value| {
        let mut jwk = key.jwk();
        jwk[name] = value;
        jwk
    };
    for mut entry in [
        changed(&KEYS.rsa, "use", json!("enc")),
        changed(&KEYS.rsa, "key_ops", json!(["sign"])),
        changed(&KEYS.rsa, "alg", json!("PS256")),
        changed(&KEYS.rsa, "n", json!(encode(&[0xC3; 128]))),
        changed(&KEYS.p256, "crv", json!("P-384")),
        json!({"kty": "oct", "k": encode(b"secret secret secret secret")}),
    ] {
        entry["kid"] = json!("it");
        let good = changed(&KEYS.ed25519, "kid", json!("ed"));
        let issuers = trusting(&json!({"keys": [entry, good]}).to_string());
        for key in [&KEYS.rsa, &KEYS.p256] {
            let refused = verify(&issuers, &key.token("it", &valid())).await;
            assert_eq!(refused, Err(TokenError::UnknownKey), "{entry}");
        }
        verify(&issuers, &KEYS.ed25519.token("ed", &valid())).await.unwrap();
    }
}
