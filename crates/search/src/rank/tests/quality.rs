//! Measures the search quality per language, compared with two baselines.
//!
//! The labelled sets are frozen: the analyser and the ranking follow general
//! rules and are never tuned for one of these queries.

#![expect(clippy::cast_precision_loss, reason = "the counts are small")]

use std::collections::HashSet;
use std::path::PathBuf;

use serde::Deserialize;

use super::{Query, store};

#[derive(Deserialize)]
struct LabelledSet {
    documents: Vec<Document>,
    queries: Vec<Question>,
}

#[derive(Deserialize)]
struct Document {
    path: String,
    content: String,
}

#[derive(Deserialize)]
struct Question {
    query: String,
    relevant: HashSet<String>,
}

impl LabelledSet {
    fn of(language: &str) -> Self {
        // Read at run time, because the binary may have been built in another copy.
        let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap());
        let file = package.join("src/rank/tests/quality").join(format!("{language}.json"));
        serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
    }

    /// The means over the queries: recall among the first 5 and 10, and reciprocal rank.
    fn quality(&self, rank: impl Fn(&str) -> Vec<String>) -> [f64; 3] {
        let mut sums = [0.0; 3];
        for Question { query, relevant } in &self.queries {
            let ranked = rank(query);
            let recall = |depth: usize| {
                let found = ranked.iter().take(depth).filter(|path| relevant.contains(*path)).count();
                found as f64 / relevant.len().min(depth) as f64
            };
            let first = ranked.iter().position(|path| relevant.contains(path));
            let reciprocal_rank = first.map_or(0.0, |place| 1.0 / (place + 1) as f64);
            for (sum, value) in sums.iter_mut().zip([recall(5), recall(10), reciprocal_rank]) {
                *sum += value;
            }
        }
        sums.map(|sum| sum / self.queries.len() as f64)
    }
}

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
        println!("{language} {counts:?}: recall@5, recall@10, MRR {own:.3?}");
        let is_ahead = own[0] >= baseline[0] && own[1] >= baseline[1] && own[2] > baseline[2];
        assert!(is_ahead && own[0] >= 0.9, "{language}: {own:?}");
    }
}
