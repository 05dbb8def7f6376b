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
        (
            json!({"command": "delete", "path": "/memories/b/"}),
            "Successfully deleted /memories/b",
        ),
        (
            json!({"command": "rename", "old_path": "/memories/a.md", "new_path": "/memories/b/"}),
            "Successfully renamed /memories/a.md to /memories/b",
        ),
    ] {
        assert_eq!(message(&input).as_deref(), Some(expected));
    }
}

#[test]
fn error_messages_of_the_protocol_are_exact() {
    let path = || "/memories/a".to_owned();
    for (error, text) in [
        (
            ToolError::NotFoundView { path: path() },
            "The path /memories/a does not exist. Please provide a valid path.",
        ),
        (
            ToolError::NotFoundEdit { path: path() },
            "Error: The path /memories/a does not exist. Please provide a valid path.",
        ),
        (
            ToolError::NotFound { path: path() },
            "Error: The path /memories/a does not exist",
        ),
        (
            ToolError::AlreadyExists { path: path() },
            "Error: File /memories/a already exists",
        ),
        (
            ToolError::DestinationExists { path: path() },
            "Error: The destination /memories/a already exists",
        ),
        (
            ToolError::CannotDeleteRoot,
            "Error: Cannot delete the /memories directory itself",
        ),
        (
            ToolError::CannotRenameRoot,
            "Error: Cannot rename the /memories directory itself",
        ),
        (
            ToolError::InvalidViewRange {
                start: 0,
                end: -2,
                lines: 7,
            },
            "Error: Invalid `view_range` parameter: [0, -2]. \
             It should be within the range of lines of the file: [1, 7]",
        ),
        (
            ToolError::TooManyLines { path: path() },
            "File /memories/a exceeds maximum line limit of 999,999 lines.",
        ),
        (
            ToolError::NoMatch {
                old_str: "x\ny".into(),
                path: path(),
            },
            "No replacement was performed, old_str `x\ny` did not appear verbatim in /memories/a.",
        ),
        (
            ToolError::ManyMatches {
                old_str: "x".into(),
                lines: vec![1, 3, 3],
            },
            "No replacement was performed. Multiple occurrences of old_str `x` in lines: 1, 3, 3. \
             Please ensure it is unique",
        ),
        (
            ToolError::InvalidInsertLine { line: -1, lines: 7 },
            "Error: Invalid `insert_line` parameter: -1. \
             It should be within the range of lines of the file: [0, 7]",
        ),
        (
            ToolError::Path(ToolPathError::OutsideMemories { path: "/x".into() }),
            "Error: Path must start with /memories, got: /x",
        ),
        (
            ToolError::Path(ToolPathError::Escapes {
                path: "/memories/..".into(),
            }),
            "Error: Path /memories/.. would escape /memories directory",
        ),
    ] {
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn own_error_messages_state_problem_and_remedy() {
    let path = || "/memories/a/b".to_owned();
    for (error, parts) in [
        (
            ToolError::ParentIsFile {
                path: path(),
                file: "/memories/a".into(),
            },
            vec!["/memories/a/b", "because /memories/a is a file"],
        ),
        (
            ToolError::IntoItself {
                from: "/memories/a".into(),
                to: path(),
            },
            vec!["rename /memories/a to /memories/a/b", "into itself"],
        ),
        (
            ToolError::PathBelowBreaksRule {
                path: Some(path()),
                rule: PathError::TooLong {
                    bytes: 1025,
                    limit: 1024,
                },
            },
            vec!["the new path of /memories/a/b is 1025 bytes long, over the limit of 1024 bytes"],
        ),
        (
            ToolError::EmptyOldStr,
            vec!["`old_str` is empty", "No replacement was performed"],
        ),
        (
            ToolError::FileTooLarge {
                path: path(),
                size_bytes: Some(102_401),
                limit_bytes: 102_400,
            },
            vec!["/memories/a/b", "102401 bytes", "102400 bytes", "Shorten it"],
        ),
        (ToolError::Nul { path: path() }, vec!["/memories/a/b", "NUL"]),
        (
            ToolError::TooManyMemories {
                count: 2001,
                limit: 2000,
            },
            vec!["2001 files", "2000 files", "Delete"],
        ),
        (
            ToolError::StoreFull {
                size_bytes: Some(11),
                limit_bytes: 10,
            },
            vec!["store would", "11 bytes", "10 bytes", "Delete or shorten"],
        ),
        (
            ToolError::TenantFull {
                size_bytes: Some(11),
                limit_bytes: 10,
            },
            vec!["All memory stores", "11 bytes", "10 bytes", "Delete or shorten"],
        ),
        (ToolError::Archived, vec!["archived"]),
        (
            ToolError::Conflict { path: path() },
            vec!["/memories/a/b", "Nothing was changed", "try again"],
        ),
    ] {
        let text = error.to_string();
        assert!(text.starts_with("Error: "), "{text}");
        for part in parts {
            assert!(text.contains(part), "{text} lacks {part}");
        }
    }
}

#[test]
fn concealed_error_hides_the_existing_content() {
    let path = || "/memories/a/b".to_owned();
    let hash = crate::ContentHash::of(b"secret");
    let current = Some(hash);
    for error in [
        ToolError::Exists {
            path: path(),
            current,
        },
        ToolError::ContentDiffers {
            path: path(),
            current,
        },
        ToolError::PathBelowBreaksRule {
            path: Some("/memories/hidden".to_owned()),
            rule: PathError::Format,
        },
        ToolError::FileTooLarge {
            path: path(),
            size_bytes: Some(777),
            limit_bytes: 10,
        },
        ToolError::StoreFull {
            size_bytes: Some(777),
            limit_bytes: 10,
        },
        ToolError::TenantFull {
            size_bytes: Some(777),
            limit_bytes: 10,
        },
    ] {
        let secrets = ["777".to_owned(), "hidden".to_owned(), hash.to_string()];
        let tells = |text: &str| secrets.iter().any(|secret| text.contains(secret));
        assert!(tells(&error.to_string()), "{error}");
        let concealed = error.concealed().to_string();
        assert!(
            !tells(&concealed) && concealed.starts_with("Error: "),
            "{concealed}"
        );
    }
}
