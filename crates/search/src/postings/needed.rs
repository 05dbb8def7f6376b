//! Which terms a query may ask for, told from their bytes alone.

use crate::query::{Atom, Query, Sequence};
use crate::row::{LEADING_BYTES, leading};
use crate::stems::{Language, PREFIX_STARTS, irregular_forms, roots, start_of_forms};

/// Terms by what they begin with; more than are asked for, but few of all.
pub(crate) struct Needed {
    /// The first two letters, or the low bits of the first character.
    starts: Bits,
    /// What the terms lead with: from one number to another, in order, none
    /// overlapping.
    ranges: Vec<(u64, u64)>,
    /// The low bits of the last character.
    ends: Bits,
    has_ends: bool,
}

/// A set of numbers of sixteen bits.
struct Bits(Vec<u64>);

impl Bits {
    fn new() -> Self {
        Self(vec![0; 1 << 10])
    }

    fn insert(&mut self, number: u16) {
        self.0[usize::from(number) / 64] |= 1 << (number % 64);
    }

    #[inline]
    fn has(&self, number: u16) -> bool {
        self.0[usize::from(number) / 64] >> (number % 64) & 1 == 1
    }
}

impl Needed {
    pub(crate) fn of(query: &Query) -> Self {
        let mut needed = Self {
            starts: Bits::new(),
            ranges: Vec::new(),
            ends: Bits::new(),
            has_ends: false,
        };
        for one in &query.wanted {
            needed.atom(&one.atom);
            if let (Atom::Term(word), true) = (&one.atom, one.has_forms) {
                for language in query.languages {
                    needed.forms(word, *language);
                }
            }
        }
        for Sequence(atoms) in query.phrases.iter().chain(&query.excluded) {
            for (atom, _) in atoms {
                needed.atom(atom);
            }
        }
        needed.ranges.sort_unstable();
        needed.ranges.dedup_by(|next, kept| {
            let do_overlap = next.0 <= kept.1;
            if do_overlap {
                kept.1 = kept.1.max(next.1);
            }
            do_overlap
        });
        needed
    }

    fn atom(&mut self, atom: &Atom) {
        match atom {
            Atom::Term(text) => self.start(text, LEADING_BYTES),
            Atom::Prefix(text) => self.start(text, text.len()),
            Atom::Character(letter) => {
                let mut buffer = [0; 4];
                let text = letter.encode_utf8(&mut buffer);
                self.start(text, text.len());
                self.ends.insert(end_of(text.as_bytes()));
                self.has_ends = true;
            }
        }
    }

    fn forms(&mut self, word: &str, language: Language) {
        roots(language, word, |root| {
            self.start(root, start_of_forms(language, root));
            if language == Language::English {
                irregular_forms(root).for_each(|form| self.start(form, LEADING_BYTES));
            }
        });
        if language == Language::Indonesian {
            for start in PREFIX_STARTS {
                self.start(start, start.len());
            }
        }
    }

    /// Terms that have the first `same` bytes of a text.
    fn start(&mut self, text: &str, same: usize) {
        let text = text.as_bytes();
        self.starts.insert(start_of(text));
        let first = leading(text.get(..same).unwrap_or(text));
        let any = u64::MAX.checked_shr(u32::try_from(8 * same).unwrap_or(u32::MAX));
        self.ranges.push((first, first | any.unwrap_or(0)));
    }

    /// Whether what terms lead with tells which are not needed.
    pub(super) const fn passes_blocks(&self) -> bool {
        !self.has_ends
    }

    /// Whether a term that leads with `first` to `last` may be needed for how it
    /// begins.
    #[inline]
    pub(super) fn has_between(&self, first: u64, last: u64) -> bool {
        let at = self.ranges.partition_point(|(_, end)| *end < first);
        self.ranges.get(at).is_some_and(|(start, _)| *start <= last)
    }

    #[inline]
    pub(super) fn has(&self, term: &[u8]) -> bool {
        (self.starts.has(start_of(term)) && self.has_between(leading(term), leading(term)))
            || (self.has_ends && self.ends.has(end_of(term)))
    }
}

/// The first two letters of a term in Latin script, the low bits of the first
/// character of another, of which the first three bytes are enough.
#[inline]
fn start_of(term: &[u8]) -> u16 {
    match term {
        [first, second, third, ..] if *first >= 0xe0 => low_bits([*first, *second, *third]),
        [first, second, ..] => u16::from_be_bytes([*first, *second]),
        [first] => u16::from_be_bytes([*first, 0]),
        [] => 0,
    }
}

/// The low bits of the last character, of which the last three bytes are enough.
#[inline]
fn end_of(term: &[u8]) -> u16 {
    term.last_chunk().map_or(0, |end| low_bits(*end))
}

const fn low_bits([first, second, third]: [u8; 3]) -> u16 {
    (first as u16 & 0x0f) << 12 | (second as u16 & 0x3f) << 6 | (third as u16 & 0x3f)
}
