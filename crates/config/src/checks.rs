//! Checks of values that several keys share.
//!
//! Each returns the value, or the rule that it breaks as a phrase that follows
//! the key's name. Numbers and booleans may also be text, because variables
//! hold nothing else.

use std::ops::RangeInclusive;
use std::time::Duration;

use toml::Value;

/// The largest number that a key takes, also of a key that is no limit.
const MAX_NUMBER: u64 = keepsake_core::limits::MAX_LIMIT;

/// Text that is not empty.
pub(crate) fn text(value: &Value) -> Result<&str, String> {
    match value {
        Value::String(text) if !text.trim().is_empty() => Ok(text),
        Value::String(_) => Err("must not be empty".to_owned()),
        _ => Err("must be text".to_owned()),
    }
}

/// Text that is not empty, converted.
pub(crate) fn owned<T: for<'a> From<&'a str>>(value: &Value) -> Result<T, String> {
    text(value).map(T::from)
}

/// A list of texts, neither the list nor a text empty.
pub(crate) fn texts(value: &Value) -> Result<Vec<String>, String> {
    let items = value.as_array().filter(|items| !items.is_empty());
    items
        .and_then(|items| items.iter().map(|item| owned(item).ok()).collect())
        .ok_or_else(|| "must be a list of texts, none of them empty".to_owned())
}

pub(crate) fn whole<T: TryFrom<u64>>(range: RangeInclusive<u64>) -> impl Fn(&Value) -> Result<T, String> {
    move |value| {
        let number: Option<u64> = match value {
            Value::Integer(number) => u64::try_from(*number).ok(),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        number
            .filter(|number| range.contains(number))
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| format!("must be a whole number from {} to {}", range.start(), range.end()))
    }
}

pub(crate) fn at_least<T: TryFrom<u64>>(min: u64) -> impl Fn(&Value) -> Result<T, String> {
    whole(min..=MAX_NUMBER)
}

pub(crate) fn seconds(min: u64) -> impl Fn(&Value) -> Result<Duration, String> {
    move |value| at_least(min)(value).map(Duration::from_secs)
}

/// A whole number of days, up to a hundred years.
pub(crate) fn days(value: &Value) -> Result<Duration, String> {
    whole(1..=36_500)(value).map(|days: u64| Duration::from_hours(24 * days))
}

/// A number that may have a fraction.
pub(crate) fn decimal(value: &Value) -> Option<f64> {
    match value {
        Value::Float(number) => Some(*number),
        Value::Integer(number) => i32::try_from(*number).ok().map(f64::from),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

pub(crate) fn boolean(value: &Value) -> Result<bool, String> {
    let boolean = match value {
        Value::Boolean(boolean) => Some(*boolean),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    boolean.ok_or_else(|| "must be true or false".to_owned())
}

/// The value of one of these names.
pub(crate) fn one_of<T: Copy>(values: &[(&str, T)]) -> impl Fn(&Value) -> Result<T, String> {
    move |value| {
        let name = text(value)?;
        let found = values.iter().find(|(of, _)| *of == name);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<_> = values.iter().map(|(name, _)| *name).collect();
            let (last, others) = names.split_last().unwrap_or((&"", &[]));
            format!("must be {} or {last}", others.join(", "))
        })
    }
}

/// Texts with commas between them; `what` describes them.
pub(crate) fn comma_separated(
    is_good: impl Fn(&str) -> bool,
    what: &str,
) -> impl Fn(&Value) -> Result<Vec<String>, String> {
    move |value| {
        let items: Vec<_> = text(value)?.split(',').map(|item| item.trim().to_owned()).collect();
        let is_all_good = items.iter().all(|item| is_good(item));
        is_all_good.then_some(items).ok_or_else(|| format!("must be {what}, with commas between them"))
    }
}

/// A host and a port to listen on.
pub(crate) fn address(value: &Value) -> Result<String, String> {
    let text = text(value)?;
    let is_address = text.rsplit_once(':').is_some_and(|(host, port)| {
        let is_bare_ipv6 = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
        !host.is_empty() && !is_bare_ipv6 && !host.contains(['/', '@', ' ']) && port.parse::<u16>().is_ok()
    });
    is_address.then(|| text.to_owned()).ok_or_else(|| "must be host:port, such as 127.0.0.1:8080".to_owned())
}

/// The URL of an HTTP server, without credentials.
pub(crate) fn http_url(value: &Value) -> Result<String, String> {
    let text = text(value)?;
    let is_plain = after_scheme(text)
        .is_some_and(|host| !host.is_empty() && !host.starts_with('/') && !host.contains(['@', '?', '#']));
    is_plain.then(|| text.to_owned()).ok_or_else(|| {
        "must be an http:// or https:// URL without credentials, parameters and fragment".to_owned()
    })
}

fn after_scheme(url: &str) -> Option<&str> {
    url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"))
}
