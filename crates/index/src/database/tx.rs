//! A transaction, and statements on it.

use futures::future::BoxFuture;
use sqlx::error::BoxDynError;
use sqlx::postgres::PgArguments;
use sqlx::sqlite::SqliteArguments;
use sqlx::types::Json;
use sqlx::{Arguments, AssertSqlSafe, Encode, Executor, Postgres, SqlSafeStr, SqlStr, Sqlite, Type};
use tokio::sync::OwnedMutexGuard;
use tracing::Instrument;
use uuid::Uuid;

use super::packed::Packing;
use super::values::{Bind, Column, FromRow, Row, Value};
use super::{Call, Effect, Role};
use crate::IndexError;
use crate::numbers::hex;
use crate::postgres::pool;
use crate::sqlite::{Reader, Writer};

/// A transaction on either database, or a connection for one statement.
///
/// Dropping it rolls it back.
#[derive(Debug)]
pub(crate) struct Tx {
    call: Call,
    connection: Connection,
    /// Whether a statement was sent. Only the first one may be sent again.
    is_used: bool,
    /// Whether the transaction removes rows for good.
    is_removal: bool,
}

#[derive(Debug)]
pub(crate) enum Connection {
    Postgres(pool::Tx),
    /// Outside any transaction.
    PostgresStatement(pool::Connection),
    /// In a snapshot, or outside any transaction.
    SqliteReader(Reader),
    SqliteWriter(OwnedMutexGuard<Writer>),
    /// The connection was given back, and no other one is taken yet.
    Released,
}

/// How a Postgres query locks the rows that it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowLock {
    /// Against every other lock.
    Update,
    /// Against other changes, but not against rows that refer to this one.
    NoKeyUpdate,
    /// Against changes, but not against other shared locks.
    Share,
}

/// The list forms of [`Tx::query_with_lists`], and the SQL before and after the parameter
/// of each, for Postgres and then for SQLite.
const LISTS: [(&str, [[&str; 2]; 2]); 6] = [
    (
        "FROM_IDS(",
        [
            ["FROM unnest(", "::uuid[]) AS ids(id)"],
            ["FROM (SELECT unhex(value) AS id FROM json_each(", ")) AS ids"],
        ],
    ),
    ("IN_IDS(", [["= ANY(", "::uuid[])"], ["IN (SELECT unhex(value) FROM json_each(", "))"]]),
    (
        "FROM_TEXTS(",
        [
            ["FROM jsonb_array_elements_text(", "::jsonb) AS texts(text)"],
            ["FROM (SELECT value AS text FROM json_each(", ")) AS texts"],
        ],
    ),
    (
        "FROM_NUMBERS(",
        [
            [
                "FROM unnest(ARRAY(SELECT n.text::bigint FROM jsonb_array_elements_text(",
                "::jsonb) n(text))) AS numbers(number)",
            ],
            ["FROM (SELECT value AS number FROM json_each(", ")) AS numbers"],
        ],
    ),
    (
        "IN_NUMBERS(",
        [
            ["= ANY(ARRAY(SELECT n.text::bigint FROM jsonb_array_elements_text(", "::jsonb) n(text)))"],
            ["IN (SELECT value FROM json_each(", "))"],
        ],
    ),
    (
        "IN_TEXTS(",
        [
            ["= ANY(ARRAY(SELECT n.text FROM jsonb_array_elements_text(", "::jsonb) n(text)))"],
            ["IN (SELECT value FROM json_each(", "))"],
        ],
    ),
];

impl Tx {
    pub(super) const fn new(call: Call, connection: Connection) -> Self {
        Self { call, connection, is_used: false, is_removal: false }
    }

    /// The statement has `$1`, `$2` and so on for the values to bind.
    pub(crate) fn query(&mut self, sql: impl SqlSafeStr) -> Query<'_> {
        let mut sql = sql.into_sql_str();
        if self.is_distributed()
            && let Some(text) = of_one_tenant(sql.as_str())
        {
            sql = AssertSqlSafe(text).into_sql_str();
        }
        let statement = if self.is_postgres() {
            Statement::Postgres(sql, PgArguments::default())
        } else {
            debug_assert!(
                !is_limited_by_variable(sql.as_str()),
                "SQLite would prepare this at each execution; write LIMIT $n + 0: {}",
                sql.as_str()
            );
            Statement::Sqlite(sql, SqliteArguments::default())
        };
        Query { tx: self, statement, failure: None }
    }

    /// A query that locks the rows it finds until the end of the transaction.
    ///
    /// SQLite needs no lock: a transaction that writes is the only one.
    pub(crate) fn query_locking(&mut self, sql: &'static str, lock: RowLock) -> Query<'_> {
        if self.is_postgres() {
            let lock = match lock {
                RowLock::Update => " FOR UPDATE",
                RowLock::NoKeyUpdate => " FOR NO KEY UPDATE",
                RowLock::Share => " FOR SHARE",
            };
            self.query(AssertSqlSafe([sql, lock].concat()))
        } else {
            self.query(sql)
        }
    }

    /// Executes a statement that SQLite does not need: there, a transaction that writes is
    /// the only one, and every transaction reads one snapshot.
    pub(crate) async fn execute_on_postgres<'q>(
        &mut self,
        sql: &'static str,
        values: impl Bind<'q>,
    ) -> Result<(), IndexError> {
        if self.is_postgres() {
            self.query(sql).bind(values).execute().await?;
        }
        Ok(())
    }

    /// A statement with lists.
    ///
    /// `column IN_IDS($n)` and `FROM_IDS($n)` use [`Ids`](super::Ids).
    /// `column IN_NUMBERS($n)`, `column IN_TEXTS($n)`, `FROM_TEXTS($n)` and `FROM_NUMBERS($n)` use the JSON
    /// array bound to `$n`. `FROM_IDS` is a table `ids` with the column `id`, `FROM_TEXTS` a
    /// table `texts` with the column `text`, and `FROM_NUMBERS` a table `numbers` with the
    /// column `number`.
    ///
    /// `EACH[memory m: condition]` after such a table looks up the rows of each element
    /// by their key. With `IN_…`, Postgres reads a whole table that it has no statistics
    /// of.
    pub(crate) fn query_with_lists(&mut self, sql: &str) -> Query<'_> {
        let text = with_lists(sql, self.is_postgres());
        self.query(AssertSqlSafe(text))
    }

    pub(super) const fn is_postgres(&self) -> bool {
        matches!(self.connection, Connection::Postgres(_) | Connection::PostgresStatement(_))
    }

    pub(crate) fn is_distributed(&self) -> bool {
        self.call.database.is_distributed()
    }

    /// The condition that rows of a table are of the tenant of all rows of the JSON parameter
    /// [`Database::json_parts`]; nothing where they can be of several tenants. The planner needs
    /// it where it does not find out by itself.
    pub(crate) fn of_one_tenant(&self, table: &str) -> String {
        if self.is_distributed() {
            format!(" AND {table}.tenant_id = {TENANT_OF_ROWS}")
        } else {
            String::new()
        }
    }

    /// Records that the transaction removes rows for good, so that SQLite's write-ahead
    /// log, which still holds them, is emptied later.
    pub(crate) fn note_removal(&mut self) {
        self.is_removal = true;
        if let Connection::SqliteWriter(writer) = &mut self.connection {
            writer.note_removal();
        }
    }

    /// Whether a transaction of SQLite has yet to begin: no statement was sent, or the
    /// first one failed to begin it.
    pub(crate) fn is_to_begin(&self) -> bool {
        matches!(&self.connection, Connection::SqliteWriter(writer) if writer.is_to_begin())
    }

    /// The write connection of SQLite; `None` for any other connection.
    pub(crate) fn sqlite_writer(&mut self) -> Option<&mut Writer> {
        match &mut self.connection {
            Connection::SqliteWriter(writer) => Some(writer),
            _ => None,
        }
    }

    /// Of a value for Postgres and one for SQLite, the value for this database.
    pub(crate) fn choose<T>(&self, [postgres, sqlite]: [T; 2]) -> T {
        if self.is_postgres() { postgres } else { sqlite }
    }

    /// The number of rows that one statement with [`Query::bind_column`] takes.
    pub(crate) fn rows_at_once(&self) -> usize {
        self.choose([usize::MAX, 1])
    }

    /// After [`IndexError::OutcomeUnknown`], the transaction may or may not be committed.
    pub(crate) async fn commit(self) -> Result<(), IndexError> {
        let Self { mut call, connection, is_removal, .. } = self;
        let is_read = call.mode.effect() == Effect::Read;
        let commit = async {
            match connection {
                Connection::Postgres(tx) if is_read => {
                    // The caller already has its rows, even if the connection breaks now.
                    let _ = tx.commit().await;
                    Ok(())
                }
                Connection::Postgres(tx) => Ok(tx.commit().await?),
                Connection::SqliteReader(reader) => Ok(reader.commit().await?),
                Connection::SqliteWriter(mut writer) => writer.commit().await,
                Connection::PostgresStatement(_) | Connection::Released => Ok(()),
            }
        };
        let committed: BoxFuture<'_, _> = Box::pin(call.run(commit));
        let committed = committed.await;
        // A request does not wait for this; a job has the time.
        if is_removal && matches!(call.role, Role::Job(_)) {
            let database = call.database.clone();
            drop(call);
            if let Some(index) = database.sqlite() {
                index.copy_log().await;
            }
        }
        committed
    }

    /// Sends a statement. The first statement of a transaction is sent again on another
    /// connection if its connection was lost and it has changed nothing.
    async fn send(&mut self, statement: Statement, fetch: Fetch) -> Result<StatementResult, IndexError> {
        let again = (!self.is_used && self.is_postgres()).then(|| statement.clone());
        self.is_used = true;
        let span = self.call.span.clone();
        let mut sent = self.connection.send(statement, fetch).instrument(span.clone()).await;
        let mut tries = 1;
        while let (Err(error), Some(statement)) = (&sent, &again)
            && self.call.mode.effect().may_repeat(error)
            && self.call.may_reconnect(tries)
        {
            tries += 1;
            // The old connection is given back first: requests that each held one
            // connection and waited for another would use up the pool.
            self.connection = Connection::Released;
            self.connection = self.call.connect().await?;
            let repeated = self.connection.send(statement.clone(), fetch);
            sent = repeated.instrument(span.clone()).await;
        }
        sent.map_err(|error| self.call.note(error))
    }
}

/// Replaces the list forms of [`Tx::query_with_lists`] with the SQL of one database.
pub(crate) fn with_lists(sql: &str, is_postgres: bool) -> String {
    let mut text = sql.to_owned();
    while let Some((start, rest)) = text.split_once("EACH[") {
        let (lookup, end) = rest.split_once(']').unwrap_or((rest, ""));
        let (table, condition) = lookup.split_once(": ").unwrap_or((lookup, "true"));
        let alias = table.rsplit(' ').next().unwrap_or(table);
        // `OFFSET 0` keeps the planner from making a join of two whole tables.
        text = if is_postgres {
            format!(
                "{start}CROSS JOIN LATERAL (SELECT * FROM {table} WHERE {condition} OFFSET 0) {alias}{end}"
            )
        } else {
            format!("{start}CROSS JOIN {table} ON {condition}{end}")
        };
    }
    for (name, [postgres, sqlite]) in LISTS {
        let [before, after] = if is_postgres { postgres } else { sqlite };
        while let Some((start, rest)) = text.split_once(name) {
            let (parameter, end) = rest.split_once(')').unwrap_or((rest, ""));
            text = [start, before, parameter, after, end].concat();
        }
    }
    text
}

/// The tenant of the rows of a JSON parameter that are all of one tenant.
const TENANT_OF_ROWS: &str = "CAST(CAST($1 AS jsonb) -> 0 ->> 'tenant_id' AS uuid)";

/// A statement with rows of [`Database::json_parts`] as a JSON parameter, for a distributed
/// database: the tenant is that of the first row, a constant for the planner. `None`: it has
/// no such rows.
fn of_one_tenant(sql: &str) -> Option<String> {
    const ROWS: &str = "jsonb_to_recordset($1::jsonb) AS ";
    const TENANT: &str = "(tenant_id uuid";
    let (start, rest) = sql.split_once(ROWS)?;
    let (alias, rest) = rest.split_once(TENANT)?;
    let (columns, end) = rest.split_once(')')?;
    let columns = columns.trim_start_matches([',', ' ']);
    let others = if columns.is_empty() {
        String::new()
    } else {
        format!(", t.* FROM jsonb_to_recordset($1::jsonb) AS t({columns})")
    };
    Some(format!("{start}(SELECT {TENANT_OF_ROWS} AS tenant_id{others}) AS {alias}{end}"))
}

impl Connection {
    async fn send(&mut self, statement: Statement, fetch: Fetch) -> Result<StatementResult, IndexError> {
        let fetched = match statement {
            Statement::Postgres(sql, arguments) => {
                let connection = match self {
                    Self::Postgres(tx) => &mut **tx,
                    Self::PostgresStatement(connection) => connection,
                    _ => return Err(OTHER_DATABASE),
                };
                let query = sqlx::query_with(sql, arguments);
                match fetch {
                    Fetch::Changes | Fetch::Commit => {
                        let done = connection.run(|raw| raw.execute(query)).await?;
                        StatementResult::Changes(done.rows_affected())
                    }
                    Fetch::First => {
                        let row = connection.run(|raw| raw.fetch_optional(query)).await?;
                        StatementResult::Rows(row.into_iter().map(Row::Postgres).collect())
                    }
                    Fetch::All => {
                        let rows = connection.run(|raw| raw.fetch_all(query)).await?;
                        StatementResult::Rows(rows.into_iter().map(Row::Postgres).collect())
                    }
                }
            }
            Statement::Sqlite(sql, arguments) => {
                if let (Self::SqliteWriter(writer), Fetch::Commit) = (&mut *self, fetch) {
                    let changed = writer.execute_and_commit(&sql, arguments).await?;
                    return Ok(StatementResult::Changes(changed));
                }
                let session = match self {
                    Self::SqliteReader(reader) => &mut **reader,
                    Self::SqliteWriter(writer) => writer.session(),
                    _ => return Err(OTHER_DATABASE),
                };
                let rows = match fetch {
                    Fetch::Changes | Fetch::Commit => {
                        return Ok(StatementResult::Changes(session.execute(sql, arguments).await?));
                    }
                    Fetch::First => session.first(sql, arguments).await?.into_iter().collect(),
                    Fetch::All => session.all(sql, arguments).await?,
                };
                StatementResult::Rows(rows.into_iter().map(Row::Sqlite).collect())
            }
        };
        Ok(fetched)
    }
}

/// Whether the statement has a `LIMIT` that is only a variable. SQLite plans by the value
/// of such a variable, and so prepares the statement again each time a value is bound. It
/// does not do so for `LIMIT $n + 0`.
fn is_limited_by_variable(sql: &str) -> bool {
    let mut limits = sql.split("LIMIT $").skip(1);
    limits.any(|limit| !limit.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with(" + 0"))
}

/// Never happens: a statement is built for the transaction that sends it.
const OTHER_DATABASE: IndexError =
    IndexError::Corrupt { table: "none", what: "a statement was made for the other database" };

#[derive(Debug, Clone)]
enum Statement {
    Postgres(SqlStr, PgArguments),
    Sqlite(SqlStr, SqliteArguments),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fetch {
    /// The number of rows that the statement changed.
    Changes,
    /// The same; a write connection of SQLite also commits.
    Commit,
    First,
    All,
}

enum StatementResult {
    Changes(u64),
    Rows(Vec<Row>),
}

/// The first row of a statement that always has one.
pub(super) fn one_of<R>(row: Option<R>) -> Result<R, IndexError> {
    row.ok_or(IndexError::Database(sqlx::Error::RowNotFound))
}

#[must_use = "a statement does nothing before it is executed"]
#[derive(Debug)]
pub(crate) struct Query<'t> {
    tx: &'t mut Tx,
    statement: Statement,
    /// The first value that could not be bound.
    failure: Option<BoxDynError>,
}

impl Query<'_> {
    /// Binds the next value, or the next values of a tuple.
    pub(crate) fn bind<'q>(self, values: impl Bind<'q>) -> Self {
        values.bind_to(self)
    }

    /// Binds the next value, in the form that the drivers store.
    pub(super) fn bind_stored<'q, T>(self, value: T) -> Self
    where
        T: Encode<'q, Postgres> + Type<Postgres> + Encode<'q, Sqlite> + Type<Sqlite>,
    {
        self.bind_with(|statement| match statement {
            Statement::Postgres(_, arguments) => arguments.add(value),
            Statement::Sqlite(_, arguments) => arguments.add(value),
        })
    }

    /// Binds an array, in a statement for Postgres only.
    pub(crate) fn bind_array<'q>(self, values: impl Encode<'q, Postgres> + Type<Postgres>) -> Self {
        self.bind_with(|statement| match statement {
            Statement::Postgres(_, arguments) => arguments.add(values),
            Statement::Sqlite(..) => Err("SQLite has no arrays".into()),
        })
    }

    /// Binds a column of at most [`Tx::rows_at_once`] rows: an array on Postgres, one value on
    /// SQLite.
    pub(crate) fn bind_column<'q, T>(self, values: Vec<T>) -> Self
    where
        Vec<T>: Encode<'q, Postgres> + Type<Postgres>,
        T: Encode<'q, Sqlite> + Type<Sqlite> + 'q,
    {
        self.bind_with(|statement| match statement {
            Statement::Postgres(_, arguments) => arguments.add(values),
            Statement::Sqlite(_, arguments) => {
                debug_assert!(values.len() <= 1, "a statement writes one row on SQLite");
                arguments.add(values.into_iter().next())
            }
        })
    }

    /// Binds [`Ids`](super::Ids).
    pub(super) fn bind_ids<T: Value<Stored = Uuid> + Copy>(self, ids: Option<&[T]>) -> Self {
        let ids = ids.map(|ids| ids.iter().map(|id| id.into_stored()).collect::<Vec<_>>());
        self.bind_with(|statement| match statement {
            Statement::Postgres(_, arguments) => arguments.add(ids),
            Statement::Sqlite(_, arguments) => {
                let to_json = |ids: Vec<Uuid>| ids.into_iter().map(hex).collect::<serde_json::Value>();
                arguments.add(ids.map(to_json).map(|ids| ids.to_string()))
            }
        })
    }

    fn bind_with(mut self, bind: impl FnOnce(&mut Statement) -> Result<(), BoxDynError>) -> Self {
        let bound = bind(&mut self.statement);
        self.failure = self.failure.or(bound.err());
        self
    }

    async fn send(self, fetch: Fetch) -> Result<StatementResult, IndexError> {
        if let Some(failure) = self.failure {
            return Err(sqlx::Error::Encode(failure).into());
        }
        // A trait object keeps the types of the callers' futures small.
        let sent: BoxFuture<'_, _> = Box::pin(self.tx.send(self.statement, fetch));
        sent.await
    }

    /// Returns the number of rows that the statement changed.
    pub(crate) async fn execute(self) -> Result<u64, IndexError> {
        match self.send(Fetch::Changes).await? {
            StatementResult::Changes(rows) => Ok(rows),
            StatementResult::Rows(_) => Ok(0),
        }
    }

    /// Executes the last statement of a transaction. On SQLite the same message also
    /// commits, so the error may be that of the commit; on Postgres, [`Tx::commit`]
    /// commits.
    pub(crate) async fn execute_last(self) -> Result<(), IndexError> {
        self.send(Fetch::Commit).await.map(drop)
    }

    /// Drops each row after reading it, so that large rows are not in memory twice.
    async fn rows<R: FromRow>(self, fetch: Fetch) -> Result<Vec<R>, IndexError> {
        match self.send(fetch).await? {
            StatementResult::Changes(_) => Ok(Vec::new()),
            StatementResult::Rows(rows) => rows.into_iter().map(|row| row.read()).collect(),
        }
    }

    pub(crate) async fn all<R: FromRow>(self) -> Result<Vec<R>, IndexError> {
        self.rows(Fetch::All).await
    }

    /// On SQLite, the statement returns its rows packed into one row.
    pub(crate) async fn all_packed<R: FromRow>(
        self,
        packing: &'static Packing,
    ) -> Result<Vec<R>, IndexError> {
        if self.tx.is_postgres() {
            return self.all().await;
        }
        let rows: Json<Vec<Vec<serde_json::Value>>> = self.scalar().await?;
        packing.rows(rows.0).map(|row| Row::Packed(row).read()).collect()
    }

    pub(crate) async fn optional<R: FromRow>(self) -> Result<Option<R>, IndexError> {
        Ok(self.rows(Fetch::First).await?.pop())
    }

    /// The first row; fails if there is none.
    pub(crate) async fn one<R: FromRow>(self) -> Result<R, IndexError> {
        one_of(self.optional().await?)
    }

    /// The first column of all rows.
    pub(crate) async fn scalars<T: Column>(self) -> Result<Vec<T>, IndexError> {
        let rows = self.all::<(T,)>().await?;
        Ok(rows.into_iter().map(|(value,)| value).collect())
    }

    /// The first column of the first row, if there is one.
    pub(crate) async fn optional_scalar<T: Column>(self) -> Result<Option<T>, IndexError> {
        Ok(self.optional::<(T,)>().await?.map(|(value,)| value))
    }

    /// The first column of the first row; fails if there is none.
    pub(crate) async fn scalar<T: Column>(self) -> Result<T, IndexError> {
        Ok(self.one::<(T,)>().await?.0)
    }
}
