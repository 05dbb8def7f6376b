//! How a server is found ready, and how it ends: without a request lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tokio::task::JoinSet;

use crate::support::client::{send, tool_calls, try_send};
use crate::support::deployment::ServerConfig;
use crate::support::{Client, Deployment, Pair, Server, Tenant, eventually};

const WITHIN: Duration = Duration::from_secs(30);
/// Clients that send one request after the other.
const CLIENTS: usize = 4;
/// How often a balancer asks whether a replica is ready.
const PROBE_EACH: Duration = Duration::from_millis(100);

async fn readiness(client: &Client) -> u16 {
    send(client.bare(Method::GET, "/readyz")).await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn server_is_ready_on_a_newer_schema_and_not_on_an_older_one() {
    let deployment = Deployment::new(Pair::PostgresS3).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    assert_eq!(readiness(&client).await, 200);
    let database = deployment.database().await;
    let newest = database.number("SELECT max(version) FROM _sqlx_migrations").await;
    let set = async |from: i64, to: i64| {
        let update = format!("UPDATE _sqlx_migrations SET version = {to} WHERE version = {from}");
        database.execute(update).await;
    };
    // Probe answers are cached for a second, so this waits for a change.
    let becomes = async |status: u16| {
        let what = format!("it answers {status}");
        eventually(&what, WITHIN, async || readiness(&client).await == status).await;
    };
    // Below everything: only the one before the newest is left as the newest.
    set(newest, -1).await;
    becomes(503).await;
    assert_eq!(send(client.bare(Method::GET, "/livez")).await.status, 200);
    set(-1, 9_999).await;
    becomes(200).await;
    set(9_999, newest).await;
    database.close().await;

    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let database = deployment.database().await;
    let later = "INSERT INTO _sqlx_migrations (version, description, installed_on, success, checksum, execution_time) \
                 VALUES (9999, 'of a later release', '2030-01-01', 1, x'00', 0)";
    database.execute(later.to_owned()).await;
    database.close().await;
    let server = deployment.start().await;
    assert_eq!(readiness(&server.client(&tenant)).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_server_is_not_ready_but_serves_and_closes_connections() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let config = ServerConfig { drain_seconds: 5, ..ServerConfig::default() };
    let mut server = deployment.start_with(&config).await;
    let client = server.client(&tenant);
    let view = json!({"command": "view", "path": "/memories"});
    let before = client.call(tenant.store_id, &view).await;
    assert_eq!((before.status, before.header("connection")), (200, ""));
    server.ask_to_end().await;
    eventually("it is not ready", WITHIN, async || readiness(&client).await == 503).await;
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
    next: AtomicUsize,
    is_over: AtomicBool,
}

impl Balancer {
    /// The replica for the next request, one of the ready ones.
    fn replica(&self) -> usize {
        let next = self.next.fetch_add(1, Ordering::Relaxed) % 2;
        if self.are_ready[next].load(Ordering::Relaxed) { next } else { 1 - next }
    }

    async fn watch(&self) {
        while !self.is_over.load(Ordering::Relaxed) {
            for (client, is_ready) in self.clients.iter().zip(&self.are_ready) {
                let probe = try_send(client.bare(Method::GET, "/readyz")).await;
                is_ready.store(probe.is_ok_and(|answer| answer.status == 200), Ordering::Relaxed);
            }
            tokio::time::sleep(PROBE_EACH).await;
        }
    }

    /// Sends changes one after another; returns the number of acknowledged ones.
    /// Only a refused connection is retried, at the other replica.
    async fn load(&self, number: usize, tenant: &Tenant) -> usize {
        let mut made = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            let path = format!("/memories/{number}/{made}");
            let input = json!({"command": "create", "path": path, "file_text": "x"});
            let mut replica = self.replica();
            let answer = loop {
                let request = self.clients[replica].request(Method::POST, &tool_calls(tenant.store_id));
                match try_send(request.json(&input)).await {
                    Ok(answer) => break answer,
                    Err(error) if error.is_connect() => replica = 1 - replica,
                    Err(error) => panic!("request {made} of client {number} was dropped: {error:?}"),
                }
            };
            assert_eq!(answer.status, 200, "{}", answer.text);
            assert!(!answer.tool_result().is_error, "{}", answer.text);
            made += 1;
        }
        made
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rolling_two_replicas_under_load_drops_no_request() {
    let deployment = Deployment::new(Pair::PostgresS3).await;
    let tenant = Arc::new(deployment.tenant().await);
    let config = ServerConfig {
        drain_seconds: 2,
        more: "[limits]\nrequests_per_second = 1_000_000\nrequest_burst = 1_000_000\nmemories_per_store = 1_000_000\n"
            .to_owned(),
        ..ServerConfig::default()
    };
    // Few connections, so that a replica that starts does not meet its load with
    // as many that must be opened first.
    let start = async || {
        let command = deployment.command(&config);
        Server::start(command.env("KEEPSAKE_INDEX_MAX_CONNECTIONS", "4")).await
    };
    let mut replicas = [start().await, start().await];
    let balancer = Arc::new(Balancer {
        clients: [replicas[0].client(&tenant), replicas[1].client(&tenant)],
        are_ready: [AtomicBool::new(true), AtomicBool::new(true)],
        next: AtomicUsize::new(0),
        is_over: AtomicBool::new(false),
    });
    let watching = Arc::clone(&balancer);
    let watch = tokio::spawn(async move { watching.watch().await });
    let mut load = JoinSet::new();
    for number in 0..CLIENTS {
        let (balancer, tenant) = (Arc::clone(&balancer), Arc::clone(&tenant));
        load.spawn(async move { balancer.load(number, &tenant).await });
    }
    for round in 0..2 {
        for (number, replica) in replicas.iter_mut().enumerate() {
            roll(replica, &balancer, number).await;
            assert!(load.len() == CLIENTS, "a client gave up in round {round}");
        }
    }
    balancer.is_over.store(true, Ordering::Relaxed);
    let made: usize = load.join_all().await.into_iter().sum();
    watch.await.unwrap();
    assert!(made > 100, "{made} requests are no load");
    let store = format!("/v1/memory_stores/{}", tenant.store_id);
    let counted = replicas[0].client(&tenant).get(&store).await.json();
    assert_eq!(counted["memory_count"], json!(made));
}

/// Ends a replica as an orchestrator does, starts it again, and waits until the
/// balancer has seen that it is ready.
async fn roll(replica: &mut Server, balancer: &Balancer, number: usize) {
    let is_ready = || balancer.are_ready[number].load(Ordering::Relaxed);
    replica.end().await;
    eventually("the balancer has seen the end", WITHIN, async || !is_ready()).await;
    replica.restart().await;
    eventually("the balancer has seen the start", WITHIN, async || is_ready()).await;
}
