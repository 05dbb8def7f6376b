//! What the database and the bucket hold behind the API.

use keepsake_core::{BlobKey, StoreId};
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, PgPool, SqlitePool};
use uuid::Uuid;

use super::script::{PG_DUMP, from_environment, run};
use super::*;

#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) id: Uuid,
    blob_id: Option<Uuid>,
}

#[derive(Debug)]
pub(crate) enum Database {
    Postgres(PgPool),
    Sqlite(SqlitePool),
}

impl Deployment {
    /// Opens the database beside a server; to write, on SQLite, without one.
    pub(crate) async fn database(&self) -> Database {
        if self.pair.has_postgres() {
            let pool = PgPoolOptions::new().max_connections(1);
            Database::Postgres(pool.connect(&self.postgres_url()).await.unwrap())
        } else {
            let options = SqliteConnectOptions::new().filename(self.sqlite_file());
            let pool = SqlitePoolOptions::new().max_connections(1);
            Database::Sqlite(pool.connect_with(options).await.unwrap())
        }
    }

    /// Executes statements; on SQLite, without a server.
    pub(crate) async fn execute(&self, statements: impl Into<String>) {
        let database = self.database().await;
        database.execute(statements.into()).await;
        database.close().await;
    }

    pub(crate) async fn number(&self, query: &str) -> i64 {
        let database = self.database().await;
        let number = database.number(query).await;
        database.close().await;
        number
    }

    /// All that the index holds: a dump of the database, or its files.
    pub(crate) async fn index_bytes(&self) -> Vec<u8> {
        if self.pair.has_postgres() {
            let mut dump = Command::new(from_environment(PG_DUMP));
            return run(dump.args(["--dbname", &self.postgres_url()])).await.into_bytes();
        }
        let file = self.sqlite_file();
        let files = [file.with_extension("db-wal"), file];
        files.iter().flat_map(|file| std::fs::read(file).unwrap_or_default()).collect()
    }

    pub(crate) async fn content_bytes(&self) -> Vec<u8> {
        let blobs = self.blobs().await;
        let mut bytes = Vec::new();
        for listed in blobs.list(None, None, 100_000).await.unwrap() {
            bytes.extend(blobs.get(&listed.key, listed.size_bytes).await.unwrap().unwrap_or_default());
        }
        bytes
    }
}

impl Database {
    pub(crate) async fn versions(&self, store_id: StoreId) -> Vec<Version> {
        const SELECT: &str = "SELECT version_id, blob_id FROM version WHERE store_id = $1 ORDER BY seq";
        let id = store_id.uuid();
        let rows: Vec<(Uuid, Option<Uuid>)> = match self {
            Self::Postgres(pool) => sqlx::query_as(SELECT).bind(id).fetch_all(pool).await.unwrap(),
            Self::Sqlite(pool) => sqlx::query_as(SELECT).bind(id).fetch_all(pool).await.unwrap(),
        };
        rows.into_iter().map(|(id, blob_id)| Version { id, blob_id }).collect()
    }

    pub(crate) async fn number(&self, query: &str) -> i64 {
        let query = AssertSqlSafe(query.to_owned());
        match self {
            Self::Postgres(pool) => sqlx::query_scalar(query).fetch_one(pool).await.unwrap(),
            Self::Sqlite(pool) => sqlx::query_scalar(query).fetch_one(pool).await.unwrap(),
        }
    }

    /// Every table that has a tenant's id, as the database names them.
    pub(crate) async fn tenant_tables(&self) -> Vec<String> {
        const ON_POSTGRES: &str = "SELECT CAST(table_name AS text) FROM information_schema.columns \
            WHERE table_schema = 'public' AND column_name = 'tenant_id'";
        const ON_SQLITE: &str = "SELECT t.name FROM sqlite_schema t \
            JOIN pragma_table_info(t.name) c ON c.name = 'tenant_id' WHERE t.type = 'table'";
        match self {
            Self::Postgres(pool) => sqlx::query_scalar(ON_POSTGRES).fetch_all(pool).await.unwrap(),
            Self::Sqlite(pool) => sqlx::query_scalar(ON_SQLITE).fetch_all(pool).await.unwrap(),
        }
    }

    pub(crate) async fn execute(&self, statements: String) {
        let statements = sqlx::raw_sql(AssertSqlSafe(statements));
        match self {
            Self::Postgres(pool) => drop(statements.execute(pool).await.unwrap()),
            Self::Sqlite(pool) => drop(statements.execute(pool).await.unwrap()),
        }
    }

    pub(crate) async fn close(self) {
        match self {
            Self::Postgres(pool) => pool.close().await,
            Self::Sqlite(pool) => pool.close().await,
        }
    }
}

/// Blobs of a tenant that no version of its store names.
pub(crate) async fn orphans(deployment: &Deployment, tenant: &Tenant, database: &Database) -> Vec<BlobKey> {
    let versions = database.versions(tenant.store_id).await;
    let is_named = |key: &BlobKey| versions.iter().any(|version| version.blob_id == Some(key.blob_id.uuid()));
    let listed = deployment.blobs().await.list(None, None, 100_000).await.unwrap();
    assert!(listed.len() < 100_000);
    let keys = listed.into_iter().map(|blob| blob.key);
    keys.filter(|key| key.tenant_id == tenant.id && !is_named(key)).collect()
}
