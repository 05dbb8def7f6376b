//! One interface to Postgres and SQLite.
//!
//! A method of the index names its call and its [`Role`], and gets a [`Tx`] to run
//! statements on. Only this module measures calls, makes their spans, and repeats them
//! after a lost connection.

mod batches;
mod commits;
mod packed;
mod tx;
mod values;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use keepsake_core::TenantId;
use keepsake_telemetry::{Metrics, Outcome, PoolState};
use serde_json::Value;
use sqlx::{AssertSqlSafe, SqlSafeStr};
use tracing::{Instrument, Span};
use uuid::Uuid;

pub(crate) use batches::{Answer, BatchFailure, BatchRules, Batches, answers_of};
pub(crate) use commits::{Batching, CommitResult, Commits, TenantCommit, commit_changes};
pub(crate) use packed::Packing;
pub(crate) use tx::with_lists;
use tx::{Connection, one_of};
pub(crate) use tx::{Query, RowLock, Tx};
pub(crate) use values::{
    Bind, Column, FromRow, Ids, Row, columns, from_row, json_columns, named_columns, selects,
};

use crate::model::Auditor;
use crate::postgres::Snapshot;
use crate::{IndexError, PostgresIndex, SqliteIndex};

/// The party that a call serves. On Postgres, the role selects the connection pool and
/// the rows that row-level security shows; SQLite has neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A request of one tenant.
    Tenant(TenantId),
    /// A request whose tenant is not known yet.
    Anonymous,
    /// A short call that may cross tenants: the operator's requests, credential
    /// look-ups, leases, heartbeats. With a tenant, it sees that tenant only.
    Shared(Option<TenantId>),
    /// A batch of a job. With a tenant, it sees that tenant only.
    Job(Option<TenantId>),
}

impl Role {
    /// The role for an audited change. A change by the operator also writes the
    /// operator's audit, which the role of a tenant does not see.
    pub(crate) const fn of_auditor(tenant_id: TenantId, by: &Auditor) -> Self {
        if by.is_operator() { Self::Shared(Some(tenant_id)) } else { Self::Tenant(tenant_id) }
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Backend {
    Postgres(PostgresIndex),
    Sqlite(SqliteIndex),
}

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Database(Arc<Inner>);

struct Inner {
    backend: Backend,
    metrics: Metrics,
    disk: Arc<DiskState>,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Database").field(&self.0.backend).finish()
    }
}

impl Database {
    pub(crate) fn new(backend: Backend, metrics: Metrics) -> Self {
        Self(Arc::new(Inner { backend, metrics, disk: Arc::default() }))
    }

    pub(crate) fn backend(&self) -> &Backend {
        &self.0.backend
    }

    /// The index on SQLite, for operations that Postgres does not need; `None` on Postgres.
    pub(crate) fn sqlite(&self) -> Option<&SqliteIndex> {
        match self.backend() {
            Backend::Postgres(_) => None,
            Backend::Sqlite(index) => Some(index),
        }
    }

    /// Of a value for Postgres and one for SQLite, the value for this database.
    pub(crate) fn choose<T>(&self, [postgres, sqlite]: [T; 2]) -> T {
        if self.sqlite().is_none() { postgres } else { sqlite }
    }

    /// Whether the tables of tenants are distributed over several nodes. A statement then
    /// names one tenant, except in jobs that read every tenant.
    pub(crate) fn is_distributed(&self) -> bool {
        matches!(self.backend(), Backend::Postgres(index) if index.is_distributed())
    }

    /// The key of the lane in which calls of a tenant wait for one another, where calls of
    /// different tenants cannot go together.
    pub(crate) fn lane_of(&self, tenant_id: TenantId) -> Option<TenantId> {
        self.is_distributed().then_some(tenant_id)
    }

    /// Rows as JSON parameters, one for each statement: one for all rows or, on a distributed
    /// database, one for the rows of each tenant, in the order of the tenants.
    ///
    /// The parts of all tenants are in memory at once, so callers pass bounded batches: at most 1000 rows, or a row
    /// for each store or session that this server watches.
    pub(crate) fn json_parts<T>(
        &self,
        rows: impl IntoIterator<Item = T>,
        tenant_of: impl Fn(&T) -> TenantId,
        to_json: impl Fn(T) -> Value,
    ) -> Vec<String> {
        let mut parts = BTreeMap::<_, Vec<Value>>::new();
        for row in rows {
            let tenant_id = self.is_distributed().then(|| tenant_of(&row));
            parts.entry(tenant_id).or_default().push(to_json(row));
        }
        parts.into_values().map(|rows| Value::Array(rows).to_string()).collect()
    }

    pub(crate) fn disk(&self) -> &Arc<DiskState> {
        &self.0.disk
    }

    /// Reports the connection pools and the size of SQLite's log with the metrics, as
    /// long as the database is open.
    pub(crate) fn watch(&self) {
        if self.sqlite().is_some() {
            let database = Arc::downgrade(&self.0);
            self.0.metrics.watch_log_size(move || Self(database.upgrade()?).sqlite()?.log_bytes());
        }
        let database = Arc::downgrade(&self.0);
        self.0.metrics.watch_pools(move || {
            let Some(database) = database.upgrade() else {
                return Vec::new();
            };
            match &database.backend {
                Backend::Postgres(index) => index.pools(),
                Backend::Sqlite(index) => index.pools(),
            }
        });
    }

    /// Begins a transaction that reads one snapshot.
    ///
    /// Commit it when done: on Postgres that is cheaper than dropping it.
    pub(crate) async fn read(&self, call: &'static str, role: Role) -> Result<Tx, IndexError> {
        self.begin(call, role, Mode::Snapshot).await
    }

    /// Takes a connection for one statement that reads, without a transaction.
    ///
    /// On Postgres the statement sees what the pool's role sees. In the role of a tenant
    /// it must therefore be a function that sets the tenant.
    pub(crate) async fn read_one(&self, call: &'static str, role: Role) -> Result<Tx, IndexError> {
        self.begin(call, role, Mode::Statement).await
    }

    /// Like [`Self::read_one`] for a Postgres function. On SQLite, several statements
    /// replace the function, and they read one snapshot.
    pub(crate) async fn read_function(&self, call: &'static str, role: Role) -> Result<Tx, IndexError> {
        self.begin(call, role, Mode::Function).await
    }

    /// Begins a transaction that writes. Dropping it rolls it back.
    pub(crate) async fn write(&self, call: &'static str, role: Role) -> Result<Tx, IndexError> {
        self.begin(call, role, Mode::Write).await
    }

    /// Takes a connection for statements that write. On Postgres each statement commits
    /// by itself, in one round trip instead of three.
    pub(crate) async fn write_one(&self, call: &'static str, role: Role) -> Result<Tx, IndexError> {
        self.begin(call, role, Mode::WriteStatement).await
    }

    /// Reads the rows of one statement, in a separate call.
    pub(crate) async fn all<'q, R: FromRow>(
        &self,
        call: &'static str,
        role: Role,
        sql: impl SqlSafeStr,
        values: impl Bind<'q>,
    ) -> Result<Vec<R>, IndexError> {
        let mut tx = self.read_alone(call, role).await?;
        let rows = tx.query(sql).bind(values).all().await?;
        tx.commit().await?;
        Ok(rows)
    }

    /// As [`Self::all`], for a statement of [`Tx::query_with_lists`].
    pub(crate) async fn all_with_lists<'q, R: FromRow>(
        &self,
        call: &'static str,
        role: Role,
        sql: &str,
        values: impl Bind<'q>,
    ) -> Result<Vec<R>, IndexError> {
        let text = AssertSqlSafe(with_lists(sql, self.sqlite().is_none()));
        self.all(call, role, text, values).await
    }

    /// Reads the next rows of all tenants after a key, `$1` to `$3`, and at most `limit`. On a
    /// distributed database it reads those of one tenant after the other, each on its node.
    pub(crate) async fn page<'q, R: FromRow, V: Bind<'q>>(
        &self,
        call: &'static str,
        text: &'static str,
        after: PlaceKey,
        limit: u32,
        values: impl Fn(PlaceKey, u32) -> V,
    ) -> Result<Vec<R>, IndexError> {
        let role = Role::Job(None);
        if !self.is_distributed() {
            return self.all(call, role, text, values(after, limit)).await;
        }
        let of_tenant = of_first_tenant(text);
        let (mut rows, mut after) = (Vec::new(), after);
        loop {
            let left = limit.saturating_sub(u32::try_from(rows.len()).unwrap_or(u32::MAX));
            if left == 0 {
                return Ok(rows);
            }
            let text = AssertSqlSafe(of_tenant.clone());
            rows.extend(self.all::<R>(call, role, text, values(after, left)).await?);
            let next: Option<(TenantId,)> = self.optional(call, role, NEXT_TENANT, after.0).await?;
            let Some((tenant_id,)) = next else {
                return Ok(rows);
            };
            after = (tenant_id, Uuid::nil(), Uuid::nil());
        }
    }

    /// Reads the first row of one statement, in a separate call.
    pub(crate) async fn optional<'q, R: FromRow>(
        &self,
        call: &'static str,
        role: Role,
        sql: impl SqlSafeStr,
        values: impl Bind<'q>,
    ) -> Result<Option<R>, IndexError> {
        let mut tx = self.read_alone(call, role).await?;
        let row = tx.query(sql).bind(values).optional().await?;
        tx.commit().await?;
        Ok(row)
    }

    /// Reads the one row of one statement, in a separate call; fails if there is none.
    pub(crate) async fn one<'q, R: FromRow>(
        &self,
        call: &'static str,
        role: Role,
        sql: impl SqlSafeStr,
        values: impl Bind<'q>,
    ) -> Result<R, IndexError> {
        one_of(self.optional(call, role, sql, values).await?)
    }

    /// Reads the one value of one statement, in a separate call.
    pub(crate) async fn scalar<'q, T: Column>(
        &self,
        call: &'static str,
        role: Role,
        sql: impl SqlSafeStr,
        values: impl Bind<'q>,
    ) -> Result<T, IndexError> {
        Ok(self.one::<(T,)>(call, role, sql, values).await?.0)
    }

    /// Takes a connection for one statement that reads. On Postgres, only a transaction
    /// sees a single tenant.
    async fn read_alone(&self, call: &'static str, role: Role) -> Result<Tx, IndexError> {
        let is_of_tenant = matches!(role, Role::Tenant(_) | Role::Shared(Some(_)) | Role::Job(Some(_)));
        let mode = if is_of_tenant && self.sqlite().is_none() { Mode::Snapshot } else { Mode::Statement };
        self.begin(call, role, mode).await
    }

    /// Executes one statement, in a separate call; returns how many rows it changed. In the
    /// role of a tenant it is a transaction, since Postgres sets the tenant only for one.
    pub(crate) async fn change<'q>(
        &self,
        call: &'static str,
        role: Role,
        sql: &'static str,
        values: impl Bind<'q>,
    ) -> Result<u64, IndexError> {
        let mode = if matches!(role, Role::Tenant(_)) { Mode::Write } else { Mode::WriteStatement };
        let mut tx = self.begin(call, role, mode).await?;
        let rows = tx.query(sql).bind(values).execute().await?;
        tx.commit().await?;
        Ok(rows)
    }

    /// Measures a call whose statements a batch sends together with those of other calls.
    pub(crate) async fn measure<T>(
        &self,
        call: &'static str,
        role: Role,
        mode: Mode,
        work: impl Future<Output = Result<T, IndexError>>,
    ) -> Result<T, IndexError> {
        Call::new(self.clone(), call, role, mode).run(work).await
    }

    pub(crate) async fn check(&self) -> Result<(), IndexError> {
        let check_once = async || match self.backend() {
            Backend::Postgres(index) => index.check().await,
            Backend::Sqlite(index) => index.check().await,
        };
        let check = async {
            match check_once().await {
                Err(error) if Effect::Read.may_repeat(&error) => check_once().await,
                checked => checked,
            }
        };
        let mut call = Call::new(self.clone(), "check", Role::Anonymous, Mode::Statement);
        call.run(check).await
    }

    async fn begin(&self, call: &'static str, role: Role, mode: Mode) -> Result<Tx, IndexError> {
        let mut call = Call::new(self.clone(), call, role, mode);
        // A trait object keeps the types of the callers' futures small.
        let connected: BoxFuture<'_, _> = Box::pin(call.connect());
        let connection = connected.await?;
        Ok(Tx::new(call, connection))
    }

    async fn connect(&self, role: Role, mode: Mode) -> Result<Connection, IndexError> {
        Ok(match (self.backend(), mode) {
            (Backend::Postgres(index), Mode::Statement | Mode::Function | Mode::WriteStatement) => {
                Connection::PostgresStatement(index.acquire_as(role).await?)
            }
            (Backend::Postgres(index), Mode::Snapshot) => {
                Connection::Postgres(index.begin_as(role, Snapshot::OfTransaction).await?)
            }
            (Backend::Postgres(index), Mode::Write) => {
                Connection::Postgres(index.begin_as(role, Snapshot::OfStatement).await?)
            }
            (Backend::Sqlite(index), Mode::Statement) => Connection::SqliteReader(index.reader().await?),
            (Backend::Sqlite(index), Mode::Snapshot | Mode::Function) => {
                Connection::SqliteReader(index.snapshot().await?)
            }
            (Backend::Sqlite(index), Mode::Write | Mode::WriteStatement) => {
                Connection::SqliteWriter(index.begin_write().await?)
            }
        })
    }
}

/// The key of a row of a store.
pub(crate) type PlaceKey = (TenantId, Uuid, Uuid);

/// The tenant after a given one.
pub(crate) const NEXT_TENANT: &str =
    "SELECT tenant_id FROM tenant WHERE tenant_id > $1 ORDER BY tenant_id LIMIT 1";

/// A statement of [`Database::page`] for the rows of the tenant `$1`: the planner sees the tenant
/// of every table.
fn of_first_tenant(text: &str) -> String {
    let mut text = text.to_owned();
    for first in ["WHERE (tenant_id,", "WHERE (m.tenant_id,"] {
        let column = first.trim_start_matches("WHERE (").trim_end_matches(',');
        text = text.replace(first, &format!("WHERE {column} = $1 AND ({column},"));
    }
    for joined in ["v", "d", "p"] {
        text = text.replace(&format!("= {joined}.tenant_id"), "= $1");
    }
    text
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Snapshot,
    Statement,
    Function,
    Write,
    WriteStatement,
}

impl Mode {
    const fn effect(self) -> Effect {
        match self {
            Self::Snapshot | Self::Statement | Self::Function => Effect::Read,
            Self::Write | Self::WriteStatement => Effect::Write,
        }
    }
}

/// Maximum number of connections that a call tries if they break one after the other.
const MAX_TRIES: u32 = 20;
/// A call replaces its first broken connection in any case, and further ones only within
/// this time of its start.
const RECONNECTS_FOR: Duration = Duration::from_secs(1);

/// One call of the index: its span and its outcome. Dropping it records its duration and
/// its outcome in the metrics.
#[derive(Debug)]
pub(crate) struct Call {
    database: Database,
    name: &'static str,
    role: Role,
    mode: Mode,
    began_at: Instant,
    span: Span,
    outcome: Outcome,
}

impl Call {
    fn new(database: Database, name: &'static str, role: Role, mode: Mode) -> Self {
        let span =
            tracing::debug_span!("index", otel.name = format_args!("index.{name}"), otel.kind = "client");
        Self { database, name, role, mode, began_at: Instant::now(), span, outcome: Outcome::Ok }
    }

    async fn run<T>(&mut self, part: impl Future<Output = Result<T, IndexError>>) -> Result<T, IndexError> {
        let result = part.instrument(self.span.clone()).await;
        result.map_err(|error| self.note(error))
    }

    /// Takes a connection and begins its transaction. A connection that broke while
    /// it was unused is replaced: nothing was changed yet.
    async fn connect(&mut self) -> Result<Connection, IndexError> {
        let (database, role, mode) = (self.database.clone(), self.role, self.mode);
        let mut tries = 1;
        loop {
            let begun = database.connect(role, mode).instrument(self.span.clone()).await;
            match begun {
                Err(error) if error.is_connection_lost() && self.may_reconnect(tries) => tries += 1,
                begun => return begun.map_err(|error| self.note(error).of_read()),
            }
        }
    }

    /// Whether a call takes another connection after `tries` broken ones. A restart of
    /// the database breaks many at once, and a call may meet several.
    fn may_reconnect(&self, tries: u32) -> bool {
        tries < 2 || (tries < MAX_TRIES && self.began_at.elapsed() < RECONNECTS_FOR)
    }

    /// Records an error for the metrics and for readiness.
    fn note(&mut self, error: IndexError) -> IndexError {
        let error = match self.mode.effect() {
            Effect::Read => error.of_read(),
            Effect::Write => error,
        };
        // Callers expect a unique violation; it is no failure of the call.
        if !error.is_unique_violation() {
            self.outcome = outcome_of(&error);
        }
        error
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let inner = &self.database.0;
        inner.disk.observe(self.outcome);
        inner.metrics.index_called(self.name, self.outcome, self.began_at.elapsed());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Read,
    Write,
}

impl Effect {
    /// Whether to repeat a failed call or statement: its connection was lost, and it has
    /// certainly changed nothing.
    pub(crate) fn may_repeat(self, error: &IndexError) -> bool {
        let changed_nothing = self == Self::Read || matches!(error, IndexError::Unavailable(_));
        changed_nothing && error.is_connection_lost()
    }
}

pub(crate) const fn outcome_of(error: &IndexError) -> Outcome {
    match error {
        IndexError::Unavailable(_) | IndexError::OutcomeUnknown(_) => Outcome::Unavailable,
        error if error.is_of_disk() => Outcome::DiskFull,
        _ => Outcome::Error,
    }
}

pub(crate) fn pool_state(pool: &'static str, status: deadpool::Status) -> PoolState {
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    PoolState {
        pool,
        in_use: count(status.size.saturating_sub(status.available)),
        idle: count(status.available),
        waiting: count(status.waiting),
        max: count(status.max_size),
    }
}

/// Whether the database's disk takes writes, as far as calls have found out.
#[derive(Debug, Default)]
pub struct DiskState {
    is_full: AtomicBool,
}

impl DiskState {
    /// Whether a write met a full, read-only or failing disk, and no heartbeat was
    /// written since then.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    fn observe(&self, outcome: Outcome) {
        if outcome == Outcome::DiskFull {
            self.is_full.store(true, Ordering::Relaxed);
        }
    }

    /// Call this after a call that certainly wrote. Of the regular calls, only a heartbeat
    /// always writes.
    pub(crate) fn took_write(&self) {
        self.is_full.store(false, Ordering::Relaxed);
    }
}
