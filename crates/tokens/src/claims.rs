//! The claims of a token; trusted only after its signature was verified.

use std::time::Duration;

use keepsake_core::{StoreId, Timestamp};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::TokenError;
use crate::untrusted::{UnverifiedToken, object};

/// Maximum difference between the clocks of issuer and server.
const LEEWAY: Duration = Duration::from_mins(1);
/// Maximum length of a subject in characters, from OIDC.
const MAX_SUBJECT_CHARS: usize = 255;
/// The last second of the year 9999.
const LAST_SECOND: f64 = 253_402_300_799.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expiry {
    /// The token's `exp`.
    pub(crate) expires_at: Timestamp,
    /// `exp` plus the leeway.
    pub(crate) refused_from: Timestamp,
}

/// The claims of a token, without duplicates.
#[derive(Debug)]
pub(crate) struct Claims(Map<String, Value>);

impl Claims {
    pub(crate) fn of(token: &UnverifiedToken<'_>) -> Result<Self, TokenError> {
        object(token.payload).map(Self)
    }

    /// A claim that must be text, if it is present.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, TokenError> {
        match claim(&self.0, name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(TokenError::Claim),
        }
    }

    /// A claim with several names: a list, or one text separated by spaces.
    pub(crate) fn names(&self, name: &str) -> Result<Vec<String>, TokenError> {
        match claim(&self.0, name) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::String(text)) => Ok(text.split_ascii_whitespace().map(str::to_owned).collect()),
            Some(Value::Array(list)) => {
                list.iter().map(|item| item.as_str().map(str::to_owned).ok_or(TokenError::Claim)).collect()
            }
            Some(_) => Err(TokenError::Claim),
        }
    }

    /// A list of stores, if it is present.
    pub(crate) fn ids(&self, name: &str) -> Result<Option<Vec<StoreId>>, TokenError> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(list) => Vec::deserialize(list).map(Some).map_err(|_| TokenError::Claim),
        }
    }

    /// Whether `aud`, a text or a list, contains exactly this audience.
    pub(crate) fn is_for(&self, audience: &str) -> bool {
        match self.0.get("aud") {
            Some(Value::String(text)) => text == audience,
            Some(Value::Array(list)) => list.iter().any(|item| item.as_str() == Some(audience)),
            _ => false,
        }
    }

    pub(crate) fn subject(&self) -> Result<&str, TokenError> {
        let subject = self.text("sub").map_err(|_| TokenError::Subject)?.unwrap_or_default();
        let is_good = (1..=MAX_SUBJECT_CHARS).contains(&subject.chars().count())
            && !subject.chars().any(char::is_control)
            && !subject.trim().is_empty();
        is_good.then_some(subject).ok_or(TokenError::Subject)
    }

    /// Checks `exp`, `nbf` and `iat` against the time, with the leeway.
    pub(crate) fn check_times(&self, now: Timestamp) -> Result<Expiry, TokenError> {
        let expires_at = self.time("exp")?.ok_or(TokenError::MissingExpiry)?;
        let expiry = Expiry { expires_at, refused_from: expires_at.plus(LEEWAY) };
        if expiry.refused_from <= now {
            return Err(TokenError::Expired);
        }
        for name in ["nbf", "iat"] {
            if self.time(name)?.is_some_and(|time| time > now.plus(LEEWAY)) {
                return Err(TokenError::NotYetValid);
            }
        }
        Ok(expiry)
    }

    /// A claim in seconds since the epoch, with or without a fraction.
    pub(crate) fn time(&self, name: &str) -> Result<Option<Timestamp>, TokenError> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Number(number)) => number
                .as_f64()
                .filter(|seconds| (0.0..=LAST_SECOND).contains(seconds))
                .map(|seconds| Some(Timestamp::default().plus(Duration::from_secs_f64(seconds))))
                .ok_or(TokenError::Claim),
            Some(_) => Err(TokenError::Claim),
        }
    }
}

/// A claim by its name, or else by its path in nested objects, such as
/// `realm_access.roles`. A name may have dots itself.
fn claim<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    object.get(name).or_else(|| {
        let mut dots = name.match_indices('.');
        dots.find_map(|(dot, _)| claim(object.get(&name[..dot])?.as_object()?, &name[dot + 1..]))
    })
}
