//! The reasons why a token is refused.

/// Maximum size of a token; request headers may be a little longer.
pub const MAX_TOKEN_BYTES: usize = 8 << 10;

/// The reason why a token is refused; contains no claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("the token is longer than {MAX_TOKEN_BYTES} bytes")]
    TooLong,
    /// It is not three parts of base64url with JSON objects in them.
    #[error("the token is malformed")]
    Malformed,
    /// Its `typ` is not that of an access token.
    #[error("the token's type is not JWT")]
    Type,
    #[error("the token's algorithm must be RS256, ES256 or EdDSA")]
    Algorithm,
    /// Its `crit` requires an extension; none is supported.
    #[error("the token requires an extension that is not supported")]
    Critical,
    #[error("the token's algorithm is not that of its key")]
    WrongKey,
    /// It names no key, and there are several.
    #[error("the token names no key")]
    MissingKey,
    #[error("the token's key is unknown")]
    UnknownKey,
    /// The issuer's keys cannot be fetched now; the token may be valid.
    #[error("the keys of the token's issuer cannot be fetched at the moment")]
    KeysUnavailable,
    #[error("the token's signature is not valid")]
    Signature,
    #[error("the token's issuer is unknown")]
    Issuer,
    #[error("the token is for another audience")]
    Audience,
    #[error("the token has expired")]
    Expired,
    /// Its `nbf` or `iat` is in the future.
    #[error("the token is not valid yet")]
    NotYetValid,
    #[error("the token has no `exp`")]
    MissingExpiry,
    #[error("the token has no `sub`, or one that is not 1 to 255 characters")]
    Subject,
    #[error("the token names no tenant")]
    MissingTenant,
    #[error("the token's issuer is not trusted with this tenant")]
    ForeignTenant,
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
