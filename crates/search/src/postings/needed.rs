//! Which terms a query may ask for, told from their bytes alone.

use crate::query::{Atom, Query, Sequence};
use crate::stems::{Language, PREFIX_STARTS, irregular_forms, roots};

/// Terms by what they begin with; more than are asked for, but few of all.
pub(crate) struct Needed {
    /// The first two letters, or the low bits of the first character.
    starts: Bits,
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
        needed
    }

    fn atom(&mut self, atom: &Atom) {
        match atom {
            Atom::Term(text) | Atom::Prefix(text) => self.start(text),
            Atom::Character(letter) => {
                let mut buffer = [0; 4];
                let text = letter.encode_utf8(&mut buffer);
                self.start(text);
                self.ends.insert(end_of(text.as_bytes()));
                self.has_ends = true;
            }
        }
    }

    fn forms(&mut self, word: &str, language: Language) {
        roots(language, word, |root| {
            self.start(root);
            if language == Language::English {
                irregular_forms(root).for_each(|form| self.start(form));
            }
        });
        if language == Language::Indonesian {
            for start in PREFIX_STARTS {
                self.start(start);
            }
        }
    }

    fn start(&mut self, text: &str) {
        self.starts.insert(start_of(text.as_bytes()));
    }

    #[inline]
    pub(super) fn has(&self, term: &[u8]) -> bool {
        self.starts.has(start_of(term)) || (self.has_ends && self.ends.has(end_of(term)))
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
