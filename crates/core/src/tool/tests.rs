//! Tests of the memory tool, one module for each part. They show what
//! `tests/conformance/memory_tool.json` does not.

use crate::{OverLimit, Quota};
use serde_json::{Value, json};

use super::*;
use crate::path::PathError;

mod agent;
mod edit;
mod view;

fn at(text: &str) -> ToolPath {
    ToolPath::parse(text).unwrap()
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
        ToolError::OverLimit(OverLimit::new(Quota::BytesPerStore, 777, 10)),
        ToolError::OverLimit(OverLimit::new(Quota::BytesPerTenant, 777, 10)),
    ] {
        let secrets = ["777".to_owned(), "hidden".to_owned(), hash.to_string()];
        let tells = |text: &str| secrets.iter().any(|secret| text.contains(secret));
        assert!(tells(&error.to_string()), "{error}");
        let concealed = error.concealed().to_string();
        assert!(!tells(&concealed) && concealed.starts_with("Error: "), "{concealed}");
    }
}

#[test]
fn number_without_fraction_is_an_integer_and_a_long_command_is_cut() {
    let parse = |input: &Value| Command::parse(input.as_object().unwrap(), &ToolRoot::Store);
    for (sent, read) in [
        (json!(2.0), Some(2)),
        (json!(-0.0), Some(0)),
        (json!(1e30), Some(i64::MAX)),
        (json!(-1e30), Some(i64::MIN)),
        (json!(u64::MAX), Some(i64::MAX)),
        (json!(" -1 "), Some(-1)),
        (json!("2.0"), Some(2)),
        (json!("0.5"), None),
        (json!("[2]"), None),
    ] {
        let input =
            json!({"command": "insert", "path": "/memories/a", "insert_line": sent, "insert_text": ""});
        let found = match parse(&input) {
            Ok(Command::Insert { insert_line, .. }) => Some(insert_line),
            _ => None,
        };
        assert_eq!(found, read, "{input}");
    }
    let long = parse(&json!({"command": "x".repeat(1_000_000)})).unwrap_err();
    assert!(long.to_string().len() < 400);
}
