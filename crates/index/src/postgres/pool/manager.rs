//! Opens connections, and checks idle ones before they are used.

use std::sync::Arc;
use std::time::{Duration, Instant};

use deadpool::managed::{Metrics, RecycleError, RecycleResult};
use parking_lot::Mutex;
use sqlx::error::DatabaseError;
use sqlx::postgres::PgConnection;
use sqlx::{ConnectOptions, Connection as _, Executor};

use super::PoolOptions;
use crate::error::is_connection_lost;

const MAX_LIFETIME: Duration = Duration::from_mins(30);
/// A connection that was idle for longer is pinged before use.
const CHECKED_AFTER_IDLE: Duration = Duration::from_secs(1);
const PING_TIMEOUT: Duration = Duration::from_secs(1);
/// The waits between attempts to connect to a server that is starting.
const FIRST_BACKOFF: Duration = Duration::from_millis(20);
const MAX_BACKOFF: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<FailureTimes>);

#[derive(Debug, Default)]
struct FailureTimes {
    /// Connections last used before this are pinged.
    lost_at: Option<Instant>,
    /// Connections last used before this are dropped.
    silent_since: Option<Instant>,
}

impl Failures {
    /// Records that a connection broke: others may be broken as well.
    pub(super) fn connection_lost(&self) {
        self.0.lock().lost_at = Some(Instant::now());
    }

    pub(super) fn timed_out(&self, began_at: Instant) {
        let mut times = self.0.lock();
        times.silent_since = times.silent_since.max(Some(began_at));
        times.lost_at = Some(Instant::now());
    }
}

#[derive(Debug)]
pub(super) struct Status {
    /// When the server last answered.
    pub(super) used_at: Instant,
    /// Whether a statement is in progress.
    pub(super) is_busy: bool,
    /// Whether a transaction is open, or may be.
    pub(super) is_in_transaction: bool,
    /// Whether the connection must not be used again.
    pub(super) is_lost: bool,
    pub(super) failures: Arc<Failures>,
}

#[derive(Debug)]
pub(super) struct PostgresSession {
    pub(super) raw: PgConnection,
    pub(super) status: Status,
}

#[derive(Debug)]
pub(super) struct Manager {
    options: PoolOptions,
    failures: Arc<Failures>,
}

impl Manager {
    pub(super) fn new(options: PoolOptions) -> Self {
        Self { options, failures: Arc::default() }
    }

    pub(super) async fn connect(&self) -> sqlx::Result<PgConnection> {
        let mut raw = self.options.connect.connect().await?;
        if !self.options.session.is_empty() {
            let session = sqlx::AssertSqlSafe(self.options.session.clone());
            raw.execute(sqlx::raw_sql(session)).await?;
        }
        Ok(raw)
    }
}

impl deadpool::managed::Manager for Manager {
    type Type = PostgresSession;
    type Error = sqlx::Error;

    /// Connects, and retries while the server is not available, as after a restart. The
    /// caller's timeout for a connection limits the time.
    async fn create(&self) -> sqlx::Result<PostgresSession> {
        let gives_up_at = Instant::now() + self.options.acquire_timeout;
        let mut backoff = FIRST_BACKOFF;
        let raw = loop {
            match self.connect().await {
                Ok(raw) => break raw,
                Err(error) if !is_not_up(&error) || Instant::now() + backoff >= gives_up_at => {
                    return Err(error);
                }
                Err(_) => tokio::time::sleep(backoff).await,
            }
            backoff = (backoff * 2).min(MAX_BACKOFF);
        };
        Ok(PostgresSession {
            raw,
            status: Status {
                used_at: Instant::now(),
                is_busy: false,
                is_in_transaction: false,
                is_lost: false,
                failures: Arc::clone(&self.failures),
            },
        })
    }

    async fn recycle(&self, session: &mut PostgresSession, metrics: &Metrics) -> RecycleResult<sqlx::Error> {
        let used_at = session.status.used_at;
        let (is_silent, may_be_lost) = {
            let times = self.failures.0.lock();
            (
                times.silent_since.is_some_and(|since| used_at < since),
                times.lost_at.is_some_and(|at| used_at < at),
            )
        };
        if is_silent || metrics.age() > MAX_LIFETIME {
            return Err(RecycleError::message("too old"));
        }
        if !may_be_lost && used_at.elapsed() < CHECKED_AFTER_IDLE {
            return Ok(());
        }
        let began_at = Instant::now();
        match tokio::time::timeout(PING_TIMEOUT, session.raw.ping()).await {
            Ok(Ok(())) => {
                session.status.used_at = Instant::now();
                Ok(())
            }
            Ok(Err(error)) => {
                self.failures.connection_lost();
                Err(RecycleError::Backend(error))
            }
            Err(_) => {
                self.failures.timed_out(began_at);
                Err(RecycleError::message("no answer to a ping"))
            }
        }
    }
}

/// Whether the server may accept the connection soon: it refuses or drops
/// connections, is starting or stopping, or has too many of them.
fn is_not_up(error: &sqlx::Error) -> bool {
    let is_starting = |error: &sqlx::Error| {
        let code = error.as_database_error().and_then(DatabaseError::code);
        code.is_some_and(|code| code.starts_with("57P") || code == "53300")
    };
    matches!(error, sqlx::Error::Io(_)) || is_starting(error) || is_connection_lost(error)
}
