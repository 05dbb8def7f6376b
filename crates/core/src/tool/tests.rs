//! Tests of the memory tool, one module for each part.

use serde_json::{Value, json};

use super::*;
use crate::path::PathError;

mod agent;
mod command;
mod edit;
mod view;

fn at(text: &str) -> ToolPath {
    ToolPath::parse(text).unwrap()
}

fn parse(input: &Value) -> Result<Command, ToolError> {
    Command::parse(input.as_object().unwrap(), &ToolRoot::Store)
}

/// The rows of a table: an input, and below it the text of its error after "Error: ".
fn refusals(table: &str) -> Vec<(&str, String)> {
    let lines: Vec<_> = table.trim().lines().map(str::trim).collect();
    let (rows, rest) = lines.as_chunks();
    assert!(rest.is_empty() && !rows.is_empty());
    rows.iter().map(|[input, text]| (*input, format!("Error: {text}"))).collect()
}

#[test]
fn success_messages_are_exact() {
    let message = |input: &Value| parse(input).unwrap().message(None);
    for (input, expected) in [
        (
            json!({"command": "create", "path": "/memories/a.md", "file_text": ""}),
            "File created successfully at: /memories/a.md",
        ),
        (
            json!({"command": "insert", "path": "/memories/a/", "insert_line": 0, "insert_text": "b"}),
            "The file /memories/a has been edited.",
        ),
        (json!({"command": "delete", "path": "/memories/b/"}), "Successfully deleted /memories/b"),
        (
            json!({"command": "rename", "old_path": "/memories/a.md", "new_path": "/memories/b/"}),
            "Successfully renamed /memories/a.md to /memories/b",
        ),
    ] {
        assert_eq!(message(&input).as_deref(), Some(expected));
    }
}

/// The errors' messages, one after the other.
fn messages(errors: impl IntoIterator<Item = ToolError>) -> String {
    let messages: Vec<_> = errors.into_iter().map(|error| error.to_string()).collect();
    messages.join("\n")
}

#[test]
fn error_messages_of_the_protocol_are_exact() {
    let path = || "/memories/a".to_owned();
    let errors = [
        ToolError::NotFoundView { path: path() },
        ToolError::NotFoundEdit { path: path() },
        ToolError::NotFound { path: path() },
        ToolError::AlreadyExists { path: path() },
        ToolError::DestinationExists { path: path() },
        ToolError::CannotDeleteRoot,
        ToolError::CannotRenameRoot,
        ToolError::InvalidViewRange { start: 0, end: -2, lines: 7 },
        ToolError::TooManyLines { path: path() },
        ToolError::NoMatch { old_str: "x\ny".into(), path: path() },
        ToolError::ManyMatches { old_str: "x".into(), lines: vec![1, 3, 3] },
        ToolError::InvalidInsertLine { line: -1, lines: 7 },
        ToolError::Path(ToolPathError::OutsideMemories { path: "/x".into() }),
        ToolError::Path(ToolPathError::Escapes { path: "/memories/..".into() }),
    ];
    insta::assert_snapshot!(messages(errors), @"
    The path /memories/a does not exist. Please provide a valid path.
    Error: The path /memories/a does not exist. Please provide a valid path.
    Error: The path /memories/a does not exist
    Error: File /memories/a already exists
    Error: The destination /memories/a already exists
    Error: Cannot delete the /memories directory itself
    Error: Cannot rename the /memories directory itself
    Error: Invalid `view_range` parameter: [0, -2]. It should be within the range of lines of the file: [1, 7]
    File /memories/a exceeds maximum line limit of 999,999 lines.
    No replacement was performed, old_str `x
    y` did not appear verbatim in /memories/a.
    No replacement was performed. Multiple occurrences of old_str `x` in lines: 1, 3, 3. Please ensure it is unique
    Error: Invalid `insert_line` parameter: -1. It should be within the range of lines of the file: [0, 7]
    Error: Path must start with /memories, got: /x
    Error: Path /memories/.. would escape /memories directory
    ");
}

#[test]
fn own_error_messages_state_problem_and_remedy() {
    let path = || "/memories/a/b".to_owned();
    let errors = [
        ToolError::ParentIsFile { path: path(), file: "/memories/a".into() },
        ToolError::IntoItself { from: "/memories/a".into(), to: path() },
        ToolError::PathBelowBreaksRule { path: Some(path()), rule: PathError::TooLong { bytes: 1025 } },
        ToolError::EmptyOldStr,
        ToolError::FileTooLarge { path: path(), size_bytes: Some(102_401), limit_bytes: 102_400 },
        ToolError::Nul { path: path() },
        ToolError::TooManyMemories { count: 2001, limit: 2000 },
        ToolError::StoreFull { size_bytes: Some(11), limit_bytes: 10 },
        ToolError::TenantFull { size_bytes: Some(11), limit_bytes: 10 },
        ToolError::Archived,
        ToolError::Conflict { path: path() },
    ];
    insta::assert_snapshot!(messages(errors), @"
    Error: Path /memories/a/b cannot be created, because /memories/a is a file and not a directory
    Error: Cannot rename /memories/a to /memories/a/b: a directory cannot be moved into itself
    Error: Cannot rename the directory: the new path of /memories/a/b is 1025 bytes long, over the limit of 1024 bytes. Nothing was renamed.
    Error: No replacement was performed, because `old_str` is empty. Provide the text to replace.
    Error: File /memories/a/b would be 102401 bytes, over the limit of 102400 bytes per file. Nothing was changed. Shorten it, or split it into several files.
    Error: File /memories/a/b would contain a NUL character, which a memory cannot hold. Nothing was changed. Send the text without it.
    Error: The memory store would hold 2001 files, over its limit of 2000 files. Nothing was changed. Delete files that are no longer needed, or add to an existing one.
    Error: The memory store would hold 11 bytes, over its limit of 10 bytes. Nothing was changed. Delete or shorten files that are no longer needed.
    Error: All memory stores together would hold 11 bytes, over their limit of 10 bytes. Nothing was changed. Delete or shorten files that are no longer needed.
    Error: The memory store is archived and read-only. Nothing was changed.
    Error: /memories/a/b was repeatedly changed by others at the same time. Nothing was changed by this call. View it, then try again.
    ");
}

#[test]
fn concealed_error_hides_the_existing_content() {
    let path = || "/memories/a/b".to_owned();
    let hash = crate::ContentHash::of(b"secret");
    let current = Some(hash);
    for error in [
        ToolError::Exists { path: path(), current },
        ToolError::ContentDiffers { path: path(), current },
        ToolError::PathBelowBreaksRule { path: Some("/memories/hidden".to_owned()), rule: PathError::Format },
        ToolError::FileTooLarge { path: path(), size_bytes: Some(777), limit_bytes: 10 },
        ToolError::StoreFull { size_bytes: Some(777), limit_bytes: 10 },
        ToolError::TenantFull { size_bytes: Some(777), limit_bytes: 10 },
    ] {
        let secrets = ["777".to_owned(), "hidden".to_owned(), hash.to_string()];
        let tells = |text: &str| secrets.iter().any(|secret| text.contains(secret));
        assert!(tells(&error.to_string()), "{error}");
        let concealed = error.concealed().to_string();
        assert!(!tells(&concealed) && concealed.starts_with("Error: "), "{concealed}");
    }
}
