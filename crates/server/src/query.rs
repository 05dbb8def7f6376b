//! Query parameters.
//!
//! Parsed by hand, so that an error names the parameter and its rule. A known parameter must not be
//! repeated, and every parameter must decode completely.

use std::fmt;
use std::str::FromStr;

use axum::extract::FromRequestParts;
use axum::http::Method;
use axum::http::request::Parts;
use keepsake_core::id::IdKind;
use keepsake_core::{ContentHash, Id, Timestamp};
use keepsake_engine::View;
use percent_encoding::percent_decode_str;

use crate::error::ApiError;

/// Accepted on every request, used only when a memory is created: the SDKs send `?beta=true`, the
/// preview's plain HTTP clients do not.
const BETA: &str = "beta";

pub(crate) struct QueryParams<T>(pub(crate) T);

pub(crate) trait FromQuery: Sized {
    fn from_query(query: &mut Query) -> Result<Self, ApiError>;
}

/// Declares a struct of query parameters: each with its documentation, which the OpenAPI document
/// shows, and the method of [`Query`] that parses it.
macro_rules! query_params {
    ($(#[$meta:meta])* $name:ident {
        $($(#[$field_meta:meta])* $field:ident: $type:ty = $parse:ident($($argument:expr),*),)*
    }) => {
        $(#[$meta])*
        #[derive(Debug, utoipa::IntoParams)]
        #[into_params(parameter_in = Query)]
        pub(crate) struct $name {
            $($(#[$field_meta])* pub(crate) $field: $type,)*
        }

        impl crate::query::FromQuery for $name {
            fn from_query(query: &mut crate::query::Query) -> Result<Self, crate::error::ApiError> {
                Ok(Self { $($field: query.$parse($($argument),*)?,)* })
            }
        }
    };
}

pub(crate) use query_params;

impl FromQuery for () {
    fn from_query(_: &mut Query) -> Result<Self, ApiError> {
        Ok(())
    }
}

/// Several types take their parameters from one query, in this order.
macro_rules! several {
    ($($type:ident),*) => {
        impl<$($type: FromQuery),*> FromQuery for ($($type,)*) {
            fn from_query(query: &mut Query) -> Result<Self, ApiError> {
                Ok(($($type::from_query(query)?,)*))
            }
        }
    };
}

several!(A, B);
several!(A, B, C);
several!(A, B, C, D);

impl<T: FromQuery, S: Send + Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let mut query = Query::parse(parts.uri.query().unwrap_or_default())?;
        let params = T::from_query(&mut query)?;
        // A misspelt precondition must not lead to an unconditional deletion.
        if parts.method == Method::DELETE {
            query.refuse_rest()?;
        }
        Ok(Self(params))
    }
}

/// The decoded parameters that no type has taken yet.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    fn parse(text: &str) -> Result<Self, ApiError> {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name)?, decode(value)?))
        });
        let malformed = || ApiError::invalid_request("the query must be percent-encoded UTF-8");
        pairs.collect::<Option<_>>().map(Self).ok_or_else(malformed)
    }

    /// Takes a parameter that has several possible names; it must not be repeated.
    fn take(&mut self, names: &[&str]) -> Result<Option<String>, ApiError> {
        let mut taken = self.0.extract_if(.., |(name, _)| names.contains(&name.as_str()));
        let first = taken.next();
        match taken.next() {
            Some((name, _)) => Err(invalid(&name, "must be given once")),
            None => Ok(first.map(|(_, value)| value)),
        }
    }

    /// The text is used unchanged; no database column accepts NUL.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        let parse = |text: &str| (!text.contains('\0')).then(|| text.to_owned());
        self.parsed(&[name], parse, "must not contain NUL")
    }

    /// The text may be empty.
    pub(crate) fn required_text(&mut self, name: &str) -> Result<String, ApiError> {
        self.text(name)?.ok_or_else(|| invalid(name, "must be given"))
    }

    /// A name that a client assigned.
    pub(crate) fn name(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        let is_name = |text: &str| !text.is_empty() && !text.contains(char::is_control);
        let parse = |text: &str| is_name(text).then(|| text.to_owned());
        self.parsed(&[name], parse, "must be a name without control characters")
    }

    fn parsed<T>(
        &mut self,
        names: &[&str],
        parse: impl FnOnce(&str) -> Option<T>,
        rule: impl fmt::Display,
    ) -> Result<Option<T>, ApiError> {
        self.checked(names, |text| parse(text).ok_or(rule))
    }

    /// The error of `parse` is the rule that the text breaks.
    fn checked<T, E: fmt::Display>(
        &mut self,
        names: &[&str],
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, ApiError> {
        let text = self.take(names)?;
        text.map(|text| parse(&text).map_err(|rule| invalid(names[0], rule))).transpose()
    }

    pub(crate) fn word<T>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&str) -> Option<T>,
        words: &str,
    ) -> Result<Option<T>, ApiError> {
        self.parsed(&[name], parse, format_args!("must be {words}"))
    }

    /// `name[]` or `name`, repeated for each word.
    pub(crate) fn words<T>(
        &mut self,
        name: &str,
        parse: impl Fn(&str) -> Option<T>,
        words: &str,
    ) -> Result<Vec<T>, ApiError> {
        self.parsed_list(name, parse, format_args!("must be {words}"))
    }

    /// `name[]` or `name`, repeated for each value.
    fn parsed_list<T>(
        &mut self,
        name: &str,
        parse: impl Fn(&str) -> Option<T>,
        rule: impl fmt::Display,
    ) -> Result<Vec<T>, ApiError> {
        let listed = format!("{name}[]");
        let taken = self.0.extract_if(.., |(given, _)| given == name || *given == listed);
        let parsed: Option<Vec<_>> = taken.map(|(_, text)| parse(&text)).collect();
        parsed.ok_or_else(|| invalid(name, rule))
    }

    /// The engine checks the range.
    pub(crate) fn number(&mut self, name: &str, range: &str) -> Result<Option<u64>, ApiError> {
        let parse = |text: &str| {
            let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| is_digits)
        };
        self.parsed(&[name], parse, format_args!("must be an integer from {range}"))
    }

    /// Whether `beta=true` was sent, as the SDKs 0.97 to 0.112 do.
    #[expect(clippy::unnecessary_wraps, reason = "as the parameters that can be wrong")]
    pub(crate) fn is_beta(&self) -> Result<bool, ApiError> {
        let mut pairs = self.0.iter();
        Ok(pairs.any(|(name, value)| name == BETA && value == "true"))
    }

    /// The parameter `view`: whether content is requested.
    pub(crate) fn view(&mut self) -> Result<Option<View>, ApiError> {
        self.word("view", View::parse, "`basic` or `full`")
    }

    pub(crate) fn flag(&mut self, name: &str) -> Result<Option<bool>, ApiError> {
        self.word(name, |text| text.parse().ok(), "`true` or `false`")
    }

    /// `name[bound]` or `name_bound`.
    pub(crate) fn time(&mut self, name: &str, bound: &str) -> Result<Option<Timestamp>, ApiError> {
        let names = [format!("{name}[{bound}]"), format!("{name}_{bound}")];
        self.time_of(&names.each_ref().map(String::as_str))
    }

    /// A time without bounds.
    pub(crate) fn instant(&mut self, name: &str) -> Result<Option<Timestamp>, ApiError> {
        self.time_of(&[name])
    }

    fn time_of(&mut self, names: &[&str]) -> Result<Option<Timestamp>, ApiError> {
        self.checked(names, |text| {
            let advice = if has_bare_plus(text) { ": write the `+` of its offset as `%2B`" } else { "" };
            Timestamp::parse(text)
                .ok_or_else(|| format!("must be a date or a time in RFC 3339 format{advice}"))
        })
    }

    pub(crate) fn id<K: IdKind>(&mut self, name: &str) -> Result<Option<Id<K>>, ApiError> {
        let rule = format_args!("must be an id that begins with `{}`", K::PREFIX);
        self.parsed(&[name], |text| text.parse().ok(), rule)
    }

    /// `name[]` or `name`, repeated for each id.
    pub(crate) fn ids<K: IdKind>(&mut self, name: &str) -> Result<Vec<Id<K>>, ApiError> {
        let rule = format_args!("must be ids that begin with `{}`", K::PREFIX);
        self.parsed_list(name, |text| text.parse().ok(), rule)
    }

    pub(crate) fn hash(&mut self, name: &str) -> Result<Option<ContentHash>, ApiError> {
        self.checked(&[name], ContentHash::from_str)
    }

    fn refuse_rest(&self) -> Result<(), ApiError> {
        match self.0.iter().find(|(name, _)| name != BETA) {
            None => Ok(()),
            Some((name, _)) => Err(invalid(name, "is not a parameter of this request")),
        }
    }
}

/// Whether a text is a time whose `+` was decoded to a space.
fn has_bare_plus(text: &str) -> bool {
    let parts = text.rsplit_once(' ');
    parts.is_some_and(|(local, offset)| Timestamp::parse(&format!("{local}+{offset}")).is_some())
}

fn invalid(name: &str, rule: impl fmt::Display) -> ApiError {
    ApiError::invalid_request(format!("`{name}` {rule}"))
}

/// Decodes form encoding. `None`: the text is malformed or not UTF-8.
fn decode(text: &str) -> Option<String> {
    let is_hex = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    let is_escape = |rest: &[u8]| is_hex(rest.first()) && is_hex(rest.get(1));
    let mut after_percents = text.split('%').skip(1);
    if !after_percents.all(|rest| is_escape(rest.as_bytes())) {
        return None;
    }
    let text = text.replace('+', " ");
    let decoded = percent_decode_str(&text).decode_utf8().ok()?;
    Some(decoded.into_owned())
}
