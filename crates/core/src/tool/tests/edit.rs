use super::*;
use proptest::prelude::*;
use std::time::Duration;

use crate::cpu_time::cpu_time_of;
use crate::sensitive::Scanner;

fn replaced(content: &str, old_str: &str, new_str: &str) -> Result<Edit, ToolError> {
    str_replace(&at("/memories/a"), content, old_str, new_str)
}

fn message_of(edit: &Edit) -> String {
    edit.to_message(String::new(), u64::MAX)
}

#[test]
fn snippet_of_a_file_too_long_to_view_widens_its_column() {
    let edit = replaced(&("\n".repeat(1_000_000) + "x"), "x", "y").unwrap();
    assert!(message_of(&edit).ends_with(":\n999999\t\n1000000\t\n1000001\ty"));
}

#[test]
fn many_overlapping_matches_take_linear_time() {
    let took = |content: &str, old_str: &str| {
        cpu_time_of(|| replaced(content, old_str, "x").map_err(|error| error.to_string()))
    };
    for (content, old_str) in [
        ("a".repeat(100_000), "a".repeat(50_000)),
        ("a".repeat(100_000), "a".to_owned()),
        ("\n".repeat(100_000), "\n".repeat(40_000)),
        ("ab".repeat(50_000), format!("{}a", "ab".repeat(20_000))),
        ("a".repeat(100_000), format!("{}b", "a".repeat(50_000))),
        (format!("{}b", "a".repeat(100_000)), format!("{}b", "a".repeat(50_000))),
    ] {
        // Quadratic time would take minutes; this leaves room for a slow machine.
        assert!(took(&content, &old_str) < Duration::from_secs(5));
    }
}

/// The start of each `needle`, found by trying every character.
fn naive_matches(content: &str, needle: &str) -> Vec<usize> {
    let starts = content.char_indices().map(|(position, _)| position);
    starts.filter(|&position| content[position..].starts_with(needle)).collect()
}

fn naive_insert(content: &str, line: usize, text: &str) -> Option<String> {
    let end = line_end(content).or_else(|| line_end(text)).unwrap_or("\n");
    let mut lines: Vec<String> = content.split_inclusive('\n').map(str::to_owned).collect();
    if let Some(last) = lines.last_mut().filter(|last| !last.ends_with('\n')) {
        last.push_str(end);
    }
    if line > lines.len() {
        return None;
    }
    let text = text.replace("\r\n", "\n").replace('\n', end);
    lines.insert(line, format!("{}{end}", text.trim_end_matches(end)));
    Some(lines.concat())
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
            [] => {
                let path = "/memories/a".into();
                prop_assert_eq!(found, Err(ToolError::NoMatch { old_str, path, hint: "" }));
            }
            [start] => {
                let edit = found.unwrap();
                prop_assert_eq!(&edit.content, &content.replacen(&old_str, &new_str, 1));
                let message = message_of(&edit);
                let snippet = message.split_once(":\n").unwrap().1;
                let first = content[..start].split('\n').count();
                let lines: Vec<&str> = edit.content.split('\n').collect();
                let number = |line: &str| line.split('\t').next().unwrap().trim().parse().unwrap();
                let numbers: Vec<usize> = snippet.lines().map(number).collect();
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
        content in "[ab\n\ré]{0,16}", line in 0..12_usize, text in "[xy \t\r\n]{0,6}",
    ) {
        let found = insert(&content, i64::try_from(line).unwrap(), &text).map(|edit| edit.content);
        prop_assert_eq!(found.ok(), naive_insert(&content, line, &text));
        let last = content.split_inclusive('\n').count();
        prop_assert_eq!(Some(append(&content, &text).content), naive_insert(&content, last, &text));
    }
}
