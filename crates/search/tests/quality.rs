//! Measures the search quality per language, compared with two baselines.
//!
//! The labelled sets are frozen: the analyser and the ranking follow general
//! rules and are never tuned for one of these queries.

#![expect(clippy::cast_precision_loss, reason = "the counts are small")]

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use keepsake_core::{MemoryId, MemoryPath};
use keepsake_search::{Postings, Query, Row};
use serde::Deserialize;
use uuid::Uuid;

#[derive(Deserialize)]
struct LabelledSet {
    language: String,
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
    relevant: Vec<String>,
}

/// The means over the queries of a set.
#[derive(Debug, Default, Clone, Copy)]
struct Quality {
    recall_at_5: f64,
    recall_at_10: f64,
    reciprocal_rank: f64,
}

impl Quality {
    fn of(set: &LabelledSet, rank: impl Fn(&str) -> Vec<String>) -> Self {
        let mut sum = Self::default();
        for question in &set.queries {
            let ranked = rank(&question.query);
            let relevant: HashSet<&String> = question.relevant.iter().collect();
            let recall = |depth: usize| {
                let found = ranked.iter().take(depth).filter(|path| relevant.contains(path)).count();
                found as f64 / relevant.len().min(depth) as f64
            };
            sum.recall_at_5 += recall(5);
            sum.recall_at_10 += recall(10);
            let first = ranked.iter().position(|path| relevant.contains(path));
            sum.reciprocal_rank += first.map_or(0.0, |place| 1.0 / (place + 1) as f64);
        }
        let count = set.queries.len() as f64;
        Self {
            recall_at_5: sum.recall_at_5 / count,
            recall_at_10: sum.recall_at_10 / count,
            reciprocal_rank: sum.reciprocal_rank / count,
        }
    }
}

/// Plain BM25 over the terms that `tokens` finds, without the paths.
struct Baseline {
    paths: Vec<String>,
    frequencies: Vec<HashMap<String, f64>>,
    lengths: Vec<f64>,
    tokens: fn(&str) -> Vec<String>,
}

impl Baseline {
    fn of(set: &LabelledSet, tokens: fn(&str) -> Vec<String>) -> Self {
        let mut baseline = Self { paths: Vec::new(), frequencies: Vec::new(), lengths: Vec::new(), tokens };
        for document in &set.documents {
            let found = tokens(&document.content);
            baseline.paths.push(document.path.clone());
            baseline.lengths.push(found.len() as f64);
            let mut frequencies = HashMap::new();
            for term in found {
                *frequencies.entry(term).or_insert(0.0) += 1.0;
            }
            baseline.frequencies.push(frequencies);
        }
        baseline
    }

    fn rank(&self, query: &str) -> Vec<String> {
        let count = self.paths.len() as f64;
        let average = self.lengths.iter().sum::<f64>() / count;
        let mut scores = vec![0.0; self.paths.len()];
        let terms: HashSet<String> = (self.tokens)(query).into_iter().collect();
        let mut terms: Vec<_> = terms.into_iter().collect();
        terms.sort();
        for term in terms {
            let having = self.frequencies.iter().filter(|known| known.contains_key(&term)).count() as f64;
            let rarity = (1.0 + (count - having + 0.5) / (having + 0.5)).ln();
            for (place, frequencies) in self.frequencies.iter().enumerate() {
                let frequency = frequencies.get(&term).copied().unwrap_or_default();
                let norm = 1.2 * (0.25 + 0.75 * self.lengths[place] / average);
                scores[place] += rarity * frequency * 2.2 / (frequency + norm);
            }
        }
        let mut order: Vec<usize> = (0..scores.len()).filter(|place| scores[*place] > 0.0).collect();
        order.sort_by(|a, b| {
            (scores[*b].total_cmp(&scores[*a])).then_with(|| self.paths[*a].cmp(&self.paths[*b]))
        });
        order.into_iter().map(|place| self.paths[place].clone()).collect()
    }
}

fn whitespace_tokens(text: &str) -> Vec<String> {
    text.to_lowercase().split_whitespace().map(str::to_owned).collect()
}

fn character_bigrams(text: &str) -> Vec<String> {
    let letters: Vec<char> = text.to_lowercase().chars().collect();
    letters.windows(2).map(|pair| pair.iter().collect()).collect()
}

fn index(set: &LabelledSet) -> Postings {
    let mut index = Postings::default();
    for (number, document) in set.documents.iter().enumerate() {
        let id = MemoryId::from_uuid(Uuid::from_u128(number as u128));
        let path = MemoryPath::parse(&document.path).expect("paths of the set keep the rules");
        let row = Row::of(&document.content).into_bytes();
        index.set(id, path, Some(row.into())).expect("rows that were just made are whole");
    }
    index
}

fn ours(index: &Postings, query: &str) -> Vec<String> {
    let query = Query::parse(query).expect("queries of the set are short");
    let results = index.search(&query, None, 10, |_, _| true);
    results.found.into_iter().map(|found| found.path.to_string()).collect()
}

fn sets() -> Vec<LabelledSet> {
    // Read at run time, because the binary may have been built in another copy.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the tests");
    let folder = PathBuf::from(package).join("tests/quality");
    ["en", "id", "ko", "ja", "zh-hant", "zh-hans"]
        .map(|language| folder.join(format!("{language}.json")))
        .into_iter()
        .map(|file| {
            let text = std::fs::read_to_string(&file).expect("a labelled set is readable");
            serde_json::from_str(&text).expect("a labelled set has documents and queries")
        })
        .collect()
}

#[test]
fn search_beats_both_baselines_in_every_language() {
    let mut failures = Vec::new();
    println!(
        "{:<8} {:>5} {:>5}  {:<12} {:>8} {:>9} {:>6}",
        "language", "docs", "asked", "ranking", "recall@5", "recall@10", "MRR"
    );
    for set in sets() {
        assert!(set.documents.len() >= 40 && set.queries.len() >= 40, "{}", set.language);
        let index = index(&set);
        let words = Baseline::of(&set, whitespace_tokens);
        let bigrams = Baseline::of(&set, character_bigrams);
        let results = [
            ("keepsake", Quality::of(&set, |query| ours(&index, query))),
            ("words BM25", Quality::of(&set, |query| words.rank(query))),
            ("bigram BM25", Quality::of(&set, |query| bigrams.rank(query))),
        ];
        for (name, quality) in &results {
            println!(
                "{:<8} {:>5} {:>5}  {:<12} {:>8.3} {:>9.3} {:>6.3}",
                set.language,
                set.documents.len(),
                set.queries.len(),
                name,
                quality.recall_at_5,
                quality.recall_at_10,
                quality.reciprocal_rank
            );
        }
        let [(_, own), baselines @ ..] = &results;
        for (name, other) in baselines {
            let is_ahead = own.recall_at_5 >= other.recall_at_5
                && own.recall_at_10 >= other.recall_at_10
                && own.reciprocal_rank > other.reciprocal_rank;
            if !is_ahead {
                failures.push(format!("{}: not ahead of {name}", set.language));
            }
        }
        if own.recall_at_5 < 0.9 {
            failures.push(format!("{}: recall@5 is {:.3}", set.language, own.recall_at_5));
        }
    }
    assert!(failures.is_empty(), "{failures:?}");
}
