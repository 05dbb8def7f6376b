//! Files, variables and flags: their precedence, and unknown names in them.

use super::*;

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
        // An empty variable counts as not set: compose files pass unset variables as empty ones.
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
        &[("KEEPSAKE_INDEX_ULR", "x"), ("KEEPSAKE_BLOB_URL", "x"), ("KEEPSAKE_PORT", "9000")],
    );
    let expected = [
        "unknown key blob (keepsake.toml, line 10); there are role, server, operator, index, blobs, cache, limits, sensitive_data, audit, auth, secrets, telemetry, log",
        "unknown key rol (keepsake.toml, line 5); there are role, server, operator, index, blobs, cache, limits, sensitive_data, audit, auth, secrets, telemetry, log",
        "unknown key server.lissten (keepsake.toml, line 8); server has listen, request_deadline_seconds, \
         shutdown_deadline_seconds, drain_seconds, max_requests_in_flight, max_request_memory_bytes, max_connections, \
         public_url, mcp_allowed_hosts, mcp_allowed_origins",
        "unknown variable KEEPSAKE_BLOB_URL; there are role, server, operator, index, blobs, cache, limits, sensitive_data, audit, auth, secrets, telemetry, log",
        "unknown variable KEEPSAKE_INDEX_ULR; index has url, migrate_url, jobs_url, max_connections, call_timeout_seconds",
        "unknown variable KEEPSAKE_PORT; there are role, server, operator, index, blobs, cache, limits, sensitive_data, audit, auth, secrets, telemetry, log",
    ];
    assert_eq!(found, expected);
}

#[test]
fn quoted_keys_equal_bare_keys() {
    let found =
        problems(&format!("{MINIMAL}\"server.listen\" = 'a:1'\nindex.\"a\\nb\" = 1\nlimits = 3"), &[]);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(
        found.iter().any(|problem| problem.contains("unknown key \"server.listen\" (keepsake.toml, line 4)"))
    );
    assert!(
        found.iter().any(|problem| problem.contains("unknown key index.\"a\\nb\" (keepsake.toml, line 5)"))
    );
    assert!(found.iter().any(|problem| problem.contains("limits (keepsake.toml, line 6) is a section")));
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
        assert!(found.len() == 1 && found[0].starts_with(&format!("unknown variable {name};")), "{found:?}");
    }
}

#[test]
fn data_folder_wins_over_a_bucket() {
    let file = File::new("blobs.url = 's3://memories'\n");
    let sources = Sources { data_dir: Some(PathBuf::from("/d")), ..file.sources(&[]) };
    assert_eq!(sources.merge().settings().unwrap().blobs.url, BlobUrl::Index);
}

#[test]
fn error_names_the_unreadable_file() {
    let missing = Sources { file: Some(PathBuf::from("/nowhere/keepsake.toml")), ..Sources::default() };
    let error = missing.merge().settings().unwrap_err().to_string();
    assert!(error.contains("/nowhere/keepsake.toml cannot be read: No such file"), "{error}");
    let found = problems("role = 'all'\n[server\n", &[]);
    assert!(found[0].starts_with("keepsake.toml, line 2 is not valid TOML: "), "{found:?}");
    let found = problems("role = 'all'\nrole = 'all'\n", &[]);
    assert!(found[0].starts_with("keepsake.toml, line 2 is not valid TOML: duplicate key"), "{found:?}");
}

#[test]
fn migration_needs_only_its_url() {
    let of = |variables: &[(&str, &str)]| {
        File::new("").sources(variables).merge().migration().map(|url| url.to_string())
    };
    let url = ("KEEPSAKE_INDEX_URL", "postgres://app@db:5432/k");
    let migrate_url = ("KEEPSAKE_INDEX_MIGRATE_URL", "postgres://owner@db:5432/k");
    assert_eq!(of(&[url]).unwrap(), url.1);
    assert_eq!(of(&[migrate_url]).unwrap(), migrate_url.1);
    assert_eq!(of(&[url, migrate_url]).unwrap(), migrate_url.1);
    assert!(of(&[]).unwrap_err().to_string().starts_with("index.url is not set"));
    assert!(of(&[url, ("KEEPSAKE_X", "")]).is_err());
}

#[test]
fn variables_of_clients_are_ignored() {
    let variables = [
        ("KEEPSAKE_URL", "http://127.0.0.1:8080"),
        ("KEEPSAKE_API_KEY", "ks_live_x"),
        ("KEEPSAKE_STORE", "notes"),
        ("KEEPSAKE_CONTEXT", "dev"),
        ("KEEPSAKE_FROM_API_KEY", "ks_live_x"),
    ];
    settings(MINIMAL, &variables).unwrap();
}
