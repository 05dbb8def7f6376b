//! A commit's document as a row literal, which Postgres reads in a third of the time that it needs
//! to parse JSON and to look up each field.

use serde_json::Value;

/// How a field of the document is written.
enum Kind {
    /// Text, a number, a boolean or an id.
    Scalar,
    /// Bytes, which the JSON document has as hexadecimal digits.
    Bytes,
    List(&'static Self),
    Row(&'static [(&'static str, Self)]),
}

use Kind::{Bytes, List, Row, Scalar};

/// `commit_document`. The fields of each row are in the order of its type in `commit.sql`.
const DOCUMENT: &[(&str, Kind)] = &[
    ("now", Scalar),
    ("actor_type", Scalar),
    ("actor_id", Scalar),
    ("replica", Scalar),
    ("memory_limit", Scalar),
    ("byte_limit", Scalar),
    ("scope", Bytes),
    ("request", Bytes),
    ("since", Scalar),
    ("results", Scalar),
    ("guard_directory", Scalar),
    ("guard_files", Scalar),
    ("guard_path", Scalar),
    ("guard_version", Scalar),
    ("purge_epoch", Scalar),
    ("policy", Scalar),
    ("seq", Scalar),
    ("adds", Scalar),
    ("count_delta", Scalar),
    ("byte_delta", Scalar),
    ("version_bytes", Scalar),
    ("directories_may_go", Scalar),
    ("taken", List(&Scalar)),
    ("ancestors", List(&Scalar)),
    ("makes_room", List(&Scalar)),
    ("replaced", List(&DIRECTORY)),
    ("directories", List(&DIRECTORY)),
    ("touched", List(&Scalar)),
    ("changes", List(&CHANGE)),
    ("kept", List(&CHANGE)),
];

/// `commit_change`.
const CHANGE: Kind = Row(&[
    ("op", Scalar),
    ("memory", Scalar),
    ("expect", Scalar),
    ("revives", Scalar),
    ("undoes", Scalar),
    ("version", Scalar),
    ("path", Scalar),
    ("parent", Scalar),
    ("name", Scalar),
    ("blob", Scalar),
    ("size", Scalar),
    ("sha256", Bytes),
    ("first_line", Scalar),
    ("pinned", Scalar),
    ("expires", Scalar),
    ("content_from", Scalar),
    ("content_for", Scalar),
    ("analyser", Scalar),
    ("length", Scalar),
    ("terms_from", Scalar),
    ("terms_for", Scalar),
]);

/// `directory_change`.
const DIRECTORY: Kind = Row(&[
    ("path", Scalar),
    ("parent", Scalar),
    ("name", Scalar),
    ("files", Scalar),
    ("bytes", Scalar),
    ("children", Scalar),
]);

/// The literal of a `commit_document`.
pub(super) fn row_of(document: &Value) -> String {
    row(document, DOCUMENT)
}

fn row(object: &Value, fields: &[(&str, Kind)]) -> String {
    let mut literal = String::from("(");
    for (position, (name, kind)) in fields.iter().enumerate() {
        if position > 0 {
            literal.push(',');
        }
        if let Some(value) = value_of(&object[*name], kind) {
            quote(&value, &mut literal);
        }
    }
    literal.push(')');
    literal
}

/// `None`: the value is null. So is an empty list, for which the functions have one condition.
fn value_of(value: &Value, kind: &Kind) -> Option<String> {
    match (kind, value) {
        (_, Value::Null) => None,
        (Row(fields), object) => Some(row(object, fields)),
        (List(kind), Value::Array(values)) => list(values, kind),
        (Bytes, Value::String(hex)) => Some(format!("\\x{hex}")),
        (_, Value::String(text)) => Some(text.clone()),
        (_, value) => Some(value.to_string()),
    }
}

fn list(values: &[Value], kind: &Kind) -> Option<String> {
    let mut literal = String::new();
    for value in values.iter().filter_map(|value| value_of(value, kind)) {
        literal.push(if literal.is_empty() { '{' } else { ',' });
        quote(&value, &mut literal);
    }
    (!literal.is_empty()).then(|| literal + "}")
}

/// Rows and arrays have the same quotes. Without them, empty text would be null in a row, and the word null
/// in an array.
fn quote(value: &str, literal: &mut String) {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/_-.".contains(&byte);
    if !value.is_empty() && !value.eq_ignore_ascii_case("null") && value.bytes().all(is_plain) {
        literal.push_str(value);
        return;
    }
    literal.push('"');
    for character in value.chars() {
        if matches!(character, '"' | '\\') {
            literal.push('\\');
        }
        literal.push(character);
    }
    literal.push('"');
}
