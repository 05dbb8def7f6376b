//! API keys: secrets with a checksum, which catches typos and truncated pastes.
//!
//! A key is `ks_live_`, then 43 characters that encode 32 random bytes as a number
//! in base 62, then 6 characters that encode the CRC-32 of everything before them.
//! The prefix lets secret scanners find a leaked key. The checksum lets scanners
//! and the server reject lookalikes without a database query. The index keeps the
//! key's SHA-256, never the key.

use std::fmt;

use sha2::{Digest, Sha256};

const PREFIX: &str = "ks_live_";
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const BASE: u32 = 62;
/// Digits needed for 256 bits.
const BODY_CHARS: usize = 43;
/// Digits needed for 32 bits.
const CHECKSUM_CHARS: usize = 6;
const KEY_CHARS: usize = PREFIX.len() + BODY_CHARS + CHECKSUM_CHARS;

/// The secret text of a well-formed API key; shown only once, when it is created.
///
/// It has no `Display`, and its `Debug` hides the text, so that a key cannot reach
/// a log by accident.
#[derive(Clone)]
pub struct ApiKeySecret(String);

/// Why a text is not an API key; never repeats the text itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ApiKeyError {
    #[error("an API key starts with `ks_live_`")]
    Prefix,
    #[error("an API key is {KEY_CHARS} characters long")]
    Length,
    #[error("an API key has only ASCII letters and digits after its prefix")]
    Alphabet,
    /// The key was mistyped or invented.
    #[error("the checksum of the API key does not match")]
    Checksum,
}

impl ApiKeySecret {
    /// Builds a key from 32 bytes of a cryptographically secure source.
    pub fn from_random(random: [u8; 32]) -> Self {
        let mut text = String::with_capacity(KEY_CHARS);
        text.push_str(PREFIX);
        push_base62::<BODY_CHARS>(&mut text, random);
        let checksum = crc32fast::hash(text.as_bytes());
        push_base62::<CHECKSUM_CHARS>(&mut text, checksum.to_be_bytes());
        Self(text)
    }

    /// Checks the form of a key that a client sent; does no lookup.
    pub fn parse(text: &str) -> Result<Self, ApiKeyError> {
        let digits = text.strip_prefix(PREFIX).ok_or(ApiKeyError::Prefix)?;
        if text.len() != KEY_CHARS {
            return Err(ApiKeyError::Length);
        }
        if !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(ApiKeyError::Alphabet);
        }
        let (keyed, checksum) = text.split_at(KEY_CHARS - CHECKSUM_CHARS);
        let mut expected = String::with_capacity(CHECKSUM_CHARS);
        push_base62::<CHECKSUM_CHARS>(&mut expected, crc32fast::hash(keyed.as_bytes()).to_be_bytes());
        if checksum != expected {
            return Err(ApiKeyError::Checksum);
        }
        Ok(Self(text.to_owned()))
    }

    /// The secret itself, to be returned to its owner.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// SHA-256 of the whole text, by which the index finds the key.
    ///
    /// A fast hash is enough: 256 random bits cannot be guessed by brute force.
    pub fn sha256(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }
}

impl fmt::Debug for ApiKeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}***")
    }
}

/// Appends a big-endian number as `DIGITS` digits, with leading zeros.
fn push_base62<const DIGITS: usize>(text: &mut String, mut number: impl AsMut<[u8]>) {
    let mut digits = ['0'; DIGITS];
    for digit in digits.iter_mut().rev() {
        // Long division by the base: the remainder is the last digit.
        let mut remainder = 0;
        for byte in number.as_mut() {
            let dividend = remainder << 8 | u32::from(*byte);
            // The remainder is below 62, so the quotient is below 256.
            *byte = (dividend / BASE).to_le_bytes()[0];
            remainder = dividend % BASE;
        }
        *digit = char::from(ALPHABET[remainder as usize]);
    }
    text.extend(digits);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn key_of_known_bytes_never_changes() {
        let mut counted = [0; 32];
        (counted[30], counted[31]) = (1, 61); // 256 + 61 = 5 * 62 + 7
        let largest = concat!("yhjskwdA6OZ1AL1YmHWZWm8", "LLG7HjnuCA2j5rOw8Xp1");
        for (random, body, checksum) in [
            ([0; 32], "0".repeat(43), "28nLI8"),
            (counted, "0".repeat(41) + "57", "2mT1a2"),
            ([0xFF; 32], largest.to_owned(), "45jpQ0"),
        ] {
            let key = ApiKeySecret::from_random(random);
            assert_eq!(key.expose(), format!("ks_live_{body}{checksum}"));
            assert_eq!(format!("{:?}", Some(key)), "Some(ks_live_***)");
        }
    }

    #[test]
    fn invalid_key_error_names_the_first_broken_rule() {
        let good = ApiKeySecret::from_random([7; 32]).expose().to_owned();
        for (text, error) in [
            (good.replace("ks_live_", "ks_test_"), ApiKeyError::Prefix),
            (good[..56].to_owned(), ApiKeyError::Length),
            (format!("{good}\n"), ApiKeyError::Length),
            (format!("{}-", &good[..56]), ApiKeyError::Alphabet),
            (format!("{}é{}", &good[..50], &good[52..]), ApiKeyError::Alphabet),
        ] {
            assert_eq!(ApiKeySecret::parse(&text).unwrap_err(), error);
        }
    }

    proptest! {
        #[test]
        fn every_key_parses_and_one_wrong_character_is_found(random: [u8; 32], position in 8..57_usize, letter in 0..62_usize) {
            let key = ApiKeySecret::from_random(random);
            let parsed = ApiKeySecret::parse(key.expose()).unwrap();
            prop_assert_eq!(parsed.expose(), key.expose());
            let mut bytes = key.expose().as_bytes().to_vec();
            let wrong = ALPHABET[letter];
            prop_assume!(bytes[position] != wrong);
            bytes[position] = wrong;
            let text = String::from_utf8(bytes).unwrap();
            prop_assert_eq!(ApiKeySecret::parse(&text).unwrap_err(), ApiKeyError::Checksum);
        }
    }
}
