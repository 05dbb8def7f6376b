//! JSON with texts that are not valid Unicode, such as half of a surrogate pair.
//!
//! A JSON parser refuses such a document as a whole. A tool call must be refused with
//! a result that names the field, so that the model can correct it.

use std::fmt::Write as _;

use crate::json_tokens::{JsonToken, json_tokens, unquoted};

/// A JSON document whose invalid characters were replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MendedJson {
    /// The document with `?` for each invalid character; never longer than the original.
    pub json: Vec<u8>,
    /// The path of the first field with an invalid character, such as
    /// `input.edits[0].new_str`.
    pub field: String,
}

/// Nested containers that the path of a field can name. No JSON tree of this server is
/// deeper.
const MAX_DEPTH: usize = 128;
/// Maximum characters of the path of a field; a longer path is cut.
const MAX_FIELD_CHARS: usize = 200;

/// The byte order mark U+FEFF, which some systems write in front of JSON in UTF-8.
pub const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The message about a text that is not valid Unicode; follows the field's name.
pub const NOT_UNICODE: &str =
    "has a character that is not valid Unicode (half of a surrogate pair, or bytes that are not UTF-8)";

impl MendedJson {
    /// Mends a document; `None` if all its strings are valid Unicode.
    ///
    /// A document that is not JSON stays invalid: the parser reports it later. Takes linear
    /// time.
    pub fn of(json: &[u8]) -> Option<Self> {
        if std::str::from_utf8(json).is_ok() && !has_surrogate(json) {
            return None;
        }
        let mut place = JsonPosition::default();
        let mut field = None;
        let mut mended = Vec::with_capacity(json.len());
        for token in json_tokens(json) {
            match token {
                JsonToken::Byte(byte) => {
                    place.pass(byte);
                    mended.push(byte);
                }
                JsonToken::Text(text) => {
                    let start = mended.len();
                    let is_valid = push_mended(text, &mut mended);
                    place.pass_text(&mended[start..]);
                    if !is_valid && field.is_none() {
                        field = Some(place.path());
                    }
                }
            }
        }
        field.map(|field| Self { json: mended, field })
    }
}

/// An object or a list that is not closed yet.
#[derive(Debug)]
enum Container {
    Object { name: String, awaits_name: bool },
    List { index: usize },
}

/// A position in a document.
#[derive(Debug, Default)]
struct JsonPosition {
    /// The open containers, from the outside in.
    around: Vec<Container>,
    /// The number of further open containers, beyond [`MAX_DEPTH`].
    beyond: usize,
}

impl JsonPosition {
    /// Moves over a byte outside of strings.
    fn pass(&mut self, byte: u8) {
        match byte {
            b'{' | b'[' if self.around.len() == MAX_DEPTH => self.beyond += 1,
            b'}' | b']' if self.beyond > 0 => self.beyond -= 1,
            _ if self.beyond > 0 => {}
            b'{' => self.around.push(Container::Object { name: String::new(), awaits_name: true }),
            b'[' => self.around.push(Container::List { index: 0 }),
            b'}' | b']' => {
                self.around.pop();
            }
            b',' => match self.around.last_mut() {
                Some(Container::Object { awaits_name, .. }) => *awaits_name = true,
                Some(Container::List { index }) => *index += 1,
                None => {}
            },
            _ => {}
        }
    }

    /// Moves over a string: the name of a field, or a value.
    fn pass_text(&mut self, text: &[u8]) {
        if self.beyond == 0
            && let Some(Container::Object { name, awaits_name }) = self.around.last_mut()
            && *awaits_name
        {
            *name = String::from_utf8_lossy(unquoted(text)).into_owned();
            *awaits_name = false;
        }
    }

    fn path(&self) -> String {
        let mut path = String::new();
        for container in &self.around {
            match container {
                Container::Object { name, .. } => {
                    path.push_str(if path.is_empty() { "" } else { "." });
                    path.push_str(name);
                }
                Container::List { index } => {
                    let _ = write!(path, "[{index}]");
                }
            }
        }
        let end = path.char_indices().nth(MAX_FIELD_CHARS).map_or(path.len(), |(end, _)| end);
        path.truncate(end);
        path
    }
}

/// Appends a string with `?` for each invalid character; returns whether there was none.
fn push_mended(text: &[u8], mended: &mut Vec<u8>) -> bool {
    let mut is_valid = true;
    for chunk in text.utf8_chunks() {
        let mut rest = chunk.valid();
        while let Some(place) = rest.find('\\') {
            let (before, escape) = rest.split_at(place);
            let (length, is_unicode) = escape_length(escape);
            mended.extend_from_slice(before.as_bytes());
            let kept = if is_unicode { &escape[..length] } else { "?" };
            mended.extend_from_slice(kept.as_bytes());
            is_valid &= is_unicode;
            rest = &escape[length..];
        }
        mended.extend_from_slice(rest.as_bytes());
        if !chunk.invalid().is_empty() {
            mended.push(b'?');
            is_valid = false;
        }
    }
    is_valid
}

/// The length of the escape at the start of a text, and whether it is valid Unicode. The
/// two escapes of a surrogate pair count as one.
fn escape_length(text: &str) -> (usize, bool) {
    match code_unit(text) {
        Some(0xD800..=0xDBFF) => match code_unit(&text[6..]) {
            Some(0xDC00..=0xDFFF) => (12, true),
            _ => (6, false),
        },
        Some(0xDC00..=0xDFFF) => (6, false),
        Some(_) => (6, true),
        // `\` and the character after it.
        None => (1 + text.chars().nth(1).map_or(0, char::len_utf8), true),
    }
}

/// The code unit of a `\uXXXX` at the beginning of a text.
fn code_unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u16::from_str_radix(digits, 16).ok().filter(|_| is_hex)
}

/// Whether a document may contain the escape of a surrogate.
fn has_surrogate(json: &[u8]) -> bool {
    json.windows(3).any(|bytes| matches!(bytes, b"\\ud" | b"\\uD"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_characters_are_replaced_and_their_field_is_named() {
        let mended = |json: &[u8]| {
            let mended = MendedJson::of(json)?;
            Some((String::from_utf8(mended.json).unwrap(), mended.field))
        };
        for valid in [r#"{"a":"\ud83d\ude00 \\ud83d \" \ud7ff"}"#, r#"{"a":"é"}"#, "", "{\"a", r#""\u12"#] {
            assert_eq!(mended(valid.as_bytes()), None, "{valid}");
        }
        for (json, expected, field) in [
            (&br#"{"a":{"b":"c","d":"bad \ud83d end"}}"#[..], r#"{"a":{"b":"c","d":"bad ? end"}}"#, "a.d"),
            (br#"{"e":[1,{"n":"\uDE00\ud83d\ude00"}]}"#, r#"{"e":[1,{"n":"?\ud83d\ude00"}]}"#, "e[1].n"),
            (br#"{"a":{"b":[1,[2]]},"c":"\ud83d\u0041"}"#, r#"{"a":{"b":[1,[2]]},"c":"?\u0041"}"#, "c"),
            (b"{\"a\":\"x\xed\xa0\xbdy\"}", "{\"a\":\"x???y\"}", "a"),
            (br#"{"\udc00":1}"#, r#"{"?":1}"#, "?"),
            (br#"["\ud83d\"#, r#"["?\"#, "[0]"),
        ] {
            assert_eq!(mended(json), Some((expected.to_owned(), field.to_owned())));
        }
        // Not hidden by containers that no tree can hold, around it or elsewhere.
        let (open, close) = ("[{\"a\":".repeat(200), "}]".repeat(200));
        let (_, field) = mended(format!("{open}{{\"b\":\"\\ud83d\"}}{close}").as_bytes()).unwrap();
        assert!(field.starts_with("[0].a[0].a"), "{field}");
        let (_, field) = mended(format!("{{\"deep\":{open}1{close},\"c\":\"\\ud83d\"}}").as_bytes()).unwrap();
        assert_eq!(field, "c");
    }
}
