//! PgBouncer before Postgres: configurations that work, and refusals that name the fix.

use futures::future::join_all;
use keepsake_index::postgres::PostgresOptions;
use keepsake_index::{Index, IndexError, PostgresIndex};
use keepsake_testkit::pooler::POOL_SIZE;
use keepsake_testkit::{Login, OwnedPostgres, Pooler};
use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use crate::place::NOW;

/// More calls at the same time than the pooler has connections.
const CALLS: usize = 8 * POOL_SIZE as usize;

/// A separate migrated server, because logins are roles of the whole server.
async fn postgres() -> OwnedPostgres {
    let postgres = OwnedPostgres::start().await;
    PostgresIndex::migrate(&postgres.url()).await.unwrap();
    postgres
}

/// The index with the two roles as logins.
async fn connect(pooler: &Pooler) -> Result<Index, IndexError> {
    let options = PostgresOptions {
        jobs_url: Some(pooler.url(Login::Jobs, "postgres")),
        max_connections: 32,
        ..PostgresOptions::new(pooler.url(Login::Requests, "postgres"))
    };
    PostgresIndex::connect(&options).await.map(Index::from)
}

async fn connect_as_owner(pooler: &Pooler) -> Result<Index, IndexError> {
    let options = PostgresOptions::new(pooler.url(Login::Owner, "postgres"));
    PostgresIndex::connect(&options).await.map(Index::from)
}

/// The text of a refusal, which no later attempt changes.
fn refusal(connected: Result<Index, IndexError>) -> String {
    let error = connected.unwrap_err();
    assert!(matches!(error, IndexError::UnsuitablePooler(_)), "{error:?}");
    assert!(!error.is_passing());
    error.to_string()
}

/// Every call of a request and of a job keeps nothing in a session.
#[tokio::test(flavor = "multi_thread")]
async fn roles_that_log_in_work_in_transaction_mode() {
    let postgres = postgres().await;
    let pooler = Pooler::start(&postgres.url(), "").await;
    let index = connect(&pooler).await.unwrap();
    let calls = (0..CALLS).map(|_| async {
        let replica = Uuid::new_v4();
        index.replicas.beat(replica, "gateway", NOW, NOW).await.unwrap();
        index.check().await.unwrap();
        index.upkeep.stores_after(None, 10).await.unwrap();
    });
    join_all(calls).await;
    let mut direct = PgConnection::connect(&postgres.url()).await.unwrap();
    for name in ["keepsake_app", "keepsake_jobs"] {
        let backends: i64 = sqlx::query_scalar("SELECT count(*) FROM pg_stat_activity WHERE usename = $1")
            .bind(name)
            .fetch_one(&mut direct)
            .await
            .unwrap();
        assert!(backends <= i64::from(POOL_SIZE), "{name}: {backends} connections");
    }
    index.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_login_works_in_session_mode() {
    let postgres = postgres().await;
    let pooler = Pooler::start(&postgres.url(), "pool_mode = session\ndefault_pool_size = 40").await;
    let index = connect_as_owner(&pooler).await.unwrap();
    index.check().await.unwrap();
    index.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_login_is_refused_in_transaction_mode() {
    let postgres = postgres().await;
    let pooler = Pooler::start(&postgres.url(), "").await;
    let text = refusal(connect_as_owner(&pooler).await);
    assert!(
        text.contains("the login `postgres` cannot keep the role `keepsake_app`"),
        "{text}"
    );
    assert!(text.contains("deploy/postgres/login-roles.sql"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_need_their_login_in_transaction_mode() {
    let postgres = postgres().await;
    let pooler = Pooler::start(&postgres.url(), "").await;
    let options = PostgresOptions::new(pooler.url(Login::Requests, "postgres"));
    let text = refusal(PostgresIndex::connect(&options).await.map(Index::from));
    assert!(text.contains("cannot keep the role `keepsake_jobs`"), "{text}");
    assert!(text.contains("index.jobs_url"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn login_without_its_settings_is_refused_in_transaction_mode() {
    let postgres = postgres().await;
    let pooler = Pooler::start(&postgres.url(), "").await;
    postgres.execute("ALTER ROLE keepsake_app RESET work_mem").await;
    postgres
        .execute("ALTER ROLE keepsake_app RESET statement_timeout")
        .await;
    let text = refusal(connect(&pooler).await);
    assert!(
        text.contains(
            "ALTER ROLE keepsake_app SET work_mem = '16MB'; ALTER ROLE keepsake_app SET statement_timeout = '9s'"
        ),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pooler_that_mixes_up_prepared_statements_is_refused() {
    let postgres = postgres().await;
    let pooler = Pooler::start(&postgres.url(), "max_prepared_statements = 0").await;
    let text = refusal(connect(&pooler).await);
    assert!(text.contains("max_prepared_statements"), "{text}");
}
