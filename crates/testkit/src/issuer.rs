//! An issuer of JWTs with real keys and a JWKS over HTTP.
//!
//! Tokens are built byte by byte, so that a test can create invalid ones, which
//! libraries refuse to create.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use axum::Router;
use axum::http::{StatusCode, header};
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{listen, locked, serve};

/// A private key of an issuer, for one algorithm.
#[derive(Debug)]
pub enum IssuerKey {
    Rsa(Box<RsaKeyPair>),
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl IssuerKey {
    pub fn rsa() -> Self {
        Self::Rsa(Box::new(RsaKeyPair::generate(KeySize::Rsa2048).expect("no RSA key")))
    }

    pub fn p256() -> Self {
        Self::P256(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("no P-256 key"))
    }

    pub fn ed25519() -> Self {
        Self::Ed25519(Ed25519KeyPair::generate().expect("no Ed25519 key"))
    }

    pub fn algorithm(&self) -> &'static str {
        match self {
            Self::Rsa(_) => "RS256",
            Self::P256(_) => "ES256",
            Self::Ed25519(_) => "EdDSA",
        }
    }

    /// The public key as an entry of a JWKS, without `kid`.
    pub fn jwk(&self) -> Value {
        match self {
            Self::Rsa(pair) => {
                let key = pair.public_key();
                json!({
                    "kty": "RSA",
                    "n": encode(key.modulus().big_endian_without_leading_zero()),
                    "e": encode(key.exponent().big_endian_without_leading_zero()),
                })
            }
            Self::P256(pair) => {
                let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
                json!({"kty": "EC", "crv": "P-256", "x": encode(x), "y": encode(y)})
            }
            Self::Ed25519(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": encode(pair.public_key().as_ref())})
            }
        }
    }

    pub fn pem(&self) -> String {
        let der = match self {
            Self::Rsa(pair) => pair.public_key().as_der().map(|der| der.as_ref().to_vec()),
            Self::P256(pair) => pair.public_key().as_der().map(|der| der.as_ref().to_vec()),
            Self::Ed25519(pair) => pair.public_key().as_der().map(|der| der.as_ref().to_vec()),
        };
        let body = STANDARD.encode(der.expect("no DER of the public key"));
        let lines: Vec<_> = body.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line)).collect();
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", lines.join("\n"))
    }

    pub fn sign(&self, text: &str) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, text.as_bytes(), &mut signature)
                    .expect("RSA cannot sign");
                signature
            }
            Self::P256(pair) => {
                pair.sign(&random, text.as_bytes()).expect("P-256 cannot sign").as_ref().to_vec()
            }
            Self::Ed25519(pair) => pair.sign(text.as_bytes()).as_ref().to_vec(),
        }
    }

    /// A token with a header of the right algorithm that names a key.
    pub fn token(&self, kid: &str, claims: &Value) -> String {
        let header = json!({"alg": self.algorithm(), "typ": "JWT", "kid": kid});
        self.token_with(&header.to_string(), &claims.to_string())
    }

    /// A token of any two texts, signed.
    pub fn token_with(&self, header: &str, payload: &str) -> String {
        let signed = unsigned(header, payload);
        let signature = encode(&self.sign(&signed));
        format!("{signed}.{signature}")
    }
}

pub fn unsigned(header: &str, payload: &str) -> String {
    format!("{}.{}", encode(header.as_bytes()), encode(payload.as_bytes()))
}

/// Encodes a part of a token: base64url without padding.
pub fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub fn jwks(keys: &[(&str, &IssuerKey)]) -> String {
    let keys: Vec<_> = keys
        .iter()
        .map(|(kid, key)| {
            let mut jwk = key.jwk();
            jwk["kid"] = json!(kid);
            jwk["use"] = json!("sig");
            jwk["alg"] = json!(key.algorithm());
            jwk
        })
        .collect();
    json!({ "keys": keys }).to_string()
}

/// An HTTP server that answers with a JWKS and counts its requests.
#[derive(Debug)]
pub struct JwksServer {
    url: String,
    state: Arc<State>,
    _serving: JoinSet<()>,
}

#[derive(Debug, Default)]
struct State {
    answer: Mutex<JwksAnswer>,
    requests: AtomicUsize,
}

#[derive(Debug, Clone, Default)]
pub struct JwksAnswer {
    pub status: Option<u16>,
    pub location: Option<String>,
    pub body: String,
    pub after: Duration,
}

impl JwksServer {
    /// Starts a server on a free loopback port that answers with `body`.
    pub async fn start(body: String) -> Self {
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let answer = move || {
            let state = Arc::clone(&shared);
            async move {
                state.requests.fetch_add(1, Ordering::SeqCst);
                let answer = locked(&state.answer).clone();
                tokio::time::sleep(answer.after).await;
                let status = answer.status.and_then(|status| StatusCode::from_u16(status).ok());
                let location = answer.location.map(|location| [(header::LOCATION, location)]);
                (status.unwrap_or(StatusCode::OK), location, answer.body)
            }
        };
        let router = Router::new().route("/jwks.json", get(answer));
        let (listener, url) = listen().await;
        let serving = serve(listener, router);
        let server = Self { url: format!("{url}/jwks.json"), state, _serving: serving };
        server.answer_with(JwksAnswer { body, ..JwksAnswer::default() });
        server
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn answer_with(&self, answer: JwksAnswer) {
        *locked(&self.state.answer) = answer;
    }

    pub fn publish(&self, keys: &[(&str, &IssuerKey)]) {
        self.answer_with(JwksAnswer { body: jwks(keys), ..JwksAnswer::default() });
    }

    pub fn requests(&self) -> usize {
        self.state.requests.load(Ordering::SeqCst)
    }
}
