//! The migrations of both databases, built into the binary.
//!
//! `migrations/README.md` explains how to change the schema.

use std::borrow::Cow;

use sqlx::SqlSafeStr;
use sqlx::migrate::{Migrate, MigrateError, Migration, MigrationType, Migrator};

/// Reads a file of `migrations/`.
macro_rules! sql {
    ($file:literal) => {
        include_str!(concat!("../../../migrations/", $file))
    };
}

/// The functions of Postgres, in one migration.
const POSTGRES_FUNCTIONS: &str = concat!(
    sql!("postgres/functions/schema_version.sql"),
    sql!("postgres/functions/authenticate.sql"),
    sql!("postgres/functions/read_heads.sql"),
    sql!("postgres/functions/commit.sql"),
    sql!("postgres/functions/content.sql"),
    sql!("postgres/functions/read_memories.sql"),
    sql!("postgres/functions/list_versions.sql"),
    sql!("postgres/functions/search_changes.sql"),
    sql!("postgres/functions/embeddings.sql"),
);

/// Distributes the schema over the nodes of Citus: two transactions, since the second one connects to
/// the nodes itself.
pub(crate) const DISTRIBUTED: [&str; 2] =
    [sql!("postgres/distributed.sql"), sql!("postgres/distributed_statistics.sql")];

/// Version, description and SQL of each migration.
type List = [(i64, &'static str, &'static str)];

const POSTGRES: &List =
    &[(1, "schema", sql!("postgres/0001_schema.sql")), (2, "functions", POSTGRES_FUNCTIONS)];

const SQLITE: &List = &[(1, "schema", sql!("sqlite/0001_schema.sql"))];

pub fn postgres() -> Migrator {
    migrator(POSTGRES)
}

pub fn sqlite() -> Migrator {
    migrator(SQLITE)
}

fn migrator(list: &'static List) -> Migrator {
    let migrations = list.iter().map(|&(version, description, sql)| {
        Migration::new(version, Cow::Borrowed(description), MigrationType::Simple, sql.into_sql_str(), false)
    });
    let mut migrator = Migrator::with_migrations(migrations.collect());
    // A newer binary may have migrated the schema; this binary works with the newer
    // schema.
    migrator.set_ignore_missing(true);
    migrator
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MigrationReport {
    pub applied: usize,
    /// Whether the database had no schema before.
    pub is_new: bool,
}

/// Applies the migrations that a database lacks. Safe to run in several processes at
/// once.
pub(crate) async fn run<C: Migrate>(
    migrator: &Migrator,
    connection: &mut C,
) -> Result<MigrationReport, MigrateError> {
    // The migrator takes the same lock again, which one connection may do.
    connection.lock().await?;
    connection.ensure_migrations_table(&migrator.table_name).await?;
    let before = connection.list_applied_migrations(&migrator.table_name).await?;
    migrator.run_direct(None, connection, false).await?;
    let after = connection.list_applied_migrations(&migrator.table_name).await?;
    connection.unlock().await?;
    Ok(MigrationReport { applied: after.len() - before.len(), is_new: before.is_empty() })
}

pub(crate) fn newest(migrator: &Migrator) -> i64 {
    migrator.iter().map(|migration| migration.version).max().unwrap_or_default()
}
