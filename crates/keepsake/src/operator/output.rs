//! Formats answers for a terminal.

use std::fmt::Write as _;

use serde_json::Value;

/// The fields of an object, one on each line, the id first. The fields of a
/// nested object follow its name, indented.
pub(super) fn fields(object: &Value) -> String {
    let mut text = String::new();
    write_fields(&mut text, object, 0);
    text
}

fn write_fields(text: &mut String, object: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    let mut fields: Vec<_> = object.as_object().into_iter().flatten().collect();
    fields.retain(|(name, _)| *name != "type");
    // Sorted, because the order in the answer is not specified.
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

/// A list as one row for each item, and the cursor of the next page.
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
