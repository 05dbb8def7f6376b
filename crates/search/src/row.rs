//! The one compact row of a memory's content: its terms and where they are.
//!
//! A row has a version, the length of the text in positions, the number of
//! terms, and the terms in the order of their bytes, each as what it differs in
//! from the one before, and its positions as distances. So many terms at a time
//! are a block, which begins with its length in bytes and a term in full: who
//! looks for some terms alone passes most blocks by. Numbers are of variable
//! length, seven bits a byte. Terms of the memory's path are not in it, so that
//! a memory that moves keeps its row.

use crate::analyse::{Token, analyse};
use crate::fold::MAX_TERM_BYTES;

/// What the first byte of a row says of its form.
const FORM: u8 = 2;

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
        let mut arena = String::with_capacity(content.len().min(1 << 20) + 64);
        let mut entries: Vec<Entry> = Vec::with_capacity(content.len().min(1 << 20) / 5 + 4);
        let length = analyse(content, |Token { term, position, .. }| {
            entries.push(Entry {
                key: leading(term.as_bytes()),
                start: to_u32(arena.len()),
                end: to_u32(arena.len() + term.len()),
                position,
            });
            arena.push_str(term);
        });
        let text_of = |entry: &Entry| &arena.as_bytes()[entry.start as usize..entry.end as usize];
        entries.sort_unstable_by(|a, b| {
            (a.key.cmp(&b.key))
                .then_with(|| text_of(a).cmp(text_of(b)))
                .then(a.position.cmp(&b.position))
        });
        entries.dedup_by(|a, b| a.position == b.position && text_of(a) == text_of(b));
        let groups = || entries.chunk_by(|a, b| a.key == b.key && text_of(a) == text_of(b));

        let mut bytes = Vec::with_capacity(arena.len() / 2 + 16);
        bytes.push(FORM);
        put_number(&mut bytes, length);
        put_number(&mut bytes, to_u32(groups().count()));
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
        Self { bytes, length }
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

/// Reads a row term by term. Gives an error where the bytes are no row, and
/// never panics.
pub(crate) struct Terms<'a> {
    rest: Reader<'a>,
    length: u32,
    left: u32,
    /// Terms left of the block that is read, and where it ends.
    left_of_block: u32,
    block_end: usize,
    /// The term, with room behind it for a few bytes that are not of it.
    term: [u8; MAX_TERM_BYTES + FEW],
    term_length: usize,
}

/// A term that was read; its text is the reader's.
pub(crate) struct TermAt {
    /// How often it occurs.
    pub(crate) frequency: u32,
    /// Where in the row its positions begin.
    pub(crate) positions_at: usize,
}

impl<'a> Terms<'a> {
    /// # Errors
    /// [`DamagedRow`] when the head is not one of a row.
    pub(crate) fn of(row: &'a [u8]) -> Result<Self, DamagedRow> {
        let mut rest = Reader { bytes: row, at: 0 };
        if rest.byte()? != FORM {
            return Err(DamagedRow);
        }
        let length = rest.number()?;
        let left = rest.number()?;
        // Each takes two bytes at least.
        if left as usize > row.len() / 2 {
            return Err(DamagedRow);
        }
        Ok(Self {
            rest,
            length,
            left,
            left_of_block: 0,
            block_end: 0,
            term: [0; MAX_TERM_BYTES + FEW],
            term_length: 0,
        })
    }

    /// How many terms are left.
    pub(crate) const fn len(&self) -> usize {
        self.left as usize
    }

    /// How many positions the text has.
    pub(crate) const fn length(&self) -> u32 {
        self.length
    }

    /// The term that [`next`](Self::next) found.
    pub(crate) fn term(&self) -> &[u8] {
        &self.term[..self.term_length]
    }

    /// Goes to the next term; `None` after the last.
    ///
    /// # Errors
    /// [`DamagedRow`] when the rest is not one of a row.
    pub(crate) fn next(&mut self) -> Result<Option<TermAt>, DamagedRow> {
        if self.left == 0 {
            return if self.rest.is_empty() {
                Ok(None)
            } else {
                Err(DamagedRow)
            };
        }
        let begins_block = self.left_of_block == 0;
        if begins_block {
            let bytes = self.rest.number()? as usize;
            self.block_end = self.rest.at + bytes;
            self.left_of_block = self.left.min(to_u32(BLOCK));
        }
        self.left -= 1;
        self.left_of_block -= 1;
        self.read_term(begins_block)?;
        let positions_at = self.rest.at;
        let frequency = self.rest.skip_positions(self.length)?;
        if self.left_of_block == 0 && self.rest.at != self.block_end {
            return Err(DamagedRow);
        }
        Ok(Some(TermAt {
            frequency,
            positions_at,
        }))
    }

    /// Goes to the next block that may have a term that is asked for: what its
    /// terms lead with is between two numbers, both included, that `may_be` is
    /// told. Within a block it stays where it is.
    ///
    /// # Errors
    /// [`DamagedRow`] as [`next`](Self::next).
    pub(crate) fn pass_blocks(&mut self, may_be: impl Fn(u64, u64) -> bool) -> Result<(), DamagedRow> {
        if self.left_of_block > 0 || self.left == 0 {
            return Ok(());
        }
        let (mut end, mut first) = self.rest.block_head(self.rest.at)?;
        while self.left > to_u32(BLOCK) {
            let next = self.rest.block_head(end)?;
            if may_be(first, next.1) {
                return Ok(());
            }
            self.left -= to_u32(BLOCK);
            self.rest.at = end;
            (end, first) = next;
        }
        if !may_be(first, u64::MAX) {
            self.left = 0;
            self.rest.at = end;
        }
        Ok(())
    }

    fn read_term(&mut self, begins_block: bool) -> Result<(), DamagedRow> {
        let lengths = usize::from(self.rest.byte()?);
        let mut shared = lengths >> 4;
        if shared == NIBBLE {
            shared += usize::from(self.rest.byte()?);
        }
        let mut more = lengths & NIBBLE;
        if more == NIBBLE {
            more += usize::from(self.rest.byte()?);
        }
        let at = self.rest.at;
        let suffix = self.rest.take(more)?;
        let follows = if begins_block {
            shared == 0 && self.term() < suffix
        } else {
            // In order: it goes on where the one before ends, or is greater there.
            match (self.term().get(shared), suffix.first()) {
                (None, Some(_)) => shared == self.term_length,
                (Some(old), Some(new)) => old < new,
                (_, None) => false,
            }
        };
        let end = shared + more;
        if !follows || end > MAX_TERM_BYTES {
            return Err(DamagedRow);
        }
        match self.rest.bytes.get(at..at + FEW) {
            // So many at once take less than the few alone.
            Some(with_more) if more <= FEW => self.term[shared..shared + FEW].copy_from_slice(with_more),
            _ => self.term[shared..end].copy_from_slice(suffix),
        }
        self.term_length = end;
        Ok(())
    }
}

/// Checks all of `row`.
///
/// # Errors
/// [`DamagedRow`] when it is none of this version.
pub fn check(row: &[u8]) -> Result<(), DamagedRow> {
    let mut terms = Terms::of(row)?;
    while terms.next()?.is_some() {
        std::str::from_utf8(terms.term()).map_err(|_| DamagedRow)?;
    }
    Ok(())
}

/// The positions that begin at `positions_at` in a row that was read whole.
pub(crate) fn positions(row: &[u8], positions_at: usize, mut sink: impl FnMut(u32)) {
    let mut rest = Reader {
        bytes: row,
        at: positions_at,
    };
    let _ = rest.each_position(&mut sink);
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(row: &[u8]) -> Vec<(String, Vec<u32>)> {
        let mut terms = Terms::of(row).unwrap();
        let mut found = Vec::new();
        while let Some(at) = terms.next().unwrap() {
            let mut places = Vec::new();
            positions(row, at.positions_at, |position| places.push(position));
            assert_eq!(places.len(), at.frequency as usize);
            found.push((String::from_utf8(terms.term().to_vec()).unwrap(), places));
        }
        found
    }

    #[test]
    fn row_holds_each_term_once_with_its_positions() {
        let row = Row::of("the cat sat; the catalogue: the cat. anak-anak");
        assert_eq!(row.length(), 8);
        assert_eq!(
            read(row.as_bytes()),
            [
                ("anak", vec![7]),
                ("anakanak", vec![7]),
                ("cat", vec![1, 6]),
                ("catalogue", vec![4]),
                ("sat", vec![2]),
                ("the", vec![0, 3, 5]),
            ]
            .map(|(term, places)| (term.to_owned(), places))
        );
    }

    #[test]
    fn signs_without_a_letter_leave_the_rest_findable() {
        let row = Row::of("\u{64e} fatha\n\u{5b0} sheva");
        assert_eq!(check(row.as_bytes()), Ok(()));
        let terms: Vec<_> = read(row.as_bytes()).into_iter().map(|(term, _)| term).collect();
        assert_eq!(terms, ["fatha", "sheva"]);
    }

    #[test]
    fn long_negations_are_cut_like_other_words() {
        let row = Row::of(&format!("{}n't zebra", "x".repeat(80)));
        assert_eq!(check(row.as_bytes()), Ok(()));
        assert_eq!(read(row.as_bytes()).len(), 2);
    }

    /// Of a row with many blocks, with what is asked for in the first, the last,
    /// and where one block ends.
    #[test]
    fn blocks_are_passed_by_without_what_they_may_have() {
        let text: Vec<_> = (0..100).map(|number| format!("w{number:03}")).collect();
        let row = Row::of(&text.join(" ")).into_bytes();
        assert_eq!(read(&row).len(), 100);
        for wanted in [0, 15, 16, 17, 95, 96, 99] {
            let wanted = format!("w{wanted:03}");
            let leads = leading(wanted.as_bytes());
            let mut terms = Terms::of(&row).unwrap();
            let (mut seen, mut found) = (0, false);
            loop {
                terms
                    .pass_blocks(|first, last| first <= leads && leads <= last)
                    .unwrap();
                if terms.next().unwrap().is_none() {
                    break;
                }
                seen += 1;
                found |= terms.term() == wanted.as_bytes();
            }
            assert!(found, "{wanted}");
            assert!(seen <= 2 * BLOCK, "{wanted}: {seen}");
        }
        let mut terms = Terms::of(&row).unwrap();
        terms.pass_blocks(|_, _| false).unwrap();
        assert!(terms.next().unwrap().is_none());
    }

    #[test]
    fn row_of_nothing_is_a_row() {
        assert_eq!(check(Row::of("").as_bytes()), Ok(()));
        assert_eq!(check(&[]), Err(DamagedRow));
    }

    #[test]
    fn cut_and_lengthened_rows_are_refused() {
        let row = Row::of("one two three two one").into_bytes();
        for end in 0..row.len() {
            assert_eq!(check(&row[..end]), Err(DamagedRow), "{end}");
        }
        assert_eq!(check(&[&row[..], &[0]].concat()), Err(DamagedRow));
    }

    fn piece() -> impl Strategy<Value = String> {
        prop_oneof![
            "[\u{300}\u{345}\u{5b0}\u{5b4}\u{64b}\u{64e}\u{652}\u{670}\u{e31}\u{3099}\u{ff9e}]{1,4}",
            "[ \n.'’_-]{1,2}",
            "(x|é|Ж|ا|猫|가|\u{fdfa}){55,70}",
            Just("n't".to_owned()),
            "[a-zA-Z0-9]{1,5}",
        ]
    }

    proptest! {
        #[test]
        fn what_was_analysed_is_read(text in "\\PC{0,200}") {
            let mut expected = std::collections::BTreeMap::<String, Vec<u32>>::new();
            let length = analyse(&text, |token| {
                let places = expected.entry(token.term.to_owned()).or_default();
                if places.last() != Some(&token.position) {
                    places.push(token.position);
                }
            });
            let row = Row::of(&text);
            prop_assert_eq!(row.length(), length);
            prop_assert_eq!(check(row.as_bytes()), Ok(()));
            let found = read(row.as_bytes());
            prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
        }

        /// Of lone signs, long words, endings and what joins them.
        #[test]
        fn every_row_made_is_read(pieces in proptest::collection::vec(piece(), 0..12)) {
            let row = Row::of(&pieces.concat());
            prop_assert_eq!(check(row.as_bytes()), Ok(()));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = check(&bytes);
            let row = [&[FORM, 9, 40][..], &bytes].concat();
            let _ = check(&row);
            if let Ok(mut terms) = Terms::of(&row) {
                while terms.pass_blocks(|first, _| first % 2 == 0).is_ok() {
                    if !matches!(terms.next(), Ok(Some(_))) {
                        break;
                    }
                }
            }
        }
    }
}
