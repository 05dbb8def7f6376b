//! The memory cost of a JSON document, computed before it is parsed.
//!
//! A tree of values may take a hundred times the memory of its text, since each object takes a
//! whole map node. So the values are counted and limited in one pass that builds no tree.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Memory of an object: a leaf of a `BTreeMap` with names and values.
const OBJECT_BYTES: usize = 704;
/// Memory of another value: the value and its slot in a growing list.
const VALUE_BYTES: usize = 64;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct JsonCost {
    objects: usize,
    others: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyValues;

impl JsonCost {
    /// Counts the values of a document, without the names of fields, up to `max_values`.
    ///
    /// In invalid JSON, brackets and commas are counted: a parser that skips a value may accept it
    /// and read on.
    pub(crate) fn of(json: &[u8], max_values: usize) -> Result<Self, TooManyValues> {
        let mut counter = Counter { max_values, cost: Self::default(), is_over: false };
        let outcome = (&mut counter).deserialize(&mut serde_json::Deserializer::from_slice(json));
        if outcome.is_err() && !counter.is_over {
            counter.cost = Self::at_most(json);
            counter.is_over = counter.cost.values() > max_values;
        }
        if counter.is_over { Err(TooManyValues) } else { Ok(counter.cost) }
    }

    /// The largest number of values that the brackets and commas outside of texts allow.
    fn at_most(json: &[u8]) -> Self {
        let mut cost = Self { objects: 0, others: 1 };
        let (mut is_in_text, mut is_escaped) = (false, false);
        for byte in json {
            if is_in_text {
                is_in_text = is_escaped || *byte != b'"';
                is_escaped = *byte == b'\\' && !is_escaped;
                continue;
            }
            match byte {
                b'"' => is_in_text = true,
                b'{' => cost.objects += 1,
                b'[' | b',' => cost.others += 1,
                _ => {}
            }
        }
        cost
    }

    /// Approximate size of the parsed tree, without its texts.
    pub(crate) fn tree_bytes(self) -> usize {
        self.objects * OBJECT_BYTES + self.others * VALUE_BYTES
    }

    fn values(self) -> usize {
        self.objects + self.others
    }
}

struct Counter {
    max_values: usize,
    cost: JsonCost,
    is_over: bool,
}

impl Counter {
    fn check<E: Error>(&mut self) -> Result<(), E> {
        self.is_over = self.cost.values() > self.max_values;
        if self.is_over {
            return Err(E::custom("too many values"));
        }
        Ok(())
    }

    fn other<E: Error>(&mut self) -> Result<(), E> {
        self.cost.others += 1;
        self.check()
    }
}

impl<'de> DeserializeSeed<'de> for &mut Counter {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut Counter {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.other()
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.other()
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.other()
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.other()
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.other()
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        self.other()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.other()?;
        while items.next_element_seed(&mut *self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        self.cost.objects += 1;
        self.check()?;
        while fields.next_key::<IgnoredAny>()?.is_some() {
            fields.next_value_seed(&mut *self)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_values_are_counted_by_kind() {
        for (json, objects, others) in [
            ("1", 0, 1),
            (r#"{"a":[{"":0},"x",null],"b":{"c":-1.5}}"#, 3, 5),
            // With an error, as many as there may be.
            (r#"[1,2,{"a":}]"#, 1, 4),
            (r#"[1e999,"\",{[\\",0]"#, 0, 4),
        ] {
            let cost = JsonCost::of(json.as_bytes(), 1_000).unwrap();
            assert_eq!((cost.objects, cost.others), (objects, others), "{json}");
        }
        let cost = JsonCost::of(br#"[{"":0},{"":0}]"#, 10).unwrap();
        assert_eq!(cost.tree_bytes(), 2 * OBJECT_BYTES + 3 * VALUE_BYTES);
    }

    #[test]
    fn too_many_values_are_found_before_parsing() {
        let json = format!("[{}1]", r#"{"":0},"#.repeat(40_000));
        assert!(JsonCost::of(json.as_bytes(), 80_002).is_ok());
        assert_eq!(JsonCost::of(json.as_bytes(), 80_001), Err(TooManyValues));
        for json in ["[{},{}]", "[1e999,0,0]", &"[".repeat(200)] {
            assert_eq!(JsonCost::of(json.as_bytes(), 2), Err(TooManyValues), "{json}");
        }
    }
}
