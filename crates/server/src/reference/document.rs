//! The OpenAPI document, as the page reads it.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::Number;

pub(super) struct Document(Node);

/// A JSON value; objects keep the order of their fields.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(untagged)]
pub(super) enum Node {
    #[default]
    Null,
    Boolean(bool),
    Number(Number),
    Text(String),
    List(Vec<Self>),
    Object(IndexMap<String, Self>),
}

impl Document {
    pub(super) fn parse(text: &str) -> Self {
        Self(serde_json::from_str(text).unwrap_or_default())
    }

    pub(super) fn info(&self) -> &Node {
        self.0.at("info")
    }

    pub(super) fn tags(&self) -> &[Node] {
        self.0.at("tags").items()
    }

    pub(super) fn schemas(&self) -> &Node {
        self.0.at("components").at("schemas")
    }

    /// All operations, each with its method and path.
    fn all_operations(&self) -> impl Iterator<Item = (&str, &str, &Node)> {
        let paths = self.0.at("paths").fields();
        paths.flat_map(|(path, item)| item.fields().map(move |(method, operation)| (method, path, operation)))
    }

    /// The operations of a section, each with its method and path.
    pub(super) fn operations(&self, section: &str) -> impl Iterator<Item = (&str, &str, &Node)> {
        self.all_operations().filter(move |(_, _, operation)| operation.at("tags").has(section))
    }

    /// References are resolved.
    pub(super) fn parameters<'a>(&'a self, operation: &'a Node) -> Vec<&'a Node> {
        let all = operation.at("parameters").items().iter();
        all.map(|parameter| self.resolved(parameter)).collect()
    }

    /// Responses with their statuses; references are resolved.
    pub(super) fn answers<'a>(&'a self, operation: &'a Node) -> Vec<(&'a str, &'a Node)> {
        let all = operation.at("responses").fields();
        all.map(|(status, answer)| (status, self.resolved(answer))).collect()
    }

    /// The responses that operations share, by status.
    pub(super) fn shared_answers(&self) -> BTreeMap<&str, &Node> {
        let answers = self.all_operations().flat_map(|(_, _, operation)| operation.at("responses").fields());
        let shared = answers.filter(|(_, answer)| answer.component().is_some());
        shared.map(|(status, answer)| (status, self.resolved(answer))).collect()
    }

    /// The value itself, or the component that it refers to.
    pub(super) fn resolved<'a>(&'a self, value: &'a Node) -> &'a Node {
        let place = value.text_of("$ref").strip_prefix("#/");
        place.map_or(value, |place| place.split('/').fold(&self.0, |value, name| value.at(name)))
    }
}

impl Node {
    pub(super) fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(fields) => fields.get(name),
            _ => None,
        }
    }

    /// A field of an object; null if there is none.
    pub(super) fn at(&self, name: &str) -> &Self {
        self.get(name).unwrap_or(&Self::Null)
    }

    /// The text of a field; empty if there is none.
    pub(super) fn text_of(&self, name: &str) -> &str {
        self.at(name).as_text()
    }

    pub(super) fn is_true(&self, name: &str) -> bool {
        *self.at(name) == Self::Boolean(true)
    }

    pub(super) fn as_text(&self) -> &str {
        if let Self::Text(text) = self { text } else { "" }
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = (&str, &Self)> {
        let fields = if let Self::Object(fields) = self { Some(fields) } else { None };
        fields.into_iter().flatten().map(|(name, value)| (name.as_str(), value))
    }

    pub(super) fn items(&self) -> &[Self] {
        if let Self::List(items) = self { items } else { &[] }
    }

    /// Whether it is a list with this text.
    pub(super) fn has(&self, text: &str) -> bool {
        self.items().iter().any(|item| item.as_text() == text)
    }
}

/// A part of the document.
impl Node {
    /// Name of the component that it refers to.
    pub(super) fn component(&self) -> Option<&str> {
        self.text_of("$ref").rsplit('/').next().filter(|name| !name.is_empty())
    }

    /// Media type, schema and example of the content of a body or a response.
    pub(super) fn media(&self) -> Option<(&str, &Self)> {
        self.at("content").fields().next()
    }
}

/// A schema.
impl Node {
    /// Types of the value, without null.
    pub(super) fn kinds(&self) -> Vec<&str> {
        let kinds = match self.at("type") {
            Self::List(kinds) => kinds.as_slice(),
            kind => std::slice::from_ref(kind),
        };
        kinds.iter().map(Self::as_text).filter(|kind| !["", "null"].contains(kind)).collect()
    }

    /// Whether the value is an object with named fields.
    pub(super) fn has_fields(&self) -> bool {
        self.at("properties").fields().next().is_some()
    }

    fn is_of_null(&self) -> bool {
        self.text_of("type") == "null"
    }

    pub(super) fn is_nullable(&self) -> bool {
        self.at("type").has("null") || self.choices().any(Self::is_of_null)
    }

    /// Alternative schemas of the value.
    pub(super) fn choices(&self) -> impl Iterator<Item = &Self> {
        self.at("oneOf").items().iter().chain(self.at("anyOf").items())
    }

    /// The only schema that a value other than null may have, or the schema itself.
    pub(super) fn without_null(&self) -> &Self {
        let mut others = self.choices().filter(|choice| !choice.is_of_null());
        match (others.next(), others.next()) {
            (Some(only), None) => only,
            _ => self,
        }
    }
}
