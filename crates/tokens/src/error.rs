//! Why a token is not taken.

use crate::untrusted::MAX_TOKEN_BYTES;

/// Why a token is not taken; says nothing of what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is too long to be looked at.
    #[error("the token is longer than {MAX_TOKEN_BYTES} bytes")]
    TooLong,
    /// It is not three parts of base64url with JSON objects in them.
    #[error("the token is malformed")]
    Malformed,
    /// Its `typ` says that it is something else than an access token.
    #[error("the token's type is not JWT")]
    Type,
    /// Its `alg` is none that is taken.
    #[error("the token's algorithm must be RS256, ES256 or EdDSA")]
    Algorithm,
    /// Its `crit` asks for an extension, and there are none.
    #[error("the token asks for an extension that is not supported")]
    Critical,
    /// Its `alg` is not that of the key it names.
    #[error("the token's algorithm is not that of its key")]
    WrongKey,
    /// It names no key, and there are several.
    #[error("the token names no key")]
    MissingKey,
    /// It names a key that its issuer does not have.
    #[error("the token's key is unknown")]
    UnknownKey,
    /// The issuer's keys cannot be had at the moment; the token may be good.
    #[error("the keys of the token's issuer cannot be fetched at the moment")]
    KeysUnavailable,
    /// Its signature does not fit.
    #[error("the token's signature is not valid")]
    Signature,
    /// Its `iss` is no issuer that is trusted.
    #[error("the token's issuer is unknown")]
    Issuer,
    /// Its `aud` names others.
    #[error("the token is for another audience")]
    Audience,
    /// Its time is over.
    #[error("the token has expired")]
    Expired,
    /// Its time has not come, or it was made in the future.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// It says not when it ends.
    #[error("the token has no `exp`")]
    MissingExpiry,
    /// It says not who it is about.
    #[error("the token has no `sub`, or one that is not 1 to 255 characters")]
    Subject,
    /// It says not of which tenant it is.
    #[error("the token names no tenant")]
    MissingTenant,
    /// Its issuer may not name this tenant.
    #[error("the token's issuer is not trusted with this tenant")]
    ForeignTenant,
    /// A claim is not of the kind that it must be.
    #[error("a claim of the token is malformed")]
    Claim,
    /// A token of our own was asked to live longer than one may, or is not
    /// whole.
    #[error("the token cannot be issued")]
    Unissuable,
}

impl TokenError {
    /// Whether trying again may help, the token being good perhaps.
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::KeysUnavailable)
    }
}
