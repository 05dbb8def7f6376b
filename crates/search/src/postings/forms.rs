//! The terms of a store that are forms of one word, found on demand.
//!
//! A root is looked up among the terms that share the beginning of its forms. The
//! roots of these terms are computed once, when the first query needs that
//! beginning.

use hashbrown::HashMap;

use super::Dictionary;
use super::dictionary::start_of;
use crate::stems::{Language, PREFIX_STARTS, has_forms, irregular_forms, roots, start_of_forms};

/// Approximate memory limit in bytes.
const MAX_BYTES: usize = 16 << 20;

#[derive(Default)]
pub(super) struct Forms {
    /// The number of terms with each beginning that were already processed.
    seen: HashMap<(Language, [u8; 2]), usize>,
    by_root: HashMap<(Language, Box<str>), Vec<u32>>,
    bytes: usize,
}

impl Forms {
    pub(super) const fn size_bytes(&self) -> usize {
        self.bytes
    }

    /// Clears the cache when it exceeds its limit; it is filled again on demand.
    fn bound(&mut self) {
        if self.bytes > MAX_BYTES {
            *self = Self::default();
        }
    }

    fn add_terms(&mut self, dictionary: &Dictionary, language: Language, start: [u8; 2]) {
        let terms = dictionary.with_start(start);
        let seen = self.seen.entry((language, start)).or_default();
        for term in &terms[*seen..] {
            let text = dictionary.text(*term);
            if !has_forms(&text) {
                continue;
            }
            roots(language, &text, |root| {
                // Forms with another beginning are irregular, and found by their text.
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
    /// Passes the terms that are forms of `word` to `sink`.
    pub(crate) fn forms_of(&self, word: &str, language: Language, mut sink: impl FnMut(u32)) {
        // A panic leaves the cache valid, because entries are only added.
        let mut forms = self.forms.lock();
        forms.bound();
        if language == Language::Indonesian {
            for start in PREFIX_STARTS {
                forms.add_terms(self, language, start_of(start.as_bytes()));
            }
        }
        roots(language, word, |root| {
            forms.add_terms(self, language, start_of(root.as_bytes()));
            let found = forms.by_root.get(&(language, root.into()));
            for term in found.into_iter().flatten() {
                sink(*term);
            }
            if language == Language::English {
                irregular_forms(root).filter_map(|form| self.find(form.as_bytes())).for_each(&mut sink);
            }
        });
    }
}
