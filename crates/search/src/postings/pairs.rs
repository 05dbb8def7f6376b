//! The pairs of neighbouring characters of a store.
//!
//! A store has nearly as many positions of pairs as characters, and a third as many
//! different pairs. A table lookup for each would be slow. Instead, a counting sort
//! orders all positions at once, by the second character and then by the first. The
//! rank of a pair in that order is its term.

use std::ops::Range;

use super::dictionary::Posting;
use super::lists::Lists;
use super::to_u32;
use crate::row::{BETWEEN, DamagedRow, Pair, Runs, halves, narrow, pair_of, place_of, text_of};

/// Characters per entry of the table that finds the row of a position.
const STRIDE: usize = 256;

/// Bytes of a pair without its list; bytes of a character during the sort; bytes of
/// the counts during the sort.
const PAIR_BYTES: usize = 28;
const CHARACTER_BYTES: usize = size_of::<u16>() + size_of::<u32>() + size_of::<PairPosition>();
const COUNTS_BYTES: usize = (2 * size_of::<u32>()) << u16::BITS;

/// The sorted pairs.
#[derive(Default)]
pub(super) struct Pairs {
    pairs: Vec<Pair>,
    /// The terms of `pairs`, ordered by the second character.
    by_second: Vec<u32>,
}

impl Pairs {
    pub(super) const fn len(&self) -> usize {
        self.pairs.len()
    }

    pub(super) const fn size_bytes(&self) -> usize {
        self.pairs.capacity() * size_of::<Pair>() + self.by_second.capacity() * size_of::<u32>()
    }

    /// The term of a text that is one of the pairs.
    pub(super) fn find(&self, text: &[u8]) -> Option<u32> {
        if self.pairs.is_empty() {
            return None;
        }
        let pair = pair_in(text)?;
        self.pairs.binary_search(&pair).ok().map(to_u32)
    }

    /// The text of a term that is one of the pairs.
    pub(super) fn text(&self, term: u32) -> Option<[u8; 6]> {
        self.pairs.get(term as usize).and_then(|pair| text_of(*pair))
    }

    pub(super) fn with_first(&self, letter: char) -> impl Iterator<Item = u32> + use<> {
        let range = narrow(letter).map(|letter| {
            let start = self.pairs.partition_point(|pair| halves(*pair)[0] < letter);
            let count = self.pairs[start..].partition_point(|pair| halves(*pair)[0] == letter);
            to_u32(start)..to_u32(start + count)
        });
        range.into_iter().flatten()
    }

    pub(super) fn with_second(&self, letter: char) -> &[u32] {
        let Some(letter) = narrow(letter) else {
            return &[];
        };
        let second = |term: u32| halves(self.pairs[term as usize])[1];
        let start = self.by_second.partition_point(|term| second(*term) < letter);
        let rest = &self.by_second[start..];
        &rest[..rest.partition_point(|term| second(*term) == letter)]
    }
}

/// The pair of a text of two characters with three bytes each. A word of two such
/// characters is stored like a pair.
pub(super) fn pair_in(text: &[u8]) -> Option<Pair> {
    if text.len() != 6 || text[0] < 0xe0 {
        return None;
    }
    let mut letters = std::str::from_utf8(text).ok()?.chars().map(narrow);
    match (letters.next(), letters.next(), letters.next()) {
        (Some(Some(first)), Some(Some(second)), None) => Some(pair_of(first, second)),
        _ => None,
    }
}

/// Collects the pairs of a store.
#[derive(Default)]
pub(super) struct PairsOf {
    /// The characters of all rows, with [`BETWEEN`] before each row.
    characters: Vec<u16>,
    rows: Vec<RunsAt>,
    /// Pairs that rows have in blocks.
    block_pairs: Vec<(Pair, Posting)>,
    /// The approximate number of postings in all lists.
    postings: usize,
}

/// The runs of one row within the characters of all rows.
#[derive(Clone, Copy)]
struct RunsAt {
    first: u32,
    slot: u32,
    /// The offset of the characters in the row.
    at: usize,
}

impl PairsOf {
    /// Adds the runs of a slot, which must follow all earlier slots. Invalid characters are
    /// skipped and reported as damage.
    pub(super) fn take(&mut self, slot: u32, runs: Runs<'_>) -> Result<(), DamagedRow> {
        self.characters.push(BETWEEN);
        self.rows.push(RunsAt { first: to_u32(self.characters.len()), slot, at: runs.at() });
        self.postings += runs.terms() as usize;
        runs.copy_to(&mut self.characters)
    }

    /// Adds a pair that a slot has in a block.
    pub(super) fn take_block_pair(&mut self, pair: Pair, posting: Posting) {
        self.postings += 1;
        self.block_pairs.push((pair, posting));
    }

    /// Approximate bytes for building lists of the added pairs.
    pub(super) const fn build_bytes(&self) -> usize {
        let characters = self.characters.len() + 3 * self.block_pairs.len();
        let block_pairs = self.block_pairs.len() * size_of::<(Pair, Posting)>();
        let counts = if characters == 0 { 0 } else { COUNTS_BYTES };
        let pairs = self.postings * (size_of::<Posting>() + PAIR_BYTES);
        characters * CHARACTER_BYTES + block_pairs + counts + pairs
    }

    /// Builds the pairs and the lists of their terms. `None` if there are too many
    /// characters to number.
    pub(super) fn into_lists(mut self) -> Option<(Pairs, Lists)> {
        if self.characters.is_empty() && self.block_pairs.is_empty() {
            return Some((Pairs::default(), Lists::of(&[], 0)));
        }
        // Each pair of a block is placed after all rows, like a row that has only this pair.
        let block_pairs_at = self.characters.len();
        for (pair, _) in &self.block_pairs {
            self.characters.push(BETWEEN);
            self.characters.extend(halves(*pair));
        }
        u32::try_from(self.characters.len()).ok()?;
        let rows = Rows::of(&self.rows, block_pairs_at);

        let mut pairs = Vec::new();
        let mut lists = Lists::of(&[], 0);
        lists.reserve(0, self.postings);
        let mut list: Vec<Posting> = Vec::new();
        let positions = PairPositions::in_order(&self.characters);
        for (pair, group) in positions.groups() {
            list.clear();
            let mut rest = group;
            while let [first, ..] = *rest {
                let first = first.at();
                let count = if let Some(row) = rows.at(first) {
                    let count = rest.iter().take_while(|position| position.at() < row.end).count();
                    let position = place_of(row.runs.at, first - row.runs.first);
                    list.push(Posting::new(row.runs.slot, to_u32(count), position));
                    count
                } else {
                    list.push(self.block_pairs[(first as usize - block_pairs_at) / 3].1);
                    1
                };
                rest = &rest[count..];
            }
            if group.last().is_some_and(|last| last.at() as usize >= block_pairs_at) {
                list.sort_unstable_by_key(|posting| posting.slot);
            }
            pairs.push(pair);
            lists.append(list.iter().copied());
        }
        let by_second = by_second(&pairs);
        Some((Pairs { pairs, by_second }, lists))
    }
}

/// The positions of the pairs among the characters of all rows.
struct PairPositions {
    /// Ordered by pair; the positions of one pair are in ascending order.
    positions: Vec<PairPosition>,
    /// The end of the positions of pairs that begin with each character.
    ends: Counts,
}

/// A position, and the second character of the pair there, which avoids a slow lookup
/// of the character.
#[derive(Clone, Copy, Default)]
struct PairPosition(u64);

impl PairPosition {
    fn new(at: u32, second: u16) -> Self {
        Self(u64::from(second) << u32::BITS | u64::from(at))
    }

    #[expect(clippy::cast_possible_truncation, reason = "the lower half is the position")]
    const fn at(self) -> u32 {
        self.0 as u32
    }

    #[expect(clippy::cast_possible_truncation, reason = "no more is above it")]
    const fn second(self) -> u16 {
        (self.0 >> u32::BITS) as u16
    }
}

impl PairPositions {
    fn in_order(characters: &[u16]) -> Self {
        let all = || {
            (0_u32..).zip(characters.windows(2)).filter(|(_, pair)| pair[0] != BETWEEN && pair[1] != BETWEEN)
        };
        let (mut firsts, mut seconds) = (Counts::new(), Counts::new());
        for (_, pair) in all() {
            firsts.count(pair[0]);
            seconds.count(pair[1]);
        }
        let count = firsts.begin();
        seconds.begin();
        let mut by_second = vec![0; count];
        for (at, pair) in all() {
            by_second[seconds.next(pair[1])] = at;
        }
        let mut positions = vec![PairPosition::default(); count];
        for (second, range) in seconds.ranges() {
            for at in &by_second[range] {
                positions[firsts.next(characters[*at as usize])] = PairPosition::new(*at, second);
            }
        }
        Self { positions, ends: firsts }
    }

    fn groups(&self) -> impl Iterator<Item = (Pair, &[PairPosition])> {
        self.ends.ranges().flat_map(|(first, range)| {
            let groups = self.positions[range].chunk_by(|a, b| a.second() == b.second());
            groups.map(move |group| (pair_of(first, group[0].second()), group))
        })
    }
}

/// The terms of `pairs`, ordered by their second characters.
fn by_second(pairs: &[Pair]) -> Vec<u32> {
    let mut seconds = Counts::new();
    for pair in pairs {
        seconds.count(halves(*pair)[1]);
    }
    let mut terms = vec![0; seconds.begin()];
    for (term, pair) in (0..).zip(pairs) {
        terms[seconds.next(halves(*pair)[1])] = term;
    }
    terms
}

/// The number of entries of each character, then the position of each character's next
/// entry.
struct Counts(Vec<u32>);

impl Counts {
    fn new() -> Self {
        Self(vec![0; 1 << u16::BITS])
    }

    #[inline]
    fn count(&mut self, character: u16) {
        self.0[usize::from(character)] += 1;
    }

    /// Turns counts into start positions; returns the total.
    fn begin(&mut self) -> usize {
        let mut sum = 0;
        for count in &mut self.0 {
            sum += std::mem::replace(count, sum);
        }
        sum as usize
    }

    #[inline]
    fn next(&mut self, character: u16) -> usize {
        let position = &mut self.0[usize::from(character)];
        *position += 1;
        *position as usize - 1
    }

    /// The range of each character's entries, after all entries are placed.
    fn ranges(&self) -> impl Iterator<Item = (u16, Range<usize>)> {
        let ends = self.0.iter().map(|end| *end as usize);
        let starts = std::iter::once(0).chain(ends.clone());
        (0..=u16::MAX)
            .zip(starts.zip(ends).map(|(start, end)| start..end))
            .filter(|(_, range)| !range.is_empty())
    }
}

/// Finds the row of a position among the characters of all rows.
struct Rows<'a> {
    all: &'a [RunsAt],
    /// The row at the beginning of each stride.
    strides: Vec<u32>,
    end: usize,
}

struct RowAt {
    runs: RunsAt,
    end: u32,
}

impl<'a> Rows<'a> {
    fn of(rows: &'a [RunsAt], end: usize) -> Self {
        let mut strides = Vec::with_capacity(end / STRIDE + 1);
        for (number, row) in (0..).zip(rows) {
            while strides.len() * STRIDE < row.first as usize {
                strides.push(u32::saturating_sub(number, 1));
            }
        }
        strides.resize(end / STRIDE + 1, to_u32(rows.len().saturating_sub(1)));
        Self { all: rows, strides, end }
    }

    /// Returns `None` if the position is after all rows.
    fn at(&self, position: u32) -> Option<RowAt> {
        if position as usize >= self.end {
            return None;
        }
        let mut row = self.strides[position as usize / STRIDE] as usize;
        while self.all.get(row + 1).is_some_and(|next| next.first <= position) {
            row += 1;
        }
        let end = self.all.get(row + 1).map_or(to_u32(self.end), |next| next.first);
        let runs = *self.all.get(row)?;
        Some(RowAt { runs, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Terms;

    #[test]
    fn damaged_characters_form_no_pair() {
        // Two runs of two characters; the first character of the second run is half of
        // a surrogate pair.
        let row = [&[3, 1, 4, 0, 2, 5, 2, 0, 0][..], &[0x00, 0x4e, 0x01, 0x4e, 0, 0, 0x00, 0xd8, 0x01, 0x4e]];
        let row = row.concat();
        let mut collected = PairsOf::default();
        assert!(collected.take(0, Terms::of(&row).unwrap().runs().unwrap()).is_err());
        let (pairs, lists) = collected.into_lists().unwrap();
        assert_eq!((pairs.len(), lists.len_of(0)), (1, 1));
        assert_eq!(pairs.find("一丁".as_bytes()), Some(0));
    }
}
