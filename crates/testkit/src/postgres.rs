//! Empty Postgres databases, one per test.

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::{required_variable, unique_name};

/// Names the server: the URL of a role that may create databases and roles.
pub const URL_VARIABLE: &str = "KEEPSAKE_TEST_POSTGRES_URL";

/// A database for one test, dropped with this value.
#[derive(Debug)]
pub struct TestDatabase {
    server_url: String,
    name: String,
    is_dropped: bool,
}

/// A locked table; see [`TestDatabase::lock_table`].
#[derive(Debug)]
pub struct TableLock(PgConnection);

impl TableLock {
    /// Unlocks it.
    ///
    /// # Panics
    /// When the connection broke.
    pub async fn unlock(mut self) {
        self.0.execute("ROLLBACK").await.expect("the lock was lost");
    }
}

/// Creates an empty database on the test server.
///
/// # Panics
/// When no server is configured, or it refuses.
pub async fn fresh_database() -> TestDatabase {
    create("").await
}

/// Creates a copy of the database `template`, which must have no connections.
///
/// # Panics
/// When no server is configured, or it refuses.
pub async fn fresh_database_from(template: &str) -> TestDatabase {
    create(&format!(" TEMPLATE \"{template}\"")).await
}

async fn create(options: &str) -> TestDatabase {
    let server_url = required_variable(URL_VARIABLE, "postgres://postgres:password@127.0.0.1:5432/postgres");
    let name = unique_name();
    execute(&server_url, format!("CREATE DATABASE \"{name}\"{options}")).await.unwrap_or_else(|error| {
        panic!("could not create a database on the server of {URL_VARIABLE}: {error}")
    });
    TestDatabase { server_url, name, is_dropped: false }
}

impl TestDatabase {
    /// Its URL, with the role of the test server.
    #[must_use]
    pub fn url(&self) -> String {
        with_database(&self.server_url, &self.name)
    }

    /// Its name on the server, to make copies of it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs a statement as the server's role, for actions of an operator.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn execute(&self, statement: &str) {
        execute(&self.url(), statement.to_owned())
            .await
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
    }

    /// Locks a table against every other use until the value is dropped.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn lock_table(&self, table: &str) -> TableLock {
        let lock = async {
            let mut connection = PgConnection::connect(&self.url()).await?;
            let lock = format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE");
            connection.execute(sqlx::raw_sql(AssertSqlSafe(lock))).await?;
            Ok::<_, sqlx::Error>(TableLock(connection))
        };
        lock.await.unwrap_or_else(|error| panic!("locking {table}: {error}"))
    }

    /// Drops it, cutting connections that are still open.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn close(mut self) {
        self.is_dropped = true;
        drop_database(&self.server_url, &self.name)
            .await
            .unwrap_or_else(|error| panic!("could not drop the database {}: {error}", self.name));
    }
}

/// Tries to drop the database; a failure does not fail the test.
impl Drop for TestDatabase {
    fn drop(&mut self) {
        if self.is_dropped {
            return;
        }
        let (server_url, name) = (self.server_url.clone(), self.name.clone());
        // In another thread: this one may be blocking the test's runtime.
        let dropper = std::thread::spawn(move || {
            if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() {
                let _ = runtime.block_on(drop_database(&server_url, &name));
            }
        });
        let _ = dropper.join();
    }
}

async fn drop_database(server_url: &str, name: &str) -> sqlx::Result<()> {
    execute(server_url, format!("DROP DATABASE IF EXISTS \"{name}\" WITH (FORCE)")).await
}

pub(crate) async fn execute(server_url: &str, statement: String) -> sqlx::Result<()> {
    let mut connection = PgConnection::connect(server_url).await?;
    connection.execute(AssertSqlSafe(statement)).await?;
    connection.close().await
}

/// The same URL for another database: its path replaced, all else kept.
#[must_use]
pub fn with_database(url: &str, database: &str) -> String {
    let (address, query) = match url.split_once('?') {
        Some((address, query)) => (address, format!("?{query}")),
        None => (url, String::new()),
    };
    let authority_at = address.find("://").map_or(0, |at| at + "://".len());
    let path_at = address[authority_at..].find('/').map_or(address.len(), |at| authority_at + at);
    format!("{}/{database}{query}", &address[..path_at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_database_of_a_url_is_replaced() {
        for (url, expected) in [
            ("postgres://u:p@h:5432/postgres", "postgres://u:p@h:5432/new"),
            ("postgres://u:p@h:5432", "postgres://u:p@h:5432/new"),
            ("postgresql://h/old?sslmode=disable", "postgresql://h/new?sslmode=disable"),
            ("postgres:///old?host=/run/postgresql", "postgres:///new?host=/run/postgresql"),
            ("postgres://h?host=/a/b", "postgres://h/new?host=/a/b"),
        ] {
            assert_eq!(with_database(url, "new"), expected);
        }
    }

    #[tokio::test]
    async fn test_database_is_created_copied_and_dropped() {
        let database = fresh_database().await;
        execute(&database.url(), "CREATE TABLE facts (fact text)".to_owned()).await.unwrap();
        let copy = fresh_database_from(database.name()).await;
        execute(&copy.url(), "INSERT INTO facts VALUES ('copied')".to_owned()).await.unwrap();

        let still_open = PgConnection::connect(&copy.url()).await.unwrap();
        let (url, copy_url) = (database.url(), copy.url());
        database.close().await;
        drop(copy);
        drop(still_open);
        assert!(PgConnection::connect(&url).await.is_err());
        assert!(PgConnection::connect(&copy_url).await.is_err());
    }
}
