//! What the database and the bucket hold behind the API.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use keepsake_core::{BlobKey, ContentHash, StoreId, TenantId, VersionId};
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, PgPool, SqlitePool};
use uuid::Uuid;

use super::{Deployment, Tenant};

const AT_ONCE: usize = 8;

/// A row of `version`.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    pub(crate) seq: i64,
    pub(crate) prev_seq: Option<i64>,
    pub(crate) op: String,
    pub(crate) path: String,
    pub(crate) id: Uuid,
    pub(crate) blob_id: Option<Uuid>,
    pub(crate) size_bytes: Option<i64>,
    pub(crate) sha256: Option<Vec<u8>>,
    pub(crate) created_at: i64,
}

type Row = (i64, Option<i64>, String, String, Uuid, Option<Uuid>, Option<i64>, Option<Vec<u8>>, i64);

impl From<Row> for Version {
    fn from((seq, prev_seq, op, path, id, blob_id, size_bytes, sha256, created_at): Row) -> Self {
        Self { seq, prev_seq, op, path, id, blob_id, size_bytes, sha256, created_at }
    }
}

/// The database of a deployment, as its owner sees it.
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
}

impl Database {
    /// Every version of a store in its order.
    pub(crate) async fn versions(&self, store_id: StoreId) -> Vec<Version> {
        const SELECT: &str = "SELECT seq, prev_seq, op, path, version_id, blob_id, size_bytes, sha256, created_at \
                              FROM version WHERE store_id = $1 ORDER BY seq";
        let rows: Vec<Row> = match self {
            Self::Postgres(pool) => {
                sqlx::query_as(SELECT).bind(store_id.uuid()).fetch_all(pool).await.unwrap()
            }
            Self::Sqlite(pool) => sqlx::query_as(SELECT).bind(store_id.uuid()).fetch_all(pool).await.unwrap(),
        };
        rows.into_iter().map(Version::from).collect()
    }

    /// The one number that a query of either dialect answers.
    pub(crate) async fn number(&self, query: &str) -> i64 {
        let query = AssertSqlSafe(query.to_owned());
        match self {
            Self::Postgres(pool) => sqlx::query_scalar(query).fetch_one(pool).await.unwrap(),
            Self::Sqlite(pool) => sqlx::query_scalar(query).fetch_one(pool).await.unwrap(),
        }
    }

    /// Every table that has a tenant's id, as the database names them.
    pub(crate) async fn tenant_tables(&self) -> Vec<String> {
        match self {
            Self::Postgres(pool) => {
                let tables = "SELECT CAST(table_name AS text) FROM information_schema.columns \
                              WHERE table_schema = 'public' AND column_name = 'tenant_id'";
                sqlx::query_scalar(tables).fetch_all(pool).await.unwrap()
            }
            Self::Sqlite(pool) => {
                let tables = "SELECT t.name FROM sqlite_schema t \
                              JOIN pragma_table_info(t.name) c ON c.name = 'tenant_id' WHERE t.type = 'table'";
                sqlx::query_scalar(tables).fetch_all(pool).await.unwrap()
            }
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

/// The new texts of versions, in their order; `None` for a version without new text.
/// Fails if a blob is missing or differs from its row.
pub(crate) async fn texts(
    deployment: &Deployment,
    tenant: &Tenant,
    versions: &[Version],
) -> Vec<Option<String>> {
    let blobs = deployment.blobs().await;
    stream::iter(versions)
        .map(|version| {
            let blobs = &blobs;
            async move {
                let blob_id = VersionId::from_uuid(version.blob_id?);
                let key = BlobKey { tenant_id: tenant.id, store_id: tenant.store_id, blob_id };
                let bytes: Option<Bytes> = blobs.get(&key, u64::MAX).await.unwrap();
                let bytes = bytes.unwrap_or_else(|| panic!("the blob of {version:?} is missing"));
                let sha256 = ContentHash::of(&bytes);
                assert_eq!(version.sha256.as_deref(), Some(sha256.as_bytes().as_slice()), "{version:?}");
                assert_eq!(version.size_bytes, i64::try_from(bytes.len()).ok(), "{version:?}");
                Some(String::from_utf8(bytes.to_vec()).unwrap())
            }
        })
        .buffered(AT_ONCE)
        .collect()
        .await
}

/// Blobs of a tenant that no version names.
pub(crate) async fn orphans(
    deployment: &Deployment,
    tenant_id: TenantId,
    versions: &[Version],
) -> Vec<BlobKey> {
    let named: BTreeSet<_> = versions.iter().filter_map(|version| version.blob_id).collect();
    let listed = deployment.blobs().await.list(None, None, 100_000).await.unwrap();
    assert!(listed.len() < 100_000);
    let keys = listed.into_iter().map(|blob| blob.key);
    keys.filter(|key| key.tenant_id == tenant_id && !named.contains(&key.blob_id.uuid())).collect()
}
