//! The URL of the index's database, which is displayed without its password.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use secrecy::{ExposeSecret, SecretString};
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use toml::Value;

use crate::checks::text;

/// The parameters that a `postgres://` URL may have.
///
/// Others are refused, because the driver would log their values.
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

/// The advice for a password with a character that delimits parts of a URL.
const PERCENT_ENCODE: &str =
    "percent-encode / ? # @ & and % in a user name or a password, such as %2F for / and %3F for ?";

#[derive(Clone)]
pub enum IndexUrl {
    /// A file on this machine.
    Sqlite {
        /// The URL as it was given.
        url: String,
        file: PathBuf,
    },
    /// A Postgres server; the URL may hold a password.
    Postgres(SecretString),
}

impl IndexUrl {
    /// Reads `sqlite://…` or `postgres://…`. The error is the rule that the URL breaks,
    /// as a phrase that follows the key's name and quotes nothing of the URL.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(rest) = text.strip_prefix("sqlite://") {
            return parse_sqlite(text, rest);
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            parse_postgres(text)?;
            return Ok(Self::Postgres(text.into()));
        }
        Err("must begin with sqlite:// or postgres://".to_owned())
    }

    pub fn is_sqlite(&self) -> bool {
        matches!(self, Self::Sqlite { .. })
    }

    pub(super) fn into_postgres(self) -> Option<SecretString> {
        match self {
            Self::Sqlite { .. } => None,
            Self::Postgres(url) => Some(url),
        }
    }
}

pub(crate) fn index_url(value: &Value) -> Result<IndexUrl, String> {
    IndexUrl::parse(text(value)?)
}

/// Escapes the characters of a path that have a meaning in a URL. The error is the rule
/// that the path breaks.
pub(crate) fn encode_path(path: &Path) -> Result<String, String> {
    let text = path.to_str().ok_or("is not UTF-8")?;
    Ok(text.replace('%', "%25").replace('?', "%3F").replace('#', "%23"))
}

fn parse_sqlite(text: &str, rest: &str) -> Result<IndexUrl, String> {
    let (database, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    if !["", "mode=rwc", "mode=rw"].contains(&parameters) {
        return Err("may have no parameter but mode=rwc or mode=rw".to_owned());
    }
    if database.is_empty() || database == ":memory:" {
        return Err("must name a file: sqlite:///path/to/index.db".to_owned());
    }
    let options = SqliteConnectOptions::from_str(text).map_err(|_| "is not a valid sqlite:// URL")?;
    Ok(IndexUrl::Sqlite { url: text.to_owned(), file: options.get_filename().to_owned() })
}

fn parse_postgres(text: &str) -> Result<PgConnectOptions, String> {
    let (base, parameters) = text.split_once('?').unwrap_or((text, ""));
    let parameters = || parameters.split('&').filter(|parameter| !parameter.is_empty());
    if let Some(name) = parameters().map(name_of).find(|name| !is_of_driver(name)) {
        let after_scheme = base.split_once("://").map_or("", |(_, rest)| rest);
        // What follows an unescaped `?` or `&` may be the rest of a password.
        let is_after_passwords = after_scheme.contains(['@', '/'])
            && !parameters().any(|parameter| parameter.contains('@') || name_of(parameter) == "password");
        let is_name = name.chars().all(|it| it.is_ascii_alphanumeric() || "_-.[]".contains(it));
        return Err(if is_after_passwords && is_name {
            format!("has the parameter {name}, which Keepsake does not take: remove it")
        } else {
            format!("has a parameter that Keepsake does not take: remove it, or {PERCENT_ENCODE}")
        });
    }
    let path = base.splitn(4, '/').nth(3).unwrap_or_default();
    let not_valid = || format!("is not a valid postgres:// URL: {PERCENT_ENCODE}");
    if text.contains('#') || path.contains('@') {
        return Err(not_valid());
    }
    let authority = base.split('/').nth(2).unwrap_or_default();
    if authority.rsplit('@').next().is_some_and(|hosts| hosts.contains(',')) {
        return Err("names several hosts, of which Keepsake takes one: name that of the primary".to_owned());
    }
    // The parser's own message may quote the URL.
    PgConnectOptions::from_str(text).map_err(|_| {
        let is_wrong =
            |parameters: &str| PgConnectOptions::from_str(&format!("{base}?{parameters}")).is_err();
        let wrong = parameters().find(|&parameter| is_wrong(parameter)).filter(|_| !is_wrong(""));
        match wrong.map(name_of).as_deref() {
            Some("sslmode" | "ssl-mode") => {
                "needs an sslmode of disable, allow, prefer, require, verify-ca or verify-full".to_owned()
            }
            Some(name) => format!("has a value of the parameter {name} that is not valid"),
            None => not_valid(),
        }
    })
}

/// The name of a parameter, without its percent-encoding.
fn name_of(parameter: &str) -> String {
    let name = parameter.split_once('=').map_or(parameter, |(name, _)| name);
    percent_decode_str(name).decode_utf8_lossy().into_owned()
}

fn is_of_driver(name: &str) -> bool {
    POSTGRES_PARAMETERS.contains(&name) || (name.starts_with("options[") && name.ends_with(']'))
}

/// Shows the URL without password and parameters; `***` if it is not one.
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

/// Built from the parsed parts, so that nothing else is shown.
fn shown_postgres(url: &str) -> String {
    const HIDDEN: &str = "postgres://***";
    let Ok(options) = parse_postgres(url) else {
        return HIDDEN.to_owned();
    };
    let before_host = url.rsplit_once('@').map_or("", |(before, _)| before);
    let has_password = before_host.matches(':').count() > 1 || url.contains("password=");
    let (user, host, database) =
        (options.get_username(), options.get_host(), options.get_database().unwrap_or_default());
    if [user, host, database].iter().any(|part| part.contains(['@', ':', '?'])) {
        // An unescaped password may have been taken for something else.
        return HIDDEN.to_owned();
    }
    let password = if has_password { ":***" } else { "" };
    let host = options.get_socket().map_or_else(|| host.to_owned(), |socket| socket.display().to_string());
    format!("postgres://{user}{password}@{host}:{}/{database}", options.get_port())
}
