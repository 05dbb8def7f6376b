//! The floor's tables on SQLite: a file in the folder of the server's file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use keepsake_index::migrations;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
    SqliteSynchronous,
};
use sqlx::{ConnectOptions, Executor, Row};
use tokio::sync::Mutex;
use uuid::Uuid;

use super::{NewRow, PAGE, Place, insertion, page};

/// The number of connections that read, as in the server.
const READERS: u32 = 4;

/// Copies the server's rows.
const COPY: &str = "INSERT INTO store SELECT * FROM served.store; \
    INSERT INTO memory SELECT * FROM served.memory; \
    DETACH served";

/// A table of versions with a primary key and no other index.
const BARE_VERSION: &str = "CREATE TABLE bench_floor_version (tenant_id BLOB NOT NULL, store_id BLOB NOT NULL, \
    seq INTEGER NOT NULL, version_id BLOB NOT NULL, memory_id BLOB NOT NULL, prev_seq INTEGER, op TEXT NOT NULL, \
    path TEXT, blob_id BLOB, size_bytes INTEGER, sha256 BLOB, created_at INTEGER NOT NULL, actor_type TEXT, \
    actor_id TEXT, redacted_at INTEGER, redacted_by TEXT, content BLOB, PRIMARY KEY (tenant_id, store_id, seq)) \
    STRICT";

/// The columns that the server selects when it reads a head.
const FIND: &str = "SELECT s.archived_at IS NOT NULL, s.purge_epoch, \
    m.path, m.size_bytes, m.memory_id, m.version_id, m.head_seq, m.blob_id, m.sha256 \
    FROM store s \
    LEFT JOIN memory m ON m.tenant_id = $1 AND m.store_id = $2 AND m.path = $3 AND m.deleted_at IS NULL \
    WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL";

pub(super) struct SqliteFloor {
    readers: SqlitePool,
    writer: Mutex<SqliteConnection>,
}

impl SqliteFloor {
    /// Recreates the file with the server's rows.
    pub(super) async fn prepare(served: &Path) -> sqlx::Result<Self> {
        for suffix in ["", "-wal", "-shm"] {
            match std::fs::remove_file(beside(served, suffix)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        let options = SqliteConnectOptions::new()
            .filename(beside(served, ""))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(Duration::from_secs(5))
            .foreign_keys(false)
            .disable_statement_logging();
        let mut writer = options.connect().await?;
        migrations::sqlite().run(&mut writer).await?;
        fill(&mut writer, served).await?;
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .test_before_acquire(false)
            .idle_timeout(None)
            .max_lifetime(None)
            .connect_lazy_with(options.read_only(true).create_if_missing(false));
        Ok(Self { readers, writer: Mutex::new(writer) })
    }

    pub(super) async fn find(&self, place: &Place) -> sqlx::Result<bool> {
        let row = sqlx::query(FIND)
            .bind(place.tenant)
            .bind(place.store)
            .bind(&place.path)
            .fetch_optional(&self.readers)
            .await?;
        row.map_or(Ok(false), |row| Ok(row.try_get::<Option<Uuid>, _>(4)?.is_some()))
    }

    pub(super) async fn list(&self, place: &Place, range: &[String; 2]) -> sqlx::Result<usize> {
        let rows = page!("memory", place, range).fetch_all(&self.readers).await?;
        Ok(rows.len())
    }

    pub(super) async fn insert(&self, row: &NewRow<'_>) -> sqlx::Result<()> {
        let mut writer = self.writer.lock().await;
        insertion!(row).execute(&mut *writer).await?;
        Ok(())
    }
}

async fn fill(writer: &mut SqliteConnection, served: &Path) -> sqlx::Result<()> {
    writer.execute(BARE_VERSION).await?;
    sqlx::query("ATTACH $1 AS served").bind(served.to_string_lossy()).execute(&mut *writer).await?;
    writer.execute(COPY).await?;
    Ok(())
}

/// The path of the floor's file, or of its journal with a suffix.
fn beside(served: &Path, suffix: &str) -> PathBuf {
    let mut name = served.as_os_str().to_owned();
    name.push("-bench-floor");
    name.push(suffix);
    PathBuf::from(name)
}
