//! The tokens of a JSON text, which need not be valid JSON.

use memchr::memchr2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonToken<'a> {
    /// A byte outside of strings.
    Byte(u8),
    /// A string with its quotes; the last one of a text may lack the second quote.
    Text(&'a [u8]),
}

/// Splits a text into tokens; takes linear time.
pub fn json_tokens(mut rest: &[u8]) -> impl Iterator<Item = JsonToken<'_>> {
    std::iter::from_fn(move || {
        let byte = *rest.first()?;
        let length = if byte == b'"' { text_length(rest) } else { 1 };
        let (token, behind) = rest.split_at(length);
        rest = behind;
        Some(if byte == b'"' { JsonToken::Text(token) } else { JsonToken::Byte(byte) })
    })
}

/// The length of the string at the beginning.
fn text_length(bytes: &[u8]) -> usize {
    let mut from = 1;
    while let Some(found) = memchr2(b'"', b'\\', &bytes[from..]) {
        let at = from + found;
        if bytes[at] == b'"' {
            return at + 1;
        }
        // The character after a backslash never closes the string.
        from = bytes.len().min(at + 2);
    }
    bytes.len()
}

/// A string without its quotes.
pub(crate) fn unquoted(text: &[u8]) -> &[u8] {
    let text = text.strip_prefix(b"\"").unwrap_or(text);
    text.strip_suffix(b"\"").unwrap_or(text)
}
