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
            Sql::Database(ref answer) => match answer.code() {
                _ if is_connection_lost(&error) => Self::OutcomeUnknown(error),
                Some(code) if is_passing(&code) => Self::Unavailable(error),
                _ => Self::Database(error),
            },
            _ if is_connection_lost(&error) => Self::OutcomeUnknown(error),
            _ => Self::Database(error),
        }
    }
}

/// Whether a code of either database means "not now" rather than "no".
///
/// Postgres: insufficient resources (53), serialization and deadlock (40),
/// read-only after a failover (25006), the time-outs for locks (55P03) and
/// statements (57014). SQLite: busy (5), locked (6), with their extended codes; those have
/// at most four digits, a SQLSTATE always five characters.
fn is_passing(code: &str) -> bool {
    let is_sqlstate = code.len() == 5;
    if is_sqlstate {
        return ["53", "40"].iter().any(|class| code.starts_with(class))
            || matches!(code, "25006" | "55P03" | "57014");
    }
    code.parse::<u32>()
        .is_ok_and(|number| matches!(number & 0xff, 5 | 6))
}

#[cfg(test)]
mod tests {
    use super::is_passing;

    #[test]
    fn passing_codes_are_told_from_refusals() {
        for passing in [
            "53300", "40001", "40P01", "25006", "55P03", "57014", "5", "6", "261", "517",
        ] {
            assert!(is_passing(passing), "{passing}");
        }
        for refusal in ["23505", "42P01", "22023", "1", "19", "2067", "1555"] {
            assert!(!is_passing(refusal), "{refusal}");
        }
    }
}
