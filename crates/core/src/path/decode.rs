//! The guard against traversal: how other software may read a path.
//!
//! Keepsake itself decodes nothing; for Keepsake, `%2e%2e` is an ordinary directory
//! name. But paths leave Keepsake (an export, a sync to disk, a proxy), and other
//! software may decode them once, twice or incorrectly. So this module takes the
//! worst possible reading of a path, and refuses the path if that reading could
//! leave its directory.

use super::PathError;

/// Refuses traversal and control characters in any encoding.
pub(super) fn check_as_others_read_it(path: &str) -> Result<(), PathError> {
    if !path.contains('%') {
        return check_decoded(path);
    }
    check_decoded(&String::from_utf8_lossy(&fully_decoded(path.as_bytes())))
}

fn check_decoded(path: &str) -> Result<(), PathError> {
    if path.split(['/', '\\']).any(|segment| segment == "." || segment == "..") {
        return Err(PathError::Traversal);
    }
    if path.chars().any(char::is_control) {
        return Err(PathError::Control);
    }
    Ok(())
}

/// Decodes repeatedly, in one pass, until no encoding is left.
///
/// No two encodings overlap, so the order of decoding does not matter. The function
/// decodes an encoding as soon as its last byte is read; the decoded byte may
/// complete another encoding. This takes linear time. Decoding the whole text
/// repeatedly would not (`%25252525…`).
fn fully_decoded(encoded: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(encoded.len());
    for &byte in encoded {
        decoded.push(byte);
        while let Some((length, meaning)) = encoding_at_end(&decoded) {
            decoded.truncate(decoded.len() - length);
            decoded.push(meaning);
        }
    }
    decoded
}

/// The encoding at the end of `bytes`: its length and its decoded byte.
fn encoding_at_end(bytes: &[u8]) -> Option<(usize, u8)> {
    match *bytes {
        [.., b'%', high, low] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
            Some((3, hex_value(high) << 4 | hex_value(low)))
        }
        // `%u002e`: some servers decode UTF-16 units; only ASCII is dangerous.
        [.., b'%', b'u' | b'U', b'0', b'0', high @ b'0'..=b'7', low] if low.is_ascii_hexdigit() => {
            Some((6, hex_value(high) << 4 | hex_value(low)))
        }
        // Some decoders ignore the top bits of the second byte.
        [.., 0xC0, b'.' | b'n'] => Some((2, b'.')),
        [.., 0xC0, b'/' | b'o'] => Some((2, b'/')),
        [.., 0xC1, b'\\'] => Some((2, b'\\')),
        [.., last] if is_continuation(last) => overlong_at_end(bytes),
        _ => None,
    }
}

/// The overlong UTF-8 form of an ASCII character at the end of `bytes`.
///
/// UTF-8 has one valid form for each character. Decoders that accept longer forms
/// (`C0 AE` for `.`) are a known cause of path traversal.
fn overlong_at_end(bytes: &[u8]) -> Option<(usize, u8)> {
    let lead_distance = bytes.iter().rev().take(6).position(|&byte| !is_continuation(byte))?;
    let length = lead_distance + 1;
    let form = &bytes[bytes.len() - length..];
    // All bits above the low seven must be zero, including the bits of the lead byte.
    match *form {
        [lead @ 0xC0..=0xC1, last] => Some((length, (lead & 1) << 6 | last & 0x3F)),
        [0xE0, low_bits @ 0x80..=0x81, last]
        | [0xF0, 0x80, low_bits @ 0x80..=0x81, last]
        | [0xF8, 0x80, 0x80, low_bits @ 0x80..=0x81, last]
        | [0xFC, 0x80, 0x80, 0x80, low_bits @ 0x80..=0x81, last] => {
            Some((length, (low_bits & 1) << 6 | last & 0x3F))
        }
        _ => None,
    }
}

const fn is_continuation(byte: u8) -> bool {
    byte & 0xC0 == 0x80
}

const fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}
