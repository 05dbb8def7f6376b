//! The OpenAPI document, as the page reads it.

use std::collections::BTreeMap;

use super::literal::Literal;

pub(super) struct Document(Literal);

impl Document {
    pub(super) fn parse(text: &str) -> Self {
        Self(serde_json::from_str(text).unwrap_or_default())
    }

    pub(super) fn info(&self) -> &Literal {
        self.0.at("info")
    }

    pub(super) fn tags(&self) -> &[Literal] {
        self.0.at("tags").items()
    }

    pub(super) fn schemas(&self) -> &Literal {
        self.0.at("components").at("schemas")
    }

    /// All operations, each with its method and path.
    fn all_operations(&self) -> impl Iterator<Item = (&str, &str, &Literal)> {
        let paths = self.0.at("paths").fields();
        paths.flat_map(|(path, item)| item.fields().map(move |(method, operation)| (method, path, operation)))
    }

    /// The operations of a section, each with its method and path.
    pub(super) fn operations(&self, section: &str) -> impl Iterator<Item = (&str, &str, &Literal)> {
        let is_of = move |operation: &Literal| operation.at("tags").has(section);
        self.all_operations().filter(move |(_, _, operation)| is_of(operation))
    }

    /// References are resolved.
    pub(super) fn parameters<'a>(&'a self, operation: &'a Literal) -> Vec<&'a Literal> {
        let all = operation.at("parameters").items().iter();
        all.map(|parameter| self.resolved(parameter)).collect()
    }

    /// Responses with their statuses; references are resolved.
    pub(super) fn answers<'a>(&'a self, operation: &'a Literal) -> Vec<(&'a str, &'a Literal)> {
        let all = operation.at("responses").fields();
        all.map(|(status, answer)| (status, self.resolved(answer))).collect()
    }

    /// The responses that operations share, by status.
    pub(super) fn shared_answers(&self) -> BTreeMap<&str, &Literal> {
        let answers = self.all_operations().flat_map(|(_, _, operation)| operation.at("responses").fields());
        let shared = answers.filter(|(_, answer)| answer.component().is_some());
        shared.map(|(status, answer)| (status, self.resolved(answer))).collect()
    }

    /// The value itself, or the component that it refers to.
    pub(super) fn resolved<'a>(&'a self, value: &'a Literal) -> &'a Literal {
        let place = value.text_of("$ref").strip_prefix("#/");
        place.map_or(value, |place| place.split('/').fold(&self.0, |value, name| value.at(name)))
    }
}

/// A part of the document.
impl Literal {
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
impl Literal {
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
