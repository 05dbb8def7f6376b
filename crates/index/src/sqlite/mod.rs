//! The index on SQLite: one process, one file. The lock on the data folder keeps a second
//! process from opening the file.
//!
//! Writes use one connection with `BEGIN IMMEDIATE`. Reads use a pool, and in WAL mode
//! they run beside a write. Commits that wait for the write connection share one
//! transaction, with a statement for each, and so share one flush of the disk.

mod backup;
pub(crate) mod commit;
mod damage;
mod known;
#[cfg(test)]
pub(crate) mod plans;
mod session;

use std::ffi::OsString;
use std::mem;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use deadpool::managed::{PoolError, QueueMode};
use keepsake_telemetry::PoolState;
use sqlx::sqlite::{
    SqliteArguments, SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous,
};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, SqlSafeStr, SqlStr};
use tokio::sync::{Mutex, MutexGuard, OwnedMutexGuard};

pub use backup::{FileContents, FileCounts, FileState};
pub(crate) use known::{ChangedPlaces, Changes, KnownAnswers};
use session::Opener;
pub(crate) use session::{Reader, SqliteSession};

use crate::database::pool_state;
use crate::{IndexError, MigrationReport, migrations};

const SECRETS: &str = "SELECT purpose, kid, wrapped_key FROM server_secret";
const READERS: usize = 4;
/// How long a call waits for a read connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(30);
/// Rows that a reader's thread may prefetch. When a search reads a whole store, the
/// thread and its consumer would otherwise wake each other for each row. A row of terms
/// has some kilobytes; for the largest memories it has some tens of kilobytes.
const ROWS_AHEAD: usize = 200;
/// Bytes of the file that readers map into memory, which avoids a system call per
/// page. A disk error in the mapped part ends the process instead of failing one
/// query.
const MAPPED_BYTES: &str = "1073741824";

/// Memory for pages of the write connection, in KiB (negative: not in pages). A
/// transaction of many commits that changes more pages than fit would write some of them
/// several times.
const WRITER_CACHE: &str = "-32768";
/// Pages in the write-ahead log (16 MiB) at which a commit copies them into the database.
/// Each copy is flushed, and a page that many commits have changed is copied once.
const CHECKPOINT_PAGES: &str = "4096";
/// The size to which SQLite cuts the log after copying it; a long read makes the log
/// grow.
const MAX_LOG_BYTES: &str = "67108864";
/// How long a statement waits for a lock of the file.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long all writers wait for reads that use the log, when it is emptied.
const READS_TIMEOUT: Duration = Duration::from_millis(50);

#[derive(Debug, Clone)]
pub struct SqliteIndex {
    readers: deadpool::managed::Pool<Opener>,
    /// The path of the write-ahead log.
    log: OsString,
    log_copier: Arc<Mutex<LogCopier>>,
    writer: Arc<Mutex<Writer>>,
    known: Arc<KnownAnswers>,
}

/// Copies the write-ahead log into the database on a separate connection, while others
/// read and write.
#[derive(Debug)]
struct LogCopier {
    options: SqliteConnectOptions,
    connection: Option<SqliteConnection>,
}

impl LogCopier {
    async fn copy(&mut self) -> sqlx::Result<()> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(self.options.connect().await?),
        };
        sqlx::query("PRAGMA wal_checkpoint(PASSIVE)").execute(connection).await?;
        Ok(())
    }

    /// After a failure, the next copy uses a new connection. A commit copies the log when it is
    /// long enough.
    async fn copy_or_reconnect(&mut self) {
        if let Err(error) = self.copy().await {
            self.connection = None;
            tracing::debug!(error = %error, "index.sqlite: could not copy the write-ahead log");
        }
    }
}

/// The single write connection.
#[derive(Debug)]
pub(crate) struct Writer {
    session: SqliteSession,
    /// The changes of the open transaction to the cached answers in `known`.
    changes: Changes,
    known: Arc<KnownAnswers>,
    /// Whether the write-ahead log may hold rows that were removed for good.
    has_removed: bool,
    /// SQLite's `data_version`, which changes when another connection has written to the
    /// file. `None`: unknown, at the start and after an error.
    data_version: Option<i64>,
    /// Whether a statement may wait only [`READS_TIMEOUT`] for a lock.
    has_short_wait: bool,
}

impl Writer {
    /// The connection, after a rollback of a transaction that an abandoned task left
    /// open, and with the usual wait for locks.
    async fn idle(&mut self) -> &mut SqliteConnection {
        let raw = self.session.idle().await;
        if self.has_short_wait {
            self.has_short_wait = set_lock_timeout(raw, LOCK_TIMEOUT).await.is_err();
        }
        self.known.ended(false);
        raw
    }

    /// Empties the write-ahead log; `true`: a read that lasts longer than [`READS_TIMEOUT`]
    /// prevents it. [`Writer::idle`] restores the wait for locks, also after an abandoned task.
    async fn empty_log(&mut self) -> sqlx::Result<bool> {
        self.idle().await;
        self.has_short_wait = true;
        let raw = &mut self.session.raw;
        set_lock_timeout(raw, READS_TIMEOUT).await?;
        sqlx::query_scalar("PRAGMA wal_checkpoint(TRUNCATE)").fetch_one(raw).await
    }

    /// Drops all cached answers if another process has written to the file. The lock on
    /// the data folder prevents that, unless an operator removed the lock or linked the
    /// file.
    fn saw_data_version(&mut self, data_version: i64) {
        let before = self.data_version.replace(data_version);
        if before.is_some_and(|before| before != data_version) {
            tracing::error!("index.sqlite: another process writes to the file; stop one of them");
            self.known.committing(Changes::All);
            self.known.ended(false);
        }
    }

    /// After a disk error, SQLite reads the file again, which changes `data_version`,
    /// too.
    fn forget_data_version_after<T, E>(&mut self, executed: &Result<T, E>) {
        if executed.is_err() {
            self.data_version = None;
        }
    }

    /// Records that the write-ahead log holds removed rows, until the log is emptied.
    pub(crate) const fn note_removal(&mut self) {
        self.has_removed = true;
    }

    /// Whether the next statement begins the transaction.
    pub(crate) const fn is_to_begin(&self) -> bool {
        self.session.is_to_begin()
    }

    pub(crate) const fn session(&mut self) -> &mut SqliteSession {
        &mut self.session
    }

    /// Declares that the transaction changes only the answers of the commits that are
    /// added to `changes`.
    pub(crate) fn changes_only_commits(&mut self) {
        self.changes = Changes::Commits(ChangedPlaces::default());
    }

    /// Declares that the transaction may change any cached answer.
    pub(crate) fn changes_anything(&mut self) {
        self.changes = Changes::All;
    }

    /// The changes of the transaction, to which its commits are added.
    pub(crate) const fn changes(&mut self) -> &mut Changes {
        &mut self.changes
    }

    /// Commits the transaction, unless its last statement did, or none was sent.
    pub(crate) async fn commit(&mut self) -> Result<(), IndexError> {
        if self.session.is_open() {
            self.forget_changed_answers();
            let committed = self.session.commit().await;
            self.forget_data_version_after(&committed);
            committed?;
            self.known.ended(true);
        }
        Ok(())
    }

    /// Removes the cached answers that the transaction may change, before it is committed.
    fn forget_changed_answers(&mut self) {
        self.known.committing(mem::replace(&mut self.changes, Changes::All));
    }

    /// Executes the last statement of the transaction, and commits it.
    ///
    /// After [`IndexError::OutcomeUnknown`] and [`IndexError::DiskFailed`], the
    /// transaction may be committed. After any other error it is not.
    pub(crate) async fn execute_and_commit(
        &mut self,
        sql: &SqlStr,
        arguments: SqliteArguments,
    ) -> Result<u64, IndexError> {
        let sql = AssertSqlSafe([sql.as_str(), "; COMMIT"].concat()).into_sql_str();
        self.forget_changed_answers();
        let executed = self.session.execute(sql, arguments).await;
        let ended = match &executed {
            Ok(_) => {
                self.session.committed();
                true
            }
            Err(_) => self.session.roll_back().await,
        };
        self.known.ended(executed.is_ok());
        self.forget_data_version_after(&executed);
        executed.map_err(|error| match IndexError::from(error) {
            error if ended || error.is_of_disk() => error,
            _ => IndexError::OutcomeUnknown(sqlx::Error::WorkerCrashed),
        })
    }
}

impl SqliteIndex {
    /// Creates and migrates the file if necessary.
    pub async fn migrate(url: &str) -> Result<MigrationReport, IndexError> {
        let (_, connection, migrated) = Self::connect(url).await?;
        connection.close().await?;
        Ok(migrated)
    }

    /// Creates and migrates the file if necessary.
    async fn connect(
        url: &str,
    ) -> Result<(SqliteConnectOptions, SqliteConnection, MigrationReport), IndexError> {
        let options = parse(url)?
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // An acknowledged commit survives a power failure.
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(LOCK_TIMEOUT)
            // Deleted content is overwritten, so that an erasure also erases the file's
            // content.
            .pragma("secure_delete", "ON")
            .foreign_keys(false);
        let writer = options
            .clone()
            .pragma("cache_size", WRITER_CACHE)
            .pragma("temp_store", "MEMORY")
            .pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
            .pragma("journal_size_limit", MAX_LOG_BYTES);
        let mut connection = writer.connect().await?;
        let migrated = migrations::run(&migrations::sqlite(), &mut connection).await?;
        Ok((options, connection, migrated))
    }

    /// Creates and migrates the file if necessary.
    pub async fn open(url: &str) -> Result<Self, IndexError> {
        let (options, mut connection, _) = Self::connect(url).await?;
        commit::create_view(&mut connection).await?;
        let mut log = options.get_filename().as_os_str().to_owned();
        log.push("-wal");
        let log_copier = LogCopier { options: options.clone().create_if_missing(false), connection: None };
        let readers = options
            .read_only(true)
            .create_if_missing(false)
            .row_buffer_size(ROWS_AHEAD)
            .pragma("mmap_size", MAPPED_BYTES);
        let readers = deadpool::managed::Pool::builder(Opener(readers))
            .max_size(READERS)
            .queue_mode(QueueMode::Lifo)
            .build()
            .map_err(|error| IndexError::Unavailable(sqlx::Error::Configuration(Box::new(error))))?;
        let known = Arc::<KnownAnswers>::default();
        Ok(Self {
            readers,
            log,
            log_copier: Arc::new(Mutex::new(log_copier)),
            writer: Arc::new(Mutex::new(Writer {
                session: SqliteSession::new(connection),
                changes: Changes::All,
                known: Arc::clone(&known),
                // The last process may have been killed after a removal.
                has_removed: true,
                data_version: None,
                has_short_wait: false,
            })),
            known,
        })
    }

    /// Checks that a file is an index that this binary can use; a server may have it
    /// open. A file without a schema is [`IndexError::SchemaTooOld`]. Returns purpose, name and
    /// wrapped form of each secret of the server.
    pub async fn look(url: &str) -> Result<Vec<(String, String, Vec<u8>)>, IndexError> {
        let mut connection = parse(url)?.read_only(true).connect().await?;
        let looked = match check_schema(&mut connection).await {
            Ok(()) => sqlx::query_as(SECRETS).fetch_all(&mut connection).await.map_err(IndexError::from),
            Err(error) => Err(error),
        };
        connection.close().await?;
        looked
    }

    pub(crate) async fn reader(&self) -> Result<Reader, IndexError> {
        let taken = tokio::time::timeout(ACQUIRE_TIMEOUT, self.readers.get()).await;
        match taken {
            Ok(Ok(object)) => Ok(Reader::new(object)),
            Ok(Err(PoolError::Backend(error))) => Err(error.into()),
            Ok(Err(PoolError::Closed)) => Err(sqlx::Error::PoolClosed.into()),
            Ok(Err(_)) | Err(_) => Err(sqlx::Error::PoolTimedOut.into()),
        }
    }

    /// All reads of the connection see one snapshot.
    pub(crate) async fn snapshot(&self) -> Result<Reader, IndexError> {
        let mut reader = self.reader().await?;
        reader.begin_with("BEGIN");
        Ok(reader)
    }

    /// Waits for the write connection; the next statement begins a transaction on it.
    pub(crate) async fn begin_write(&self) -> Result<OwnedMutexGuard<Writer>, IndexError> {
        let mut writer = Arc::clone(&self.writer).lock_owned().await;
        writer.idle().await;
        writer.changes = Changes::All;
        writer.session().begin_with("BEGIN IMMEDIATE");
        Ok(writer)
    }

    pub(crate) fn known(&self) -> &KnownAnswers {
        &self.known
    }

    pub async fn check(&self) -> Result<(), IndexError> {
        check_schema(&mut self.reader().await?.raw).await
    }

    pub(crate) fn pools(&self) -> Vec<PoolState> {
        vec![pool_state("readers", self.readers.status())]
    }

    pub(crate) fn log_bytes(&self) -> Option<u64> {
        std::fs::metadata(&self.log).ok().map(|log| log.len())
    }

    /// The damage in the file, in SQLite's messages.
    pub(crate) async fn find_damage(&self) -> Result<Vec<String>, IndexError> {
        damage::find(&mut self.reader().await?.raw).await
    }

    /// Rewrites the file.
    ///
    /// This removes copies of deleted content from the unused part of a page whose rows
    /// moved to another page. All other deleted content is overwritten immediately.
    pub(crate) async fn vacuum(&self) -> Result<(), IndexError> {
        let mut writer = self.writer.lock().await;
        let rewritten = sqlx::query("VACUUM").execute(writer.idle().await).await;
        writer.forget_data_version_after(&rewritten);
        rewritten?;
        Ok(())
    }

    /// Copies the write-ahead log into the database beside other calls. A removal changes
    /// pages all over the file; without this, the next commit would copy them while others
    /// wait for the write connection.
    pub(crate) async fn copy_log(&self) {
        self.log_copier.lock().await.copy_or_reconnect().await;
    }

    /// Empties the write-ahead log; `false`: a read prevents it now.
    pub(crate) async fn truncate_log(&self) -> Result<bool, IndexError> {
        // Almost everything is copied beside other calls, which wait only for the rest. SQLite does
        // not wait for another checkpoint.
        let mut copier = self.log_copier.lock().await;
        copier.copy_or_reconnect().await;
        let mut writer = self.writer.lock().await;
        let is_busy = writer.empty_log().await?;
        writer.has_removed &= is_busy;
        Ok(!is_busy)
    }

    /// Checks whether another process has written to the file.
    async fn look_for_other_writers(&self) -> Result<MutexGuard<'_, Writer>, IndexError> {
        let mut writer = self.writer.lock().await;
        let data_version = sqlx::query_scalar("PRAGMA data_version").fetch_one(writer.idle().await).await?;
        writer.saw_data_version(data_version);
        Ok(writer)
    }

    /// Empties the write-ahead log if rows were removed for good since it was last
    /// emptied; `false`: a reader prevents it now.
    pub(crate) async fn truncate_log_of_removals(&self) -> Result<bool, IndexError> {
        if !self.look_for_other_writers().await?.has_removed {
            return Ok(true);
        }
        self.truncate_log().await
    }

    /// Closes the connections after their last transactions.
    pub async fn close(&self) {
        self.readers.close();
        let mut copier = self.log_copier.lock().await;
        if let Some(connection) = copier.connection.take() {
            let _ = connection.close().await;
        }
        let mut writer = self.writer.lock().await;
        // Removes the log's content, unless another process has the file open.
        let _ = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(writer.idle().await).await;
    }

    /// Limits the pages of the file, so that tests can fill it up.
    pub async fn limit_pages(&self, max_pages: u32) -> Result<(), IndexError> {
        let mut writer = self.writer.lock().await;
        let pragma = AssertSqlSafe(format!("PRAGMA max_page_count = {max_pages}"));
        sqlx::query(pragma).execute(writer.idle().await).await?;
        Ok(())
    }

    /// Calls `seen` after each `steps` steps of SQLite's virtual machine in any read, so
    /// that tests can count them.
    pub async fn watch_steps(
        &self,
        steps: i32,
        seen: impl Fn() + Clone + Send + 'static,
    ) -> Result<(), IndexError> {
        let mut readers = Vec::new();
        for _ in 0..READERS {
            let mut reader = self.reader().await?;
            let seen = seen.clone();
            let mut handle = reader.raw.lock_handle().await?;
            handle.set_progress_handler(steps, move || {
                seen();
                true
            });
            drop(handle);
            readers.push(reader);
        }
        Ok(())
    }
}

async fn set_lock_timeout(connection: &mut SqliteConnection, timeout: Duration) -> sqlx::Result<()> {
    let pragma = AssertSqlSafe(format!("PRAGMA busy_timeout = {}", timeout.as_millis()));
    sqlx::query(pragma).execute(connection).await.map(drop)
}

fn parse(url: &str) -> Result<SqliteConnectOptions, IndexError> {
    // The parser accepts any scheme as a file name.
    let options = SqliteConnectOptions::from_str(url)
        .ok()
        .filter(|_| url.starts_with("sqlite:"))
        .ok_or_else(|| IndexError::BadUrl("is not a valid sqlite:// URL".to_owned()))?;
    Ok(options.disable_statement_logging())
}

async fn check_schema(connection: &mut SqliteConnection) -> Result<(), IndexError> {
    let found: Option<i64> = sqlx::query_scalar("SELECT max(version) FROM _sqlx_migrations WHERE success")
        .fetch_one(connection)
        .await?;
    let (found, needed) = (found.unwrap_or_default(), migrations::newest(&migrations::sqlite()));
    if found < needed {
        return Err(IndexError::SchemaTooOld { found, needed });
    }
    Ok(())
}
