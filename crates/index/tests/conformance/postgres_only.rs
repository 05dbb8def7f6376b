//! Facts of Postgres only: row-level security, roles, migrations.

use std::collections::BTreeSet;

use keepsake_testkit::OwnedPostgres;
use sqlx::Executor as _;
use sqlx::postgres::PgConnection;

use crate::database::postgres_pool;
use crate::deletions::{tables, tenant_with_everything};
use crate::prelude::*;
use crate::schema::GLOBAL_TABLES;

/// SQLSTATE of what a role may not do.
const NOT_ALLOWED: &str = "42501";

/// Every table, but those of all tenants.
async fn tenant_tables(raw: &Raw) -> Vec<String> {
    let mut tables = tables(raw).await;
    tables.retain(|table| !GLOBAL_TABLES.contains(&table.as_str()));
    assert!(tables.len() >= 12, "{tables:?}");
    tables
}

async fn set_tenant(connection: &mut PgConnection, tenant_id: TenantId) {
    let set = sqlx::query("SELECT set_config('keepsake.tenant', $1, true)");
    set.bind(tenant_id.uuid().to_string()).execute(connection).await.unwrap();
}

async fn tenants_seen(connection: &mut PgConnection, table: &str) -> BTreeSet<Uuid> {
    let seen = sqlx::query_scalar(AssertSqlSafe(format!("SELECT tenant_id FROM {table}")));
    seen.fetch_all(connection).await.unwrap().into_iter().collect()
}

/// The rows that a statement touched, or its SQLSTATE.
async fn outcome(connection: &mut PgConnection, statement: &str) -> Result<u64, String> {
    let done = sqlx::query(AssertSqlSafe(statement)).execute(connection).await;
    done.map(|done| done.rows_affected())
        .map_err(|error| error.as_database_error().unwrap().code().unwrap().into_owned())
}

/// A policy that fails for some rows stands for rows that Postgres cannot read, and an
/// index of a function that answers something else by now for a damaged index.
#[tokio::test]
async fn rows_that_cannot_be_read_and_indexes_without_a_row_are_damage() {
    let (place, _index, _database) = Place::on_postgres().await;
    tenant_with_everything(&place).await;
    for statement in [
        "CREATE TABLE unreadable (number bigint)",
        "INSERT INTO unreadable SELECT * FROM generate_series(1, 100000)",
        "ALTER TABLE unreadable ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY fails ON unreadable USING (1 / (number - 90000) <= 1)",
        "GRANT SELECT ON unreadable TO keepsake_jobs",
        "CREATE TABLE private (number bigint)",
        "CREATE FUNCTION sign_of(bigint) RETURNS bigint IMMUTABLE LANGUAGE sql AS 'SELECT $1'",
        "CREATE INDEX private_sign ON private (sign_of(number))",
        "INSERT INTO private VALUES (1)",
        "CREATE OR REPLACE FUNCTION sign_of(bigint) RETURNS bigint IMMUTABLE LANGUAGE sql AS 'SELECT -$1'",
        "CREATE EXTENSION amcheck",
    ] {
        place.raw.execute(statement, &[]).await;
    }
    let unreadable = "table unreadable: division by zero";
    assert_eq!(place.index.upkeep.find_damage().await.unwrap(), [unreadable], "amcheck may not be used");
    let grant = "GRANT EXECUTE ON FUNCTION bt_index_check(regclass, boolean) TO keepsake_jobs";
    place.raw.execute(grant, &[]).await;
    let mut damage = place.index.upkeep.find_damage().await.unwrap();
    damage.retain(|message| message != unreadable);
    let [message] = damage.as_slice() else { panic!("{damage:?}") };
    assert!(message.starts_with("index private_sign: "), "{message}");
    assert!(message.contains("lacks matching index tuple"), "{message}");
}

#[tokio::test]
async fn query_without_its_tenant_finds_nothing_and_rows_of_another_cannot_be_written() {
    let (place, index, _database) = Place::on_postgres().await;
    let tables = tenant_tables(&place.raw).await;
    let mine = tenant_with_everything(&place).await;
    let theirs = tenant_with_everything(&place.stranger().await).await;
    let mut app = index.app_session().await.unwrap();
    for table in &tables {
        assert_eq!(tenants_seen(&mut app, table).await, BTreeSet::new(), "{table} before a tenant is set");
    }
    for tenant_id in [mine, theirs] {
        let mut transaction = app.begin().await.unwrap();
        set_tenant(&mut transaction, tenant_id).await;
        for table in &tables {
            let seen = tenants_seen(&mut transaction, table).await;
            assert_eq!(seen, BTreeSet::from([tenant_id.uuid()]), "{table}");
        }
        transaction.commit().await.unwrap();
        for table in &tables {
            assert_eq!(tenants_seen(&mut app, table).await, BTreeSet::new(), "{table} after the transaction");
        }
    }

    let (me, them, nobody) = (mine.uuid(), theirs.uuid(), next_uuid());
    let of_nobody = format!("jsonb_build_object('tenant_id', '{nobody}')");
    for table in &tables {
        let untouched = if table == "audit" { Err(NOT_ALLOWED.to_owned()) } else { Ok(0) };
        let refused = Err(NOT_ALLOWED.to_owned());
        for (statement, expected) in [
            (format!("UPDATE {table} SET tenant_id = '{me}' WHERE tenant_id = '{them}'"), &untouched),
            (format!("DELETE FROM {table} WHERE tenant_id = '{them}'"), &untouched),
            (format!("UPDATE {table} SET tenant_id = '{nobody}' WHERE tenant_id = '{me}'"), &refused),
            (
                format!(
                    "INSERT INTO {table} SELECT (jsonb_populate_record(t, {of_nobody})).* FROM {table} t"
                ),
                &refused,
            ),
        ] {
            let mut transaction = app.begin().await.unwrap();
            set_tenant(&mut transaction, mine).await;
            assert_eq!(outcome(&mut transaction, &statement).await, *expected, "{statement}");
        }
    }
}

#[tokio::test]
async fn roles_that_serve_are_bound_by_security_that_every_tenant_table_has() {
    let (place, index, _database) = Place::on_postgres().await;
    let unguarded = "SELECT CAST(relname AS text) FROM pg_class c WHERE relnamespace = 'public'::regnamespace \
                     AND relkind IN ('r', 'p') AND relname <> '_sqlx_migrations' \
                     AND NOT (relrowsecurity AND relforcerowsecurity \
                         AND EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid)) ORDER BY relname";
    let unguarded: Vec<_> = place.raw.rows(unguarded, &[]).await.into_iter().flatten().flatten().collect();
    // The app adds credentials of its tenant.
    let global: Vec<_> = GLOBAL_TABLES.into_iter().filter(|table| *table != "credential").collect();
    assert_eq!(unguarded, global);
    let bound = "SELECT count(*) FROM pg_roles WHERE rolname IN ('keepsake_app', 'keepsake_jobs') \
                 AND NOT (rolsuper OR rolbypassrls OR rolcanlogin)";
    assert_eq!(place.raw.number(bound, &[]).await, 2);
    let mut app = index.app_session().await.unwrap();
    let role: String =
        sqlx::query_scalar("SELECT CAST(current_user AS text)").fetch_one(&mut app).await.unwrap();
    assert_eq!(role, "keepsake_app");
    let not_allowed = Err(NOT_ALLOWED.to_owned());
    for table in
        ["job", "job_run", "replica", "flushed_batch", "redeemed_code", "operator_audit", "_sqlx_migrations"]
    {
        let refused = outcome(&mut app, &format!("SELECT count(*) FROM {table}")).await;
        assert_eq!(refused, not_allowed, "{table}");
    }
    // The audit is append-only.
    let mut session = place.raw.postgres().acquire().await.unwrap();
    let entry = "INSERT INTO operator_audit (id, at, actor, action) VALUES (gen_random_uuid(), 1, 'a', 'b')";
    for (role, statement) in [
        ("keepsake_app", "UPDATE audit SET actor = 'nobody'"),
        ("keepsake_app", "DELETE FROM audit"),
        ("keepsake_app", entry),
        ("keepsake_jobs", "UPDATE audit SET actor = 'nobody'"),
        ("keepsake_jobs", "UPDATE operator_audit SET actor = 'nobody'"),
        ("keepsake_jobs", "DELETE FROM operator_audit"),
        ("keepsake_jobs", "DELETE FROM tenant_deletion"),
    ] {
        let mut transaction = session.begin().await.unwrap();
        outcome(&mut transaction, &format!("SET LOCAL ROLE {role}")).await.unwrap();
        set_tenant(&mut transaction, place.tenant_id).await;
        assert_eq!(outcome(&mut transaction, statement).await, not_allowed, "{role}: {statement}");
    }
}

/// The test has its own Postgres server, since all databases of a server share its roles.
#[tokio::test]
async fn login_without_the_roles_is_unmigrated_and_an_owner_without_superpowers_serves() {
    let postgres = OwnedPostgres::start().await;
    // It makes the roles.
    PostgresIndex::migrate(&postgres.url()).await.unwrap();
    postgres.execute("CREATE ROLE owner_of_it LOGIN PASSWORD 'a-password-of-the-test'").await;
    postgres.execute("CREATE DATABASE ours").await;
    let url = format!("postgres://owner_of_it:a-password-of-the-test@{}/ours", postgres.address());
    let refused = PostgresIndex::connect(&PostgresOptions::new(&url)).await;
    assert!(matches!(refused, Err(IndexError::SchemaTooOld { found: 0, .. })), "{refused:?}");

    postgres.execute("GRANT keepsake_app, keepsake_jobs TO owner_of_it").await;
    postgres.execute("ALTER DATABASE ours OWNER TO owner_of_it").await;
    PostgresIndex::migrate(&url).await.unwrap();
    let index = PostgresIndex::connect(&PostgresOptions::new(&url)).await.unwrap();
    let as_owner = postgres_pool(&url).await;
    let place = Place::on(index.clone().into(), Raw::Postgres(as_owner)).await;
    place.create("/d/a", 1).await;
    assert_eq!(place.directory("/", 10).await.total_entries, 2);
    // The login is in both roles; what serves has the rights of one.
    let mut app = index.app_session().await.unwrap();
    assert_eq!(tenants_seen(&mut app, "memory").await, BTreeSet::new());
}

#[tokio::test]
async fn migration_retries_when_a_table_is_locked() {
    const WAITING: &str =
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let (_index, raw, database) = postgres_index().await;
    let url = database.database.url();
    let mut dump = PgConnection::connect(&url).await.unwrap();
    dump.execute("BEGIN; LOCK TABLE _sqlx_migrations IN ACCESS EXCLUSIVE MODE").await.unwrap();
    // Each try has its own connection: the second began when the first gave up.
    let in_use_until_it_tries_again = async {
        let mut waiting = BTreeSet::new();
        while waiting.len() < 2 {
            let seen: Vec<i32> = sqlx::query_scalar(WAITING).fetch_all(&raw).await.unwrap();
            waiting.extend(seen);
        }
        dump.close().await.unwrap();
    };
    let (migrated, ()) = tokio::join!(PostgresIndex::migrate(&url), in_use_until_it_tries_again);
    migrated.unwrap();
}

/// Counts the sessions of a pool of the index that wait for a lock.
fn waiting_for_locks(pool: &str) -> String {
    format!(
        "SELECT count(*) FROM pg_stat_activity \
         WHERE datname = current_database() AND wait_event_type = 'Lock' AND application_name = 'keepsake {pool}'"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_times_written_beside_a_purge_are_removed_with_the_rest() {
    let (place, _index, database) = Place::on_postgres().await;
    let (index, tenant_id, store_id) = (place.index.clone(), place.tenant_id, place.store_id);
    let memory_id = place.create("/a", 1).await.memory_id;
    let watching = Raw::Postgres(postgres_pool(&database.database.url()).await);

    // The flush finds the memory, and then waits for this uncommitted row.
    let mut in_the_way = place.raw.postgres().begin().await.unwrap();
    let row = "INSERT INTO memory_access (tenant_id, store_id, memory_id, last_read_at, last_read_by, active_at) \
               VALUES ($1, $2, $3, 1, 'x', 1)";
    let ids = [tenant_id.uuid(), store_id.uuid(), memory_id.uuid()];
    let row = ids.into_iter().fold(sqlx::query(row), sqlx::query::Query::bind);
    row.execute(&mut *in_the_way).await.unwrap();
    let read = LastUse { key: (tenant_id, store_id, memory_id), at: NOW, by: actor() };
    let flushing = index.clone();
    let flush = tokio::spawn(async move { flushing.access_times.flush(&[read]).await });
    while watching.number(&waiting_for_locks("shared"), &[]).await == 0 && !flush.is_finished() {}
    place.delete_store().await;
    let purge = tokio::spawn(async move {
        while !index.store_deletions.purge(tenant_id, store_id, NOW, 100).await.unwrap().is_done {}
    });
    while watching.number(&waiting_for_locks("jobs"), &[]).await == 0 && !purge.is_finished() {}
    in_the_way.rollback().await.unwrap();
    flush.await.unwrap().unwrap();
    purge.await.unwrap();
    let left = watching.number("SELECT count(*) FROM memory_access", &[]).await;
    assert_eq!(left, 0, "a row names who read a memory that is gone");
}
