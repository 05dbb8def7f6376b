use std::collections::HashSet;
use std::path::PathBuf;

use serde::Deserialize;

#[derive(Deserialize)]
pub(crate) struct LabelledSet {
    pub(crate) documents: Vec<Document>,
    pub(crate) queries: Vec<Question>,
}

#[derive(Deserialize)]
pub(crate) struct Document {
    pub(crate) path: String,
    pub(crate) content: String,
}

#[derive(Deserialize)]
pub(crate) struct Question {
    pub(crate) query: String,
    relevant: HashSet<String>,
}

/// Means over questions: recall among the first 1, 5 and 10 hits, and the reciprocal rank of the first hit
/// that answers.
pub(crate) type Quality = [f64; 4];

impl LabelledSet {
    pub(crate) fn of(language: &str) -> Self {
        serde_json::from_str(&read(&format!("{language}.json"))).unwrap()
    }

    /// Questions in other words than the memories that answer them: a store of one language, or
    /// `across`.
    pub(crate) fn paraphrases(name: &str) -> Self {
        let mut set = Self { documents: Vec::new(), queries: Vec::new() };
        for line in read(&format!("paraphrases/{name}.tsv")).lines() {
            let [path, content, query] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("{name}: {line}");
            };
            set.documents.push(Document { path: path.to_owned(), content: content.to_owned() });
            let relevant = HashSet::from([path.to_owned()]);
            set.queries.push(Question { query: query.to_owned(), relevant });
        }
        set
    }

    #[expect(clippy::cast_precision_loss, reason = "the counts are small")]
    pub(crate) fn quality(&self, rank: impl Fn(&str) -> Vec<String>) -> Quality {
        let mut mean = Quality::default();
        let share = 1.0 / self.queries.len() as f64;
        for Question { query, relevant } in &self.queries {
            let ranked = rank(query);
            let recall = |depth: usize| {
                let found = ranked.iter().take(depth).filter(|path| relevant.contains(*path)).count();
                found as f64 / relevant.len().min(depth) as f64
            };
            let first = ranked.iter().position(|path| relevant.contains(path));
            let reciprocal_rank = first.map_or(0.0, |place| 1.0 / (place + 1) as f64);
            for (mean, value) in mean.iter_mut().zip([recall(1), recall(5), recall(10), reciprocal_rank]) {
                *mean += share * value;
            }
        }
        mean
    }
}

/// A file of this folder. It is read at run time, because the binary may have been built in another copy.
fn read(file: &str) -> String {
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap());
    std::fs::read_to_string(package.join("../search/src/rank/tests/quality").join(file)).unwrap()
}
