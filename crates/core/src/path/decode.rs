//! What other software may take a path for: the guard against traversal.
//!
//! Keepsake itself decodes nothing, and `%2e%2e` is a directory name like any
//! other to it. But paths leave it again (an export, a sync to disk, a proxy),
//! and something there may decode once, twice or sloppily. So a path is read
//! in the way that is worst for it, and is refused if that reading could step
//! outside its directory.

use super::PathError;

/// Refuses what could step outside, and control characters, however encoded.
///
/// # Errors
/// [`PathError::Traversal`] or [`PathError::Control`].
pub(super) fn check_as_others_read_it(path: &str) -> Result<(), PathError> {
    if !path.contains('%') {
        return check_decoded(path);
    }
    check_decoded(&String::from_utf8_lossy(&fully_decoded(path.as_bytes())))
}

fn check_decoded(path: &str) -> Result<(), PathError> {
    if path
        .split(['/', '\\'])
        .any(|segment| segment == "." || segment == "..")
    {
        return Err(PathError::Traversal);
    }
    if path.chars().any(char::is_control) {
        return Err(PathError::Control);
    }
    Ok(())
}

/// Undoes every encoding until none is left, in one pass.
///
/// No two encodings can overlap, so the order of undoing them does not matter:
/// one that is complete at the end of what is decoded so far is undone at once,
/// and what comes out may complete another. That is linear, where decoding the
/// whole text again and again would not be (`%25252525…`).
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

/// The encoding that `bytes` end in: its length, and the byte it stands for.
fn encoding_at_end(bytes: &[u8]) -> Option<(usize, u8)> {
    match *bytes {
        [.., b'%', high, low] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
            Some((3, hex_value(high) << 4 | hex_value(low)))
        }
        // `%u002e`: some servers decode UTF-16 units; only ASCII can do harm.
        [.., b'%', b'u' | b'U', b'0', b'0', high @ b'0'..=b'7', low] if low.is_ascii_hexdigit() => {
            Some((6, hex_value(high) << 4 | hex_value(low)))
        }
        // Decoders that do not look at the top bits of the second byte.
        [.., 0xC0, b'.' | b'n'] => Some((2, b'.')),
        [.., 0xC0, b'/' | b'o'] => Some((2, b'/')),
        [.., 0xC1, b'\\'] => Some((2, b'\\')),
        [.., last] if is_continuation(last) => overlong_at_end(bytes),
        _ => None,
    }
}

/// The overlong UTF-8 form of an ASCII character that `bytes` end in.
///
/// UTF-8 has one form for each character; decoders that accept longer ones
/// (`C0 AE` for `.`) have let paths like these through before.
fn overlong_at_end(bytes: &[u8]) -> Option<(usize, u8)> {
    let lead_distance = bytes
        .iter()
        .rev()
        .take(6)
        .position(|&byte| !is_continuation(byte))?;
    let length = lead_distance + 1;
    let form = &bytes[bytes.len() - length..];
    // All bits above the low seven must be zero, the lead byte's among them.
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

/// The value of an ASCII hexadecimal digit.
const fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}
