//! Reads the merged values, one key at a time, collecting what is wrong.

use config::{Config, Value, ValueKind};

use super::Problem;

/// The largest number that a key takes: whole in JSON and in every database.
pub(crate) const MAX_NUMBER: u64 = 1 << 53;

/// Typed access to merged values; a bad value becomes a [`Problem`].
pub(super) struct Reader<'a> {
    merged: &'a Config,
    problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(merged: &'a Config, problems: Vec<Problem>) -> Self {
        Self { merged, problems }
    }

    /// The value of a key as `parse` reads it; `None` where unset or bad.
    ///
    /// `parse` answers what the value must be, without quoting it: a secret
    /// that was put under the wrong key must not show.
    pub(super) fn get<T>(
        &mut self,
        key: &str,
        parse: impl FnOnce(&ValueKind) -> Result<T, String>,
    ) -> Option<T> {
        let value = value(self.merged, key)?;
        match parse(&value.kind) {
            Ok(parsed) => Some(parsed),
            Err(rule) => {
                self.refuse(key, &rule);
                None
            }
        }
    }

    /// The secret under `name`, or in the file under `{name}_file`: two would
    /// leave it open which of them is used.
    ///
    /// `parse` answers what it must be; `kind` is what it is called.
    pub(super) fn secret<T>(
        &mut self,
        name: &str,
        kind: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let file = format!("{name}_file");
        if !self.is_set(&file) {
            return self.get(name, |value| parse(text(value)?));
        }
        if self.is_set(name) {
            self.refuse(
                &file,
                &format!("is set beside {name}: the {kind} comes from one of them"),
            );
            return None;
        }
        self.get(&file, |value| {
            let secret =
                std::fs::read_to_string(text(value)?).map_err(|error| format!("cannot be read: {error}"))?;
            parse(secret.trim()).map_err(|rule| format!("holds no {kind}: it {rule}"))
        })
    }

    /// Whether a key has any value, good or bad.
    pub(super) fn is_set(&self, key: &str) -> bool {
        value(self.merged, key).is_some()
    }

    /// How many items a list has; `None` where it is none.
    pub(super) fn count(&self, key: &str) -> Option<usize> {
        count(self.merged, key)
    }

    /// Reports a key that must be set and is not.
    pub(super) fn require(&mut self, key: &str, advice: &str) {
        if !self.is_set(key) {
            self.problems
                .push(Problem::new(format!("{key} is not set: {advice}")));
        }
    }

    /// Reports what a key's value must be.
    pub(super) fn refuse(&mut self, key: &str, rule: &str) {
        let origin = value(self.merged, key)
            .and_then(Value::origin)
            .unwrap_or("not set");
        self.problems
            .push(Problem::new(format!("{key} ({origin}) {rule}")));
    }

    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.problems
    }
}

/// The value under a dotted name, with its origin; `[0]` is the first of a list.
pub(super) fn value<'a>(merged: &'a Config, key: &str) -> Option<&'a Value> {
    key.split('.').try_fold(&merged.cache, |value, name| {
        let (name, position) = match name.split_once('[') {
            Some((name, position)) => (name, Some(position.trim_end_matches(']').parse::<usize>().ok()?)),
            None => (name, None),
        };
        let ValueKind::Table(table) = &value.kind else {
            return None;
        };
        let found = table.get(name)?;
        match (position, &found.kind) {
            (None, _) => Some(found),
            (Some(position), ValueKind::Array(items)) => items.get(position),
            (Some(_), _) => None,
        }
    })
}

/// How many items the list under a name has; `None` where it is none.
pub(super) fn count(merged: &Config, key: &str) -> Option<usize> {
    match &value(merged, key)?.kind {
        ValueKind::Array(items) if !items.is_empty() => Some(items.len()),
        _ => None,
    }
}

/// A list of texts that are not empty, and not itself.
pub(super) fn texts(value: &ValueKind) -> Result<Vec<String>, String> {
    let rule = || "must be a list of texts, none of them empty".to_owned();
    match value {
        ValueKind::Array(items) if !items.is_empty() => items
            .iter()
            .map(|item| text(&item.kind).map(str::to_owned).map_err(|_| rule()))
            .collect(),
        _ => Err(rule()),
    }
}

/// Text that is not empty.
pub(super) fn text(value: &ValueKind) -> Result<&str, String> {
    match value {
        ValueKind::String(text) if !text.trim().is_empty() => Ok(text),
        ValueKind::String(_) => Err("must not be empty".to_owned()),
        _ => Err("must be text".to_owned()),
    }
}

/// A whole number of at least `min`, also as text: variables have no other.
pub(super) fn number(min: u64) -> impl Fn(&ValueKind) -> Result<u64, String> {
    move |value| {
        let number = match value {
            ValueKind::I64(number) => u64::try_from(*number).ok(),
            ValueKind::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        let in_range = number.filter(|number| (min..=MAX_NUMBER).contains(number));
        in_range.ok_or_else(|| format!("must be a whole number from {min} to {MAX_NUMBER}"))
    }
}

/// `true` or `false`, also as text.
pub(super) fn truth(value: &ValueKind) -> Result<bool, String> {
    let truth = match value {
        ValueKind::Boolean(truth) => Some(*truth),
        ValueKind::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    truth.ok_or_else(|| "must be true or false".to_owned())
}
