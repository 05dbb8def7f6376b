//! The migrations of both databases, built into the binary.
//!
//! A migration only expands the schema: the binary before it goes on working
//! against it. What it makes superfluous is removed by a later release. A new
//! one is added to both lists, under the same number.

use std::borrow::Cow;

use sqlx::SqlSafeStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

const POSTGRES: &[(i64, &str, &str)] = &[
    (
        1,
        "tables",
        include_str!("../../../migrations/postgres/0001_tables.sql"),
    ),
    (
        2,
        "functions v1",
        include_str!("../../../migrations/postgres/0002_functions_v1.sql"),
    ),
    (
        3,
        "lists",
        include_str!("../../../migrations/postgres/0003_lists.sql"),
    ),
    (
        4,
        "functions v2",
        include_str!("../../../migrations/postgres/0004_functions_v2.sql"),
    ),
    (
        5,
        "operator",
        include_str!("../../../migrations/postgres/0005_operator.sql"),
    ),
    (
        6,
        "erasures",
        include_str!("../../../migrations/postgres/0006_erasures.sql"),
    ),
    (
        7,
        "functions v3",
        include_str!("../../../migrations/postgres/0007_functions_v3.sql"),
    ),
    (
        8,
        "expiry",
        include_str!("../../../migrations/postgres/0008_expiry.sql"),
    ),
    (
        9,
        "job runs",
        include_str!("../../../migrations/postgres/0009_job_runs.sql"),
    ),
    (
        10,
        "search",
        include_str!("../../../migrations/postgres/0010_search.sql"),
    ),
    (
        11,
        "sessions",
        include_str!("../../../migrations/postgres/0011_sessions.sql"),
    ),
    (
        12,
        "first lines",
        include_str!("../../../migrations/postgres/0012_first_lines.sql"),
    ),
    (
        13,
        "search changes v2",
        include_str!("../../../migrations/postgres/0013_search_changes_v2.sql"),
    ),
    (
        14,
        "put",
        include_str!("../../../migrations/postgres/0014_put.sql"),
    ),
    (
        15,
        "functions v4",
        include_str!("../../../migrations/postgres/0015_functions_v4.sql"),
    ),
    (
        18,
        "audit and quotas",
        include_str!("../../../migrations/postgres/0018_audit_and_quotas.sql"),
    ),
];

const SQLITE: &[(i64, &str, &str)] = &[
    (
        1,
        "tables",
        include_str!("../../../migrations/sqlite/0001_tables.sql"),
    ),
    (
        3,
        "lists",
        include_str!("../../../migrations/sqlite/0003_lists.sql"),
    ),
    (
        5,
        "operator",
        include_str!("../../../migrations/sqlite/0005_operator.sql"),
    ),
    (
        6,
        "erasures",
        include_str!("../../../migrations/sqlite/0006_erasures.sql"),
    ),
    (
        8,
        "expiry",
        include_str!("../../../migrations/sqlite/0008_expiry.sql"),
    ),
    (
        9,
        "job runs",
        include_str!("../../../migrations/sqlite/0009_job_runs.sql"),
    ),
    (
        10,
        "search",
        include_str!("../../../migrations/sqlite/0010_search.sql"),
    ),
    (
        11,
        "sessions",
        include_str!("../../../migrations/sqlite/0011_sessions.sql"),
    ),
    (
        18,
        "audit and quotas",
        include_str!("../../../migrations/sqlite/0018_audit_and_quotas.sql"),
    ),
];

/// The migrations of the Postgres index.
pub fn postgres() -> Migrator {
    migrator(POSTGRES)
}

/// The migrations of the SQLite index.
pub fn sqlite() -> Migrator {
    migrator(SQLITE)
}

fn migrator(list: &'static [(i64, &'static str, &'static str)]) -> Migrator {
    let migrations = list.iter().map(|&(version, description, sql)| {
        Migration::new(
            version,
            Cow::Borrowed(description),
            MigrationType::Simple,
            sql.into_sql_str(),
            false,
        )
    });
    let mut migrator = Migrator::with_migrations(migrations.collect());
    // A schema that a newer binary has already expanded is fine for this one.
    migrator.set_ignore_missing(true);
    migrator
}

/// The newest migration of a list.
pub(crate) fn newest(migrator: &Migrator) -> i64 {
    migrator
        .iter()
        .map(|migration| migration.version)
        .max()
        .unwrap_or_default()
}
