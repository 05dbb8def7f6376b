//! Where values come from: the file, the environment and the flags.
//!
//! Each becomes a [`Layer`] of known keys, every value with its origin in
//! words; what is not a known key becomes a [`Problem`] at once, so that a
//! misspelt key is named even where another layer sets the right one.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use config::{ConfigError, Map, Source, Value, ValueKind};
use toml::de::{DeArray, DeTable, DeValue};

use super::keys::Key;
use super::rules::value_kind;
use super::{Problem, issuers};

/// What the names of Keepsake's environment variables begin with.
const VARIABLE_PREFIX: &str = "KEEPSAKE_";
/// Variables that the project's tests read; no configuration.
const TEST_PREFIX: &str = "KEEPSAKE_TEST_";

/// Values of known keys from one place.
#[derive(Clone, Default)]
pub(crate) struct Layer {
    entries: Vec<Entry>,
}

#[derive(Clone)]
struct Entry {
    key: String,
    origin: String,
    value: ValueKind,
}

/// Shows keys and origins, never values.
impl fmt::Debug for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.entries.iter().map(|entry| (&entry.key, &entry.origin)))
            .finish()
    }
}

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, ConfigError> {
        let values = self.entries.iter().map(|entry| {
            let value = Value::new(Some(&entry.origin), entry.value.clone());
            (entry.key.clone(), value)
        });
        Ok(values.collect())
    }
}

impl Layer {
    /// The defaults of the keys that have one.
    pub(crate) fn defaults(keys: &[Key]) -> Self {
        let mut layer = Self::default();
        for key in keys {
            if let Some(default) = &key.default {
                layer.set(&key.name, "default", default.to_string());
            }
        }
        layer
    }

    /// Reads a TOML file; origins name its lines.
    pub(crate) fn of_file(path: &Path, keys: &[Key], problems: &mut Vec<Problem>) -> Self {
        let name = path.display();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                problems.push(Problem::new(format!("{name} cannot be read: {error}")));
                return Self::default();
            }
        };
        let lines = Lines {
            file: name.to_string(),
            text: &text,
        };
        let table = match DeTable::parse(&text) {
            Ok(table) => table,
            Err(error) => {
                // Not the error's `Display`: it quotes the line, and what is on it.
                let place = lines.at(error.span().map_or(0, |span| span.start));
                problems.push(Problem::new(format!(
                    "{place} is not valid TOML: {}",
                    error.message()
                )));
                return Self::default();
            }
        };
        let mut layer = Self::default();
        layer.add_table("", table.get_ref(), &lines, keys, problems);
        layer
    }

    fn add_table(
        &mut self,
        section: &str,
        table: &DeTable<'_>,
        lines: &Lines<'_>,
        keys: &[Key],
        problems: &mut Vec<Problem>,
    ) {
        for (name, value) in table {
            let place = lines.at(name.span().start);
            // Quoted where it is not a bare word, so that `"a.b"` is not `a.b`.
            let is_bare = name
                .get_ref()
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || "_-".contains(letter));
            let name = if is_bare {
                name.get_ref().to_string()
            } else {
                format!("{:?}", name.get_ref())
            };
            let full_name = if section.is_empty() {
                name
            } else {
                format!("{section}.{name}")
            };
            let is_known = keys.iter().any(|key| key.name == full_name);
            let is_section = is_section(&full_name, keys);
            match value.get_ref() {
                DeValue::Array(tables) if full_name == issuers::ISSUERS => {
                    self.add_issuers(&place, tables, lines, problems);
                }
                DeValue::Table(table) if is_section => {
                    self.add_table(&full_name, table, lines, keys, problems);
                }
                // No key takes one, and merged as a section it has no origin.
                DeValue::Table(_) if is_known => self.set(&full_name, &place, ValueKind::Nil),
                _ if is_known => self.set(&full_name, &place, value_kind(value)),
                _ if is_section => {
                    problems.push(Problem::new(format!(
                        "{full_name} ({place}) is a section, it has no value itself"
                    )));
                }
                _ => problems.push(Problem::unknown_key(&full_name, &place, keys)),
            }
        }
    }

    /// Adds the tables of issuers, each key by the place of its table.
    fn add_issuers(
        &mut self,
        place: &str,
        tables: &DeArray<'_>,
        lines: &Lines<'_>,
        problems: &mut Vec<Problem>,
    ) {
        for (position, table) in tables.iter().enumerate() {
            let DeValue::Table(table) = table.get_ref() else {
                // No table: what it should be is said where it is read.
                self.set(issuers::ISSUERS, place, ValueKind::Array(Vec::new()));
                return;
            };
            // Also one without a key is there.
            self.set(
                &format!("{}[{position}]", issuers::ISSUERS),
                place,
                ValueKind::Table(Map::new()),
            );
            for (name, value) in table {
                let place = lines.at(name.span().start);
                let field = name.get_ref();
                let full_name = issuers::name_of(position, field);
                if issuers::FIELDS.contains(&field.as_ref()) {
                    self.set(&full_name, &place, value_kind(value));
                } else {
                    problems.push(Problem::new(format!(
                        "unknown key {full_name} ({place}); an issuer has {}",
                        issuers::FIELDS.join(", ")
                    )));
                }
            }
        }
    }

    /// Reads `KEEPSAKE_*` variables; one that is empty counts as not set.
    pub(crate) fn of_variables(
        variables: impl IntoIterator<Item = (OsString, OsString)>,
        keys: &[Key],
        problems: &mut Vec<Problem>,
    ) -> Self {
        let mut layer = Self::default();
        let mut variables: Vec<_> = variables
            .into_iter()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .filter(|(name, _)| name.starts_with(VARIABLE_PREFIX) && !name.starts_with(TEST_PREFIX))
            .collect();
        variables.sort();
        for (name, value) in variables {
            let Some(key) = keys.iter().find(|key| key.variable() == name) else {
                if !is_of_kubernetes(&name, value.to_str().unwrap_or_default()) {
                    problems.push(Problem::unknown_variable(&name, keys));
                }
                continue;
            };
            match value.into_string() {
                Ok(value) if value.is_empty() => {}
                Ok(value) => layer.set(&key.name, &name, value),
                Err(_) => problems.push(Problem::new(format!("{} ({name}) is not UTF-8", key.name))),
            }
        }
        layer
    }

    /// Adds a value under a key's name.
    pub(crate) fn set(&mut self, key: &str, origin: &str, value: impl Into<ValueKind>) {
        self.entries.push(Entry {
            key: key.to_owned(),
            origin: origin.to_owned(),
            value: value.into(),
        });
    }
}

/// Tells lines of a file from offsets in its text.
struct Lines<'a> {
    file: String,
    text: &'a str,
}

impl Lines<'_> {
    fn at(&self, offset: usize) -> String {
        let before = self.text.get(..offset).unwrap_or(self.text);
        format!("{}, line {}", self.file, before.matches('\n').count() + 1)
    }
}

fn is_section(name: &str, keys: &[Key]) -> bool {
    keys.iter().any(|key| key.parts().0 == name)
}

/// Whether Kubernetes made this variable for a Service named `keepsake`.
///
/// For every Service of a namespace Kubernetes gives each container variables
/// that begin with the Service's name in capitals; for one named `keepsake`
/// they look like Keepsake's own, and refusing them would keep the server from
/// starting behind its own Service. They are `KEEPSAKE_SERVICE_HOST`,
/// `KEEPSAKE_SERVICE_PORT`, `KEEPSAKE_SERVICE_PORT_{PORT NAME}`, and
/// `KEEPSAKE_PORT`, `KEEPSAKE_PORT_{number}_{TCP|UDP|SCTP}` with the suffixes
/// `_PROTO`, `_PORT` and `_ADDR`. Those without suffix hold a URL such as
/// `tcp://10.0.0.1:8080`: a `KEEPSAKE_PORT` with a bare number was set by
/// someone who expects it to work, and stays an error.
fn is_of_kubernetes(name: &str, value: &str) -> bool {
    let Some(rest) = name.strip_prefix(VARIABLE_PREFIX) else {
        return false;
    };
    if let Some(rest) = rest.strip_prefix("SERVICE_") {
        return rest == "HOST"
            || rest == "PORT"
            || rest.strip_prefix("PORT_").is_some_and(|name| !name.is_empty());
    }
    let is_url = ["tcp://", "udp://", "sctp://"]
        .iter()
        .any(|scheme| value.starts_with(scheme));
    let Some(rest) = rest.strip_prefix("PORT") else {
        return false;
    };
    if rest.is_empty() {
        return is_url;
    }
    let mut parts = rest.trim_start_matches('_').split('_');
    let is_number = parts.next().is_some_and(|number| number.parse::<u16>().is_ok());
    let is_protocol = parts
        .next()
        .is_some_and(|protocol| ["TCP", "UDP", "SCTP"].contains(&protocol));
    let is_suffix = match parts.next() {
        None => is_url,
        Some(suffix) => ["PROTO", "PORT", "ADDR"].contains(&suffix),
    };
    rest.starts_with('_') && is_number && is_protocol && is_suffix && parts.next().is_none()
}
