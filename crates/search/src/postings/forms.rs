//! Which terms of a store are forms of one word, found as they are asked for.
//!
//! A root is looked for among the terms that begin as its forms may. Their
//! roots are made once, when their beginning is asked for the first time.

use std::sync::PoisonError;

use hashbrown::HashMap;

use super::Dictionary;
use super::dictionary::start_of;
use crate::stems::{Language, PREFIX_STARTS, has_forms, irregular_forms, roots, start_of_forms};

/// Bytes that they take at most, about.
const MAX_BYTES: usize = 16 << 20;

#[derive(Default)]
pub(super) struct Forms {
    /// How many of the terms that begin so were looked at.
    seen: HashMap<(Language, [u8; 2]), usize>,
    by_root: HashMap<(Language, Box<str>), Vec<u32>>,
    bytes: usize,
}

impl Forms {
    pub(super) const fn size_bytes(&self) -> usize {
        self.bytes
    }

    /// Forgets all once it is much: it is found again.
    fn bound(&mut self) {
        if self.bytes > MAX_BYTES {
            *self = Self::default();
        }
    }

    fn look_at(&mut self, dictionary: &Dictionary, language: Language, start: [u8; 2]) {
        let terms = dictionary.with_start(start);
        let seen = self.seen.entry((language, start)).or_default();
        for term in &terms[*seen..] {
            let text = dictionary.text(*term);
            if !has_forms(&text) {
                continue;
            }
            roots(language, &text, |root| {
                // What begins otherwise is irregular, and found by its text.
                let same = start_of_forms(language, root);
                let is_regular = text.as_bytes().get(..same) == root.as_bytes().get(..same);
                if language == Language::English && !is_regular {
                    return;
                }
                self.bytes += root.len() + 96;
                let forms = self.by_root.entry((language, root.into())).or_default();
                if forms.last() != Some(term) {
                    forms.push(*term);
                }
            });
        }
        *seen = terms.len();
    }
}

impl Dictionary {
    /// Hands the terms to `sink` that are forms of `word`.
    pub(crate) fn forms_of(&self, word: &str, language: Language, mut sink: impl FnMut(u32)) {
        // What a panicked query left is whole: it is only ever added to.
        let mut forms = self.forms.lock().unwrap_or_else(PoisonError::into_inner);
        forms.bound();
        if language == Language::Indonesian {
            for start in PREFIX_STARTS {
                forms.look_at(self, language, start_of(start.as_bytes()));
            }
        }
        roots(language, word, |root| {
            forms.look_at(self, language, start_of(root.as_bytes()));
            let found = forms.by_root.get(&(language, root.into()));
            for term in found.into_iter().flatten() {
                sink(*term);
            }
            if language == Language::English {
                irregular_forms(root)
                    .filter_map(|form| self.find(form.as_bytes()))
                    .for_each(&mut sink);
            }
        });
    }
}
