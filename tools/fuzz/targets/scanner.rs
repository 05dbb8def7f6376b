//! The sensitive-data scanner: findings have correct positions, and redaction
//! removes them.
//!
//! A NUL, which no memory contains, separates the old text from the new one.
//! Other control characters stand for random text of some length, as in
//! secrets: neither the fuzzer nor this repository should invent whole ones.

#![no_main]

use std::sync::LazyLock;

use keepsake_core::sensitive::{Finding, Scanner, redact};
use libfuzzer_sys::fuzz_target;

static SCANNER: LazyLock<Scanner> = LazyLock::new(Scanner::default);

/// Lengths that secrets have, each for the control character of its place.
const LENGTHS: [usize; 8] = [16, 20, 24, 32, 36, 40, 64, 86];

/// Letters and digits in no order, always the same.
fn random_text(length: usize) -> String {
    const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut state = length as u64;
    let letters = (0..length).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(ALPHABET[(state >> 33) as usize % ALPHABET.len()])
    });
    letters.collect()
}

fn filled_in(text: &str) -> String {
    let mut filled = text.to_owned();
    for (letter, length) in ('\u{1}'..='\u{8}').zip(LENGTHS) {
        if filled.contains(letter) {
            filled = filled.replace(letter, &random_text(length));
        }
    }
    filled
}

fn assert_in_order(text: &str, findings: &[Finding]) {
    let mut end = 0;
    for finding in findings {
        let range = finding.range.clone();
        assert!(end <= range.start && range.start < range.end && range.end <= text.len());
        assert!(text.is_char_boundary(range.start) && text.is_char_boundary(range.end));
        assert_eq!(finding.line, text[..range.start].matches('\n').count() + 1);
        assert!(finding.kind.as_str().bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric()));
        end = range.end;
    }
}

fuzz_target!(|text: &str| {
    let text = &*filled_in(text);
    let (before, after) = text.split_once('\0').map_or((None, text), |(before, after)| (Some(before), after));
    let all = SCANNER.scan(after);
    assert_in_order(after, &all);
    // All findings are new without an old text, and none with an equal one.
    assert_eq!(SCANNER.scan_change(None, after), all);
    assert_eq!(SCANNER.scan_change(Some(after), after), []);
    let new = SCANNER.scan_change(before, after);
    assert_in_order(after, &new);
    assert!(new.iter().all(|finding| all.contains(finding)));
    // Text outside of the findings is unchanged.
    let redacted = redact(after, &all);
    let mut rest = redacted.as_str();
    let mut kept_to = 0;
    for finding in &all {
        let kept = &after[kept_to..finding.range.start];
        rest = rest.strip_prefix(kept).unwrap();
        rest = rest.strip_prefix(&format!("[redacted:{}]", finding.kind)).unwrap();
        kept_to = finding.range.end;
    }
    assert_eq!(rest, &after[kept_to..]);
    match SCANNER.redact_change(before, after) {
        Some(done) => {
            assert_eq!(done.findings, new);
            assert_eq!(SCANNER.scan_change(before, &done.text), []);
            assert_eq!(SCANNER.redact_change(before, &done.text), None);
            assert!(!new.is_empty());
        }
        // Or there is no end of it, which refuses the text.
        None if new.is_empty() => {}
        None => assert_ne!(SCANNER.scan_change(before, &redact(after, &new)), []),
    }
});
