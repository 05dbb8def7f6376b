use super::*;
use proptest::prelude::*;
use std::time::{Duration, Instant};

use crate::sensitive::Scanner;

fn replaced(content: &str, old_str: &str, new_str: &str) -> Result<Edit, ToolError> {
    str_replace(&at("/memories/a"), content, old_str, new_str)
}

fn inserted(content: &str, line: i64, text: &str) -> Result<String, ToolError> {
    insert(content, line, text).map(|edit| edit.content)
}

fn message_of(edit: &Edit) -> String {
    edit.to_message(String::new())
}

/// The lines of a snippet, without its header.
fn snippet_of(content: &str, old_str: &str, new_str: &str) -> String {
    let message = message_of(&replaced(content, old_str, new_str).unwrap());
    let header =
        "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n";
    message.strip_prefix(header).unwrap().to_owned()
}

/// A snippet's line numbers.
fn numbers_of(snippet: &str) -> Vec<usize> {
    snippet.lines().map(|line| line.split('\t').next().unwrap().trim().parse().unwrap()).collect()
}

#[test]
fn replacement_shows_surrounding_lines() {
    let edit = replaced("Line 1\nOld Text\nLine 3\n", "Old", "New").unwrap();
    assert_eq!(edit.content, "Line 1\nNew Text\nLine 3\n");
    assert_eq!(
        message_of(&edit),
        "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n     \
         1\tLine 1\n     2\tNew Text\n     3\tLine 3\n     4\t"
    );
    let ten = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10";
    assert_eq!(snippet_of(ten, "5", "five"), "     3\t3\n     4\t4\n     5\tfive\n     6\t6\n     7\t7");
    assert_eq!(numbers_of(&snippet_of(ten, "2", "two")), [1, 2, 3, 4]);
    assert_eq!(numbers_of(&snippet_of(ten, "10", "x")), [8, 9, 10]);
}

#[test]
fn snippet_reaches_two_lines_past_a_longer_replacement() {
    let ten = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10";
    assert_eq!(numbers_of(&snippet_of(ten, "5", "a\nb\nc")), [3, 4, 5, 6, 7, 8, 9]);
    // Replacing a whole line by a whole line changes only that line.
    assert_eq!(numbers_of(&snippet_of(ten, "5\n", "five\n")), [3, 4, 5, 6, 7]);
    assert_eq!(numbers_of(&snippet_of(ten, "5\n", "a\nb\n")), [3, 4, 5, 6, 7, 8]);
    // A new line break turns the rest of the line into a line.
    assert_eq!(snippet_of("ab", "a", "a\n"), "     1\ta\n     2\tb");
    assert_eq!(numbers_of(&snippet_of(ten, "4\n5\n6", "x")), [2, 3, 4, 5, 6]);
}

#[test]
fn snippet_of_a_deletion_shows_its_surroundings() {
    assert_eq!(snippet_of("a\nb\nc\n", "b\n", ""), "     1\ta\n     2\tc\n     3\t");
    assert_eq!(snippet_of("a", "a", ""), "     1\t");
    assert_eq!(replaced("a\nb", "\nb", "").unwrap().content, "a");
}

#[test]
fn snippet_of_a_file_too_long_to_view_widens_its_column() {
    let content = "\n".repeat(1_000_000) + "x";
    let snippet = snippet_of(&content, "x", "y");
    assert_eq!(snippet, "999999\t\n1000000\t\n1000001\ty");
}

#[test]
fn missing_and_empty_texts_are_refused() {
    assert_eq!(
        replaced("abc", "x", "y").unwrap_err(),
        ToolError::NoMatch { old_str: "x".into(), path: "/memories/a".into() }
    );
    assert!(matches!(replaced("", "x", "y"), Err(ToolError::NoMatch { .. })));
    assert!(matches!(replaced("a\r\nb", "a\nb", "y"), Err(ToolError::NoMatch { .. })));
    assert_eq!(replaced("abc", "", "y"), Err(ToolError::EmptyOldStr));
    assert_eq!(replaced("", "", ""), Err(ToolError::EmptyOldStr));
}

#[test]
fn every_match_has_its_line() {
    let lines = |content: &str, old_str: &str| match replaced(content, old_str, "") {
        Err(ToolError::ManyMatches { lines, .. }) => lines,
        _ => Vec::new(),
    };
    assert_eq!(lines("x\ny\nx x\n", "x"), [1, 3, 3]);
    assert_eq!(lines("aaa", "aa"), [1, 1]);
    assert_eq!(lines("a\na\na\n", "a\na"), [1, 2]);
    assert_eq!(lines("\n\n\n", "\n\n"), [1, 2]);
    assert_eq!(lines("ééé", "éé"), [1, 1]);
    assert_eq!(lines("ab\nab", "b"), [1, 2]);
}

#[test]
fn many_overlapping_matches_take_linear_time() {
    let started = Instant::now();
    for (content, old_str) in [
        ("a".repeat(100_000), "a".repeat(50_000)),
        ("a".repeat(100_000), "a".to_owned()),
        ("\n".repeat(100_000), "\n".repeat(40_000)),
        ("ab".repeat(50_000), format!("{}a", "ab".repeat(20_000))),
        ("a".repeat(100_000), format!("{}b", "a".repeat(50_000))),
        (format!("{}b", "a".repeat(100_000)), format!("{}b", "a".repeat(50_000))),
    ] {
        let _ = replaced(&content, &old_str, "x").map_err(|error| error.to_string());
    }
    // Quadratic time would take minutes; this leaves room for a slow machine.
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn inserted_lines_end_with_a_newline() {
    assert_eq!(inserted("a\n\n", 0, "b"), Ok("b\na\n\n".into()));
    assert_eq!(inserted("", 0, "b"), Ok("b\n".into()));
    assert_eq!(inserted("", 0, ""), Ok("\n".into()));
    assert_eq!(inserted("a", 1, "b"), Ok("a\nb\n".into()));
    assert_eq!(inserted("a", 0, "b"), Ok("b\na\n".into()));
    assert_eq!(inserted("a\nc\n", 1, "b\n"), Ok("a\nb\nc\n".into()));
    assert_eq!(inserted("a\nc\n", 1, "b\n\n\n"), Ok("a\nb\nc\n".into()));
    assert_eq!(inserted("a\nc", 1, "\nb"), Ok("a\n\nb\nc\n".into()));
    assert_eq!(inserted("a\nb\n", 2, "c"), Ok("a\nb\nc\n".into()));
    assert_eq!(inserted("a\nb\n", 1, ""), Ok("a\n\nb\n".into()));
    assert_eq!(inserted("a\r\nb\r\n", 1, "x\r\n"), Ok("a\r\nx\r\nb\r\n".into()));
}

#[test]
fn insert_line_must_exist() {
    for (content, lines) in [("", 0), ("a", 1), ("a\n", 1), ("a\n\n", 2), ("a\nb", 2), ("\n", 1)] {
        for line in [-1, lines + 1, i64::MAX, i64::MIN] {
            let error = ToolError::InvalidInsertLine { line, lines: usize::try_from(lines).unwrap() };
            assert_eq!(inserted(content, line, "x"), Err(error));
        }
        assert!(inserted(content, lines, "x").is_ok());
    }
}

/// The start of each `needle`, found by trying every character.
fn naive_matches(content: &str, needle: &str) -> Vec<usize> {
    let starts = content.char_indices().map(|(position, _)| position);
    starts.filter(|&position| content[position..].starts_with(needle)).collect()
}

fn naive_insert(content: &str, line: usize, text: &str) -> Option<String> {
    let mut lines: Vec<&str> = content.split('\n').collect();
    if lines.last() == Some(&"") {
        lines.pop();
    }
    if line > lines.len() {
        return None;
    }
    lines.insert(line, text.trim_end_matches('\n'));
    Some(lines.iter().flat_map(|line| [line, "\n"]).collect())
}

#[test]
fn result_of_a_redacted_edit_shows_what_is_stored() {
    let key_line = "q7XkP2mZ9vRtL4wNc8Ys".repeat(3);
    let label = "RSA PRIVATE KEY";
    let key = format!("-----BEGIN {label}-----\n{key_line}\n{key_line}\n-----END {label}-----");
    let content = "one\ntwo\nthree\nfour\nHERE\nfive\nsix\nseven\n";
    let redact = |new_str: &str| {
        let edit = replaced(content, "HERE", new_str).unwrap();
        let redacted = Scanner::default().redact_change(Some(content), &edit.content).unwrap();
        edit.redacted(redacted)
    };
    let edit = redact(&format!("a\n{key}\nb"));
    assert_eq!(edit.content, content.replace("HERE", "a\n[redacted:private_key]\nb"));
    insta::assert_snapshot!(message_of(&edit), @"
    The memory file has been edited. Here is the snippet showing the change (with line numbers):
         3	three
         4	four
         5	a
         6	[redacted:private_key]
         7	b
         8	five
         9	six
    1 secret replaced by `[redacted:…]`, as the memory store's sensitive-data policy requires: private_key in line 6.
    ");
    // The edit ends inside a redacted secret, which extends beyond the edit.
    let lines = message_of(&redact(&format!("{key}\n{key}")));
    assert!(
        lines.contains("     6\t[redacted:private_key]\n     7\tfive\n     8\tsix\n2 secrets"),
        "{lines}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn replacement_equals_the_naive_model(
        content in "[ab\né]{0,24}", old_str in "[ab\né]{0,4}", new_str in "[ab\n]{0,4}",
    ) {
        let found = replaced(&content, &old_str, &new_str);
        if old_str.is_empty() {
            prop_assert_eq!(found, Err(ToolError::EmptyOldStr));
            return Ok(());
        }
        match naive_matches(&content, &old_str)[..] {
            [] => prop_assert_eq!(found, Err(ToolError::NoMatch { old_str, path: "/memories/a".into() })),
            [start] => {
                let edit = found.unwrap();
                prop_assert_eq!(&edit.content, &content.replacen(&old_str, &new_str, 1));
                let message = message_of(&edit);
                let snippet = message.split_once(":\n").unwrap().1;
                let first = content[..start].split('\n').count();
                let lines: Vec<&str> = edit.content.split('\n').collect();
                let numbers = numbers_of(snippet);
                prop_assert_eq!(numbers[0], first.saturating_sub(2).max(1));
                let shown: Vec<String> =
                    numbers.iter().map(|&number| format!("{number:>6}\t{}", lines[number - 1])).collect();
                prop_assert_eq!(snippet, shown.join("\n"));
                // After the snippet, lines have only moved up or down.
                let last = *numbers.last().unwrap();
                let old_lines: Vec<&str> = content.split('\n').collect();
                let tail = &lines[last.min(lines.len())..];
                prop_assert!(old_lines.ends_with(tail));
            }
            ref starts => {
                let lines = starts.iter().map(|&start| content[..start].split('\n').count()).collect();
                prop_assert_eq!(found, Err(ToolError::ManyMatches { old_str, lines }));
            }
        }
    }

    #[test]
    fn insertion_equals_the_naive_model(
        content in "[ab\n\ré]{0,16}", line in 0..12_usize, text in "[xy\n]{0,6}",
    ) {
        let found = inserted(&content, i64::try_from(line).unwrap(), &text);
        prop_assert_eq!(found.ok(), naive_insert(&content, line, &text));
    }
}
