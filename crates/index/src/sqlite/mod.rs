//! The index on SQLite: one process, one file.
//!
//! Writes use one connection with `BEGIN IMMEDIATE`. Reads use a separate pool, and
//! in WAL mode they run beside a write. Commits that wait for the write connection
//! share one transaction with a savepoint for each, and so share one flush of the
//! disk. The lock on the data folder keeps a second process from opening the file.

pub(crate) mod commit;
pub(crate) mod head;
#[cfg(test)]
pub(crate) mod plans;

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keepsake_telemetry::PoolState;
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteExecutor, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
    SqliteSynchronous,
};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Sqlite, Transaction};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::{IndexError, Migrated, migrations};

/// Connections for reads.
const READERS: u32 = 4;
/// Rows that a reader's thread may prefetch. When a search reads a whole store, the
/// thread and its consumer would otherwise wake each other for each row. A row of
/// terms has some kilobytes; for the largest memories it has some tens of
/// kilobytes.
const ROWS_AHEAD: usize = 200;
/// Bytes of the file that readers map into memory, which avoids a system call per
/// page. A disk error in the mapped part ends the process instead of failing one
/// query.
const MAPPED_BYTES: &str = "1073741824";

/// Memory for pages of the writing connection, in KiB (negative: not in pages). A
/// transaction of many commits that changes more pages than fit would write some of them
/// several times.
const WRITER_CACHE: &str = "-32768";
/// Pages of the write-ahead log (16 MiB) from which a commit copies them into the
/// database. A page that many commits change is copied once, and each copy is flushed.
const CHECKPOINT_PAGES: &str = "4096";

/// The index on SQLite.
#[derive(Debug, Clone)]
pub struct SqliteIndex {
    readers: SqlitePool,
    writer: Arc<Mutex<Writer>>,
    /// Calls that wait for a connection of `readers`.
    waiting_readers: Arc<AtomicU64>,
}

/// A call that waits for a connection; dropping it ends the wait.
struct Waiting<'a>(&'a AtomicU64);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The single write connection.
#[derive(Debug)]
pub(crate) struct Writer {
    connection: SqliteConnection,
    /// Whether a transaction has begun and has not finished.
    is_open: bool,
}

impl Writer {
    /// Begins a transaction; rolls back one that an abandoned task left open.
    async fn begin(&mut self) -> Result<&mut SqliteConnection, IndexError> {
        self.idle().await;
        self.is_open = true;
        sqlx::query("BEGIN IMMEDIATE")
            .execute(&mut self.connection)
            .await?;
        Ok(&mut self.connection)
    }

    /// The connection, without an open transaction.
    async fn idle(&mut self) -> &mut SqliteConnection {
        if std::mem::take(&mut self.is_open) {
            // Fails if SQLite has already rolled back.
            let _ = sqlx::query("ROLLBACK").execute(&mut self.connection).await;
        }
        &mut self.connection
    }

    /// The connection, inside the open transaction.
    pub(crate) const fn connection(&mut self) -> &mut SqliteConnection {
        &mut self.connection
    }

    pub(crate) async fn commit(&mut self) -> Result<(), IndexError> {
        sqlx::query("COMMIT").execute(&mut self.connection).await?;
        self.is_open = false;
        Ok(())
    }
}

impl SqliteIndex {
    /// Creates and migrates the file if necessary; answers what it changed.
    ///
    /// # Errors
    /// As [`SqliteIndex::open`].
    pub async fn migrate(url: &str) -> Result<Migrated, IndexError> {
        let (_, connection, migrated) = Self::connect(url).await?;
        connection.close().await?;
        Ok(migrated)
    }

    /// Opens a connection to the file, which is created and migrated if necessary.
    async fn connect(url: &str) -> Result<(SqliteConnectOptions, SqliteConnection, Migrated), IndexError> {
        let options = parse(url)?
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // An acknowledged commit survives a power failure.
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(Duration::from_secs(5))
            // Deleted content is overwritten, so that an erasure also erases the file's
            // content.
            .pragma("secure_delete", "ON")
            .foreign_keys(false);
        let writer = options
            .clone()
            .pragma("cache_size", WRITER_CACHE)
            .pragma("wal_autocheckpoint", CHECKPOINT_PAGES);
        let mut connection = writer.connect().await?;
        let migrated = migrations::run(&migrations::sqlite(), &mut connection).await?;
        Ok((options, connection, migrated))
    }

    /// Opens the file; creates and migrates it if necessary.
    ///
    /// # Errors
    /// [`IndexError::BadUrl`], [`IndexError::Unavailable`], [`IndexError::Migration`].
    pub async fn open(url: &str) -> Result<Self, IndexError> {
        let (options, connection, _) = Self::connect(url).await?;
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .min_connections(0)
            .test_before_acquire(false)
            .idle_timeout(None)
            .max_lifetime(None)
            .connect_lazy_with(
                options
                    .read_only(true)
                    .create_if_missing(false)
                    .row_buffer_size(ROWS_AHEAD)
                    .pragma("mmap_size", MAPPED_BYTES),
            );
        Ok(Self {
            readers,
            writer: Arc::new(Mutex::new(Writer {
                connection,
                is_open: false,
            })),
            waiting_readers: Arc::default(),
        })
    }

    /// Checks that a file is an index that this binary can use; a server may have it
    /// open.
    ///
    /// # Errors
    /// [`IndexError::BadUrl`], [`IndexError::Unavailable`], and
    /// [`IndexError::SchemaTooOld`], also for a file without a schema.
    pub async fn look(url: &str) -> Result<(), IndexError> {
        let mut connection = parse(url)?.read_only(true).connect().await?;
        let looked = check_schema(&mut connection).await;
        connection.close().await?;
        looked
    }

    /// Acquires a connection for reads.
    pub(crate) async fn reader(&self) -> Result<PoolConnection<Sqlite>, IndexError> {
        let _waiting = Waiting::new(&self.waiting_readers);
        Ok(self.readers.acquire().await?)
    }

    /// Begins a read transaction on one snapshot.
    pub(crate) async fn snapshot(&self) -> Result<Transaction<'static, Sqlite>, IndexError> {
        let _waiting = Waiting::new(&self.waiting_readers);
        Ok(self.readers.begin().await?)
    }

    /// Waits for the write connection, and begins a transaction on it.
    pub(crate) async fn begin_write(&self) -> Result<OwnedMutexGuard<Writer>, IndexError> {
        let mut writer = Arc::clone(&self.writer).lock_owned().await;
        writer.begin().await?;
        Ok(writer)
    }

    /// Checks that the schema is new enough.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn check(&self) -> Result<(), IndexError> {
        check_schema(&self.readers).await
    }

    /// The state of the pool for reads.
    pub(crate) fn pools(&self) -> Vec<PoolState> {
        let (open, idle) = (u64::from(self.readers.size()), self.readers.num_idle() as u64);
        vec![PoolState {
            pool: "readers",
            in_use: open.saturating_sub(idle),
            idle,
            waiting: self.waiting_readers.load(Ordering::Relaxed),
            max: u64::from(READERS),
        }]
    }

    /// Rewrites the file.
    ///
    /// Deleted content is overwritten immediately, except for copies in the unused part
    /// of a page after its rows moved to another page.
    pub(crate) async fn vacuum(&self) -> Result<(), IndexError> {
        let mut writer = self.writer.lock().await;
        sqlx::query("VACUUM").execute(writer.idle().await).await?;
        Ok(())
    }

    /// Empties the log beside the file; `false`: a reader prevents it now.
    pub(crate) async fn truncate_log(&self) -> Result<bool, IndexError> {
        let mut writer = self.writer.lock().await;
        let is_busy: bool = sqlx::query_scalar("PRAGMA wal_checkpoint(TRUNCATE)")
            .fetch_one(writer.idle().await)
            .await?;
        Ok(!is_busy)
    }

    /// Closes the connections after their last transactions.
    pub async fn close(&self) {
        self.readers.close().await;
        let mut writer = self.writer.lock().await;
        // Removes the log's content, unless another process has the file open.
        let _ = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)")
            .execute(writer.idle().await)
            .await;
    }

    /// Limits the pages of the file, so that tests can fill it up.
    ///
    /// # Errors
    /// [`IndexError::Database`].
    pub async fn limit_pages(&self, max_pages: u32) -> Result<(), IndexError> {
        let mut writer = self.writer.lock().await;
        let pragma = AssertSqlSafe(format!("PRAGMA max_page_count = {max_pages}"));
        sqlx::query(pragma).execute(writer.idle().await).await?;
        Ok(())
    }

    /// The pool for reads, for tests that query through it.
    pub fn reader_pool(&self) -> &SqlitePool {
        &self.readers
    }
}

fn parse(url: &str) -> Result<SqliteConnectOptions, IndexError> {
    // The parser accepts any scheme as a file name.
    let options = SqliteConnectOptions::from_str(url)
        .ok()
        .filter(|_| url.starts_with("sqlite:"))
        .ok_or_else(|| IndexError::BadUrl("is not a valid sqlite:// URL".to_owned()))?;
    Ok(options.disable_statement_logging())
}

/// Refuses a schema that is older than this binary requires.
async fn check_schema(executor: impl SqliteExecutor<'_>) -> Result<(), IndexError> {
    let found: Option<i64> = sqlx::query_scalar("SELECT max(version) FROM _sqlx_migrations WHERE success")
        .fetch_one(executor)
        .await?;
    let (found, needed) = (
        found.unwrap_or_default(),
        migrations::newest(&migrations::sqlite()),
    );
    if found < needed {
        return Err(IndexError::SchemaTooOld { found, needed });
    }
    Ok(())
}
