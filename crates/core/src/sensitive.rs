//! The sensitive-data scanner: finds secrets in the text of a memory.
//!
//! It knows the forms of private keys, provider tokens, JWTs, connection
//! strings, payment cards and labelled passwords (`forms`, `blocks`, `cards`),
//! and the [`CustomRule`]s that an operator adds. It prefers to be right over
//! being complete: what it reports is refused or replaced, so a placeholder or
//! a hash that looks like a secret costs a user more than an odd secret missed.
//!
//! One pass over the text looks for the literals that every form has (`ghp_`,
//! `://`, `-----BEGIN `); only where one stands is its form looked at. A form
//! is looked at over a bounded stretch, or over one that no other look at it
//! shares, so time is linear in the text however it was made. Only operators'
//! own rules are patterns over the whole text.
//!
//! A [`Finding`] says what and where, never the secret itself.

mod blocks;
mod cards;
mod change;
mod checks;
mod custom;
mod forms;
mod rules;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

pub use custom::{CustomRule, RuleError};

/// What kind of secret was found, in `snake_case` (`github_token`).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind(Arc<str>);

impl Kind {
    /// The kind's name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A secret that stands in a text: what and where, not the secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What it is.
    pub kind: Kind,
    /// The line it starts in, counted from 1.
    pub line: usize,
    /// Its bytes in the text.
    pub range: Range<usize>,
}

/// Names findings for people and models: `jwt in line 3, password in line 7`.
#[derive(Debug, Clone, Copy)]
pub struct Listed<'a>(pub &'a [Finding]);

/// Findings that a list names; the others are counted.
const MOST_LISTED: usize = 10;

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = self.0.iter().map(|finding| (finding.kind.as_str(), finding.line));
        f.write_str(&list_kinds(found))
    }
}

/// Names what was found, by its kinds and lines, as [`Listed`] does.
pub(crate) fn list_kinds<'a>(found: impl ExactSizeIterator<Item = (&'a str, usize)>) -> String {
    let more = found.len().saturating_sub(MOST_LISTED);
    let listed: Vec<_> = found
        .take(MOST_LISTED)
        .map(|(kind, line)| format!("{kind} in line {line}"))
        .collect();
    let listed = listed.join(", ");
    match more {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}

/// What a redaction leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redacted {
    /// The text with `[redacted:{kind}]` for each finding.
    pub text: String,
    /// What was replaced, as it stood in the text before.
    pub findings: Vec<Finding>,
}

/// Redacts again where a marker made something next to it a secret.
const REDACTION_PASSES: usize = 4;

/// Finds secrets; cheap to clone, made once.
#[derive(Debug, Clone, Default)]
pub struct Scanner {
    custom: Arc<[custom::Compiled]>,
}

/// A finding on its way: the lower the rank, the more its kind tells.
struct Candidate {
    rank: usize,
    kind: Kind,
    range: Range<usize>,
}

impl Scanner {
    /// A scanner that finds what the operator's rules match besides its own.
    ///
    /// # Errors
    /// [`RuleError`] for the first rule that cannot be used.
    pub fn new(rules: &[CustomRule]) -> Result<Self, RuleError> {
        Ok(Self {
            custom: custom::compile(rules)?,
        })
    }

    /// Every secret in `text`, in order, none overlapping another.
    pub fn scan(&self, text: &str) -> Vec<Finding> {
        let mut candidates = Vec::new();
        rules::find(text, &mut candidates);
        cards::find(text, &mut candidates);
        custom::find(&self.custom, text, &mut candidates);
        settle(text, candidates)
    }

    /// The secrets in `after` that touch a line which `before` does not have.
    ///
    /// A secret of several lines counts when one of them is new. Without a
    /// `before` everything is new.
    pub fn scan_change(&self, before: Option<&str>, after: &str) -> Vec<Finding> {
        let findings = self.scan(after);
        match before {
            Some(before) if !findings.is_empty() => change::only_new(self, before, after, findings),
            _ => findings,
        }
    }

    /// Redacts what [`Scanner::scan_change`] finds; `None` when that is nothing,
    /// or when no redaction comes to an end.
    ///
    /// The text it gives has nothing more to find.
    pub fn redact_change(&self, before: Option<&str>, after: &str) -> Option<Redacted> {
        let findings = self.scan_change(before, after);
        if findings.is_empty() {
            return None;
        }
        let mut text = redact(after, &findings);
        for _ in 0..REDACTION_PASSES {
            let left = self.scan_change(before, &text);
            if left.is_empty() {
                return Some(Redacted { text, findings });
            }
            text = redact(&text, &left);
        }
        None
    }
}

/// Replaces each finding of a scan of `text` by `[redacted:{kind}]`.
pub fn redact(text: &str, findings: &[Finding]) -> String {
    let mut redacted = String::with_capacity(text.len());
    let mut kept_to = 0;
    for finding in findings {
        redacted.push_str(&text[kept_to..finding.range.start]);
        redacted.extend([MARKER_START, finding.kind.as_str(), "]"]);
        kept_to = finding.range.end;
    }
    redacted.push_str(&text[kept_to..]);
    redacted
}

/// What the marker of a redaction starts with; a kind and `]` follow.
const MARKER_START: &str = "[redacted:";

/// Orders candidates, makes one of those that overlap, and counts lines.
fn settle(text: &str, mut candidates: Vec<Candidate>) -> Vec<Finding> {
    candidates.sort_by_key(|candidate| (candidate.range.start, candidate.rank));
    let mut apart: Vec<Candidate> = Vec::with_capacity(candidates.len());
    for candidate in candidates {
        match apart.last_mut() {
            // Nothing of either may stay, under the name that tells more.
            Some(last) if candidate.range.start < last.range.end => {
                last.range.end = last.range.end.max(candidate.range.end);
                if candidate.rank < last.rank {
                    last.rank = candidate.rank;
                    last.kind = candidate.kind;
                }
            }
            _ => apart.push(candidate),
        }
    }
    let (mut line, mut counted_to) = (1, 0);
    let with_line = |candidate: Candidate| {
        let newlines = memchr::memchr_iter(b'\n', &text.as_bytes()[counted_to..candidate.range.start]);
        line += newlines.count();
        counted_to = candidate.range.start;
        Finding {
            kind: candidate.kind,
            line,
            range: candidate.range,
        }
    };
    apart.into_iter().map(with_line).collect()
}
