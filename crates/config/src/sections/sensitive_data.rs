//! `[sensitive_data]`: one list of tables, which a variable holds as TOML text.

use keepsake_core::sensitive::{CustomRule, Scanner};
use toml::{Table, Value};

use crate::reader::{Reader, quoted};

const FORM: &str = "must be a list such as [{ kind = \"employee_id\", pattern = \"EMP-[0-9]{6}\" }]";

pub(super) fn read(reader: &mut Reader) -> Scanner {
    let scanner = reader.shown("sensitive_data.rules", scanner, |value, scanner| {
        let rules = scanner.and_then(|_| rules(value).ok());
        rules.map_or(quoted("?"), |rules| Value::Array(rules).to_string())
    });
    scanner.unwrap_or_default()
}

fn scanner(value: &Value) -> Result<Scanner, String> {
    let rules: Vec<_> = rules(value)?
        .iter()
        .enumerate()
        .map(|(position, rule)| custom_rule(position + 1, rule))
        .collect::<Result<_, _>>()?;
    Scanner::new(&rules).map_err(|error| {
        let position = error.position + 1;
        format!(
            "has a {} that {} (rule {position} of the list)",
            error.field, error.rule
        )
    })
}

/// The items of the list.
fn rules(value: &Value) -> Result<Vec<Value>, String> {
    let list = match value {
        Value::Array(list) => Some(list.clone()),
        Value::String(text) => {
            let table: Option<Table> = format!("rules = {text}").parse().ok();
            let list = table.and_then(|table| table.get("rules").cloned());
            list.and_then(|list| list.as_array().cloned())
        }
        _ => None,
    };
    list.ok_or_else(|| FORM.to_owned())
}

fn custom_rule(number: usize, rule: &Value) -> Result<CustomRule, String> {
    let Value::Table(fields) = rule else {
        return Err(FORM.to_owned());
    };
    let place = format!("rule {number} of the list");
    if let Some(unknown) = fields
        .keys()
        .find(|name| !["kind", "pattern"].contains(&name.as_str()))
    {
        return Err(format!(
            "has an unknown key {unknown:?} ({place}): a rule has kind and pattern"
        ));
    }
    let field = |name: &str| match fields.get(name) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(format!("has a {name} that must be text ({place})")),
        None => Err(format!("lacks a {name} ({place})")),
    };
    Ok(CustomRule {
        kind: field("kind")?,
        pattern: field("pattern")?,
    })
}
