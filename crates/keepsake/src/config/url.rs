//! The URL of the index's database: read without being quoted, shown without
//! its password.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use secrecy::{ExposeSecret, SecretString};
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;

/// Parameters of a `postgres://` URL that have a meaning.
///
/// Others are refused here, because the driver would log their values.
const POSTGRES_PARAMETERS: &[&str] = &[
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];

/// Where the index is.
#[derive(Clone)]
pub(crate) enum IndexUrl {
    /// A file of this machine.
    Sqlite {
        /// The URL as it was given.
        url: String,
        /// The file that it names.
        file: PathBuf,
    },
    /// A Postgres server; the URL may hold a password.
    Postgres(SecretString),
}

impl IndexUrl {
    /// Reads `sqlite://…` or `postgres://…`.
    ///
    /// # Errors
    /// A text that goes on from the key's name and quotes nothing of the URL.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if let Some(rest) = text.strip_prefix("sqlite://") {
            return parse_sqlite(text, rest);
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            parse_postgres(text)?;
            return Ok(Self::Postgres(text.into()));
        }
        Err("must begin with sqlite:// or postgres://".to_owned())
    }

    /// The URL of an index in a file, for a path that is given otherwise.
    pub(crate) fn of_file(file: &Path) -> Result<String, String> {
        Ok(format!("sqlite://{}", encode_path(file)?))
    }
}

/// A path as it is written into a URL.
///
/// # Errors
/// A text that goes on from the path's name: it is not UTF-8.
pub(crate) fn encode_path(path: &Path) -> Result<String, String> {
    let text = path.to_str().ok_or("is not UTF-8")?;
    Ok(text.replace('%', "%25").replace('?', "%3F").replace('#', "%23"))
}

fn parse_sqlite(text: &str, rest: &str) -> Result<IndexUrl, String> {
    let (database, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let is_writable_file = parameters.is_empty() || parameters == "mode=rwc" || parameters == "mode=rw";
    if database.is_empty() || database == ":memory:" || !is_writable_file {
        return Err("must name a file: sqlite:///path/to/index.db".to_owned());
    }
    let options = SqliteConnectOptions::from_str(text).map_err(|_| "is not a valid sqlite:// URL")?;
    Ok(IndexUrl::Sqlite {
        url: text.to_owned(),
        file: options.get_filename().to_owned(),
    })
}

fn parse_postgres(text: &str) -> Result<PgConnectOptions, String> {
    let parameters = text.split_once('?').map_or("", |(_, parameters)| parameters);
    for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
        let name = parameter.split_once('=').map_or(parameter, |(name, _)| name);
        if !POSTGRES_PARAMETERS.contains(&name) && !name.starts_with("options[") {
            // Unnamed: what follows an unescaped `?` may be half a password.
            return Err("has a parameter that is not one of a postgres:// URL".to_owned());
        }
    }
    // The parser's own message may quote the URL.
    PgConnectOptions::from_str(text).map_err(|_| "is not a valid postgres:// URL".to_owned())
}

/// The URL without password and parameters; `***` where it is not one.
impl fmt::Display for IndexUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite { url, .. } => f.write_str(url),
            Self::Postgres(url) => f.write_str(&shown_postgres(url.expose_secret())),
        }
    }
}

impl fmt::Debug for IndexUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Put together from what the parser understood, so that nothing else shows.
fn shown_postgres(url: &str) -> String {
    const HIDDEN: &str = "postgres://***";
    let Ok(options) = parse_postgres(url) else {
        return HIDDEN.to_owned();
    };
    let before_host = url.rsplit_once('@').map_or("", |(before, _)| before);
    let has_password = before_host.matches(':').count() > 1 || url.contains("password=");
    let (user, host, database) = (
        options.get_username(),
        options.get_host(),
        options.get_database().unwrap_or_default(),
    );
    if [user, host, database]
        .iter()
        .any(|part| part.contains(['@', ':', '?']))
    {
        // An unescaped password may have been taken for something else.
        return HIDDEN.to_owned();
    }
    let password = if has_password { ":***" } else { "" };
    let host = options
        .get_socket()
        .map_or_else(|| host.to_owned(), |socket| socket.display().to_string());
    format!(
        "postgres://{user}{password}@{host}:{}/{database}",
        options.get_port()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlite_urls_name_files() {
        let IndexUrl::Sqlite { file, .. } = IndexUrl::parse("sqlite:///var/lib/a%20b.db?mode=rwc").unwrap()
        else {
            panic!("not SQLite")
        };
        assert_eq!(file, Path::new("/var/lib/a b.db"));
        let IndexUrl::Sqlite { file, .. } = IndexUrl::parse("sqlite://data/index.db").unwrap() else {
            panic!("not SQLite")
        };
        assert_eq!(file, Path::new("data/index.db"));
        for text in [
            "sqlite://",
            "sqlite://:memory:",
            "sqlite:///a?mode=memory",
            "sqlite:///a?immutable=1",
            "sqlite:a",
        ] {
            assert!(IndexUrl::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn path_with_any_character_comes_back_from_its_url() {
        let path = Path::new("/tmp/100% sure?/a#b");
        let IndexUrl::Sqlite { file, .. } = IndexUrl::parse(&IndexUrl::of_file(path).unwrap()).unwrap()
        else {
            panic!("not SQLite")
        };
        assert_eq!(file, path);
        let url = format!("file://{}", encode_path(path).unwrap());
        let keepsake_blobs::BlobUrl::File { root } = keepsake_blobs::BlobUrl::parse(&url).unwrap() else {
            panic!("not a folder")
        };
        assert_eq!(root, path);
    }

    #[test]
    fn postgres_urls_are_shown_without_what_is_secret() {
        for (url, shown) in [
            (
                "postgres://app@db:5433/keepsake",
                "postgres://app@db:5433/keepsake",
            ),
            (
                "postgres://app:hunter2@db:5433/keepsake",
                "postgres://app:***@db:5433/keepsake",
            ),
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

    #[test]
    fn no_broken_url_shows_its_password() {
        for url in [
            "postgres://app:hunter2",
            "postgres://app:hun/ter2@db/keepsake",
            "postgres://app:5/hunter2@db/keepsake",
            "postgres://app:hun?ter2@db/keepsake",
            "postgres://app:hun#ter2@db/keepsake",
            "postgres://app:@hunter2@db/keepsake",
            "postgres://app@db/keepsake?passwrod=hunter2",
            "postgres://app@db/keepsake?sslmode=hunter2",
            "mysql://app:hunter2@db",
            "hunter2",
        ] {
            let shown = match IndexUrl::parse(url) {
                Ok(parsed) => format!("{parsed} {parsed:?}"),
                Err(refusal) => refusal,
            };
            assert!(!shown.contains("ter2"), "{shown}");
        }
    }
}
