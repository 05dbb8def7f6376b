//! Errors of the index, and the meanings of both databases' error codes.

use std::error::Error;
use std::io::ErrorKind;
use std::time::Duration;

use keepsake_core::{ObjectKind, Refused};

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// There is no such object, or it was deleted.
    #[error("the {} was not found", .0.name())]
    NotFound(ObjectKind),
    #[error("`{field}` {rule}")]
    Invalid {
        field: &'static str,
        /// A phrase that follows the field.
        rule: String,
    },
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Index(#[from] IndexError),
}

/// A failure of the index; a refusal or an absence is not an error.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The database could not be reached, or is temporarily unavailable. Nothing was
    /// changed.
    #[error("the database is not available: {}", text_of(.0))]
    Unavailable(#[source] sqlx::Error),
    /// The connection was lost or the response timed out: a change may or may not be
    /// committed.
    #[error("the database did not answer: {}", text_of(.0))]
    OutcomeUnknown(#[source] sqlx::Error),
    /// The database's disk is full or read-only; nothing was changed.
    #[error("the database's disk takes no writes: {0}")]
    DiskFull(String),
    /// The database's disk failed during a write, which may or may not be committed.
    #[error("the database's disk failed: {0}")]
    DiskFailed(String),
    #[error("the database schema is at version {found}, this binary needs {needed}: run `keepsake migrate`")]
    SchemaTooOld { found: i64, needed: i64 },
    #[error("migration failed: {}", text_of(.0))]
    Migration(#[from] sqlx::migrate::MigrateError),
    /// The URL does not name a database of this kind.
    #[error("{0}")]
    BadUrl(String),
    /// A pooler before the database shares sessions between clients in a way that does
    /// not work here; the text says what to change.
    #[error("{0}")]
    UnsuitablePooler(String),
    /// A row contains a value that no version of this code writes.
    #[error("a row of `{table}` does not make sense: {what}")]
    Corrupt { table: &'static str, what: &'static str },
    #[error("the database refused: {}", text_of(.0))]
    Database(#[source] sqlx::Error),
}

impl IndexError {
    pub fn timed_out(limit: Duration) -> Self {
        Self::OutcomeUnknown(no_answer_within(limit))
    }

    /// Whether the same call may succeed later: the database is unavailable, or its
    /// disk refuses writes.
    pub const fn is_passing(&self) -> bool {
        match self {
            Self::Unavailable(_) | Self::OutcomeUnknown(_) | Self::DiskFull(_) | Self::DiskFailed(_) => true,
            Self::SchemaTooOld { .. }
            | Self::Migration(_)
            | Self::BadUrl(_)
            | Self::UnsuitablePooler(_)
            | Self::Corrupt { .. }
            | Self::Database(_) => false,
        }
    }

    /// The database's own message, if the error has one.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Database(sqlx::Error::Database(answer)) => answer.message().to_owned(),
            error => error.to_string(),
        }
    }

    pub(crate) const fn is_of_disk(&self) -> bool {
        matches!(self, Self::DiskFull(_) | Self::DiskFailed(_))
    }

    /// If this answer shows that no connection is available, the same error for the other
    /// calls that wait for the database; none of them has begun.
    pub(crate) fn of_all_that_wait<T>(answer: &Result<T, Self>) -> Option<Result<T, Self>> {
        let Err(error @ Self::Unavailable(cause)) = answer else {
            return None;
        };
        let is_without_connection = match cause {
            sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => true,
            sqlx::Error::Io(cause) => cause.kind() == ErrorKind::NotConnected,
            _ => false,
        };
        is_without_connection.then(|| Err(error.copy()))
    }

    pub(crate) fn is_unique_violation(&self) -> bool {
        matches!(self, Self::Database(sqlx::Error::Database(answer)) if answer.is_unique_violation())
    }

    /// Whether the cause was a lost connection, so that another connection may work.
    pub(crate) fn is_connection_lost(&self) -> bool {
        let (Self::Unavailable(cause) | Self::OutcomeUnknown(cause)) = self else {
            return false;
        };
        // A call that used up its time limit, for a response or for a connection, is
        // not repeated.
        let has_waited = matches!(cause, sqlx::Error::Io(error)
            if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::NotConnected));
        is_connection_lost(cause) && !has_waited
    }

    /// A copy for another call of the same statement; `sqlx::Error` has no `Clone`.
    pub(crate) fn copy(&self) -> Self {
        let cause = |error: &(dyn Error + 'static)| {
            let kind = match error.downcast_ref() {
                Some(sqlx::Error::Io(error)) => error.kind(),
                _ => ErrorKind::Other,
            };
            sqlx::Error::Io(std::io::Error::new(kind, text_of(error)))
        };
        match self {
            Self::Unavailable(error) => Self::Unavailable(cause(error)),
            Self::OutcomeUnknown(error) => Self::OutcomeUnknown(cause(error)),
            Self::DiskFull(text) => Self::DiskFull(text.clone()),
            Self::DiskFailed(text) => Self::DiskFailed(text.clone()),
            Self::SchemaTooOld { found, needed } => Self::SchemaTooOld { found: *found, needed: *needed },
            Self::BadUrl(text) => Self::BadUrl(text.clone()),
            Self::UnsuitablePooler(text) => Self::UnsuitablePooler(text.clone()),
            Self::Corrupt { table, what } => Self::Corrupt { table, what },
            Self::Migration(error) => Self::Database(cause(error)),
            Self::Database(error) => Self::Database(cause(error)),
        }
    }

    /// The same error for a call that changes nothing and therefore never has an
    /// unknown outcome.
    pub(crate) fn of_read(self) -> Self {
        match self {
            Self::OutcomeUnknown(cause) => Self::Unavailable(cause),
            Self::DiskFailed(cause) => Self::Unavailable(sqlx::Error::Io(std::io::Error::other(cause))),
            error => error,
        }
    }
}

/// What the driver writes before an error of the network.
const OF_NETWORK: &str = "error communicating with database: ";

/// The text of a driver's error, without the line of Postgres's own source that the
/// driver appends to a message of Postgres, and without [`OF_NETWORK`], which the text
/// before it says already.
pub(crate) fn text_of(error: &(dyn Error + 'static)) -> String {
    let mut cause = Some(error);
    while let Some(error_or_cause) = cause {
        if let Some(sqlx::Error::Database(answer)) = error_or_cause.downcast_ref() {
            return error.to_string().replace(&answer.to_string(), answer.message());
        }
        cause = error_or_cause.source();
    }
    error.to_string().replace(OF_NETWORK, "")
}

pub(crate) fn no_answer_within(limit: Duration) -> sqlx::Error {
    let message = format!("no answer from the database within {limit:?}");
    sqlx::Error::Io(std::io::Error::new(ErrorKind::TimedOut, message))
}

impl From<sqlx::Error> for IndexError {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::Error as Sql;
        match error {
            Sql::PoolTimedOut | Sql::PoolClosed => Self::Unavailable(error),
            Sql::Io(error) => match error.downcast::<Failure>() {
                Ok(Failure::NotCommitted(cause)) => Self::Unavailable(cause),
                Ok(failure @ Failure::NotConnected(_)) => Self::Unavailable(failure.into()),
                Err(error) => Self::OutcomeUnknown(Sql::Io(error)),
            },
            _ if is_connection_lost(&error) => Self::OutcomeUnknown(error),
            Sql::Database(ref answer) => {
                match answer.code().map_or(Meaning::Refusal, |code| meaning_of(&code)) {
                    Meaning::NotNow => Self::Unavailable(error),
                    Meaning::DiskFull => Self::DiskFull(text_of(&error)),
                    Meaning::DiskFailed => Self::DiskFailed(text_of(&error)),
                    Meaning::Refusal => Self::Database(error),
                }
            }
            _ => Self::Database(error),
        }
    }
}

/// Information of the pool of Postgres about an error, in addition to the driver's; carried
/// inside [`sqlx::Error::Io`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// There was no connection to send the statement on.
    #[error("no connection could be opened: {0}")]
    NotConnected(#[source] sqlx::Error),
    /// The connection was lost inside a transaction, before its `COMMIT` was sent.
    #[error("the transaction was not committed: {0}")]
    NotCommitted(#[source] sqlx::Error),
}

impl From<Failure> for sqlx::Error {
    fn from(failure: Failure) -> Self {
        Self::Io(std::io::Error::new(std::io::ErrorKind::NotConnected, failure))
    }
}

/// Whether an error of the driver means that the connection cannot be used again.
pub(crate) fn is_connection_lost(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => {
            true
        }
        // Connection exceptions, and a server that ends the session.
        sqlx::Error::Database(answer) => {
            answer.code().is_some_and(|code| code.starts_with("08") || code.starts_with("57P"))
        }
        _ => false,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// The call may succeed later.
    NotNow,
    /// There is no room for a write, or the file system is read-only.
    DiskFull,
    /// An I/O error during a write.
    DiskFailed,
    /// Any other error.
    Refusal,
}

/// A SQLSTATE has five characters; an extended code of SQLite has at most four digits.
fn meaning_of(code: &str) -> Meaning {
    let is_sqlstate = code.len() == 5;
    if is_sqlstate {
        return meaning_of_sqlstate(code);
    }
    code.parse().map_or(Meaning::Refusal, meaning_of_sqlite)
}

/// "Not now" covers insufficient resources (53), serialization failures and
/// deadlocks (40), read-only after a failover (25006), and the timeouts of locks
/// (55P03) and statements (57014).
fn meaning_of_sqlstate(code: &str) -> Meaning {
    match code {
        // disk_full and io_error.
        "53100" => return Meaning::DiskFull,
        "58030" => return Meaning::DiskFailed,
        "25006" | "55P03" | "57014" => return Meaning::NotNow,
        _ => {}
    }
    if ["53", "40"].iter().any(|class| code.starts_with(class)) { Meaning::NotNow } else { Meaning::Refusal }
}

/// The last byte of an extended code is the primary code.
const fn meaning_of_sqlite(code: u32) -> Meaning {
    const IOERR_READ: u32 = 266;
    const IOERR_SHORT_READ: u32 = 522;
    match (code & 0xff, code) {
        // SQLITE_BUSY, SQLITE_LOCKED.
        (5 | 6, _) | (_, IOERR_READ | IOERR_SHORT_READ) => Meaning::NotNow,
        // SQLITE_READONLY, SQLITE_FULL: the failed commit was rolled back.
        (8 | 13, _) => Meaning::DiskFull,
        // SQLITE_IOERR: after a failed flush, the commit may still be in the WAL.
        (10, _) => Meaning::DiskFailed,
        _ => Meaning::Refusal,
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::{Failure, IndexError, Meaning, meaning_of};

    #[test]
    fn text_of_a_lost_connection_says_it_once() {
        let refused = sqlx::Error::Io(ErrorKind::ConnectionRefused.into());
        let text = IndexError::from(sqlx::Error::from(Failure::NotConnected(refused))).to_string();
        let told = "the database is not available: no connection could be opened: connection refused";
        assert_eq!(text, told);
    }

    #[test]
    fn codes_have_their_meanings() {
        for (meaning, codes) in [
            (Meaning::NotNow, "53300 40001 40P01 25006 55P03 57014 5 6 261 517 266 522"),
            (Meaning::DiskFull, "53100 13 8 1032"),
            (Meaning::DiskFailed, "58030 10 778 1034"),
            (Meaning::Refusal, "23505 42P01 22023 1 19 2067 1555 x"),
        ] {
            for code in codes.split(' ') {
                assert_eq!(meaning_of(code), meaning, "{code}");
            }
        }
    }
}
