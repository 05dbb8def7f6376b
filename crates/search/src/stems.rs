//! Forms of the same word in Latin script: English and Indonesian.
//!
//! Both languages are tried for every word, because a note of three words does not
//! reveal its language. A match of another form counts less than the word itself.
//! The function words of a query can exclude one of the two languages.

use std::borrow::Cow;
use std::sync::OnceLock;

use rust_stemmers::{Algorithm, Stemmer};

mod irregular;

/// A language with known forms of words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Language {
    English,
    Indonesian,
}

/// Minimum length in bytes of a root that an Indonesian word is reduced to.
const MIN_ROOT: usize = 4;

/// Whether `term` can have forms: letters `a` to `z`, and more than two.
pub(crate) fn has_forms(term: &str) -> bool {
    term.len() > 2 && term.bytes().all(|byte| byte.is_ascii_lowercase())
}

/// Passes each root of `term` to `sink`. Two words are forms of one another if they
/// share a root.
pub(crate) fn roots(language: Language, term: &str, mut sink: impl FnMut(&str)) {
    match language {
        Language::English => sink(&english(term)),
        Language::Indonesian => indonesian(term, &mut sink),
    }
}

/// The length of the prefix that a root shares with each of its regular forms
/// without a prefix. Stemming removes endings and then changes at most the last two
/// letters of the rest (`possibl` of `possibility`).
pub(crate) fn start_of_forms(language: Language, root: &str) -> usize {
    match language {
        Language::English => root.len().saturating_sub(2).max(2),
        Language::Indonesian => root.len(),
    }
}

/// The English stem; for an irregular form, the stem of its dictionary form.
fn english(term: &str) -> Cow<'_, str> {
    static STEMMER: OnceLock<Stemmer> = OnceLock::new();
    let stemmer = STEMMER.get_or_init(|| Stemmer::create(Algorithm::English));
    stemmer.stem(irregular::base_of(term).unwrap_or(term))
}

/// The irregular forms of the English words with this root.
pub(crate) fn irregular_forms(root: &str) -> impl Iterator<Item = &'static str> {
    static BY_ROOT: OnceLock<Vec<(String, &'static str)>> = OnceLock::new();
    let by_root = BY_ROOT.get_or_init(|| {
        let mut forms: Vec<_> =
            irregular::forms().map(|(form, base)| (english(base).into_owned(), form)).collect();
        forms.sort_unstable();
        forms
    });
    let from = by_root.partition_point(|(known, _)| known.as_str() < root);
    by_root[from..].iter().take_while(move |(known, _)| known == root).map(|(_, form)| *form)
}

/// The possible beginnings of an Indonesian word with a prefix.
pub(crate) const PREFIX_STARTS: [&str; 8] = ["me", "pe", "di", "ke", "se", "be", "te", "ku"];

/// Removes particles and possessive endings, then one derivational ending and up to
/// two derivational prefixes. If a word can come from several roots (`menulis` of
/// `tulis` or of a hypothetical `nulis`), passes all of them.
fn indonesian(term: &str, sink: &mut impl FnMut(&str)) {
    let bare = without_ending(term, &["lah", "kah", "tah", "pun"]);
    let bare = without_ending(bare, &["nya", "ku", "mu"]);
    // `mu` may belong to the root, as in `bertemu`.
    let words = [term, bare];
    for word in &words[usize::from(bare.len() == term.len())..] {
        without_prefixes(word, 2, sink);
        for ending in ["kan", "an", "i"] {
            let short = without_ending(word, &[ending]);
            if short.len() < word.len() {
                without_prefixes(short, 2, sink);
            }
        }
    }
}

fn without_ending<'a>(word: &'a str, endings: &[&str]) -> &'a str {
    endings
        .iter()
        .filter_map(|ending| word.strip_suffix(ending))
        .find(|short| short.len() >= MIN_ROOT)
        .unwrap_or(word)
}

fn without_prefixes(word: &str, left: usize, sink: &mut impl FnMut(&str)) {
    sink(word);
    if left == 0 || word.len() < MIN_ROOT + 2 {
        return;
    }
    for prefix in ["di", "ke", "se", "ber", "ter", "per", "bel", "pel"] {
        if let Some(root) = word.strip_prefix(prefix)
            && root.len() >= MIN_ROOT
        {
            without_prefixes(root, left - 1, sink);
        }
    }
    let Some(rest) = (word.strip_prefix("me")).or_else(|| word.strip_prefix("pe")) else {
        return;
    };
    nasal_roots(rest, &mut |root| {
        if root.len() >= MIN_ROOT {
            without_prefixes(root, left - 1, sink);
        }
    });
}

/// The roots after `me` or `pe`. The prefix's nasal replaces the first letter of
/// some roots: `nulis` of `tulis`, `ngirim` of `kirim`, `nyimpan` of `simpan`,
/// `milih` of `pilih`.
fn nasal_roots(rest: &str, sink: &mut impl FnMut(&str)) {
    let is_vowel = |text: &str| text.starts_with(['a', 'e', 'i', 'o', 'u']);
    let mut restored = |first: char, root: &str| {
        let mut word = String::with_capacity(root.len() + 1);
        word.push(first);
        word.push_str(root);
        sink(&word);
    };
    if let Some(root) = rest.strip_prefix("ny").filter(|root| is_vowel(root)) {
        restored('s', root);
    } else if let Some(root) = rest.strip_prefix("ng") {
        if is_vowel(root) {
            restored('k', root);
        }
        sink(root);
    } else if let Some(root) = rest.strip_prefix(['m', 'n']) {
        if is_vowel(root) {
            restored(if rest.starts_with('m') { 'p' } else { 't' }, root);
            sink(rest);
        } else {
            sink(root);
        }
    } else if rest.starts_with(['l', 'r', 'w', 'y']) {
        sink(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn are_forms(language: Language, one: &str, other: &str) -> bool {
        let mut first = Vec::new();
        roots(language, one, |root| first.push(root.to_owned()));
        let mut found = false;
        roots(language, other, |root| {
            found |= first.iter().any(|known| known == root);
        });
        found
    }

    #[test]
    fn forms_of_a_word_have_one_root() {
        let english = "run running, went going, children child, deployed deployment, using use, dying die";
        let indonesian = "membaca dibaca, menulis tulisan, menyimpan penyimpanan, menggunakan pengguna, \
                          perjalanan berjalan, kesehatan sehat, laporannya melaporkan";
        for (language, pairs, are_expected) in [
            (Language::English, english, true),
            (Language::English, "port portion", false),
            (Language::Indonesian, indonesian, true),
            (Language::Indonesian, "person son, makan makin, jalan jala", false),
        ] {
            for pair in pairs.split(", ") {
                let (one, other) = pair.split_once(' ').unwrap();
                assert_eq!(are_forms(language, one, other), are_expected, "{pair}");
            }
        }
        let forms: Vec<_> = irregular_forms("go").collect();
        assert_eq!(forms, ["goes", "gone", "went"]);
    }
}
