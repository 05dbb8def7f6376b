//! A token as a client sent it: parsed and not verified.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use keepsake_core::duplicate_field;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::error::{MAX_TOKEN_BYTES, TokenError};

/// The `typ` of tokens that the server signs.
pub(crate) const OWN_TYPE: &str = "keepsake+jwt";

/// A compact JWS with a parsed header; nothing of it is verified.
///
/// Key locations in the header (`jku`, `jwk`, `x5u`, `x5c`) are ignored: keys
/// come only from the configuration.
#[derive(Clone)]
pub struct UnverifiedToken<'a> {
    pub(crate) algorithm: Algorithm,
    pub(crate) kid: Option<String>,
    pub(crate) is_own: bool,
    /// The signed text: header and payload.
    pub(crate) signed: &'a str,
    pub(crate) payload: &'a str,
    pub(crate) signature: &'a str,
}

/// Hides the token, because anyone who has it can use it.
impl fmt::Debug for UnverifiedToken<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnverifiedToken")
            .field("algorithm", &self.algorithm)
            .field("is_own", &self.is_own)
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<IgnoredAny>,
}

impl<'a> UnverifiedToken<'a> {
    /// Parses a token and its header.
    pub fn parse(token: &'a str) -> Result<Self, TokenError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::TooLong);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (header, payload) = signed.split_once('.').ok_or(TokenError::Malformed)?;
        if payload.contains('.') || payload.is_empty() {
            return Err(TokenError::Malformed);
        }
        let header: Header = object(header)?;
        let algorithm = algorithm(&header.alg).ok_or(TokenError::Algorithm)?;
        if header.crit.is_some() {
            return Err(TokenError::Critical);
        }
        let is_own = header.typ.as_deref() == Some(OWN_TYPE);
        if !is_own && !header.typ.as_deref().is_none_or(is_access_token) {
            return Err(TokenError::Type);
        }
        // An empty signature is never valid.
        if signature.is_empty() {
            return Err(TokenError::Signature);
        }
        Ok(Self { algorithm, kid: header.kid, is_own, signed, payload, signature })
    }

    /// Whether the header claims that the server signed the token.
    pub const fn is_own(&self) -> bool {
        self.is_own
    }
}

/// The algorithm of an exact `alg`; `none` and HMAC are not accepted.
fn algorithm(alg: &str) -> Option<Algorithm> {
    match alg {
        "RS256" => Some(Algorithm::RS256),
        "ES256" => Some(Algorithm::ES256),
        "EdDSA" => Some(Algorithm::EdDSA),
        _ => None,
    }
}

/// Whether the type is that of an access token, not of another use such as
/// `logout+jwt` or `dpop+jwt`.
fn is_access_token(typ: &str) -> bool {
    let short = typ
        .get(..12)
        .filter(|prefix| prefix.eq_ignore_ascii_case("application/"))
        .map_or(typ, |_| &typ[12..]);
    short.eq_ignore_ascii_case("jwt") || short.eq_ignore_ascii_case("at+jwt")
}

/// Reads a part, which must be the base64url of a JSON object that has each name once,
/// because parsers differ in whether the first or the last one counts.
pub(crate) fn object<T: for<'de> Deserialize<'de>>(part: &str) -> Result<T, TokenError> {
    let json = URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Malformed)?;
    // Checked here, because serde_json does not check UTF-8 in skipped fields.
    let json = std::str::from_utf8(&json).map_err(|_| TokenError::Malformed)?;
    // serde would also accept an array, as the struct's fields in their order.
    if !json.starts_with('{') || duplicate_field(json.as_bytes()).is_some() {
        return Err(TokenError::Malformed);
    }
    serde_json::from_str(json).map_err(|_| TokenError::Malformed)
}
