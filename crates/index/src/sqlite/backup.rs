//! Copies of the file, for a backup and from one, and what a file contains.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use sqlx::migrate::Migrator;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection, Row};

use super::{SECRETS, SqliteIndex, damage};
use crate::{IndexError, migrations};

/// The state of a file that may be a database of Keepsake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileState {
    /// Every page and every row can be read.
    Whole(FileContents),
    /// The damage in SQLite's messages; a file of another kind has one, too.
    Damaged(Vec<String>),
    /// It is SQLite's, and has not the tables of Keepsake.
    Foreign,
}

/// What is in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileContents {
    /// The newest migration that was applied.
    pub schema_version: i64,
    /// Whether this binary can open the file: its schema is neither newer than the binary's
    /// nor that of another development state.
    #[serde(skip)]
    pub is_usable: bool,
    #[serde(flatten)]
    pub counts: FileCounts,
    /// The versions whose content is not in the file.
    pub contents_elsewhere: i64,
}

/// Numbers of rows, without those of deleted tenants, stores and memories.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileCounts {
    pub tenants: i64,
    pub memory_stores: i64,
    pub memories: i64,
    pub memory_versions: i64,
}

const COUNTS: &str = "SELECT (SELECT count(*) FROM tenant WHERE status <> 'deleting'), \
    (SELECT count(*) FROM store WHERE deleted_at IS NULL), \
    (SELECT count(*) FROM memory WHERE deleted_at IS NULL), (SELECT count(*) FROM version)";

const CONTENTS_ELSEWHERE: &str = "SELECT count(*) FROM version WHERE blob_id IS NOT NULL AND NOT EXISTS ( \
    SELECT 1 FROM content WHERE content.tenant_id = version.tenant_id \
        AND content.store_id = version.store_id AND content.blob_id = version.blob_id)";

const IS_INDEX: &str = "SELECT count(*) = 5 FROM sqlite_schema WHERE type = 'table' \
    AND name IN ('_sqlx_migrations', 'tenant', 'store', 'memory', 'version')";

const MIGRATIONS: &str = "SELECT version, checksum FROM _sqlx_migrations WHERE success ORDER BY version";

impl SqliteIndex {
    /// Copies the database as one transaction sees it into `into`, which must be missing or
    /// empty; a server may have the database open. Returns the counts of the copy, unless
    /// another connection wrote meanwhile.
    pub async fn copy_file(from: &Path, into: &Path) -> Result<Option<FileCounts>, IndexError> {
        let into = into.to_str().ok_or_else(|| IndexError::BadUrl("is not UTF-8".to_owned()))?;
        let mut connection = open_to_read(from).await?;
        let copied = copy(&mut connection, into).await;
        connection.close().await?;
        copied
    }

    /// Reads the whole file; a server may have it open.
    pub async fn inspect_file(file: &Path) -> Result<FileState, IndexError> {
        let mut connection = match open_to_read(file).await {
            Ok(connection) => connection,
            Err(error) if error.is_passing() => return Err(error),
            Err(error) => return Ok(FileState::Damaged(vec![error.words()])),
        };
        let state = inspect(&mut connection).await;
        connection.close().await?;
        state
    }

    /// Purpose, name and wrapped form of each secret of the server in a file that is
    /// [`FileState::Whole`] and usable.
    pub async fn secrets_in_file(file: &Path) -> Result<Vec<(String, String, Vec<u8>)>, IndexError> {
        let mut connection = open_to_read(file).await?;
        let secrets = sqlx::query_as(SECRETS).fetch_all(&mut connection).await;
        connection.close().await?;
        Ok(secrets?)
    }

    /// The schema of this binary.
    pub fn newest_schema() -> i64 {
        migrations::newest(&migrations::sqlite())
    }

    /// Writes what the write-ahead log has into the file, and empties the log. Returns false if
    /// another connection keeps a part of the log.
    pub async fn empty_log(file: &Path) -> Result<bool, IndexError> {
        let mut connection = options(file).connect().await?;
        let is_busy = sqlx::query_scalar::<_, i64>("PRAGMA wal_checkpoint(TRUNCATE)");
        let is_busy = is_busy.fetch_one(&mut connection).await;
        connection.close().await?;
        Ok(is_busy? == 0)
    }
}

async fn copy(connection: &mut SqliteConnection, into: &str) -> Result<Option<FileCounts>, IndexError> {
    let before = data_version(connection).await?;
    let counts = count(connection).await?;
    sqlx::query("VACUUM INTO $1").bind(into).execute(&mut *connection).await?;
    Ok((data_version(connection).await? == before).then_some(counts))
}

async fn inspect(connection: &mut SqliteConnection) -> Result<FileState, IndexError> {
    let damage = damage::find(connection).await?;
    if !damage.is_empty() {
        return Ok(FileState::Damaged(damage));
    }
    if !sqlx::query_scalar(IS_INDEX).fetch_one(&mut *connection).await? {
        return Ok(FileState::Foreign);
    }
    let applied: Vec<(i64, Vec<u8>)> = sqlx::query_as(MIGRATIONS).fetch_all(&mut *connection).await?;
    Ok(FileState::Whole(FileContents {
        schema_version: applied.last().map(|(version, _)| *version).unwrap_or_default(),
        is_usable: !applied.is_empty() && are_known(&applied, &migrations::sqlite()),
        counts: count(connection).await?,
        contents_elsewhere: sqlx::query_scalar(CONTENTS_ELSEWHERE).fetch_one(connection).await?,
    }))
}

fn are_known(applied: &[(i64, Vec<u8>)], migrator: &Migrator) -> bool {
    applied.iter().all(|(version, checksum)| {
        migrator.iter().any(|known| known.version == *version && *known.checksum == **checksum)
    })
}

async fn count(connection: &mut SqliteConnection) -> Result<FileCounts, IndexError> {
    let row = sqlx::query(COUNTS).fetch_one(connection).await?;
    Ok(FileCounts {
        tenants: row.try_get(0)?,
        memory_stores: row.try_get(1)?,
        memories: row.try_get(2)?,
        memory_versions: row.try_get(3)?,
    })
}

/// A number that changes when another connection has written to the file.
async fn data_version(connection: &mut SqliteConnection) -> Result<i64, IndexError> {
    Ok(sqlx::query_scalar("PRAGMA data_version").fetch_one(connection).await?)
}

async fn open_to_read(file: &Path) -> Result<SqliteConnection, IndexError> {
    Ok(options(file).read_only(true).connect().await?)
}

fn options(file: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(file)
        .busy_timeout(Duration::from_secs(5))
        .disable_statement_logging()
}
