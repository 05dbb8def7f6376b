//! The required claims of a correctly signed token.

use keepsake_core::Actor;
use keepsake_tokens::{Identity, IssuerSettings, Issuers, KeySource, Subject, TokenError, Untrusted};
use serde_json::{Value, json};

use crate::fixture::{
    AUDIENCE, ISSUER, KEYS, NOW_SECS, at, changed, now, settings, trusting, trusting_all, valid, verify,
};

async fn answer(changes: Value) -> Result<Identity, TokenError> {
    let token = KEYS.ed25519.token("ed", &changed(changes));
    verify(&trusting_all(), &token).await
}

#[tokio::test]
async fn identity_comes_from_the_claims() {
    let identity = answer(json!({})).await.unwrap();
    assert_eq!(identity.tenant, "acme");
    assert_eq!(identity.actor, Actor::User("ada".to_owned()));
    assert_eq!(identity.scopes, ["memory:read", "memory:write"]);
    assert_eq!(identity.expires_at, at(NOW_SECS + 300));
    assert_eq!(identity.refused_from, at(NOW_SECS + 300 + 60));
}

#[tokio::test]
async fn issuer_and_audience_are_compared_exactly() {
    for other in ["https://id.example.com", "https://ID.example.com/", "https://id.example.com/x", ""] {
        assert_eq!(answer(json!({"iss": other})).await, Err(TokenError::Issuer));
    }
    assert_eq!(answer(json!({"iss": null})).await, Err(TokenError::Issuer));
    assert_eq!(answer(json!({"iss": [ISSUER]})).await, Err(TokenError::Claim));
    for other in [
        json!("other"),
        json!(["other"]),
        json!([]),
        json!(null),
        json!({AUDIENCE: 1}),
        json!(1),
        json!([[AUDIENCE]]),
        json!("KEEPSAKE.example.com"),
    ] {
        assert_eq!(answer(json!({"aud": other})).await, Err(TokenError::Audience), "{other}");
    }
    answer(json!({"aud": ["other", AUDIENCE]})).await.unwrap();
}

#[tokio::test]
async fn similar_audience_is_refused() {
    let shorter = &AUDIENCE[..AUDIENCE.len() - 1];
    for near in [
        shorter.to_owned(),
        String::new(),
        format!("{AUDIENCE}.evil.org"),
        format!("{AUDIENCE}/"),
        format!("{AUDIENCE} "),
        format!("x{AUDIENCE}"),
        AUDIENCE.to_uppercase(),
    ] {
        for audience in [json!(near), json!([near]), json!(["other", near])] {
            assert_eq!(answer(json!({"aud": audience})).await, Err(TokenError::Audience), "{audience}");
        }
    }
}

#[tokio::test]
async fn times_hold_with_a_minute_of_leeway() {
    for (changes, expected) in [
        (json!({"exp": NOW_SECS - 59}), Ok(())),
        (json!({"exp": NOW_SECS - 60}), Err(TokenError::Expired)),
        (json!({"exp": 0}), Err(TokenError::Expired)),
        (json!({"exp": null}), Err(TokenError::MissingExpiry)),
        (json!({"exp": "1900000000"}), Err(TokenError::Claim)),
        (json!({"exp": -1}), Err(TokenError::Claim)),
        (json!({"exp": 1e300}), Err(TokenError::Claim)),
        (json!({"exp": 1_900_000_000.5}), Ok(())),
        (json!({"nbf": NOW_SECS + 60}), Ok(())),
        (json!({"nbf": NOW_SECS + 61}), Err(TokenError::NotYetValid)),
        (json!({"nbf": "x"}), Err(TokenError::Claim)),
        (json!({"iat": NOW_SECS + 60}), Ok(())),
        (json!({"iat": NOW_SECS + 61}), Err(TokenError::NotYetValid)),
        (json!({"iat": null}), Ok(())),
    ] {
        let result = answer(changes.clone()).await.map(|_| ());
        assert_eq!(result, expected, "{changes}");
    }
}

#[tokio::test]
async fn verification_uses_the_given_time() {
    let token = KEYS.ed25519.token("ed", &valid());
    let issuers = trusting_all();
    let parsed = Untrusted::parse(&token).unwrap();
    let late = issuers.verify(&parsed, at(NOW_SECS + 360)).await;
    assert_eq!(late, Err(TokenError::Expired));
    let early = issuers.verify(&parsed, at(NOW_SECS - 71)).await;
    assert_eq!(early, Err(TokenError::NotYetValid));
    // Far from the machine's time in both directions.
    for seconds in [4_000_000_000, 1_000_000_000] {
        let claims = changed(json!({"iat": seconds, "exp": seconds + 10}));
        let token = KEYS.ed25519.token("ed", &claims);
        let parsed = Untrusted::parse(&token).unwrap();
        issuers.verify(&parsed, at(seconds)).await.unwrap();
    }
}

#[tokio::test]
async fn subject_and_tenant_are_required() {
    for bad in [json!(null), json!(""), json!("  "), json!(7), json!("a\nb"), json!("x".repeat(256))] {
        assert_eq!(answer(json!({"sub": bad})).await, Err(TokenError::Subject), "{bad}");
    }
    for bad in [json!(null), json!(""), json!(" ")] {
        assert_eq!(answer(json!({"tenant": bad})).await, Err(TokenError::MissingTenant));
    }
    for bad in [json!(7), json!(["acme"]), json!({"id": "acme"})] {
        assert_eq!(answer(json!({"tenant": bad})).await, Err(TokenError::Claim));
    }
}

#[tokio::test]
async fn scopes_are_text_or_list_and_none_means_no_permission() {
    for (scope, expected) in [
        (json!(null), vec![]),
        (json!(""), vec![]),
        (json!([]), vec![]),
        (json!(" memory:read  x "), vec!["memory:read", "x"]),
        (json!(["memory:read", "x"]), vec!["memory:read", "x"]),
    ] {
        assert_eq!(answer(json!({"scope": scope})).await.unwrap().scopes, expected);
    }
    for bad in [json!(1), json!([1]), json!({"memory:read": true})] {
        assert_eq!(answer(json!({"scope": bad})).await, Err(TokenError::Claim));
    }
}

#[tokio::test]
async fn repeated_claim_is_refused() {
    let once = valid().to_string();
    let twice = once.replacen('{', r#"{"tenant":"other","#, 1);
    let header = r#"{"alg":"EdDSA","kid":"ed"}"#;
    let issuers = trusting_all();
    verify(&issuers, &KEYS.ed25519.token_with(header, &once)).await.unwrap();
    let refused = verify(&issuers, &KEYS.ed25519.token_with(header, &twice)).await;
    assert_eq!(refused, Err(TokenError::Malformed));
}

#[tokio::test]
async fn payload_that_is_no_object_is_refused() {
    let header = r#"{"alg":"EdDSA","kid":"ed"}"#;
    let nested = format!(r#"{{"x":{}1{}}}"#, "[".repeat(500), "]".repeat(500));
    for payload in ["", "[]", "null", "\"x\"", "{", "{}x", "\u{feff}{}", &nested] {
        let refused = verify(&trusting_all(), &KEYS.ed25519.token_with(header, payload)).await;
        assert_eq!(refused, Err(TokenError::Malformed), "{payload}");
    }
}

#[tokio::test]
async fn issuer_cannot_name_tenants_outside_its_list() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key.pem");
    std::fs::write(&file, KEYS.ed25519.pem()).unwrap();
    let bound = IssuerSettings {
        tenants: Some(vec!["globex".to_owned(), "initech".to_owned()]),
        actor: Subject::ServiceAccount,
        ..settings(KeySource::File(file))
    };
    let issuers = Issuers::new(vec![bound]).unwrap();
    let token = |tenant: &str| KEYS.ed25519.token("ed", &changed(json!({"tenant": tenant})));
    for foreign in ["acme", "GLOBEX", "globex ", "glob"] {
        assert_eq!(verify(&issuers, &token(foreign)).await, Err(TokenError::ForeignTenant), "{foreign}");
    }
    let identity = verify(&issuers, &token("globex")).await.unwrap();
    assert_eq!(identity.actor, Actor::ServiceAccount("ada".to_owned()));
}

#[tokio::test]
async fn one_issuer_may_have_several_audiences_with_separate_actors() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key.pem");
    std::fs::write(&file, KEYS.ed25519.pem()).unwrap();
    let workloads = IssuerSettings {
        audience: "workloads".to_owned(),
        actor: Subject::ServiceAccount,
        tenant_claim: "https://acme.example/tenant".to_owned(),
        ..settings(KeySource::File(file.clone()))
    };
    let issuers = Issuers::new(vec![settings(KeySource::File(file)), workloads]).unwrap();
    let claims = changed(json!({"aud": "workloads", "https://acme.example/tenant": "globex"}));
    let identity = verify(&issuers, &KEYS.ed25519.token("ed", &claims)).await.unwrap();
    assert_eq!(identity.actor, Actor::ServiceAccount("ada".to_owned()));
    assert_eq!(identity.tenant, "globex");
    let identity = verify(&issuers, &KEYS.ed25519.token("ed", &valid())).await.unwrap();
    assert_eq!(identity.actor, Actor::User("ada".to_owned()));
}

#[test]
fn invalid_settings_are_reported_by_position_and_field() {
    let folder = tempfile::tempdir().unwrap();
    let file = |text: &str| {
        let path = folder.path().join(format!("{}", text.len()));
        std::fs::write(&path, text).unwrap();
        KeySource::File(path)
    };
    let url = |url: &str, allow_http| KeySource::Url { url: url.to_owned(), allow_http };
    let trusted = || settings(file(&KEYS.ed25519.pem()));
    let private = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    for (keys, field, rule) in [
        (KeySource::File(folder.path().join("none")), "key_file", "cannot be read"),
        (file(""), "key_file", "neither"),
        (file(private), "key_file", "neither"),
        (file("-----BEGIN PUBLIC KEY-----\nAAAA"), "key_file", "has no"),
        (file(r#"{"keys": []}"#), "key_file", "has no key"),
        (file(r#"{"kty": "RSA"}"#), "key_file", "not a JWKS"),
        (url("http://id.example.com/jwks", false), "jwks_url", "https://"),
        (url("http://127.0.0.1.example.com/", false), "jwks_url", "https://"),
        (url("file:///etc/passwd", true), "jwks_url", "https://"),
        (url("https://a:b@id.example.com/", false), "jwks_url", "credentials"),
        (url("nonsense", false), "jwks_url", "https://"),
    ] {
        let problems =
            Issuers::new(vec![trusted(), IssuerSettings { issuer: "other".to_owned(), ..settings(keys) }])
                .unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!((problems[0].position, problems[0].field), (1, field), "{problems:?}");
        assert!(problems[0].rule.contains(rule), "{problems:?}");
    }
    for keys in [
        url("https://id.example.com/jwks", false),
        url("http://127.0.0.1:80/jwks", false),
        url("http://[::1]/jwks", false),
        url("http://localhost/jwks", false),
        url("http://id.internal/jwks", true),
    ] {
        Issuers::new(vec![settings(keys)]).unwrap();
    }
    let own = IssuerSettings { issuer: "keepsake".to_owned(), ..trusted() };
    assert_eq!(Issuers::new(vec![own]).unwrap_err()[0].field, "issuer");
    assert_eq!(Issuers::new(vec![trusted(), trusted()]).unwrap_err()[0].position, 1);
}

#[tokio::test]
async fn no_issuer_is_trusted_by_default() {
    let token = KEYS.ed25519.token("ed", &valid());
    let parsed = Untrusted::parse(&token).unwrap();
    let refused = Issuers::default().verify(&parsed, now()).await;
    assert_eq!(refused, Err(TokenError::Issuer));
    assert!(Issuers::default().is_empty());
    verify(&trusting(&KEYS.ed25519.pem()), &token).await.unwrap();
}
