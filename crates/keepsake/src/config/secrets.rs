//! The operator's key that wraps what the index keeps: `[secrets]`.

use std::fs;

use config::ValueKind;
use keepsake_tokens::{MasterKey, Vault};

use super::reader::{Reader, text};

pub(super) fn read_secrets(reader: &mut Reader<'_>) -> Vault {
    let current = read_key(reader, "secrets.master_key");
    let previous = read_key(reader, "secrets.previous_master_key");
    if previous.is_some() && current.is_none() {
        let name = ["secrets.previous_master_key", "secrets.previous_master_key_file"]
            .into_iter()
            .find(|name| reader.is_set(name));
        reader.refuse(
            name.unwrap_or_default(),
            "has a meaning beside secrets.master_key alone: it opens what that key wraps anew",
        );
    }
    Vault::new(current, previous)
}

/// A key under `name`, or in the file under `{name}_file`.
fn read_key(reader: &mut Reader<'_>, name: &str) -> Option<MasterKey> {
    let file = format!("{name}_file");
    if reader.is_set(name) && reader.is_set(&file) {
        reader.refuse(
            &file,
            &format!("is set beside {name}: the key comes from one of them"),
        );
        return None;
    }
    if reader.is_set(&file) {
        return reader.get(&file, |value| {
            let path = text(value)?;
            let key = fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))?;
            MasterKey::parse(&key).ok_or_else(|| format!("holds no key: it {RULE}"))
        });
    }
    reader.get(name, |value: &ValueKind| {
        MasterKey::parse(text(value)?).ok_or_else(|| RULE.to_owned())
    })
}

const RULE: &str = "must be the base64 of 32 bytes, as `openssl rand -base64 32` makes them";
