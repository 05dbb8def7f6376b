use super::*;

#[test]
fn flags_override_variables_and_variables_override_the_file() {
    let file = File::new(
        "server.listen = 'file:1'\nindex.max_connections = 1\ncache.blob_bytes = 1\nblobs.url = 's3://memories'\n",
    );
    let variables = [
        ("KEEPSAKE_SERVER_LISTEN", "variable:2"),
        ("KEEPSAKE_INDEX_MAX_CONNECTIONS", "2"),
        ("KEEPSAKE_LOG_FILTER", "warn"),
        ("KEEPSAKE_INDEX_URL", "postgres://variable/db"),
        // An empty variable counts as not set: compose files pass unset variables as empty ones.
        ("KEEPSAKE_CACHE_BLOB_BYTES", ""),
    ];
    let flags = Sources {
        listen: Some("flag:3".to_owned()),
        data_dir: Some(PathBuf::from("/a folder")),
        role: Some(Role::All),
        default_log_filter: Some("error"),
        ..file.sources(&variables)
    };
    let settings = flags.merge().settings().unwrap();
    assert_eq!(settings.server.listen, "flag:3");
    assert_eq!(settings.index.url.to_string(), "sqlite:///a folder/index.db");
    assert_eq!(settings.blobs.url, BlobUrl::Index);
    assert_eq!(settings.index.max_connections, 2);
    assert_eq!(settings.log.filter, "warn");
    assert_eq!(settings.engine.cache_bytes, 1);
}

#[test]
fn unknown_keys_and_variables_are_reported_with_their_origin() {
    let text = format!(
        "{MINIMAL}\nrol = 'all'\n\"server.listen\" = 'a:1'\nindex.\"a\\nb\" = 1\nlimits = 3\n\
         [server]\nlisten = 'a:1'\nlissten = 'a:1'\n[blob]\nurl = 'x'\n"
    );
    let found = problems(&text, &[("KEEPSAKE_INDEX_ULR", "x"), ("KEEPSAKE_BLOB_URL", "x")]);
    let expected = [
        "limits (keepsake.toml, line 8) is a section",
        "unknown key \"server.listen\" (keepsake.toml, line 6); there are role, server, operator, index,",
        "unknown key blob (keepsake.toml, line 12); there are role, server, operator, index,",
        "unknown key index.\"a\\nb\" (keepsake.toml, line 7); index has url, migrate_url, jobs_url,",
        "unknown key rol (keepsake.toml, line 5); there are role, server, operator, index,",
        "unknown key server.lissten (keepsake.toml, line 11); server has listen, request_deadline_seconds,",
        "unknown variable KEEPSAKE_BLOB_URL; there are role, server, operator, index,",
        "unknown variable KEEPSAKE_INDEX_ULR; index has url, migrate_url, jobs_url,",
    ];
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for told in expected {
        assert!(found.iter().any(|problem| problem.starts_with(told)), "{told} is not in {found:?}");
    }
}

#[test]
fn variables_of_a_kubernetes_service_of_clients_and_of_tests_are_ignored() {
    // Without `KEEPSAKE_`.
    let injected = "SERVICE_HOST=10.0.0.1 SERVICE_PORT_HTTP=8080 PORT=tcp://10.0.0.1:8080 \
        PORT_8080_TCP=tcp://10.0.0.1:8080 PORT_8080_TCP_PORT=8080 PORT_8080_TCP_ADDR=10.0.0.1 \
        PORT_53_UDP=udp://10.0.0.1:53 OPERATOR_SERVICE_HOST=fd00::1 OPERATOR_SERVICE_PORT_OPERATOR=8081 \
        OPERATOR_PORT=tcp://10.0.0.1:8081 POSTGRESQL_HL_PORT_5432_TCP_PROTO=tcp \
        TEST_S3_ENDPOINT=http://127.0.0.1:1 URL=http://127.0.0.1:8080 API_KEY=ks_live_x STORE=notes \
        CONTEXT=dev FROM_API_KEY=ks_live_x TO_API_KEY=ks_live_x";
    let unknown = "PORT=8080 PORT_8080_TCP=8080 PORT_8080_TCP_PORT_X=x PORT_8080=tcp://10.0.0.1:8080 \
        PORT_8080_HTTP=tcp://10.0.0.1:8080 PORTS=tcp://10.0.0.1:8080 SERVICE_HOSTS=x SERVICE_PORT_=8080 \
        OPERATOR_SERVICE_PORT=x SERVICE_HOST=x =x TESTS=x index_url=x";
    let variables = |text: &str| {
        let pairs = text.split(' ').map(|pair| pair.split_once('=').unwrap());
        pairs.map(|(name, value)| (format!("KEEPSAKE_{name}"), value.to_owned())).collect::<Vec<_>>()
    };
    let injected = variables(injected);
    let injected: Vec<_> = injected.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    settings(MINIMAL, &injected).unwrap();
    for (name, value) in variables(unknown) {
        assert_problem(MINIMAL, &[(&name, &value)], &format!("unknown variable {name};"));
    }
}

#[test]
fn error_names_the_unreadable_file() {
    let missing = Sources { file: Some(PathBuf::from("/nowhere/keepsake.toml")), ..Sources::default() };
    let error = missing.merge().settings().unwrap_err().to_string();
    // No key is reported as missing: the file may set it.
    assert!(error.starts_with("/nowhere/keepsake.toml cannot be read: No such file"), "{error}");
    for (second, told) in [("[server", ""), ("role = 'all'", "duplicate key")] {
        let found = problems(&format!("role = 'all'\n{second}\n"), &[]);
        let told = format!("keepsake.toml, line 2 is not valid TOML: {told}");
        assert!(found.len() == 1 && found[0].starts_with(&told), "{found:?}");
    }
}

#[test]
fn migration_needs_only_its_url() {
    let of = |variables: &[(&str, &str)]| {
        let url = File::new("").sources(variables).merge().migration();
        url.map(|url| url.to_string()).map_err(|error| error.to_string())
    };
    let url = ("KEEPSAKE_INDEX_URL", "postgres://app@db:5432/k");
    let migrate_url = ("KEEPSAKE_INDEX_MIGRATE_URL", "postgres://owner@db:5432/k");
    assert_eq!(of(&[url]).unwrap(), url.1);
    assert_eq!(of(&[migrate_url]).unwrap(), migrate_url.1);
    assert_eq!(of(&[url, migrate_url]).unwrap(), migrate_url.1);
    assert!(of(&[]).unwrap_err().starts_with("index.url is not set: set it, or index.migrate_url"));
    assert!(of(&[url, ("KEEPSAKE_X", "")]).is_err());
    assert_problem("", &[], "or name a data folder with --data-dir");
}
