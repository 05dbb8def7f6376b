//! Secrets of several lines: private keys in PEM, `OpenPGP` and `PuTTY` form.

use std::ops::Range;

/// The dashes around the label of a PEM or `OpenPGP` block.
const DASHES: &str = "-----";
/// Maximum length of a label, dashes included.
const LABEL_BYTES: usize = 80;
/// A shorter body is a mention of a key, not a key.
const MIN_KEY_BYTES: usize = 40;
/// Maximum number of lines in the private part of a `PuTTY` key.
const MAX_PUTTY_LINES: usize = 200;

/// The private key at `start`, where the text has `-----BEGIN `.
///
/// Reads only up to the next dashes, so no two calls read the same stretch.
pub(super) fn private_key(text: &str, start: usize) -> Option<Range<usize>> {
    let after_begin = text[start..].strip_prefix("-----BEGIN ")?;
    let label_end = after_begin[..after_begin.floor_char_boundary(LABEL_BYTES)].find(DASHES)?;
    let label = &after_begin[..label_end];
    if !label.contains("PRIVATE KEY") || label.contains('\n') {
        return None;
    }
    let body_start = text.len() - after_begin.len() + label_end + DASHES.len();
    let body = &text[body_start..];
    let (body, end) = match memchr::memmem::find(body.as_bytes(), DASHES.as_bytes()) {
        Some(at) => (&body[..at], footer(&body[at..])),
        None => (body, None),
    };
    let key = leading_key(body);
    if key.bytes < MIN_KEY_BYTES {
        return None;
    }
    // A block without a footer was truncated; its key material is still secret.
    let length = match end {
        Some(end) => body.len() + end,
        None => key.length,
    };
    Some(start..body_start + length)
}

/// The length of the `-----END …-----` line at the start of `text`.
fn footer(text: &str) -> Option<usize> {
    let label = text.strip_prefix("-----END ")?;
    let end = label[..label.floor_char_boundary(LABEL_BYTES)].find(DASHES)?;
    Some(text.len() - label.len() + end + DASHES.len())
}

/// The part at the start of a body that can be key material.
struct LeadingKey {
    bytes: usize,
    /// Its length, up to the last base64 byte.
    length: usize,
}

fn leading_key(body: &str) -> LeadingKey {
    let mut key = LeadingKey { bytes: 0, length: 0 };
    let mut end = 0;
    // A key inside a string literal may write a line break as `\n`: then the `n` begins the next line.
    for line in body.split_inclusive(['\n', '\\']) {
        let start = end;
        end += line.len();
        let has_escape = line.starts_with(['n', 'r', 't']) && start > 0 && is_escaped(body, start);
        let part = line[usize::from(has_escape)..]
            .trim_matches(|sign: char| sign.is_whitespace() || "\\\"'`+,;>|#*.(){}".contains(sign));
        let is_header = part.contains(": ") && part.len() < LABEL_BYTES;
        if is_base64(part) {
            key.bytes += part.len();
            key.length = end - (line.len() - line.trim_end_matches(['\n', '\r', '\\']).len());
        } else if !is_header {
            return key;
        }
    }
    key
}

fn is_base64(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte))
}

fn is_escaped(body: &str, at: usize) -> bool {
    body.as_bytes()[..at].last() == Some(&b'\\')
}

/// The private lines of a `PuTTY` key; `start` is the position of `Private-Lines:`.
pub(super) fn putty_key(text: &str, start: usize) -> Option<Range<usize>> {
    let after = text[start..].strip_prefix("Private-Lines: ")?;
    let mut lines = after.split_inclusive('\n');
    let first = lines.next()?;
    let count: usize = first.trim().parse().ok()?;
    let mut end = text.len() - after.len() + first.len();
    let mut key_bytes = 0;
    for line in lines.take(count.min(MAX_PUTTY_LINES)) {
        let part = line.trim();
        if part.len() > LABEL_BYTES || !is_base64(part) {
            break;
        }
        key_bytes += part.len();
        end += line.len();
    }
    let end = start + text[start..end].trim_end().len();
    (key_bytes >= MIN_KEY_BYTES).then_some(start..end)
}
