//! An issuer of JWTs with real keys and a JWKS over HTTP.
//!
//! Tokens are built byte by byte, so that a test can create invalid ones, which
//! libraries refuse to create.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A private key of an issuer, for one algorithm.
#[derive(Debug)]
pub enum IssuerKey {
    /// `RS256`
    Rsa(Box<RsaKeyPair>),
    /// `ES256`
    P256(EcdsaKeyPair),
    /// `EdDSA`
    Ed25519(Ed25519KeyPair),
}

impl IssuerKey {
    /// A new key for `RS256`.
    ///
    /// # Panics
    /// If the key cannot be created.
    #[must_use]
    pub fn rsa() -> Self {
        Self::Rsa(Box::new(RsaKeyPair::generate(KeySize::Rsa2048).expect("no RSA key")))
    }

    /// A new key for `ES256`.
    ///
    /// # Panics
    /// If the key cannot be created.
    #[must_use]
    pub fn p256() -> Self {
        Self::P256(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("no P-256 key"))
    }

    /// A new key for `EdDSA`.
    ///
    /// # Panics
    /// If the key cannot be created.
    #[must_use]
    pub fn ed25519() -> Self {
        Self::Ed25519(Ed25519KeyPair::generate().expect("no Ed25519 key"))
    }

    /// The `alg` of its tokens.
    #[must_use]
    pub fn algorithm(&self) -> &'static str {
        match self {
            Self::Rsa(_) => "RS256",
            Self::P256(_) => "ES256",
            Self::Ed25519(_) => "EdDSA",
        }
    }

    /// The public key as an entry of a JWKS, without `kid`.
    #[must_use]
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

    /// The public key in PEM.
    ///
    /// # Panics
    /// When the key cannot be written.
    #[must_use]
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

    /// The signature of any text.
    ///
    /// # Panics
    /// When the key cannot sign.
    #[must_use]
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
    #[must_use]
    pub fn token(&self, kid: &str, claims: &Value) -> String {
        let header = json!({"alg": self.algorithm(), "typ": "JWT", "kid": kid});
        self.token_with(&header.to_string(), &claims.to_string())
    }

    /// A token of any two texts, signed.
    #[must_use]
    pub fn token_with(&self, header: &str, payload: &str) -> String {
        let signed = unsigned(header, payload);
        let signature = encode(&self.sign(&signed));
        format!("{signed}.{signature}")
    }
}

/// The first two parts of a token.
#[must_use]
pub fn unsigned(header: &str, payload: &str) -> String {
    format!("{}.{}", encode(header.as_bytes()), encode(payload.as_bytes()))
}

/// Encodes a part of a token: base64url without padding.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A JWKS of named keys.
#[must_use]
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
    serving: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct State {
    answer: Mutex<JwksAnswer>,
    requests: AtomicUsize,
}

/// The response of a [`JwksServer`].
#[derive(Debug, Clone, Default)]
pub struct JwksAnswer {
    /// The status, if it is not 200.
    pub status: Option<u16>,
    /// The `location` of a redirection.
    pub location: Option<String>,
    /// The body.
    pub body: String,
    /// The delay of the response.
    pub after: Duration,
}

impl JwksServer {
    /// Starts a server on a free loopback port that answers with `body`.
    ///
    /// # Panics
    /// When there is no free port.
    pub async fn start(body: String) -> Self {
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let answer = move || {
            let state = Arc::clone(&shared);
            async move {
                state.requests.fetch_add(1, Ordering::SeqCst);
                let answer = state.answer().clone();
                tokio::time::sleep(answer.after).await;
                let status = answer.status.and_then(|status| StatusCode::from_u16(status).ok());
                let location = answer.location.map(|location| [(header::LOCATION, location)]);
                (status.unwrap_or(StatusCode::OK), location, answer.body)
            }
        };
        let router = Router::new().route("/jwks.json", get(answer));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("no free port");
        let address = listener.local_addr().expect("no address");
        let serving = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        let server = Self { url: format!("http://{address}/jwks.json"), state, serving };
        server.answer_with(JwksAnswer { body, ..JwksAnswer::default() });
        server
    }

    /// The URL of the JWKS.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Sets the response.
    pub fn answer_with(&self, answer: JwksAnswer) {
        *self.state.answer() = answer;
    }

    /// Sets the keys of the response.
    pub fn publish(&self, keys: &[(&str, &IssuerKey)]) {
        self.answer_with(JwksAnswer { body: jwks(keys), ..JwksAnswer::default() });
    }

    /// The number of requests so far.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.state.requests.load(Ordering::SeqCst)
    }
}

impl State {
    fn answer(&self) -> MutexGuard<'_, JwksAnswer> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for JwksServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
