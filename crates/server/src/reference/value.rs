//! Example values of schemas.

use super::document::{Additional, Document, Ordered, Schema};
use super::literal::Literal;

/// Levels of objects inside objects: a schema that contains itself must end.
const MAX_DEPTH: usize = 6;

const TIME: &str = "2026-07-22T09:30:00.000000Z";

/// The fields that an example object has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fields {
    /// The required fields; if there are none, the first field.
    Required,
    All,
}

pub(super) fn request(document: &Document, schema: &Schema) -> Literal {
    value(document, schema, Fields::Required, 0)
}

pub(super) fn answer(document: &Document, schema: &Schema) -> Literal {
    value(document, schema, Fields::All, 0)
}

pub(super) fn parameter(document: &Document, schema: &Schema) -> String {
    match value(document, schema, Fields::Required, 0) {
        Literal::Text(text) => text,
        other => other.written(&super::literal::JSON, " "),
    }
}

fn value(document: &Document, schema: &Schema, wanted: Fields, depth: usize) -> Literal {
    let nullable = schema.is_nullable();
    let schema = document.resolved(document.resolved(schema).without_null());
    if let Some(example) = schema.examples.first() {
        return example.clone();
    }
    if nullable || depth > MAX_DEPTH {
        return Literal::Null;
    }
    if let Some(word) = schema.words.first() {
        return word.clone();
    }
    if !schema.all_of.is_empty() {
        let parts = schema.all_of.iter();
        return Literal::Object(Ordered(
            parts
                .filter_map(|part| match value(document, part, wanted, depth) {
                    Literal::Object(fields) => Some(fields.0),
                    _ => None,
                })
                .flatten()
                .collect(),
        ));
    }
    if let Some(choice) = schema.choices().next() {
        return value(document, choice, wanted, depth);
    }
    of_kind(document, schema, wanted, depth)
}

fn of_kind(document: &Document, schema: &Schema, wanted: Fields, depth: usize) -> Literal {
    match schema.kinds().first().copied() {
        Some("string") if schema.format == "date-time" => Literal::text(TIME),
        Some("string") => Literal::text("string"),
        Some("integer" | "number") => {
            let least = schema.minimum.clone().unwrap_or_else(|| 0.into());
            Literal::Number(least)
        }
        Some("boolean") => Literal::Boolean(false),
        Some("array") => {
            let item = schema.items.iter().filter(|_| schema.max_items != Some(0));
            let items = item.map(|item| value(document, item, wanted, depth + 1));
            Literal::List(items.collect())
        }
        _ => Literal::Object(object(document, schema, wanted, depth)),
    }
}

fn object(document: &Document, schema: &Schema, wanted: Fields, depth: usize) -> Ordered<Literal> {
    let is_wanted = |position: usize, name: &str| match wanted {
        Fields::All => true,
        Fields::Required if schema.required.is_empty() => position == 0,
        Fields::Required => schema.required.iter().any(|required| required == name),
    };
    let fields = schema.properties.iter().enumerate();
    let mut fields: Vec<_> = fields
        .filter(|(position, (name, _))| is_wanted(*position, name))
        .map(|(_, (name, field))| {
            // The only field of an example must not be null.
            let is_alone = wanted == Fields::Required && schema.required.is_empty();
            let field = if is_alone { field.without_null() } else { field };
            (name.to_owned(), value(document, field, wanted, depth + 1))
        })
        .collect();
    if let (true, Some(Additional::Of(other))) = (fields.is_empty(), &schema.additional_properties) {
        fields.push(("name".to_owned(), value(document, other, wanted, depth + 1)));
    }
    Ordered(fields)
}
