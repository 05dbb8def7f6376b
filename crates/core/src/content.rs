//! A memory's content: UTF-8 text without NUL, stored byte for byte.

use std::fmt;

use bytes::Bytes;
use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};

/// SHA-256 of a memory's bytes; clients see it as lowercase hex.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentHash([u8; 32]);

impl ContentHash {
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for ContentHash {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a SHA-256 as 64 lowercase hexadecimal characters")]
pub struct ContentHashError;

impl std::str::FromStr for ContentHash {
    type Err = ContentHashError;

    fn from_str(text: &str) -> Result<Self, ContentHashError> {
        let mut hash = [0; 32];
        // The library also reads uppercase letters.
        if text.bytes().any(|letter| letter.is_ascii_uppercase()) {
            return Err(ContentHashError);
        }
        hex::decode_to_slice(text, &mut hash).map_err(|_| ContentHashError)?;
        Ok(Self(hash))
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; 64];
        hex::encode_to_slice(self.0, &mut text).map_err(|_| fmt::Error)?;
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl Serialize for ContentHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    #[error("contains a NUL character, which a memory cannot hold")]
    Nul,
    #[error("is {size_bytes} bytes, over the limit of {limit_bytes} bytes per memory")]
    TooLarge { size_bytes: u64, limit_bytes: u64 },
}

/// Valid content, with its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    bytes: Bytes,
    hash: ContentHash,
}

impl Content {
    /// Checks `text` against the rules and hashes it.
    pub fn new(text: String, limit_bytes: u64) -> Result<Self, ContentError> {
        let size_bytes = text.len() as u64;
        if size_bytes > limit_bytes {
            return Err(ContentError::TooLarge { size_bytes, limit_bytes });
        }
        if text.as_bytes().contains(&0) {
            return Err(ContentError::Nul);
        }
        let hash = ContentHash::of(text.as_bytes());
        Ok(Self { bytes: Bytes::from(text), hash })
    }

    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes).unwrap_or_default()
    }

    pub const fn hash(&self) -> ContentHash {
        self.hash
    }

    pub fn size_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }
}

/// Characters of a first line that the index keeps.
const FIRST_LINE_CHARS: usize = 120;

/// The first line of `text`, truncated for listings.
pub fn first_line(text: &str) -> String {
    let line = text.split('\n').next().unwrap_or_default();
    line.trim_end_matches('\r').chars().take(FIRST_LINE_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lowercase_hex_parses_as_a_hash() {
        let hash = ContentHash::of(b"");
        assert_eq!(hash.to_string(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(hash.to_string().parse(), Ok(hash));
        for bad in
            [hash.to_string().to_uppercase(), "0".repeat(63), "0".repeat(65), "g".repeat(64), "é".repeat(32)]
        {
            assert_eq!(bad.parse::<ContentHash>(), Err(ContentHashError), "{bad}");
        }
    }

    #[test]
    fn first_line_is_cut_by_characters() {
        assert_eq!(first_line("héllo\r\nworld"), "héllo");
        assert_eq!(first_line(&"é".repeat(500)).chars().count(), 120);
        assert_eq!(first_line(""), "");
    }
}
