//! An index for one test, with content in the index or in an object store.

use keepsake_blobs::{BlobStore, S3Blobs};
use keepsake_engine::IndexBlobs;
use keepsake_index::postgres::PostgresOptions;
use keepsake_index::{Index, PostgresIndex, SqliteIndex};
use keepsake_testkit::{Login, Pooler, TestDatabase, fresh_database, is_distributed};
use keepsake_testkit::{s3, s3_options, s3_section};

use super::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pair {
    PostgresS3,
    SqliteS3,
    // With content in the index.
    Postgres,
    Sqlite,
}

impl Pair {
    pub(crate) const fn has_postgres(self) -> bool {
        matches!(self, Self::PostgresS3 | Self::Postgres)
    }

    pub(crate) const fn has_s3(self) -> bool {
        matches!(self, Self::PostgresS3 | Self::SqliteS3)
    }
}

/// A migrated, empty index and an empty object store, if any; gone with this value.
#[derive(Debug)]
pub(crate) struct Deployment {
    pub(crate) pair: Pair,
    database: Option<TestDatabase>,
    /// Before the database, if the run has one.
    pooler: Option<&'static Pooler>,
    /// The URL of jobs, where it is another one without a pooler.
    own_jobs_url: Option<String>,
    folder: TempDir,
    s3_prefix: String,
}

/// What a server's configuration says beside its stores.
#[derive(Debug, Clone)]
pub(crate) struct ServerConfig {
    /// The object store's URL, where it is not the real one's.
    pub(crate) endpoint: Option<String>,
    pub(crate) log_filter: &'static str,
    pub(crate) log_format: &'static str,
    /// More of it as TOML; rates are out of the way where this does not set
    /// them: how fast a test is must not decide what it meets.
    pub(crate) more: String,
    /// How long it serves on once it is to end.
    pub(crate) drain_seconds: u64,
    /// The port of the operator's listener, and its token.
    pub(crate) operator: Option<(u16, String)>,
}

/// Rates that no test reaches by chance.
pub(crate) const FREE_RATES: &str =
    "[limits]\nrequests_per_second = 1_000_000_000\nrequest_burst = 1_000_000_000\n";

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            endpoint: None,
            log_filter: "info",
            log_format: "human",
            more: FREE_RATES.to_owned(),
            drain_seconds: 0,
            operator: None,
        }
    }
}

async fn migrate(url: &str) {
    let migrated = if is_distributed() {
        PostgresIndex::migrate_distributed(url).await
    } else {
        PostgresIndex::migrate(url).await
    };
    migrated.unwrap();
}

impl Deployment {
    pub(crate) async fn new(pair: Pair) -> Self {
        let deployment = Self::unmigrated(pair).await;
        if let Some(database) = &deployment.database {
            migrate(&database.url()).await;
        }
        deployment
    }

    /// Like [`Self::new`], with a Postgres database that has no tables.
    pub(crate) async fn unmigrated(pair: Pair) -> Self {
        let database = if pair.has_postgres() { Some(fresh_database().await) } else { None };
        Self {
            pair,
            database,
            pooler: Pooler::shared().await,
            own_jobs_url: None,
            folder: tempfile::tempdir().unwrap(),
            s3_prefix: s3::unique_prefix(),
        }
    }

    /// On Postgres without tables, where the counters of scans count what requests do, and
    /// not what jobs do.
    pub(crate) async fn counting_requests() -> Self {
        let deployment = Self::unmigrated(Pair::Postgres).await;
        let url = deployment.postgres_url();
        let separator = if url.contains('?') { '&' } else { '?' };
        Self {
            // It passes no options on.
            pooler: None,
            own_jobs_url: Some(format!("{url}{separator}options[track_counts]=off")),
            ..deployment
        }
    }

    /// The URL of its Postgres database, for its owner and without a pooler.
    pub(crate) fn postgres_url(&self) -> String {
        self.database.as_ref().unwrap().url()
    }

    pub(crate) fn sqlite_file(&self) -> PathBuf {
        assert!(!self.pair.has_postgres());
        self.folder.path().join("index.db")
    }

    /// The URL of requests: through the pooler, if the run has one.
    pub(crate) fn index_url(&self) -> String {
        if self.pair.has_postgres() {
            self.pooled(Login::Requests).unwrap_or_else(|| self.postgres_url())
        } else {
            format!("sqlite://{}", self.sqlite_file().display())
        }
    }

    pub(crate) fn jobs_url(&self) -> Option<String> {
        self.pooled(Login::Jobs).or_else(|| self.own_jobs_url.clone())
    }

    fn pooled(&self, login: Login) -> Option<String> {
        let database = self.database.as_ref()?;
        Some(self.pooler?.url(login, database.name()))
    }

    pub(crate) fn config(&self, config: &ServerConfig) -> String {
        let jobs = self.jobs_url().map(|jobs_url| {
            let owner = self.postgres_url();
            format!("jobs_url = \"{jobs_url}\"\nmigrate_url = \"{owner}\"\n")
        });
        let index = format!("url = \"{}\"\n{}", self.index_url(), jobs.unwrap_or_default());
        let blobs = if self.pair.has_s3() {
            let mut options = s3_options(&self.s3_prefix);
            if let Some(endpoint) = &config.endpoint {
                options.settings.endpoint = Some(endpoint.clone());
            }
            s3_section(options)
        } else {
            "url = \"index:\"\n".to_owned()
        };
        let operator = config
            .operator
            .as_ref()
            .map(|(port, token)| format!("[operator]\nlisten = \"127.0.0.1:{port}\"\ntoken = \"{token}\"\n"));
        let operator = operator.unwrap_or_default();
        format!(
            "{operator}[server]\nlisten = \"127.0.0.1:{{port}}\"\ndrain_seconds = {}\n[index]\n{index}[blobs]\n{blobs}\
             [log]\nfilter = \"{}\"\nformat = \"{}\"\n{}",
            config.drain_seconds, config.log_filter, config.log_format, config.more,
        )
    }

    pub(crate) fn command(&self, config: &ServerConfig) -> ServerCommand {
        ServerCommand::new(binary(), &self.config(config))
    }

    pub(crate) async fn start(&self) -> Server {
        self.start_with(&ServerConfig::default()).await
    }

    pub(crate) async fn start_with(&self, config: &ServerConfig) -> Server {
        Server::start(self.command(config)).await
    }

    /// Opens the index; a SQLite one only while no server has it.
    pub(crate) async fn index(&self) -> Index {
        let url = self.index_url();
        if self.pair.has_postgres() {
            let jobs_url = self.jobs_url();
            let options = PostgresOptions { jobs_url, max_connections: 2, ..PostgresOptions::new(url) };
            Index::from(PostgresIndex::connect(&options).await.unwrap())
        } else {
            Index::from(SqliteIndex::open(&url).await.unwrap())
        }
    }

    /// Opens the object store, for an engine; `None`: content is in the index.
    pub(crate) async fn object_store(&self) -> Option<Arc<dyn BlobStore>> {
        if !self.pair.has_s3() {
            return None;
        }
        let store = S3Blobs::connect(s3_options(&self.s3_prefix)).await;
        Some(Arc::new(store.unwrap()))
    }

    /// Opens the object store, or the content in the index; a server may run meanwhile.
    pub(crate) async fn blobs(&self) -> Arc<dyn BlobStore> {
        match self.object_store().await {
            Some(store) => store,
            None => Arc::new(IndexBlobs::new(self.index().await)),
        }
    }
}
