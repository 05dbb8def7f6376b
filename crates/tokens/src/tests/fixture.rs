//! An issuer with three keys, and the settings that trust it.

use std::sync::LazyLock;

use keepsake_core::Timestamp;
use keepsake_testkit::{IssuerKey, issuer};
use serde_json::{Value, json};

use crate::{Identity, IssuerSettings, Issuers, KeySource, Subject, TokenError, UnverifiedToken};

pub(crate) const ISSUER: &str = "https://id.example.com/";
pub(crate) const AUDIENCE: &str = "keepsake.example.com";
pub(crate) const NOW_SECS: i64 = 1_800_000_000;

/// Created once, because creating an RSA key is slow.
pub(crate) static KEYS: LazyLock<Keys> =
    LazyLock::new(|| Keys { rsa: IssuerKey::rsa(), p256: IssuerKey::p256(), ed25519: IssuerKey::ed25519() });

pub(crate) struct Keys {
    pub(crate) rsa: IssuerKey,
    pub(crate) p256: IssuerKey,
    pub(crate) ed25519: IssuerKey,
}

impl Keys {
    pub(crate) fn all(&self) -> [(&'static str, &IssuerKey); 3] {
        [("rsa", &self.rsa), ("p256", &self.p256), ("ed", &self.ed25519)]
    }
}

pub(crate) fn now() -> Timestamp {
    at(NOW_SECS)
}

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

pub(crate) fn valid() -> Value {
    json!({
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ada",
        "tenant": "acme",
        "scope": "memory:read memory:write",
        "iat": NOW_SECS - 10,
        "exp": NOW_SECS + 300,
    })
}

/// The valid claims with changes; null removes a claim.
pub(crate) fn changed(changes: &Value) -> Value {
    let mut claims = valid();
    let claims_by_name = claims.as_object_mut().unwrap();
    claims_by_name.extend(changes.as_object().unwrap().clone());
    claims_by_name.retain(|_, value| !value.is_null());
    claims
}

/// A token of valid claims with any header.
pub(crate) fn signed(key: &IssuerKey, header: &Value) -> String {
    key.token_with(&header.to_string(), &valid().to_string())
}

pub(crate) fn settings(keys: KeySource) -> IssuerSettings {
    IssuerSettings {
        issuer: ISSUER.to_owned(),
        audience: AUDIENCE.to_owned(),
        keys,
        tenant_claim: "tenant".to_owned(),
        scopes_claim: "scope".to_owned(),
        tenants: None,
        actor: Subject::User,
        console: None,
    }
}

/// Trusts the issuer with keys from a file with this text.
pub(crate) fn trusting(text: &str) -> Issuers {
    trusting_as(text, |settings| vec![settings])
}

/// Trusts an issuer with these keys by settings made from the usual ones.
pub(crate) fn trusting_as(text: &str, make: impl Fn(IssuerSettings) -> Vec<IssuerSettings>) -> Issuers {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    std::fs::write(&file, text).unwrap();
    Issuers::new(make(settings(KeySource::File(file)))).unwrap()
}

pub(crate) fn trusting_all() -> Issuers {
    trusting(&issuer::jwks(&KEYS.all()))
}

pub(crate) async fn verify(issuers: &Issuers, token: &str) -> Result<Identity, TokenError> {
    issuers.verify(&UnverifiedToken::parse(token)?, now()).await
}
