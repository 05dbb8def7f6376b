//! What a process runs with, as the merged values say.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use config::ValueKind;
use keepsake_blobs::{BlobError, BlobUrl, S3Credentials, S3Settings};
use keepsake_core::Limits;
use keepsake_core::sensitive::Scanner;
use keepsake_server::{McpOptions, OperatorToken};
use keepsake_tokens::Vault;
use secrecy::SecretString;

use super::issuers::{AuthSettings, read_auth};
use super::keys;
use super::reader::{Reader, number, text, truth};
use super::rules;
use super::secrets::read_secrets;
use super::telemetry::{TelemetrySettings, read_telemetry};
use super::url::IndexUrl;

/// Room for a few of the largest bodies; one tenant gets half of it.
const MIN_REQUEST_MEMORY_BYTES: u64 = 16 << 20;

/// Days that audits are kept, at most: a hundred years.
const MAX_AUDIT_DAYS: u64 = 36_500;

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Serves requests and runs the scheduled jobs.
    All,
    /// Serves requests.
    Gateway,
    /// Runs the scheduled jobs.
    Worker,
}

impl Role {
    /// Its name in the configuration.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Gateway => "gateway",
            Self::Worker => "worker",
        }
    }
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    Human,
    /// A JSON object a line.
    Json,
}

/// What a process runs with.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// What this process does.
    pub(crate) role: Role,
    /// How it serves HTTP.
    pub(crate) server: ServerSettings,
    /// How the operator is served; `None`: not at all.
    pub(crate) operator: Option<OperatorSettings>,
    /// Where the index is.
    pub(crate) index: IndexSettings,
    /// Where content is.
    pub(crate) blobs: BlobSettings,
    /// Bytes of content kept in memory.
    pub(crate) cache_blob_bytes: u64,
    /// Bytes of search indexes kept in memory.
    pub(crate) cache_search_bytes: u64,
    /// Limits of tenants that have none of their own.
    pub(crate) limits: Limits,
    /// How long the tenants' audits are kept.
    pub(crate) audit_retention: Duration,
    /// What finds sensitive data.
    pub(crate) scanner: Scanner,
    /// Who is believed beside API keys.
    pub(crate) auth: AuthSettings,
    /// What wraps the secrets that the index keeps.
    pub(crate) vault: Vault,
    /// Who is told of metrics and traces.
    pub(crate) telemetry: TelemetrySettings,
    /// What is logged.
    pub(crate) log: LogSettings,
}

/// How HTTP is served.
#[derive(Debug, Clone)]
pub(crate) struct ServerSettings {
    /// Host and port.
    pub(crate) listen: String,
    /// How long a request may take.
    pub(crate) request_deadline: Duration,
    /// How long requests under way may take once the server is to end.
    pub(crate) shutdown_deadline: Duration,
    /// How long it serves on once it is to end, so that clients go elsewhere.
    pub(crate) drain: Duration,
    /// Authenticated requests under way at once, at most.
    pub(crate) max_requests_in_flight: usize,
    /// Bytes of memory that requests under way may use, at most.
    pub(crate) max_request_memory_bytes: u64,
    /// Connections open at once, at most.
    pub(crate) max_connections: usize,
    /// Who may ask MCP by way of a browser.
    pub(crate) mcp: McpOptions,
}

/// How the operator is served.
#[derive(Debug, Clone)]
pub(crate) struct OperatorSettings {
    /// Host and port, of a listener that serves nobody else.
    pub(crate) listen: String,
    /// What the operator presents.
    pub(crate) token: OperatorToken,
}

/// Where the index is.
#[derive(Debug, Clone)]
pub(crate) struct IndexSettings {
    /// The database of requests.
    pub(crate) url: IndexUrl,
    /// The owner's URL for migrations, where it is another.
    pub(crate) migrate_url: Option<IndexUrl>,
    /// The jobs' and operator's URL, where it is another.
    pub(crate) jobs_url: Option<SecretString>,
    /// Connections that serve requests, at most.
    pub(crate) max_connections: u32,
    /// How long a request waits for the answer to one statement.
    pub(crate) call_timeout: Duration,
}

/// Where content is.
#[derive(Clone)]
pub(crate) struct BlobSettings {
    /// A folder or a bucket.
    pub(crate) url: BlobUrl,
    /// How long blobs stay after the rows that named them.
    pub(crate) deletion_delay: Duration,
    /// How to reach the bucket.
    pub(crate) s3: S3Settings,
}

/// Shows nothing of the credentials, not even which key they are.
impl fmt::Debug for BlobSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobSettings")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// What is logged.
#[derive(Debug, Clone)]
pub(crate) struct LogSettings {
    /// How lines look.
    pub(crate) format: LogFormat,
    /// Which lines there are, in `tracing`'s own words.
    pub(crate) filter: String,
}

/// Reads every key before it gives up, so that every problem is found.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<Settings> {
    let role = reader.get("role", role);
    let server = read_server(reader);
    let operator = read_operator(reader);
    let index = read_index(reader);
    let blobs = read_blobs(reader);
    let cache_blob_bytes = reader.get("cache.blob_bytes", number(0));
    let cache_search_bytes = reader.get("cache.search_bytes", number(0));
    let limits = read_limits(reader);
    let audit_retention = read_audit(reader);
    let has_rules = reader.is_set("sensitive_data.rules");
    let scanner = reader.get("sensitive_data.rules", rules::scanner);
    let auth = read_auth(reader);
    let vault = read_secrets(reader);
    let telemetry = read_telemetry(reader);
    let log = read_log(reader);
    Some(Settings {
        role: role?,
        server: server?,
        operator: operator?,
        index: index?,
        blobs: blobs?,
        cache_blob_bytes: cache_blob_bytes?,
        cache_search_bytes: cache_search_bytes?,
        limits: limits?,
        audit_retention: audit_retention?,
        scanner: if has_rules { scanner? } else { Scanner::default() },
        auth: auth?,
        vault,
        telemetry: telemetry?,
        log: log?,
    })
}

fn read_server(reader: &mut Reader<'_>) -> Option<ServerSettings> {
    let listen = reader.get("server.listen", listen);
    let request_deadline = reader.get("server.request_deadline_seconds", number(1));
    let shutdown_deadline = reader.get("server.shutdown_deadline_seconds", number(0));
    let drain = reader.get("server.drain_seconds", number(0));
    // Two at least: a tenant alone gets half of them.
    let max_requests_in_flight = reader.get("server.max_requests_in_flight", count(2));
    let max_request_memory_bytes = reader.get(
        "server.max_request_memory_bytes",
        number(MIN_REQUEST_MEMORY_BYTES),
    );
    let max_connections = reader.get("server.max_connections", count(1));
    let allowed_hosts = reader.get(
        "server.mcp_allowed_hosts",
        listed(is_host, "hosts such as memory.example.com"),
    );
    let allowed_origins = reader.get(
        "server.mcp_allowed_origins",
        listed(is_origin, "origins such as https://app.example.com:443"),
    );
    Some(ServerSettings {
        listen: listen?,
        request_deadline: Duration::from_secs(request_deadline?),
        shutdown_deadline: Duration::from_secs(shutdown_deadline?),
        drain: Duration::from_secs(drain?),
        max_requests_in_flight: max_requests_in_flight?,
        max_request_memory_bytes: max_request_memory_bytes?,
        max_connections: max_connections?,
        mcp: McpOptions {
            allowed_hosts: allowed_hosts.unwrap_or_default(),
            allowed_origins: allowed_origins.unwrap_or_default(),
        },
    })
}

/// The operator's side, which is off until it has a token.
#[expect(clippy::option_option, reason = "off is not the same as refused")]
fn read_operator(reader: &mut Reader<'_>) -> Option<Option<OperatorSettings>> {
    let listen = reader.get("operator.listen", listen);
    let is_wanted = reader.is_set("operator.token") || reader.is_set("operator.token_file");
    let token = reader.secret("operator.token", "token", operator_token);
    let listen = listen?;
    match token {
        Some(token) => Some(Some(OperatorSettings { listen, token })),
        None if is_wanted => None,
        None => Some(None),
    }
}

fn operator_token(secret: &str) -> Result<OperatorToken, String> {
    OperatorToken::new(secret).ok_or_else(|| {
        format!(
            "must be a token of at least {} characters",
            OperatorToken::MIN_CHARS
        )
    })
}

fn read_index(reader: &mut Reader<'_>) -> Option<IndexSettings> {
    let url = reader.get("index.url", index_url);
    let migrate_url = reader.get("index.migrate_url", index_url);
    let jobs_url = reader.get("index.jobs_url", |value| match index_url(value)? {
        IndexUrl::Postgres(url) => Ok(url),
        IndexUrl::Sqlite { .. } => Err("must begin with postgres://: SQLite has no second URL".to_owned()),
    });
    let max_connections = reader.get("index.max_connections", |value| {
        let number = number(1)(value)?;
        u32::try_from(number).map_err(|_| "must be a number of connections".to_owned())
    });
    let call_timeout = reader.get("index.call_timeout_seconds", number(1));
    Some(IndexSettings {
        url: url?,
        migrate_url,
        jobs_url,
        max_connections: max_connections?,
        call_timeout: Duration::from_secs(call_timeout?),
    })
}

fn read_blobs(reader: &mut Reader<'_>) -> Option<BlobSettings> {
    let url = reader.get("blobs.url", blob_url);
    let endpoint = reader.get("blobs.endpoint", endpoint);
    let region = reader.get("blobs.region", owned_text);
    let path_style = reader.get("blobs.path_style", truth);
    let access_key_id = reader.get("blobs.access_key_id", owned_text);
    let secret_access_key = reader.get("blobs.secret_access_key", |value| {
        text(value).map(SecretString::from)
    });
    let deletion_delay = reader.get("blobs.deletion_delay_seconds", number(0));
    let sse_kms_key_id = reader.get("blobs.sse_kms_key_id", owned_text);
    let ca_file = reader.get("blobs.ca_file", |value| text(value).map(PathBuf::from));
    if reader.is_set("blobs.access_key_id") != reader.is_set("blobs.secret_access_key") {
        let lonely = ["blobs.access_key_id", "blobs.secret_access_key"]
            .into_iter()
            .find(|key| reader.is_set(key));
        reader.refuse(
            lonely.unwrap_or_default(),
            "is set alone: blobs.access_key_id and blobs.secret_access_key belong together",
        );
    }
    let credentials = access_key_id
        .zip(secret_access_key)
        .map(|(access_key_id, secret_access_key)| S3Credentials {
            access_key_id,
            secret_access_key,
        });
    let s3 = S3Settings {
        endpoint,
        region,
        path_style: path_style?,
        credentials,
        sse_kms_key_id,
        ca_file,
        max_call: None,
    };
    Some(BlobSettings {
        url: url?,
        s3,
        deletion_delay: Duration::from_secs(deletion_delay?),
    })
}

fn read_audit(reader: &mut Reader<'_>) -> Option<Duration> {
    let days = reader.get("audit.retention_days", |value| match number(1)(value)? {
        days if days <= MAX_AUDIT_DAYS => Ok(days),
        _ => Err(format!("must be at most {MAX_AUDIT_DAYS}")),
    });
    Some(Duration::from_hours(days? * 24))
}

fn read_limits(reader: &mut Reader<'_>) -> Option<Limits> {
    let mut limits = serde_json::Map::new();
    let names: Vec<_> = keys::default_limits().into_iter().map(|(name, _)| name).collect();
    for name in names {
        if let Some(value) = reader.get(&format!("limits.{name}"), number(0)) {
            limits.insert(name, value.into());
        }
    }
    serde_json::from_value(limits.into()).ok()
}

fn read_log(reader: &mut Reader<'_>) -> Option<LogSettings> {
    let format = reader.get("log.format", |value| match text(value)? {
        "human" => Ok(LogFormat::Human),
        "json" => Ok(LogFormat::Json),
        _ => Err("must be human or json".to_owned()),
    });
    let filter = reader.get("log.filter", |value| {
        let filter = text(value)?;
        match tracing_subscriber::EnvFilter::builder().parse(filter) {
            Ok(_) => Ok(filter.to_owned()),
            Err(_) => Err("must be a filter such as info or keepsake=debug,info".to_owned()),
        }
    });
    Some(LogSettings {
        format: format?,
        filter: filter?,
    })
}

/// Rules between keys that are good by themselves.
pub(super) fn check_together(reader: &mut Reader<'_>, settings: Option<&Settings>) {
    let Some(settings) = settings else { return };
    let is_sqlite = matches!(settings.index.url, IndexUrl::Sqlite { .. });
    // SQLite has no such wait.
    if !is_sqlite && settings.index.call_timeout >= settings.server.request_deadline {
        reader.refuse(
            "index.call_timeout_seconds",
            "must be less than server.request_deadline_seconds",
        );
    }
    if is_sqlite && settings.role != Role::All {
        reader.refuse(
            "role",
            "must be all: a sqlite:// index has one process, which serves and runs the jobs",
        );
    }
    if is_sqlite && settings.index.jobs_url.is_some() {
        reader.refuse("index.jobs_url", "has no meaning beside a sqlite:// index.url");
    }
    let migrates_sqlite = settings
        .index
        .migrate_url
        .as_ref()
        .map(|url| matches!(url, IndexUrl::Sqlite { .. }));
    if migrates_sqlite.is_some_and(|migrates_sqlite| migrates_sqlite || is_sqlite) {
        reader.refuse(
            "index.migrate_url",
            "has a meaning only where it and index.url are postgres:// URLs",
        );
    }
}

fn role(value: &ValueKind) -> Result<Role, String> {
    let name = text(value)?;
    let role = Role::value_variants().iter().find(|role| role.name() == name);
    role.copied()
        .ok_or_else(|| "must be all, gateway or worker".to_owned())
}

fn listen(value: &ValueKind) -> Result<String, String> {
    let text = text(value)?;
    let is_address = text.rsplit_once(':').is_some_and(|(host, port)| {
        let is_bare_ipv6 = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
        !host.is_empty() && !is_bare_ipv6 && !host.contains(['/', '@', ' ']) && port.parse::<u16>().is_ok()
    });
    if is_address {
        Ok(text.to_owned())
    } else {
        Err("must be host:port, such as 127.0.0.1:8080".to_owned())
    }
}

pub(super) fn index_url(value: &ValueKind) -> Result<IndexUrl, String> {
    IndexUrl::parse(text(value)?)
}

pub(super) fn blob_url(value: &ValueKind) -> Result<BlobUrl, String> {
    BlobUrl::parse(text(value)?).map_err(|error| match error {
        BlobError::Misconfigured(rule) => format!("is refused: {rule}"),
        other => format!("is refused: {other}"),
    })
}

pub(super) fn endpoint(value: &ValueKind) -> Result<String, String> {
    let text = text(value)?;
    let host = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"));
    let is_plain = host
        .is_some_and(|host| !host.is_empty() && !host.starts_with('/') && !host.contains(['@', '?', '#']));
    if is_plain {
        Ok(text.to_owned())
    } else {
        Err("must be an http:// or https:// URL without credentials".to_owned())
    }
}

/// Texts of one kind, between commas.
fn listed(is_good: impl Fn(&str) -> bool, what: &str) -> impl Fn(&ValueKind) -> Result<Vec<String>, String> {
    let rule = format!("must be {what}, with commas between them");
    move |value| {
        let items: Vec<_> = text(value)?
            .split(',')
            .map(|item| item.trim().to_owned())
            .collect();
        if items.iter().all(|item| is_good(item)) {
            Ok(items)
        } else {
            Err(rule.clone())
        }
    }
}

fn is_host(text: &str) -> bool {
    !text.is_empty() && !text.contains(['/', '@', '*', ' '])
}

/// With its port: a name alone would be an origin at any port.
fn is_origin(text: &str) -> bool {
    let host = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"));
    let port = host.and_then(|host| host.rsplit_once(':'));
    port.is_some_and(|(host, port)| is_host(host) && (port == "*" || port.parse::<u16>().is_ok()))
}

/// A number of things that are in memory at once.
fn count(min: u64) -> impl Fn(&ValueKind) -> Result<usize, String> {
    move |value| {
        let number = number(min)(value)?;
        usize::try_from(number).map_err(|_| "is more than this machine can count".to_owned())
    }
}

fn owned_text(value: &ValueKind) -> Result<String, String> {
    text(value).map(str::to_owned)
}
