//! Example values of schemas.

use indexmap::IndexMap;

use super::document::{Document, Node};
use super::syntax::JSON;

/// Levels of objects inside objects: a schema that contains itself must end.
const MAX_DEPTH: usize = 6;

const TIME: &str = "2026-07-22T09:30:00.000000Z";

/// The fields that an example object has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fields {
    /// The required fields; if there are none, the first field.
    Required,
    /// The fields that every answer has: the required fields; if there are none, all.
    Answered,
}

pub(super) fn request(document: &Document, schema: &Node) -> Node {
    value(document, schema, Fields::Required, 0)
}

pub(super) fn answer(document: &Document, schema: &Node) -> Node {
    value(document, schema, Fields::Answered, 0)
}

pub(super) fn parameter(document: &Document, schema: &Node) -> String {
    match value(document, schema, Fields::Required, 0) {
        Node::Text(text) => text,
        other => JSON.written(&other, " "),
    }
}

fn value(document: &Document, schema: &Node, wanted: Fields, depth: usize) -> Node {
    let nullable = schema.is_nullable();
    let schema = document.resolved(document.resolved(schema).without_null());
    if let Some(example) = schema.at("examples").items().first() {
        return example.clone();
    }
    if nullable || depth > MAX_DEPTH {
        return Node::Null;
    }
    if let Some(word) = schema.at("enum").items().first() {
        return word.clone();
    }
    if let Node::List(parts) = schema.at("allOf") {
        let parts = parts.iter().filter_map(|part| match value(document, part, wanted, depth) {
            Node::Object(fields) => Some(fields),
            _ => None,
        });
        return Node::Object(parts.flatten().collect());
    }
    if let Some(choice) = schema.choices().next() {
        return value(document, choice, wanted, depth);
    }
    of_kind(document, schema, wanted, depth)
}

fn of_kind(document: &Document, schema: &Node, wanted: Fields, depth: usize) -> Node {
    match schema.kinds().first().copied() {
        Some("string") if schema.text_of("format") == "date-time" => Node::text(TIME),
        Some("string") => Node::text("string"),
        Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or(Node::Number(0.into())),
        Some("boolean") => Node::Boolean(false),
        Some("array") => {
            let is_empty = *schema.at("maxItems") == Node::Number(0.into());
            let item = schema.get("items").filter(|_| !is_empty);
            let items = item.map(|item| value(document, item, wanted, depth + 1));
            Node::List(items.into_iter().collect())
        }
        _ => Node::Object(object(document, schema, wanted, depth)),
    }
}

fn object(document: &Document, schema: &Node, wanted: Fields, depth: usize) -> IndexMap<String, Node> {
    let required = schema.at("required");
    let is_wanted = |position: usize, name: &str| match wanted {
        Fields::Answered => required.items().is_empty() || required.has(name),
        Fields::Required if required.items().is_empty() => position == 0,
        Fields::Required => required.has(name),
    };
    let fields = schema.at("properties").fields().enumerate();
    let mut fields: IndexMap<_, _> = fields
        .filter(|(position, (name, _))| is_wanted(*position, name))
        .map(|(_, (name, field))| {
            // The only field of an example must not be null.
            let is_alone = wanted == Fields::Required && required.items().is_empty();
            let field = if is_alone { field.without_null() } else { field };
            (name.to_owned(), value(document, field, wanted, depth + 1))
        })
        .collect();
    if let (true, other @ Node::Object(_)) = (fields.is_empty(), schema.at("additionalProperties")) {
        fields.insert("name".to_owned(), value(document, other, wanted, depth + 1));
    }
    fields
}
