//! Looks up keys in the sources and collects problems.

mod unknown;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::{Display, Write as _};

use toml::Value;

use crate::checks::text;

/// What is printed instead of a secret.
pub(crate) const HIDDEN: &str = "***";
pub(crate) const VARIABLE_PREFIX: &str = "KEEPSAKE_";
/// Variables that the project's tests read; not part of the configuration.
const TEST_PREFIX: &str = "KEEPSAKE_TEST_";
/// Variables of the commands that call a server; not part of the configuration.
const CLIENT_VARIABLES: [&str; 6] = [
    "KEEPSAKE_URL",
    "KEEPSAKE_API_KEY",
    "KEEPSAKE_STORE",
    "KEEPSAKE_CONTEXT",
    "KEEPSAKE_FROM_API_KEY",
    "KEEPSAKE_TO_API_KEY",
];

#[derive(Clone)]
pub(crate) struct ConfigValue {
    pub(crate) value: Value,
    /// A line of a file, a variable or a flag.
    pub(crate) origin: String,
}

#[derive(Clone)]
pub(crate) struct Key {
    pub(crate) name: String,
    /// The value as TOML and its origin; `None` if the key has neither value nor default.
    shown: Option<(String, String)>,
}

impl Key {
    /// The section, which is empty at the top level, and the name in it.
    pub(crate) fn parts(&self) -> (&str, &str) {
        self.name.rsplit_once('.').unwrap_or(("", &self.name))
    }

    pub(crate) fn variable(&self) -> String {
        variable_of(&self.name)
    }
}

/// Reads keys, one call for each, and remembers which keys there are.
///
/// A value that breaks its key's rule becomes a problem, and reading goes on
/// with a placeholder, so that all problems are found. A check returns a rule as
/// a phrase that follows the key's name, and never quotes the value.
///
/// Has no `Debug`: it holds secrets as plain text.
#[derive(Clone, Default)]
pub(crate) struct Reader {
    /// Keys and sections of the file. The keys in an array of tables have names
    /// such as `auth.issuers[0].issuer`.
    pub(crate) file: BTreeMap<String, ConfigValue>,
    pub(crate) variables: BTreeMap<String, String>,
    flags: BTreeMap<&'static str, ConfigValue>,
    pub(crate) known: Vec<Key>,
    source_problems: Vec<String>,
    problems: Vec<String>,
    /// The file could not be read, so its keys are not known.
    is_file_unread: bool,
}

impl Reader {
    /// Takes Keepsake's variables from those of the environment.
    pub(crate) fn set_variables(&mut self, variables: Vec<(OsString, OsString)>) {
        let mut variables: Vec<_> = variables
            .into_iter()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .filter(|(name, _)| name.starts_with(VARIABLE_PREFIX) && !name.starts_with(TEST_PREFIX))
            .filter(|(name, _)| !CLIENT_VARIABLES.contains(&name.as_str()))
            .collect();
        variables.sort();
        for (name, value) in variables {
            match value.into_string() {
                Ok(value) => drop(self.variables.insert(name, value)),
                Err(_) => self.source_problem(format!("the variable {name} is not UTF-8")),
            }
        }
    }

    pub(crate) fn set_flag(&mut self, name: &'static str, flag: &str, text: String) {
        let found = ConfigValue { value: Value::String(text), origin: flag.to_owned() };
        self.flags.insert(name, found);
    }

    /// The same sources with none of their keys read.
    pub(crate) fn unread(&self) -> Self {
        Self { known: Vec::new(), problems: Vec::new(), ..self.clone() }
    }

    pub(crate) fn get<T: Default>(
        &mut self,
        name: &str,
        default: impl Into<Value>,
        check: impl FnOnce(&Value) -> Result<T, String>,
    ) -> T {
        let default = default.into();
        let is_text = default.is_str();
        self.read(name, Some(default), check, |value, _| literal(value, is_text)).unwrap_or_default()
    }

    /// `None` if the key is not set or bad.
    pub(crate) fn optional<T>(
        &mut self,
        name: &str,
        check: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Option<T> {
        self.read(name, None, check, |value, _| value.to_string())
    }

    /// As [`Reader::optional`], for a value of which nothing is printed.
    pub(crate) fn secret<T>(
        &mut self,
        name: &str,
        check: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Option<T> {
        self.read(name, None, check, |_, _| quoted(HIDDEN))
    }

    /// As [`Reader::optional`], for a value that may contain a password: it is printed as
    /// its type displays it, and not at all if it is bad.
    pub(crate) fn url<T: Display>(
        &mut self,
        name: &str,
        default: Option<&str>,
        check: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Option<T> {
        self.read(name, default.map(Value::from), check, |_, url| {
            quoted(&url.map_or(HIDDEN.to_owned(), ToString::to_string))
        })
    }

    /// Finds, checks and notes a value; `show` returns it as TOML for printing.
    pub(crate) fn read<T>(
        &mut self,
        name: &str,
        default: Option<Value>,
        check: impl FnOnce(&Value) -> Result<T, String>,
        show: impl FnOnce(&Value, Option<&T>) -> String,
    ) -> Option<T> {
        let default = default.map(|value| ConfigValue { value, origin: "default".to_owned() });
        let Some(found) = self.find(name).or(default) else {
            self.note(name, None);
            return None;
        };
        let checked = check(&found.value);
        let shown = show(&found.value, checked.as_ref().ok());
        self.note(name, Some((shown, found.origin)));
        checked.map_err(|rule| self.refuse(name, &rule)).ok()
    }

    /// The secret in the key `name`, or in the file that `{name}_file` names. It is an
    /// error to set both. Messages call the secret `kind`.
    pub(crate) fn secret_or_file<T>(
        &mut self,
        name: &str,
        kind: &str,
        check: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let file = format!("{name}_file");
        if self.is_set(name) && self.is_set(&file) {
            self.secret(name, |_| Ok(()));
            self.optional(&file, |_| Ok(()));
            let other = self.origin(name);
            self.refuse(&file, &format!("is set, and so is {name} ({other}): set one of them"));
            return None;
        }
        let of_key = self.secret(name, |value| check(text(value)?));
        let of_file = self.optional(&file, |value| {
            let secret =
                std::fs::read_to_string(text(value)?).map_err(|error| format!("cannot be read: {error}"))?;
            check(secret.trim()).map_err(|rule| format!("holds no {kind}: it {rule}"))
        });
        of_key.or(of_file)
    }

    /// The number of tables in an array of tables; `None` if the key is something else.
    pub(crate) fn tables(&mut self, name: &str) -> Option<usize> {
        self.note(name, None);
        let Some(found) = self.find(name) else {
            return Some(0);
        };
        match &found.value {
            Value::Array(items) if !items.is_empty() && items.iter().all(Value::is_table) => {
                Some(items.len())
            }
            _ => None,
        }
    }

    /// Whether a source sets the key, to a good value or a bad one.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Reports a key that must be set and is not. A file that could not be read may set it.
    pub(crate) fn require(&mut self, name: &str, advice: &str) {
        if !self.is_set(name) && !self.is_file_unread {
            self.problems.push(format!("{name} is not set: {advice}"));
        }
    }

    pub(crate) fn refuse(&mut self, name: &str, rule: &str) {
        let origin = self.origin(name);
        self.problems.push(format!("{name} ({origin}) {rule}"));
    }

    fn origin(&self, name: &str) -> String {
        self.find(name).map_or("default".to_owned(), |found| found.origin)
    }

    /// Reports a problem of a source that belongs to no key.
    pub(crate) fn source_problem(&mut self, problem: String) {
        self.source_problems.push(problem);
    }

    /// Reports a file none of whose keys are known.
    pub(crate) fn unreadable_file(&mut self, problem: String) {
        self.is_file_unread = true;
        self.source_problem(problem);
    }

    /// Reports keys and variables that were set and not read.
    pub(crate) fn refuse_unknown(&mut self) {
        let unknown = unknown::problems(self);
        self.source_problems.extend(unknown);
    }

    pub(crate) fn problems(&self) -> Vec<String> {
        [self.source_problems.as_slice(), &self.problems].concat()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.known.iter().filter_map(|key| {
            let (value, origin) = key.shown.as_ref()?;
            Some((key.name.as_str(), value.as_str(), origin.as_str()))
        })
    }

    pub(crate) fn to_toml(&self) -> String {
        let mut toml = String::new();
        let mut current = "";
        for key in &self.known {
            let Some((value, origin)) = &key.shown else {
                continue;
            };
            let (section, name) = key.parts();
            if section != current {
                current = section;
                let _ = match section.split_once('[') {
                    Some((tables, position)) => match position.split_once("].") {
                        Some((_, table)) => write!(toml, "\n[{tables}.{table}]\n"),
                        None => write!(toml, "\n[[{tables}]]\n"),
                    },
                    None => write!(toml, "\n[{section}]\n"),
                };
            }
            let _ = writeln!(toml, "{name} = {value} # {origin}");
        }
        toml
    }

    fn find(&self, name: &str) -> Option<ConfigValue> {
        let variable = variable_of(name);
        // Compose files pass on unset variables as empty ones.
        let of_variable = self
            .variables
            .get(&variable)
            .filter(|text| !text.is_empty())
            .map(|text| ConfigValue { value: Value::String(text.clone()), origin: variable });
        let of_flag = self.flags.get(name).cloned();
        of_flag.or(of_variable).or_else(|| self.file.get(name).cloned())
    }

    fn note(&mut self, name: &str, shown: Option<(String, String)>) {
        self.known.push(Key { name: name.to_owned(), shown });
    }
}

fn variable_of(name: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", name.replace('.', "_").to_ascii_uppercase())
}

/// The value as TOML; a number or boolean from a variable's text without quotes.
fn literal(value: &Value, is_text: bool) -> String {
    match value {
        Value::String(text) if !is_text && (text.parse::<f64>().is_ok() || text.parse::<bool>().is_ok()) => {
            text.clone()
        }
        value => value.to_string(),
    }
}

/// Text as TOML.
pub(crate) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
