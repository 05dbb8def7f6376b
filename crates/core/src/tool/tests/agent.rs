use proptest::prelude::*;

use super::*;
use crate::content::ContentHash;
use crate::sensitive::Scanner;
use crate::tool::agent::*;

fn call(tool: AgentTool, input: &Value) -> Result<AgentCall, ToolError> {
    AgentCall::parse(tool, input.as_object().unwrap(), &ToolRoot::Store)
}

fn replacement(old_str: &str, new_str: &str) -> Replacement {
    Replacement { old_str: old_str.to_owned(), new_str: new_str.to_owned() }
}

fn edited(content: &str, edits: &[Replacement]) -> Result<Edit, ToolError> {
    apply_edits(&at("/memories/a"), content, edits)
}

fn snippets(edit: &Edit, max_chars: u64) -> Vec<(usize, String, bool)> {
    let snippets = edit.snippets(max_chars).into_iter();
    snippets.map(|snippet| (snippet.first_line, snippet.text, snippet.is_cut)).collect()
}

#[test]
fn wrong_fields_are_named() {
    let table = r#"
        memory_read {}
            Field `path` is missing; it must be a string
        memory_list {"limit": 101}
            Field `limit` must be 1 to 100, but is 101
        memory_list {"depth": 2}
            Field `depth` must be 0 to 1, but is 2
        memory_read {"path": "/memories/a", "offset": -1}
            Field `offset` must be 0 or more, but is -1
        memory_write {"path": "/memories/a", "content": "c", "precondition": {"type": "newer"}}
            Field `precondition.type` must be `not_exists` or `content_sha256`
        memory_append {"path": "/memories/a", "content": "c", "precondition": {"type": "content_sha256"}}
            Field `content_sha256` is missing; it must be a string
        memory_append {"path": "/memories/a", "content": "c", "precondition": {"type": "content_sha256", "content_sha256": "ABC"}}
            Field `content_sha256` must be a SHA-256 as 64 lowercase hexadecimal characters
        memory_write {"path": "/memories/a", "content": "c", "preconditions": {"type": "not_exists"}}
            Field `preconditions` is unknown; memory_write has the fields `path`, `content`, `precondition`
        memory_write {"path": "/memories/a", "content": "c", "precondition": {"type": "not_exists", "sha": ""}}
            Field `sha` is unknown; `precondition` has the fields `type`, `content_sha256`
        memory_write {"path": "/memories/a", "content": "c", "precondition": {"type": "not_exists", "content_sha256": "HASH"}}
            Field `content_sha256` does not go with `not_exists`
        memory_edit {"path": "/memories/a", "edits": [{"old_str": "a", "new": "b"}]}
            Edit 1 of 1 failed, so no edit was applied: Field `new` is unknown; an edit has the fields `old_str`, `new_str`
        memory_edit {"path": "/memories/a", "edits": []}
            Field `edits` must be an array of 1 to 100 objects, each with `old_str` and `new_str`, but has 0
        memory_edit {"path": "/memories/a", "edits": [{"old_str": "a"}, {"new_str": "b"}]}
            Edit 2 of 2 failed, so no edit was applied: Field `old_str` is missing; it must be a string
        memory_edit MANY
            Field `edits` must be an array of 1 to 100 objects, each with `old_str` and `new_str`, but has 101
        "#;
    let many = json!({"path": "/memories/a", "edits": vec![json!({"old_str": "a"}); 101]});
    let table = table.replace("MANY", &many.to_string()).replace("HASH", &ContentHash::of(b"").to_string());
    let lines: Vec<_> = table.trim().lines().map(str::trim).collect();
    for row in lines.chunks(2) {
        let (tool, input) = row[0].split_once(' ').unwrap();
        let tool = AgentTool::parse(tool).unwrap();
        let refused = call(tool, &serde_json::from_str(input).unwrap()).unwrap_err();
        assert_eq!(refused.to_string(), format!("Error: {}", row[1]), "{input}");
    }
}

#[test]
fn edits_have_snippets_in_file_order_and_a_failed_one_is_named() {
    let lines: Vec<_> = (1..=30).map(|number| format!("line {number};")).collect();
    let content = lines.join("\n");
    let edit = edited(&content, &[replacement("line 25;", "y\nz"), replacement("line 5;", "")]).unwrap();
    assert_eq!(
        snippets(&edit, 1_000),
        [
            (3, "line 3;\nline 4;\n\nline 6;\nline 7;".to_owned(), false),
            (23, "line 23;\nline 24;\ny\nz\nline 26;\nline 27;".to_owned(), false),
        ]
    );
    // The snippet says that lines are missing.
    assert_eq!(snippets(&edit, 45), [(3, "line 3;\nline 4;\n".to_owned(), true)]);
    let error = edited("one two two", &[replacement("one", "1"), replacement("two", "2")]).unwrap_err();
    let told = "Error: Edit 2 of 2 failed, so no edit was applied: No replacement was performed. Multiple";
    assert!(error.to_string().starts_with(told), "{error}");
}

#[test]
fn hint_of_a_snippet_that_was_cut_can_be_followed() {
    let content = format!("{}\nb\n{}", "x".repeat(33_000), "é".repeat(33_000));
    let edit = edited(&content, &[replacement("b", &"\n".repeat(16_000))]).unwrap();
    let message = edit.to_message(String::new(), 16_000);
    assert!((13_000..16_000).contains(&message.chars().count()));
    let (_, advised) = message.split_once(" not shown. View them with view_range [").unwrap();
    let (start, end) = advised.strip_suffix("].]").unwrap().split_once(", ").unwrap();
    let range = Some((start.parse().unwrap(), end.parse().unwrap()));
    assert!(view_file(&at("/memories/a"), &edit.content, range, 0, 16_000).is_ok());
}

#[test]
fn every_limit_of_a_read_allows_some_progress() {
    let text = "häß\nlich";
    for (offset, limit, max_chars, content, next) in
        [(5, Some(u64::MAX), 3, "ich", None), (8, None, 3, "", None), (0, None, 0, "h", Some(1))]
    {
        let part = read(&at("/memories/a"), text, offset, limit, max_chars).unwrap();
        assert_eq!((part.content.as_str(), part.next_offset), (content, next));
    }
    assert_eq!(
        read(&at("/memories/a"), text, 9, None, 3).unwrap_err().to_string(),
        "Error: Invalid `offset` parameter: 9. It should be within the characters of the file: [0, 8]"
    );
}

#[test]
fn snippets_follow_a_redaction() {
    let token = "ghp_q7XkP2mZ9vRtL4wNc8YsB3hJ6dF1gT5eKpWu";
    let content = "a\nb\nc\nd\ne\nf\ng\nh\ni\nsecret: X\n";
    let edit = edited(content, &[replacement("X", token)]).unwrap();
    let redacted = Scanner::default().redact_change(Some(content), &edit.content).unwrap();
    let edit = edit.redacted(redacted);
    assert!(!edit.content.contains(token));
    assert_eq!(snippets(&edit, 1_000), [(8, "h\ni\nsecret: [redacted:github_token]\n".to_owned(), false)]);
    let redactions = serde_json::to_value(Redactions::of(&edit.findings, 1_000)).unwrap();
    let listed = serde_json::json!([{"kind": "github_token", "line": 10}]);
    assert_eq!(redactions, serde_json::json!({"redactions": listed, "redactions_left_out": 0}));
    let many = Redactions::of(&vec![edit.findings[0].clone(); 1_000], 16_000);
    assert!(serde_json::to_string(&many).unwrap().len() < 1_000 && many.listed.len() > 20);
    assert_eq!(many.listed.len() + many.left_out, 1_000);
}

#[test]
fn result_text_has_hash_and_next_step() {
    let part = read(&at("/memories/a"), "hello", 1, Some(2), 100).unwrap();
    let hash = ContentHash::of(b"hello");
    assert_eq!(
        AgentResult::Read(part).to_text(),
        format!(
            "/memories/a: 5 bytes, content_sha256 {hash}, characters 1 to 3 of 5 follow; continue with offset 3:\nel"
        )
    );
    let hit = |score| Hit { path: "/a".to_owned(), score, line: 1, snippet: String::new() }.to_text();
    assert_eq!([0.0, 0.01].map(hit), ["\n\n/a, line 1, score under 0.01\n", "\n\n/a, line 1, score 0.01\n"]);
    let listing = AgentResult::List {
        path: "/memories".to_owned(),
        entries: vec![
            ListingEntry::File {
                path: "/memories/a.md".to_owned(),
                content_size_bytes: 1_536,
                updated_at: "2026-11-21T00:00:00.000000Z".to_owned(),
                first_line: "# A".to_owned(),
            },
            ListingEntry::Directory { path: "/memories/b/".to_owned(), read_only: true },
        ],
        next_page: Some("page_x".to_owned()),
    };
    insta::assert_snapshot!(listing.to_text(), @"
    Files below /memories (size, time of the last change, path, first line); a path that ends in / is a directory:
    1.5K	2026-11-21T00:00:00.000000Z	/memories/a.md	# A
    /memories/b/	(read-only)

    [There are more entries. Continue with page `page_x`.]
    ");
}

proptest! {
    #[test]
    fn edits_do_what_single_replacements_do(
        content in "[ab\n]{0,30}", edits in prop::collection::vec(("[ab\n]{0,4}", "[abc\n]{0,4}"), 1..6)
    ) {
        let edits: Vec<_> = edits.iter().map(|(old_str, new_str)| replacement(old_str, new_str)).collect();
        let mut expected = Ok(content.clone());
        for edit in &edits {
            expected = expected.and_then(|text: String| {
                let replaced = str_replace(&at("/memories/a"), &text, &edit.old_str, &edit.new_str);
                replaced.map(|edit| edit.content)
            });
        }
        match (edited(&content, &edits), expected) {
            (Ok(edit), Ok(expected)) => {
                prop_assert_eq!(&edit.content, &expected);
                let lines: Vec<_> = expected.split('\n').collect();
                let mut shown_to = 0;
                for snippet in edit.snippets(1_000) {
                    let first = snippet.first_line - 1;
                    let text: Vec<_> = snippet.text.split('\n').collect();
                    prop_assert!(first >= shown_to && !snippet.is_cut);
                    prop_assert_eq!(&lines[first..first + text.len()], &text[..]);
                    shown_to = first + text.len();
                }
            }
            (Err(ToolError::InEdit { .. }), Err(_)) => {}
            (edited, expected) => prop_assert!(false, "{edited:?} {expected:?}"),
        }
    }

    #[test]
    fn parts_read_one_after_the_other_are_the_content(content in "[aä😀\n]{0,40}", limit in 1_u64..9) {
        let (mut all, mut offset) = (String::new(), 0);
        loop {
            let part = read(&at("/memories/a"), &content, offset, Some(limit), 7).unwrap();
            prop_assert!(part.content.chars().count() as u64 <= limit.min(7));
            all.push_str(&part.content);
            match part.next_offset {
                Some(next) => {
                    prop_assert!(next > offset);
                    offset = next;
                }
                None => break,
            }
        }
        prop_assert_eq!(all, content);
    }
}
