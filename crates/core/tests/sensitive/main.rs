//! Measures the scanner on the labelled corpus, and says how it fared.
//!
//! The corpus is ours (`corpus/README.md`), so the figures say how well the
//! scanner does what it sets out to do, not how it would do on any text there
//! is. A program of its own instead of a `#[test]`, since those print nothing
//! when they pass.

mod corpus;
mod template;

use std::collections::BTreeMap;
use std::process::ExitCode;

use corpus::Document;
use keepsake_core::sensitive::Scanner;

/// The least that may be reached, in total. What is reached is printed; these
/// leave room for a few hard cases that are added before they are solved.
const LEAST_PRECISION: f64 = 0.99;
const LEAST_RECALL: f64 = 0.98;
/// What the corpus must have for its figures to mean something.
const FEWEST_POSITIVES: usize = 300;
const FEWEST_NEGATIVES: usize = 300;
const FEWEST_KINDS: usize = 20;

/// How a kind fared.
#[derive(Default)]
struct Score {
    found: usize,
    missed: usize,
    wrong: usize,
}

impl Score {
    fn recall(&self) -> f64 {
        share(self.found, self.missed)
    }

    fn precision(&self) -> f64 {
        share(self.found, self.wrong)
    }
}

fn main() -> ExitCode {
    // What `cargo test -- --list` and runners of single tests ask.
    if std::env::args().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let scanner = Scanner::default();
    let (documents, negatives) = (corpus::documents(), corpus::negatives());
    let mut scores: BTreeMap<String, Score> = BTreeMap::new();
    for document in documents.iter().chain(&negatives) {
        rate(&scanner, document, &mut scores);
    }
    let positives = documents.iter().map(|document| document.secrets.len()).sum();
    report(&scores, positives, negatives.len())
}

/// Compares what is found in a document with what is in it.
///
/// A secret is found when a finding of its kind covers all of it; every other
/// finding is wrong. Says so of each, by document and line.
fn rate(scanner: &Scanner, document: &Document, scores: &mut BTreeMap<String, Score>) {
    let findings = scanner.scan(&document.text);
    let mut is_right = vec![false; findings.len()];
    for secret in &document.secrets {
        let covering = findings.iter().position(|finding| {
            finding.kind.as_str() == secret.kind
                && finding.range.start <= secret.range.start
                && finding.range.end >= secret.range.end
        });
        let score = scores.entry(secret.kind.clone()).or_default();
        if let Some(position) = covering {
            is_right[position] = true;
            score.found += 1;
        } else {
            score.missed += 1;
            println!(
                "missed: {} in {}: {}",
                secret.kind,
                document.name,
                &document.text[secret.range.clone()]
            );
        }
    }
    for (finding, _) in findings.iter().zip(is_right).filter(|(_, is_right)| !is_right) {
        scores.entry(finding.kind.to_string()).or_default().wrong += 1;
        println!(
            "wrong: {} in {}: {}",
            finding.kind,
            document.name,
            &document.text[finding.range.clone()]
        );
    }
}

fn report(scores: &BTreeMap<String, Score>, positives: usize, negatives: usize) -> ExitCode {
    let mut total = Score::default();
    println!("\nsensitive-data scanner on the labelled corpus:");
    println!(
        "{:<26}{:>8}{:>8}{:>8}{:>11}{:>9}",
        "kind", "found", "missed", "wrong", "precision", "recall"
    );
    let line = |name: &str, score: &Score| {
        println!(
            "{name:<26}{:>8}{:>8}{:>8}{:>11.3}{:>9.3}",
            score.found,
            score.missed,
            score.wrong,
            score.precision(),
            score.recall()
        );
    };
    for (kind, score) in scores {
        line(kind, score);
        total.found += score.found;
        total.missed += score.missed;
        total.wrong += score.wrong;
    }
    line("total", &total);
    let kinds = scores
        .values()
        .filter(|score| score.found + score.missed > 0)
        .count();
    println!("{positives} secrets of {kinds} kinds, {negatives} texts without any\n");
    let is_enough = positives >= FEWEST_POSITIVES && negatives >= FEWEST_NEGATIVES && kinds >= FEWEST_KINDS;
    let is_good = total.precision() >= LEAST_PRECISION && total.recall() >= LEAST_RECALL;
    if !is_enough || !is_good {
        println!(
            "at least {FEWEST_POSITIVES} secrets of {FEWEST_KINDS} kinds, {FEWEST_NEGATIVES} texts without any, \
             precision {LEAST_PRECISION} and recall {LEAST_RECALL} are asked for"
        );
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

#[expect(clippy::cast_precision_loss, reason = "a few hundred")]
fn share(of: usize, and: usize) -> f64 {
    if of + and == 0 {
        1.0
    } else {
        of as f64 / (of + and) as f64
    }
}
