//! Connections to Postgres.
//!
//! The driver waits for an answer without a bound, and so does its own pool when a
//! connection comes back. Here every wait has a limit, a connection is checked before it
//! is used, and a connection whose state is in doubt is closed:
//!
//! - A statement is answered within the call limit, or its connection is closed.
//! - A connection that was idle, or that was last used before another one broke,
//!   is pinged before it is used. After a ping or a call that timed out, idle
//!   connections that were last used before it are dropped without a ping.
//! - A connection that its user dropped in the middle of a statement or of a
//!   transaction goes back to the pool only after a rollback, which is bounded.

mod connection;
mod manager;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use deadpool::managed::{self, QueueMode};
use keepsake_core::TenantId;
use keepsake_telemetry::PoolState;
use parking_lot::Mutex;
use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgConnectOptions, PgConnection};

use crate::database::pool_state;
use crate::error::Failure;

pub(crate) use connection::{Connection, Tx};

use manager::Manager;

const IDLE_TIMEOUT: Duration = Duration::from_mins(10);
const REAP_INTERVAL: Duration = Duration::from_mins(1);

#[derive(Debug, Clone)]
pub(super) struct PoolOptions {
    pub(super) connect: PgConnectOptions,
    /// Statements that a new connection runs first; may be empty.
    pub(super) session: String,
    pub(super) max_connections: u32,
    pub(super) acquire_timeout: Duration,
    pub(super) call_timeout: Duration,
    pub(super) is_distributed: bool,
}

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Pool {
    connections: managed::Pool<Manager>,
    acquire_timeout: Duration,
    call_timeout: Duration,
    is_distributed: bool,
    reaped_at: Arc<Mutex<Instant>>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("status", &self.connections.status()).finish_non_exhaustive()
    }
}

impl Pool {
    /// Connects on first use.
    pub(super) fn new(options: PoolOptions) -> sqlx::Result<Self> {
        let (acquire_timeout, call_timeout) = (options.acquire_timeout, options.call_timeout);
        let is_distributed = options.is_distributed;
        let max_connections = usize::try_from(options.max_connections).unwrap_or(usize::MAX);
        let connections = managed::Pool::builder(Manager::new(options))
            .max_size(max_connections)
            // The most recently used connection is the least likely to need a ping.
            .queue_mode(QueueMode::Lifo)
            .build()
            .map_err(|error| sqlx::Error::Configuration(Box::new(error)))?;
        Ok(Self {
            connections,
            acquire_timeout,
            call_timeout,
            is_distributed,
            reaped_at: Arc::new(Mutex::new(Instant::now())),
        })
    }

    /// Opens a connection outside the pool, with the same session settings.
    pub(super) async fn connect(&self) -> sqlx::Result<PgConnection> {
        self.connections.manager().connect().await
    }

    /// The connection returns to the pool when it is dropped.
    pub(super) async fn acquire(&self) -> sqlx::Result<Connection> {
        self.reap();
        let taken = tokio::time::timeout(self.acquire_timeout, self.connections.get()).await;
        match taken {
            Ok(Ok(object)) => Ok(Connection::new(object, self.call_timeout)),
            Ok(Err(managed::PoolError::Backend(error))) => Err(Failure::NotConnected(error).into()),
            Ok(Err(managed::PoolError::Closed)) => Err(sqlx::Error::PoolClosed),
            Err(_)
            | Ok(Err(
                managed::PoolError::Timeout(_)
                | managed::PoolError::NoRuntimeSpecified
                | managed::PoolError::PostCreateHook(_),
            )) => Err(sqlx::Error::PoolTimedOut),
        }
    }

    /// Begins a transaction, which sees one tenant or, with `None`, everything visible to
    /// the pool's role. Dropping it rolls it back.
    ///
    /// No other function begins a transaction. This one may be cancelled: a connection
    /// counts as inside a transaction before `BEGIN` is sent.
    pub(super) async fn begin(&self, tenant_id: Option<TenantId>, snapshot: Snapshot) -> sqlx::Result<Tx> {
        let connection = self.acquire().await?;
        Tx::begin(connection, begin_statement(tenant_id, snapshot, self.is_distributed)).await
    }

    pub(super) fn state(&self, pool: &'static str) -> PoolState {
        pool_state(pool, self.connections.status())
    }

    /// Closes idle connections now, and the others when they return.
    pub(super) fn close(&self) {
        self.connections.close();
    }

    /// Drops connections that were idle for [`IDLE_TIMEOUT`].
    fn reap(&self) {
        {
            let mut reaped_at = self.reaped_at.lock();
            if reaped_at.elapsed() < REAP_INTERVAL {
                return;
            }
            *reaped_at = Instant::now();
        }
        self.connections.retain(|session, _| session.status.used_at.elapsed() < IDLE_TIMEOUT);
    }
}

/// What the statements of a transaction see of others' commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Snapshot {
    /// Each statement sees the commits before it.
    OfStatement,
    /// All statements see the commits before the first one.
    OfTransaction,
}

/// The statement that begins a transaction; one round trip.
///
/// On a distributed database it sets the tenant for all nodes. There it is a block, because the
/// nodes get the whole text that a statement is part of.
fn begin_statement(
    tenant_id: Option<TenantId>,
    snapshot: Snapshot,
    is_distributed: bool,
) -> AssertSqlSafe<String> {
    let begin = match snapshot {
        Snapshot::OfStatement => "BEGIN",
        Snapshot::OfTransaction => "BEGIN ISOLATION LEVEL REPEATABLE READ",
    };
    AssertSqlSafe(match tenant_id {
        // An id has no character with a special meaning in SQL.
        Some(tenant_id) if is_distributed => {
            format!("{begin}; DO $$BEGIN SET LOCAL keepsake.tenant = '{}'; END$$", tenant_id.uuid())
        }
        Some(tenant_id) => {
            format!("{begin}; SELECT set_config('keepsake.tenant', '{}', true)", tenant_id.uuid())
        }
        None => begin.to_owned(),
    })
}
