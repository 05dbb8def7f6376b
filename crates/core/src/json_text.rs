//! JSON that is stored and returned as text and never parsed into a tree.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// The text of one JSON value; cheap to clone.
///
/// It takes as much memory as the text. The same value parsed into a tree can take
/// a hundred times as much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonText(Arc<str>);

/// The text is not JSON.
#[derive(Debug, thiserror::Error)]
#[error("the text is not JSON")]
pub struct NotJson;

impl JsonText {
    /// Checks a text and removes the whitespace between its tokens.
    ///
    /// # Errors
    /// [`NotJson`] unless the text is exactly one JSON value.
    pub fn parse(text: &str) -> Result<Self, NotJson> {
        serde_json::from_str::<&RawValue>(text).map_err(|_| NotJson)?;
        Ok(Self(compact(text).into()))
    }

    /// Wraps a text that was checked before it was stored.
    pub fn from_trusted(text: &str) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<serde_json::Value> for JsonText {
    fn from(value: serde_json::Value) -> Self {
        Self(value.to_string().into())
    }
}

/// Writes the text into the document unchanged.
impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self(compact(raw.get()).into()))
    }
}

/// Removes the whitespace between the tokens of a JSON text.
fn compact(text: &str) -> String {
    let mut compact = String::with_capacity(text.len());
    let (mut is_in_string, mut is_escaped) = (false, false);
    for character in text.chars() {
        if is_in_string {
            is_in_string = is_escaped || character != '"';
            is_escaped = character == '\\' && !is_escaped;
        } else if matches!(character, ' ' | '\t' | '\n' | '\r') {
            continue;
        } else {
            is_in_string = character == '"';
        }
        compact.push(character);
    }
    compact
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn one_json_value_is_written_without_whitespace() {
        let text = JsonText::parse("{ \"a b\" : [ 1.0 , \"\\\" \\\\\" ],\n\t\"é\": \" x \" }").unwrap();
        assert_eq!(text.as_str(), r#"{"a b":[1.0,"\" \\"],"é":" x "}"#);
        let document = BTreeMap::from([("agent", text)]);
        let document = serde_json::to_string(&document).unwrap();
        assert_eq!(document, r#"{"agent":{"a b":[1.0,"\" \\"],"é":" x "}}"#);
        let again: BTreeMap<String, JsonText> = serde_json::from_str(&document).unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), document);
        for text in ["", "{", "{} {}", "{\"a\" 1}", "nul"] {
            assert!(JsonText::parse(text).is_err(), "{text}");
        }
    }
}
