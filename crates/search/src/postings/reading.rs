//! Reads the rows of slots: all terms, the needed terms, or pairs and words
//! separately.

use super::dictionary::Posting;
use super::pairs::{PairsOf, pair_in};
use super::{Field, Slot, TermFilter};
use crate::row::{DamagedRow, Terms};

/// The smallest leading bytes of a pair: its characters have three bytes each.
const FIRST_PAIR: u64 = 0xe0 << 56;

/// Live slots with their numbers.
pub(super) fn live_slots(slots: &[Slot]) -> impl Iterator<Item = (u32, &Slot)> {
    (0..).zip(slots).filter(|(_, slot)| slot.is_live)
}

/// The terms of a field of a slot; `None` if it has no row.
fn terms_of(slot: &Slot, field: Field) -> Result<Option<Terms<'_>>, DamagedRow> {
    let row = slot.row(field);
    if row.is_empty() { Ok(None) } else { Terms::of(row).map(Some) }
}

/// Adds the pairs of a slot's content: the pairs of its runs, and terms in its
/// blocks that look like pairs.
pub(super) fn take_pairs(pairs: &mut PairsOf, (number, slot): (u32, &Slot)) -> Result<(), DamagedRow> {
    let Some(mut terms) = terms_of(slot, Field::Content)? else {
        return Ok(());
    };
    let taken = terms.runs().map_or(Ok(()), |runs| pairs.take(number, runs));
    loop {
        terms.skip_blocks(|_, last| last >= FIRST_PAIR)?;
        let Some(at) = terms.next()? else {
            return taken;
        };
        if let Some(pair) = pair_in(terms.term()) {
            pairs.take_block_pair(pair, Posting::of(number, &at));
        }
    }
}

/// Passes the terms of a slot's content to `sink`, except the terms that
/// [`take_pairs`] takes.
pub(super) fn read_words(
    (number, slot): (u32, &Slot),
    mut sink: impl FnMut(&[u8], Posting),
) -> Result<(), DamagedRow> {
    let Some(mut terms) = terms_of(slot, Field::Content)? else {
        return Ok(());
    };
    while let Some(at) = terms.next()? {
        if pair_in(terms.term()).is_none() {
            sink(terms.term(), Posting::of(number, &at));
        }
    }
    Ok(())
}

/// Passes the terms of a field of a slot to `sink`; if `needed` is given, only the
/// needed ones.
pub(super) fn read_row(
    (number, slot): (u32, &Slot),
    field: Field,
    needed: Option<&TermFilter>,
    mut sink: impl FnMut(&[u8], Posting),
) -> Result<(), DamagedRow> {
    let Some(mut terms) = terms_of(slot, field)? else {
        return Ok(());
    };
    let mut read = Ok(());
    if let Some(runs) = terms.runs() {
        let is_needed = |character| needed.is_none_or(|needed| needed.needs(character));
        let is_pair_needed = |pair| needed.is_none_or(|needed| needed.needs_pair(pair));
        read = runs.each_term(is_needed, is_pair_needed, |text, pair, at| {
            if let Some(needed) = needed.filter(|_| field == Field::Content) {
                needed.count(pair);
            }
            sink(text, Posting::of(number, &at));
        });
    }
    let passing = needed.filter(|needed| needed.can_skip_blocks() || !terms.has_pairs());
    loop {
        if let Some(needed) = passing {
            terms.skip_blocks(|first, last| needed.has_between(first, last))?;
        }
        let Some(at) = terms.next()? else {
            return read;
        };
        if needed.is_none_or(|needed| needed.has(terms.term())) {
            sink(terms.term(), Posting::of(number, &at));
        }
    }
}
