//! Clients that disconnect before the answer.

use std::time::{Duration, Instant};

use futures::future::join_all;
use reqwest::Method;
use serde_json::json;

use crate::support::client::{ok, tool_calls, try_send};
use crate::support::server::started;
use crate::support::{Client, Pair, Tenant, eventually};

const LEAVING: usize = 600;
const AT_ONCE: usize = 20;
/// Moments at which they leave; an odd number, so that both kinds leave at each.
const LEAVING_STEPS: usize = 33;

/// Sessions with an abandoned transaction.
const STUCK: &str = "SELECT count(*) FROM pg_stat_activity \
                     WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
/// Sooner than the server's own time limit for such sessions.
const STUCK_WITHIN: Duration = Duration::from_secs(5);

on_pairs! { disconnecting_clients_affect_no_others:
    disconnecting_clients_affect_no_others_on_postgres_and_s3 on PostgresS3,
    disconnecting_clients_affect_no_others_on_sqlite on Sqlite,
}

async fn disconnecting_clients_affect_no_others(pair: Pair) {
    let (deployment, tenant, mut server, client) = started(pair).await;
    let database = deployment.database().await;
    let mut left_unanswered = 0;
    for first in (0..LEAVING).step_by(AT_ONCE) {
        let leavers = (first..first + AT_ONCE).map(|n| send_and_leave(&client, &tenant, n));
        left_unanswered += join_all(leavers).await.into_iter().filter(|left| *left).count();
        if pair.has_postgres() {
            // Each time: the next request on the connection would hide it.
            let none_is_stuck = || async { database.number(STUCK).await == 0 };
            eventually("no transaction is left open", STUCK_WITHIN, none_is_stuck).await;
        }
    }
    database.close().await;
    assert!(left_unanswered > LEAVING / 4, "only {left_unanswered} of {LEAVING} left before their answer");

    // More at once than there are connections.
    join_all((0..40).map(async |n| {
        let path = format!("/memories/after/{n}");
        client.tool_ok(&tenant, &json!({"command": "create", "path": path, "file_text": "x"})).await
    }))
    .await;

    // Each file that a leaver created is there as a whole.
    let mut created = 0;
    for n in 0..LEAVING {
        let view = json!({"command": "view", "path": path(n)});
        let result = client.tool(&tenant, &view).await;
        if !result.is_error {
            created += 1;
            assert!(result.content.ends_with(&format!("\n     1\t{}", text(n))), "{}", result.content);
        }
    }
    assert!(created > 0, "no create got through: nothing was tried");
    let store = ok(&client.get(&format!("/v1/memory_stores/{}", tenant.store_id)).await);
    assert_eq!(store["memory_count"], created + 40);
    server.end().await;
}

fn path(n: usize) -> String {
    format!("/memories/leavers/{n}")
}

fn text(n: usize) -> String {
    format!("left by {n} {}", "x".repeat(2000))
}

/// Sends a request and closes the connection, each a little later than the one before, so
/// that they leave at every step of the way; answers whether this one left before it was
/// answered.
async fn send_and_leave(client: &Client, tenant: &Tenant, n: usize) -> bool {
    let create = json!({"command": "create", "path": path(n), "file_text": text(n)});
    // A retrieval is over sooner than a create.
    let (request, pace) = if n.is_multiple_of(2) {
        (client.request(Method::POST, &tool_calls(tenant.store_id)).json(&create), Duration::from_micros(400))
    } else {
        let store = format!("/v1/memory_stores/{}", tenant.store_id);
        (client.request(Method::GET, &store), Duration::from_micros(60))
    };
    let leave_at = Instant::now() + pace * u32::try_from(n % LEAVING_STEPS).unwrap();
    // A timer knows whole milliseconds only.
    let leave = async {
        while Instant::now() < leave_at {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        answer = try_send(request) => answer.is_err(),
        () = leave => true,
    }
}
