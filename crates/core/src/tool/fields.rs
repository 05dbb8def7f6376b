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
    fn optional(&self, field: &str) -> Option<&'a Value> {
        self.input.get(field).filter(|value| !value.is_null())
    }

    fn required(&self, field: &'static str, expected: &'static str) -> Result<&'a Value, ToolError> {
        self.optional(field)
            .ok_or(ToolError::MissingField { field, expected })
    }

    pub(super) fn text(&self, field: &'static str, expected: &'static str) -> Result<&'a str, ToolError> {
        let value = self.required(field, expected)?;
        value.as_str().ok_or_else(|| wrong_type(field, expected, value))
    }

    pub(super) fn optional_text(&self, field: &'static str) -> Result<Option<&'a str>, ToolError> {
        self.optional(field)
            .map(|value| value.as_str().ok_or_else(|| wrong_type(field, STRING, value)))
            .transpose()
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
        self.optional(field)
            .map(|value| {
                value
                    .as_object()
                    .ok_or_else(|| wrong_type(field, expected, value))
            })
            .transpose()
    }

    pub(super) fn array(
        &self,
        field: &'static str,
        expected: &'static str,
    ) -> Result<&'a [Value], ToolError> {
        let value = self.required(field, expected)?;
        let items = value.as_array().map(Vec::as_slice);
        items.ok_or_else(|| wrong_type(field, expected, value))
    }

    pub(super) fn optional_hash(&self, field: &'static str) -> Result<Option<ContentHash>, ToolError> {
        let Some(text) = self.optional_text(field)? else {
            return Ok(None);
        };
        text.parse()
            .map(Some)
            .map_err(|rule: ContentHashError| ToolError::OutOfBounds {
                field,
                rule: rule.to_string(),
            })
    }

    /// An optional number from `least` to `most`.
    pub(super) fn bounded(
        &self,
        field: &'static str,
        least: u64,
        most: u64,
    ) -> Result<Option<u64>, ToolError> {
        let Some(value) = self.optional(field) else {
            return Ok(None);
        };
        let number = integer(value).ok_or_else(|| wrong_type(field, INTEGER, value))?;
        match u64::try_from(number) {
            Ok(number) if (least..=most).contains(&number) => Ok(Some(number)),
            _ => Err(ToolError::OutOfBounds {
                field,
                rule: match most {
                    u64::MAX => format!("must be {least} or more, but is {number}"),
                    most => format!("must be {least} to {most}, but is {number}"),
                },
            }),
        }
    }

    pub(super) fn integer(&self, field: &'static str) -> Result<i64, ToolError> {
        let value = self.required(field, INTEGER)?;
        integer(value).ok_or_else(|| wrong_type(field, INTEGER, value))
    }

    pub(super) fn range(&self, field: &'static str) -> Result<Option<(i64, i64)>, ToolError> {
        let Some(value) = self.optional(field) else {
            return Ok(None);
        };
        let ends = match value.as_array().map(Vec::as_slice) {
            Some([start, end]) => integer(start).zip(integer(end)),
            _ => None,
        };
        ends.map(Some).ok_or_else(|| wrong_type(field, RANGE, value))
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
    #[expect(
        clippy::cast_possible_truncation,
        reason = "it has no fraction, and the cast saturates"
    )]
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
    ToolError::WrongType {
        field,
        expected,
        found,
    }
}
