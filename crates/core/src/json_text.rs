//! JSON that is stored and returned as text and never parsed into a tree, and fields that
//! a JSON text has twice.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
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

/// The name of a field that one object of a JSON text has twice; `None`: no object has.
///
/// A parser keeps one of the two values, and another parser may keep the other. What is
/// not JSON is left to the parser.
pub fn duplicate_field(json: &[u8]) -> Option<String> {
    let mut duplicate = None;
    let unique = UniqueFields(&mut duplicate);
    let _ = unique.deserialize(&mut serde_json::Deserializer::from_slice(json));
    duplicate
}

/// Looks for the first duplicate field, and fails there.
struct UniqueFields<'a>(&'a mut Option<String>);

impl<'de> DeserializeSeed<'de> for UniqueFields<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for UniqueFields<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(UniqueFields(&mut *self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut names = BTreeSet::new();
        while let Some(name) = fields.next_key::<String>()? {
            if let Some(name) = names.replace(name) {
                *self.0 = Some(name);
                return Err(A::Error::custom("duplicate field"));
            }
            fields.next_value_seed(UniqueFields(&mut *self.0))?;
        }
        Ok(())
    }
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
