//! Public keys of issuers, each for exactly one algorithm.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;

use crate::TokenError;
use crate::untrusted::UnverifiedToken;

/// Minimum size of an RSA modulus in bytes.
const MIN_RSA_BYTES: usize = 2048 / 8;
/// Size of a coordinate on P-256 and of an Ed25519 key.
const POINT_BYTES: usize = 32;

/// A public key and the algorithm that it verifies.
#[derive(Debug, Clone)]
pub(crate) struct VerifyingKey {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl VerifyingKey {
    /// An Ed25519 key from its 32 bytes.
    pub(crate) fn of_ed25519(public_key: &[u8]) -> Self {
        Self { algorithm: Algorithm::EdDSA, key: DecodingKey::from_ed_der(public_key) }
    }

    /// Whether the token was signed with this key and its algorithm.
    pub(crate) fn verify(&self, token: &UnverifiedToken<'_>) -> Result<(), TokenError> {
        if token.algorithm != self.algorithm {
            return Err(TokenError::WrongKey);
        }
        let signed = token.signed.as_bytes();
        match jsonwebtoken::crypto::verify(token.signature, signed, &self.key, self.algorithm) {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(TokenError::Signature),
        }
    }
}

/// The keys of an issuer.
///
/// A token names its key by `kid`. A single key without a name, as in a PEM file,
/// is used for every token.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeySet {
    named: HashMap<String, Vec<VerifyingKey>>,
    nameless: Option<VerifyingKey>,
}

#[derive(Deserialize)]
struct Jwks {
    keys: Vec<Value>,
}

impl KeySet {
    /// Reads a JWKS; keys that cannot verify one of the algorithms are skipped. The error is a
    /// phrase that follows a subject.
    pub(crate) fn of_jwks(json: &[u8]) -> Result<Self, &'static str> {
        let jwks: Jwks = serde_json::from_slice(json).map_err(|_| "is not a JWKS: `{\"keys\": […]}`")?;
        let is_only_key = jwks.keys.len() == 1;
        let mut set = Self::default();
        for key in jwks.keys {
            // Unknown kinds of keys are skipped, because issuers may add some.
            let Ok(jwk) = serde_json::from_value::<Jwk>(key) else {
                continue;
            };
            let Some(key) = of_jwk(&jwk) else {
                continue;
            };
            match jwk.common.key_id {
                Some(kid) => set.named.entry(kid).or_default().push(key),
                None if is_only_key => set.nameless = Some(key),
                None => {}
            }
        }
        Ok(set)
    }

    /// Reads a public key in PEM, or a JWKS.
    pub(crate) fn of_file(text: &[u8]) -> Result<Self, &'static str> {
        let text = text.trim_ascii();
        let set = if text.starts_with(b"{") {
            Self::of_jwks(text)?
        } else {
            Self { nameless: Some(of_pem(text)?), ..Self::default() }
        };
        if set.named.is_empty() && set.nameless.is_none() {
            return Err("has no key for RS256, ES256 or EdDSA that a token could name");
        }
        Ok(set)
    }

    /// The key that the token's header names.
    pub(crate) fn key_of(&self, token: &UnverifiedToken<'_>) -> Result<&VerifyingKey, TokenError> {
        if let Some(key) = &self.nameless {
            return Ok(key);
        }
        let kid = token.kid.as_ref().ok_or(TokenError::MissingKey)?;
        let keys = self.named.get(kid).ok_or(TokenError::UnknownKey)?;
        keys.iter().find(|key| key.algorithm == token.algorithm).ok_or(TokenError::WrongKey)
    }
}

/// The key of an entry if it can verify one of the algorithms.
fn of_jwk(jwk: &Jwk) -> Option<VerifyingKey> {
    let common = &jwk.common;
    let is_for_signatures =
        common.public_key_use.as_ref().is_none_or(|use_| *use_ == PublicKeyUse::Signature);
    let may_verify =
        common.key_operations.as_ref().is_none_or(|operations| operations.contains(&KeyOperations::Verify));
    if !is_for_signatures || !may_verify {
        return None;
    }
    let has_bytes = |number: &str, right: fn(usize) -> bool| {
        URL_SAFE_NO_PAD.decode(number).is_ok_and(|bytes| right(bytes.len()))
    };
    let is_point = |number: &str| has_bytes(number, |bytes| bytes == POINT_BYTES);
    let algorithm = match &jwk.algorithm {
        AlgorithmParameters::RSA(key) if has_bytes(&key.n, |bytes| bytes >= MIN_RSA_BYTES) => {
            Algorithm::RS256
        }
        AlgorithmParameters::EllipticCurve(key)
            if key.curve == EllipticCurve::P256 && is_point(&key.x) && is_point(&key.y) =>
        {
            Algorithm::ES256
        }
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 && is_point(&key.x) => {
            Algorithm::EdDSA
        }
        _ => return None,
    };
    if common.key_algorithm.is_some_and(|named| named != KeyAlgorithm::from(algorithm)) {
        return None;
    }
    let key = DecodingKey::from_jwk(jwk).ok()?;
    Some(VerifyingKey { algorithm, key })
}

fn of_pem(text: &[u8]) -> Result<VerifyingKey, &'static str> {
    let begins_as = |tag: &str| text.starts_with(format!("-----BEGIN {tag}-----").as_bytes());
    if !begins_as("PUBLIC KEY") && !begins_as("RSA PUBLIC KEY") {
        return Err("is neither a JWKS nor a public key in PEM (`-----BEGIN PUBLIC KEY-----`)");
    }
    let is_of = |key: &DecodingKey, right: fn(&[u8]) -> bool| key.try_get_as_bytes().is_ok_and(right);
    if let Ok(key) = DecodingKey::from_rsa_pem(text) {
        // The DER encoding adds a few bytes to the modulus.
        if !is_of(&key, |der| der.len() > MIN_RSA_BYTES) {
            return Err("has an RSA key of fewer than 2048 bits");
        }
        let algorithm = Algorithm::RS256;
        return Ok(VerifyingKey { algorithm, key });
    }
    let ec = DecodingKey::from_ec_pem(text).map(|key| (Algorithm::ES256, key));
    let found = ec.or_else(|_| DecodingKey::from_ed_pem(text).map(|key| (Algorithm::EdDSA, key)));
    let (algorithm, key) = found.map_err(|_| "has no RSA, P-256 or Ed25519 key")?;
    let is_right = match algorithm {
        Algorithm::ES256 => {
            is_of(&key, |point| point.len() == 1 + 2 * POINT_BYTES && point.first() == Some(&4))
        }
        _ => is_of(&key, |point| point.len() == POINT_BYTES),
    };
    if is_right { Ok(VerifyingKey { algorithm, key }) } else { Err("has no RSA, P-256 or Ed25519 key") }
}
