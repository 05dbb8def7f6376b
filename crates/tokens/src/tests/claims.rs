use super::*;

async fn answer(changes: Value) -> Result<Identity, TokenError> {
    let token = KEYS.ed25519.token("ed", &changed(&changes));
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
    answer(json!({"aud": ["other", AUDIENCE]})).await.unwrap();
    for (scope, expected) in [
        (json!(null), vec![]),
        (json!([]), vec![]),
        (json!(" memory:read  x "), vec!["memory:read", "x"]),
        (json!(["memory:read", "x"]), vec!["memory:read", "x"]),
    ] {
        assert_eq!(answer(json!({"scope": scope})).await.unwrap().scopes, expected);
    }
}

#[tokio::test]
async fn claim_of_another_value_or_type_is_refused() {
    let shorter = &AUDIENCE[..AUDIENCE.len() - 1];
    let longer = format!("{AUDIENCE}.evil.org");
    for (name, error, values) in [
        ("iss", TokenError::Issuer, json!([null, "", "https://id.example.com", "https://ID.example.com/"])),
        ("iss", TokenError::Claim, json!([[ISSUER]])),
        ("aud", TokenError::Audience, json!([null, "", 1, [], ["other"], {AUDIENCE: 1}, [[AUDIENCE]]])),
        ("aud", TokenError::Audience, json!([shorter, longer, [longer], AUDIENCE.to_uppercase()])),
        ("sub", TokenError::Subject, json!([null, "", "  ", 7, "a\nb", "x".repeat(256)])),
        ("tenant", TokenError::MissingTenant, json!([null, "", " "])),
        ("tenant", TokenError::Claim, json!([7, ["acme"], {"id": "acme"}])),
        ("scope", TokenError::Claim, json!([1, [1], {"memory:read": true}])),
    ] {
        for value in values.as_array().unwrap() {
            assert_eq!(answer(json!({name: value})).await, Err(error), "{name}: {value}");
        }
    }
}

#[tokio::test]
async fn times_hold_with_a_minute_of_leeway() {
    for (changes, expected) in [
        (json!({"exp": NOW_SECS - 59}), Ok(())),
        (json!({"exp": NOW_SECS - 60}), Err(TokenError::Expired)),
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
        assert_eq!(answer(changes.clone()).await.map(|_| ()), expected, "{changes}");
    }
    // The given time counts, however far it is from the machine's.
    for seconds in [4_000_000_000, 1_000_000_000] {
        let claims = changed(&json!({"iat": seconds, "exp": seconds + 10}));
        let token = KEYS.ed25519.token("ed", &claims);
        trusting_all().verify(&UnverifiedToken::parse(&token).unwrap(), at(seconds)).await.unwrap();
    }
}

#[tokio::test]
async fn payload_is_one_object_that_has_each_name_once() {
    let twice = valid().to_string().replacen('{', r#"{"tenant":"other","#, 1);
    let nested = format!(r#"{{"x":{}1{}}}"#, "[".repeat(500), "]".repeat(500));
    let twice_below = valid().to_string().replacen('{', r#"{"org":{"id":"a","id":"b"},"#, 1);
    for payload in ["", "[]", "null", "{", "{}x", "\u{feff}{}", &nested, &twice, &twice_below] {
        let token = KEYS.ed25519.token_with(r#"{"alg":"EdDSA","kid":"ed"}"#, payload);
        assert_eq!(verify(&trusting_all(), &token).await, Err(TokenError::Malformed), "{payload}");
    }
}

#[tokio::test]
async fn one_issuer_may_have_several_audiences_each_with_its_own_actor_and_tenants() {
    let issuers = trusting_as(&KEYS.ed25519.pem(), |people| {
        let workloads = IssuerSettings {
            audience: "workloads".to_owned(),
            actor: Subject::ServiceAccount,
            tenant_claim: "https://acme.example/tenant".to_owned(),
            tenants: Some(vec!["globex".to_owned(), "initech".to_owned()]),
            ..people.clone()
        };
        let issuer = "https://elsewhere.example".to_owned();
        vec![people.clone(), IssuerSettings { issuer, ..people }, workloads]
    });
    assert_eq!(issuers.names()[1..], ["https://elsewhere.example".to_owned()], "each name once");
    let of_workload = |tenant: &str| {
        let claims = changed(&json!({"aud": "workloads", "https://acme.example/tenant": tenant}));
        KEYS.ed25519.token("ed", &claims)
    };
    let identity = verify(&issuers, &of_workload("globex")).await.unwrap();
    assert_eq!(identity.actor, Actor::ServiceAccount("ada".to_owned()));
    assert_eq!(identity.tenant, "globex");
    for foreign in ["acme", "GLOBEX", "globex ", "glob"] {
        let refused = verify(&issuers, &of_workload(foreign)).await;
        assert_eq!(refused, Err(TokenError::ForeignTenant), "{foreign}");
    }
    let identity = verify(&issuers, &KEYS.ed25519.token("ed", &valid())).await.unwrap();
    assert_eq!(identity.actor, Actor::User("ada".to_owned()));
}

#[tokio::test]
async fn nested_claims_are_named_by_their_path() {
    let issuers = trusting_as(&KEYS.ed25519.pem(), |settings| {
        let (tenant_claim, scopes_claim) = ("org.example.com.id".to_owned(), "realm_access.roles".to_owned());
        vec![IssuerSettings { tenant_claim, scopes_claim, ..settings }]
    });
    let nested = json!({"org": {"example.com": {"id": "acme"}}, "realm_access": {"roles": ["memory:read"]}});
    let identity = verify(&issuers, &KEYS.ed25519.token("ed", &changed(&nested))).await.unwrap();
    assert_eq!((identity.tenant.as_str(), identity.scopes), ("acme", vec!["memory:read".to_owned()]));
}

#[tokio::test]
async fn invalid_settings_are_reported_by_position_and_field() {
    let folder = tempfile::tempdir().unwrap();
    let file = |text: &str| {
        let path = folder.path().join(text.len().to_string());
        std::fs::write(&path, text).unwrap();
        KeySource::File(path)
    };
    let url = |url: &str, allow_http| KeySource::Url { url: url.to_owned(), allow_http };
    let trusted = || settings(file(&KEYS.ed25519.pem()));
    let private = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    for (keys, field, rule) in [
        (file(private), "key_file", "neither"),
        (file("-----BEGIN PUBLIC KEY-----\nAAAA"), "key_file", "has no"),
        (file(r#"{"keys": []}"#), "key_file", "has no key"),
        (file(r#"{"kty": "RSA"}"#), "key_file", "not a JWKS"),
        (url("http://127.0.0.1.example.com/", false), "jwks_url", "https://"),
        (url("file:///etc/passwd", true), "jwks_url", "https://"),
        (url("https://a:b@id.example.com/", false), "jwks_url", "credentials"),
    ] {
        let other = IssuerSettings { issuer: "other".to_owned(), ..settings(keys) };
        let problems = Issuers::new(vec![trusted(), other]).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!((problems[0].position, problems[0].field), (1, field), "{problems:?}");
        assert!(problems[0].rule.contains(rule), "{problems:?}");
    }
    for (keys, allow_http) in
        [("https://a.b/", false), ("http://[::1]/", false), ("http://id.internal/", true)]
    {
        Issuers::new(vec![settings(url(keys, allow_http))]).unwrap();
    }
    let token = KEYS.ed25519.token("ed", &valid());
    let nobody = Issuers::default().verify(&UnverifiedToken::parse(&token).unwrap(), now()).await;
    assert_eq!(nobody, Err(TokenError::Issuer), "nobody is trusted by default");
}
