//! The fields of objects, as the page lists them.

use askama::Template;
use askama::filters::HtmlSafe;

use super::document::{Document, Node};
use super::html::Html;
use super::types::{description_of, rules_of, type_of};

/// Levels of objects inside objects that a list shows; deeper objects are links.
const MAX_DEPTH: usize = 3;

#[derive(Debug, Template)]
#[template(path = "reference/fields.html")]
pub(super) struct FieldList {
    /// Distinguishes this list from its alternatives.
    title: Html,
    description: Html,
    fields: Vec<Field>,
}

impl HtmlSafe for FieldList {}

#[derive(Debug)]
struct Field {
    name: String,
    kind: Html,
    /// The location of a parameter: `path`, `query` or `header`.
    place: String,
    is_required: bool,
    description: Html,
    rules: Vec<Html>,
    /// Fields of the value; several lists are alternatives.
    inside: Vec<FieldList>,
}

/// Whether a list also shows the fields of the components that its fields refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    Components,
    Inline,
}

pub(super) fn of_parameters(document: &Document, parameters: &[&Node]) -> FieldList {
    let field = |parameter: &&Node| Field {
        name: parameter.text_of("name").to_owned(),
        kind: type_of(document, parameter.at("schema")),
        place: parameter.text_of("in").to_owned(),
        is_required: parameter.is_true("required"),
        description: Html::prose(parameter.text_of("description")),
        rules: rules_of(document, parameter.at("schema")),
        inside: Vec::new(),
    };
    FieldList {
        title: Html::default(),
        description: Html::default(),
        fields: parameters.iter().map(field).collect(),
    }
}

/// Several lists are alternatives.
pub(super) fn of_schema(document: &Document, schema: &Node, depth: Depth) -> Vec<FieldList> {
    lists(document, schema, depth, 0)
}

fn lists(document: &Document, schema: &Node, depth: Depth, level: usize) -> Vec<FieldList> {
    let inner = schema.without_null();
    if level > MAX_DEPTH || (level > 0 && depth == Depth::Inline && inner.component().is_some()) {
        return Vec::new();
    }
    let schema = document.resolved(inner);
    if let Some(items) = schema.get("items") {
        return lists(document, items, depth, level + 1);
    }
    if schema.choices().any(|choice| is_object(document, choice)) {
        let choices = schema.choices().filter(|choice| is_object(document, choice));
        let lists = choices.map(|choice| list(document, choice, depth, level));
        return lists.collect();
    }
    if is_object(document, schema) {
        let list = list(document, schema, depth, level);
        let is_untitled = FieldList { title: Html::default(), description: Html::default(), ..list };
        return vec![is_untitled];
    }
    Vec::new()
}

/// Whether the value has fields to list.
fn is_object(document: &Document, schema: &Node) -> bool {
    let schema = document.resolved(schema);
    schema.has_fields() || schema.at("allOf").items().iter().any(|part| is_object(document, part))
}

fn list(document: &Document, schema: &Node, depth: Depth, level: usize) -> FieldList {
    let target = document.resolved(schema);
    let parts =
        std::iter::once(target).chain(target.at("allOf").items().iter().map(|part| document.resolved(part)));
    let fields = parts.flat_map(|part| {
        let named = part.at("properties").fields();
        named.map(move |(name, field)| Field {
            name: name.to_owned(),
            kind: type_of(document, field),
            place: String::new(),
            is_required: part.at("required").has(name),
            description: description_of(document, field),
            rules: rules_of(document, field),
            inside: lists(document, field, depth, level + 1),
        })
    });
    FieldList {
        title: title_of(target, schema),
        description: Html::prose(target.text_of("description")),
        fields: fields.collect(),
    }
}

/// The name of an alternative: its title, its `type`, or its component.
fn title_of(target: &Node, schema: &Node) -> Html {
    let word = match target.at("properties").at("type").at("enum").items() {
        [Node::Text(word)] => Some(Html::code(word)),
        _ => None,
    };
    let title = target.get("title").map(|title| Html::prose(title.as_text()));
    let component = schema.component().map(|name| Html::link(name, name));
    title.or(word).or(component).unwrap_or_default()
}
