//! The normalisation of texts before they are cut into pieces.
//!
//! A map of SentencePiece replaces characters: compatibility forms (NFKC), kinds of spaces, control characters. Spaces at
//! both ends are removed, several become one, and each is written `▁`, also before the first word.

use std::io::{self, Read};

use super::super::file::Sections;

/// Stands for a space.
pub(super) const SPACE: &str = "▁";

/// The map: a double-array trie from bytes to positions in the replacements, each of which ends with a zero.
///
/// A unit of the trie has the byte that leads to it in its lowest 8 bits, whether a key ends there in bit 8, and the
/// distance to its children above. A unit with bit 31 has the value of a key.
#[derive(Debug)]
pub(super) struct Normaliser {
    units: Vec<u32>,
    replacements: Vec<u8>,
}

impl Normaliser {
    pub(super) fn read(sections: &mut Sections<impl Read>) -> io::Result<Self> {
        let count = sections.number()?;
        Ok(Self { units: sections.numbers(count)?, replacements: sections.counted()? })
    }

    /// Writes SentencePiece's compiled map, which is the size of the trie, the trie, and the replacements.
    pub(super) fn write(map: &[u8], to: &mut Vec<u8>) -> Option<()> {
        let (size, rest) = map.split_first_chunk()?;
        let size = u32::from_le_bytes(*size);
        let (trie, replacements) = rest.split_at_checked(size as usize)?;
        to.extend((size / 4).to_le_bytes());
        to.extend(trie);
        to.extend(u32::try_from(replacements.len()).ok()?.to_le_bytes());
        to.extend(replacements);
        Some(())
    }

    pub(super) fn normalised(&self, text: &str) -> String {
        let mut normalised = String::with_capacity(text.len() + SPACE.len());
        // A space is written before the next word.
        let mut has_space = true;
        let mut rest = text;
        while !rest.is_empty() {
            let (replacement, length) = self.replacement(rest);
            for letter in replacement.chars() {
                if letter == ' ' {
                    has_space = true;
                    continue;
                }
                if std::mem::take(&mut has_space) {
                    normalised.push_str(SPACE);
                }
                normalised.push(letter);
            }
            rest = &rest[length..];
        }
        normalised
    }

    /// What replaces the begin of a text, and the length of that begin: the longest key of the map, or a character
    /// that stays.
    fn replacement<'a>(&'a self, text: &'a str) -> (&'a str, usize) {
        let same = || {
            let length = text.chars().next().map_or(0, char::len_utf8);
            (&text[..length], length)
        };
        self.longest_key(text.as_bytes())
            .filter(|(_, length)| text.is_char_boundary(*length))
            .unwrap_or_else(same)
    }

    fn longest_key(&self, text: &[u8]) -> Option<(&str, usize)> {
        let mut found = None;
        let mut position = children(*self.units.first()?);
        for (index, &byte) in text.iter().enumerate() {
            position ^= usize::from(byte);
            let Some(&unit) = self.units.get(position).filter(|&&unit| leads(unit, byte)) else { break };
            position ^= children(unit);
            if unit & 1 << 8 != 0 {
                let value = self.units.get(position)? & !(1 << 31);
                found = Some((value as usize, index + 1));
            }
        }
        let (start, length) = found?;
        let replacement = self.replacements.get(start..)?.split(|byte| *byte == 0).next()?;
        Some((str::from_utf8(replacement).ok()?, length))
    }
}

/// Whether the unit is reached with this byte; a value is reached with none.
fn leads(unit: u32, byte: u8) -> bool {
    unit & 0x8000_00ff == u32::from(byte)
}

/// The distance from the position of a unit to its children, to be combined by exclusive or.
fn children(unit: u32) -> usize {
    ((unit >> 10) << ((unit & 1 << 9) >> 6)) as usize
}
