use super::*;

#[test]
fn printed_configuration_hides_secrets_and_shows_origins() {
    let file = File::new(COMPLETE);
    let printed = file.sources(&[("KEEPSAKE_SERVER_LISTEN", "host:1")]).merge().to_toml();
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
        assert!(printed.contains(&format!("{line}\n")), "{line} is not in\n{printed}");
    }
    assert!(!printed.contains(SECRET), "{printed}");
    assert!(toml::from_str::<toml::Table>(&printed).is_ok(), "{printed}");
    let settings = file.settings(&[]).unwrap();
    assert!(!format!("{settings:?}").contains(SECRET), "{settings:?}");
}

#[test]
fn bad_values_never_show_their_secret() {
    let index_keys = ["index.url", "index.migrate_url", "index.jobs_url"];
    let blob_keys = ["blobs.url", "blobs.endpoint", "blobs.access_key_id", "blobs.secret_access_key"];
    let search_keys = ["search.embeddings.url", "search.embeddings.key"];
    let values = [
        "'hunter2'",
        "'postgres://app:hunter2'",
        "'postgres://app@db/k?passwrod=hunter2'",
        "'postgres://app@db/k?port=hunter2'",
        "'postgres://app:hun/ter2@db/k'",
        "'postgres://app:5/hunter2@db/k'",
        "'postgres://app:hun?ter2@db/k'",
        "'postgres://app:hun#ter2@db/k'",
        "'postgres://app:@hunter2@db/k'",
        "'postgres://app@db/k?sslmode=hunter2'",
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
    for key in index_keys.into_iter().chain(blob_keys).chain(search_keys).chain(["operator.token"]) {
        for value in values {
            let variable = variable_of(key);
            let of_variable = [(variable.as_str(), value.trim_matches('\''))];
            for (text, variables) in [(format!("{key} = {value}"), &[][..]), (String::new(), &of_variable)] {
                let file = File::new(&text);
                let merged = file.sources(variables).merge();
                let settings = merged.settings().map_err(|error| (error.to_string(), error));
                let migration = merged.migration().map_err(|error| error.to_string());
                let shown = format!("{settings:?} {migration:?} {}", merged.to_toml());
                let shown = shown.replace(&file.path().display().to_string(), "");
                assert!(!shown.contains("ter2"), "{key} = {value}: {shown}");
            }
        }
    }
}
