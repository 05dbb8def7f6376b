//! Finds the new parts of a changed text.

use std::collections::HashMap;

use super::{Finding, Scanner};

/// Keeps the findings that touch a line which `before` does not have.
///
/// Lines in the common prefix or suffix of both texts are old. Any other line is
/// old as many times as the rest of `before` contains it, so a moved line is old
/// and a copied line is new. A secret of several lines is old only if all its lines
/// are old and `before` contained the same secret, because old lines in a new order
/// can form a new secret.
pub(super) fn only_new(scanner: &Scanner, before: &str, after: &str, findings: Vec<Finding>) -> Vec<Finding> {
    let old = OldLines::of(before, after);
    let is_several = |finding: &Finding| after[finding.range.clone()].contains('\n');
    let mut old_secrets = HashMap::new();
    if findings.iter().any(is_several) {
        for finding in scanner.scan(before) {
            *old_secrets.entry(&before[finding.range]).or_insert(0_usize) += 1;
        }
    }
    let is_new = |finding: &Finding| {
        let secret = &after[finding.range.clone()];
        let lines = finding.line..=finding.line + secret.matches('\n').count();
        if !lines.into_iter().all(|line| old.has(line)) {
            return true;
        }
        if !is_several(finding) {
            return false;
        }
        match old_secrets.get_mut(secret) {
            Some(count) if *count > 0 => {
                *count -= 1;
                false
            }
            _ => true,
        }
    };
    let mut is_new = is_new;
    findings.into_iter().filter(|finding| is_new(finding)).collect()
}

/// For each line of a text, whether it is old.
struct OldLines(Vec<bool>);

impl OldLines {
    fn of(before: &str, after: &str) -> Self {
        let before: Vec<_> = before.split('\n').collect();
        let after: Vec<_> = after.split('\n').collect();
        let shorter = before.len().min(after.len());
        let same = |(one, other): &(&&str, &&str)| one == other;
        let head = before.iter().zip(&after).take_while(same).count();
        let tail = before.iter().rev().zip(after.iter().rev()).take_while(same).count();
        let tail = tail.min(shorter - head);
        let mut left: HashMap<&str, usize> = HashMap::new();
        for line in &before[head..before.len() - tail] {
            *left.entry(line).or_default() += 1;
        }
        let middle_end = after.len() - tail;
        let is_old = |(position, line): (usize, &&str)| {
            if position < head || position >= middle_end {
                return true;
            }
            match left.get_mut(*line) {
                Some(count) if *count > 0 => {
                    *count -= 1;
                    true
                }
                _ => false,
            }
        };
        Self(after.iter().enumerate().map(is_old).collect())
    }

    /// Whether a line, counted from 1, is old.
    fn has(&self, line: usize) -> bool {
        self.0.get(line - 1).copied().unwrap_or(false)
    }
}
