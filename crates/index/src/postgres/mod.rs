//! The index on Postgres.
//!
//! Reads and commits of the request path are functions of the database, one
//! round trip each, that set the tenant for their transaction; row-level
//! security makes a query that forgets its tenant find nothing. Two pools: the
//! app's sessions run as `keepsake_app`, which sees one tenant at a time, the
//! jobs' and the operator's as `keepsake_jobs`, which may cross tenants.

mod audit;
mod commit;
mod erasure;
mod expiry;
mod keys;
mod maintenance;
mod memories;
mod purge;
mod put;
mod reads;
mod retention;
mod search;
mod secrets;
mod sessions;
mod stores;
mod tenant_deletions;
mod tenants;
mod upkeep;
mod usage;
mod versions;

use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use keepsake_core::TenantId;
use sqlx::migrate::MigrateError;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, Executor, PgExecutor, Postgres, Transaction};

use crate::{Index, IndexError, migrations};

/// How to reach the database.
#[derive(Clone)]
pub struct PostgresOptions {
    /// URL of the sessions that serve requests.
    pub url: String,
    /// URL of the sessions of jobs and operator; the app's where unset.
    pub jobs_url: Option<String>,
    /// Connections that serve requests, at most.
    pub max_connections: u32,
    /// How long a request waits for a connection.
    pub acquire_timeout: Duration,
}

impl PostgresOptions {
    /// The defaults, for a URL.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            jobs_url: None,
            max_connections: 16,
            acquire_timeout: Duration::from_secs(5),
        }
    }
}

/// The index on Postgres.
#[derive(Debug, Clone)]
pub struct PostgresIndex {
    app: PgPool,
    jobs: PgPool,
    /// For what requests look up that no tenant leads: who a token's tenant is,
    /// and the server's secrets. Neither jobs nor tenants can keep it busy.
    shared: PgPool,
}

/// Connections of jobs and operator, at most.
const JOBS_CONNECTIONS: u32 = 4;
/// Connections that look up what no tenant leads, at most.
const SHARED_CONNECTIONS: u32 = 2;
/// A migration that waits for a table keeps all that come after it waiting: it
/// steps back soon, and tries again.
const MIGRATION_SESSION: &str = "SET lock_timeout = '3s'";
const MIGRATION_LOCK_TIMEOUT: Duration = Duration::from_secs(3);
const BETWEEN_LOCKS: Duration = Duration::from_secs(2);
/// How long a migration tries, in all.
const LOCKS_AWAITED_FOR: Duration = Duration::from_mins(10);

/// What a session sets, by whom it serves.
///
/// A transaction that its task abandoned must not keep the store's lock, and a
/// request must not wait without end for one. Every query of a request goes by a
/// key in the order of its index, whatever the statistics say of a table that was
/// empty a minute ago; and to plan it anew would cost more than to run it. What
/// takes memory are the search terms of much that changed at once: else they go
/// over files.
const APP_SESSION: &str = "SET ROLE keepsake_app; SET idle_in_transaction_session_timeout = '10s'; \
    SET lock_timeout = '15s'; SET statement_timeout = '60s'; SET plan_cache_mode = force_generic_plan; \
    SET jit = off; SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off; \
    SET work_mem = '16MB'";
const JOBS_SESSION: &str =
    "SET ROLE keepsake_jobs; SET idle_in_transaction_session_timeout = '60s'; SET lock_timeout = '60s'";
const SHARED_SESSION: &str = "SET ROLE keepsake_jobs; SET idle_in_transaction_session_timeout = '10s'; \
    SET lock_timeout = '5s'; SET statement_timeout = '10s'";

impl PostgresIndex {
    /// Connects, and checks that the schema is new enough.
    ///
    /// # Errors
    /// [`IndexError::BadUrl`], [`IndexError::Unavailable`],
    /// [`IndexError::SchemaTooOld`].
    pub async fn connect(options: &PostgresOptions) -> Result<Self, IndexError> {
        look(options).await?;
        let jobs_url = options.jobs_url.as_deref().unwrap_or(&options.url);
        let app = pool(
            &options.url,
            APP_SESSION,
            options.max_connections,
            options.acquire_timeout,
        )?;
        let jobs = pool(jobs_url, JOBS_SESSION, JOBS_CONNECTIONS, options.acquire_timeout)?;
        let shared = pool(
            jobs_url,
            SHARED_SESSION,
            SHARED_CONNECTIONS,
            options.acquire_timeout,
        )?;
        Ok(Self { app, jobs, shared })
    }

    /// Brings the schema at `url` to what this binary needs; the owner's URL.
    ///
    /// Safe to run from several processes at once, and twice.
    ///
    /// One that cannot have a table for itself lets others go on and tries again.
    ///
    /// # Errors
    /// [`IndexError::BadUrl`], [`IndexError::Unavailable`],
    /// [`IndexError::Migration`].
    pub async fn migrate(url: &str) -> Result<(), IndexError> {
        let options = parse(url)?;
        let mut waited = Duration::ZERO;
        loop {
            // Anew each time: one that failed may hold the migrations' lock still.
            let mut connection = options.connect().await?;
            connection.execute(MIGRATION_SESSION).await?;
            let migrated = migrations::postgres().run(&mut connection).await;
            connection.close().await?;
            match migrated {
                Err(error) if waited < LOCKS_AWAITED_FOR && is_lock_timeout(&error) => {
                    tracing::info!("index.migrate: a table is in use; tried again");
                    tokio::time::sleep(BETWEEN_LOCKS).await;
                    waited += BETWEEN_LOCKS + MIGRATION_LOCK_TIMEOUT;
                }
                migrated => return Ok(migrated?),
            }
        }
    }

    /// Begins a transaction that sees one tenant.
    ///
    /// In a task of its own: were it dropped with its caller while `BEGIN` is
    /// under way, the connection would go back to the pool with a transaction
    /// open that nobody knows of, and swallow what is committed on it next.
    async fn begin(&self, tenant_id: TenantId) -> Result<Transaction<'static, Postgres>, IndexError> {
        Self::begin_on(&self.app, tenant_id).await
    }

    async fn begin_on(
        pool: &PgPool,
        tenant_id: TenantId,
    ) -> Result<Transaction<'static, Postgres>, IndexError> {
        let pool = pool.clone();
        let begun = tokio::spawn(async move {
            let mut transaction = pool.begin().await?;
            sqlx::query("SELECT set_config('keepsake.tenant', $1, true)")
                .bind(tenant_id.uuid().to_string())
                .execute(&mut *transaction)
                .await?;
            Ok(transaction)
        });
        begun
            .await
            .unwrap_or(Err(IndexError::Unavailable(sqlx::Error::WorkerCrashed)))
    }

    /// The pool that serves requests, for tests that look from its side.
    pub fn app_pool(&self) -> &PgPool {
        &self.app
    }
}

/// Whether a migration could not have a lock in its time.
fn is_lock_timeout(error: &MigrateError) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if let Some(sqlx::Error::Database(told)) = error.downcast_ref() {
            return told.code().as_deref() == Some("55P03");
        }
        cause = error.source();
    }
    false
}

fn parse(url: &str) -> Result<PgConnectOptions, IndexError> {
    // The parser takes any scheme; its own message may quote the URL, and with
    // it a password.
    let is_of_postgres = url.starts_with("postgres://") || url.starts_with("postgresql://");
    let parsed = PgConnectOptions::from_str(url).ok().filter(|_| is_of_postgres);
    parsed.ok_or_else(|| IndexError::BadUrl("is not a valid postgres:// URL".to_owned()))
}

fn pool(
    url: &str,
    session: &'static str,
    max_connections: u32,
    acquire: Duration,
) -> Result<PgPool, IndexError> {
    let options = parse(url)?
        .application_name("keepsake")
        .log_statements(tracing::log::LevelFilter::Off);
    Ok(PgPoolOptions::new()
        .max_connections(max_connections)
        .acquire_timeout(acquire)
        .idle_timeout(Duration::from_mins(10))
        .max_lifetime(Duration::from_mins(30))
        .test_before_acquire(false)
        .after_connect(move |connection, _| {
            Box::pin(async move {
                connection.execute(session).await?;
                Ok(())
            })
        })
        .connect_lazy_with(options))
}

/// Looks at the database with a connection of its own.
///
/// A pool tries again until its time is over, whatever the reason, and then
/// tells only that it waited; this tells at once why it would be in vain.
async fn look(options: &PostgresOptions) -> Result<(), IndexError> {
    let looked = async {
        let mut connection = parse(&options.url)?.connect().await?;
        let found = schema_version(&mut connection).await?;
        connection.close().await?;
        Ok::<_, IndexError>(found)
    };
    let in_time = tokio::time::timeout(options.acquire_timeout, looked).await;
    require_schema(in_time.unwrap_or_else(|_| Err(sqlx::Error::PoolTimedOut.into()))?)
}

/// The newest migration applied; 0 where nothing was ever migrated.
async fn schema_version(executor: impl PgExecutor<'_>) -> Result<i64, IndexError> {
    let found = sqlx::query_scalar("SELECT keepsake_schema_version()")
        .fetch_one(executor)
        .await;
    let found: Option<i64> = found.or_else(|error| {
        let code = error
            .as_database_error()
            .and_then(sqlx::error::DatabaseError::code);
        let is_undefined_function = code.as_deref() == Some("42883");
        if is_undefined_function {
            Ok(None)
        } else {
            Err(error)
        }
    })?;
    Ok(found.unwrap_or_default())
}

fn require_schema(found: i64) -> Result<(), IndexError> {
    let needed = migrations::newest(&migrations::postgres());
    if found < needed {
        Err(IndexError::SchemaTooOld { found, needed })
    } else {
        Ok(())
    }
}

#[async_trait]
impl Index for PostgresIndex {
    async fn check(&self) -> Result<(), IndexError> {
        require_schema(schema_version(&self.app).await?)
    }

    async fn close(&self) {
        self.app.close().await;
        self.jobs.close().await;
        self.shared.close().await;
    }
}
