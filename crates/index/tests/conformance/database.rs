//! An index on the test's own database, and direct access to its tables.

use std::sync::{Arc, Weak};

use keepsake_index::postgres::PostgresOptions;
use keepsake_index::{PostgresIndex, SqliteIndex};
use keepsake_testkit::{TestDatabase, fresh_database, fresh_database_from};
use sqlx::postgres::{PgPool, PgPoolOptions, PgRow};
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions, SqliteRow};
use sqlx::{AssertSqlSafe, Row};
use tempfile::TempDir;
use tokio::sync::Mutex;
use uuid::Uuid;

/// A test's own copy of the migrated template.
pub(crate) struct OwnDatabase {
    pub(crate) database: TestDatabase,
    _template: Arc<TestDatabase>,
}

/// An index on its own file, with a direct connection to the file.
pub(crate) async fn sqlite_index() -> (SqliteIndex, SqlitePool, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("index.db").display());
    let index = SqliteIndex::open(&url).await.unwrap();
    let raw = SqlitePoolOptions::new().max_connections(1).connect(&url).await.unwrap();
    (index, raw, folder)
}

/// An index on its own migrated database, with a direct connection of a role that
/// row-level security does not restrict.
pub(crate) async fn postgres_index() -> (PostgresIndex, PgPool, OwnDatabase) {
    // Shared by the tests that run at the same time, and dropped with the last of them.
    static TEMPLATE: Mutex<Weak<TestDatabase>> = Mutex::const_new(Weak::new());
    let mut shared = TEMPLATE.lock().await;
    let template = if let Some(template) = shared.upgrade() {
        template
    } else {
        let template = Arc::new(fresh_database().await);
        PostgresIndex::migrate(&template.url()).await.unwrap();
        *shared = Arc::downgrade(&template);
        template
    };
    drop(shared);
    let database = fresh_database_from(template.name()).await;
    let options = PostgresOptions::new(database.url());
    let index = PostgresIndex::connect(&options).await.unwrap();
    let raw = postgres_pool(&database.url()).await;
    (index, raw, OwnDatabase { database, _template: template })
}

pub(crate) async fn postgres_pool(url: &str) -> PgPool {
    PgPoolOptions::new().max_connections(1).connect(url).await.unwrap()
}

/// The tables, for facts that the index does not show.
#[derive(Clone)]
pub(crate) enum Raw {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

/// A row of columns that the query has cast to text.
pub(crate) type TextRow = Vec<Option<String>>;

impl Raw {
    pub(crate) fn postgres(&self) -> &PgPool {
        let Self::Postgres(pool) = self else { panic!("it is SQLite") };
        pool
    }

    /// Runs a statement that both databases understand; ids are `$1` and on.
    pub(crate) async fn execute(&self, sql: &str, ids: &[Uuid]) {
        self.rows(sql, ids).await;
    }

    /// The rows of a query whose columns are all cast to text.
    pub(crate) async fn rows(&self, sql: &str, ids: &[Uuid]) -> Vec<TextRow> {
        let sql = AssertSqlSafe(sql);
        match self {
            Self::Sqlite(pool) => {
                let query = ids.iter().fold(sqlx::query(sql), |query, id| query.bind(*id));
                let texts =
                    |row: &SqliteRow| (0..row.len()).map(|column| row.try_get(column).unwrap()).collect();
                query.fetch_all(pool).await.unwrap().iter().map(texts).collect()
            }
            Self::Postgres(pool) => {
                let query = ids.iter().fold(sqlx::query(sql), |query, id| query.bind(*id));
                let texts = |row: &PgRow| (0..row.len()).map(|column| row.try_get(column).unwrap()).collect();
                query.fetch_all(pool).await.unwrap().iter().map(texts).collect()
            }
        }
    }

    /// The number that a query of one row and one column answers.
    pub(crate) async fn number(&self, sql: &str, ids: &[Uuid]) -> i64 {
        let rows = self.rows(&format!("SELECT CAST(({sql}) AS TEXT)"), ids).await;
        rows[0][0].as_deref().unwrap().parse().unwrap()
    }
}
