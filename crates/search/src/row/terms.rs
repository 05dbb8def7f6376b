//! The terms of a row that are in blocks, in the order of their bytes.

use super::{BLOCK, DamagedRow, FEW, FORM, NIBBLE, Pairs, Reader, Runs, to_u32};
use crate::fold::MAX_TERM_BYTES;

/// Reads a row term by term. Gives an error where the bytes are no row, and
/// never panics.
pub(crate) struct Terms<'a> {
    rest: Reader<'a>,
    length: u32,
    /// Pairs of characters are among the terms.
    has_pairs: bool,
    runs: Option<Runs<'a>>,
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
        let pairs = Pairs::of(rest.byte()?)?;
        let length = rest.number()?;
        let left = rest.number()?;
        // Each takes two bytes at least.
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
            term: [0; MAX_TERM_BYTES + FEW],
            term_length: 0,
        })
    }

    /// How many terms are left in blocks.
    pub(crate) const fn in_blocks(&self) -> usize {
        self.left as usize
    }

    /// How many terms are left, those of the runs included.
    pub(crate) fn len(&self) -> usize {
        self.left as usize + self.runs.map_or(0, |runs| runs.terms() as usize)
    }

    /// The characters whose pairs are terms, too.
    pub(crate) const fn runs(&self) -> Option<Runs<'a>> {
        self.runs
    }

    /// Whether pairs of characters are among the terms in blocks.
    pub(crate) const fn has_pairs(&self) -> bool {
        self.has_pairs
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
        // No term has a NUL: it would be told from no shorter one by what it leads with.
        if !follows || end > MAX_TERM_BYTES || suffix.contains(&0) {
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
