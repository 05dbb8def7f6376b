//! JSON that is stored and returned as text, never parsed into a tree; and a search for
//! fields that an object has twice.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::json_tokens::{JsonToken, json_tokens, unquoted};

/// The text of one JSON value; cheap to clone.
///
/// It takes as much memory as the text. The same value parsed into a tree can take
/// a hundred times as much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonText(Arc<str>);

#[derive(Debug, thiserror::Error)]
#[error("the text is not JSON")]
pub struct NotJson;

impl JsonText {
    /// Checks that a text is exactly one JSON value, and removes the whitespace between its
    /// tokens.
    pub fn parse(text: &str) -> Result<Self, NotJson> {
        serde_json::from_str::<&RawValue>(text).map_err(|_| NotJson)?;
        Ok(Self(compact(text).into()))
    }

    /// Wraps a text that was checked before it was stored.
    pub fn from_trusted(text: &str) -> Self {
        Self(text.into())
    }

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
    let mut compact = Vec::with_capacity(text.len());
    for token in json_tokens(text.as_bytes()) {
        match token {
            JsonToken::Byte(b' ' | b'\t' | b'\n' | b'\r') => {}
            JsonToken::Byte(byte) => compact.push(byte),
            JsonToken::Text(text) => compact.extend_from_slice(text),
        }
    }
    // Only ASCII was removed, so it is UTF-8.
    String::from_utf8(compact).unwrap_or_else(|_| text.to_owned())
}

/// The name of a field that one object of a JSON text has twice; `None` if there is none.
///
/// One parser keeps the first of the two values, another parser keeps the last. The search
/// also reads texts that a tree parser refuses (`1e999`, half of a surrogate pair, deep
/// nesting), because such a text can be stored unchanged. Takes linear time, apart from the
/// sorting of names.
pub fn duplicate_field(json: &[u8]) -> Option<String> {
    // The open containers, from the outside in; `None` is a list.
    let mut around: Vec<Option<Names<'_>>> = Vec::new();
    for token in json_tokens(json) {
        match token {
            JsonToken::Byte(b'{') => around.push(Some(Names::default())),
            JsonToken::Byte(b'[') => around.push(None),
            JsonToken::Byte(b'}' | b']') => {
                around.pop();
            }
            JsonToken::Byte(b',') => {
                if let Some(Some(names)) = around.last_mut() {
                    names.is_named = false;
                }
            }
            JsonToken::Byte(_) => {}
            JsonToken::Text(text) => {
                if let Some(Some(names)) = around.last_mut()
                    && !names.is_named
                {
                    names.is_named = true;
                    if let Some(name) = names.seen.replace(unescaped(text)) {
                        return Some(String::from_utf8_lossy(&name).into_owned());
                    }
                }
            }
        }
    }
    None
}

/// The names of an object's fields so far.
#[derive(Default)]
struct Names<'a> {
    seen: BTreeSet<Cow<'a, [u8]>>,
    /// Whether the name of the current field was read; the next string is then its value.
    is_named: bool,
}

/// The content of a JSON string without escapes: `\u0061` becomes `a`. A string that is not
/// valid Unicode is returned unchanged.
fn unescaped(text: &[u8]) -> Cow<'_, [u8]> {
    if text.contains(&b'\\')
        && let Ok(text) = serde_json::from_slice::<String>(text)
    {
        return text.into_bytes().into();
    }
    unquoted(text).into()
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

    #[test]
    fn duplicate_field_is_found_behind_what_no_tree_can_hold() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for value in ["1", "1e999", r#""\ud83d""#, r#"{"\udc00": "a\\", "a": "\""}"#, &deep] {
            for (json, found) in [
                (format!(r#"{{"a": {value}, "b": "a"}}"#), None),
                (format!(r#"{{"a": {value}, "b": 1, "\u0061": 2}}"#), Some("a")),
                (format!(r#"[{{"a": {value}}}, {{"a": ["a", {{"x": 1, "y": 2, "x": 3}}]}}]"#), Some("x")),
            ] {
                assert_eq!(duplicate_field(json.as_bytes()).as_deref(), found, "{json}");
            }
        }
    }
}
