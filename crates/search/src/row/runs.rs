//! The characters of a text that is written without spaces.
//!
//! Its terms are the pairs of neighbours, of which there are nearly as many as
//! characters, and which hardly ever come twice. So the characters themselves
//! are kept: they take a third of what so many terms would, and those that a
//! query may need are found by looking through them. A run is as many as follow
//! one another within one script. How many terms they are comes first, and how
//! far each run is from the one before; then all characters, two bytes each,
//! with [`BETWEEN`] between runs.

use super::{DamagedRow, Reader, TermAt, put_number, to_u32};

/// Characters of a row at most, what is between runs included: what looks for
/// the places of a pair looks through them.
const MAX_CHARACTERS: usize = 1 << 16;

/// Stands between runs: no character of theirs.
pub(crate) const BETWEEN: u16 = 0;

/// Characters that are counted in the time that a place is looked at in, and
/// those that are compared, or distances that are added.
const COUNTED_IN_A_LOOK: usize = 256;
const PASSED_IN_A_LOOK: usize = 16;

/// Bytes of a character.
const WIDTH: usize = size_of::<u16>();

/// Below this no character is of a script without spaces.
const FIRST: char = '\u{e00}';

/// The two characters of a pair, the first in the upper half: in the order of
/// the texts.
pub(crate) type Pair = u32;

/// Collects the runs of a text.
#[derive(Default)]
pub(super) struct RunsOf {
    characters: Vec<u16>,
    /// How far each run is from the end of the one before.
    distances: Vec<u32>,
    /// The position behind the last run.
    end: u32,
}

impl RunsOf {
    /// Takes the next pair of the text; `false`: this text cannot be kept so.
    pub(super) fn take(&mut self, pair: &str, position: u32) -> bool {
        let mut letters = pair.chars().map(narrow);
        let (Some(Some(first)), Some(Some(second)), None) = (letters.next(), letters.next(), letters.next())
        else {
            return false;
        };
        // Else the last character of the run is the first of this pair.
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

    /// How many terms they are.
    fn distinct(&self) -> u32 {
        let pairs = self.characters.windows(2).filter(|pair| !pair.contains(&BETWEEN));
        let mut pairs: Vec<_> = pairs.map(|pair| pair_of(pair[0], pair[1])).collect();
        pairs.sort_unstable();
        pairs.dedup();
        to_u32(pairs.len())
    }
}

/// A character as runs have it: of two bytes, as nearly all of these scripts are.
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

/// Where in a row the character of a number is, of those that begin at `at`.
pub(crate) const fn place_of(at: usize, character: u32) -> usize {
    at + character as usize * WIDTH
}

/// The text of a pair: characters of these scripts take three bytes each.
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
    /// Where in the row the characters begin.
    at: usize,
    terms: u32,
    /// How many positions the text has.
    length: u32,
}

impl<'a> Runs<'a> {
    pub(super) fn read(rest: &mut Reader<'a>, length: u32) -> Result<Self, DamagedRow> {
        let terms = rest.number()?;
        let count = rest.number()?;
        let distances = rest.number()? as usize;
        // Each run has two characters at least, and a position for each.
        if terms > count || u64::from(count) > 2 * u64::from(length) {
            return Err(DamagedRow);
        }
        let distances = rest.take(distances)?;
        let at = rest.at;
        Ok(Self {
            distances,
            characters: rest.take(count as usize * WIDTH)?,
            at,
            terms,
            length,
        })
    }

    /// How many terms they are.
    pub(crate) const fn terms(&self) -> u32 {
        self.terms
    }

    /// Whether a place in the row is one of theirs.
    pub(super) const fn have(&self, place: usize) -> bool {
        self.at <= place && place < self.at + self.characters.len()
    }

    /// Where in the row the characters begin.
    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    /// Copies the characters behind others.
    ///
    /// # Errors
    /// [`DamagedRow`] where some are none, for which [`BETWEEN`] stands then.
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

    /// Hands each term to `sink` that is asked for, in the order of their bytes,
    /// with its characters. The pairs are asked of that have a character that is
    /// asked for.
    ///
    /// # Errors
    /// [`DamagedRow`], after all other terms, where one is none.
    pub(crate) fn each_term(
        &self,
        is_asked_for: impl Fn(u16) -> bool,
        is_pair_asked_for: impl Fn([u16; 2]) -> bool,
        mut sink: impl FnMut(&[u8], [u16; 2], TermAt),
    ) -> Result<(), DamagedRow> {
        let mut places = self.places(is_asked_for, is_pair_asked_for);
        places.sort_unstable();
        let mut read = Ok(());
        for group in places.chunk_by(|a, b| a >> 32 == b >> 32) {
            let [pair, first] = [group[0] >> 32, group[0]].map(low_half);
            let Some(text) = text_of(pair) else {
                read = Err(DamagedRow);
                continue;
            };
            let at = TermAt {
                frequency: to_u32(group.len()),
                positions_at: place_of(self.at, first),
            };
            sink(&text, halves(pair), at);
        }
        read
    }

    /// The pairs that are asked for, each above its place among the characters.
    fn places(
        &self,
        is_asked_for: impl Fn(u16) -> bool,
        is_pair_asked_for: impl Fn([u16; 2]) -> bool,
    ) -> Vec<u64> {
        let mut places = Vec::new();
        let (mut last, mut was_asked_for) = (BETWEEN, false);
        for (place, character) in (0_u64..).zip(self.characters()) {
            let is_asked_for = is_asked_for(character);
            if (is_asked_for || was_asked_for)
                && (character != BETWEEN && last != BETWEEN)
                && is_pair_asked_for([last, character])
            {
                places.push(u64::from(pair_of(last, character)) << 32 | (place - 1));
            }
            (last, was_asked_for) = (character, is_asked_for);
        }
        places
    }

    /// Hands the positions of the pair at a place in the row to `sink`, that one
    /// first, until there were `count`, or the row is damaged. Answers how many
    /// places that is to look at beside them.
    pub(super) fn each_position(&self, positions_at: usize, count: u32, mut sink: impl FnMut(u32)) -> u64 {
        let from = (positions_at - self.at) / WIDTH;
        let runs = self
            .characters()
            .take(from)
            .filter(|character| *character == BETWEEN);
        let runs = runs.count();
        let looks = from / COUNTED_IN_A_LOOK + runs / PASSED_IN_A_LOOK;
        let passed = self.each_position_from(from, runs, count, &mut sink);
        (looks + passed / PASSED_IN_A_LOOK) as u64
    }

    /// Answers how many characters were passed.
    fn each_position_from(&self, from: usize, runs: usize, count: u32, sink: &mut impl FnMut(u32)) -> usize {
        let pairs = &self.characters[from * WIDTH..];
        let mut distances = self.distances();
        // No position is where nothing stands.
        let mut position = Some(to_u32(from - runs));
        for _ in 0..=runs {
            let distance = distances.number().ok();
            position = position
                .zip(distance)
                .and_then(|(sum, more)| sum.checked_add(more));
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
            let moved = if is_between {
                distances.number().ok()
            } else {
                Some(1)
            };
            position = moved.and_then(|moved| here.checked_add(moved));
        }
        pairs.len() / WIDTH
    }

    /// Checks what [`each_term`](Self::each_term) and
    /// [`each_position`](Self::each_position) take for granted.
    pub(super) fn check(&self) -> Result<(), DamagedRow> {
        let mut terms = 0;
        self.each_term(|_| true, |_| true, |_, _, _| terms += 1)?;
        let mut distances = self.distances();
        let mut end = 0_u32;
        let characters: Vec<u16> = self.characters().collect();
        for run in characters.split(|character| *character == BETWEEN) {
            let length = to_u32(run.len()).checked_add(distances.number()?);
            end = length
                .and_then(|length| end.checked_add(length))
                .ok_or(DamagedRow)?;
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
        Reader {
            bytes: self.distances,
            at: 0,
        }
    }
}

fn letter(character: u16) -> Option<char> {
    char::from_u32(character.into()).filter(|letter| *letter >= FIRST)
}

fn low_half(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or_default()
}
