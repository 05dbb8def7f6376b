//! Postgres restarts, or its connections go silent or slow; SQLite's file is locked.

use keepsake_index::PostgresIndex;
use keepsake_index::postgres::PostgresOptions;
use keepsake_testkit::{FaultProxy, OwnedPostgres, StopMode};
use sqlx::Connection as _;
use sqlx::sqlite::SqliteConnection;
use tokio::task::JoinSet;

use crate::lifecycle::readiness;
use crate::prelude::*;

/// How soon after a fault all requests must succeed.
const FULL_SERVICE_WITHIN: Duration = Duration::from_secs(15);
/// A request waits a little longer for a connection.
const REQUESTS_WAIT: Duration = Duration::from_secs(4);
/// How much longer than drain and shutdown deadline a process may take to end.
const END_MARGIN: Duration = Duration::from_secs(5);

/// A server all of whose connections to Postgres, or to the pooler of the run, are
/// through a proxy.
async fn start_behind_proxy(
    deployment: &Deployment,
    config: &ServerConfig,
    call_timeout: Option<&str>,
) -> (Server, FaultProxy) {
    let (proxy, url) = FaultProxy::before_url(&deployment.index_url()).await;
    let command = deployment.command(config).env("KEEPSAKE_INDEX_URL", &url);
    let mut command = command.env("KEEPSAKE_SERVER_SHUTDOWN_DEADLINE_SECONDS", "2");
    if let Some(url) = deployment.jobs_url() {
        command = command.env("KEEPSAKE_INDEX_JOBS_URL", &proxy.url(&url));
    }
    if let Some(seconds) = call_timeout {
        command = command.env("KEEPSAKE_INDEX_CALL_TIMEOUT_SECONDS", seconds);
    }
    (Server::start(command).await, proxy)
}

async fn use_connections(client: &Client, tenant: &Tenant) -> Vec<u16> {
    let store = format!("/v1/memory_stores/{}", tenant.store_id);
    let reads = (0..12).map(|_| client.get(&store));
    let writes = (0..4).map(|_| {
        let path = format!("/memories/{}", Uuid::new_v4());
        let input = json!({"command": "create", "path": path, "file_text": "x"});
        async move { client.call(tenant.store_id, &input).await }
    });
    let (reads, writes) = tokio::join!(join_all(reads), join_all(writes));
    reads.iter().chain(&writes).map(|answer| answer.status).collect()
}

async fn works(client: &Client, tenant: &Tenant) -> bool {
    let statuses = use_connections(client, tenant).await;
    readiness(client).await == 200 && statuses.iter().all(|status| *status == 200)
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_are_replaced_and_do_not_block_the_shutdown() {
    let deployment = Deployment::new(Pair::PostgresS3).await;
    let tenant = deployment.tenant().await;
    let (mut server, proxy) = start_behind_proxy(&deployment, &ServerConfig::default(), None).await;
    let client = server.client(&tenant);
    assert!(works(&client, &tenant).await);

    proxy.silence_connections();
    let silent_since = Instant::now();
    // Requests that meet silent connections are answered all the same.
    for status in use_connections(&client, &tenant).await {
        assert!(matches!(status, 200 | 503), "{status}");
    }
    eventually("everything works", FULL_SERVICE_WITHIN, async || works(&client, &tenant).await).await;
    let took = silent_since.elapsed();
    assert!(took <= FULL_SERVICE_WITHIN, "{took:?}");

    proxy.silence_all();
    let request = client.request(Method::GET, &format!("/v1/memory_stores/{}", tenant.store_id));
    let under_way = tokio::spawn(try_send(request));
    server.ask_to_end().await;
    let asked_at = Instant::now();
    server.ended().await;
    let took = asked_at.elapsed();
    assert!(took <= Duration::from_secs(2) + END_MARGIN, "{took:?}");
    drop(under_way.await.unwrap());
}

#[track_caller]
fn assert_all_are_refused(answers: &[Answer]) {
    for answer in answers {
        assert_eq!(answer.status, 503, "{}", answer.text);
        assert_ne!(answer.header("retry-after"), "", "{}", answer.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_refused_soon_while_the_database_does_not_answer() {
    let deployment = Deployment::new(Pair::Postgres).await;
    let tenant = deployment.tenant().await;
    let (server, proxy) = start_behind_proxy(&deployment, &ServerConfig::default(), Some("1")).await;
    let client = server.client(&tenant);
    assert!(works(&client, &tenant).await);
    proxy.silence_all();
    let store = format!("/v1/memory_stores/{}", tenant.store_id);
    let asked = join_all((0..40).map(|_| client.get(&store)));
    let answers = tokio::time::timeout(FULL_SERVICE_WITHIN, asked).await;
    assert_all_are_refused(&answers.expect("a request waits long"));
    assert_eq!(readiness(&client).await, 503);
    proxy.heal().await;
    eventually("everything works", FULL_SERVICE_WITHIN, async || works(&client, &tenant).await).await;
}

/// The file is locked by another program, as an operator's shell.
#[tokio::test(flavor = "multi_thread")]
async fn writes_to_a_locked_file_are_refused_and_change_nothing() {
    let (deployment, tenant, _server, client) = started(Pair::Sqlite).await;
    let store = Store::of(&client, &tenant);
    let paths: Vec<_> = (0..20).map(|number| format!("/{number}")).collect();
    let write = || join_all(paths.iter().map(|path| store.try_create(path, "x")));
    let mut shell = SqliteConnection::connect(&deployment.index_url()).await.unwrap();
    sqlx::query("BEGIN IMMEDIATE").execute(&mut shell).await.unwrap();
    assert_all_are_refused(&write().await);
    sqlx::query("ROLLBACK").execute(&mut shell).await.unwrap();
    shell.close().await.unwrap();
    assert_eq!(store.paths().await, [""; 0]);
    for answer in write().await {
        ok(&answer);
    }
}

/// Reads until it is over. A read may be refused only if the database is away for longer than
/// requests wait for it; answers the first such refusal.
async fn read_until(client: Client, tenant: Tenant, is_over: Arc<AtomicBool>) -> Option<Answer> {
    let store = format!("/v1/memory_stores/{}", tenant.store_id);
    let mut refusal = None;
    while !is_over.load(Ordering::Relaxed) {
        let answer = client.get(&store).await;
        assert!([200, 503].contains(&answer.status), "a read failed: {}", answer.text);
        refusal = refusal.or((answer.status == 503).then_some(answer));
    }
    refusal
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_of_the_database_fails_no_read_and_no_probe() {
    let deployment = Deployment::new(Pair::PostgresS3).await;
    let mut postgres = OwnedPostgres::start().await;
    PostgresIndex::migrate(&postgres.url()).await.unwrap();
    let index = PostgresIndex::connect(&PostgresOptions::new(postgres.url())).await.unwrap();
    let provision = deployment.provision_on(index.into()).await;
    let tenant = provision.tenant().await;
    provision.close().await;
    let command = deployment.command(&ServerConfig::default()).env("KEEPSAKE_INDEX_URL", &postgres.url());
    let mut server = Server::start(command).await;
    let client = server.client(&tenant);
    assert!(works(&client, &tenant).await);

    for mode in [StopMode::Fast, StopMode::Immediate] {
        // A read that meets two restarts may fail: each has its own readers.
        let is_over = Arc::new(AtomicBool::new(false));
        let mut readers = JoinSet::new();
        for _ in 0..4 {
            readers.spawn(read_until(client.clone(), tenant.clone(), Arc::clone(&is_over)));
        }
        let stopped_at = Instant::now();
        postgres.restart(mode).await;
        let was_short = stopped_at.elapsed() < REQUESTS_WAIT;
        assert_eq!(readiness(&client).await, 200, "the first probe after the restart");
        let statuses = use_connections(&client, &tenant).await;
        assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
        is_over.store(true, Ordering::Relaxed);
        while let Some(reader) = readers.join_next().await {
            let refusal = reader.unwrap();
            assert!(refusal.is_none() || !was_short, "a read failed: {refusal:?}");
        }
    }
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_change_is_applied_after_its_client_disconnects() {
    const TENANTS: i64 = 4;
    let deployment = Deployment::new(Pair::PostgresS3).await;
    let operator = Operator::new();
    let (mut server, proxy) = start_behind_proxy(&deployment, &operator.config, None).await;
    let database = deployment.database().await;
    for number in 1..=TENANTS {
        let request = Client::new(&operator.url, "").bare(Method::POST, "/admin/v1/tenants");
        let new = json!({"name": format!("tenant {number}")});
        let request = request.bearer_auth(&operator.token).json(&new);
        if number == 1 {
            // It opens the connection of the others.
            assert_eq!(try_send(request).await.unwrap().status, 200);
            proxy.delay(Duration::from_millis(300));
            continue;
        }
        let request = request.timeout(Duration::from_millis(500));
        assert!(try_send(request).await.unwrap_err().is_timeout());
        soon("the tenant is made", async || database.number("SELECT count(*) FROM tenant").await == number)
            .await;
    }
    assert_eq!(database.number("SELECT count(*) FROM operator_audit").await, TENANTS);
    database.close().await;
    proxy.heal().await;
    server.end().await;
}
