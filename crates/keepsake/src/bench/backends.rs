//! The database and the blob store of the server that is measured.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use keepsake_blobs::{BlobStore, BlobUrl, S3Settings};
use keepsake_index::postgres::PostgresOptions;
use keepsake_index::{Index, PostgresIndex, SqliteIndex};
use secrecy::ExposeSecret;
use sqlx::{Connection, Executor, PgConnection};

use crate::config::{IndexUrl, Settings, Sources};

/// Keeps the floor's blobs apart from the server's.
const FLOOR_FOLDER: &str = "bench-floor";

/// Where the configuration of the measured server is.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ConfigArgs {
    /// The configuration of the server: its database and its blob store.
    ///
    /// Give it ones of its own: tenants, stores and memories are made there,
    /// and they stay. Variables count as they do for the server.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A folder for the database and the blobs, in place of a configuration.
    #[arg(long, value_name = "FOLDER")]
    pub data_dir: Option<PathBuf>,
}

impl ConfigArgs {
    /// The options that give a child the same configuration.
    pub(super) fn to_options(&self) -> Vec<OsString> {
        let mut options = Vec::new();
        for (name, value) in [("--config", &self.config), ("--data-dir", &self.data_dir)] {
            if let Some(value) = value {
                options.extend([OsString::from(name), value.clone().into_os_string()]);
            }
        }
        options
    }
}

/// What the server keeps its data in.
pub(super) struct Backends {
    pub(super) index: IndexBackend,
    blob_url: BlobUrl,
    s3: S3Settings,
}

pub(super) enum IndexBackend {
    Postgres {
        options: PostgresOptions,
        /// The owner's URL.
        migrate_url: String,
    },
    Sqlite {
        url: String,
        file: PathBuf,
    },
}

impl Backends {
    /// Reads the configuration as the server does.
    ///
    /// # Errors
    /// A text for people with everything that is wrong.
    pub(super) fn load(args: &ConfigArgs) -> Result<Self, String> {
        let sources = Sources {
            file: args.config.clone(),
            variables: std::env::vars_os().collect(),
            data_dir: args.data_dir.clone(),
            ..Sources::default()
        };
        let settings = sources.merge().settings().map_err(|error| error.to_string())?;
        Ok(Self::of(settings))
    }

    fn of(settings: Settings) -> Self {
        let index = match settings.index.url {
            IndexUrl::Sqlite { url, file } => IndexBackend::Sqlite { url, file },
            IndexUrl::Postgres(url) => {
                let migrate_url = match settings.index.migrate_url {
                    Some(IndexUrl::Postgres(owner)) => owner.expose_secret().to_owned(),
                    _ => url.expose_secret().to_owned(),
                };
                let options = PostgresOptions {
                    jobs_url: settings.index.jobs_url.map(|url| url.expose_secret().to_owned()),
                    max_connections: settings.index.max_connections,
                    ..PostgresOptions::new(url.expose_secret())
                };
                IndexBackend::Postgres { options, migrate_url }
            }
        };
        Self { index, blob_url: settings.blobs.url, s3: settings.blobs.s3 }
    }

    /// Makes folder and schema where they are missing.
    ///
    /// # Errors
    /// A text for people.
    pub(super) async fn migrate(&self) -> Result<(), String> {
        match &self.index {
            IndexBackend::Postgres { migrate_url, .. } => {
                PostgresIndex::migrate(migrate_url).await.map_err(|error| error.to_string())
            }
            IndexBackend::Sqlite { file, .. } => {
                let folder = file.parent().unwrap_or(file);
                std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
            }
        }
    }

    /// Opens the index; a SQLite file must not be open elsewhere.
    ///
    /// # Errors
    /// A text for people.
    pub(super) async fn open_index(&self) -> Result<Arc<dyn Index>, String> {
        let opened: Result<Arc<dyn Index>, _> = match &self.index {
            IndexBackend::Postgres { options, .. } => {
                PostgresIndex::connect(options).await.map(|index| Arc::new(index) as _)
            }
            IndexBackend::Sqlite { url, .. } => SqliteIndex::open(url).await.map(|index| Arc::new(index) as _),
        };
        opened.map_err(|error| error.to_string())
    }

    /// Opens a blob store of the same kind in a place of its own.
    ///
    /// # Errors
    /// A text for people.
    pub(super) async fn floor_blobs(&self) -> Result<Arc<dyn BlobStore>, String> {
        let url = match self.blob_url.clone() {
            BlobUrl::File { root } => BlobUrl::File { root: root.join(FLOOR_FOLDER) },
            BlobUrl::S3 { bucket, prefix } => {
                let prefix = format!("{prefix}/{FLOOR_FOLDER}").trim_start_matches('/').to_owned();
                BlobUrl::S3 { bucket, prefix }
            }
        };
        keepsake_blobs::open(&url, &self.s3).await.map_err(|error| error.to_string())
    }

    /// Brings the database to what it is when it has run for a while.
    ///
    /// Postgres does this by itself, at a moment that would fall into a
    /// measurement or would not.
    ///
    /// # Errors
    /// A text for people.
    pub(super) async fn settle(&self) -> Result<(), String> {
        let IndexBackend::Postgres { migrate_url, .. } = &self.index else {
            return Ok(());
        };
        let vacuum = async {
            let mut owner = PgConnection::connect(migrate_url).await?;
            owner.execute("VACUUM ANALYZE store, memory, version, directory").await?;
            owner.close().await
        };
        vacuum.await.map_err(|error: sqlx::Error| format!("the database cannot be vacuumed: {error}"))
    }

    /// What the two are, without their places.
    pub(super) fn describe(&self) -> (&'static str, &'static str) {
        let index = match &self.index {
            IndexBackend::Postgres { .. } => "postgres",
            IndexBackend::Sqlite { .. } => "sqlite",
        };
        let blobs = match &self.blob_url {
            BlobUrl::File { .. } => "files",
            BlobUrl::S3 { .. } => "s3",
        };
        (index, blobs)
    }
}
