//! Measures the search quality per language, compared with two baselines.
//!
//! The labelled sets are frozen: the analyser and the ranking follow general
//! rules and are never tuned for one of these queries.

use labelled_set::LabelledSet;

use super::{Atom, Query, store};

mod labelled_set;

/// Recall at 5 and 10, and reciprocal rank of the better of two baselines: plain BM25 over
/// words and over pairs of characters. The sets are frozen, so the figures of
/// `quality/README.md` stay.
const BASELINES: [(&str, [f64; 3]); 6] = [
    ("en", [0.897, 0.966, 0.813]),
    ("id", [0.752, 0.833, 0.664]),
    ("ko", [0.933, 0.967, 0.807]),
    ("ja", [0.841, 0.964, 0.707]),
    ("zh-hant", [0.951, 0.977, 0.795]),
    ("zh-hans", [0.940, 0.980, 0.772]),
];

#[test]
fn search_beats_both_baselines_in_every_language() {
    for (language, baseline) in BASELINES {
        let set = LabelledSet::of(language);
        let counts = (set.documents.len(), set.queries.len());
        assert!(counts.0 >= 40 && counts.1 >= 40, "{language}: {counts:?}");
        let memories = set.documents.iter().map(|document| (&*document.path, &*document.content));
        let index = store(&memories.collect::<Vec<_>>());
        let own = set.quality(|query| {
            let results = index.search(&Query::parse(query).unwrap(), None, 10, |_, _| true);
            results.found.into_iter().map(|found| found.path.to_string()).collect()
        });
        println!("{language} {counts:?}: recall@1, @5, @10, MRR {own:.3?}");
        let is_ahead = own[1] >= baseline[0] && own[2] >= baseline[1] && own[3] > baseline[2];
        assert!(is_ahead && own[1] >= 0.9, "{language}: {own:?}");
    }
}

/// Function words of languages whose function words the product does not know, folded.
const FUNCTION_WORDS: &str =
    "a avec con den der die do el en est im ist l la le les los nie por pour que qui sie sur w";

/// Also no word that begins with the same five letters: the product knows no stems of most languages.
#[test]
fn question_of_a_paraphrase_shares_no_stem_with_its_memory() {
    for name in ["across", "de", "en", "es", "fr", "ja", "ko", "pl", "zh"] {
        let set = LabelledSet::paraphrases(name);
        assert!(set.queries.len() >= 35, "{name}");
        for (document, question) in set.documents.iter().zip(&set.queries) {
            let index = store(&[(&document.path, &document.content)]);
            let mut query = Query::parse(&question.query).unwrap();
            query.ranked.retain_mut(|one| {
                if let Atom::Term(term) = &one.atom {
                    if FUNCTION_WORDS.split(' ').any(|word| word == term) {
                        return false;
                    }
                    if let Some((end, _)) = term.char_indices().nth(5) {
                        one.atom = Atom::Prefix(term[..end].to_owned());
                    }
                }
                one.is_shown
            });
            let found = index.search(&query, None, 1, |_, _| true).found;
            assert!(found.is_empty(), "{name}: {} {:?}", question.query, query.ranked);
        }
    }
}
