//! `[index]`

use std::time::Duration;

use secrecy::SecretString;
use toml::Value;

use super::Role;
use super::url::{IndexUrl, index_url};
use crate::checks::{decimal, whole};
use crate::reader::Reader;

/// How long a request waits for one statement, if the deadline allows it.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub struct IndexSettings {
    /// The database for requests.
    pub url: IndexUrl,
    /// The owner's URL for migrations; `url` if unset.
    pub migrate_url: Option<IndexUrl>,
    /// The URL for jobs and the operator; `url` if unset.
    pub jobs_url: Option<SecretString>,
    /// Maximum number of connections that serve requests.
    pub max_connections: u32,
    /// How long a request waits for the answer to one statement.
    pub call_timeout: Duration,
}

impl IndexSettings {
    pub(super) fn read(reader: &mut Reader, role: Role, request_deadline: Duration) -> Self {
        let url = reader.url("index.url", None, index_url);
        reader.require(
            "index.url",
            "set it in the file of --config or as KEEPSAKE_INDEX_URL, to sqlite:///path/to/index.db or \
             postgres://user:password@host/database; or name a data folder with --data-dir, such as \
             ~/.local/share/keepsake, which is that of `keepsake serve --dev`",
        );
        let migrate_url = reader.url("index.migrate_url", None, index_url);
        let jobs_url = reader.url("index.jobs_url", None, |value| match index_url(value)? {
            IndexUrl::Sqlite { .. } => {
                Err("must begin with postgres://: SQLite has no second URL".to_owned())
            }
            url @ IndexUrl::Postgres(_) => Ok(url),
        });
        // Calls that wait go together (ADR 22), so few connections are enough; a worker
        // has no requests.
        let default_connections = if role == Role::Worker { 2 } else { 6 };
        let max_connections =
            reader.get("index.max_connections", default_connections, whole(1..=u64::from(u32::MAX)));
        let default_timeout = default_call_timeout(request_deadline);
        let call_timeout = reader.get("index.call_timeout_seconds", default_timeout, fractional_seconds);
        let is_url_good = url.is_some();
        let settings = Self {
            url: url.unwrap_or(IndexUrl::Postgres(String::new().into())),
            migrate_url,
            jobs_url: jobs_url.and_then(IndexUrl::into_postgres),
            max_connections,
            call_timeout,
        };
        if is_url_good {
            settings.check(reader, role, request_deadline);
        }
        settings
    }

    /// Checks the rules between keys.
    fn check(&self, reader: &mut Reader, role: Role, request_deadline: Duration) {
        let migrates_sqlite = self.migrate_url.as_ref().is_some_and(IndexUrl::is_sqlite);
        if migrates_sqlite || (self.url.is_sqlite() && self.migrate_url.is_some()) {
            reader.refuse("index.migrate_url", "is allowed only if it and index.url are postgres:// URLs");
        }
        if !self.url.is_sqlite() {
            let is_deadline_good = !request_deadline.is_zero();
            if is_deadline_good && self.call_timeout >= request_deadline {
                reader.refuse(
                    "index.call_timeout_seconds",
                    "must be less than server.request_deadline_seconds",
                );
            }
            return;
        }
        if role != Role::All {
            reader.refuse(
                "role",
                "must be all: a sqlite:// index has one process, which serves and runs the jobs",
            );
        }
        if self.jobs_url.is_some() {
            reader.refuse("index.jobs_url", "is allowed only if index.url is a postgres:// URL");
        }
    }
}

/// Half of a short request deadline, because the timeout must be less than that.
///
/// A deadline of zero was refused.
fn default_call_timeout(request_deadline: Duration) -> Value {
    let is_short = !request_deadline.is_zero() && request_deadline <= CALL_TIMEOUT;
    let timeout = if is_short { request_deadline / 2 } else { CALL_TIMEOUT };
    match i64::try_from(timeout.as_secs()) {
        Ok(seconds) if timeout.subsec_nanos() == 0 => Value::Integer(seconds),
        _ => Value::Float(timeout.as_secs_f64()),
    }
}

fn fractional_seconds(value: &Value) -> Result<Duration, String> {
    decimal(value)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|timeout| *timeout >= Duration::from_millis(1))
        .ok_or_else(|| "must be a number of seconds above 0".to_owned())
}
