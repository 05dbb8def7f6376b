//! The reasons why a token is refused.

use crate::untrusted::MAX_TOKEN_BYTES;

/// The reason why a token is refused; contains no claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is longer than the maximum.
    #[error("the token is longer than {MAX_TOKEN_BYTES} bytes")]
    TooLong,
    /// It is not three parts of base64url with JSON objects in them.
    #[error("the token is malformed")]
    Malformed,
    /// Its `typ` is not that of an access token.
    #[error("the token's type is not JWT")]
    Type,
    /// Its `alg` is not accepted.
    #[error("the token's algorithm must be RS256, ES256 or EdDSA")]
    Algorithm,
    /// Its `crit` requires an extension; none is supported.
    #[error("the token requires an extension that is not supported")]
    Critical,
    /// Its `alg` differs from the algorithm of its key.
    #[error("the token's algorithm is not that of its key")]
    WrongKey,
    /// It names no key, and there are several.
    #[error("the token names no key")]
    MissingKey,
    /// It names a key that its issuer does not have.
    #[error("the token's key is unknown")]
    UnknownKey,
    /// The issuer's keys cannot be fetched now; the token may be valid.
    #[error("the keys of the token's issuer cannot be fetched at the moment")]
    KeysUnavailable,
    /// Its signature is invalid.
    #[error("the token's signature is not valid")]
    Signature,
    /// Its `iss` is not a trusted issuer.
    #[error("the token's issuer is unknown")]
    Issuer,
    /// Its `aud` names other audiences.
    #[error("the token is for another audience")]
    Audience,
    /// It has expired.
    #[error("the token has expired")]
    Expired,
    /// Its `nbf` or `iat` is in the future.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// It has no `exp`.
    #[error("the token has no `exp`")]
    MissingExpiry,
    /// It has no subject.
    #[error("the token has no `sub`, or one that is not 1 to 255 characters")]
    Subject,
    /// It names no tenant.
    #[error("the token names no tenant")]
    MissingTenant,
    /// Its issuer may not name this tenant.
    #[error("the token's issuer is not trusted with this tenant")]
    ForeignTenant,
    /// A claim has the wrong type.
    #[error("a claim of the token is malformed")]
    Claim,
    /// The server cannot sign this token: its life is too long or a claim is
    /// invalid.
    #[error("the token cannot be issued")]
    Unissuable,
}

impl TokenError {
    /// Whether a retry may succeed, because the token may be valid.
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::KeysUnavailable)
    }
}
