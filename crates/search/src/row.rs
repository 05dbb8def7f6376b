//! The row of a memory's content: its terms and their positions, compactly.
//!
//! A row has these parts in order: a version, the location of its pairs, the length
//! of the text in positions, the number of terms in blocks, the characters of
//! scripts without spaces ([`runs`]), and the other terms. The other terms are in
//! byte order. Each one is stored as its difference from the previous term,
//! followed by its positions as distances. The terms form blocks of a fixed number.
//! A block begins with its length in bytes and a complete term, so a reader that
//! needs only some terms can skip most blocks. Numbers have variable length, with
//! seven bits per byte. The row does not contain terms of the memory's path, so a
//! memory keeps its row when it moves.

use crate::analyse::{Kind, Token, analyse, unspaced};

mod runs;
mod terms;

use runs::RunsOf;
pub(crate) use runs::{BETWEEN, Pair, Runs, halves, narrow, pair_of, place_of, text_of};
pub(crate) use terms::{TermAt, Terms};

/// The format version in the first byte of a row.
const FORMAT_VERSION: u8 = 3;

/// Leading bytes of a term, which mostly determine its order.
pub(crate) const LEADING_BYTES: usize = size_of::<u64>();

/// Terms per block; the last block may have fewer.
const BLOCK: usize = 16;

/// Bytes that are copied at once.
const COPY_BYTES: usize = 8;

/// The largest length that half a byte can hold; a longer one continues in another
/// byte.
const NIBBLE: usize = 15;

/// The bytes are not a row, or a row of another format version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is no row of this version")]
pub struct DamagedRow;

/// The row of one memory's content, as the index stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TermRow {
    bytes: Vec<u8>,
    length: u32,
}

impl TermRow {
    /// Analyses `content`, in linear time. Ignores the text after
    /// [`MAX_TEXT_BYTES`](crate::MAX_TEXT_BYTES).
    pub fn of(content: &str) -> Self {
        let collected = RowBuilder::of(content, Pairs::Runs);
        let collected = collected.or_else(|| RowBuilder::of(content, Pairs::Terms));
        collected.unwrap_or_default().into_row()
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The number of positions in the content.
    pub const fn length(&self) -> u32 {
        self.length
    }
}

/// The location of the pairs of neighbouring characters in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Pairs {
    #[default]
    None = 0,
    Runs = 1,
    /// The pairs are among the other terms.
    Terms = 2,
}

impl Pairs {
    const fn of(byte: u8) -> Result<Self, DamagedRow> {
        match byte {
            0 => Ok(Self::None),
            1 => Ok(Self::Runs),
            2 => Ok(Self::Terms),
            _ => Err(DamagedRow),
        }
    }
}

#[derive(Default)]
struct RowBuilder {
    /// The length and the text of each occurrence.
    arena: Vec<u8>,
    entries: Vec<Entry>,
    pairs: Pairs,
    runs: RunsOf,
    length: u32,
}

impl RowBuilder {
    /// Returns `None` if the text has pairs that runs cannot hold.
    fn of(content: &str, pairs: Pairs) -> Option<Self> {
        let mut arena = Vec::with_capacity(content.len().min(1 << 20) + 64);
        let mut entries = Vec::with_capacity(content.len().min(1 << 20) / 5 + 4);
        let (mut runs, mut fits, mut has_pairs) = (RunsOf::default(), true, false);
        let length = analyse(content, |token| {
            let Token { term, position, kind, .. } = token;
            // A sign that represents characters can be joined to a text of two
            // characters. The analyser then returns one term of another kind that looks
            // like a pair.
            let is_pair = kind == Kind::Pair;
            let is_like_pair = is_pair || is_two_characters(term);
            has_pairs |= is_like_pair;
            if pairs == Pairs::Runs && is_like_pair {
                fits = fits && is_pair && runs.take(term, position);
                return;
            }
            entries.push(Entry::of(term.as_bytes(), position, to_u32(arena.len())));
            arena.push(low_byte(to_u32(term.len())));
            arena.extend_from_slice(term.as_bytes());
        });
        let pairs = if has_pairs { pairs } else { Pairs::None };
        fits.then_some(Self { arena, entries, pairs, runs, length })
    }

    fn into_row(self) -> TermRow {
        let Self { arena, mut entries, pairs, runs, length } = self;
        let text_of = |entry: &Entry| {
            let start = entry.start() + 1;
            &arena[start..start + usize::from(arena[start - 1])]
        };
        // Numbers sort several times faster than texts, and few terms are equal in their
        // leading bytes but not in the rest.
        entries.sort_unstable();
        for alike in entries.chunk_by_mut(|a, b| a.leading() == b.leading()) {
            let first = text_of(&alike[0]);
            if alike.iter().any(|entry| text_of(entry) != first) {
                alike.sort_unstable_by_key(|entry| (text_of(entry), entry.position()));
            }
        }
        entries.dedup_by(|a, b| a.position() == b.position() && text_of(a) == text_of(b));
        let groups = || entries.chunk_by(|a, b| a.leading() == b.leading() && text_of(a) == text_of(b));

        let mut bytes = Vec::with_capacity(arena.len() / 2 + 16);
        bytes.extend([FORMAT_VERSION, pairs as u8]);
        put_number(&mut bytes, length);
        put_number(&mut bytes, to_u32(groups().count()));
        if pairs == Pairs::Runs {
            runs.write(&mut bytes);
        }
        let mut block = Vec::new();
        let mut groups = groups().peekable();
        while groups.peek().is_some() {
            block.clear();
            let mut before: &[u8] = &[];
            for group in groups.by_ref().take(BLOCK) {
                let term = text_of(&group[0]);
                put_term(&mut block, before, term);
                put_positions(&mut block, group.iter().map(|entry| entry.position()));
                before = term;
            }
            put_number(&mut bytes, to_u32(block.len()));
            bytes.extend_from_slice(&block);
        }
        TermRow { bytes, length }
    }
}

/// Whether a term looks like a pair of characters.
fn is_two_characters(term: &str) -> bool {
    let mut letters = term.chars();
    letters.next().is_some_and(|first| unspaced(first).is_some()) && letters.count() == 1
}

/// An occurrence of a term in the text, as one number: the term's leading bytes, its
/// position, and where it is in the arena.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry(u128);

impl Entry {
    fn of(term: &[u8], position: u32, start: u32) -> Self {
        Self(u128::from(leading(term)) << 64 | u128::from(position) << 32 | u128::from(start))
    }

    const fn leading(self) -> u128 {
        self.0 >> 64
    }

    #[expect(clippy::cast_possible_truncation, reason = "the middle of the number")]
    const fn position(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[expect(clippy::cast_possible_truncation, reason = "the end of the number")]
    const fn start(self) -> usize {
        self.0 as u32 as usize
    }
}

/// The first bytes of `term` as a number with the same order.
#[inline]
pub(crate) fn leading(term: &[u8]) -> u64 {
    let mut bytes = [0; LEADING_BYTES];
    let count = term.len().min(LEADING_BYTES);
    bytes[..count].copy_from_slice(&term[..count]);
    u64::from_be_bytes(bytes)
}

/// Converts a length; the analysed text bounds all lengths here.
pub(crate) fn to_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

pub(crate) fn put_number(bytes: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        bytes.push(low_byte(number) | 0x80);
        number >>= 7;
    }
    bytes.push(low_byte(number));
}

const fn low_byte(number: u32) -> u8 {
    number.to_le_bytes()[0]
}

/// Appends a term: half a byte for the length shared with `before`, half a byte for
/// the length of the rest, and the rest.
fn put_term(bytes: &mut Vec<u8>, before: &[u8], term: &[u8]) {
    let shared = before.iter().zip(term).take_while(|(a, b)| a == b).count();
    let suffix = &term[shared..];
    bytes.push(low_byte(to_u32(shared.min(NIBBLE) << 4 | suffix.len().min(NIBBLE))));
    for length in [shared, suffix.len()] {
        if length >= NIBBLE {
            bytes.push(low_byte(to_u32(length - NIBBLE)));
        }
    }
    bytes.extend_from_slice(suffix);
}

/// Appends the first position with a bit that is set if more follow; then the
/// number of further positions, and their distances.
fn put_positions(bytes: &mut Vec<u8>, mut positions: impl ExactSizeIterator<Item = u32>) {
    let more = to_u32(positions.len()).saturating_sub(1);
    let Some(mut last) = positions.next() else {
        return;
    };
    put_number(bytes, last << 1 | u32::from(more > 0));
    if more > 0 {
        put_number(bytes, more - 1);
    }
    for position in positions {
        put_number(bytes, position - last - 1);
        last = position;
    }
}

/// Passes the `count` positions of a term to `sink`. They begin at `positions_at`
/// in a row that was read completely; `count` must be the exact number. Returns the
/// work done, in reads.
pub(crate) fn positions(row: &[u8], positions_at: usize, count: u32, mut sink: impl FnMut(u32)) -> u64 {
    let mut found = 0;
    let counted = |position| {
        found += 1;
        sink(position);
    };
    let runs = Terms::of(row).ok().and_then(|terms| terms.runs());
    let beside = if let Some(runs) = runs.filter(|runs| runs.contain(positions_at)) {
        runs.each_position(positions_at, count, counted)
    } else {
        let mut rest = Reader { bytes: row, at: positions_at };
        let _ = rest.each_position(&mut { counted });
        0
    };
    found + beside
}

/// Reads the bytes of a row.
pub(crate) struct Reader<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, DamagedRow> {
        let byte = *self.bytes.get(self.at).ok_or(DamagedRow)?;
        self.at += 1;
        Ok(byte)
    }

    #[inline]
    pub(crate) fn number(&mut self) -> Result<u32, DamagedRow> {
        let mut number = 0_u32;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.byte()?;
            if shift == 28 && byte > 0x0f {
                return Err(DamagedRow);
            }
            number |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                // A number has only one valid encoding.
                return if byte == 0 && shift > 0 { Err(DamagedRow) } else { Ok(number) };
            }
        }
        Err(DamagedRow)
    }

    /// The end of the block at `at`, and the leading bytes of its first term.
    #[inline]
    fn block_head(&self, at: usize) -> Result<(usize, u64), DamagedRow> {
        let mut head = Reader { bytes: self.bytes, at };
        let bytes = head.number()? as usize;
        let end = head.at + bytes;
        let mut length = usize::from(head.byte()?);
        if length == NIBBLE {
            length += usize::from(head.byte()?);
        }
        let term = head.take(length.min(LEADING_BYTES))?;
        // A block is not empty: it continues after its head.
        if head.at > end || end > self.bytes.len() {
            return Err(DamagedRow);
        }
        Ok((end, leading(term)))
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], DamagedRow> {
        let taken = self.bytes.get(self.at..self.at + count).ok_or(DamagedRow)?;
        self.at += count;
        Ok(taken)
    }

    #[inline]
    fn each_position(&mut self, sink: &mut impl FnMut(u32)) -> Result<(u32, u32), DamagedRow> {
        let first = self.number()?;
        let mut last = first >> 1;
        sink(last);
        if first & 1 == 0 {
            return Ok((1, last));
        }
        let more = self.number()?;
        for _ in 0..=more {
            let distance = self.number()?;
            last = (last.checked_add(distance)).and_then(|sum| sum.checked_add(1)).ok_or(DamagedRow)?;
            sink(last);
        }
        Ok((more.saturating_add(2), last))
    }

    /// Skips the positions of a term, and returns their number.
    #[inline]
    fn skip_positions(&mut self, length: u32) -> Result<u32, DamagedRow> {
        let (count, last) = self.each_position(&mut |_| {})?;
        if last < length { Ok(count) } else { Err(DamagedRow) }
    }
}

#[cfg(test)]
mod tests;
