//! The settings of the engine, from the sections `[cache]`, `[limits]`, `[sensitive_data]`,
//! `[audit]`, `[auth]` and `[secrets]`, and from `blobs.deletion_delay_seconds`.

use std::sync::Arc;

use keepsake_engine::EngineOptions;

use super::{Role, ServerSettings, auth, limits, secrets, sensitive_data};
use crate::checks::{at_least, days, seconds};
use crate::reader::Reader;

pub(super) fn read(reader: &mut Reader, role: Role, server: &ServerSettings) -> EngineOptions {
    EngineOptions {
        role: role.name(),
        request_deadline: server.options.request_deadline,
        blob_deletion_delay: reader.get("blobs.deletion_delay_seconds", 0, seconds(0)),
        cache_bytes: reader.get("cache.blob_bytes", 256 << 20, at_least(0)),
        search_cache_bytes: reader.get("cache.search_bytes", 256 << 20, at_least(0)),
        limits: limits::read(reader),
        scanner: sensitive_data::read(reader),
        audit_retention: reader.get("audit.retention_days", 400, days),
        token_key_period: reader.get("auth.token_key_days", 30, days),
        issuers: Arc::new(auth::read_issuers(reader, server.public_url.as_deref()).unwrap_or_default()),
        vault: secrets::read(reader),
        ..EngineOptions::default()
    }
}
