mod attacks;
mod claims;
mod headers;
mod jwks;
mod ring;
mod vault;

use std::sync::LazyLock;
use std::time::Duration;

use keepsake_core::{Actor, Timestamp};
use keepsake_testkit::IssuerKey;
use keepsake_testkit::issuer::{self, encode, unsigned};
use serde_json::{Value, json};

use crate::{Identity, IssuerSettings, Issuers, KeySource, Subject, TokenError, UnverifiedToken};

const ISSUER: &str = "https://id.example.com/";
const AUDIENCE: &str = "keepsake.example.com";
const NOW_SECS: i64 = 1_800_000_000;

/// Created once, because creating an RSA key is slow.
static KEYS: LazyLock<Keys> =
    LazyLock::new(|| Keys { rsa: IssuerKey::rsa(), p256: IssuerKey::p256(), ed25519: IssuerKey::ed25519() });

struct Keys {
    rsa: IssuerKey,
    p256: IssuerKey,
    ed25519: IssuerKey,
}

impl Keys {
    fn all(&self) -> [(&'static str, &IssuerKey); 3] {
        [("rsa", &self.rsa), ("p256", &self.p256), ("ed", &self.ed25519)]
    }
}

fn now() -> Timestamp {
    at(NOW_SECS)
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn valid() -> Value {
    json!({
        "iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "tenant": "acme", "scope": "memory:read memory:write",
        "iat": NOW_SECS - 10, "exp": NOW_SECS + 300,
    })
}

/// The valid claims with changes; null removes a claim.
fn changed(changes: &Value) -> Value {
    let mut claims = valid();
    let claims_by_name = claims.as_object_mut().unwrap();
    claims_by_name.extend(changes.as_object().unwrap().clone());
    claims_by_name.retain(|_, value| !value.is_null());
    claims
}

/// A token of valid claims with any header.
fn signed(key: &IssuerKey, header: &Value) -> String {
    key.token_with(&header.to_string(), &valid().to_string())
}

fn settings(keys: KeySource) -> IssuerSettings {
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
fn trusting(text: &str) -> Issuers {
    trusting_as(text, |settings| vec![settings])
}

/// Trusts an issuer with these keys by settings made from the usual ones.
fn trusting_as(text: &str, make: impl Fn(IssuerSettings) -> Vec<IssuerSettings>) -> Issuers {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    std::fs::write(&file, text).unwrap();
    Issuers::new(make(settings(KeySource::File(file)))).unwrap()
}

fn trusting_all() -> Issuers {
    trusting(&issuer::jwks(&KEYS.all()))
}

async fn verify(issuers: &Issuers, token: &str) -> Result<Identity, TokenError> {
    issuers.verify(&UnverifiedToken::parse(token)?, now()).await
}
