//! Opens the configured index and blob store.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use keepsake_blobs::{BlobStore, BlobUrl};
use keepsake_config::{
    Failure, FailureClass, IndexSettings, IndexUrl, Meaning, SearchSettings, Settings, cli::Result,
};
use keepsake_embeddings::Embedder;
use keepsake_engine::{Clock, Engine, EngineError, EngineOptions, SystemClock};
use keepsake_index::postgres::PostgresOptions;
use keepsake_index::{Index, IndexError, MigrationReport, PostgresIndex, SqliteIndex};
use keepsake_telemetry::Metrics;
use secrecy::ExposeSecret;

use crate::data_dir::{self, FolderLock};
use crate::logs;

const MAX_BLOB_CALL: Duration = Duration::from_secs(30);

/// The open index and object store; holds the lock of a SQLite file.
#[derive(Debug)]
pub(crate) struct Backends {
    pub(crate) index: Index,
    /// `None` if the content is in the index.
    pub(crate) blobs: Option<Arc<dyn BlobStore>>,
    embedder: Arc<Embedder>,
    metrics: Metrics,
    _lock: Option<FolderLock>,
}

impl Backends {
    /// Opens both stores. A SQLite file is locked, created and migrated.
    pub(crate) async fn open(settings: &Settings, metrics: Metrics) -> Result<Self> {
        let embedder = embedder(&settings.search)?.into();
        let (index, lock) = open_index(&settings.index).await?;
        let blobs = open_blobs(&settings.blobs.url, settings, &metrics).await?;
        Ok(Self { index, blobs, embedder, metrics, _lock: lock })
    }

    /// As [`Backends::open`], for a command without telemetry: starts the log, and prepares
    /// the data folder, if there is one.
    pub(crate) async fn open_for_command(settings: &Settings, folder: Option<&Path>) -> Result<Self> {
        logs::start(&settings.log, None);
        if let Some(folder) = folder {
            data_dir::prepare(folder)?;
        }
        Self::open(settings, Metrics::default()).await
    }

    pub(crate) fn engine(&self, settings: &Settings) -> Engine {
        let options = EngineOptions {
            embedder: Arc::clone(&self.embedder),
            metrics: self.metrics.clone(),
            ..settings.engine.clone()
        };
        Engine::new(self.index.clone(), self.blobs.clone(), options)
    }
}

/// What makes the vectors for search by meaning. Does no I/O: the model may be installed later.
pub(crate) fn embedder(settings: &SearchSettings) -> Result<Embedder> {
    match &settings.meaning {
        Meaning::Embedded => Ok(Embedder::embedded(&settings.model_path)),
        Meaning::Endpoint(endpoint) => {
            Embedder::endpoint(endpoint.clone()).map_err(Failure::of("search.embeddings"))
        }
        Meaning::Off => Ok(Embedder::off()),
    }
}

/// Connects to the index as a server does, and changes nothing. Returns purpose, name and wrapped
/// form of each secret of the server.
///
/// A SQLite file may be open in a running server.
pub(crate) async fn probe_index(settings: &IndexSettings) -> Result<Vec<(String, String, Vec<u8>)>> {
    match &settings.url {
        // The first start of a server creates it.
        IndexUrl::Sqlite { file, .. } if !file.exists() => Ok(Vec::new()),
        IndexUrl::Sqlite { url, .. } => {
            SqliteIndex::look(url).await.map_err(of_index(format!("index.url {url}")))
        }
        IndexUrl::Postgres(_) => {
            let (index, _) = open_index(settings).await?;
            let failed = || of_index(format!("index.url {}", settings.url));
            let app = index.check().await.map_err(failed());
            // This call uses the connection pool of the jobs.
            let jobs = index.replicas.live_gateways(SystemClock.now()).await.map_err(failed());
            let secrets = index.secrets.all().await.map_err(failed());
            index.close().await;
            app.and(jobs)?;
            let secrets = secrets?.into_iter();
            Ok(secrets.map(|secret| (secret.purpose, secret.kid, secret.wrapped_key)).collect())
        }
    }
}

/// Fails if the configured master keys do not open one of these secrets of a server.
pub(crate) fn open_secrets(
    settings: &Settings,
    secrets: &[(String, String, Vec<u8>)],
) -> Result<(), EngineError> {
    let vault = &settings.engine.vault;
    let mut opened = secrets.iter().map(|(purpose, name, wrapped)| vault.open(purpose, name, wrapped));
    opened.try_for_each(|secret| secret.map(drop)).map_err(EngineError::Secret)
}

/// Opens the object store at `url` with the configured S3 settings; `None` if content is in
/// the index.
pub(crate) async fn open_blobs(
    url: &BlobUrl,
    settings: &Settings,
    metrics: &Metrics,
) -> Result<Option<Arc<dyn BlobStore>>> {
    let mut s3 = settings.blobs.s3.clone();
    // Shorter than the request deadline, so that a request gets an error answer in time.
    s3.max_call = Some((settings.engine.request_deadline * 3 / 4).min(MAX_BLOB_CALL));
    // A move opens places that are not configured.
    let key = if *url == settings.blobs.url { "blobs.url " } else { "" };
    keepsake_blobs::open(url, &s3, metrics).await.map_err(Failure::of(format_args!("{key}{url}")))
}

async fn open_index(settings: &IndexSettings) -> Result<(Index, Option<FolderLock>)> {
    match &settings.url {
        IndexUrl::Sqlite { url, file } => {
            data_dir::make_private_file(file)?;
            let lock = FolderLock::take(file)?;
            let index = SqliteIndex::open(url).await.map_err(of_index(format!("index.url {url}")))?;
            Ok((index.into(), Some(lock)))
        }
        IndexUrl::Postgres(url) => {
            let options = PostgresOptions {
                jobs_url: settings.jobs_url.as_ref().map(|url| url.expose_secret().to_owned()),
                max_connections: settings.max_connections,
                call_timeout: settings.call_timeout,
                ..PostgresOptions::new(url.expose_secret())
            };
            let index = PostgresIndex::connect(&options)
                .await
                .map_err(of_index(format!("index.url {}", settings.url)))?;
            Ok((index.into(), None))
        }
    }
}

/// For `map_err`: puts `what` before an error of the index, and classifies it.
pub(crate) fn of_index(what: String) -> impl FnOnce(IndexError) -> Failure {
    move |error| {
        let class = if error.is_passing() { FailureClass::Unavailable } else { FailureClass::Failed };
        Failure::of_class(class, format!("{what}: {error}"))
    }
}

/// Migrates a database to the schema of this binary; returns what changed.
pub(crate) async fn migrate(url: &IndexUrl, distributes: bool) -> Result<MigrationReport> {
    let migrated = match url {
        IndexUrl::Sqlite { url, .. } if distributes => {
            let text = format!("the database {url} is a file, which cannot be distributed");
            return Err(Failure::new(text));
        }
        IndexUrl::Sqlite { url, file } => {
            data_dir::make_private_file(file)?;
            let _lock = FolderLock::take(file)?;
            SqliteIndex::migrate(url).await
        }
        IndexUrl::Postgres(url) if distributes => {
            PostgresIndex::migrate_distributed(url.expose_secret()).await
        }
        IndexUrl::Postgres(url) => PostgresIndex::migrate(url.expose_secret()).await,
    };
    migrated.map_err(of_index(format!("the database {url} cannot be migrated")))
}
