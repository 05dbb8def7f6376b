//! The settings of the engine, from the sections `[cache]`, `[limits]`, `[sensitive_data]`,
//! `[audit]`, `[auth]` and `[secrets]`, and from `blobs.deletion_delay_seconds`.

use std::sync::Arc;

use keepsake_core::Limits;
use keepsake_engine::EngineOptions;
use keepsake_tokens::{MasterKey, Vault};
use serde_json::{Map, Value};

use super::{Role, ServerSettings, auth, sensitive_data};
use crate::checks::{at_least, days, seconds};
use crate::reader::Reader;

pub(super) fn read(reader: &mut Reader, role: Role, server: &ServerSettings) -> EngineOptions {
    EngineOptions {
        role: role.name(),
        request_deadline: server.options.request_deadline,
        blob_deletion_delay: reader.get("blobs.deletion_delay_seconds", 0, seconds(0)),
        cache_bytes: reader.get("cache.blob_bytes", 256 << 20, at_least(0)),
        search_cache_bytes: reader.get("cache.search_bytes", 256 << 20, at_least(0)),
        limits: limits(reader),
        scanner: sensitive_data::read(reader),
        audit_retention: reader.get("audit.retention_days", 400, days),
        token_key_period: reader.get("auth.token_key_days", 30, days),
        issuers: Arc::new(auth::read_issuers(reader, server.public_url.as_deref()).unwrap_or_default()),
        vault: secrets(reader),
        ..EngineOptions::default()
    }
}

/// The keys of `[limits]` are the fields of [`Limits`].
fn limits(reader: &mut Reader) -> Limits {
    let Ok(Value::Object(defaults)) = serde_json::to_value(Limits::default()) else {
        return Limits::default();
    };
    let limits: Map<_, _> = defaults
        .into_iter()
        .map(|(name, default)| {
            let default = default.as_i64().unwrap_or_default();
            let limit: u64 = reader.get(&format!("limits.{name}"), default, at_least(0));
            (name, limit.into())
        })
        .collect();
    serde_json::from_value(limits.into()).unwrap_or_default()
}

/// The keys that encrypt the secrets in the index.
fn secrets(reader: &mut Reader) -> Vault {
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
