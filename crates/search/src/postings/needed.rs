//! Selects the terms that a query may need, from their bytes only.

use std::cell::Cell;

use crate::analyse::unspaced;
use crate::query::{Atom, Query, Sequence};
use crate::row::{LEADING_BYTES, leading, narrow};
use crate::stems::{Language, PREFIX_STARTS, irregular_forms, roots, start_of_forms};

/// A filter of terms by their beginning. It accepts some unneeded terms, but few of
/// all terms.
#[derive(Default)]
pub(crate) struct TermFilter {
    /// The first two letters, or the low bits of the first character.
    starts: Bits,
    /// Ranges of leading bytes, sorted and without overlaps.
    ranges: Vec<(u64, u64)>,
    /// The low bits of the last character.
    ends: Bits,
    has_ends: bool,
    /// The first characters of needed terms, the characters needed in every pair, and
    /// the union of both.
    firsts: Bits,
    letters: Bits,
    characters: Bits,
    /// Ranges of needed pairs, sorted.
    pairs: Vec<([u16; 2], [u16; 2])>,
    /// Letters that are ignored when they are too frequent, and the number of further
    /// content pairs with each until then.
    skippable: Vec<(u16, Cell<usize>)>,
}

/// A set of 16-bit numbers.
struct Bits(Vec<Cell<u64>>);

impl Default for Bits {
    fn default() -> Self {
        Self(vec![Cell::default(); 1 << 10])
    }
}

impl Bits {
    fn insert(&self, number: u16) {
        let word = &self.0[usize::from(number) / 64];
        word.set(word.get() | 1 << (number % 64));
    }

    fn remove(&self, number: u16) {
        let word = &self.0[usize::from(number) / 64];
        word.set(word.get() & !(1 << (number % 64)));
    }

    #[inline]
    fn has(&self, number: u16) -> bool {
        self.0[usize::from(number) / 64].get() >> (number % 64) & 1 == 1
    }
}

impl TermFilter {
    /// The terms that some queries need in a store with this number of memories.
    pub(crate) fn of<'a>(queries: impl IntoIterator<Item = &'a Query>, memories: usize) -> Self {
        let mut needed = Self::default();
        let mut is_kept = Vec::new();
        for query in queries {
            needed.query(query, memories, &mut is_kept);
        }
        needed.skippable.sort_unstable_by_key(|(letter, _)| *letter);
        needed.skippable.dedup_by_key(|(letter, _)| *letter);
        needed.skippable.retain(|(letter, _)| !is_kept.contains(letter));
        merge(&mut needed.ranges);
        merge(&mut needed.pairs);
        needed
    }

    /// Letters that the query needs, however frequent they are, are added to `is_kept`.
    fn query(&mut self, query: &Query, memories: usize, is_kept: &mut Vec<u16>) {
        for one in &query.ranked {
            self.atom(&one.atom);
            match (&one.atom, one.is_shown) {
                (Atom::Character(letter), true) => is_kept.extend(narrow(*letter)),
                (Atom::Character(letter), false) => {
                    let skippable = narrow(*letter).map(|letter| (letter, Cell::new(memories)));
                    self.skippable.extend(skippable);
                }
                (Atom::Term(word), _) if one.has_forms => {
                    for language in query.languages {
                        self.forms(word, *language);
                    }
                }
                _ => {}
            }
        }
        for Sequence(atoms) in query.phrases.iter().chain(&query.excluded) {
            for (atom, _) in atoms {
                self.atom(atom);
                if let Atom::Character(letter) = atom {
                    is_kept.extend(narrow(*letter));
                }
            }
        }
    }

    fn atom(&mut self, atom: &Atom) {
        match atom {
            Atom::Term(text) => {
                self.start(text, LEADING_BYTES);
                self.pairs(text);
            }
            Atom::Prefix(text) => {
                self.start(text, text.len());
                self.pairs(text);
            }
            Atom::Character(letter) => {
                let mut buffer = [0; 4];
                let text = letter.encode_utf8(&mut buffer);
                self.start(text, text.len());
                self.ends.insert(end_of(text.as_bytes()));
                self.has_ends = true;
                if let Some(letter) = narrow(*letter) {
                    self.letters.insert(letter);
                    self.characters.insert(letter);
                }
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

    /// Adds the pair that equals a text, or the pairs that begin with it.
    fn pairs(&mut self, text: &str) {
        let mut letters = text.chars().map(narrow);
        let (Some(Some(first)), second) = (letters.next(), letters.next()) else {
            return;
        };
        self.firsts.insert(first);
        self.characters.insert(first);
        match second {
            Some(Some(second)) => self.pairs.push(([first, second], [first, second])),
            Some(None) => {}
            None => self.pairs.push(([first, 0], [first, u16::MAX])),
        }
    }

    /// Adds the terms that share the first `same` bytes of a text.
    fn start(&mut self, text: &str, same: usize) {
        let text = text.as_bytes();
        self.starts.insert(start_of(text));
        let first = leading(text.get(..same).unwrap_or(text));
        let any = u64::MAX.checked_shr(u32::try_from(8 * same).unwrap_or(u32::MAX));
        self.ranges.push((first, first | any.unwrap_or(0)));
    }

    /// Whether the leading bytes of terms can exclude blocks.
    pub(super) const fn can_skip_blocks(&self) -> bool {
        !self.has_ends
    }

    /// Whether a term with leading bytes from `first` to `last` may be needed for its
    /// beginning.
    #[inline]
    pub(super) fn has_between(&self, first: u64, last: u64) -> bool {
        any_overlaps(&self.ranges, first, last)
    }

    /// Whether a pair with this character may be needed.
    #[inline]
    pub(super) fn needs(&self, character: u16) -> bool {
        self.characters.has(character)
    }

    pub(super) fn needs_pair(&self, pair: [u16; 2]) -> bool {
        pair.iter().any(|letter| self.letters.has(*letter))
            || (self.firsts.has(pair[0]) && any_overlaps(&self.pairs, pair, pair))
    }

    /// Counts a needed pair; called once per pair and content. When a letter becomes
    /// too frequent, its further pairs are not needed.
    pub(super) fn count(&self, pair: [u16; 2]) {
        // A term that begins with a mark is a word, and is not looked up by its
        // letters.
        if char::from_u32(pair[0].into()).and_then(unspaced).is_none() {
            return;
        }
        for (letter, left) in self.skippable.iter().filter(|(letter, _)| pair.contains(letter)) {
            match left.get() {
                0 => {
                    self.letters.remove(*letter);
                    if !self.firsts.has(*letter) {
                        self.characters.remove(*letter);
                    }
                }
                some => left.set(some - 1),
            }
        }
    }

    #[inline]
    pub(super) fn has(&self, term: &[u8]) -> bool {
        (self.starts.has(start_of(term)) && self.has_between(leading(term), leading(term)))
            || (self.has_ends && self.ends.has(end_of(term)))
    }
}

/// Sorts inclusive ranges, and merges overlapping ones.
fn merge<T: Ord + Copy>(ranges: &mut Vec<(T, T)>) {
    ranges.sort_unstable();
    ranges.dedup_by(|next, kept| {
        let overlap = next.0 <= kept.1;
        if overlap {
            kept.1 = kept.1.max(next.1);
        }
        overlap
    });
}

/// Whether one of the merged `ranges` overlaps `first..=last`.
#[inline]
fn any_overlaps<T: Ord + Copy>(ranges: &[(T, T)], first: T, last: T) -> bool {
    let at = ranges.partition_point(|(_, end)| *end < first);
    ranges.get(at).is_some_and(|(start, _)| *start <= last)
}

/// The first two letters of a term in Latin script; for others, the low bits of the
/// first character, which its first three bytes determine.
#[inline]
fn start_of(term: &[u8]) -> u16 {
    match term {
        [first, second, third, ..] if *first >= 0xe0 => low_bits([*first, *second, *third]),
        [first, second, ..] => u16::from_be_bytes([*first, *second]),
        [first] => u16::from_be_bytes([*first, 0]),
        [] => 0,
    }
}

/// The low bits of the last character, which the last three bytes determine.
#[inline]
fn end_of(term: &[u8]) -> u16 {
    term.last_chunk().map_or(0, |end| low_bits(*end))
}

const fn low_bits([first, second, third]: [u8; 3]) -> u16 {
    (first as u16 & 0x0f) << 12 | (second as u16 & 0x3f) << 6 | (third as u16 & 0x3f)
}
