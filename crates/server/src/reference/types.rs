//! Types and rules of values, in words.

use super::document::{Document, Node};
use super::html::Html;
use super::syntax::JSON;

/// A word, or a link to the component.
pub(super) fn type_of(document: &Document, schema: &Node) -> Html {
    let or_null = if schema.is_nullable() { " or null" } else { "" };
    let schema = schema.without_null();
    if let Some(name) = schema.component() {
        return Html::link(name, &name_of(document, name)).before(or_null);
    }
    let choices: Vec<_> = schema.choices().map(|choice| type_of(document, choice)).collect();
    if !choices.is_empty() {
        return Html::join(&choices, " or ").before(or_null);
    }
    let words: Vec<_> = schema.kinds().into_iter().map(word_of).collect();
    match (schema.get("items"), words.as_slice()) {
        (Some(items), _) => type_of(document, items).after("list of ").before(or_null),
        (None, []) if !schema.has_fields() && schema.at("allOf").items().is_empty() => {
            Html::prose("anything")
        }
        (None, []) => Html::prose("object").before(or_null),
        (None, words) => Html::prose(&words.join(" or ")).before(or_null),
    }
}

/// The type of a simple component, or else its name.
fn name_of(document: &Document, name: &str) -> String {
    match document.schemas().at(name).kinds().as_slice() {
        [kind] if !["object", "array"].contains(kind) => (*kind).to_owned(),
        _ => name.to_owned(),
    }
}

fn word_of(kind: &str) -> &str {
    if kind == "array" { "list" } else { kind }
}

/// The rules for a value in addition to the value's description. A component without fields states
/// its rules in the component's description.
pub(super) fn rules_of(document: &Document, schema: &Node) -> Vec<Html> {
    let inner = schema.without_null();
    let target = document.resolved(inner);
    let mut rules = Vec::new();
    let is_described = [schema, inner].iter().any(|schema| !schema.text_of("description").is_empty());
    if inner.component().is_some() && !target.has_fields() && is_described {
        rules.push(Html::prose(target.text_of("description")));
    }
    rules.extend(words(target));
    if inner.component().is_none() {
        rules.extend(limits(inner));
    }
    if let Some(value) = schema.get("default") {
        rules.push(Html::code(&JSON.written(value, " ")).after("Default: "));
    }
    rules.retain(|rule| !rule.is_empty());
    rules
}

/// The words of which the value is one.
fn words(schema: &Node) -> Option<Html> {
    let code = |word: &Node| match word {
        Node::Text(text) => Html::code(text),
        other => Html::code(&JSON.written(other, " ")),
    };
    let words: Vec<_> = schema.at("enum").items().iter().map(code).collect();
    match words.as_slice() {
        [] => None,
        [only] => Some(only.clone().after("Always ")),
        several => Some(Html::join(several, ", ").after("One of ")),
    }
}

/// Rules for lengths, numbers and patterns.
fn limits(schema: &Node) -> Vec<Html> {
    let bound = |name| schema.get(name).map(|bound| JSON.written(bound, " "));
    let ranges = [
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " items"),
        // The page shows no minimum of fields.
        ("", "maxProperties", " fields"),
    ];
    let ranges = ranges.into_iter().filter_map(|(least, most, unit)| match (bound(least), bound(most)) {
        (None, None) => None,
        (Some(least), None) => Some(format!("At least {least}{unit}")),
        (None, Some(most)) => Some(format!("At most {most}{unit}")),
        (Some(least), Some(most)) => Some(format!("{least} to {most}{unit}")),
    });
    let mut rules: Vec<_> = ranges.map(|range| Html::prose(&range)).collect();
    if let Some(pattern) = schema.get("pattern") {
        rules.push(Html::code(pattern.as_text()).after("Pattern: "));
    }
    rules
}

/// The description of the field, or else of the component that the field refers to.
pub(super) fn description_of(document: &Document, schema: &Node) -> Html {
    let inner = schema.without_null();
    let target = document.resolved(inner);
    let all = [schema, inner, target].map(|schema| schema.text_of("description"));
    Html::prose(all.into_iter().find(|text| !text.is_empty()).unwrap_or_default())
}
