//! The operator's rules.

use std::iter;
use std::ops::Range;
use std::sync::Arc;

use regex::{Regex, RegexBuilder};
use serde::Deserialize;

use super::{Candidate, Kind, MARKER_START, rules};

/// Maximum size of a compiled pattern.
const PATTERN_LIMIT_BYTES: usize = 1 << 20;
const KIND_LIMIT_BYTES: usize = 64;
/// Maximum matches of one rule in one text. The last match extends to the end of
/// the text, because a pattern can be crafted to read the whole rest for each
/// match.
const MAX_MATCHES: usize = 1_000;

/// A rule that an operator adds to the built-in rules.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CustomRule {
    /// The kind of its findings, in `snake_case`.
    pub kind: String,
    /// A regular expression of the `regex` crate; `^` and `$` match at line breaks.
    pub pattern: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rules[{position}].{field} {rule}")]
pub struct RuleError {
    /// The position of the rule, counted from 0.
    pub position: usize,
    pub field: &'static str,
    /// A phrase that follows the field.
    pub rule: String,
}

#[derive(Debug)]
pub(super) struct CompiledRule {
    kind: Kind,
    pattern: Regex,
}

pub(super) fn compile(rules: &[CustomRule]) -> Result<Arc<[CompiledRule]>, RuleError> {
    let compiled = rules.iter().enumerate().map(|(position, rule)| {
        let error = |field, rule| RuleError { position, field, rule };
        Ok(CompiledRule {
            kind: parse_kind(&rule.kind).map_err(|why| error("kind", why))?,
            pattern: parse_pattern(rule).map_err(|why| error("pattern", why))?,
        })
    });
    compiled.collect()
}

fn parse_kind(kind: &str) -> Result<Kind, String> {
    let is_snake_case = kind.starts_with(|first: char| first.is_ascii_lowercase())
        && kind.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if !is_snake_case || kind.len() > KIND_LIMIT_BYTES {
        return Err(format!(
            "must be a name such as `employee_id`: a lowercase letter, then lowercase letters, digits and `_`, \
             at most {KIND_LIMIT_BYTES}"
        ));
    }
    Ok(Kind(kind.into()))
}

fn parse_pattern(rule: &CustomRule) -> Result<Regex, String> {
    let pattern =
        RegexBuilder::new(&rule.pattern).multi_line(true).size_limit(PATTERN_LIMIT_BYTES).build().map_err(
            |error| match error {
                regex::Error::CompiledTooBig(_) => {
                    format!("is too large: a compiled pattern may have at most {PATTERN_LIMIT_BYTES} bytes")
                }
                error => format!("is not a valid regular expression: {}", last_line(&error.to_string())),
            },
        )?;
    if pattern.is_match("") {
        return Err("must not match the empty text: it would match everywhere".to_owned());
    }
    Ok(pattern)
}

/// The line of a parser's message that states the problem.
fn last_line(message: &str) -> &str {
    let line = message.lines().last().unwrap_or_default().trim();
    line.strip_prefix("error: ").unwrap_or(line)
}

/// Finds the matches of the rules outside of redaction markers.
pub(super) fn find(rules: &[CompiledRule], text: &str, found: &mut Vec<Candidate>) {
    if rules.is_empty() {
        return;
    }
    let mut start = 0;
    for marker in markers(rules, text).chain(iter::once(text.len()..text.len())) {
        for (position, rule) in rules.iter().enumerate() {
            find_one(rule, position, start, &text[start..marker.start], found);
        }
        start = marker.end;
    }
}

fn find_one(rule: &CompiledRule, position: usize, start: usize, text: &str, found: &mut Vec<Candidate>) {
    for (count, found_at) in rule.pattern.find_iter(text).enumerate() {
        let is_last = count == MAX_MATCHES;
        let end = if is_last { text.len() } else { found_at.end() };
        // `$` and similar patterns can have an empty match.
        if found_at.start() < end {
            found.push(Candidate {
                rank: rules::CUSTOM_RANK + position,
                kind: rule.kind.clone(),
                range: start + found_at.start()..start + end,
            });
        }
        if is_last {
            return;
        }
    }
}

/// The markers `[redacted:{kind}]` of earlier redactions. A marker with an unknown
/// kind is ordinary text: its author wrote it, and it may hide a secret.
fn markers(rules: &[CompiledRule], text: &str) -> impl Iterator<Item = Range<usize>> {
    let is_kind =
        |name: &str| super::rules::is_kind(name) || rules.iter().any(|rule| rule.kind.as_str() == name);
    memchr::memmem::find_iter(text.as_bytes(), MARKER_START).filter_map(move |start| {
        let inner = start + MARKER_START.len();
        let longest = &text.as_bytes()[inner..text.len().min(inner + KIND_LIMIT_BYTES + 1)];
        let end = inner + memchr::memchr(b']', longest)?;
        is_kind(&text[inner..end]).then_some(start..end + 1)
    })
}
