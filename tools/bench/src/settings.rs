//! Values from the configuration of the measured server.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use keepsake_blobs::{BlobStore, BlobUrl};
use keepsake_config::{Failure, IndexUrl, Settings, SourceArgs};
use keepsake_telemetry::Metrics;
use secrecy::ExposeSecret;
use sqlx::sqlite::{SqliteConnectOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Executor, PgConnection, SqliteConnection};

/// The prefix of the floor's blobs.
const FLOOR_PREFIX: &str = "bench-floor";

/// The flags for a child process with the same configuration.
pub(super) fn to_flags(sources: &SourceArgs) -> Vec<OsString> {
    let flags = [("--config", &sources.config), ("--data-dir", &sources.data_dir)];
    let given =
        flags.into_iter().filter_map(|(flag, value)| Some([flag.into(), value.clone()?.into_os_string()]));
    given.flatten().collect()
}

/// The index's database.
pub(super) enum IndexPlace<'a> {
    Postgres { url: &'a str, owner_url: &'a str },
    Sqlite { file: &'a Path },
}

impl<'a> IndexPlace<'a> {
    pub(super) fn of(settings: &'a Settings) -> Self {
        match &settings.index.url {
            IndexUrl::Sqlite { file, .. } => Self::Sqlite { file },
            IndexUrl::Postgres(url) => {
                let owner = match &settings.index.migrate_url {
                    Some(IndexUrl::Postgres(owner)) => owner,
                    _ => url,
                };
                Self::Postgres { url: url.expose_secret(), owner_url: owner.expose_secret() }
            }
        }
    }

    /// Connects to write rows of any tenant, while no server runs: a server locks the file of SQLite.
    pub(super) async fn writer(&self) -> sqlx::Result<Writer> {
        match self {
            Self::Postgres { owner_url, .. } => {
                let mut owner = PgConnection::connect(owner_url).await?;
                owner.execute("SET ROLE keepsake_jobs").await?;
                Ok(Writer::Postgres(owner))
            }
            Self::Sqlite { file } => {
                let options = SqliteConnectOptions::new().filename(file).synchronous(SqliteSynchronous::Off);
                options.connect().await.map(Writer::Sqlite)
            }
        }
    }
}

/// A connection that may write rows of any tenant.
pub(super) enum Writer {
    Postgres(PgConnection),
    Sqlite(SqliteConnection),
}

/// Opens the server's object store with a separate prefix; `None`: content is in the
/// index.
///
/// # Errors
/// [`Failure`] of the blob store.
pub(super) async fn floor_blobs(settings: &Settings) -> Result<Option<Arc<dyn BlobStore>>, Failure> {
    let url = match &settings.blobs.url {
        BlobUrl::Index => BlobUrl::Index,
        BlobUrl::S3 { bucket, prefix } => {
            let prefix = format!("{prefix}/{FLOOR_PREFIX}").trim_start_matches('/').to_owned();
            BlobUrl::S3 { bucket: bucket.clone(), prefix }
        }
    };
    keepsake_blobs::open(&url, &settings.blobs.s3, &Metrics::default())
        .await
        .map_err(Failure::of(format_args!("blobs.url {url}")))
}

/// Vacuums the database, so that autovacuum does not run during a measurement.
///
/// # Errors
/// [`Failure`] of the database.
pub(super) async fn vacuum(settings: &Settings) -> Result<(), Failure> {
    let IndexPlace::Postgres { owner_url, .. } = IndexPlace::of(settings) else {
        return Ok(());
    };
    let vacuumed = async {
        let mut owner = PgConnection::connect(owner_url).await?;
        owner.execute("VACUUM ANALYZE store, memory, version, directory, memory_read, daily_use").await?;
        owner.close().await
    };
    vacuumed
        .await
        .map_err(|error: sqlx::Error| Failure::new(format!("the database cannot be vacuumed: {error}")))
}

/// The kinds of the index and the blob store.
pub(super) fn describe(settings: &Settings) -> (&'static str, &'static str) {
    let index = match &settings.index.url {
        IndexUrl::Sqlite { .. } => "sqlite",
        IndexUrl::Postgres(_) => "postgres",
    };
    let blobs = match &settings.blobs.url {
        BlobUrl::Index => "content in the index",
        BlobUrl::S3 { .. } => "s3",
    };
    (index, blobs)
}
