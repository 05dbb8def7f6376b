//! Tests of the memory tool, one module for each part. They show what
//! `tests/conformance/memory_tool.json` does not.

use crate::{OverLimit, Quota};
use serde_json::{Value, json};

use super::*;

mod agent;
mod edit;
mod view;

fn at(text: &str) -> ToolPath {
    ToolPath::parse(text).unwrap()
}

#[test]
fn concealed_limit_hides_the_bytes_that_are_stored() {
    for quota in [Quota::BytesPerStore, Quota::BytesPerTenant] {
        let error = ToolError::OverLimit(OverLimit::new(quota, 777, 10));
        let told = error.to_string();
        let concealed = error.concealed().to_string();
        assert!(told.contains("777") && !concealed.contains("777"), "{told} {concealed}");
    }
    for quota in [Quota::BytesPerTenant, Quota::SessionBytesPerTenant] {
        let over = OverLimit::new(quota, 777, 10);
        let (told, concealed) = (over.to_string(), over.without_sums_of_tenant().to_string());
        assert!(told.contains("777") && !concealed.contains("777"), "{told} {concealed}");
    }
}

#[test]
fn number_without_fraction_is_an_integer_and_a_long_command_is_cut() {
    let parse = |input: &Value| Command::parse(input.as_object().unwrap(), &ToolRoot::Store);
    for (sent, read) in [
        (json!(2.0), Some(2)),
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
    assert!(parse(&json!({"command": "x".repeat(1_000_000)})).unwrap_err().to_string().len() < 400);
}
