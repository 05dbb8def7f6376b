//! The parts of an OpenAPI document that the page shows.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Number;

use super::literal::Literal;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Document {
    pub(super) info: Info,
    pub(super) tags: Vec<Tag>,
    /// Operations by path, then by method.
    paths: Ordered<Ordered<Operation>>,
    pub(super) components: Components,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Info {
    pub(super) title: String,
    pub(super) version: String,
    pub(super) description: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Tag {
    pub(super) name: String,
    pub(super) description: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Components {
    pub(super) schemas: Ordered<Schema>,
    responses: Ordered<Answer>,
    parameters: Ordered<Parameter>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Operation {
    #[serde(rename = "operationId")]
    pub(super) id: String,
    tags: Vec<String>,
    pub(super) summary: String,
    pub(super) description: String,
    parameters: Vec<Parameter>,
    pub(super) request_body: Option<Body>,
    /// Responses by status.
    responses: Ordered<Answer>,
    /// Accepted credentials, by the name of their scheme.
    security: Vec<Ordered<Literal>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Parameter {
    #[serde(rename = "$ref")]
    reference: Option<String>,
    pub(super) name: String,
    #[serde(rename = "in")]
    pub(super) place: String,
    pub(super) description: String,
    pub(super) required: bool,
    pub(super) schema: Schema,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Body {
    pub(super) description: String,
    pub(super) required: bool,
    content: Ordered<Media>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Answer {
    #[serde(rename = "$ref")]
    reference: Option<String>,
    pub(super) description: String,
    content: Ordered<Media>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Media {
    pub(super) schema: Schema,
    pub(super) example: Option<Literal>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Schema {
    #[serde(rename = "$ref")]
    pub(super) reference: Option<String>,
    #[serde(rename = "type")]
    kinds: Option<Kinds>,
    pub(super) title: Option<String>,
    pub(super) description: String,
    pub(super) format: String,
    #[serde(rename = "enum")]
    pub(super) words: Vec<Literal>,
    pub(super) examples: Vec<Literal>,
    #[serde(rename = "default")]
    pub(super) default_value: Option<Literal>,
    pub(super) pattern: Option<String>,
    pub(super) minimum: Option<Number>,
    pub(super) maximum: Option<Number>,
    pub(super) min_length: Option<u64>,
    pub(super) max_length: Option<u64>,
    pub(super) min_items: Option<u64>,
    pub(super) max_items: Option<u64>,
    pub(super) max_properties: Option<u64>,
    pub(super) properties: Ordered<Schema>,
    pub(super) required: Vec<String>,
    pub(super) items: Option<Box<Schema>>,
    pub(super) one_of: Vec<Schema>,
    pub(super) any_of: Vec<Schema>,
    pub(super) all_of: Vec<Schema>,
    pub(super) additional_properties: Option<Additional>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Kinds {
    One(String),
    Several(Vec<String>),
}

/// Whether an object may have other fields, and their schema.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Additional {
    Allowed(#[expect(dead_code, reason = "only a schema says something to a reader")] bool),
    Of(Box<Schema>),
}

/// A JSON object with its fields in the order of the text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ordered<T>(pub(super) Vec<(String, T)>);

impl<T> Default for Ordered<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Ordered<T> {
    pub(super) fn get(&self, name: &str) -> Option<&T> {
        self.iter().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Ordered<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = Vec<(String, T)>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(Fields(PhantomData)).map(Self)
    }
}

impl Document {
    /// The operations of a section, each with its method and path.
    pub(super) fn operations<'a>(
        &'a self,
        section: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str, &'a Operation)> {
        let all = self
            .paths
            .iter()
            .flat_map(|(path, item)| item.iter().map(move |(method, operation)| (method, path, operation)));
        all.filter(move |(_, _, operation)| operation.tags.iter().any(|tag| tag == section))
    }

    /// References are resolved.
    pub(super) fn parameters<'a>(&'a self, operation: &'a Operation) -> Vec<&'a Parameter> {
        let all = operation.parameters.iter();
        let resolved = all.filter_map(|parameter| match &parameter.reference {
            Some(place) => self.components.parameters.get(last_of(place)),
            None => Some(parameter),
        });
        resolved.collect()
    }

    /// Responses with their statuses; references are resolved.
    pub(super) fn answers<'a>(&'a self, operation: &'a Operation) -> Vec<(&'a str, &'a Answer)> {
        let all = operation.responses.iter();
        let resolved = all.filter_map(|(status, answer)| match &answer.reference {
            Some(place) => Some((status, self.components.responses.get(last_of(place))?)),
            None => Some((status, answer)),
        });
        resolved.collect()
    }

    /// The responses that operations share, by status.
    pub(super) fn shared_answers(&self) -> BTreeMap<&str, &Answer> {
        let operations = self.paths.iter().flat_map(|(_, item)| item.iter());
        let answers = operations.flat_map(|(_, operation)| operation.responses.iter());
        let shared = answers.filter_map(|(status, answer)| {
            let place = answer.reference.as_deref()?;
            Some((status, self.components.responses.get(last_of(place))?))
        });
        shared.collect()
    }

    /// The schema itself, or the component that the schema refers to.
    pub(super) fn resolved<'a>(&'a self, schema: &'a Schema) -> &'a Schema {
        let found = schema.component().and_then(|name| self.components.schemas.get(name));
        found.unwrap_or(schema)
    }
}

impl Operation {
    /// Whether a request needs the credential of this scheme.
    pub(super) fn accepts(&self, scheme: &str) -> bool {
        self.security.iter().any(|one| one.get(scheme).is_some())
    }
}

impl Body {
    pub(super) fn media(&self) -> Option<&Media> {
        self.content.iter().next().map(|(_, media)| media)
    }
}

impl Answer {
    /// Media type and schema of the content, if there is content.
    pub(super) fn media(&self) -> Option<(&str, &Media)> {
        self.content.iter().next()
    }
}

impl Schema {
    /// Name of the component that the schema refers to.
    pub(super) fn component(&self) -> Option<&str> {
        self.reference.as_deref().map(last_of)
    }

    /// Types of the value, without null.
    pub(super) fn kinds(&self) -> Vec<&str> {
        let all: Vec<&str> = match &self.kinds {
            None => Vec::new(),
            Some(Kinds::One(kind)) => vec![kind.as_str()],
            Some(Kinds::Several(kinds)) => kinds.iter().map(String::as_str).collect(),
        };
        all.into_iter().filter(|kind| *kind != "null").collect()
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(&self.kinds, Some(Kinds::One(kind)) if kind == "null")
    }

    pub(super) fn is_nullable(&self) -> bool {
        let has_null =
            matches!(&self.kinds, Some(Kinds::Several(kinds)) if kinds.iter().any(|kind| kind == "null"));
        has_null || self.choices().any(Self::is_null)
    }

    /// Alternative schemas of the value.
    pub(super) fn choices(&self) -> impl Iterator<Item = &Self> {
        self.one_of.iter().chain(&self.any_of)
    }

    /// The only schema that a value other than null may have, or the schema itself.
    pub(super) fn without_null(&self) -> &Self {
        let mut others = self.choices().filter(|choice| !choice.is_null());
        match (others.next(), others.next()) {
            (Some(only), None) => only,
            _ => self,
        }
    }
}

fn last_of(place: &str) -> &str {
    place.rsplit('/').next().unwrap_or_default()
}
