//! Values in the syntax of JSON, Python and TypeScript.

use super::document::Node;

/// A longer list or object is written on several lines.
const MAX_LINE_BYTES: usize = 60;

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

impl Syntax {
    /// Writes a value as source text; `outer` is the indentation of its first line.
    pub(super) fn written(&self, value: &Node, outer: &str) -> String {
        let (open, parts, close) = match value {
            Node::Null => return self.null.to_owned(),
            Node::Boolean(value) => return self.booleans[usize::from(*value)].to_owned(),
            Node::Number(number) => return number.to_string(),
            Node::Text(text) => return quoted(text),
            Node::List(items) => ('[', self.items(items, outer), ']'),
            Node::Object(_) => ('{', self.fields(value, outer), '}'),
        };
        let length: usize = parts.iter().map(|part| part.len() + ", ".len()).sum();
        if parts.is_empty() {
            return format!("{open}{close}");
        }
        let padding = if open == '{' { self.padding } else { "" };
        let is_flat = !has_nested_object(value) && !parts.iter().any(|part| part.contains('\n'));
        if is_flat && length <= MAX_LINE_BYTES && !outer.is_empty() {
            return format!("{open}{padding}{}{padding}{close}", parts.join(", "));
        }
        let (inner, last_comma) = (self.inner(outer), self.last_comma);
        let lines = parts.join(&format!(",\n{inner}"));
        format!("{open}\n{inner}{lines}{last_comma}\n{outer}{close}")
    }

    fn inner(&self, outer: &str) -> String {
        format!("{outer}{}", self.indentation)
    }

    /// The fields of an object, each as source text.
    fn fields(&self, object: &Node, outer: &str) -> Vec<String> {
        let inner = self.inner(outer);
        let field = |(name, value): (&str, &Node)| {
            let name = if self.quotes_names || !is_identifier(name) { quoted(name) } else { name.to_owned() };
            format!("{name}: {}", self.written(value, &inner))
        };
        object.fields().map(field).collect()
    }

    fn items(&self, items: &[Node], outer: &str) -> Vec<String> {
        let inner = self.inner(outer);
        items.iter().map(|item| self.written(item, &inner)).collect()
    }
}

fn has_nested_object(value: &Node) -> bool {
    let is_object = |value: &Node| matches!(value, Node::Object(_));
    value.items().iter().any(is_object) || value.fields().any(|(_, value)| is_object(value))
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
