//! Which terms a query may ask for, told from their bytes alone.

use super::dictionary::{characters_of_pair, start_of};
use crate::query::{Atom, Query, Sequence};
use crate::stems::{Language, PREFIX_STARTS, irregular_forms, roots};

/// Terms by what they begin with; more than are asked for, but few of all.
pub(crate) struct Needed {
    /// A bit for each two bytes.
    starts: Vec<u64>,
    characters: Vec<char>,
    is_all: bool,
}

impl Needed {
    pub(crate) fn of(query: &Query) -> Self {
        let mut needed = Self {
            starts: vec![0; 1 << 10],
            characters: Vec::new(),
            is_all: false,
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
            Atom::Prefix(text) if text.len() < 2 => self.is_all = true,
            Atom::Term(text) | Atom::Prefix(text) => self.start(text),
            Atom::Character(letter) => {
                self.start(letter.encode_utf8(&mut [0; 4]));
                self.characters.push(*letter);
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
        let bit = usize::from(u16::from_be_bytes(start_of(text.as_bytes())));
        self.starts[bit / 64] |= 1 << (bit % 64);
    }

    #[inline]
    pub(super) fn has(&self, term: &[u8]) -> bool {
        let bit = usize::from(u16::from_be_bytes(start_of(term)));
        if self.is_all || self.starts[bit / 64] >> (bit % 64) & 1 == 1 {
            return true;
        }
        !self.characters.is_empty()
            && term.first().is_some_and(|first| *first >= 0x80)
            && characters_of_pair(term).any(|letter| self.characters.contains(&letter))
    }
}
