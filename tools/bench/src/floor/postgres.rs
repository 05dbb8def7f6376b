//! The floor's tables on Postgres: copies of the server's tables.

use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{Connection, Executor, PgConnection, Row};
use uuid::Uuid;

use super::{NewRow, PAGE, Place, insertion, page};

/// Creates tables like the server's, with its rows and without row-level security.
///
/// Each has only the index that its query or insert needs, so the planner cannot
/// choose a wrong one. The rows are copied as the role that sees every tenant,
/// which the owner may not be.
const PREPARE: &str = "
    DROP TABLE IF EXISTS bench_floor_store, bench_floor_memory, bench_floor_version;
    CREATE TABLE bench_floor_store (LIKE store, PRIMARY KEY (tenant_id, store_id));
    CREATE TABLE bench_floor_memory (LIKE memory);
    CREATE UNIQUE INDEX ON bench_floor_memory (tenant_id, store_id, path) WHERE deleted_at IS NULL;
    CREATE TABLE bench_floor_version (LIKE version, content bytea, PRIMARY KEY (tenant_id, store_id, seq));
    GRANT INSERT ON bench_floor_store, bench_floor_memory TO keepsake_jobs;
    SET ROLE keepsake_jobs;
    INSERT INTO bench_floor_store SELECT * FROM store;
    INSERT INTO bench_floor_memory SELECT * FROM memory;
    RESET ROLE;
    GRANT SELECT ON bench_floor_store, bench_floor_memory TO keepsake_app;
    GRANT INSERT ON bench_floor_version TO keepsake_app";

/// The columns that the server selects when it reads a head.
const FIND: &str = "SELECT m.path, m.size_bytes, s.archived_at, s.purge_epoch, m.memory_id, m.version_id, \
    m.head_seq, m.blob_id, m.sha256, m.claimed_by, m.claimed_until \
    FROM bench_floor_store s \
    LEFT JOIN bench_floor_memory m \
        ON m.tenant_id = $1 AND m.store_id = $2 AND m.path = $3 AND m.deleted_at IS NULL \
    WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL";

pub(super) struct PostgresFloor {
    pool: PgPool,
}

impl PostgresFloor {
    /// Recreates the tables, and opens as many connections as the server has.
    pub(super) async fn prepare(url: &str, owner_url: &str, connections: u32) -> sqlx::Result<Self> {
        let mut owner = PgConnection::connect(owner_url).await?;
        owner.execute(PREPARE).await?;
        // Separate calls, because VACUUM cannot run in a transaction.
        owner.execute("VACUUM ANALYZE bench_floor_store").await?;
        owner.execute("VACUUM ANALYZE bench_floor_memory").await?;
        owner.close().await?;
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .test_before_acquire(false)
            .after_connect(|connection, _| {
                Box::pin(async move { connection.execute("SET ROLE keepsake_app").await.map(drop) })
            })
            .connect(url)
            .await?;
        Ok(Self { pool })
    }

    pub(super) async fn find(&self, place: &Place) -> sqlx::Result<bool> {
        let row = sqlx::query(FIND)
            .bind(place.tenant)
            .bind(place.store)
            .bind(&place.path)
            .fetch_optional(&self.pool)
            .await?;
        row.map_or(Ok(false), |row| Ok(row.try_get::<Option<Uuid>, _>(4)?.is_some()))
    }

    pub(super) async fn list(&self, place: &Place, range: &[String; 2]) -> sqlx::Result<usize> {
        let rows = page!("bench_floor_memory", place, range).fetch_all(&self.pool).await?;
        Ok(rows.len())
    }

    pub(super) async fn insert(&self, row: &NewRow<'_>) -> sqlx::Result<()> {
        insertion!(row).execute(&self.pool).await?;
        Ok(())
    }
}
