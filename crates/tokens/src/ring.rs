//! Tokens that the server signs with rotating keys, which all replicas share.

use std::fmt;
use std::time::Duration;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keepsake_core::{Actor, ApiKeyId, StoreId, TenantId, Timestamp};
use serde_json::json;
use uuid::Uuid;

use crate::TokenError;
use crate::claims::Claims;
use crate::keys::VerifyingKey;
use crate::untrusted::{OWN_TYPE, UnverifiedToken};
use crate::vault::Secret;

/// The `iss` and `aud` of tokens that the server signs.
pub const OWN_ISSUER: &str = "keepsake";
/// Maximum life of a token.
pub const MAX_LIFE: Duration = Duration::from_hours(24);
const SECOND_MICROS: i64 = 1_000_000;

/// A key that signs tokens, and the period of its use.
pub struct SigningKey {
    kid: String,
    not_before: Timestamp,
    retired_at: Option<Timestamp>,
    pair: Ed25519KeyPair,
    public: VerifyingKey,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("kid", &self.kid).finish_non_exhaustive()
    }
}

impl SigningKey {
    /// The Ed25519 key of a secret.
    ///
    /// It signs from `not_before` until a later key does. From `retired_at` on, its
    /// tokens are refused.
    pub fn new(
        kid: String,
        secret: &Secret,
        not_before: Timestamp,
        retired_at: Option<Timestamp>,
    ) -> Result<Self, TokenError> {
        let pair =
            Ed25519KeyPair::from_seed_unchecked(secret.expose()).map_err(|_| TokenError::Unissuable)?;
        let public = VerifyingKey::of_ed25519(pair.public_key().as_ref());
        Ok(Self { kid, not_before, retired_at, pair, public })
    }

    fn is_retired(&self, now: Timestamp) -> bool {
        self.retired_at.is_some_and(|at| at <= now)
    }
}

/// The claims of a token that the server signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnClaims {
    pub tenant_id: TenantId,
    /// The actor of its changes.
    pub actor: Actor,
    pub scopes: Vec<String>,
    /// The stores that it may access; `None`: all stores of the tenant.
    pub store_ids: Option<Vec<StoreId>>,
    /// The API key that it was issued to; the token is invalid once that key is.
    pub issued_to: Option<ApiKeyId>,
    /// The time of issue, in whole seconds.
    pub issued_at: Timestamp,
    /// The expiry, in whole seconds.
    pub expires_at: Timestamp,
    pub token_id: Uuid,
}

/// The server's signing keys, oldest first.
#[derive(Debug, Default)]
pub struct KeyRing(Vec<SigningKey>);

impl KeyRing {
    /// A ring of keys in any order.
    pub fn new(mut keys: Vec<SigningKey>) -> Self {
        keys.sort_by(|a, b| (a.not_before, &a.kid).cmp(&(b.not_before, &b.kid)));
        Self(keys)
    }

    /// Whether it has a key of this name.
    pub fn has(&self, token: &UnverifiedToken<'_>) -> bool {
        self.find(token).is_some()
    }

    /// Signs a token. Fails without a signing key, and for a life of zero or longer than
    /// [`MAX_LIFE`].
    pub fn issue(&self, claims: &OwnClaims, now: Timestamp) -> Result<String, TokenError> {
        let lives =
            claims.issued_at < claims.expires_at && claims.expires_at <= claims.issued_at.plus(MAX_LIFE);
        let key = self.signer(now).filter(|_| lives).ok_or(TokenError::Unissuable)?;
        let header = json!({"alg": "EdDSA", "typ": OWN_TYPE, "kid": key.kid});
        let payload = json!({
            "iss": OWN_ISSUER,
            "aud": OWN_ISSUER,
            "sub": claims.actor.id(),
            "actor": claims.actor.kind(),
            "tenant": claims.tenant_id,
            "scopes": claims.scopes,
            "stores": claims.store_ids,
            "key": claims.issued_to,
            "iat": claims.issued_at.as_micros() / SECOND_MICROS,
            "exp": claims.expires_at.as_micros() / SECOND_MICROS,
            "jti": claims.token_id.to_string(),
        });
        let [header, payload] = [header, payload].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let signed = format!("{header}.{payload}");
        let signature = URL_SAFE_NO_PAD.encode(key.pair.sign(signed.as_bytes()));
        let token = format!("{signed}.{signature}");
        // The server must not issue a token that it would refuse.
        UnverifiedToken::parse(&token).map_err(|_| TokenError::Unissuable)?;
        Ok(token)
    }

    /// Verifies a token that the server signed.
    ///
    /// Returns its claims and the time from which it is refused.
    pub fn verify(
        &self,
        token: &UnverifiedToken<'_>,
        now: Timestamp,
    ) -> Result<(OwnClaims, Timestamp), TokenError> {
        if !token.is_own {
            return Err(TokenError::Type);
        }
        let key = self.find(token).filter(|key| !key.is_retired(now)).ok_or(TokenError::UnknownKey)?;
        key.public.verify(token)?;
        let claims = Claims::of(token)?;
        if claims.text("iss")? != Some(OWN_ISSUER) {
            return Err(TokenError::Issuer);
        }
        if !claims.is_for(OWN_ISSUER) {
            return Err(TokenError::Audience);
        }
        let refused_from = claims.check_times(now)?.refused_from;
        Ok((own_claims(&claims)?, refused_from))
    }

    fn find(&self, token: &UnverifiedToken<'_>) -> Option<&SigningKey> {
        let kid = token.kid.as_deref()?;
        self.0.iter().find(|key| key.kid == kid)
    }

    /// The latest key whose `not_before` has passed. If there is none, the first
    /// key, which a replica with a fast clock has just created.
    fn signer(&self, now: Timestamp) -> Option<&SigningKey> {
        let mut good = self.0.iter().filter(|key| !key.is_retired(now));
        let first = good.clone().next();
        good.rfind(|key| key.not_before <= now).or(first)
    }
}

/// Reads the claims of a token that the server signed.
fn own_claims(claims: &Claims) -> Result<OwnClaims, TokenError> {
    let text = |name| claims.text(name)?.ok_or(TokenError::Claim);
    let actor = Actor::from_stored(text("actor")?, claims.subject()?).ok_or(TokenError::Claim)?;
    Ok(OwnClaims {
        tenant_id: text("tenant")?.parse().map_err(|_| TokenError::Claim)?,
        actor,
        scopes: claims.names("scopes")?,
        store_ids: claims.ids("stores")?,
        issued_to: claims.text("key")?.map(|id| id.parse().map_err(|_| TokenError::Claim)).transpose()?,
        issued_at: claims.time("iat")?.ok_or(TokenError::Claim)?,
        expires_at: claims.time("exp")?.ok_or(TokenError::Claim)?,
        token_id: text("jti")?.parse().map_err(|_| TokenError::Claim)?,
    })
}
