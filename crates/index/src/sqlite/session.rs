//! Connections to the file, and their transactions.
//!
//! Each connection has its own thread, and each call is a message to that thread and an
//! answer. So `BEGIN` is sent in one message with the first statement, and a connection
//! returns to the pool without a message; the driver's own pool would ping it each time.

use std::ops::{Deref, DerefMut};

use deadpool::managed::{self, Metrics, Object, RecycleResult};
use futures::TryStreamExt;
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Either, Executor, SqlSafeStr, SqlStr};

#[derive(Debug)]
pub(crate) struct SqliteSession {
    pub(super) raw: SqliteConnection,
    transaction: Transaction,
    /// Whether a statement is in progress, or has failed.
    is_busy: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transaction {
    None,
    /// The next statement is sent with this one before it, and so begins the transaction.
    Wanted(&'static str),
    /// The transaction is open, or may be.
    Open,
}

impl SqliteSession {
    pub(super) const fn new(raw: SqliteConnection) -> Self {
        Self { raw, transaction: Transaction::None, is_busy: false }
    }

    /// Makes the next statement begin a transaction with `begin`. No transaction may be
    /// open.
    pub(super) const fn begin_with(&mut self, begin: &'static str) {
        self.transaction = Transaction::Wanted(begin);
    }

    /// Returns the number of rows that the last part of the statement changed.
    pub(crate) async fn execute(&mut self, sql: SqlStr, arguments: SqliteArguments) -> sqlx::Result<u64> {
        let (sql, opening) = self.send(sql);
        let parts = self.raw.fetch_many(sqlx::query_with(sql, arguments));
        // A part that changes nothing, such as `BEGIN`, reports the number of the part
        // before it.
        let changed = parts.try_fold(0, |changed, part| async move {
            Ok(match part {
                Either::Left(done) => done.rows_affected(),
                Either::Right(_) => changed,
            })
        });
        let changed = changed.await;
        self.answered(opening, changed).await
    }

    pub(crate) async fn first(
        &mut self,
        sql: SqlStr,
        arguments: SqliteArguments,
    ) -> sqlx::Result<Option<SqliteRow>> {
        let (sql, opening) = self.send(sql);
        let row = self.raw.fetch_optional(sqlx::query_with(sql, arguments)).await;
        self.answered(opening, row).await
    }

    pub(crate) async fn all(
        &mut self,
        sql: SqlStr,
        arguments: SqliteArguments,
    ) -> sqlx::Result<Vec<SqliteRow>> {
        let (sql, opening) = self.send(sql);
        let rows = self.raw.fetch_all(sqlx::query_with(sql, arguments)).await;
        self.answered(opening, rows).await
    }

    /// The text to send for a statement, and the `BEGIN` at its front, if it begins the
    /// transaction.
    fn send(&mut self, sql: SqlStr) -> (SqlStr, Option<&'static str>) {
        self.is_busy = true;
        let Transaction::Wanted(begin) = self.transaction else {
            return (sql, None);
        };
        self.transaction = Transaction::Open;
        let sql = AssertSqlSafe([begin, "; ", sql.as_str()].concat()).into_sql_str();
        (sql, Some(begin))
    }

    /// Records the answer to a statement. If the statement was to begin the transaction
    /// and failed, it may have begun one. That one is rolled back, and the next statement
    /// begins it again.
    async fn answered<T>(
        &mut self,
        opening: Option<&'static str>,
        answer: sqlx::Result<T>,
    ) -> sqlx::Result<T> {
        match (&answer, opening) {
            (Ok(_), _) => self.is_busy = false,
            (Err(_), Some(begin)) => {
                self.roll_back().await;
                self.begin_with(begin);
            }
            (Err(_), None) => {}
        }
        answer
    }

    /// Whether the next statement begins the transaction.
    pub(super) const fn is_to_begin(&self) -> bool {
        matches!(self.transaction, Transaction::Wanted(_))
    }

    /// Whether a transaction is open, or may be.
    pub(super) fn is_open(&self) -> bool {
        self.transaction == Transaction::Open
    }

    /// Commits the transaction, if a statement has begun one.
    pub(super) async fn commit(&mut self) -> sqlx::Result<()> {
        if self.transaction == Transaction::Open {
            self.is_busy = true;
            sqlx::query("COMMIT").execute(&mut self.raw).await?;
            self.is_busy = false;
        }
        self.transaction = Transaction::None;
        Ok(())
    }

    /// Call this after a statement that has committed the transaction.
    pub(super) const fn committed(&mut self) {
        self.transaction = Transaction::None;
    }

    /// Rolls the transaction back; `false`: there was none.
    pub(super) async fn roll_back(&mut self) -> bool {
        let rolled_back = sqlx::query("ROLLBACK").execute(&mut self.raw).await;
        self.transaction = Transaction::None;
        rolled_back.is_ok()
    }

    /// Whether a statement failed, or a statement or a transaction was dropped before its
    /// end.
    const fn is_abandoned(&self) -> bool {
        self.is_busy || matches!(self.transaction, Transaction::Open)
    }

    /// The connection without a transaction: an open one is rolled back.
    pub(super) async fn idle(&mut self) -> &mut SqliteConnection {
        if self.transaction == Transaction::Open {
            // SQLite may have rolled back already.
            self.roll_back().await;
        }
        self.transaction = Transaction::None;
        &mut self.raw
    }
}

#[derive(Debug)]
pub(super) struct Opener(pub(super) SqliteConnectOptions);

impl managed::Manager for Opener {
    type Type = SqliteSession;
    type Error = sqlx::Error;

    async fn create(&self) -> sqlx::Result<SqliteSession> {
        Ok(SqliteSession::new(self.0.connect().await?))
    }

    async fn recycle(&self, session: &mut SqliteSession, _: &Metrics) -> RecycleResult<sqlx::Error> {
        (session.transaction, session.is_busy) = (Transaction::None, false);
        Ok(())
    }
}

/// A connection for reads, on loan from the pool.
#[derive(Debug)]
pub(crate) struct Reader {
    /// `None` only while the reader is dropped.
    object: Option<Object<Opener>>,
}

impl Reader {
    pub(super) const fn new(object: Object<Opener>) -> Self {
        Self { object: Some(object) }
    }

    /// Ends the snapshot.
    pub(crate) async fn commit(mut self) -> sqlx::Result<()> {
        SqliteSession::commit(&mut self).await
    }
}

impl Deref for Reader {
    type Target = SqliteSession;

    fn deref(&self) -> &SqliteSession {
        self.object.as_ref().expect("only dropping takes the connection")
    }
}

impl DerefMut for Reader {
    fn deref_mut(&mut self) -> &mut SqliteSession {
        self.object.as_mut().expect("only dropping takes the connection")
    }
}

impl Drop for Reader {
    /// An abandoned connection returns to the pool after its statement has ended and its
    /// snapshot is closed, if it still works.
    fn drop(&mut self) {
        let Some(mut object) = self.object.take() else {
            return;
        };
        if !object.is_abandoned() {
            return;
        }
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                runtime.spawn(async move {
                    let raw = object.idle().await;
                    if raw.ping().await.is_err() {
                        drop(Object::take(object));
                    }
                });
            }
            Err(_) => drop(Object::take(object)),
        }
    }
}
