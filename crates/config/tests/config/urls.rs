//! The URLs of the index, and those of a data folder.

use super::*;

fn sqlite_file(url: &IndexUrl) -> &Path {
    let IndexUrl::Sqlite { file, .. } = url else { panic!("not SQLite") };
    file
}

#[test]
fn sqlite_urls_name_files() {
    for (url, file) in [
        ("sqlite:///var/lib/a%20b.db?mode=rwc", "/var/lib/a b.db"),
        ("sqlite://data/index.db", "data/index.db"),
    ] {
        assert_eq!(sqlite_file(&IndexUrl::parse(url).unwrap()), Path::new(file));
    }
    for text in
        ["sqlite://", "sqlite://:memory:", "sqlite:///a?mode=memory", "sqlite:///a?immutable=1", "sqlite:a"]
    {
        assert!(IndexUrl::parse(text).is_err(), "{text}");
    }
}

#[test]
fn data_folder_name_may_contain_any_character() {
    let folder = Path::new("/tmp/100% sure?/a#b");
    let sources = Sources { data_dir: Some(folder.to_owned()), ..Sources::default() };
    let settings = sources.merge().settings().unwrap();
    assert_eq!(sqlite_file(&settings.index.url), folder.join("index.db"));
    assert_eq!(settings.blobs.url, BlobUrl::Index);
}

#[test]
fn postgres_urls_are_displayed_without_secrets() {
    for (url, shown) in [
        ("postgres://app@db:5433/keepsake", "postgres://app@db:5433/keepsake"),
        ("postgres://app:hunter2@db:5433/keepsake", "postgres://app:***@db:5433/keepsake"),
        (
            "postgresql://app@db:5432/keepsake?sslmode=require&password=hunter2",
            "postgres://app:***@db:5432/keepsake",
        ),
    ] {
        let parsed = IndexUrl::parse(url).unwrap();
        assert_eq!(parsed.to_string(), shown);
        assert_eq!(format!("{parsed:?}"), shown);
    }
}
