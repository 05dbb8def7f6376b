//! What can go wrong in the index.

use std::io::ErrorKind;
use std::time::Duration;

use crate::postgres::{Failure, is_connection_lost};

/// A failure of the index; a refusal or an absence is not one.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The database could not be reached, or refused for the moment. Nothing
    /// was changed.
    #[error("the database is not available: {0}")]
    Unavailable(#[source] sqlx::Error),
    /// The connection was lost, or the answer did not come in time: a change
    /// may or may not have landed.
    #[error("the database did not answer: {0}")]
    OutcomeUnknown(#[source] sqlx::Error),
    /// The database's disk is full or read-only; the change was not made.
    #[error("the database's disk takes no writes: {0}")]
    DiskFull(String),
    /// The database's disk failed under a write, which may or may not have
    /// landed.
    #[error("the database's disk failed: {0}")]
    DiskFailed(String),
    /// The schema is older than this binary needs.
    #[error("the database schema is at version {found}, this binary needs {needed}: run `keepsake migrate`")]
    SchemaTooOld {
        /// The newest migration that has been applied.
        found: i64,
        /// The newest migration this binary knows.
        needed: i64,
    },
    /// A migration could not be applied.
    #[error("migration failed: {0}")]
    Migration(#[from] sqlx::migrate::MigrateError),
    /// The URL is not one of a database of this kind.
    #[error("{0}")]
    BadUrl(String),
    /// A row holds what no version of this code writes.
    #[error("a row of `{table}` does not make sense: {what}")]
    Corrupt {
        /// The table.
        table: &'static str,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Any other answer of the database.
    #[error("the database refused: {0}")]
    Database(#[source] sqlx::Error),
}

impl IndexError {
    /// The error of a call that was given up after `limit`.
    pub fn timed_out(limit: Duration) -> Self {
        Self::OutcomeUnknown(no_answer_within(limit))
    }

    /// Whether the same call may succeed later: the database is away, or its
    /// disk takes no writes.
    pub const fn is_passing(&self) -> bool {
        match self {
            Self::Unavailable(_) | Self::OutcomeUnknown(_) | Self::DiskFull(_) | Self::DiskFailed(_) => true,
            Self::SchemaTooOld { .. }
            | Self::Migration(_)
            | Self::BadUrl(_)
            | Self::Corrupt { .. }
            | Self::Database(_) => false,
        }
    }

    /// Whether a row with the same key exists.
    pub(crate) fn is_unique_violation(&self) -> bool {
        matches!(self, Self::Database(sqlx::Error::Database(answer)) if answer.is_unique_violation())
    }

    /// Whether a lost connection was the cause, so that another one may serve.
    pub(crate) fn is_connection_lost(&self) -> bool {
        let (Self::Unavailable(cause) | Self::OutcomeUnknown(cause)) = self else {
            return false;
        };
        // A call that used up its time, for an answer or for a connection, is not
        // given that time again.
        let has_waited = matches!(cause, sqlx::Error::Io(error)
            if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::NotConnected));
        is_connection_lost(cause) && !has_waited
    }

    /// The same error of a call that changes nothing, whose outcome is never
    /// unknown.
    pub(crate) fn of_read(self) -> Self {
        match self {
            Self::OutcomeUnknown(cause) => Self::Unavailable(cause),
            Self::DiskFailed(cause) => Self::Unavailable(sqlx::Error::Io(std::io::Error::other(cause))),
            error => error,
        }
    }
}

/// The driver's error for a call that got no answer within `limit`.
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
                    Meaning::DiskFull => Self::DiskFull(error.to_string()),
                    Meaning::DiskFailed => Self::DiskFailed(error.to_string()),
                    Meaning::Refusal => Self::Database(error),
                }
            }
            _ => Self::Database(error),
        }
    }
}

/// What an error code of a database means for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// Try again later.
    NotNow,
    /// No room for a write, or a read-only file system.
    DiskFull,
    /// An I/O error under a write.
    DiskFailed,
    /// Any other error.
    Refusal,
}

/// The meaning of an error code of either database.
///
/// A SQLSTATE has five characters, an extended code of SQLite at most four digits.
fn meaning_of(code: &str) -> Meaning {
    let is_sqlstate = code.len() == 5;
    if is_sqlstate {
        return meaning_of_sqlstate(code);
    }
    code.parse().map_or(Meaning::Refusal, meaning_of_sqlite)
}

/// "Not now" are insufficient resources (53), serialization and deadlock (40),
/// read-only after a failover (25006), the time-outs for locks (55P03) and
/// statements (57014).
fn meaning_of_sqlstate(code: &str) -> Meaning {
    match code {
        // disk_full and io_error.
        "53100" => return Meaning::DiskFull,
        "58030" => return Meaning::DiskFailed,
        "25006" | "55P03" | "57014" => return Meaning::NotNow,
        _ => {}
    }
    if ["53", "40"].iter().any(|class| code.starts_with(class)) {
        Meaning::NotNow
    } else {
        Meaning::Refusal
    }
}

/// The last byte of an extended code is the primary code.
const fn meaning_of_sqlite(code: u32) -> Meaning {
    const IOERR_READ: u32 = 266;
    const IOERR_SHORT_READ: u32 = 522;
    match (code & 0xff, code) {
        // SQLITE_BUSY, SQLITE_LOCKED.
        (5 | 6, _) | (_, IOERR_READ | IOERR_SHORT_READ) => Meaning::NotNow,
        // SQLITE_READONLY, SQLITE_FULL: a commit that met them was rolled back.
        (8 | 13, _) => Meaning::DiskFull,
        // SQLITE_IOERR: after a failed flush the commit may be found in the WAL.
        (10, _) => Meaning::DiskFailed,
        _ => Meaning::Refusal,
    }
}

#[cfg(test)]
mod tests {
    use super::{Meaning, meaning_of};

    #[test]
    fn codes_have_their_meanings() {
        for passing in [
            "53300", "40001", "40P01", "25006", "55P03", "57014", "5", "6", "261", "517", "266", "522",
        ] {
            assert_eq!(meaning_of(passing), Meaning::NotNow, "{passing}");
        }
        for full in ["53100", "13", "8", "1032"] {
            assert_eq!(meaning_of(full), Meaning::DiskFull, "{full}");
        }
        for failed in ["58030", "10", "778", "1034"] {
            assert_eq!(meaning_of(failed), Meaning::DiskFailed, "{failed}");
        }
        for refusal in ["23505", "42P01", "22023", "1", "19", "2067", "1555", "x"] {
            assert_eq!(meaning_of(refusal), Meaning::Refusal, "{refusal}");
        }
    }
}
