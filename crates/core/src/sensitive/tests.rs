use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::cpu_time::cpu_time_of;

mod corpus;
mod template;

/// Parts of secrets and of their surroundings; no part is a secret by itself.
#[rustfmt::skip]
const PARTS: [&str; 30] = [
    "ghp_", "sk-", "sk-ant-api03-", "AKIA", "eyJ", "://", "@", ":", "-----BEGIN RSA PRIVATE KEY-----\n",
    "-----END RSA PRIVATE KEY-----", "password=", "token: ", "secret_key = ", "Bearer ", "Private-Lines: 3\n",
    "hooks.slack.com/services/", "[redacted:", "]", "4539 ", "4111111111111111", " ", "\n", "é", "\\n", "%3D",
    "abcDEF123", "Q7xkP2mZ", "0123456789", ";", "\"",
];

/// Random text that no check considers a placeholder.
fn random_text(length: usize) -> String {
    "q7XkP2mZ9vRtL4wNc8Ys".chars().cycle().take(length).collect()
}

fn github_token() -> String {
    format!("ghp_{}", random_text(36))
}

fn pem(lines: usize) -> String {
    let line = format!("{}\n", random_text(64));
    let label = "RSA PRIVATE KEY";
    format!("-----BEGIN {label}-----\n{}-----END {label}-----", line.repeat(lines))
}

fn with_rule(kind: &str, pattern: &str) -> Result<Scanner, RuleError> {
    Scanner::new(&[CustomRule { kind: kind.to_owned(), pattern: pattern.to_owned() }])
}

/// The texts and the rules were written together (`corpus/README.md`). The figures are in
/// `docs/memory-stores-api.md`.
#[test]
fn scanner_finds_every_labelled_secret_and_nothing_else() {
    let (documents, others) = (corpus::documents(), corpus::others());
    let scanner = Scanner::default();
    let covers = |finding: &Finding, kind: &str, range: &Range<usize>| {
        finding.kind.as_str() == kind && finding.range.start <= range.start && finding.range.end >= range.end
    };
    let (mut secrets, mut kinds, mut faults) = (0, BTreeSet::new(), Vec::new());
    for document in documents.iter().chain(&others) {
        let findings = scanner.scan(&document.text);
        for (kind, range) in &document.secrets {
            if !findings.iter().any(|finding| covers(finding, kind, range)) {
                faults.push(format!("missed: {kind} in {}", document.name));
            }
            secrets += 1;
            kinds.insert(kind);
        }
        for finding in findings {
            if !document.secrets.iter().any(|(kind, range)| covers(&finding, kind, range)) {
                faults.push(format!("wrong: {} in {}", finding.kind, document.name));
            }
        }
    }
    assert_eq!(faults, [""; 0]);
    assert_eq!((secrets, kinds.len(), others.len()), (310, 69, 471));
}

#[test]
fn finding_has_kind_line_and_range_and_never_the_secret() {
    let token = github_token();
    let text = format!("notes\n\nuse {token} here\nand postgres://app:{}@db.test/app\n", random_text(16));
    let scanner = Scanner::default();
    let findings = scanner.scan(&text);
    assert_eq!((findings[0].kind.as_str(), findings[0].line), ("github_token", 3));
    assert_eq!(&text[findings[0].range.clone()], token);
    let shown = format!("{findings:?} {scanner:?} {}", findings[0].kind);
    assert!(!shown.contains(&token[8..20]), "{shown}");
    assert_eq!(
        redact(&text, &findings),
        "notes\n\nuse [redacted:github_token] here\nand postgres://app:[redacted:connection_string]@db.test/app\n"
    );
}

#[test]
fn overlapping_secrets_merge_under_the_more_specific_kind() {
    let scanner = with_rule("access", "access[^;]*;").unwrap();
    let text = format!("access {} and more;", github_token());
    let findings = scanner.scan(&text);
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].kind.as_str(), "github_token");
    assert_eq!(findings[0].range, 0..text.len());
}

#[test]
fn multiline_secret_is_new_if_a_line_or_the_order_is_new() {
    let scanner = Scanner::default();
    let key = pem(5);
    let old = format!("a\n{key}\nb\n");
    let new = |before: &str, after: &str| scanner.scan_change(Some(before), after).len();
    assert_eq!(new(&old, &format!("c\n{key}\nd\ne")), 0);
    assert_eq!(new(&old, &format!("b\n{key}\na\n")), 0, "lines that moved are old");
    assert_eq!(new("", &old), 1);
    let lengthened = key.replacen('\n', &format!("\n{}\n", random_text(60)), 1);
    assert_eq!(new(&old, &old.replace(&key, &lengthened)), 1);
    // Only the header is new, and the whole block is one finding.
    let headless = old.replace("-----BEGIN RSA PRIVATE KEY-----\n", "");
    assert_eq!(new(&headless, &old), 1);
    // Removing a line from the middle forms a key whose lines are all old.
    let broken = key.replacen('\n', "\nthis is no key\n", 1);
    assert_eq!(scanner.scan(&broken).len(), 0);
    assert_eq!(new(&broken, &key), 1);
}

#[test]
fn token_must_be_a_whole_word() {
    let token = github_token();
    for (text, is_found) in [
        (format!("x{token}"), false),
        (format!("x_{token}"), false),
        (token[..30].to_owned(), false),
        (format!("\\n{token}\\n"), true),
        (format!("%3D{token}%26"), true),
        (format!("é{token}é"), true),
    ] {
        assert_eq!(Scanner::default().scan(&text).len(), usize::from(is_found), "{text}");
    }
    // Longer than any window.
    let long = format!("ya29.{}", random_text(5_000));
    assert_eq!(Scanner::default().scan(&long)[0].range, 0..long.len());
}

#[test]
fn rules_of_the_operator_are_checked_and_used() {
    let scanner = with_rule("employee_id", "EMP-[0-9]{6}").unwrap();
    let redacted = scanner.redact_change(None, "see EMP-004711\nand EMP-1").unwrap();
    assert_eq!(redacted.text, "see [redacted:employee_id]\nand EMP-1");
    assert_eq!(redacted.findings[0].line, 1);
    // The last allowed match covers the rest.
    assert_eq!(with_rule("letter", "x").unwrap().scan(&"x ".repeat(5_000)).len(), 1_001);
    for (kind, pattern, refusal) in [
        ("Employee", "x", "rules[0].kind must be a name"),
        ("ok", "(", "rules[0].pattern is not a valid regular expression"),
        ("ok", "a*", "rules[0].pattern must not match the empty text"),
        ("ok", "(?:x{1000}){1000}", "rules[0].pattern is too large"),
    ] {
        let refused = with_rule(kind, pattern).unwrap_err().to_string();
        assert!(refused.starts_with(refusal), "{refused}");
    }
}

#[test]
fn rule_matching_its_marker_terminates_and_a_marker_of_an_unknown_kind_hides_nothing() {
    let scanner = with_rule("anything", ".+").unwrap();
    let redacted = scanner.redact_change(None, "one\ntwo").unwrap();
    assert_eq!(redacted.text, "[redacted:anything]\n[redacted:anything]");
    assert_eq!(scanner.scan(&redacted.text), []);
    let scanner = with_rule("employee_id", "emp_[0-9]{6}").unwrap();
    for (text, count) in [
        ("[redacted:emp_004711]", 1),
        ("[redacted:é emp_004711]", 1),
        ("[redacted:employee_id]", 0),
        ("[redacted:github_token]", 0),
    ] {
        assert_eq!(scanner.scan(text).len(), count, "{text}");
    }
}

/// The cost of each check is bounded, so a text of 32 times the length takes 32
/// times as long. Quadratic time would take a thousand times as long. The bound is
/// between the two.
#[test]
fn hostile_texts_are_scanned_in_linear_time() {
    let scanner = Scanner::default();
    let best = |text: &str| (0..3).map(|_| cpu_time_of(|| scanner.scan(text))).min().unwrap();
    // Texts that contain as many starts of secrets as possible.
    let spaced = PARTS.iter().map(|part| format!("{part} "));
    let mut units: Vec<_> = PARTS.iter().map(|part| (*part).to_owned()).chain(spaced).collect();
    units.extend(
        ["a.bcdefg.", "1", "1 ", "4539-", "eyJ.", "://a:", "sk-aaaaaaaa ", "a.b.c.d.e.f."].map(str::to_owned),
    );
    units.extend([github_token(), format!("{} ", github_token())]);
    units.push(format!("-----BEGIN RSA PRIVATE KEY-----\n{}\n", random_text(64)));
    for unit in units {
        let text = |bytes: usize| unit.repeat(bytes / unit.len() + 1);
        let (short, long) = (best(&text(10_000)), best(&text(320_000)));
        assert!(
            long < short * 250 + std::time::Duration::from_millis(5),
            "{:?}…: {short:?} and {long:?}",
            &unit[..unit.floor_char_boundary(20)]
        );
    }
}

proptest! {
    #[test]
    fn findings_are_in_order_and_within_the_text_and_redacted_text_has_none(
        parts in prop::collection::vec(0..PARTS.len(), 0..60), at in 0..60_usize,
    ) {
        let token = github_token();
        let mut parts: Vec<_> = parts.into_iter().map(|part| PARTS[part]).collect();
        parts.insert(at.min(parts.len()), &token);
        let text = parts.concat();
        let scanner = Scanner::default();
        let mut end = 0;
        for finding in scanner.scan(&text) {
            prop_assert!(finding.range.start >= end && finding.range.start < finding.range.end);
            prop_assert!(text.get(finding.range.clone()).is_some());
            prop_assert_eq!(finding.line, text[..finding.range.start].matches('\n').count() + 1);
            end = finding.range.end;
        }
        if let Some(redacted) = scanner.redact_change(None, &text) {
            prop_assert_eq!(scanner.scan(&redacted.text), []);
        }
    }
}
