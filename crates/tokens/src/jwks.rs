//! The keys behind a JWKS URL.

use std::sync::Arc;

use keepsake_core::Timestamp;

use crate::TokenError;
use crate::fetched::Fetched;
use crate::http::{check_url, client};
use crate::keys::{KeySet, VerifyingKey};
use crate::untrusted::Untrusted;

/// The keys of one URL.
#[derive(Debug)]
pub(crate) struct Jwks(Fetched<KeySet>);

impl Jwks {
    pub(crate) fn new(url: &str, allow_http: bool) -> Result<Self, String> {
        let danger = "an attacker who replaces the keys in transit can sign any token";
        let url = check_url(url, allow_http, danger)?;
        let parse = |body: &[u8]| KeySet::of_jwks(body).map_err(str::to_owned);
        Ok(Self(Fetched::new("jwks", url, client()?, parse)))
    }

    pub(crate) async fn key_of(
        &self,
        token: &Untrusted<'_>,
        now: Timestamp,
    ) -> Result<VerifyingKey, TokenError> {
        let has_key = |keys: &KeySet| !matches!(keys.key_of(token), Err(TokenError::UnknownKey));
        let known = self.0.get(now, has_key).await;
        let is_unreachable = known.problem.is_some();
        let was_fetched = known.document.is_some();
        let keys: Arc<KeySet> = known.document.unwrap_or_default();
        match keys.key_of(token) {
            Err(TokenError::UnknownKey) if is_unreachable => Err(TokenError::KeysUnavailable),
            Err(TokenError::MissingKey) if !was_fetched => Err(TokenError::KeysUnavailable),
            found => found.cloned(),
        }
    }
}
