use super::*;

fn sqlite_file(url: &IndexUrl) -> &Path {
    let IndexUrl::Sqlite { file, .. } = url else { panic!("not SQLite") };
    file
}

#[test]
fn sqlite_urls_name_files_and_a_data_folder_any_file() {
    for (url, file) in [
        ("sqlite:///var/lib/a%20b.db?mode=rwc", "/var/lib/a b.db"),
        ("sqlite://data/index.db", "data/index.db"),
    ] {
        assert_eq!(sqlite_file(&IndexUrl::parse(url).unwrap()), Path::new(file));
    }
    for text in ["sqlite://", "sqlite://:memory:", "sqlite:///a?mode=memory", "sqlite:a"] {
        assert!(IndexUrl::parse(text).is_err(), "{text}");
    }
    assert!(IndexUrl::parse("sqlite:///a?immutable=1").unwrap_err().contains("no parameter but mode=rwc"));
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
        ("postgresql://app@db:5432/k?sslmode=require&password=hunter2", "postgres://app:***@db:5432/k"),
    ] {
        let parsed = IndexUrl::parse(url).unwrap();
        assert_eq!(parsed.to_string(), shown);
        assert_eq!(format!("{parsed:?}"), shown);
    }
}

#[test]
fn refused_postgres_urls_name_the_parameter_or_what_to_percent_encode() {
    let unnamed = "has a parameter that Keepsake does not take: remove it, or percent-encode / ? #";
    let invalid = "is not a valid postgres:// URL: percent-encode / ? #";
    for (rest, told) in [
        ("db:5432/k?user=a&pgbouncer=true", "has the parameter pgbouncer, which Keepsake does not take"),
        ("a:p@db/k?options[x=1", "has the parameter options[x, which"),
        ("a@db/k?password=hun&ter2=1", unnamed),
        ("a:5?ter2", unnamed),
        ("a:hun/ter2@db/k", invalid),
        ("a:5#ter2@db/k", invalid),
        ("a:%ff@db/k?sslmode=require", invalid),
        ("a:p,p@h1:5432,h2:5433/k", "names several hosts, of which Keepsake takes one"),
        ("a:p@db/k?sslmode=required", "needs an sslmode of disable, allow,"),
        ("a:p@db/k?port=ter2", "has a value of the parameter port that is not valid"),
    ] {
        let error = IndexUrl::parse(&format!("postgres://{rest}")).unwrap_err();
        assert!(error.starts_with(told) && !error.contains("ter2"), "{rest}: {error}");
    }
    IndexUrl::parse("postgres://a:p%3F@db/k?options%5Bstatement_timeout%5D=5s&ssl%6Dode=require").unwrap();
}
