//! The fields of a tool's input, by name and type.

use serde_json::{Map, Value};

use super::error::ToolError;
use crate::content::{ContentHash, ContentHashError};
use crate::path::{TOOL_ROOT, ToolPath, ToolRoot};

pub(super) const STRING: &str = "a string";
const INTEGER: &str = "an integer";
const RANGE: &str = "two integers, [start_line, end_line]";

/// Reads fields by name and type; an error names the field.
pub(super) struct Fields<'a> {
    pub(super) input: &'a Map<String, Value>,
    /// The root of the call's paths.
    pub(super) root: &'a ToolRoot,
}

impl<'a> Fields<'a> {
    /// Reads a field, unless it is absent or null.
    fn optional<T>(
        &self,
        field: &'static str,
        expected: &'static str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ToolError> {
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
        self.optional(field, RANGE, |value| match value.as_array()?.as_slice() {
            [start, end] => integer(start).zip(integer(end)),
            _ => None,
        })
    }
}

/// The integer value of a JSON number; saturates beyond 64 bits.
fn integer(value: &Value) -> Option<i64> {
    if let Some(integer) = value.as_i64() {
        return Some(integer);
    }
    if value.is_u64() {
        return Some(i64::MAX);
    }
    let float = value.as_f64().filter(|float| float.fract() == 0.0)?;
    #[expect(clippy::cast_possible_truncation, reason = "it has no fraction, and the cast saturates")]
    Some(float as i64)
}

fn wrong_type(field: &'static str, expected: &'static str, value: &Value) -> ToolError {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a number with a fraction",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) if expected == RANGE => "another array",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    ToolError::WrongType { field, expected, found }
}
