use super::*;

#[test]
fn every_key_is_read_from_a_file() {
    let settings = settings(COMPLETE, &[]).unwrap();
    assert_eq!(settings.role, Role::Gateway);
    assert_eq!(settings.server.listen, "[::1]:9090");
    let IndexUrl::Postgres(url) = &settings.index.url else { panic!("not Postgres") };
    assert_eq!(url.expose_secret(), "postgres://app:hunter2@db:5433/keepsake?sslmode=require");
    assert_eq!(settings.index.migrate_url.unwrap().to_string(), "postgres://owner:***@db:5433/keepsake");
    assert_eq!(settings.index.jobs_url.unwrap().expose_secret(), "postgres://jobs:hunter2@db:5433/keepsake");
    let server = settings.server.options;
    assert_eq!([server.request_deadline, server.shutdown_deadline], [61, 31].map(Duration::from_secs));
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
    assert_eq!(settings.engine.cache_bytes, 1_000);
    let limits = serde_json::to_value(settings.engine.limits).unwrap();
    assert_eq!(limits.as_object().unwrap().values().map(|value| value.as_u64().unwrap()).sum::<u64>(), 153);
    assert_eq!(settings.search.model_path, Path::new("/opt/model"));
    let Meaning::Endpoint(endpoint) = &settings.search.meaning else { panic!("no endpoint") };
    assert_eq!(endpoint.url.as_str(), "https://embeddings.example.com/v1");
    let texts = [&endpoint.model, &endpoint.query_prefix, &endpoint.document_prefix];
    assert_eq!(texts, ["multilingual-e5-small", "query: ", "passage: "]);
    assert_eq!((endpoint.dimensions, endpoint.key.as_ref().unwrap().expose_secret()), (384, "key-hunter2"));
    assert_eq!(settings.engine.audit_retention, Duration::from_hours(90 * 24));
    assert_eq!(settings.log.format, LogFormat::Json);
    assert_eq!(settings.log.filter, "keepsake=debug,hyper=warn,tower_http::trace,[span],info");
}

#[test]
fn complete_test_file_names_every_key() {
    let table: toml::Table = toml::from_str(COMPLETE).unwrap();
    let mut named: BTreeSet<String> = keys_of(&table).into_iter().collect();
    // A key comes from a file or is there itself.
    let in_files =
        ["operator.token", "search.embeddings.key", "secrets.master_key", "secrets.previous_master_key"];
    named.extend(in_files.map(|name| format!("{name}_file")));
    assert_eq!(named, keys());
}

fn keys_of(table: &toml::Table) -> Vec<String> {
    let of_value = |(name, value): (&String, &toml::Value)| match value.as_table() {
        Some(section) => keys_of(section).iter().map(|key| format!("{name}.{key}")).collect(),
        None => vec![name.clone()],
    };
    table.iter().flat_map(of_value).collect()
}

#[test]
fn search_by_meaning_needs_an_endpoint_only_if_it_is_named() {
    let endpoint = "search.meaning = 'endpoint'\nsearch.embeddings.url = 'http://ollama:11434/v1'\n\
        search.embeddings.model = 'm'\nsearch.embeddings.dimensions = 384\n";
    let meaning = |text: &str| settings(&with(text), &[]).unwrap().search.meaning;
    assert!(matches!(meaning(""), Meaning::Embedded));
    assert!(matches!(meaning(endpoint), Meaning::Endpoint(_)));
    let off = endpoint.replace("'endpoint'", "'off'");
    assert!(matches!(meaning(&off), Meaning::Off));

    for (key, value, told) in [
        ("model", "", "model is not set: search.meaning is \"endpoint\": set it to the server's name"),
        ("url", "'ollama:11434'", "url (keepsake.toml, line 8) must be an http:// or https:// URL"),
        ("dimensions", "0", "dimensions (keepsake.toml, line 8) must be a whole number from 1 to"),
        ("model", "'two words'", "model (keepsake.toml, line 8) must have 1 to 128 bytes, and no spaces"),
        ("key", "'two hunter2'", "key (keepsake.toml, line 8) must be visible ASCII characters"),
        ("key_file", "'/nowhere'", "key_file (keepsake.toml, line 8) cannot be read: No such file"),
    ] {
        let name = format!("search.embeddings.{key}");
        let lines = endpoint.lines().filter(|line| !line.starts_with(&format!("{name} =")));
        let mut text: Vec<_> = lines.map(str::to_owned).collect();
        text.resize(4, String::new());
        if !value.is_empty() {
            text.push(format!("{name} = {value}"));
        }
        assert_problem(&with(&text.join("\n")), &[], &format!("search.embeddings.{told}"));
    }
    let both = format!("{endpoint}search.embeddings.key = 'hunter2'\nsearch.embeddings.key_file = '/x'");
    assert_problem(&with(&both), &[], "search.embeddings.key_file (keepsake.toml, line 9) is set, and so is");
    for (text, told) in [
        ("meaning = 'on'", "meaning (keepsake.toml, line 4) must be embedded, endpoint or off"),
        ("embeddings.url = 'http://h'", "embeddings.url (keepsake.toml, line 4) is allowed only if"),
        ("embeddings.prefix = 'x'", "embeddings.prefix (keepsake.toml, line 4); search.embeddings has"),
        ("model_path = ''", "model_path (keepsake.toml, line 4) must not be empty"),
    ] {
        assert_problem(&with(&format!("search.{text}")), &[], &format!("search.{told}"));
    }
}

#[test]
fn model_is_beside_the_index_unless_its_folder_is_set() {
    let path = |text: &str| File::new(text).sources(&[]).merge().model_path().map(Option::unwrap);
    assert_eq!(path(MINIMAL).unwrap(), Path::new("/data/model"));
    assert_eq!(path("index.url = 'sqlite://index.db'").unwrap(), Path::new("model"));
    let system = Path::new("/usr/local/share/keepsake/model");
    assert_eq!(path("index.url = 'postgres://db'").unwrap(), system);
    // The other keys do not matter.
    assert_eq!(path("search.model_path = '/m'\nindex.url = 7\nlog.format = 7").unwrap(), Path::new("/m"));
    path("index.url = 'mysql://db'").unwrap_err();
    assert!(File::new("").sources(&[]).merge().model_path().unwrap().is_none());
    assert_eq!(settings(MINIMAL, &[]).unwrap().search.model_path, Path::new("/data/model"));
    assert_eq!(settings("index.url = 'postgres://db'", &[]).unwrap().search.model_path, system);
}

#[test]
fn call_timeout_is_less_than_the_request_deadline() {
    let postgres = File::new("index.url = 'postgres://db'\n");
    let deadline = |seconds| ("KEEPSAKE_SERVER_REQUEST_DEADLINE_SECONDS", seconds);
    let timeout = |seconds| ("KEEPSAKE_INDEX_CALL_TIMEOUT_SECONDS", seconds);
    for (seconds, rule) in [
        ("10", "must be less than server.request_deadline_seconds"),
        ("0", "must be a number of seconds above 0"),
        ("1e300", "must be a number of seconds above 0"),
        ("NaN", "must be a number of seconds above 0"),
    ] {
        let error = postgres.settings(&[deadline("10"), timeout(seconds)]).unwrap_err();
        let told = format!("index.call_timeout_seconds (KEEPSAKE_INDEX_CALL_TIMEOUT_SECONDS) {rule}");
        assert_eq!(error.0, [told]);
    }
    postgres.settings(&[deadline("10"), timeout("9")]).unwrap();
    settings("index.url = 'sqlite:///index.db'\n", &[deadline("10"), timeout("10")]).unwrap();
    // The default is below a short deadline.
    for (seconds, milliseconds, printed) in [("11", 10_000, "10"), ("10", 5_000, "5"), ("1", 500, "0.5")] {
        let merged = postgres.sources(&[deadline(seconds)]).merge();
        let timeout = Duration::from_millis(milliseconds);
        assert_eq!(merged.settings().unwrap().index.call_timeout, timeout);
        let printed = format!("call_timeout_seconds = {printed} # default\n");
        assert!(merged.to_toml().contains(&printed), "{}", merged.to_toml());
        assert_eq!(settings(&merged.to_toml(), &[]).unwrap().index.call_timeout, timeout);
    }
}

#[test]
fn all_problems_are_reported_at_once() {
    let text = "role = 'both'\n\
        server = { listen = '8080', request_deadline_seconds = 0, shutdown_deadline_seconds = -1, \
        mcp_allowed_origins = 'https://bücher.example' }\n\
        index.url = 'mysql://db'\n\
        index.jobs_url = 'sqlite:///index.db'\n\
        index.max_connections = 1.5\n\
        blobs = { url = 'file:///blobs', path_style = 'perhaps', endpoint = 'ftp://x', region = 7, secret_access_key = 'x' }\n\
        limits.bytes_per_memory = 99_999_999_999_999_999\n\
        log = { format = 'xml', filter = 'info,debugg' }\n";
    let found = problems(text, &[("KEEPSAKE_CACHE_BLOB_BYTES", "256 MiB")]);
    let expected = [
        "role (keepsake.toml, line 1) must be all, gateway or worker",
        "server.listen (keepsake.toml, line 2) must be host:port, such as 127.0.0.1:8080",
        "server.request_deadline_seconds (keepsake.toml, line 2) must be a whole number from 1 to 9007199254740992",
        "server.shutdown_deadline_seconds (keepsake.toml, line 2) must be a whole number from 0 to 9007199254740992",
        "server.mcp_allowed_origins (keepsake.toml, line 2) must be origins as browsers send them, such as \
         https://app.example.com or http://localhost:*, with commas between them",
        "index.url (keepsake.toml, line 3) must begin with sqlite:// or postgres://",
        "index.jobs_url (keepsake.toml, line 4) must begin with postgres://: SQLite has no second URL",
        "index.max_connections (keepsake.toml, line 5) must be a whole number from 1 to 4294967295",
        "blobs.url (keepsake.toml, line 6) is refused: a blob URL is `index:` or begins with `s3://`",
        "blobs.endpoint (keepsake.toml, line 6) must be an http:// or https:// URL without credentials, parameters and fragment",
        "blobs.region (keepsake.toml, line 6) must be text",
        "blobs.path_style (keepsake.toml, line 6) must be true or false",
        "blobs.secret_access_key (keepsake.toml, line 6) is set without the other key: set both \
         blobs.access_key_id and blobs.secret_access_key",
        "cache.blob_bytes (KEEPSAKE_CACHE_BLOB_BYTES) must be a whole number from 0 to 9007199254740992",
        "limits.bytes_per_memory (keepsake.toml, line 7) must be a whole number from 0 to 9007199254740992",
        "log.format (keepsake.toml, line 8) must be human or json",
        "log.filter (keepsake.toml, line 8) must be a filter such as info or keepsake=debug,info: \
         the levels are off, error, warn, info, debug and trace; the name of another crate has one, as in hyper=debug",
    ];
    assert_eq!(found, expected);
}

#[test]
fn sqlite_has_one_process_and_one_url() {
    for (key, value, rule) in [
        ("role", "gateway", "must be all: a sqlite:// index has one process"),
        ("index.jobs_url", "postgres://a/b", "is allowed only if index.url is a postgres:// URL"),
        ("index.migrate_url", "postgres://a/b", "is allowed only if it and index.url are postgres:// URLs"),
    ] {
        let variable = variable_of(key);
        assert_problem(MINIMAL, &[(&variable, value)], &format!("{key} ({variable}) {rule}"));
    }
}
