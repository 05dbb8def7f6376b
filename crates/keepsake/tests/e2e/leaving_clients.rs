//! Clients that disconnect before the answer.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::prelude::*;

const LEAVING: usize = 600;
const AT_ONCE: usize = 20;
/// Moments at which they leave; has no factor in common with the four kinds.
const LEAVING_STEPS: usize = 33;

const STUCK: &str = "SELECT count(*) FROM pg_stat_activity \
                     WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
/// Sooner than the server's own time limit for such sessions.
const STUCK_WITHIN: Duration = Duration::from_secs(5);

on_pairs! { disconnecting_clients_affect_no_others }

async fn disconnecting_clients_affect_no_others(pair: Pair) {
    let (deployment, tenant, mut server, client) = started(pair).await;
    let database = deployment.database().await;
    let mut left_unanswered = 0;
    for first in (0..LEAVING).step_by(AT_ONCE) {
        let leavers = (first..first + AT_ONCE).map(|n| send_and_leave(&server, &tenant, n));
        left_unanswered += join_all(leavers).await.into_iter().filter(|left| *left).count();
        if pair.has_postgres() {
            // Each time: the next request on the connection would hide it.
            let none_is_stuck = || async { database.number(STUCK).await == 0 };
            eventually("no transaction is left open", STUCK_WITHIN, none_is_stuck).await;
        }
    }
    database.close().await;
    assert!(left_unanswered > LEAVING / 2, "only {left_unanswered} of {LEAVING} left before their answer");

    // More at once than there are connections.
    let writes = (0..40).map(async |n| {
        client.create_file(&tenant, &format!("/memories/after/{n}"), "x").await;
    });
    join_all(writes).await;
    let store = ok(&client.get(&format!("/v1/memory_stores/{}", tenant.store_id)).await);
    assert!(store["memory_count"].as_u64() > Some(40), "no create got through: nothing was tried");
    server.end().await;
    // Each file that a leaver created is there as a whole, and counted.
    server.beside("verify").await.ok();
}

/// Sends a request and closes the connection, each a little later than the one
/// before, so that they leave at every step of the way; answers whether this
/// one left before it was answered.
async fn send_and_leave(server: &Server, tenant: &Tenant, n: usize) -> bool {
    let key = &tenant.key;
    let (path, text) = (format!("/memories/leavers/{n}"), "left behind".repeat(200));
    let body = json!({"command": "create", "path": path, "file_text": text}).to_string();
    let create = format!(
        "POST {} HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        tool_calls(tenant.store_id),
        body.len()
    );
    let retrieve =
        format!("GET /v1/memory_stores/{} HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\n\r\n", tenant.store_id);
    // A retrieval is over sooner than a create.
    let (sent, pace) = match n % 4 {
        0 => (create.as_str(), Duration::from_micros(400)),
        1 | 2 => (retrieve.as_str(), Duration::from_micros(60)),
        _ => (&create[..create.len() - body.len() / 2], Duration::ZERO),
    };
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).await.unwrap();
    stream.write_all(sent.as_bytes()).await.unwrap();
    // A timer knows whole milliseconds only.
    let leave_at = Instant::now() + pace * u32::try_from(n % LEAVING_STEPS).unwrap();
    while Instant::now() < leave_at {
        tokio::task::yield_now().await;
    }
    let mut answer = [0; 1];
    let is_answered = matches!(stream.try_read(&mut answer), Ok(length) if length > 0);
    drop(stream);
    !is_answered
}
