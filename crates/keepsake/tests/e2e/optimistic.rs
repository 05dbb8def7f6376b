//! Optimistic concurrency: many clients that read, change and write back what
//! they read, with a precondition, lose no update.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use reqwest::Method;
use serde_json::json;
use tokio::task::JoinSet;

use crate::support::client::send;
use crate::support::{Client, Deployment, Pair};

const CLIENTS: usize = 32;
const MEMORIES: usize = 8;
/// Updates that each client must get through.
const UPDATES: usize = 6;

#[tokio::test(flavor = "multi_thread")]
async fn no_update_is_lost_between_two_servers_on_postgres_and_s3() {
    let deployment = Deployment::new(Pair::PostgresS3).await;
    let tenant = deployment.tenant().await;
    let servers = [deployment.start().await, deployment.start().await];
    let clients = servers.each_ref().map(|server| server.client(&tenant));
    no_update_is_lost(&format!("/v1/memory_stores/{}", tenant.store_id), &clients).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_update_is_lost_on_sqlite() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    no_update_is_lost(&format!("/v1/memory_stores/{}", tenant.store_id), &[client]).await;
}

async fn no_update_is_lost(store: &str, clients: &[Client]) {
    let mut memories = Vec::new();
    for number in 0..MEMORIES {
        let new = json!({"path": format!("/log-{number}"), "content": ""});
        let made = clients[0].post(&format!("{store}/memories"), &new).await;
        assert_eq!(made.status, 200, "{}", made.text);
        memories.push(format!(
            "{store}/memories/{}",
            made.json()["id"].as_str().unwrap()
        ));
    }
    let memories = Arc::new(memories);
    let refused = Arc::new(AtomicU64::new(0));
    let mut running = JoinSet::new();
    for number in 0..CLIENTS {
        let (client, memories) = (clients[number % clients.len()].clone(), Arc::clone(&memories));
        let refused = Arc::clone(&refused);
        running.spawn(async move {
            for update in 0..UPDATES {
                let memory = &memories[(number + update) % MEMORIES];
                while !add(&client, memory, &format!("{number}.{update}")).await {
                    refused.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    running.join_all().await;

    let mut lines = Vec::new();
    for memory in memories.iter() {
        let read = clients[0].get(memory).await.json();
        lines.extend(read["content"].as_str().unwrap().lines().map(str::to_owned));
    }
    lines.sort();
    let each = (0..CLIENTS).flat_map(|client| (0..UPDATES).map(move |update| format!("{client}.{update}")));
    let mut expected: Vec<_> = each.collect();
    expected.sort();
    assert_eq!(lines, expected, "updates were lost or made twice");
    let refused = refused.load(Ordering::Relaxed);
    assert!(refused > 0, "there was no conflict: the test proves nothing");
}

/// Reads, adds a line, writes back; `false` when another one was faster. No two
/// lines are the same, because a change without effect is no conflict.
async fn add(client: &Client, memory: &str, line: &str) -> bool {
    let read = client.get(memory).await;
    assert_eq!(read.status, 200, "{}", read.text);
    let read = read.json();
    let content = format!("{}{line}\n", read["content"].as_str().unwrap());
    let sha256 = &read["content_sha256"];
    let update = json!({
        "content": content,
        "precondition": {"type": "content_sha256", "content_sha256": sha256},
    });
    let answer = send(client.request(Method::POST, memory).json(&update)).await;
    if answer.status == 409 {
        let error = &answer.json()["error"];
        assert_eq!(
            error["type"], "memory_precondition_failed_error",
            "{}",
            answer.text
        );
        assert_ne!(error["current_content_sha256"], *sha256, "{}", answer.text);
        return false;
    }
    assert_eq!(answer.status, 200, "{}", answer.text);
    true
}
