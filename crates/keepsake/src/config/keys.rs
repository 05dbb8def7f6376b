//! Every key there is: its name, its default, and whether it may be shown.

use std::borrow::Cow;

use keepsake_core::Limits;

use super::issuers::{self, ISSUERS};

/// The section whose keys are the fields of [`Limits`].
const LIMITS_SECTION: &str = "limits";

/// One key of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    /// Its name: `section.key`, or one word at the top level.
    pub(crate) name: Cow<'static, str>,
    /// Its value where nothing sets it, as text.
    pub(crate) default: Option<Cow<'static, str>>,
    /// What may be shown of its value.
    pub(crate) shown: Shown,
}

/// What may be shown of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// All of it.
    Plain,
    /// Nothing of it.
    Nothing,
    /// A database's URL without its password and parameters.
    IndexUrl,
    /// A blob store's URL, if it is one.
    BlobUrl,
    /// An HTTP server's URL, if it is a plain one.
    Endpoint,
    /// A list of rules, if it is one.
    Rules,
    /// Tables, whose keys are shown themselves.
    Tables,
}

impl Key {
    /// The environment variable that sets it.
    pub(crate) fn variable(&self) -> String {
        format!("KEEPSAKE_{}", self.name.replace('.', "_").to_ascii_uppercase())
    }

    /// Its section and its name there; the section is empty at the top level.
    pub(crate) fn parts(&self) -> (&str, &str) {
        self.name.rsplit_once('.').unwrap_or(("", &self.name))
    }
}

/// Every key, in the order in which they are shown, sections together.
pub(crate) fn all() -> Vec<Key> {
    use Shown::{BlobUrl, Endpoint, IndexUrl, Nothing, Plain, Rules, Tables};
    let mut keys = vec![
        key("role", Some("all"), Plain),
        key("server.listen", Some("127.0.0.1:8080"), Plain),
        key("server.request_deadline_seconds", Some("60"), Plain),
        key("server.shutdown_deadline_seconds", Some("30"), Plain),
        key("server.drain_seconds", Some("5"), Plain),
        key("server.max_requests_in_flight", Some("1024"), Plain),
        key("server.max_request_memory_bytes", Some("201326592"), Plain),
        key("server.max_connections", Some("2048"), Plain),
        key("server.mcp_allowed_hosts", None, Plain),
        key("server.mcp_allowed_origins", None, Plain),
        key("operator.listen", Some("127.0.0.1:8081"), Plain),
        key("operator.token", None, Nothing),
        key("operator.token_file", None, Plain),
        key("index.url", None, IndexUrl),
        key("index.migrate_url", None, IndexUrl),
        key("index.jobs_url", None, IndexUrl),
        key("index.max_connections", Some("16"), Plain),
        key("index.call_timeout_seconds", Some("10"), Plain),
        key("blobs.url", None, BlobUrl),
        key("blobs.endpoint", None, Endpoint),
        key("blobs.region", None, Plain),
        key("blobs.path_style", Some("false"), Plain),
        key("blobs.access_key_id", None, Nothing),
        key("blobs.secret_access_key", None, Nothing),
        key("blobs.sse_kms_key_id", None, Plain),
        key("blobs.ca_file", None, Plain),
        key("blobs.deletion_delay_seconds", Some("0"), Plain),
        key("cache.blob_bytes", Some("268435456"), Plain),
        key("cache.search_bytes", Some("268435456"), Plain),
    ];
    keys.extend(default_limits().into_iter().map(|(name, value)| Key {
        name: Cow::Owned(format!("{LIMITS_SECTION}.{name}")),
        default: Some(Cow::Owned(value.to_string())),
        shown: Plain,
    }));
    keys.extend([
        key("sensitive_data.rules", None, Rules),
        key("audit.retention_days", Some("400"), Plain),
        key("auth.token_key_days", Some("30"), Plain),
        key(ISSUERS, None, Tables),
        key("secrets.master_key", None, Nothing),
        key("secrets.master_key_file", None, Plain),
        key("secrets.previous_master_key", None, Nothing),
        key("secrets.previous_master_key_file", None, Plain),
        key("telemetry.otlp_endpoint", None, Endpoint),
        key("telemetry.otlp_headers", None, Nothing),
        key("telemetry.sample_ratio", Some("1"), Plain),
        key("telemetry.metrics_interval_seconds", Some("60"), Plain),
        key("telemetry.service_name", Some("keepsake"), Plain),
        key("telemetry.resource_attributes", None, Plain),
        key("telemetry.metrics_without_token", Some("false"), Plain),
        key("log.format", Some("human"), Plain),
        key("log.filter", Some("info"), Plain),
    ]);
    keys
}

/// The keys of one table of issuers.
pub(crate) fn of_issuer(position: usize) -> impl Iterator<Item = Key> {
    issuers::FIELDS.into_iter().map(move |field| Key {
        name: Cow::Owned(issuers::name_of(position, field)),
        default: None,
        // The URL may be one that was pasted with credentials, by mistake.
        shown: if field == "jwks_url" {
            Shown::Endpoint
        } else {
            Shown::Plain
        },
    })
}

/// The names and default values of [`Limits`], so that none is written twice.
pub(crate) fn default_limits() -> serde_json::Map<String, serde_json::Value> {
    match serde_json::to_value(Limits::default()) {
        Ok(serde_json::Value::Object(limits)) => limits,
        _ => serde_json::Map::new(),
    }
}

const fn key(name: &'static str, default: Option<&'static str>, shown: Shown) -> Key {
    Key {
        name: Cow::Borrowed(name),
        default: match default {
            Some(default) => Some(Cow::Borrowed(default)),
            None => None,
        },
        shown,
    }
}
