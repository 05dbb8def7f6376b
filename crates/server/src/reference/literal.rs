//! Values in the syntax of JSON, Python and TypeScript.

use serde::Deserialize;
use serde_json::Number;

use super::document::Ordered;

/// A longer list or object is written on several lines.
const MAX_LINE_BYTES: usize = 60;

/// A JSON value; objects keep the order of their fields.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub(super) enum Literal {
    Null,
    Boolean(bool),
    Number(Number),
    Text(String),
    List(Vec<Self>),
    Object(Ordered<Self>),
}

#[derive(Debug)]
pub(super) struct Syntax {
    null: &'static str,
    booleans: [&'static str; 2],
    /// Whether names of fields are quoted where the language does not need it.
    quotes_names: bool,
    /// Follows the last of several lines.
    last_comma: &'static str,
    /// Stands between a brace and the field beside it.
    padding: &'static str,
    /// Indents one level.
    indentation: &'static str,
}

pub(super) const JSON: Syntax = Syntax {
    null: "null",
    booleans: ["false", "true"],
    quotes_names: true,
    last_comma: "",
    padding: "",
    indentation: "  ",
};

pub(super) const PYTHON: Syntax = Syntax {
    null: "None",
    booleans: ["False", "True"],
    quotes_names: true,
    last_comma: ",",
    padding: "",
    indentation: "    ",
};

pub(super) const TYPESCRIPT: Syntax = Syntax {
    null: "null",
    booleans: ["false", "true"],
    quotes_names: false,
    last_comma: ",",
    padding: " ",
    indentation: "  ",
};

impl Literal {
    pub(super) fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    /// Writes the value as source text; `outer` is the indentation of its first line.
    pub(super) fn written(&self, syntax: &Syntax, outer: &str) -> String {
        let (open, parts, close) = match self {
            Self::Null => return syntax.null.to_owned(),
            Self::Boolean(value) => return syntax.booleans[usize::from(*value)].to_owned(),
            Self::Number(number) => return number.to_string(),
            Self::Text(text) => return quoted(text),
            Self::List(items) => ('[', syntax.items(items, outer), ']'),
            Self::Object(fields) => ('{', syntax.fields(fields, outer), '}'),
        };
        let length: usize = parts.iter().map(|part| part.len() + ", ".len()).sum();
        if parts.is_empty() {
            return format!("{open}{close}");
        }
        let padding = if open == '{' { syntax.padding } else { "" };
        let is_flat = !self.has_nested_object() && !parts.iter().any(|part| part.contains('\n'));
        if is_flat && length <= MAX_LINE_BYTES && !outer.is_empty() {
            return format!("{open}{padding}{}{padding}{close}", parts.join(", "));
        }
        let (inner, last_comma) = (syntax.inner(outer), syntax.last_comma);
        let lines = parts.join(&format!(",\n{inner}"));
        format!("{open}\n{inner}{lines}{last_comma}\n{outer}{close}")
    }

    fn has_nested_object(&self) -> bool {
        let has = |value: &Self| matches!(value, Self::Object(_));
        match self {
            Self::List(items) => items.iter().any(has),
            Self::Object(fields) => fields.iter().any(|(_, value)| has(value)),
            _ => false,
        }
    }
}

impl Syntax {
    pub(super) fn inner(&self, outer: &str) -> String {
        format!("{outer}{}", self.indentation)
    }

    /// The fields of an object, each as source text.
    pub(super) fn fields(&self, fields: &Ordered<Literal>, outer: &str) -> Vec<String> {
        let inner = self.inner(outer);
        let field = |(name, value): (&str, &Literal)| {
            let name = if self.quotes_names || !is_identifier(name) { quoted(name) } else { name.to_owned() };
            format!("{name}: {}", value.written(self, &inner))
        };
        fields.iter().map(field).collect()
    }

    fn items(&self, items: &[Literal], outer: &str) -> Vec<String> {
        let inner = self.inner(outer);
        items.iter().map(|item| item.written(self, &inner)).collect()
    }
}

/// Text in double quotes; JSON's escapes mean the same in all three languages.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

pub(super) fn is_identifier(name: &str) -> bool {
    let is_letter = |character: char| character.is_ascii_alphabetic() || character == '_';
    name.starts_with(is_letter)
        && name.chars().all(|character| is_letter(character) || character.is_ascii_digit())
}
