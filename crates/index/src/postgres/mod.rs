//! The index on Postgres.
//!
//! Reads and commits of the request path are database functions with one round trip
//! each. They set the tenant for their transaction, and row-level security hides
//! every row from a query without a tenant. There are two roles: connections for
//! requests run as `keepsake_app`, which sees one tenant at a time; connections for
//! jobs and the operator run as `keepsake_jobs`, which may access all tenants.

pub(crate) mod commit;
pub(crate) mod head;
pub(crate) mod pool;

use std::str::FromStr;
use std::time::Duration;

use keepsake_core::TenantId;
use keepsake_telemetry::PoolState;
use sqlx::migrate::MigrateError;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection as _, Executor};

use crate::database::{Role, with_lists};
use crate::{IndexError, Migrated, migrations};

use pool::{Connection, Pool, PoolOptions, Tx};
pub(crate) use pool::{Failure, is_connection_lost};

/// Connection options.
#[derive(Clone)]
pub struct PostgresOptions {
    /// URL of the connections for requests.
    pub url: String,
    /// URL of the connections for jobs and the operator; by default, the URL for
    /// requests.
    pub jobs_url: Option<String>,
    /// Maximum number of connections for requests.
    pub max_connections: u32,
    /// How long a request waits for a connection.
    pub acquire_timeout: Duration,
    /// How long a request waits for the result of one statement. After that, the
    /// connection is closed; the server cancels the statement slightly earlier.
    pub call_timeout: Duration,
}

impl PostgresOptions {
    /// The default options for a URL.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            jobs_url: None,
            max_connections: 16,
            acquire_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(10),
        }
    }
}

/// The index on Postgres.
#[derive(Debug, Clone)]
pub struct PostgresIndex {
    /// Requests of tenants.
    app: Pool,
    /// Batches of jobs, which may take long.
    jobs: Pool,
    /// Short calls across tenants: look-ups of requests, the operator's requests,
    /// leases, heartbeats, access times. No batch can occupy this pool.
    shared: Pool,
}

/// Maximum number of connections for jobs.
const JOBS_CONNECTIONS: u32 = 4;
/// How long a job waits for the result of one statement.
const JOBS_CALL_TIMEOUT: Duration = Duration::from_mins(2);
/// Maximum number of connections for short calls across tenants.
const SHARED_CONNECTIONS: u32 = 4;
/// A migration that waits for a table lock blocks all later statements on the
/// table, so it gives up soon and retries.
const MIGRATION_SESSION: &str = "SET lock_timeout = '3s'";
const MIGRATION_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const MIGRATION_LOCK_TIMEOUT: Duration = Duration::from_secs(3);
const BETWEEN_LOCKS: Duration = Duration::from_secs(2);
/// How long a migration retries in total.
const LOCKS_AWAITED_FOR: Duration = Duration::from_mins(10);

/// The session settings of connections for requests.
///
/// An abandoned transaction must not keep the store's lock. Every query of a
/// request uses an index on its key, whatever the statistics of a recently empty
/// table say; planning each call would cost more than executing it. `work_mem` is
/// sized for the search terms of many simultaneous changes, which would otherwise
/// spill to files.
const APP_SESSION: &str = "SET ROLE keepsake_app; SET idle_in_transaction_session_timeout = '10s'; \
    SET plan_cache_mode = force_generic_plan; SET jit = off; SET enable_seqscan = off; \
    SET enable_bitmapscan = off; SET enable_sort = off; SET work_mem = '16MB'";
const JOBS_SESSION: &str =
    "SET ROLE keepsake_jobs; SET idle_in_transaction_session_timeout = '10s'; SET lock_timeout = '60s'";
const SHARED_SESSION: &str =
    "SET ROLE keepsake_jobs; SET idle_in_transaction_session_timeout = '10s'; SET lock_timeout = '5s'";

impl PostgresIndex {
    /// Connects, and checks that the schema is recent enough.
    ///
    /// # Errors
    /// [`IndexError::BadUrl`], [`IndexError::Unavailable`],
    /// [`IndexError::SchemaTooOld`].
    pub async fn connect(options: &PostgresOptions) -> Result<Self, IndexError> {
        look(options).await?;
        let jobs_url = options.jobs_url.as_deref().unwrap_or(&options.url);
        let pool = |url, session, max_connections, call_timeout| {
            Ok::<_, IndexError>(Pool::new(PoolOptions {
                connect: parse(url)?
                    .application_name("keepsake")
                    .log_statements(tracing::log::LevelFilter::Off),
                session: with_statement_timeout(session, call_timeout),
                max_connections,
                acquire_timeout: options.acquire_timeout,
                call_timeout,
            })?)
        };
        let call_timeout = options.call_timeout;
        Ok(Self {
            app: pool(&options.url, APP_SESSION, options.max_connections, call_timeout)?,
            jobs: pool(jobs_url, JOBS_SESSION, JOBS_CONNECTIONS, JOBS_CALL_TIMEOUT)?,
            shared: pool(jobs_url, SHARED_SESSION, SHARED_CONNECTIONS, call_timeout)?,
        })
    }

    /// Migrates the schema at `url`, which must be the owner's URL; answers what it
    /// changed.
    ///
    /// Safe to run in several processes at once, and repeatedly. A migration that
    /// cannot lock a table lets other statements proceed, and retries.
    ///
    /// # Errors
    /// [`IndexError::BadUrl`], [`IndexError::Unavailable`], [`IndexError::Migration`].
    pub async fn migrate(url: &str) -> Result<Migrated, IndexError> {
        let options = parse(url)?;
        let mut waited = Duration::ZERO;
        loop {
            // A new connection for each attempt: a failed one may still hold the
            // migrations' lock.
            let mut connection = connect(&options, MIGRATION_CONNECT_TIMEOUT).await?;
            connection.execute(MIGRATION_SESSION).await?;
            let migrated = migrations::run(&migrations::postgres(), &mut connection).await;
            drop(connection);
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

    /// Begins a transaction on the pool of a role.
    pub(crate) async fn begin_as(&self, role: Role) -> Result<Tx, IndexError> {
        let (pool, tenant_id) = self.pool_of(role);
        Ok(pool.begin(tenant_id).await?)
    }

    /// Acquires a connection from the pool of a role, without a transaction.
    pub(crate) async fn acquire_as(&self, role: Role) -> Result<Connection, IndexError> {
        Ok(self.pool_of(role).0.acquire().await?)
    }

    const fn pool_of(&self, role: Role) -> (&Pool, Option<TenantId>) {
        match role {
            Role::Tenant(tenant_id) => (&self.app, Some(tenant_id)),
            Role::Anonymous => (&self.app, None),
            Role::Shared(tenant_id) => (&self.shared, tenant_id),
            Role::Job(tenant_id) => (&self.jobs, tenant_id),
        }
    }

    /// Checks that the schema is new enough.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn check(&self) -> Result<(), IndexError> {
        let mut connection = self.app.acquire().await?;
        require_schema(connection.run(|raw| Box::pin(schema_version(raw))).await?)
    }

    /// The states of its pools.
    pub(crate) fn pools(&self) -> Vec<PoolState> {
        vec![
            self.app.state("requests"),
            self.jobs.state("jobs"),
            self.shared.state("shared"),
        ]
    }

    /// Closes the connections after their last transactions.
    pub fn close(&self) {
        for pool in [&self.app, &self.jobs, &self.shared] {
            pool.close();
        }
    }

    /// Runs a statement without parameters on the pool for requests, for tests.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn execute(&self, statement: &'static str) -> Result<(), IndexError> {
        self.app
            .acquire()
            .await?
            .run(|raw| raw.execute(statement))
            .await?;
        Ok(())
    }

    /// Opens a separate connection with the settings of the request pool, for tests.
    ///
    /// # Errors
    /// [`IndexError::Unavailable`].
    pub async fn app_session(&self) -> Result<PgConnection, IndexError> {
        Ok(self.app.connect().await?)
    }

    /// The text that is sent for a statement with lists, for tests.
    pub fn text_of(statement: &str) -> String {
        with_lists(statement, true)
    }
}

/// The server cancels a statement before the client closes its connection.
fn with_statement_timeout(session: &str, call_timeout: Duration) -> String {
    let timeout = call_timeout.mul_f64(0.9);
    format!("{session}; SET statement_timeout = '{}ms'", timeout.as_millis())
}

/// Whether a migration could not acquire a lock in time.
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
    // The parser accepts any scheme; its error message may contain the URL and its
    // password.
    let is_of_postgres = url.starts_with("postgres://") || url.starts_with("postgresql://");
    let parsed = PgConnectOptions::from_str(url).ok().filter(|_| is_of_postgres);
    parsed.ok_or_else(|| IndexError::BadUrl("is not a valid postgres:// URL".to_owned()))
}

/// Opens a connection outside the pools.
async fn connect(options: &PgConnectOptions, limit: Duration) -> Result<PgConnection, IndexError> {
    let connected = tokio::time::timeout(limit, options.connect()).await;
    let connected = connected.unwrap_or(Err(sqlx::Error::PoolTimedOut));
    Ok(connected.map_err(|error| sqlx::Error::from(Failure::NotConnected(error)))?)
}

/// Checks the database with a separate connection.
///
/// A pool retries every error until its timeout and then reports only the timeout.
/// This check reports the cause immediately.
async fn look(options: &PostgresOptions) -> Result<(), IndexError> {
    let looked = async {
        let mut connection = connect(&parse(&options.url)?, options.acquire_timeout).await?;
        let found = schema_version(&mut connection).await?;
        connection.close().await?;
        Ok::<_, IndexError>(found)
    };
    let in_time = tokio::time::timeout(options.acquire_timeout, looked).await;
    require_schema(in_time.unwrap_or_else(|_| Err(sqlx::Error::PoolTimedOut.into()))?)
}

/// The newest applied migration; 0 for a database without migrations.
async fn schema_version(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let found = sqlx::query_scalar("SELECT keepsake_schema_version()")
        .fetch_one(connection)
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
