//! Preconditions of changes.

use serde::{Deserialize, Serialize};
use utoipa::PartialSchema;
use utoipa::openapi::Type;
use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, OneOfBuilder};

use crate::ContentHash;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
pub enum CreatePrecondition {
    #[serde(rename = "not_exists")]
    NotExists {},
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Fields")]
pub enum Precondition {
    /// The memory's content has this hash.
    ContentSha256(ContentHash),
    /// No memory exists at the path; of an update, at its new path.
    NotExists,
}

/// A precondition before validation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    r#type: Kind,
    content_sha256: Option<String>,
}

#[derive(Debug, Deserialize)]
enum Kind {
    #[serde(rename = "content_sha256")]
    ContentSha256,
    #[serde(rename = "not_exists")]
    NotExists,
}

impl TryFrom<Fields> for Precondition {
    type Error = String;

    fn try_from(fields: Fields) -> Result<Self, String> {
        match (fields.r#type, fields.content_sha256) {
            (Kind::ContentSha256, Some(text)) => match text.parse() {
                Ok(hash) => Ok(Self::ContentSha256(hash)),
                Err(rule) => Err(format!("`content_sha256` {rule}")),
            },
            (Kind::ContentSha256, None) => Err("missing field `content_sha256`".to_owned()),
            (Kind::NotExists, None) => Ok(Self::NotExists),
            (Kind::NotExists, Some(_)) => Err("`content_sha256` does not go with `not_exists`".to_owned()),
        }
    }
}

fn described(name: &str, description: &str) -> ObjectBuilder {
    let named = ObjectBuilder::new().schema_type(Type::String).enum_values(Some([name]));
    ObjectBuilder::new()
        .description(Some(description))
        .property("type", named)
        .required("type")
        .additional_properties(Some(AdditionalProperties::FreeForm(false)))
}

fn precondition() -> OneOfBuilder {
    let content = described("content_sha256", "The memory's content has this hash.")
        .property("content_sha256", ContentHash::schema())
        .required("content_sha256");
    let free =
        described("not_exists", "No memory exists at the update's new path; otherwise nothing is changed.");
    OneOfBuilder::new().item(content).item(free)
}

crate::has_schema! {
    CreatePrecondition as "CreatePrecondition" => described("not_exists", "No memory exists at the path.");
    Precondition as "Precondition" => precondition();
}
