//! The runs of a row: the characters of scripts without spaces.
//!
//! The terms of such text are its pairs of neighbouring characters. There are
//! nearly as many pairs as characters, and few pairs repeat, so the row stores the
//! characters themselves. They take a third of the space of the terms, and a query
//! finds its pairs by a scan of the characters. A run is a maximal sequence of
//! neighbouring characters of one script. The runs are stored as the number of
//! different terms, the distance of each run from the previous one, and all
//! characters with two bytes each. [`BETWEEN`] separates the runs.

use super::{DamagedRow, Reader, TermAt, put_number, to_u32};

/// Maximum characters of a row, separators included. A search for the positions of
/// a pair scans all of them.
const MAX_CHARACTERS: usize = 1 << 16;

/// Separates runs; never a character of a run.
pub(crate) const BETWEEN: u16 = 0;

/// Characters whose processing takes as long as one read: counting them, and comparing
/// them or adding distances.
const CHARACTERS_COUNTED_PER_READ: usize = 256;
const CHARACTERS_SCANNED_PER_READ: usize = 16;

/// Bytes of a character.
const WIDTH: usize = size_of::<u16>();

/// Scripts without spaces have no character below this one.
const FIRST: char = '\u{e00}';

/// The two characters of a pair, the first in the upper half, so that numbers sort
/// like texts.
pub(crate) type Pair = u32;

/// Collects the runs of a text.
#[derive(Default)]
pub(super) struct RunsOf {
    characters: Vec<u16>,
    /// The distance of each run from the end of the previous run.
    distances: Vec<u32>,
    /// The position after the last run.
    end: u32,
}

impl RunsOf {
    /// Takes the next pair of the text; `false` if runs cannot hold this text.
    pub(super) fn take(&mut self, pair: &str, position: u32) -> bool {
        let mut letters = pair.chars().map(narrow);
        let (Some(Some(first)), Some(Some(second)), None) = (letters.next(), letters.next(), letters.next())
        else {
            return false;
        };
        // `end` is the position after the last character of the runs so far. A pair that begins
        // before `end` overlaps the previous pair by one character, so only its second character
        // is new. Any other pair begins a new run, and both its characters are new.
        if self.distances.is_empty() || position >= self.end {
            if !self.distances.is_empty() {
                self.characters.push(BETWEEN);
            }
            self.distances.push(position - self.end);
            self.characters.push(first);
        }
        self.characters.push(second);
        self.end = position + 2;
        self.characters.len() <= MAX_CHARACTERS
    }

    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        let mut distances = Vec::with_capacity(self.distances.len());
        for distance in &self.distances {
            put_number(&mut distances, *distance);
        }
        put_number(bytes, self.distinct());
        put_number(bytes, to_u32(self.characters.len()));
        put_number(bytes, to_u32(distances.len()));
        bytes.extend_from_slice(&distances);
        for character in &self.characters {
            bytes.extend_from_slice(&character.to_le_bytes());
        }
    }

    /// The number of different terms.
    fn distinct(&self) -> u32 {
        let pairs = self.characters.windows(2).filter(|pair| !pair.contains(&BETWEEN));
        let mut pairs: Vec<_> = pairs.map(|pair| pair_of(pair[0], pair[1])).collect();
        pairs.sort_unstable();
        pairs.dedup();
        to_u32(pairs.len())
    }
}

/// A character in the encoding of runs; two bytes suffice for nearly all characters
/// of these scripts.
pub(crate) fn narrow(letter: char) -> Option<u16> {
    u16::try_from(u32::from(letter)).ok().filter(|_| letter >= FIRST)
}

pub(crate) fn pair_of(first: u16, second: u16) -> Pair {
    u32::from(first) << 16 | u32::from(second)
}

pub(crate) fn halves(pair: Pair) -> [u16; 2] {
    let [a, b, c, d] = pair.to_be_bytes();
    [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]
}

/// The byte offset, in a row, of a character; `at` is the offset of the first one.
pub(crate) const fn place_of(at: usize, character: u32) -> usize {
    at + character as usize * WIDTH
}

/// The text of a pair; characters of these scripts have three bytes each.
pub(crate) fn text_of(pair: Pair) -> Option<[u8; 6]> {
    let mut text = [0; 6];
    for (letter_of, bytes) in halves(pair).into_iter().zip(text.chunks_exact_mut(3)) {
        letter(letter_of)?.encode_utf8(bytes);
    }
    Some(text)
}

/// The runs of a row.
#[derive(Clone, Copy)]
pub(crate) struct Runs<'a> {
    distances: &'a [u8],
    characters: &'a [u8],
    /// The offset of the first character in the row.
    at: usize,
    terms: u32,
    /// The number of positions in the text.
    length: u32,
}

impl<'a> Runs<'a> {
    pub(super) fn read(rest: &mut Reader<'a>, length: u32) -> Result<Self, DamagedRow> {
        let terms = rest.number()?;
        let count = rest.number()?;
        let distances = rest.number()? as usize;
        // Each run has at least two characters, and each character has a position.
        if terms > count || u64::from(count) > 2 * u64::from(length) {
            return Err(DamagedRow);
        }
        let distances = rest.take(distances)?;
        let at = rest.at;
        Ok(Self { distances, characters: rest.take(count as usize * WIDTH)?, at, terms, length })
    }

    /// The number of different terms.
    pub(crate) const fn terms(&self) -> u32 {
        self.terms
    }

    /// Whether an offset in the row is inside the runs.
    pub(super) const fn contain(&self, place: usize) -> bool {
        self.at <= place && place < self.at + self.characters.len()
    }

    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    /// Appends the characters to a list. Each invalid character is replaced by [`BETWEEN`],
    /// and reported as damage after all characters were appended.
    pub(crate) fn copy_to(&self, characters: &mut Vec<u16>) -> Result<(), DamagedRow> {
        let mut is_whole = true;
        characters.extend(self.characters().map(|character| {
            if character == BETWEEN || letter(character).is_some() {
                return character;
            }
            is_whole = false;
            BETWEEN
        }));
        if is_whole { Ok(()) } else { Err(DamagedRow) }
    }

    /// Passes each requested term to `sink`, in byte order, with its characters; reports
    /// damage after all valid terms. The filter for pairs is called only for pairs with a
    /// requested character.
    pub(crate) fn each_term(
        &self,
        is_needed: impl Fn(u16) -> bool,
        is_pair_needed: impl Fn([u16; 2]) -> bool,
        mut sink: impl FnMut(&[u8], [u16; 2], TermAt),
    ) -> Result<(), DamagedRow> {
        let mut positions = self.positions(is_needed, is_pair_needed);
        positions.sort_unstable();
        let mut read = Ok(());
        for group in positions.chunk_by(|a, b| a >> 32 == b >> 32) {
            let [pair, first] = [group[0] >> 32, group[0]].map(low_half);
            let Some(text) = text_of(pair) else {
                read = Err(DamagedRow);
                continue;
            };
            let at = TermAt { frequency: to_u32(group.len()), positions_at: place_of(self.at, first) };
            sink(&text, halves(pair), at);
        }
        read
    }

    /// The requested pairs as numbers that sort by pair: the pair in the upper half, its place
    /// among the characters in the lower half.
    fn positions(
        &self,
        is_needed: impl Fn(u16) -> bool,
        is_pair_needed: impl Fn([u16; 2]) -> bool,
    ) -> Vec<u64> {
        let mut positions = Vec::new();
        let (mut previous, mut was_needed) = (BETWEEN, false);
        for (place, character) in (0_u64..).zip(self.characters()) {
            let is_needed = is_needed(character);
            if (is_needed || was_needed)
                && (character != BETWEEN && previous != BETWEEN)
                && is_pair_needed([previous, character])
            {
                positions.push(u64::from(pair_of(previous, character)) << 32 | (place - 1));
            }
            (previous, was_needed) = (character, is_needed);
        }
        positions
    }

    /// Passes the positions of a pair to `sink`, starting with the pair at the given
    /// offset, until there are `count` or the row is damaged. Returns the additional
    /// work, in reads.
    pub(super) fn each_position(&self, positions_at: usize, count: u32, mut sink: impl FnMut(u32)) -> u64 {
        let from = (positions_at - self.at) / WIDTH;
        let runs = self.characters().take(from).filter(|character| *character == BETWEEN);
        let runs = runs.count();
        let reads = from / CHARACTERS_COUNTED_PER_READ + runs / CHARACTERS_SCANNED_PER_READ;
        let passed = self.each_position_from(from, runs, count, &mut sink);
        (reads + passed / CHARACTERS_SCANNED_PER_READ) as u64
    }

    /// Returns the number of characters that were read.
    fn each_position_from(&self, from: usize, runs: usize, count: u32, sink: &mut impl FnMut(u32)) -> usize {
        let pairs = &self.characters[from * WIDTH..];
        let mut distances = self.distances();
        // Separators have no position.
        let mut position = Some(to_u32(from - runs));
        for _ in 0..=runs {
            let distance = distances.number().ok();
            position = position.zip(distance).and_then(|(sum, more)| sum.checked_add(more));
        }
        let mut left = count;
        for (passed, pair) in pairs.windows(2 * WIDTH).step_by(WIDTH).enumerate() {
            let Some(here) = position.filter(|here| *here < self.length) else {
                return passed;
            };
            if pairs.starts_with(pair) {
                sink(here);
                left -= 1;
            }
            if left == 0 {
                return passed;
            }
            let is_between = pair.starts_with(&BETWEEN.to_le_bytes());
            let moved = if is_between { distances.number().ok() } else { Some(1) };
            position = moved.and_then(|moved| here.checked_add(moved));
        }
        pairs.len() / WIDTH
    }

    /// Checks the assumptions of [`each_term`](Self::each_term) and
    /// [`each_position`](Self::each_position).
    #[cfg(test)]
    pub(super) fn check(&self) -> Result<(), DamagedRow> {
        let mut terms = 0;
        self.each_term(|_| true, |_| true, |_, _, _| terms += 1)?;
        let mut distances = self.distances();
        let mut end = 0_u32;
        let characters: Vec<u16> = self.characters().collect();
        for run in characters.split(|character| *character == BETWEEN) {
            let length = to_u32(run.len()).checked_add(distances.number()?);
            end = length.and_then(|length| end.checked_add(length)).ok_or(DamagedRow)?;
            if run.len() < 2 {
                return Err(DamagedRow);
            }
        }
        let is_whole = terms == self.terms && distances.is_empty() && end <= self.length;
        if is_whole { Ok(()) } else { Err(DamagedRow) }
    }

    fn characters(&self) -> impl Iterator<Item = u16> {
        let (characters, _) = self.characters.as_chunks();
        characters.iter().map(|bytes| u16::from_le_bytes(*bytes))
    }

    fn distances(&self) -> Reader<'a> {
        Reader { bytes: self.distances, at: 0 }
    }
}

fn letter(character: u16) -> Option<char> {
    char::from_u32(character.into()).filter(|letter| *letter >= FIRST)
}

fn low_half(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or_default()
}
