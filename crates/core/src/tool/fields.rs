//! The fields of a tool's input, by name and type.

use std::cell::RefCell;

use serde_json::{Map, Number, Value};

use super::error::ToolError;
use crate::content::{ContentHash, ContentHashError};
use crate::path::{TOOL_ROOT, ToolPath, ToolRoot};

pub(super) const STRING: &str = "a string";
const INTEGER: &str = "an integer";
const RANGE: &str = "two integers, [start_line, end_line]";

/// Reads fields by name and type; an error names the field.
pub(super) struct Fields<'a> {
    input: &'a Map<String, Value>,
    /// The root of the call's paths.
    pub(super) root: &'a ToolRoot,
    /// The names of the fields that were read, absent ones included.
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Fields<'a> {
    pub(super) const fn new(input: &'a Map<String, Value>, root: &'a ToolRoot) -> Self {
        Self { input, root, known: RefCell::new(Vec::new()) }
    }

    /// Refuses every field of `owner` that was not read before.
    pub(super) fn refuse_unknown(&self, owner: &'static str) -> Result<(), ToolError> {
        let known = self.known.borrow();
        match self.input.keys().find(|field| !known.contains(&field.as_str())) {
            Some(field) => Err(ToolError::UnknownField { field: field.clone(), owner, known: known.clone() }),
            None => Ok(()),
        }
    }

    /// Reads a field, unless it is absent or null.
    fn optional<T>(
        &self,
        field: &'static str,
        expected: &'static str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ToolError> {
        self.known.borrow_mut().push(field);
        let Some(value) = self.input.get(field).filter(|value| !value.is_null()) else {
            return Ok(None);
        };
        match read(value) {
            Some(read) => Ok(Some(read)),
            None => Err(wrong_type(field, expected, value)),
        }
    }

    fn required<T>(
        &self,
        field: &'static str,
        expected: &'static str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<T, ToolError> {
        self.optional(field, expected, read)?.ok_or(ToolError::MissingField { field, expected })
    }

    pub(super) fn text(&self, field: &'static str, expected: &'static str) -> Result<&'a str, ToolError> {
        self.required(field, expected, Value::as_str)
    }

    pub(super) fn optional_text(&self, field: &'static str) -> Result<Option<&'a str>, ToolError> {
        self.optional(field, STRING, Value::as_str)
    }

    pub(super) fn path(&self, field: &'static str) -> Result<ToolPath, ToolError> {
        Ok(ToolPath::parse_in(self.text(field, STRING)?, self.root)?)
    }

    /// An optional path; the default is `/memories`.
    pub(super) fn optional_path(&self, field: &'static str) -> Result<ToolPath, ToolError> {
        let text = self.optional_text(field)?.unwrap_or(TOOL_ROOT);
        Ok(ToolPath::parse_in(text, self.root)?)
    }

    pub(super) fn optional_object(
        &self,
        field: &'static str,
        expected: &'static str,
    ) -> Result<Option<&'a Map<String, Value>>, ToolError> {
        self.optional(field, expected, Value::as_object)
    }

    pub(super) fn array(
        &self,
        field: &'static str,
        expected: &'static str,
    ) -> Result<&'a Vec<Value>, ToolError> {
        self.required(field, expected, Value::as_array)
    }

    pub(super) fn optional_hash(&self, field: &'static str) -> Result<Option<ContentHash>, ToolError> {
        let Some(text) = self.optional_text(field)? else {
            return Ok(None);
        };
        text.parse()
            .map(Some)
            .map_err(|rule: ContentHashError| ToolError::OutOfBounds { field, rule: rule.to_string() })
    }

    /// An optional number from `min` to `max`.
    pub(super) fn bounded(&self, field: &'static str, min: u64, max: u64) -> Result<Option<u64>, ToolError> {
        let Some(number) = self.optional(field, INTEGER, integer)? else {
            return Ok(None);
        };
        match u64::try_from(number) {
            Ok(number) if (min..=max).contains(&number) => Ok(Some(number)),
            _ => Err(ToolError::OutOfBounds {
                field,
                rule: match max {
                    u64::MAX => format!("must be {min} or more, but is {number}"),
                    max => format!("must be {min} to {max}, but is {number}"),
                },
            }),
        }
    }

    pub(super) fn integer(&self, field: &'static str) -> Result<i64, ToolError> {
        self.required(field, INTEGER, integer)
    }

    pub(super) fn range(&self, field: &'static str) -> Result<Option<(i64, i64)>, ToolError> {
        let Some(items) = self.optional(field, RANGE, Value::as_array)? else {
            return Ok(None);
        };
        let refused =
            |found: String| ToolError::OutOfBounds { field, rule: format!("must be {RANGE}, but {found}") };
        let [start, end] = items.as_slice() else {
            return Err(refused(format!("has {} items", items.len())));
        };
        let item = |number: usize, value: &Value| {
            integer(value).ok_or_else(|| refused(format!("item {number} is {}", kind_of(value))))
        };
        Ok(Some((item(1, start)?, item(2, end)?)))
    }
}

/// The integer value of a JSON number, which may be written as a string; saturates beyond
/// 64 bits.
fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => whole(number),
        Value::String(text) => whole(&serde_json::from_str(text.trim()).ok()?),
        _ => None,
    }
}

fn whole(number: &Number) -> Option<i64> {
    if let Some(integer) = number.as_i64() {
        return Some(integer);
    }
    if number.is_u64() {
        return Some(i64::MAX);
    }
    let float = number.as_f64().filter(|float| float.fract() == 0.0)?;
    #[expect(clippy::cast_possible_truncation, reason = "it has no fraction, and the cast saturates")]
    Some(float as i64)
}

fn wrong_type(field: &'static str, expected: &'static str, value: &Value) -> ToolError {
    ToolError::WrongType { field, expected, found: kind_of(value) }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a number with a fraction",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
