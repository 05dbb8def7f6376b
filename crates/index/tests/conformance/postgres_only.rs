//! Facts of Postgres only: row-level security, roles, migrations.

use std::collections::BTreeSet;

use keepsake_core::{BlobKey, TenantId, Timestamp, VersionId};
use keepsake_index::postgres::PostgresOptions;
use keepsake_index::{AccessRow, Idempotency, IndexError, KeyCreation, PostgresIndex};
use keepsake_testkit::fresh_database;
use sqlx::postgres::{PgConnection, PgPool};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use uuid::Uuid;

use crate::place::{NOW, PLENTY, Place, actor, audited, by_tenant, created, new_key, next_uuid};
use crate::schema::GLOBAL_TABLES;
use crate::subject::{OwnDatabase, Raw, postgres_index, postgres_pool};

async fn tenant_tables(raw: &PgPool) -> Vec<String> {
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT CAST(relname AS text) FROM pg_class WHERE relnamespace = 'public'::regnamespace \
         AND relkind IN ('r', 'p') AND relname <> '_sqlx_migrations' ORDER BY relname",
    )
    .fetch_all(raw)
    .await
    .unwrap();
    tables.into_iter().filter(|table| !GLOBAL_TABLES.contains(&table.as_str())).collect()
}

/// A tenant with a row in every table that tenants have.
async fn place_with_everything(index: &PostgresIndex, raw: &PgPool) -> Place {
    let place = Place::on(index.clone().into(), Raw::Postgres(raw.clone())).await;
    let mut commit = place.commit_of(vec![created("/d/a", 1)]);
    let (scope_sha256, request_sha256) = ([1; 32], [2; 32]);
    commit.idempotency = Some(Idempotency { scope_sha256, request_sha256, since: Timestamp::from_micros(0) });
    place.run(&commit).await;
    let key = new_key(place.tenant_id);
    let mut secret = [0; 32];
    secret[..16].copy_from_slice(place.tenant_id.uuid().as_bytes());
    let made = place.index.keys.create(&key, &secret, PLENTY, None, &audited()).await;
    assert_eq!(made.unwrap(), KeyCreation::Created);
    let head = place.memory("/d/a").await;
    let contents = &place.index.contents;
    assert!(contents.insert(&place.blob(head.blob_id), b"a").await.unwrap());
    let memory_id = head.memory_id;
    let (tenant_id, store_id) = (place.tenant_id, place.store_id);
    let read = AccessRow { tenant_id, store_id, memory_id, read_at: NOW, read_by: actor() };
    place.index.access_times.flush(&[read]).await.unwrap();
    let orphan = BlobKey { tenant_id, store_id, blob_id: VersionId::from_uuid(next_uuid()) };
    place.queue().condemn_orphan(&orphan, NOW).await.unwrap();
    for statement in [
        "INSERT INTO audit (tenant_id, id, at, actor, action) VALUES ($1, $2, 1, 'a', 'b')",
        "INSERT INTO erasure (tenant_id, id, state, created_at) VALUES ($1, $2, 'done', 1)",
        "INSERT INTO search_doc (tenant_id, store_id, memory_id, analyser, length, terms) \
         VALUES ($1, $2, $2, 1, 1, '')",
        "INSERT INTO session (tenant_id, session_id, agent, agent_id, agent_version, environment_id, metadata, \
         vault_ids, created_at, updated_at) VALUES ($1, $2, '{}', 'a', 1, 'e', '{}', '[]', 1, 1)",
        "INSERT INTO session_resource (tenant_id, session_id, resource_id, position, store_id, \
         session_created_at, slug, access, name, description, created_at, updated_at) \
         VALUES ($1, $2, $2, 1, $2, 1, 's', 'read_write', 'n', '', 1, 1)",
        "INSERT INTO session_event (tenant_id, session_id, at, event_id, name, input) \
         VALUES ($1, $2, 1, $2, 'memory', '{}')",
    ] {
        place.raw.execute(statement, &place.ids()).await;
    }
    place
}

async fn set_tenant(connection: &mut PgConnection, tenant_id: TenantId) {
    sqlx::query("SELECT set_config('keepsake.tenant', $1, true)")
        .bind(tenant_id.uuid().to_string())
        .execute(connection)
        .await
        .unwrap();
}

async fn tenants_seen(connection: &mut PgConnection, table: &str) -> BTreeSet<Uuid> {
    let seen = sqlx::query_scalar(AssertSqlSafe(format!("SELECT tenant_id FROM {table}")));
    seen.fetch_all(connection).await.unwrap().into_iter().collect()
}

/// A policy that fails for some rows stands for rows that Postgres cannot read.
#[tokio::test]
async fn rows_that_cannot_be_read_are_damage() {
    let (index, raw, _database) = postgres_index().await;
    let place = place_with_everything(&index, &raw).await;
    for statement in [
        "CREATE TABLE unreadable (number bigint)",
        "INSERT INTO unreadable SELECT * FROM generate_series(1, 100000)",
        "ALTER TABLE unreadable ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY fails ON unreadable USING (1 / (number - 90000) <= 1)",
        "GRANT SELECT ON unreadable TO keepsake_jobs",
        "CREATE TABLE private (number bigint)",
    ] {
        sqlx::query(statement).execute(&raw).await.unwrap();
    }
    let damage = place.index.upkeep.find_damage().await.unwrap();
    let expected = "table unreadable: division by zero";
    assert_eq!(damage, [expected]);
}

/// An index of a function that answers something else by now stands for a damaged index.
#[tokio::test]
async fn index_without_a_row_is_damage_where_amcheck_may_be_used() {
    let (index, raw, _database) = postgres_index().await;
    let place = place_with_everything(&index, &raw).await;
    for statement in [
        "CREATE TABLE numbers (number bigint)",
        "CREATE FUNCTION sign_of(bigint) RETURNS bigint IMMUTABLE LANGUAGE sql AS 'SELECT $1'",
        "CREATE INDEX numbers_sign ON numbers (sign_of(number))",
        "INSERT INTO numbers VALUES (1)",
        "CREATE OR REPLACE FUNCTION sign_of(bigint) RETURNS bigint IMMUTABLE LANGUAGE sql AS 'SELECT -$1'",
        "CREATE EXTENSION amcheck",
    ] {
        sqlx::query(statement).execute(&raw).await.unwrap();
    }
    assert_eq!(place.index.upkeep.find_damage().await.unwrap(), Vec::<String>::new());
    let grant = "GRANT EXECUTE ON FUNCTION bt_index_check(regclass, boolean) TO keepsake_jobs";
    sqlx::query(grant).execute(&raw).await.unwrap();
    let damage = place.index.upkeep.find_damage().await.unwrap();
    let [message] = damage.as_slice() else { panic!("{damage:?}") };
    assert!(message.starts_with("index numbers_sign: "), "{message}");
    assert!(message.contains("lacks matching index tuple"), "{message}");
}

#[tokio::test]
async fn query_without_its_tenant_finds_nothing() {
    let (index, raw, _database) = postgres_index().await;
    let (mine, theirs) =
        (place_with_everything(&index, &raw).await, place_with_everything(&index, &raw).await);
    let tables = tenant_tables(&raw).await;
    assert!(tables.len() >= 12, "{tables:?}");
    let everyone = BTreeSet::from([mine.tenant_id.uuid(), theirs.tenant_id.uuid()]);

    let mut app = index.app_session().await.unwrap();
    for table in &tables {
        let all = tenants_seen(&mut raw.acquire().await.unwrap(), table).await;
        assert_eq!(all, everyone, "the test has no rows in {table}");
        assert_eq!(tenants_seen(&mut app, table).await, BTreeSet::new(), "{table} before a tenant is set");
    }
    for tenant_id in [mine.tenant_id, theirs.tenant_id] {
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
}

/// Runs a statement as one tenant; answers the rows it touched or its SQLSTATE.
async fn as_tenant(app: &mut PgConnection, tenant_id: TenantId, statement: String) -> Result<u64, String> {
    let mut transaction = app.begin().await.unwrap();
    set_tenant(&mut transaction, tenant_id).await;
    let done = transaction.execute(AssertSqlSafe(statement)).await;
    done.map(|done| done.rows_affected())
        .map_err(|error| error.as_database_error().unwrap().code().unwrap().into_owned())
}

#[tokio::test]
async fn rows_of_another_tenant_cannot_be_written() {
    const NOT_ALLOWED: &str = "42501";
    let (index, raw, _database) = postgres_index().await;
    let (mine, theirs) =
        (place_with_everything(&index, &raw).await, place_with_everything(&index, &raw).await);
    let (me, them) = (mine.tenant_id.uuid(), theirs.tenant_id.uuid());
    let mut app = index.app_session().await.unwrap();
    for table in tenant_tables(&raw).await {
        let is_append_only = table == "audit";
        let untouched = if is_append_only { Err(NOT_ALLOWED.to_owned()) } else { Ok(0) };
        for statement in [
            format!("UPDATE {table} SET tenant_id = '{me}' WHERE tenant_id = '{them}'"),
            format!("DELETE FROM {table} WHERE tenant_id = '{them}'"),
        ] {
            assert_eq!(
                as_tenant(&mut app, mine.tenant_id, statement.clone()).await,
                untouched,
                "{statement}"
            );
        }
        let give_away = format!("UPDATE {table} SET tenant_id = '{}' WHERE tenant_id = '{me}'", next_uuid());
        assert_eq!(as_tenant(&mut app, mine.tenant_id, give_away.clone()).await, Err(NOT_ALLOWED.to_owned()));
        let insert = format!(
            "INSERT INTO {table} SELECT (jsonb_populate_record(t, jsonb_build_object('tenant_id', '{}'))).* \
             FROM {table} t",
            next_uuid()
        );
        assert_eq!(as_tenant(&mut app, mine.tenant_id, insert).await, Err(NOT_ALLOWED.to_owned()), "{table}");
    }
}

#[tokio::test]
async fn every_tenant_table_has_security_enabled_and_forced() {
    let (_index, raw, _database) = postgres_index().await;
    let unguarded: Vec<String> = sqlx::query_scalar(
        "SELECT CAST(relname AS text) FROM pg_class c WHERE relnamespace = 'public'::regnamespace \
         AND relkind IN ('r', 'p') AND relname <> '_sqlx_migrations' \
         AND NOT (relrowsecurity AND relforcerowsecurity AND EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid)) \
         ORDER BY relname",
    )
    .fetch_all(&raw)
    .await
    .unwrap();
    assert_eq!(unguarded, GLOBAL_TABLES);
}

#[tokio::test]
async fn roles_that_serve_are_bound_by_security() {
    let (index, raw, _database) = postgres_index().await;
    let roles: Vec<(String, bool)> = sqlx::query_as(
        "SELECT CAST(rolname AS text), rolsuper OR rolbypassrls OR rolcanlogin FROM pg_roles \
         WHERE rolname IN ('keepsake_app', 'keepsake_jobs') ORDER BY rolname",
    )
    .fetch_all(&raw)
    .await
    .unwrap();
    assert_eq!(roles, [("keepsake_app".to_owned(), false), ("keepsake_jobs".to_owned(), false)]);
    let mut app = index.app_session().await.unwrap();
    let role: String =
        sqlx::query_scalar("SELECT CAST(current_user AS text)").fetch_one(&mut app).await.unwrap();
    assert_eq!(role, "keepsake_app");
    for table in ["job", "job_run", "replica", "redeemed_code", "operator_audit", "_sqlx_migrations"] {
        let statement = AssertSqlSafe(format!("SELECT count(*) FROM {table}"));
        let refused = sqlx::query(statement).execute(&mut app).await.unwrap_err();
        assert_eq!(refused.as_database_error().unwrap().code().as_deref(), Some("42501"), "{table}");
    }
}

#[tokio::test]
async fn audit_is_append_only() {
    let (index, raw, _database) = postgres_index().await;
    let place = place_with_everything(&index, &raw).await;
    let mut session = raw.acquire().await.unwrap();
    for (role, statement) in [
        ("keepsake_app", "UPDATE audit SET actor = 'nobody'"),
        ("keepsake_app", "DELETE FROM audit"),
        (
            "keepsake_app",
            "INSERT INTO operator_audit (id, at, actor, action) VALUES (gen_random_uuid(), 1, 'a', 'b')",
        ),
        ("keepsake_jobs", "UPDATE audit SET actor = 'nobody'"),
        ("keepsake_jobs", "UPDATE operator_audit SET actor = 'nobody'"),
        ("keepsake_jobs", "DELETE FROM operator_audit"),
        ("keepsake_jobs", "DELETE FROM tenant_deletion"),
    ] {
        let mut transaction = session.begin().await.unwrap();
        let as_role = AssertSqlSafe(format!("SET LOCAL ROLE {role}"));
        sqlx::query(as_role).execute(&mut *transaction).await.unwrap();
        set_tenant(&mut transaction, place.tenant_id).await;
        let refused = sqlx::query(AssertSqlSafe(statement)).execute(&mut *transaction).await;
        let refused = refused.unwrap_err().as_database_error().unwrap().code().map(String::from);
        assert_eq!(refused.as_deref(), Some("42501"), "{role}: {statement}");
    }
}

/// A role that may log in, and nothing else; dropped with this value.
struct Login {
    role: String,
    server_url: String,
}

impl Login {
    const PASSWORD: &str = "a-password-of-the-test";

    /// Named after the database through which the server is reached.
    async fn create(server: &OwnDatabase) -> Self {
        let login =
            Self { role: format!("{}_login", server.database.name()), server_url: server.database.url() };
        let create = format!("CREATE ROLE {} LOGIN PASSWORD '{}'", login.role, Self::PASSWORD);
        execute(&login.server_url, create).await.unwrap();
        login
    }

    /// The URL of a database of the same server, for this role.
    fn url(&self, url: &str) -> String {
        let separator = if url.contains('?') { '&' } else { '?' };
        format!("{url}{separator}user={}&password={}", self.role, Self::PASSWORD)
    }
}

/// A role can be dropped only after its database.
impl Drop for Login {
    fn drop(&mut self) {
        let drop_role = execute(&self.server_url, format!("DROP ROLE {}", self.role));
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                // A failure is not worth a test's.
                let _ = runtime.unwrap().block_on(drop_role);
            });
        });
    }
}

async fn execute(url: &str, statement: String) -> sqlx::Result<()> {
    let mut connection = PgConnection::connect(url).await?;
    connection.execute(AssertSqlSafe(statement)).await?;
    connection.close().await
}

#[tokio::test]
async fn login_without_the_roles_is_reported_as_unmigrated() {
    let (_index, _raw, server) = postgres_index().await;
    let login = Login::create(&server).await;
    let database = fresh_database().await;
    let refused = PostgresIndex::connect(&PostgresOptions::new(login.url(&database.url()))).await;
    assert!(matches!(refused, Err(IndexError::SchemaTooOld { found: 0, .. })), "{refused:?}");
}

#[tokio::test]
async fn owner_without_superpowers_migrates_and_serves() {
    let (_index, _raw, server) = postgres_index().await;
    let owner = Login::create(&server).await;
    let database = fresh_database().await;
    for statement in [
        format!("GRANT keepsake_app, keepsake_jobs TO {}", owner.role),
        format!("ALTER DATABASE {} OWNER TO {}", database.name(), owner.role),
    ] {
        execute(&server.database.url(), statement).await.unwrap();
    }
    let url = owner.url(&database.url());
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

/// Sessions of the index that wait for a lock.
const WAITING_FOR_LOCKS: &str = "SELECT count(*) FROM pg_stat_activity \
    WHERE datname = current_database() AND wait_event_type = 'Lock' AND application_name = 'keepsake'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_times_written_beside_a_purge_are_removed_with_the_rest() {
    let (index, raw, database) = postgres_index().await;
    let place = Place::on(index.into(), Raw::Postgres(raw.clone())).await;
    let index = place.index.clone();
    let (tenant_id, store_id) = (place.tenant_id, place.store_id);
    let memory_id = place.create("/a", 1).await.memory_id;
    let watching = postgres_pool(&database.database.url()).await;
    let waiting =
        async || -> i64 { sqlx::query_scalar(WAITING_FOR_LOCKS).fetch_one(&watching).await.unwrap() };

    // The flush finds the memory, and then waits for this uncommitted row.
    let mut in_the_way = raw.begin().await.unwrap();
    sqlx::query(
        "INSERT INTO memory_access (tenant_id, store_id, memory_id, last_read_at, last_read_by, active_at) \
         VALUES ($1, $2, $3, 1, 'x', 1)",
    )
    .bind(tenant_id.uuid())
    .bind(store_id.uuid())
    .bind(memory_id.uuid())
    .execute(&mut *in_the_way)
    .await
    .unwrap();
    let read = AccessRow { tenant_id, store_id, memory_id, read_at: NOW, read_by: actor() };
    let flushing = place.index.clone();
    let flush = tokio::spawn(async move { flushing.access_times.flush(&[read]).await });
    while waiting().await == 0 {}
    assert!(index.store_deletions.begin(tenant_id, store_id, &by_tenant(NOW)).await.unwrap());
    let purging = index.clone();
    let purge = tokio::spawn(async move {
        while !purging.store_deletions.purge(tenant_id, store_id, NOW, 100).await.unwrap().is_done {}
    });
    while waiting().await < 2 && !purge.is_finished() {}
    in_the_way.rollback().await.unwrap();
    flush.await.unwrap().unwrap();
    purge.await.unwrap();
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM memory_access").fetch_one(&raw).await.unwrap();
    assert_eq!(left, 0, "a row names who read a memory that is gone");
}
