//! The operator's key that wraps what the index keeps: `[secrets]`.

use keepsake_tokens::{MasterKey, Vault};

use super::reader::Reader;

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

fn read_key(reader: &mut Reader<'_>, name: &str) -> Option<MasterKey> {
    reader.secret(name, "key", |key| {
        MasterKey::parse(key).ok_or_else(|| {
            "must be the base64 of 32 bytes, as `openssl rand -base64 32` makes them".to_owned()
        })
    })
}
