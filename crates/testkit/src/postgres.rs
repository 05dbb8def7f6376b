//! Empty Postgres databases, one per test.

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::{required_variable, unique_name};

/// Names the server: the URL of a role that may create databases and roles.
pub const URL_VARIABLE: &str = "KEEPSAKE_TEST_POSTGRES_URL";

/// Whether the server is the coordinator of a Citus cluster. The database of the URL has the
/// extension, and so has `template1` of each node, where the coordinator's knows the nodes.
const DISTRIBUTED_VARIABLE: &str = "KEEPSAKE_TEST_CITUS";

/// A database for one test, dropped with this value.
#[derive(Debug)]
pub struct TestDatabase {
    server_url: String,
    name: String,
}

#[derive(Debug)]
pub struct TableLock(PgConnection);

impl TableLock {
    pub async fn unlock(mut self) {
        self.0.execute("ROLLBACK").await.expect("the lock was lost");
    }
}

pub async fn fresh_database() -> TestDatabase {
    create("").await
}

/// Creates a copy of the database `template`, which must have no connections.
pub async fn fresh_database_from(template: &str) -> TestDatabase {
    create(&format!(" TEMPLATE \"{template}\"")).await
}

async fn create(options: &str) -> TestDatabase {
    let server_url = required_variable(URL_VARIABLE, "postgres://postgres:password@127.0.0.1:5432/postgres");
    let name = unique_name();
    let created = try_execute_on_nodes(&server_url, &format!("CREATE DATABASE \"{name}\"{options}")).await;
    created.unwrap_or_else(|error| panic!("creating a database: {error}"));
    TestDatabase { server_url, name }
}

impl TestDatabase {
    pub fn url(&self) -> String {
        with_database(&self.server_url, &self.name)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs a statement as the server's role, for actions of an operator.
    pub async fn execute(&self, statement: &str) {
        execute(&self.url(), statement).await;
    }

    /// Locks a table against every other use until the value is dropped.
    pub async fn lock_table(&self, table: &str) -> TableLock {
        let lock = async {
            let mut connection = PgConnection::connect(&self.url()).await?;
            let lock = format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE");
            connection.execute(sqlx::raw_sql(AssertSqlSafe(lock))).await?;
            Ok::<_, sqlx::Error>(TableLock(connection))
        };
        lock.await.unwrap_or_else(|error| panic!("locking {table}: {error}"))
    }
}

/// Drops it, cutting connections that are still open; a failure does not fail the test.
impl Drop for TestDatabase {
    fn drop(&mut self) {
        let (server_url, name) = (self.server_url.clone(), self.name.clone());
        // In another thread: this one may be blocking the test's runtime.
        let dropper = std::thread::spawn(move || {
            if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() {
                let statement = format!("DROP DATABASE IF EXISTS \"{name}\" WITH (FORCE)");
                let _ = runtime.block_on(try_execute_on_nodes(&server_url, &statement));
            }
        });
        let _ = dropper.join();
    }
}

pub(crate) async fn execute(server_url: &str, statement: &str) {
    let done = try_execute(server_url, statement).await;
    done.unwrap_or_else(|error| panic!("{statement}: {error}"));
}

async fn try_execute(server_url: &str, statement: &str) -> sqlx::Result<()> {
    let mut connection = PgConnection::connect(server_url).await?;
    connection.execute(AssertSqlSafe(statement.to_owned())).await?;
    connection.close().await
}

/// Executes a statement on the server and, if it is a coordinator, on the other nodes.
async fn try_execute_on_nodes(server_url: &str, statement: &str) -> sqlx::Result<()> {
    try_execute(server_url, statement).await?;
    if is_distributed() {
        let on_nodes = format!(
            "DO $do$ BEGIN ASSERT (SELECT bool_and(success) FROM run_command_on_workers($run${statement}$run$)); END $do$"
        );
        try_execute(server_url, &on_nodes).await?;
    }
    Ok(())
}

/// Whether the databases of tests are on several nodes.
pub fn is_distributed() -> bool {
    std::env::var_os(DISTRIBUTED_VARIABLE).is_some_and(|value| !value.is_empty())
}

/// The same URL for another database: its path replaced, all else kept.
fn with_database(url: &str, database: &str) -> String {
    let (address, query) = match url.split_once('?') {
        Some((address, query)) => (address, format!("?{query}")),
        None => (url, String::new()),
    };
    let authority_at = address.find("://").map_or(0, |at| at + "://".len());
    let path_at = address[authority_at..].find('/').map_or(address.len(), |at| authority_at + at);
    format!("{}/{database}{query}", &address[..path_at])
}
