//! Outages of the object store and of the database: calls that do not need them
//! succeed.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use super::support::{STORES, Store, all, delete, invalid, ok, patch, refused, strings, text};
use crate::support::client::send;
use crate::support::deployment::ServerConfig;
use crate::support::{Answer, Deployment, Pair, eventually};

#[track_caller]
fn unavailable(answer: &Answer) {
    refused(answer, 503, "overloaded_error");
    let seconds: u8 = answer.header("retry-after").parse().unwrap();
    assert!((1..=30).contains(&seconds), "{seconds} seconds");
}

#[tokio::test(flavor = "multi_thread")]
async fn object_store_outage_fails_only_calls_that_need_it_with_503() {
    let deployment = Deployment::new(Pair::PostgresS3).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start().await;
    let config = ServerConfig { endpoint: Some("http://127.0.0.1:1".to_owned()), ..ServerConfig::default() };
    let cut_off = deployment.start_with(&config).await;
    let whole = Store::new(&server.client(&tenant), &tenant.store_id.to_string());
    let client = cut_off.client(&tenant);
    let store = whole.seen_by(&client);
    let memory = whole.create("/a", "one").await;
    let edited = whole.update(&memory, &json!({"content": "two"})).await;
    let doomed = whole.create("/doomed", "three").await;
    let at = store.memory(&memory);
    let version = store.version(&memory["memory_version_id"]);

    let content = json!({"content": "four"});
    let view = json!({"command": "view", "path": "/memories/a"});
    let lists = [store.memories(), store.versions()].map(|list| format!("{list}?view=full"));
    // Each is tried several times: at once, so that it takes no longer.
    let answers = tokio::join!(
        client.get(&at),
        client.get(&version),
        client.get(&lists[0]),
        client.get(&lists[1]),
        store.try_create("/new", "x"),
        store.try_update(&memory, &content),
        patch(&client, &at, &content),
        client.call(&store.id, &view),
    );
    for answer in <[Answer; 8]>::from(answers) {
        unavailable(&answer);
    }
    // Other refusals come first.
    invalid(&store.try_create("/bad//path", "x").await, "path");

    assert_eq!(store.paths().await, ["/a", "/doomed"]);
    let basic = ok(&client.get(&format!("{at}?view=basic")).await);
    assert_eq!(basic["content_sha256"], edited["content_sha256"]);
    assert_eq!(store.version_count().await, 3);
    let made = ok(&client.post(STORES, &json!({"name": "made"})).await);
    let listed = all(&client, &format!("{STORES}?limit=5")).await;
    assert!(strings(&listed, "id").contains(&text(&made["id"]).to_owned()));
    ok(&client.post(&at, &json!({"path": "/moved"})).await);
    ok(&delete(&client, &store.memory(&doomed)).await);
    // The blob goes when the object store can be reached.
    let redacted = store.redact(&memory["memory_version_id"]).await;
    assert!(redacted["content_sha256"].is_null(), "{redacted}");
    ok(&delete(&client, &format!("{STORES}/{}", text(&made["id"]))).await);
    let probe = send(client.bare(Method::GET, "/readyz")).await;
    assert_eq!(probe.status, 200, "{}", probe.text);

    assert_eq!(whole.paths().await, ["/moved"]);
    assert_eq!(whole.read(&memory).await["content"], "two");
    assert_eq!(whole.version_count().await, 5);
    whole.create("/new", "x").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_is_not_ready_without_the_database_and_recovers() {
    let deployment = Deployment::new(Pair::PostgresS3).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    let store = Store::new(&client, &tenant.store_id.to_string());
    let memory = store.create("/a", "one").await;
    let probe = async |path| send(client.bare(Method::GET, path)).await;

    let url = deployment.postgres_url();
    let name = url.rsplit('/').next().unwrap();
    let server_url = std::env::var(keepsake_testkit::postgres::URL_VARIABLE).unwrap();
    let mut connection = PgConnection::connect(&server_url).await.unwrap();
    let mut run = async |sql: String| {
        connection.execute(AssertSqlSafe(sql)).await.unwrap();
    };
    run(format!("ALTER DATABASE \"{name}\" ALLOW_CONNECTIONS false")).await;
    run(format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")).await;
    unavailable(&client.get(&store.memory(&memory)).await);
    unavailable(&store.try_create("/b", "two").await);
    unavailable(&probe("/readyz").await);
    assert_eq!(probe("/livez").await.status, 200);

    run(format!("ALTER DATABASE \"{name}\" ALLOW_CONNECTIONS true")).await;
    eventually("the server is ready again", Duration::from_secs(20), async || {
        probe("/readyz").await.status == 200
    })
    .await;
    assert_eq!(store.read(&memory).await["content"], "one");
    store.create("/b", "two").await;
}
