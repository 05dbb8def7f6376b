//! Tokens of configured issuers and of the server.
//!
//! [`UnverifiedToken`] is a parsed token that is not verified yet. [`Issuers`] verifies
//! tokens of configured issuers with keys from a file or a JWKS URL, and lets
//! people sign in at an issuer's page. [`KeyRing`]
//! signs and verifies the server's own tokens. [`Vault`] encrypts the secrets that
//! all replicas share in the index. No function reads a clock; the caller passes
//! `now`.

mod claims;
mod error;
mod fetched;
mod http;
mod issuers;
mod keys;
mod openid;
mod ring;
#[cfg(test)]
mod tests;
mod untrusted;
mod vault;

pub use error::{MAX_TOKEN_BYTES, TokenError};
pub use issuers::{Identity, IssuerProblem, IssuerSettings, Issuers, KeySource, SignInIssuer, Subject};
pub use openid::{AuthorizationResponse, Challenge, ClientSettings, OpenIdError};
pub use ring::{KeyRing, MAX_LIFE, OWN_ISSUER, OwnClaims, SigningKey};
pub use untrusted::UnverifiedToken;
pub use vault::{MasterKey, OpenedSecret, SECRET_BYTES, Secret, Vault, VaultError};
