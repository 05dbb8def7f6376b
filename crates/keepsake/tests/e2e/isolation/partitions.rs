//! Every statement of a request names its tenant, also inside functions: the tables of
//! tenants can be in partitions by tenant, the step before a distributed database.

use std::borrow::Cow;

use sqlx::migrate::{Migration, Migrator};
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Executor as _, SqlSafeStr as _};

use super::*;

const PARTITIONS: u32 = 16;

/// Tables that name a tenant and stay whole: they find the tenant of a credential or of
/// the operator's id, or are read across tenants.
const GLOBAL: [&str; 4] = ["tenant", "credential", "tenant_deletion", "operator_audit"];

#[tokio::test(flavor = "multi_thread")]
async fn no_request_looks_at_all_partitions_of_a_table() {
    let deployment = Deployment::counting_requests().await;
    let pool = PgPoolOptions::new().max_connections(1);
    let raw = pool.connect(&deployment.postgres_url()).await.unwrap();
    // The test's own queries do not count.
    raw.execute("SET track_counts = off").await.unwrap();
    migrate(&raw).await;
    let mut parties = Parties::of(deployment).await;
    let client = parties.server.client(&parties.owner);
    carry_out_every_operation(&client, "ayla").await;
    parties.server.end().await;
    assert_pruned(&raw).await;
}

async fn migrate(raw: &PgPool) {
    let migrations = keepsake_index::migrations::postgres();
    let partitioned = migrations.iter().map(|migration| {
        Migration::new(
            migration.version,
            Cow::Owned(migration.description.to_string()),
            migration.migration_type,
            AssertSqlSafe(partitioned(migration.sql.as_str())).into_sql_str(),
            migration.no_tx,
        )
    });
    let migrator = Migrator::with_migrations(partitioned.collect());
    migrator.run(raw).await.unwrap();
    // Options of columns are those of each partition.
    raw.execute(
        "DO $$ DECLARE part record; BEGIN
            FOR part IN SELECT i.inhrelid::regclass AS name, a.attname, a.attoptions FROM pg_inherits i
                JOIN pg_attribute a ON a.attrelid = i.inhparent AND a.attoptions IS NOT NULL LOOP
                EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET (n_distinct = 1)', part.name, part.attname);
            END LOOP;
        END $$",
    )
    .await
    .unwrap();
}

/// The text of the schema with a partitioned table in place of each table of tenants.
fn partitioned(sql: &str) -> String {
    let mut text = String::new();
    for part in sql.split_inclusive(";\n") {
        let Some((before, table)) = part.split_once("CREATE TABLE ") else {
            text.push_str(part);
            continue;
        };
        let name = table.split(' ').next().unwrap();
        if !table.contains("\n    tenant_id uuid") || GLOBAL.contains(&name) {
            text.push_str(part);
            continue;
        }
        let (columns, options) = table.rsplit_once("\n)").unwrap();
        let options = options.trim().trim_end_matches(';');
        text.extend([before, "CREATE TABLE ", columns, "\n) PARTITION BY HASH (tenant_id);\n"]);
        text.extend((0..PARTITIONS).map(|remainder| {
            format!(
                "CREATE TABLE {name}_{remainder} PARTITION OF {name} \
                 FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {remainder}) {options};\n"
            )
        }));
    }
    text
}

/// By Postgres's own counters of scans, no statement looked at every partition of a table, as
/// one that names no tenant does: there are few tenants.
async fn assert_pruned(raw: &PgPool) {
    // A connection has counted its scans when it is gone. Postgres waits for that: counting
    // the connections until none is left would take locks that they need to leave.
    let connections = "FROM pg_stat_activity \
        WHERE datname = current_database() AND application_name LIKE 'keepsake%'";
    let end = format!("SELECT pg_terminate_backend(pid, 30000) {connections}");
    raw.execute(AssertSqlSafe(end)).await.unwrap();
    let count = AssertSqlSafe(format!("SELECT count(*) {connections}"));
    let left: i64 = sqlx::query_scalar(count).fetch_one(raw).await.unwrap();
    assert_eq!(left, 0, "connections did not end within 30 seconds");
    let looked_at: Vec<(String, i64)> = sqlx::query_as(
        "SELECT i.inhparent::regclass::text, count(*) FROM pg_stat_user_tables s \
         JOIN pg_inherits i ON i.inhrelid = s.relid \
         WHERE coalesce(s.seq_scan, 0) + coalesce(s.idx_scan, 0) > 0 GROUP BY i.inhparent",
    )
    .fetch_all(raw)
    .await
    .unwrap();
    assert!(looked_at.iter().any(|(table, _)| table == "memory"), "nothing was counted: {looked_at:?}");
    for (table, partitions) in looked_at {
        assert!(partitions < i64::from(PARTITIONS), "a request looked at all partitions of `{table}`");
    }
}
