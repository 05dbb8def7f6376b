//! The sensitive-data scanner: finds secrets in the text of a memory.
//!
//! It recognises private keys, provider tokens, JWTs, connection strings, payment
//! cards and labelled passwords (`forms`, `blocks`, `cards`), and the
//! [`CustomRule`]s of the operator. It prefers precision over recall: a finding is
//! refused or replaced, so a false positive (a placeholder or a hash that looks
//! like a secret) costs a user more than a missed secret.
//!
//! One pass over the text looks for the literals of every form (`ghp_`, `://`,
//! `-----BEGIN `). The scanner checks a form only where one of its literals occurs.
//! Each check reads a bounded stretch, or a stretch that no other check of that
//! form reads, so time is linear even for hostile text. Only the operator's rules
//! are patterns over the whole text.
//!
//! A [`Finding`] has the kind and the position of a secret, never the secret
//! itself.

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

use serde::{Serialize, Serializer};

pub use custom::{CustomRule, RuleError};

/// The kind of a secret, in `snake_case` (`github_token`).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind(Arc<str>);

impl Kind {
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

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// A secret in a text: its kind and position, not the secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub kind: Kind,
    /// The line of its first character, counted from 1.
    pub line: usize,
    /// Its byte range in the text.
    #[serde(skip)]
    pub range: Range<usize>,
}

impl Finding {
    pub(crate) fn kind_and_line(&self) -> (&str, usize) {
        (self.kind.as_str(), self.line)
    }
}

/// Formats findings for people and models: `jwt in line 3, password in line 7`.
#[derive(Debug, Clone, Copy)]
pub struct FindingList<'a>(pub &'a [Finding]);

/// Findings that a list names; the rest are only counted.
const MAX_LISTED: usize = 10;

impl fmt::Display for FindingList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&list_kinds(self.0.iter().map(Finding::kind_and_line), 0))
    }
}

/// The line about replaced secrets in a tool's result; empty if there are none. It
/// also counts `left_out` further secrets.
pub(crate) fn redaction_note<'a>(
    replaced: impl ExactSizeIterator<Item = (&'a str, usize)>,
    left_out: usize,
) -> String {
    let secrets = match replaced.len() + left_out {
        0 => return String::new(),
        1 => "1 secret".to_owned(),
        count => format!("{count} secrets"),
    };
    format!(
        "\n{secrets} replaced by `[redacted:…]`, as the memory store's sensitive-data policy requires: {}.",
        list_kinds(replaced, left_out)
    )
}

/// Formats findings by kind and line, as [`FindingList`] does.
fn list_kinds<'a>(found: impl ExactSizeIterator<Item = (&'a str, usize)>, left_out: usize) -> String {
    let more = found.len().saturating_sub(MAX_LISTED) + left_out;
    let listed: Vec<_> =
        found.take(MAX_LISTED).map(|(kind, line)| format!("{kind} in line {line}")).collect();
    let listed = listed.join(", ");
    match more {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedactedText {
    /// The text with `[redacted:{kind}]` for each finding.
    pub text: String,
    /// The replaced secrets, with their positions in the original text.
    pub findings: Vec<Finding>,
}

/// Maximum passes of redaction: a marker can turn the text beside it into a secret.
const REDACTION_PASSES: usize = 4;

/// Finds secrets; cheap to clone, built once.
#[derive(Debug, Clone, Default)]
pub struct Scanner {
    custom: Arc<[custom::CompiledRule]>,
}

/// A possible finding; a lower rank means a more specific kind.
struct Candidate {
    rank: usize,
    kind: Kind,
    range: Range<usize>,
}

impl Scanner {
    /// A scanner with the built-in rules and the operator's rules.
    pub fn new(rules: &[CustomRule]) -> Result<Self, RuleError> {
        Ok(Self { custom: custom::compile(rules)? })
    }

    /// Every secret in `text`, in order, without overlaps.
    pub fn scan(&self, text: &str) -> Vec<Finding> {
        let mut candidates = Vec::new();
        rules::find(text, &mut candidates);
        cards::find(text, &mut candidates);
        custom::find(&self.custom, text, &mut candidates);
        to_findings(text, candidates)
    }

    /// The secrets in `after` that touch a line which `before` does not have.
    ///
    /// A secret of several lines counts when one of its lines is new. Without `before`,
    /// every line is new.
    pub fn scan_change(&self, before: Option<&str>, after: &str) -> Vec<Finding> {
        let findings = self.scan(after);
        match before {
            Some(before) if !findings.is_empty() => change::only_new(self, before, after, findings),
            _ => findings,
        }
    }

    /// Redacts the findings of [`Scanner::scan_change`].
    ///
    /// Returns `None` when there are no findings, or when a secret is left after the
    /// last pass. A scan of the returned text finds nothing.
    pub fn redact_change(&self, before: Option<&str>, after: &str) -> Option<RedactedText> {
        let findings = self.scan_change(before, after);
        if findings.is_empty() {
            return None;
        }
        let mut text = redact(after, &findings);
        for _ in 0..REDACTION_PASSES {
            let left = self.scan_change(before, &text);
            if left.is_empty() {
                return Some(RedactedText { text, findings });
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

/// The start of a redaction marker; the kind and `]` follow.
const MARKER_START: &str = "[redacted:";

/// Sorts candidates, merges overlapping ones, and counts lines.
fn to_findings(text: &str, mut candidates: Vec<Candidate>) -> Vec<Finding> {
    candidates.sort_by_key(|candidate| (candidate.range.start, candidate.rank));
    let mut apart: Vec<Candidate> = Vec::with_capacity(candidates.len());
    for candidate in candidates {
        match apart.last_mut() {
            // Both secrets must be removed; the more specific kind names the finding.
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
        Finding { kind: candidate.kind, line, range: candidate.range }
    };
    apart.into_iter().map(with_line).collect()
}
