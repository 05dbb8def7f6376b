//! The TOML file: its keys with the lines they are on.

use std::path::Path;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Value};

use crate::reader::{ConfigValue, Reader};
use crate::sections::{CONSOLE, EMBEDDINGS, ISSUERS};

/// Reads a file into `reader`, or reports why it cannot be read.
pub(crate) fn read(path: &Path, reader: &mut Reader) {
    let name = path.display();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => return reader.unreadable_file(format!("{name} cannot be read: {error}")),
    };
    let origin = |offset: usize| {
        let before = text.get(..offset).unwrap_or(&text);
        format!("{name}, line {}", before.matches('\n').count() + 1)
    };
    match DeTable::parse(&text) {
        Ok(table) => add_table("", table.get_ref(), &origin, reader),
        Err(error) => {
            // Only the message: the error's `Display` quotes the line.
            let place = origin(error.span().map_or(0, |span| span.start));
            reader.unreadable_file(format!("{place} is not valid TOML: {}", error.message()));
        }
    }
}

fn add_table(prefix: &str, table: &DeTable<'_>, origin: &impl Fn(usize) -> String, reader: &mut Reader) {
    for (key, value) in table {
        let name = format!("{prefix}{}", quoted_if_needed(key.get_ref()));
        let found = ConfigValue { value: to_value(value), origin: origin(key.span().start) };
        reader.file.insert(name.clone(), found);
        match value.get_ref() {
            DeValue::Table(section)
                if prefix.is_empty() || name == EMBEDDINGS || is_console(prefix, &name) =>
            {
                add_table(&format!("{name}."), section, origin, reader);
            }
            DeValue::Array(tables) if name == ISSUERS => {
                for (position, table) in tables.iter().enumerate() {
                    if let DeValue::Table(table) = table.get_ref() {
                        add_table(&format!("{name}[{position}]."), table, origin, reader);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Whether the name is that of the table `console` of an issuer, whose keys are read one by one.
fn is_console(prefix: &str, name: &str) -> bool {
    prefix.starts_with(ISSUERS) && name.strip_prefix(prefix) == Some(CONSOLE)
}

/// A key as it is written in TOML, so that `"a.b"` differs from `a.b`.
fn quoted_if_needed(key: &str) -> String {
    let is_bare_letter = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
    if !key.is_empty() && key.chars().all(is_bare_letter) { key.to_owned() } else { format!("{key:?}") }
}

fn to_value(value: &Spanned<DeValue<'_>>) -> Value {
    // A number that does not fit becomes an empty list, which no key takes.
    Value::deserialize(value.clone().into_deserializer()).unwrap_or(Value::Array(Vec::new()))
}
