//! Connections to the file, and their transactions.
//!
//! Each connection has a separate thread, and each of its calls is a message there and one
//! back. So a transaction begins with its first statement, in one message, and a
//! connection goes back to the pool without one; that of the driver would ask it each
//! time whether it still works.

use std::ops::{Deref, DerefMut};

use deadpool::managed::{self, Metrics, Object, RecycleResult};
use futures::TryStreamExt;
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Either, Executor, SqlSafeStr, SqlStr};

/// A connection, and the state of its transaction.
#[derive(Debug)]
pub(crate) struct Session {
    pub(super) raw: SqliteConnection,
    transaction: Transaction,
    /// Whether a statement is in progress, or has failed.
    is_busy: bool,
}

/// The transaction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transaction {
    None,
    /// The next statement begins it with this one.
    Wanted(&'static str),
    /// It is open, or may be.
    Open,
}

impl Session {
    pub(super) const fn new(raw: SqliteConnection) -> Self {
        Self { raw, transaction: Transaction::None, is_busy: false }
    }

    /// Makes the next statement begin a transaction, with the statement `begin`. There is
    /// none open.
    pub(super) const fn begin_with(&mut self, begin: &'static str) {
        self.transaction = Transaction::Wanted(begin);
    }

    /// Executes a statement; answers how many rows its last part changed.
    pub(crate) async fn execute(&mut self, sql: SqlStr, arguments: SqliteArguments) -> sqlx::Result<u64> {
        let (sql, opening) = self.send(sql);
        let parts = self.raw.fetch_many(sqlx::query_with(sql, arguments));
        // A part that changes nothing, such as `BEGIN`, has the number of the one before it.
        let changed = parts.try_fold(0, |changed, part| async move {
            Ok(match part {
                Either::Left(done) => done.rows_affected(),
                Either::Right(_) => changed,
            })
        });
        let changed = changed.await;
        self.answered(opening, changed).await
    }

    /// The first row of a statement, if it has one.
    pub(crate) async fn first(
        &mut self,
        sql: SqlStr,
        arguments: SqliteArguments,
    ) -> sqlx::Result<Option<SqliteRow>> {
        let (sql, opening) = self.send(sql);
        let row = self.raw.fetch_optional(sqlx::query_with(sql, arguments)).await;
        self.answered(opening, row).await
    }

    /// All rows of a statement.
    pub(crate) async fn all(
        &mut self,
        sql: SqlStr,
        arguments: SqliteArguments,
    ) -> sqlx::Result<Vec<SqliteRow>> {
        let (sql, opening) = self.send(sql);
        let rows = self.raw.fetch_all(sqlx::query_with(sql, arguments)).await;
        self.answered(opening, rows).await
    }

    /// The text to send for a statement, and with what it begins the transaction, if it
    /// does.
    fn send(&mut self, sql: SqlStr) -> (SqlStr, Option<&'static str>) {
        self.is_busy = true;
        let Transaction::Wanted(begin) = self.transaction else {
            return (sql, None);
        };
        self.transaction = Transaction::Open;
        let sql = AssertSqlSafe([begin, "; ", sql.as_str()].concat()).into_sql_str();
        (sql, Some(begin))
    }

    /// Notes the answer to a statement. If one failed that was to begin the transaction,
    /// it is not known whether it did, so the next one begins it again.
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

    /// A statement has committed the transaction.
    pub(super) const fn committed(&mut self) {
        self.transaction = Transaction::None;
    }

    /// Rolls the transaction back; `false`: there was none.
    pub(super) async fn roll_back(&mut self) -> bool {
        let rolled_back = sqlx::query("ROLLBACK").execute(&mut self.raw).await;
        self.transaction = Transaction::None;
        rolled_back.is_ok()
    }

    /// Whether a statement failed, or one or a transaction was dropped before its end.
    const fn is_abandoned(&self) -> bool {
        self.is_busy || matches!(self.transaction, Transaction::Open)
    }

    /// The connection without a transaction: rolls back one that is open.
    pub(super) async fn idle(&mut self) -> &mut SqliteConnection {
        if self.transaction == Transaction::Open {
            // SQLite may have rolled back already.
            self.roll_back().await;
        }
        self.transaction = Transaction::None;
        &mut self.raw
    }
}

/// Opens the connections for reads.
#[derive(Debug)]
pub(super) struct Opener(pub(super) SqliteConnectOptions);

impl managed::Manager for Opener {
    type Type = Session;
    type Error = sqlx::Error;

    async fn create(&self) -> sqlx::Result<Session> {
        Ok(Session::new(self.0.connect().await?))
    }

    async fn recycle(&self, session: &mut Session, _: &Metrics) -> RecycleResult<sqlx::Error> {
        (session.transaction, session.is_busy) = (Transaction::None, false);
        Ok(())
    }
}

/// A connection for reads, on loan from the pool.
#[derive(Debug)]
pub(crate) struct Reader {
    /// `None` only while this is dropped.
    object: Option<Object<Opener>>,
}

impl Reader {
    pub(super) const fn new(object: Object<Opener>) -> Self {
        Self { object: Some(object) }
    }

    /// Ends the snapshot.
    pub(crate) async fn commit(mut self) -> sqlx::Result<()> {
        Session::commit(&mut self).await
    }
}

impl Deref for Reader {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.object.as_ref().expect("only dropping takes the connection")
    }
}

impl DerefMut for Reader {
    fn deref_mut(&mut self) -> &mut Session {
        self.object.as_mut().expect("only dropping takes the connection")
    }
}

impl Drop for Reader {
    /// One that was abandoned goes back after its statement, without its snapshot, if it
    /// still works.
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
