//! A token as a client sent it: taken apart, and not believed.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::{Algorithm, TokenError};

/// Bytes of a token, at most; headers of a request may be a little longer.
pub const MAX_TOKEN_BYTES: usize = 8 << 10;
/// The `typ` of tokens that the server signs itself.
pub(crate) const OWN_TYPE: &str = "keepsake+jwt";

/// A compact JWS whose header was read; nothing of it is verified.
///
/// What a header says of where keys are to be had (`jku`, `jwk`, `x5u`, `x5c`)
/// is not looked at: keys come from the configuration alone.
#[derive(Clone)]
pub struct Untrusted<'a> {
    pub(crate) algorithm: Algorithm,
    pub(crate) kid: Option<String>,
    pub(crate) is_own: bool,
    /// Header and payload, as they were signed.
    pub(crate) signed: &'a str,
    pub(crate) payload: &'a str,
    pub(crate) signature: &'a str,
}

/// Shows nothing of what it holds: whoever has it can use it.
impl fmt::Debug for Untrusted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Untrusted")
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

impl<'a> Untrusted<'a> {
    /// Takes a token apart and reads its header.
    ///
    /// # Errors
    /// [`TokenError`] for everything that no key could make good.
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
        let algorithm = Algorithm::parse(&header.alg).ok_or(TokenError::Algorithm)?;
        if header.crit.is_some() {
            return Err(TokenError::Critical);
        }
        let is_own = header.typ.as_deref() == Some(OWN_TYPE);
        if !is_own && !header.typ.as_deref().is_none_or(is_access_token) {
            return Err(TokenError::Type);
        }
        // An empty one would be no signature, whatever the algorithm.
        if signature.is_empty() {
            return Err(TokenError::Signature);
        }
        Ok(Self {
            algorithm,
            kid: header.kid,
            is_own,
            signed,
            payload,
            signature,
        })
    }

    /// Whether it says that the server signed it itself.
    pub const fn is_own(&self) -> bool {
        self.is_own
    }

    /// The algorithm that it says it is signed by.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

/// Types of tokens made for other uses (`logout+jwt`, `dpop+jwt`, …) are none.
fn is_access_token(typ: &str) -> bool {
    let short = typ
        .get(..12)
        .filter(|prefix| prefix.eq_ignore_ascii_case("application/"))
        .map_or(typ, |_| &typ[12..]);
    short.eq_ignore_ascii_case("jwt") || short.eq_ignore_ascii_case("at+jwt")
}

/// Reads a part that is the base64url of a JSON object, and nothing else.
pub(crate) fn object<T: for<'de> Deserialize<'de>>(part: &str) -> Result<T, TokenError> {
    let json = URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Malformed)?;
    // What is not read would not be looked at for this.
    let json = std::str::from_utf8(&json).map_err(|_| TokenError::Malformed)?;
    // A list would be read as the fields of a struct in their order.
    if !json.starts_with('{') {
        return Err(TokenError::Malformed);
    }
    serde_json::from_str(json).map_err(|_| TokenError::Malformed)
}
