use proptest::prelude::*;

use super::*;
use crate::content::ContentHash;
use crate::sensitive::Scanner;
use crate::tool::agent::*;

fn call(tool: AgentTool, input: &Value) -> Result<AgentCall, ToolError> {
    AgentCall::parse(tool, input.as_object().unwrap(), &ToolRoot::Store)
}

/// The tool and the input of a row such as `memory_read {}`.
fn tool_and_input(row: &str) -> (AgentTool, Value) {
    let (tool, input) = row.split_once(' ').unwrap();
    (AgentTool::parse(tool).unwrap(), serde_json::from_str(input).unwrap())
}

fn edit(old_str: &str, new_str: &str) -> Replacement {
    Replacement { old_str: old_str.to_owned(), new_str: new_str.to_owned() }
}

fn edited(content: &str, edits: &[Replacement]) -> Result<Edit, ToolError> {
    apply_edits(&at("/memories/a"), content, edits)
}

/// First lines and texts of an edit's snippets.
fn snippets(edit: &Edit, max_chars: u64) -> Vec<(usize, String, bool)> {
    let snippets = edit.snippets(max_chars).into_iter();
    snippets.map(|snippet| (snippet.first_line, snippet.text, snippet.is_cut)).collect()
}

#[test]
fn every_tool_is_found_by_its_name() {
    for tool in AgentTool::ALL {
        assert_eq!(AgentTool::parse(tool.name()), Some(tool));
    }
    assert_eq!(AgentTool::parse("memory"), None);
}

#[test]
fn omitted_fields_have_defaults() {
    let root = AgentCall::List { path: at("/memories"), is_shallow: false, limit: None, page: None };
    for input in [
        json!({}),
        json!({"path_prefix": null, "depth": null, "limit": null, "page": null, "other": 3}),
        json!({"path_prefix": "/memories/", "depth": 0.0}),
    ] {
        assert_eq!(call(AgentTool::List, &input), Ok(root.clone()), "{input}");
    }
    assert_eq!(
        call(AgentTool::Read, &json!({"path": "/memories/a"})),
        Ok(AgentCall::Read { path: at("/memories/a"), offset: 0, limit: None })
    );
    assert_eq!(
        call(AgentTool::Edit, &json!({"path": "/memories/a", "edits": [{"old_str": "x"}]})),
        Ok(AgentCall::Edit { path: at("/memories/a"), edits: vec![edit("x", "")], expected: None })
    );
}

#[test]
fn preconditions_are_parsed_by_type() {
    let hash = ContentHash::of(b"x");
    for (precondition, read) in [
        (json!({"type": "not_exists"}), Some(FilePrecondition::NotExists)),
        (
            json!({"type": "content_sha256", "content_sha256": hash.to_string(), "more": 1}),
            Some(FilePrecondition::ContentSha256(hash)),
        ),
        (Value::Null, None),
    ] {
        let input = json!({"path": "/memories/a", "content": "c", "precondition": precondition});
        for tool in [AgentTool::Write, AgentTool::Append] {
            let (AgentCall::Write { precondition, .. } | AgentCall::Append { precondition, .. }) =
                call(tool, &input).unwrap()
            else {
                panic!("{input} is of another tool");
            };
            assert_eq!(precondition, read);
        }
    }
}

#[test]
fn wrong_fields_are_named() {
    let many = json!({"path": "/memories/a", "edits": vec![json!({"old_str": "a"}); 101]});
    let table = r#"
        memory_read {}
            Field `path` is missing; it must be a string
        memory_list {"path_prefix": 3}
            Field `path_prefix` must be a string, but is a number
        memory_list {"limit": 101}
            Field `limit` must be 1 to 100, but is 101
        memory_list {"depth": 2}
            Field `depth` must be 0 to 1, but is 2
        memory_search {"limit": 3}
            Field `query` is missing; it must be a string
        memory_search {"query": "tea", "limit": 51}
            Field `limit` must be 1 to 50, but is 51
        memory_read {"path": "/memories/a", "offset": -1}
            Field `offset` must be 0 or more, but is -1
        memory_read {"path": "/memories/a", "limit": 1.5}
            Field `limit` must be an integer, but is a number with a fraction
        memory_write {"path": "/memories/a"}
            Field `content` is missing; it must be a string
        memory_write {"path": "/memories/a", "content": "c", "precondition": "not_exists"}
            Field `precondition` must be an object with `type`, but is a string
        memory_write {"path": "/memories/a", "content": "c", "precondition": {"type": "newer"}}
            Field `precondition.type` must be `not_exists` or `content_sha256`
        memory_append {"path": "/memories/a", "content": "c", "precondition": {"type": "content_sha256"}}
            Field `content_sha256` is missing; it must be a string
        memory_append {"path": "/memories/a", "content": "c", "precondition": {"type": "content_sha256", "content_sha256": "ABC"}}
            Field `content_sha256` must be a SHA-256 as 64 lowercase hexadecimal characters
        memory_edit {"path": "/memories/a", "edits": []}
            Field `edits` must be an array of 1 to 100 objects, each with `old_str` and `new_str`, but has 0
        memory_edit {"path": "/memories/a", "edits": [{"old_str": "a"}, {"new_str": "b"}]}
            Edit 2 of 2 failed, so no edit was applied: Field `old_str` is missing; it must be a string
        memory_delete {"path": "/elsewhere"}
            Path must start with /memories, got: /elsewhere
        memory_edit MANY
            Field `edits` must be an array of 1 to 100 objects, each with `old_str` and `new_str`, but has 101
        "#;
    for (row, text) in refusals(&table.replace("MANY", &many.to_string())) {
        let (tool, input) = tool_and_input(row);
        assert_eq!(call(tool, &input).unwrap_err().to_string(), text, "{row}");
    }
}

#[test]
fn edits_build_on_each_other() {
    let edit = edited("a\nb\nc\n", &[edit("a", "b2"), edit("b2\nb", "x"), edit("c", "c!")]).unwrap();
    assert_eq!(edit.content, "x\nc!\n");
    assert_eq!(snippets(&edit, 1_000), [(1, "x\nc!\n".to_owned(), false)]);
}

#[test]
fn distant_edits_have_separate_snippets_in_file_order() {
    let lines: Vec<_> = (1..=30).map(|number| format!("line {number};")).collect();
    let content = lines.join("\n");
    let edit = edited(&content, &[edit("line 25;", "y\nz"), edit("line 5;", "")]).unwrap();
    assert_eq!(
        snippets(&edit, 1_000),
        [
            (3, "line 3;\nline 4;\n\nline 6;\nline 7;".to_owned(), false),
            (23, "line 23;\nline 24;\ny\nz\nline 26;\nline 27;".to_owned(), false),
        ]
    );
    // The snippet says that lines are missing.
    assert_eq!(snippets(&edit, 20), [(3, "line 3;\nline 4;\n".to_owned(), true)]);
}

#[test]
fn first_failed_edit_is_reported() {
    let error = edited("one two two", &[edit("one", "1"), edit("two", "2")]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Error: Edit 2 of 2 failed, so no edit was applied: No replacement was performed. Multiple occurrences of \
         old_str `two` in lines: 1, 1. Please ensure it is unique"
    );
    let error = edited("one", &[edit("", "1")]).unwrap_err();
    assert!(
        error.to_string().starts_with(
            "Error: Edit 1 of 1 failed, so no edit was applied: No replacement was performed, because"
        ),
        "{error}"
    );
}

#[test]
fn appended_text_becomes_whole_lines() {
    for (content, text, appended) in
        [("", "a", "a\n"), ("a", "b", "a\nb\n"), ("a\n", "b\n\n\n", "a\nb\n"), ("a\n", "", "a\n\n")]
    {
        assert_eq!(append(content, text).content, appended, "{content:?} {text:?}");
    }
}

#[test]
fn partial_read_has_the_next_offset() {
    let text = "häß\nlich";
    let part = |offset, limit, max_chars| {
        let part = read(&at("/memories/a"), text, offset, limit, max_chars).unwrap();
        (part.content, part.next_offset)
    };
    assert_eq!(part(0, None, 100), (text.to_owned(), None));
    assert_eq!(part(0, Some(2), 100), ("hä".to_owned(), Some(2)));
    assert_eq!(part(2, None, 3), ("ß\nl".to_owned(), Some(5)));
    assert_eq!(part(5, Some(u64::MAX), 3), ("ich".to_owned(), None));
    assert_eq!(part(8, None, 3), (String::new(), None));
    // Every limit allows some progress.
    assert_eq!(part(0, None, 0), ("h".to_owned(), Some(1)));
    assert_eq!(
        read(&at("/memories/a"), text, 9, None, 3).unwrap_err().to_string(),
        "Error: Invalid `offset` parameter: 9. It should be within the characters of the file: [0, 8]"
    );
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
    let listing = AgentResult::List(Listing {
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
    });
    insta::assert_snapshot!(listing.to_text(), @"
    Files below /memories (size, time of the last change, path, first line); a path that ends in / is a directory:
    1.5K	2026-11-21T00:00:00.000000Z	/memories/a.md	# A
    /memories/b/	(read-only)

    [There are more entries. Continue with page `page_x`.]
    ");
}

#[test]
fn snippets_follow_a_redaction() {
    let token = "ghp_q7XkP2mZ9vRtL4wNc8YsB3hJ6dF1gT5eKpWu";
    let content = "a\nb\nc\nd\ne\nf\ng\nh\ni\nsecret: X\n";
    let edit = edited(content, &[edit("X", token)]).unwrap();
    let redacted = Scanner::default().redact_change(Some(content), &edit.content).unwrap();
    let edit = edit.redacted(redacted);
    assert!(!edit.content.contains(token));
    assert_eq!(snippets(&edit, 1_000), [(8, "h\ni\nsecret: [redacted:github_token]\n".to_owned(), false)]);
    assert_eq!(redactions(&edit.findings), [Redaction { kind: "github_token".to_owned(), line: 10 }]);
}

/// Whether a value matches a schema of the kinds that the tools use.
fn fits(schema: &Value, value: &Value) -> bool {
    if let Some(alternatives) = schema.get("anyOf").and_then(Value::as_array) {
        return alternatives.iter().any(|schema| fits(schema, value));
    }
    if let Some(only) = schema.get("const") {
        return only == value;
    }
    let is_of = |kind: &str| match kind {
        "object" => {
            let properties = schema["properties"].as_object().unwrap();
            let fields = value.as_object();
            fields.is_some_and(|fields| {
                let known = |(name, value): (&String, &Value)| {
                    properties.get(name).is_some_and(|schema| fits(schema, value))
                };
                let required = schema["required"].as_array().unwrap();
                fields.iter().all(known)
                    && required.iter().all(|name| fields.contains_key(name.as_str().unwrap()))
            })
        }
        "array" => {
            value.as_array().is_some_and(|items| items.iter().all(|item| fits(&schema["items"], item)))
        }
        "string" => value.as_str().is_some_and(|text| {
            schema.get("enum").is_none_or(|names| names.as_array().unwrap().contains(&json!(text)))
        }),
        "integer" => value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        unknown => panic!("{unknown}"),
    };
    match &schema["type"] {
        Value::String(kind) => is_of(kind),
        Value::Array(kinds) => kinds.iter().any(|kind| is_of(kind.as_str().unwrap())),
        other => panic!("{other} of {schema}"),
    }
}

#[test]
fn results_match_their_schemas() {
    let definitions = definitions();
    let holds = |tool: AgentTool, result: &AgentResult| {
        let definition = definitions.iter().find(|definition| definition.name == tool.name()).unwrap();
        let (schema, value) =
            (definition.output_schema.as_ref().unwrap(), serde_json::to_value(result).unwrap());
        assert!(fits(schema, &value), "{schema:#} {value:#}");
    };
    for next_page in [None, Some("page_x".to_owned())] {
        let file = ListingEntry::File {
            path: "/memories/a".to_owned(),
            content_size_bytes: 1,
            updated_at: "2026".to_owned(),
            first_line: String::new(),
        };
        let directory = ListingEntry::Directory { path: "/memories/b/".to_owned(), read_only: false };
        let listing = Listing { path: "/memories".to_owned(), entries: vec![file, directory], next_page };
        holds(AgentTool::List, &AgentResult::List(listing));
    }
    for next_page in [None, Some("page_x".to_owned())] {
        let hit =
            Hit { path: "/memories/a".to_owned(), score: 1.5, line: 3, snippet: "a ⟦b⟧".to_owned() };
        let hits = Hits { hits: vec![hit], next_page };
        holds(AgentTool::Search, &AgentResult::Search(hits));
    }
    for limit in [None, Some(1)] {
        let part = read(&at("/memories/a"), "text", 0, limit, 100).unwrap();
        holds(AgentTool::Read, &AgentResult::Read(part));
    }
    for known in [None, Some(3)] {
        let redaction = || Redaction { kind: "jwt".to_owned(), line: 1 };
        for outcome in [WriteOutcome::Created, WriteOutcome::Replaced, WriteOutcome::Appended] {
            let written = AgentResult::Write(WrittenFile {
                path: "/memories/a".to_owned(),
                outcome,
                memory_id: "mem_1".to_owned(),
                content_sha256: known.map(|_| "ab".to_owned()),
                content_size_bytes: known,
                redactions: vec![redaction()],
            });
            holds(AgentTool::Write, &written);
            holds(AgentTool::Append, &written);
        }
        let edited = AgentResult::Edit(EditedFile {
            path: "/memories/a".to_owned(),
            edits: 1,
            memory_id: "mem_1".to_owned(),
            content_sha256: known.map(|_| "ab".to_owned()),
            content_size_bytes: known,
            snippets: edited("a", &[edit("a", "b")]).unwrap().snippets(10),
            redactions: vec![redaction()],
        });
        holds(AgentTool::Edit, &edited);
    }
    let deletion = Deletion { path: "/memories/a".to_owned(), deleted: true };
    holds(AgentTool::Delete, &AgentResult::Delete(deletion));
}

#[test]
fn valid_inputs_match_their_schemas() {
    let table = r#"
        memory_list {"path_prefix": "/memories", "depth": 1, "limit": 3, "page": "page_x"}
        memory_search {"query": "tea", "path_prefix": "/memories/a", "limit": 50, "page": "page_x"}
        memory_read {"path": "/memories/a", "offset": 1, "limit": 3}
        memory_write {"path": "/memories/a", "content": "", "precondition": {"type": "not_exists"}}
        memory_edit {"path": "/memories/a", "edits": [{"old_str": "a", "new_str": "b"}], "precondition": {"type": "content_sha256", "content_sha256": "HASH"}}
        memory_append {"path": "/memories/a", "content": "x"}
        memory_delete {"path": "/memories/a", "expected_content_sha256": "HASH"}
    "#;
    let table = table.replace("HASH", &ContentHash::of(b"").to_string());
    for row in table.trim().lines() {
        let (tool, input) = tool_and_input(row.trim());
        call(tool, &input).unwrap();
        let definition = definitions().into_iter().find(|definition| definition.name == tool.name());
        assert!(fits(&definition.unwrap().input_schema, &input), "{input}");
    }
}

proptest! {
    #[test]
    fn edits_do_what_single_replacements_do(
        content in "[ab\n]{0,30}", edits in prop::collection::vec(("[ab\n]{0,4}", "[abc\n]{0,4}"), 1..6)
    ) {
        let edits: Vec<_> = edits.iter().map(|(old_str, new_str)| edit(old_str, new_str)).collect();
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
                // A line that no snippet shows is an old line.
                let old: Vec<_> = content.split('\n').collect();
                let shown: Vec<_> = edit.snippets(1_000).iter()
                    .flat_map(|snippet| snippet.first_line..snippet.first_line + snippet.text.split('\n').count())
                    .collect();
                for (number, line) in (1..).zip(&lines) {
                    prop_assert!(shown.contains(&number) || old.contains(line), "{} {:?}", number, line);
                }
            }
            (Err(ToolError::InEdit { .. }), Err(_)) => {}
            (edited, expected) => prop_assert!(false, "{edited:?} {expected:?}"),
        }
    }

    #[test]
    fn append_is_an_insert_after_the_last_line(content in "[aä\n]{0,20}", text in "[b\n]{0,8}") {
        let lines = content.matches('\n').count() + usize::from(!content.is_empty() && !content.ends_with('\n'));
        let inserted = insert(&content, i64::try_from(lines).unwrap(), &text).unwrap();
        prop_assert_eq!(append(&content, &text).content, inserted.content);
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
