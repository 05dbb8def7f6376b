//! Shows the merged configuration as TOML, secrets hidden.

use std::fmt::Write as _;

use config::ValueKind;

use super::Merged;
use super::keys::{Key, Shown};
use super::reader::value;
use super::rules;
use super::settings::{blob_url, endpoint, index_url};

/// What stands for a value that may not be shown.
const HIDDEN: &str = "***";

impl Merged {
    /// TOML of every key that has a value, its origin as a comment.
    ///
    /// A value that is not what its key takes is shown only where no value of
    /// that key is secret.
    pub(crate) fn to_toml(&self) -> String {
        let mut toml = String::new();
        let mut section = "";
        for key in &self.keys {
            let Some(value) = value(&self.config, &key.name) else {
                continue;
            };
            if key.shown == Shown::Tables {
                continue;
            }
            let (of_section, name) = key.parts();
            if of_section != section {
                section = of_section;
                let _ = match section.split_once('[') {
                    Some((tables, _)) => write!(toml, "\n[[{tables}]]\n"),
                    None => write!(toml, "\n[{section}]\n"),
                };
            }
            let origin = value.origin().unwrap_or("default");
            let _ = writeln!(toml, "{name} = {} # {origin}", shown(&value.kind, key));
        }
        toml
    }
}

fn shown(value: &ValueKind, key: &Key) -> String {
    let hidden_unless = |shown: Result<String, String>| quoted(shown.as_deref().unwrap_or(HIDDEN));
    match key.shown {
        Shown::Plain => literal(value, key),
        Shown::Nothing | Shown::Tables => quoted(HIDDEN),
        Shown::IndexUrl => hidden_unless(index_url(value).map(|url| url.to_string())),
        Shown::BlobUrl => hidden_unless(blob_url(value).map(|url| url.to_string())),
        Shown::Endpoint => hidden_unless(endpoint(value)),
        Shown::Rules => rules::shown(value).unwrap_or_else(|_| quoted("?")),
    }
}

/// The value as TOML; numbers and truths bare, also from a variable's text.
fn literal(value: &ValueKind, key: &Key) -> String {
    let is_bare = |text: &str| text.parse::<u64>().is_ok() || text.parse::<bool>().is_ok();
    match value {
        ValueKind::String(text) if is_bare(text) && key.default.as_deref().is_some_and(is_bare) => {
            text.clone()
        }
        ValueKind::String(text) => quoted(text),
        ValueKind::Boolean(truth) => truth.to_string(),
        ValueKind::I64(number) => number.to_string(),
        ValueKind::Float(number) => number.to_string(),
        ValueKind::Array(items) if !items.is_empty() => {
            let items: Vec<_> = items.iter().map(|item| literal(&item.kind, key)).collect();
            format!("[{}]", items.join(", "))
        }
        // Not what any key takes: the problems say so.
        _ => quoted("?"),
    }
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
