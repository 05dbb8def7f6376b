//! The index on Postgres. Reads and commits of the request path are database functions
//! with one round trip each.
//!
//! The functions set the tenant for their transaction, and row-level security hides every
//! row from a query without a tenant. Connections for requests run as `keepsake_app`,
//! which sees one tenant at a time; connections for jobs and the operator run as
//! `keepsake_jobs`, which may access all tenants. A session keeps no other state, so a
//! pooler in transaction mode may be in front of Postgres.

pub(crate) mod commit;
pub(crate) mod damage;
mod login;
pub(crate) mod pool;
mod row;

use std::str::FromStr;
use std::time::Duration;

use keepsake_core::TenantId;
use keepsake_telemetry::PoolState;
use sqlx::migrate::MigrateError;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection as _, Executor};

use crate::database::{Role, with_lists};
use crate::error::Failure;
use crate::{IndexError, MigrationReport, migrations};

use login::Login;
pub(crate) use pool::Snapshot;
use pool::{Connection, Pool, PoolOptions, Tx};

#[derive(Clone)]
pub struct PostgresOptions {
    /// For requests.
    pub url: String,
    /// For jobs and the operator; by default, the URL for requests.
    pub jobs_url: Option<String>,
    /// For requests.
    pub max_connections: u32,
    /// How long a request waits for a connection.
    pub acquire_timeout: Duration,
    /// How long a request waits for the result of one statement. After that, the
    /// connection is closed; the server cancels the statement slightly earlier.
    pub call_timeout: Duration,
}

impl PostgresOptions {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            jobs_url: None,
            max_connections: 6,
            acquire_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(10),
        }
    }
}

#[derive(Debug, Clone)]
pub struct PostgresIndex {
    /// Requests of tenants.
    app: Pool,
    /// Batches of jobs, which may take long.
    jobs: Pool,
    /// Short calls across tenants: look-ups of requests, the operator's requests,
    /// leases, heartbeats, access times. No batch can occupy this pool.
    shared: Pool,
    /// Whether the tables of tenants are distributed over several nodes.
    is_distributed: bool,
}

/// The names of the pools.
const REQUESTS: &str = "requests";
const JOBS: &str = "jobs";
const SHARED: &str = "shared";
const JOBS_CONNECTIONS: u32 = 3;
const JOBS_CALL_TIMEOUT: Duration = Duration::from_mins(2);
const SHARED_CONNECTIONS: u32 = 3;
/// How long a short call waits for a lock. Where the session cannot set this, the time
/// limit of the call applies.
const SHARED_LOCK_TIMEOUT: &str = "; SET lock_timeout = '5s'";
/// A migration that waits for a table lock blocks all later statements on the
/// table, so it gives up soon and retries.
const MIGRATION_SESSION: &str = "SET lock_timeout = '3s'";
const MIGRATION_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const MIGRATION_LOCK_TIMEOUT: Duration = Duration::from_secs(3);
const BETWEEN_LOCKS: Duration = Duration::from_secs(2);
/// How long a migration retries in total.
const LOCKS_AWAITED_FOR: Duration = Duration::from_mins(10);

/// Whether `migrations/postgres/distributed.sql` has run.
const IS_DISTRIBUTED: &str = "to_regproc('public.read_heads_of') IS NOT NULL";

impl PostgresIndex {
    /// Connects, and checks that the schema is recent enough.
    pub async fn connect(options: &PostgresOptions) -> Result<Self, IndexError> {
        let mut login = look(options, &options.url, &login::REQUESTS).await?;
        require_schema(bounded(options, schema_version(&mut login.connection)).await?)?;
        login.connection.close().await?;
        let jobs_url = options.jobs_url.as_deref().unwrap_or(&options.url);
        let (is_role, is_distributed) = (login.is_role, login.is_distributed);
        let is_jobs_role = if options.jobs_url.is_some() || login.is_shared {
            let login = look(options, jobs_url, &login::JOBS).await?;
            login.connection.close().await?;
            login.is_role
        } else {
            false
        };
        let pool = |name: &str, url, session: Option<String>, max_connections, call_timeout| {
            Ok::<_, IndexError>(Pool::new(PoolOptions {
                // The login may be the same for all pools.
                connect: parse(url)?
                    .application_name(&format!("keepsake {name}"))
                    .log_statements(tracing::log::LevelFilter::Off),
                session: session.unwrap_or_default(),
                max_connections,
                acquire_timeout: options.acquire_timeout,
                call_timeout,
                is_distributed,
            })?)
        };
        let call_timeout = options.call_timeout;
        let requests = (!is_role).then(|| login::REQUESTS.session(call_timeout, is_distributed));
        let jobs = |timeout| (!is_jobs_role).then(|| login::JOBS.session(timeout, is_distributed));
        let shared = jobs(call_timeout).map(|session| session + SHARED_LOCK_TIMEOUT);
        Ok(Self {
            app: pool(REQUESTS, &options.url, requests, options.max_connections, call_timeout)?,
            jobs: pool(JOBS, jobs_url, jobs(JOBS_CALL_TIMEOUT), JOBS_CONNECTIONS, JOBS_CALL_TIMEOUT)?,
            shared: pool(SHARED, jobs_url, shared, SHARED_CONNECTIONS, call_timeout)?,
            is_distributed,
        })
    }

    pub(crate) const fn is_distributed(&self) -> bool {
        self.is_distributed
    }

    /// `url` must be the owner's URL.
    ///
    /// Safe to run in several processes at once, and repeatedly. A migration that cannot
    /// lock a table lets other statements proceed, and retries. A schema that is distributed
    /// stays so.
    pub async fn migrate(url: &str) -> Result<MigrationReport, IndexError> {
        Self::migrate_and(url, false).await
    }

    /// Migrates, and distributes the schema over the nodes of Citus. `url` is that of the
    /// coordinator.
    pub async fn migrate_distributed(url: &str) -> Result<MigrationReport, IndexError> {
        Self::migrate_and(url, true).await
    }

    async fn migrate_and(url: &str, distributes: bool) -> Result<MigrationReport, IndexError> {
        let options = parse(url)?;
        let mut waited = Duration::ZERO;
        loop {
            // A new connection for each attempt: a failed one may still hold the lock of
            // the migrations.
            let mut connection = connect(&options, MIGRATION_CONNECT_TIMEOUT).await?;
            connection.execute(MIGRATION_SESSION).await?;
            let mut migrated = migrations::run(&migrations::postgres(), &mut connection).await;
            if migrated.is_ok() && (distributes || is_distributed(&mut connection).await?) {
                for text in migrations::DISTRIBUTED {
                    if let Err(error) = connection.execute(sqlx::raw_sql(text)).await {
                        migrated = Err(error.into());
                        break;
                    }
                }
            }
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

    pub(crate) async fn begin_as(&self, role: Role, snapshot: Snapshot) -> Result<Tx, IndexError> {
        let (pool, tenant_id) = self.pool_of(role);
        Ok(pool.begin(tenant_id, snapshot).await?)
    }

    /// Acquires a connection without a transaction.
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
    pub async fn check(&self) -> Result<(), IndexError> {
        let mut connection = self.app.acquire().await?;
        require_schema(connection.run(|raw| Box::pin(schema_version(raw))).await?)
    }

    pub(crate) fn pools(&self) -> Vec<PoolState> {
        vec![self.app.state(REQUESTS), self.jobs.state(JOBS), self.shared.state(SHARED)]
    }

    /// Closes the connections after their last transactions.
    pub fn close(&self) {
        for pool in [&self.app, &self.jobs, &self.shared] {
            pool.close();
        }
    }

    /// Runs a statement without parameters on the pool for requests, for tests.
    pub async fn execute(&self, statement: &'static str) -> Result<(), IndexError> {
        self.app.acquire().await?.run(|raw| raw.execute(statement)).await?;
        Ok(())
    }

    /// Opens a separate connection with the settings of the request pool, for tests.
    pub async fn app_session(&self) -> Result<PgConnection, IndexError> {
        Ok(self.app.connect().await?)
    }

    /// The text of a statement with lists as it is sent, for tests.
    pub fn text_of(statement: &str) -> String {
        with_lists(statement, true)
    }
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
    let parsed = parsed.ok_or_else(|| IndexError::BadUrl("is not a valid postgres:// URL".to_owned()))?;
    // PgBouncer refuses this parameter, and its default is at least as exact.
    Ok(parsed.extra_float_digits(None))
}

/// Opens a connection outside the pools.
async fn connect(options: &PgConnectOptions, limit: Duration) -> Result<PgConnection, IndexError> {
    let connected = tokio::time::timeout(limit, options.connect()).await;
    let connected = connected.unwrap_or(Err(sqlx::Error::PoolTimedOut));
    Ok(connected.map_err(|error| sqlx::Error::from(Failure::NotConnected(error)))?)
}

/// Reports a failure to connect immediately, with its cause. A pool would retry every
/// error until its timeout and then report only the timeout.
async fn look(options: &PostgresOptions, url: &str, profile: &login::Profile) -> Result<Login, IndexError> {
    let connect = parse(url)?.application_name("keepsake");
    bounded(options, profile.look(&connect, options.acquire_timeout)).await
}

/// Limits a call to the time that a request waits for a connection.
async fn bounded<T, E: Into<IndexError>>(
    options: &PostgresOptions,
    call: impl Future<Output = Result<T, E>>,
) -> Result<T, IndexError> {
    match tokio::time::timeout(options.acquire_timeout, call).await {
        Ok(answer) => answer.map_err(Into::into),
        Err(_) => Err(sqlx::Error::PoolTimedOut.into()),
    }
}

/// The newest applied migration; 0 for a database without migrations.
async fn schema_version(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let found = sqlx::query_scalar("SELECT keepsake_schema_version()").fetch_one(connection).await;
    let found: Option<i64> = found.or_else(|error| {
        let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
        let is_undefined_function = code.as_deref() == Some("42883");
        if is_undefined_function { Ok(None) } else { Err(error) }
    })?;
    Ok(found.unwrap_or_default())
}

async fn is_distributed(connection: &mut PgConnection) -> sqlx::Result<bool> {
    let query = sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT {IS_DISTRIBUTED}")));
    query.fetch_one(connection).await
}

fn require_schema(found: i64) -> Result<(), IndexError> {
    let needed = migrations::newest(&migrations::postgres());
    if found < needed { Err(IndexError::SchemaTooOld { found, needed }) } else { Ok(()) }
}
