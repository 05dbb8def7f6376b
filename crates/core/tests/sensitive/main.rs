//! Measures the scanner on the labelled corpus and prints the result.
//!
//! The corpus is our own (`corpus/README.md`), so the figures measure the
//! scanner against its specification, not on arbitrary text. This is a separate
//! program instead of a `#[test]`, since passing tests print nothing.

mod corpus;
mod template;

use std::collections::BTreeMap;
use std::process::ExitCode;

use corpus::Document;
use keepsake_core::sensitive::Scanner;

/// The minimum totals. They leave room for a few hard cases that are added
/// before they are solved.
const MIN_PRECISION: f64 = 0.99;
const MIN_RECALL: f64 = 0.98;
/// The minimum size of the corpus for meaningful figures.
const MIN_POSITIVES: usize = 300;
const MIN_NEGATIVES: usize = 300;
const MIN_KINDS: usize = 20;

/// The findings of one kind.
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
    // Test runners call every test binary with `--list`.
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

/// Compares the findings in a document with its expected secrets.
///
/// A secret is found when a finding of its kind covers all of it; every other
/// finding is wrong. Prints each miss and each wrong finding with document and
/// line.
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
        println!("wrong: {} in {}: {}", finding.kind, document.name, &document.text[finding.range.clone()]);
    }
}

fn report(scores: &BTreeMap<String, Score>, positives: usize, negatives: usize) -> ExitCode {
    let mut total = Score::default();
    println!("\nsensitive-data scanner on the labelled corpus:");
    println!("{:<26}{:>8}{:>8}{:>8}{:>11}{:>9}", "kind", "found", "missed", "wrong", "precision", "recall");
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
    let kinds = scores.values().filter(|score| score.found + score.missed > 0).count();
    println!("{positives} secrets of {kinds} kinds, {negatives} texts without any\n");
    let is_enough = positives >= MIN_POSITIVES && negatives >= MIN_NEGATIVES && kinds >= MIN_KINDS;
    let is_good = total.precision() >= MIN_PRECISION && total.recall() >= MIN_RECALL;
    if !is_enough || !is_good {
        println!(
            "at least {MIN_POSITIVES} secrets of {MIN_KINDS} kinds, {MIN_NEGATIVES} texts without any, \
             precision {MIN_PRECISION} and recall {MIN_RECALL} are required"
        );
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

#[expect(clippy::cast_precision_loss, reason = "a few hundred")]
fn share(of: usize, and: usize) -> f64 {
    if of + and == 0 { 1.0 } else { of as f64 / (of + and) as f64 }
}
