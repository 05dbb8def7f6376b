//! Values in the syntax of JSON, Python and TypeScript.

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::Number;

/// A longer list or object is written on several lines.
const MAX_LINE_BYTES: usize = 60;

/// A JSON value; objects keep the order of their fields.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(untagged)]
pub(super) enum Literal {
    #[default]
    Null,
    Boolean(bool),
    Number(Number),
    Text(String),
    List(Vec<Self>),
    Object(IndexMap<String, Self>),
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

    /// Writes the value as source text; `outer` is the indentation of its first line.
    pub(super) fn written(&self, syntax: &Syntax, outer: &str) -> String {
        let (open, parts, close) = match self {
            Self::Null => return syntax.null.to_owned(),
            Self::Boolean(value) => return syntax.booleans[usize::from(*value)].to_owned(),
            Self::Number(number) => return number.to_string(),
            Self::Text(text) => return quoted(text),
            Self::List(items) => ('[', syntax.items(items, outer), ']'),
            Self::Object(_) => ('{', syntax.fields(self, outer), '}'),
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
        self.items().iter().any(has) || self.fields().any(|(_, value)| has(value))
    }
}

impl Syntax {
    fn inner(&self, outer: &str) -> String {
        format!("{outer}{}", self.indentation)
    }

    /// The fields of an object, each as source text.
    fn fields(&self, object: &Literal, outer: &str) -> Vec<String> {
        let inner = self.inner(outer);
        let field = |(name, value): (&str, &Literal)| {
            let name = if self.quotes_names || !is_identifier(name) { quoted(name) } else { name.to_owned() };
            format!("{name}: {}", value.written(self, &inner))
        };
        object.fields().map(field).collect()
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
