//! How answers look on a terminal.

use std::fmt::Write as _;

use serde_json::Value;

/// An object's fields, one a line, the id first; those of objects in it below
/// their name.
pub(super) fn fields(object: &Value) -> String {
    let mut text = String::new();
    write_fields(&mut text, object, 0);
    text
}

fn write_fields(text: &mut String, object: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    let mut fields: Vec<_> = object.as_object().into_iter().flatten().collect();
    fields.retain(|(name, _)| *name != "type");
    // In no order that anything else decides.
    fields.sort_by_key(|(name, _)| (*name != "id", *name));
    for (name, value) in fields {
        if value.is_object() {
            let _ = writeln!(text, "{indent}{name}:");
            write_fields(text, value, depth + 1);
        } else {
            let _ = writeln!(text, "{indent}{name}: {}", shown(value));
        }
    }
}

/// A list as rows of some of its items' fields, and where it goes on.
pub(super) fn rows(list: &Value, columns: &[&str]) -> String {
    let mut text = String::new();
    for item in list["data"].as_array().into_iter().flatten() {
        let row: Vec<_> = columns.iter().map(|column| shown(&item[column])).collect();
        let _ = writeln!(text, "{}", row.join("  "));
    }
    if let Some(next) = list["next_page"].as_str() {
        let _ = writeln!(text, "more with --page {next}");
    }
    text
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_lines_and_lists_are_rows() {
        let tenant =
            json!({"type": "tenant", "name": "n", "limits": {"bytes": 1}, "id": "a", "external_id": null});
        let lines = ["id: a", "external_id: -", "limits:", "  bytes: 1", "name: n", ""];
        assert_eq!(fields(&tenant), lines.join("\n"));
        let list = json!({"data": [{"id": "a", "scopes": ["x", "y"]}], "next_page": "page_1"});
        assert_eq!(
            rows(&list, &["id", "scopes"]),
            "a  x,y\nmore with --page page_1\n"
        );
    }
}
