//! Tokens: those of configured issuers, and those that the server signs.
//!
//! [`Untrusted`] is what a client sent, read and not believed. [`Issuers`]
//! verifies the tokens of configured issuers by keys from a file or from a JWKS
//! URL, [`KeyRing`] signs and verifies our own. [`Vault`] wraps the secrets that
//! the index keeps for all replicas. Nothing here reads a clock: `now` is told.

mod algorithm;
mod claims;
mod error;
mod issuers;
mod jwks;
mod keys;
mod ring;
mod untrusted;
mod vault;

pub use algorithm::Algorithm;
pub use error::TokenError;
pub use issuers::{Identity, IssuerProblem, IssuerSettings, Issuers, KeySource, Subject};
pub use ring::{KeyRing, MAX_LIFE, OWN_ISSUER, OwnClaims, SigningKey};
pub use untrusted::{MAX_TOKEN_BYTES, Untrusted};
pub use vault::{MasterKey, Opened, SECRET_BYTES, Secret, Vault, VaultError};
