//! What can go wrong in the index.

/// A failure of the index; a refusal or an absence is not one.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The database could not be reached or did not answer in time. A write
    /// under way may or may not have landed.
    #[error("the database is not available: {0}")]
    Unavailable(#[source] sqlx::Error),
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

impl From<sqlx::Error> for IndexError {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::Error as Sql;
        let unavailable = match &error {
            Sql::Io(_) | Sql::Tls(_) | Sql::PoolTimedOut | Sql::PoolClosed | Sql::WorkerCrashed => true,
            Sql::Database(answer) => answer.code().is_some_and(|code| is_passing(&code)),
            _ => false,
        };
        if unavailable {
            Self::Unavailable(error)
        } else {
            Self::Database(error)
        }
    }
}

/// Whether a code of either database means "not now" rather than "no".
///
/// Postgres: connection exceptions (08), operator intervention (57P),
/// insufficient resources (53), serialization and deadlock (40), read-only
/// after a failover (25006), the time-outs for locks (55P03) and statements
/// (57014). SQLite: busy (5), locked (6), with their extended codes; those have
/// at most four digits, a SQLSTATE always five characters.
fn is_passing(code: &str) -> bool {
    let is_sqlstate = code.len() == 5;
    if is_sqlstate {
        return ["08", "53", "57P", "40"]
            .iter()
            .any(|class| code.starts_with(class))
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
            "08006", "57P01", "53300", "40001", "40P01", "25006", "55P03", "57014", "5", "6", "261", "517",
        ] {
            assert!(is_passing(passing), "{passing}");
        }
        for refusal in ["23505", "42P01", "22023", "1", "19", "2067", "1555"] {
            assert!(!is_passing(refusal), "{refusal}");
        }
    }
}
