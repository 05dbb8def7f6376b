//! How a server is found ready, and how it ends: without a request lost.

use crate::prelude::*;

pub(crate) async fn readiness(client: &Client) -> u16 {
    send(client.bare(Method::GET, "/readyz")).await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn server_is_ready_on_a_newer_schema_and_not_on_an_older_one() {
    let (deployment, _, _server, client) = started(Pair::PostgresS3).await;
    assert_eq!(readiness(&client).await, 200);
    let database = deployment.database().await;
    let newest = database.number("SELECT max(version) FROM _sqlx_migrations").await;
    // Below everything, so that only the one before the newest is left as the newest, and
    // above everything. Probe answers are cached for a second.
    for (from, to, status) in [(newest, -1, 503), (-1, 9_999, 200)] {
        let update = format!("UPDATE _sqlx_migrations SET version = {to} WHERE version = {from}");
        database.execute(update).await;
        let what = format!("it answers {status}");
        soon(&what, async || readiness(&client).await == status).await;
        assert_eq!(send(client.bare(Method::GET, "/livez")).await.status, 200);
    }
    database.close().await;

    let deployment = Deployment::new(Pair::Sqlite).await;
    deployment.tenant().await;
    let later = "INSERT INTO _sqlx_migrations (version, description, installed_on, success, checksum, execution_time) \
                 VALUES (9999, 'of a later release', '2030-01-01', 1, x'00', 0)";
    deployment.execute(later).await;
    let server = deployment.start().await;
    assert_eq!(readiness(&Client::new(&server.url(), "")).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_server_is_not_ready_but_serves_and_closes_connections() {
    let config = ServerConfig { drain_seconds: 5, ..ServerConfig::default() };
    let (_deployment, tenant, mut server, client) = started_with(Pair::Sqlite, &config).await;
    let view = json!({"command": "view", "path": "/memories"});
    let before = client.call(tenant.store_id, &view).await;
    assert_eq!((before.status, before.header("connection")), (200, ""));
    server.ask_to_end().await;
    soon("it is not ready", async || readiness(&client).await == 503).await;
    let during = client.call(tenant.store_id, &view).await;
    assert_eq!((during.status, during.header("connection")), (200, "close"));
    server.ended().await;
    let after = client.request(Method::POST, &tool_calls(tenant.store_id)).json(&view);
    assert!(try_send(after).await.unwrap_err().is_connect());
}

/// Two replicas as a balancer has them: which are ready is asked again and again.
struct Balancer {
    clients: [Client; 2],
    are_ready: [AtomicBool; 2],
    is_over: AtomicBool,
}

impl Balancer {
    fn is_ready(&self, replica: usize) -> bool {
        self.are_ready[replica].load(Ordering::Relaxed)
    }

    async fn watch(&self) {
        while !self.is_over.load(Ordering::Relaxed) {
            for (client, is_ready) in self.clients.iter().zip(&self.are_ready) {
                let probe = try_send(client.bare(Method::GET, "/readyz")).await;
                is_ready.store(probe.is_ok_and(|answer| answer.status == 200), Ordering::Relaxed);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Sends changes one after another; returns the number of acknowledged ones.
    /// Only a refused connection is retried, at the other replica.
    async fn load(&self, number: usize, tenant: &Tenant) -> usize {
        let mut made = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            let path = format!("/memories/{number}/{made}");
            let input = json!({"command": "create", "path": path, "file_text": "x"});
            let turn = (number + made) % 2;
            let mut replica = if self.is_ready(turn) { turn } else { 1 - turn };
            let answer = loop {
                let request = self.clients[replica].request(Method::POST, &tool_calls(tenant.store_id));
                match try_send(request.json(&input)).await {
                    Ok(answer) => break answer,
                    Err(error) if error.is_connect() => replica = 1 - replica,
                    Err(error) => panic!("request {made} of client {number} was dropped: {error:?}"),
                }
            };
            assert_eq!(ok(&answer)["is_error"], false, "{}", answer.text);
            made += 1;
        }
        made
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rolling_two_replicas_under_load_drops_no_request() {
    let deployment = Deployment::new(Pair::PostgresS3).await;
    let tenant = deployment.tenant().await;
    let more = format!("{FREE_RATES}memories_per_store = 1_000_000\n");
    let config = ServerConfig { drain_seconds: 2, more, ..ServerConfig::default() };
    // Few connections, so that a replica that starts does not meet its load with
    // as many that must be opened first.
    let start = async || {
        let command = deployment.command(&config);
        Server::start(command.env("KEEPSAKE_INDEX_MAX_CONNECTIONS", "4")).await
    };
    let mut replicas = [start().await, start().await];
    let balancer = Balancer {
        clients: [replicas[0].client(&tenant), replicas[1].client(&tenant)],
        are_ready: [AtomicBool::new(true), AtomicBool::new(true)],
        is_over: AtomicBool::new(false),
    };
    let roll = async {
        for replica in [0, 1, 0, 1] {
            // As an orchestrator does it.
            replicas[replica].end().await;
            soon("the balancer has seen the end", async || !balancer.is_ready(replica)).await;
            replicas[replica].restart().await;
            soon("the balancer has seen the start", async || balancer.is_ready(replica)).await;
        }
        balancer.is_over.store(true, Ordering::Relaxed);
    };
    let load = join_all((0..4).map(|client| balancer.load(client, &tenant)));
    let (made, (), ()) = tokio::join!(load, balancer.watch(), roll);
    let made: usize = made.into_iter().sum();
    assert!(made > 100, "{made} requests are no load");
    let store = ok(&balancer.clients[0].get(&format!("/v1/memory_stores/{}", tenant.store_id)).await);
    assert_eq!(store["memory_count"], made);
}
