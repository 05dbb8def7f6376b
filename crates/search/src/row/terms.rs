//! The terms of a row that are stored in blocks, in byte order.

use super::{BLOCK, COPY_BYTES, DamagedRow, FORMAT_VERSION, NIBBLE, Pairs, Reader, Runs, to_u32};
use crate::fold::MAX_TERM_BYTES;

/// Reads a row term by term. Invalid bytes give an error, never a panic.
pub(crate) struct Terms<'a> {
    rest: Reader<'a>,
    length: u32,
    /// Whether the blocks contain pairs of characters.
    has_pairs: bool,
    runs: Option<Runs<'a>>,
    left: u32,
    /// Unread terms of the current block, and the end of the block.
    left_of_block: u32,
    block_end: usize,
    /// The term, with room for a few bytes after it.
    term: [u8; MAX_TERM_BYTES + COPY_BYTES],
    term_length: usize,
}

/// A term that was read; the reader has its text.
pub(crate) struct TermAt {
    pub(crate) frequency: u32,
    /// The offset of its positions in the row.
    pub(crate) positions_at: usize,
}

impl<'a> Terms<'a> {
    pub(crate) fn of(row: &'a [u8]) -> Result<Self, DamagedRow> {
        let mut rest = Reader { bytes: row, at: 0 };
        if rest.byte()? != FORMAT_VERSION {
            return Err(DamagedRow);
        }
        let pairs = Pairs::of(rest.byte()?)?;
        let length = rest.number()?;
        let left = rest.number()?;
        // Each term takes at least two bytes.
        if left as usize > row.len() / 2 {
            return Err(DamagedRow);
        }
        let runs = match pairs {
            Pairs::Runs => Some(Runs::read(&mut rest, length)?),
            Pairs::None | Pairs::Terms => None,
        };
        Ok(Self {
            rest,
            length,
            has_pairs: pairs == Pairs::Terms,
            runs,
            left,
            left_of_block: 0,
            block_end: 0,
            term: [0; MAX_TERM_BYTES + COPY_BYTES],
            term_length: 0,
        })
    }

    /// The number of unread terms in blocks.
    pub(crate) const fn in_blocks(&self) -> usize {
        self.left as usize
    }

    /// The number of unread terms, including the terms of the runs.
    pub(crate) fn len(&self) -> usize {
        self.left as usize + self.runs.map_or(0, |runs| runs.terms() as usize)
    }

    /// The runs, whose pairs are terms as well.
    pub(crate) const fn runs(&self) -> Option<Runs<'a>> {
        self.runs
    }

    pub(crate) const fn has_pairs(&self) -> bool {
        self.has_pairs
    }

    /// The number of positions in the text.
    pub(crate) const fn length(&self) -> u32 {
        self.length
    }

    /// The term that [`next`](Self::next) returned.
    pub(crate) fn term(&self) -> &[u8] {
        &self.term[..self.term_length]
    }

    /// Reads the next term; `None` after the last.
    pub(crate) fn next(&mut self) -> Result<Option<TermAt>, DamagedRow> {
        if self.left == 0 {
            return if self.rest.is_empty() { Ok(None) } else { Err(DamagedRow) };
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
        Ok(Some(TermAt { frequency, positions_at }))
    }

    /// Skips to the next block that may have a requested term; does nothing inside a block. `may_be`
    /// decides from the leading bytes of the first and of the last term that a block can have.
    pub(crate) fn skip_blocks(&mut self, may_be: impl Fn(u64, u64) -> bool) -> Result<(), DamagedRow> {
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
            // Terms are in order: this one extends the previous term, or is greater
            // after the shared bytes.
            match (self.term().get(shared), suffix.first()) {
                (None, Some(_)) => shared == self.term_length,
                (Some(old), Some(new)) => old < new,
                (_, None) => false,
            }
        };
        let end = shared + more;
        // A NUL in a term would make its leading bytes equal to those of a shorter
        // term.
        if !follows || end > MAX_TERM_BYTES || suffix.contains(&0) {
            return Err(DamagedRow);
        }
        match self.rest.bytes.get(at..at + COPY_BYTES) {
            // Copying a fixed number of bytes is faster than copying the exact number.
            Some(with_more) if more <= COPY_BYTES => {
                self.term[shared..shared + COPY_BYTES].copy_from_slice(with_more);
            }
            _ => self.term[shared..end].copy_from_slice(suffix),
        }
        self.term_length = end;
        Ok(())
    }
}
