//! The one compact row of a memory's content: its terms and where they are.
//!
//! A row has a version, where its pairs are, the length of the text in
//! positions, the number of terms in blocks, the characters that are written
//! without spaces ([`runs`]), and the other terms in the order of their bytes,
//! each as what it differs in from the one before, and its positions as
//! distances. So many terms at a time are a block, which begins with its length
//! in bytes and a term in full: who looks for some terms alone passes most
//! blocks by. Numbers are of variable length, seven bits a byte. Terms of the
//! memory's path are not in it, so that a memory that moves keeps its row.

use crate::analyse::{Kind, Token, analyse, unspaced};

mod runs;
mod terms;

use runs::RunsOf;
pub(crate) use runs::{BETWEEN, Pair, Runs, halves, narrow, pair_of, place_of, text_of};
pub(crate) use terms::{TermAt, Terms};

/// What the first byte of a row says of its form.
const FORM: u8 = 3;

/// Bytes that a term is put in order by, mostly.
pub(crate) const LEADING_BYTES: usize = size_of::<u64>();

/// Terms of a block; the last one may have fewer.
const BLOCK: usize = 16;

/// Bytes that are copied at once.
const FEW: usize = 8;

/// The most that half a byte says of a length; more follows behind.
const NIBBLE: usize = 15;

/// Bytes that are no row, or a row of another form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is no row of search terms of this version")]
pub struct DamagedRow;

/// The row of one memory's content, as the index keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    bytes: Vec<u8>,
    length: u32,
}

impl Row {
    /// Analyses `content`; linear in it. What comes after
    /// [`MAX_TEXT_BYTES`](crate::MAX_TEXT_BYTES) is left out.
    pub fn of(content: &str) -> Self {
        let collected = Collected::of(content, Pairs::Runs);
        let collected = collected.or_else(|| Collected::of(content, Pairs::Terms));
        collected.unwrap_or_default().into_row()
    }

    /// The row as the index keeps it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The row as the index keeps it.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// How many positions the content has.
    pub const fn length(&self) -> u32 {
        self.length
    }
}

/// Where the pairs of neighbouring characters are in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Pairs {
    /// There are none.
    #[default]
    None = 0,
    /// In the runs, all of them.
    Runs = 1,
    /// Among the other terms.
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

/// The terms of a text.
#[derive(Default)]
struct Collected {
    arena: String,
    entries: Vec<Entry>,
    pairs: Pairs,
    runs: RunsOf,
    length: u32,
}

impl Collected {
    /// `None`: this text has pairs that cannot be runs.
    fn of(content: &str, pairs: Pairs) -> Option<Self> {
        let mut arena = String::with_capacity(content.len().min(1 << 20) + 64);
        let mut entries: Vec<Entry> = Vec::with_capacity(content.len().min(1 << 20) / 5 + 4);
        let (mut runs, mut fits, mut has_pairs) = (RunsOf::default(), true, false);
        let length = analyse(content, |token| {
            let Token {
                term, position, kind, ..
            } = token;
            // Signs that stand for characters may be joined to what is like a pair,
            // and then is one term with those.
            let is_pair = kind == Kind::Pair;
            let is_like_pair = is_pair || is_two_characters(term);
            has_pairs |= is_like_pair;
            if pairs == Pairs::Runs && is_like_pair {
                fits = fits && is_pair && runs.take(term, position);
                return;
            }
            entries.push(Entry {
                key: leading(term.as_bytes()),
                start: to_u32(arena.len()),
                end: to_u32(arena.len() + term.len()),
                position,
            });
            arena.push_str(term);
        });
        let pairs = if has_pairs { pairs } else { Pairs::None };
        fits.then_some(Self {
            arena,
            entries,
            pairs,
            runs,
            length,
        })
    }

    fn into_row(self) -> Row {
        let Self {
            arena,
            mut entries,
            pairs,
            runs,
            length,
        } = self;
        let text_of = |entry: &Entry| &arena.as_bytes()[entry.start as usize..entry.end as usize];
        entries.sort_unstable_by(|a, b| {
            (a.key.cmp(&b.key))
                .then_with(|| text_of(a).cmp(text_of(b)))
                .then(a.position.cmp(&b.position))
        });
        entries.dedup_by(|a, b| a.position == b.position && text_of(a) == text_of(b));
        let groups = || entries.chunk_by(|a, b| a.key == b.key && text_of(a) == text_of(b));

        let mut bytes = Vec::with_capacity(arena.len() / 2 + 16);
        bytes.extend([FORM, pairs as u8]);
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
                put_positions(&mut block, group.iter().map(|entry| entry.position));
                before = term;
            }
            put_number(&mut bytes, to_u32(block.len()));
            bytes.extend_from_slice(&block);
        }
        Row { bytes, length }
    }
}

/// Whether a term looks like a pair of characters.
fn is_two_characters(term: &str) -> bool {
    let mut letters = term.chars();
    letters.next().is_some_and(|first| unspaced(first).is_some()) && letters.count() == 1
}

/// A term where the text has it.
struct Entry {
    /// The first eight bytes, which mostly decide the order.
    key: u64,
    start: u32,
    end: u32,
    position: u32,
}

/// The first bytes of `term` as a number of the same order.
#[inline]
pub(crate) fn leading(term: &[u8]) -> u64 {
    let mut bytes = [0; LEADING_BYTES];
    let count = term.len().min(LEADING_BYTES);
    bytes[..count].copy_from_slice(&term[..count]);
    u64::from_be_bytes(bytes)
}

/// Lengths here are bounded by the text that is analysed.
fn to_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn put_number(bytes: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        bytes.push(low_byte(number) | 0x80);
        number >>= 7;
    }
    bytes.push(low_byte(number));
}

const fn low_byte(number: u32) -> u8 {
    number.to_le_bytes()[0]
}

/// How much of `before` the term starts with, and how much more it has, in half
/// a byte each, and that more.
fn put_term(bytes: &mut Vec<u8>, before: &[u8], term: &[u8]) {
    let shared = before.iter().zip(term).take_while(|(a, b)| a == b).count();
    let suffix = &term[shared..];
    bytes.push(low_byte(to_u32(
        shared.min(NIBBLE) << 4 | suffix.len().min(NIBBLE),
    )));
    for length in [shared, suffix.len()] {
        if length >= NIBBLE {
            bytes.push(low_byte(to_u32(length - NIBBLE)));
        }
    }
    bytes.extend_from_slice(suffix);
}

/// The first position with a bit that says whether it is the only one; else how
/// many more there are, and the distances.
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

/// Checks all of `row`.
///
/// # Errors
/// [`DamagedRow`] when it is none of this version.
pub fn check(row: &[u8]) -> Result<(), DamagedRow> {
    let mut terms = Terms::of(row)?;
    if let Some(runs) = terms.runs() {
        runs.check()?;
    }
    while terms.next()?.is_some() {
        std::str::from_utf8(terms.term()).map_err(|_| DamagedRow)?;
    }
    Ok(())
}

/// Hands the positions that begin at `positions_at` in a row that was read whole
/// to `sink`: `count` of them, which is how many there are. Answers how many
/// places were looked at for them.
pub(crate) fn positions(row: &[u8], positions_at: usize, count: u32, mut sink: impl FnMut(u32)) -> u64 {
    let mut found = 0;
    let counted = |position| {
        found += 1;
        sink(position);
    };
    let runs = Terms::of(row).ok().and_then(|terms| terms.runs());
    let beside = if let Some(runs) = runs.filter(|runs| runs.have(positions_at)) {
        runs.each_position(positions_at, count, counted)
    } else {
        let mut rest = Reader {
            bytes: row,
            at: positions_at,
        };
        let _ = rest.each_position(&mut { counted });
        0
    };
    found + beside
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, DamagedRow> {
        let byte = *self.bytes.get(self.at).ok_or(DamagedRow)?;
        self.at += 1;
        Ok(byte)
    }

    #[inline]
    fn number(&mut self) -> Result<u32, DamagedRow> {
        let mut number = 0_u32;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.byte()?;
            if shift == 28 && byte > 0x0f {
                return Err(DamagedRow);
            }
            number |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                // One way alone to write a number.
                return if byte == 0 && shift > 0 {
                    Err(DamagedRow)
                } else {
                    Ok(number)
                };
            }
        }
        Err(DamagedRow)
    }

    /// Where the block that begins at `at` ends, and what its first term leads
    /// with.
    #[inline]
    fn block_head(&self, at: usize) -> Result<(usize, u64), DamagedRow> {
        let mut head = Reader {
            bytes: self.bytes,
            at,
        };
        let bytes = head.number()? as usize;
        let end = head.at + bytes;
        let mut length = usize::from(head.byte()?);
        if length == NIBBLE {
            length += usize::from(head.byte()?);
        }
        let term = head.take(length.min(LEADING_BYTES))?;
        // A block is not empty, and goes on behind its head.
        if head.at > end || end > self.bytes.len() {
            return Err(DamagedRow);
        }
        Ok((end, leading(term)))
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], DamagedRow> {
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
            last = (last.checked_add(distance))
                .and_then(|sum| sum.checked_add(1))
                .ok_or(DamagedRow)?;
            sink(last);
        }
        Ok((more.saturating_add(2), last))
    }

    /// Passes the positions of a term by, and returns how many there are.
    #[inline]
    fn skip_positions(&mut self, length: u32) -> Result<u32, DamagedRow> {
        let (count, last) = self.each_position(&mut |_| {})?;
        if last < length { Ok(count) } else { Err(DamagedRow) }
    }
}

#[cfg(test)]
mod tests;
