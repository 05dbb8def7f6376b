//! `sensitive_data.rules`: a list of tables, in a file or as the text of a variable.

use config::{Map, Value, ValueKind};
use keepsake_core::sensitive::{CustomRule, Scanner};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What the value must be, for messages.
const FORM: &str = "must be a list such as [{ kind = \"employee_id\", pattern = \"EMP-[0-9]{6}\" }]";

/// The scanner with the operator's rules.
///
/// A variable gives the list as TOML text.
pub(super) fn scanner(value: &ValueKind) -> Result<Scanner, String> {
    Scanner::new(&rules(value)?).map_err(|error| {
        let name = format!("has a {} that {}", error.field, error.rule);
        format!("{name} (rule {} of the list)", error.position + 1)
    })
}

/// The list as TOML, where it is one.
pub(super) fn shown(value: &ValueKind) -> Result<String, String> {
    let table = |rule: CustomRule| {
        let text = |text: String| toml::Value::from(text);
        toml::Value::Table(toml::Table::from_iter([
            ("kind".to_owned(), text(rule.kind)),
            ("pattern".to_owned(), text(rule.pattern)),
        ]))
    };
    let rules: Vec<_> = rules(value)?.into_iter().map(table).collect();
    Ok(toml::Value::Array(rules).to_string())
}

fn rules(value: &ValueKind) -> Result<Vec<CustomRule>, String> {
    match value {
        ValueKind::Array(rules) => rules
            .iter()
            .enumerate()
            .map(|(position, rule)| read(position, rule))
            .collect(),
        ValueKind::String(text) => {
            let document = format!("rules = {text}");
            let table = DeTable::parse(&document).map_err(|_| FORM.to_owned())?;
            match table.get_ref().get("rules").map(value_kind) {
                Some(ValueKind::Array(list)) => rules(&ValueKind::Array(list)),
                _ => Err(FORM.to_owned()),
            }
        }
        _ => Err(FORM.to_owned()),
    }
}

fn read(position: usize, rule: &Value) -> Result<CustomRule, String> {
    let place = format!("rule {} of the list", position + 1);
    let ValueKind::Table(fields) = &rule.kind else {
        return Err(FORM.to_owned());
    };
    if let Some(unknown) = fields
        .keys()
        .find(|name| !["kind", "pattern"].contains(&name.as_str()))
    {
        return Err(format!(
            "has an unknown key {unknown:?} ({place}): a rule has kind and pattern"
        ));
    }
    let field = |name: &str| match fields.get(name).map(|value| &value.kind) {
        Some(ValueKind::String(text)) => Ok(text.clone()),
        Some(_) => Err(format!("has a {name} that must be text ({place})")),
        None => Err(format!("lacks a {name} ({place})")),
    };
    Ok(CustomRule {
        kind: field("kind")?,
        pattern: field("pattern")?,
    })
}

/// A value of a TOML document, whatever it is.
pub(super) fn value_kind(value: &Spanned<DeValue<'_>>) -> ValueKind {
    let nested = |value: &Spanned<DeValue<'_>>| Value::new(None, value_kind(value));
    match value.get_ref() {
        DeValue::String(text) => ValueKind::String(text.to_string()),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).map_or(ValueKind::Nil, ValueKind::I64)
        }
        DeValue::Float(number) => number.as_str().parse().map_or(ValueKind::Nil, ValueKind::Float),
        DeValue::Boolean(truth) => ValueKind::Boolean(*truth),
        DeValue::Datetime(_) => ValueKind::Nil,
        DeValue::Array(values) => ValueKind::Array(values.iter().map(nested).collect()),
        DeValue::Table(table) => {
            let fields = table
                .iter()
                .map(|(name, value)| (name.get_ref().to_string(), nested(value)));
            ValueKind::Table(fields.collect::<Map<_, _>>())
        }
    }
}
