//! Clients that go away before they are answered.

use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::client::tool_calls;
use crate::support::{Deployment, Pair, Server, Tenant, eventually};

const LEAVING: usize = 200;
const AT_ONCE: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_leave_harm_nobody_on_postgres_and_s3() {
    leaving_harms_nobody(Pair::PostgresS3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_leave_harm_nobody_on_sqlite_and_files() {
    leaving_harms_nobody(Pair::SqliteFiles).await;
}

async fn leaving_harms_nobody(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let tenant = deployment.tenant().await;
    let mut server = deployment.start().await;
    let client = server.client(&tenant);
    for first in (0..LEAVING).step_by(AT_ONCE) {
        join_all((first..first + AT_ONCE).map(|n| send_and_leave(&server, &tenant, n))).await;
    }

    // Sooner than the server's own time limit for idle transactions.
    if pair.has_postgres() {
        let database = deployment.database().await;
        let stuck = "SELECT count(*) FROM pg_stat_activity \
                     WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
        let none_is_stuck = || async { database.number(stuck).await == 0 };
        eventually(
            "no transaction is left open",
            Duration::from_secs(5),
            none_is_stuck,
        )
        .await;
        database.close().await;
    }
    // More at once than there are connections.
    let writes = (0..40).map(|n| {
        let (client, tenant) = (client.clone(), tenant.clone());
        async move {
            let input =
                json!({"command": "create", "path": format!("/memories/after/{n}"), "file_text": "x"});
            client.tool_ok(&tenant, &input).await;
        }
    });
    join_all(writes).await;

    // Each file that a leaver created is there as a whole.
    let mut created = 0;
    for n in 0..LEAVING {
        let view = json!({"command": "view", "path": path(n)});
        let result = client.tool(&tenant, &view).await;
        if !result.is_error {
            created += 1;
            assert!(
                result.content.ends_with(&format!("\n     1\t{}", text(n))),
                "{}",
                result.content
            );
        }
    }
    println!("{created} of {LEAVING} creates of clients that left took effect");
    assert!(created > 0, "no create got through: nothing was tried");
    let store = client
        .get(&format!("/v1/memory_stores/{}", tenant.store_id))
        .await
        .json();
    assert_eq!(store["memory_count"], created + 40);
    server.end().await;
}

fn path(n: usize) -> String {
    format!("/memories/leavers/{n}")
}

fn text(n: usize) -> String {
    format!("left by {n} {}", "x".repeat(2000))
}

/// Sends a create and closes the connection; every fourth sends half of it.
async fn send_and_leave(server: &Server, tenant: &Tenant, n: usize) {
    let body = json!({"command": "create", "path": path(n), "file_text": text(n)}).to_string();
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: 127.0.0.1\r\nx-api-key: {}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        tool_calls(tenant.store_id),
        tenant.key,
        body.len()
    );
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let sent = if n % 4 == 3 { body.len() / 2 } else { body.len() };
    stream.write_all(&body.as_bytes()[..sent]).await.unwrap();
    // A yield or two apart, so that they leave at different steps of the way.
    for _ in 0..n % 7 {
        tokio::task::yield_now().await;
    }
    drop(stream);
}
