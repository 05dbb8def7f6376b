//! A connection on loan from the pool, and a transaction on one.

use std::io::ErrorKind;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use deadpool::managed::Object;
use futures::future::BoxFuture;
use sqlx::postgres::{PgConnection, PgDatabaseError, PgSeverity};
use sqlx::{AssertSqlSafe, Connection as _, Executor};

use super::manager::{Manager, PostgresSession, Status};
use crate::error::{Failure, is_connection_lost, no_answer_within};

/// The time limit for cleaning up a connection that was dropped in the middle of a
/// call.
const CLEAN_UP_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection on loan from the pool.
///
/// Each statement is answered within the call limit, or the connection is closed.
/// Dropping it returns it to the pool; in the middle of a statement or of a
/// transaction, it returns after a clean-up.
#[derive(Debug)]
pub(crate) struct Connection {
    /// `None` only while the connection is dropped.
    object: Option<Object<Manager>>,
    call_timeout: Duration,
}

impl Connection {
    pub(super) fn new(object: Object<Manager>, call_timeout: Duration) -> Self {
        Self { object: Some(object), call_timeout }
    }

    pub(crate) async fn run<T>(
        &mut self,
        statement: impl for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, sqlx::Result<T>>,
    ) -> sqlx::Result<T> {
        let (raw, status, limit) = self.parts();
        let answer =
            status.bounded(limit, statement(raw)).await.map_err(|error| status.in_transaction(error))?;
        status.is_busy = false;
        Ok(answer)
    }

    fn parts(&mut self) -> (&mut PgConnection, &mut Status, Duration) {
        let object = self.object.as_mut().expect("only dropping takes the connection");
        let PostgresSession { raw, status } = &mut **object;
        (raw, status, self.call_timeout)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let Some(object) = self.object.take() else {
            return;
        };
        let status = &object.status;
        if status.is_lost {
            drop(Object::take(object));
        } else if status.is_busy || status.is_in_transaction {
            clean_up_later(object);
        }
    }
}

/// Cleans up a connection in a task; closes it if that fails.
fn clean_up_later(object: Object<Manager>) {
    // The connection is also closed if the task is dropped, or if the runtime has ended.
    let mut dirty = ClosedOnDrop(Some(object));
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        return;
    };
    runtime.spawn(async move {
        let Some(object) = &mut dirty.0 else {
            return;
        };
        match tokio::time::timeout(CLEAN_UP_TIMEOUT, clean_up(object)).await {
            Ok(Ok(())) => drop(dirty.0.take()),
            Ok(Err(error)) => {
                if is_connection_lost(&error) {
                    object.status.failures.connection_lost();
                }
            }
            // The timeout may mean only that the statement waits for a lock.
            Err(_) => object.status.failures.connection_lost(),
        }
    });
}

/// Ends the statement or transaction that was dropped on a connection.
async fn clean_up(session: &mut PostgresSession) -> sqlx::Result<()> {
    // `ROLLBACK` and the ping both read the rest of the answer to an earlier statement first.
    if session.status.is_in_transaction {
        session.raw.execute("ROLLBACK").await?;
    } else {
        session.raw.ping().await?;
    }
    let status = &mut session.status;
    (status.is_busy, status.is_in_transaction) = (false, false);
    status.used_at = Instant::now();
    Ok(())
}

struct ClosedOnDrop(Option<Object<Manager>>);

impl Drop for ClosedOnDrop {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            drop(Object::take(object));
        }
    }
}

impl Status {
    /// Waits for the result of a call, at most `limit`, and records how it ended.
    async fn bounded<T>(
        &mut self,
        limit: Duration,
        call: impl Future<Output = sqlx::Result<T>>,
    ) -> sqlx::Result<T> {
        let began_at = Instant::now();
        self.is_busy = true;
        let error = match tokio::time::timeout(limit, call).await {
            Ok(Ok(answer)) => {
                self.used_at = Instant::now();
                return Ok(answer);
            }
            Ok(Err(error)) if is_connection_lost(&error) => {
                self.failures.connection_lost();
                error
            }
            // A pooler without a connection to the server passes on the reason.
            Ok(Err(error)) if is_fatal(&error) => {
                self.failures.connection_lost();
                sqlx::Error::Io(std::io::Error::new(ErrorKind::ConnectionAborted, error))
            }
            Ok(Err(error)) => {
                self.used_at = Instant::now();
                self.is_busy = false;
                return Err(error);
            }
            Err(_) => {
                self.failures.timed_out(began_at);
                no_answer_within(limit)
            }
        };
        self.is_lost = true;
        Err(error)
    }

    /// Marks an error as one of an uncommitted transaction, if the connection was lost
    /// inside a transaction.
    fn in_transaction(&self, error: sqlx::Error) -> sqlx::Error {
        if self.is_lost && self.is_in_transaction { Failure::NotCommitted(error).into() } else { error }
    }
}

/// Whether an answer to a statement also ended the session.
fn is_fatal(error: &sqlx::Error) -> bool {
    let answer = error.as_database_error();
    let answer = answer.and_then(|answer| answer.try_downcast_ref::<PgDatabaseError>());
    answer.is_some_and(|answer| matches!(answer.severity(), PgSeverity::Fatal | PgSeverity::Panic))
}

/// A transaction. Dropping it rolls it back, or closes its connection.
#[derive(Debug)]
pub(crate) struct Tx(Connection);

impl Tx {
    pub(super) async fn begin(
        mut connection: Connection,
        begin: AssertSqlSafe<String>,
    ) -> sqlx::Result<Self> {
        let (_, status, _) = connection.parts();
        status.is_in_transaction = true;
        connection.run(|raw| raw.execute(sqlx::raw_sql(begin))).await?;
        Ok(Self(connection))
    }

    /// After a lost connection or a timeout, the transaction may or may not be committed.
    pub(crate) async fn commit(mut self) -> sqlx::Result<()> {
        let (raw, status, limit) = self.0.parts();
        status.bounded(limit, raw.execute("COMMIT")).await?;
        (status.is_busy, status.is_in_transaction) = (false, false);
        Ok(())
    }
}

impl Deref for Tx {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.0
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.0
    }
}
