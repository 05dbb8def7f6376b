//! The real binary, end to end: over HTTP, on real databases and object stores. Each test starts
//! its servers on a new [`Deployment`](support::Deployment): an empty database or file, and an
//! unused prefix or folder.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test by panicking, as the test does")]

/// Tests of one scenario, each on an index and a place of its content: on these pairs, or on
/// both main ones. They are in a module with the name of the scenario.
macro_rules! on_pairs {
    ($scenario:ident) => {
        on_pairs! { $scenario: PostgresS3, Sqlite }
    };
    ($scenario:ident: $($pair:ident),+) => {
        mod $scenario {
            $(on_pairs! { @ $scenario $pair })+
        }
    };
    (@ $scenario:ident PostgresS3) => { on_pairs! { @ $scenario PostgresS3 on_postgres_and_s3 } };
    (@ $scenario:ident Postgres) => { on_pairs! { @ $scenario Postgres on_postgres } };
    (@ $scenario:ident SqliteS3) => { on_pairs! { @ $scenario SqliteS3 on_sqlite_and_s3 } };
    (@ $scenario:ident Sqlite) => { on_pairs! { @ $scenario Sqlite on_sqlite } };
    (@ $scenario:ident $pair:ident $test:ident) => {
        #[tokio::test(flavor = "multi_thread")]
        async fn $test() {
            super::$scenario(crate::support::Pair::$pair).await;
        }
    };
}

mod agent_tools;
mod any_history;
mod api;
mod blob_moves;
mod browser;
mod chart;
mod cli;
mod clients;
mod commands;
mod conformance;
mod console;
mod database_faults;
mod dev_mode;
mod edges;
mod erasure;
mod hostile;
mod isolation;
mod lifecycle;
mod logs;
mod mcp;
mod meaning;
mod openapi;
mod operator;
mod persistence;
mod prelude;
mod readme;
mod release;
mod roles;
mod same_block;
mod sdk;
mod search;
mod sensitive;
mod store_deletion;
mod streams;
mod support;
mod telemetry;
mod tokens;
mod upgrade;
mod upkeep;
