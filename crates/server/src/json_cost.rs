//! The memory cost of a JSON document, computed before it is parsed.
//!
//! A tree of values may take a hundred times the memory of its text, since each object takes a
//! whole map node. So the values are counted and limited in one pass that builds no tree.

use keepsake_core::{JsonToken, json_tokens};

/// Memory of an object: a leaf of a `BTreeMap` with names and values.
const OBJECT_BYTES: usize = 704;
/// Memory of another value: the value and its slot in a growing list.
const VALUE_BYTES: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JsonCost {
    values: usize,
    /// How many of the values are objects.
    objects: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyValues;

impl JsonCost {
    /// Counts the values of a document, without the names of fields.
    ///
    /// The document is a value, and so is what follows each opening bracket and each comma, unless
    /// the bracket is closed at once. Invalid JSON is counted in the same way: a parser that skips
    /// a value may accept it and read on.
    pub(crate) fn of(json: &[u8], max_values: usize) -> Result<Self, TooManyValues> {
        let (mut values, mut objects) = (1, 0);
        let mut is_opened = false;
        for token in json_tokens(json) {
            match token {
                JsonToken::Byte(b' ' | b'\t' | b'\n' | b'\r') => continue,
                JsonToken::Byte(b'{') => {
                    values += 1;
                    objects += 1;
                }
                JsonToken::Byte(b'[' | b',') => values += 1,
                JsonToken::Byte(b'}' | b']') if is_opened => values -= 1,
                _ => {}
            }
            is_opened = matches!(token, JsonToken::Byte(b'{' | b'['));
        }
        if values > max_values { Err(TooManyValues) } else { Ok(Self { values, objects }) }
    }

    /// Approximate size of the parsed tree, without its texts.
    pub(crate) fn tree_bytes(self) -> usize {
        self.objects * OBJECT_BYTES + self.values.saturating_sub(self.objects) * VALUE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_values_are_counted_by_kind_and_too_many_found_before_parsing() {
        for (json, objects, others) in [
            (r#"{"a":[{"":0},"x",null],"b":{"c":-1.5}}"#, 3, 5),
            (" [ { } , [\n] ] ", 1, 2),
            // With an error, as many as there may be.
            (r#"[1,2,{"a":}]"#, 1, 4),
            (r#"[1e999,"\",{[\\",0]"#, 0, 4),
        ] {
            let cost = JsonCost::of(json.as_bytes(), 1_000).unwrap();
            assert_eq!((cost.objects, cost.values), (objects, objects + others), "{json}");
        }
        let cost = JsonCost::of(br#"[{"":0},{"":0}]"#, 10).unwrap();
        assert_eq!(cost.tree_bytes(), 2 * OBJECT_BYTES + 3 * VALUE_BYTES);
        let json = format!("[{}1]", r#"{"":0},"#.repeat(40_000));
        assert!(JsonCost::of(json.as_bytes(), 80_002).is_ok());
        assert_eq!(JsonCost::of(json.as_bytes(), 80_001), Err(TooManyValues));
        for json in ["[{},{}]", "[1e999,0,0]", &"[".repeat(200)] {
            assert_eq!(JsonCost::of(json.as_bytes(), 2), Err(TooManyValues), "{json}");
        }
    }
}
