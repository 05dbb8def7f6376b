//! `[secrets]`: the keys that encrypt the secrets in the index.

use keepsake_tokens::{MasterKey, Vault};

use crate::reader::Reader;

pub(super) fn read(reader: &mut Reader) -> Vault {
    let current = read_key(reader, "secrets.master_key");
    let previous = read_key(reader, "secrets.previous_master_key");
    if previous.is_some() && current.is_none() {
        let name = ["secrets.previous_master_key", "secrets.previous_master_key_file"]
            .into_iter()
            .find(|name| reader.is_set(name));
        reader.refuse(
            name.unwrap_or_default(),
            "is allowed only together with secrets.master_key, which replaces it",
        );
    }
    Vault::new(current, previous)
}

fn read_key(reader: &mut Reader, name: &str) -> Option<MasterKey> {
    reader.secret_or_file(name, "key", |key| {
        MasterKey::parse(key).ok_or_else(|| {
            "must be the base64 of 32 bytes, as `openssl rand -base64 32` makes them".to_owned()
        })
    })
}
