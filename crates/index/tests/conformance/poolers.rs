//! PgBouncer before Postgres: configurations that work, and refusals that name the fix.

use keepsake_testkit::pooler::POOL_SIZE;
use keepsake_testkit::{Login, OwnedPostgres, Pooler};
use sqlx::PgConnection;

use crate::prelude::*;

/// More calls at the same time than the pooler has connections.
const CALLS: usize = 8 * POOL_SIZE as usize;

/// A separate migrated server, because logins are roles of the whole server.
async fn postgres() -> OwnedPostgres {
    let postgres = OwnedPostgres::start().await;
    PostgresIndex::migrate(&postgres.url()).await.unwrap();
    postgres
}

async fn connect(pooler: &Pooler, login: Login, jobs: Option<Login>) -> Result<Index, IndexError> {
    let options = PostgresOptions {
        jobs_url: jobs.map(|login| pooler.url(login, "postgres")),
        max_connections: 32,
        ..PostgresOptions::new(pooler.url(login, "postgres"))
    };
    PostgresIndex::connect(&options).await.map(Index::from)
}

fn refusal(connected: Result<Index, IndexError>) -> String {
    let error = connected.unwrap_err();
    assert!(matches!(error, IndexError::UnsuitablePooler(_)), "{error:?}");
    assert!(!error.is_passing());
    error.to_string()
}

/// Every call of a request and of a job keeps nothing in a session.
#[tokio::test(flavor = "multi_thread")]
async fn roles_work_in_transaction_mode_and_one_login_in_session_mode() {
    let postgres = postgres().await;
    let pooler = Pooler::start(&postgres.url(), "").await;
    let index = connect(&pooler, Login::Requests, Some(Login::Jobs)).await.unwrap();
    let calls = (0..CALLS).map(|_| async {
        index.replicas.beat(Uuid::new_v4(), "gateway", NOW, NOW).await.unwrap();
        index.check().await.unwrap();
        index.upkeep.stores_after(None, 10).await.unwrap();
    });
    join_all(calls).await;
    let mut direct = PgConnection::connect(&postgres.url()).await.unwrap();
    let backends = "SELECT count(*) FROM pg_stat_activity WHERE usename = $1";
    for name in ["keepsake_app", "keepsake_jobs"] {
        let backends: i64 = sqlx::query_scalar(backends).bind(name).fetch_one(&mut direct).await.unwrap();
        assert!(backends <= i64::from(POOL_SIZE), "{name}: {backends} connections");
    }
    index.close().await;
    drop(pooler);

    let pooler = Pooler::start(&postgres.url(), "pool_mode = session\ndefault_pool_size = 40").await;
    let index = connect(&pooler, Login::Owner, None).await.unwrap();
    index.check().await.unwrap();
    index.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unsuitable_poolers_are_refused_with_what_to_do() {
    let postgres = postgres().await;
    let pooler = Pooler::start(&postgres.url(), "").await;
    let of_one_login = refusal(connect(&pooler, Login::Owner, None).await);
    let of_jobs = refusal(connect(&pooler, Login::Requests, None).await);
    drop(pooler);
    let pooler = Pooler::start(&postgres.url(), "max_prepared_statements = 0").await;
    let of_statements = refusal(connect(&pooler, Login::Requests, Some(Login::Jobs)).await);
    drop(pooler);
    // A fresh one, because connections keep the settings that they began with.
    let pooler = Pooler::start(&postgres.url(), "").await;
    for setting in ["work_mem", "statement_timeout"] {
        postgres.execute(&format!("ALTER ROLE keepsake_app RESET {setting}")).await;
    }
    let of_settings = refusal(connect(&pooler, Login::Requests, Some(Login::Jobs)).await);
    let settings =
        "ALTER ROLE keepsake_app SET work_mem = '16MB'; ALTER ROLE keepsake_app SET statement_timeout = '9s'";
    for (text, named) in [
        (&of_one_login, "the login `postgres` cannot keep the role `keepsake_app`"),
        (&of_one_login, "deploy/postgres/login-roles.sql"),
        (&of_jobs, "cannot keep the role `keepsake_jobs`"),
        (&of_jobs, "index.jobs_url"),
        (&of_statements, "max_prepared_statements"),
        (&of_settings, settings),
    ] {
        assert!(text.contains(named), "{named:?} is not in {text}");
    }
}
