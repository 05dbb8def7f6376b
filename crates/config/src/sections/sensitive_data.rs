//! `[sensitive_data]` has one key, a list of tables. Its environment variable holds the list as TOML text.

use keepsake_core::sensitive::{CustomRule, Scanner};
use serde::Deserialize;
use toml::{Table, Value};

use crate::reader::{Reader, quoted};

const FORM: &str = "must be a list such as [{ kind = \"employee_id\", pattern = \"EMP-[0-9]{6}\" }]";

pub(super) fn read(reader: &mut Reader) -> Scanner {
    let scanner = reader.read("sensitive_data.rules", None, scanner, |value, scanner| {
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
        format!("has a {} that {} (rule {position} of the list)", error.field, error.rule)
    })
}

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
    // The message leaves the error out: it may quote a value.
    CustomRule::deserialize(rule.clone()).map_err(|_| {
        format!("{FORM}: rule {number} must have a kind and a pattern, both text, and nothing else")
    })
}
