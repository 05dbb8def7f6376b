//! Configurations from files, variables and flags.

#![expect(
    clippy::unwrap_used,
    reason = "a test's helpers fail the test by panicking, as the test does"
)]

mod credentials;
mod documentation;
mod rules;
mod surroundings;
mod urls;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use keepsake_blobs::BlobUrl;
use keepsake_config::{ConfigError, IndexUrl, LogFormat, Role, Settings, Sources};
use keepsake_core::Limits;
use secrecy::ExposeSecret;

/// A secret that must not show anywhere, by a part that any cut of it has.
const SECRET: &str = "hunter2";

const COMPLETE: &str = r#"
role = "gateway"

[server]
listen = "[::1]:9090"
request_deadline_seconds = 61
shutdown_deadline_seconds = 31
drain_seconds = 3
max_requests_in_flight = 32
max_request_memory_bytes = 34_000_000
max_connections = 33
mcp_allowed_hosts = "memory.example.com, 10.0.0.1:8080"
mcp_allowed_origins = "https://app.example.com:443,http://localhost:*"

[index]
url = "postgres://app:hunter2@db:5433/keepsake?sslmode=require"
migrate_url = "postgres://owner:hunter2@db:5433/keepsake"
jobs_url = "postgres://jobs:hunter2@db:5433/keepsake"
max_connections = 17
call_timeout_seconds = 12

[blobs]
url = "s3://memories/prefix"
endpoint = "https://s3.example.com"
region = "eu-central-1"
path_style = true
access_key_id = "key-hunter2"
secret_access_key = "secret-hunter2"
sse_kms_key_id = "arn:aws:kms:eu-central-1:1:key/1"
ca_file = "/etc/ssl/ca.pem"
deletion_delay_seconds = 604_800

[cache]
blob_bytes = 1_000
search_bytes = 2_000

[limits]
bytes_per_memory = 1
max_view_chars = 2
memories_per_store = 3
bytes_per_store = 4
stores_per_tenant = 5
bytes_per_tenant = 6
sessions_per_tenant = 12
session_bytes_per_tenant = 13
api_keys_per_tenant = 14
audit_entries_per_day = 15
requests_per_second = 7
request_burst = 8
version_retention_secs = 9
version_age_secs = 10
versions_per_memory = 11

[[sensitive_data.rules]]
kind = "employee_id"
pattern = 'EMP-[0-9]{6}'

[telemetry]
otlp_endpoint = "https://collector.example.com"
otlp_headers = "authorization=Bearer hunter2"
sample_ratio = 0.25
metrics_interval_seconds = 15
service_name = "memory"
resource_attributes = "deployment.environment.name=prod,team=a"
metrics_without_token = true

[log]
format = "json"
filter = "keepsake=debug,info"

[operator]
listen = "[::1]:9091"
token = "hunter2-0123456789abcdef0123456789abcdef"

[audit]
retention_days = 90

[auth]
token_key_days = 7

[[auth.issuers]]
issuer = "https://id.example.com"
audience = "keepsake"
jwks_url = "https://id.example.com/jwks.json"
actor = "user"

[secrets]
master_key = "hunter2hunter2hunter2hunter2hunter2hunter2g="
previous_master_key = "hunter2hunter2hunter2hunter2hunter2hunter2w="
"#;

const MINIMAL: &str = r#"
index.url = "sqlite:///data/index.db"
blobs.url = "index:"
"#;

struct File {
    folder: tempfile::TempDir,
}

impl File {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("keepsake.toml"), text).unwrap();
        Self { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("keepsake.toml")
    }

    fn sources(&self, variables: &[(&str, &str)]) -> Sources {
        let variables = variables
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        Sources {
            file: Some(self.path()),
            variables,
            ..Sources::default()
        }
    }

    fn settings(&self, variables: &[(&str, &str)]) -> Result<Settings, ConfigError> {
        self.sources(variables).merge().settings()
    }
}

fn settings(text: &str, variables: &[(&str, &str)]) -> Result<Settings, ConfigError> {
    File::new(text).settings(variables)
}

/// The names of all keys.
fn keys() -> BTreeSet<String> {
    let merged = Sources::default().merge();
    merged.keys().map(str::to_owned).collect()
}

fn variable_of(key: &str) -> String {
    format!("KEEPSAKE_{}", key.replace('.', "_").to_ascii_uppercase())
}

/// The problems, each without the folder of its file.
fn problems(text: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let file = File::new(text);
    let folder = format!("{}/", file.folder.path().display());
    let error = file.settings(variables).unwrap_err();
    let problems = error.problems().iter();
    problems.map(|problem| problem.replace(&folder, "")).collect()
}

#[test]
fn every_key_is_read_from_a_file() {
    let settings = settings(COMPLETE, &[]).unwrap();
    assert_eq!(settings.role, Role::Gateway);
    assert_eq!(settings.server.listen, "[::1]:9090");
    assert_eq!(settings.server.request_deadline, Duration::from_secs(61));
    assert_eq!(settings.server.shutdown_deadline, Duration::from_secs(31));
    let IndexUrl::Postgres(url) = &settings.index.url else {
        panic!("not Postgres")
    };
    assert_eq!(
        url.expose_secret(),
        "postgres://app:hunter2@db:5433/keepsake?sslmode=require"
    );
    assert_eq!(
        settings.index.migrate_url.unwrap().to_string(),
        "postgres://owner:***@db:5433/keepsake"
    );
    assert_eq!(
        settings.index.jobs_url.unwrap().expose_secret(),
        "postgres://jobs:hunter2@db:5433/keepsake"
    );
    let server = settings.server;
    assert_eq!((server.max_requests_in_flight, server.max_connections), (32, 33));
    assert_eq!(server.max_request_memory_bytes, 34_000_000);
    assert_eq!(server.mcp.allowed_hosts, ["memory.example.com", "10.0.0.1:8080"]);
    assert_eq!(
        server.mcp.allowed_origins,
        ["https://app.example.com:443", "http://localhost:*"]
    );
    assert_eq!(settings.index.max_connections, 17);
    assert_eq!(settings.index.call_timeout, Duration::from_secs(12));
    assert_eq!(settings.blobs.url.to_string(), "s3://memories/prefix");
    let s3 = settings.blobs.s3;
    assert_eq!(s3.endpoint.as_deref(), Some("https://s3.example.com"));
    assert_eq!(s3.region.as_deref(), Some("eu-central-1"));
    assert!(s3.path_style);
    let credentials = s3.credentials.unwrap();
    assert_eq!(credentials.access_key_id, "key-hunter2");
    assert_eq!(credentials.secret_access_key.expose_secret(), "secret-hunter2");
    assert_eq!(
        s3.sse_kms_key_id.as_deref(),
        Some("arn:aws:kms:eu-central-1:1:key/1")
    );
    assert_eq!(s3.ca_file.as_deref(), Some(Path::new("/etc/ssl/ca.pem")));
    assert_eq!(settings.cache.blob_bytes, 1_000);
    let limits = serde_json::to_value(settings.limits).unwrap();
    assert_eq!(
        limits
            .as_object()
            .unwrap()
            .values()
            .map(|value| value.as_u64().unwrap())
            .sum::<u64>(),
        120
    );
    assert_eq!(settings.audit.retention, Duration::from_hours(90 * 24));
    assert_eq!(settings.log.format, LogFormat::Json);
    assert_eq!(settings.log.filter, "keepsake=debug,info");
}

#[test]
fn complete_test_file_names_every_key() {
    let table: toml::Table = toml::from_str(COMPLETE).unwrap();
    let mut named: BTreeSet<String> = table
        .iter()
        .flat_map(|(name, value)| match value.as_table() {
            Some(section) => section.keys().map(|key| format!("{name}.{key}")).collect(),
            None => vec![name.clone()],
        })
        .collect();
    // A key comes from a file or is there itself.
    let in_files = [
        "operator.token",
        "secrets.master_key",
        "secrets.previous_master_key",
    ];
    named.extend(in_files.map(|name| format!("{name}_file")));
    assert_eq!(named, keys());
}

#[test]
fn defaults_fill_what_is_not_set() {
    let settings = settings(MINIMAL, &[]).unwrap();
    assert_eq!(settings.role, Role::All);
    assert_eq!(settings.server.listen, "127.0.0.1:8080");
    assert_eq!(settings.server.request_deadline, Duration::from_mins(1));
    assert_eq!(settings.server.shutdown_deadline, Duration::from_secs(30));
    let defaults = keepsake_server::ServerOptions::default();
    assert_eq!(
        settings.server.max_requests_in_flight,
        defaults.max_requests_in_flight
    );
    assert_eq!(settings.server.max_connections, defaults.max_connections);
    assert_eq!(
        settings.server.max_request_memory_bytes,
        defaults.max_request_memory_bytes
    );
    assert!(settings.server.mcp.allowed_hosts.is_empty() && settings.server.mcp.allowed_origins.is_empty());
    assert_eq!(settings.index.max_connections, 16);
    assert!(settings.index.migrate_url.is_none() && settings.index.jobs_url.is_none());
    assert_eq!(settings.cache.blob_bytes, 256 << 20);
    assert_eq!(settings.limits, Limits::default());
    assert!(!settings.blobs.s3.path_style && settings.blobs.s3.credentials.is_none());
    assert_eq!(
        (settings.log.format, settings.log.filter.as_str()),
        (LogFormat::Human, "info")
    );
}

#[test]
fn flags_override_variables_and_variables_override_the_file() {
    let file = File::new(
        "role = 'all'\nserver.listen = 'file:1'\nindex.max_connections = 1\ncache.blob_bytes = 1\n",
    );
    let variables = [
        ("KEEPSAKE_SERVER_LISTEN", "variable:2"),
        ("KEEPSAKE_INDEX_MAX_CONNECTIONS", "2"),
        ("KEEPSAKE_INDEX_URL", "postgres://variable/db"),
    ];
    let flags = Sources {
        listen: Some("flag:3".to_owned()),
        data_dir: Some(PathBuf::from("/a folder")),
        role: Some(Role::All),
        ..file.sources(&variables)
    };
    let settings = flags.merge().settings().unwrap();
    assert_eq!(settings.server.listen, "flag:3");
    assert_eq!(settings.index.url.to_string(), "sqlite:///a folder/index.db");
    assert_eq!(settings.blobs.url, BlobUrl::Index);
    assert_eq!(settings.index.max_connections, 2);
    assert_eq!(settings.cache.blob_bytes, 1);
    assert_eq!(settings.server.request_deadline, Duration::from_mins(1));
}

#[test]
fn every_key_has_its_variable() {
    let variables: BTreeSet<String> = keys().iter().map(|key| variable_of(key)).collect();
    assert_eq!(variables.len(), keys().len());
    for name in [
        "KEEPSAKE_ROLE",
        "KEEPSAKE_INDEX_URL",
        "KEEPSAKE_LIMITS_BYTES_PER_MEMORY",
        "KEEPSAKE_BLOBS_PATH_STYLE",
    ] {
        assert!(variables.contains(name), "{name}");
    }
    let set = [
        ("KEEPSAKE_ROLE", "worker"),
        ("KEEPSAKE_INDEX_URL", "postgres://app@db/keepsake"),
        ("KEEPSAKE_LIMITS_BYTES_PER_MEMORY", "7"),
        ("KEEPSAKE_BLOBS_PATH_STYLE", "true"),
        ("KEEPSAKE_SERVER_REQUEST_DEADLINE_SECONDS", "5"),
        ("KEEPSAKE_INDEX_CALL_TIMEOUT_SECONDS", "4"),
        // An empty variable is not set: compose files pass on unset variables so.
        ("KEEPSAKE_BLOBS_REGION", ""),
    ];
    let settings = settings("blobs.url = 's3://memories'\nblobs.region = 'here'", &set).unwrap();
    assert_eq!(settings.role, Role::Worker);
    assert_eq!(settings.limits.bytes_per_memory, 7);
    assert!(settings.blobs.s3.path_style);
    assert_eq!(settings.server.request_deadline, Duration::from_secs(5));
    assert_eq!(settings.blobs.s3.region.as_deref(), Some("here"));
}

#[test]
fn unknown_keys_are_reported_with_their_origin() {
    let text =
        format!("{MINIMAL}\nrol = 'all'\n[server]\nlisten = 'a:1'\nlissten = 'a:1'\n\n[blob]\nurl = 'x'\n");
    let found = problems(
        &text,
        &[
            ("KEEPSAKE_INDEX_ULR", "x"),
            ("KEEPSAKE_BLOB_URL", "x"),
            ("KEEPSAKE_PORT", "9000"),
        ],
    );
    let expected = [
        "unknown key blob (keepsake.toml, line 10); there are role, server, operator, index, blobs, cache, limits, sensitive_data, audit, auth, secrets, telemetry, log",
        "unknown key rol (keepsake.toml, line 5); there are role, server, operator, index, blobs, cache, limits, sensitive_data, audit, auth, secrets, telemetry, log",
        "unknown key server.lissten (keepsake.toml, line 8); server has listen, request_deadline_seconds, \
         shutdown_deadline_seconds, drain_seconds, max_requests_in_flight, max_request_memory_bytes, max_connections, \
         mcp_allowed_hosts, mcp_allowed_origins",
        "unknown variable KEEPSAKE_BLOB_URL; there are role, server, operator, index, blobs, cache, limits, sensitive_data, audit, auth, secrets, telemetry, log",
        "unknown variable KEEPSAKE_INDEX_ULR; index has url, migrate_url, jobs_url, max_connections, call_timeout_seconds",
        "unknown variable KEEPSAKE_PORT; there are role, server, operator, index, blobs, cache, limits, sensitive_data, audit, auth, secrets, telemetry, log",
    ];
    assert_eq!(found, expected);
}

#[test]
fn quoted_keys_equal_bare_keys() {
    let found = problems(
        &format!("{MINIMAL}\"server.listen\" = 'a:1'\nindex.\"a\\nb\" = 1\nlimits = 3"),
        &[],
    );
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(
        found
            .iter()
            .any(|problem| problem.contains("unknown key \"server.listen\" (keepsake.toml, line 4)"))
    );
    assert!(
        found
            .iter()
            .any(|problem| problem.contains("unknown key index.\"a\\nb\" (keepsake.toml, line 5)"))
    );
    assert!(
        found
            .iter()
            .any(|problem| problem.contains("limits (keepsake.toml, line 6) is a section"))
    );
}

#[test]
fn variables_of_a_kubernetes_service_and_of_tests_are_ignored() {
    let injected = [
        ("KEEPSAKE_SERVICE_HOST", "10.0.0.1"),
        ("KEEPSAKE_SERVICE_PORT", "8080"),
        ("KEEPSAKE_SERVICE_PORT_HTTP", "8080"),
        ("KEEPSAKE_PORT", "tcp://10.0.0.1:8080"),
        ("KEEPSAKE_PORT_8080_TCP", "tcp://10.0.0.1:8080"),
        ("KEEPSAKE_PORT_8080_TCP_PROTO", "tcp"),
        ("KEEPSAKE_PORT_8080_TCP_PORT", "8080"),
        ("KEEPSAKE_PORT_8080_TCP_ADDR", "10.0.0.1"),
        ("KEEPSAKE_PORT_53_UDP", "udp://10.0.0.1:53"),
        ("KEEPSAKE_TEST_S3_ENDPOINT", "http://127.0.0.1:1"),
        ("OTHER_INDEX_URL", "x"),
    ];
    settings(MINIMAL, &injected).unwrap();
    for (name, value) in [
        ("KEEPSAKE_PORT", "8080"),
        ("KEEPSAKE_PORT_8080_TCP", "8080"),
        ("KEEPSAKE_PORT_8080_TCP_NAME", "x"),
        ("KEEPSAKE_PORT_8080_TCP_PORT_X", "x"),
        ("KEEPSAKE_PORT_8080", "tcp://10.0.0.1:8080"),
        ("KEEPSAKE_PORT_X_TCP", "tcp://10.0.0.1:8080"),
        ("KEEPSAKE_PORT_8080_HTTP", "tcp://10.0.0.1:8080"),
        ("KEEPSAKE_PORTS", "tcp://10.0.0.1:8080"),
        ("KEEPSAKE_SERVICE", "x"),
        ("KEEPSAKE_SERVICE_HOSTS", "x"),
        ("KEEPSAKE_SERVICE_PORT_", "x"),
        ("KEEPSAKE_", "x"),
        ("KEEPSAKE_TESTS", "x"),
        ("KEEPSAKE_index_url", "x"),
    ] {
        let found = problems(MINIMAL, &[(name, value)]);
        assert!(
            found.len() == 1 && found[0].starts_with(&format!("unknown variable {name};")),
            "{found:?}"
        );
    }
}

#[test]
fn call_timeout_is_less_than_the_request_deadline() {
    let deadline = |seconds| ("KEEPSAKE_SERVER_REQUEST_DEADLINE_SECONDS", seconds);
    let timeout = |seconds| ("KEEPSAKE_INDEX_CALL_TIMEOUT_SECONDS", seconds);
    let postgres = "index.url = 'postgres://db'\n";
    let expected = [
        "index.call_timeout_seconds (KEEPSAKE_INDEX_CALL_TIMEOUT_SECONDS) must be less than \
         server.request_deadline_seconds",
    ];
    assert_eq!(problems(postgres, &[deadline("10"), timeout("10")]), expected);
    settings(postgres, &[deadline("10"), timeout("9")]).unwrap();
    let expected = [
        "index.call_timeout_seconds (KEEPSAKE_INDEX_CALL_TIMEOUT_SECONDS) must be a number of seconds above 0",
    ];
    for bad in ["0", "-1", "soon", "1e300", "NaN"] {
        assert_eq!(problems(postgres, &[timeout(bad)]), expected, "{bad}");
    }
    let sqlite = "index.url = 'sqlite:///index.db'\n";
    settings(sqlite, &[deadline("10"), timeout("10")]).unwrap();
}

#[test]
fn default_call_timeout_is_below_a_short_request_deadline() {
    let file = File::new("index.url = 'postgres://db'\n");
    for (deadline, milliseconds, printed) in [
        ("60", 10_000, "10"),
        ("11", 10_000, "10"),
        ("10", 5_000, "5"),
        ("5", 2_500, "2.5"),
        ("1", 500, "0.5"),
    ] {
        let merged = file
            .sources(&[("KEEPSAKE_SERVER_REQUEST_DEADLINE_SECONDS", deadline)])
            .merge();
        let timeout = merged.settings().unwrap().index.call_timeout;
        assert_eq!(timeout, Duration::from_millis(milliseconds));
        let line = format!("call_timeout_seconds = {printed} # default\n");
        assert!(merged.to_toml().contains(&line), "{}", merged.to_toml());
        let again = File::new(&merged.to_toml()).settings(&[]).unwrap();
        assert_eq!(again.index.call_timeout, timeout);
    }
}

#[test]
fn all_problems_are_reported_at_once() {
    let text = "role = 'both'\n\
        server = { listen = '8080', request_deadline_seconds = 0, shutdown_deadline_seconds = -1 }\n\
        index.url = 'mysql://db'\n\
        index.jobs_url = 'sqlite:///index.db'\n\
        index.max_connections = 1.5\n\
        blobs = { url = 'file:///blobs', path_style = 'perhaps', endpoint = 'ftp://x', region = 7, secret_access_key = 'x' }\n\
        limits.bytes_per_memory = 'many'\n\
        limits.bytes_per_store = 99_999_999_999_999_999\n\
        log = { format = 'xml', filter = '=,=' }\n";
    let found = problems(text, &[("KEEPSAKE_CACHE_BLOB_BYTES", "256 MiB")]);
    let expected = [
        "role (keepsake.toml, line 1) must be all, gateway or worker",
        "server.listen (keepsake.toml, line 2) must be host:port, such as 127.0.0.1:8080",
        "server.request_deadline_seconds (keepsake.toml, line 2) must be a whole number from 1 to 9007199254740992",
        "server.shutdown_deadline_seconds (keepsake.toml, line 2) must be a whole number from 0 to 9007199254740992",
        "index.url (keepsake.toml, line 3) must begin with sqlite:// or postgres://",
        "index.jobs_url (keepsake.toml, line 4) must begin with postgres://: SQLite has no second URL",
        "index.max_connections (keepsake.toml, line 5) must be a whole number from 1 to 4294967295",
        "blobs.url (keepsake.toml, line 6) is refused: a blob URL is `index:` or begins with `s3://`",
        "blobs.endpoint (keepsake.toml, line 6) must be an http:// or https:// URL without credentials",
        "blobs.region (keepsake.toml, line 6) must be text",
        "blobs.path_style (keepsake.toml, line 6) must be true or false",
        "blobs.secret_access_key (keepsake.toml, line 6) is set without the other key: set both \
         blobs.access_key_id and blobs.secret_access_key",
        "cache.blob_bytes (KEEPSAKE_CACHE_BLOB_BYTES) must be a whole number from 0 to 9007199254740992",
        "limits.bytes_per_memory (keepsake.toml, line 7) must be a whole number from 0 to 9007199254740992",
        "limits.bytes_per_store (keepsake.toml, line 8) must be a whole number from 0 to 9007199254740992",
        "log.format (keepsake.toml, line 9) must be human or json",
        "log.filter (keepsake.toml, line 9) must be a filter such as info or keepsake=debug,info",
    ];
    assert_eq!(found, expected);
}

#[test]
fn missing_index_url_is_reported_with_what_to_do() {
    let found = problems("", &[]);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("index.url is not set: set it to sqlite:"),
        "{found:?}"
    );
}

#[test]
fn content_is_in_the_index_by_default() {
    let file = File::new("index.url = 'postgres://db'\n");
    let merged = file.sources(&[]).merge();
    assert_eq!(merged.settings().unwrap().blobs.url, BlobUrl::Index);
    let printed = merged.to_toml();
    assert!(printed.contains("url = \"index:\" # default\n"), "{printed}");
}

#[test]
fn data_folder_wins_over_a_bucket() {
    let file = File::new("blobs.url = 's3://memories'\n");
    let sources = Sources {
        data_dir: Some(PathBuf::from("/d")),
        ..file.sources(&[])
    };
    assert_eq!(sources.merge().settings().unwrap().blobs.url, BlobUrl::Index);
}

#[test]
fn sqlite_has_one_process_and_one_url() {
    assert_eq!(
        problems(MINIMAL, &[("KEEPSAKE_ROLE", "gateway")]),
        [
            "role (KEEPSAKE_ROLE) must be all: a sqlite:// index has one process, which serves and runs the jobs"
        ]
    );
    let found = problems(MINIMAL, &[("KEEPSAKE_INDEX_JOBS_URL", "postgres://a/b")]);
    assert!(
        found[0].starts_with("index.jobs_url (KEEPSAKE_INDEX_JOBS_URL) is allowed only"),
        "{found:?}"
    );
    let found = problems(MINIMAL, &[("KEEPSAKE_INDEX_MIGRATE_URL", "postgres://a/b")]);
    assert!(
        found[0].starts_with("index.migrate_url (KEEPSAKE_INDEX_MIGRATE_URL) is allowed only"),
        "{found:?}"
    );
}

#[test]
fn error_names_the_unreadable_file() {
    let missing = Sources {
        file: Some(PathBuf::from("/nowhere/keepsake.toml")),
        ..Sources::default()
    };
    let error = missing.merge().settings().unwrap_err().to_string();
    assert!(
        error.contains("/nowhere/keepsake.toml cannot be read: No such file"),
        "{error}"
    );
    let found = problems("role = 'all'\n[server\n", &[]);
    assert!(
        found[0].starts_with("keepsake.toml, line 2 is not valid TOML: "),
        "{found:?}"
    );
    let found = problems("role = 'all'\nrole = 'all'\n", &[]);
    assert!(
        found[0].starts_with("keepsake.toml, line 2 is not valid TOML: duplicate key"),
        "{found:?}"
    );
}

#[test]
fn migration_needs_only_its_url() {
    let of = |variables: &[(&str, &str)]| {
        File::new("")
            .sources(variables)
            .merge()
            .migration()
            .map(|url| url.to_string())
    };
    let url = ("KEEPSAKE_INDEX_URL", "postgres://app@db:5432/k");
    let migrate_url = ("KEEPSAKE_INDEX_MIGRATE_URL", "postgres://owner@db:5432/k");
    assert_eq!(of(&[url]).unwrap(), url.1);
    assert_eq!(of(&[migrate_url]).unwrap(), migrate_url.1);
    assert_eq!(of(&[url, migrate_url]).unwrap(), migrate_url.1);
    assert!(
        of(&[])
            .unwrap_err()
            .to_string()
            .starts_with("index.url is not set")
    );
    assert!(of(&[url, ("KEEPSAKE_X", "")]).is_err());
}

#[test]
fn printed_configuration_hides_secrets_and_shows_origins() {
    let file = File::new(COMPLETE);
    let printed = file
        .sources(&[("KEEPSAKE_SERVER_LISTEN", "host:1")])
        .merge()
        .to_toml();
    let path = file.path();
    for line in [
        "role = \"gateway\" # {file}, line 2",
        "listen = \"host:1\" # KEEPSAKE_SERVER_LISTEN",
        "url = \"postgres://app:***@db:5433/keepsake\" # {file}, line 16",
        "secret_access_key = \"***\" # {file}, line 28",
        "access_key_id = \"***\" # {file}, line 27",
        "bytes_per_memory = 1 # {file}, line 38",
        "path_style = true # {file}, line 26",
        "\n[limits]",
    ] {
        let line = line.replace("{file}", &path.display().to_string());
        assert!(
            printed.contains(&format!("{line}\n")),
            "{line} is not in\n{printed}"
        );
    }
    assert!(!printed.contains(SECRET), "{printed}");
    assert!(toml::from_str::<toml::Table>(&printed).is_ok(), "{printed}");
    assert!(file.settings(&[]).is_ok());
}

#[test]
fn printed_defaults_parse_to_the_same_settings() {
    let printed = Sources {
        data_dir: Some(PathBuf::from("/d")),
        ..Sources::default()
    }
    .merge()
    .to_toml();
    assert!(printed.contains("max_connections = 16 # default\n"), "{printed}");
    let again = settings(&printed, &[]).unwrap();
    assert_eq!(again.limits, Limits::default());
    assert_eq!(again.index.url.to_string(), "sqlite:///d/index.db");
}

#[test]
fn secrets_never_show_in_debug() {
    let file = File::new(COMPLETE);
    let settings = file.settings(&[]).unwrap();
    assert!(!format!("{settings:?}").contains(SECRET), "{settings:?}");
}

#[test]
fn bad_values_never_show_their_secret() {
    let secret_keys = [
        "index.url",
        "index.migrate_url",
        "index.jobs_url",
        "blobs.url",
        "blobs.endpoint",
        "blobs.access_key_id",
        "blobs.secret_access_key",
        "operator.token",
    ];
    let values = [
        "'hunter2'",
        "'postgres://app:hunter2'",
        "'postgres://app@db/k?passwrod=hunter2'",
        "'postgres://app@db/k?port=hunter2'",
        "'postgres://app:hun?hunter2@db'",
        "'mysql://app:hunter2@db'",
        "'s3://key:hunter2@memories'",
        "'https://key:hunter2@s3.example.com'",
        "'https://s3.example.com?token=hunter2'",
        "['hunter2']",
        "{ hunter2 = 'hunter2' }",
        "\"hunter2\nb\"",
        "\"hunter2",
        "hunter2",
        "'hunter2' hunter2",
    ];
    for key in secret_keys {
        for value in values {
            let file = File::new(&format!("{key} = {value}"));
            let merged = file.sources(&[]).merge();
            let error = merged.settings().unwrap_err();
            let migration = merged.migration().map_err(|error| error.to_string());
            let shown = format!("{error} {error:?} {} {migration:?}", merged.to_toml());
            assert!(!shown.contains(SECRET), "{key} = {value}: {shown}");

            let value = value.trim_matches('\'');
            let variable = variable_of(key);
            let merged = File::new("").sources(&[(&variable, value)]).merge();
            let error = merged.settings().unwrap_err();
            let shown = format!("{error} {error:?} {}", merged.to_toml());
            assert!(!shown.contains(SECRET), "{variable}={value}: {shown}");
        }
    }
}
