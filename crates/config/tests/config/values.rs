//! Keys, defaults and the rules of values.

use super::*;

#[test]
fn every_key_is_read_from_a_file() {
    let settings = settings(COMPLETE, &[]).unwrap();
    assert_eq!(settings.role, Role::Gateway);
    assert_eq!(settings.server.listen, "[::1]:9090");
    assert_eq!(settings.server.request_deadline, Duration::from_secs(61));
    assert_eq!(settings.server.shutdown_deadline, Duration::from_secs(31));
    let IndexUrl::Postgres(url) = &settings.index.url else { panic!("not Postgres") };
    assert_eq!(url.expose_secret(), "postgres://app:hunter2@db:5433/keepsake?sslmode=require");
    assert_eq!(settings.index.migrate_url.unwrap().to_string(), "postgres://owner:***@db:5433/keepsake");
    assert_eq!(settings.index.jobs_url.unwrap().expose_secret(), "postgres://jobs:hunter2@db:5433/keepsake");
    let server = settings.server;
    assert_eq!((server.max_requests_in_flight, server.max_connections), (32, 33));
    assert_eq!(server.max_request_memory_bytes, 34_000_000);
    assert_eq!(server.mcp.allowed_hosts, ["memory.example.com", "10.0.0.1:8080"]);
    assert_eq!(server.mcp.allowed_origins, ["https://app.example.com:443", "http://localhost:*"]);
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
    assert_eq!(s3.sse_kms_key_id.as_deref(), Some("arn:aws:kms:eu-central-1:1:key/1"));
    assert_eq!(s3.ca_file.as_deref(), Some(Path::new("/etc/ssl/ca.pem")));
    assert_eq!(settings.cache.blob_bytes, 1_000);
    let limits = serde_json::to_value(settings.limits).unwrap();
    assert_eq!(limits.as_object().unwrap().values().map(|value| value.as_u64().unwrap()).sum::<u64>(), 120);
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
    let in_files = ["operator.token", "secrets.master_key", "secrets.previous_master_key"];
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
    assert_eq!(settings.server.max_requests_in_flight, defaults.max_requests_in_flight);
    assert_eq!(settings.server.max_connections, defaults.max_connections);
    assert_eq!(settings.server.max_request_memory_bytes, defaults.max_request_memory_bytes);
    assert!(settings.server.mcp.allowed_hosts.is_empty() && settings.server.mcp.allowed_origins.is_empty());
    assert_eq!(settings.index.max_connections, 6);
    assert!(settings.index.migrate_url.is_none() && settings.index.jobs_url.is_none());
    assert_eq!(settings.cache.blob_bytes, 256 << 20);
    assert_eq!(settings.limits, Limits::default());
    assert!(!settings.blobs.s3.path_style && settings.blobs.s3.credentials.is_none());
    assert_eq!((settings.log.format, settings.log.filter.as_str()), (LogFormat::Human, "info"));
}

#[test]
fn call_timeout_is_less_than_the_request_deadline() {
    let deadline = |seconds| ("KEEPSAKE_SERVER_REQUEST_DEADLINE_SECONDS", seconds);
    let timeout = |seconds| ("KEEPSAKE_INDEX_CALL_TIMEOUT_SECONDS", seconds);
    let postgres = "index.url = 'postgres://db'\n";
    let expected = ["index.call_timeout_seconds (KEEPSAKE_INDEX_CALL_TIMEOUT_SECONDS) must be less than \
         server.request_deadline_seconds"];
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
        let merged = file.sources(&[("KEEPSAKE_SERVER_REQUEST_DEADLINE_SECONDS", deadline)]).merge();
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
    assert!(found[0].starts_with("index.url is not set: set it to sqlite:"), "{found:?}");
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
fn sqlite_has_one_process_and_one_url() {
    for (variable, value, expected) in [
        (
            "KEEPSAKE_ROLE",
            "gateway",
            "role (KEEPSAKE_ROLE) must be all: a sqlite:// index has one process, which serves and runs the jobs",
        ),
        (
            "KEEPSAKE_INDEX_JOBS_URL",
            "postgres://a/b",
            "index.jobs_url (KEEPSAKE_INDEX_JOBS_URL) is allowed only if index.url is a postgres:// URL",
        ),
        (
            "KEEPSAKE_INDEX_MIGRATE_URL",
            "postgres://a/b",
            "index.migrate_url (KEEPSAKE_INDEX_MIGRATE_URL) is allowed only if it and index.url are postgres:// URLs",
        ),
    ] {
        assert_eq!(problems(MINIMAL, &[(variable, value)]), [expected]);
    }
}
